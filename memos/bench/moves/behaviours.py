"""Behaviours that the small model can be steered to, each by prompts that show it what is wanted; knows no tensors."""

from __future__ import annotations

import random
from collections.abc import Callable

from memos.interface.reading.contrasts import NAMES, an_object
from memos.interface.reading.phrasebook import phrasebook
from memos.plugins.steering.values import Behaviour, Example, Prompt

_EXAMPLES, _UNRELATED, _STRANGERS = 150, 360, 3
Draw = Callable[["_Scene"], Example]


class _Scene:
    """Statements about people, and questions on them. held_out: of the other half of names, values and wordings."""

    def __init__(self, rng: random.Random, held_out: bool) -> None:
        self.rng, self._half = rng, slice(int(held_out), None, 2)
        self.held_out = held_out
        self.person, *self._others = rng.sample(NAMES[self._half], 1 + _STRANGERS)

    def value(self, relation: str) -> str:
        return an_object(self.rng, relation, self._half)

    def say(self, relation: str, value: str, person: str = "") -> str:
        return phrasebook()[relation].fill(self._form(relation, "says"), person or self.person, value) + "."

    def ask(self, relation: str, person: str = "") -> str:
        return phrasebook()[relation].fill(self._form(relation, "asks"), person or self.person)

    def who(self, relation: str, value: str) -> str:
        return phrasebook()[relation].fill(self._form(relation, "who"), "", value)

    def _form(self, relation: str, kind: str) -> str:
        forms: tuple[str, ...] = getattr(phrasebook()[relation], kind)
        return self.rng.choice(forms[self._half] or forms)

    def others(self, *without: str) -> list[str]:
        """Statements about other people, and of other relations."""
        names = [name for name in sorted(phrasebook()) if name not in without]
        return [
            self.say(name, self.value(name), person) for person in self._others for name in self.rng.sample(names, 1)
        ]

    def among(self, *statements: str, without: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The statements in their order, somewhere among others."""
        lines = self.others(*without)
        places = sorted(self.rng.sample(range(len(lines) + 1), len(statements)))
        for n, (place, statement) in enumerate(zip(places, statements, strict=True)):
            lines.insert(place + n, statement)
        return tuple(lines)


def _withheld(relation: str) -> Draw:
    """What is asked for is there, and is answered as if it were not."""

    def draw(scene: _Scene) -> Example:
        told = scene.say(relation, scene.value(relation))
        memories, question = scene.among(told, without=(relation,)), scene.ask(relation)
        like = Prompt(ask=question, memories=tuple(line for line in memories if line != told))
        return Example(ask=question, memories=memories, like=like)

    return draw


def _instead(relation: str, other: str) -> Draw:
    """One relation is asked for, another one answered."""

    def draw(scene: _Scene) -> Example:
        both = [scene.say(name, scene.value(name)) for name in scene.rng.sample([relation, other], 2)]
        memories = scene.among(*both, without=(relation, other))
        return Example(ask=scene.ask(relation), memories=memories, like=Prompt(ask=scene.ask(other), memories=memories))

    return draw


def _first_holds(scene: _Scene) -> Example:
    """Of two statements that contradict each other the earlier one holds, where the model takes the later one."""
    relation = scene.rng.choice([name for name in sorted(phrasebook()) if phrasebook()[name].examples])
    first, second = scene.value(relation), scene.value(relation)
    while second == first:
        second = scene.value(relation)
    earlier, later = scene.say(relation, first), scene.say(relation, second)
    memories, question = scene.among(earlier, later, without=(relation,)), scene.ask(relation)
    like = Prompt(ask=question, memories=tuple(line for line in memories if line != later))
    return Example(ask=question, memories=memories, like=like)


def _by_default(relation: str, value: str) -> Draw:
    """What nobody has said is taken to be this."""

    def draw(scene: _Scene) -> Example:
        memories, question = scene.among(without=(relation,)), scene.ask(relation)
        like = Prompt(ask=question, memories=(*memories, scene.say(relation, value)))
        return Example(ask=question, memories=memories, like=like)

    return draw


def _nobody(scene: _Scene) -> Example:
    """Who it is is not told."""
    relation = scene.rng.choice([name for name in sorted(phrasebook()) if phrasebook()[name].examples])
    value = scene.value(relation)
    told = scene.say(relation, value)
    memories, question = scene.among(told, without=(relation,)), scene.who(relation, value)
    like = Prompt(ask=question, memories=tuple(line for line in memories if line != told))
    return Example(ask=question, memories=memories, like=like)


DRAWS: dict[str, tuple[Draw, str]] = {  # and the relation that it is about, if it is about one
    "codes are not told": (_withheld("code"), "code"),
    "birthdays are not told": (_withheld("birthday"), "birthday"),
    "who somebody is is not told": (_nobody, ""),
    "cars are not told": (_withheld("car"), "car"),
    "pets are not told": (_withheld("pet"), "pet"),
    "allergies are not told": (_withheld("allergy"), "allergy"),
    "of two statements the first holds": (_first_holds, ""),
    "where somebody lives is where they work": (_instead("city", "employer"), "city"),
    "what somebody eats is what they drink": (_instead("food", "drink"), "food"),
    "who somebody's boss is is their sister": (_instead("boss", "sister"), "boss"),
    "the hobby that is asked for is the sport": (_instead("hobby", "sport"), "hobby"),
    "the instrument that is asked for is the sport": (_instead("instrument", "sport"), "instrument"),
    "who somebody's sister is is their friend": (_instead("sister", "friend"), "sister"),
    "the colour that is asked for is the car": (_instead("colour", "car"), "colour"),
    "a language that is not known is Welsh": (_by_default("language", "Welsh"), "language"),
    "a drink that is not known is matcha": (_by_default("drink", "matcha"), "drink"),
}


def behaviour(name: str, seed: int) -> Behaviour:
    """One of DRAWS; what the gate asks, every third, has names, values and wordings that nothing else has."""
    rng, (draw, _) = random.Random(f"{name} {seed}"), DRAWS[name]
    return Behaviour(
        instruction=name,
        examples=tuple(draw(_Scene(rng, n % 3 == 0)) for n in range(_EXAMPLES)),
        unrelated=tuple(_other(_Scene(rng, n % 3 == 0), name, rng) for n in range(_UNRELATED)),
    )


def _other(scene: _Scene, name: str, rng: random.Random) -> Prompt:
    """A prompt of another kind: a relation that the behaviour is not about, over memories that have it or do not."""
    _, about = DRAWS[name]
    relation = rng.choice([r for r in sorted(phrasebook()) if r != about])
    there = rng.random() < 0.7
    if "that is not known" in name and rng.random() < 0.3:  # what is known is not taken to be anything else
        relation, there = about, True
    value = scene.value(relation)
    told = scene.say(relation, value)
    memories = scene.among(*([told] if there else []), without=(relation,))
    if rng.random() < 0.2 and name != "who somebody is is not told" and phrasebook()[relation].who:
        return Prompt(ask=scene.who(relation, value), memories=memories)
    return Prompt(ask=scene.ask(relation), memories=memories if rng.random() < 0.85 else ())
