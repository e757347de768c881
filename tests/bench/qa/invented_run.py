"""A small run in its folder, of invented people: what is shown is given, and so is what is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memos.bench.dialogues import ADVERSARIAL, Conversation, Question
from memos.bench.qa.records import UNKNOWN, Answer, Record, Task
from memos.bench.qa.report import failures_of, rows_of, totals_of
from memos.bench.qa.run import Plan, Run
from memos.bench.qa.scores import Correction, QuestionKey
from memos.bench.qa.shown import Exhibit, Memory
from memos.config import Config
from memos.plugins.experiment.folder import write

HOSTILE = '</script><script>document.title = "run"</script><img src=x onerror="document.title=1"> & \u2028'
SYSTEMS = ("none", "full-context", "plain-rag", "memos", "oracle")
QUESTIONS = (
    Question("Where does Ana live?", ("D1:1",), "single-hop", "Lisbon"),
    Question("When did Ana move?", ("D1:2",), "temporal", "7 May 2023"),
    Question("Which cat has Bo?", (), ADVERSARIAL),
)
MEMORIES = tuple(
    Memory(text=text, words=text, speaker="Ana", said=f"2023-05-0{n}T10:00:00+00:00", turns=(f"D1:{n}",))
    for n, text in enumerate(("I live in Lisbon.", "I moved yesterday.", f"Look: {HOSTILE}"), start=1)
)
FOUND = {
    "none": (),
    "full-context": ((0, 0.0), (1, 0.0), (2, 0.0)),
    "plain-rag": ((2, 0.25),),
    "memos": ((0, 0.875), (2, 0.5)),
    "oracle": ((0, 0.0),),
}
ANSWERS = {"Where does Ana live?": "Lisbon", "When did Ana move?": "in May", "Which cat has Bo?": UNKNOWN}
Said = Mapping[tuple[str, str], str]  # by system and question; what begins with ! is why it failed


class Told:
    """Answers as it is told to."""

    name = "told"

    def __init__(self, said: Said) -> None:
        self._said = said

    def answer(self, tasks: Sequence[Task]) -> list[Answer]:
        return [self._one(self._said.get((t.system, t.question), ANSWERS[t.question])) for t in tasks]

    def _one(self, text: str) -> Answer:
        if text.startswith("!"):
            return Answer(failed=text[1:])
        return Answer(text=text, confidence=0.75, prompt_tokens=40, calls=1, ttft_ms=7.25, seconds=0.5)


def invented(folder: Path, said: Said | None = None, **plan: Any) -> tuple[dict[str, Any], list[Record]]:
    """Its report, which is written too, and its records. plan: what is other than usual."""
    conversation = Conversation("conv-1", {}, QUESTIONS)
    exhibit = Exhibit(turns=3, writer={}, memories=MEMORIES, found={name: (hits,) * 3 for name, hits in FOUND.items()})
    usual = {"set": "locomo", "data": "d" * 64, "conversations": ("conv-1",), "systems": SYSTEMS, "model": "told"}
    usual |= {"via": ("plaintext",), "groups": 8, "questions": None, "budget": 1600, "seed": 0, "config": "c" * 64}
    run = Run(Plan.model_validate({**usual, **plan}), folder, lambda *_: None)
    (folder / "shown").mkdir()
    write(folder / "shown" / "conv-1.json", exhibit.model_dump(mode="json"))
    audited = Correction("6 May 2023", ("D1:1",), "TEMPORAL_ERROR")
    category = next(question.category for question in QUESTIONS if question.text == "When did Ana move?")
    keys = {QuestionKey("conv-1", category, "When did Ana move?"): audited}
    records = run.records([conversation], Config(), Told(said or {}), keys)
    figures = {"rows": rows_of(records, None, 0), "totals": totals_of(records, 0), "failures": failures_of(records)}
    report = {**run.plan.model_dump(mode="json", exclude={"config"}), "judge": None, **figures}
    write(folder / "report.json", report)
    return report, records
