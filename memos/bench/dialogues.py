"""Dialogues to measure on: LoCoMo (arXiv 2402.17753) and BEAM (arXiv 2510.27246), as their authors publish them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import mean
from typing import Any

from memos.errors import InputError
from memos.ops import Add

KS = (1, 5, 10, 20)
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_FORMS = {
    "locomo": "a list of {sample_id, conversation, qa}",
    "beam": "a list of {id, turns: [{id, role, content, time}], questions: [{ability, question, evidence}]}",
}


@dataclass(frozen=True)
class Question:
    text: str
    evidence: tuple[str, ...]  # names of turns
    category: str


@dataclass(frozen=True)
class Conversation:
    name: str
    turns: dict[str, Add]  # by name, in the order of their saying; `thread` is the session
    questions: tuple[Question, ...]


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


def read(path: Path, kind: str = "locomo") -> list[Conversation]:
    """The conversations of a file of this kind. Raises InputError."""
    way_out = f"give a file of the form of {kind}: {_FORMS[kind]}"
    try:
        conversations = [READERS[kind](sample) for sample in json.loads(path.read_text("utf-8"))]
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {way_out}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not of {kind}'s form ({type(error).__name__}: {error}); {way_out}") from None
    if not any(c.questions for c in conversations):
        raise InputError(f"{path} has no question whose evidence names a turn; {way_out}")
    return conversations


def _of_locomo(sample: dict[str, Any]) -> Conversation:
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
                message_id=turn["dia_id"],
            )
    questions = []
    for item in sample["qa"]:
        # a few names are malformed: two in one string, or a colon too many
        named = [f"D{s}:{int(t)}" for text in item.get("evidence", []) for s, t in re.findall(r"D:?(\d+):(\d+)", text)]
        if evidence := tuple(dict.fromkeys(name for name in named if name in turns)):
            questions.append(Question(item["question"], evidence, CATEGORIES[item["category"]]))
    return Conversation(sample["sample_id"], turns, tuple(questions))


def _of_beam(sample: dict[str, Any]) -> Conversation:
    """A day is a session: the chats name none."""
    turns = {
        str(turn["id"]): Add(
            text=turn["content"],
            speaker=turn["role"].capitalize(),
            said=datetime.fromisoformat(turn["time"].replace("Z", "+00:00")),
            origin="beam",
            thread=turn["time"][:10],
            message_id=str(turn["id"]),
        )
        for turn in sample["turns"]
    }
    questions = []
    for item in sample["questions"]:
        if evidence := tuple(dict.fromkeys(name for name in map(str, item["evidence"]) if name in turns)):
            questions.append(Question(item["question"], evidence, item["ability"]))
    return Conversation(str(sample["id"]), turns, tuple(questions))


READERS: dict[str, Callable[[dict[str, Any]], Conversation]] = {"locomo": _of_locomo, "beam": _of_beam}
