"""Makes a fresh adapter to be trained, of layers and at a rate that suit the model; knows no training and no files."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from memos.config import DistilConfig
from memos.errors import Unsupported
from memos.infrastructure.host.adapters.lora import LINEAR

_ATTENTION = ("attn", "attention")  # stands in the name of what is inside attention
_LEARNING_RATES = ((10e6, 1e-2), (500e6, 1e-3), (3e9, 5e-4))  # below so many parameters; 2e-4 above


def recipe(config: DistilConfig, model: PreTrainedModel) -> DistilConfig:
    """The config with what was left unset, by the size of the model."""
    size = model.num_parameters()
    rate = next((rate for below, rate in _LEARNING_RATES if size < below), 2e-4)
    unset = {"learning_rate": rate, "gradient_checkpointing": size >= 500e6}
    return config.model_copy(update={k: v for k, v in unset.items() if getattr(config, k) is None})


def fresh_adapter(module: PreTrainedModel, config: DistilConfig) -> PeftModel:
    """The module tree with a new adapter in it, which starts as no change at all.

    Raises Unsupported where there is nothing to adapt, or only what cannot be adapted.
    """
    targets = _targets(module, config)
    lora = LoraConfig(
        r=config.rank, lora_alpha=config.alpha, target_modules=targets, lora_dropout=0.0, task_type="CAUSAL_LM"
    )
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of peft's use of transformers
            torch.manual_seed(config.seed)
            student: PeftModel = get_peft_model(module, lora).eval()  # no dropout: the teacher has none either
            return student
    except ValueError as error:
        raise _no_target(module, config, str(error)) from error


def earlier_adapter(module: PreTrainedModel, folder: Path) -> PeftModel:
    """The module tree with the adapter of a folder in it, to be trained on; where it looks stays as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        student = PeftModel.from_pretrained(module, str(folder), is_trainable=True).eval()
    for name, parameter in student.named_parameters():
        if "lora_A" in name:
            parameter.requires_grad_(False)
    return student


def _targets(module: PreTrainedModel, config: DistilConfig) -> list[str] | str:
    """What peft is asked to adapt. Raises Unsupported."""
    if not isinstance(config.targets, str):
        return list(config.targets)
    quantised = getattr(module.config, "quantization_config", None)
    if quantised is not None:
        raise Unsupported(
            f"{module.config.model_type} is quantised ({getattr(quantised, 'quant_method', quantised)}), and adapters "
            f"are made on whole weights only; load it in bfloat16, or keep its memories as plaintext or KV"
        )
    if config.targets == "all-linear":
        return config.targets
    head = module.get_output_embeddings()
    linear = [n for n, m in module.named_modules() if isinstance(m, LINEAR) and m is not head]
    inside = {n for n in linear if any(part in n.lower() for part in _ATTENTION)}
    layers = _layers(module, config.layers)
    wanted = [n for n in linear if (n in inside) == (config.targets == "attention") and n.startswith(layers)]
    if not wanted:
        raise _no_target(module, config, "it has no such linear layers; experts are kept in one tensor")
    if config.layers < 1:
        return wanted
    ends = {n.rsplit(".", 1)[-1] for n in wanted}
    clash = ends & {n.rsplit(".", 1)[-1] for n in linear if n not in wanted}
    return wanted if clash else sorted(ends)  # short names where they mean the same


def _layers(module: PreTrainedModel, share: float) -> tuple[str, ...]:
    """The beginnings of the names of what lies in the first layers; of every name where there are no layers."""
    stacks = [(n, m) for n, m in module.named_modules() if isinstance(m, torch.nn.ModuleList)]
    if not stacks or share >= 1:
        return ("",)
    name, layers = max(stacks, key=lambda stack: len(stack[1]))
    return tuple(f"{name}.{n}." for n in range(max(1, round(share * len(layers)))))


def _no_target(module: PreTrainedModel, config: DistilConfig, why: str) -> Unsupported:
    return Unsupported(
        f"peft finds nothing to adapt in {module.config.model_type} with distil.targets {config.targets!r}: {why}; "
        f"name the model's linear layers in distil.targets, or keep its memories as plaintext or KV"
    )
