"""What a request sees, and what moves. Knows budgets; knows not how a form is built or stored, nor who asks."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Literal

from memos.config import FidelityConfig, LimitConfig, SchedulerConfig
from memos.cube import Form, MemCube, Namespace, Source, State
from memos.errors import EmptyMemory, NoRoom
from memos.operation.choosing.budget import Item, above, fill, shares
from memos.operation.choosing.cost_model import Costs, Lying, Way
from memos.operation.policies.policy import Policy
from memos.operation.policies.policy import Segment as Segment  # what it groups and plans with, for its users

log = logging.getLogger("memos")
Budgets = Mapping[Form, float]  # bytes of KV, number of adapters
Via = Literal["none", "plaintext", "activation", "parametric", "auto"]
Route = Callable[
    [Sequence[MemCube], bool], Sequence[MemCube]
]  # (adapters, at least one) -> those that know, best first


@dataclass(frozen=True)
class Admission:
    """What a request sees: cubes in order; KV of the first of them; adapters that know others."""

    cubes: tuple[MemCube, ...] = ()
    activations: tuple[MemCube, ...] = ()  # in canonical order, which is that of `cubes`
    adapters: tuple[MemCube, ...] = ()  # active together, oldest first
    internal: tuple[MemCube, ...] = ()  # the cubes that the adapters stand for
    pinned: tuple[MemCube, ...] = ()  # those of `cubes` that are always seen, and were not found
    way: Way | None = None  # how KV and text were chosen between, where there was a choice

    @property
    def as_text(self) -> tuple[MemCube, ...]:
        """The cubes that go through the prompt."""
        return self.cubes[sum(len(kv.sources) for kv in self.activations) :]

    @property
    def form(self) -> Form | None:
        """The dearest form in use; None where nothing is remembered."""
        if self.adapters:
            return Form.PARAMETRIC
        return Form.ACTIVATION if self.activations else Form.PLAINTEXT if self.cubes else None


@dataclass(frozen=True)
class Talk:
    """A question, with what was said before it: `turns` that the caller gave, or `earlier` ones of a session.

    again: the session is read again, whatever KV there is of it.
    """

    question: str
    turns: tuple[dict[str, str], ...] = ()
    session: Namespace | None = None
    earlier: tuple[MemCube, ...] = ()
    again: bool = False


@dataclass(frozen=True)
class Move:
    """A planned change of form: promote a segment, or give up a derived cube."""

    to: Form | None  # None: give up `cube`
    segment: Segment | None = None
    cube: MemCube | None = None
    why: str = ""


@dataclass(frozen=True)
class Situation:
    """What a choice between text and KV depends on.

    levels: ways to put several caches together; lying: each cache by its cube's id; there: how many of the first lie
    as one exact prefix already; tokens: of a memory; head: tokens before the first one; question: of what is asked.
    """

    costs: Costs
    levels: Sequence[FidelityConfig]
    lying: Mapping[str, Lying]
    there: int
    tokens: Callable[[str], int]
    head: int
    question: int


@dataclass(frozen=True)
class Held:
    """KV in memory: the cube it belongs to, and the bytes it takes there."""

    name: str
    cube: MemCube
    bytes: int
    tokens: int


# KV has to be predicted faster than text by so much: the constants are not known better than that
_WORTHWHILE = 1.03
ALWAYS, APART = "always", "apart:"  # tags: in every request; in none beside another of that name
_SOME = 1e-3  # what a memory is worth that nothing speaks for, beside others of its group
_QUESTION = 16  # tokens, as many as questions usually have


class MemScheduler:
    """Budgets and moves around a policy."""

    def __init__(self, config: SchedulerConfig, policy: Policy) -> None:
        self.config, self.policy = config, policy

    def segments(self, cubes: Sequence[MemCube], tokens: Callable[[str], int]) -> list[Segment]:
        """Topic groups of plaintext cubes; a group of more than segment_tokens tokens is cut in time order. What must
        not stand beside something else is a group of its own."""
        ordered = sorted(cubes, key=lambda c: c.order)
        out = [Segment(c.header.segment, (c,)) for c in ordered if apart(c)]
        free = sorted((c for c in ordered if not apart(c)), key=lambda c: c.header.segment)
        for key, group in groupby(free, key=lambda c: c.header.segment):
            held: list[MemCube] = []
            room = self.config.segment_tokens
            for cube in group:
                need = tokens(cube.text)
                if held and need > room:
                    out.append(Segment(key, tuple(held)))
                    held, room = [], self.config.segment_tokens
                held.append(cube)
                room -= need
            out.append(Segment(key, tuple(held)))
        return out

    def admit(
        self,
        hits: Sequence[tuple[MemCube, float]],
        about: Sequence[str],
        segments: Sequence[Segment],
        derived: Sequence[MemCube],
        tokens: Callable[[str], int],
        via: Via = "auto",
        route: Route | None = None,
        always: Sequence[MemCube] = (),
    ) -> Admission:
        """Choose what the request sees and in which form.

        The policy says what may be admitted, as the whole topic groups of the best-ranked memories; what has room in
        the token budget is. An adapter costs no tokens and a KV cache no prefill, so `auto` takes the dearest form
        that stands for a group; a form asked for by name is taken or refused with EmptyMemory. route: which of the
        adapters of near groups that speak of what the question is about know the answer, by how they differ from the
        base; without it, that of the best group is taken to know. always: what every request sees, before all else.
        """
        if via == "none":
            return Admission()
        pinned, room = _pinned(self.config.prompt_tokens, always, tokens)
        hits, segments = self.compatible(hits, pinned), _without_clashes(segments, hits, pinned)
        ranked = self.policy.admit(self.policy.rank(hits), segments, lambda cube: tokens(cube.text), room)
        shown = {cube.id for cube in pinned}
        ranked = [group for group in ranked if not shown.issuperset(cube.id for cube in group.cubes)]
        chosen = ranked[: self.config.segments]
        if not chosen and via in ("activation", "parametric"):
            raise EmptyMemory(f"nothing remembered is near enough to the question, so no {via} memory serves it")
        live = [d for d in derived if d.state is State.ACTIVATED]
        adapters, kvs = tuple[MemCube, ...](), list[MemCube]()
        if chosen and via in ("parametric", "auto"):
            named = [s for s in ranked if speaks_of(about, [s.key, *(c.text for c in s.cubes)])]
            among = (named or (ranked if via == "parametric" else [])) if route else chosen[:1]
            near = _standing_for(among, [d for d in live if d.form is Form.PARAMETRIC])
            knowing = route(near, via == "parametric") if route and near else near
            adapters = composable(knowing, self.config.segments)
            home = [s for s in ranked if any(set(s.sources) <= set(a.sources) for a in adapters)]
            chosen = [*home, *(s for s in chosen if s not in home)]
        if chosen and via in ("activation", "auto") and not adapters:  # KV made without an adapter is wrong under it
            kvs = _held(chosen, [d for d in live if d.form is Form.ACTIVATION])
        if via in ("parametric", "activation") and not adapters and not kvs:
            raise EmptyMemory(
                f"no {via} memory stands for {chosen[0].key or 'these memories'}; promote them first "
                f"(`promote(ids, to={via!r})` or a promote step), or ask via auto"
            )
        known = {source for adapter in adapters for source in adapter.sources}
        every = {Source(id=c.id, version=c.version): c for segment in chosen for c in segment.cubes}
        admitted = [every[source] for kv in kvs for source in kv.sources]
        inside = tuple(cube for source, cube in every.items() if source in known)
        lying = {cube.id for cube in (*admitted, *inside)}
        first = {cube.id: cube for cube in pinned if cube.id not in lying}
        rest = [[cube for cube in group.cubes if cube.id not in lying | first.keys()] for group in chosen]
        admitted += [*first.values(), *_most_in(room, rest, {cube.id: score for cube, score in hits}, tokens)]
        found = {cube.id for cube, _ in hits}
        return Admission(
            tuple(admitted), tuple(kvs), adapters, inside, pinned=tuple(c for c in pinned if c.id not in found)
        )

    def compatible(
        self, hits: Sequence[tuple[MemCube, float]], always: Sequence[MemCube]
    ) -> list[tuple[MemCube, float]]:
        """Without the hits that must not stand beside one that is ranked before them, or beside what is always seen."""
        out, taken = list[tuple[MemCube, float]](), {name for cube in always for name in apart(cube)}
        mine = {cube.id for cube in always}
        for cube, score in self.policy.rank(hits):
            if cube.id in mine or not apart(cube) & taken:
                out.append((cube, score))
                taken |= apart(cube)
        return out

    def looked_at(self, hits: Sequence[tuple[MemCube, float]], derived: Sequence[MemCube]) -> list[str]:
        """Those of the hits whose topic groups may be admitted: of as many groups as there is room for, and those that
        an adapter of `derived` knows, which may answer instead. Only these groups are read."""
        ranked = [cube for cube, _ in self.policy.rank(hits)]
        keys = list(dict.fromkeys(cube.header.segment.casefold() for cube in ranked))[: self.config.segments]
        known = {source.id for d in derived if d.form is Form.PARAMETRIC for source in d.sources}
        return [cube.id for cube in ranked if cube.header.segment.casefold() in keys or cube.id in known]

    def levels(self, wanted: FidelityConfig, card: dict[str, Any] | None) -> list[FidelityConfig]:
        """Ways to put several caches together that are allowed, the fastest on the card first.

        card: what `memos calibrate` measured. A level is allowed if, with every number of cubes that was tried, its
        answers agreed with the full prompt's often enough; L0 is exact and always allowed. Settings that were not
        measured are used as they are asked for.
        """
        exact = wanted.model_copy(update={"level": "L0"})
        if wanted.level == "L4":
            return []
        if card is None:
            return [exact if wanted.level == "auto" else wanted]
        tried: dict[FidelityConfig, list[dict[str, Any]]] = {}
        for row in card["levels"]:
            settings = {name: row[name] for name in ("level", "first_tokens", "share")}
            tried.setdefault(_in_use(wanted.model_copy(update=settings)), []).append(row)
        allowed = {
            level: max(row["ttft_ms"] for row in rows)
            for level, rows in tried.items()
            if min(row["decision_agreement"] for row in rows) >= wanted.agreement and level.level != "L4"
        }
        if wanted.level == "auto":
            return sorted(allowed, key=lambda level: allowed[level]) or [exact]
        if _in_use(wanted) in tried and _in_use(wanted) not in allowed:
            log.warning("%s agrees too seldom with the full prompt on this model; using L0", wanted.level)
            return [exact]
        return [wanted]

    def choose(self, admission: Admission, forced: bool, at: Situation) -> Admission:
        """The admission the way in which its first token is predicted soonest: with fewer KV caches, or all.

        forced: with all of them, whatever it takes. KV that has no room in memory is not used. Raises NoRoom where it
        is forced.
        """
        kvs = admission.activations
        ways = [w for w in self.ways(admission, at) if not forced or w.kvs == len(kvs) or not at.levels]
        if not ways:
            size, room = sum(at.lying[kv.id].tokens for kv in kvs) * at.costs.bytes, self._room(at.costs.gpu)[0][1]
            raise NoRoom(
                f"KV of {size:,.0f} bytes does not fit the {room:,} bytes that it may take of memory; ask via "
                f"plaintext, or raise scheduler.{'device' if at.costs.gpu else 'host'}_kv_bytes"
            )
        # of two that are as fast, the one with more KV: it is there for the next request too
        best = min(ways, key=lambda way: (way.seconds * (_WORTHWHILE if way.kvs else 1), -way.kvs))
        return replace(admission, activations=kvs[: best.kvs], way=best)

    def ways(self, admission: Admission, at: Situation) -> list[Way]:
        """What can be done with an admission, and how long each takes to the first token, as predicted. First: text."""
        kvs, room, costs = admission.activations, self._room(at.costs.gpu)[0][1], at.costs
        bringing_alone = costs.model_copy(update={"pace": 0.0})
        text = sum(at.tokens(c.text) for c in admission.cubes)
        out = [Way(0, None, costs.forward(at.head + text + at.question))]
        for n in range(1, len(kvs) + 1):
            held = [at.lying[kv.id] for kv in kvs[:n]]
            if sum(kv.tokens for kv in held) * costs.bytes > room:
                continue
            text = sum(at.tokens(c.text) for c in replace(admission, activations=kvs[:n]).as_text)
            for level in at.levels[: None if n > 1 else 1]:  # one cache is exact at any level
                seconds, bringing = (
                    c.first_token(held, min(at.there, n), level, text, at.question) for c in (costs, bringing_alone)
                )
                out.append(Way(n, level, seconds, bringing))
        return out

    def place(
        self, held: Sequence[Held], costs: Costs, now: datetime, expected: Mapping[str, float] | None = None
    ) -> dict[str, Literal["device", "host"]]:
        """Where KV that is in memory should stay: what saves most seconds for its bytes nearest to the model, within
        each tier's budget. What is not named should leave memory.

        expected: uses soon, by name. What nothing is foreseen of counts by its heat.
        """
        foreseen = expected or {}

        def worth(kv: Held) -> float:
            away = Lying(kv.tokens, "disk", kv.cube.blob.stored if kv.cube.blob else "raw")
            uses = foreseen.get(kv.name, 0.0) if foreseen else None
            seconds = costs.bring(away) or kv.tokens  # as good as known, where nothing is measured
            return (self.policy.heat([kv.cube], now) if uses is None else uses) * seconds / max(1, kv.bytes)

        out: dict[str, Literal["device", "host"]] = {}
        room = dict(self._room(costs.gpu))
        for kv in sorted(held, key=lambda kv: -worth(kv)):
            tier = next((tier for tier, left in room.items() if kv.bytes <= left), None)
            if tier:
                room[tier] -= kv.bytes
                out[kv.name] = tier
        return out

    def _room(self, gpu: bool) -> list[tuple[Literal["device", "host"], int]]:
        """The bytes of each tier in memory, nearest to the model first; on a CPU the host's memory is the model's."""
        device, host = self.config.device_kv_bytes, self.config.host_kv_bytes
        return [("device", device), ("host", host)] if gpu else [("host", host)]

    def pays(self, segment: Segment, costs: Costs, tokens: Callable[[str], int]) -> bool:
        """True if KV of a group would save more than making it costs, were it used once more than until now."""
        n = sum(tokens(c.text) for c in segment.cubes)
        over_kv = costs.first_token([Lying(n, "cache")], 0, FidelityConfig(), 0, _QUESTION)
        saves = costs.forward(n + _QUESTION) - over_kv
        return (max(c.usage.recalls for c in segment.cubes) + 1) * saves > costs.forward(n)

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

        A derived cube is dropped when a source has changed, given up when its group is cold, another cube of its
        form stands for more of the group, or its budget is full. One given up before is left alone: it costs
        disk only, and is taken back without building it. KV is made where it `pays`. budgets: of whose cubes these
        are; see `budgets`. usable: by the model that is there; what is not keeps no group from getting what is.
        """
        current = {source for segment in segments for source in segment.sources}
        stale = [d for d in derived if not set(d.sources) <= current]
        live = [d for d in derived if d not in stale and d.state is State.ACTIVATED]
        heats: dict[str, float] = {}
        gives, promotes = [Move(None, cube=d, why="its sources changed") for d in stale], []
        for segment in segments:
            heat = self.policy.heat(segment.cubes, now)
            mine = [d for d in live if set(segment.sources) & set(d.sources)]
            heats |= {d.id: max(heat, heats.get(d.id, 0.0)) for d in mine}
            held = {d.form: d for d in mine if set(d.sources) >= set(segment.sources) and usable(d)}
            gives += [
                Move(None, cube=d, why=f"{held[d.form].id} stands for more")
                for d in mine
                if d.form in held and set(d.sources) < set(held[d.form].sources)
            ]
            quiet_s = (now - max(c.header.changed or c.header.created for c in segment.cubes)).total_seconds()
            form = self.policy.form(heat, quiet_s, held)
            if form and (form is not Form.ACTIVATION or pays(segment)):
                promotes.append(Move(form, segment, why=f"heat {heat:.1f}"))
        gives += [
            Move(None, cube=d, why=f"heat {heats.get(d.id, 0.0):.1f}")
            for d in live
            if self.policy.cold(heats.get(d.id, 0.0))
        ]
        given = {m.cube.id for m in gives if m.cube}
        budgets = budgets or self._budgets
        over, room = self._over_budget([d for d in live if d.id not in given], heats, budgets)
        return gives + over + [m for m in promotes if _need(m, derived) <= room[m.to or Form.PLAINTEXT]]

    def _over_budget(
        self, derived: Sequence[MemCube], heats: dict[str, float], budgets: Budgets
    ) -> tuple[list[Move], dict[Form, float]]:
        """Once a budget is taken up to the high mark, give up the coldest for their size, down to the low one; and what
        room is left."""
        moves, room = list[Move](), dict[Form, float]()
        for form, budget in budgets.items():
            of_form = [d for d in derived if d.form is form]
            items = [Item(heats.get(d.id, 0.0), _size(d)) for d in of_form]
            held, low, high = sum(i.cost for i in items), self.config.low_water, self.config.high_water
            going = above(items, held, low * budget, high * budget)
            moves += [Move(None, cube=of_form[n], why=f"over the budget of {form}") for n in going]
            room[form] = high * budget - held + sum(items[n].cost for n in going)
        return moves, room

    @property
    def _budgets(self) -> Budgets:
        return {Form.ACTIVATION: self.config.disk_kv_bytes, Form.PARAMETRIC: self.config.adapters}

    def budgets(self, user: str, held: Mapping[Form, Mapping[str, float]], limit: LimitConfig) -> Budgets:
        """What a user may take of bytes of KV and of adapters: its limit, and of what all share what others leave, but
        at least as much as anybody who wants more than it has.

        held: what each user has of them.
        """
        limits = {Form.ACTIVATION: limit.kv_bytes, Form.PARAMETRIC: limit.adapters}
        out = dict[Form, float]()
        for form, total in self._budgets.items():
            most = limits[form]
            out[form] = shares(total, {**held[form], user: math.inf if most is None else most})[user]
        return out


