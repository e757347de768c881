"""Generates memories in cubes, and questions that need one cube or two, from the phrasebook and a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from memos.cube import Probe
from memos.interface.reading.contrasts import NAMES, an_object
from memos.interface.reading.phrasebook import phrasebook


@dataclass(frozen=True)
class Scene:
    """cubes: the statements of each cube. one, two: questions by the number of cubes that an answer needs."""

    cubes: tuple[tuple[str, ...], ...]
    one: tuple[Probe, ...]
    two: tuple[Probe, ...]


def scene(seed: str, cubes: int, facts: int = 3, people: int = len(NAMES)) -> Scene:
    """`cubes` cubes of `facts` statements each, about so many people.

    A question that needs two cubes asks for what one cube states and a later one changes: only who has read both
    knows which holds.
    """
    rng, book = random.Random(seed), phrasebook()
    held: list[list[str]] = [[] for _ in range(cubes)]
    used: set[tuple[str, str] | str] = set()
    names = NAMES if people >= len(NAMES) else rng.sample(NAMES, people)
    one, two = list[Probe](), list[Probe]()

    def drawn() -> tuple[str, str, str]:
        while True:
            subject, name = rng.choice(names), rng.choice(sorted(book))
            obj = an_object(rng, name)
            if (subject, name) not in used and obj not in used:
                used.update({(subject, name), obj})
                return subject, name, obj

    def asked(subject: str, name: str, obj: str) -> Probe:
        relation = book[name]
        return Probe(question=relation.fill(rng.choice(relation.asks), subject), answer=obj)

    for _ in range(cubes // 2):  # each pair of cubes shares one fact that changes
        earlier, later = sorted(rng.sample(range(cubes), 2))
        subject, name, old = drawn()
        new = an_object(rng, name)
        while new in used:
            new = an_object(rng, name)
        used.add(new)
        relation = book[name]
        if len(held[earlier]) < facts and len(held[later]) < facts:
            held[earlier].append(relation.fill(rng.choice(relation.says), subject, old) + ".")
            held[later].append(relation.fill(rng.choice(relation.updates), subject, new) + ".")
            two.append(asked(subject, name, new))
    for cube in held:
        while len(cube) < facts:
            subject, name, obj = drawn()
            cube.insert(rng.randint(0, len(cube)), book[name].fill(rng.choice(book[name].says), subject, obj) + ".")
            one.append(asked(subject, name, obj))
    rng.shuffle(one)
    return Scene(tuple(map(tuple, held)), tuple(one[: max(4, len(two))]), tuple(two))
