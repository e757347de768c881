"""The calls that change the form of memories, and judge what was made."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from memos.cube import ANSWERING, Form, MemCube, State, Text
from memos.errors import EmptyMemory, InputError, NoRoom, Untrusted
from memos.kernel.access import Service
from memos.operation.choosing.mem_scheduler import composable
from memos.ops import Demote, Get, Promote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memos.infrastructure.vault.tables.job_list import Job
    from memos.operation.choosing.upkeep import Progress
    from memos.rights import Caller


class Forming(Service):
    """promote, demote, gate."""

    def promote(
        self,
        caller: Caller,
        ids: str | Sequence[str],
        to: Form | Literal["activation", "parametric"],
        *,
        progress: Progress | None = None,
        job: Job | None = None,
    ) -> MemCube:
        """Make one derived cube of these memories; published only once it has proven itself.

        An activation cube needs parity with the full prompt, a parametric one its gate. What is there already is
        returned, what was given up before is taken back. Killed at any point, nothing is published, and the next
        start clears away what was staged. Derived cubes that are named are merged: what is made stands for their
        sources, and those of its form are given up. job: the running one that asks for it.

        Raises NoProbes, GateRejected, Unsupported, Conflict (a source changed meanwhile), ContextOverflow.
        """
        if str(to) not in (str(Form.ACTIVATION), str(Form.PARAMETRIC)):
            raise InputError(f"memories cannot be promoted to {str(to)!r}; promote to activation or parametric")
        form = Form(to)
        asked = (ids,) if isinstance(ids, str) else tuple(ids)
        op = Promote(ids=asked, to=form)
        sources = said_once(self._sources(caller, op))
        self._require_trust(form, sources)
        beside = self._beside(sources) if form is Form.PARAMETRIC else ()
        require = partial(self._require_share, form, caller)
        made = self._transitions().promote(form, sources, progress or (lambda *_: None), beside, job, require)
        same = [c for c in self._vault.derived(*(s.id for s in made.sources)) if c.form is form and c.id != made.id]
        merged = [c.id for c in same if c.state is State.ACTIVATED and c.id.startswith(asked)]  # a prefix will do
        for id in merged:
            self._lifecycle.move(id, State.ARCHIVED, f"merged into {made.id}")
        if merged:
            self._freshness.release()
        return made

    def _require_trust(self, form: Form, sources: Sequence[MemCube]) -> None:
        """Raises Untrusted for an adapter of memories that are not believed so far, as nobody could read them there."""
        for cube in sources:
            if form is Form.PARAMETRIC and not self._vault.guard.may_teach(cube):
                raise Untrusted(
                    f"cube {cube.id} (from {cube.header.origin}) is {cube.header.trust}, and no adapter is made of "
                    f"such memories; look at it and say `memos trust {cube.id} user`, leave it out, or add its trust "
                    f"to governance.trust.adapters"
                )

    def _beside(self, sources: Sequence[MemCube]) -> list[MemCube]:
        """The adapters that a new one may be active with: the latest of its owner that compose with each other."""
        most = self._config.scheduler.adapters_together - 1
        owner = sources[0].rights.owner
        mine = [
            c
            for c in self._vault.cubes(form=Form.PARAMETRIC, states=(State.ACTIVATED,))
            if c.rights.owner == owner and c.stands_in and c.blob and c.blob.fingerprint == self._host().digest
        ]
        known = {c.id for c in sources}
        apart = [c for c in reversed(mine) if not known & {s.id for s in c.sources}]
        return list(composable(apart, most)) if most > 0 else []

    def demote(self, caller: Caller, id: str) -> list[MemCube]:
        """Give up a derived cube; its sources, returned as they are, answer as text again.

        It is archived, so promoting the same memories again takes it back without building it.
        """
        cube = self._access.cube(caller, Demote(id=id), id)
        if not cube.blob:
            raise InputError(
                f"cube {cube.id} is plaintext, and there is no cheaper form; "
                f"delete it, or demote what is derived from it"
            )
        self._lifecycle.move(cube.id, State.ARCHIVED, "demoted")
        self._freshness.release()
        return self._vault.at(s.id for s in cube.sources)

    def gate(
        self, caller: Caller, adapters: Sequence[str | Path], *, on: Sequence[str] = ()
    ) -> tuple[dict[str, float], list[str]]:
        """Judge adapters, active together, as a promotion would: (scores, what falls short).

        adapters: ids of cubes, or folders, a stranger's too. on: ids of memories that they should know; without, those
        of their cards. Raises NoProbes where nothing says what to ask them.
        """
        memories = [self._access.cube(caller, Get(id=id), id) for id in on]
        if other := [c for c in memories if not isinstance(c.payload, Text)]:
            kind = "a turn of a conversation" if other[0].form is Form.PLAINTEXT else other[0].form
            raise InputError(
                f"cube {other[0].id} is {kind}; an adapter is judged on memories, as `memos ls` lists them"
            )
        shown = [self._vault.guard.as_shown(cube) for cube in memories]
        return self._transitions().gate([self.folder(caller, name) for name in adapters], shown)

    def folder(self, caller: Caller, what: str | Path, *forms: str) -> Path:
        """Where the payload of a cube lies, or the path that is named. Raises NotFound, InputError."""
        if isinstance(what, Path):
            if what.resolve().is_relative_to(self._vault.path.resolve()):
                raise InputError(f"{what} lies in the vault, whose payloads are used by the ids of their cubes")
            return what
        cube = self._access.cube(caller, Get(id=what), what)
        if cube.blob is None or str(cube.form) not in (forms or ("parametric",)):
            raise InputError(f"cube {cube.id} is {cube.form}; name one that is {' or '.join(forms or ('parametric',))}")
        return self._vault.blobs.path(cube.blob)

    def _require_share(self, form: Form, caller: Caller) -> None:
        """Raises NoRoom where the caller has as much of KV or adapters already as may be its own."""
        mine = self._vault.stats.usage_by_user(form).get(caller.user_id, (0, 0))[form is Form.ACTIVATION]
        most = self._budgets(caller)[form]
        if mine >= most:
            what = f"{mine:,} bytes of KV" if form is Form.ACTIVATION else f"{mine} adapters"
            raise NoRoom(
                f"{caller.user_id} has {what} and may have {most:,.0f}: its limit (limits), or its share of what all "
                f"have room for (scheduler.disk_kv_bytes, scheduler.adapters); demote what is not used, or raise it"
            )

    def _sources(self, caller: Caller, op: Promote) -> list[MemCube]:
        """The plaintext cubes that are meant, in canonical order; of a derived cube, its sources."""
        if not op.ids:
            raise EmptyMemory("promote needs the ids of at least one memory; see `memos ls`")
        named = [self._access.cube(caller, op, id) for id in op.ids]
        cubes = {s.id: self._access.cube(caller, op, s.id) for c in named for s in (c.sources if c.blob else (c.pin,))}
        gone = [c.id for c in cubes.values() if c.state not in ANSWERING]
        if gone:
            raise InputError(
                f"{', '.join(gone)} is {self._vault.get(gone[0]).state} and cannot be promoted; "
                f"promote memories in force"
            )
        return sorted(map(self._vault.guard.as_shown, cubes.values()), key=lambda c: c.order)


def said_once(cubes: Sequence[MemCube]) -> list[MemCube]:
    """Of a turn and what was read in it, what was read: what is promoted of a group."""
    read_in = {source.id for cube in cubes for source in cube.sources}
    return [cube for cube in cubes if cube.id not in read_in]
