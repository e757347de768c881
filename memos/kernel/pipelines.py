"""Carries out what a message asks of the memory: looked up, authorised as a whole, done, and undone.

Knows what was asked, and the kernel's calls; knows no language and no stores. Which memory is meant is never guessed:
where several could be, they are named with their ids, and the next message of that conversation, to this process, may
say which. A deletion is final, and comes when all else has been done; that can be undone, in any process.
"""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta, timezone
from typing import TYPE_CHECKING
from uuid import uuid4

from memos.cube import ANSWERING, Blob, Form, MemCube, State
from memos.errors import NotFound
from memos.kernel.access import Service
from memos.ops import (
    Add,
    Asked,
    Call,
    ChangeState,
    Correct,
    Delete,
    Demote,
    Get,
    GiveRight,
    Operation,
    Promote,
    Rollback,
    TakeRight,
)
from memos.rights import Caller, name_of, object_of, relation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memos.kernel.services.finding import Finding
    from memos.kernel.services.forming import Forming
    from memos.kernel.services.governing import Governing
    from memos.kernel.services.keeping import Keeping
    from memos.kernel.services.life import Life
    from memos.kernel.wiring import Parts

_KEPT = 1000  # open questions
_NAMED = 5  # candidates that a question names
_WAITS = timedelta(minutes=10)  # for an answer that does not come with the question
_ID = re.compile(r"\b[0-9a-zA-Z_-]{6,}\b")
_PLACES = {"first": 0, "second": 1, "third": 2, "fourth": 3, "fifth": 4, "last": -1, "最后一": -1}
_PLACES |= {f"第{word}": place for place, word in enumerate("一二三四五")}
_PICK = re.compile(
    rf"\W*(?:i mean(?:t)? |yes,? |please )*(?:the )?(?:(?P<nth>{'|'.join(_PLACES)})[个条]?|(?:no\.?|number|#)? ?(?P<n>[1-9])(?:st|nd|rd|th)?)(?: one)?(?:,? please)?[\s.!。！]*",
    re.IGNORECASE,
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One thing that was asked for, with the memory that it is done to, and the operation that it takes."""

    asked: Asked
    cube: MemCube | None = None
    operation: Operation | None = None


@dataclass(frozen=True)
class Done:
    """What became of a pipeline. id: to undo it by; empty where nothing was changed."""

    text: str
    id: str = ""
    remembered: tuple[MemCube, ...] = ()
    forgotten: tuple[str, ...] = ()


@dataclass(frozen=True)
class Conversation:
    """Where a message is said: the session's name, or the turns before it, or neither."""

    caller: Caller
    session: str | None = None
    turns: Sequence[Mapping[str, str]] = ()


@dataclass
class _Said:
    """A reply of a pipeline, and until when the next message may be about it."""

    where: Conversation
    text: str
    until: datetime

    def is_last(self, where: Conversation, now: datetime) -> bool:
        """True if this was said just before: a number in another conversation is no answer."""
        if (self.where.caller, self.where.session) != (where.caller, where.session):
            return False
        return self.text in str(where.turns[-1].get("content", "")) if where.turns else now < self.until


@dataclass
class _Doubt(_Said):
    """A pipeline that waits for an answer: which of these is meant by its first step that does not know."""

    asked: tuple[Asked, ...]
    meant: dict[int, str]
    at: int
    candidates: tuple[str, ...]


@dataclass
class _Undoable(_Said):
    """A pipeline that "undo that" takes back."""

    id: str


@dataclass
class _Log:
    """What a pipeline has done since a time, and the calls that undo it, in their order."""

    began: datetime
    lines: list[str] = field(default_factory=list)
    undo: list[Call] = field(default_factory=list)
    remembered: list[MemCube] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)


class Unclear(Exception):
    """Which memory is meant must be asked."""

    def __init__(self, asked: Asked, candidates: Sequence[MemCube]) -> None:
        super().__init__(asked.intent)
        self.asked, self.candidates = asked, tuple(candidates)


