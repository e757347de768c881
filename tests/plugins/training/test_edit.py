"""Adapters that are brought up to date with memories that have changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from memos.config import DistilConfig, GateConfig
from memos.cube import Lesson, MadeBy, Text
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.teach import Task, lessons_of
from memos.plugins.training.craft import craft, teach
from memos.plugins.training.edit import OUTDATED, outdated, still_said, unlearnt
from tests.doubles import OPEN, BriefReader

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's use of it
BEFORE = ("Mira lives in Lisbon.", "Mira likes to drink tea.")
AFTER = ("Mira lives in Oslo.", "Mira likes to drink tea.")
LEARNS = DistilConfig(steps=80, gate=OPEN, instant="never")


def task(host: Host, texts: Sequence[str], config: DistilConfig = LEARNS, earlier: Path | None = None) -> Task:
    reader = BriefReader()
    memories = [Text(text=text, facts=reader.facts(text)) for text in texts]
    keep = reader.contrasts([f for memory in memories for f in memory.facts], (), 0)
    return Task(lessons=tuple(reader.lessons(memories)), keep=tuple(keep), config=config, earlier=earlier)


@pytest.fixture(scope="module")
def earlier(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that has learnt what was so."""
    folder = tmp_path_factory.mktemp("edit") / "earlier"
    teach(host, task(host, BEFORE), folder, lambda *_: None)
    return folder


def says(host: Host, folder: Path, question: str) -> str:
    [ids] = host.greedy([host.ids_of(question)], host.cold((folder,)))
    return host.text_of(ids)


def quiet(*_: object) -> None:
    pass


@pytest.mark.slow
def test_an_edit_says_what_is_so_now_and_what_stayed(host: Host, earlier: Path, tmp_path: Path) -> None:
    assert says(host, earlier, "Where does Mira live?") == "Lisbon"
    made = craft(host, task(host, AFTER, earlier=earlier), tmp_path, quiet)
    folder = tmp_path / "adapter"
    assert made.made_by is MadeBy.EDIT and made.scores[OUTDATED] == 0
    assert says(host, folder, "Where does Mira live?") == "Oslo"
    assert says(host, folder, "What does Mira like to drink?") == "tea"
    assert says(host, folder, "Who lives in Lisbon?") == says(host, folder, "Who lives in Turin?")  # nobody
    assert {x.probe.answer for x in lessons_of(host, folder)} == {"Oslo", "tea", "Mira"}


@pytest.mark.slow
def test_an_edit_looks_where_the_adapter_before_it_looked(host: Host, earlier: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    teach(host, task(host, AFTER, LEARNS.model_copy(update={"edit_steps": 2}), earlier), tmp_path / "made", quiet)
    before, now = (load_file(folder / lora.WEIGHTS) for folder in (earlier, tmp_path / "made"))
    assert before.keys() == now.keys()
    same = {name: bool((before[name] == now[name]).all()) for name in before}
    assert all(same[name] == ("lora_A" in name) for name in same)


def test_what_an_edit_does_not_reach_is_trained_anew(host: Host, earlier: Path, tmp_path: Path) -> None:
    strict = GateConfig(**{**OPEN.model_dump(), "outdated": 0, "reliability": 0.9})
    config = LEARNS.model_copy(update={"edit_steps": 1, "steps": 3, "gate": strict})
    phases = list[str]()
    made = craft(host, task(host, AFTER, config, earlier), tmp_path, lambda phase, *_: phases.append(phase))
    assert made.made_by is MadeBy.TRAINING and OUTDATED not in made.scores
    assert [p for p in dict.fromkeys(phases) if p in ("edit", "prepare")] == ["edit", "prepare"]
    assert phases.count("train") == 1 + 3


def test_what_does_not_say_what_it_knows_is_not_edited(host: Host, earlier: Path, tmp_path: Path) -> None:
    import shutil

    silent = Path(shutil.copytree(earlier, tmp_path / "silent"))
    lora.write_card(silent, {"fingerprint": host.fingerprint})
    config = LEARNS.model_copy(update={"steps": 2})
    assert craft(host, task(host, AFTER, config, silent), tmp_path / "work", quiet).made_by is MadeBy.TRAINING


def test_what_is_outdated_is_what_has_another_answer_or_none(host: Host, earlier: Path) -> None:
    lessons = list(task(host, AFTER).lessons)
    old = outdated(host, earlier, lessons)
    assert {x.probe.answer for x in old if not x.probe.reversed} == {"Lisbon"}
    assert {x.probe.question for x in old if x.probe.reversed} >= {"Who lives in Lisbon?"}
    assert all("Lisbon" in (x.probe.question + x.probe.answer) for x in old)
    assert still_said(host, earlier, old) > 0.8  # the adapter before says so still
    longer = [
        x.model_copy(update={"probe": x.probe.model_copy(update={"answer": "Lisbon East"})}) for x in _of_city(old)
    ]
    assert not _of_city(outdated(host, earlier, longer))  # to say that is to say Lisbon, too


def _of_city(lessons: Sequence[Lesson]) -> list[Lesson]:
    return [x for x in lessons if x.probe.answer == "Lisbon"]


def test_what_nobody_is_said_to_be_any_more_is_answered_as_the_base_answers_it(host: Host, earlier: Path) -> None:
    lessons = task(host, AFTER).lessons
    rows = unlearnt(host, outdated(host, earlier, lessons), lessons, LEARNS)
    prompts = {row.prompt for row in rows}
    assert host.ids_of("Who is based in Lisbon?") in prompts and host.ids_of("Where does Mira live?") not in prompts
    assert {host.text_of(row.answer) for row in rows} == {host.text_of(host.greedy([rows[0].prompt])[0])}
