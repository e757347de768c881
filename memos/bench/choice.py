"""`memos bench choice`: compares the scheduler's choice of text, KV or recompute with the measured best."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from memos.bench.doctor import verdict_on
from memos.bench.scenes import scene
from memos.config import DecodeConfig, FidelityConfig, SchedulerConfig
from memos.cube import Blob, Form, Header, MemCube, Rights, Text
from memos.errors import Unsupported
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.model.measure import PAUSE_S, drop_from_page_cache
from memos.infrastructure.host.request import Request
from memos.operation.choosing.cost_model import Costs, Lying, Situation, Ways
from memos.operation.choosing.mem_scheduler import Admission
from memos.operation.policies.memos import MemosPolicy
from memos.plugins.progress import Show

CODECS: tuple[str, ...] = ("raw", "int4")
PLACES = ("host", "cache", "disk")
LEVELS = (
    FidelityConfig(level="L0"),
    FidelityConfig(level="L1"),
    FidelityConfig(level="L2"),
    FidelityConfig(level="L3"),
)
FACTS = (1, 2, 4, 8, 16, 32)  # statements of a cube
NEAR = 0.05  # as good as the best: what is measured twice differs by so much
_ONE = DecodeConfig(max_new_tokens=1)
_Way = tuple[int, FidelityConfig | None]  # how many caches are used, at which level


@dataclass(frozen=True)
class Case:
    """Memories of which the first cubes have KV that lies in some place, and a question."""

    cubes: tuple[tuple[str, ...], ...]
    with_kv: int
    question: str
    place: str
    codec: str
    levels: tuple[FidelityConfig, ...]


def bench_choice(host: Host, cases: int, repeats: int, seed: int, show: Show) -> dict[str, Any]:
    """A row for each case: what was chosen, what it took, and what the best and the full prompt took (medians, ms).

    The way that was best is found in every other round, and the times are those of the rounds between.

    right: share of cases in which the choice took at most 5 % longer than the best; slower_than_full: the most that
    a choice took longer than the full prompt.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs = Costs.model_validate(host.measure(folder, CODECS))
        ways = Ways(SchedulerConfig(), MemosPolicy(SchedulerConfig()))
        rng, rows = random.Random(seed), list[dict[str, Any]]()
        drawn = 0
        while len(rows) < cases:
            case, drawn = _drawn(rng, host), drawn + 1
            if case is None:
                if drawn > 1000 * (1 + len(rows)):
                    raise Unsupported(f"no case fits {host.config.path}; {verdict_on(host.capability)}")
                continue
            row, costs = _row(host, ways, costs, case, folder, repeats)
            rows.append(row)
            show("choice", len(rows), cases)
    right = [row["chosen_ms"] <= row["best_ms"] * (1 + NEAR) for row in rows]
    return {
        "model": host.describe(),
        "costs": costs.model_dump(),
        "cases": len(rows),
        "right": statistics.fmean(right),
        "exactly_the_best": statistics.fmean(row["chosen_ms"] == row["best_ms"] for row in rows),
        "text_is_best": statistics.fmean(row["best"] == "text" for row in rows),
        "always_kv_right": statistics.fmean(row["most_kv_ms"] <= row["best_ms"] * (1 + NEAR) for row in rows),
        "always_text_right": statistics.fmean(row["full_ms"] <= row["best_ms"] * (1 + NEAR) for row in rows),
        "slower_than_full": max(row["chosen_ms"] / row["full_ms"] - 1 for row in rows),
        "rows": rows,
    }


def _drawn(rng: random.Random, host: Host) -> Case | None:
    """A case, or None if it would not fit the model."""
    many = rng.choice((1, 1, 2, 4))
    cubes = tuple(scene(str(rng.random()), 1, rng.choice(FACTS)).cubes[0] for _ in range(many))
    asked = scene(str(rng.random()), 1, 8).cubes[0][: rng.choice((0, 0, 2, 8))]
    question = " ".join((*asked, "Where does Mira live?"))
    tokens = len(host.prompts.prefix(sum(cubes, ()))) + len(host.prompts.ids(question))
    can = host.capability
    most = min(n for n in (host.decoder.context, can.limit, can.motion_limit, 4096) if n)
    possible = {"L0": can.exact, "L1": can.composable, "L2": can.renewal, "L3": can.renewal}
    levels = [f for f in rng.sample(LEVELS, rng.randint(1, len(LEVELS))) if possible[f.level]]
    if tokens + 16 > most or not levels:
        return None
    with_kv = many if rng.random() < 0.7 else max(1, many - 1)
    return Case(cubes, with_kv, question, rng.choice(PLACES), rng.choice(CODECS), tuple(levels))


