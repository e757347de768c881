"""A message -> the parts that ask for something, and the words in them that say what and who. Knows torch and the
weights; knows no operations.

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
from typing import Any

from memos.errors import HostError
from memos.infrastructure.host.encoders.alone import reading
from memos.infrastructure.host.encoders.embedder import DEFAULT, encoder_folder, shared_encoder

_MODEL = "reader_model"  # the folder with our weights, beside this file
_MOST = 200  # tokens of a message that are read; what is longer is a text, not a request
HEADS = ("parts", "slots", "refs", "marks")
BEFORE = 400  # characters of what was said before


@dataclass(frozen=True)
class Span:
    """A run of characters [begin, end) with its label. sure: the probability of its labels, the mean over tokens."""

    label: str
    begin: int
    end: int
    sure: float


@dataclass(frozen=True)
class Tagged:
    """parts: what asks for something, in order. slots: words within the message. pointed: words within what was said
    before it, at their place in there."""

    parts: tuple[Span, ...]
    slots: tuple[Span, ...]
    pointed: tuple[Span, ...]


class Tagger:
    """The weights are read with the first message."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: that of the weights; by default those of the package."""
        self._folder = folder or Path(str(files("memos.infrastructure.host.encoders").joinpath(_MODEL)))

    def tag(self, text: str, before: str = "") -> Tagged:
        """Read a message in the light of what was said before it. Raises HostError, ModelNotFound."""
        network = _network(self._folder, _written(self._folder))
        early = max(0, len(before) - BEFORE)
        said, asked = network.tokens(before[early:]), network.tokens(text)[:_MOST]
        if not asked:
            return Tagged((), (), ())
        scores = reading(partial(network, said, asked))
        of_asked, of_said = slice(-1 - len(asked), -1), slice(1, 1 + len(said))
        parts, *within = (_spans(scores[head][of_asked], labels, asked, 0) for head, labels in network.heads.items())
        pointed = (_spans(scores[head][of_said], network.heads[head], said, early) for head in ("slots", "refs"))
        return Tagged(tuple(parts), tuple(chain(*within)), tuple(chain(*pointed)))


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
        self._table, self._characters = shared.get_input_embeddings().weight, own["characters"]
        self._model = deepcopy(shared, {id(self._table): self._table})  # without the table: half of it, and unchanged
        changed(self._model, own)
        self._weights = {head: (own[f"{head}.weight"], own[f"{head}.bias"]) for head in HEADS}

    def tokens(self, text: str) -> list[Token]:
        if not text:
            return []
        read = self._tokenizer.encode(text, add_special_tokens=False)
        whole = zip(read.ids, read.offsets, read.tokens, strict=True)
        return [(id, *place, piece.startswith("##")) for id, place, piece in whole]

    def __call__(self, said: Sequence[Token], asked: Sequence[Token]) -> dict[str, Any]:
        """Of each head [tokens, labels] log probabilities, special tokens among the tokens."""
        import torch

        cls, sep = self._special
        first = [cls, *(token[0] for token in said), *([sep] if said else [])]
        second = [*(token[0] for token in asked), sep]
        ids, known = torch.tensor([[*first, *second]]), len(self._table)
        types = torch.tensor([[0] * len(first) + [1] * len(second)])
        with torch.inference_mode():
            embedded = self._table[ids.clamp(max=known - 1)]
            embedded[ids >= known] = self._characters[ids[ids >= known] - known]
            hidden = self._model(inputs_embeds=embedded, token_type_ids=types).last_hidden_state[0]
            return {head: (hidden @ w.T + b).log_softmax(-1) for head, (w, b) in self._weights.items()}


def changed(model: Any, own: Mapping[str, Any]) -> None:
    """Put trained tensors on an encoder, in place: of a matrix the change NAME.up @ NAME.down, all else as it is."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if f"{name}.up" in own:
                parameter += own[f"{name}.up"] @ own[f"{name}.down"]
            elif name in own:
                parameter.copy_(own[name])


def _read(folder: Path) -> tuple[dict[str, list[str]], dict[str, Any], list[str]]:
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


def _spans(scores: Any, labels: Sequence[str], tokens: Sequence[Token], early: int) -> list[Span]:
    """The runs of the likeliest labels in which an inside only follows its own label."""
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
    return [Span(label, early + begin, early + end, sum(sure) / len(sure)) for label, begin, end, sure in runs]


def _likeliest(scores: Any, labels: Sequence[str], within: Sequence[bool]) -> list[int]:
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
def _allowed(labels: tuple[str, ...], within: bool) -> Any:
    """[before, after] 0 or -inf; O, with which a text begins, is the first."""
    import torch

    out = torch.zeros(len(labels), len(labels))
    for n, after in enumerate(labels):
        for m, before in enumerate(labels):
            goes_on = not after.startswith("B-") and before[1:] == after[1:]  # both O, or of the same run
            if not goes_on and (within or after.startswith("I-")):
                out[m, n] = -math.inf
    return out
