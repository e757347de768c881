"""Brings an adapter up to date with memories that have changed: what it must say no longer, and whether it does.

An edit begins from the adapter that is there. It looks where it looked before, the facts that stayed are rehearsed
beside the new ones, and what is no longer so is answered as the base model answers it (rehearsal, as in continual
learning; locality and the check of what is gone as in MEMIT's evaluation, 2210.07229). Knows no cubes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memos.config import DistilConfig
from memos.cube import Lesson
from memos.infrastructure.host.training.rows import Example, teacher_rows
from memos.infrastructure.host.training.teach import lessons_of, share

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host

OUTDATED = "outdated"  # the score that GateConfig.outdated judges
_EDIT: dict[str, float] = {"review": 20, "batch": 24, "batch_keep": 24, "stop_drift": 0.01}  # of DistilConfig
_RATE_FACTOR = 0.5  # of the learning rate: what is known already is not to be shaken
EDIT_KEPT = 300  # prompts whose answers must stay: the adapter has been kept from changing them once


def edit_recipe(config: DistilConfig) -> DistilConfig:
    """The settings of a training, as an edit has them."""
    assert config.learning_rate  # the recipe sets it
    rate = {"learning_rate": _RATE_FACTOR * config.learning_rate, "steps": config.edit_steps}
    return config.model_copy(update={**_EDIT, **rate})


def outdated(host: Host, earlier: Path, lessons: Sequence[Lesson]) -> list[Lesson]:
    """What an adapter was taught that is not so any more: by these lessons the answer is another, or there is none.

    Raises FingerprintMismatch, CorruptBlob.
    """
    now = {lesson.probe.question: lesson.probe.answer for lesson in lessons}
    return [old for old in lessons_of(host, earlier) if not old.probe.holds(now.get(old.probe.question, ""))]


def still_said(host: Host, folder: Path, old: Sequence[Lesson]) -> float:
    """The share of these questions that an adapter, loaded from its files, answers as it should no longer."""
    answers = host.greedy([host.ids_of(x.probe.question) for x in old], host.cold((folder,)))
    return share([x.probe.holds(host.text_of(ids)) for x, ids in zip(old, answers, strict=True)])


def unlearnt(host: Host, old: Sequence[Lesson], lessons: Sequence[Lesson], config: DistilConfig) -> list[Example]:
    """What the base model says to questions on what is no longer so, where no lesson has another answer."""
    answered = {lesson.probe.question for lesson in lessons}
    questions = dict.fromkeys(x.probe.question for x in old if not x.probe.held_out)
    asked = [host.ids_of(question) for question in questions if question not in answered]
    return teacher_rows(host.model, asked, asked, host.greedy(asked), config.top_logits)
