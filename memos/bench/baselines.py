"""Makes and merges adapters as other libraries do, to measure distillation against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from memos.config import DistilConfig
from memos.cube import Lesson
from memos.infrastructure.host.adapters.lora import save_adapter, twin, write_card
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.rows import Example, answer_row
from memos.plugins.training.distil import Training
from memos.plugins.training.student import fresh_adapter, recipe


def train_on_answers(host: Host, lessons: Sequence[Lesson], config: DistilConfig, folder: Path) -> int:
    """An adapter by cross-entropy on questions and answers, as they are taught; returns the steps taken."""
    taught = [x.probe for x in lessons if not x.probe.held_out]
    return _trained(
        host, [answer_row(host.ids_of(p.question), host.spelled(" " + p.answer)) for p in taught], config, folder
    )


def train_on_text(host: Host, texts: Sequence[str], config: DistilConfig, folder: Path) -> int:
    """An adapter by next-token prediction on the memories as they stand; returns the steps taken."""
    spelled = [host.spelled(text) for text in texts]
    return _trained(host, [answer_row(ids[:1], ids[1:]) for ids in spelled], config, folder)


def _trained(host: Host, rows: Sequence[Example], config: DistilConfig, folder: Path) -> int:
    config = recipe(config, host.model)
    student = fresh_adapter(twin(host.model), config)
    steps = Training(student, rows, [], config).run(lambda *_: None)
    save_adapter(student, folder, {"fingerprint": host.fingerprint, "steps": steps})
    return steps


def merged(host: Host, folders: Sequence[Path], how: str, folder: Path) -> Path:
    """Adapters merged into one by peft: `linear` (each by its share) or `ties`."""
    model = PeftModel.from_pretrained(twin(host.model), str(folders[0]), "a0")
    for n, other in enumerate(folders[1:], start=1):
        model.load_adapter(str(other), f"a{n}")
    names = [f"a{n}" for n in range(len(folders))]
    options = {"density": 0.5} if how == "ties" else {}
    weight = 1.0 if how == "ties" else 1 / len(names)
    tuner: Any = model.base_model
    tuner.add_weighted_adapter(names, [weight] * len(names), "merged", combination_type=how, **options)
    model.save_pretrained(str(folder), selected_adapters=["merged"])
    (inner,) = folder.glob("merged/adapter_model.safetensors")
    for file in inner.parent.iterdir():
        file.rename(folder / file.name)
    inner.parent.rmdir()
    write_card(folder, {"fingerprint": host.fingerprint})
    return folder


def random_adapters(
    model: PreTrainedModel, config: DistilConfig, count: int, folder: Path, fingerprint: dict[str, str]
) -> list[Path]:
    """Folders of adapters that have learnt nothing, and so weak that answers stay what they are: enough to measure time
    and bytes, with as many tokens as the base model needs."""
    student = fresh_adapter(twin(model), config)
    draw = torch.Generator().manual_seed(config.seed)
    out = []
    for n in range(count):
        with torch.no_grad():
            for name, parameter in student.named_parameters():
                if "lora_" in name:
                    parameter.copy_(1e-3 * torch.randn(parameter.shape, generator=draw))
        out.append(folder / f"random{n}")
        save_adapter(student, out[-1], {"fingerprint": fingerprint})
    return out
