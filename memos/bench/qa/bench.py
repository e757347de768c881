"""`memos bench qa` from what was asked for to its report; read `bench_qa` first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memos.bench.dialogues import READERS, Conversation, read
from memos.bench.qa.answerers import (
    EXTRACTIVE,
    EndpointLimits,
    LocalAnswerer,
    answerer,
    is_local,
    language_model,
    of_model,
)
from memos.bench.qa.forms import Promoted, Way
from memos.bench.qa.judge import EXAM, Examination, ModelJudge, Verdict, read_exam
from memos.bench.qa.page import write_page
from memos.bench.qa.records import LanguageModel, digest
from memos.bench.qa.report import failures_of, rows_of, timed, totals_of, with_writer
from memos.bench.qa.run import TEXT, Plan, Run
from memos.bench.qa.scores import read_corrections
from memos.bench.qa.shown import named_systems
from memos.config import Config
from memos.errors import InputError
from memos.plugins.experiment.folder import alone_in, write
from memos.plugins.progress import Show

# what a chat model is told, unless model.system says something else; the packaged model takes no instructions
INSTRUCTION = (
    "Answer with the fact alone, in as few words as possible. If what is remembered does not answer the question, say: "
    "No information available.\n"
)
KEY = "locomo_errors.json"  # beside LoCoMo's file: the audit of its key


@dataclass(frozen=True)
class Ask:
    """What a run is asked for; see `memos bench qa --help`."""

    kind: str
    data: Path | None
    model: str
    judge: str | None
    systems: tuple[str, ...]
    via: tuple[str, ...]
    groups: int
    out: Path
    conversations: int | None
    questions: int | None
    budget: int
    context: int | None
    key: Path | None
    exam: Path | None
    seed: int


def bench_qa(
    ask: Ask, config: Config, limits: EndpointLimits, show: Show, paper: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """The report; all of it but what a clock says is also in OUT/report.json. paper: what it has of a paper beside
    one's own figures. Raises MemosError."""
    file, kind = _file(ask)
    conversations = [spread(one, ask.questions) for one in read(file, kind, evidence=False)[: ask.conversations]]
    keys = read_corrections(key) if (key := _key(ask, file)) else {}
    systems = named_systems(ask.systems, any(one.questions for one in conversations))
    ways = [way for way in map(Way.read, ask.via) if str(way) != TEXT]
    if ways and not is_local(ask.model):
        raise InputError(f"--via {ways[0]} needs a model that runs here, which {ask.model} does not; give its folder")
    with alone_in(ask.out):
        config = _told(config, ask.model)
        plan = planned(ask, file, kind, conversations, systems, config)
        run = Run(plan, ask.out, show)
        who = answerer(ask.model, config, limits, ask.context)
        model, examination = judge_of(ask, run, config, limits)
        judge = ModelJudge(model.name, model.ask) if model and examination and examination.believed else None
        records = run.records(conversations, config, who, keys)
        promoted = dict[str, list[Promoted]]()
        for way in ways:
            promoted[str(way)] = []
            for one in conversations:
                in_form, groups = run.in_form(way, one, of_model(config, ask.model), ask.groups, keys)
                records += in_form
                promoted[str(way)] += groups
        verdicts = run.judged(records, judge, examination) if judge and examination else {}
        rights = {id: verdict is Verdict.RIGHT for id, verdict in verdicts.items() if verdict is not Verdict.FAILED}
        report = {
            **plan.model_dump(exclude={"config"}),
            "model": who.name,
            "judge": judge.name if judge else None,
            "examination": asdict(examination) if examination else None,
            "judge_failed": len(verdicts) - len(rights),
            "rows": rows_of(records, rights if judge else None, ask.seed),
            "totals": with_writer(totals_of(records, ask.seed), [run.exhibit(one, config) for one in conversations]),
            "failures": failures_of(records),
            "promoted": {way: [group.model_dump() for group in groups] for way, groups in promoted.items()},
            **paper,
        }
        write(ask.out / "report.json", report)
        write_page(report, records, ask.out, rights)
    device = {"device": str(who.host.model.device)} if isinstance(who, LocalAnswerer) else {}
    return {**report, **device, "rows": timed(report["rows"], records)}


def judge_of(
    ask: Ask, run: Run, config: Config, limits: EndpointLimits
) -> tuple[LanguageModel | None, Examination | None]:
    """Who judges, and what came of its examination, before the first long step; None where none is named. Raises
    InputError for one that cannot be asked."""
    if ask.judge is None:
        return None, None
    if ask.judge == EXTRACTIVE:
        raise InputError("--judge extractive reads no answers; give a model that follows instructions, or a URL")
    exam = read_exam(ask.exam or EXAM)
    who = language_model(ask.judge, config, limits)
    return who, run.examined(ModelJudge(who.name, who.ask), exam)


def _file(ask: Ask) -> tuple[Path, str]:
    """The data, and its form."""
    if ask.kind in READERS:
        if ask.data is None:
            raise InputError(f"--set {ask.kind} needs its file; give it with --data")
        return ask.data, ask.kind
    if ask.data is not None or not Path(ask.kind).is_file():
        raise InputError(f"--set {ask.kind!r} is neither {' nor '.join(READERS)}, nor a file; give one of these")
    return Path(ask.kind), "beam"


def spread(conversation: Conversation, questions: int | None) -> Conversation:
    """With so many of its questions at most, from its beginning to its end."""
    asked = conversation.asked
    if questions is None or questions >= len(asked):
        return conversation
    return replace(conversation, asked=tuple(asked[n * len(asked) // questions] for n in range(questions)))


def _key(ask: Ask, file: Path) -> Path | None:
    beside = file.with_name(KEY)
    return ask.key or (beside if ask.kind == "locomo" and beside.is_file() else None)


def _told(config: Config, model: str) -> Config:
    """With the instruction that the model is given."""
    if config.model.system or model == "memos-small":
        return config
    return config.model_copy(update={"model": config.model.model_copy(update={"system": INSTRUCTION})})


def planned(
    ask: Ask, file: Path, kind: str, conversations: Sequence[Conversation], systems: tuple[str, ...], config: Config
) -> Plan:
    return Plan(
        set=kind if ask.kind in READERS else file.name,
        data=digest(file.read_bytes()),
        conversations=tuple(one.name for one in conversations),
        systems=systems,
        via=ask.via,
        model=ask.model,
        budget=ask.budget,
        groups=ask.groups,
        questions=ask.questions,
        context=ask.context,
        seed=ask.seed,
        config=digest(config.model_dump_json(exclude={"vault"})),
    )
