"""Loads the local model and its tokenizer, and lets it attend over long caches fast; knows transformers, no memories.

`model.path: shape:NAME` loads random weights in the shape of a known model, with the small model's tokenizer: enough to
measure time and bytes, useless for answers.

Attention on a CPU, where several query heads share keys and values: transformers repeats the shared ones for each query
head before it calls torch, which copies the whole cache once more for every question. Here the heads that share become
rows of one head instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import hf_hub_download
from safetensors import SafetensorError
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AttentionInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from memos.config import ModelConfig
from memos.errors import HostError, ModelNotFound
from memos.infrastructure.host.kv.cache import WEIGHTED_ATTENTION, with_weights
from memos.infrastructure.host.model.packed import packed_attention

SMALL_MODEL = "memos-small"


def load_model(config: ModelConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model (evaluation mode, on its device) and tokenizer of a folder, a hub name, or the packaged model.

    Raises ModelNotFound or HostError, naming the path.
    """
    path, device = model_path(config.path), pick_device(config.device)
    dtype = config.dtype if config.dtype != "auto" or device.type == "cuda" else "float32"
    attention = None if config.attention == "auto" else config.attention  # None: the best that the model supports
    transformers.utils.logging.disable_progress_bar()  # the doors show progress of their own
    if path.startswith(PREFIX):
        wanted = getattr(torch, "bfloat16" if dtype == "auto" else dtype)
        shaped = random_model(path.removeprefix(PREFIX), device, wanted, attention)
        return fold_shared_heads(shaped.eval()), _load_tokenizer(model_path(SMALL_MODEL), False)
    try:
        model, tokenizer = _from_pretrained(path, config, dtype, attention)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:  # RuntimeError: tensors of another shape
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if attention and "attention implementation" in reason:
            reason += "; set model.attention to auto"
        raise ModelNotFound(
            f"model.path {config.path!r} does not load as a causal language model with safetensors weights: {reason}; "
            f"give a folder with config.json and model.safetensors, a hub name, or {SMALL_MODEL}"
        ) from error
    model.to(device)  # type: ignore[arg-type]
    return fold_shared_heads(model.eval()), tokenizer


def _from_pretrained(
    path: str, config: ModelConfig, dtype: str, attention: str | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if not Path(path).is_dir():
        # asked for once: each look-up retries for long where there is no network
        hf_hub_download(path, "config.json")
    tokenizer = _load_tokenizer(path, config.trust_remote_code)
    kind = type(AutoConfig.from_pretrained(path, trust_remote_code=config.trust_remote_code))
    sees = kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING and kind not in MODEL_FOR_CAUSAL_LM_MAPPING
    model: PreTrainedModel = (AutoModelForImageTextToText if sees else AutoModelForCausalLM).from_pretrained(
        path,
        dtype=dtype,
        attn_implementation=attention,
        trust_remote_code=config.trust_remote_code,
        use_safetensors=True,  # never a pickle
    )
    if not tokenizer("a", add_special_tokens=False)["input_ids"]:
        raise ValueError("it has no tokenizer files")
    return model, tokenizer


def _load_tokenizer(path: str, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """The tokenizer as its own tokenizer.json says, where the folder names no class of its own.

    For some architectures (qwen2) AutoTokenizer puts another normalizer and another split of the text in its place.
    """
    declared = get_tokenizer_config(path).get("tokenizer_class")
    plain = declared in ("TokenizersBackend", "PreTrainedTokenizerFast")
    return (PreTrainedTokenizerFast if plain else AutoTokenizer).from_pretrained(
        path, trust_remote_code=trust_remote_code
    )


def model_path(path: str) -> str:
    """Where the weights are: the package's own folder for the small model, else what was given.

    Raises ModelNotFound for something that looks like a folder and is not there.
    """
    if path == SMALL_MODEL:
        return str(files("memos.infrastructure.host.model").joinpath("small_model"))
    expanded = Path(path).expanduser()
    looks_local = path.startswith((".", "/", "~")) or path.count("/") > 1
    if looks_local and not (expanded / "config.json").is_file():
        raise ModelNotFound(
            f"model.path {path!r} has no config.json; give a Hugging Face model folder, a hub name, or {SMALL_MODEL}"
        )
    return str(expanded) if expanded.exists() else path


def pick_device(device: str) -> torch.device:
    """auto: cuda where there is one. Raises HostError for a cuda that is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise HostError("model.device is cuda, but torch sees no CUDA device; set model.device to auto or cpu")
    return torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")


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
    "llama-3-70b": _shape("llama", 80, 8192, 28_672, 64, 8, 128_256),
    "qwen2.5-72b": _shape("qwen2", 80, 8192, 29_568, 64, 8, 152_064),
}


def random_model(name: str, device: torch.device, dtype: torch.dtype, attention: str | None) -> PreTrainedModel:
    """A model of that shape, made on its device. Raises ModelNotFound, naming the shapes there are."""
    if name not in SHAPES:
        raise ModelNotFound(f"there is no shape {name!r}; there are {', '.join(SHAPES)}")
    config = AutoConfig.for_model(**SHAPES[name])
    with torch.device(device), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)


_FOLDS = "memos_folds_shared_heads"  # an attribute of the modules whose attention may be computed so
# What transformers' own function heeds beyond the tensors, the mask and the scale: left to it.
_HEEDED = (*signature(sdpa_attention_forward).parameters.keys() - {"is_causal", "kwargs"}, "softcap")


def fold_shared_heads(model: PreTrainedModel) -> PreTrainedModel:
    """Let a model that memos has loaded use `shared_head_attention` on a CPU.

    Only a mark on its modules changes. Under a name of its own, code that asks whether attention is "sdpa" would go
    another way.
    """
    if model.device.type == "cpu":
        for module in model.modules():
            if getattr(module, "num_key_value_groups", 1) != 1:
                setattr(module, _FOLDS, True)
    return model


@contextmanager
def as_loaded(model: PreTrainedModel) -> Iterator[None]:
    """The model as transformers has it, without shared heads folded."""
    folding = [module for module in model.modules() if getattr(module, _FOLDS, False)]
    try:
        for module in folding:
            setattr(module, _FOLDS, False)
        yield
    finally:
        for module in folding:
            setattr(module, _FOLDS, True)


def shared_head_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """query [B, H, T, D], key and value [B, G, K, D], attention_mask [B or 1, 1, T, K] -> [B, T, H, D].

    As transformers' own sdpa, which repeats each key H / G times, up to rounding; and that itself for modules without
    the mark, and for what is asked beyond.
    """
    packed = packed_attention(module, query, key, value, scaling, rest)
    if packed is not None:
        return packed, None
    attention_mask = with_weights(key, attention_mask, query)
    batch, heads, tokens, width = query.shape
    share = heads // key.shape[1]
    if (
        not getattr(module, _FOLDS, False)
        or share == 1
        or attention_mask is None
        or attention_mask.shape[1] != 1
        or any(rest.get(name) is not None for name in _HEEDED)
    ):
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling=scaling, **rest)
    folded = query.reshape(batch, key.shape[1], share * tokens, width)
    mask = attention_mask[..., : key.shape[-2]].repeat(1, 1, share, 1)
    out = scaled_dot_product_attention(folded, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling)
    return out.reshape(batch, heads, tokens, -1).transpose(1, 2).contiguous(), None


AttentionInterface.register(WEIGHTED_ATTENTION, shared_head_attention)
