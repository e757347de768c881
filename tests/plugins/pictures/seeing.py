"""Vision-language models with random weights, with their processors, in folders as transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedModel

from memos.infrastructure.host.model.load import SMALL_MODEL, _load_tokenizer, model_path
from memos.plugins.pictures.vision import PicturedPrompt

VOCABULARY = 2100
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 14,
}
ROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10_000.0}
SIGLIP = VISION | {"model_type": "siglip_vision_model", "vision_use_head": False}
QWEN_VISION = {
    "depth": 2,
    "hidden_size": 32,
    "num_heads": 4,
    "patch_size": 14,
}
IMAGE, START, END, VIDEO = 2050, 2051, 2052, 2053  # ids
_QWEN = {"vision_start_token_id": START, "vision_end_token_id": END, "video_token_id": VIDEO}

# how the models that want to know call what tells a picture's ids from others
TYPES = {"gemma3": "token_type_ids"} | dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl"), "mm_token_type_ids")

# by architecture: the parts of its config
CONFIGS: dict[str, dict[str, Any]] = {
    "llava": {
        "vision_config": VISION | {"model_type": "clip_vision_model", "projection_dim": 32},
        "text_config": TEXT | {"model_type": "llama"},
        "image_seq_length": 4,
    },
    "idefics3": {
        "vision_config": VISION,
        "text_config": TEXT | {"model_type": "llama", "pad_token_id": 0},
        "scale_factor": 2,
    },
    "smolvlm": {
        "vision_config": VISION,
        "text_config": TEXT | {"model_type": "llama", "pad_token_id": 0},
        "scale_factor": 2,
    },
    "gemma3": {
        "vision_config": SIGLIP,
        "text_config": TEXT | {"head_dim": 8, "sliding_window": 16},
        "mm_tokens_per_image": 4,
        "boi_token_index": START,
        "eoi_token_index": END,
    },
    "aya_vision": {
        "vision_config": SIGLIP,
        "text_config": TEXT | {"model_type": "cohere2"},
        "downsample_factor": 2,
    },
    "internvl": {
        "vision_config": VISION | {"model_type": "internvl_vision", "image_size": [28, 28], "patch_size": [14, 14]},
        "text_config": TEXT | {"model_type": "qwen2"},
        "image_seq_length": 1,
    },
    "mistral3": {
        "vision_config": VISION | {"model_type": "pixtral", "head_dim": 8},
        "text_config": TEXT | {"model_type": "mistral"},
        "spatial_merge_size": 1,
    },
    "qwen2_vl": {
        "vision_config": QWEN_VISION | {"embed_dim": 32, "mlp_ratio": 2},
        "text_config": TEXT | {"model_type": "qwen2_vl_text", "rope_parameters": ROPE},
        **_QWEN,
    },
    "qwen2_5_vl": {
        "vision_config": QWEN_VISION
        | {"out_hidden_size": 32, "intermediate_size": 64, "fullatt_block_indexes": [1], "window_size": 56},
        "text_config": TEXT | {"model_type": "qwen2_5_vl_text", "rope_parameters": ROPE},
        **_QWEN,
    },
    "qwen3_vl": {
        "vision_config": QWEN_VISION
        | {
            "out_hidden_size": 32,
            "intermediate_size": 64,
            "deepstack_visual_indexes": [0],
            "num_position_embeddings": 16,
        },
        "text_config": TEXT
        | {"model_type": "qwen3_vl_text", "head_dim": 8, "rope_parameters": ROPE | {"mrope_interleaved": True}},
        **_QWEN,
    },
    "vipllava": {
        "vision_config": VISION | {"model_type": "clip_vision_model", "projection_dim": 32},
        "text_config": TEXT | {"model_type": "llama"},
        "image_seq_length": 4,
        "vision_feature_layers": [-1, -2],
    },
    "llava_next": {
        "vision_config": VISION | {"model_type": "clip_vision_model", "projection_dim": 32},
        "text_config": TEXT | {"model_type": "llama"},
        "image_grid_pinpoints": [[28, 28]],
    },
    "llava_onevision": {
        "vision_config": SIGLIP,
        "text_config": TEXT | {"model_type": "qwen2"},
        "image_grid_pinpoints": [[28, 28]],
    },
    "cohere2_vision": {
        "vision_config": SIGLIP,
        "text_config": TEXT | {"model_type": "cohere2"},
        "downsample_factor": 2,
        "alignment_intermediate_size": 64,
    },
    # its pictures are read by cross-attention, and stand in no row of the text
    "mllama": {
        "vision_config": {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_global_layers": 1,
            "attention_heads": 4,
            "image_size": 28,
            "patch_size": 14,
            "vision_output_dim": 64,
            "intermediate_layers_indices": [0],
            "max_num_tiles": 1,
            "supported_aspect_ratios": [[1, 1]],
        },
        "text_config": TEXT | {"cross_attention_layers": [1], "pad_token_id": 0},
    },
    # a picture reads what comes after it
    "paligemma": {
        "vision_config": SIGLIP | {"projection_dim": 32},
        "text_config": TEXT | {"model_type": "gemma", "head_dim": 8},
        "projection_dim": 32,
    },
}


def model(kind: str, seed: int = 0) -> PreTrainedModel:
    """A model of that architecture. No weights are zero, so that every part of it tells in the logits."""
    torch.manual_seed(seed)
    made = AutoModelForImageTextToText.from_config(AutoConfig.for_model(kind, image_token_id=IMAGE, **CONFIGS[kind]))
    with torch.no_grad():
        for parameter in made.parameters():
            if not parameter.any():
                parameter.normal_(std=0.1)
            elif parameter.dim() > 1:
                parameter.mul_(4)  # random weights say little of a picture
    return made.eval()


def tokenizer() -> Any:
    """The packaged model's, without its template, and with as many tokens as come before the images'."""
    made = _load_tokenizer(model_path(SMALL_MODEL), False)
    made.chat_template = None
    made.add_tokens([f"<unused{n}>" for n in range(IMAGE - len(made))])
    return made


def processor(kind: str) -> Any:
    """Of an architecture whose processor needs no torchvision."""
    words = tokenizer()
    names = {
        "llava": ["<image>"],
        "paligemma": ["<image>"],
        "idefics3": ["<image>"],
        "aya_vision": ["<|IMG_PATCH|>"],
        "gemma3": ["<image_soft_token>", "<start_of_image>", "<end_of_image>"],
    }[kind]
    words.add_special_tokens({"additional_special_tokens": names})
    square = {"height": 28, "width": 28}
    match kind:
        case "llava":
            pixels = transformers.CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=28)
            return transformers.LlavaProcessor(
                pixels,
                words,
                patch_size=14,
                vision_feature_select_strategy="default",
                image_token="<image>",
                num_additional_image_tokens=1,
            )
        case "idefics3":
            pixels = transformers.Idefics3ImageProcessorPil(
                size={"longest_edge": 28}, max_image_size={"longest_edge": 28}
            )
            return transformers.Idefics3Processor(pixels, words, image_seq_len=1)
        case "aya_vision":
            pixels = transformers.GotOcr2ImageProcessorPil(size=square, crop_to_patches=False)
            return transformers.AyaVisionProcessor(pixels, words, patch_size=14, img_size=28, downsample_factor=2)
        case "gemma3":
            given = dict(zip(("image_token", "boi_token", "eoi_token"), names, strict=True))
            words = _with_named(words, given)
            return transformers.Gemma3Processor(
                transformers.Gemma3ImageProcessorPil(size=square), words, image_seq_length=4
            )
        case _:
            pixels = transformers.SiglipImageProcessorPil(size=square)
            pixels.image_seq_length = 4
            return transformers.PaliGemmaProcessor(pixels, words)


QWEN_TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{% for part in message.content %}{% if part.type == "image" %}<|vision_start|><|image_pad|><|vision_end|>{% else %}\
{{ part.text }}{% endif %}{% endfor %}<|im_end|>
{% endfor %}"""


