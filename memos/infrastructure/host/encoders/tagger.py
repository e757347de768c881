"""Finds the parts of a message that ask for something, and the words in them that say what and who.

Knows torch and the weights; knows no operations.

The default encoder (Embedder) with weights of our own on top: a low-rank change of its layers, an embedding for each
Chinese character, and heads over the tokens, for parts, slots, references, and marks (times and people), decoded so
that each is one run of tokens (Viterbi over BIO labels). A reference or a mark may lie within a slot. Trained by
scripts/train_reader.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha256
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from memos.errors import HostError
from memos.infrastructure.host.encoders.embedder import on_encoder_thread
from memos.infrastructure.host.encoders.weights import DEFAULT, encoder_folder, input_embeddings, shared_encoder

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_MODEL = "reader_model"  # the folder with our weights, beside this file
MAX_MESSAGE_TOKENS = 200  # of a message that are read; what is longer is a text, not a request
HEADS = ("parts", "slots", "refs", "marks")
CONTEXT_CHARACTERS = 400  # of what was said before a message


@dataclass(frozen=True)
class LabelledSpan:
    """A run of characters [begin, end) with its label. sure: the probability of its labels, the mean over tokens."""

    label: str
    begin: int
    end: int
    sure: float


@dataclass(frozen=True)
class TaggedRequest:
    """parts: what asks for something, in order. slots: words within the message. pointed: words within what was said
    before it, at their place in there."""

    parts: tuple[LabelledSpan, ...]
    slots: tuple[LabelledSpan, ...]
    pointed: tuple[LabelledSpan, ...]


class RequestTagger:
    """The weights are read with the first message."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: that of the weights; by default those of the package."""
        self._folder = folder or Path(str(files("memos.infrastructure.host.encoders").joinpath(_MODEL)))

    def tag(self, text: str, before: str = "") -> TaggedRequest:
        """Read a message in the light of what was said before it. Raises HostError, ModelNotFound."""
        network = _network(self._folder, _written(self._folder))
        skipped = max(0, len(before) - CONTEXT_CHARACTERS)
        context, message = network.tokens(before[skipped:]), network.tokens(text)[:MAX_MESSAGE_TOKENS]
        if not message:
            return TaggedRequest((), (), ())
        scores = on_encoder_thread(partial(network, context, message))
        of_message, of_context = slice(-1 - len(message), -1), slice(1, 1 + len(context))
        parts, *within = (
            _spans(scores[head][of_message], labels, message, 0) for head, labels in network.heads.items()
        )
        pointed = (
            _spans(scores[head][of_context], network.heads[head], context, skipped) for head in ("slots", "refs")
        )
        return TaggedRequest(tuple(parts), tuple(chain(*within)), tuple(chain(*pointed)))


Token = tuple[int, int, int, bool]  # id, the characters [begin, end), and whether it goes on with a word


class _Network:
    """The encoder and its heads. Tokens -> log probabilities of the labels of each."""

    def __init__(self, folder: Path) -> None:
        """Raises HostError, ModelNotFound."""
        from tokenizers import BertWordPieceTokenizer

        heads, own, more = _read(folder)
        base = encoder_folder(DEFAULT)
        words = [*(base / "vocab.txt").read_text("utf-8").splitlines(), *more]
        self._tokenizer = BertWordPieceTokenizer(vocab={word: n for n, word in enumerate(words)}, lowercase=True)
        self._special = words.index("[CLS]"), words.index("[SEP]")
        self.heads = {head: bio(heads[head]) for head in HEADS}
        shared = shared_encoder()
        self._table, self._characters = input_embeddings(shared), own["characters"]
        self._model = deepcopy(shared, {id(self._table): self._table})  # without the table: half of it, and unchanged
        apply_changes(self._model, own)
        self._weights = {head: (own[f"{head}.weight"], own[f"{head}.bias"]) for head in HEADS}

    def tokens(self, text: str) -> list[Token]:
        if not text:
            return []
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        whole = zip(encoded.ids, encoded.offsets, encoded.tokens, strict=True)
        return [(id, *place, piece.startswith("##")) for id, place, piece in whole]

    def __call__(self, context: Sequence[Token], message: Sequence[Token]) -> dict[str, torch.Tensor]:
        """Of each head [tokens, labels] log probabilities, special tokens among the tokens."""
        import torch

        cls, sep = self._special
        first = [cls, *(token[0] for token in context), *([sep] if context else [])]
        second = [*(token[0] for token in message), sep]
        ids, known = torch.tensor([[*first, *second]]), len(self._table)
        types = torch.tensor([[0] * len(first) + [1] * len(second)])
        with torch.inference_mode():
            embedded = self._table[ids.clamp(max=known - 1)]
            embedded[ids >= known] = self._characters[ids[ids >= known] - known]
            hidden = self._model(inputs_embeds=embedded, token_type_ids=types).last_hidden_state[0]
            return {head: (hidden @ w.T + b).log_softmax(-1) for head, (w, b) in self._weights.items()}