def apart(cube: MemCube) -> set[str]:
    """Names of what a memory must not stand beside; others have the same."""
    return {tag for tag in cube.header.tags if tag.startswith(APART)}


def _without_clashes(
    segments: Sequence[Segment], hits: Sequence[tuple[MemCube, float]], always: Sequence[MemCube]
) -> list[Segment]:
    """The groups without what must not stand beside one that was found, or is always seen; of others, the first stays.
    hits: without such themselves."""
    first = [*always, *(cube for cube, _ in hits)]
    mine, taken = {cube.id for cube in first}, {name for cube in first for name in apart(cube)}
    out = []
    for segment in segments:
        kept = []
        for cube in segment.cubes:
            if cube.id in mine or not apart(cube) & taken:
                kept.append(cube)
                taken |= apart(cube)
        if kept:
            out.append(segment if len(kept) == len(segment.cubes) else Segment(segment.key, tuple(kept)))
    return out


def _pinned(room: int, always: Sequence[MemCube], tokens: Callable[[str], int]) -> tuple[list[MemCube], int]:
    """Those of what every request should see that have room and may stand together, and the room that is left."""
    fitting, taken = list[MemCube](), set[str]()
    for cube in always:
        if not apart(cube) & taken:
            fitting.append(cube)
            taken |= apart(cube)
    kept = [fitting[n] for n in fill([Item(1.0, tokens(c.text)) for c in fitting], room)]
    if len(kept) < len(fitting):
        log.warning(
            "of %d memories tagged %s, %d have no room in the prompt", len(fitting), ALWAYS, len(fitting) - len(kept)
        )
    return kept, room - sum(tokens(c.text) for c in kept)


