"""KV caches as frozen values: encoded once, used often, never changed; knows tensors, no cubes.

Shapes: keys and values are [1, kv_heads, tokens, head_dim] a layer, as transformers caches them
(keys rotated to the positions they were encoded at, 0 … tokens-1). A layer of a state space model or a hybrid has
states too, of any shape, which stand for all tokens at once. Rows that stand for others have weights, and each layer
a number of its own of them. What is made for composing has, beside keys and values, how they drift.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import takewhile
from typing import Any, overload

import torch
import xxhash
from threadpoolctl import threadpool_limits
from transformers import DynamicCache, cache_utils
from transformers.cache_utils import Cache, DynamicLayer

from memos.errors import NoRoom, Unsupported
from memos.infrastructure.host.forward import CausalLM, Inputs, forward, positions_of
from memos.infrastructure.host.threads import begun


@contextmanager
def room_for(what: str) -> Iterator[None]:
    """Raises NoRoom where what is done within it finds that a device, or the machine, has no memory left."""
    try:
        yield
    # on a CPU torch raises a plain RuntimeError where memory runs out, as it does for much else
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and "allocate memory" not in str(error):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise NoRoom(
            f"there is no memory left for {what} ({reason}); "
            f"set scheduler.device_kv_bytes or host_kv_bytes lower, or ask via plaintext"
        ) from error


# Keys and values; then a convolution's state and a recurrence's, as often as there are; or the logarithms of the
# weights of rows that stand for others, [1, kv_heads, rows, 1] in fp32, which are added to what a query finds of them;
# or what keys and values gain far behind other memories, [1, kv_heads, tokens, head_dim] each, in any dtype.
Layer = tuple[torch.Tensor, ...]
WEIGHTED_ATTENTION = "sdpa"  # the implementation that heeds weights: see `with_weights` and model/load.py
_NONE = torch.empty(1, 0, 0, 0)  # in place of what a layer does not have
# Two, so that one layer is checked or unpacked while the next is read. A layer may be made of others that are on their
# way, but of earlier ones only, so that one of the two can always go on.
_bringers = ThreadPoolExecutor(2, "memos-kv", threadpool_limits, (1, "openmp"))


class Arriving(Sequence[Layer]):
    """Layers that are brought in the background, first to last; to read one waits for it.

    So a forward over them begins with the first layer, while the later ones are still on their way. Whatever
    `bring` raises is raised where its layer is read.
    """

    def __init__(self, layers: int, bring: Callable[[int], Layer], device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._futures: list[Future[tuple[Layer, torch.cuda.Event | None]]] = [
            begun(_bringers, partial(self._brought, bring, n)) for n in range(layers)
        ]

    def _brought(self, bring: Callable[[int], Layer], n: int) -> tuple[Layer, torch.cuda.Event | None]:
        with room_for("a KV cache"):
            if self._stream is None:
                return bring(n), None
            with torch.cuda.stream(self._stream):  # beside the forward's own stream, so that the two overlap
                layer, arrived = bring(n), torch.cuda.Event()
                arrived.record(self._stream)
            return layer, arrived

    @property
    def failed(self) -> bool:
        """Whether a layer is known not to have come. Waits for the first, as whoever goes on with them does."""
        first, *later = self._futures
        return first.exception() is not None or any(f.done() and f.exception() is not None for f in later)

    def __len__(self) -> int:
        return len(self._futures)

    @overload
    def __getitem__(self, n: int) -> Layer: ...
    @overload
    def __getitem__(self, n: slice) -> list[Layer]: ...
    def __getitem__(self, n: int | slice) -> Layer | list[Layer]:
        if isinstance(n, slice):
            return [self[i] for i in range(*n.indices(len(self)))]
        layer, arrived = self._futures[n].result()
        if arrived is not None:
            here = torch.cuda.current_stream()
            here.wait_event(arrived)
            for tensor in layer:
                tensor.record_stream(here)  # its memory is not given to another while this stream reads it
        return layer

    def __iter__(self) -> Iterator[Layer]:
        return (self[n] for n in range(len(self)))


@dataclass(frozen=True)
class Activation:
    """The KV cache of one prefix. Frozen: requests fork it and append to their fork.

    under: names of the adapters that were active when it was made; under others it is wrong. trained: so many rows of
    keys and values, in the first layer, stand for all of the ids; 0: each token has its own. weighted: they have
    weights. states: there are some, so it is used whole. drifts: its layers tell how it drifts. pictures: names of
    those that were read among the ids, which have rows and no ids; what follows then stands at position `ends`, else at
    that of the number of ids.
    """

    ids: tuple[int, ...]
    layers: Sequence[Layer]
    under: tuple[str, ...] = ()
    trained: int = 0
    weighted: bool = False
    states: bool = False
    drifts: bool = False
    pictures: tuple[str, ...] = ()
    ends: int = 0

    @property
    def next_position(self) -> int:
        """Of what follows it."""
        return self.ends or len(self.ids)

    @property
    def rows(self) -> int:
        """Of keys and values."""
        return self.trained or len(self.ids)

    @cached_property  # one, by whose identity requests are known to share it
    def alone(self) -> Activation:
        """It as it is where no other memory stands before it: keys and values, without how they drift."""
        return replace(self, layers=self._each(lambda n: self.layers[n][:2]), drifts=False) if self.drifts else self

    @property
    def plain(self) -> bool:
        """Whether its keys and values are all that there is of it."""
        return not (self.states or self.drifts)

    @property
    def failed(self) -> bool:
        """Whether some of it is known not to have come: to read that raises."""
        return isinstance(self.layers, Arriving) and self.layers.failed

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for layer in self.layers for t in layer)

    def digest(self) -> str:
        """XXH3 (128 bit) over the ids and all keys and values: tells any accidental change, at the rate of memory."""
        digest = xxhash.xxh3_128(json.dumps(self.ids).encode())
        for layer in self.layers:
            for tensor in layer:
                digest.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
                digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def upto(self, tokens: int) -> Activation:
        """The prefix of so many tokens, as a view. What was trained, and a state, is whole or not at all."""

        def cut(n: int) -> Layer:
            keys, values = self.layers[n]
            return keys[..., :tokens, :], values[..., :tokens, :]

        if tokens == len(self.ids):
            return self
        assert not (self.trained or self.states)
        return replace(self, ids=self.ids[:tokens], layers=self._each(cut))

    def since(self, tokens: int) -> Activation:
        """What comes after so many tokens, as a view."""
        assert not (self.trained or self.states)
        layers = tuple((k[..., tokens:, :], v[..., tokens:, :]) for k, v in self.layers)
        return replace(self, ids=self.ids[tokens:], layers=layers)

    def _each(self, layer: Callable[[int], Layer]) -> Sequence[Layer]:
        """Layers made of these: when they arrive, where they are on their way."""
        if isinstance(self.layers, Arriving):
            return Arriving(len(self.layers), layer, self.layers.device)
        return tuple(map(layer, range(len(self.layers))))

    def on(self, device: str | torch.device) -> Activation:
        """The same tensors on another device, layer by layer in the background.

        They are page-locked where they leave a GPU, so that the way back does not wait for the processor.
        """
        target = torch.device(device)

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.is_cuda and target.type == "cpu":
                return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor)
            return tensor.to(target, non_blocking=True)

        if all(tensor.device.type == target.type for tensor in self.layers[0]):
            return self

        return replace(self, layers=Arriving(len(self.layers), lambda n: tuple(map(moved, self.layers[n])), target))

    def fork(self, texts: int = 1) -> DynamicCache:
        """A cache for a request, or for a batch of so many texts that all begin with this and not with a state; it
        shares keys and values, and appending concatenates into new ones."""
        if self.weighted or texts > 1:
            return layered(
                _Weighted(keys.expand(texts, -1, -1, -1), values.expand(texts, -1, -1, -1), *weights)
                for keys, values, *weights in self.layers
            )
        if self.states or not isinstance(self.layers, Arriving):
            return cache_of(self.layers)
        return layered(_Awaited(self.layers, n, self.rows) for n in range(len(self.layers)))


def shared_length(one: Sequence[object], other: Sequence[object]) -> int:
    """How many items two begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def join(pieces: Sequence[Activation]) -> Activation:
    """Several, each of which was read after those before it, as one; in the background."""
    if len(pieces) == 1:
        return pieces[0]

    def whole(n: int) -> Layer:
        keys, values = zip(*(piece.layers[n] for piece in pieces), strict=True)
        return torch.cat(keys, -2), torch.cat(values, -2)

    first = pieces[0]
    device = first.layers.device if isinstance(first.layers, Arriving) else first.layers[0][0].device
    ids = tuple(i for piece in pieces for i in piece.ids)
    return replace(first, ids=ids, layers=Arriving(len(first.layers), whole, device))


