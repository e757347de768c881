"""Plans which memories change their form now: promotions by heat, and demotions for want of room.

Knows heat and budgets; knows not how a form is built or stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from memos.cube import BY_HAND, Form, MemCube, State

if TYPE_CHECKING:
    from memos.config import LimitConfig, SchedulerConfig
    from memos.operation.policies.policy import Policy, Segment

Budgets = Mapping[Form, float]  # bytes of KV, number of adapters


@dataclass(frozen=True)
class Move:
    """A planned change of form: promote a segment, or give up a derived cube."""

    to: Form | None  # None: give up `cube`
    segment: Segment | None = None
    cube: MemCube | None = None
    why: str = ""


class MovePlanner:
    """Plans moves of a policy within the budgets."""

    def __init__(self, config: SchedulerConfig, policy: Policy) -> None:
        self._config, self._policy = config, policy

    def plan(
        self,
        segments: Sequence[Segment],
        derived: Sequence[MemCube],
        now: datetime,
        pays: Callable[[Segment], bool] = lambda segment: True,
        budgets: Budgets | None = None,
        usable: Callable[[MemCube], bool] = lambda derived: True,
    ) -> list[Move]:
        """Moves that heat, staleness and budgets ask for; what is given up comes first.

        A derived cube is dropped when a source has changed, but for an adapter that the next one of its group can be an
        edit of; and given up when its group is cold, unless somebody asked for it, another cube of its form stands for
        more of the group, or its budget is full. One given up before is left alone: it costs disk only, and is taken
        back without building it. KV is made where it `pays`. budgets: of whose cubes these are; see `budgets`. usable:
        by the model that is there; what is not keeps no group from getting what is.
        """
        current = {source for segment in segments for source in segment.sources}
        stale = [d for d in derived if not set(d.sources) <= current]
        live = [d for d in derived if d not in stale and d.state is State.ACTIVATED]
        heats: dict[str, float] = {}
        gives, promotes, awaited = list[Move](), list[Move](), set[str]()
        for segment in segments:
            heat = self._policy.heat(segment.cubes, now)
            mine = [d for d in live if set(segment.sources) & set(d.sources)]
            heats |= {d.id: max(heat, heats.get(d.id, 0.0)) for d in mine}
            whole = {d.form: d for d in mine if set(d.sources) >= set(segment.sources) and usable(d)}
            gives += _outdone(mine, whole)
            quiet_s = (now - max(c.header.changed or c.header.created for c in segment.cubes)).total_seconds()
            form = self._policy.form(heat, quiet_s, whole)
            if Form.PARAMETRIC not in whole and not self._policy.cold(heat):
                awaited |= {source.id for source in segment.sources}
            if form and (form is not Form.ACTIVATION or pays(segment)):
                promotes.append(Move(form, segment, why=f"heat {heat:.1f}"))
        useless = [d for d in stale if d.form is Form.ACTIVATION or not awaited & {source.id for source in d.sources}]
        gives = [Move(None, cube=d, why="its sources changed") for d in useless] + gives
        cold = [d for d in live if d.header.origin != BY_HAND and self._policy.cold(heats.get(d.id, 0.0))]
        gives += [Move(None, cube=d, why=f"heat {heats.get(d.id, 0.0):.1f}") for d in cold]
        given = {m.cube.id for m in gives if m.cube}
        remaining = [d for d in live if d.id not in given]
        over, room = self._over_budget(remaining, heats, budgets or _all(self._config))
        return gives + over + [m for m in promotes if _need(m, derived) <= room[m.to or Form.PLAINTEXT]]

    def _over_budget(
        self, derived: Sequence[MemCube], heats: dict[str, float], budgets: Budgets
    ) -> tuple[list[Move], dict[Form, float]]:
        """Once a budget is taken up to the high mark, give up the coldest for their size, down to the low one; and what
        room is left."""
        moves, room = list[Move](), dict[Form, float]()
        for form, budget in budgets.items():
            of_form = [d for d in derived if d.form is form]
            used, high = sum(map(_size, of_form)), self._config.high_water * budget
            coldest, going = sorted(of_form, key=lambda d: heats.get(d.id, 0.0) / _size(d)), set[str]()
            if used > high:
                while coldest and used > self._config.low_water * budget:
                    used -= _size(coldest[0])
                    going.add(coldest.pop(0).id)
            moves += [Move(None, cube=d, why=f"over the budget of {form}") for d in of_form if d.id in going]
            room[form] = high - used
        return moves, room


def budgets(
    config: SchedulerConfig, user: str, held: Mapping[Form, Mapping[str, float]], limit: LimitConfig
) -> Budgets:
    """What a user may take of bytes of KV and of adapters: its limit, and of what all share what others leave, but
    at least as much as anybody who wants more than it has.

    held: what each user has of them.
    """
    limits = {Form.ACTIVATION: limit.kv_bytes, Form.PARAMETRIC: limit.adapters}
    wanted = {form: math.inf if most is None else most for form, most in limits.items()}
    return {form: shares(total, {**held[form], user: wanted[form]})[user] for form, total in _all(config).items()}


def _all(config: SchedulerConfig) -> Budgets:
    """What all users share."""
    return {Form.ACTIVATION: config.disk_kv_bytes, Form.PARAMETRIC: config.adapters}


def shares(budget: float, wanted: Mapping[str, float]) -> dict[str, float]:
    """What each may take of a budget: what it wants, as long as nobody who gets less than it wants could be given more
    by taking from one who has more (max-min fairness, by filling up from the least)."""
    out = dict[str, float]()
    left = budget
    for n, key in enumerate(sorted(wanted, key=lambda key: wanted[key])):
        out[key] = min(wanted[key], left / (len(wanted) - n))
        left -= out[key]
    return out


def _outdone(mine: Sequence[MemCube], whole: Mapping[Form, MemCube]) -> list[Move]:
    """Give up what stands for less of a group than another of its form. whole: those that stand for all of it."""
    return [
        Move(None, cube=d, why=f"{whole[d.form].id} stands for more")
        for d in mine
        if d.form in whole and set(d.sources) < set(whole[d.form].sources)
    ]


def _size(cube: MemCube) -> int:
    """What a derived cube takes of its budget."""
    assert cube.blob
    return cube.blob.bytes if cube.form is Form.ACTIVATION else 1


def _need(move: Move, derived: Sequence[MemCube]) -> int:
    """What a promotion takes of its budget: as much as before, so that what was given up for want of room stays out."""
    assert move.segment
    before = (d for d in derived if d.form is move.to and d.sources == move.segment.sources)
    return max((_size(d) for d in before), default=1)