def _most_in(
    room: int, groups: Sequence[Sequence[MemCube]], scores: Mapping[str, float], tokens: Callable[[str], int]
) -> list[MemCube]:
    """The groups that are worth most together in a room of so many tokens, each as much as its best memory; where not
    one fits whole, the memories of the best group that are."""

    least = min([0.0, *scores.values()])  # some policies count down from 0

    def worth(cubes: Sequence[MemCube]) -> float:
        return max((scores.get(c.id, least) for c in cubes), default=least) - least

    best = [group for group in groups if group]
    items = [Item(max(worth(g), _SOME), sum(tokens(c.text) for c in g)) for g in best]
    if chosen := fill(items, room):
        return [cube for n in chosen for cube in best[n]]
    one = best[0] if best else []
    return [one[n] for n in fill([Item(max(worth([c]), _SOME), tokens(c.text)) for c in one], room)]


def _size(cube: MemCube) -> int:
    """What a derived cube takes of its budget."""
    assert cube.blob
    return cube.blob.bytes if cube.form is Form.ACTIVATION else 1


def _need(move: Move, derived: Sequence[MemCube]) -> int:
    """What a promotion takes of its budget: as much as before, so that what was given up for want of room stays out."""
    assert move.segment
    before = (d for d in derived if d.form is move.to and d.sources == move.segment.sources)
    return max((_size(d) for d in before), default=1)


