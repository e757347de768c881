"""One forward over the new tokens of many texts, [1, N], each of which attends to keys and values of its own.

Linear layers see all tokens as one text's, so nothing is padded; attention goes text by text. Keys and values that
several texts begin with lie in memory once, and are read once for all of them; what each has of its own is merged by
the logarithms of the sums (cascade attention: Hydragen, 2402.05099). Knows tensors, no requests.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import groupby, islice
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import Cache

from memos.infrastructure.host.forward import CausalLM, positions_of
from memos.infrastructure.host.kv.cache import Activation, Arriving, Layer

_COPIED = 1 << 16  # numbers of a text's first keys in a layer up to which they are copied: merging takes as long
_GROWS = 16  # own rows are kept with room for a sixteenth more, and for so many at least
_now = threading.local()  # the packed forward of this thread


class PackedText:
    """What one text has been read of: rows that it begins with and does not change, then rows of its own."""

    def __init__(self, past: Activation | None = None) -> None:
        self.shared: Sequence[Layer] = past.layers if past else ()
        self.length = past.next_position if past else 0  # tokens read: the next one's position
        self.own: list[torch.Tensor] = []  # a layer: keys and values, [2, 1, G, room, D], of which `rows` are filled
        self.rows = self.copied = 0  # copied: the first of them, which repeat what it begins with
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

    def brought(self, layer: int) -> Layer | None:
        """Keys, values and any weights of the layer that it begins with, once they are there; None where there are
        none."""
        if not self.shared or self.failed:
            return None
        try:
            return self.shared[layer]
        except Exception as error:  # of a file, for instance: this text's answer fails, not the others
            self.failed = error
            return None

    def append(self, layer: int, new: torch.Tensor) -> torch.Tensor:
        """Put keys and values, [2, 1, G, T, D], behind the own rows; all of those then. They count once the whole
        forward is done."""
        end = self.rows + new.shape[3]
        if layer == len(self.own):
            self.own.append(new.new_empty(0, 0, 0, 0, 0))
        own = self.own[layer]
        if end > own.shape[3]:
            old, room = own, end + max(_GROWS, end // _GROWS)
            own = self.own[layer] = new.new_empty(*new.shape[:3], room, new.shape[4])
            if self.rows:
                own[:, :, :, : self.rows] = old[:, :, :, : self.rows]
        own.narrow(3, self.rows, new.shape[3]).copy_(new)
        return own.narrow(3, 0, end)

    def copy_beginning(self) -> None:
        """Put what it begins with before its own rows, too, once, where that is little: so much is read sooner in one
        piece while nobody else begins so."""
        if self.copied or not self.shared or isinstance(self.shared, Arriving):
            return
        if self.shared[0][0].numel() <= _COPIED and len(self.shared[0]) == 2:
            begun = [torch.stack(layer[:2]) for layer in self.shared]  # [2, 1, G, rows, D] each
            own = [layer[:, :, :, : self.rows] for layer in self.own] or [layer[:, :, :, :0] for layer in begun]
            self.own = [torch.cat(both, 3) for both in zip(begun, own, strict=True)]
            self.copied = begun[0].shape[3]
            self.rows += self.copied

    def read(self, tokens: int) -> None:
        """So many more tokens have gone through the model."""
        self.rows += tokens
        self.length += tokens
        if isinstance(self.shared, Arriving) and not self.failed:
            self.shared = tuple(self.shared)  # all are there

    def layers(self) -> tuple[Layer, ...]:
        """All rows, in new tensors."""
        own = [layer[:, :, :, self.copied : self.rows].unbind() for layer in self.own]
        shared = self.shared or [tuple(t[..., :0, :] for t in layer) for layer in own]
        return tuple(
            tuple(torch.cat(both, -2) for both in zip(before, after, strict=True))
            for before, after in zip(shared, own, strict=True)
        )


class Packed(Cache):
    """The texts of one forward, as the cache that transformers hands through the layers."""

    def __init__(self, texts: Sequence[PackedText], tokens: Sequence[int]) -> None:
        """tokens: how many new ones each text has, in the order in which they lie."""
        super().__init__(layers=[])
        self._tokens = list(tokens)
        # texts side by side that begin with the same rows
        self._groups = [list(some) for _, some in groupby(texts, key=lambda text: text.beginning or id(text))]
        for alone in (some[0] for some in self._groups if len(some) == 1):
            alone.copy_beginning()

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return key_states, value_states  # `attend` puts them where they belong

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, window: int | None
    ) -> torch.Tensor:
        """query [1, H, N, D], key and value [1, G, N, D] -> [1, N, H, D]. window: tokens that each looks back."""
        asks = query.unflatten(1, (key.shape[1], -1))  # [1, G, share, N, D]: heads that share keys are side by side
        each = zip(asks.split(self._tokens, 3), torch.stack((key, value)).split(self._tokens, 3), strict=True)
        out = list[torch.Tensor]()
        for texts in self._groups:
            before, *_ = [text.brought(layer) for text in texts]  # what did not come fails each of them
            mine = list(islice(each, len(texts)))
            over = [(ask, text.append(layer, new)) for text, (ask, new) in zip(texts, mine, strict=True)]
            weighted = before is not None and len(before) > 2
            if before and not window and (len(texts) > 1 or weighted or before[0].numel() > _COPIED):
                own = [
                    (ask, *rows[:, :, :, text.copied :].unbind()) for text, (ask, rows) in zip(texts, over, strict=True)
                ]
                out.append(_merged(before, own, scale))
                continue
            for text, (ask, rows) in zip(texts, over, strict=True):
                keys, values = rows.unbind()
                if before and not text.copied:
                    keys, values = torch.cat((before[0], keys), -2), torch.cat((before[1], values), -2)
                out.append(_attended(ask, keys, values, scale, _seen(ask.shape[3], keys.shape[-2], window, ask)))
        return torch.cat(out, 3).flatten(1, 2).transpose(1, 2)


def _merged(
    before: Layer, over: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], scale: float
) -> torch.Tensor:
    """What texts see of rows that all begin with, and of their own: queries [1, G, share, T, D], keys and values each.
    Softmax over both is the two weighted by their shares of the sum."""
    own = [
        _with_sums(ask, keys, values, scale, _seen(ask.shape[3], keys.shape[-2], None, ask))
        for ask, keys, values in over
    ]
    mine, sums = (torch.cat(parts, 3) for parts in zip(*own, strict=True))
    asks = torch.cat([ask for ask, *_ in over], 3)
    weights = before[2].transpose(-1, -2).to(asks.dtype) if len(before) > 2 else None  # [1, G, 1, rows]
    shared, total = _with_sums(asks, before[0], before[1], scale, weights)
    share = torch.sigmoid(total - sums)[..., None].to(mine.dtype)
    return torch.lerp(mine, shared, share)


def _seen(tokens: int, rows: int, window: int | None, like: torch.Tensor) -> torch.Tensor | None:
    """[T, K], additive: of the last `tokens` of so many rows, each sees those before it, within a window."""
    if tokens == 1 and (window is None or rows <= window):
        return None
    places = torch.arange(rows, device=like.device)
    hidden = places[None] > places[-tokens:, None]
    if window is not None:
        hidden |= places[None] <= places[-tokens:, None] - window
    return torch.zeros(tokens, rows, dtype=like.dtype, device=like.device).masked_fill_(
        hidden, torch.finfo(like.dtype).min
    )


def _attended(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, mask: torch.Tensor | None
) -> torch.Tensor:
    """query [1, G, share, T, D], key and value [1, G, K, D], mask [T, K] -> [1, G, share, T, D]"""
    share, tokens = query.shape[2:4]
    over = mask.repeat(share, 1) if mask is not None and share > 1 else mask
    out = scaled_dot_product_attention(query.flatten(2, 3), key, value, attn_mask=over, scale=scale)
    return out.unflatten(2, (share, tokens))


def _with_sums(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `_attended`, and the logarithm of the sum of each one's weights, [1, G, share, T] in fp32. mask: [T, K], or
    [1, G, 1, K] for all queries."""
    share, tokens = query.shape[2:4]
    folded, over = query.flatten(2, 3), mask
    if mask is not None:
        over = mask.expand(-1, -1, share * tokens, -1) if mask.ndim > 2 else mask.repeat(share, 1)
    if query.device.type == "cpu" and key.shape[-1] == value.shape[-1]:
        out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            folded, key, value, 0.0, False, attn_mask=over, scale=scale
        )
    else:
        scores = (folded @ key.transpose(-1, -2)).float() * scale
        scores = scores if over is None else scores + over
        sums = scores.logsumexp(-1)
        out = (scores - sums[..., None]).exp().to(value.dtype) @ value
    return out.unflatten(2, (share, tokens)), sums.unflatten(2, (share, tokens))


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    rest: dict[str, Any],
) -> torch.Tensor | None:
    """[1, N, H, D] where this thread runs a packed forward; None where it does not."""
    packed: Packed | None = getattr(_now, "packed", None)
    if packed is None:
        return None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return packed.attend(int(module.layer_idx), query, key, value, scale, rest.get("sliding_window"))  # type: ignore[arg-type]


def packed_forward(model: CausalLM, texts: Sequence[PackedText], ids: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits after the last of the new tokens of each text: [texts, vocabulary]. Texts that begin with the same rows
    should lie side by side. Each has read its tokens then; where it raises, none has."""
    device, packed = model.device, Packed(texts, [len(new) for new in ids])
    positions = torch.cat([torch.arange(t.length, t.length + len(new)) for t, new in zip(texts, ids, strict=True)])
    last = torch.tensor([len(new) for new in ids], device=device).cumsum(0) - 1
    _now.packed = packed
    try:
        logits: torch.Tensor = model(
            input_ids=torch.tensor([[i for new in ids for i in new]], device=device),
            position_ids=positions_of(model, positions)[None],
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


def _unread_mask(model: CausalLM, device: torch.device) -> torch.Tensor | dict[str, torch.Tensor]:
    """In the form of one that is complete, so that transformers makes none; attention over packed texts reads none."""
    mask = torch.zeros(1, 1, 1, 1, dtype=model.dtype, device=device)
    types = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    return dict.fromkeys(types, mask) if len(types) > 1 else mask
