"""Loads the local model and its tokenizer; knows transformers, no memories."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import torch
import transformers
from huggingface_hub import hf_hub_download
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from memos.config import ModelConfig
from memos.errors import HostError, ModelNotFound
from memos.infrastructure.host.model.attention import fold_shared_heads
from memos.infrastructure.host.model.shapes import PREFIX, random_model

SMALL_MODEL = "memos-small"


def load_model(config: ModelConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model (evaluation mode, on its device) and tokenizer of a folder, a hub name, or the packaged model.

    Raises ModelNotFound or HostError, naming the path.
    """
    path, device = model_path(config.path), pick_device(config.device)
    dtype = config.dtype if config.dtype != "auto" or device.type == "cuda" else "float32"
    transformers.utils.logging.disable_progress_bar()  # the doors show progress of their own
    if path.startswith(PREFIX):
        wanted = getattr(torch, "bfloat16" if dtype == "auto" else dtype)
        shaped = random_model(path.removeprefix(PREFIX), device, wanted, config.attention)
        return fold_shared_heads(shaped.eval()), _load_tokenizer(model_path(SMALL_MODEL), False)
    try:
        model, tokenizer = _from_pretrained(path, config, dtype)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:  # RuntimeError: tensors of another shape
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelNotFound(
            f"model.path {config.path!r} does not load as a causal language model with safetensors weights: {reason}; "
            f"give a folder with config.json and model.safetensors, a hub name, or {SMALL_MODEL}"
        ) from error
    model.to(device)  # type: ignore[arg-type]
    return fold_shared_heads(model.eval()), tokenizer


def _from_pretrained(path: str, config: ModelConfig, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if not Path(path).is_dir():
        # asked for once: each look-up retries for long where there is no network
        hf_hub_download(path, "config.json")
    tokenizer = _load_tokenizer(path, config.trust_remote_code)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        path,
        dtype=dtype,
        attn_implementation=config.attention,
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
    tokenizer: PreTrainedTokenizerBase = (PreTrainedTokenizerFast if plain else AutoTokenizer).from_pretrained(
        path, trust_remote_code=trust_remote_code
    )
    return tokenizer


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
