"""Surrounds every call of the Memory API: scope, checked arguments, reply as JSON, cost.

All follows from the signature of the call's method, as it stands; the doors read it here, too.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime
from functools import cache, wraps
from itertools import groupby, islice, takewhile
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar, cast, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from memos.cost import metered
from memos.cube import MemCube
from memos.errors import InputError, meant
from memos.interface.doors.api.values import SCOPE, Answer, Item, Json, LineageValue, OverviewValue, Spent, Who, Why

if TYPE_CHECKING:
    from memos.kernel.answering import Explanation, Reason, Reply
    from memos.kernel.calls import Calls
    from memos.kernel.mem_os import MemOS
    from memos.kernel.services.finding import Hit
    from memos.kernel.services.seeing import Lineage, Overview

C = TypeVar("C")
Method = Callable[..., Json]
_OF_MEM0 = {  # what mem0's calls take and ours have no use for
    "memory_type": "what is told decides the kind of a memory",
    "prompt": "rules read what is told",
    "rerank": "retrieval.reranker in the config decides for all searches",
    "timestamp": 'each message may have its "time"',
}
_KERNEL_ARGUMENTS = {"memory_id": "id", "memory_ids": "ids", "job_id": "job"}  # those with another name in the API
_TYPE = re.compile(r"str|int|float|bool|\w+\[.*\]")  # in the place of an error: one of several that would do
_SHOWN = 10  # errors of one call


class Scope:
    """Makes the kernel's calls for the user, agent or session that a call names, or a key stands for."""

    def __init__(self, kernel: MemOS, key: str | None = None, purpose: str = "") -> None:
        """key: acts for whom it stands for; None: for whoever the call names. Raises Denied."""
        self.kernel, self._purpose = kernel, purpose
        # that the key is let in is written down here; each call looks again whether it is in force
        self._of_key = None if key is None else kernel.as_(key, purpose)

    def within(self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None) -> Calls:
        """The kernel's calls in this scope. Raises Denied; with a key, the calls do."""
        agent, session = agent_id or "", run_id or ""
        if self._of_key:
            return self._of_key.within(user_id, agent, session)
        return self.kernel.within(user_id, agent, session, self._purpose)

    def around(self, memory_id: str, who: Who) -> Calls:
        """The calls on one memory. As in mem0, an id will do: where neither a key nor the call says who acts, its owner
        does. Raises Denied."""
        if not self._of_key and not any(who.values()):
            return self.within(self.kernel.owner(memory_id))
        return self.within(**who)


# -- calls -----------------------------------------------------------------------------------------------------


def api_calls(cls: type[C], carried_out: Callable[[Method], Method] = lambda method: method) -> type[C]:
    """Every public method that the class defines is a call: its arguments are checked, and its reply has its cost.
    carried_out: what does the work of a method; by default, that itself."""
    for name, method in [*vars(cls).items()]:
        if not name.startswith("_"):
            setattr(cls, name, _costed(method, carried_out(method)))
    return cls


def table_calls(cls: type[C]) -> type[C]:
    """The same, of methods without a body: the kernel's call of that name in the API carries them out."""
    return api_calls(cls, _from_table)


def _costed(method: Method, carry_out: Method) -> Method:
    places = [p.name for p in inspect.signature(method).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD][1:]

    @wraps(method)
    def call(memory: Scope, *values: Json, **named: Json) -> Json:
        with costing() as cost:
            by_name = _by_name(method.__name__, places, values, named)
            reply = carry_out(memory, **checked(arguments(method), by_name))
        return reply | {"cost": cost}

    return call


def _by_name(call: str, places: Sequence[str], values: Sequence[Json], named: Mapping[str, Json]) -> dict[str, Json]:
    """What a call is given by place and by name. Raises InputError."""
    if len(values) > len(places):
        raise InputError(f"{call} takes {len(places)} values by their place, not {len(values)}; name the others")
    if twice := [place for place in places[: len(values)] if place in named]:
        raise InputError(f"{call} is given {twice[0]} by its place and by its name; give it once")
    return {**dict(zip(places, values, strict=False)), **named}


def _from_table(method: Method) -> Method:
    def carry_out(memory: Scope, **given: Json) -> Json:
        calls = memory.within(*(given.pop(name) for name in SCOPE))
        call = getattr(calls, _kernel_name(method.__name__))
        value = call(**{_KERNEL_ARGUMENTS.get(name, name): one for name, one in given.items() if one is not None})
        return _SHAPES.get(result(method), listed)(value)

    return carry_out


@cache
def _kernel_name(api: str) -> str:
    """Of the kernel's call that has this name in the API."""
    from memos.kernel.calls import Calls

    return next(line.name for line in Calls.table().values() if line.api == api)


@contextmanager
def costing() -> Iterator[Spent]:
    """What is done within it costs so much; known at its end."""
    cost: Spent = {"model_calls": 0, "tokens": 0, "seconds": 0.0}
    began = perf_counter()
    with metered() as spent:
        yield cost
    cost["model_calls"], cost["tokens"], cost["seconds"] = spent.model_calls, spent.tokens, perf_counter() - began


# -- arguments: one wording of what is wrong for every door ----------------------------------------------------


@cache
def arguments(method: Method, without: Collection[str] = frozenset()) -> type[BaseModel]:
    """What a call takes, but for some arguments, as a form that knows no other names. `**who` stands for what its type
    names, each None by default."""
    hints = get_type_hints(method)
    fields: dict[str, Json] = {}
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            [names] = get_args(hints[parameter.name])  # of Unpack
            fields |= {name: (kind, None) for name, kind in get_type_hints(names).items()}
        else:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (hints[parameter.name], default)
    taken = {name: field for name, field in fields.items() if name not in without}
    return create_model(f"{method.__name__}_arguments", __config__=ConfigDict(extra="forbid"), **taken)


