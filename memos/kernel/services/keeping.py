"""The calls that keep, read, change and delete single memories."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic_core

from memos.cube import ANSWERING, EPISODE, PASSAGE, SUMMARY, TOLD, USER, MemCube, Namespace, State, Text, Trust, in_zone
from memos.errors import InputError
from memos.kernel.access import Service, unique
from memos.operation.life.knowledge import text_of
from memos.operation.life.time_machine import history
from memos.ops import Add, Correct, Delete, Episode, Get, History, Update
from memos.rights import Caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from memos.cube import Probe
    from memos.kernel.access import CuratingOf
    from memos.kernel.unread import Unread
    from memos.kernel.wiring import Parts

MAX_TAG = 200  # characters
JUST_NOW = timedelta(minutes=10)  # in which "don't save that" is said of what was said before
FEW, SOON_S = 8, 2.0  # turns that are read before what was said last is acknowledged, and the longest wait for that


class Keeping(Service):
    """add, keep, get, update, delete, delete_all, history."""

    def __init__(self, parts: Parts, unread: Unread, curating: CuratingOf) -> None:
        super().__init__(parts)
        self._unread, self._curating = unread, curating

    def add(
        self,
        caller: Caller,
        content: str | Path | Iterable[dict[str, Any]],
        *,
        probes: Sequence[Probe] = (),
        tags: Sequence[str] = (),
        ttl: timedelta | None = None,
        expires: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        infer: bool = True,
    ) -> list[MemCube]:
        """Remember one statement (str), a file (Path), or the turns of a conversation; durable when it returns.

        Every turn is kept word for word, of whichever side, and beside it the statements that are read in it; a
        conversation that is given again adds nothing. What a memory in force says already is not kept twice: it is
        counted there, and of two times to expire the later one holds. Turns are read again later, in the background: by
        a tagger, or, if `reader.model` is set, by the model those in which the rules find nothing. tags: see `tag`.
        ttl, expires: how long, or until when (UTC where no zone is given) it answers, in any form. metadata: JSON that
        is kept with each memory and not read. infer: False reads no statements. Raises InputError, NoRoom.
        """
        curating = self._curating(self._schedulers.policy_of(caller))
        infer = infer and not curating  # what is derived of turns is up to a policy that writes
        until = _until(ttl, in_zone(expires), began := self._vault.now())
        ops: list[Episode | Add]
        left: list[Episode] = []
        if isinstance(content, str):
            statement = self._reader.statement(content).model_copy(update={"probes": tuple(probes)})
            ops = [] if self._reader.withholds(content) else [statement]
        else:
            content = content if isinstance(content, Path) else list(content)
            ops, left = self._reader.read_content(content, infer)
        if not isinstance(content, Path) and (speaker := self._reader.taken_back(content)):
            self._unsay(caller, speaker)
        given = {"expires": until, "tags": checked_tags(tags), "metadata": _as_json(metadata)}
        reads_later = infer and not self._config.reader.model and any(map(_is_without_facts, ops))
        memories = unique(self.record(caller, [_given(op, given, caller) for op in ops], reads_later))
        if left and self._config.reader.model:
            masked = (self._vault.guard.as_told(said.turn) for said in left)
            new = {(c.header.speaker, c.words, c.header.said): c for c in memories if c.header.created >= began}
            waiting = [new[key] for op in masked if (key := (op.speaker, op.verbatim, op.said)) in new]
            self._unread.keep(waiting, caller)
            self._unread.begin(caller)
        if curating:
            curating.told(caller)
        return memories

    def keep(self, caller: Caller, ops: Sequence[Add | Correct], *, fold: bool = False) -> list[MemCube]:
        """Remember statements as they are, unread by the reader; a cube for each, in their order, once durable.

        A statement that is there already, of the same speaker, time and thread, is not kept twice: its cube is. fold:
        nor is what a memory in force says in other words or at another time: it is counted there.
        """
        return self.remember(caller, ops, fold)

    def known_origins(self, caller: Caller) -> set[str]:
        """Where the caller's own memories, of every state, come from, and where they were told again."""
        self._governance.permit(caller, Get(id="origins"))
        return self._vault.usage.known_origins(caller.namespace)

    def record(self, caller: Caller, ops: Sequence[Episode | Add], reads_later: bool) -> list[MemCube]:
        """Keep turns with what was read in them, and statements that nobody has said; all or nothing. reads_later: the
        tagger is to read the turns that are new."""
        if not ops:
            return []
        self._governance.permit(caller, ops[0])
        memories, began = list[MemCube](), self._vault.now()
        with self._vault.transaction():
            for is_said, some in groupby(ops, key=lambda op: isinstance(op, Episode)):
                keep = self._knowledge.record if is_said else self._knowledge.remember
                memories += keep(list(some), caller.namespace)  # type: ignore[arg-type]  # as groupby told them apart
            new = [cube.id for cube in memories if cube.header.created >= began]
            if reads_later and new:
                self._unread.read_from(min(new))
        return self._told(memories)

    def read_later(self, memories: Iterable[MemCube]) -> None:
        """Have the tagger read what has been said, in which the rules read no fact: at once, where little waits."""
        self._unread.read_from(min(cube.id for cube in memories))
        self._unread.finish_few(FEW, SOON_S)

    def remember(self, caller: Caller, ops: Sequence[Add | Correct], fold: bool = True) -> list[MemCube]:
        """Carry out what the reader has made of statements."""
        if not ops:
            return []
        self._governance.permit(caller, ops[0])
        return self._told(self._knowledge.remember(ops, caller.namespace, fold))

    def _told(self, memories: list[MemCube]) -> list[MemCube]:
        """What was kept, once it is on its way to be found."""
        self._freshness.release()
        self._operator().refresh_soon()
        return memories

    def get(self, caller: Caller, id: str) -> MemCube:
        """Raises NotFound."""
        return self._access.cube(caller, Get(id=id), id)

    def update(
        self, caller: Caller, id: str, text: str | None = None, *, metadata: Mapping[str, Any] | None = None
    ) -> MemCube:
        """A new version of a plaintext cube; what was derived from it is stale at once.

        metadata: set beside what is there; a name with the value None is taken out. Raises InputError where neither
        changes, BadTransition.
        """
        if text is None and metadata is None:
            raise InputError(f"update changes nothing of cube {id}; give a text, metadata, or both")
        cube = self._access.cube(caller, Update(id=id, text=text), id)
        payload, segment, before = None, None, text_of(cube)
        if cube.header.kind == PASSAGE:
            raise InputError(f"cube {cube.id} is a part of a longer turn; update that, {cube.sources[0].id}")
        if text is not None and cube.header.kind == SUMMARY:
            raise InputError(f"cube {cube.id} quotes turns of a conversation; update these, and it is made again")
        if text is not None and cube.header.kind == EPISODE:
            return self._said_otherwise(cube, text, metadata)
        if text is not None:
            statement = self._reader.statement(text, speaker=cube.header.speaker)
            told = {"text": statement.text, "verbatim": "", "facts": statement.facts, "more": statement.more}
            payload = before.model_copy(update=told)  # with the file that it tells of
            segment = statement.segment
        with self._vault.transaction():
            now = _as_json(_merged(self._vault.get(cube.id).header.metadata, metadata or {}))
            new = self._lifecycle.edit(cube.id, payload, segment, metadata=now)
            if payload:
                self._knowledge.examine(new)
                for turn in self._vault.at(source.id for source in cube.sources):
                    if turn.header.kind == EPISODE and turn.state in ANSWERING:  # it says what was wrong
                        self._vault.set_state(turn.id, State.MERGED, f"{cube.id}, which was read in it, was corrected")
        return self._freshness.changed(self._vault.get(new.id))

    def delete(self, caller: Caller, id: str) -> list[str]:
        """Remove a cube with every form made from it; returns the ids that are gone.

        Of the turn that it was read in, or is a part of, its words go as well: what else was said there stays, as a
        turn of its own.
        """
        cube = self._access.cube(caller, Delete(id=id), id)
        turns = [turn for turn in self._vault.at(s.id for s in cube.sources) if turn.header.kind == EPISODE]
        if not turns or cube.blob or cube.header.kind == SUMMARY:
            return self._delete(caller, [cube.id])
        for turn in turns:
            self._governance.permit(caller, Delete(id=turn.id), turn)
        with self._vault.transaction():
            derived = self._vault.derived(*(turn.id for turn in turns))
            read = [c for c in derived if c.text and not text_of(c).verbatim and c.header.kind != SUMMARY]
            others = [_as_told(c) for c in read if c.id != cube.id]
            gone = self._delete(caller, [turn.id for turn in turns])
            self._knowledge.remember(others, cube.namespace)  # what a model has read in it, too
            for turn in turns:
                words = text_of(cube).verbatim or turn.words  # a model has read the whole of it
                if rest := turn.words.replace(words, "", 1).strip():
                    self._knowledge.record([self._read_again(turn, rest)], turn.namespace)
        self._operator().refresh_soon()
        return gone

    def _unsay(self, caller: Caller, speaker: str) -> None:
        """Remove what somebody said last, if that was just now."""
        since = self._vault.now() - JUST_NOW
        said = [c for c in self._access.texts(caller) if caller.covers(c.namespace) and c.header.created > since]
        for cube in [c for c in said if (c.header.speaker or USER) == speaker][-1:]:
            for id in [source.id for source in cube.sources] or [cube.id]:
                self.delete(caller, id)

    def retold(self, cube: MemCube) -> Episode | Add:
        """What brings a memory back that is deleted now: the turn that it is the whole of, or what it says."""
        words = text_of(cube).verbatim
        turns = [c for c in (cube, *self._vault.at(s.id for s in cube.sources)) if c.header.kind == EPISODE]
        whole = next((turn for turn in turns if not turn.words.replace(words, "", 1).strip(" .!?")), None)
        return self._read_again(whole, whole.words) if whole else _as_told(cube)

    def _said_otherwise(self, cube: MemCube, words: str, metadata: Mapping[str, Any] | None) -> MemCube:
        """A turn with other words, and what is read in these."""
        episode = self._read_again(cube, words)
        turn = episode.turn.model_copy(update={"kind": EPISODE})
        with self._vault.transaction():
            made = [c.id for c in self._vault.derived(cube.id) if not c.blob]
            self._freshness.changed(self._lifecycle.delete(*made))
            now = _as_json(_merged(cube.header.metadata, metadata or {}))
            payload = Text(text=turn.text, verbatim=turn.verbatim)
            new = self._lifecycle.edit(cube.id, payload, metadata=now)
            self._knowledge.examine(new)
            self._knowledge.derive(episode, new)
        return self._freshness.changed(self._vault.get(new.id))

    def _read_again(self, turn: MemCube, words: str) -> Episode:
        header = turn.header
        names = ("expires", "tags", "metadata", "thread", "message_id", "segment", "origin")
        known = {name: getattr(header, name) for name in names}
        episode = self._reader.read_turn(header.speaker, words, header.said, header.role)
        return episode.each(
            lambda op: op.model_copy(
                update=known if op.kind in (EPISODE, PASSAGE) else {**known, "thread": op.thread, "segment": op.segment}
            )
        )

    def delete_all(self, caller: Caller) -> list[str]:
        """Remove the user's own memories, in every state, with every form made from them; returns the ids that are
        gone. None of them goes where one is locked. Raises Held, BadTransition.

        A caller who stands for a part of a user, as an agent, removes that part.
        """
        own = [
            cube
            for cube in self._access.cubes(caller)
            if cube.rights.owner == caller.user_id and caller.covers(cube.namespace)
        ]
        for cube in own:
            self._governance.permit(caller, Delete(id=cube.id), cube)
        return self._delete(caller, [cube.id for cube in own])

    def _delete(self, caller: Caller, ids: Sequence[str]) -> list[str]:
        # what others have made of it goes too, and the caller does not learn of that
        known = {*ids} | self._governance.visible_ids(caller, self._vault.derived(*ids))
        return [id for id in self._freshness.changed(self._lifecycle.delete(*ids)) if id in known]

    def reset(self) -> list[str]:
        """Remove every memory of every user, in every form, for whoever runs the kernel; returns the ids that are gone.
        None of them goes where one is locked; keys, grants and the log stay. Raises Held, BadTransition."""
        for user in [Namespace(user_id=name) for name in self._vault.users()]:
            self._governance.permit(Caller(user), Delete(id="all"), over=user)
        return self._freshness.changed(self._lifecycle.delete(*(cube.id for cube in self._vault.cubes())))

    def history(self, caller: Caller, id: str, *, diffs: bool = False) -> list[dict[str, Any]]:
        """Versions and moves of a cube in time order; with diffs, how each version differs from the one before. The
        reasons of moves, which may name other memories, are told to its owner alone."""
        cube = self._access.cube(caller, History(id=id), id)
        events = history(self._vault, cube.id, diffs, self._access.as_read(caller))
        if not self._governance.may(caller, "manage", cube):
            events = [event | ({"why": ""} if "why" in event else {}) for event in events]
        return events if cube.rights.owner == caller.user_id else [self._vault.guard.shown(event) for event in events]


