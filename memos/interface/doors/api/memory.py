"""The Memory API: the public calls as plain values, for programs and for every door.

Arguments and results are JSON values, typed. Knows names and shapes; what a call does is the kernel's. mem0's habits
work: `user_id=` at the top or in `filters`, `{"results": [...]}`, `AsyncMemory`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from functools import cache, wraps
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_type_hints

from pydantic import BaseModel
from typing_extensions import NotRequired, ParamSpec, TypedDict, Unpack

from memos.config import Config, load_config, parse_config
from memos.cost import metered
from memos.cube import Form, MemCube, State, Text
from memos.errors import Denied, InputError
from memos.interface.doors.api import filters as conditions
from memos.interface.doors.api.arguments import checked, form_of
from memos.interface.doors.api.filters import SCOPE

if TYPE_CHECKING:
    from memos.kernel.identity import Bound
    from memos.kernel.mem_os import MemOS
    from memos.kernel.wiring import Hit

_P = ParamSpec("_P")
_R = TypeVar("_R")
Filters = dict[str, Any]
Messages = str | list[dict[str, Any]] | dict[str, Any]
MOST = 100  # memories that a listing gives where no limit is named


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
    metadata: dict[str, Any]
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


class One(Item, Costed):
    """The memory that was asked for."""


class Items(Costed):
    results: list[Item]


class Rows(Costed):
    """Of what is no memory."""

    results: list[dict[str, Any]]


class Done(Costed):
    message: str
    results: list[dict[str, Any]]


class Seen(TypedDict):
    """A memory that an answer was given from, and in which form."""

    id: str
    memory: str
    form: str


class Answer(Costed):
    """operations: what was understood of the message, in order. pipeline: names what was done, for `undo`; "" where
    there is nothing to take back."""

    text: str
    used: list[Seen]
    remembered: list[Item]
    forgotten: list[str]
    prompt_tokens: int
    past_tokens: int
    ttft_ms: float
    operations: list[dict[str, Any]]
    pipeline: str


class Why(Costed):
    """An answer and what it rests on; see `memos.operation.forms.insight.Explanation`."""

    question: str
    answer: str
    reasons: list[dict[str, Any]]
    likelihood: float
    closed_book: float
    prompt_tokens: int
    past_tokens: int
    ttft_ms: float


class Overviewed(Costed):
    """See `memos.kernel.services.overview.Overview`."""

    cubes: dict[str, int]
    bytes: int
    topics: list[dict[str, Any]]
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


class Traced(Costed):
    memory: Item
    sources: list[Item]
    derived: list[Item]
    origins: list[dict[str, Any]]


@contextmanager
def costing() -> Iterator[Spent]:
    """What is done within it costs so much; known at its end."""
    cost: Spent = {"model_calls": 0, "tokens": 0, "seconds": 0.0}
    began = perf_counter()
    with metered() as spent:
        yield cost
    cost["model_calls"], cost["tokens"], cost["seconds"] = spent.model_calls, spent.tokens, perf_counter() - began


API: list[str] = []  # the calls that doors open, in the order of their writing


def _call(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """A call of the API: its arguments are checked, its reply says what it cost, and its signature names each argument
    for the doors."""

    @wraps(method)
    def costed(*values: _P.args, **named: _P.kwargs) -> _R:
        memory, *rest = values
        with costing() as cost:
            reply: Any = method(memory, **_given(method.__name__, places, rest, named))  # type: ignore[arg-type]
        return reply | {"cost": cost}

    hints = get_type_hints(method) | get_type_hints(Who)
    own = [p.replace(annotation=hints.get(p.name, Any)) for p in inspect.signature(method).parameters.values()]
    who = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hints[n]) for n in SCOPE]
    own = [p for p in own if p.kind is not inspect.Parameter.VAR_KEYWORD]
    places = [p.name for p in own if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD][1:]
    costed.__signature__ = inspect.Signature([*own, *who], return_annotation=hints["return"])  # type: ignore[attr-defined]
    API.append(method.__name__)
    return costed


@cache
def arguments(name: str) -> type[BaseModel]:
    """What a call takes, as a form that knows no other names."""
    return form_of(getattr(Memory, name))


def _given(name: str, places: Sequence[str], values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """What a call is given by place and by name. Raises InputError."""
    if len(values) > len(places):
        raise InputError(f"{name} takes {len(places)} values by their place, not {len(values)}; name the others")
    if twice := [place for place in places[: len(values)] if place in named]:
        raise InputError(f"{name} is given {twice[0]} by its place and by its name; give it once")
    return checked(arguments(name), dict(zip(places, values, strict=False)) | {**named})


class Memory:
    """The memories of one kernel. Every call raises what the kernel's call of the same name raises."""

    def __init__(
        self,
        config: Config | str | Path | None = None,
        *,
        vault: Path | str | None = None,
        kernel: MemOS | None = None,
        key: str | None = None,
        purpose: str = "",
    ) -> None:
        """config: settings, or their YAML. kernel: one that is there already, in place of both. key: acts for whom it
        stands for. Raises ConfigError, VaultError, Denied."""
        if kernel is None:
            from memos.kernel.mem_os import MemOS

            kernel = MemOS(config if isinstance(config, Config) else load_config(config and Path(config)), vault=vault)
        self.kernel = kernel
        self._purpose = purpose
        # what is written down is that the key is let in; each call looks again whether it is in force
        self._let_in = None if key is None else kernel.as_(key, purpose)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any], **parts: Any) -> Memory:
        """Of settings as a mapping, as they stand in a YAML. Raises ConfigError."""
        return cls(parse_config(dict(config_dict)), **parts)

    def as_(self, key: str, purpose: str = "") -> Memory:
        """The same memories for whoever a key stands for. Raises Denied."""
        return Memory(kernel=self.kernel, key=key, purpose=purpose)

    def close(self) -> None:
        self.kernel.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def within(self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None) -> Bound:
        """The kernel's calls in this scope. Raises Denied; with a key, the calls do."""
        agent, session = agent_id or "", run_id or ""
        if self._let_in:
            return self._let_in.within(user_id, agent, session)
        return self.kernel.within(purpose=self._purpose, user=user_id, agent=agent, session=session)

    def holding(self, memory_id: str, who: Who) -> Bound:
        """The calls on one memory. As in mem0, an id will do: where neither a key nor the call says who acts, its owner
        does. Raises Denied."""
        if not self._let_in and not any(who.values()):
            return self.within(self.kernel.owner(memory_id))
        return self.within(**who)

    # -- keeping -------------------------------------------------------------------------------------------

    @_call
    def add(
        self,
        messages: Messages,
        *,
        metadata: dict[str, Any] | None = None,
        infer: bool = True,
        tags: list[str] | None = None,
        ttl_s: float | None = None,
        expires: datetime | None = None,
        **who: Unpack[Who],
    ) -> Items:
        """Remember a statement, or what is worth it in the messages of a conversation, and what its calls of tools came
        to; durable when it returns.

        infer: False keeps every message as it is. metadata: kept with each memory. ttl_s: seconds for which it answers.
        """
        calls, began = self.within(**who), self.kernel.vault.now()
        more: dict[str, Any] = {"metadata": metadata, "tags": tags or (), "expires": expires}
        more["ttl"] = None if ttl_s is None else _seconds(ttl_s)
        match messages:
            case str():
                kept = calls.add(messages, **more)
            case _:
                kept = calls.add(_turns(messages), infer=infer, **more)
        return {"results": added(kept, began)}

    @_call
    def get(self, memory_id: str, **who: Unpack[Who]) -> One:
        """One memory."""
        return cast(One, item(self.holding(memory_id, who).get(memory_id)))

    @_call
    def get_all(
        self,
        *,
        filters: Filters | None = None,
        limit: int = MOST,
        top_k: int | None = None,
        form: Form | None = None,
        state: State | None = None,
        kind: str | None = None,
        topic: str | None = None,
        **who: Unpack[Who],
    ) -> Items:
        """The memories in force, as they were said; or, with a form or a state, all of that. filters: see `search`.
        top_k: another name of limit."""
        most = _limit(limit if top_k is None else top_k)
        who, wanted = _filtered(filters, who)
        calls = self.within(**who)
        cubes: list[MemCube] = calls.memories() if form is None and state is None else calls.cubes(form=form)
        fit = [
            cube
            for cube in cubes
            if (state is None or cube.state is state)
            and (kind is None or cube.header.kind == kind)
            and (topic is None or cube.header.segment == topic)
        ]
        return {"results": [told for told in map(item, fit) if conditions.fits(told, wanted)][:most]}

    @_call
    def update(
        self,
        memory_id: str,
        data: str | None = None,
        *,
        text: str | None = None,
        metadata: dict[str, Any] | None = None,
        **who: Unpack[Who],
    ) -> Items:
        """A new version of a memory, with this text, this metadata, or both; what was made of it is stale at once.

        text: another name of data. metadata: set beside what is there; a name with the value null is taken out.
        """
        if None not in (data, text) and data != text:
            raise InputError("data and text are two names of what the memory should say; give one of them")
        said = text if data is None else data
        return {"results": [item(self.holding(memory_id, who).update(memory_id, said, metadata=metadata))]}

    @_call
    def delete(self, memory_id: str, **who: Unpack[Who]) -> Done:
        """Remove a memory with every form made from it."""
        gone = self.holding(memory_id, who).delete(memory_id)
        return _done("Memory deleted successfully!", deleted(gone))

    @_call
    def delete_all(self, **who: Unpack[Who]) -> Done:
        """Remove all memories in this scope, which has to be named, or none where one is locked; `forget(user=True)`
        does so with a proof."""
        if not any(who.get(name) for name in SCOPE):
            raise InputError("delete_all needs to know whose memories; give user_id, agent_id or run_id")
        return _done("Memories deleted successfully!", deleted(self.within(**who).delete_all()))

    def reset(self) -> Done:
        """Remove every memory of every user, or none where one is locked; keys, grants and the log stay. For whoever
        runs the process, in no other door. Raises Denied, Held, BadTransition."""
        if self._let_in:
            raise Denied(
                f"{self.within().caller.namespace} calls with a key, and reset removes the memories of all; use "
                f"delete_all for your own, or ask who keeps this vault"
            )
        return _done("All memories deleted.", deleted(self.kernel.reset()))

    @_call
    def history(self, memory_id: str, *, diffs: bool = False, **who: Unpack[Who]) -> Rows:
        """Versions and moves of a memory in time order; with diffs, how each version differs from the one before. A
        version tells what mem0's rows tell, by their names; its event is ADD or UPDATE."""
        calls = self.holding(memory_id, who)
        id, events = calls.get(memory_id).id, calls.history(memory_id, diffs=diffs)
        return {"results": changes(id, [plain(event) for event in events])}

    @_call
    def tag(self, memory_id: str, tags: list[str], **who: Unpack[Who]) -> Items:
        """Give a memory these tags. "always": in every request; "apart:NAME": never beside another of that name."""
        return {"results": [item(self.within(**who).tag(memory_id, tags))]}

    @_call
    def fuse(self, memory_ids: list[str], text: str | None = None, **who: Unpack[Who]) -> Items:
        """One memory of several; `split` undoes it."""
        return {"results": [item(self.within(**who).fuse(memory_ids, text))]}

    @_call
    def split(self, memory_id: str, parts: list[str] | None = None, **who: Unpack[Who]) -> Items:
        """A memory in parts: these, its sentences, or what it was fused of."""
        return _items(self.within(**who).split(memory_id, parts or ()))

    @_call
    def consolidate(self, **who: Unpack[Who]) -> Items:
        """Make one of each group of memories that say the same; those made."""
        return _items(self.within(**who).consolidate())

    @_call
    def reinstate(self, memory_id: str, **who: Unpack[Who]) -> Items:
        """Bring back a memory that another has replaced."""
        return {"results": [item(self.within(**who).reinstate(memory_id))]}

    # -- finding and answering -----------------------------------------------------------------------------

    @_call
    def search(
        self,
        query: str,
        *,
        filters: Filters | None = None,
        top_k: int | None = None,
        limit: int | None = None,
        kinds: list[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        policy: str | None = None,
        explain: bool = False,
        threshold: float | None = None,
        **who: Unpack[Who],
    ) -> Items:
        """The memories that answer a query best, best first.

        filters: {"user_id": ..., "agent_id": ..., "run_id": ...}, and names of a memory's metadata or fields, each with
        the value that it has, "*" for any, or {operator: value} (eq, ne, gt, gte, lt, lte, in, nin, contains,
        icontains); AND, OR and NOT take lists of filters. limit: another name of top_k. since, until: when it was said.
        threshold: the least score.
        """
        if None not in (top_k, limit) and top_k != limit:
            raise InputError(f"top_k {top_k} and limit {limit} are two names of how many are found; give one of them")
        who, wanted = _filtered(filters, who)
        hits: list[Hit] = self.within(**who).search(
            query,
            top_k=limit if top_k is None else top_k,
            kinds=kinds,
            since=since,
            until=until,
            where=(lambda cube: conditions.fits(item(cube), wanted)) if wanted.parts else None,
            policy=policy,
        )
        return {"results": [scored(hit, explain) for hit in hits if threshold is None or hit.score >= threshold]}

    @_call
    def chat(
        self,
        messages: Messages,
        *,
        session: str | None = None,
        via: Literal["auto", "none", "plaintext", "activation", "parametric"] = "auto",
        **who: Unpack[Who],
    ) -> Answer:
        """Do what a message asks for: remember, correct, forget, or answer from memory.

        messages: the message, or a conversation that ends with it. session, or run_id: instead of earlier messages, a
        conversation that memos keeps; it sees the memories outside it, too.
        """
        *turns, last = _texts(messages)
        calls = self.within(who.get("user_id"), who.get("agent_id"))
        return answered(calls.chat(last["content"], via=via, turns=turns, session=session or who.get("run_id")))

    @_call
    def undo(self, pipeline: str, **who: Unpack[Who]) -> Rows:
        """Take back what a message of `chat` has done, but for what it has deleted."""
        return {"results": [{"undone": what} for what in self.within(**who).undo(pipeline)]}

    @_call
    def explain(self, question: str, *, answer: str | None = None, **who: Unpack[Who]) -> Why:
        """Why a question is answered so: the memories that were seen, in which form, and by how many nats the answer
        (or the given one) is likelier with each of them than without."""
        told = self.within(**who).explain(question, answer=answer)
        plain: Any = vars(told) | {"reasons": [_reason(reason) for reason in told.reasons]}
        return plain

    @_call
    def feedback(
        self,
        memory_id: str | None = None,
        useful: float | None = None,
        *,
        question: str | None = None,
        answer: str | None = None,
        **who: Unpack[Who],
    ) -> Rows:
        """Say how much a memory has helped, from -1 to 1; or give a question with its right answer, and what each
        memory does for that answer is measured. What helps is found sooner."""
        calls = self.within(**who)
        match memory_id, useful, question, answer:
            case str(), float() | int(), None, None:
                cube = calls.feedback(memory_id, useful)
                return {"results": [{"id": cube.id, "utility": cube.usage.utility}]}
            case None, None, str(), str():
                told = calls.credit(question, answer)
                return {"results": [_reason(reason) for reason in told.reasons]}
            case _:
                raise InputError("feedback takes memory_id and useful, or question and answer; give one of the pairs")

    # -- forms ---------------------------------------------------------------------------------------------

    @_call
    def promote(
        self, memory_ids: list[str], to: Literal["activation", "parametric"] = "activation", **who: Unpack[Who]
    ) -> Items:
        """Make a KV cache or an adapter of memories; published once it has proven itself."""
        return {"results": [item(self.within(**who).promote(memory_ids, to))]}

    @_call
    def demote(self, memory_id: str, **who: Unpack[Who]) -> Items:
        """Give up a KV cache or an adapter; its memories answer as text again."""
        return _items(self.within(**who).demote(memory_id))

    @_call
    def tick(self, **who: Unpack[Who]) -> Rows:
        """Let the scheduler plan moves, and carry them out; what was done."""
        return {"results": [plain(move) for move in self.within(**who).tick()]}

    @_call
    def jobs(self, **who: Unpack[Who]) -> Rows:
        """Work that goes on, waits, or can be taken up again."""
        return {"results": [plain(job) for job in self.within(**who).jobs()]}

    @_call
    def cancel(self, job_id: str, **who: Unpack[Who]) -> Done:
        """End a job; nothing of it is published."""
        self.within(**who).cancel(job_id)
        return _done("Job cancelled.", [{"id": job_id}])

    # -- life ----------------------------------------------------------------------------------------------

    @_call
    def freeze(self, memory_id: str, *, why: str = "frozen", **who: Unpack[Who]) -> Items:
        """Lock a memory: it answers, and is neither edited nor deleted."""
        return {"results": [item(self.within(**who).freeze(memory_id, why=why))]}

    @_call
    def thaw(self, memory_id: str, *, why: str = "thawed", **who: Unpack[Who]) -> Items:
        """Unlock a frozen memory."""
        return {"results": [item(self.within(**who).thaw(memory_id, why=why))]}

    @_call
    def archive(self, memory_id: str, *, why: str = "archived", **who: Unpack[Who]) -> Items:
        """Put a memory out of use, with all that is made of it."""
        return {"results": [item(self.within(**who).archive(memory_id, why=why))]}

    @_call
    def unarchive(self, memory_id: str, *, why: str = "brought back", **who: Unpack[Who]) -> Items:
        """Bring an archived memory back."""
        return {"results": [item(self.within(**who).unarchive(memory_id, why=why))]}

    @_call
    def rollback(self, memory_id: str, version: int, **who: Unpack[Who]) -> Items:
        """Bring back what an old version said, as a new version."""
        return {"results": [item(self.within(**who).rollback(memory_id, version))]}

    @_call
    def snapshot(self, name: str, **who: Unpack[Who]) -> Rows:
        """Write down how all memories are now."""
        return {"results": [plain(self.within(**who).snapshot(name))]}

    @_call
    def snapshots(self, **who: Unpack[Who]) -> Rows:
        """What was written down, oldest first."""
        return {"results": [plain(one) for one in self.within(**who).snapshots()]}

    @_call
    def restore(self, name: str, **who: Unpack[Who]) -> Rows:
        """Take all memories back to a snapshot; one is taken before, so that this can be undone."""
        return {"results": [plain(self.within(**who).restore(name))]}

    @_call
    def delete_snapshot(self, name: str, **who: Unpack[Who]) -> Done:
        """Forget a snapshot; the memories stay."""
        self.within(**who).delete_snapshot(name)
        return _done("Snapshot deleted.", [{"name": name}])

    # -- governance ----------------------------------------------------------------------------------------

    @_call
    def forget(self, *, user: bool = False, **who: Unpack[Who]) -> Done:
        """Remove a user, who must be meant (user=True): every memory in every form, with a proof. One memory is removed
        by `delete`, or by asking for it in `chat`."""
        if not user:
            raise InputError("forget removes all that is known of a user; say so with user=true, or use delete")
        proof = self.within(**who).forget_user()
        return _done("Forgotten.", [plain(proof)])

    @_call
    def grant(
        self,
        on: str,
        to: str,
        relation: str = "reader",
        *,
        purpose: str | None = None,
        until: datetime | None = None,
        **who: Unpack[Who],
    ) -> Rows:
        """Give somebody a relation (owner, editor, annotator, reader) to a memory, or to "namespace:USER/AGENT"."""
        grant = self.within(**who).grant(on, to, relation, purpose=purpose, until=until)
        return {"results": [plain(grant)]}

    @_call
    def revoke(
        self, on: str, to: str, relation: str | None = None, *, purpose: str | None = None, **who: Unpack[Who]
    ) -> Done:
        """Take back what was granted, from all that is made of it as well; null: of every relation, for every purpose.
        purpose: "" for what was granted for none."""
        count = self.within(**who).revoke(on, to, relation, purpose=purpose)
        return _done(f"{count} grants taken back.", [])

    @_call
    def grants(self, on: str | None = None, **who: Unpack[Who]) -> Rows:
        """What is granted on one's memories, and to oneself."""
        return {"results": [plain(grant) for grant in self.within(**who).grants(on)]}

    @_call
    def join(self, group: str, member: str, **who: Unpack[Who]) -> Done:
        """Put somebody into a group of one's own, which is made if there is none."""
        return _done(f"{member} is in {self.within(**who).join(group, member)}.", [])

    @_call
    def leave(self, group: str, member: str, **who: Unpack[Who]) -> Done:
        """Take somebody out of a group of one's own."""
        return _done(f"{member} is no longer in {self.within(**who).leave(group, member)}.", [])

    @_call
    def groups(self, **who: Unpack[Who]) -> Rows:
        """One's groups with their members."""
        found = self.within(**who).groups().items()
        return {"results": [{"group": str(group), "members": list(map(str, members))} for group, members in found]}

    @_call
    def trust(self, memory_id: str, trust: str, **who: Unpack[Who]) -> Items:
        """Say how far a memory is believed."""
        return {"results": [item(self.within(**who).trust(memory_id, trust))]}

    @_call
    def quarantined(self, **who: Unpack[Who]) -> Items:
        """Memories that answer nothing until they are released."""
        return {"results": [{**item(cube), "note": found.why} for cube, found in self.within(**who).quarantined()]}

    @_call
    def release(self, memory_id: str, **who: Unpack[Who]) -> Items:
        """Let a memory out of quarantine."""
        return {"results": [item(self.within(**who).release(memory_id))]}

    @_call
    def holds(self, **who: Unpack[Who]) -> Items:
        """Memories under a legal hold, with who holds each and why."""
        found = self.within(**who).holds()
        return {"results": [{**item(cube), "note": f"{hold.holder}: {hold.why}"} for cube, hold in found]}

    @_call
    def hold(self, memory_id: str, why: str, **who: Unpack[Who]) -> Items:
        """Lay a legal hold on a memory: nobody and no rule edits, deletes or forgets it."""
        return {"results": [item(self.within(**who).hold(memory_id, why))]}

    @_call
    def end_hold(self, memory_id: str, **who: Unpack[Who]) -> Items:
        """Take a legal hold off."""
        return {"results": [item(self.within(**who).end_hold(memory_id))]}

    # -- seeing --------------------------------------------------------------------------------------------

    @_call
    def provenance(self, memory_id: str, **who: Unpack[Who]) -> Traced:
        """What a memory was made of, what is made of it, and where it came from."""
        told = self.within(**who).lineage(memory_id)
        sides = {"sources": list(map(item, told.sources)), "derived": list(map(item, told.derived))}
        origins = [plain(origin) for origin in told.origins]
        return {"memory": item(told.cube), **sides, "origins": origins}  # type: ignore[typeddict-item]

    @_call
    def log(
        self,
        *,
        action: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        allowed: bool | None = None,
        own_reads: bool = True,
        limit: int = MOST,
        **who: Unpack[Who],
    ) -> Rows:
        """The last decisions on what the caller did, and, by whomever, on its own memories, oldest first.

        target: it begins with this, as with the id of a memory; named so, what was decided on another's memory that the
        caller may manage is told, too. own_reads: False leaves out what the caller itself has read, so that looking
        does not crowd out the rest.
        """
        asked: dict[str, Any] = {"action": action, "target": target, "since": since, "until": until}
        found = self.within(**who).log(**asked, allowed=allowed, own_reads=own_reads, limit=_limit(limit))
        return {"results": [plain(row) for row in found]}

    @_call
    def overview(self, *, hottest: int = 0, **who: Unpack[Who]) -> Overviewed:
        """What there is: counts by form and state, topics by heat, tiers, budgets. hottest: with so many memories of
        each form, the hottest first."""
        told = self.within(**who).overview(hottest=hottest)
        warm: list[Item] = [{**item(one.cube), "heat": one.heat} for one in told.hottest]
        return cast(Overviewed, told.model_dump(mode="json", exclude={"hottest"}) | {"hottest": warm})


class AsyncMemory:
    """The same calls, awaited; each in a thread, so that the loop goes on. An add has its ids once it is durable, and a
    later call sees it; what makes it found, and forms of it, follow in the background."""

    def __init__(self, config: Config | str | Path | None = None, **parts: Any) -> None:
        self.memory = Memory(config, **parts)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any], **parts: Any) -> AsyncMemory:
        made = cls.__new__(cls)
        made.memory = Memory.from_config(config_dict, **parts)
        return made

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in API:
            raise AttributeError(f"{name!r} is no call of the Memory API; there are {', '.join(API)}")
        call = getattr(self.memory, name)

        @wraps(call)
        async def awaited(*values: Any, **named: Any) -> Any:
            return await asyncio.to_thread(call, *values, **named)

        return awaited

    async def reset(self) -> Done:
        return await asyncio.to_thread(self.memory.reset)

    async def close(self) -> None:
        await asyncio.to_thread(self.memory.close)

    async def __aenter__(self) -> AsyncMemory:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


