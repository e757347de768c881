"""Public calls that keep, read, change and delete single memories."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from memos.cube import MemCube, Namespace, Probe, Text, in_zone
from memos.errors import InputError
from memos.kernel.unread import Unread
from memos.kernel.wiring import Parts, _tags, each_once
from memos.once import once
from memos.operation.life.agreement import text_of
from memos.ops import Add, Correct, Delete, Get, History, Update


class Keeping(Parts):
    """add, keep, get, update, delete, delete_all, reset, history."""

    @once
    def unread(self) -> Unread:
        parts = (self.vault, self.governance, self.lifecycle, self.knowledge, self.reader)
        return Unread(self.config.reader, *parts, lambda: self.host, self._changed)

    def add(
        self,
        content: str | Path | Iterable[dict[str, Any]],
        *,
        user: str | None = None,
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
        until, caller = _until(ttl, in_zone(expires), self.vault.now()), self._caller(user)
        if infer and not isinstance(content, str):
            ops, left = self.reader.heard(content)
        elif isinstance(content, str):
            ops, left = [self.reader.statement(content).model_copy(update={"probes": tuple(probes)})], []
        elif isinstance(content, Path):
            raise InputError(f"{content} is a file, and infer=False keeps the turns of a conversation; leave infer out")
        else:
            ops, left = self.reader.verbatim(content), []
        given = {"expires": until, "tags": _tags(tags), "metadata": _as_json(metadata)}
        kept = each_once(self._remember([op.model_copy(update=given) for op in ops], caller))
        if left and self.config.reader.model:
            self.unread.keep(left, str(content) if isinstance(content, Path) else "turns", caller, **given)
            self.unread.begin(caller)
        return kept

    def keep(self, ops: Sequence[Add | Correct], *, fold: bool = False, user: str | None = None) -> list[MemCube]:
        """Remember statements as they are, unread by the reader; a cube for each, in their order, once durable.

        A statement that is there already, of the same speaker, time and thread, is not kept twice: its cube is. fold:
        nor is what a memory in force says in other words or at another time: it is counted there.
        """
        return self._remember(ops, self._caller(user), fold)

    def known_origins(self, *, user: str | None = None) -> set[str]:
        """Where the user's own memories, of every state, come from, and where they were told again."""
        caller = self._caller(user)
        self.governance.permit(caller, Get(id="origins"))
        return self.vault.known_origins(caller)

    def _remember(self, ops: Sequence[Add | Correct], caller: Namespace, fold: bool = True) -> list[MemCube]:
        for op in ops[:1]:
            self.governance.permit(caller, op)
        kept = self.knowledge.remember(ops, caller, fold)
        self._release()
        self.operator.refresh_soon()
        return kept

    def get(self, id: str, *, user: str | None = None) -> MemCube:
        """Raises NotFound."""
        return self._visible(Get(id=id), id, user)

    def update(
        self,
        id: str,
        text: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        user: str | None = None,
    ) -> MemCube:
        """A new version of a plaintext cube; what was derived from it is stale at once.

        metadata: set beside what is there; a name with the value None is taken out. Raises InputError where neither
        changes, BadTransition.
        """
        if text is None and metadata is None:
            raise InputError(f"update changes nothing of cube {id}; give a text, metadata, or both")
        cube = self._visible(Update(id=id, text=text), id, user)
        payload, segment, probes = None, None, text_of(cube).probes
        if text is not None:
            said = self.reader.statement(text, speaker=cube.header.speaker)
            payload, segment = Text(text=said.text, facts=said.facts, more=said.more, probes=probes), said.segment
        with self.vault.transaction():
            now = _as_json(_merged(self.vault.get(cube.id).header.metadata, metadata or {}))
            new = self.lifecycle.edit(cube.id, payload, segment, metadata=now)
            if payload:
                self.knowledge.examine(new)
        return self._changed(self.vault.get(new.id))

    def delete(self, id: str, *, user: str | None = None) -> list[str]:
        """Remove a cube with every form made from it; returns the ids that are gone."""
        cube = self._visible(Delete(id=id), id, user)
        # what others have made of it goes too, and they are not told of
        told = {cube.id} | self.governance.visible_ids(self._caller(user), self.vault.derived(cube.id))
        return [id for id in self._changed(self.lifecycle.delete(cube.id)) if id in told]

    def delete_all(self, *, user: str | None = None) -> list[str]:
        """Remove the user's own memories, in every state, with every form made from them; returns the ids that are
        gone. None of them goes where one is locked. Raises Held, BadTransition.

        A caller who stands for a part of a user, as an agent, removes that part.
        """
        caller = self._caller(user)
        seen = self.governance.readable(caller, self.vault.cubes())
        own = [cube for cube in seen if cube.rights.owner == caller.user_id and caller.covers(cube.namespace)]
        for cube in own:
            self.governance.permit(caller, Delete(id=cube.id), cube)
        ids = [cube.id for cube in own]
        told = {*ids} | self.governance.visible_ids(caller, self.vault.derived(*ids))
        return [id for id in self._changed(self.lifecycle.delete(*ids)) if id in told]

    def reset(self) -> list[str]:
        """Remove every memory of every user, in every form, for whoever runs the kernel; returns the ids that are gone.
        None of them goes where one is locked; keys, grants and the log stay. Raises Held, BadTransition."""
        for user in [Namespace(user_id=name) for name in self.vault.users()]:
            self.governance.permit(user, Delete(id="all"), over=user)
        return self._changed(self.lifecycle.delete(*(cube.id for cube in self.vault.cubes())))

    def history(self, id: str, *, diffs: bool = False, user: str | None = None) -> list[dict[str, Any]]:
        """Versions and moves of a cube in time order; with diffs, how each version differs from the one before. The
        reasons of moves, which may name other memories, are told to its owner alone."""
        cube = self._visible(History(id=id), id, user)
        caller = self._caller(user)
        events = self.lifecycle.history(cube.id, diffs, self._as_read(caller))
        own = self.governance.may(caller, "manage", cube)
        events = events if own else [event | ({"why": ""} if "why" in event else {}) for event in events]
        return events if cube.rights.owner == caller.user_id else [self.vault.guard.shown(event) for event in events]


def _merged(kept: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata with more of it."""
    every = {**(json.loads(kept) if kept else {}), **more}
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
