"""Decides what a request sees: values, and the choice among them; knows budgets, not how a form is built or stored."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from memos.cube import Form, MemCube, Namespace, State
from memos.errors import EmptyMemory
from memos.operation.policies.policy import Policy, Ranked, Segment

if TYPE_CHECKING:
    from memos.config import SchedulerConfig
    from memos.operation.choosing.cost_model import Way
    from memos.rights import Caller

log = logging.getLogger("memos")
ALWAYS, APART = "always", "apart:"  # tags: in every request; in none beside another of that name
UNKNOWN_WORTH = 1e-3  # what a memory is worth that nothing speaks for, beside others of its group
CONTEXT_SHARE = 0.75  # the rest is for the question, what was said before it, and the answer
MAX_PARTIAL_CHOICES = 256  # beyond, every other one is dropped
Via = Literal["none", "plaintext", "activation", "parametric", "auto"]
# (adapters, at least one) -> those that know, best first
Route = Callable[[Sequence[MemCube], bool], Sequence[MemCube]]


@dataclass(frozen=True)
class Admission:
    """What a request sees: cubes in order; KV of the first of them; adapters that know others."""

    cubes: tuple[MemCube, ...] = ()
    activations: tuple[MemCube, ...] = ()  # in canonical order, which is that of `cubes`
    adapters: tuple[MemCube, ...] = ()  # active together, oldest first
    internal: tuple[MemCube, ...] = ()  # the cubes that the adapters stand for
    pinned: tuple[MemCube, ...] = ()  # those of `cubes` that are always seen, and were not found
    steering: tuple[MemCube, ...] = ()  # directions that every answer is steered by, beside the adapters
    way: Way | None = None  # how KV and text were chosen between, where there was a choice
    found: tuple[tuple[MemCube, Mapping[str, float]], ...] = ()  # what was, best first, with its signals

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
class Session:
    """A conversation that memos keeps, and who reads it: their rights decide what of it is shown."""

    namespace: Namespace
    reader: Caller


@dataclass(frozen=True)
class Talk:
    """A question, with what was said before it: `turns` that the caller gave, or `earlier` ones of a session.

    again: the session is read again, whatever KV there is of it.
    """

    question: str
    turns: tuple[dict[str, str], ...] = ()
    session: Session | None = None
    earlier: tuple[MemCube, ...] = ()
    again: bool = False


class MemScheduler:
    """Budgets and moves around a policy."""

    def __init__(self, config: SchedulerConfig, policy: Policy) -> None:
        self.config, self.policy = config, policy

    def segments(self, cubes: Sequence[MemCube], tokens: Callable[[str], int]) -> list[Segment]:
        """Topic groups of plaintext cubes; a group of more than segment_tokens tokens is cut in time order. What must
        not stand beside something else is a group of its own."""
        out, groups = list[Segment](), defaultdict[str, list[MemCube]](list)
        for cube in sorted(cubes, key=lambda c: c.order):
            if apart(cube):
                out.append(Segment(cube.header.segment, (cube,)))
            else:
                groups[cube.header.segment].append(cube)
        for key, group in sorted(groups.items()):
            taken: list[MemCube] = []
            room = self.config.segment_tokens
            for cube in group:
                need = tokens(cube.text)
                if taken and need > room:
                    out.append(Segment(key, tuple(taken)))
                    taken, room = [], self.config.segment_tokens
                taken.append(cube)
                room -= need
            out.append(Segment(key, tuple(taken)))
        return out

    def admit(
        self,
        hits: Ranked,
        about: Sequence[str],
        segments: Sequence[Segment],
        derived: Sequence[MemCube],
        tokens: Callable[[str], int],
        via: Via = "auto",
        route: Route | None = None,
        always: Sequence[MemCube] = (),
        context: int | None = None,
    ) -> Admission:
        """Choose what the request sees and in which form.

        The policy says what may be admitted, as the whole topic groups of the best-ranked memories; what has room in
        the token budget is. An adapter costs no tokens and a KV cache no prefill, so `auto` takes the dearest form
        that stands for a group; a form asked for by name is taken or refused with EmptyMemory. route: which of the
        adapters of near groups that speak of what the question is about know the answer, by how they differ from the
        base; without it, that of the best group is taken to know. always: what every request sees, before all else.
        context: of the model, in tokens; memories take CONTEXT_SHARE of it at most.
        """
        if via == "none":
            return Admission()
        room = self.config.prompt_tokens
        if context:
            room = min(room, int(CONTEXT_SHARE * context))
        pinned, room = _pinned(room, always, tokens)
        hits, segments = self.compatible(hits, pinned), _compatible_groups(segments, hits, pinned)
        ranked = self.policy.admit(self.policy.rank(hits), segments, lambda cube: tokens(cube.text), room)
        shown = {cube.id for cube in pinned}
        ranked = [group for group in ranked if not shown.issuperset(cube.id for cube in group.cubes)]
        chosen = ranked[: self.config.segments]
        if not chosen and via in ("activation", "parametric"):
            raise EmptyMemory(f"nothing remembered is near enough to the question, so no {via} memory serves it")
        live = [d for d in derived if d.state is State.ACTIVATED]
        adapters, kvs = tuple[MemCube, ...](), list[MemCube]()
        if chosen and via in ("parametric", "auto"):
            adapters = self._knowing(ranked, [d for d in live if d.form is Form.PARAMETRIC], about, via, route)
            home = [s for s in ranked if any(set(s.sources) <= set(a.sources) for a in adapters)]
            chosen = [*home, *(s for s in chosen if s not in home)]
        if chosen and via in ("activation", "auto") and not adapters:  # KV made without an adapter is wrong under it
            kvs = _standing_kv(chosen, [d for d in live if d.form is Form.ACTIVATION])
        if via in ("parametric", "activation") and not adapters and not kvs:
            raise EmptyMemory(
                f"no {via} memory stands for {chosen[0].key or 'these memories'}; promote them first "
                f"(`promote(ids, to={via!r})` or a promote step), or ask via auto"
            )
        return _admission(chosen, kvs, adapters, pinned, room, {cube.id: score for cube, score in hits}, tokens)

    def _knowing(
        self,
        ranked: Sequence[Segment],
        adapters: Sequence[MemCube],
        about: Sequence[str],
        via: Via,
        route: Route | None,
    ) -> tuple[MemCube, ...]:
        """The adapters that answer: of those of near groups, which the route takes to know."""
        named = [s for s in ranked if speaks_of(about, [s.key, *(c.text for c in s.cubes)])]
        among = (named or (ranked if via == "parametric" else [])) if route else ranked[:1]
        near = _standing_for(among, adapters)
        return composable(route(near, via == "parametric") if route and near else near, self.config.adapters_together)

    def compatible(self, hits: Ranked, always: Sequence[MemCube]) -> list[tuple[MemCube, float]]:
        """Without the hits that must not stand beside one that is ranked before them, or beside what is always seen."""
        ranked, taken = self.policy.rank(hits), {name for cube in always for name in apart(cube)}
        mine = {cube.id for cube in always}
        kept = {cube.id for cube in _without_clashes((cube for cube, _ in ranked), taken, mine)}
        return [(cube, score) for cube, score in ranked if cube.id in kept]

    def looked_at(self, hits: Ranked, derived: Sequence[MemCube]) -> list[str]:
        """Those of the hits whose topic groups may be admitted: of as many groups as there is room for, and those that
        an adapter of `derived` knows, which may answer instead. Only these groups are read."""
        ranked = [cube for cube, _ in self.policy.rank(hits)]
        keys = list(dict.fromkeys(cube.header.segment.casefold() for cube in ranked))[: self.config.segments]
        known = {source.id for d in derived if d.form is Form.PARAMETRIC for source in d.sources}
        return [cube.id for cube in ranked if cube.header.segment.casefold() in keys or cube.id in known]


def _admission(
    chosen: Sequence[Segment],
    kvs: Sequence[MemCube],
    adapters: tuple[MemCube, ...],
    pinned: Sequence[MemCube],
    room: int,
    scores: Mapping[str, float],
    tokens: Callable[[str], int],
) -> Admission:
    """What KV and adapters stand for, what every request sees, and of the rest what has room."""
    admitted, inside = list[MemCube](), list[MemCube]()
    if kvs or adapters:
        known = {source for adapter in adapters for source in adapter.sources}
        every = {c.pin: c for segment in chosen for c in segment.cubes}
        admitted = [every[source] for kv in kvs for source in kv.sources]
        inside = [cube for source, cube in every.items() if source in known]
    covered = {cube.id for cube in (*admitted, *inside)}
    first = {cube.id: cube for cube in pinned if cube.id not in covered}
    rest = [[c for c in group.cubes if c.id not in covered and c.id not in first] for group in chosen]
    admitted += [*first.values(), *_most_in(room, rest, scores, tokens)]
    unfound = tuple(cube for cube in pinned if cube.id not in scores)
    return Admission(tuple(admitted), tuple(kvs), adapters, tuple(inside), pinned=unfound)


def apart(cube: MemCube) -> Set[str]:
    """Names of what a memory must not stand beside; others have the same."""
    return {tag for tag in cube.header.tags if tag.startswith(APART)} if cube.header.tags else frozenset()


def _without_clashes(cubes: Iterable[MemCube], taken: set[str], settled: Collection[str] = ()) -> list[MemCube]:
    """The cubes, in order, without those that must not stand beside one before them, or beside what has a name that is
    taken; names of those that stay are taken, too. settled: ids of those that stay anyhow."""
    out = list[MemCube]()
    for cube in cubes:
        names = apart(cube)
        if not names or cube.id in settled or not names & taken:
            out.append(cube)
            taken |= names
    return out


def _compatible_groups(segments: Sequence[Segment], hits: Ranked, always: Sequence[MemCube]) -> list[Segment]:
    """The groups without what must not stand beside one that was found, or is always seen; of others, the first stays.
    hits: without such themselves."""
    first = [*always, *(cube for cube, _ in hits)]
    mine, taken = {cube.id for cube in first}, {name for cube in first for name in apart(cube)}
    groups = (Segment(one.key, tuple(_without_clashes(one.cubes, taken, mine))) for one in segments)
    return [group for group in groups if group.cubes]


def _pinned(room: int, always: Sequence[MemCube], tokens: Callable[[str], int]) -> tuple[list[MemCube], int]:
    """Those of what every request should see that have room and may stand together, and the room that is left."""
    fitting = _without_clashes(always, set())
    shown = [fitting[n] for n in fill([BudgetItem(1.0, tokens(c.text)) for c in fitting], room)]
    if left := len(fitting) - len(shown):
        log.warning("of %d memories tagged %s, %d have no room in the prompt", len(fitting), ALWAYS, left)
    return shown, room - sum(tokens(c.text) for c in shown)


def _most_in(
    room: int, groups: Sequence[Sequence[MemCube]], scores: Mapping[str, float], tokens: Callable[[str], int]
) -> list[MemCube]:
    """The groups that are worth most together in a room of so many tokens, each as much as its best memory, and in the
    room they leave what was found of the others; where not one fits whole, the memories of the best group that are.
    Oldest first."""

    least = min([0.0, *scores.values()])  # some policies count down from 0

    def item(part: Sequence[MemCube]) -> BudgetItem:
        worth = max(scores.get(cube.id, least) for cube in part) - least
        return BudgetItem(max(worth, UNKNOWN_WORTH), sum(tokens(cube.text) for cube in part))

    there = [group for group in groups if group]
    items = [item(group) for group in there]
    whole = fill(items, room)
    taken = [cube for n in whole for cube in there[n]]
    if whole:
        single = [c for n, group in enumerate(there) if n not in whole for c in group if c.id in scores]
    else:
        single = [cube for group in there[:1] for cube in group]
    left = room - sum(items[n].cost for n in whole)
    taken += [single[n] for n in fill([item((cube,)) for cube in single], left)]
    return sorted(taken, key=lambda cube: cube.order)


def speaks_of(about: Sequence[str], texts: Iterable[str]) -> bool:
    """True if one of the texts names one of those, or nobody is named: an adapter that answers for a stranger is wrong,
    however sure it is."""
    whole = " ".join(texts)
    return not about or any(_word(name).search(whole) for name in about)


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


def _standing_kv(chosen: Sequence[Segment], kvs: Sequence[MemCube]) -> list[MemCube]:
    """For each group, the KV of most of its cubes; oldest first, so that the same ones are put together alike.

    KV is of the first cubes of its group, in order and at their versions, so that its text comes before the rest's.
    Trained KV, and that of pictures, has not a row for each token, so no other can be put behind it; of compact KV the
    rows tell what they stand for.
    """
    fitting = [[kv for kv in kvs if segment.sources[: len(kv.sources)] == kv.sources] for segment in chosen]
    best = [max(group, key=lambda kv: len(kv.sources)) for group in fitting if group]
    if len(best) > 1 and any(map(_stands_alone, best)):
        return _standing_kv(chosen, [kv for kv in kvs if not _stands_alone(kv)]) or best[:1]
    return sorted(best, key=lambda kv: kv.id)


def _stands_alone(kv: MemCube) -> bool:
    return kv.blob is not None and (kv.blob.codec == "trained" or kv.blob.pictures > 0)


class BudgetItem(NamedTuple):
    """value: in any one unit, more is better; cost: what it takes of the budget, 0 or more."""

    value: float
    cost: float


class _Choice(NamedTuple):
    cost: float
    value: float
    last: int  # the last item in it, -1 for none
    before: _Choice | None


def fill(items: Sequence[BudgetItem], room: float) -> list[int]:
    """The places of the items that are worth most together and fit the room, in order; those of no value are left out.

    Exact, by the choices that no other is both cheaper and better than (Nemhauser and Ullmann, 1969), as long as these
    are few; of more than some hundreds every other one is dropped on the way.
    """
    front = [_Choice(0.0, 0.0, -1, None)]
    worth = [item.value / item.cost if item.cost else float("inf") for item in items]
    order = sorted(range(len(items)), key=lambda n: -worth[n])  # the best first: bounds get sharp early
    for n in order:
        value, cost = items[n]
        if value <= 0 or cost > room:
            continue
        more = [_Choice(c.cost + cost, c.value + value, n, c) for c in front if c.cost + cost <= room]
        front = _undominated(sorted([*front, *more], key=lambda c: (c.cost, -c.value)))
        if len(front) > MAX_PARTIAL_CHOICES:
            front = front[:1] + front[1 :: len(front) // MAX_PARTIAL_CHOICES + 1] + front[-1:]
    chosen, choice = list[int](), front[-1]
    while choice.before is not None:
        chosen.append(choice.last)
        choice = choice.before
    return sorted(chosen)


def _undominated(choices: Sequence[_Choice]) -> list[_Choice]:
    """Of choices in the order of their cost, those that are better than every cheaper one."""
    better = list[_Choice]()
    for choice in choices:
        if not better or choice.value > better[-1].value:
            better.append(choice)
    return better
