"""The same questions with memories as KV or as an adapter, through the calls that users have.

Topic groups that most questions ask about are promoted; a question whose memories lie in none of them is not asked in
that form, and a group that does not become an adapter (docs/limits.md) is named.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memos.bench.conversations import added
from memos.bench.dialogues import Conversation, Question
from memos.bench.qa.records import Answer, Value, digest
from memos.config import Config
from memos.cube import Form
from memos.errors import EmptyMemory, InputError, MemosError, PromotionError
from memos.interface.doors.api.memory import Memory
from memos.kernel.answering import Reply
from memos.kernel.calls import Calls
from memos.kernel.mem_os import MemOS
from memos.operation.choosing.mem_scheduler import Via
from memos.plugins.progress import Show

log = logging.getLogger("memos")
USER = "user"
LEVELS = ("L0", "L1", "L2", "L3")  # of several KV caches in front of one question (docs/decisions, 0004)


@dataclass(frozen=True)
class Way:
    """How memories reach the model: `activation-L2` is KV at the fidelity level L2."""

    via: Via
    level: str = ""

    @classmethod
    def read(cls, text: str) -> Way:
        """Raises InputError."""
        name, _, level = text.partition("-")
        for via in ("plaintext", "activation", "parametric", "auto"):
            if name == via and (not level or (via == "activation" and level in LEVELS)):
                return cls(via, level)
        raise InputError(
            f"--via {text!r} is no form; there are plaintext, activation (or activation-L0 to -L3), parametric and auto"
        )

    def __str__(self) -> str:
        return f"{self.via}-{self.level}" if self.level else self.via

    def config(self, config: Config) -> Config:
        if not self.level:
            return config
        return config.model_copy(update={"fidelity": config.fidelity.model_copy(update={"level": self.level})})


class Promoted(Value):
    """A topic group that was to take a form. why: it did not; "" where it did."""

    memories: int
    bytes: int = 0
    seconds: float = 0.0
    why: str = ""


class FormsOf:
    """One conversation in one vault, whose groups are promoted once for all questions. Close it."""

    def __init__(self, conversation: Conversation, way: Way, config: Config, folder: Path, show: Show) -> None:
        self._way, self._show, self._conversation = way, show, conversation
        self._kernel = MemOS(way.config(config), vault=folder)
        self._calls: Calls = self._kernel.within(USER)
        added(conversation.turns.values(), self._call)
        self._call("search", query="ready", top_k=1)

    def _call(self, method: str, **given: object) -> dict[str, object]:
        return dict(getattr(Memory(kernel=self._kernel), method)(user_id=USER, **given))

    def promote(self, questions: Sequence[Question], groups: int) -> list[Promoted]:
        """Of the topic groups those of which most questions find a memory first, at most so many."""
        form = Form.PARAMETRIC if self._way.via == "parametric" else Form.ACTIVATION
        segments = self._calls.segments()
        of = {cube.id: n for n, segment in enumerate(segments) for cube in segment.cubes}
        first = (self._calls.search(question.text, top_k=1) for question in questions)
        asked = Counter(of[hits[0].cube.id] for hits in first if hits and hits[0].cube.id in of)
        chosen, out = [n for n, _ in asked.most_common(groups)], list[Promoted]()
        for n, place in enumerate(chosen):
            ids = [cube.id for cube in segments[place].cubes]
            try:
                blob = self._calls.promote(ids, form).blob
                assert blob
                out.append(Promoted(memories=len(ids), bytes=blob.bytes, seconds=blob.build_s))
            except PromotionError as error:
                out.append(Promoted(memories=len(ids), why=str(error)))
            self._show(f"{form.value}, {self._conversation.name}", n + 1, len(chosen))
        return out

    def answers(self, questions: Sequence[tuple[int, Question]]) -> Iterator[tuple[int, Answer]]:
        """The answers in this form, by the place of their question; those that it has no memories for are left out."""
        for n, question in questions:
            try:
                reply = self._calls.ask(question.text, via=self._way.via)
            except EmptyMemory:
                continue
            except MemosError as error:
                yield n, Answer(failed=str(error))
                continue
            yield n, _answer(question, reply)

    def close(self) -> None:
        self._kernel.close()


def _answer(question: Question, reply: Reply) -> Answer:
    seen = reply.admission
    told = [question.text, *(cube.text for cube in (*seen.cubes, *seen.internal))]
    return Answer(
        text=reply.text.strip(),
        prompt=digest("\0".join(told)),
        prompt_tokens=reply.prompt_tokens,
        answer_tokens=reply.answer_tokens,
        calls=1,
        ttft_ms=reply.ttft_ms,
        seconds=reply.seconds,
    )
