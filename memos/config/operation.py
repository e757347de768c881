"""Settings of operation: what is found, shown, moved, limited and aged, and how turns are read."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from memos.config.section import Section


class RetrievalConfig(Section):
    """What the default policy ranks by: the weights below times the signals of memos/operation/policies/policy.py.
    Round numbers, chosen on dialogues where others near them do as well: docs/benchmarks.md."""

    near: float = Field(0.3, ge=0, description="of the cosine of the query and the memory in its context")
    tokens: float = Field(1.0, ge=0, description="of the mean cosine of the query's tokens with their nearest ones")
    compared: int = Field(
        50, ge=0, description="memories that are compared so, the best without it; 0: none, which is faster, finds less"
    )
    words: float = Field(0.7, ge=0, description="of the query's words, as a share, in the memory itself")
    around: float = Field(1.0, ge=0, description="of the query's words in what was said just before and after it")
    thread: float = Field(0.4, ge=0, description="of the query's words in the conversation that it was said in")
    speaker: float = Field(0.09, ge=0, description="where the query names the one who said it")
    states: float = Field(1.0, ge=0, description="where it states just the fact that the query asks for")
    linked: float = Field(0.02, ge=0, description="over the number of facts between it and what the query is about")
    hops: int = Field(2, ge=0, description="most facts on that way")
    question: float = Field(0.1, ge=0, description="taken off where the memory asks something itself")
    other: float = Field(0.25, ge=0, description="taken off where the other side said it: the assistant, or the user")
    standing: float = Field(
        0.5, ge=0, description="where work is asked for, and it says how the user wants such work done from now on"
    )
    length: float = Field(0.05, ge=0, description="of the logarithm of its length: longer ones say more")
    reranker: str | None = Field(
        None, description="folder of a cross-encoder that reads the best candidates beside the query"
    )
    answers: float = Field(1.0, ge=0, description="of what the reranker says, where there is one")
    pictures: str | None = Field(
        None,
        description="folder of an encoder of texts and pictures (CLIP, SigLIP), which finds pictures by what is seen",
    )
    seen: float = Field(
        1.0, ge=0, description="of how surely the query tells of a memory's picture, where there is one"
    )
    useful: float = Field(0.1, ge=0, description="of the utility, from -1 to 1, that feedback has given a memory")
    learning: float = Field(0.3, gt=0, le=1, description="share of the way that one feedback moves the utility")
    exact_ms: float = Field(
        2.0, ge=0, description="vectors are compared one by one where that takes no longer than this, else by a graph"
    )


class SchedulerConfig(Section):
    """What a request sees and what moves. Heat is MemoryOS's (2506.06326, section 3.3)."""

    prompt_tokens: int = Field(
        1600, ge=16, description="most memory tokens in a prompt; never more than three quarters of the model's context"
    )
    top_k: int = Field(8, ge=1, description="memories ranked for a request")
    segments: int = Field(
        4,
        ge=1,
        description="most topic groups admitted to a request: as text what prompt_tokens has room for, as KV what "
        "the card of the model's fidelity allows",
    )
    beside: float = Field(
        0.7,
        ge=0,
        le=1,
        description="share of the best memory's score from which another group is admitted beside its own",
    )
    segment_tokens: int = Field(448, ge=16, description="a topic group longer than this is split in time")
    about_bonus: float = Field(
        0.1, ge=0.0, description="added to the score of a memory whose subject the question names"
    )
    min_score: float = Field(0.4, description="a memory ranked below this score (bonus included) is not admitted")
    forget_score: float = Field(
        0.6, description="cosine from which a memory can be what `forget …` means; below, nothing is deleted"
    )
    alpha: float = Field(1.0, description="heat per recall (N_visit)")
    beta: float = Field(1.0, description="heat per memory of the segment (L_interaction)")
    gamma: float = Field(1.0, description="heat of recency")
    mu_s: float = Field(1e7, gt=0, description="seconds after which recency has fallen to 1/e")
    activate_heat: float = Field(5.0, description="a segment this hot becomes KV (MemoryOS's tau)")
    cool_heat: float = Field(
        3.0, description="a derived cube whose segment is below this is given up; below activate_heat: hysteresis"
    )
    parametric_heat: float = Field(12.0, description="a segment this hot and stable becomes an adapter")
    stable_s: float = Field(86_400.0, ge=0, description="seconds without an edit before a segment counts as stable")
    device_kv_bytes: int = Field(4 << 30, ge=0, description="budget of KV in a GPU's memory; a CPU uses the next one")
    host_kv_bytes: int = Field(2 << 30, ge=0, description="budget of KV in the host's memory")
    disk_kv_bytes: int = Field(8 << 30, ge=0, description="budget of KV files, shared fairly between users")
    prefetch_kv_bytes: int = Field(
        1 << 30, ge=0, description="KV files read in the background after an answer, as they are predicted to be used"
    )
    choice: Literal["measured", "dearest"] = Field(
        "measured",
        description="measured: with via auto, KV is used where it is predicted to bring the first token sooner than "
        "text, by constants measured on this machine; dearest: wherever there is any",
    )
    adapters: int = Field(64, ge=0, description="budget of adapters, shared fairly between users")
    adapters_together: int = Field(1, ge=1, description="most adapters that answer a request together")
    steerings: int = Field(4, ge=0, description="most directions that steer an answer together")
    high_water: float = Field(
        0.95, gt=0, le=1, description="share of a budget above which the coldest KV and adapters are given up"
    )
    low_water: float = Field(0.85, ge=0, le=1, description="share of the budget down to which they are then")
    background_s: float | None = Field(
        None, gt=0, description="seconds between two rounds of planning and moving beside the requests; unset: none"
    )
    routing: Literal["divergence", "retrieval"] = Field(
        "divergence",
        description="divergence: of the adapters of near topic groups, those answer whose first token differs from the "
        "base model's; where none does, text or KV answers. retrieval: that of the nearest group answers",
    )
    route_nats: float = Field(6.0, ge=0, description="KL from the base model at which an adapter is taken to know")

    @model_validator(mode="after")
    def _agree(self) -> SchedulerConfig:
        if not self.cool_heat < self.activate_heat <= self.parametric_heat:
            raise ValueError("must hold: cool_heat < activate_heat <= parametric_heat")
        if self.low_water > self.high_water:
            raise ValueError("must hold: low_water <= high_water")
        return self


