"""Turns texts into unit vectors with a local BERT-like encoder; knows no cubes and no index.

The same vectors as sentence-transformers: mean over the tokens, then length 1. Building an Embedder reads names and
digests only; torch and the weights are loaded with the first text, so that a kernel starts fast.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from memos.config import EmbedderConfig
from memos.errors import ModelNotFound
from memos.extensions import Registry
from memos.infrastructure.host.encoders import weights
from memos.infrastructure.host.loading import loading
from memos.lazy import Lazy

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_BATCH = 32  # texts in one forward
_MAX_TOKENS = 256  # where the model's folder does not say
_T = TypeVar("_T")

Reading = tuple[np.ndarray, np.ndarray]  # a text's vector, and one of each of its tokens


class Embedder:
    """A mean-pooling sentence encoder. `name` is the key of vectors that it made: other weights, other name."""

    def __init__(self, config: EmbedderConfig, device: str = "cpu") -> None:
        """Find the encoder. Raises ModelNotFound or HostError, naming embedder.path."""
        self._path, self._device = config.path, device
        self._folder = weights.encoder_folder(config.path)
        self._published = config.path == weights.DEFAULT
        # the package's digest is known; it is compared when the weights are read, not at every start
        digest = weights.PUBLISHED_SHA256 if self._published else weights.weights_sha256(self._folder)
        self.name = weights.versioned_name(config.path, digest)
        self.dim = weights.hidden_width(self._folder / "config.json")
        self._model = Lazy(self._load)
        self._max_tokens = Lazy(self._read_max_tokens)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[len(texts), dim] float32, each row of length 1, in the order of `texts`."""
        readings = self.read(texts)
        return np.stack([vector for vector, _ in readings]) if readings else np.zeros((0, self.dim), np.float32)

    def tokens(self, texts: Sequence[str]) -> int:
        """How many tokens of these texts are read."""
        tokenizer, _ = self._model()
        # as in `_forward`: how a tokenizer pads is a setting of it, which another thread must not find changed
        batch = tokenizer(list(texts), padding=True, truncation=True, max_length=self._max_tokens())
        return sum(map(sum, batch["attention_mask"]))

    def read(self, texts: Sequence[str], spans: Sequence[tuple[int, int]] | None = None) -> list[Reading]:
        """A reading of each text: its vector, [dim] float32 of length 1, and one of each token, [tokens, dim] int8, of
        which the direction counts.

        spans: of each text, the characters [begin, end) of the part that is meant, the rest being what was said around
        it. The vector is then the middle between that of the whole and that of the part, read within the whole; the
        tokens are those of the part. A text that is given with several spans is read once.
        """
        parts = list(spans) if spans is not None else [(0, len(text)) for text in texts]
        wanted: dict[str, list[int]] = defaultdict(list)
        for i, text in enumerate(texts):
            wanted[text].append(i)
        found: dict[int, Reading] = {}
        order = sorted(wanted, key=len)  # like lengths together: little padding
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            rows = [i for text in batch for i in wanted[text]]
            forward = partial(self._forward, batch, [len(wanted[text]) for text in batch], [parts[i] for i in rows])
            found |= zip(rows, on_encoder_thread(forward), strict=True)
        return [found[i] for i in range(len(texts))]

    def _forward(self, texts: list[str], counts: list[int], spans: list[tuple[int, int]]) -> list[Reading]:
        """A reading for each span; of each text there are as many as `counts` says, one after the other."""
        import torch  # here and not above: see the top of the file

        tokenizer, model = self._model()
        batch = tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=self._max_tokens(),
            return_tensors="pt",
            return_offsets_mapping=True,
        ).to(self._device)
        text_of = torch.arange(len(texts)).repeat_interleave(torch.tensor(counts))  # [spans]
        starts, ends = batch.pop("offset_mapping")[text_of].unbind(-1)  # [spans, tokens] each; 0 for special tokens
        begin, end = torch.tensor(spans, device=self._device).unsqueeze(-1).unbind(1)  # [spans, 1] each
        with torch.inference_mode():
            hidden = model(**batch).last_hidden_state  # [texts, tokens, dim]
        inside = (starts >= begin) & (ends <= end) & (ends > starts)
        lengths = torch.tensor([len(text) for text in texts], device=self._device)[text_of]
        within_context = (end - begin).squeeze(-1) < lengths
        vectors, hidden = _mean(hidden, batch["attention_mask"])[text_of], hidden[text_of]
        middle = torch.nn.functional.normalize(vectors + _mean(hidden, inside), dim=-1)
        vectors[within_context] = middle[within_context]
        largest = hidden.abs().amax(-1, keepdim=True).clamp(min=1e-9)
        coarse = (hidden * (127 / largest)).round().to(torch.int8)
        readings = [(v.cpu().numpy(), c[i].cpu().numpy()) for v, c, i in zip(vectors, coarse, inside, strict=True)]
        for n in (within_context & (ends.amax(1) < end.squeeze(-1))).nonzero().flatten().tolist():
            part = texts[text_of[n]][slice(*spans[n])]  # too much stood before it: it was cut, and is read alone
            [readings[n]] = self._forward([part], [1], [(0, len(part))])
        return readings

    def _read_max_tokens(self) -> int:
        file = self._folder / "sentence_bert_config.json"
        length = (weights.read_json(file) if file.is_file() else {}).get("max_seq_length")
        return length if isinstance(length, int) and length else _MAX_TOKENS

    def _load(self) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
        """Tokenizer, which is changed by its use, and model, which kernels of one process share."""
        with loading():
            from safetensors import SafetensorError
            from transformers import AutoTokenizer

            try:
                model = weights.cached_encoder(self._folder, self.name, self._device, self._published)
                return AutoTokenizer.from_pretrained(self._folder, local_files_only=True), model
            except (OSError, ValueError, SafetensorError) as error:
                raise ModelNotFound(
                    f"embedder.path {self._path!r} does not load as an encoder: {error}; {weights.WAY_OUT}"
                ) from error


# What makes the embedder of a config, by the name in embedder.engine; `transformers` is the class above.
embedders: Registry[Callable[[EmbedderConfig], Embedder]] = Registry("memos.embedders", "embedder")


def _mean(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """[texts, dim]: direction of the mean over the tokens of a mask; 0 where there are none."""
    import torch

    mean = (hidden * mask.unsqueeze(-1).to(hidden.dtype)).sum(1)
    return torch.nn.functional.normalize(mean, dim=-1)


# -- the thread that encoders run on ----------------------------------------------------------------------------

_THREAD_NAME = "memos-encoder"
_thread: ThreadPoolExecutor


def on_encoder_thread(call: Callable[[], _T]) -> _T:
    """Make a call on the one thread of the process that encoders run on.

    Each thread on which matrices were multiplied keeps buffers of its own, and so do the threads that help it (of MKL
    4.4 MB each, measured), so a server of many threads would grow with each; and they would share the same cores.
    """
    if threading.current_thread().name.startswith(_THREAD_NAME):
        return call()
    try:
        future = _thread.submit(call)
    except RuntimeError:  # the interpreter is shutting down, and waits for the thread that calls
        return call()
    return future.result()


def _start_thread() -> None:
    global _thread
    _thread = ThreadPoolExecutor(1, _THREAD_NAME)


_start_thread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_thread)  # threads stay with the parent
