"""`memos bench qa`: turns are added, questions asked, answers scored, and everything written down as it comes.

A folder holds one run: plan.json (what was asked for), shown/ (what each system shows, a file a conversation), answers/
(a file a question). What is there is not done again, so a run that was cut off goes on where it was, and its report is
that of a run that was not: what a clock says stands apart, in what `--json` writes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path

from memos.bench.dialogues import PROBING, UNANSWERABLE, Conversation, Question
from memos.bench.qa.forms import FormsOf, Promoted, Way
from memos.bench.qa.judge import Claim, ExamCase, Examination, ModelJudge, Verdict, exam_digest, examined
from memos.bench.qa.records import UNKNOWN, Answer, Answerer, Record, Task, Value
from memos.bench.qa.scores import Correction, QuestionKey
from memos.bench.qa.shown import NONE, OURS, Exhibit, exhibit
from memos.config import Config
from memos.errors import InputError
from memos.plugins.experiment.folder import writable, write
from memos.plugins.progress import Show

Corrections = Mapping[QuestionKey, Correction]  # of the key, by its audit
TEXT = "plaintext"  # the form that every answerer takes
AT_ONCE = 64  # questions that are answered before they are written down


class Plan(Value):
    """What a run is of. data: its SHA-256. via: the form in which memories reach the model."""

    set: str
    data: str
    conversations: tuple[str, ...]
    systems: tuple[str, ...]
    via: tuple[str, ...]
    model: str
    budget: int
    groups: int
    questions: int | None
    context: int | None = None
    seed: int
    config: str  # its SHA-256


class InForm(Value):
    """What came of one conversation in one form. asked: the places of the questions that it had memories for."""

    groups: tuple[Promoted, ...]
    asked: tuple[int, ...]


def scored_questions(conversation: Conversation) -> Iterator[tuple[int, Question]]:
    """Those that an answer can be held to, with their place: that the key answers, or says that nothing answers; and
    those of a set that has no key."""
    for n, question in enumerate(conversation.asked):
        if question.answer or question.category in (*UNANSWERABLE, PROBING):
            yield n, question


class Run:
    """One run in its folder. Raises InputError where that holds another."""

    def __init__(self, plan: Plan, folder: Path, show: Show) -> None:
        self.plan, self.folder, self._show = plan, folder, show
        self._exhibits = dict[str, Exhibit]()  # by conversation
        there = folder / "plan.json"
        if there.is_file():
            before = Plan.model_validate_json(there.read_text("utf-8"))
            if wrong := [name for name in Plan.model_fields if getattr(before, name) != getattr(plan, name)]:
                raise InputError(
                    f"{folder} holds a run with another {', '.join(wrong)}; go on with the same, or give another --out"
                )
        self._write(there, plan)

    def records(
        self, conversations: Sequence[Conversation], config: Config, who: Answerer, keys: Corrections
    ) -> list[Record]:
        """Every question answered, in the order of systems, conversations and questions. Raises MemosError."""
        exhibits = {one.name: self.exhibit(one, config) for one in conversations}
        every = [
            _with_shown(self._record(system, TEXT, one, n, question, keys), exhibits[one.name], n)
            for system in self.plan.systems
            for one in conversations
            for n, question in scored_questions(one)
        ]
        answered = {record.id: record for record in map(self._kept, every) if record is not None}
        left = [record for record in every if record.id not in answered]
        for start in range(0, len(left), AT_ONCE):
            some = left[start : start + AT_ONCE]
            tasks = [
                Task(id=r.id, system=r.system, question=r.question, shown=r.shown, choices=r.choices) for r in some
            ]
            for record, answer in zip(some, who.answer(tasks), strict=True):
                answered[record.id] = record.model_copy(update={"answer": answer})
                self._write(self._file(record), answered[record.id])
                self._show(f"answers, {who.name}", len(answered), len(every))
        return [answered[record.id] for record in every]

    def in_form(
        self, way: Way, conversation: Conversation, config: Config, groups: int, keys: Corrections
    ) -> tuple[list[Record], list[Promoted]]:
        """Every question that the form has memories for, and the topic groups that took it, or did not."""
        done = self.folder / "forms" / str(way) / f"{_name(conversation.name)}.json"
        questions = dict(scored_questions(conversation))
        asked = {n: self._record(OURS, str(way), conversation, n, one, keys) for n, one in questions.items()}
        records = {n: record for n, one in asked.items() if (record := self._kept(one))}
        if done.is_file():
            told = InForm.model_validate_json(done.read_text("utf-8"))
            if all(n in records for n in told.asked):  # else some have failed, and are asked again
                return [records[n] for n in told.asked], list(told.groups)
        vault = done.with_suffix("")
        with closing(FormsOf(conversation, way, config, vault, self._show)) as of:
            promoted = of.promote(list(questions.values()), groups)
            for n, answer in of.answers([(n, one) for n, one in questions.items() if n not in records]):
                records[n] = asked[n].model_copy(update={"answer": answer})
                self._write(self._file(records[n]), records[n])
                self._show(f"answers, {way}, {conversation.name}", len(records), len(questions))
        self._write(done, InForm(groups=tuple(promoted), asked=tuple(sorted(records))))
        shutil.rmtree(vault)
        return [records[n] for n in sorted(records)], promoted

    def exhibit(self, conversation: Conversation, config: Config) -> Exhibit:
        """What each system shows: all of a conversation, or nothing of it, is there from before."""
        if (name := conversation.name) not in self._exhibits:
            file, plan = self.folder / "shown" / f"{_name(name)}.json", self.plan
            if file.is_file():
                self._exhibits[name] = Exhibit.model_validate_json(file.read_text("utf-8"))
            else:
                show = partial(self._show, f"memories, {name}")
                self._exhibits[name] = exhibit(plan.systems, conversation, config, plan.budget, show)
                self._write(file, self._exhibits[name])
        return self._exhibits[name]

    def examined(self, judge: ModelJudge, exam: Sequence[ExamCase]) -> Examination:
        """What came of the judge's examination, or of the same one before. Raises what the judge does."""
        file = self.folder / "judged" / f"{exam_digest(judge, exam)}.examination.json"
        if file.is_file():
            return Examination(**json.loads(file.read_text("utf-8")))
        self._show(f"examination, {judge.name}", 0, 1)
        examination = examined(judge, exam)
        with writable(self.folder):
            file.parent.mkdir(exist_ok=True)
            write(file, asdict(examination))
        self._show(f"examination, {judge.name}", 1, 1)
        return examination

    def judged(self, records: Sequence[Record], judge: ModelJudge, examination: Examination) -> dict[str, Verdict]:
        """What the judge says of each answer, by the record's id."""
        file, out = self.folder / "judged" / f"{examination.digest}.json", dict[str, Verdict]()
        if file.is_file():
            out = {id: Verdict(said) for id, said in json.loads(file.read_text("utf-8")).items()}
        left = [r for r in records if r.id not in out and not r.answer.failed]
        for start in range(0, len(left), AT_ONCE):
            some = left[start : start + AT_ONCE]
            claims = [Claim(r.question, r.corrected or r.gold or UNKNOWN, r.answer.text) for r in some]
            out |= zip((r.id for r in some), judge.verdicts(claims), strict=True)
            with writable(self.folder):
                write(file, {id: verdict.value for id, verdict in out.items()})
            self._show(f"judged, {judge.name}", start + len(some), len(left))
        return out

    def _record(
        self, system: str, via: str, conversation: Conversation, n: int, question: Question, keys: Corrections
    ) -> Record:
        """A question, before it is answered."""
        via = NONE if system == NONE else via
        other = keys.get(QuestionKey(conversation.name, question.category, question.text))
        return Record(
            id=f"{system}/{via}/{_name(conversation.name)}/{n:04}",
            set=self.plan.set,
            conversation=conversation.name,
            system=system,
            via=via,
            category=question.category,
            question=question.text,
            gold=question.answer,
            choices=question.choices,
            corrected=other.gold if other and other.gold != question.answer else None,
            evidence=question.evidence,
            answer=Answer(),
        )

    def _write(self, file: Path, value: Value) -> None:
        with writable(self.folder):
            file.parent.mkdir(parents=True, exist_ok=True)
            write(file, value.model_dump(mode="json"))

    def _file(self, record: Record) -> Path:
        return self.folder / "answers" / f"{record.id}.json"

    def _kept(self, asked: Record) -> Record | None:
        """The answer to it that is there from before; one that failed is asked for again."""
        file = self._file(asked)
        if not file.is_file():
            return None
        record = Record.model_validate_json(file.read_text("utf-8"))
        return None if record.answer.failed else record.model_copy(update={"shown": asked.shown})


def _with_shown(record: Record, shown: Exhibit, n: int) -> Record:
    recall = shown.recall(record.system, n, record.evidence) if record.evidence else None
    return record.model_copy(update={"shown": shown.shown(record.system, n), "evidence_recall": recall})


def _name(conversation: str) -> str:
    """As a name of a file."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in conversation) or "_"
