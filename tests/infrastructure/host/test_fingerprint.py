"""Which model it is: a digest over its weights, of large ones over an even sample."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoTokenizer, Glm4MoeConfig, Glm4MoeForCausalLM, PreTrainedModel

from memos.errors import HostError
from memos.infrastructure.host.fingerprint import evenly, weights_digest
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.model.load import SMALL_MODEL, model_path, random_model


@pytest.mark.parametrize("count", [4097, 1 << 24, (1 << 24) + 1, 136_134_656, 2_000_000_001])
def test_a_sample_lies_within_what_it_is_of(count: int) -> None:
    places = evenly(count, torch.device("cpu"))
    assert (int(places[0]), int(places[-1])) == (0, count - 1)
    assert bool((places.diff() > 0).all())


def glm() -> PreTrainedModel:
    """A tiny model whose router has a bias that is a buffer, and is saved."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "moe_intermediate_size": 16, "head_dim": 8}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "first_k_dense_replace": 1}
    config = Glm4MoeConfig(**sizes, **heads, n_routed_experts=4, num_experts_per_tok=2, pad_token_id=0)
    return Glm4MoeForCausalLM(config)


def test_the_bias_of_a_router_is_part_of_which_model_it_is() -> None:
    first, second = glm(), glm()
    assert weights_digest(first) == weights_digest(second)
    name, bias = next((n, b) for n, b in second.named_buffers() if n.endswith("e_score_correction_bias"))
    bias[1] += 1.0
    assert name in second.state_dict()
    assert weights_digest(first) != weights_digest(second)


def test_what_is_computed_from_the_config_is_not() -> None:
    first, second = glm(), glm()
    computed = [buffer for name, buffer in second.named_buffers() if name.endswith("inv_freq")]
    assert computed
    computed[0] *= 2.0
    assert weights_digest(first) == weights_digest(second)


def test_a_model_whose_weights_are_elsewhere_is_refused_by_name() -> None:
    with torch.device("meta"):
        model = glm().eval()
    with pytest.raises(HostError, match="not on one device"):
        Host(model, AutoTokenizer.from_pretrained(model_path(SMALL_MODEL)))


@pytest.mark.parametrize(
    "name, billions",
    [("qwen2.5-0.5b", 0.494), ("llama-3-70b", 70.6), ("qwen2.5-72b", 72.7)],
)
def test_a_shape_has_as_many_parameters_as_the_model_it_is_of(name: str, billions: float) -> None:
    shaped = random_model(name, torch.device("meta"), torch.bfloat16, None)
    assert shaped.num_parameters() / 1e9 == pytest.approx(billions, rel=5e-3)
