"""Tiny random models of every architecture that transformers has, for `memos doctor --architectures` and the tests.

A table of variants that are known to differ in what their KV can be used for; all other causal language models of the
installed transformers follow from its own default configs, made small.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

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
    "mistral, wide sliding window": ("mistral", {"sliding_window": 100, "head_dim": 16}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "head_dim": 16}),
    "gemma": ("gemma", {"head_dim": 16}),
    "gemma2": ("gemma2", {"head_dim": 16, "sliding_window": 16}),
    "gemma3_text": ("gemma3_text", {"head_dim": 16, "sliding_window": 16, "num_hidden_layers": 7}),
    "gemma4, shared KV": (
        "gemma4_text",
        {
            "head_dim": 16,
            "sliding_window": 16,
            "num_hidden_layers": 6,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 2048,
        },
    ),
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


# What a config of transformers' own is made small by: attribute -> value.
_SMALL = {
    name: value
    for value, names in {
        256: "max_position_embeddings n_positions n_ctx max_seq_len context_length max_sequence_length",
        128: "intermediate_size intermediate_size_mlp ffn_dim decoder_ffn_dim encoder_ffn_dim ffn_hidden_size n_inner "
        "d_inner dim_ff d_ff",
        64: "hidden_size d_model n_embd n_embed dim model_dim word_embed_proj_dim embedding_size lru_width "
        "attention_hidden_size",
        32: "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size moe_ffn_hidden_size "
        "shared_intermediate_size moe_shared_expert_intermediate_size hidden_size_per_layer_input",
        24: "q_lora_rank",
        16: "head_dim global_head_dim linear_head_dim linear_key_head_dim linear_value_head_dim kv_channels d_kv "
        "kv_lora_rank qk_nope_head_dim qk_head_dim v_head_dim sliding_window attention_window_size local_window_size "
        "window_size",
        8: "qk_rope_head_dim rotary_dim",
        4: "num_attention_heads n_head n_heads decoder_attention_heads encoder_attention_heads num_heads "
        "linear_num_value_heads num_experts num_local_experts n_routed_experts moe_num_experts",
        2: "num_key_value_heads num_kv_heads multi_query_groups linear_num_heads linear_num_key_heads "
        "num_experts_per_tok num_experts_per_token top_k_experts moe_k moe_topk n_group num_expert_groups",
        1: "topk_group first_k_dense_replace",
    }.items()
    for name in names.split()
}
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers")
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_ONE_KEY_A_HEAD = ("axk2", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "minicpm3", "kimi_linear")
# model_type: what differs from its config made small
_DIFFERING: dict[str, dict[str, Any]] = {
    **{kind: {"num_key_value_heads": 4} for kind in _ONE_KEY_A_HEAD},
    **{kind: {"num_key_value_heads": 4, "head_dim": 8} for kind in ("axk1", "youtu")},
    "deepseek_v2": {"num_key_value_heads": 4, "topk_method": "greedy", "num_experts_per_tok": 2},
    "zaya": {"num_experts_per_tok": 1},
    **{kind: {"head_dim": 16} for kind in ("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral")},
    **{kind: {"layer_types": ["conv", "conv", "full_attention", "conv"]} for kind in ("lfm2", "lfm2_moe")},
    "gemma3n_text": {
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "num_kv_shared_layers": 2,
        "intermediate_size": [128] * 6,
        "activation_sparsity_pattern": [0.0] * 6,
        "sliding_window": 16,
        "laurel_rank": 8,
    },
    "gemma4_text": {"per_layer_config": {"05": {"head_dim": 32}}},
    "nemotron": {"num_key_value_heads": 2},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba", "attention"], "mamba_n_heads": 8},
    "zamba2": {"attention_hidden_size": 128, "attention_head_dim": 32},
    "bamba": {"attn_layer_indices": [1, 3], "mamba_n_heads": 8, "mamba_d_head": 16},
}


def every() -> list[str]:
    """Names for `tiny`: the table, and each causal language model of transformers that is not in it as it comes."""
    plain = {kind for name, (kind, _) in ARCHITECTURES.items() if "," not in name}
    return [*ARCHITECTURES, *sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - plain)]


def tiny(name: str, seed: int = 0, vocabulary: int = 300) -> PreTrainedModel:
    """A random model of that name, in fp32 on the CPU, in evaluation mode.

    Raises whatever transformers raises where its default config, made small, is no model.
    """
    transformers.logging.set_verbosity_error()
    if name in ARCHITECTURES:
        kind, differing = ARCHITECTURES[name]
        settings = _SIZE | {"vocab_size": vocabulary} | differing
        config = AutoConfig.for_model(kind, **{key: value for key, value in settings.items() if value is not None})
    else:
        config = _made_small(name, vocabulary)
    with torch.device("meta"):
        parameters = AutoModelForCausalLM.from_config(config).num_parameters()
    if parameters > 20_000_000:
        raise ValueError(f"its config could not be made small: {parameters:,} parameters")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():  # far from 0, so that a mistake shows in the logits
            for parameter in model.parameters():
                if parameter.ndim >= 2:
                    parameter.normal_(0.0, 0.15)
    return model.eval()


def _made_small(kind: str, vocabulary: int) -> PreTrainedConfig:
    """The default config of that model_type with few, narrow layers: as many as it takes to have each kind of them."""
    whole = CONFIG_MAPPING[kind]
    config = whole()
    parts = {name: getattr(config, name, None) for name in getattr(whole, "sub_configs", None) or {}}
    small = {
        name: dict(_differences(part, vocabulary)) | _DIFFERING.get(part.model_type, {})
        for name, part in parts.items()
        if part is not None
    }
    return whole(**dict(_differences(config, vocabulary)) | _DIFFERING.get(kind, {}) | small | _TOKENS)


def _differences(config: PreTrainedConfig, vocabulary: int) -> Iterator[tuple[str, Any]]:
    """What a config is to be given anew so that it is small."""
    given = config.to_dict()
    layers = next((given[name] for name in _LAYERS if isinstance(given.get(name), int)), None)
    kinds = [given[name] for name in ("layer_types", "layers_block_type", "mlp_layer_types") if given.get(name)]
    enough = max((each.index(kind) + 1 for each in kinds for kind in set(each)), default=4)
    for name, value in given.items():
        number = isinstance(value, int) and not isinstance(value, bool)
        if name in _TOKENS:
            yield name, _TOKENS[name]
        elif number and "vocab" in name:
            yield name, vocabulary
        elif number and name in _LAYERS:
            yield name, max(4, enough)
        elif number and name in _SMALL:
            yield name, _SMALL[name]
        elif isinstance(value, list) and len(value) == layers:
            yield name, value[: max(4, enough)]
        elif number and value > 128 and name.endswith(("_size", "_dim", "_rank")):
            yield name, 64
        elif name == "is_decoder":
            yield name, True
