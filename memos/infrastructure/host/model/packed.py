"""One forward over the new tokens of many texts, [1, N], each of which attends to keys and values of its own.

Linear layers see all tokens as one text's, so nothing is padded. Rows lie in pages (PagedAttention, 2309.06180): texts
that read one token attend together, page by page; those that read more go one by one. Keys and values that several
texts begin with lie in memory once, and are read once for all of them. Parts are merged by the logarithms of the sums
(cascade attention: Hydragen, 2402.05099). Knows tensors, no requests.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, chain, groupby
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from memos.infrastructure.host.forward import CausalLM, positions_of
from memos.infrastructure.host.kv.cache import Activation, Arriving, Layer

_PAGE = 32  # rows: fewer hold less that is empty, more are read faster
_COPIED = 1 << 16  # numbers of a text's first keys in a layer up to which they are copied: merging takes as long
_HIDDEN = -1e30  # finite, so that a page of which nothing is seen has a sum
_Mask = Tensor | None
_now = threading.local()  # the packed forward of this thread


class PackedText:
    """What one text has been read of: rows that it begins with and does not change, then rows of its own."""

    def __init__(self, past: Activation | None = None, private: bool = False) -> None:
        """private: nobody else has what it begins with."""
        self.shared: Sequence[Layer] = past.layers if past else ()
        self.private = private
        self.length = past.next_position if past else 0  # tokens read: the next one's position
        self.pages = list[int]()  # where its own rows lie
        self.rows = self.copied = 0  # own ones; the first of them, which repeat what it begins with
        self.failed: Exception | None = None  # why the rows it begins with did not come

    @property
    def beginning(self) -> tuple[int, int] | None:
        """The same for texts that begin with the same rows in memory; None for one that has all of its own."""
        if not self.shared:
            return None
        if isinstance(self.shared, Arriving):
            return id(self.shared), 0
        keys = self.shared[0][0]
        return keys.data_ptr(), keys.shape[-2]

    @property
    def moves(self) -> bool:
        """Whether what it begins with is there, of which nothing was read yet, and is read sooner as its own."""
        if self.rows or not self.shared or isinstance(self.shared, Arriving) or len(self.shared[0]) > 2:
            return False
        return self.private or self.shared[0][0].numel() <= _COPIED

    def brought(self, layer: int) -> Layer | None:
        """Keys, values and any weights of the layer that it begins with, once they are there; None where there are
        none, or it has them as its own."""
        if not self.shared or self.failed or self.copied:
            return None
        try:
            return self.shared[layer]
        except Exception as error:  # of a file, for instance: this text's answer fails, not the others
            self.failed = error
            return None

    def read(self, tokens: int) -> None:
        """So many more tokens have gone through the model."""
        self.rows += tokens
        self.length += tokens
        if isinstance(self.shared, Arriving) and not self.failed:
            self.shared = tuple(self.shared)  # all are there


class Pages:
    """Own rows of the texts that one model reads, a page after the other; those in use are the first ones."""

    def __init__(self) -> None:
        self.layers: list[Tensor] = []  # keys and values, [2, G, room, _PAGE, D] each
        self.owners: list[PackedText] = []  # of each page in use
        self.room = 0  # pages

    def give(self, text: PackedText, rows: int) -> None:
        """Pages of a text for so many rows of its own. Room grows by copying everything, so for some more at once."""
        more = max(0, -(-rows // _PAGE) - len(text.pages))
        text.pages += range(len(self.owners), len(self.owners) + more)
        self.owners += [text] * more
        if len(self.owners) > self.room:
            self.room = len(self.owners) + max(len(self.owners) // 16, len(set(self.owners)) // 2)

    def drop(self, texts: Sequence[PackedText]) -> None:
        """Of texts that nobody reads any more."""
        for text in texts:
            text.rows = 0
        self.trim(texts)

    def trim(self, texts: Sequence[PackedText]) -> None:
        """Texts keep pages for their rows alone; the last ones in use move to where the others were. Where layers had
        no memory to grow to them, they need not any more."""
        gone = set[int]()
        for text in texts:
            kept = -(-text.rows // _PAGE)
            gone.update(text.pages[kept:])
            del text.pages[kept:]
        left = len(self.owners) - len(gone)
        free = sorted(page for page in gone if page < left)
        moved = [page for page in range(left, len(self.owners)) if page not in gone]
        for page, to in zip(moved, free, strict=True):
            owner = self.owners[to] = self.owners[page]
            owner.pages[owner.pages.index(page)] = to
        del self.owners[left:]
        for layer in self.layers if moved else ():
            there = bisect_left(moved, layer.shape[2])  # beyond, nothing was written yet
            layer[:, :, free[:there]] = layer[:, :, moved[:there]]
        self.room = max(left, min((layer.shape[2] for layer in self.layers), default=0))

    def where(self, new: Sequence[tuple[PackedText, int]], device: torch.device) -> Tensor:
        """Places of the next rows of texts, so many each, counted through all pages."""
        at = list[int]()
        for text, count in new:
            at += [text.pages[row // _PAGE] * _PAGE + row % _PAGE for row in range(text.rows, text.rows + count)]
        return torch.tensor(at, device=device)

    def put(self, layer: int, at: Tensor, new: Tensor) -> Tensor:
        """Keys and values, [2, G, N, D], into places; all of the layer then."""
        if layer == len(self.layers):
            self.layers.append(new.new_empty(2, new.shape[1], 0, _PAGE, new.shape[3]))
        held = self.layers[layer]
        if held.shape[2] < self.room:
            old, held = held, held.new_empty(*held.shape[:2], self.room, *held.shape[3:])
            held[:, :, : old.shape[2]] = old
            held[:, :, old.shape[2] :] = 0  # what no query sees must still be a number
            self.layers[layer] = held
        held.flatten(2, 3).index_copy_(2, at, new)
        return held

    def rows(self, layer: int, text: PackedText, count: int) -> Tensor:
        """The first of a text's own keys and values: [2, 1, G, count, D]"""
        held, (first, *_) = self.layers[layer], text.pages
        beside = text.pages == list(range(first, first + len(text.pages)))  # then nothing is copied
        some = held[:, :, first : first + len(text.pages)] if beside else held[:, :, text.pages]
        return some.flatten(2, 3)[:, None, :, :count]

    def whole(self, text: PackedText) -> tuple[Layer, ...]:
        """All rows of a text, in new tensors [1, G, rows, D]."""
        own = [self.rows(n, text, text.rows)[..., text.copied :, :].unbind() for n in range(len(self.layers))]
        shared = text.shared or [tuple(t[..., :0, :] for t in layer) for layer in own]
        return tuple(
            tuple(torch.cat(both, -2) for both in zip(before, after, strict=True))
            for before, after in zip(shared, own, strict=True)
        )

    def move_beginning(self, text: PackedText) -> None:
        """What a text begins with is its own from now on. While others may begin so, it is kept for them, too."""
        keys = text.shared[0][0]
        at = self.where([(text, keys.shape[-2])], keys.device)
        for n, layer in enumerate(text.shared):
            self.put(n, at, torch.cat(layer))
        text.rows = text.copied = keys.shape[-2]
        if text.private:
            text.shared, text.copied = (), 0


