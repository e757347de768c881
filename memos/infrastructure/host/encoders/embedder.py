"""Turns texts into unit vectors with a local BERT-like encoder, and tags requests with it; knows no cubes or index.

The same vectors as sentence-transformers: mean over the tokens, then length 1. Building an Embedder reads names and
digests only; the weights are loaded with the first text, so that a kernel starts fast. A few texts are read in NumPy,
as long as the process has not imported torch for something else.

`TextTagger` marks words of a message: the parts that ask for something and what and whom they name, or, with other
weights, the parts that state something and what about. It is the default encoder with weights of our own on top: a
low-rank change of its layers, an embedding for each Chinese character, and heads over the tokens, for parts, slots,
references, and marks (times and people), decoded so that each is one run of tokens (Viterbi over BIO labels). A
reference or a mark may lie within a slot. Trained by scripts/train_reader.py.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha256
from importlib.resources import files
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from memos.config import EmbedderConfig
from memos.errors import HostError, MemosError, ModelNotFound
from memos.extensions import Registry
from memos.infrastructure.host.encoders import weights
from memos.infrastructure.host.encoders.bert import Bert, Encoded, Floats, NumpyLayers
from memos.infrastructure.host.engines import loading
from memos.infrastructure.host.threads import multiply_alone, on_encoder_thread, on_encoder_threads
from memos.lazy import Lazy

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase


_BATCH, _BATCH_CHARS = 32, 1024  # texts in one forward, and with padding: a question waits for that of others
FEW_CHARACTERS = 100_000  # which NumPy reads in less time than torch and transformers take to import
_MAX_TOKENS = 256  # where the model's folder does not say

Reading = tuple[np.ndarray, np.ndarray]  # a text's vector, and one of each of its tokens


class Embedder:
    """A mean-pooling sentence encoder. `name` is the key of vectors that it made: other weights, other name."""

    def __init__(self, config: EmbedderConfig) -> None:
        """Find the encoder. Raises ModelNotFound or HostError, naming embedder.path."""
        self._path = config.path
        self._folder = weights.encoder_folder(config.path)
        self._published = config.path == weights.DEFAULT
        # the package's digest is known; it is compared when the weights are read, not at every start
        digest = weights.PUBLISHED_SHA256 if self._published else weights.weights_sha256(self._folder)
        self.name = weights.versioned_name(config.path, digest)
        self.dim = weights.hidden_width(self._folder / "config.json")
        self._model, self._bert = Lazy(self._load), Lazy(self._load_bert)  # of another folder, and the published one
        self._max_tokens = Lazy(self._read_max_tokens)
        self._characters, self._loading = 0, Lazy(self._load_ahead)  # that were read so far; while torch is imported

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[len(texts), dim] float32, each row of length 1, in the order of `texts`."""
        readings = self.read(texts)
        return np.stack([vector for vector, _ in readings]) if readings else np.zeros((0, self.dim), np.float32)

    def counts(self, texts: Sequence[str]) -> list[int]:
        """How many tokens of each text are read."""
        if self._published:
            return self._bert().counts(texts)
        tokenizer, _ = self._model()
        return [int(row.sum()) for row in self._tokenized(tokenizer, texts)["attention_mask"]] if texts else []

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
        order = sorted(wanted, key=len)  # like lengths together: little padding
        in_torch, batches = self._in_torch(sum(map(len, order))), list(_batches(order))
        rows = [[i for text in batch for i in wanted[text]] for batch in batches]
        counts = [[len(wanted[text]) for text in batch] for batch in batches]
        forwards = (
            (sum(map(len, batch)), partial(self._forward, batch, of_texts, [parts[i] for i in of_batch], in_torch))
            for batch, of_texts, of_batch in zip(batches, counts, rows, strict=True)
        )
        found = dict(zip(chain(*rows), chain.from_iterable(on_encoder_threads(forwards)), strict=True))
        return [found[i] for i in range(len(texts))]

    def _forward(
        self, texts: list[str], counts: list[int], spans: list[tuple[int, int]], in_torch: bool
    ) -> list[Reading]:
        """A reading for each span; of each text there are as many as `counts` says, one after the other."""
        encoded = self._bert()(texts, in_torch) if self._published else self._encoded(texts)
        text_of = np.repeat(np.arange(len(texts)), counts)  # [spans]
        hidden = encoded.hidden[text_of]  # [spans, tokens, dim]
        starts, ends = np.moveaxis(encoded.places[text_of], -1, 0)  # [spans, tokens] each
        begin, end = np.array(spans)[:, :, None].swapaxes(0, 1)  # [spans, 1] each
        inside = (starts >= begin) & (ends <= end) & (ends > starts)
        within_context = end[:, 0] - begin[:, 0] < np.array([len(text) for text in texts])[text_of]
        vectors = _mean(encoded.hidden, encoded.mask)[text_of]
        middle = _unit(vectors + _mean(hidden, inside))
        vectors[within_context] = middle[within_context]
        largest = np.maximum(np.abs(hidden).max(-1, keepdims=True), 1e-9)
        coarse = (hidden * (127 / largest)).round().astype(np.int8)
        readings = [(v, c[i]) for v, c, i in zip(vectors, coarse, inside, strict=True)]
        for n in (within_context & (ends.max(1) < end[:, 0])).nonzero()[0].tolist():
            part = texts[text_of[n]][slice(*spans[n])]  # too much stood before it: it was cut, and is read alone
            [readings[n]] = self._forward([part], [1], [(0, len(part))], in_torch)
        return readings

    def _encoded(self, texts: list[str]) -> Encoded:
        tokenizer, model = self._model()
        batch = self._tokenized(tokenizer, texts)
        multiply_alone()
        hidden = model(*(batch[name] for name in tokenizer.model_input_names))
        return Encoded(hidden.numpy(), batch["attention_mask"].numpy() > 0, batch["offset_mapping"].numpy())

    def _tokenized(self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> BatchEncoding:
        """The same for all: how a tokenizer pads is a setting of it, which another thread must not find changed."""
        cut = {"truncation": True, "max_length": self._max_tokens()}
        return tokenizer(list(texts), padding=True, return_tensors="pt", return_offsets_mapping=True, **cut)

    def _in_torch(self, characters: int) -> bool:
        """False if NumPy reads so many more: before torch would be imported, and until that is done, as nobody who has
        asked for something waits for it."""
        self._characters += characters
        if not self._published or ("torch" in sys.modules and not self._loading.if_made):
            return True
        loading = self._loading() if self._characters > FEW_CHARACTERS else self._loading.if_made
        return loading is not None and not loading.is_alive()

    def _load_ahead(self) -> Thread:
        def load() -> None:
            with suppress(MemosError, RuntimeError):  # who reads next meets it again; at a process's end nobody does
                self._bert().in_torch()

        thread = Thread(target=load, name="memos-loads-torch")
        thread.start()
        return thread

    def _read_max_tokens(self) -> int:
        file = self._folder / "sentence_bert_config.json"
        length = (weights.read_json(file) if file.is_file() else {}).get("max_seq_length")
        return length if isinstance(length, int) and length else _MAX_TOKENS

    def _load(self) -> tuple[PreTrainedTokenizerBase, weights.Forward]:
        """Tokenizer, which is changed by its use, and what reads with the model, which kernels of one process share."""
        with loading():
            from safetensors import SafetensorError
            from transformers import AutoTokenizer

            try:
                tokenizer = AutoTokenizer.from_pretrained(self._folder, local_files_only=True)
                self._tokenized(tokenizer, ["its settings are made now"])
                names = tuple(tokenizer.model_input_names)
                return tokenizer, weights.cached_reader(self._folder, self.name, names)
            except (OSError, ValueError, SafetensorError) as error:
                raise ModelNotFound(
                    f"embedder.path {self._path!r} does not load as an encoder: {error}; {weights.WAY_OUT}"
                ) from error

    def _load_bert(self) -> Bert:
        return Bert(self._folder, self._max_tokens())


# What makes the embedder of a config, by the name in embedder.engine; `transformers` is the class above.
embedders: Registry[Callable[[EmbedderConfig], Embedder]] = Registry("memos.embedders", "embedder")


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Texts, of which the longest are last, as they are read together."""
    batch: list[str] = []
    for text in texts:
        if len(batch) == _BATCH or (batch and (len(batch) + 1) * len(text) > _BATCH_CHARS):
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


def _mean(hidden: Floats, mask: npt.NDArray[np.bool_]) -> Floats:
    """[texts, dim]: direction of the mean over the tokens of a mask; 0 where there are none."""
    return _unit((hidden * mask[..., None]).sum(1))


def _unit(vectors: Floats) -> Floats:
    """Each row of length 1; 0 where it is 0."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


# -- tags of a message ------------------------------------------------------------------------------------------

_HERE = Path(str(files("memos.infrastructure.host.encoders")))
REQUESTS, STATEMENTS = _HERE / "reader_model", _HERE / "statement_model"  # folders with our weights
MAX_MESSAGE_TOKENS = 200  # of a message that are read; what is longer is a text, not a request
HEADS = ("parts", "slots", "refs", "marks")
ADDRESSED = "addressed"  # a head over a whole message
CONTEXT_CHARACTERS = 400  # of what was said before a message


@dataclass(frozen=True)
class LabelledSpan:
    """A run of characters [begin, end) with its label. sure: the probability of its labels, the mean over tokens."""

    label: str
    begin: int
    end: int
    sure: float


@dataclass(frozen=True)
class TaggedText:
    """parts: what asks for or states something, in order. slots: words within the message. pointed: words within what
    was said before it, at their place in there. addressed: how likely it is that it speaks to the memory itself, from 0
    to 1, as far as the weights tell."""

    parts: tuple[LabelledSpan, ...]
    slots: tuple[LabelledSpan, ...]
    pointed: tuple[LabelledSpan, ...]
    addressed: float = 1.0


class TextTagger:
    """The weights are read with the first message."""

    def __init__(self, folder: Path = REQUESTS, few: bool = False) -> None:
        """folder: that of the weights. few: so few messages are read that to import torch would take longer."""
        self._folder, self._few = folder, few

    def tag(self, text: str, before: str = "") -> TaggedText:
        """Read a message in the light of what was said before it. Raises HostError, ModelNotFound."""
        return self.read(text, before)[0]

    def read(self, text: str, before: str = "") -> tuple[TaggedText, Floats | None]:
        """A message as it is tagged, and the mean of its hidden states, [dim]; None where it has no tokens."""
        network = _network(self._folder, _written(self._folder), not self._few or "torch" in sys.modules)
        skipped = max(0, len(before) - CONTEXT_CHARACTERS)
        context, message = network.tokens(before[skipped:]), network.tokens(text)[:MAX_MESSAGE_TOKENS]
        if not message:
            return TaggedText((), (), ()), None
        scores, mean = on_encoder_thread(partial(network, context, message), len(before[skipped:]) + len(text))
        of_message, of_context = slice(-1 - len(message), -1), slice(1, 1 + len(context))
        parts, *within = (
            _spans(scores[head][of_message], labels, message, 0) for head, labels in network.heads.items()
        )
        pointed = (
            _spans(scores[head][of_context], network.heads[head], context, skipped) for head in ("slots", "refs")
        )
        tagged = TaggedText(tuple(parts), tuple(chain(*within)), tuple(chain(*pointed)), network.addressed(mean))
        return tagged, mean


Token = tuple[int, int, int, bool]  # id, the characters [begin, end), and whether it goes on with a word


class _Network:
    """The encoder and its heads. Tokens -> log probabilities of the labels of each."""

    def __init__(self, folder: Path, in_torch: bool) -> None:
        """Raises HostError, ModelNotFound."""
        from tokenizers import BertWordPieceTokenizer

        heads, own, more = _read(folder)
        base = weights.package_folder()
        words = [*(base / "vocab.txt").read_text("utf-8").splitlines(), *more]
        self._tokenizer = BertWordPieceTokenizer(vocab={word: n for n, word in enumerate(words)}, lowercase=True)
        self._special = words.index("[CLS]"), words.index("[SEP]")
        self.heads = {head: bio(heads[head]) for head in HEADS}
        self._characters = own["characters"]
        layers = NumpyLayers(base, own)
        self._table, self._hidden = layers.table, layers.in_torch() if in_torch else layers
        self._weights = {head: (own[f"{head}.weight"], own[f"{head}.bias"]) for head in HEADS}
        self._addressed = own.get(f"{ADDRESSED}.weight"), own.get(f"{ADDRESSED}.bias")

    def tokens(self, text: str) -> list[Token]:
        if not text:
            return []
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        whole = zip(encoded.ids, encoded.offsets, encoded.tokens, strict=True)
        return [(id, *place, piece.startswith("##")) for id, place, piece in whole]

    def addressed(self, mean: Floats) -> float:
        """How likely a message with this mean of its hidden states speaks to the memory; 1 where no weights tell."""
        weight, bias = self._addressed
        return 1.0 if weight is None or bias is None else 1 / (1 + math.exp(-float(weight[0] @ mean + bias[0])))

    def __call__(self, context: Sequence[Token], message: Sequence[Token]) -> tuple[dict[str, Floats], Floats]:
        """(of each head [tokens, labels] log probabilities, special tokens among the tokens; the mean of the message's
        hidden states, [dim])."""
        cls, sep = self._special
        first = [cls, *(token[0] for token in context), *([sep] if context else [])]
        second = [*(token[0] for token in message), sep]
        ids, known = np.array([*first, *second]), len(self._table)
        embedded = self._table[np.minimum(ids, known - 1)]
        embedded[ids >= known] = self._characters[ids[ids >= known] - known]
        types = np.array([[0] * len(first) + [1] * len(second)])
        [hidden] = self._hidden(embedded[None], types, types >= 0)
        scores = {head: hidden @ w.T + b for head, (w, b) in self._weights.items()}
        scores = {head: s - np.logaddexp.reduce(s, -1, keepdims=True) for head, s in scores.items()}
        return scores, hidden[-1 - len(message) : -1].mean(0)


def _read(folder: Path) -> tuple[dict[str, list[str]], dict[str, Floats], list[str]]:
    """(the labels of each head, the tensors, the characters) of a folder. Raises HostError where a file is not there or
    not the one that was written."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        for name, digest in config["sha256"].items():
            if (found := sha256((folder / name).read_bytes()).hexdigest()) != digest:
                raise ValueError(f"{name} has sha256 {found}, which should be {digest}")
        tensors = {name: array.astype(np.float32) for name, array in load_file(folder / "model.safetensors").items()}
        return config["heads"], tensors, (folder / "characters.txt").read_text("utf-8").split()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise HostError(f"{folder} does not load as a reader: {error}; install memos again") from error


@lru_cache(maxsize=2)
def _network(folder: Path, written: int, in_torch: bool) -> _Network:
    """The one of these files, which kernels of one process share."""
    return _Network(folder, in_torch)


def _written(folder: Path) -> int:
    try:
        return (folder / "config.json").stat().st_mtime_ns
    except OSError:
        return 0


def bio(labels: Sequence[str]) -> list[str]:
    """O, and of each label its begin and its inside."""
    return ["O", *(f"{place}-{label}" for label in labels for place in "BI")]


def _spans(scores: Floats, labels: Sequence[str], tokens: Sequence[Token], skipped: int) -> list[LabelledSpan]:
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


def _likeliest(scores: Floats, labels: Sequence[str], within: Sequence[bool]) -> list[int]:
    """Viterbi: the path of the highest sum. scores: [tokens, labels]. within: of each token, whether it goes on with a
    word; no run begins or ends there."""
    allowed = [_allowed(tuple(labels), on) for on in (False, True)]
    best, back = scores[0] + allowed[False][0], []
    for row, on in zip(scores[1:], within[1:], strict=True):
        paths = best[:, None] + allowed[on]
        best = paths.max(0) + row
        back.append(paths.argmax(0))
    path = [int(best.argmax())]
    for origin in reversed(back):
        path.append(int(origin[path[-1]]))
    return path[::-1]


@lru_cache(maxsize=8)
def _allowed(labels: tuple[str, ...], within: bool) -> Floats:
    """[before, after] 0 or -inf; O, with which a text begins, is the first."""
    out = np.zeros((len(labels), len(labels)), np.float32)
    for n, after in enumerate(labels):
        for m, before in enumerate(labels):
            goes_on = not after.startswith("B-") and before[1:] == after[1:]  # both O, or of the same run
            if not goes_on and (within or after.startswith("I-")):
                out[m, n] = -math.inf
    return out