class LimitConfig(Section):
    """What one user may keep; unset: no limit but the budgets that all share."""

    memories: int | None = Field(None, ge=0, description="memories in force; beyond, nothing more is remembered")
    kv_bytes: int | None = Field(None, ge=0, description="bytes of KV files")
    adapters: int | None = Field(None, ge=0, description="adapters in use")


class LimitsConfig(LimitConfig):
    """For every user, but those that are named."""

    users: dict[str, LimitConfig] = Field({}, description="by user_id, in place of the limits above")

    def of(self, user_id: str) -> LimitConfig:
        return self.users.get(user_id, self)


class MemoryOSConfig(Section):
    """The policy memoryos: constants of MemoryOS (2506.06326) where no other source is given."""

    stm_pages: int = Field(7, ge=1, description="pages of the short-term queue")
    segments: int = Field(200, ge=1, description="segments in the middle; at capacity the coldest leaves")
    theta: float = Field(0.6, description="F_score above which a page joins a segment; from -1 to 2")
    keywords: int = Field(
        10, ge=1, description="most frequent terms that stand for a segment; ours, in place of a model"
    )
    alpha: float = Field(1.0, ge=0, description="heat per retrieval, N_visit")
    beta: float = Field(1.0, ge=0, description="heat per page since the last promotion, L_interaction")
    gamma: float = Field(1.0, ge=0, description="heat of recency")
    mu_s: float = Field(1e7, gt=0, description="seconds after which recency has fallen to 1/e")
    tau: float = Field(5.0, description="heat from which a segment goes to the long-term memory")
    knowledge: int = Field(100, ge=1, description="statements kept about the user, first in first out")
    traits: int = Field(100, ge=1, description="statements kept of the assistant, first in first out")
    top_segments: int = Field(5, ge=1, description="segments looked into, best F_score first: m")
    top_pages: int = Field(10, ge=1, description="pages taken from them: k; 5 or 10")
    top_knowledge: int = Field(10, ge=1, description="statements taken of knowledge and of traits each")


class ReaderConfig(Section):
    """How conversations become memories: by rules, and what these leave by the model."""

    model: bool = Field(
        False,
        description="turns given to `add` of which the rules make no memory are kept, and read by the local model "
        "beside the requests; long conversations are summed up by it, where it is a chat model; needs the extra "
        "`reader`",
    )
    every_turns: int = Field(
        8, ge=4, le=9, description="turns of one conversation that it reads at once, when so many have gathered"
    )
    after_s: float = Field(
        3600.0, ge=0, description="seconds after the last of fewer turns from which `tick` has them read, too"
    )


class AgeingConfig(Section):
    """When texts age by themselves; every rule is off unless it is set. Days count from the last time that a memory was
    told, edited, moved or recalled. A frozen memory does not age, and a clock that went back ages nothing."""

    generated_ttl_days: float | None = Field(
        None, gt=0, le=36_500, description="one that was never recalled is archived after so long"
    )
    archive_after_idle_days: float | None = Field(
        None, gt=0, le=36_500, description="one in force is archived after so long; it can be brought back"
    )
    expire_after_archived_days: float | None = Field(
        None, gt=0, le=36_500, description="an archived one expires after so long, for good; its history is kept"
    )


class LifecycleConfig(AgeingConfig):
    """Carried out by `tick`, for the caller's own memories. `expires` of a memory is honoured without it."""

    kinds: dict[str, AgeingConfig] = Field(
        default_factory=dict,
        description="rules for memories of a kind (fact, event, turn, ...), in place of those above",
    )
    cool_after_days: float | None = Field(
        None, gt=0, le=36_500, description="one that is summed up is cold after so long, and so much more a recall"
    )
    cold_below: float = Field(1.7, description="score of the best warm memory below which cold ones are shown, too")


class CuratorsConfig(Section):
    """Policies that write (mem0, a-mem, memgpt, ...): what they write with, and how much in one run."""

    writer: str = Field(
        "rules",
        description="rules: no language model; local: the model of `model.path`, held to a schema (extra `reader`); a "
        "URL: a server that speaks OpenAI's protocol, such as http://localhost:8000/v1",
    )
    model: str = Field("default", description="name of the model at that URL")
    key_from: str = Field("OPENAI_API_KEY", description="environment variable with the key for that URL")
    timeout_s: float = Field(60.0, gt=0, description="longest wait for one answer from there")
    calls: int = Field(64, ge=1, description="most calls of the writer in one run")
    operations: int = Field(256, ge=1, description="most operations that one run may ask for")
    seconds: float = Field(60.0, gt=0, description="longest time of one run; then it changes nothing")

    @field_validator("writer")
    @classmethod
    def _known(cls, writer: str) -> str:
        if writer not in ("rules", "local") and not writer.startswith(("http://", "https://")):
            raise ValueError("must be rules, local, or a URL that begins with http:// or https://")
        return writer
