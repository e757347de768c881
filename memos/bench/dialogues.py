"""Dialogues to measure on, as their authors publish them: those of LoCoMo, of BEAM and of MemoryBank.

LoCoMo: arXiv 2402.17753. BEAM: arXiv 2510.27246. MemoryBank: arXiv 2305.10250; others call its users GVD.
"""

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
ADVERSARIAL, ABSTENTION = "adversarial", "abstention"  # questions that nothing which was said answers
PROBING = "probing"  # questions of a set whose authors publish no answers: people score the replies
UNANSWERABLE = (ADVERSARIAL, ABSTENTION)
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: ADVERSARIAL}
_FORMS = {
    "locomo": "a list of {sample_id, conversation, qa}",
    "beam": "a list of {id, turns: [{id, role, content, time}], "
    "questions: [{ability, question, answer, evidence, and perhaps choices}]}",
    "gvd": "{NAME: {history: {DATE: [{query, response}]}}}, beside probing_questions*.jsonl of {NAME: [question]}",
}


@dataclass(frozen=True)
class Question:
    text: str
    evidence: tuple[str, ...]  # names of turns; none where the data names none that are there
    category: str
    answer: str = ""  # the key's; "" where nothing that was said answers it
    choices: tuple[str, ...] = ()  # of which the answer is one


@dataclass(frozen=True)
class Conversation:
    name: str
    turns: dict[str, Add]  # by name, in the order of their saying; `thread` is the session
    asked: tuple[Question, ...]  # all, as the file has them

    @property
    def questions(self) -> tuple[Question, ...]:
        """Those with evidence: what a search can be held to."""
        return tuple(question for question in self.asked if question.evidence)


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


def read(path: Path, kind: str = "locomo", evidence: bool = True) -> list[Conversation]:
    """The conversations of a file of this kind. evidence: it must name some. Raises InputError."""
    way_out = f"give a file of the form of {kind}: {_FORMS[kind]}"
    try:
        samples = _gvd_samples(path) if kind == "gvd" else json.loads(path.read_text("utf-8"))
        conversations = [_READERS[kind](sample) for sample in samples]
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {way_out}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not of {kind}'s form ({type(error).__name__}: {error}); {way_out}") from None
    if evidence and not any(c.questions for c in conversations):
        raise InputError(f"{path} has no question whose evidence names a turn; {way_out}")
    if not any(c.asked for c in conversations):
        raise InputError(f"{path} has no questions; {way_out}")
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
        evidence = tuple(dict.fromkeys(name for name in named if name in turns))
        category = CATEGORIES[item["category"]]
        answer = "" if category == ADVERSARIAL else str(item.get("answer", ""))  # what they ask of nobody has said
        questions.append(Question(item["question"], evidence, category, answer))
    return Conversation(sample["sample_id"], turns, tuple(questions))


def _of_beam(sample: dict[str, Any]) -> Conversation:
    """Of BEAM's form, which files of one's own may have too. Where turns name no session, a day is one."""
    turns = {}
    for turn in sample["turns"]:
        when = turn.get("time")
        turns[str(turn["id"])] = Add(
            text=turn["content"],
            speaker=turn.get("speaker") or turn["role"].capitalize(),
            said=datetime.fromisoformat(when.replace("Z", "+00:00")) if when else None,
            origin="beam",
            thread=str(turn.get("session") or (when or "")[:10] or sample["id"]),
            message_id=str(turn["id"]),
        )
    questions = []
    for item in sample["questions"]:
        evidence = tuple(dict.fromkeys(name for name in map(str, item.get("evidence", ())) if name in turns))
        unanswered = item.get("ability") == ABSTENTION
        answer = "" if unanswered else str(item.get("answer", ""))
        choices = tuple(map(str, item.get("choices", ())))
        if choices and answer not in choices:
            raise ValueError(f"the answer {answer!r} is none of the choices of {item['question']!r}")
        questions.append(Question(item["question"], evidence, item.get("ability", "all"), answer, choices))
    return Conversation(str(sample["id"]), turns, tuple(questions))


def _gvd_samples(path: Path) -> list[dict[str, Any]]:
    """The users of a file, with the questions that stand beside it. Raises InputError where there are none."""
    beside = sorted(path.parent.glob("probing_questions*.jsonl"))
    if len(beside) != 1:
        raise InputError(
            f"{path.parent} has {len(beside)} files probing_questions*.jsonl, where one must be; put the questions "
            f"beside {path.name}, as MemoryBank's eval_data/en has them"
        )
    asked: dict[str, list[Any]] = {}
    for line in filter(str.strip, beside[0].read_text("utf-8").splitlines()):
        asked |= json.loads(line)
    users = json.loads(path.read_text("utf-8"))
    return [{"name": name, "history": user["history"], "asked": asked.get(name, [])} for name, user in users.items()]


def _of_gvd(sample: dict[str, Any]) -> Conversation:
    """A day is a session, and its turns are counted from one: 2023-04-27:1. A question may be {question, answer,
    evidence}, in files of one's own."""
    turns = {}
    for day, exchanges in sample["history"].items():
        said = datetime.fromisoformat(day).replace(tzinfo=timezone.utc)
        spoken = [
            (speaker, exchange[part])
            for exchange in exchanges
            for speaker, part in ((sample["name"], "query"), ("Assistant", "response"))
        ]
        for n, (speaker, words) in enumerate(spoken, start=1):
            name = f"{day}:{n}"
            turns[name] = Add(text=words, speaker=speaker, said=said, origin="gvd", thread=day, message_id=name)
    questions = []
    for item in sample["asked"]:
        asked = {"question": item} if isinstance(item, str) else item
        evidence = tuple(dict.fromkeys(name for name in asked.get("evidence", ()) if name in turns))
        text = asked["question"].strip().strip('"')  # some stand in quotation marks
        questions.append(Question(text, evidence, PROBING, str(asked.get("answer", ""))))
    return Conversation(sample["name"], turns, tuple(questions))


READERS: dict[str, Callable[[dict[str, Any]], Conversation]] = {"locomo": _of_locomo, "beam": _of_beam}  # with a key
_READERS = READERS | {"gvd": _of_gvd}
