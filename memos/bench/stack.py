"""`memos bench stack`: several adapters at once, by the way in which they are put together.

independent: each trained by itself, all active (`cat`). averaged, ties: the same, merged. routed: the one that
differs most from the base answers. stack-aware: each trained beside those before it, all active.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memos.bench.promote import Matter, matter
from memos.config import DistilConfig, SchedulerConfig
from memos.cube import Lesson
from memos.infrastructure.host.baselines import merged
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.teach import Task, as_answered, judge, share, teach
from memos.interface.progress import Show

FACTS = 4  # of each adapter
STEPS = 150  # enough for so few
SIZES = (1, 2, 4, 6)


def bench_stack(host: Host, sizes: Sequence[int], facts: int, seed: int, show: Show) -> dict[str, Any]:
    """A row for each method and number of adapters: generality over the held-out questions of all, and locality.

    routed_top1: share of all questions sent to the adapter that knows; none_right: of unrelated ones sent to none.
    """
    most = max(sizes)
    about = [matter(host, f"stack {seed} {n}", facts, seed + n, 1) for n in range(most)]
    config = DistilConfig(seed=seed, steps=STEPS)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        alone, aware = list[Path](), list[Path]()
        for n, one in enumerate(about):
            for folders, stack in ((alone, ()), (aware, tuple(aware))):
                folder = Path(name) / f"{'aware' if folders is aware else 'alone'}{n}"
                if n == 0 and aware is folders:
                    folders.append(alone[0])  # the first has none before it
                else:
                    teach(
                        host,
                        Task(lessons=one.lessons, keep=one.keep, config=config, stack=stack),
                        folder,
                        lambda *_: None,
                    )
                    folders.append(folder)
            show("adapters", n + 1, most)
        for n in sorted(sizes):
            lessons = tuple(lesson for one in about[:n] for lesson in one.lessons)
            keep = _of_all(host, about[:n], seed)
            for method, stack in (
                ("independent", tuple(alone[:n])),
                ("averaged", (merged(host, alone[:n], "linear", Path(name) / f"averaged{n}"),)),
                ("ties", (merged(host, alone[:n], "ties", Path(name) / f"ties{n}"),)),
                ("stack-aware", tuple(aware[:n])),
            ):
                rows.append({"method": method, "n": n} | judge(host, stack, lessons, keep))
            rows.append({"method": "routed", "n": n} | _routed(host, alone[:n], about[:n], keep))
            show("stack", n, most)
    return {"model": host.describe(), "facts": facts, "rows": rows}


def _of_all(host: Host, about: Sequence[Matter], seed: int) -> tuple[Any, ...]:
    """What must stay where all are active: what concerns none of them."""
    from memos.interface.mem_reader import MemReader

    reader = MemReader()
    facts = [fact for one in about for text in one.texts for fact in reader.facts(text)]
    return tuple(reader.contrasts(facts, host.own_questions(), seed))


def _routed(host: Host, folders: Sequence[Path], about: Sequence[Matter], keep: Sequence[Any]) -> dict[str, Any]:
    threshold = SchedulerConfig().route_nats

    def choice(question: str) -> int | None:
        nats = host.divergences([{"role": "user", "content": question}], [(folder,) for folder in folders])
        best = max(range(len(nats)), key=lambda n: nats[n])
        return best if nats[best] >= threshold else None

    asked = [(n, lesson) for n, one in enumerate(about) for lesson in one.lessons]
    chosen = [choice(lesson.probe.question) for _, lesson in asked]
    stacks = [() if n is None else (folders[n],) for n in chosen]
    right = [ok for ok in _right(host, [lesson for _, lesson in asked], stacks)]
    kept = as_answered(host, [k for k in keep if k.held_out and not k.memories])
    off = [choice(k.question) for k, _ in kept]
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
    }


def _right(host: Host, lessons: Sequence[Lesson], stacks: Sequence[tuple[Path, ...]]) -> list[bool]:
    out = dict[int, bool]()
    for stack in dict.fromkeys(stacks):
        mine = [n for n, other in enumerate(stacks) if other == stack]
        said = host.greedy([host.ids_of(lessons[n].probe.question) for n in mine], host.cold(stack))
        out |= {n: lessons[n].probe.holds(host.text_of(ids)) for n, ids in zip(mine, said, strict=True)}
    return [out[n] for n in range(len(lessons))]
