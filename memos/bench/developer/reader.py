"""`memos bench reader`: compares how the reader understands requests with what a person wrote down.

The cases are in reader.yaml: English and Chinese, requests that the reader was not trained with; a first set, and one
of a wider choice of people and wordings. Judged are the intents, in their order, and each argument; that every
extraction of a model parses is measured beside it, with models that read no language: nothing but the grammar can make
their answers JSON.

What people state as they type is judged by statements.yaml, of which every second sentence is held out: a sentence is
read right if each of its statements is, with whom it is about and its days. What then replaces what is judged by
updates.yaml, through `add` (memos.bench.developer.supersession).
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from memos.bench.developer.supersession import bench_supersession, typed
from memos.config import ModelConfig
from memos.cost import metered
from memos.errors import InputError
from memos.infrastructure.host.encoders.embedder import STATEMENTS, TextTagger
from memos.interface.reading import extraction
from memos.interface.reading.documents.parts import DialogueTurn
from memos.interface.reading.mem_reader import MemReader
from memos.interface.reading.statements.tagged import TaggedStatement
from memos.kernel.mem_os import MemOS
from memos.ops import Asked
from memos.plugins.progress import Show

_NEAR = 0.75  # token F1 from which descriptions say the same
_DESTROYS = ("forget", "rollback", "unshare")
_ASIDE = re.compile(r"\b(?:an?|the|please|pls|kindly|thanks|thank you)\b")
_ARTICLE = re.compile(r"^(?:the|our|my) ", re.IGNORECASE)
_HAN = re.compile(r"[\u3400-\u9fff]")


@dataclass(frozen=True)
class Case:
    """A request, and the operations that it asks for as (intent, arguments)."""

    id: str
    language: str
    kind: str
    today: date
    turns: tuple[dict[str, Any], ...]
    request: str
    operations: tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True)
class Outcome:
    """What was read, beside what was wanted."""

    case: Case
    read: tuple[Asked, ...]

    @property
    def right(self) -> bool:
        """The same intents in the same order."""
        return [asked.intent for asked in self.read] == [intent for intent, _ in self.case.operations]

    @property
    def slots(self) -> tuple[int, int]:
        """(arguments right, arguments given or wanted): one that nobody gave is wrong too."""
        right = wanted = 0
        for n, (_, arguments) in enumerate(self.case.operations):
            told = self.read[n].model_dump(exclude_defaults=True, by_alias=True) if self.right else {}
            names = set(arguments) | set(told)
            wanted += len(names)
            both = set(arguments) & set(told) if self.right else set[str]()
            right += sum(alike(name, arguments[name], told[name]) for name in both)
        return right, wanted

    @property
    def guesses(self) -> int:
        """Destructive operations that nobody asked for, or that should have been asked back."""
        wanted: Counter[str] = Counter(intent for intent, _ in self.case.operations)
        doubted = [arguments.get("intent") for intent, arguments in self.case.operations if intent == "ask_back"]
        read: Counter[str] = Counter(asked.intent for asked in self.read)
        unasked = sum((read - wanted)[intent] for intent in _DESTROYS)
        return unasked + (read["correct"] if "correct" in doubted and not wanted["correct"] else 0)


def cases(path: Path | None = None) -> list[Case]:
    """Those of a file, by default the held-out ones of the package. Raises InputError."""
    held_out = files("memos.bench.developer").joinpath("reader.yaml")
    try:
        book = yaml.safe_load(held_out.read_text("utf-8") if path is None else path.read_text("utf-8"))
        return [_case(entry) for entry in book]
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path or 'reader.yaml'} has no cases that can be read: {error}") from None


def _case(entry: Mapping[str, Any]) -> Case:
    when = entry["date"]
    return Case(
        entry["id"],
        entry["lang"],
        entry["kind"],
        (when if isinstance(when, datetime) else datetime.fromisoformat(when)).date(),
        tuple(entry.get("turns") or ()),
        entry["request"],
        tuple((op["intent"], op.get("arguments") or {}) for op in entry["operations"]),
    )


def alike(name: str, wanted: Any, told: Any) -> bool:
    """True if two values of an argument say the same: descriptions by their words, people but for an article, all else
    by the letter."""
    if name != "what":
        plain = (
            _ARTICLE.sub("", str(value)).casefold() if name == "with" else str(value).casefold()
            for value in (wanted, told)
        )
        return len(set(plain)) == 1
    a, b = Counter(_tokens(str(wanted))), Counter(_tokens(str(told)))
    shared = sum((a & b).values())
    return 2 * shared >= _NEAR * (sum(a.values()) + sum(b.values()))


def _tokens(text: str) -> list[str]:
    """Words without articles and politeness; of Chinese, characters."""
    plain = _ASIDE.sub(" ", re.sub(r"['’]", "", text.lower()))
    if _HAN.search(plain):
        return re.findall(r"[^\W_]", plain)
    return re.findall(r"\w+", plain)


def judge(told: Sequence[Case], show: Show) -> list[Outcome]:
    """Read them all."""
    reader, out = MemReader(TextTagger()), list[Outcome]()
    for n, case in enumerate(told, start=1):
        out.append(Outcome(case, tuple(reader.read_request(case.request, case.turns, case.today))))
        show("requests", n, len(told))
    return out


def figures(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    told = list(outcomes)
    right, wanted = (sum(values) for values in zip(*(o.slots for o in told), strict=True))
    return {
        "requests": len(told),
        "intent": sum(o.right for o in told) / len(told),
        "arguments": right / wanted if wanted else 1.0,
        "destructive_guesses": sum(o.guesses for o in told),
    }


def bench_reader(show: Show, path: Path | None = None, extracted: int = 12) -> dict[str, Any]:
    """Totals, by language, by kind and by the intent that was wanted first. extracted: how many of the requests two
    models without language, the small one and one of random weights, extract within the grammar."""
    told = cases(path)
    outcomes = judge(told, show)
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        first = outcome.case.operations[0][0]
        case = outcome.case
        part = "the wider set" if case.id.startswith("w-") else "the first set"
        for name in (part, case.language, f"{case.language}, {case.kind}", f"intent {first}"):
            groups.setdefault(name, []).append(outcome)
    every = told[:: max(1, len(told) // extracted)][:extracted] if extracted else []
    unparsable, tried = _unparsable(every, show)
    calls, turns = _calls(told, show)
    return {
        **figures(outcomes),
        **_statements(show),
        **_supersession(show),
        "unparsable": unparsable,
        "extractions": tried,
        "model_calls_per_turn": calls / turns if turns else 0.0,
        "turns": turns,
        "rows": [{"requests of": name, **figures(group)} for name, group in sorted(groups.items())],
    }


@dataclass(frozen=True)
class Sentence:
    """What somebody types on a day, and what it states as (whom it is about, its words, its days)."""

    text: str
    by: str
    day: date
    states: tuple[tuple[str, str, str], ...]


def sentences(path: Path | None = None) -> list[Sentence]:
    """Those of a file, by default the held-out ones of the package. Raises InputError."""
    there = files("memos.bench.developer").joinpath("statements.yaml")
    try:
        book = yaml.safe_load(there.read_text("utf-8") if path is None else path.read_text("utf-8"))
        return [
            Sentence(
                entry["text"],
                str(entry["by"]),
                entry["said"],
                tuple((str(one["who"]), str(one["what"]), str(one.get("when", ""))) for one in entry["states"]),
            )
            for n, entry in enumerate(book, start=1)
            if n % 2 == 0 or path
        ]
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path or 'statements.yaml'} has no sentences that can be read: {error}") from None


def _reads_right(sentence: Sentence, stated: Sequence[TaggedStatement]) -> bool:
    return len(stated) == len(sentence.states) and all(
        one.subject.casefold() == who.casefold() and alike("what", what, one.words) and one.when == when
        for one, (who, what, when) in zip(stated, sentence.states, strict=True)
    )


def _statements(show: Show) -> dict[str, Any]:
    """The shares of sentences that state something that are read right, and of the others in which nothing is read."""
    reader, right = MemReader(statement_tagger=TextTagger(STATEMENTS)), dict[bool, list[bool]]({True: [], False: []})
    told = sentences()
    for n, sentence in enumerate(told, start=1):
        stated = reader.stated(sentence.text, sentence.by, sentence.day)
        right[bool(sentence.states)].append(_reads_right(sentence, stated))
        show("sentences", n, len(told))
    shares = {says: sum(them) / len(them) for says, them in right.items()}
    return {"sentences": len(told), "statements": shares[True], "silence": shares[False]}


def _supersession(show: Show) -> dict[str, Any]:
    """Precision and recall over the held-out cases of updates.yaml."""
    told = bench_supersession(show, [case for case in typed() if case.held_out])["rows"][0]
    return {
        "updates": told["cases"],
        "supersession_precision": told["precision"],
        "supersession_recall": told["recall"],
    }


def _unparsable(told: Sequence[Case], show: Show) -> tuple[int, int]:
    """(extractions that do not parse, extractions): of the small model, and of one with random weights."""
    from memos.infrastructure.host.host import Host

    shape = extraction.schema()
    prompts = [extraction.prompt([DialogueTurn(speaker="User", content=case.request)]) for case in told]
    bad = tried = 0
    for n, model in enumerate(("memos-small", "shape:tiny")):
        host = Host.load(ModelConfig(path=model))
        answers = host.extract(prompts, shape)
        bad += sum(extraction.parsed(answer) is None for answer in answers)
        tried += len(answers)
        show("extractions", n + 1, 2)
    return bad, tried


def _calls(told: Sequence[Case], show: Show) -> tuple[int, int]:
    """(model calls, turns) of a kernel that is given every request as a turn."""
    turns = [{"role": "user", "content": case.request} for case in told]
    with tempfile.TemporaryDirectory() as folder, MemOS(vault=Path(folder) / "vault") as kernel, metered() as spent:
        for n, turn in enumerate(turns, start=1):
            kernel.add([turn])
            show("turns", n, len(turns))
        return spent.model_calls, len(turns)
