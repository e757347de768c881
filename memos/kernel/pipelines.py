"""Carries out what a message asks of the memory: looked up, authorised as a whole, done, and undone.

Knows what was asked, and the kernel's calls; knows no language and no stores. Which memory is meant is never guessed:
where several could be, they are named with their ids, and the next message of that conversation, to this process, may
say which. All that is done can be undone, in any process; but a deletion, which comes when all else has been done,
leaves nothing in the vault: this process alone brings it back, as the next message of that conversation.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta, timezone
from typing import TYPE_CHECKING
from uuid import uuid4

from memos.cube import ANSWERING, USER, Blob, Form, MemCube, State
from memos.errors import NotFound
from memos.interface.reading.phrasebook import Say
from memos.interface.reading.requests import corrections, picks
from memos.kernel.access import Service, unique
from memos.kernel.quoting import noted
from memos.kernel.services.finding import bare
from memos.operation.life.knowledge import said_words
from memos.ops import (
    Add,
    Asked,
    Call,
    ChangeState,
    Correct,
    Delete,
    Demote,
    Episode,
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

_KEPT, _NAMED = 1000, 5  # open questions; candidates that one names
_WAITS = timedelta(minutes=10)  # for an answer that does not come with the question
Meant = dict[int, tuple[str, ...]]  # by the place of a step: the ids of its memories
_HOW_BACK = "Not what you meant? “undo that”, as your next message, brings it back."
_ALL_OF_USER = (
    "Nothing was deleted: that is all that is remembered of you, which delete_all, or `memos forget` on the command "
    "line, removes for good. Or which memory is meant?"
)


@dataclass(frozen=True)
class Step:
    """One thing that was asked for, with the memory that it is done to, and the operation that it takes."""

    asked: Asked
    cube: MemCube | None = None
    operation: Operation | None = None
    is_told: bool = True  # which memory, by its id or a fact; else it was found by its words


@dataclass(frozen=True)
class Done:
    """What became of a pipeline. id: to undo it by; empty where nothing was changed."""

    text: str
    id: str = ""
    remembered: tuple[MemCube, ...] = ()
    forgotten: tuple[str, ...] = ()


@dataclass(frozen=True)
class Conversation:
    """Where a message is said: the session's name, or the turns before it, or neither. say: replies in its language."""

    caller: Caller
    session: str | None = None
    turns: Sequence[Mapping[str, str]] = ()
    say: Say = str.format


@dataclass
class _Said:
    """A reply of a pipeline, and until when the next message may be about it."""

    where: Conversation
    text: str
    until: datetime

    def is_last(self, where: Conversation, now: datetime, turns: int = 1) -> bool:
        """True if this was said just before, within so many turns: a number in another conversation is no answer."""
        if (self.where.caller, self.where.session) != (where.caller, where.session):
            return False
        said = "\0".join(str(turn.get("content", "")) for turn in where.turns[-turns:])
        return self.text in said if where.turns else now < self.until


@dataclass
class _Doubt(_Said):
    """A pipeline that waits for an answer: which of these is meant by its first step that does not know."""

    asked: tuple[Asked, ...]
    meant: Meant
    at: int
    candidates: tuple[str, ...]


@dataclass
class _Undoable(_Said):
    """A pipeline that "undo that" takes back. gone: what it has deleted."""

    id: str
    gone: tuple[Episode | Add, ...]


