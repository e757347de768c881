"""Computes attention over a long cache on a CPU, where several query heads share keys and values.

transformers repeats the shared keys and values for each query head before it calls torch, which copies the whole
cache once more for every question. Here the heads that share become rows of one head instead.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "memos_sdpa"


def fold_shared_heads(model: PreTrainedModel) -> PreTrainedModel:
    """Let a model that memos has loaded use `shared_head_attention`, if it uses sdpa on a CPU and has shared heads."""
    config = model.config.get_text_config()
    heads, shared = (getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads"))
    if model.device.type == "cpu" and config._attn_implementation == "sdpa" and heads and shared and shared < heads:
        model.set_attn_implementation(NAME)
    return model


def shared_head_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """query [B, H, T, D], key and value [B, G, K, D], attention_mask [B or 1, 1, T, K] -> [B, T, H, D].

    As torch's scaled_dot_product_attention with each key repeated H / G times, up to rounding.
    """
    batch, heads, tokens, width = query.shape
    share = heads // key.shape[1]
    if share == 1 or attention_mask is None or attention_mask.shape[1] != 1:
        plain, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **rest
        )
        return plain, None
    folded = query.reshape(batch, key.shape[1], share * tokens, width)
    mask = attention_mask[..., : key.shape[-2]].repeat(1, 1, share, 1)
    out = torch.nn.functional.scaled_dot_product_attention(
        folded, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling
    )
    return out.reshape(batch, heads, tokens, -1).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, shared_head_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
