"""KV of a quarter and of a tenth of the rows, found without training, against the whole KV of the same groups."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from memos.bench.moves.row import Measure, Row
from memos.bench.promote import Matter, matter
from memos.config import GateConfig
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.training.teach import judge_kv, share, short_of
from memos.plugins.progress import Show
from memos.plugins.training.compact import compacted

FACTS = 16


def compacting(name: str, part: float) -> Measure:
    """A measurement of KV in so small a part of its rows. accepted: of the groups whose whole KV passes the gate, as
    the model cannot answer over the text of each; control: asked over the compact KV of another group."""

    def measure(host: Host, groups: int, seed: int, show: Show) -> Row:
        of = [matter(host, f"moves {seed} {n}", FACTS, seed + n) for n in range(groups)]
        seconds, sizes, same, control, local, accepted = ([] for _ in range(6))
        before: Activation | None = None
        with tempfile.TemporaryDirectory() as folder:
            for n, group in enumerate(of, 1):
                began, path = time.perf_counter(), Path(folder) / f"{n}"
                asked = [x.probe.question for x in group.lessons if not x.probe.held_out]
                kv = next(compacted(host, group.texts, asked, (part,)))
                host.save_kv(kv, path, "compact")
                seconds.append(time.perf_counter() - began)
                sizes.append(path.stat().st_size)
                scores = judge_kv(host, path, group.texts, group.lessons, group.keep)
                local.append(scores["locality"])
                host.save_kv(host.encode(group.texts), path.with_suffix(".whole"))
                whole = judge_kv(host, path.with_suffix(".whole"), group.texts, group.lessons, group.keep)
                if not short_of(whole, GateConfig()):
                    accepted.append(not short_of(scores, GateConfig()))
                same.append(_same(host, group, host.load_kv(path)))
                if before is not None:
                    control.append(_same(host, group, before))
                before = kv
                show(name, n, groups)
        return Row(
            move=name,
            groups=groups,
            seconds_p50=statistics.median(seconds),
            bytes_mean=round(statistics.fmean(sizes)),
            same_answer=statistics.fmean(same),
            locality=statistics.fmean(local),
            accepted=share(accepted),
            control=statistics.fmean(control) if control else 0.0,
        )

    return measure


def _same(host: Host, group: Matter, kv: Activation) -> float:
    """Share of the held-out questions on a group answered over `kv` as over its own text."""
    whole = host.encode(group.texts)
    asked = [x.probe.question for x in group.lessons if x.probe.held_out]
    tails = [host.ids_of(question, group.texts)[len(whole.ids) :] for question in asked]
    answers = zip(host.greedy(tails, None, whole), host.greedy(tails, None, kv), strict=True)
    return share([one == other for one, other in answers])
