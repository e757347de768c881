"""Decides which state may follow which, and carries each change through to the cubes derived from it.

Knows states, versions and lineage; the only writer of state. Must not know ranking or language.
A derived cube never outlives the truth of its sources: each method here reaches derived cubes in its own transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memos.cube import GONE, Form, MemCube, Source, State, Text
from memos.errors import BadTransition, Conflict, InputError, NotFound

if TYPE_CHECKING:
    from memos.infrastructure.vault.mem_vault import MemVault

# from -> to; `MemLifecycle.move` has the guards, docs/concepts/life-cycle.md says what each state is for
ALLOWED: dict[State, tuple[State, ...]] = {
    State.GENERATED: (State.ACTIVATED, State.COLD, State.MERGED, State.ARCHIVED, State.FROZEN),
    State.ACTIVATED: (State.COLD, State.MERGED, State.ARCHIVED, State.FROZEN),
    State.COLD: (State.ACTIVATED, State.MERGED, State.ARCHIVED, State.FROZEN),
    State.MERGED: (State.ACTIVATED, State.ARCHIVED, State.FROZEN),
    # the only way to EXPIRED is through the archive, from where a memory can still be brought back
    State.ARCHIVED: (State.ACTIVATED, State.EXPIRED, State.FROZEN),
    State.EXPIRED: (),  # the end; only deletion is left
    State.FROZEN: (State.ACTIVATED, State.ARCHIVED),
}
UNUSED = frozenset({State.GENERATED, State.COLD})  # until it is recalled
LOCKED = frozenset({State.FROZEN, State.EXPIRED})  # no new version


class MemLifecycle:
    """Every change of a cube's state or content. A version counts content only: a move makes none."""

    def __init__(self, vault: MemVault) -> None:
        self._vault = vault

    def create(self, cube: MemCube) -> MemCube:
        """Keep a new cube. Raises BadTransition unless it is GENERATED, Conflict unless it is new."""
        if cube.state is not State.GENERATED:
            raise BadTransition(f"cube {cube.id} cannot begin as {cube.state}; create it as generated, then move it")
        if cube.version != 1:
            raise Conflict(f"cube {cube.id} cannot begin at version {cube.version}; create version 1, or edit()")
        self._vault.put(cube)
        return cube

    @contextmanager
    def _changing(self, id: str) -> Iterator[MemCube]:
        """The cube as it is, within a transaction. Raises NotFound."""
        with self._vault.transaction():
            yield self._vault.get(id)

    def move(self, id: str, to: State, why: str, *was: State) -> MemCube:
        """Change the state. Out of use, a source takes its derived cubes along; into use, a derived cube must be fresh.

        A thaw makes merged what lives on in another memory. was: the states that it may be in; by default any.
        Raises BadTransition, InputError without a reason, or Conflict for a derived cube whose source has changed.
        """
        if not why.strip():
            raise InputError(f"cube {id} cannot become {to} without a reason; say why, for its history")
        with self._changing(id) as cube:
            if cube.state not in (was or State) or to not in ALLOWED[cube.state]:
                allowed = ", ".join(sorted(ALLOWED[cube.state])) or "nothing; only deletion is left"
                only = "" if cube.state in (was or State) else f" from {' or '.join(was)}"
                raise BadTransition(f"cube {cube.id} is {cube.state} and cannot become {to}{only}; allowed: {allowed}")
            self._vault.holds.require_none([cube.id], f"become {to}")
            if to not in GONE:
                self._require_released(cube)
                self._require_fresh(cube)
            self._require_merged_or_not(cube, to)
            self._vault.set_state(cube.id, to, why)
            if to in GONE:
                self._retire_derived(cube, f"source {cube.id} {to}")
                self.let_out(self.sources_of([cube]))
            elif cube.state in GONE:
                self._vault.superseded.undo(cube.id)  # what had superseded it does so no more
                self._take_in(self.sources_of([cube]))
            if to is State.ACTIVATED:
                self._take_in([cube])
            return self._vault.get(cube.id)

    def lead(self, id: str, to: State, why: str) -> MemCube:
        """Change the state by as many moves as it takes. No way leads back to generated, and whether it is activated or
        merged follows from what is made of it: each of the three stands for the one that it can be.

        Raises BadTransition where no way leads there, and what `move` raises.
        """
        with self._changing(id) as cube:
            if cube.state is not to and to in (State.GENERATED, State.ACTIVATED, State.MERGED):
                to = State.MERGED if self._lives_on(cube) else State.ACTIVATED
            if cube.state is not to and to not in ALLOWED[cube.state]:
                step = next((step for step in ALLOWED[cube.state] if to in ALLOWED[step]), None)  # two lead anywhere
                if step is None:
                    raise BadTransition(
                        f"cube {cube.id} is {cube.state}, from where no moves lead to {to}; add it as a new memory"
                    )
                cube = self.move(cube.id, step, why)
            return cube if cube.state is to else self.move(cube.id, to, why)

    def edit(
        self,
        id: str,
        payload: Text | None = None,
        segment: str | None = None,
        sources: Sequence[Source] | None = None,
        **header: object,
    ) -> MemCube:
        """A new version with this payload, or the same for None, in `segment` if given; derived cubes are archived.
        sources: in place of what it is made of. header: what else of it changes. What was made of other memories is in
        force no longer than these, and believed no further than the least of them.

        Raises BadTransition when frozen or expired, Held.
        """
        with self._vault.transaction():
            cube = self._editable(id)
            changed = {"changed": self._vault.now(), **header} | ({} if segment is None else {"segment": segment})
            header_now = cube.header.model_copy(update=changed)
            made_of = cube.sources if sources is None else tuple(sources)
            new = self._put_next(cube, header=header_now, payload=payload or cube.payload, sources=made_of)
            self._retire_derived(cube, f"source {cube.id} edited")
            return new

    def attach(self, id: str, to: Sequence[MemCube], segment: str) -> MemCube:
        """A new version of a turn, in this segment, that is derived from memories which were made of it: where one of
        them is deleted, the turn goes too. Raises BadTransition when frozen or expired, Held."""
        with self._vault.transaction():
            cube = self._editable(id)
            header = cube.header.model_copy(update={"changed": self._vault.now(), "segment": segment})
            pins = tuple({c.id: c.pin for c in to}.values())
            self._vault.put(cube.model_copy(update={"version": cube.version + 1, "header": header, "sources": pins}))
            return self._vault.get(cube.id)

    def _put_next(self, cube: MemCube, **update: object) -> MemCube:
        """The next version, within the limits of its sources."""
        self._vault.put(self._limited(cube.model_copy(update={"version": cube.version + 1, **update})))
        return self._vault.get(cube.id)

    def _editable(self, id: str) -> MemCube:
        cube = self._vault.get(id)
        if cube.state in LOCKED:
            way_out = "thaw it with a move to activated" if cube.state is State.FROZEN else "add it as a new memory"
            raise BadTransition(f"cube {cube.id} is {cube.state} and cannot be edited; {way_out}")
        if cube.form is not Form.PLAINTEXT:
            raise InputError(f"cube {cube.id} ({cube.form}) is derived; edit its sources and promote them again")
        self._vault.holds.require_none([cube.id], "be edited")  # it may have been archived, with a source
        return cube

    def rollback(self, id: str, version: int) -> MemCube:
        """Bring an old payload back as a new version, if it differs from the current: nothing of the history is lost.

        How long the memory is in force stays as it is. Raises BadTransition when frozen or expired, NotFound.
        """
        with self._vault.transaction():
            cube, old = self._editable(id), self._vault.get(id, version)
            if not isinstance(old.payload, Text):
                raise InputError(f"cube {cube.id} is a turn of a conversation; go back to it with `rewind`")
            if (old.payload, old.header.segment) == (cube.payload, cube.header.segment):
                return cube
            return self.edit(cube.id, old.payload, old.header.segment)

    def delete(self, *ids: str) -> list[str]:
        """Remove cubes and all that derives from them, or nothing; the ids removed. Raises Held, or BadTransition where
        one is frozen.

        A frozen derived cube goes too: its freeze must not keep somebody else's memory from being deleted.
        """
        with self._vault.transaction():
            gone = self.require_deletable(*ids)
            sources = self.sources_of([*gone.values()])
            self._vault.delete(gone)
            self.let_out(self._vault.at(cube.id for cube in sources))
        return list(gone)

    def require_deletable(self, *ids: str) -> dict[str, MemCube]:
        """Cubes with all that derives from them, by their ids, which nothing keeps from being deleted. Raises Held,
        BadTransition."""
        cubes = {cube.id: cube for cube in map(self._vault.get, ids)}
        derived = {cube.id: cube for cube in self._vault.derived(*cubes)}
        gone = cubes | derived
        self._vault.holds.require_none(gone, "be deleted")
        if frozen := [id for id in cubes if cubes[id].state is State.FROZEN and id not in derived]:
            others = f", and so are {', '.join(frozen[1:10])}" if frozen[1:] else ""
            raise BadTransition(
                f"cube {frozen[0]} is frozen and cannot be deleted{others}; thaw it with a move to activated"
            )
        return gone

    def publish(self, cube: MemCube) -> MemCube:
        """Keep a derived cube and activate it, if its sources are still what it was made from. It expires with the
        first of them.

        Raises Conflict when one was edited, archived or deleted while the cube was being built.
        """
        if not cube.sources:
            raise InputError(f"cube {cube.id} names no sources, so it is not derived; create() it")
        with self._vault.transaction():
            self._require_fresh(cube)
            self.create(self._limited(cube))
            return self.move(cube.id, State.ACTIVATED, "published")

    def take_over(self, line: Sequence[MemCube], state: State, why: str) -> MemCube:
        """Keep a memory that comes from elsewhere, by its versions, oldest first, in the state that it was in there.

        One that lived on in others does so again once these are here; until then it answers by itself. A derived one is
        archived unless it is fresh.
        """
        with self._vault.transaction():
            first, *later = map(self._limited, line)
            self.create(first.model_copy(update={"state": State.GENERATED}))
            for version in later:
                self._vault.put(version)
            cube = self._vault.get(first.id)
            to = State.ACTIVATED if state is State.MERGED else state
            if to not in (*GONE, cube.state):  # what has expired by now stays so
                try:
                    self._require_fresh(cube)
                except Conflict:
                    to = State.ARCHIVED
            if to is not cube.state and cube.state is not State.EXPIRED:
                self._vault.set_state(cube.id, to, why)
            if to not in GONE:
                self._take_in(self.sources_of([cube]))
            return self._vault.get(cube.id)

    def supersede(self, id: str, by: str) -> None:
        """Archive a memory that is no longer true, from when on the other was said. Raises BadTransition."""
        with self._vault.transaction():
            self._vault.superseded.put(id, by, self._vault.get(by).order[0])
            self.move(id, State.ARCHIVED, f"superseded by {by}")

    def reinstate(self, id: str) -> MemCube:
        """Take back that a memory was superseded; what replaced it stays. Raises BadTransition unless it was."""
        with self._changing(id) as cube:
            by = self._vault.superseded.by(cube.id)
            if by is None:
                raise BadTransition(f"cube {cube.id} is {cube.state} and was not superseded; bring it back otherwise")
            return self.move(cube.id, State.ACTIVATED, f"{by} no longer supersedes it", State.ARCHIVED)

    def quarantine(self, id: str, why: str) -> MemCube:
        """Out of use, with all that is derived from it, until it is released."""
        with self._changing(id) as cube:
            if cube.state not in GONE:
                cube = self.move(cube.id, State.ARCHIVED, f"in quarantine: {why}")
            self._vault.quarantine.put(cube.id, why)
            return cube

    def release(self, id: str, why: str) -> MemCube:
        """Into use again; what it says now is not put there again under the rules of now. Raises BadTransition for one
        that is not in quarantine."""
        with self._changing(id) as cube:
            if not self._vault.quarantine.release(cube.id, self._vault.guard.judged(cube)):
                raise BadTransition(f"cube {cube.id} is not in quarantine; see `memos quarantine list`")
            return self.move(cube.id, State.ACTIVATED, why) if cube.state is State.ARCHIVED else cube

    def hold(self, id: str, holder: str, why: str) -> MemCube:
        """Freeze a memory so that nobody can thaw, delete or forget it, nor does time, until the hold ends.

        Raises Held, BadTransition, InputError without a reason.
        """
        with self._changing(id) as cube:
            if not why.strip():
                raise InputError(f"cube {cube.id} cannot be held without a reason; say why, for those who ask later")
            if cube.state is not State.FROZEN:
                cube = self.move(cube.id, State.FROZEN, f"held by {holder}: {why}")
            self._vault.holds.put(cube.id, holder, why)
            return cube

    def end_hold(self, id: str) -> MemCube:
        """Thaw what was held. Raises BadTransition for what is not."""
        with self._changing(id) as cube:
            if not self._vault.holds.end(cube.id):
                raise BadTransition(f"cube {cube.id} is not held; see `memos history {cube.id}`")
            return self.move(cube.id, State.ACTIVATED, "the hold ended") if cube.state is State.FROZEN else cube

    def merge(self, made: Sequence[MemCube]) -> list[MemCube]:
        """Keep memories made of others: one of many, or many of one. Their sources live on in them and no longer answer
        by themselves; KV and adapters of the sources are archived.

        Raises BadTransition for a source that cannot be merged, Conflict for one that has changed meanwhile.
        """
        with self._vault.transaction():
            names = ", ".join(cube.id for cube in made)
            for cube in made:
                self._require_fresh(cube)
                self.create(self._limited(cube))
            for source in {s.id: self._vault.get(s.id) for cube in made for s in cube.sources}.values():
                for derived in self._vault.derived(source.id):
                    if derived.blob and derived.state not in GONE:
                        self._vault.set_state(derived.id, State.ARCHIVED, f"source {source.id} merged")
                self.move(source.id, State.MERGED, f"lives on in {names}")
            for cube in made:
                self._vault.set_state(cube.id, State.ACTIVATED, "made of its sources")
            return self._vault.at(cube.id for cube in made)

    def unmerge(self, id: str) -> list[MemCube]:
        """Undo a merge, by one of what was made: all of it is archived, and the sources, returned, answer again.

        Raises InputError for a memory that was made of no others.
        """
        with self._changing(id) as cube:
            if not (cube.sources and isinstance(cube.payload, Text)):
                raise InputError(f"cube {cube.id} was not made of other memories; there is no merge to undo")
            names = [source.id for source in cube.sources]
            for made in self._vault.derived(*names):
                if isinstance(made.payload, Text) and made.state not in GONE and made.sources == cube.sources:
                    self.move(made.id, State.ARCHIVED, "unmerged")
            return self._vault.at(names)

    def revive(self, id: str, to: State, why: str) -> MemCube:
        """Take a derived cube into use again, if its sources say the very same as the versions that it was made from;
        where those are at other versions by now, as a new version of its own that is pinned to these.

        Raises Conflict, and what `lead` raises.
        """
        with self._changing(id) as cube:
            pins = tuple(self._pinned_now(cube, source) for source in cube.sources)
            if pins != cube.sources:
                self._put_next(cube, sources=pins)
            return self.lead(cube.id, to, why)

    def recalled(self, cubes: Iterable[MemCube]) -> None:
        """A recall activates what was generated only, and what was cold."""
        for id in [cube.id for cube in cubes if cube.state in UNUSED]:
            with self._vault.transaction():  # it may have been moved or deleted meanwhile
                if any(now.state in UNUSED for now in self._vault.at([id])):
                    self.move(id, State.ACTIVATED, "recalled")

    def _require_fresh(self, cube: MemCube) -> None:
        """Compare and swap: a derived cube is used only over the versions that it was made from."""
        for source in cube.sources:
            now = self._in_force(cube, source)
            if now.version != source.version:
                raise _stale(cube, source, f"is at version {now.version}, not {source.version}")

    def _pinned_now(self, cube: MemCube, source: Source) -> Source:
        """The source at its current version. Raises Conflict where that says something else."""
        now = self._in_force(cube, source)
        if now.version != source.version and now.payload != self._vault.get(source.id, source.version).payload:
            raise _stale(cube, source, f"says something else at version {now.version} than at {source.version}")
        return Source(id=source.id, version=now.version)

    def _in_force(self, cube: MemCube, source: Source) -> MemCube:
        try:
            now = self._vault.get(source.id)
        except NotFound:
            raise Conflict(f"cube {cube.id} is stale: source {source.id} was deleted; drop it") from None
        if now.state in GONE:
            raise _stale(cube, source, f"is {now.state}")
        return now

    def _limited(self, cube: MemCube) -> MemCube:
        """The cube, in force no longer and believed no further than any of its sources."""
        family = (cube, *(self._vault.get(source.id) for source in cube.sources))
        ends = [c.header.expires for c in family if c.header.expires]
        trust = max((c.header.trust for c in family), key=lambda trust: trust.rank)
        header = cube.header.model_copy(update={"expires": min(ends, default=None), "trust": trust})
        return cube.model_copy(update={"header": header})

    def _require_released(self, cube: MemCube) -> None:
        if suspects := self._vault.quarantine.of([cube.id]):
            raise BadTransition(
                f"cube {cube.id} is in quarantine: {suspects[0].why}; look at it, and let it out with `memos "
                f"quarantine release {cube.id}`, or delete it"
            )

    def _retire_derived(self, cube: MemCube, why: str) -> None:
        # Past ALLOWED on purpose, so that even a frozen one goes: a freeze pins a cube, not a truth that is gone.
        retired = [derived for derived in self._vault.derived(cube.id) if derived.state not in GONE]
        for derived in retired:
            self._vault.set_state(derived.id, State.ARCHIVED, why)
        self.let_out(self.sources_of(retired))

    def sources_of(self, made: Sequence[MemCube]) -> list[MemCube]:
        """What memories were made of, where they were made of others."""
        ids = {s.id for cube in made if isinstance(cube.payload, Text) for s in cube.sources}
        return self._vault.at(sorted(ids))

    def let_out(self, cubes: Iterable[MemCube]) -> None:
        """Those of them that lived on in other memories, of which none is in use any more, answer by themselves."""
        for cube in cubes:
            if cube.state is State.MERGED and not self._lives_on(cube):
                self._vault.set_state(cube.id, State.ACTIVATED, "what it lived on in is gone")

    def _require_merged_or_not(self, cube: MemCube, to: State) -> None:
        """A text that is not locked is merged just while a memory made of it is in use."""
        if to is State.MERGED and cube.form is not Form.PLAINTEXT:
            raise BadTransition(f"cube {cube.id} is derived and cannot become merged; merge its sources")
        if to is State.MERGED and not self._lives_on(cube):
            raise BadTransition(
                f"cube {cube.id} cannot become merged: no memory in use is made of it; fuse it or split it"
            )
        if to is State.ACTIVATED and cube.state is State.MERGED and (names := self._lives_on(cube)):
            raise BadTransition(f"cube {cube.id} is merged and lives on in {', '.join(names)}; undo that with `split`")

    def _lives_on(self, cube: MemCube) -> list[str]:
        """The memories in use that are made of it and answer in its place; what was read in a turn does not."""
        derived = (c for c in self._vault.derived(cube.id) if isinstance(c.payload, Text) and c.state not in GONE)
        return [made.id for made in derived if any(source.id == cube.id for source in made.rests_on)]

    def _take_in(self, cubes: Iterable[MemCube]) -> None:
        """Those of them that live on in other memories answer through these."""
        for cube in self._vault.at(cube.id for cube in cubes):
            if State.MERGED in ALLOWED[cube.state] and (names := self._lives_on(cube)):
                self._vault.set_state(cube.id, State.MERGED, f"lives on in {', '.join(names)}")


def _stale(cube: MemCube, source: Source, found: str) -> Conflict:
    return Conflict(f"cube {cube.id} is stale: source {source.id} {found}; promote the sources again")
