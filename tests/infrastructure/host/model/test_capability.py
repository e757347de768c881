"""What a model's KV can be used for: one table over architectures, each row confirmed on logits by other means."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import AttentionInterface, PreTrainedModel

from memos.bench.architectures import ARCHITECTURES, tiny
from memos.bench.doctor import verdict_on
from memos.infrastructure.host.forward import Inputs, forward
from memos.infrastructure.host.kv.cache import Activation, encode
from memos.infrastructure.host.kv.compose import Motion, compose, extend, renewal_inputs, starts
from memos.infrastructure.host.model import load
from memos.infrastructure.host.model.capability import Capability, examine
from memos.infrastructure.host.model.load import fold_shared_heads

LEARNED = "in a way that is no rotation (learned positions?)"
STATE = "keeps a state, which holds behind its own text only"
# what is not composable, and a part of the reason that must be given
EXACT_ONLY = {
    "gpt2": LEARNED,
    "opt": LEARNED,
    "bloom": "composition fails in bloom",
    "mpt": "composition is not right in mpt",
    "falcon, alibi": "composition fails in falcon",
    "llama4, chunked attention": "composition is not right",
    "mamba2": STATE,
    "jamba, hybrid": STATE,
    "qwen3-next, hybrid": STATE,
}
REFUSED = {
    "recurrent-gemma": "returned no KV cache",
    "rwkv": "returned no KV cache",
}
LIMITED = {
    "llama, rope dynamic": 255,
    "llama, rope longrope": 128,
    "phi3, rope longrope": 128,
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
def over(model: Any, kept: Activation, ids: list[int]) -> torch.Tensor:
    """[tokens, vocabulary]: logits of the ids over KV."""
    n = len(kept.ids)
    inputs: Inputs = {
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.arange(n, n + len(ids))[None],
        "attention_mask": torch.ones(1, n + len(ids), dtype=torch.long),
        "past_key_values": kept.fork(),
    }
    return forward(model, inputs).logits[0]


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
    assert (EXACT_ONLY | REFUSED).get(name, "") in verdict_on(can)
    assert verdict_on(can).startswith(
        "composable" if name in COMPOSABLE else "exact" if name in EXACT_ONLY else "refused: "
    )


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in REFUSED])
def test_an_exact_prefix_is_exact_on_other_texts_too(name: str) -> None:
    model, _ = examined(name)
    memory, more, query = texts(41, 17, 9)
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
    right = over(model, unmoved, query)
    assert_close(over(model, composed, query), right, atol=1e-4 * max(1.0, float(right.abs().max())), rtol=0)


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


@pytest.mark.parametrize("name", ["mamba2", "jamba, hybrid", "qwen3-next, hybrid"])
def test_a_state_is_not_changed_by_what_is_read_after_it_and_is_never_cut(name: str) -> None:
    """A forward writes into the states that it is given."""
    model, can = examined(name)
    memory, query = texts(41, 9)
    kept = encode(model, memory)
    digest, first = kept.digest(), over(model, kept, query)
    assert can.states and kept.states and torch.equal(over(model, kept, query), first) and kept.digest() == digest
    for part in (kept.upto, kept.since):
        with pytest.raises(AssertionError):
            part(40)


def test_a_model_that_forgets_a_state_reads_one_token_after_the_other() -> None:
    """Jamba's forward over several tokens begins its recurrence anew: the logits were those of another text."""
    model, _ = examined("jamba, hybrid")
    memory, query = texts(41, 9)
    kept, full = encode(model, memory), plain(model, memory + query, len(query))

    class Wrapped:  # as a model under adapters is
        named_modules = model.named_modules

        def __call__(self, **inputs: object) -> object:
            return model(**inputs)

    for one in (model, Wrapped()):
        assert_close(over(one, kept, query), full, atol=1e-4, rtol=0)
    mask = torch.ones(1, 50, dtype=torch.long)
    at_once = model(input_ids=torch.tensor([query]), attention_mask=mask, past_key_values=kept.fork()).logits[0]
    assert (at_once - full).abs().max() > 0.1


