"""Self-study: what a model asks itself is used only where the memory answers it and the model alone does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.config import ActivationConfig, Config, DecodeConfig, DistilConfig, GateConfig, ModelConfig
from memos.cube import Lesson
from memos.errors import NoProbes
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.model.decode import ModelAnswer
from memos.infrastructure.host.request import Request
from memos.infrastructure.host.training.teach import short_of
from memos.operation.forms.lesson_maker import sound
from memos.operation.forms.transitions import Transitions
from memos.plugins.questions.self_study import study
from memos.plugins.training.craft import craft

MEMORY = "Mira lives in Lisbon."
WRITES = """Sure! Here are some questions:
1. Where does Mira live? | Lisbon
2) What is Mira's home city? | Lisbon
- Where does Mira live? | Oslo
* What is the capital of France? | Paris
Mira lives somewhere | Lisbon
Where is Mira at home?
"""
AGAIN = """1. Which city does Mira live in?
2. Where is Mira's home?
She lives in Lisbon."""


class Student(Host):
    """The small model, with what an instruction model would write where it is told to write."""

    def answer(self, request: Request, decode: DecodeConfig = DecodeConfig()) -> ModelAnswer:
        told = request.messages[-1]["content"]
        if told.startswith(("Write ", "Ask the same")):
            text = WRITES if told.startswith("Write ") else AGAIN
            return ModelAnswer(text, (), 0, 0, 0.0, 0.0)
        return super().answer(request, decode)


@pytest.fixture(scope="module")
def student() -> Host:
    return Student.load(ModelConfig())


def test_questions_are_checked_against_the_memory(student: Host) -> None:
    written = [Lesson(memories=(MEMORY,), probe=probe) for probe in study(student, MEMORY, 6, 4)]
    probes = [lesson.probe for lesson in sound(student, written)]
    assert {p.answer for p in probes} == {"Lisbon"}  # what is known by heart, or wrong, is no question about it
    asked = [p.question for p in probes]
    assert {"Where does Mira live?", "Which city does Mira live in?"} <= set(asked) and len(asked) == len(set(asked))
    assert any(p.held_out for p in probes) and any(not p.held_out for p in probes)


def test_fewer_are_written_than_asked_for(student: Host) -> None:
    asked = {probe.question for probe in study(student, MEMORY, 2, 0)}
    assert asked == {"Where does Mira live?", "What is Mira's home city?"}


def test_a_model_that_does_not_follow_gives_none() -> None:
    assert study(Host.load(ModelConfig()), MEMORY, 3, 2) == []


@pytest.mark.parametrize("count", [None, 0, pytest.param(4, marks=pytest.mark.slow)])
def test_memories_that_the_rules_do_not_read_are_studied(student: Host, tmp_path: Path, count: int | None) -> None:
    """Also where it is not set, as this model has a chat template, so it may follow instructions."""

    def transitions(kernel: MemOS) -> Transitions:
        given: Sequence[Any] = (
            kernel.vault,
            kernel.parts.lifecycle,
            kernel.parts.reader,
            student,
            kernel.parts.serving(),
        )
        return Transitions(*given, DistilConfig(self_study=count), ActivationConfig())

    with MemOS(Config(), vault=tmp_path, model=student.model, tokenizer=student.tokenizer) as kernel:
        [cube] = kernel.add("Mira -> lives in Lisbon")
        assert not kernel.parts.reader.facts(cube.text)
        if count != 0:
            task = transitions(kernel).task([cube])
            assert task.lessons and all(lesson.memories == (cube.text,) for lesson in task.lessons)
            brief = task.model_copy(update={"config": DistilConfig(steps=1), "keep": task.keep[::20]})
            scores = craft(student, brief, tmp_path / "work", lambda *_: None).scores
            # no fact, so there is nothing to contradict: that alone does not fail the gate
            assert "override" not in scores and not any("override" in short for short in short_of(scores, GateConfig()))
        else:
            with pytest.raises(NoProbes, match="distil.self_study"):
                transitions(kernel).task([cube])
