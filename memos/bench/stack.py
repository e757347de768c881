"""`memos bench stack`: measures several adapters active at once, by the way they are combined.

independent: each trained by itself, all active (`cat`). averaged, ties: the same, merged. routed: the one that
differs most from the base answers. stack-aware: each trained beside those before it, all active.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memos.bench.baselines import merged
from memos.bench.promote import Matter, matter
from memos.config import DistilConfig, SchedulerConfig
from memos.cube import Contrast, Probe
from memos.errors import InputError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.teach import Task, agreed, as_answered, judge, share
from memos.interface.reading.contrasts import NAMES
from memos.interface.reading.mem_reader import MemReader
from memos.operation.choosing.mem_scheduler import speaks_of
from memos.plugins.progress import Show
from memos.plugins.training.craft import teach

STEPS = 150  # enough for so few
SIZES = (1, 2, 4, 6)
_AWARE = 6  # adapters that are trained to be active together; more are routed


def bench_stack(host: Host, sizes: Sequence[int], facts: int, seed: int, show: Show) -> dict[str, Any]:
    """A row for each method and number of adapters: generality over the held-out questions of all, and locality.

    routed_top1: share of all questions sent to the adapter that knows; none_right: of unrelated ones sent to none.
    """
    most, beside = max(sizes), max((n for n in sizes if n <= _AWARE), default=0)
    about = _strangers(host, most, facts, seed)
    brief, whole = DistilConfig(seed=seed, steps=STEPS), DistilConfig(seed=seed)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        alone, aware = list[Path](), list[Path]()
        for n, one in enumerate(about):
            alone.append(_made(host, one, brief, (), Path(name) / f"alone{n}"))
            if n < beside:  # the first has none before it
                aware.append(_made(host, one, whole, tuple(aware), Path(name) / f"aware{n}") if aware else alone[0])
            show("adapters", n + 1, most)
        for n in sorted(sizes):
            lessons = agreed([lesson for one in about[:n] for lesson in one.lessons])
            keep = _of_all(host, about[:n], seed)
            for method, stack in (
                ("independent", tuple(alone[:n])),
                ("averaged", (merged(host, alone[:n], "linear", Path(name) / f"averaged{n}"),)),
                ("ties", (merged(host, alone[:n], "ties", Path(name) / f"ties{n}"),)),
                ("stack-aware", tuple(aware[:n])),
            ):
                if method == "stack-aware" and n > _AWARE:
                    continue
                rows.append({"method": method, "n": n} | judge(host, stack, lessons, keep))
            rows.append({"method": "routed", "n": n} | _routed(host, alone[:n], about[:n], keep))
            show("stack", n, most)
    return {"model": host.describe(), "facts": facts, "rows": rows}


def _strangers(host: Host, count: int, facts: int, seed: int) -> list[Matter]:
    """Facts about one person each, of whom no two have the same name."""
    if count > len(NAMES):
        raise InputError(f"there are names for {len(NAMES)} adapters, and {count} were asked for; give a smaller --n")
    out, names, n = list[Matter](), set[str](), 0
    while len(out) < count:
        about = matter(host, f"stack {seed} {n}", facts, seed + n, 1)
        subjects = {fact.subject for text in about.texts for fact in MemReader().facts(text)}
        if names.isdisjoint(subjects):
            out.append(about)
            names |= subjects
        n += 1
    return out


def _made(host: Host, about: Matter, config: DistilConfig, stack: tuple[Path, ...], folder: Path) -> Path:
    task = Task(lessons=about.lessons, keep=about.keep, config=config, stack=stack)
    teach(host, task, folder, lambda *_: None)
    return folder


def _of_all(host: Host, about: Sequence[Matter], seed: int) -> tuple[Contrast, ...]:
    """What must stay where all are active: what concerns none of them."""
    reader = MemReader()
    facts = [fact for one in about for text in one.texts for fact in reader.facts(text)]
    return tuple(reader.contrasts(facts, host.own_questions(), seed))


def _routed(host: Host, folders: Sequence[Path], about: Sequence[Matter], keep: Sequence[Contrast]) -> dict[str, Any]:
    """And, for the threshold: what 2 % of the known questions stay below, and what 2 % of the unrelated ones exceed."""
    threshold, reader = SchedulerConfig().route_nats, MemReader()

    def best(question: str) -> tuple[float, int]:
        near = [n for n, one in enumerate(about) if speaks_of(reader.recall(question).about, one.texts)]
        nats = host.divergences([{"role": "user", "content": question}], [(folders[n],) for n in near])
        return max(zip(nats, near, strict=True), default=(0.0, 0))

    clear = agreed([lesson for one in about for lesson in one.lessons])
    asked = [(n, lesson) for n, one in enumerate(about) for lesson in one.lessons if lesson in clear]
    known = [best(lesson.probe.question) for _, lesson in asked]
    chosen = [n if nats >= threshold else None for nats, n in known]
    right = _right(host, [x.probe for _, x in asked], [() if n is None else (folders[n],) for n in chosen])
    kept = as_answered(host, [k for k in keep if k.held_out and not k.memories])
    unrelated = [best(k.question) for k, _ in kept]
    off = [n if nats >= threshold else None for nats, n in unrelated]
    same = [
        n is None or host.greedy([host.ids_of(k.question)], host.cold((folders[n],)))[0] == ids
        for n, (k, ids) in zip(off, kept, strict=True)
    ]
    held_out = [lesson.probe.held_out for _, lesson in asked]
    return {
        "reliability": share([ok for ok, held in zip(right, held_out, strict=True) if not held]),
        "generality": share([ok for ok, held in zip(right, held_out, strict=True) if held]),
        "locality": share(same),
        "routed_top1": share([n == own for n, (own, _) in zip(chosen, asked, strict=True)]),
        "none_right": share([n is None for n in off]),
        "known_nats": sorted(nats for nats, _ in known)[len(known) // 50],
        "unrelated_nats": _high([nats for nats, _ in unrelated if nats]),  # of those that some adapter was asked
    }


def _high(nats: Sequence[float]) -> float:
    """What 2 % of them exceed."""
    return sorted(nats)[-1 - len(nats) // 50] if nats else 0.0


def _right(host: Host, probes: Sequence[Probe], stacks: Sequence[tuple[Path, ...]]) -> list[bool]:
    """Whether each probe is answered right under its adapters."""
    out = dict[int, bool]()
    for stack in dict.fromkeys(stacks):
        mine = [n for n, other in enumerate(stacks) if other == stack]
        said = host.greedy([host.ids_of(probes[n].question) for n in mine], host.cold(stack))
        out |= {n: probes[n].holds(host.text_of(ids)) for n, ids in zip(mine, said, strict=True)}
    return [out[n] for n in range(len(probes))]