def test_a_model_that_fails_in_the_trial_is_refused_with_what_it_said() -> None:
    class Broken(type(tiny("llama"))):  # type: ignore[misc]
        def forward(self, *args: object, **kwargs: object) -> object:
            raise RuntimeError("no kernel for this device")

    model = tiny("llama")
    model.__class__ = Broken
    can = examine(model)
    assert not can.exact
    assert verdict_on(can) == "refused: an exact prefix fails in llama: RuntimeError: no kernel for this device"


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


@pytest.mark.parametrize("dtype, within", [(torch.float32, 1e-6), (torch.bfloat16, 2e-4)])
def test_a_rotation_without_frequencies_of_its_own_is_told_from_longer_moves(dtype: torch.dtype, within: float) -> None:
    """GPT-J keeps a table of sines; its pairs lie side by side, in the first 8 of 16 dimensions."""
    can = examine(tiny("gpt-j").to(dtype))
    assert can.motion
    (turn, still) = can.motion.layers[-1]
    assert turn and turn.interleaved and turn.start == 0 and still is None
    told, right = turn.frequencies[:4], 10_000.0 ** (-torch.arange(0, 8, 2) / 8)
    assert_close(told, right, atol=within, rtol=0)
    assert not (turn.frequencies[4:].abs() > 1e-5).any()


@pytest.mark.parametrize("name", ["granite", "qwen2_moe", "gpt_oss"])
def test_rounding_hides_no_rotation(name: str) -> None:
    """In bf16 keys of later layers differ with position by more than a rotation explains; a router takes others."""
    assert examine(tiny(name).to(torch.bfloat16)).composable


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


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma3_text", "mistral, sliding window", "glm4", "phi3"])
def test_folding_shared_heads_changes_nothing_but_rounding(name: str) -> None:
    stock, can = examined(name)
    folded = fold_shared_heads(tiny(name))
    assert folded.config._attn_implementation == "sdpa"  # code that asks for the name goes the same way
    memory, query = texts(41, 9)
    kept = encode(stock, memory)
    assert_close(over(folded, kept, query), over(stock, kept, query), atol=1e-5, rtol=0)
    assert verdict_on(examine(folded)) == verdict_on(can)


def attends(module: torch.nn.Module, **more: object) -> torch.Tensor:
    """What the attention that is registered as sdpa gives on random tensors, with a mask."""
    draw = torch.Generator().manual_seed(5)
    query, key, value = (torch.randn(1, heads, n, 16, generator=draw) for heads, n in ((4, 3), (2, 7), (2, 7)))
    mask = torch.ones(1, 1, 3, 7, dtype=torch.bool).tril(4)
    return AttentionInterface()["sdpa"](module, query, key, value, mask, **more)[0]


def test_what_only_transformers_own_attention_heeds_is_left_to_it() -> None:
    """A bias by position was lost where there was a mask."""
    (attention,) = (m for n, m in fold_shared_heads(tiny("qwen2")).named_modules() if n == "model.layers.0.self_attn")
    stock = tiny("qwen2").model.layers[0].self_attn
    bias = torch.randn(1, 4, 3, 7, generator=torch.Generator().manual_seed(6))
    assert_close(attends(attention), attends(stock), atol=1e-6, rtol=0)
    assert_close(attends(attention, position_bias=bias), attends(stock, position_bias=bias), atol=1e-6, rtol=0)
    assert (attends(attention, position_bias=bias) - attends(attention)).abs().max() > 1e-2


def test_the_examination_compares_with_the_model_as_it_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in how shared heads are folded is in both forwards of a model that is compared with itself."""

    def faulty(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **rest: object) -> torch.Tensor:
        return torch.zeros(*query.shape[:-1], value.shape[-1])

    folded = fold_shared_heads(tiny("qwen2"))
    assert examine(folded).exact
    monkeypatch.setattr(load, "scaled_dot_product_attention", faulty)
    assert not examine(folded).exact


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


@pytest.mark.parametrize(
    "name",
    [
        "mistral, sliding window",
        "mistral, wide sliding window",
        "gemma3_text",
        "mpt",
        "cohere2, layers without positions",
        "llama4, chunked attention",
    ],
)
def test_a_model_whose_window_counts_padding_is_not_batched(name: str) -> None:
    _, can = examined(name)
    assert can.exact and not can.batches