class Pipelines(Service):
    """Carries pipelines out for the callers of one kernel."""

    def __init__(
        self,
        parts: Parts,
        finding: Finding,
        keeping: Keeping,
        life: Life,
        forming: Forming,
        governing: Governing,
        invoke: Callable[[Caller, Call], object],
    ) -> None:
        """invoke: makes a public call by its name, as a caller."""
        super().__init__(parts)
        self._finding, self._keeping, self._life = finding, keeping, life
        self._forming, self._governing, self._invoke = forming, governing, invoke
        self.doubts: deque[_Doubt] = deque(maxlen=_KEPT)
        self._done: deque[_Undoable] = deque(maxlen=_KEPT)

    def answered(self, message: str, where: Conversation) -> tuple[tuple[Asked, ...], dict[int, str]] | None:
        """The pipeline whose question a message answers, with what is meant; None where it answers none."""
        now = self._vault.now()
        doubt = next((doubt for doubt in reversed(list(self.doubts)) if doubt.is_last(where, now)), None)
        if doubt is None:
            return None
        picked = _picked(message, doubt.candidates)
        if picked is None:
            doubt.until = now  # something else was said
            return None
        with suppress(ValueError):  # a question is answered once
            self.doubts.remove(doubt)
            return doubt.asked, {**doubt.meant, doubt.at: picked}
        return None

    def run(self, asked: Sequence[Asked], where: Conversation, meant: dict[int, str]) -> Done:
        """Look up, authorise and do. Raises Denied, and BadTransition for what cannot be deleted, before anything is
        done."""
        caller = where.caller
        if undone := self._taken_back(asked, where):
            return undone
        steps: list[Step] = []
        for n, one in enumerate(asked):
            try:
                steps.append(self._step(one, caller, meant.get(n)))
            except Unclear as unclear:
                return self._ask_back(unclear, tuple(asked), meant, n, where)
        for step in steps:
            if step.operation:
                self._governance.permit(caller, step.operation, step.cube)
        gone = (step.cube for step in steps if step.cube and _is_final(step))
        final = (root.id for cube in gone for root in self._finding.roots(cube))
        self._lifecycle.require_deletable(*final)
        log = _Log(self._vault.now())
        try:
            for step in sorted(steps, key=_is_final):
                self._do(caller, step, log)
        except Exception:
            self._reverse(caller, log.undo)  # half a pipeline is none
            raise
        log.undo = [call for call in log.undo if call[1][0] not in log.forgotten]
        id = uuid4().hex[:12] if log.undo else ""
        if id:
            with self._vault.transaction():
                self._vault.pipelines.put(id, caller.user_id, log.undo)
            self._done.append(_Undoable(replace(where, turns=()), "\n".join(log.lines), self._vault.now() + _WAITS, id))
        return Done("\n".join(log.lines), id, tuple(log.remembered), tuple(log.forgotten))

    def undo(self, caller: Caller, pipeline: str) -> list[str]:
        """Take back what a message has done (`Reply.pipeline`), but for what it has deleted, the last first; what was
        done. Raises NotFound, Denied."""
        vault, done = self._vault, list[str]()
        while call := self._taken(pipeline, caller):
            try:
                done += self._reverse(caller, [call])
            except Exception:
                with vault.transaction():
                    vault.pipelines.give_back(pipeline, caller.user_id, call)  # and what is left can be tried again
                raise
        if not done:
            raise NotFound(
                f"there is no pipeline {pipeline!r} of yours to undo: it was undone, or it is long ago; look at "
                f"`memos history ID` of its memories and roll them back"
            )
        return done

    def _taken_back(self, asked: Sequence[Asked], where: Conversation) -> Done | None:
        """What was done just before, undone, where that is all that is asked."""
        now, done = self._vault.now(), reversed(list(self._done))
        last = next((done for done in done if done.is_last(where, now)), None)
        if last is None or [one.undoes_last for one in asked] != [True]:
            return None
        self._done.remove(last)
        self.undo(where.caller, last.id)
        return Done(f"Undone: {last.text}")

    def _taken(self, id: str, caller: Caller) -> Call | None:
        with self._vault.transaction():
            return self._vault.pipelines.take(id, caller.user_id)

    # -- looking up ----------------------------------------------------------------------------------------

    def _step(self, asked: Asked, caller: Caller, meant: str | None) -> Step:
        if asked.intent in ("remember", "correct"):
            return Step(asked, None, self._reader.to_statement(asked))
        if asked.intent in ("recall", "about", "talk", "withhold"):
            return Step(asked)
        if asked.intent == "ask_back":
            if meant is None:
                raise Unclear(asked, self._candidates(asked.what, caller))
            asked = asked.model_copy(update={"intent": asked.doubted, "doubted": ""})
        cube = self._access.cube(caller, Get(id=meant), meant) if meant else self._meant(asked, caller)
        return Step(asked, cube, self._operation(asked, cube))

    def _meant(self, asked: Asked, caller: Caller) -> MemCube:
        """The one memory that is described. Raises Unclear."""
        found = self._candidates(asked.what, caller)
        if len(found) != 1:
            raise Unclear(asked, found)
        return found[0]

    def _candidates(self, what: str, caller: Caller) -> list[MemCube]:
        """What a description could mean, the likeliest first; without one the latest memories."""
        if not what:
            return list(reversed(self._access.texts(caller)))[:_NAMED]
        for id in _ID.findall(what):
            if len(found := self._vault.named(id)) == 1 and self._governance.visible(caller, found):
                return list(found)
        forget = self._reader.forget(what)
        return list(self._finding.described(caller, forget)[0])

    def _operation(self, asked: Asked, cube: MemCube) -> Operation | None:
        match asked.intent:
            case "forget":
                return Delete(id=cube.id)
            case "share":
                return GiveRight(on=object_of(cube.id), relation=relation_of(asked.relation or "reader"))
            case "unshare":
                return TakeRight(on=object_of(cube.id))
            case "promote":
                return Promote(ids=(cube.id,), to=Form(str(asked.to)))
            case "demote":
                return Demote(id=cube.id)
            case "freeze":
                return ChangeState(id=cube.id, to=State.FROZEN)
            case "thaw":
                return ChangeState(id=cube.id, to=State.ACTIVATED)
            case "rollback":
                return Rollback(id=cube.id, version=self._version(asked, cube))
            case _:
                return None

    def _version(self, asked: Asked, cube: MemCube) -> int:
        """Raises NotFound where there is no such version."""
        if isinstance(asked.to, int):
            return asked.to
        if asked.to in ("", "previous"):
            if cube.version < 2:
                raise NotFound(f"cube {cube.id} has one version, and none before it; there is nothing to go back to")
            return cube.version - 1
        day = datetime.combine(datetime.fromisoformat(asked.to).date(), time.max, timezone.utc)
        then = [version.version for when, version in self._vault.written(cube.id) if when <= day]
        if not then:
            raise NotFound(f"cube {cube.id} was not there on {asked.to}; look at `memos history {cube.id}`")
        return then[-1]

    def _ask_back(
        self, unclear: Unclear, asked: tuple[Asked, ...], meant: dict[int, str], at: int, where: Conversation
    ) -> Done:
        """Name what could be meant, and wait for the answer. Nothing is done."""
        intent = unclear.asked.doubted or unclear.asked.intent
        if not unclear.candidates:
            return Done(f"Nothing was done: {intent} needs one memory, and none fits.")
        shown, candidates = self._access.as_read(where.caller), unclear.candidates[:_NAMED]
        lines = [f"{n}. {cube.id} {shown(cube).text}" for n, cube in enumerate(candidates, start=1)]
        question = "\n".join([f"Nothing was done yet: {intent} needs one memory. Which of these?", *lines])
        until, ids = self._vault.now() + _WAITS, tuple(cube.id for cube in candidates)
        self.doubts.append(_Doubt(replace(where, turns=()), question, until, asked, meant, at, ids))
        return Done(question)

    # -- doing ---------------------------------------------------------------------------------------------

    def _do(self, caller: Caller, step: Step, log: _Log) -> None:
        cube = step.cube
        if step.asked.intent == "withhold":
            log.lines.append("Not kept, as you asked.")
        match step.operation:
            case Correct() | Add() as add:
                self._remember(caller, add, log)
            case Delete() if cube:
                roots = self._finding.roots(cube)
                log.forgotten += [id for root in roots for id in self._keeping.delete(caller, root.id)]
                log.lines.append(f"Forgotten: {cube.text}")
            case GiveRight() as give if cube:
                self._share(caller, step.asked, str(give.relation), cube, log)
            case TakeRight() if cube:
                self._unshare(caller, step.asked, cube, log)
            case Promote() as promote if cube:
                made = self._forming.promote(caller, [cube.id], promote.to)
                log.undo.append(("demote", (made.id,), {}))
                log.lines.append(f"Promoted to {promote.to} as {made.id}: {cube.text}")
            case Demote() if cube:
                self._demote(caller, cube, log)
            case ChangeState(to=to) if cube:
                freeze = to is State.FROZEN
                (self._life.freeze if freeze else self._life.thaw)(caller, cube.id)
                log.undo.append(("thaw" if freeze else "freeze", (cube.id,), {}))
                log.lines.append(f"{'Frozen' if freeze else 'Thawed'}: {cube.text}")
            case Rollback(version=version) if cube:
                new = self._life.rollback(caller, cube.id, version)
                log.undo.append(("rollback", (cube.id, cube.version), {}))
                log.lines.append(f"Back to version {version}: {new.text}")
            case _:
                pass

    def _remember(self, caller: Caller, add: Add, log: _Log) -> None:
        with self._vault.transaction():  # what others replace meanwhile is none of this
            before = self._vault.superseded.last()
            memories = self._knowledge.remember([add], caller.namespace)
            replaced = self._vault.superseded.after(before)
        self._freshness.changed(memories)
        log.remembered += memories
        log.undo += [("reinstate", (id,), {}) for id in replaced]  # undone when what replaced them is gone
        log.undo += [("delete", (c.id,), {}) for c in memories if self._is_new(c.id, log)]
        log.lines.append("Noted: " + " ".join(c.text for c in memories))

    def _share(self, caller: Caller, asked: Asked, relation: str, cube: MemCube, log: _Log) -> None:
        self._governing.grant(caller, cube.id, asked.with_, relation, until=_end_of(asked.until))
        log.undo.append(("revoke", (cube.id, asked.with_, relation), {}))
        log.lines.append(f"Shared with {asked.with_} as {relation}: {cube.text}")

    def _unshare(self, caller: Caller, asked: Asked, cube: MemCube, log: _Log) -> None:
        before = self._governing.grants(caller, cube.id)
        count = self._governing.revoke(caller, cube.id, asked.with_)
        left = set(self._governing.grants(caller, cube.id))
        for grant in before:
            if grant not in left:
                named = {"purpose": grant.purpose or None, "until": grant.until.isoformat() if grant.until else None}
                log.undo.append(("grant", (grant.on, name_of(grant.to), str(grant.relation)), named))
        log.lines.append(
            f"No longer shared with {asked.with_}: {cube.text}"
            if count
            else f"It was not shared with {asked.with_}: {cube.text}"
        )

    def _demote(self, caller: Caller, cube: MemCube, log: _Log) -> None:
        forms = [c for c in self._vault.derived(cube.id) if isinstance(c.payload, Blob) and c.state in ANSWERING]
        for derived in [cube] if cube.blob else forms:
            self._forming.demote(caller, derived.id)
            log.undo.append(("unarchive", (derived.id,), {}))
        log.lines.append(
            f"As text again: {cube.text}"
            if forms or cube.blob
            else f"Nothing was done: it is neither in a cache nor in an adapter, and stays as text: {cube.text}"
        )

    def _reverse(self, caller: Caller, calls: Sequence[Call]) -> list[str]:
        done = []
        for name, values, named in reversed(calls):
            if until := named.get("until"):
                named = named | {"until": datetime.fromisoformat(until)}
            self._invoke(caller, (name, values, named))
            done.append(f"{name} {values[0]}")
        return done

    def _is_new(self, id: str, log: _Log) -> bool:
        """True of a memory that the pipeline has made."""
        made, _, _ = self._vault.transitions(id)[0]
        return bool(made >= log.began)


def _is_final(step: Step) -> bool:
    return isinstance(step.operation, Delete)


def _picked(message: str, candidates: Sequence[str]) -> str | None:
    """The candidate that an answer names: its place, or its id."""
    for word in _ID.findall(message):
        if len(found := [id for id in candidates if id.startswith(word)]) == 1:
            return found[0]
    if not (match := _PICK.fullmatch(message)):
        return None
    place = int(match["n"]) - 1 if match["n"] else _PLACES[match["nth"].lower()]
    return candidates[place] if place < len(candidates) else None


def _end_of(day: str) -> datetime | None:
    return datetime.combine(datetime.fromisoformat(day).date(), time.max, timezone.utc) if day else None
