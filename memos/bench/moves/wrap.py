"""Groups that were encoded apart, as they are behind others, composed without reading anything anew."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from memos.bench.moves.row import Measure, Row
from memos.bench.scenes import Scene, scene
from memos.cube import Probe
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.kv.compose import compose
from memos.infrastructure.host.training.teach import share
from memos.interface.reading.mem_reader import MemReader
from memos.plugins.codecs.wrapped import encode_wrapped
from memos.plugins.progress import Show

_QUESTIONS = 10  # of each scene, at most


def wrapping(name: str, cubes: int) -> Measure:
    """A measurement of so many cubes composed (L1). groups: scenes. locality: questions over the first cube alone
    answered as over its text; accepted: answers that are right, as a share of those over the full prompt that are;
    control: the same answers without wrapping."""

    def measure(host: Host, groups: int, seed: int, show: Show) -> Row:
        others = [text for k in MemReader().contrasts((), (), seed) for text in k.memories]
        motion, head = host.capability.motion, len(host.head)
        assert motion is not None
        seconds, sizes = list[float](), list[int]()
        same, plain, local, right, right_full = ([] for _ in range(5))
        for n, (drawn, probes) in enumerate(_scenes(f"{seed}:{cubes}", cubes, groups), 1):
            pasts = []
            for cube in drawn.cubes:
                began = time.perf_counter()
                pasts.append(encode_wrapped(host, cube, others))
                seconds.append(time.perf_counter() - began)
            sizes.append(_bytes(host, pasts[0]))
            memories = sum(drawn.cubes, ())
            whole = host.encode(memories)
            tails = [host.ids_of(p.question, memories)[len(whole.ids) :] for p in probes]
            full = host.greedy(tails, None, whole)
            wrapped = host.greedy(tails, None, compose(pasts, head, motion))
            unwrapped = host.greedy(tails, None, compose([host.encode(cube) for cube in drawn.cubes], head, motion))
            same += [a == b for a, b in zip(full, wrapped, strict=True)]
            plain += [a == b for a, b in zip(full, unwrapped, strict=True)]
            right += [p.holds(host.text_of(ids)) for p, ids in zip(probes, wrapped, strict=True)]
            right_full += [p.holds(host.text_of(ids)) for p, ids in zip(probes, full, strict=True)]
            local += _alone(host, drawn.cubes[0], pasts[0], probes)
            show(name, n, groups)
        return Row(
            move=name,
            groups=groups,
            seconds_p50=statistics.median(seconds),
            bytes_mean=round(statistics.fmean(sizes)),
            same_answer=share(same),
            locality=share(local),
            accepted=min(1.0, sum(right) / max(1, sum(right_full))),
            control=share(plain),
        )

    return measure


def _scenes(key: str, cubes: int, count: int) -> Iterator[tuple[Scene, list[Probe]]]:
    for n in range(count):
        drawn = scene(f"{key}:{n}", cubes)
        yield drawn, [*drawn.two, *drawn.one][:_QUESTIONS]


def _alone(host: Host, cube: tuple[str, ...], kv: Activation, probes: list[Probe]) -> list[bool]:
    tails = [host.ids_of(probe.question, cube)[len(kv.ids) :] for probe in probes]
    pairs = zip(host.greedy(tails, None, host.encode(cube)), host.greedy(tails, None, kv), strict=True)
    return [one == other for one, other in pairs]


def _bytes(host: Host, kv: Activation) -> int:
    with tempfile.TemporaryDirectory() as folder:
        host.save_kv(kv, Path(folder) / "kv", "wrapped")
        return (Path(folder) / "kv").stat().st_size
