"""Scores how well a text answers a query with a local cross-encoder; knows no cubes.

Slower than vectors by far, as nothing of it can be made beforehand; so it sees the best candidates only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memos.errors import ModelNotFound
from memos.infrastructure.host.encoders.weights import no_progress_bar
from memos.infrastructure.host.engines import loading
from memos.infrastructure.host.threads import multiply_alone, on_encoder_threads
from memos.lazy import Lazy

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_BATCH = 16  # pairs in one forward
_CUT = {"padding": True, "truncation": True, "max_length": 512}  # settings of the tokenizer, which all threads share
_WAY_OUT = "set retrieval.reranker to a folder with config.json and model.safetensors of a sequence classifier"


def make(path: str) -> Callable[[str, Sequence[str]], np.ndarray]:
    """What scores texts beside a query, of a folder. Raises ModelNotFound."""
    return Reranker(path).score


class Reranker:
    """A sequence classifier with one label, or two of which the second is yes."""

    def __init__(self, path: str) -> None:
        """Raises ModelNotFound, naming retrieval.reranker. The weights are loaded with the first text."""
        self._folder = Path(path).expanduser()
        if not (self._folder / "config.json").is_file():
            raise ModelNotFound(f"retrieval.reranker {path!r} has no config.json; {_WAY_OUT}")
        self._model = Lazy(self._load)

    def score(self, query: str, texts: Sequence[str]) -> np.ndarray:
        """[len(texts)] float32, from 0 to 1. Raises ModelNotFound."""
        batches = [texts[n : n + _BATCH] for n in range(0, len(texts), _BATCH)]
        forwards = ((sum(map(len, batch)), partial(self._forward, query, batch)) for batch in batches)
        parts = list(on_encoder_threads(forwards))
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def _forward(self, query: str, texts: Sequence[str]) -> np.ndarray:
        import torch  # heavy: with the first text only

        multiply_alone()
        tokenizer, model = self._model()
        batch = tokenizer([query] * len(texts), list(texts), return_tensors="pt", **_CUT)
        with torch.inference_mode():
            logits = model(**batch).logits.float()  # [texts, labels]
        yes = logits[:, 0].sigmoid() if logits.shape[1] == 1 else logits.softmax(-1)[:, 1]
        return yes.numpy()

    def _load(self) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
        """Tokenizer and model (float32, evaluation mode)."""
        with loading(), no_progress_bar():
            import torch
            from safetensors import SafetensorError
            from transformers import AutoModelForSequenceClassification, AutoTokenizer

            try:
                tokenizer = AutoTokenizer.from_pretrained(self._folder, local_files_only=True)
                tokenizer(["its settings"], ["are made now"], **_CUT)
                model = AutoModelForSequenceClassification.from_pretrained(
                    self._folder,
                    local_files_only=True,
                    use_safetensors=True,  # never a pickle
                    dtype=torch.float32,
                )
            except (OSError, ValueError, SafetensorError) as error:
                raise ModelNotFound(
                    f"retrieval.reranker {str(self._folder)!r} does not load: {error}; {_WAY_OUT}"
                ) from error
        if model.config.num_labels > 2:
            raise ModelNotFound(
                f"retrieval.reranker {self._folder} has {model.config.num_labels} labels, and which of them means "
                f"that a text answers is not known; {_WAY_OUT}"
            )
        return tokenizer, model.eval()