def _is_without_facts(op: Episode | Add) -> bool:
    """True for what a person has said in which the rules read no fact."""
    said = (op.turn, *op.statements) if isinstance(op, Episode) else (op,) if op.origin in TOLD else ()
    return bool(said) and said[0].trust is not Trust.MODEL and not any(one.facts for one in said)


def _as_told(cube: MemCube) -> Add:
    """What a memory says, to be remembered as one of its own."""
    header, payload = cube.header, text_of(cube)
    names = ("speaker", "said", "expires", "origin", "trust", "segment", "kind", "tags", "metadata")
    known = {name: getattr(header, name) for name in names}
    return Add(text=payload.text, facts=payload.facts, more=payload.more, **known)


def _given(op: Episode | Add, given: Mapping[str, Any], caller: Caller) -> Episode | Add:
    """With what is known of all; a turn also with its conversation: the session, else the day."""
    if not isinstance(op, Episode):
        return op.model_copy(update=given)
    said = op.turn.said
    thread = caller.session_id or (f"{said:%Y-%m-%d}" if said else "conversation")

    def placed(part: Add) -> Add:
        spoken = {"thread": thread, "segment": thread} if part.kind in (EPISODE, PASSAGE) else {}
        return part.model_copy(update={**given, **spoken})

    return op.each(placed)


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Raises InputError."""
    if isinstance(tags, str) or any(not tag.strip() or "\n" in tag or len(tag) > MAX_TAG for tag in tags):
        raise InputError(f"tags {tags!r}: give a list of words, none empty or longer than {MAX_TAG} characters")
    return tuple(dict.fromkeys(tag.strip() for tag in tags))


def _merged(metadata: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata with more of it."""
    every = {**(json.loads(metadata) if metadata else {}), **more}
    return {name: value for name, value in every.items() if name not in more or value is not None}


def _as_json(metadata: Mapping[str, Any] | None) -> str:
    """Raises InputError."""
    if not metadata:
        return ""
    try:
        text = json.dumps(metadata, ensure_ascii=False, allow_nan=False, sort_keys=True)
        pydantic_core.from_json(text.encode())  # whoever reads it has a limit of digits and levels
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"metadata of {list(metadata)!r:.80} is no JSON ({error}); give texts, numbers and lists"
        ) from None


def _until(ttl: timedelta | None, expires: datetime | None, now: datetime) -> datetime | None:
    """When a memory expires. Raises InputError for a time that is past, or given twice."""
    if ttl is not None and expires is not None:
        raise InputError("ttl and expires both say how long a memory is in force; give one of them")
    try:
        until = expires if ttl is None else now + ttl
    except OverflowError:
        raise InputError(f"ttl {ttl} goes beyond the year 9999; leave it out for a memory without end") from None
    if until is not None and until <= now:
        given = f"expires {expires}" if ttl is None else f"ttl {ttl}"
        raise InputError(f"{given} has passed at {now:%Y-%m-%d %H:%M:%S} UTC; give a later time, or leave it out")
    return until
