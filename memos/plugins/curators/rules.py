"""What stands in for a language model where there is none: plain functions of texts and vectors, for all systems.

Each says what it does; a system's docstring says where it takes one in place of what its paper asks a model for.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from memos.cube import MemCube
from memos.interface.reading.times import times
from memos.operation.policies.policy import Floats, asks, standing, terms
from memos.plugins.curators.signals import Recalled

if TYPE_CHECKING:
    from memos.plugins.curators.curator import CuratorView
    from memos.plugins.curators.signals import CuratorSignals

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
_SENTENCE = re.compile(r"(?:[^.!?。！？\n]|[.!?](?=\w))+[.!?。！？]*")  # a stop within a word ends none
_WEIGHTY = re.compile(
    r"\b(?:born|died|death|married|wedding|divorc\w+|pregnan\w+|baby|cancer|hospital|surgery|accident|fired|job|hired"
    r"|promot\w+|graduat\w+|moved|moving|bought|house|engaged|broke up|won|award|diagnos\w+|adopt\w+|allerg\w+|always"
    r"|never|favou?rite|dream|goal|decided|quit|started|first)\b|出生|去世|结婚|离婚|怀孕|搬|工作|医院|手术|毕业|过敏",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    r"\b(?:no longer|not any ?more|any ?more|quit|stopped|moved|now|instead|changed|left|used to|switched)\b"
    r"|不再|改成|改为|现在|换成",
    re.IGNORECASE,
)
_FILLER = 4  # words: what says less is small talk


def sentences(text: str) -> list[str]:
    return [one.strip() for one in _SENTENCE.findall(text) if one.strip()]


def importance(text: str) -> float:
    """1 to 10, in place of a model's rating (Generative Agents, 2304.03442, section 4.1): what changes a life counts
    most, names and numbers something, small talk and questions little."""
    words = text.split() if " " in text else terms(text, query=True)
    score = 2.0 + min(len(words), 30) / 15
    score += 1.5 * min(2, len(_WEIGHTY.findall(text)))
    score += 0.5 * min(3, len(re.findall(r"(?<=\s)[A-Z]\w+|\d+", text)))
    score += standing(text)
    if asks(text):
        score -= 1.5
    if len(words) <= _FILLER:
        score -= 1.5
    return float(min(10.0, max(1.0, score)))


def says_change(text: str) -> bool:
    """True where it says that something is otherwise than before."""
    return bool(_CHANGE.search(text))


def said(turn: MemCube) -> str:
    """A turn in one line, by whom; what is quoted of it."""
    words = " ".join(turn.words.split())
    who = turn.header.speaker or turn.header.role
    return f"{who}: {words}" if who and not words.startswith(f"{who}:") else words


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


LINE_CHARS = 400  # of a turn that is quoted whole


def line(turn: MemCube, most: int = LINE_CHARS) -> str:
    """A turn in one line of a bounded length; of a longer one the sentences that say most, in their order."""
    whole = said(turn)
    if len(whole) <= most:
        return whole
    words = " ".join(turn.words.split())
    who, parts = whole.removesuffix(words), sentences(words)
    left, taken = most - len(who), set[int]()
    for n in sorted(range(len(parts)), key=lambda n: (asks(parts[n]), -len(set(terms(parts[n]))))):
        if len(parts[n]) < left:
            taken.add(n)
            left -= len(parts[n]) + 1
    return who + " ".join(parts[n] for n in sorted(taken)) if taken else whole[:most]


_CLAIM_CHARS, _READ_CHARS = 300, 4_000  # of a sentence that is kept; of a turn that is looked at
_TO_COME = re.compile(r"\b(?:will|going to|gonna|plan\w*|next|tomorrow|soon|upcoming)\b|'ll\b|明|下", re.IGNORECASE)
_POINTS_BACK = re.compile(r"(?:It|He|She|They|This|That|These|Those|Its|His|Her|Their|So|And|But)\b(?!.*\?$)")
_SMALL_TALK = 1.3  # importance of greetings and thanks
_NAME = re.compile(r"(?<![.!?:\n] )(?<!^)\b(?!I['’])[A-Z][\w'’-]*[a-z](?: [A-Z][\w'’-]*[a-z])*")
_CALENDAR = re.compile(r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|May|June|July|August")


def claims(turn: MemCube, most: int = 4) -> list[str]:
    """What a turn states, by whom and with the day that it names, in place of a model's facts: sentences, of which one
    that speaks of "it" goes with that before it; no questions, no small talk; of many those that weigh most."""
    header = turn.header
    who, day = header.speaker or header.role, (header.said or header.created).date()
    found = list[str]()
    for one in (" ".join(s.split()) for s in sentences(turn.words[:_READ_CHARS])):
        if found and _POINTS_BACK.match(one) and len(found[-1]) + len(one) < _CLAIM_CHARS:
            found[-1] += f" {one}"
        elif not asks(one) and len(set(terms(one))) > 1 and importance(one) > _SMALL_TALK:
            found.append(one[:_CLAIM_CHARS])
    if len(found) > most:
        weight = sorted(range(len(found)), key=lambda n: -importance(found[n]))[:most]
        found = [found[n] for n in sorted(weight)]
    dated = list[str]()
    for one in found:
        named = times.find(one, day, past=not _TO_COME.search(one))
        one = f"{one} ({named.when})" if named and named.when not in one else one
        dated.append(f"{who}: {one}" if who else one)
    return dated


def proper_names(text: str) -> list[str]:
    """Who and what a text calls by name, in place of a model's entities: capitals within a sentence, no days."""
    named = (one.group().removesuffix("'s").removesuffix("’s") for one in _NAME.finditer(text))
    return list(dict.fromkeys(one for one in named if len(one) > 2 and not _CALENDAR.fullmatch(one)))


