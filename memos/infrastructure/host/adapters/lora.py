"""Saves, reads and combines LoRA adapters as folders in peft's format; knows no training and no serving."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from memos.errors import CorruptBlob
from memos.infrastructure.host.fingerprint import require_same_host

Card = dict[str, Any]  # card.json: what an adapter was made of, and how it was judged
CARD, WEIGHTS = "card.json", "adapter_model.safetensors"
_MADE_BY = "memos_fingerprint"  # in the metadata of the weights
LINEAR = (torch.nn.Linear, Conv1D)


def twin(model: PreTrainedModel) -> PreTrainedModel:
    """A second module tree over the same weights: adapters go in there, and the caller's model stays as it was."""
    parameters = {id(p): torch.nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    return copy.deepcopy(model, {**parameters, **{id(buffer): buffer for buffer in model.buffers()}})


def save_adapter(student: PeftModel, folder: Path, card: Card) -> None:
    """A folder that plain peft loads: adapter_config.json, adapter_model.safetensors; and our card.json."""
    config = copy.copy(student.peft_config["default"])
    assert isinstance(config, LoraConfig)
    write_adapter(folder, config, get_peft_model_state_dict(student), card)


def write_adapter(folder: Path, config: LoraConfig, tensors: dict[str, torch.Tensor], card: Card | None) -> None:
    """An adapter's files, with the card if there is one; the fingerprint on it is with the tensors too."""
    folder.mkdir(parents=True, exist_ok=True)
    # a card is easily lost
    made_by = {_MADE_BY: json.dumps(card["fingerprint"])} if card and "fingerprint" in card else {}
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
