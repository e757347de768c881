"""Builds random weights in the shape of a known model: enough to measure time and bytes, useless for answers.

`model.path: shape:NAME` loads one, with the small model's tokenizer.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from memos.errors import ModelNotFound

PREFIX = "shape:"


def _shape(kind: str, layers: int, width: int, inner: int, heads: int, kv_heads: int, vocab: int) -> dict[str, Any]:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "max_position_embeddings": 32_768,
    }


# sizes as published in each model's config.json
SHAPES: dict[str, dict[str, Any]] = {
    # ours, for two cores: 126 million parameters in layers as wide as those of a 1B model, so that matrices and
    # attention share the work as they do in models that people run
    "cpu-126m": _shape("llama", 5, 1536, 4096, 12, 4, 2048),
    "tiny": _shape("llama", 2, 64, 128, 4, 4, 2048),  # for what does not depend on what a model says
    "qwen2.5-0.5b": _shape("qwen2", 24, 896, 4864, 14, 2, 151_936) | {"tie_word_embeddings": True},
    "qwen2.5-7b": _shape("qwen2", 28, 3584, 18_944, 28, 4, 152_064),
    "qwen3-8b": _shape("qwen3", 36, 4096, 12_288, 32, 8, 151_936) | {"head_dim": 128},
    "llama-3-8b": _shape("llama", 32, 4096, 14_336, 32, 8, 128_256),
    "qwen3-32b": _shape("qwen3", 64, 5120, 25_600, 64, 8, 151_936) | {"head_dim": 128},
}


def random_model(name: str, device: torch.device, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """A model of that shape, made on its device. Raises ModelNotFound, naming the shapes there are."""
    if name not in SHAPES:
        raise ModelNotFound(f"there is no shape {name!r}; there are {', '.join(SHAPES)}")
    config = AutoConfig.for_model(**SHAPES[name])
    with torch.device(device), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
