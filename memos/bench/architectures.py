"""Tiny random models of many architectures, for `memos doctor --architectures` and the tests."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

_SIZE = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LONG = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}


def _rope(kind: str, **rest: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **rest}}


# name: (transformers' model_type, what differs from _SIZE)
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, rope linear": ("llama", _rope("linear", factor=2.0)),
    "llama, rope dynamic": ("llama", _rope("dynamic", factor=2.0)),
    "llama, rope yarn": ("llama", _rope("yarn", factor=4.0, original_max_position_embeddings=64)),
    "llama, rope llama3": (
        "llama",
        _rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64),
    ),
    "llama, rope longrope": (
        "llama",
        _rope("longrope", short_factor=[1.0] * 8, long_factor=[2.0] * 8, original_max_position_embeddings=128),
    ),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "qwen3-moe": (
        "qwen3_moe",
        {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    ),
    "mistral, sliding window": ("mistral", {"sliding_window": 16, "head_dim": 16}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "head_dim": 16}),
    "gemma": ("gemma", {"head_dim": 16}),
    "gemma2": ("gemma2", {"head_dim": 16, "sliding_window": 16}),
    "gemma3": ("gemma3_text", {"head_dim": 16, "sliding_window": 16, "num_hidden_layers": 7}),
    "phi3": ("phi3", {}),
    "phi3, rope longrope": (
        "phi3",
        {
            "original_max_position_embeddings": 128,
            **_rope("longrope", short_factor=[1.0] * 8, long_factor=[2.0] * 8, original_max_position_embeddings=128),
        },
    ),
    "gpt-neox": ("gpt_neox", {"num_key_value_heads": None, **_rope("default", partial_rotary_factor=1.0)}),
    "pythia, partial rotary": (
        "gpt_neox",
        {"num_key_value_heads": None, **_rope("default", partial_rotary_factor=0.25)},
    ),
    "gpt-j": ("gptj", {"n_positions": 256, "n_embd": 64, "n_layer": 3, "n_head": 4, "rotary_dim": 8}),
    "gpt2": ("gpt2", {"n_positions": 256, "n_embd": 64, "n_layer": 3, "n_head": 4}),
    "opt": ("opt", {"ffn_dim": 128, "word_embed_proj_dim": 64}),
    "bloom": ("bloom", {"n_layer": 3, "n_head": 4}),
    "mpt": ("mpt", {"d_model": 64, "n_layers": 3, "n_heads": 4, "max_seq_len": 256}),
    "falcon": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon, alibi": ("falcon", {"alibi": True}),
    "glm4": ("glm4", {"head_dim": 16, **_rope("default", partial_rotary_factor=0.5)}),
    "olmo2": ("olmo2", {}),
    "cohere": ("cohere", {}),
    "cohere2, layers without positions": ("cohere2", {"sliding_window": 16, "num_hidden_layers": 4}),
    "smollm3, layers without positions": ("smollm3", {"num_hidden_layers": 4}),
    "stablelm": ("stablelm", {}),
    "deepseek-v3, latent attention": (
        "deepseek_v3",
        {
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
            "kv_lora_rank": 16,
            "q_lora_rank": 24,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
        },
    ),
    "llama4, chunked attention": (
        "llama4_text",
        {
            "head_dim": 16,
            "attention_chunk_size": 32,
            "num_local_experts": 2,
            "intermediate_size_mlp": 128,
            "num_hidden_layers": 4,
        },
    ),
    "mamba2": (
        "mamba2",
        {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2, "chunk_size": 16, "expand": 2},
    ),
    "jamba, hybrid": (
        "jamba",
        {
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "mamba_d_state": 8,
            "mamba_expand": 2,
            "use_mamba_kernels": False,
        },
    ),
    "qwen3-next, hybrid": (
        "qwen3_next",
        {
            "head_dim": 16,
            "num_hidden_layers": 4,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
        },
    ),
    "rwkv": ("rwkv", {"attention_hidden_size": 64, "context_length": 256}),
    "recurrent-gemma": ("recurrent_gemma", {"head_dim": 16, "attention_window_size": 16, "lru_width": 64}),
}


def tiny(name: str, seed: int = 0) -> PreTrainedModel:
    """A random model of that row, in fp32 on the CPU, in evaluation mode."""
    kind, differing = ARCHITECTURES[name]
    settings = {key: value for key, value in (_SIZE | differing).items() if value is not None}
    transformers.logging.set_verbosity_error()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings), dtype=torch.float32)
        with torch.no_grad():  # far from 0, so that a mistake shows in the logits
            for parameter in model.parameters():
                if parameter.ndim >= 2:
                    parameter.normal_(0.0, 0.15)
    return model.eval()