def qwen_processor(kind: str) -> Any:
    """A processor of Qwen-VL without its part for videos, which needs torchvision: so it is not made by its class."""
    words = tokenizer()
    names = ["<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"]
    words.add_special_tokens({"additional_special_tokens": names})
    maker = {
        "qwen2_vl": transformers.Qwen2VLProcessor,
        "qwen2_5_vl": transformers.Qwen2_5_VLProcessor,
        "qwen3_vl": transformers.Qwen3VLProcessor,
    }[kind]
    made = maker.__new__(maker)
    made.image_processor = transformers.Qwen2VLImageProcessorPil(
        size={"shortest_edge": 28 * 28 * 4, "longest_edge": 28 * 28 * 16}, patch_size=14
    )
    made.tokenizer, made.video_processor, made.chat_template = words, None, QWEN_TEMPLATE
    made.image_token, made.image_token_id, made.image_ids = names[0], IMAGE, [IMAGE]
    made.video_token, made.video_token_id, made.video_ids = names[3], VIDEO, [VIDEO]
    return made


def _with_named(words: Any, given: dict[str, str]) -> Any:
    """The tokenizer with special tokens that it knows by a name."""
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words.backend_tokenizer,
        eos_token=words.eos_token,
        pad_token=words.pad_token,
        bos_token=words.bos_token,
        unk_token=words.unk_token,
        extra_special_tokens=given,
    )


