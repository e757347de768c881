"""Makes, saves, reads and combines LoRA adapters as folders in peft's format; knows no training and no serving."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from memos.config import DistilConfig
from memos.errors import CorruptBlob, Unsupported
from memos.infrastructure.host.fingerprint import require_same_host

Card = dict[str, Any]  # card.json: what an adapter was made of, and how it was judged
CARD, WEIGHTS = "card.json", "adapter_model.safetensors"
_MADE_BY = "memos_fingerprint"  # in the metadata of the weights
LINEAR = (torch.nn.Linear, Conv1D)
_ATTENTION = ("attn", "attention")  # stands in the name of what is inside attention
_LEARNING_RATES = ((10e6, 1e-2), (500e6, 1e-3), (3e9, 5e-4))  # below so many parameters; 2e-4 above


def twin(model: PreTrainedModel) -> PreTrainedModel:
    """A second module tree over the same weights: adapters go in there, and the caller's model stays as it was."""
    shared: dict[int, torch.Tensor] = {}
    for parameter in model.parameters():
        shared[id(parameter)] = torch.nn.Parameter(parameter.detach(), requires_grad=False)
    for buffer in model.buffers():
        shared[id(buffer)] = buffer
    return copy.deepcopy(model, shared)


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


def save_adapter(student: PeftModel, folder: Path, card: Card) -> None:
    """A folder that plain peft loads: adapter_config.json, adapter_model.safetensors; and our card.json."""
    # with the tensors too: a card is easily lost
    made_by = {_MADE_BY: json.dumps(card["fingerprint"])} if "fingerprint" in card else {}
    config = copy.copy(student.peft_config["default"])
    assert isinstance(config, LoraConfig)
    write_adapter(folder, config, get_peft_model_state_dict(student), card, made_by)


def write_adapter(
    folder: Path, config: LoraConfig, tensors: dict[str, torch.Tensor], card: Card | None, made_by: dict[str, str]
) -> None:
    """An adapter's files, with the card if there is one; `made_by` goes into the metadata of the tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / WEIGHTS, {"format": "pt", **made_by})
    # a path of this machine says nothing elsewhere; the card has the fingerprint
    config.base_model_name_or_path, config.inference_mode = None, True
    if isinstance(config.target_modules, set):
        config.target_modules = sorted(config.target_modules)
    config.save_pretrained(str(folder))
    if card is not None:
        write_card(folder, card)


def write_card(folder: Path, card: Card) -> None:
    (folder / CARD).write_text(json.dumps(card, indent=2, sort_keys=True), "utf-8")


def read_card(folder: Path, fingerprint: dict[str, str]) -> Card:
    """The card of an adapter that fits this host; empty for a stranger's, which has none. Raises FingerprintMismatch or
    CorruptBlob."""
    try:
        if (folder / "adapter_config.json").is_file() and not (folder / CARD).exists():
            with safe_open(folder / WEIGHTS, "pt") as file:
                made_by = (file.metadata() or {}).get(_MADE_BY)
            if made_by:
                require_same_host(dict(json.loads(made_by)), fingerprint, f"adapter {folder.name}")
            return {}
        card = json.loads((folder / CARD).read_text("utf-8"))
        require_same_host(dict(card["fingerprint"]), fingerprint, f"adapter {folder.name}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        raise CorruptBlob(
            f"adapter {folder.name} has no readable {CARD} ({error}); demote its cube, or promote its sources again"
        ) from error
    return dict(card)
