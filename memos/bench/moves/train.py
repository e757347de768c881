"""Adapters and KV of few rows that are trained: what the quicker moves are held against."""

from __future__ import annotations

import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from memos.bench.moves.compact import FACTS
from memos.bench.moves.row import Measure, Row
from memos.bench.promote import SHARE, Matter, matter
from memos.config import DistilConfig, GateConfig
from memos.cube import AT_LEAST
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.teach import Task, judge, judge_kv, share, short_of
from memos.interface.doors.progress import Show
from memos.plugins.training.craft import teach, teach_kv


def training(name: str, kv: bool) -> Measure:
    """A measurement of adapters, or of trained KV. same_answer: held-out questions answered right. control: those of
    another group, answered right."""

    def measure(host: Host, groups: int, seed: int, show: Show) -> Row:
        of = [matter(host, f"moves {seed} {n}", FACTS, seed + n) for n in range(groups + 1)]
        seconds, sizes, scores, control = list[float](), list[int](), list[dict[str, float]](), list[float]()
        with tempfile.TemporaryDirectory() as folder:
            for n, (group, other) in enumerate(pairwise(of), 1):
                began, path = time.perf_counter(), Path(folder) / f"{n}"
                task = Task(
                    lessons=group.lessons,
                    keep=group.keep,
                    config=DistilConfig(seed=seed + n),
                    memories=group.texts if kv else (),
                    share=SHARE,
                )
                (teach_kv if kv else teach)(host, task, path, lambda *_: None)
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

    return measure


def _judged(host: Host, path: Path, made_of: Matter, asked: Matter, kv: bool) -> dict[str, float]:
    if kv:
        return judge_kv(host, path, made_of.texts, asked.lessons, made_of.keep)
    return judge(host, (path,), asked.lessons, made_of.keep)