# -- values ------------------------------------------------------------------------------------------------


def item(cube: MemCube) -> Item:
    """A cube as a plain value."""
    header, blob = cube.header, cube.blob
    match cube.payload:
        case Text(text=text):
            said = text
        case _:
            said = "" if blob else cube.payload.said  # type: ignore[union-attr]
    return {
        "id": cube.id,
        "memory": said,
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


def added(kept: Iterable[MemCube], began: datetime) -> list[Item]:
    """What an `add` that began then has kept: new, or known already."""
    return [{**item(cube), "event": "ADD" if cube.header.created >= began else "NONE"} for cube in kept]


def scored(hit: Hit, explain: bool) -> Item:
    """What a search has found, with its score and, to be explained, what that is made of."""
    told: Item = {**item(hit.cube), "score": hit.score}
    return {**told, "why": dict(hit.why)} if explain else told


def deleted(ids: Iterable[str]) -> list[dict[str, Any]]:
    return [{"id": id, "event": "DELETE"} for id in ids]


def changes(id: str, events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of a memory; a version also by the names of mem0's rows."""
    rows: list[dict[str, Any]] = []
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


def answered(reply: Any) -> Answer:
    """A `Reply` of the kernel as a plain value."""
    seen = reply.admission
    as_text = {cube.id for cube in seen.as_text}
    used: list[Seen] = [
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


def _reason(reason: Any) -> dict[str, Any]:
    told = item(reason.cube)
    return {
        **{name: told[name] for name in ("id", "memory", "topic")},
        "form": str(reason.form),
        "tokens": reason.tokens,
        "score": reason.score,
        "signals": dict(reason.signals or {}),
        "change": reason.change,
        "useful": reason.useful,
    }


def _items(cubes: Iterable[MemCube]) -> Items:
    return {"results": list(map(item, cubes))}


def _done(message: str, results: list[dict[str, Any]]) -> Done:
    return {"message": message, "results": results}


def plain(value: Any) -> Any:
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


def _turns(messages: Messages) -> list[dict[str, Any]]:
    """Messages as turns, as the reader takes them: {role, content}, and calls of tools. Raises InputError."""
    match messages:
        case str():
            turns = [{"content": messages}]
        case dict():
            turns = [messages]
        case _:
            turns = messages
    if not turns:
        raise InputError("there is no message; give a text, or a list of {role, content}")
    return [{"role": "user", **turn} if isinstance(turn, dict) else turn for turn in turns]


def _texts(messages: Messages) -> list[dict[str, Any]]:
    """The same, each with a text: no calls of tools. Raises InputError."""
    told = _turns(messages)
    for turn in told:
        if not (isinstance(turn, dict) and isinstance(turn["role"], str) and isinstance(turn.get("content"), str)):
            raise InputError(f"{str(turn)[:80]!r} is no message; give {{role, content}}, each a text")
    return told


def _seconds(seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InputError(f"ttl_s {seconds} is no time that ends; leave it out for a memory without end") from None


def _limit(limit: int) -> int:
    if limit < 1:
        raise InputError(f"limit {limit} gives nothing; give 1 or more")
    return limit


def _filtered(filters: Filters | None, who: Who) -> tuple[Who, conditions.Group]:
    """(the scope, what else a memory must be) of the arguments of a call. Raises InputError."""
    scope, wanted = conditions.read(filters, cast(dict[str, str | None], who))
    return cast(Who, scope), wanted