def _row(
    host: Host, chooser: Ways, costs: Costs, case: Case, folder: Path, repeats: int
) -> tuple[dict[str, Any], Costs]:
    """A case; and the costs, with what a kernel would have learnt from the way that was chosen."""
    kept = [host.encode(cube) for cube in case.cubes[: case.with_kv]]
    paths = [folder / f"{n}.safetensors" for n in range(len(kept))]
    for activation, path in zip(kept, paths, strict=True):
        host.save_kv(activation, path, case.codec)
    admission, situation = _situation(host, costs, case, kept)
    way = chooser.choose(admission, False, situation).way
    assert way
    chosen: _Way = (way.kvs, way.level)
    predicted = {(way.kvs, way.level): way.seconds for way in chooser.ways(admission, situation)}
    ways = list(predicted)
    took: dict[_Way, list[float]] = {way: [] for way in ways}
    for _ in range(2 * repeats + 1):
        for each in ways:  # in turn, so that all meet the same machine
            took[each].append(_first_token_s(host, case, kept, paths, each))
    # the best of many is also the luckiest: it is found in one half of the rounds, and its time taken from the other
    best = min(ways, key=lambda way: statistics.median(took[way][1::2]))
    ms = {way: statistics.median(seconds[2::2]) * 1e3 for way, seconds in took.items()}
    return {
        "memory": len(host.prompts.prefix(sum(case.cubes, ()))),
        "cubes": len(case.cubes),
        "with_kv": len(kept),
        "question": situation.question,
        "place": case.place,
        "codec": case.codec,
        "levels": [f.level for f in case.levels],
        "chosen": _name(chosen),
        "best": _name(best),
        "chosen_ms": ms[chosen],
        "best_ms": ms[best],
        "full_ms": ms[0, None],
        "most_kv_ms": min(ms[way] for way in ways if way[0] == len(kept)),
        "ways_ms": {_name(way): ms[way] for way in ways},
        "predicted_ms": {_name(way): predicted[way] * 1e3 for way in ways},
    }, costs.paced(way, ms[chosen] / 1e3)


def _situation(host: Host, costs: Costs, case: Case, kept: list[Activation]) -> tuple[Admission, Situation]:
    """The case as the scheduler is told of it."""
    texts = [[_cube(f"{n}-{m}", line) for m, line in enumerate(cube)] for n, cube in enumerate(case.cubes)]
    head, lying, kvs = len(host.head), dict[str, Lying](), list[MemCube]()
    for n, (activation, sources) in enumerate(zip(kept, texts, strict=False)):
        blob = Blob(sha256="", bytes=0, tokens=len(activation.ids), codec=case.codec, fingerprint=host.digest)
        pinned = tuple(c.pin for c in sources)
        kvs.append(_cube(f"kv{n}", "").model_copy(update={"form": Form.ACTIVATION, "payload": blob, "sources": pinned}))
        lying[f"kv{n}"] = Lying(len(activation.ids) - (head if n else 0), case.place, case.codec)
    admission = Admission(tuple(c for group in texts for c in group), tuple(kvs))
    question = host.tokens_of([{"role": "user", "content": case.question}])
    return admission, Situation(costs, case.levels, lying, 1, host.tokens, head, question)


def _first_token_s(host: Host, case: Case, kept: list[Activation], paths: list[Path], way: _Way) -> float:
    """Until the first token, with what it takes to have the KV."""
    n, level = way
    host.release()  # so that L0 begins with what is encoded
    if case.place == "disk":
        for path in paths:
            drop_from_page_cache(path)
    time.sleep(PAUSE_S)  # as requests come
    began = time.perf_counter()
    pasts = tuple(kept[:n]) if case.place == "host" else tuple(host.load_kv(path) for path in paths[:n])
    messages = ({"role": "user", "content": case.question},)
    request = Request(messages, sum(case.cubes, ()), pasts, fidelity=level or FidelityConfig(level="L4"))
    return time.perf_counter() - began + host.answer(request, _ONE).ttft_s


def _cube(id: str, text: str) -> MemCube:
    header = Header(created=datetime.now(timezone.utc))
    return MemCube(id=id, form=Form.PLAINTEXT, rights=Rights(owner="bench"), header=header, payload=Text(text=text))


def _name(way: _Way) -> str:
    n, level = way
    return "text" if not n or level is None else f"{n} KV" if n == 1 else f"{n} KV, {level.level}"
