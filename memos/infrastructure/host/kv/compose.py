"""Moves KV caches along a text and composes several into one, at the fidelity level asked for; knows no cubes.

A model with relative positions computes the same keys wherever a text stands, but for a rotation of them (Su et al.,
2104.09864). How cached tensors depend on position is found by moving a text, not by the name of the architecture: the
same random tokens are run at several positions, and each cached tensor is explained as unmoved or as turned, by the
model's own frequencies or else by those that the tensor itself tells. What cannot be explained is refused.

Every activation was encoded after the same head (the tokens before the first memory). The first is used as it
is; of each later one the head is left out, and the rest is moved to where it stands now. What is then missing
is attention between the memories. It is brought back where it matters by computing some rows anew, in the same
forward that reads the question.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, product

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicLayer

from memos.errors import Unsupported
from memos.infrastructure.host.forward import CausalLM, Inputs, positions_of
from memos.infrastructure.host.kv.cache import Activation, Arriving, Layer, layered, read_after, shared_length

_HALF_DRIFT = 30  # tokens of others behind which half of a drift has come: measured, see record 0105


@dataclass(frozen=True)
class Rotation:
    """The rotation of one cached tensor: by `position * frequencies` in the dimensions from `start` on.

    frequencies: [n] in fp32, radians a token; 2n dimensions turn. interleaved: pairs are (2i, 2i+1), else (i, n+i).
    """

    frequencies: torch.Tensor
    start: int
    interleaved: bool

    def pairs(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What turns together, in fp32: [..., n] each."""
        part = tensor[..., self.start : self.start + 2 * len(self.frequencies)].float()
        a, b = (part[..., 0::2], part[..., 1::2]) if self.interleaved else part.chunk(2, -1)
        return a, b

    def by(self, tokens: int, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor` [..., head_dim] moved by so many tokens: turned in fp32 and cast once."""
        angle, (a, b) = tokens * self.frequencies.to(tensor.device), self.pairs(tensor)
        cos, sin = angle.cos(), angle.sin()
        c, d = torch.addcmul(a * cos, b, sin, value=-1), torch.addcmul(b * cos, a, sin)
        turned = torch.stack([c, d], -1).flatten(-2) if self.interleaved else torch.cat([c, d], -1)
        before, after = tensor[..., : self.start], tensor[..., self.start + turned.shape[-1] :]
        return torch.cat([before, turned.to(tensor.dtype), after], -1)


@dataclass(frozen=True)
class Motion:
    """What moving a text does to its cached tensors: a pair for each layer, None where nothing changes."""

    layers: tuple[tuple[Rotation | None, Rotation | None], ...]

    def by(self, tokens: int, n: int, layer: Layer) -> Layer:
        """The tensors of layer n as if their text stood `tokens` later; always made from what was first encoded."""
        (first, second), (keys, values, *weights) = self.layers[n], layer
        return _moved(first, tokens, keys), _moved(second, tokens, values), *weights


# The layers of one text where it begins at that position.
Encoded = Callable[[int], Sequence[Layer]]


def find_motion(model: PreTrainedModel, encoded: Encoded, tokens: int, farthest: int) -> Motion:
    """The motion that turns the layers of a text into those of the same text `tokens` later: by the model's own
    frequencies, or by those that moves of up to `farthest` tokens tell.

    Raises Unsupported, naming the first layer whose tensors no rotation explains.
    """
    known = list(_frequencies(model))
    layers = []
    for n, (before, after) in enumerate(zip(encoded(0), encoded(tokens), strict=True)):
        turns = list[Rotation | None]()
        for which, kind in enumerate(("keys", "values")):
            every = chain((None,), _candidates(known, before[which].shape[-1]), _told(encoded, n, which, farthest))
            found = [[t] for t in every if _close(_moved(t, tokens, before[which]), after[which])][:1]
            if not found:
                raise Unsupported(
                    f"the {kind} of layer {n} change with position in a way that is no rotation (learned positions?), "
                    f"so KV encoded at one place is wrong at another"
                )
            turns += found[0]
        layers.append((turns[0], turns[1]))
    return Motion(tuple(layers))


def _told(encoded: Encoded, layer: int, which: int, farthest: int) -> Iterator[Rotation]:
    """Rotations that one tensor of a layer makes, told from ever longer moves: each tells the frequencies more exactly,
    where what is known of them leaves no doubt how often they went round."""
    before, far = (encoded(at)[layer][which] for at in (0, farthest))
    changed = ((far - before).abs().amax((0, 1, 2)) > 1e-4 * far.abs().max()).nonzero().flatten().tolist()
    if not changed:
        return
    first, size = changed[0], before.shape[-1]
    regions = {(first, (changed[-1] - first) // 2 + 1), (0, size // 2)}  # where they begin, and how many pairs
    for (start, pairs), interleaved in product(sorted(regions), (False, True)):
        turn, moves = Rotation(torch.zeros(pairs), start, interleaved), 1
        if start + 2 * pairs > size:
            continue
        while True:
            (a, b), (c, d) = turn.pairs(before), turn.pairs(encoded(moves)[layer][which])
            angles = torch.atan2((a * d - b * c).sum((0, 1, 2)), (a * c + b * d).sum((0, 1, 2))).double().cpu()
            known = turn.frequencies.double()
            rest = torch.remainder(angles - moves * known + math.pi, 2 * math.pi) - math.pi
            turn = replace(turn, frequencies=(known + rest / moves).float())
            if moves == farthest:
                break
            moves = min(5 * moves, farthest)
        if _close(turn.by(farthest, before), far):
            yield turn


def _frequencies(model: PreTrainedModel) -> Iterator[torch.Tensor]:
    """Every set of inverse frequencies the model holds (one for each layer type where they differ)."""
    seen: list[torch.Tensor] = []
    for name, buffer in model.named_buffers():
        if name.endswith("inv_freq") and buffer.ndim == 1:
            buffer = buffer.detach().float().clone()  # longrope writes its own anew, in place
            if not any(buffer.shape == s.shape and torch.equal(buffer, s) for s in seen):
                seen.append(buffer)
                yield buffer


def _candidates(known: Sequence[torch.Tensor], head_dim: int) -> Iterator[Rotation]:
    for frequencies, interleaved in product(known, (False, True)):
        if (rest := head_dim - 2 * len(frequencies)) >= 0:
            yield from (Rotation(frequencies, start, interleaved) for start in sorted({0, rest}))


def _moved(turn: Rotation | None, tokens: int, tensor: torch.Tensor) -> torch.Tensor:
    return turn.by(tokens, tensor) if turn and tokens else tensor


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal up to rounding in their dtype, measured against the largest value."""
    rounding = 1e-4 if b.dtype == torch.float32 else 3e-2
    return bool((a.float() - b.float()).abs().max() <= rounding * b.float().abs().max().clamp_min(1e-6))


Path = tuple[tuple[int, ...], ...]  # the ids of each piece


def starts(pieces: Sequence[Activation], head: int) -> list[int]:
    """Where each piece's own tokens begin in the composition of all."""
    return list(accumulate((len(piece.ids) - head for piece in pieces), initial=head))[:-1]


def compose(pieces: Sequence[Activation], head: int, motion: Motion) -> Activation:
    """Level 1: encoded apart, moved into place. head: tokens that all pieces begin with. Where rows of one piece have
    weights, those of all have."""
    first, *later = pieces
    if not later:
        return first.alone
    moves = [start - head for start in starts(pieces, head)[1:]]
    weighted = any(piece.weighted for piece in pieces)

    def whole(n: int) -> Layer:
        behind = (motion.by(move, n, _behind(move, head, p.layers[n])) for p, move in zip(later, moves, strict=True))
        parts = [first.layers[n][:2] if first.drifts else first.layers[n], *behind]
        return tuple(torch.cat(same, -2) for same in zip(*(map(_weighed, parts) if weighted else parts), strict=True))

    count, device = len(first.layers), first.layers[0][0].device
    # on a CPU by threads of one core each: many requests at once would share the cores at every step; on a GPU in order
    layers = tuple(Arriving(count, whole, device) if device.type == "cpu" else map(whole, range(count)))
    ids = first.ids + tuple(i for piece in later for i in piece.ids[head:])
    return Activation(ids, layers, trained=layers[0][0].shape[-2] if weighted else 0, weighted=weighted)


def _weighed(layer: Layer) -> Layer:
    """With the weight of each row: those that have none count once."""
    keys, values, *weights = layer
    return keys, values, *(weights or [keys.new_zeros(*keys.shape[:-1], 1, dtype=torch.float32)])


def _behind(tokens: int, head: int, layer: Layer) -> Layer:
    """Keys, values and weights after the head, as they are on average behind so many tokens of other memories."""
    keys, values, *more = (tensor[..., head:, :] for tensor in layer)
    if len(more) < 2:  # no drift
        return keys, values, *more
    share = tokens / (tokens + _HALF_DRIFT)
    pairs = zip((keys, values), more, strict=True)
    return tuple(torch.add(t, in_dtype(gained, t.dtype), alpha=share) for t, gained in pairs)


def in_dtype(drift: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A drift, which is finite. torch casts fp8 number by number on a CPU: as fp16 its bits say 1/256 of it."""
    if drift.dtype != torch.float8_e4m3fn:
        return drift.to(dtype)
    half = drift.view(torch.int8).short().bitwise_left_shift_(7).bitwise_and_(-16385).view(torch.float16)
    return half.to(dtype).mul_(256)


def first_rows(pieces: Sequence[Activation], head: int, first: int) -> tuple[int, ...]:
    """Level 2: the first tokens of each later piece, as rows of the composition (EPIC, 2410.15332)."""
    spans = zip(starts(pieces, head)[1:], pieces[1:], strict=True)
    return tuple(row for start, piece in spans for row in range(start, start + min(first, len(piece.ids) - head)))


@torch.inference_mode()
def extend(model: PreTrainedModel, before: Activation, ids: Sequence[int]) -> Activation:
    """Level 0: the exact prefix of what `before` holds and then `ids`."""
    layers = read_after(model, before.fork(), before.rows, ids, len(before.ids))
    return Activation((*before.ids, *ids), layers, states=before.states)


@torch.inference_mode()
def attended_rows(
    reader: PreTrainedModel, past: Activation, ids: Sequence[int], within: Sequence[int], n: int
) -> list[int]:
    """Level 3: the `n` rows of `past`, out of `within`, that the tokens of the question attend to most.

    reader: a twin of the model with eager attention, which alone tells its attention. Summed over its layers,
    heads and tokens.
    """
    start, device = len(past.ids), reader.device
    out = reader(
        input_ids=torch.tensor([list(ids)], device=device),
        position_ids=positions_of(reader, torch.arange(start, start + len(ids)))[None],
        attention_mask=torch.ones(1, start + len(ids), dtype=torch.long, device=device),
        past_key_values=past.fork(),
        use_cache=True,
        output_attentions=True,
        logits_to_keep=1,
    )
    each = (layer[0, ..., :start].float().sum((0, 1)) for layer in out.attentions)
    weight = sum(each, torch.zeros(start, device=device))
    rows = torch.tensor(list(within), device=device)
    return sorted(rows[weight[rows].topk(min(n, len(rows))).indices].tolist())


class PrefixTree:
    """Exact prefixes of several pieces, kept for the next request that begins with some of the same pieces.

    A path is the ids of each piece; what is stored of a path serves every beginning of it, as a view. The least
    recently used leave when there is more than `limit` bytes.
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        # by path: the KV of the first piece that it was grown from, tokens at the end of each piece, KV of the whole
        self._stored: OrderedDict[Path, tuple[Activation, tuple[int, ...], Activation]] = OrderedDict()

    def longest(self, path: Path, first: Activation) -> tuple[int, Activation | None]:
        """How many pieces of the path are there already, and their KV, which was grown from just this `first`."""
        # the same text from a file in another codec is other KV
        grown = [other for other, (grown_from, _, _) in self._stored.items() if grown_from is first]
        found = max(grown, key=lambda other: shared_length(path, other), default=())
        if not (best := shared_length(path, found)):
            return 0, None
        self._stored.move_to_end(found)
        _, lengths, activation = self._stored[found]
        return best, activation.upto(lengths[best - 1])

    def keep(self, path: Path, first: Activation, lengths: Sequence[int], activation: Activation) -> None:
        """lengths: tokens of the prefix at the end of each piece."""
        for other in [o for o in self._stored if path[: len(o)] == o]:
            del self._stored[other]
        self._stored[path] = first, tuple(lengths), activation
        while sum(a.bytes for _, _, a in self._stored.values()) > self.limit and self._stored:
            self._stored.popitem(last=False)

    def clear(self) -> None:
        self._stored.clear()


class _Renewed(DynamicLayer):
    """A cached layer of which the first update writes some rows anew and appends the rest."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, rows: torch.Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values, self._rows = keys, values, rows

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if n := len(self._rows):
            assert self.keys is not None and self.values is not None
            self.keys = self.keys.index_copy(-2, self._rows, key_states[..., :n, :])
            self.values = self.values.index_copy(-2, self._rows, value_states[..., :n, :])
            key_states, value_states = key_states[..., n:, :], value_states[..., n:, :]
            self._rows = self._rows[:0]
        return super().update(key_states, value_states, *args, **kwargs)


def renewal_inputs(model: CausalLM, past: Activation, rows: Sequence[int], ids: Sequence[int]) -> Inputs:
    """Arguments of one forward that computes `rows` of `past` anew and then reads `ids` after it.

    The rows see all before them, new rows among it, so with every row the result is the full prefill's.
    """
    device, n = model.device, len(past.ids)
    renewed = torch.tensor(list(rows), dtype=torch.long, device=device)
    positions = torch.cat([renewed, torch.arange(n, n + len(ids), device=device)])
    every = torch.arange(n + len(ids), device=device)
    return {
        "input_ids": torch.tensor([[*(past.ids[r] for r in rows), *ids]], device=device),
        "position_ids": positions_of(model, positions)[None],
        "attention_mask": mask_of(model, every[None] <= positions[:, None], positions, every),
        "past_key_values": layered(_Renewed(keys, values, renewed) for keys, values in past.layers),
    }


def mask_of(
    model: CausalLM, seen: torch.Tensor, queries: torch.Tensor, keys: torch.Tensor
) -> torch.Tensor | dict[str, torch.Tensor]:
    """A 4-D mask for `model`: seen [T, K] is True where a query may look; sliding windows are cut from it.

    queries [T], keys [K]: positions. Where layers differ in their window, a mask for each layer type.
    """
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    types = set(getattr(config, "layer_types", None) or ())
    full = _additive(seen, model.dtype)
    if not window or not (types & {"sliding_attention"} or not types):
        return full
    sliding = _additive(seen & (keys[None] > queries[:, None] - window), model.dtype)
    if types <= {"sliding_attention"}:
        return sliding
    return {"full_attention": full, "sliding_attention": sliding}


def _additive(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    hidden = ~seen[None, None]
    return torch.zeros(hidden.shape, dtype=dtype, device=seen.device).masked_fill(hidden, torch.finfo(dtype).min)
