"""Defines what a policy decides and the values it is given; knows no stores, tensors or rights.

    rank        score and rank: what answers a question best
    admit       what of it a request sees
    plan moves  heat, form, cold: which memories should have a dearer form

A `Staged` policy finds by stages of its own (kernel/access.py). A policy that `Writes` also makes, changes and links
memories.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import Stemmer

from memos.config import Config
from memos.cube import Form, MemCube, Source
from memos.extensions import Registry
from memos.lazy import pattern
from memos.skeleton import simplified

Floats = npt.NDArray[np.float32]
Scores = npt.NDArray[np.floating]
Score = Callable[["Signals"], Scores]  # what speaks for each candidate -> a number for each


@dataclass(frozen=True)
class Signals:
    """What speaks for each candidate of a search: one value for each, [candidates].

    Shares of words are BM25 over the most that a text could reach with this query: 0 none of its words, 1 all of them,
    each counted as much as it is rare.
    """

    near: Floats  # cosine of the query and the memory in its context
    tokens: Floats  # mean cosine of the query's tokens, each with the one of the memory that is nearest to it; `near`
    # as long as these were not compared
    words: Floats  # share of the query's words in the memory
    around: Floats  # the same of its neighbours in the conversation, the nearer the more
    thread: Floats  # the same of the whole conversation
    speaker: Floats  # 1 where the query names just the one who said it
    subject: Floats  # 1 where the query is about its topic group
    states: Floats  # 1 where it states a fact that the query asks for
    linked: Floats  # 1 over the number of facts between it and what the query is about; 0 where that is out of reach
    answers: Floats  # what a cross-encoder says, from 0 to 1; 0 without one, and for what it did not see
    seen: Floats  # how surely the query tells of its picture, from 0 to 1; 0 without one, or an encoder of pictures
    question: Floats  # 1 where it ends with a question itself
    length: Floats  # log of its terms, 0 at about six of them
    other: Floats  # 1 where the other side said it than the query asks for
    # where the query asks for work: 1 for an instruction that holds from now on, less for a preference
    standing: Floats
    age: npt.NDArray[np.float64]  # seconds since it was said
    idle: npt.NDArray[np.float64]  # seconds since it was used last, or kept where it never was
    ids: npt.NDArray[np.object_]  # the candidates themselves, for signals of one's own

    def at(self, candidates: npt.NDArray[np.int64], **seen: Floats) -> Signals:
        """Those of some candidates, with what was seen of these alone."""
        return Signals(**{f.name: getattr(self, f.name)[candidates] for f in fields(self)} | seen)

    def by_name(self, candidates: npt.NDArray[np.int64]) -> list[dict[str, float]]:
        """The signals of each of these candidates, to four digits."""
        names = [f.name for f in fields(self) if f.name != "ids"]
        signals = np.array([getattr(self, name)[candidates] for name in names], np.float64)
        return [dict(zip(names, values, strict=True)) for values in signals.T.round(4).tolist()]


@dataclass(frozen=True)
class Segment:
    """Cubes that are admitted, encoded and distilled together, in canonical order: as a rule, a topic group."""

    key: str
    cubes: tuple[MemCube, ...]

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        return tuple(c.pin for c in self.cubes)


Ranked = Sequence[tuple[MemCube, float]]
Need = Callable[[MemCube], int]  # tokens that a memory takes
Reads = Literal["groups", "found", "all"]


class Policy(Protocol):
    """Pure decisions over values."""

    @property
    def reads(self) -> Reads:
        """What `admit` is given as groups: those of the memories found, with all their members; the memories found
        alone; all that the caller may see."""

    def score(self, signals: Signals) -> Scores:
        """A number for each candidate, the best highest."""

    def rank(self, hits: Ranked) -> list[tuple[MemCube, float]]:
        """Best first; what is too weak left out."""

    def admit(self, ranked: Ranked, groups: Sequence[Segment], need: Need, room: int) -> list[Segment]:
        """What a request may see, best first. need: tokens of a memory, of which there is room for so many."""

    def heat(self, cubes: Sequence[MemCube], now: datetime) -> float:
        """How much a topic group is used; 0 where it is not."""

    def form(self, heat: float, quiet_s: float, held: Mapping[Form, MemCube]) -> Form | None:
        """The form a topic group should be promoted to now, or None.

        quiet_s: seconds since its last change. held: the forms it has already.
        """

    def cold(self, heat: float) -> bool:
        """True where derived forms are given up."""


@runtime_checkable
class Writes(Protocol):
    """A policy that writes: it names the service that carries out what it returns (kernel/access.py, `Curating`)."""

    @property
    def service(self) -> str:
        """By its name in the extension point memos.services."""


def best_first(hits: Ranked) -> list[tuple[MemCube, float]]:
    """By score; of equal ones the older first."""
    return sorted(hits, key=lambda hit: (-hit[1], hit[0].order))


def as_one(cubes: Sequence[MemCube], need: Need, room: int) -> list[Segment]:
    """The first of these that fit together, as one group in canonical order; what does not fit is passed over."""
    taken = list[MemCube]()
    for cube in cubes:
        if (tokens := need(cube)) <= room:
            room -= tokens
            taken.append(cube)
    return [Segment("", tuple(sorted(taken, key=lambda c: c.order)))] if taken else []


POLICIES: Registry[Callable[[Config], Policy]] = Registry("memos.policies", "policy")  # makers, by name

# Words of scripts with spaces are stemmed and function words left out. Chinese, Japanese and Korean have no spaces:
# there each pair of neighbouring characters is a term, so that 拿铁 is found within 用户每周五购买拿铁 without a
# dictionary.
_HAN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_RUN = pattern(rf"[{_HAN}]+|[^\W_{_HAN}]+")
_HAN_FIRST = pattern(f"[{_HAN}]")
_ASIDE = pattern(r"[\[(（][^\])）]*[\])）]\s*$")  # what stands in brackets at the end
# what carries grammar and no matter, of English
STOP = frozenset(
    """a about above after again against all also am an and any are as at be because been before being below between
    both but by can could d did do does doing don down during each few for from further had has have having he her here
    hers herself him himself his how i if in into is it its itself just ll m me more most my myself no nor not now of
    off on once only or other our ours ourselves out over own re s same shall she should so some such t than that the
    their theirs them themselves then there these they this those through to too under until up ve very was we were
    what when where which while who whom whose why will with would you your yours yourself yourselves""".split()
)
# the same of Chinese, where a query is cut at them: of characters on either side there is no term. Beside kana, they
# belong to Japanese words
_HAN_STOP = pattern(
    r"(?<![\u3040-\u30ff])(?:几个?人|可以|什么(?:时候)?|时候|怎么样?|为[啥何]?|多少|现在|[我你您他她它咱俺]们?|哪[里儿些个位家年天]?|[谁啥咋几的了着得吗呢吧啊呀嘛么叫是在还也很跟与把给]"
    r"|[有和被从到](?![限平子])|(?<![成首])都|就(?!业)|地(?![址铁方点图])|过(?![敏年])|会(?![议员计])|(?<![重需])要|(?<![功性])能|对(?![象面])"
    r"|最(?!近)|[这那][个些里儿边]?|没有?|不是?|一(?:[个下些]|开始)|个(?:月|星期|礼拜)|请问?|(?<!小)说过?(?![明法])|记得|告诉|知道)(?![\u3040-\u30ff])"
)
PREFERENCE = 0.3  # as a share of an instruction
_INSTRUCTS = pattern(
    r"(?:^|[.!?]\s+)(?:please |also,? )?(?:always|never|from now on|going forward|in future|every time i"
    r"|when(?:ever)? i ask)\b|\bwhen(?:ever)? i ask (?:about|for)\b|\bfrom now on\b|以后|从现在起|每次我|总是|永远不要",
    re.IGNORECASE,
)
_PREFERS = pattern(
    r"\b(?:i|we)(?:['’]d| would)?(?: really| generally| usually| much| always)? (?:prefer|rather|favou?r|love|hate"
    r"|dislike|avoid|chose|choose|don['’]t like|like to)\b|\b(?:i|we)['’]ve (?:chosen|decided)|\bmy preference"
    r"|我(?:更)?(?:喜欢|偏好|讨厌|不喜欢)",
    re.IGNORECASE,
)
_END = 300  # characters of a text that are looked at for that
_stemmer, _lock = Stemmer.Stemmer("english"), threading.Lock()


def terms(text: str, query: bool = False) -> list[str]:
    """The terms of a text, in order, as often as they occur.

    query: a run of two characters or more gives its pairs only; a text gives its single characters too, for queries
    that have but one.
    """
    found: list[str] = []
    for run in _RUN.findall(unicodedata.normalize("NFKC", text).casefold()):
        if _HAN_FIRST.match(run):
            for part in _HAN_STOP.split(simplified(run)) if query else [simplified(run)]:
                pairs = [part[i : i + 2] for i in range(len(part) - 1)]
                found += pairs if query and pairs else [*pairs, *part]
        elif run not in STOP:
            found.append(_stem(run))
    return found


def asks(text: str) -> bool:
    """True if a text ends with a question."""
    return _ASIDE.sub("", text.rstrip()[-_END:]).rstrip().endswith(("?", "？"))


def standing(text: str) -> float:
    """How far a text says how replies are wanted from now on: 1 for an instruction, less for a preference, else 0."""
    return 1.0 if _INSTRUCTS.search(text) else PREFERENCE if _PREFERS.search(text) else 0.0


@lru_cache(maxsize=1 << 17)
def _stem(word: str) -> str:
    with _lock:  # a stemmer has a buffer of its own
        return str(_stemmer.stemWord(word))
