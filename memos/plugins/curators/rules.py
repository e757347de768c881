"""What stands in for a language model where there is none: plain functions of texts and vectors, for all systems.

Each says what it does; a system's docstring says where it takes one in place of what its paper asks a model for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from memos.cube import MemCube
from memos.operation.policies.policy import Floats, asks, standing, terms

# Plutchik's eight in the order of CuratorSignals.emotion, each by words that people use for it
EMOTIONS = (
    "joy, happy, delighted, glad, love, fun",
    "acceptance, trust, calm, agree, thankful, support",
    "fear, afraid, scared, worried, anxious, nervous",
    "surprise, wow, unexpected, amazed, shocked",
    "sadness, sad, sorry, miss, lost, cried, lonely",
    "disgust, gross, awful, hate, sick of, ugly",
    "anger, angry, annoyed, furious, mad, unfair",
    "anticipation, excited, looking forward, plan, hope, soon",
)
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
_WEIGHTY = re.compile(
    r"\b(?:born|died|death|married|wedding|divorc\w+|pregnan\w+|baby|cancer|hospital|surgery|accident|fired|job|hired"
    r"|promot\w+|graduat\w+|moved|moving|bought|house|engaged|broke up|won|award|diagnos\w+|adopt\w+|allerg\w+|always"
    r"|never|favou?rite|dream|goal|decided|quit|started|first)\b|出生|去世|结婚|离婚|怀孕|搬|工作|医院|手术|毕业|过敏",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    r"\b(?:no longer|not any ?more|any ?more|quit|stopped|moved|now|instead|changed|left|used to|switched)\b"
    r"|不再|改成|现在|换成",
    re.IGNORECASE,
)
_FILLER = 4  # words: what says less is small talk


def sentences(text: str) -> list[str]:
    return [one.strip() for one in _SENTENCE.findall(text) if one.strip()]


def keywords(texts: Iterable[str], most: int) -> list[str]:
    """The most frequent terms, of equals the first."""
    return [word for word, _ in Counter(word for text in texts for word in terms(text)).most_common(most)]


def importance(text: str) -> float:
    """1 to 10, in place of a model's rating (Generative Agents, 2304.03442, section 4.1): what changes a life counts
    most, names and numbers something, small talk and questions little."""
    words = text.split()
    score = 2.0 + min(len(words), 30) / 15
    score += 1.5 * min(2, len(_WEIGHTY.findall(text)))
    score += 0.5 * min(3, len(re.findall(r"(?<=\s)[A-Z]\w+|\d+", text)))
    score += standing(text)
    if asks(text):
        score -= 1.5
    if len(words) <= _FILLER:
        score -= 1.5
    return float(min(10.0, max(1.0, score)))


def changes(text: str) -> bool:
    """True if it says that something is no longer as it was."""
    return bool(_CHANGES.search(text))


def said(turn: MemCube) -> str:
    """A turn in one line, by whom; what is quoted of it."""
    words = " ".join(turn.words.split())
    who = turn.header.speaker or turn.header.role
    return f"{who}: {words}" if who else words


def telling(turns: Sequence[MemCube], vectors: Floats, most: int) -> list[MemCube]:
    """The turns that stand nearest to the middle of all and far from each other, in their order: maximal marginal
    relevance (Carbonell and Goldstein, 1998), in place of a model's summary. vectors: [turns, dim]."""
    if len(turns) <= most:
        return list(turns)
    worth = vectors @ vectors.mean(0) - 0.3 * np.array([asks(turn.words) for turn in turns])
    taken, again = list[int](), np.zeros(len(turns), np.float32)
    for _ in range(most):
        gain = worth - 0.4 * again
        gain[taken] = -np.inf
        taken.append(int(gain.argmax()))
        again = np.maximum(again, vectors @ vectors[taken[-1]])
    return [turns[n] for n in sorted(taken)]


def shared_terms(a: str, b: str) -> float:
    """Jaccard index of their terms."""
    one, other = set(terms(a)), set(terms(b))
    return len(one & other) / len(one | other) if one | other else 0.0
