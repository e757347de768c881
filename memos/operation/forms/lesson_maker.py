"""Makes the questions that a group of memories is taught and judged by, and tells how much of it they ask about.

    the phrasebook's and the user's own
    -> of memories without any, what the model asks itself
    -> of statements that none of these ask about, those of `distil.questions`

Knows what a gate must be able to ask; must not know how a question is worded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memos.cube import Lesson, MemCube
from memos.errors import NoProbes
from memos.infrastructure.host.training.teach import Tell, agreed
from memos.operation.forms.lessons import QUESTIONS, STUDIES, GroupStatement, LessonReader, statements_of
from memos.operation.life.knowledge import text_of

if TYPE_CHECKING:
    from memos.config import DistilConfig
    from memos.infrastructure.host.host import Host

ASKABLE = "askable"  # score: share of a group's statements that are asked about
QUESTIONS_PER_MEMORY, FORMS_PER_QUESTION = 6, 5  # that a model asks itself


@dataclass(frozen=True)
class GroupLessons:
    """The questions about a group, and its statements, each with whether it is asked about."""

    lessons: tuple[Lesson, ...]
    statements: tuple[GroupStatement, ...]

    @property
    def askable(self) -> float:
        """The share of the statements that is asked about; 0 where nothing is stated."""
        return sum(s.asked for s in self.statements) / len(self.statements) if self.statements else 0.0


class LessonMaker:
    """Makes lessons of memories with one reader and model. Raises InputError where nothing is called
    `distil.questions`."""

    def __init__(self, reader: LessonReader, host: Host, config: DistilConfig) -> None:
        self._reader, self._host, self._config = reader, host, config
        self._ask = QUESTIONS.get(config.questions)

    def of(self, sources: Sequence[MemCube], tell: Tell = lambda *_: None, checked: bool = True) -> GroupLessons:
        """What is asked about plaintext memories; what two of them answer differently is not. checked: of the questions
        of distil.questions, those count that the model answers over the memory and not without it."""
        texts = {c.text: text_of(c) for c in sources}
        found = self._reader.lessons([text_of(c) for c in sources])
        found = agreed(found + self._studied(texts.keys() - {x.memories[0] for x in found}, tell))
        # what the user asks about, and what the reader takes for nothing but facts, is asked about as a whole
        whole = {name for name, text in texts.items() if text.probes or (text.facts and not text.more)}
        statements = [self._seen(s, found, whole) for c in sources for s in statements_of(self._reader, c)]
        made = {s: [Lesson(memories=(s.memory,), probe=p) for p in of] for s, of in self._ask(statements).items()}
        posed = [lesson for lessons in made.values() for lesson in lessons]
        found = agreed([*found, *self._paired(sound(self._host, posed) if checked else posed)])
        there = set(found)
        for place, s in enumerate(statements):
            if s in made:
                statements[place] = self._seen(s, [x for x in made[s] if x in there], whole=())
        return GroupLessons(tuple(dict.fromkeys(found)), tuple(statements))

    def require(self, made: GroupLessons, sources: Sequence[MemCube]) -> GroupLessons:
        """The same lessons. Raises NoProbes where they are too few to judge by what was learnt of the sources."""
        names, least = ", ".join(c.id for c in sources), self._config.gate.askable
        way = (
            "add them with probes=[Probe(question=…, answer=…), Probe(…, held_out=True)], let a model that follows "
            "instructions ask itself (distil.self_study), or keep them as plaintext or KV"
        )
        if not any(not x.probe.held_out for x in made.lessons):
            raise NoProbes(
                f"no question can be made of {names}: neither the phrasebook nor distil.questions "
                f"({self._config.questions}) finds in them what this model could be asked; {way}"
            )
        if self._config.gate.generality and not any(x.probe.held_out for x in made.lessons):
            raise NoProbes(
                f"none of {len(made.lessons)} questions about {names} is held out, so nothing would tell what was "
                f"learnt from what was repeated; give some with Probe(…, held_out=True)"
            )
        if made.askable < least:
            asked, count = sum(s.asked for s in made.statements), len(made.statements)
            silent = next((s.words for s in made.statements if not s.asked), "")
            raise NoProbes(
                f"{ASKABLE} {made.askable:.3f} (at least {least:g}): this model can be asked about {asked} of {count} "
                f"statements of {names}, in training and held out, so the gate cannot judge what it would learn of the "
                f"others, as {silent!r}; {way}, leave out what states little, or lower distil.gate.askable"
            )
        return made

    def _paired(self, lessons: Sequence[Lesson]) -> list[Lesson]:
        """Those of answers that are both taught and, if the gate asks for it, proven: one alone does neither."""
        taught = {(x.memories, x.probe.answer) for x in lessons if not x.probe.held_out}
        proven = {(x.memories, x.probe.answer) for x in lessons if x.probe.held_out}
        both = taught & proven if self._config.gate.generality else taught
        return [x for x in lessons if (x.memories, x.probe.answer) in both]

    def _seen(self, statement: GroupStatement, lessons: Sequence[Lesson], whole: Collection[str]) -> GroupStatement:
        """The statement, asked about if lessons of its memory teach an answer that stands in it and, where the gate
        asks for that, prove that it was learnt. whole: memories about all of which their lessons ask."""
        about = [x.probe for x in lessons if x.memories == (statement.memory,)]
        if statement.memory not in whole:
            about = [probe for probe in about if probe.holds(statement.words)]
        taught = {probe.answer for probe in about if not probe.held_out}
        proven = {probe.answer for probe in about if probe.held_out}
        if not self._config.gate.generality:
            return replace(statement, asked=bool(taught))
        return replace(statement, asked=bool(taught and proven if statement.memory in whole else taught & proven))

    def _studied(self, texts: Collection[str], tell: Tell) -> list[Lesson]:
        """Of memories in which the reader finds nothing, what the model asks itself about them."""
        count = self._config.self_study
        if count is None:
            count = QUESTIONS_PER_MEMORY if self._host.prompts.chat else 0
        out: list[Lesson] = []
        for n, text in enumerate(sorted(texts) if count else (), 1):
            tell("study", n, len(texts), 0.0)
            probes = STUDIES.get("prompts")(self._host, text, count, FORMS_PER_QUESTION)
            out += sound(self._host, [Lesson(memories=(text,), probe=probe) for probe in probes])
        return out


def sound(host: Host, lessons: Sequence[Lesson]) -> list[Lesson]:
    """Those that the model answers over their memories, and not without them: the others would prove nothing."""
    read = host.greedy([host.ids_of(x.probe.question, x.memories) for x in lessons])
    lessons = [x for x, ids in zip(lessons, read, strict=True) if x.probe.holds(host.text_of(ids))]
    by_heart = host.greedy([host.ids_of(x.probe.question) for x in lessons])
    return [x for x, ids in zip(lessons, by_heart, strict=True) if not x.probe.holds(host.text_of(ids))]