def folder(kind: str, path: Path, seed: int = 0) -> Path:
    model(kind, seed).save_pretrained(path)
    processor(kind).save_pretrained(path)
    return path


def pixels(kind: str, image: Any) -> tuple[dict[str, torch.Tensor], int]:
    """A picture as arguments of an architecture, and how many tokens stand for it."""
    square = {"height": 28, "width": 28}
    match kind:
        case "llava" | "vipllava":
            maker, tokens = transformers.CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=28), 4
        case "gemma3" | "paligemma":
            maker, tokens = transformers.SiglipImageProcessorPil(size=square), 4
        case "idefics3" | "smolvlm":
            edge = {"longest_edge": 28}
            maker, tokens = transformers.Idefics3ImageProcessorPil(size=edge, max_image_size=edge), 1
        case "internvl" | "aya_vision" | "cohere2_vision":
            maker, tokens = transformers.GotOcr2ImageProcessorPil(size=square, crop_to_patches=False), 1
        case "llava_next" | "llava_onevision":  # the whole, and its one tile with a mark for the end of each line
            whole = transformers.SiglipImageProcessorPil(size=square)(image, return_tensors="pt")["pixel_values"]
            return {"pixel_values": torch.stack([whole[0]] * 2)[None], "image_sizes": torch.tensor([[28, 28]])}, 10
        case "mllama":
            whole = transformers.SiglipImageProcessorPil(size=square)(image, return_tensors="pt")["pixel_values"]
            ones = torch.ones(1, 1, 1, dtype=torch.long)
            return {"pixel_values": whole[None, None], "aspect_ratio_ids": ones[0], "aspect_ratio_mask": ones}, 1
        case "mistral3":
            maker, tokens = transformers.SiglipImageProcessorPil(size=square), 4
        case _:
            maker = transformers.Qwen2VLImageProcessorPil(
                size={"shortest_edge": 28 * 28 * 4, "longest_edge": 28 * 28 * 16}, patch_size=14
            )
            made = dict(maker(image, return_tensors="pt"))
            return made, int(made["image_grid_thw"].prod()) // 4
    made = dict(maker(image, return_tensors="pt"))
    if kind == "mistral3":
        made["image_sizes"] = torch.tensor([[28, 28]])
    return made, tokens


def drawn(seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (30, 40, 3), np.uint8))


def prompt_of(kind: str, seed: int = 0) -> tuple[PicturedPrompt, list[int]]:
    """A prompt with a picture in it, and its ids without."""
    inputs, tokens = pixels(kind, drawn(seed))
    draw = np.random.default_rng(3)
    head, text = draw.integers(10, 2000, 6).tolist(), draw.integers(10, 2000, 25).tolist()
    marks = ([START], [END]) if kind.startswith("qwen") else ([], [])
    ids = [*head, *marks[0], *[IMAGE] * tokens, *marks[1], *text]
    types = (TYPES[kind], tuple(int(i == IMAGE) for i in ids)) if kind in TYPES else None
    return PicturedPrompt(tuple(ids), inputs, types), head + text
