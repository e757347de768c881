"""The calls that keep, read, change and delete single memories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memos.cube import MemCube, Namespace, Probe, Text, in_zone
from memos.errors import InputError
from memos.kernel.access import Service, unique
from memos.operation.life.knowledge import text_of
from memos.operation.life.time_machine import history
from memos.ops import Add, Correct, Delete, Get, History, Update
from memos.rights import Caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from memos.kernel.unread import Unread
    from memos.kernel.wiring import Parts

MAX_TAG = 200  # characters


class Keeping(Service):
    """add, keep, get, update, delete, delete_all, history."""

    def __init__(self, parts: Parts, unread: Unread) -> None:
        super().__init__(parts)
        self._unread = unread

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

        What a memory in force says already is not kept twice: it is counted there, and of two times to expire the
        later one holds. Turns in which the rules find nothing are read by the model later, if `reader.model` is set.
        tags: see `tag`. ttl, expires: how long, or until when (UTC where no zone is given) it answers, in any form.
        metadata: JSON that is kept with each memory and not read. infer: False keeps each turn as it is. Raises
        InputError, NoRoom.
        """
        until = _until(ttl, in_zone(expires), self._vault.now())
        if infer and not isinstance(content, str):
            ops, left = self._reader.read_content(content)
        elif isinstance(content, str):
            ops, left = [self._reader.statement(content).model_copy(update={"probes": tuple(probes)})], []
        elif isinstance(content, Path):
            raise InputError(f"{content} is a file, and infer=False keeps the turns of a conversation; leave infer out")
        else:
            ops, left = self._reader.verbatim(content), []
        given = {"expires": until, "tags": checked_tags(tags), "metadata": _as_json(metadata)}
        memories = unique(self.remember(caller, [op.model_copy(update=given) for op in ops]))
        if left and self._config.reader.model:
            self._unread.keep(left, str(content) if isinstance(content, Path) else "turns", caller, **given)
            self._unread.begin(caller)
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

    def remember(self, caller: Caller, ops: Sequence[Add | Correct], fold: bool = True) -> list[MemCube]:
        """Carry out what the reader has made of statements."""
        if not ops:
            return []
        self._governance.permit(caller, ops[0])
        memories = self._knowledge.remember(ops, caller.namespace, fold)
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
        payload, segment, probes = None, None, text_of(cube).probes
        if text is not None:
            statement = self._reader.statement(text, speaker=cube.header.speaker)
            payload = Text(text=statement.text, facts=statement.facts, more=statement.more, probes=probes)
            segment = statement.segment
        with self._vault.transaction():
            now = _as_json(_merged(self._vault.get(cube.id).header.metadata, metadata or {}))
            new = self._lifecycle.edit(cube.id, payload, segment, metadata=now)
            if payload:
                self._knowledge.examine(new)
        return self._freshness.changed(self._vault.get(new.id))

    def delete(self, caller: Caller, id: str) -> list[str]:
        """Remove a cube with every form made from it; returns the ids that are gone."""
        return self._delete(caller, [self._access.cube(caller, Delete(id=id), id).id])

    def delete_all(self, caller: Caller) -> list[str]:
        """Remove the user's own memories, in every state, with every form made from them; returns the ids that are
        gone. None of them goes where one is locked. Raises Held, BadTransition.

        A caller who stands for a part of a user, as an agent, removes that part.
        """
        seen = self._governance.readable(caller, self._vault.cubes())
        own = [cube for cube in seen if cube.rights.owner == caller.user_id and caller.covers(cube.namespace)]
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
        return json.dumps(metadata, ensure_ascii=False, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"metadata {str(metadata)[:80]!r} is no JSON ({error}); give texts, numbers and lists"
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
