"""`memos bench locomo`: measures whether search finds the turns that answer a question, on LoCoMo (arXiv 2402.17753).

A memory is one turn, kept as it was said. Each conversation is a user of its own in one vault, so that rights narrow
every search; the configuration is the same for all.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import mean, median
from typing import Any

from memos.config import Config
from memos.errors import InputError
from memos.interface.doors.progress import Show
from memos.kernel.mem_os import MemOS
from memos.operation.policies.policy import POLICIES
from memos.ops import Add

KS = (1, 5, 10, 20)
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_WAY_OUT = "give a file of LoCoMo's form: a list of {sample_id, conversation, qa}"


@dataclass(frozen=True)
class Question:
    text: str
    evidence: tuple[str, ...]  # names of turns
    category: str


@dataclass(frozen=True)
class Conversation:
    name: str
    turns: dict[str, Add]  # by name, in the order of their saying
    questions: tuple[Question, ...]


def bench_locomo(data: Path, policies: Sequence[str], show: Show) -> dict[str, Any]:
    """A row for each policy: recall@k is the share of a question's evidence among the first k, the mean over questions;
    ndcg@10 counts each evidence turn alike; mrr is of the first that is found. ms_per_query: the median, the
    embedding of the question included."""
    for policy in policies:
        POLICIES.get(policy)  # a wrong name is told before anything is read
    conversations = read(data)
    with tempfile.TemporaryDirectory() as folder, MemOS(Config(), vault=Path(folder)) as kernel:
        began = time.perf_counter()
        names: dict[str, set[str]] = defaultdict(set)  # of each cube: a turn said twice over is one memory
        for n, conversation in enumerate(conversations):
            cubes = kernel.within(conversation.name).keep(list(conversation.turns.values()))
            for cube, name in zip(cubes, conversation.turns, strict=True):
                names[cube.id].add(name)
            show("read", n + 1, len(conversations))
        seconds = time.perf_counter() - began
        rows = [_row(kernel, policy, conversations, names, show) for policy in policies]
    turns = sum(len(c.turns) for c in conversations)
    return {"data": data.name, "turns": turns, "turns_per_s": turns / seconds, "rows": rows}


def _row(
    kernel: MemOS, policy: str, conversations: Sequence[Conversation], names: dict[str, set[str]], show: Show
) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    times = list[float]()
    for n, conversation in enumerate(conversations):
        for question in conversation.questions:
            began = time.perf_counter()
            hits = kernel.within(conversation.name).search(question.text, top_k=max(KS), policy=policy)
            times.append((time.perf_counter() - began) * 1e3)
            ranks = [bool(names[hit.cube.id] & set(question.evidence)) for hit in hits]
            found[question.category].append(figures(ranks, len(question.evidence)))
        show(policy, n + 1, len(conversations))
    every = [row for of_category in found.values() for row in of_category]
    return {
        "policy": policy,
        **means(every),
        "by_category": {name: {**means(of), "questions": len(of)} for name, of in sorted(found.items())},
        "questions": len(every),
        "ms_per_query": median(times),
    }


def figures(ranks: Sequence[bool], evidence: int) -> dict[str, float]:
    """ranks: for each place, whether evidence stands there."""
    gains = [1 / math.log2(place + 2) for place in range(10)]
    first = next((place for place, hit in enumerate(ranks) if hit), None)
    return {
        **{f"recall@{k}": sum(ranks[:k]) / evidence for k in KS},
        "mrr": 0.0 if first is None else 1 / (first + 1),
        "ndcg@10": sum(g for g, hit in zip(gains, ranks, strict=False) if hit) / sum(gains[:evidence]),
    }


def means(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: mean(row[name] for row in rows) for name in rows[0]} if rows else {}


def read(path: Path) -> list[Conversation]:
    """The conversations of a file. Raises InputError."""
    try:
        found = json.loads(path.read_text("utf-8"))
        conversations = [_conversation(sample) for sample in found]
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {_WAY_OUT}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not of LoCoMo's form ({type(error).__name__}: {error}); {_WAY_OUT}") from None
    if not any(c.questions for c in conversations):
        raise InputError(f"{path} has no question whose evidence names a turn; {_WAY_OUT}")
    return conversations


def _conversation(sample: dict[str, Any]) -> Conversation:
    said, turns = sample["conversation"], dict[str, Add]()
    numbers = sorted(int(key.split("_")[1]) for key in said if re.fullmatch(r"session_\d+", key))
    for number in numbers:
        when = datetime.strptime(said[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
        for turn in said[f"session_{number}"]:
            shown = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
            turns[turn["dia_id"]] = Add(
                text=turn["text"] + shown,
                speaker=turn["speaker"],
                said=when.replace(tzinfo=timezone.utc),
                origin="locomo",
                thread=f"session_{number}",
                kind="event",
            )
    questions = []
    for item in sample["qa"]:
        # a few names are malformed: two in one string, or a colon too many
        named = [f"D{s}:{int(t)}" for text in item.get("evidence", []) for s, t in re.findall(r"D:?(\d+):(\d+)", text)]
        if evidence := tuple(dict.fromkeys(name for name in named if name in turns)):
            questions.append(Question(item["question"], evidence, CATEGORIES[item["category"]]))
    return Conversation(sample["sample_id"], turns, tuple(questions))
