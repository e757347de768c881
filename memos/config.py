"""One frozen tree of settings. YAML in; unknown keys and wrong types are refused by path. Knows no parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from memos.cube import Form, Trust
from memos.errors import ConfigError, meant

_LONGEST_YAML = 1 << 18  # characters
_DEEPEST = 50  # values within each other


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelConfig(Section):
    """The local Hugging Face causal LM."""

    path: str = Field("memos-small", description="a folder, a hub name, or memos-small: the model inside the package")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto takes cuda where there is one")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="auto: as stored on cuda, float32 on cpu"
    )
    attention: Literal["sdpa", "eager"] = "sdpa"
    trust_remote_code: bool = Field(False, description="run code that comes with the model")
    template: Literal["auto", "chat", "plain"] = Field(
        "auto", description="auto: the tokenizer's chat template where there is one"
    )
    memory_header: str = Field("Memory:\n", description="what stands before the memories in a prompt")
    memory_line: str = Field("- {text}\n", description="one memory in a prompt")
    fence: Literal["auto", "always", "never"] = Field(
        "auto",
        description="memories stand between marks that they cannot write themselves, and are said to be data; auto: "
        "with a chat template, but not for memos-small, which has learnt another form",
    )
    system: str = Field("", description="an instruction before the memories; the small model takes none")
    adapters_in_memory: int = Field(
        256, ge=1, description="adapters kept ready; beyond, the least recently used is read from its folder again"
    )
    adapters_on_device: int = Field(16, ge=1, description="of those, the ones that lie beside a GPU's weights")

    @model_validator(mode="after")
    def _line_has_text(self) -> ModelConfig:
        if "{text}" not in self.memory_line:
            raise ValueError("memory_line must contain {text}")
        return self


class DecodeConfig(Section):
    """How an answer is decoded."""

    max_new_tokens: int = Field(48, ge=1)
    temperature: float = Field(0.0, ge=0.0, description="0 is greedy")
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    seed: int = 0
    beams: int = Field(1, ge=1, description="above 1: beam search, which is deterministic and costs as many rows")
    stop: tuple[str, ...] = Field((), description="strings that end an answer")
    json_schema: dict[str, Any] | None = Field(
        None, description="what an answer must be: JSON of this schema, as far as max_new_tokens reach; with one beam"
    )

    @model_validator(mode="after")
    def _beams_do_not_sample(self) -> DecodeConfig:
        if self.beams > 1 and self.temperature > 0:
            raise ValueError("beams > 1 needs temperature 0, as beam search does not sample; set beams to 1 to sample")
        if self.beams > 1 and self.json_schema is not None:
            raise ValueError("beams > 1 cannot be held to json_schema; set beams to 1, or leave json_schema out")
        return self


class FidelityConfig(Section):
    """How several KV caches are put in front of one question; the levels are those of docs/architecture.md."""

    level: Literal["auto", "L0", "L1", "L2", "L3", "L4"] = Field(
        "auto",
        description="auto: the cheapest that reaches `agreement` on the card of `memos calibrate`, L0 without a card; "
        "L0: one exact prefix of all of them; L1: encoded apart and moved into place; L2: and the first "
        "tokens of each computed anew; L3: and those that the question looks at; L4: as text",
    )
    agreement: float = Field(
        0.95, ge=0, le=1, description="share of questions answered as over the full prompt; a level below is not used"
    )
    first_tokens: int = Field(4, ge=0, description="tokens of each later cache that L2 and L3 compute anew")
    share: float = Field(0.1, ge=0, le=1, description="share of the other tokens that L3 computes anew")
    prefix_bytes: int = Field(1 << 28, ge=0, description="budget of the exact prefixes that L0 keeps for next time")


class ActivationConfig(Section):
    """How a KV cache is stored."""

    codec: Literal["raw", "bf16", "fp8", "int8", "int4", "trained"] = Field(
        "raw",
        description="raw keeps every bit; the others take 2 to 8 times fewer bytes and are measured before use; "
        "trained: few rows, distilled and gated as an adapter is",
    )
    trained_share: float = Field(
        0.25, gt=0, le=1, description="of the tokens of the memories, for which trained KV has rows"
    )
    max_kl: float = Field(
        0.02, ge=0, description="nats from the full prompt that a cache in another codec than raw may lose"
    )

    @property
    def stored(self) -> Literal["raw", "bf16", "fp8", "int8", "int4"]:
        """How its bytes lie in the file."""
        return "raw" if self.codec == "trained" else self.codec


class EmbedderConfig(Section):
    path: str = Field(
        "all-MiniLM-L6-v2", description="the pinned package, or a folder or hub name of a BERT-like encoder"
    )


class RetrievalConfig(Section):
    """What the default policy ranks by: the weights below times the signals of memos/operation/policies/policy.py.
    Round numbers, chosen on dialogues where others near them do as well: docs/benchmarks.md."""

    near: float = Field(0.5, ge=0, description="of the cosine of the query and the memory in its context")
    tokens: float = Field(1.0, ge=0, description="of the mean cosine of the query's tokens with their nearest ones")
    compared: int = Field(
        50, ge=0, description="memories that are compared so, the best without it; 0: none, which is faster, finds less"
    )
    words: float = Field(1.0, ge=0, description="of the query's words, as a share, in the memory itself")
    around: float = Field(1.0, ge=0, description="of the query's words in what was said just before and after it")
    thread: float = Field(0.7, ge=0, description="of the query's words in the conversation that it was said in")
    speaker: float = Field(0.09, ge=0, description="where the query names the one who said it")
    states: float = Field(1.0, ge=0, description="where it states just the fact that the query asks for")
    linked: float = Field(0.2, ge=0, description="over the number of facts between it and what the query is about")
    hops: int = Field(2, ge=0, description="most facts on that way")
    question: float = Field(0.075, ge=0, description="taken off where the memory asks something itself")
    length: float = Field(0.05, ge=0, description="of the logarithm of its length: longer ones say more")
    reranker: str | None = Field(
        None, description="folder of a cross-encoder that reads the best candidates beside the query"
    )
    answers: float = Field(1.0, ge=0, description="of what the reranker says, where there is one")
    useful: float = Field(0.1, ge=0, description="of the utility, from -1 to 1, that feedback has given a memory")
    learning: float = Field(0.3, gt=0, le=1, description="share of the way that one feedback moves the utility")
    exact_ms: float = Field(
        2.0, ge=0, description="vectors are compared one by one where that takes no longer than this, else by a graph"
    )


class QuotaConfig(Section):
    """What a vault may hold; unset: as much as the disk. A write beyond is refused before anything is written."""

    bytes: int | None = Field(None, ge=0, description="of all that it keeps: databases, payloads and the kept index")
    blob_bytes: int | None = Field(None, ge=0, description="of payloads: KV files and adapters")
    cubes_per_user: int | None = Field(None, ge=0, description="memories, KV and adapters, in every state")


class VaultConfig(Section):
    path: Path | None = Field(
        None, description="folder of the vault; unset: memos-data, or OUT/vault in `memos run --out OUT`"
    )
    url: SecretStr | None = Field(
        None,
        description="postgresql://USER@HOST/NAME: the PostgreSQL server (14 or later, with pgvector) that the vault is "
        "on, shared by all machines that name it; vault.path then holds what is this machine's own. The password may "
        "stand in it, in PGPASSWORD or in ~/.pgpass; unset: as server.json of the folder says, or a vault in files",
    )
    quota: QuotaConfig = Field(QuotaConfig(), description="what the vault may hold")
    key: str | None = Field(
        None,
        description="file:PATH, env:NAME or keyring:SERVICE/NAME: where the key of an encrypted vault is, a passphrase "
        "or 32 bytes in hex or base64; a new vault is encrypted with it; unset: where key.json of the vault says that "
        "it was, or a vault that is not encrypted",
    )
    scratch: Path | None = Field(
        None,
        description="where an encrypted vault keeps payloads in the clear while it is open; unset: /dev/shm. It must "
        "be on a file system in memory",
    )

    @property
    def server(self) -> str | None:
        """`url`, with its password."""
        return self.url.get_secret_value() if self.url else None


class SchedulerConfig(Section):
    """What a request sees and what moves. Heat is MemoryOS's (2506.06326, section 3.3)."""

    prompt_tokens: int = Field(768, ge=16, description="most memory tokens in a prompt")
    top_k: int = Field(8, ge=1, description="memories ranked for a request")
    segments: int = Field(1, ge=1, description="topic groups admitted to a request")
    segment_tokens: int = Field(256, ge=16, description="a topic group longer than this is split in time")
    about_bonus: float = Field(
        0.3, ge=0.0, description="added to the score of a memory whose subject the question names"
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
        if self.segments > self.top_k:
            raise ValueError("must hold: segments <= top_k, as a group is admitted for a memory that was ranked")
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
        "beside the requests; needs the extra `reader`",
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


Redact = Literal["off", "label", "before_use", "before_storing"]


class CustomPattern(Section):
    """Identifiers of your own."""

    pattern: str = Field(description="a regular expression; refused if it matches nothing at all, or takes too long")
    do: Redact = Field("before_storing", description="as for the other kinds")


class RedactionConfig(Section):
    """What is done with identifiers in texts, by their kind.

    off: nothing. label: the memory gets the tag `sensitive:KIND`. before_use: it is kept whole and tagged; what the
    model and everybody but the owner see is masked. before_storing: it never reaches the vault.
    """

    phone: Redact = Field("off", description="by the numbering plans of all countries")
    email: Redact = Field("off", description="an address with a domain")
    card: Redact = Field("off", description="payment cards: issuer's digits, length and Luhn's check")
    iban: Redact = Field("off", description="by its check digits, ISO 7064")
    national_id: Redact = Field("off", description="those that national_ids names, by their check digits")
    regions: tuple[str, ...] = Field(
        ("US", "CN", "GB"), description="countries whose phone numbers are known without their +NN"
    )
    national_ids: tuple[str, ...] = Field(
        ("cn.ric", "us.ssn"), description="modules of python-stdnum, as cn.ric, us.ssn, gb.nhs, de.idnr, es.dni"
    )
    custom: dict[str, CustomPattern] = Field({}, description="by name, which is then a kind like the others")
    pattern_ms: float = Field(50.0, gt=0, description="most that one of them may take over a text")


class AuditConfig(Section):
    """The audit log's signature."""

    key: Path | None = Field(
        None,
        description="file of the Ed25519 key, made at first use, and of the last checkpoint beside it; one for each "
        "vault. Unset: signing.key in the vault, where whoever can write to the vault can sign too",
    )
    every: int = Field(1000, ge=1, description="rows after which a checkpoint is signed; one is signed on closing too")
    trusted: tuple[str, ...] = Field(
        (), description="public keys (hex) of others whose checkpoints are taken, as of before"
    )


class QuarantineConfig(Section):
    """What answers nothing until somebody releases it."""

    trusts: tuple[Trust, ...] = Field(
        (Trust.TOOL, Trust.DOCUMENT, Trust.MODEL, Trust.IMPORTED, Trust.UNTRUSTED),
        description="of these, memories with one of the patterns below",
    )
    patterns: tuple[str, ...] = Field(
        (
            r"\b(ignore|disregard|forget|override)\b.{0,30}\b(previous|prior|above|earlier|preceding|system|all)\b.{0,30}"
            r"\b(instructions?|prompts?|rules|messages|directions|guidelines)\b",
            r"\b(do not|don't|never) (tell|inform|mention|reveal)( this)?( to)? the user\b",
            r"\byou are now\b.{0,40}\b(assistant|ai|model|mode|dan|unrestricted|jailbroken)\b",
            r"\b(reveal|print|repeat|show|leak)\b.{0,20}\b(system|hidden|initial) prompt\b",
            r"\bnew (system )?instructions?\s*:",
            r"<\|[a-z_]{2,30}\|>|\[/?inst\]|<</?sys>>|</?\s*memories\s*>",
            r"(忽略|无视|忘记|忘掉|不要理会|不要遵守).{0,12}(之前|以前|以上|上面|前面|先前|所有|一切|系统).{0,12}"
            r"(指令|指示|提示|命令|规则|要求|设定)",
            r"(不要|别|切勿)(告诉|告知|透露给|让)(用户|使用者)",
            r"你现在(是|变成|扮演).{0,20}(助手|模型|模式|人工智能|ai)",
            r"(泄露|输出|显示|重复|打印|说出).{0,8}(系统|初始|隐藏)(提示词|提示|指令)",
            r"新的?(系统)?(指令|指示)\s*[:：]",
        ),
        description="regular expressions, read without regard to case",
    )
    unknown_origin: bool = Field(False, description="of an origin that trust.origins does not name")
    most: int | None = Field(None, ge=1, description="memories from one origin within `window_s`; beyond, all further")
    window_s: float = Field(60.0, gt=0, description="seconds in which these are counted")


class TrustConfig(Section):
    """How far memories are believed, by their origin: the whole of it, or what stands before its first ":"."""

    origins: dict[str, Trust] = Field(
        {
            **dict.fromkeys(("api", "chat", "turns", "merge"), Trust.USER),
            "tool": Trust.TOOL,
            "model": Trust.MODEL,
            "import": Trust.IMPORTED,
            "pack": Trust.IMPORTED,
            "web": Trust.UNTRUSTED,
        },
        description="origin to trust; naming one replaces the whole table",
    )
    others: Trust = Field(Trust.DOCUMENT, description="an origin that is not named, as a file is")
    adapters: tuple[Trust, ...] = Field(
        tuple(trust for trust in Trust if trust is not Trust.UNTRUSTED), description="of these, adapters may be made"
    )


class GovernanceConfig(Section):
    """Who may call, and what is signed, hidden, believed and kept (docs/architecture.md, the governance door)."""

    require_credentials: bool = Field(
        False, description="refuse calls without a key (`memos key add`), also in this process"
    )
    exchange_folder: Path | None = Field(
        None,
        description="where holders of keys find and leave files (packs, documents, adapters), each in a folder of its "
        "own there; unset: they name none",
    )
    audit: AuditConfig = Field(AuditConfig(), description="how the log of decisions is signed")
    redaction: RedactionConfig = Field(RedactionConfig(), description="what is done with identifiers")
    trust: TrustConfig = Field(TrustConfig(), description="how far memories are believed")
    quarantine: QuarantineConfig = Field(QuarantineConfig(), description="what answers nothing until it is released")
    retention: dict[str, float] = Field(
        {},
        description="days until a memory expires for good, by its class: NAME of its tag `retain:NAME`, else its kind; "
        "carried out by `tick`",
    )

    @model_validator(mode="after")
    def _days_are_positive(self) -> GovernanceConfig:
        if wrong := [name for name, days in self.retention.items() if not 0 < days <= 36_500]:
            raise ValueError(f"retention.{wrong[0]}: give days, more than 0 and at most 36500")
        return self


class KeyLimits(Section):
    """What the holder of one key may ask of a server; beyond, it is told when to ask again (429)."""

    requests_a_minute: int | None = Field(None, ge=1, description="on average, and at most so many at once; unset: any")
    concurrent: int = Field(64, ge=1, description="requests that go on at the same time")


class ServeConfig(KeyLimits):
    """`memos serve`. The limits hold for every key, but those that are named."""

    host: str = Field("127.0.0.1", description="where it listens; beyond loopback only where there is a key")
    port: int = Field(8000, ge=0, le=65535, description="0: one that is free")
    body_bytes: int = Field(4 << 20, ge=1024, description="most of a request's body; a longer one is not read (413)")
    workers: int = Field(8, ge=1, description="calls that go on beside each other; the model answers one at a time")
    queue: int = Field(256, ge=0, description="calls that wait for the model, for a worker, to promote; beyond: 429")
    grace_s: float = Field(30.0, ge=0, description="for requests to end, once the server is told to stop")
    keys: dict[str, KeyLimits] = Field({}, description="by the id of a key (`memos key list`), in place of the limits")

    def of(self, key: str) -> KeyLimits:
        return self.keys.get(key, self)


class GateConfig(Section):
    """What an adapter must reach on held-out probes; shares of probes, each of which is an estimate.

    Of n probes without a failure, the true share is at least 1 - 3/n with 95 % certainty: 60 probes say .95.
    """

    reliability: float = Field(0.95, ge=0, le=1, description="questions as trained, answered right")
    generality: float = Field(0.90, ge=0, le=1, description="held-out phrasings, answered right")
    locality: float = Field(0.95, ge=0, le=1, description="unrelated closed-book questions, answer unchanged")
    in_context: float = Field(0.95, ge=0, le=1, description="questions over another context, answer unchanged")
    override: float = Field(0.90, ge=0, le=1, description="those among them whose context contradicts a fact")
    drift: float = Field(0.1, ge=0, description="most KL to the base model on all of these, in nats")


class DistilConfig(Section):
    """Context distillation into LoRA. Unset values come by the size of the model; see docs/architecture.md."""

    rank: int = Field(32, ge=1)
    alpha: int = Field(64, ge=1)
    targets: tuple[str, ...] | Literal["mlp", "attention", "all-linear"] = Field(
        "mlp", description="linear layers to adapt; mlp leaves reading a context alone"
    )
    layers: float = Field(1.0, gt=0, le=1, description="share of the layers that are adapted, from the first on")
    learning_rate: float | None = Field(None, gt=0, description="unset: 1e-2 for tiny models, to 2e-4 from 3B on")
    steps: int = Field(220, ge=1, description="most optimiser steps; training usually fewer: see the stop_ values")
    batch: int = Field(24, ge=1, description="lessons in a step")
    batch_keep: int = Field(40, ge=1, description="prompts in a step whose answers must stay")
    review: int = Field(40, ge=1, description="steps after which all prompts are read, to draw what is not learnt yet")
    checkpoint: int = Field(40, ge=1, description="steps after which training can be taken up again")
    stop_probability: float = Field(0.6, gt=0, le=1, description="of every answer token, for training to end early")
    stop_drift: float = Field(
        0.001, gt=0, description="KL to the base model on what is to be kept, for training to end early"
    )
    top_logits: int = Field(20, ge=1, description="the teacher's top tokens that are matched")
    kl_base: float = Field(
        3.0, ge=0, description="weight of KL to the base model on closed-book and other-context prompts"
    )
    gradient_checkpointing: bool | None = Field(None, description="unset: from 500M parameters on")
    self_study: int | None = Field(
        None,
        ge=0,
        description="questions that the model writes itself about a memory in which the rules find none; unset: 6 for "
        "a model with a chat template, else 0",
    )
    isolation: Literal["auto", "process", "thread"] = Field(
        "auto", description="where training runs; auto: in a process of its own on a CPU, beside the model on a GPU"
    )
    seed: int = 0
    gate: GateConfig = GateConfig()


class IngestStep(Section):
    ingest: Path = Field(description="a conversation (.jsonl), .txt or .md file; relative to the YAML")


class AskStep(Section):
    class Ask(Section):
        via: Literal["none", "plaintext", "activation", "parametric", "auto"]
        questions: Path = Field(description="JSONL of {question, answer}; relative to the YAML")

    ask: Ask


class PromoteStep(Section):
    class Promotion(Section):
        to: Literal[Form.ACTIVATION, Form.PARAMETRIC]
        rule: Literal["all", "hot"] = Field(
            "all", description="all: every topic group by itself; hot: those whose heat asks for it"
        )
        ids: tuple[str, ...] | None = Field(None, description="memories to promote together, instead of a rule")

    promote: Promotion


class DemoteStep(Section):
    class Demotion(Section):
        of: Literal[Form.ACTIVATION, Form.PARAMETRIC] = Field(description="give up every derived cube of this form")

    demote: Demotion


class TickStep(Section):
    tick: int = Field(1, ge=1, description="how many times the scheduler plans and carries out moves")


Step = IngestStep | AskStep | PromoteStep | DemoteStep | TickStep
_STEPS: dict[str, type[Section]] = {
    "ingest": IngestStep,
    "ask": AskStep,
    "promote": PromoteStep,
    "demote": DemoteStep,
    "tick": TickStep,
}


class ExperimentConfig(Section):
    name: str = "experiment"
    steps: tuple[Step, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _step_by_name(cls, data: Any) -> Any:
        """Pick each step's type by its one key, so that an error speaks of that step alone."""
        if not isinstance(data, dict) or not isinstance(data.get("steps"), (list, tuple)):
            return data
        steps = []
        for i, raw in enumerate(data["steps"]):
            if isinstance(raw, Section):
                steps.append(raw)
                continue
            name = next(iter(raw), None) if isinstance(raw, dict) and len(raw) == 1 else None
            if name not in _STEPS:
                raise ConfigError(
                    f"experiment.steps.{i}: {raw!r} is not a step; a step has one key of {', '.join(_STEPS)}"
                )
            try:
                steps.append(_STEPS[name].model_validate(raw))
            except ValidationError as error:
                raise _explain(error, f"experiment.steps.{i}.", _STEPS[name]) from None
        return data | {"steps": tuple(steps)}


class Config(Section):
    """The whole tree; `Config()` is the embedded default."""

    seed: int = 0
    user_id: str = Field("default", description="namespace of whoever runs the kernel")
    policy: str = Field(
        "memos", description="what ranks, admits and moves memories; `memos plugins` lists what there is"
    )
    policies: dict[str, str] = Field({}, description="instead, for single namespaces: user_id to policy")
    model: ModelConfig = ModelConfig()
    decode: DecodeConfig = DecodeConfig()
    fidelity: FidelityConfig = FidelityConfig()
    activation: ActivationConfig = ActivationConfig()
    embedder: EmbedderConfig = EmbedderConfig()
    retrieval: RetrievalConfig = RetrievalConfig()
    vault: VaultConfig = VaultConfig()
    governance: GovernanceConfig = GovernanceConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    memoryos: MemoryOSConfig = MemoryOSConfig()
    limits: LimitsConfig = LimitsConfig()
    reader: ReaderConfig = ReaderConfig()
    lifecycle: LifecycleConfig = LifecycleConfig()
    serve: ServeConfig = ServeConfig()
    distil: DistilConfig = DistilConfig()
    experiment: ExperimentConfig = ExperimentConfig()


def load_config(path: str | Path | None, overrides: tuple[str, ...] = ()) -> Config:
    """Read a YAML file; `overrides` are `a.b=value` with YAML values. Paths in steps are made relative to the file.

    path: None for the embedded default.
    Raises ConfigError that names the key's path, the rule and the nearest valid key.
    """
    data: Any = {}
    if path is not None:
        data = _read(Path(path))
    for item in overrides:
        _override(data, item)
    config = parse_config(data)
    base = Path(path or ".").parent
    steps = tuple(_relative(step, base) for step in config.experiment.steps)
    return config.model_copy(update={"experiment": config.experiment.model_copy(update={"steps": steps})})


class _Loader(yaml.SafeLoader):
    """Plain values only, within bounds: aliases of aliases grow without end, and nesting is read by recursion."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"*{self.peek_event().anchor} is an alias; write out what it stands for")
        self._depth += 1
        if self._depth > _DEEPEST:
            raise yaml.YAMLError(f"it is nested deeper than {_DEEPEST} levels")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def parse_yaml(text: str) -> Any:
    """Raises ConfigError for what is no YAML, or more of it than anybody writes."""
    if len(text) > _LONGEST_YAML:
        raise ConfigError(
            f"it has {len(text):,} characters, and {_LONGEST_YAML:,} are read; leave out what is not needed"
        )
    try:
        return yaml.load(text, _Loader)
    # of values: a date that no calendar has, a number of too many digits, a mapping as a key
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError, AttributeError) as error:
        raise ConfigError(f"not YAML: {error!s:.500}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        data = parse_yaml(path.read_text("utf-8")) or {}
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        raise ConfigError(
            f"no config file {path}; {'here are ' + ', '.join(near) if near else 'give the path of a YAML file'}"
        ) from None
    except (
        OSError,
        ValueError,
        ConfigError,
    ) as error:  # bytes that are no UTF-8, or a NUL in the name, are ValueErrors
        raise ConfigError(f"{path} is not a readable YAML file: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must be a mapping of sections such as `model:`, not {type(data).__name__}")
    return data


def parse_config(data: dict[str, Any]) -> Config:
    """A mapping -> Config. Raises ConfigError."""
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise _explain(error, "", Config) from None


def _override(data: dict[str, Any], item: str) -> None:
    key, equals, raw = item.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {item!r}: write it as a.b=value")
    try:
        value = parse_yaml(raw)
    except ConfigError as error:
        raise ConfigError(f"--set {key}: {raw!r:.200} is not a YAML value: {error}") from None
    *sections, last = key.split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise ConfigError(f"--set {key}: {section} is not a section")
    data[last] = value


def _relative(step: Step, base: Path) -> Step:
    match step:
        case IngestStep(ingest=file):
            return IngestStep(ingest=base / file)
        case AskStep(ask=ask):
            return AskStep(ask=ask.model_copy(update={"questions": base / ask.questions}))
        case _:
            return step


def _explain(error: ValidationError, prefix: str, root: type[BaseModel]) -> ConfigError:
    lines = []
    for item in error.errors():
        path = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            known = _keys(root, item["loc"][:-1])
            hint = meant(str(item["loc"][-1]), known, f"known keys: {', '.join(known)}")
            lines.append(f"{prefix}{path}: unknown key; {hint}")
        else:
            given = "" if item["type"] == "missing" else f" (given: {item['input']!r:.80})"
            lines.append(f"{prefix}{path}: {item['msg'].removeprefix('Value error, ')}{given}")
    return ConfigError("; ".join(lines))


def _keys(root: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The keys of the section at `loc`."""
    section: Any = root
    for part in loc:
        fields = getattr(section, "model_fields", {})
        if part in fields:
            section = fields[str(part)].annotation
        elif get_origin(section) is dict:  # a section for each key
            section = get_args(section)[1]
    return sorted(getattr(section, "model_fields", {}))