def result(method: Method) -> Json:
    """The type of what a call returns."""
    return get_type_hints(method)["return"]


def checked(form: type[BaseModel], given: Mapping[str, Json]) -> dict[str, Json]:
    """What a call is given, as its form has it, with what it takes by default. Raises InputError."""
    try:
        return dict(form.model_validate(given))
    except ValidationError as error:
        raise InputError(explained(error.errors(), list(form.model_fields))) from None


def explained(found: Sequence[Json], known: Sequence[str]) -> str:
    """The first errors of a form, each with its place, the rule and what was given; of what may be one thing or
    another, all rules."""
    lines, shown = [], 0
    for place, of in islice(groupby(found, place_of), _SHOWN):
        item, *others = of
        shown += 1 + len(others)
        rule = ", or ".join(dict.fromkeys(one["msg"].removeprefix("Value error, ") for one in (item, *others)))
        if item["type"] == "extra_forbidden" and place in _OF_MEM0:
            lines.append(f"{place} is mem0's, and not known here: {_OF_MEM0[place]}")
        elif item["type"] == "extra_forbidden":
            hint = meant(str(item["loc"][-1]), known, f"known: {', '.join(known)}")
            lines.append(f"{place:.100}: unknown; {hint}")
        elif not place:
            way_out = "" if item["type"] == "value_error" else "; send one JSON object as application/json"
            lines.append(f"the body: {rule}{way_out}")
        else:
            given = "" if item["type"] == "missing" else f" (given: {item['input']!r:.80})"
            lines.append(f"{place:.100}: {rule}{given}")
    return "; ".join(lines + [f"and {len(found) - shown:,} more"] * (shown < len(found)))


def place_of(item: Json) -> str:
    """Of one error: "messages.0.role"; of a value that may be of several types, its own."""
    return ".".join(takewhile(lambda part: not _TYPE.fullmatch(part), map(str, item["loc"])))


# -- replies ---------------------------------------------------------------------------------------------------


def item(cube: MemCube) -> Item:
    """A cube as a plain value."""
    header = cube.header
    unasked: Item = {"unasked": cube.unasked} if cube.unasked else {}  # type: ignore[typeddict-item]
    file: Item = {"media_type": cube.media_type} if cube.media_type else {}  # type: ignore[typeddict-item]
    return {
        "id": cube.id,
        "memory": getattr(cube.payload, "said", cube.text),
        "message": getattr(cube.payload, "verbatim", ""),
        "form": str(cube.form),
        "state": str(cube.state),
        "version": cube.version,
        "user_id": cube.namespace.user_id,
        "agent_id": cube.namespace.agent_id,
        "run_id": cube.namespace.session_id,
        "message_id": header.message_id,
        "kind": header.kind,
        "topic": header.segment,
        "speaker": header.speaker,
        "role": header.role,
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
        "bytes": getattr(cube.payload, "bytes", 0),
        "sources": [source.id for source in cube.sources],
        **unasked,
        **file,
    }


def _time(when: datetime | None) -> str | None:
    return when.isoformat() if when else None


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


def answered(reply: Reply) -> Answer:
    """A `Reply` of the kernel as a plain value."""
    seen = reply.admission
    forms = dict.fromkeys((cube.id for cube in seen.cubes), "activation")
    forms |= dict.fromkeys((cube.id for cube in seen.as_text), "plaintext")
    used = [(cube, forms[cube.id]) for cube in seen.cubes] + [(cube, "parametric") for cube in seen.internal]
    return {
        "text": reply.text,
        "used": [{"id": cube.id, "memory": cube.text, "form": form} for cube, form in used],
        "remembered": list(map(item, reply.remembered)),
        "forgotten": list(reply.forgotten),
        "prompt_tokens": reply.prompt_tokens,
        "past_tokens": reply.past_tokens,
        "ttft_ms": reply.ttft_ms,
        "operations": [
            {"intent": one.intent, "arguments": one.model_dump(exclude_defaults=True, by_alias=True)}
            for one in reply.operations
        ],
        "pipeline": reply.pipeline,
    }


def reason_of(reason: Reason) -> dict[str, Json]:
    memory = item(reason.cube)
    return {
        **{name: memory[name] for name in ("id", "memory", "topic")},
        **{name: getattr(reason, name) for name in ("tokens", "score", "change", "useful")},
        "form": str(reason.form),
        "signals": dict(reason.signals or {}),
    }


def listed(found: Json) -> dict[str, list[Json]]:
    """One value, or several."""
    return {"results": [plain(one) for one in (found if isinstance(found, list) else [found])]}


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
        "sources": plain(lineage.sources),
        "derived": plain(lineage.derived),
        "origins": plain(lineage.origins),
    }


def overview_value(overview: Overview) -> OverviewValue:
    warm: list[Item] = [{**item(one.cube), "heat": one.heat} for one in overview.hottest]
    return cast(OverviewValue, overview.model_dump(mode="json", exclude={"hottest"}) | {"hottest": warm})


def why(explanation: Explanation) -> Why:
    return cast(Why, vars(explanation) | {"reasons": list(map(reason_of, explanation.reasons))})


# the reply of a call that the table carries out, by the type that it returns; of all others, `listed`
_SHAPES: dict[Json, Callable[[Json], Json]] = {LineageValue: lineage_value, OverviewValue: overview_value, Why: why}
