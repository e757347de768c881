"""Makes an adapter, or trained KV, of a task, in a folder from which it can be taken up again; knows no cubes.

`teach` makes one, `craft` judges it too, loaded from its files.

Trained KV is the middle way between KV and an adapter (Cartridges, 2506.06266): some rows of the real cache, trained
until the model answers over them as it answers over the text. Rows keep the places that their tokens had, and what
follows is numbered as in the full prompt; so they serve like any other KV, in any batch, which peft's CARTRIDGE, a
model of its own whose text begins right after its rows, does not.
"""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from memos.config import DistilConfig
from memos.cube import Lesson, MadeBy, Probe
from memos.errors import NoProbes, Unsupported
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.adapters.serving import Adapters, Stack
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.training.rows import Cartridge, Example, answer_row, teacher_rows
from memos.infrastructure.host.training.teach import (
    Crafted,
    Task,
    Tell,
    agreed,
    as_answered,
    judge,
    judge_kv,
    lessons_of,
    short_of,
)
from memos.plugins.training.compact import craft_compact
from memos.plugins.training.distil import Progress, Training
from memos.plugins.training.edit import EDIT_KEPT, OUTDATED, edit_recipe, outdated, still_said, unlearnt
from memos.plugins.training.instant import card_of, lead_of, network_file, write_instant
from memos.plugins.training.student import earlier_adapter, fresh_adapter, recipe

if TYPE_CHECKING:
    from peft import PeftModel

    from memos.infrastructure.host.host import Host

CHECKPOINT = "checkpoint.safetensors"  # in the folder of a job
_RANDOM_SETS = 2  # of earlier adapters that a new one is trained beside, and the empty one and the whole
_KV_RATE_FACTOR = 10  # times the learning rate of an adapter: rows of KV are few and large
_REFINED_RATE = 0.3  # of the learning rate: most is known, and the whole rate shook what was to be kept
_EARLIER_QUESTIONS = 48  # about what an earlier adapter knows
_KNOWN_ROWS, _CONTEXT_ROWS = 6, 3  # of a question known by heart, and of one over memories: these are fewer


def craft(host: Host, task: Task, work: Path, tell: Tell) -> Crafted:
    """Make what the task asks for, save it to work/{task.payload}, load that cold and judge it, alone and beside all of
    task.stack: by the quickest way that passes the gate, and by training where none does.

    What `work` holds of an earlier attempt at the same task is gone on from.
    """
    work.mkdir(parents=True, exist_ok=True)
    if task.compact:
        return craft_compact(host, task, work / task.payload, tell)
    if not (work / CHECKPOINT).exists():  # else none of the quick ways passed
        for way in quick_ways(host, task):
            made = _crafted(host, task, way, work, tell)
            if not any(short_of(scores, task.config.gate) for scores in (made.scores, made.together) if scores):
                return made
            shutil.rmtree(work / task.payload)
    return _crafted(host, task, MadeBy.TRAINING, work, tell)


def quick_ways(host: Host, task: Task) -> Iterator[MadeBy]:
    """Those that take seconds; the quickest first."""
    # two adapters of one network would hold it twice
    instant = not task.memories and not task.stack and network_file(host, task.config.instant)
    if instant:
        yield MadeBy.INSTANT
    if task.earlier and lessons_of(host, task.earlier):  # of one that does not say what it knows, nothing can be unsaid
        yield MadeBy.EDIT
    if instant and task.config.edit_steps:
        yield MadeBy.REFINED


