"""The row `externalize` of `memos bench moves`: text that became an adapter, brought back from its weights alone."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memos.bench.moves.row import Row
from memos.bench.scenes import scene
from memos.config import DistilConfig
from memos.cube import Fact, Text
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.teach import Task, judge, share, short_of
from memos.interface.reading.mem_reader import MemReader
from memos.interface.reading.phrasebook import phrasebook
from memos.plugins.externalize.statements import externalize
from memos.plugins.externalize.values import SURE, Statement
from memos.plugins.progress import Show
from memos.plugins.training.craft import teach

FACTS, PEOPLE = 16, 2
_BINS = 5  # of confidence
Triple = tuple[str, str, str]  # (subject, relation, object), the object in lower case


@dataclass(frozen=True)
class RoundTrip:
    """Facts that an accepted adapter was taught, and what it says; foreign: what it says about the people of another
    group, whose facts are `others`. seconds: to ask it. bytes: of the text that came back."""

    taught: frozenset[Triple]
    others: frozenset[Triple]
    said: tuple[Statement, ...]
    foreign: tuple[Statement, ...]
    unsaid: int
    seconds: float

    @property
    def kept(self) -> list[Statement]:
        """What is sure enough to be kept."""
        return [statement for statement in self.said if statement.confidence >= SURE]

    def is_true(self, statement: Statement) -> bool:
        return triple(statement.fact) in self.taught


def measure(host: Host, groups: int, seed: int, show: Show) -> Row:
    """accepted: the lower of recall and precision, over the facts of adapters that passed their gate: what was taught
    and came back, and what came back and was taught. same_answer: recall. locality: of the pairs (person, relation)
    that nothing was taught of, those that nothing is said of. control: of the facts of another group, those "found" in
    the adapter of this one. The adapters are asked without their cards, by the names of the people.
    """
    trips = round_trips(host, groups, seed, show)
    found = [trip.is_true(statement) for trip in trips for statement in trip.kept]
    taught = sum(len(trip.taught) for trip in trips)
    recall, precision = sum(found) / max(1, taught), share(found)
    foreign = [(trip, s) for trip in trips for s in trip.foreign if s.confidence >= SURE]
    return Row(
        move="externalize",
        groups=len(trips),
        seconds_p50=statistics.median(trip.seconds for trip in trips) if trips else 0.0,
        bytes_mean=round(statistics.fmean(sum(len(s.text) for s in trip.kept) for trip in trips)) if trips else 0,
        same_answer=recall,
        locality=1 - found.count(False) / max(1, sum(trip.unsaid for trip in trips)),
        accepted=min(recall, precision),
        control=sum(triple(s.fact) in trip.others for trip, s in foreign) / max(1, sum(len(t.others) for t in trips)),
    )


def round_trips(host: Host, groups: int, seed: int, show: Show) -> list[RoundTrip]:
    """Text -> adapter -> text, of each group whose adapter passes its gate: 16 facts about two people."""
    trips = list[RoundTrip]()
    for n in range(groups):
        with tempfile.TemporaryDirectory() as name:
            mine, others = (_facts(f"externalize {seed} {which}") for which in (n, f"other {n}"))
            if (folder := _accepted(host, Path(name), mine, seed)) is not None:
                trips.append(_asked(host, folder, _stated(mine), _stated(others)))
        show("externalize", n + 1, groups)
    return trips


def calibration(trips: Sequence[RoundTrip]) -> list[dict[str, float]]:
    """Of all that was said, by confidence: how much of it, how sure it was in the mean, and how much was right."""
    said = [(s.confidence, trip.is_true(s)) for trip in trips for s in trip.said]
    rows = []
    for n in range(_BINS):
        some = [(sure, right) for sure, right in said if n <= sure * _BINS < n + 1 or (n == _BINS - 1 and sure >= 1)]
        if some:
            sure, right = (statistics.fmean(column) for column in zip(*some, strict=True))
            rows.append({"from": n / _BINS, "to": (n + 1) / _BINS, "said": len(some), "sure": sure, "right": right})
    return rows


def _facts(key: str) -> tuple[Text, ...]:
    reader = MemReader()
    (texts,) = scene(key, 1, FACTS, PEOPLE).cubes
    return tuple(Text(text=text, facts=reader.facts(text)) for text in texts)


def _stated(memories: Sequence[Text]) -> frozenset[Triple]:
    """Their facts, however they are said."""
    return frozenset(triple(fact) for memory in memories for fact in memory.facts)


def triple(fact: Fact | None) -> Triple:
    return (fact.subject, fact.relation, fact.object.casefold()) if fact else ("", "", "")


def _accepted(host: Host, work: Path, memories: Sequence[Text], seed: int) -> Path | None:
    """An adapter of the memories without a card, if it passes the gate."""
    reader, config = MemReader(), DistilConfig(seed=seed)
    facts = [fact for memory in memories for fact in memory.facts]
    lessons, keep = reader.lessons(memories), reader.contrasts(facts, host.own_questions(), seed)
    made, stranger = work / "made", work / "stranger"
    teach(host, Task(lessons=tuple(lessons), keep=tuple(keep), config=config), made, lambda *_: None)
    if short_of(judge(host, (made,), lessons, keep), config.gate):
        return None
    shutil.copytree(made, stranger)
    lora.write_card(stranger, {"fingerprint": host.fingerprint})
    return stranger


def _asked(host: Host, folder: Path, mine: frozenset[Triple], others: frozenset[Triple]) -> RoundTrip:
    reader, people = MemReader(), sorted({subject for subject, _, _ in mine})
    strangers = sorted({subject for subject, _, _ in others} - set(people))
    began = time.perf_counter()
    said = externalize(host, reader, folder, people, ())
    seconds = time.perf_counter() - began
    unsaid = len(people) * len(phrasebook()) - len({(subject, relation) for subject, relation, _ in mine})
    foreign = externalize(host, reader, folder, strangers, ())
    return RoundTrip(mine, others, tuple(said), tuple(foreign), unsaid, seconds)
