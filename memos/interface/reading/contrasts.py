"""Asks about facts, and makes prompts whose answers a new adapter must leave unchanged; knows English phrasings.

An adapter that recalls its facts may have lost the ability to read a context or to say that it does not know;
what is trained on and tested here keeps both. The words of the tests are never among those of the training.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

from memos.cube import USER, Contrast, Fact, Lesson, Probe, Text
from memos.interface.reading.phrasebook import Relation, language, phrasebook, read_book

_BOOK = read_book("memos.interface.reading", "contrasts.yaml")
NAMES = _BOOK["names"].split()
_ONSETS = "b c d f g h j k l m n p r s t v w z br dr fl gr kl pr sk st tr".split()
_CODAS = ("", "", "n", "r", "l", "s", "t", "m")
_INVENTED = 1 / 3  # of the names and objects: there is no end of them, so they cannot be learnt one by one


def invented(rng: random.Random) -> str:
    """A word that nobody has heard: two or three syllables, lower case."""
    syllables = (rng.choice(_ONSETS) + rng.choice("aeiou") + rng.choice(_CODAS) for _ in range(rng.choice((2, 2, 3))))
    return "".join(syllables)


def an_object(rng: random.Random, relation: str, half: slice = slice(None)) -> str:
    """A value that the relation may have, of one half of the examples or of all."""
    match relation:
        case "birthday":
            return f"{rng.randint(1, 28)} {rng.choice(('April', 'July', 'August'))}"
        case "code":
            return str(rng.randint(1000, 9999))
        case _:
            return rng.choice(phrasebook()[relation].examples[half])


def contrasts(facts: Sequence[Fact], known: Sequence[str], seed: int, size: int = 100) -> list[Contrast]:
    """About `size` held-out prompts of each kind, closed-book and in context; to train on, many more closed-book ones,
    which are short.

    facts: what the adapter is to learn. known: questions about what the model knows by heart.
    Every other prompt is held out, and so is every other name, object and known question.
    """
    out: list[Contrast] = []
    for held_out in (False, True):
        rng = random.Random(f"{seed}:{held_out}")
        maker = _Maker(facts, rng, held_out)
        own = rng.sample(known[held_out::2], len(known[held_out::2]))
        closed, over = (size, size) if held_out else (15 * size, 3 * size)
        own = own[: size // 2] if held_out else own
        out += [Contrast(question=q, held_out=held_out, known=True) for q in (*_BOOK["general"][held_out::2], *own)]
        out += [maker.closed() for _ in range(closed)]
        out += [maker.over_context(override=n % 3 == 0) for n in range(over)]
    return out


class _Maker:
    """Draws prompts of one half."""

    def __init__(self, facts: Sequence[Fact], rng: random.Random, held_out: bool) -> None:
        self._facts, self._rng, self._held_out = list(facts), rng, held_out
        self._half = slice(int(held_out), None, 2)
        self._taken = {word for f in facts for word in (*f.subject.split(), *f.object.split())}
        self._names = [name for name in NAMES[self._half] if name not in self._taken]
        self._pairs = {(f.subject, f.relation) for f in facts}
        self._subjects = sorted({f.subject for f in facts}) or self._names[:1]

    def _name(self) -> str:
        return invented(self._rng).title() if self._rng.random() < _INVENTED else self._rng.choice(self._names)

    def _object(self, relation: str) -> str:
        examples = phrasebook()[relation].examples
        while True:
            obj = an_object(self._rng, relation, self._half)
            if examples and self._rng.random() < _INVENTED:
                obj = invented(self._rng)
                obj = obj.title() if examples[0].istitle() else obj
            if obj not in self._taken:
                return obj

    def _form(self, relation: Relation, forms: Sequence[str]) -> str:
        """Of this half: in a form that is held out, nothing is taught, neither to answer nor to keep silent."""
        return self._rng.choice([f for f in forms if (f in relation.held_out) == self._held_out] or forms)

    def closed(self) -> Contrast:
        """A neighbour of the facts, with nothing in the context: nobody has said it."""
        rng, relations = self._rng, sorted(phrasebook())
        if rng.random() < 0.7:  # "who" is what an adapter of one person answers too readily
            relation = phrasebook()[rng.choice(relations)]
            question = relation.fill(
                self._form(relation, (*relation.who, *relation.who_else)), "", self._object(relation.name)
            )
            return Contrast(question=question, held_out=self._held_out)
        about_ours = rng.random() < 0.5
        pair = (rng.choice(self._subjects) if about_ours else self._name(), rng.choice(relations))
        if pair in self._pairs:
            return self.closed()
        return Contrast(question=self._ask(*pair), held_out=self._held_out)

    def over_context(self, override: bool) -> Contrast:
        """A question over two to four memories of other things; `override`: one of them contradicts a fact."""
        rng = self._rng
        statements: dict[tuple[str, str], str] = {}
        if override and self._facts:
            fact = rng.choice(self._facts)
            statements[fact.subject, fact.relation] = self._object(fact.relation)
        while len(statements) < rng.randint(2, 4):
            pair = (self._name(), rng.choice(sorted(phrasebook())))
            if pair not in self._pairs:
                statements[pair] = self._object(pair[1])
        question_about = next(iter(statements)) if override else rng.choice(list(statements))
        lines = [self._say(subject, name, obj) for (subject, name), obj in statements.items()]
        rng.shuffle(lines)
        return Contrast(
            question=self._ask(*question_about),
            answer=statements[question_about],
            memories=tuple(lines),
            held_out=self._held_out,
            contradicts=override and question_about in self._pairs,
        )

    def _say(self, subject: str, name: str, obj: str) -> str:
        relation = phrasebook()[name]
        if subject == "User":
            return f"User: {relation.fill(self._rng.choice(relation.says), 'I', obj)}."
        return relation.fill(self._rng.choice(relation.says), subject, obj) + "."

    def _ask(self, subject: str, name: str) -> str:
        relation = phrasebook()[name]
        return relation.fill(self._form(relation, relation.asks), "I" if subject == "User" else subject)


def probes(facts: Iterable[Fact]) -> list[Probe]:
    """For each fact all forms of asking for its object, and of asking for its subject.

    Held out is a fixed part, the same in every run: of the generic asks the last two, of the relation's own
    asks the last one, of the who forms the last one. Nobody asks who "User" is, and where two subjects share
    an object, "who" has no one answer: those facts get forward questions only.
    """
    facts = askable(facts)
    owners = Counter((fact.relation, fact.object) for fact in facts)
    probes: list[Probe] = []
    for fact in facts:
        relation = phrasebook()[fact.relation]
        subject = "I" if fact.subject == USER else fact.subject
        for form in relation.asks:
            question = relation.fill(form, subject)
            probes.append(Probe(question=question, answer=fact.object, held_out=form in relation.held_out))
        if fact.subject != USER and owners[fact.relation, fact.object] == 1:
            for form in (*relation.who, *relation.who_else):
                who, held_out = relation.fill(form, "", fact.object), form in relation.held_out
                probes.append(Probe(question=who, answer=fact.subject, held_out=held_out, reversed=True))
    return probes


def askable(facts: Iterable[Fact]) -> list[Fact]:
    """Those that a question of the phrasebook has for its answer: they hold, and are in its language."""
    plain = (fact.model_copy(update={"mode": "is", "sole": False}) for fact in facts if fact.holds)
    return [f for f in dict.fromkeys(plain) if f.relation in phrasebook() and language(f.object) == "en"]


def lessons(memories: Sequence[Text]) -> list[Lesson]:
    """The probes of each memory, its own and those of its facts, each over that memory alone: a teacher has nothing
    else to confuse it with. A question that two of the memories answer has no one answer, and is left out.
    """
    unambiguous = set(probes(fact for memory in memories for fact in memory.facts))
    return [
        Lesson(memories=(memory.text,), probe=probe)
        for memory in memories
        for probe in (*memory.probes, *(p for p in probes(memory.facts) if p in unambiguous))
    ]
