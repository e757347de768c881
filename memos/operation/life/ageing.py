"""Applies time to memories: they expire, are archived when idle, and go when their retention ends.

Knows the rules of ageing and who is held back from it; moves memories through the life cycle alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol

from memos.cube import MemCube, State

if TYPE_CHECKING:
    from memos.config import AgeingConfig, LifecycleConfig
    from memos.infrastructure.vault.mem_vault import MemVault


class Aged(NamedTuple):
    """A move that time has brought."""

    id: str
    to: State
    why: str


class Moves(Protocol):
    """What is asked of the life cycle here."""

    def move(self, id: str, to: State, why: str) -> MemCube: ...

    def lead(self, id: str, to: State, why: str) -> MemCube: ...

    def let_out(self, cubes: Iterable[MemCube]) -> None: ...

    def sources_of(self, made: Sequence[MemCube]) -> list[MemCube]: ...


class Ageing:
    """Carries out the rules for one vault."""

    def __init__(self, vault: MemVault, moves: Moves, rules: LifecycleConfig, retention: Mapping[str, float]) -> None:
        """retention: days until a memory expires for good, by its class."""
        self._vault, self._moves, self._rules, self._retention = vault, moves, rules, retention

    def age(self, now: datetime, user_id: str | None = None) -> list[Aged]:
        """Move on what has had its time by `now`, of one user or of all; what was done.

        What has passed its `expires` expires, frozen or not. Idle texts are archived, and archived ones expire, as the
        rules say; a frozen one does not. A time that lies after `now` makes nothing older.
        """
        with self._vault.transaction():
            overdue = self._vault.ageing.overdue(now, user_id)
            on_hold = {hold.id for hold in self._vault.holds.of(id for id, _ in overdue)}
            out = [self._expire(id, state) for id, state in overdue if id not in on_hold]
            self._moves.let_out(self._moves.sources_of(self._vault.at(aged.id for aged in out)))
            for name, days in self._retention.items():
                for id in self._vault.ageing.of_class(name, now - timedelta(days=days), user_id):
                    out += self._retire_class(id, f"{name} is kept for {days:g} days")
            named = self._rules.kinds
            out += self._retire_kinds(tuple(named), False, self._rules, now, user_id)
            for kind, rule in named.items():
                out += self._retire_kinds((kind,), True, rule, now, user_id)
        return out

    def _retire_kinds(
        self, kinds: Collection[str], within: bool, rule: AgeingConfig, now: datetime, user_id: str | None
    ) -> list[Aged]:
        """What a rule says of memories of these kinds, or of all others."""
        in_force = (State.GENERATED, State.ACTIVATED)  # a merged one lives as long as what it lives on in
        steps: tuple[tuple[tuple[State, ...], State, float | None, str], ...] = (
            ((State.ARCHIVED,), State.EXPIRED, rule.expire_after_archived_days, "archived"),
            ((State.GENERATED,), State.ARCHIVED, rule.generated_ttl_days, "never recalled"),
            (in_force, State.ARCHIVED, rule.archive_after_idle_days, "neither recalled nor changed"),
        )
        out = list[Aged]()
        for states, to, days, what in steps:
            if days is not None:
                for id in self._vault.ageing.idle(states, now - timedelta(days=days), kinds, within, user_id):
                    out += self._retire_idle(id, states, to, f"{what} for {days:g} days")
        return out

    def _retire_class(self, id: str, why: str) -> list[Aged]:
        """It expires, with all that is made of it; not while any of this is under a legal hold."""
        cube = self._vault.get(id)
        if cube.state is State.EXPIRED or self._vault.holds.of([id, *(made.id for made in self._vault.derived(id))]):
            return []
        self._moves.lead(id, State.EXPIRED, why)
        return [Aged(id, State.EXPIRED, why)]

    def _retire_idle(self, id: str, states: Collection[State], to: State, why: str) -> list[Aged]:
        """Move what is in one of the states, and with it what lived on in it alone, which has been as idle."""
        cube = self._vault.get(id)
        if cube.state not in states or self._vault.holds.of([id]):  # it went with a source, just before
            return []
        merged = [source.id for source in self._moves.sources_of([cube]) if source.state is State.MERGED]
        self._moves.move(id, to, why)
        let_out = [source.id for source in self._vault.at(merged) if source.state is State.ACTIVATED]
        return [Aged(id, to, why), *(a for s in let_out for a in self._retire_idle(s, (State.ACTIVATED,), to, why))]

    def _expire(self, id: str, state: State) -> Aged:
        """Write down that its time has come. What is derived from it expires by itself: see `publish`."""
        aged = Aged(id, State.EXPIRED, "its time to expire has come")
        if state is not State.ARCHIVED:
            self._vault.set_state(id, State.ARCHIVED, aged.why)
        self._vault.set_state(*aged)
        return aged
