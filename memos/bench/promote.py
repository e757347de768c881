"""`memos bench promote`: trains adapters by objective and number of facts, and judges each by the gate.

The alternatives are what research code does: next-token training on the text, cross-entropy on questions and
answers, and distillation without anything to keep, or with closed-book prompts alone. Beside them, KV of few rows that
is trained for the same.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memos.bench.baselines import train_on_answers, train_on_text
from memos.bench.scenes import scene
from memos.config import ActivationConfig, DistilConfig, GateConfig
from memos.cube import AT_LEAST, Contrast, Lesson, Text
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.teach import Task, agreed, judge, judge_kv, short_of
from memos.interface.reading.mem_reader import MemReader
from memos.plugins.progress import Show
from memos.plugins.training.craft import teach, teach_kv

OURS = "distillation"
KV = "trained KV"
OBJECTIVES = (OURS, "distillation, closed-book only", "distillation alone", "answers", "next token", KV)
FACTS, PEOPLE = (16,), (2,)
SHARE = ActivationConfig().trained_share


@dataclass(frozen=True)
class Matter:
    """Memories, one fact each, with what is asked about them and what must stay."""

    texts: tuple[str, ...]
    lessons: tuple[Lesson, ...]
    keep: tuple[Contrast, ...]


def matter(host: Host, key: str, facts: int, seed: int, people: int = 2) -> Matter:
    """Facts about so many people that the model has never heard of, as a topic group or two have them."""
    reader = MemReader()
    (texts,) = scene(key, 1, facts, people).cubes
    said = [Text(text=text, facts=reader.facts(text)) for text in texts]
    facts_of_all = [fact for memory in said for fact in memory.facts]
    keep = reader.contrasts(facts_of_all, host.own_questions(), seed)
    lessons = agreed(reader.lessons(said))  # as a promotion has them
    return Matter(texts, tuple(lessons), tuple(keep))


def bench_promote(
    host: Host,
    facts: Sequence[int],
    people: Sequence[int],
    objectives: Sequence[str],
    seeds: int,
    seed: int,
    show: Show,
) -> dict[str, Any]:
    """A row for each objective, number of facts and of people that these are about: means over the seeds.

    seconds: from text to a judged adapter.
    """
    rows = list[dict[str, Any]]()
    cases = [(count, whose, objective) for count in facts for whose in people for objective in objectives]
    for count, whose, objective in cases:
        runs = []
        for n in range(seed, seed + seeds):
            about = matter(host, f"promote {n} {count} {whose}", count, n, whose)
            runs.append(_run(host, about, objective, n))
            show("promote", len(rows) * seeds + len(runs), len(cases) * seeds)
        rows.append(
            {"objective": objective, "facts": count, "people": whose, "seeds": seeds}
            | {
                name: statistics.fmean(run[name] for run in runs)
                for name in runs[0]
                if name != "accepted" and not name.endswith(AT_LEAST)
            }
            | {"least": {name: min(run[name] for run in runs) for name in ("reliability", "generality", "locality")}}
            | {"accepted_rate": statistics.fmean(run["accepted"] for run in runs)}
        )
    return {"model": host.describe(), "config": DistilConfig().model_dump(), "rows": rows}


def _run(host: Host, about: Matter, objective: str, seed: int) -> dict[str, Any]:
    config = DistilConfig(seed=seed)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "made"
        match objective:
            case _ if objective == KV:
                task = Task(lessons=about.lessons, keep=about.keep, config=config, memories=about.texts, share=SHARE)
                steps = teach_kv(host, task, folder, lambda *_: None)

            case "answers":
                steps = train_on_answers(host, about.lessons, config, folder)
            case "next token":
                steps = train_on_text(host, about.texts, config, folder)
            case _:
                keep = {OURS: about.keep, "distillation, closed-book only": _closed(about.keep)}.get(objective, ())
                task = Task(lessons=about.lessons, keep=keep, config=config)
                steps = teach(host, task, folder, lambda *_: None)
        if objective == KV:
            scores = judge_kv(host, folder, about.texts, about.lessons, about.keep)
        else:
            scores = judge(host, (folder,), about.lessons, about.keep)
        seconds = time.perf_counter() - began
        size = sum(file.stat().st_size for file in (folder, *folder.glob("*")) if file.is_file())
    accepted = not short_of(scores, GateConfig())
    return scores | {"steps": steps, "seconds": seconds, "bytes": size, "accepted": accepted}


def _closed(keep: Sequence[Contrast]) -> tuple[Contrast, ...]:
    return tuple(k for k in keep if not k.memories)