class _Awaited(DynamicLayer):
    """A cached layer that is on its way: who reads its keys or values waits for them, who asks its length does not."""

    keys = property(lambda self: self._read()[0], lambda self, new: self._tensors.__setitem__(0, new))
    values = property(lambda self: self._read()[1], lambda self, new: self._tensors.__setitem__(1, new))

    def __init__(self, layers: Arriving, n: int, tokens: int) -> None:
        self._arriving, self._n, self._tokens = layers, n, tokens
        self._tensors: list[torch.Tensor | None] = [None, None]  # keys and values, once they are there
        super().__init__()
        self.is_initialized = True

    def _read(self) -> list[torch.Tensor | None]:
        if self._tensors[0] is None:
            self._tensors = list(self._arriving[self._n])
        return self._tensors

    def get_seq_length(self) -> int:
        return self._tokens if self._tensors[0] is None else super().get_seq_length()


class _Weighted(DynamicLayer):
    """A cached layer whose first rows may have weights. It marks its keys with them, for attention to find: between
    the two, transformers hands on keys, values and a mask, which all layers and heads share."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, weights: torch.Tensor | None = None) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values, self._weights = keys, values, weights

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = super().update(key_states, value_states, *args, **kwargs)
        if self._weights is not None:
            keys.memos_weights = self._weights  # type: ignore[attr-defined]
        return keys, values


def with_weights(key: torch.Tensor, mask: torch.Tensor | None, query: torch.Tensor) -> torch.Tensor | None:
    """The mask of attention [B, H, T, K], additive, for keys that are marked with weights; the given one for others.

    key [B, G, K, D], query [B, H, T, D]. mask: [B or 1, 1, T, any], of which the last K - rows are of what stands
    behind the rows that have weights; None: all that is new is read in order.
    """
    weights: torch.Tensor | None = getattr(key, "memos_weights", None)
    if weights is None:
        return mask
    batch, heads, tokens, _ = query.shape
    new = key.shape[-2] - weights.shape[-2]
    if mask is None:
        seen = torch.ones(tokens, new, dtype=torch.bool, device=key.device).tril(new - tokens)[None, None]
    else:
        seen = mask[..., mask.shape[-1] - new :]
    if seen.dtype == torch.bool:
        seen = torch.zeros_like(seen, dtype=query.dtype).masked_fill_(~seen, torch.finfo(query.dtype).min)
    each = weights[..., 0].to(query.dtype).repeat_interleave(heads // key.shape[1], 1)[:, :, None]  # [1, H, 1, rows]
    return torch.cat([each.expand(batch, -1, tokens, -1), seen.expand(batch, heads, -1, -1)], -1)


def layered(layers: Iterable[DynamicLayer]) -> DynamicCache:
    """A transformers cache of these layers."""
    cache = DynamicCache()
    cache.layers.extend(layers)
    return cache


def cache_of(layers: Sequence[Layer]) -> DynamicCache:
    """A transformers cache over the given keys and values, without a copy; and over copies of states, which a forward
    changes in place."""
    cache = DynamicCache()
    for keys, values, *states in layers:
        has_keys = keys.shape[-2] > 0
        layer = _layer_of(_KINDS[bool(states), has_keys], len(states) // 2)
        if has_keys:
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values
        for n, state in enumerate(states):
            if state.numel():
                (layer.update_recurrent_state if n % 2 else layer.update_conv_state)(state, n // 2)
        cache.layers.append(layer)
    return cache


def cached_layers(cache: Cache | None) -> tuple[Layer, ...]:
    """Keys, values and states of each layer of a cache, without a copy."""
    out = list[Layer]()
    for layer in getattr(cache, "layers", ()):
        conv, recurrent = (getattr(layer, f"{kind}_states", {}) for kind in ("conv", "recurrent"))
        kv = (getattr(layer, name, None) for name in ("keys", "values"))
        tensors = (*kv, *(states[n] for n in conv for states in (conv, recurrent)))
        out.append(tuple(_NONE if tensor is None else tensor for tensor in tensors))
    return tuple(out)


# Of transformers' cache, by whether a layer has states, and keys. Not every version of it has all of them.
_KINDS = {
    (False, True): "DynamicLayer",
    (False, False): "DummyLayer",
    (True, False): "LinearAttentionLayer",
    (True, True): "LinearAttentionAndFullAttentionLayer",
}


def _layer_of(kind: str, states: int) -> Any:
    return getattr(cache_utils, kind)(**({"number_of_states": states} if states else {}))


def fresh_cache(model: CausalLM) -> DynamicCache:
    """An empty cache that keeps keys and values of every token, and states.

    Layers with a sliding window would throw away what has left it; kept whole, the model's own mask hides it, and
    a prefix of the cache stays exact. The last layers may keep nothing, and read what earlier ones keep.
    Raises Unsupported, naming the layer, where a layer keeps anything else.
    """
    cache = DynamicCache(config=model.config)
    while cache.layers and type(cache.layers[-1]).__name__ == "DummyLayer":  # since 5.23; before, there is no layer
        cache.layers.pop()
    for n, layer in enumerate(cache.layers):
        kind = type(layer).__name__
        whole = kind.replace("SlidingWindowAttention", "FullAttention").replace("SlidingWindow", "")
        if whole not in _KINDS.values():
            raise Unsupported(
                f"{model.config.model_type} keeps layer {n} as {kind}, not as keys and values of every token, or a "
                f"state; its memories can be plaintext or parametric"
            )
        cache.layers[n] = _layer_of(whole, getattr(layer, "number_of_states", 0))
    return cache if any(hasattr(layer, "conv_states") for layer in cache.layers) else DynamicCache()


def read_after(model: CausalLM, cache: Cache, rows: int, ids: Sequence[int], start: int) -> tuple[Layer, ...]:
    """What a cache of so many rows is once the ids, the first at position `start`, are read after it. Raises
    Unsupported."""
    row = torch.tensor([list(ids)], device=model.device)
    inputs: Inputs = {
        "input_ids": row,
        "position_ids": positions_of(model, torch.arange(start, start + len(ids)))[None],
        "attention_mask": row.new_ones(1, rows + len(ids)),  # without one, it may be read as several packed texts
        "past_key_values": cache,
    }
    layers = cached_layers(getattr(forward(model, inputs, 1), "past_key_values", None))
    require_finite(model, layers)
    return layers


@torch.inference_mode()
def encode(model: CausalLM, ids: Sequence[int], start: int = 0) -> Activation:
    """Run the ids once, the first at position `start`, and keep their keys and values. Raises Unsupported."""
    layers = read_after(model, fresh_cache(model), 0, ids, start)
    if not layers:
        raise Unsupported(
            f"{model.config.model_type} returned no KV cache; its memories can be plaintext or parametric"
        )
    states = any(len(layer) > 2 for layer in layers)
    for n, (keys, *_) in enumerate(layers):
        if keys.shape[-2] != len(ids) and not (states and keys is _NONE):
            raise Unsupported(
                f"{model.config.model_type} keeps no keys and values of every token in layer {n}; its memories can be "
                f"plaintext or parametric"
            )
    return Activation(tuple(ids), layers, states=states)


def require_finite(model: CausalLM, layers: Sequence[Layer]) -> None:
    """Raises Unsupported where keys or values are infinite or no numbers."""
    if not all(torch.isfinite(t).all() for layer in layers for t in layer):
        raise Unsupported(
            f"{model.config.model_type} produced keys or values that are not finite in {model.dtype}; try another dtype"
        )