@dataclass
class _Log:
    """What a pipeline has done since a time, and the calls that undo it, in their order."""

    began: datetime
    say: Say
    lines: list[str] = field(default_factory=list)
    undo: list[Call] = field(default_factory=list)
    remembered: list[MemCube] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    gone: list[Episode | Add] = field(default_factory=list)

    def tell(self, english: str, **values: object) -> None:
        self.lines.append(self.say(english, **values))


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

    def answered(self, message: str, where: Conversation) -> tuple[tuple[Asked, ...], Meant] | None:
        """The pipeline whose question a message answers, with what is meant; None where it answers none."""
        now = self._vault.now()
        doubt = next((doubt for doubt in reversed(list(self.doubts)) if doubt.is_last(where, now)), None)
        if doubt is None:
            return None
        picked = picks.read(message, doubt.candidates)
        if not picked:
            doubt.until = now  # something else was said
            return None
        with suppress(ValueError):  # a question is answered once
            self.doubts.remove(doubt)
            return doubt.asked, {**doubt.meant, doubt.at: picked}
        return None

    def run(self, asked: Sequence[Asked], where: Conversation, meant: Meant) -> Done:
        """Look up, authorise and do. With nothing done, raises Denied, and BadTransition for what cannot be deleted."""
        caller = where.caller
        if undone := self._taken_back(asked, where):
            return undone
        if said := self._said_last(asked, where):
            asked, meant = [Asked(intent="forget")], {0: said}
        whats = [one.what for one in asked if one.what and "forget" in (one.intent, one.doubted)]
        if any(self._reader.forget(what).naming == USER for what in whats):
            return Done(where.say(_ALL_OF_USER))
        steps: list[Step] = []
        for n, one in enumerate(asked):
            try:
                steps += self._steps(one, caller, meant.get(n, ()))
            except Unclear as unclear:
                return self._ask_back(unclear, tuple(asked), meant, n, where)
        for step in steps:
            if step.operation:
                self._governance.permit(caller, step.operation, step.cube)
        gone = (step.cube for step in steps if step.cube and _is_final(step))
        final = (root.id for cube in gone for root in self._finding.roots(cube))
        self._lifecycle.require_deletable(*final)
        log = _Log(self._vault.now(), where.say)
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
        if id or log.gone:
            until = self._vault.now() + _WAITS
            self._done.append(_Undoable(replace(where, turns=()), "\n".join(log.lines), until, id, tuple(log.gone)))
        hint = [] if all(step.is_told for step in steps if _is_final(step)) else [where.say(_HOW_BACK)]
        return Done("\n".join([*log.lines, *hint]), id, tuple(log.remembered), tuple(log.forgotten))

    def undo(self, caller: Caller, pipeline: str) -> list[str]:
        """Take back what `Reply.pipeline` did, save deletions, last first; what that was. Raises NotFound, Denied."""
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
        """What was done just before, undone, where that is all that is asked: "delete that" brings nothing back."""
        which = [one.last for one in asked]
        within = 12 if which == ["done"] else 1  # questions may have been asked since
        there = [done for done in reversed(list(self._done)) if done.is_last(where, self._vault.now(), within)]
        asked_back = there and not (there[0].id or there[0].gone)  # after that nothing told goes
        last = next((done for done in there if done.gone or (done.id and not asked_back)), None)
        if asked_back and last is None and which == ["done"]:
            self._done.remove(there[0])
            return Done(where.say("Nothing was done, so there is nothing to undo."))
        if last is None or which not in (["done"], ["said"]) or (which == ["said"] and last.gone):
            return None
        self._done.remove(last)
        if last.id:
            self.undo(where.caller, last.id)
        back = self._keeping.record(where.caller, last.gone, reads_later=True)
        return Done(where.say("Undone: {text}", text=last.text), remembered=tuple(back))

    def _said_last(self, asked: Sequence[Asked], where: Conversation) -> tuple[str, ...]:
        """The memory of what the user has said just before, where that is to go."""
        said = next((str(turn.get("content", "")) for turn in reversed(where.turns) if turn.get("role") == "user"), "")
        if [one.last for one in asked] != ["said"] or not said:
            return ()
        return tuple(cube.id for cube in self._finding.saying(said, where.caller))[-1:]

    def _taken(self, id: str, caller: Caller) -> Call | None:
        with self._vault.transaction():
            return self._vault.pipelines.take(id, caller.user_id)

    # -- looking up ----------------------------------------------------------------------------------------

    def _steps(self, asked: Asked, caller: Caller, meant: Sequence[str]) -> list[Step]:
        if asked.intent in ("remember", "correct"):
            asked = self._in_place(asked, caller)
            wrong = self._finding.saying(str(asked.to), caller) if asked.intent == "correct" else []
            return [Step(asked, wrong[-1] if wrong else None, self._reader.to_statement(asked))]
        if asked.intent in ("recall", "about", "talk"):
            return [Step(asked)]
        if asked.intent == "withhold":  # nor what was kept of it before
            return [Step(asked), *(Step(asked, c, Delete(id=c.id)) for c in self._finding.saying(asked.what, caller))]
        if asked.intent == "ask_back":
            if not (meant or (asked.doubted == "forget" and asked.what)):
                raise Unclear(asked, [cube for some in self._candidates(asked.what, caller) for cube in some])
            asked = asked.model_copy(update={"intent": asked.doubted, "doubted": ""})
        cubes = [self._access.cube(caller, Get(id=id), id) for id in meant] or self._meant(asked, caller)
        told = bool(meant or self._reader.forget(asked.what).facts)
        return [Step(asked, cube, self._operation(asked, cube), told) for cube in cubes]

    def _in_place(self, asked: Asked, caller: Caller) -> Asked:
        """A correction of what it names, in the one memory where what is right has its place; else as it is."""
        names = corrections.change_named(asked.what) if asked.intent == "correct" and not asked.to else {}
        found = self._candidates(names["of"], caller, True)[0] if names else []
        own = (root for cube in found for root in self._finding.roots(cube) if root.rights.owner == caller.user_id)
        roots = {bare(said_words(root)): root for root in own}
        what, told = corrections.in_place(names, list(roots), self._today())
        when = asked.when or (corrections.day_of(what, told, roots[told].text, self._today()) if what else "")
        return asked.model_copy(update={"what": what, "to": told, "when": when}) if what else asked

    def _meant(self, asked: Asked, caller: Caller) -> list[MemCube]:
        """The memory that is described; to be forgotten, all that name what is named. Raises Unclear."""
        found, near = self._candidates(asked.what, caller, asked.intent == "forget")
        if len(found) == 1 or (found and asked.intent == "forget" and self._reader.forget(asked.what).naming):
            return found
        raise Unclear(asked, found or near)

    def _candidates(self, what: str, caller: Caller, is_final: bool = False) -> tuple[list[MemCube], list[MemCube]]:
        """(what a description means, what is near it), the likeliest first; without one the latest memories."""
        if not what:
            return [], list(reversed(self._access.texts(caller)))[:_NAMED]
        for id in picks.ID.findall(what):
            if len(found := self._vault.named(id)) == 1 and self._governance.visible(caller, found):
                return list(found), []
        return self._finding.described(caller, self._reader.forget(what), is_final)

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
            case "freeze" | "thaw":
                return ChangeState(id=cube.id, to=State.FROZEN if asked.intent == "freeze" else State.ACTIVATED)
            case "rollback":
                return Rollback(id=cube.id, version=self._life.version_meant(asked.to, cube))
            case _:
                return None

    def _ask_back(self, unclear: Unclear, asked: tuple[Asked, ...], meant: Meant, at: int, where: Conversation) -> Done:
        """Name what could be meant, and wait for the answer. Nothing is done."""
        intent = where.say(unclear.asked.doubted or unclear.asked.intent)
        if not unclear.candidates:
            none = "Nothing was done: it is not clear which memory to {intent}, and none fits."
            return Done(where.say(none, intent=intent))
        there = {cube.id for cube in unclear.candidates}  # of a message and what was read in it one
        each = [c for c in unclear.candidates if there.isdisjoint(one.id for one in self._finding.told(c)[:-1])]
        shown, candidates = self._access.as_read(where.caller), tuple(each[:_NAMED])
        lines = [f"{n}. {c.id} {where.say('{text}', text=shown(c).text)}" for n, c in enumerate(candidates, start=1)]
        nothing = "Nothing was deleted" if unclear.asked.intent == "forget" else "Nothing was done"
        unsure = where.say(f"{nothing} yet: it is not clear which memory to {{intent}}. ", intent=intent)
        which = where.say("Which of these, or all of them?" if candidates[1:] else "Is it this one?")
        question = "\n".join([unsure + which, *lines])
        until, ids = self._vault.now() + _WAITS, tuple(cube.id for cube in candidates)
        self.doubts.append(_Doubt(replace(where, turns=()), question, until, asked, meant, at, ids))
        self._done.append(_Undoable(replace(where, turns=()), question, until, "", ()))
        return Done(question)

    # -- doing ---------------------------------------------------------------------------------------------

    def _do(self, caller: Caller, step: Step, log: _Log) -> None:
        cube = step.cube
        if step.asked.intent == "withhold" and not cube:
            log.tell("Not kept, as you asked.")
        match step.operation:
            case Correct() | Add() as add:
                self._remember(caller, add, log, cube)
            case Delete() if cube:
                roots = unique(root for one in self._finding.told(cube) for root in self._finding.roots(one))
                left = self._finding.left(roots[0], step.asked.what) if cube.rights.owner == caller.user_id else None
                for root in (root for root in roots if root.id not in log.forgotten):
                    log.gone.append(self._keeping.retold(root))
                    log.forgotten += self._keeping.delete(caller, root.id)
                log.tell("Forgotten: {text}", text=cube.text)
                if left:
                    self._remember(caller, left, log, None)
            case GiveRight() as give if cube:
                self._share(caller, step.asked, str(give.relation), cube, log)
            case TakeRight() if cube:
                self._unshare(caller, step.asked, cube, log)
            case Promote() as promote if cube:
                made = self._forming.promote(caller, [cube.id], promote.to)
                log.undo.append(("demote", (made.id,), {}))
                log.tell("Promoted to {to} as {id}: {text}", to=promote.to, id=made.id, text=cube.text)
            case Demote() if cube:
                self._demote(caller, cube, log)
            case ChangeState(to=to) if cube:
                freeze = to is State.FROZEN
                (self._life.freeze if freeze else self._life.thaw)(caller, cube.id)
                log.undo.append(("thaw" if freeze else "freeze", (cube.id,), {}))
                log.tell("Frozen: {text}" if freeze else "Thawed: {text}", text=cube.text)
            case Rollback(version=version) if cube:
                new = self._life.rollback(caller, cube.id, version)
                log.undo.append(("rollback", (cube.id, cube.version), {}))
                log.tell("Back to version {version}: {text}", version=version, text=new.text)
            case _:
                pass

    def _remember(self, caller: Caller, add: Add, log: _Log, wrong: MemCube | None) -> None:
        """wrong: what it puts right."""
        memories = self._knowledge.remember([add], caller.namespace)
        told = self._finding.told(wrong) if wrong else []
        for cube in [*told, *self._vault.derived(*(cube.id for cube in told))]:
            if self._vault.get(cube.id).state in ANSWERING and cube.id not in {new.id for new in memories}:
                self._lifecycle.supersede(cube.id, memories[-1].id)
        self._freshness.changed(memories)
        log.remembered += memories
        new = [cube for cube in memories if self._vault.transitions(cube.id)[0][0] >= log.began]
        # undone when what replaced them is gone
        log.undo += [("reinstate", (id,), {}) for id in self._vault.superseded.replaced(cube.id for cube in new)]
        log.undo += [("delete", (cube.id,), {}) for cube in new]
        if new and not add.facts:
            self._keeping.read_later(new)
        log.lines.append(noted(log.say, memories))

    def _share(self, caller: Caller, asked: Asked, relation: str, cube: MemCube, log: _Log) -> None:
        day = datetime.fromisoformat(asked.until).date() if asked.until else None
        until = datetime.combine(day, time.max, timezone.utc) if day else None
        self._governing.grant(caller, cube.id, asked.with_, relation, until=until)
        log.undo.append(("revoke", (cube.id, asked.with_, relation), {}))
        log.tell("Shared with {name} as {relation}: {text}", name=asked.with_, relation=relation, text=cube.text)

    def _unshare(self, caller: Caller, asked: Asked, cube: MemCube, log: _Log) -> None:
        before = self._governing.grants(caller, cube.id)
        count = self._governing.revoke(caller, cube.id, asked.with_)
        left = set(self._governing.grants(caller, cube.id))
        for grant in before:
            if grant not in left:
                named = {"purpose": grant.purpose or None, "until": grant.until.isoformat() if grant.until else None}
                log.undo.append(("grant", (grant.on, name_of(grant.to), str(grant.relation)), named))
        said = "No longer shared with {name}: {text}" if count else "It was not shared with {name}: {text}"
        log.tell(said, name=asked.with_, text=cube.text)

    def _demote(self, caller: Caller, cube: MemCube, log: _Log) -> None:
        forms = [c for c in self._vault.derived(cube.id) if isinstance(c.payload, Blob) and c.state in ANSWERING]
        for derived in [cube] if cube.blob else forms:
            self._forming.demote(caller, derived.id)
            log.undo.append(("unarchive", (derived.id,), {}))
        stays = "Nothing was done: it is neither in a cache nor in an adapter, and stays as text: {text}"
        log.tell("As text again: {text}" if forms or cube.blob else stays, text=cube.text)

    def _reverse(self, caller: Caller, calls: Sequence[Call]) -> list[str]:
        done = []
        for name, values, named in reversed(calls):
            if until := named.get("until"):
                named = named | {"until": datetime.fromisoformat(until)}
            self._invoke(caller, (name, values, named))
            done.append(f"{name} {values[0]}")
        return done


def _is_final(step: Step) -> bool:
    return isinstance(step.operation, Delete)