def _in_use(fidelity: FidelityConfig) -> FidelityConfig:
    """Without the settings that its level does not look at, so that two that do the same are the same."""
    unused = {"L2": ("share",), "L3": ()}.get(fidelity.level, ("first_tokens", "share"))
    return fidelity.model_copy(update={name: FidelityConfig.model_fields[name].default for name in unused})


def speaks_of(about: Sequence[str], texts: Iterable[str]) -> bool:
    """True if one of the texts names one of those, or nobody is named: an adapter that answers for a stranger is wrong,
    however sure it is."""
    said = " ".join(texts)
    return not about or any(_word(name).search(said) for name in about)


def _word(name: str) -> re.Pattern[str]:
    """A name by itself and not within a word; in scripts without spaces, anywhere."""
    word = re.escape(name)
    return re.compile(rf"\b{word}\b" if name.isascii() else word, re.IGNORECASE)


def _standing_for(segments: Sequence[Segment], adapters: Sequence[MemCube]) -> list[MemCube]:
    """An adapter for each group that has one, in the order of the groups."""
    found = (next((a for a in adapters if set(s.sources) <= set(a.sources)), None) for s in segments)
    return list({a.id: a for a in found if a}.values())


def composable(adapters: Sequence[MemCube], most: int) -> tuple[MemCube, ...]:
    """The first of them, and those that were judged together with all that are taken; oldest first, as trained."""
    taken: list[MemCube] = []
    for adapter in adapters[: None if most > 1 else 1]:
        if len(taken) < most and all(_together(adapter, other) for other in taken):
            taken.append(adapter)
    return tuple(sorted(taken, key=lambda a: a.order))


def _together(one: MemCube, other: MemCube) -> bool:
    a, b = one.blob, other.blob
    return bool(a and b and (a.sha256 in b.beside or b.sha256 in a.beside))


def _held(chosen: Sequence[Segment], kvs: Sequence[MemCube]) -> list[MemCube]:
    """For each group, the KV of most of its cubes; oldest first, so that the same ones are put together alike.

    KV is of the first cubes of its group, in order and at their versions, so that its text comes before the rest's.
    Trained KV has not a row for each token, so no other can be put behind it.
    """
    fitting = [[kv for kv in kvs if segment.sources[: len(kv.sources)] == kv.sources] for segment in chosen]
    best = [max(group, key=lambda kv: len(kv.sources)) for group in fitting if group]
    if len(best) > 1 and any(map(_is_trained, best)):
        return _held(chosen, [kv for kv in kvs if not _is_trained(kv)]) or best[:1]
    return sorted(best, key=lambda kv: kv.id)


def _is_trained(kv: MemCube) -> bool:
    return kv.blob is not None and kv.blob.codec == "trained"
