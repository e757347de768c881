"""Finds a direction that steers answers: where it is added, when, and how strongly; knows tensors, no cubes.

Activation addition takes the difference of the means of the hidden states over prompts with what is wanted and without
(Turner et al., 2308.10248; Panickssery et al., 2312.06681), and adds it to every token, whatever is asked. Here it is
added as far as a token looks like those where an answer of the kind begins: the input of a layer is projected on a
direction that is strong there and weak everywhere else (conditional steering, Lee et al., 2409.05907). That is a LoRA
adapter of rank 1 in one layer: A is the condition, B the direction. So it is stored, served in any batch, stacked and
taken off as an adapter is. Where a difference of means does not reach the gate, a few conditions in each block are
aimed, and their directions trained.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file

from memos.config import DistilConfig
from memos.errors import Unsupported
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.adapters.lora import LINEAR
from memos.infrastructure.host.training.rows import Example as Row
from memos.infrastructure.host.training.rows import answer_logits, answer_row, chunks, teacher_rows
from memos.plugins.training.distil import Training
from memos.plugins.training.student import fresh_adapter, recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from memos.infrastructure.host.host import Host

Ids = tuple[int, ...]
_RIDGE_SHARE = 0.01  # of the mean variance: a direction that was never seen is not free
_TOP = 20  # of the distribution that is taken over
_TRAINED: dict[str, Any] = {
    **{"rank": 4, "alpha": 8, "steps": 40, "batch": 16, "batch_keep": 32, "review": 40},
    "kl_base": 10.0,  # what is wanted is learnt in few steps; what is to be kept is what falls short
}


@dataclass(frozen=True)
class Contrast:
    """Token ids of prompts: each of `prompts` is to be answered as `like` in its place; `keep` as they are."""

    prompts: tuple[Ids, ...]
    like: tuple[Ids, ...]
    keep: tuple[Ids, ...]


@dataclass(frozen=True)
class Layer:
    """One place for a direction. condition: [in]; its product with the layer's input is 1 on average where an answer of
    the kind begins. direction: [width], the difference of the means of what leaves the block."""

    name: str
    condition: torch.Tensor
    direction: torch.Tensor


def layers(host: Host, contrast: Contrast) -> list[Layer]:
    """A place in each block. Raises Unsupported for a model whose blocks do not end in a linear layer."""
    twin = lora.twin(host.model)
    blocks = _blocks(twin)
    prompts, keep, like = (_seen(twin, blocks, ids) for ids in (contrast.prompts, contrast.keep, contrast.like))
    out = []
    for name in blocks:
        begins, rest = prompts.last_in[name], [prompts.other_in[name], keep.other_in[name], keep.last_in[name]]
        # ridge regression: 1 where an answer of the kind begins, 0 elsewhere; where the answers of other kinds begin
        # counts as much as all the tokens before
        moments = _moments(begins) + _moments(torch.cat(rest[:2])) + _moments(rest[2])
        ridge = _RIDGE_SHARE * moments.diagonal().mean() * torch.eye(len(moments))
        found = torch.linalg.solve(moments + ridge, begins.mean(0))
        direction = (like.last_out[name] - prompts.last_out[name]).mean(0)
        out.append(Layer(name, found / (begins @ found).mean(), direction))
    return out


def _moments(inputs: torch.Tensor) -> torch.Tensor:
    return inputs.T @ inputs / len(inputs)


def _blocks(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """By the name of its last linear layer, outside attention: each block of the model."""
    stacks = [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.ModuleList)]
    name, stack = max(stacks, key=lambda pair: len(pair[1]), default=("", []))
    out = dict[str, torch.nn.Module]()
    for n, block in enumerate(stack):
        linear = [inner for inner, m in block.named_modules() if isinstance(m, LINEAR) and "attn" not in inner]
        if linear:
            out[f"{name}.{n}.{linear[-1]}"] = block
    if not out:
        raise Unsupported("this model has no blocks that end in a linear layer, so no direction can be added to them")
    return out


@dataclass(frozen=True)
class _Seen:
    """By block, of the prompts' last tokens, where answers begin, and of all others: inputs of its last linear layer,
    [tokens, in], and what leaves the block, [tokens, width]."""

    last_in: dict[str, torch.Tensor]
    other_in: dict[str, torch.Tensor]
    last_out: dict[str, torch.Tensor]


@torch.no_grad()
def _seen(model: PreTrainedModel, blocks: dict[str, torch.nn.Module], prompts: Sequence[Ids]) -> _Seen:
    inputs, outputs = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
    collected: dict[str, list[list[torch.Tensor]]] = {name: [[], [], []] for name in blocks}
    modules = dict(model.named_modules())
    handles = [modules[name].register_forward_pre_hook(_keeps(inputs, name)) for name in blocks]
    handles += [block.register_forward_hook(_keeps_output(outputs, name)) for name, block in blocks.items()]
    rows = [answer_row(ids, (0,)) for ids in prompts]  # of the answer nothing is read
    try:
        for chunk in chunks(rows):
            answer_logits(model, [rows[n] for n in chunk])
            for name, (last, other, out) in collected.items():
                for place, n in enumerate(chunk):
                    end = len(rows[n].prompt) - 1
                    last.append(inputs[name][place, end : end + 1])
                    other.append(inputs[name][place, :end])
                    out.append(outputs[name][place, end : end + 1])
    finally:
        for handle in handles:
            handle.remove()
    columns = zip(*(map(torch.cat, three) for three in collected.values()), strict=True)
    last_in, other_in, last_out = (dict(zip(blocks, column, strict=True)) for column in columns)
    return _Seen(last_in, other_in, last_out)


def _keeps(into: dict[str, torch.Tensor], name: str) -> Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], None]:
    def hook(_: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        into[name] = given[0].float().cpu()

    return hook


def _keeps_output(into: dict[str, torch.Tensor], name: str) -> Callable[..., None]:
    def hook(_: torch.nn.Module, given: object, out: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        into[name] = (out if isinstance(out, torch.Tensor) else out[0]).float().cpu()

    return hook


def write(host: Host, layer: Layer, strength: float, folder: Path, card: dict[str, Any]) -> None:
    """The direction as an adapter of rank 1."""
    config = LoraConfig(r=1, lora_alpha=1, target_modules=[layer.name], task_type="CAUSAL_LM")
    prefix = f"base_model.model.{layer.name}.lora_"
    tensors = {f"{prefix}A.weight": layer.condition[None], f"{prefix}B.weight": strength * layer.direction[:, None]}
    lora.write_adapter(folder, config, tensors, card | {"fingerprint": host.fingerprint})


def randomised(made: Path, folder: Path, seed: int) -> None:
    """The same conditions with other directions of the same lengths, which must not do what these do."""
    generator = torch.Generator().manual_seed(seed)

    def other(b: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(b.shape, generator=generator)
        return noise / noise.norm(dim=0).clamp_min(1e-12) * b.norm(dim=0)

    _changed(made, folder, other)


def scaled(made: Path, folder: Path, strength: float) -> None:
    """The same directions, so many times as long."""
    _changed(made, folder, lambda b: strength * b)


def _changed(made: Path, folder: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A copy of an adapter with other directions, each a column of B."""
    tensors = load_file(made / lora.WEIGHTS)
    shutil.copytree(made, folder)
    changed = {name: change(t) if "lora_B" in name else t for name, t in tensors.items()}
    save_file(changed, folder / lora.WEIGHTS, {"format": "pt"})


def trained(host: Host, contrast: Contrast, folder: Path, seed: int, card: dict[str, Any]) -> None:
    """Several conditions in every block, each with a direction that is trained."""
    config, twin = recipe(DistilConfig(seed=seed, **_TRAINED), host.model), lora.twin(host.model)
    student = fresh_adapter(twin, config)
    lessons = _rows(host, contrast.like, contrast.prompts)
    keep = _rows(host, contrast.keep, contrast.keep)
    steps = Training(student, lessons, keep, config).run(lambda *_: None)
    lora.save_adapter(student, folder, card | {"fingerprint": host.fingerprint, "steps": steps})


def _rows(host: Host, teachers: Sequence[Ids], students: Sequence[Ids]) -> list[Row]:
    return teacher_rows(host.model, teachers, students, host.greedy(teachers), _TOP)