def apply_changes(model: PreTrainedModel, own: Mapping[str, torch.Tensor]) -> None:
    """Put trained tensors on an encoder, in place: of a matrix the change NAME.up @ NAME.down, all else as it is."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if f"{name}.up" in own:
                parameter.add_(own[f"{name}.up"] @ own[f"{name}.down"])
            elif name in own:
                parameter.copy_(own[name])


def _read(folder: Path) -> tuple[dict[str, list[str]], dict[str, torch.Tensor], list[str]]:
    """(the labels of each head, the tensors, the characters) of a folder. Raises HostError where a file is not there or
    not the one that was written."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        for name, digest in config["sha256"].items():
            if (found := sha256((folder / name).read_bytes()).hexdigest()) != digest:
                raise ValueError(f"{name} has sha256 {found}, which should be {digest}")
        tensors = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
        return config["heads"], tensors, (folder / "characters.txt").read_text("utf-8").split()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise HostError(f"{folder} does not load as a reader: {error}; install memos again") from error


@lru_cache(maxsize=1)
def _network(folder: Path, written: int) -> _Network:
    """The one of these files, which kernels of one process share."""
    return _Network(folder)


def _written(folder: Path) -> int:
    try:
        return (folder / "config.json").stat().st_mtime_ns
    except OSError:
        return 0


def bio(labels: Sequence[str]) -> list[str]:
    """O, and of each label its begin and its inside."""
    return ["O", *(f"{place}-{label}" for label in labels for place in "BI")]


def _spans(scores: torch.Tensor, labels: Sequence[str], tokens: Sequence[Token], skipped: int) -> list[LabelledSpan]:
    """The runs of the likeliest labels in which an inside only follows its own label. scores: [tokens, labels];
    skipped: characters of the text before the tokens."""
    if not tokens:
        return []
    runs: list[tuple[str, int, int, list[float]]] = []
    for n, state in enumerate(_likeliest(scores, labels, [token[3] for token in tokens])):
        label, (_, begin, end, _) = labels[state], tokens[n]
        p = math.exp(float(scores[n, state]))
        if label.startswith("B-"):
            runs.append((label[2:], begin, end, [p]))
        elif label != "O":
            name, first, _, sure = runs[-1]
            runs[-1] = (name, first, end, [*sure, p])
    return [LabelledSpan(label, skipped + begin, skipped + end, sum(p) / len(p)) for label, begin, end, p in runs]


def _likeliest(scores: torch.Tensor, labels: Sequence[str], within: Sequence[bool]) -> list[int]:
    """Viterbi: the path of the highest sum. scores: [tokens, labels]. within: of each token, whether it goes on with a
    word; no run begins or ends there."""
    allowed = [_allowed(tuple(labels), on) for on in (False, True)]
    best, back = scores[0] + allowed[False][0], []
    for row, on in zip(scores[1:], within[1:], strict=True):
        value, origin = (best[:, None] + allowed[on]).max(0)
        best = value + row
        back.append(origin)
    path = [int(best.argmax())]
    for origin in reversed(back):
        path.append(int(origin[path[-1]]))
    return path[::-1]


@lru_cache(maxsize=8)
def _allowed(labels: tuple[str, ...], within: bool) -> torch.Tensor:
    """[before, after] 0 or -inf; O, with which a text begins, is the first."""
    import torch

    out = torch.zeros(len(labels), len(labels))
    for n, after in enumerate(labels):
        for m, before in enumerate(labels):
            goes_on = not after.startswith("B-") and before[1:] == after[1:]  # both O, or of the same run
            if not goes_on and (within or after.startswith("I-")):
                out[m, n] = -math.inf
    return out