def _crafted(host: Host, task: Task, way: MadeBy, work: Path, tell: Tell) -> Crafted:
    made, beside = work / task.payload, work / f"{task.payload}.new"
    if not made.exists():
        tell("prepare" if way is MadeBy.TRAINING else way, 0, task.config.steps, 0.0)
        make(host, task, way, beside, partial(tell, "train"), work / CHECKPOINT)
        tell("save", 0, 0, 0.0)
        beside.rename(made)
    tell("gate", 0, 0, 0.0)
    if task.memories:
        return Crafted(scores=judge_kv(host, made, task.memories, task.lessons, task.keep))
    way = MadeBy(lora.read_card(made, host.fingerprint)["made_by"])  # of what an earlier attempt has left
    scores = judge(host, (made,), task.lessons, task.keep)
    if way is not MadeBy.TRAINING and task.earlier:
        scores[OUTDATED] = still_said(host, made, outdated(host, task.earlier, task.lessons))
    together = None
    if task.stack:
        tell("gate together", 0, 0, 0.0)
        lessons = agreed([*task.lessons, *_lessons_of_all(host, task.stack)])
        together = judge(host, (*task.stack, made), lessons, task.keep)
    return Crafted(scores=scores, together=together, made_by=way)


def make(host: Host, task: Task, way: MadeBy, path: Path, progress: Progress, checkpoint: Path | None = None) -> None:
    """Make it in this way. Raises what `teach`, `teach_kv` and `write_instant` raise."""
    match way:
        case MadeBy.INSTANT:
            write_instant(host, task, path)
        case MadeBy.EDIT:
            teach(host, task, path, progress)
        case MadeBy.REFINED:
            begun = path.with_name(f"{path.name} begun")
            write_instant(host, task, begun)
            teach(host, task.model_copy(update={"earlier": None}), path, progress, start=begun)
            shutil.rmtree(begun)
        case MadeBy.TRAINING if task.memories:
            teach_kv(host, task, path, progress, checkpoint)
        case MadeBy.TRAINING:
            teach(host, task.model_copy(update={"earlier": None}), path, progress, checkpoint)


def _refining(config: DistilConfig) -> DistilConfig:
    assert config.learning_rate  # the recipe sets it
    return config.model_copy(update={"learning_rate": _REFINED_RATE * config.learning_rate, "steps": config.edit_steps})


def _lessons_of_all(host: Host, stack: Stack) -> list[Lesson]:
    return [lesson for folder in stack for lesson in lessons_of(host, folder)]


