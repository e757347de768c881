"""What a model's KV can be used for: one table over architectures, each row confirmed on logits by other means."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch.testing import assert_close
from transformers import PreTrainedModel

from memos.bench.architectures import ARCHITECTURES, tiny
from memos.infrastructure.host.kv.cache import Activation, encode
from memos.infrastructure.host.kv.compose import Motion, compose, extend, renewal_inputs, starts
from memos.infrastructure.host.model.capability import Capability, examine
from memos.infrastructure.host.model.load import fold_shared_heads

LEARNED = "no rotation by the model's own frequencies"
NOT_KV = "not as keys and values of every token"
# what is not composable, and a part of the reason that must be given
EXACT_ONLY = {
    "gpt-j": LEARNED,
    "gpt2": LEARNED,
    "opt": LEARNED,
    "bloom": "composition fails in bloom",
    "mpt": "composition is not right in mpt",
    "falcon, alibi": "composition fails in falcon",
    "llama4, chunked attention": "composition is not right",
}
REFUSED = {
    "mamba2": NOT_KV,
    "jamba, hybrid": NOT_KV,
    "qwen3-next, hybrid": NOT_KV,
    "recurrent-gemma": NOT_KV,
    "rwkv": "returned no KV cache",
}
LIMITED = {
    "llama, rope dynamic": 255,
    "llama, rope longrope": 128,
    "phi3, rope longrope": 128,
    "llama4, chunked attention": 32,
}
COMPOSABLE = [name for name in ARCHITECTURES if name not in EXACT_ONLY and name not in REFUSED]


@cache
def examined(name: str) -> tuple[PreTrainedModel, Capability]:
    model = tiny(name)
    return model, examine(model)


def texts(*lengths: int) -> list[list[int]]:
    """Random ids that the examination has not seen."""
    draw = torch.Generator().manual_seed(99)
    return [torch.randint(10, 300, (n,), generator=draw).tolist() for n in lengths]


@torch.inference_mode()
def over(model: PreTrainedModel, kept: Activation, ids: list[int]) -> torch.Tensor:
    """[tokens, vocabulary]: logits of the ids over KV."""
    n = len(kept.ids)
    positions = torch.arange(n, n + len(ids))[None]
    mask = torch.ones(1, n + len(ids), dtype=torch.long)
    return model(
        input_ids=torch.tensor([ids]), position_ids=positions, attention_mask=mask, past_key_values=kept.fork()
    ).logits[0]


@torch.inference_mode()
def plain(model: PreTrainedModel, ids: list[int], last: int) -> torch.Tensor:
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -last:]


def in_pieces(
    name: str,
) -> tuple[PreTrainedModel, list[int], list[list[int]], list[int], list[Activation], Activation]:
    """(model, head, pieces, query, each piece encoded apart after the head, their composition)."""
    model, can = examined(name)
    assert can.motion
    head, *pieces, query = texts(5, 19, 23, 9, 7)
    apart = [encode(model, head + piece) for piece in pieces]
    return model, head, pieces, query, apart, compose(apart, len(head), can.motion)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_verdict(name: str) -> None:
    _, can = examined(name)
    assert can.exact == (name not in REFUSED)
    assert can.composable == can.renewal == (name in COMPOSABLE)
    assert can.limit == LIMITED.get(name)
    assert (EXACT_ONLY | REFUSED).get(name, "") in can.verdict
    assert can.verdict.startswith(
        "composable" if name in COMPOSABLE else "exact" if name in EXACT_ONLY else "refused: "
    )


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in REFUSED])
def test_an_exact_prefix_is_exact_on_other_texts_too(name: str) -> None:
    model, _ = examined(name)
    memory, more, query = texts(11, 7, 5) if name == "llama4, chunked attention" else texts(41, 17, 9)
    full = plain(model, memory + more + query, len(query))
    assert_close(over(model, encode(model, memory + more), query), full, atol=1e-4, rtol=0)
    grown = extend(model, encode(model, memory), more)
    assert grown.ids == tuple(memory + more)
    assert_close(over(model, grown, query), full, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", COMPOSABLE)
def test_what_is_moved_into_place_is_what_would_have_been_encoded_there(name: str) -> None:
    """Another oracle than the examination's: no rotation and no mask, each piece is run where it stands."""
    model, head, pieces, query, apart, composed = in_pieces(name)
    placed = [
        encode(model, head + piece, start - len(head))
        for piece, start in zip(pieces, starts(apart, len(head)), strict=True)
    ]
    unmoved = compose(placed, len(head), Motion(((None, None),) * len(placed[0].layers)))
    assert composed.ids == unmoved.ids
    assert_close(over(model, composed, query), over(model, unmoved, query), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", COMPOSABLE)
def test_with_every_row_computed_anew_it_is_the_full_prefill(name: str) -> None:
    model, _, _, query, _, composed = in_pieces(name)
    with torch.inference_mode():
        inputs = renewal_inputs(model, composed, range(len(composed.ids)), query)
        anew = model(**inputs, use_cache=True).logits[0, -len(query) :]
    assert_close(anew, plain(model, [*composed.ids, *query], len(query)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", COMPOSABLE)
def test_the_measure_sees_a_piece_that_was_not_moved(name: str) -> None:
    model, head, _, query, apart, composed = in_pieces(name)
    still = compose(apart, len(head), Motion(((None, None),) * len(apart[0].layers)))
    assert (over(model, still, query) - over(model, composed, query)).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["llama, rope dynamic", "llama, rope longrope"])
def test_the_limit_is_where_a_prefix_stops_being_exact(name: str) -> None:
    model, can = examined(name)
    assert can.limit
    memory, query = texts(can.limit - 20, 60)
    kept = encode(model, memory)
    within = over(model, kept, query[:20])
    assert_close(within, plain(model, memory + query[:20], 20), atol=1e-4, rtol=0)
    assert (over(model, kept, query) - plain(model, memory + query, 60)).abs().max() > 1e-3


def test_a_model_that_fails_in_the_trial_is_refused_with_what_it_said() -> None:
    class Broken(type(tiny("llama"))):  # type: ignore[misc]
        def forward(self, *args: object, **kwargs: object) -> object:
            raise RuntimeError("no kernel for this device")

    model = tiny("llama")
    model.__class__ = Broken
    can = examine(model)
    assert not can.exact
    assert can.verdict == "refused: an exact prefix fails in llama: RuntimeError: no kernel for this device"


def test_a_model_that_forgets_its_cache_is_refused() -> None:
    """As merged caches do under current transformers: no error, and the answer of no memory at all."""

    class Forgetful(type(tiny("llama"))):  # type: ignore[misc]
        def forward(self, *args: object, past_key_values: object = None, **kwargs: object) -> object:
            if past_key_values is not None and past_key_values.get_seq_length():  # type: ignore[attr-defined]
                past_key_values = kwargs["attention_mask"] = None
            return super().forward(*args, past_key_values=past_key_values, **kwargs)

    model = tiny("llama")
    model.__class__ = Forgetful
    can = examine(model)
    assert not can.exact and "an exact prefix is not right in llama: logits differ by" in can.why


def test_a_wrong_turn_is_no_explanation() -> None:
    model, can = examined("llama")
    assert can.motion
    turn = can.motion.layers[0][0]
    assert turn
    wrong = replace(turn, frequencies=turn.frequencies * 1.01)
    keys = encode(model, texts(12)[0]).layers[0][0]
    there = encode(model, texts(12)[0], 40).layers[0][0]
    assert (turn.by(40, keys) - there).abs().max() < 1e-4 * there.abs().max()
    assert (wrong.by(40, keys) - there).abs().max() > 1e-2 * there.abs().max()


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma3", "mistral, sliding window", "glm4", "phi3"])
def test_folding_shared_heads_changes_nothing_but_rounding(name: str) -> None:
    stock, can = examined(name)
    folded = fold_shared_heads(tiny(name))
    assert folded.config._attn_implementation == "memos_sdpa"
    memory, query = texts(41, 9)
    kept = encode(stock, memory)
    assert_close(over(folded, kept, query), over(stock, kept, query), atol=1e-5, rtol=0)
    assert examine(folded).verdict == can.verdict


def test_folding_leaves_a_model_without_shared_heads_alone() -> None:
    assert fold_shared_heads(tiny("gpt-neox")).config._attn_implementation == "sdpa"


@pytest.mark.parametrize("masked", [float("-inf"), torch.finfo(torch.float32).min])
def test_masked_logits_do_not_hide_a_forgotten_cache(masked: float) -> None:
    class Forgetful(type(tiny("llama"))):  # type: ignore[misc]
        def forward(self, *args: object, past_key_values: object = None, **kwargs: object) -> object:
            if past_key_values is not None and past_key_values.get_seq_length():  # type: ignore[attr-defined]
                past_key_values = kwargs["attention_mask"] = None
            out = super().forward(*args, past_key_values=past_key_values, **kwargs)
            out.logits[..., -4:] = masked
            return out

    model = tiny("llama")
    model.__class__ = Forgetful
    assert not examine(model).exact


@pytest.mark.parametrize("name", ["mistral, sliding window", "gemma3", "mpt", "cohere2, layers without positions"])
def test_a_model_whose_window_counts_padding_is_not_batched(name: str) -> None:
    _, can = examined(name)
    assert can.exact and not can.batches
