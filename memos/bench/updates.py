"""`memos bench updates`: measures answers after facts have changed many times, by how memory is kept.

A conversation states facts, changes them again and again, and talks of nothing between. Then every fact is asked for.
The alternatives keep everything, in the order of its saying, and leave it to the model to see what holds: once with the
budgets that memos has, and once with all of a person's memories in the prompt.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from memos.config import Config, SchedulerConfig
from memos.cube import EPISODE, Probe
from memos.interface.reading.phrasebook import Relation, phrasebook
from memos.kernel.mem_os import MemOS
from memos.ops import Add
from memos.plugins.progress import Show

POLICIES = ("memos", "keep everything", "keep and show everything")
_ALL = SchedulerConfig(prompt_tokens=4096, segment_tokens=4096, top_k=64)
_BEGAN = datetime(2025, 1, 1, tzinfo=timezone.utc)
# Ordinary names and words, so that it is memory that is measured and not how a model spells what it has never read.
_PEOPLE = "Anna Ben Clara David Elena Felix Greta Hugo".split()  # and the speaker
_VALUES = {
    relation: words.split()
    for relation, words in {
        "city": "Lisbon Oslo Berlin Paris London Madrid Rome Vienna",
        "job": "nurse teacher cook baker pilot doctor lawyer farmer",
        "employer": "Acme Globex Umbra Polaris Initech Vandelay Hooli Stark",
        "drink": "tea coffee water milk cider lemonade cocoa beer",
        "food": "soup pizza pasta curry salad sushi bread rice",
        "pet": "cat dog parrot rabbit hamster turtle goldfish snake",
        "hobby": "chess painting gardening pottery hiking knitting photography fishing",
        "colour": "red blue green yellow purple orange pink black",
        "instrument": "piano violin guitar cello flute drums trumpet harp",
        "language": "English French German Spanish Italian Portuguese Polish Czech",
        "sport": "tennis football rugby swimming rowing boxing judo karate",
        "birthday": "3-May 9-June 12-March 21-July 17-April 30-August 1-October 25-December",
        "sister": "Bella Nora Julia Lena Rosa Sara Tina Vera",
        "boss": "Dan Henry Irene Jack Kate Liam Martha Oscar",
        "friend": "Brian Cora Ella Fred Grace Hank Iris Lucy",
        "book": "Emma Dracula Ulysses Hamlet Faust Heidi Dune Momo",
        "allergy": "peanuts shellfish pollen dust wheat eggs soy milk",
        "trip": "Japan India Brazil Canada Norway Peru Kenya Greece",
        "car": "Skoda Volvo Toyota Fiat Honda Ford Audi Mazda",
        "code": "4711 1234 8080 2468 1357 9001 3141 2718",
    }.items()
}
# Of these a person may have several: "now plays the violin" may stand beside the flute, and only words such as "my
# new ..." or "instead" say that it is a change.
_SEVERAL = frozenset("pet hobby instrument sport friend sister allergy car".split())
_SMALL_TALK = """Good morning!
How are you today?
Thanks, that was helpful.
Ha, that made me laugh.
What lovely weather we are having.
I might go for a walk later.
Could you say that again?
Let me think about it for a moment.
That sounds great.
Did you sleep well?
It is getting late, is it not?
Never mind, it was not important.
Wow, time flies.
Okay, let us go on.
I wonder if it will rain tomorrow.
See you soon!""".splitlines()


@dataclass(frozen=True)
class Talk:
    """turns: of one speaker, in order. probes: of each fact as it is at the end."""

    turns: tuple[dict[str, object], ...]
    probes: tuple[Probe, ...]


def bench_updates(config: Config, facts: int, updates: int, small_talk: int, seed: int, show: Show) -> dict[str, Any]:
    """A row for each way of keeping: accuracy is the share of facts that are answered as they are at the end, over
    their text in the prompt; in_force: memories that could answer, of all that were kept."""
    talk = conversation(random.Random(seed), facts, updates, small_talk)
    rows = [_row(config, policy, talk, show) for policy in POLICIES]
    return {"facts": facts, "updates": updates, "turns": len(talk.turns), "rows": rows}


def _row(config: Config, policy: str, talk: Talk, show: Show) -> dict[str, Any]:
    if policy == "keep and show everything":
        config = config.model_copy(update={"scheduler": _ALL})
    with tempfile.TemporaryDirectory() as folder, MemOS(config, vault=Path(folder)) as kernel:
        for n, turn in enumerate(talk.turns, 1):
            if policy == "memos":
                kernel.add([turn])
            else:
                kernel.keep([_beside(op) for op in kernel.parts.reader.read_turns([turn], "turns")])
            show(f"{policy}: tell", n, len(talk.turns))
        right = 0
        for n, probe in enumerate(talk.probes, 1):
            right += probe.holds(kernel.ask(probe.question, via="plaintext").text)
            show(f"{policy}: ask", n, len(talk.probes))
        # statements alone: the turns that they were read in are kept beside them
        kept, in_force = (sum(c.header.kind != EPISODE for c in cubes) for cubes in (kernel.cubes(), kernel.memories()))
    return {"policy": policy, "accuracy": right / len(talk.probes), "questions": len(talk.probes), "in_force": in_force,
            "kept": kept}  # fmt: skip


def _changes(relation: Relation) -> list[str]:
    """The forms that say that something else holds now."""
    clear = [form for form in relation.updates if "{noun}" in form or "instead" in form]
    return clear if relation.name in _SEVERAL else list(relation.updates)


def _beside(op: Add) -> Add:
    """The same statement as one that replaces nothing."""
    facts = tuple(fact.model_copy(update={"mode": "also"}) for fact in op.facts)
    return Add(**dict(op) | {"facts": facts})


def conversation(rng: random.Random, facts: int, updates: int, small_talk: int) -> Talk:
    """`facts` facts about some people and the speaker, each stated once; `updates` changes to them, drawn evenly; and
    as many turns of small talk between, at random places."""
    book = phrasebook()
    things = rng.sample([(who, name) for who in ("I", *_PEOPLE) for name in sorted(book)], facts)
    values = {thing: _value(rng, thing[1]) for thing in things}
    first = [book[name].fill(rng.choice(book[name].says), who, values[who, name]) for who, name in things]
    later = list[str]()
    for who, name in rng.choices(things, k=updates):
        values[who, name] = _value(rng, name, values[who, name])
        later.append(book[name].fill(rng.choice(_changes(book[name])), who, values[who, name]))
    said = [f"{statement}." for statement in (*first, *later)]
    for _ in range(small_talk):
        said.insert(rng.randint(0, len(said)), rng.choice(_SMALL_TALK))
    times = ((_BEGAN + timedelta(minutes=n)).isoformat() for n in range(len(said)))
    turns: tuple[dict[str, object], ...] = tuple(
        {"speaker": "User", "content": text, "time": at} for text, at in zip(said, times, strict=False)
    )
    asked = (
        Probe(question=book[name].fill(rng.choice(book[name].asks), who), answer=values[who, name])
        for who, name in things
    )
    return Talk(turns, tuple(asked))


def _value(rng: random.Random, relation: str, was: str = "") -> str:
    """Another one than it was."""
    return rng.choice([value for value in _VALUES[relation] if value != was]).replace("-", " ")