def hybrid(signals: CuratorSignals) -> Floats:
    """By meaning and by words (BM25), and by whom the query names, whose name is not part of its meaning."""
    plain = signals.plain
    return plain.near + plain.words + 0.3 * plain.speaker


def spread(found: Sequence[Recalled], view: CuratorView) -> list[Recalled]:
    """The best of each first source, then the second of each, in place of maximal marginal relevance: what tells the
    same turn again waits."""
    first = {cube.id: cube.sources[0].id if cube.sources else cube.id for cube in view.at(*(one.id for one in found))}
    again, rank = defaultdict[str, int](int), dict[str, int]()
    for one in found:
        turn = first.get(one.id, one.id)
        rank[one.id], again[turn] = again[turn], again[turn] + 1
    return sorted(found, key=lambda one: rank[one.id])


_MAX_PASSES = 10  # of label propagation


def communities(groups: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """Label propagation (Raghavan et al., 2007), as Graphiti does it: each takes the label that most of its neighbours
    have, of equals the largest, until none changes. groups: what is tied to each other. Those of one alone are left
    out."""
    ties = defaultdict[str, Counter[str]](Counter)
    for group in groups:
        for one in group:
            ties[one].update(group - {one})
    label = {one: n for n, one in enumerate(sorted(ties))}
    for _ in range(_MAX_PASSES):
        before = dict(label)
        for one in sorted(ties):
            votes = Counter[int]()
            for other, weight in ties[one].items():
                votes[label[other]] += weight
            if votes:
                label[one] = max(votes, key=lambda at: (votes[at], at == label[one], at))
        if label == before:
            break
    found = (frozenset(one for one in label if label[one] == at) for at in dict.fromkeys(label.values()))
    return [one for one in found if len(one) > 1]


def fused(*signals: Floats, k: int = 60) -> Floats:
    """Reciprocal rank fusion (Cormack et al., 2009) of what speaks for each candidate; 0 speaks for none."""
    ranks = (np.unique(-one, return_inverse=True)[1] for one in signals)
    parts = [(one > 0) / (k + 1 + rank) for one, rank in zip(signals, ranks, strict=True)]
    return np.sum(parts, axis=0, dtype=np.float32)


_MOST_CALLED = 48  # memories that are looked at for names


def called(names: Iterable[str], kind: str, view: CuratorView) -> dict[str, str]:
    """Ids of the memories of a kind, each of which is a name, that are called so, by their names as `folded`."""
    wanted = [name for name in dict.fromkeys(map(folded, names)) if name]
    found = {folded(cube.text): cube.id for cube in worded(" ".join(wanted), kind, view)}
    return {name: found[name] for name in wanted if name in found}


def worded(text: str, kind: str, view: CuratorView) -> list[MemCube]:
    """The memories of a kind that share most words with a text."""
    near = view.near(text, _MOST_CALLED, kind, score=lambda signals: signals.plain.words)
    return view.at(*(one.id for one in near))


def folded(name: str) -> str:
    return " ".join(name.split()).strip('.,!?;:"()').casefold()


def as_written(text: str, most: int) -> list[str]:
    """Its most frequent terms, of equals the longest, each as it is first written there; of scripts without spaces, as
    pairs of characters."""
    found = Counter(terms(text, query=True))
    written = dict[str, str]()
    for word in re.findall(r"[^\W_]+", text):
        if len(of := terms(word, query=True)) == 1:
            written.setdefault(of[0], word)
    best = sorted(found, key=lambda term: (-found[term], -len(term)))[:most]
    return [written.get(term, term) for term in best]
