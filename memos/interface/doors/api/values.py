"""The values that the Memory API's calls return, as JSON has them; must not know what a call does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import NotRequired, TypedDict

from memos.cube import MemCube, Text

if TYPE_CHECKING:
    from memos.kernel.answering import Explanation, Reason, Reply
    from memos.kernel.services.finding import Hit
    from memos.kernel.services.overview import Lineage, Overview

Json = Any  # a value as JSON has it; its shape is checked where it comes in


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
    """What every reply says beside the rest: `_call` adds it."""

    cost: NotRequired[Spent]


class Item(TypedDict):
    """A memory. bytes: of KV or of an adapter. sources: ids of what it was made of."""

    id: str
    memory: str
    form: str
    state: str
    version: int
    user_id: str
    agent_id: str
    run_id: str
    kind: str
    topic: str
    speaker: str
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
    """See `memos.kernel.services.overview.Overview`."""

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


def item(cube: MemCube) -> Item:
    """A cube as a plain value."""
    header, blob = cube.header, cube.blob
    match cube.payload:
        case Text(text=text):
            words = text
        case _:
            words = "" if blob else cube.payload.said  # type: ignore[union-attr]
    return {
        "id": cube.id,
        "memory": words,
        "form": str(cube.form),
        "state": str(cube.state),
        "version": cube.version,
        "user_id": cube.namespace.user_id,
        "agent_id": cube.namespace.agent_id,
        "run_id": cube.namespace.session_id,
        "kind": header.kind,
        "topic": header.segment,
        "speaker": header.speaker,
        "tags": list(header.tags),
        "metadata": json.loads(header.metadata) if header.metadata else {},
        "origin": header.origin,
        "trust": str(header.trust),
        "owner": cube.rights.owner,
        "created_at": header.created.isoformat(),
        "updated_at": _time(header.changed),
        "said_at": _time(header.said),
        "expires_at": _time(header.expires),
        "recalls": cube.usage.recalls,
        "utility": cube.usage.utility,
        "bytes": blob.bytes if blob else 0,
        "sources": [source.id for source in cube.sources],
    }


def added(cubes: Iterable[MemCube], began: datetime) -> list[Item]:
    """What an `add` that began then has brought: new, or known already."""
    return [{**item(cube), "event": "ADD" if cube.header.created >= began else "NONE"} for cube in cubes]


def scored(hit: Hit, explain: bool) -> Item:
    """What a search has found, with its score and, to be explained, what that is made of."""
    found: Item = {**item(hit.cube), "score": hit.score}
    return {**found, "why": dict(hit.why)} if explain else found


def deleted(ids: Iterable[str]) -> list[dict[str, Json]]:
    return [{"id": id, "event": "DELETE"} for id in ids]


def changes(id: str, events: Iterable[dict[str, Json]]) -> list[dict[str, Json]]:
    """The events of a memory; a version also by the names of mem0's rows."""
    rows: list[dict[str, Json]] = []
    old, created = None, None
    for event in events:
        if event["event"] == "version":
            new, known = event["payload"].get("text", ""), "UPDATE" if created else "ADD"
            created = created or event["at"]
            times = {"created_at": created, "updated_at": event["at"]}
            event = {**event, "event": known, "old_memory": old, "new_memory": new, **times}
            old = new
        rows.append({"memory_id": id, **event})
    return rows


def _time(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()


def answered(reply: Reply) -> Answer:
    """A `Reply` of the kernel as a plain value."""
    seen = reply.admission
    as_text = {cube.id for cube in seen.as_text}
    used: list[UsedMemory] = [
        {"id": c.id, "memory": c.text, "form": "plaintext" if c.id in as_text else "activation"} for c in seen.cubes
    ]
    used += [{"id": cube.id, "memory": cube.text, "form": "parametric"} for cube in seen.internal]
    return {
        "text": reply.text,
        "used": used,
        "remembered": list(map(item, reply.remembered)),
        "forgotten": list(reply.forgotten),
        "prompt_tokens": reply.prompt_tokens,
        "past_tokens": reply.past_tokens,
        "ttft_ms": reply.ttft_ms,
        "operations": [{"intent": one.intent, "arguments": one.arguments} for one in reply.operations],
        "pipeline": reply.pipeline,
    }


def reason_of(reason: Reason) -> dict[str, Json]:
    memory = item(reason.cube)
    return {
        **{name: memory[name] for name in ("id", "memory", "topic")},
        "form": str(reason.form),
        "tokens": reason.tokens,
        "score": reason.score,
        "signals": dict(reason.signals or {}),
        "change": reason.change,
        "useful": reason.useful,
    }


def items_of(cubes: Iterable[MemCube]) -> Items:
    return {"results": list(map(item, cubes))}


def records_of(values: Iterable[object]) -> Records:
    return {"results": [plain(value) for value in values]}


def done(message: str, results: list[dict[str, Json]]) -> Outcome:
    return {"message": message, "results": results}


def plain(value: Json) -> Json:
    """As JSON has it: a memory as `item`; the fields of a model, a dataclass or a named tuple; times and names as
    text."""
    match value:
        case None | int() | float():
            return value
        case str():
            return str(value)  # of a state or a form, its word
        case MemCube():
            return item(value)
        case dict():
            return {str(name): plain(part) for name, part in value.items()}
        case _ if hasattr(value, "model_dump"):
            return value.model_dump(mode="json")
        case _ if hasattr(value, "_asdict") or is_dataclass(value):
            fields = value._asdict() if hasattr(value, "_asdict") else asdict(value)
            return json.loads(json.dumps(fields, default=str))
        case Iterable():
            return [plain(part) for part in value]
        case _:
            return str(value)


def lineage_value(lineage: Lineage) -> LineageValue:
    return {
        "memory": item(lineage.cube),
        "sources": list(map(item, lineage.sources)),
        "derived": list(map(item, lineage.derived)),
        "origins": [plain(origin) for origin in lineage.origins],
    }


def overview_value(overview: Overview) -> OverviewValue:
    warm: list[Item] = [{**item(one.cube), "heat": one.heat} for one in overview.hottest]
    return cast(OverviewValue, overview.model_dump(mode="json", exclude={"hottest"}) | {"hottest": warm})


def why(explanation: Explanation) -> Why:
    return cast(Why, vars(explanation) | {"reasons": [reason_of(reason) for reason in explanation.reasons]})
