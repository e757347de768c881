"""What an answer is worth: figures of an answer against the gold one, and of many answers together."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import regex

from memos.bench.dialogues import CATEGORIES, UNANSWERABLE
from memos.bench.qa.published import bleu1, locomo_f1, normalised, open_gold, token_f1, words_f1
from memos.bench.qa.refusals import is_refusal
from memos.errors import InputError

BINS = 10  # of confidence
_WORD = regex.compile(r"\p{Han}|[\p{L}\p{N}\p{M}]+")
_LETTER = re.compile(r"(?:.*\b(?:answer|option|choice)(?: is)?:?\s*)?[(\[]?([a-z])(?:[)\].:](?:\s.*)?)?", re.DOTALL)


@dataclass(frozen=True)
class Scores:
    """exact: the same words; contained: the gold answer's words in one run of the answer's. f1: LoCoMo's; f1_words and
    bleu1: A-Mem's. All from 0 to 1."""

    exact: float
    contained: float
    f1: float
    f1_words: float
    bleu1: float
    refused: bool


def scored(answer: str, gold: str | float | None, category: str, kind: str = "locomo") -> Scores:
    """kind: whose set it is; LoCoMo's rules for its categories hold for "locomo" alone.

    Where nothing can be answered, a refusal is right and anything else wrong, whatever gold says; LoCoMo's own figure
    then goes by its two phrases. Raises InputError.
    """
    refused = is_refusal(answer)
    if category in UNANSWERABLE:
        right = float(refused)
        f1 = locomo_f1(answer, "", category) if kind == "locomo" else right
        return Scores(right, right, f1, right, right, refused)
    if gold is None:
        raise InputError(
            f"a question of {category} has no gold answer; only {' and '.join(UNANSWERABLE)} may have none"
        )
    wanted = str(gold)
    f1 = locomo_f1(answer, wanted, category) if kind == "locomo" else token_f1(answer, wanted)
    of_words = words_f1(answer, wanted), bleu1(answer, wanted)
    bare = _words(open_gold(wanted) if category == "open-domain" else wanted)
    given = _words(answer)
    return Scores(float(bool(bare) and given == bare), float(_contains(given, bare)), f1, *of_words, refused)


def multiple_choice(answer: str, choices: Sequence[str]) -> int | None:
    """Which choice an answer means by its letter or its text; None if none, or more than one."""
    bare, given = answer.strip(" \n\"'.*").lower(), _words(answer)
    texts = [_words(choice) for choice in choices]
    if given in texts:
        return texts.index(given)
    if (letter := _LETTER.fullmatch(bare)) and (n := ord(letter[1]) - ord("a")) < len(choices):
        return n
    found = [n for n, words in enumerate(texts) if _contains(given, words)]
    longest = [
        n for n in found if all(_contains(texts[n], texts[other]) for other in found)
    ]  # "Rome" lies in "in Rome"
    return longest[0] if len(longest) == 1 else None


@dataclass(frozen=True)
class Calibration:
    """error: the expected calibration error over BINS bins; brier: the mean square of what is missing to the truth."""

    error: float
    brier: float
    answers: int  # that came with a confidence


def calibration(confidences: Sequence[float | None], rights: Sequence[float]) -> Calibration | None:
    """How far confidences are from how often the answers are right; None if no answer came with one. Raises
    InputError."""
    pairs = [(c, r) for c, r in zip(confidences, rights, strict=True) if c is not None]
    if not pairs:
        return None
    sure, right = np.array(pairs, dtype=float).T
    if wrong := [c for c in sure if not 0 <= c <= 1]:
        raise InputError(f"a confidence is {wrong[0]}; give it from 0 to 1, or none")
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = [abs((right - sure)[bins == n].sum()) for n in range(BINS)]
    return Calibration(float(sum(gaps) / len(pairs)), float(np.mean((sure - right) ** 2)), len(pairs))


class QuestionKey(NamedTuple):
    """A question of a set: one conversation may ask the same in two categories."""

    conversation: str
    category: str
    question: str


@dataclass(frozen=True)
class Correction:
    """What an audit found: the right gold answer and evidence, one of which may be as it was."""

    gold: str
    evidence: tuple[str, ...]
    error: str  # its kind


def read_corrections(path: Path) -> dict[QuestionKey, Correction]:
    """The errors of a key as an audit lists them. Raises InputError."""
    form = "a list of {sample_id, category, question, error_type, correct_answer, correct_evidence}"
    try:
        rows = json.loads(path.read_text("utf-8"))
        found = {
            QuestionKey(row["sample_id"], CATEGORIES[int(row["category"])], row["question"]): Correction(
                str(row["correct_answer"]), tuple(row["correct_evidence"]), row["error_type"]
            )
            for row in rows
        }
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give {form}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no list of errors ({type(error).__name__}: {error}); give {form}") from None
    if len(found) < len(rows):
        raise InputError(f"{path} corrects a question twice; leave one line for each")
    return found


def corrected(key: QuestionKey, errors: Mapping[QuestionKey, Correction]) -> Correction | None:
    """What is to be taken for a question's gold answer and evidence; None if the audit leaves them as they are."""
    return errors.get(key)


def _words(text: str) -> list[str]:
    """Normalised words; each Chinese character is one."""
    return _WORD.findall(normalised(text.replace("’", "'")))


def _contains(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the wanted words stand in one run."""
    n = len(wanted)
    return n > 0 and any(words[i : i + n] == wanted for i in range(len(words) - n + 1))