class Packed(Cache):
    """The texts of one forward, as the cache that transformers hands through the layers."""

    def __init__(self, pages: Pages, texts: Sequence[PackedText], tokens: Sequence[int], device: torch.device) -> None:
        """tokens: how many new ones each text has, in the order in which they lie."""
        super().__init__(layers=[])
        self._pages = pages
        # texts side by side that begin with the same rows
        groups = [list(some) for _, some in groupby(texts, key=lambda text: text.beginning or id(text))]
        alone = [some[0] for some in groups if len(some) == 1 and some[0].moves]
        for text, n in zip(texts, tokens, strict=True):  # first, so that what is held grows once
            pages.give(text, n + (text.shared[0][0].shape[-2] if text in alone else text.rows))
        for text in alone:
            pages.move_beginning(text)
        each = [(text, slice(end - n, end)) for text, n, end in zip(texts, tokens, accumulate(tokens), strict=True)]
        alike = [list(some) for _, some in groupby(each, key=lambda pair: (pair[0].beginning, pair[0].copied))]
        self._begun = [some for some in alike if some[0][0].shared and not some[0][0].copied]
        over = [n for _, span in chain(*self._begun) for n in range(span.start, span.stop)]
        # tokens of texts that begin with something; if they lie side by side, nothing is copied
        beside = slice(over[0], over[-1] + 1) if over and over[-1] - over[0] < len(over) else None
        self._over = beside or torch.tensor(over, dtype=torch.long, device=device)
        self._at = pages.where(list(zip(texts, tokens, strict=True)), device)
        ones = [(text, span.start) for text, span in each if span.stop - span.start == 1]
        ones = ones if len(ones) > 1 else []  # one alone is read sooner as one piece
        self._apart = [(text, span) for text, span in each if not ones or span.stop - span.start > 1]
        self._together = _Together(pages, [text for text, _ in ones], device) if ones else None
        self._ones = torch.tensor([start for _, start in ones], device=device)
        self._seen = cache(_seen)  # the same in each layer

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return key_states, value_states  # `attend` puts them where they belong

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None) -> Tensor:
        """query [1, H, N, D], key and value [1, G, N, D] -> [1, N, H, D]. window: tokens that each looks back."""
        asks = query.unflatten(1, (key.shape[1], -1))  # [1, G, share, N, D]: heads that share keys are side by side
        new = torch.cat((key, value))
        held = self._pages.put(layer, self._at, new)
        if self._together and not self._apart:
            out, sums = self._together.attend(held, asks, scale, window)
        else:
            out, sums = torch.empty_like(asks), asks.new_empty(asks.shape[:-1], dtype=torch.float32)
        if self._together and self._apart:
            some, ones = asks[..., self._ones, :], self._ones
            out[..., ones, :], sums[..., ones] = self._together.attend(held, some, scale, window)
        for text, span in self._apart:
            ask, count = asks[..., span, :], text.rows + span.stop - span.start
            own = self._pages.rows(layer, text, count) if text.rows else new[:, None, :, span]
            out[..., span, :], sums[..., span] = self._causal(ask, own[0], own[1], scale, window)
        if window is not None:  # each sees another part of what it begins with
            for text, span in chain(*self._begun):
                if before := text.brought(layer):
                    own = self._pages.rows(layer, text, text.rows + span.stop - span.start)
                    keys, values = (torch.cat(both, -2) for both in zip(before, own, strict=False))
                    out[..., span, :], _ = self._causal(asks[..., span, :], keys, values, scale, window)
        elif self._begun:
            parts = [self._beginning(layer, some, asks, scale) for some in self._begun]
            seen, total = (torch.cat(part, 3) for part in zip(*parts, strict=True))
            # softmax over both is the two weighted by their shares of the sum
            share = torch.sigmoid(total - sums[..., self._over])[..., None].to(out.dtype)
            out[..., self._over, :] = torch.lerp(out[..., self._over, :], seen, share)
        return out.flatten(1, 2).transpose(1, 2)

    def _causal(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None
    ) -> tuple[Tensor, Tensor]:
        """As `_with_sums`, of queries of the last of the rows: each sees its own and those before it, in a window."""
        share, tokens, rows = query.shape[2], query.shape[3], key.shape[2]
        mask = self._seen(tokens, rows, window, share, query.dtype, query.device)
        return _with_sums(query, key, value, scale, mask, causal=share == 1 and tokens == rows <= (window or rows))

    def _beginning(
        self, layer: int, some: Sequence[tuple[PackedText, slice]], asks: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        """What texts see of the rows that all of them begin with, as `_with_sums` returns it."""
        ask = asks[..., some[0][1].start : some[-1][1].stop, :]
        before, *_ = [text.brought(layer) for text, _ in some]  # what did not come fails each of them
        if before is None:
            return torch.zeros_like(ask), ask.new_full(ask.shape[:-1], -torch.inf, dtype=torch.float32)
        keys, values, *marks = before
        weights = marks[0].transpose(-1, -2).to(ask.dtype) if marks else None  # [1, G, 1, rows]
        return _with_sums(ask, keys, values, scale, weights)


class _Together:
    """Texts that read one token each: all of them attend at once, page by page."""

    def __init__(self, pages: Pages, texts: Sequence[PackedText], device: torch.device) -> None:
        most = max(len(text.pages) for text in texts)
        table = torch.tensor([text.pages + [-1] * (most - len(text.pages)) for text in texts])
        readers, nth = (table >= 0).nonzero(as_tuple=True)
        rows = torch.tensor([text.rows + 1 for text in texts])[readers]
        held = torch.zeros(3, pages.room, dtype=torch.long)  # pages of others are read for nothing
        held[:, table[readers, nth]] = torch.stack((readers, nth * _PAGE, rows))
        self._reader = held[0].to(device)
        self._first, self._rows = held[1:, :, None].to(device)
        self._table = table.clamp(0).flatten().to(device)  # [n * most]
        self._none = torch.where(table < 0, _HIDDEN, 0.0)[..., None].to(device)  # [n, most, 1]
        self._masks = dict[int | None, Tensor]()

    def _mask(self, window: int | None) -> Tensor:
        """[pages, 1, _PAGE], additive"""
        if window not in self._masks:
            places = self._first + torch.arange(_PAGE, device=self._first.device)
            hidden = places >= self._rows
            if window is not None:
                hidden |= places < self._rows - window
            self._masks[window] = torch.where(hidden, _HIDDEN, 0.0)[:, None]
        return self._masks[window]

    def attend(self, held: Tensor, asks: Tensor, scale: float, window: int | None) -> tuple[Tensor, Tensor]:
        """held [2, G, room, _PAGE, D], asks [1, G, share, n, D] -> what each sees, [1, G, share, n, D], and the
        logarithm of the sum of its weights, [1, G, share, n]."""
        keys, values = held[:, :, : len(self._reader)]
        each = asks[0].transpose(1, 2).index_select(1, self._reader)  # [G, pages, share, D]
        seen, sums = _weighted(each, keys, values, scale, self._mask(window))
        parts = sums.index_select(1, self._table).unflatten(1, self._none.shape[:2]) + self._none  # [G, n, most, share]
        shares, total = _softmax(parts, 2)
        found = seen.index_select(1, self._table).unflatten(1, self._none.shape[:2])
        out = found.mul_(shares[..., None].to(seen.dtype)).sum(2)
        return out.transpose(1, 2)[None], total.transpose(1, 2)[None]


def _seen(
    tokens: int, rows: int, window: int | None, share: int, dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    """[share * T, K], additive: of the last `tokens` of so many rows, each sees those before it, within a window."""
    if tokens == 1 and (window is None or rows <= window):
        return None
    places = torch.arange(rows, device=device)
    hidden = places[None] > places[-tokens:, None]
    if window is not None:
        hidden |= places[None] <= places[-tokens:, None] - window
    hidden = hidden.repeat(share, 1)
    return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, torch.finfo(dtype).min)


def _with_sums(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: _Mask, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """query [1, G, share, T, D], key and value [1, G, K, D] -> what each query sees, [1, G, share, T, D], and the
    logarithm of the sum of its weights, [1, G, share, T] in fp32. mask: [share * T, K], or [1, G, 1, K] for all.
    causal: the mask says no more than that each of K queries sees those before it, and half can be left out."""
    if query.device.type == "cpu" and key.shape[-1] == value.shape[-1]:
        out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query.flatten(2, 3), key, value, 0.0, causal, attn_mask=None if causal else mask, scale=scale
        )
    else:
        out, sums = _weighted(query.flatten(2, 3), key, value, scale, mask)
    return out.reshape(*query.shape[:-1], -1), sums.reshape(query.shape[:-1])


def _weighted(query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """query [..., T, D], key and value [..., K, D] -> what each query sees, [..., T, D], and the logarithm of the sum
    of its weights, [..., T] in fp32."""
    scores = (query @ key.transpose(-1, -2)).float().mul_(scale)
    weights, sums = _softmax(scores if mask is None else scores.add_(mask), -1)
    return weights.to(value.dtype) @ value, sums


def _softmax(scores: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Weights, and the logarithm of the sum of the exponentials: as weight = e^score / sum, score - log(weight) of the
    largest."""
    weights = scores.softmax(dim)
    return weights, scores.amax(dim) - weights.amax(dim).log_()


def packed_attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, rest: dict[str, Any]
) -> Tensor | None:
    """[1, N, H, D] where this thread runs a packed forward; None where it does not."""
    packed: Packed | None = getattr(_now, "packed", None)
    if packed is None:
        return None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return packed.attend(int(module.layer_idx), query, key, value, scale, rest.get("sliding_window"))  # type: ignore[arg-type]


def packed_forward(model: CausalLM, pages: Pages, texts: Sequence[PackedText], ids: Sequence[Sequence[int]]) -> Tensor:
    """Logits after the last of the new tokens of each text: [texts, vocabulary]. Texts that begin with the same rows
    should lie side by side. Each has read its tokens then; where it raises, none has."""
    device = model.device
    packed = Packed(pages, texts, [len(new) for new in ids], device)
    places = [n for text, new in zip(texts, ids, strict=True) for n in range(text.length, text.length + len(new))]
    last = torch.tensor([len(new) for new in ids], device=device).cumsum(0) - 1
    _now.packed = packed
    try:
        logits: Tensor = model(
            input_ids=torch.tensor([[i for new in ids for i in new]], device=device),
            position_ids=positions_of(model, torch.tensor(places))[None],
            attention_mask=_unread_mask(model, device),
            past_key_values=packed,
            use_cache=True,
            logits_to_keep=last,
        ).logits[0]
    finally:
        _now.packed = None
    for text, new in zip(texts, ids, strict=True):
        text.read(len(new))
    return logits


def _unread_mask(model: CausalLM, device: torch.device) -> Tensor | dict[str, Tensor]:
    """In the form of one that is complete, so that transformers makes none; attention over packed texts reads none."""
    mask = torch.zeros(1, 1, 1, 1, dtype=model.dtype, device=device)
    types = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    return dict.fromkeys(types, mask) if len(types) > 1 else mask
