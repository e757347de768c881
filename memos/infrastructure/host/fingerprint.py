"""Identifies the model that made a tensor payload, part by part, and refuses payloads of another model."""

from __future__ import annotations

import hashlib
import json

import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from memos.errors import FingerprintMismatch

WHOLE_BYTES = 1 << 28  # of weights, up to which every byte enters the digest
SAMPLED_ELEMENTS = 4096  # of each tensor, evenly spread, where the weights are larger


def fingerprint_parts(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt_format: str) -> dict[str, str]:
    """Everything that a tensor payload depends on (docs/decisions/0019-fingerprint.md), by name."""
    config = model.config.get_text_config().to_dict()
    # what says nothing about the tensors: where it was loaded from and by which version
    for key in ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache"):
        config.pop(key, None)
    return {
        "weights": weights_digest(model),
        "config": _digest(json.dumps(config, sort_keys=True, default=str)),
        "tokenizer": _digest(json.dumps(sorted(tokenizer.get_vocab().items())), str(tokenizer.special_tokens_map)),
        "template": _digest(prompt_format),
        "dtype": str(model.dtype).removeprefix("torch."),
        "transformers": transformers.__version__.split(".")[0],
    }


def weights_digest(model: PreTrainedModel) -> str:
    """sha256 over names, shapes and values: every byte of models up to 256 MiB, an even sample beyond. Of parameters
    and of the buffers that are saved with them, in which packed weights and the biases of routers lie."""
    saved = model.state_dict().keys()  # and not what is computed from the config, such as angles
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in saved}
    tensors = dict(model.named_parameters()) | buffers
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        flat = tensor.detach().reshape(-1)
        if total > WHOLE_BYTES and flat.numel() > SAMPLED_ELEMENTS:
            flat = flat[evenly(flat.numel(), flat.device)]
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(flat.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def evenly(count: int, device: torch.device) -> torch.Tensor:
    """Indices of an even sample among so many, the first and the last included: [SAMPLED_ELEMENTS].

    In float64: in float32 the last one of a hundred million is rounded to beyond the end.
    """
    return torch.linspace(0, count - 1, SAMPLED_ELEMENTS, dtype=torch.float64, device=device).long()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def require_same_host(was: dict[str, str], now: dict[str, str], what: str) -> None:
    """Raises FingerprintMismatch unless every part agrees."""
    if differing := [part for part in sorted(was.keys() | now.keys()) if was.get(part) != now.get(part)]:
        detail = ", ".join(f"{p} {was.get(p, 'none')[:12]} is now {now.get(p, 'none')[:12]}" for p in differing)
        raise FingerprintMismatch(
            f"{what} was made by another host: {detail}; load that model, or promote the sources again on this one"
        )
