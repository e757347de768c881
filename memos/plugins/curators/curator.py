"""Defines a curator, a policy that writes: what it is given, and the operations that it may return.

    on_turns       turns that were kept, an exchange at a time -> operations
    before_answer  a question                                  -> operations
    on_answer      the answer, and what it rests on            -> operations
    on_idle        nothing: what is due from time to time      -> operations
    find           a query                                     -> what answers it, best first

    class Diary(Curator):
        def on_turns(self, turns, view, writer):
            return [Keep(text=turn.text, kind="line", sources=(turn.id,)) for turn in turns]

        def find(self, query, k, view, writer):
            return view.near(query, k, "line")

What is returned is carried out as one transaction, or not at all (carrying_out.py). Knows no stores and no rights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from pydantic import AwareDatetime, BaseModel, Field

from memos.cube import Form, Frozen, MemCube
from memos.operation.policies.policy import Floats, Ranked, Reads, Scores, Segment, Signals, as_one
from memos.plugins.curators.signals import CuratorSignals, Recalled, SignalSource

CURATOR = "curator:"  # origin of what one makes, before the name of the system
M = TypeVar("M", bound=BaseModel)


# -- operations: the closed set ------------------------------------------------------------------------------


class Keep(Frozen):
    """Keep a memory that is made of others. sources: their ids, which it goes with; none for what rests on nothing.
    name: by which operations after it in the same list may name it, "#" and a word. A memory of several sources
    has a line for each, in their order, as far as it quotes them."""

    text: str
    kind: str
    sources: tuple[str, ...] = ()
    name: str = Field("", pattern=r"^(#\w+)?$")
    tags: tuple[str, ...] = ()
    scores: Mapping[str, float] = Field(default_factory=dict)
    speaker: str = ""
    thread: str = ""
    said: AwareDatetime | None = None  # None: when the last of its sources was


class Summarise(Keep):
    """The same of what stays in force beside it."""

    kind: str = "digest"


class Revise(Frozen):
    """Give a memory that a curator has made another text; sources: these beside those that it has."""

    id: str
    text: str
    sources: tuple[str, ...] = ()


class Merge(Keep):
    """Make one memory of several that curators have made, which live on in it; their sources are its own."""

    ids: tuple[str, ...]


class Link(Frozen):
    """Tie two memories; of one kind there is one from a to b. since, until: when it is true."""

    a: str
    b: str
    kind: str
    weight: float = 1.0
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None


class Unlink(Frozen):
    """Take a link away."""

    a: str
    b: str
    kind: str


class Retag(Frozen):
    """Give a memory these tags, in place of those that it has."""

    id: str
    tags: tuple[str, ...]


class Score(Frozen):
    """Set a number that is kept with a memory, such as its importance; None: take it away."""

    id: str
    name: str
    value: float | None


class Archive(Frozen):
    """Put a memory that a curator has made out of use; it may be brought back."""

    id: str
    why: str


class BringBack(Frozen):
    """Bring one back."""

    id: str


class ForgetMemory(Archive):
    """Put one out of use for good: what ages then is removed by `lifecycle`."""


CuratorOp = Keep | Revise | Merge | Link | Unlink | Retag | Score | Archive | BringBack
CuratorOps = Iterable[CuratorOp]


# -- what a curator is given ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Writing(Generic[M]):
    """Something to be written. ask: what a language model is asked. schema: what it is held to, whose texts and lists
    have a longest length. rule: what is written where there is no model, or where it fails."""

    name: str
    ask: str
    schema: type[M]
    rule: Callable[[], M]


class Writer(Protocol):
    """Fills schemas: a language model's answers, or rules. Every call is counted."""

    @property
    def is_model(self) -> bool:
        """False where rules write alone."""
        ...

    def fill(self, writing: Writing[M]) -> M: ...

    def fill_all(self, writings: Sequence[Writing[M]]) -> list[M]:
        """Several at once, which a local model answers together."""
        ...


class CuratorView(SignalSource, Protocol):
    """What the caller may see of its memories, as it may read them, with links and use. Turns of conversations have
    the kinds episode and passage."""

    @property
    def now(self) -> datetime: ...

    def memories(self, *kinds: str) -> list[MemCube]:
        """Those in force of these kinds that the system itself has made, or that were said (episode, passage,
        tool-trace); with no kind all of them, and every statement. In the order of their saying."""
        ...

    def at(self, *ids: str) -> list[MemCube]:
        """Those of these that are in force, in this order."""
        ...

    def near(
        self, query: str, k: int, *kinds: str, score: Callable[[CuratorSignals], Scores] | None = None
    ) -> list[Recalled]:
        """The k of these kinds that score best, best first; without a score, by meaning alone."""
        ...

    def vectors(self, cubes: Sequence[MemCube]) -> Floats:
        """[cubes, dim], each of length 1: what they say."""
        ...

    def read(self, *texts: str) -> Floats:
        """[texts, dim], each of length 1."""
        ...

    def statements(self, turn: MemCube) -> list[str]:
        """What the rules read in a turn, as sentences that stand alone; none for what says nothing."""
        ...


class Curator:
    """A policy that writes; a system overrides what it does. Everything else is plain: found by meaning, as much as
    there is room for, and text alone."""

    service = "curators"
    reads: Reads = "found"

    # what it writes

    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> CuratorOps:
        """turns: of one conversation, in order: what one says, and what others answer."""
        return ()

    def before_answer(self, question: str, view: CuratorView, writer: Writer) -> CuratorOps:
        return ()

    def on_answer(
        self, question: str, answer: str, used: Sequence[MemCube], view: CuratorView, writer: Writer
    ) -> CuratorOps:
        return ()

    def on_idle(self, view: CuratorView, writer: Writer) -> CuratorOps:
        return ()

    # what it finds and shows

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        """At most k, best first."""
        return view.near(query, k)

    def score(self, signals: Signals) -> Floats:
        return signals.near

    def rank(self, hits: Ranked) -> list[tuple[MemCube, float]]:
        return list(hits)

    def admit(
        self, ranked: Ranked, groups: Sequence[Segment], need: Callable[[MemCube], int], room: int
    ) -> list[Segment]:
        return as_one([cube for cube, _ in ranked], need, room)

    def heat(self, cubes: Sequence[MemCube], now: datetime) -> float:
        return 0.0

    def form(self, heat: float, quiet_s: float, held: Mapping[Form, MemCube]) -> Form | None:
        return None

    def cold(self, heat: float) -> bool:
        return False
