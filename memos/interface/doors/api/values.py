"""The JSON shapes of the Memory API: what its calls take besides names, and what they return."""

from __future__ import annotations

from typing import Any

from typing_extensions import NotRequired, TypedDict

Json = Any  # a value as JSON has it; its shape is checked where it comes in
Messages = str | list[dict[str, Json]] | dict[str, Json]
SCOPE = ("user_id", "agent_id", "run_id")  # the names in `Who`
DEFAULT_LIMIT = 100  # memories, or decisions, that a listing gives where no limit is named


class Who(TypedDict, total=False):
    """Whose memories a call is about; what is left out is that of the key, or of the config."""

    user_id: str | None
    agent_id: str | None
    run_id: str | None  # a session


class Spent(TypedDict):
    """What a call took. tokens: read and written by the local model."""

    model_calls: int
    tokens: int
    seconds: float


class Costed(TypedDict):
    """What every reply says beside the rest: `calling.py` adds it."""

    cost: NotRequired[Spent]


class Item(TypedDict):
    """A memory. message: what was said, word for word, where that was in a conversation. bytes: of KV, of an adapter,
    or of the file that a text tells of, whose media_type is there then. sources: ids of what it was made of; unasked:
    those that an adapter's scores do not tell of."""

    id: str
    memory: str
    message: str
    form: str
    state: str
    version: int
    user_id: str
    agent_id: str
    run_id: str
    message_id: str
    kind: str
    topic: str
    speaker: str
    role: str
    tags: list[str]
    metadata: dict[str, Json]
    origin: str
    trust: str
    owner: str
    created_at: str
    updated_at: str | None
    said_at: str | None
    expires_at: str | None
    recalls: int
    utility: float
    bytes: int
    sources: list[str]
    unasked: NotRequired[list[str]]
    media_type: NotRequired[str]
    event: NotRequired[str]  # ADD, or NONE where it was known already
    heat: NotRequired[float]  # of its topic
    score: NotRequired[float]
    why: NotRequired[dict[str, float]]  # the signals of the score
    note: NotRequired[str]  # why it is in quarantine, or held


class Single(Item, Costed):
    """The memory that was asked for."""


class Items(Costed):
    results: list[Item]


class Records(Costed):
    """Of what is no memory."""

    results: list[dict[str, Json]]


class Outcome(Costed):
    message: str
    results: list[dict[str, Json]]


class UsedMemory(TypedDict):
    """A memory that an answer was given from, and in which form."""

    id: str
    memory: str
    form: str


class Answer(Costed):
    """operations: what was understood of the message, in order. pipeline: names what was done, for `undo`; "" where
    there is nothing to take back."""

    text: str
    used: list[UsedMemory]
    remembered: list[Item]
    forgotten: list[str]
    prompt_tokens: int
    past_tokens: int
    ttft_ms: float
    operations: list[dict[str, Json]]
    pipeline: str


class Why(Costed):
    """An answer and what it rests on; see `memos.operation.forms.insight.Explanation`."""

    question: str
    answer: str
    reasons: list[dict[str, Json]]
    likelihood: float
    closed_book: float
    prompt_tokens: int
    past_tokens: int
    ttft_ms: float


class OverviewValue(Costed):
    """See `memos.kernel.services.seeing.Overview`."""

    cubes: dict[str, int]
    bytes: int
    topics: list[dict[str, Json]]
    hottest: list[Item]
    tiers: dict[str, str]
    used: dict[str, float]
    budget: dict[str, float]
    recalls: int
    uses: dict[str, int]
    answering: bool
    prefetched: int
    prefetch_hits: int
    jobs: dict[str, int]
    model: str
    policy: str


class LineageValue(Costed):
    memory: Item
    sources: list[Item]
    derived: list[Item]
    origins: list[dict[str, Json]]