def teach(
    host: Host,
    task: Task,
    folder: Path,
    progress: Progress,
    checkpoint: Path | None = None,
    start: Path | None = None,
) -> int:
    """Train an adapter on the lessons that are not held out and save it to `folder`; returns the steps taken.

    Trains in a twin of its own, so requests go on meanwhile. Goes on from `checkpoint` if that is there, and writes it
    on the way. What the model answers wrong even with the memory in its context is taught as the probe has it. start:
    an adapter of these lessons to begin from, which is refined, if not task.earlier. Raises NoProbes if the model
    answers none of the lessons right, Unsupported where there is nothing to adapt.
    """
    config, made_by = recipe(task.config, host.model), MadeBy.TRAINING
    if task.earlier:
        config, made_by = edit_recipe(config), MadeBy.EDIT
    elif start:
        config, made_by = _refining(config), MadeBy.REFINED
    served = Adapters(host.model, host.fingerprint, host.config, shared=False)
    sets = _sets(task.stack, random.Random(config.seed))
    taught = [lesson for lesson in task.lessons if not lesson.probe.held_out]
    teachers = [host.ids_of(x.probe.question, x.memories) for x in taught]
    students = [host.ids_of(x.probe.question) for x in taught]
    examples = list(zip(taught, _lessons(host, [x.probe for x in taught], teachers, students, config), strict=True))
    lessons = [
        replace(example, under=under)
        for under in sets
        for among in (agreed([*taught, *_lessons_of_all(host, under)]),)
        for lesson, example in examples
        if lesson in among
    ]
    known, unknown = _earlier(host, served, task, sets, config)
    lessons += known
    if task.stack:  # each set is a training of its own, in which all that the others know is learnt too
        config = config.model_copy(update={"batch": 2 * config.batch, "steps": 3 * config.steps // 2})
    if task.earlier:
        rows = unlearnt(host, outdated(host, task.earlier, task.lessons), task.lessons, config)
        lessons += [replace(row, under=under) for under in sets for row in rows]
    keep = [*_keep(host, task, sets, config), *unknown]
    start = start or task.earlier
    student = earlier_adapter(served.module, start) if start else fresh_adapter(served.module, config)
    if config.gradient_checkpointing:
        checkpoint_layers(student)
    under = served.under if task.stack else None
    training = Training(student, lessons, keep, config, under, fresh=start is None)
    if checkpoint:
        training.resume(checkpoint)
    steps = training.run(progress, checkpoint)
    lora.save_adapter(student, folder, task.card | card_of(host, task, made_by, steps))
    return steps


def _lessons(
    host: Host,
    probes: Sequence[Probe],
    teachers: Sequence[tuple[int, ...]],
    students: Sequence[tuple[int, ...]],
    config: DistilConfig,
) -> list[Example]:
    """What the model says to the teachers' prompts, for the students'; as the probe has it where that is wrong. Raises
    NoProbes."""
    answers = host.greedy(teachers)
    right = [probe.holds(host.text_of(ids)) for probe, ids in zip(probes, answers, strict=True)]
    if not any(right):
        raise NoProbes(
            f"the model answers none of {len(probes)} probes even with the memory in its context; "
            f"give probes it can answer (add(..., probes=...)), or keep the memory as plaintext"
        )
    rows = teacher_rows(host.model, teachers, students, answers, config.top_logits)
    lead = lead_of(host, [ids for ids, ok in zip(answers, right, strict=True) if ok])
    return [
        row if ok else answer_row(row.prompt, host.spelled(lead + probe.answer))
        for row, ok, probe in zip(rows, right, probes, strict=True)
    ]


def _keep(host: Host, task: Task, sets: Sequence[Stack], config: DistilConfig) -> list[Example]:
    """What must stay under each of the sets: answers of the base model, whatever the others have drifted."""
    keep = [k for k in task.keep if not k.held_out]
    if task.earlier:  # which has been kept from changing them once
        keep = random.Random(config.seed).sample(keep, min(len(keep), EDIT_KEPT))
    kept = as_answered(host, [k for k in keep if k.known or k.memories])
    # of what nobody has said the first token tells all: what the model would say is not decoded
    kept += [(k, (0,)) for k in keep if not (k.known or k.memories)]
    prompts = [host.ids_of(k.question, k.memories) for k, _ in kept]
    rows = teacher_rows(host.model, prompts, prompts, [ids for _, ids in kept], config.top_logits)
    often = [_KNOWN_ROWS if k.known else _CONTEXT_ROWS if k.memories else 1 for k, _ in kept]
    return [
        replace(row, under=under)
        for under in sets
        for row, times in zip(rows, often, strict=True)
        for _ in range(times)
    ]


def _earlier(
    host: Host, served: Adapters, task: Task, sets: Sequence[Stack], config: DistilConfig
) -> tuple[list[Example], list[Example]]:
    """What each earlier adapter answers alone, for the sets that it is in; and what the base answers, for the others: a
    new adapter must not know what one knows that may be given up before it."""
    known, unknown = list[Example](), list[Example]()
    rng, clear = random.Random(config.seed), agreed([*task.lessons, *_lessons_of_all(host, task.stack)])
    for folder in task.stack:
        taught = [x.probe.question for x in lessons_of(host, folder) if x in clear and not x.probe.held_out]
        asked = [host.ids_of(question) for question in rng.sample(taught, min(_EARLIER_QUESTIONS, len(taught)))]
        answers, said_by = host.greedy(asked, served.model([(folder,)])), [(folder,)] * len(asked)
        rows = teacher_rows(served.module, asked, asked, answers, config.top_logits, said_by, served.under)
        known += [replace(row, under=under) for under in sets if folder in under for row in rows]
        rows = teacher_rows(host.model, asked, asked, host.greedy(asked), config.top_logits)
        unknown += [replace(row, under=under) for under in sets if folder not in under for row in rows]
    return known, unknown


def _sets(stack: Stack, rng: random.Random) -> list[Stack]:
    """None of the earlier adapters, all of them, and some subsets."""
    out: dict[Stack, None] = {(): None, stack: None}
    for _ in range(_RANDOM_SETS if len(stack) > 1 else 0):
        few = set(rng.sample(stack, rng.randint(1, len(stack) - 1)))
        out[tuple(folder for folder in stack if folder in few)] = None
    return list(out)


def teach_kv(host: Host, task: Task, path: Path, progress: Progress, checkpoint: Path | None = None) -> int:
    """Train some rows of the KV of task.memories until the model answers over them as over the text; save them to
    `path`; returns the steps taken.

    Goes on from `checkpoint` like `teach`. Raises NoProbes, and Unsupported where rows cannot be left out.
    """
    config = recipe(task.config, host.model)
    if task.config.learning_rate is None:
        assert config.learning_rate  # the recipe sets it
        config = config.model_copy(update={"learning_rate": _KV_RATE_FACTOR * config.learning_rate})
    if host.capability.limit or host.capability.windowed or host.capability.states:
        raise Unsupported(
            f"{host.model.config.model_type} keeps a state, or looks back through a window, which tells by counting "
            f"rows what it may see; rows cannot be left out: set activation.codec to raw, or promote to parametric"
        )
    whole, head = host.encode(task.memories), len(host.head)
    some = thinned(whole, kept_rows(len(whole.ids), head, task.share))
    student = Cartridge(lora.twin(host.model), some, head, train=True)
    cut = len(whole.ids)

    keep = [k for k in task.keep if not k.held_out]
    kept = [host.ids_of(k.question, (*task.memories, *k.memories)) for k in keep]
    rows = teacher_rows(host.model, kept, [ids[cut:] for ids in kept], host.greedy(kept), config.top_logits)
    # what is remembered is remembered with other memories behind it too
    others = [(), *(k.memories for k in keep if k.memories and not k.contradicts)]
    probes = [x.probe for x in task.lessons if not x.probe.held_out]
    asked = [(probe, ()) for probe in probes] + [(p, others[n % len(others)]) for n, p in enumerate(probes, 1)]
    prompts = [host.ids_of(probe.question, (*task.memories, *behind)) for probe, behind in asked]
    lessons = _lessons(host, [probe for probe, _ in asked], prompts, [ids[cut:] for ids in prompts], config)
    training = Training(student, lessons, rows, config)
    if checkpoint:
        training.resume(checkpoint)
    steps = training.run(progress, checkpoint)
    host.save_kv(student.activation(), path)
    return steps


def kept_rows(tokens: int, head: int, share: float) -> list[int]:
    """Of a cache of so many tokens: all of its head, and an even `share` of the others, the last among them."""
    own = tokens - head
    count = max(1, math.ceil(share * own))
    return [*range(head), *(head + own * (n + 1) // count - 1 for n in range(count))]


def thinned(whole: Activation, rows: Sequence[int]) -> Activation:
    """Just these rows of a cache, standing for all of its tokens."""
    index = torch.tensor(rows, device=whole.layers[0][0].device)
    layers = tuple((k.index_select(-2, index), v.index_select(-2, index)) for k, v in whole.layers)
    return replace(whole, layers=layers, trained=len(rows))


def checkpoint_layers(student: PeftModel) -> None:
    """Layers compute their forward again in the backward pass; which they do in training mode alone."""
    enable = getattr(student, "activation_checkpointing_enable", None) or student.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    for module in student.modules():
        if getattr(module, "gradient_checkpointing", False):
            module.training = True  # of the layer itself: dropout within it stays off
