"""Adapters, written in one forward and trained, and KV of few rows that is trained."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

from memos.bench.moves.compact import FACTS
from memos.bench.moves.row import Measure, Row
from memos.bench.promote import SHARE, Matter, matter
from memos.config import DistilConfig, GateConfig
from memos.cube import AT_LEAST, MadeBy
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.teach import Task, judge, judge_kv, share, short_of
from memos.plugins.progress import Show
from memos.plugins.training.craft import make, teach, teach_kv

Make = Callable[[Host, Task, Path], None]


def adapters(name: str, make: Make, merged: int = 1) -> Measure:
    """A measurement of adapters. same_answer: held-out questions answered right. control: those of another group,
    answered right. merged: groups, of two people each, that become one adapter."""
    return partial(_measured, name, make, False, merged)


def trained_kv(name: str) -> Measure:
    """The same of KV of few rows."""
    return partial(_measured, name, _train_kv, True, 1)


def train(host: Host, task: Task, path: Path) -> None:
    """Distillation."""
    teach(host, task, path, _quiet)


def write_or_train(host: Host, task: Task, path: Path) -> None:
    """In one forward; refined from there where that falls short of the gate."""
    make(host, task, MadeBy.INSTANT, path, _quiet)
    if short_of(judge(host, (path,), task.lessons, task.keep), task.config.gate):
        shutil.rmtree(path)
        make(host, task, MadeBy.REFINED, path, _quiet)


def _train_kv(host: Host, task: Task, path: Path) -> None:
    teach_kv(host, task, path, _quiet)


def _quiet(*_: object) -> None: ...


def _measured(name: str, make: Make, kv: bool, merged: int, host: Host, groups: int, seed: int, show: Show) -> Row:
    of = [matter(host, f"moves {seed} {n}", merged * FACTS, seed + n, 2 * merged) for n in range(groups + 1)]
    seconds, sizes, scores, control = list[float](), list[int](), list[dict[str, float]](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for n, (group, other) in enumerate(pairwise(of), 1):
            began, path = time.perf_counter(), Path(folder) / f"{n}"
            config, memories = DistilConfig(seed=seed + n), group.texts if kv else ()
            make(
                host, Task(lessons=group.lessons, keep=group.keep, config=config, memories=memories, share=SHARE), path
            )
            seconds.append(time.perf_counter() - began)
            sizes.append(sum(file.stat().st_size for file in (path, *path.glob("*")) if file.is_file()))
            scores.append(_judged(host, path, group, group, kv))
            control.append(_judged(host, path, group, other, kv)["generality"])
            show(name, n, groups)
    mean = {key: statistics.fmean(each[key] for each in scores) for key in scores[0] if not key.endswith(AT_LEAST)}
    return Row(
        move=name,
        groups=groups,
        seconds_p50=statistics.median(seconds),
        bytes_mean=round(statistics.fmean(sizes)),
        same_answer=mean["generality"],
        locality=mean["locality"],
        accepted=share([not short_of(each, GateConfig()) for each in scores]),
        control=statistics.fmean(control),
    )


def _judged(host: Host, path: Path, made_of: Matter, asked: Matter, kv: bool) -> dict[str, float]:
    if kv:
        return judge_kv(host, path, made_of.texts, asked.lessons, made_of.keep)
    return judge(host, (path,), asked.lessons, made_of.keep)
