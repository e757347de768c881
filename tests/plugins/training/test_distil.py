"""Training an adapter: what a step is given, where it can be taken up again, and what it is held to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch.testing import assert_close

from memos.bench.architectures import tiny
from memos.config import DistilConfig
from memos.cube import Contrast, Lesson, Probe
from memos.errors import Unsupported
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.adapters.serving import Adapters
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.rows import Example, answer_logits, answer_row, teacher_rows
from memos.infrastructure.host.training.teach import Task
from memos.plugins.training.craft import checkpoint_layers, teach
from memos.plugins.training.distil import Training
from memos.plugins.training.student import fresh_adapter, recipe

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's use of it
BRIEF = DistilConfig(steps=12, batch=3, batch_keep=3, rank=4, alpha=8, learning_rate=1e-2, review=4, checkpoint=5)
TEXT = "Mira lives in Lisbon."


def rows_of(host: Host, questions: Sequence[str], answer: str) -> list[Example]:
    return [answer_row(host.ids_of(question), host.spelled(f" {answer}")) for question in questions]


def training(host: Host, config: DistilConfig = BRIEF) -> tuple[PeftModel, Training]:
    lessons = rows_of(host, ["Where does Mira live?", "Where is Mira's home?", "Mira?", "Who?"], "Lisbon")
    keep = rows_of(host, ["Where does Tom live?", "What is Tom's job?", "Who is Eva? Tell me all."], "unknown")
    student = fresh_adapter(lora.twin(host.model), config)
    return student, Training(student, lessons, keep, config)


def weights(student: PeftModel) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in student.named_parameters() if p.requires_grad}


def test_rows_of_any_length_have_the_logits_that_each_has_alone(host: Host) -> None:
    rows = rows_of(host, ["Who?", "Where does Mira live?", "What is the name of the cat of Nadia?"], "a grey parrot")
    together = answer_logits(host.model, rows).split([len(r.answer) for r in rows])
    for row, logits in zip(rows, together, strict=True):
        alone = host.model(torch.tensor([[*row.prompt, *row.answer]], device=host.model.device)).logits[0]
        at = len(row.prompt) - 1
        assert_close(logits, alone[at : at + len(row.answer)], atol=3e-5, rtol=0)


def test_what_is_believed_is_the_distribution_of_the_full_forward(host: Host) -> None:
    prompt, answer = host.ids_of("Where does Mira live?", (TEXT,)), host.spelled(" Lisbon")
    [row] = teacher_rows(host.model, [prompt], [host.ids_of("Where does Mira live?")], [answer], 5)
    whole = torch.tensor([[*prompt, *answer]], device=host.model.device)
    alone = torch.softmax(host.model(whole).logits[0].double().cpu(), -1)
    p, ids = alone[len(prompt) - 1 : -1].topk(5)
    assert torch.equal(row.top_ids.cpu(), ids) and row.prompt == host.ids_of("Where does Mira live?")
    assert_close(row.top_p.double().cpu(), p / p.sum(-1, keepdim=True), atol=1e-5, rtol=0)


@pytest.mark.parametrize("cut", [pytest.param(3, marks=pytest.mark.slow), 5, pytest.param(11, marks=pytest.mark.slow)])
def test_training_that_was_cut_off_ends_as_if_it_never_was(host: Host, tmp_path: Path, cut: int) -> None:
    whole, run = training(host)
    run.run(lambda *_: None)

    def interrupt(step: int, most: int, loss: float) -> None:
        if step == cut:
            raise KeyboardInterrupt

    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        training(host)[1].run(interrupt, checkpoint)
    assert checkpoint.exists() is (cut >= BRIEF.checkpoint)
    again, run = training(host)
    assert run.resume(checkpoint) is checkpoint.exists()
    steps: list[int] = []
    run.run(lambda step, *_: steps.append(step), checkpoint)
    assert steps[0] == cut // BRIEF.checkpoint * BRIEF.checkpoint + 1 and steps[-1] == BRIEF.steps
    assert_close(weights(again), weights(whole), atol=0, rtol=0)


def test_a_checkpoint_of_another_training_is_left_aside(host: Host, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.safetensors"
    training(host)[1].save(checkpoint)
    other, run = training(host, BRIEF.model_copy(update={"rank": 8}))
    before = weights(other)
    assert not run.resume(checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:-7])
    assert not training(host)[1].resume(checkpoint)
    assert not training(host)[1].resume(tmp_path / "none")
    assert_close(weights(other), before, atol=0, rtol=0)


def test_a_checkpoint_of_other_rows_is_left_aside(host: Host, tmp_path: Path) -> None:
    """As many rows, and adapters of the same shape: only what is taught differs."""
    student, run = training(host)
    run.run(lambda *_: None, tmp_path / "checkpoint")
    told = [rows_of(host, [f"{name} {n}?" for n in range(count)], name) for name, count in (("Tom", 4), ("Eva", 3))]
    assert not Training(student, *told, BRIEF).resume(tmp_path / "checkpoint")
    assert training(host)[1].resume(tmp_path / "checkpoint")


def test_training_ends_early_once_all_is_learnt(host: Host) -> None:
    config = BRIEF.model_copy(update={"steps": 400, "stop_probability": 0.5, "stop_drift": 0.5})
    student = fresh_adapter(lora.twin(host.model), config)
    lessons = rows_of(host, ["Where does Mira live?"], "Lisbon")
    steps = Training(student, lessons, rows_of(host, ["Where does Tom live?"], "unknown"), config).run(lambda *_: None)
    assert 4 < steps < 100


def test_what_is_not_learnt_is_drawn_more_often(host: Host) -> None:
    _, run = training(host)
    run._loss[:4] = torch.tensor([0.0, 0.0, 0.0, 5.0])
    import random

    drawn = [n for seed in range(200) for n in run._drawn(random.Random(seed), [0, 1, 2, 3], 2)]
    assert drawn.count(3) > 1.6 * max(drawn.count(n) for n in range(3))
    assert all(len(set(run._drawn(random.Random(seed), [0, 1, 2, 3], 3))) == 3 for seed in range(20))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_layers_computed_again_give_the_same_adapter(name: str) -> None:
    """With gradient checkpointing; gpt2 has dropout in its config, which stays off."""
    trained = []
    for again in (False, True):
        recipe = BRIEF.model_copy(update={"gradient_checkpointing": again, "steps": 3, "layers": 1.0})
        student = fresh_adapter(lora.twin(tiny(name)), recipe)
        if again:
            checkpoint_layers(student)
            assert any(module.training for module in student.modules())
        rows = [answer_row((5, 6, 7), (8, 9)), answer_row((5, 7), (9,))]
        Training(student, rows, [answer_row((6, 7, 8), (10, 11))], recipe).run(lambda *_: None)
        trained.append(weights(student))
    assert_close(trained[0], trained[1], atol=1e-5, rtol=1e-3)


def test_what_the_model_reads_wrong_is_taught_as_the_probe_has_it(host: Host, tmp_path: Path) -> None:
    """A memory can be remembered better than it can be read."""
    right = Lesson(memories=(TEXT,), probe=Probe(question="Where does Mira live?", answer="Lisbon"))
    wrong = Lesson(memories=(TEXT,), probe=Probe(question="What is the zorb of Mira?", answer="grey"))
    config = DistilConfig(steps=60, batch=2, batch_keep=1, rank=8, alpha=16, learning_rate=1e-2)
    keep = (Contrast(question="Where does Tom live?"),)
    teach(host, Task(lessons=(right, wrong), keep=keep, config=config), tmp_path / "a", lambda *_: None)
    said = host.greedy([host.ids_of(x.probe.question) for x in (right, wrong)], host.cold((tmp_path / "a",)))
    assert [host.text_of(ids) for ids in said] == ["Lisbon", "grey"]


# beside other adapters


def test_a_student_beside_an_adapter_is_the_base_under_it(host: Host, tmp_path: Path) -> None:
    """Before training: what the student computes under a stack is what serving computes under it."""
    first = strong(host, tmp_path / "first", 1)
    served = Adapters(host.model, host.fingerprint, host.config, shared=False)
    student = fresh_adapter(served.module, BRIEF)
    rows = rows_of(host, ["Who?", "Where does Mira live?"], "Lisbon")
    with served.under([(first,), ()]), torch.no_grad():
        beside = answer_logits(student, rows)
    with torch.inference_mode():
        expected = answer_logits(host.model_under([(first,), ()]), rows)
    assert_close(beside, expected, atol=3e-5, rtol=0)


def strong(host: Host, folder: Path, seed: int, **settings: Any) -> Path:
    """An adapter that changes much."""
    config = DistilConfig(rank=2 + seed, alpha=8, targets="all-linear", layers=1.0, **settings)
    student = fresh_adapter(lora.twin(host.model), config)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.normal(0.0, 0.1, parameter.shape, generator=draw))
    lora.save_adapter(student, folder, {"fingerprint": host.fingerprint})
    return folder


def test_adapters_together_are_peft_s_cat(host: Host, tmp_path: Path) -> None:
    folders = tuple(strong(host, tmp_path / f"a{n}", n) for n in range(3))
    model = PeftModel.from_pretrained(lora.twin(host.model), str(folders[0]), "a0")
    for n in (1, 2):
        model.load_adapter(str(folders[n]), f"a{n}")
    tuner: Any = model.base_model
    tuner.add_weighted_adapter(["a0", "a1", "a2"], [1.0] * 3, "all", combination_type="cat")
    model.set_adapter("all")
    ids = torch.tensor([host.ids_of("Where does Mira live?")], device=host.model.device)
    with torch.inference_mode():
        expected = model.eval()(ids).logits
        together = host.model_under([folders])(input_ids=ids).logits
        mixed = host.model_under([folders, (), folders[:1]])(input_ids=ids.repeat(3, 1)).logits
        single = host.model_under([folders[:1]])(input_ids=ids).logits
    assert_close(together, expected, atol=1e-4, rtol=0)
    assert_close(mixed[0], together[0], atol=1e-4, rtol=0)
    assert_close(mixed[1], host.model(ids).logits[0], atol=1e-4, rtol=0)
    assert_close(mixed[2], single[0], atol=1e-4, rtol=0)


# what is adapted


def test_the_first_layers_are_adapted_and_attention_is_left_alone(host: Host, tmp_path: Path) -> None:
    lora.save_adapter(fresh_adapter(lora.twin(host.model), DistilConfig(layers=0.75)), tmp_path, {})
    names = json.loads((tmp_path / "adapter_config.json").read_text())["target_modules"]
    assert {name.split(".")[2] for name in names} == {"0", "1", "2"}
    assert {name.rsplit(".", 1)[1] for name in names} == {"gate_proj", "up_proj", "down_proj"}


@pytest.mark.parametrize("name", ["gpt2", "gpt-neox", "opt", "phi3", "gemma2", "qwen2", "bloom"])
@pytest.mark.parametrize("targets", ["mlp", "attention"])
def test_targets_are_found_in_other_architectures(name: str, targets: Any) -> None:
    model = tiny(name)
    student = fresh_adapter(lora.twin(model), DistilConfig(targets=targets, rank=2))
    adapted = {n for n, p in student.named_parameters() if p.requires_grad}
    assert adapted
    for other in {"mlp", "attention"} - {targets}:
        rest: Any = fresh_adapter(lora.twin(model), DistilConfig(targets=other, rank=2))
        assert not adapted & {n for n, p in rest.named_parameters() if p.requires_grad}


def test_what_cannot_be_adapted_is_refused_by_name() -> None:
    model = tiny("llama")
    model.config.quantization_config = {"quant_method": "zorb"}
    with pytest.raises(Unsupported, match=r"llama is quantised .*load it in bfloat16"):
        fresh_adapter(lora.twin(model), DistilConfig())
    with pytest.raises(Unsupported, match=r"nothing to adapt in .*experts.*distil.targets"):
        fresh_adapter(lora.twin(tiny("mixtral")), DistilConfig())


def test_the_recipe_goes_by_the_size_of_the_model(host: Host) -> None:
    small = recipe(DistilConfig(), host.model)
    assert (small.learning_rate, small.gradient_checkpointing) == (1e-2, False)
    given = recipe(DistilConfig(learning_rate=1e-4, gradient_checkpointing=True), host.model)
    assert (given.learning_rate, given.gradient_checkpointing) == (1e-4, True)
