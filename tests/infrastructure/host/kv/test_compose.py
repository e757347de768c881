"""Several KV caches in front of one question: right at every level, and unchanged by use."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from memos.bench.architectures import tiny
from memos.bench.batch import answer_all
from memos.config import DecodeConfig, FidelityConfig
from memos.errors import ContextOverflow, FingerprintMismatch, Unsupported
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation, Layer, encode
from memos.infrastructure.host.kv.compose import PrefixTree, compose, extend, first_rows, in_dtype, starts
from memos.infrastructure.host.kv_rows import KVRows
from memos.infrastructure.host.request import Request
from memos.plugins.packs.tensors import says_the_same

CUBES = (
    ("Mira: I live in Lisbon.", "Tom is a nurse."),
    ("Nadia's pet is a grey cat.",),
    ("Mira: I drink tea.", "Tom: My sister is Eva.", "Tom plays the harp."),
)
LINES = tuple(line for cube in CUBES for line in cube)
ASKED = ({"role": "user", "content": "What does Mira drink?"},)
LEVELS = ("L0", "L1", "L2", "L3", "L4")


def composed(host: Host, level: str, later: tuple[str, ...] = (), **settings: float) -> Request:
    """The cubes in order, each as KV, and `later` as text after them."""
    fidelity = FidelityConfig.model_validate({"level": level, **settings})
    return Request(ASKED, (*LINES, *later), tuple(host.encode(cube) for cube in CUBES), fidelity=fidelity)


def as_text(request: Request) -> Request:
    return replace(request, pasts=())


@pytest.mark.parametrize("later", [(), ("Nadia lives in Oslo.",)])
@pytest.mark.parametrize(
    "level, settings, within",
    [
        ("L0", {}, 1e-4),
        ("L2", {"first_tokens": 1000}, 1e-5),
        ("L3", {"first_tokens": 0, "share": 1.0}, 1e-5),
        ("L3", {"first_tokens": 3, "share": 1.0}, 1e-5),
        ("L4", {}, 0.0),
    ],
)
def test_a_level_that_leaves_nothing_out_is_the_full_prompt(
    host: Host, level: str, settings: dict[str, float], within: float, later: tuple[str, ...]
) -> None:
    request = composed(host, level, later, **settings)
    over_kv, full = host.logits(request), host.logits(as_text(request))
    # this model's logits are in the twenties, where 1e-5 is five units in the last place of fp32; a GPU sums in another
    # order for each length
    assert (over_kv - full).abs().max() <= within * full.abs().max() / (10 if host.model.device.type == "cpu" else 4)
    assert host.answer(request).ids == host.answer(as_text(request)).ids


def doubled(host: Host, kv: Activation) -> Activation:
    """The same with every row behind the head twice, at half its weight."""
    head, layers = len(host.head), list[Layer]()
    for layer in kv.layers:
        keys, values = (torch.cat([t[..., :head, :], t[..., head:, :].repeat_interleave(2, -2)], -2) for t in layer)
        weights = torch.zeros(*keys.shape[:-1], 1, device=keys.device)
        weights[..., head:, :] = -math.log(2)
        layers.append((keys, values, weights))
    return replace(kv, layers=tuple(layers), trained=layers[0][0].shape[-2], weighted=True)


@pytest.mark.parametrize("places", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_rows_that_stand_for_others_are_composed_by_their_weights(host: Host, places: tuple[int, ...]) -> None:
    request = composed(host, "L1", ("Nadia lives in Oslo.",))
    pasts = [doubled(host, past) if n in places else past for n, past in enumerate(request.pasts)]
    weighted, plain = replace(request, pasts=tuple(pasts)), host.logits(request)
    assert (host.logits(weighted) - plain).abs().max() <= 1e-5 * plain.abs().max()
    assert host.answer(weighted).ids == host.answer(request).ids
    for level in ("L0", "L2", "L3"):
        with pytest.raises(Unsupported, match=r"compact, set fidelity\.level to L1"):
            host.logits(replace(weighted, fidelity=FidelityConfig.model_validate({"level": level})))


def test_each_level_is_nearer_to_the_full_prompt(host: Host) -> None:
    kl = {level: host.nearness(composed(host, level, first_tokens=4, share=0.3)).kl for level in LEVELS}
    assert kl["L1"] > kl["L3"] > kl["L4"] == 0
    assert kl["L0"] < 1e-8 < kl["L1"]


@pytest.mark.parametrize("level", LEVELS)
def test_use_changes_no_cache(host: Host, level: str) -> None:
    request = composed(host, level)
    before = [past.digest() for past in request.pasts]
    answers = {host.answer(request).ids for _ in range(5)}
    assert len(answers) == 1
    assert [past.digest() for past in request.pasts] == before


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_batch_answers_as_one_by_one(host: Host, level: str, temperature: float) -> None:
    config = DecodeConfig(max_new_tokens=8, temperature=temperature, seed=3)
    many = [
        composed(host, level),
        Request(ASKED),
        composed(host, level, ("Nadia lives in Oslo.",)),
        composed(host, "L1"),
    ]
    together = [done.ids for done in answer_all(host, many, config)]
    assert together == [host.answer(request, config).ids for request in many]


def test_what_went_through_the_model_is_counted(host: Host) -> None:
    request = composed(host, "L2", first_tokens=3)
    full = host.answer(as_text(request))
    done = host.answer(request)
    assert done.prompt_tokens + done.past_tokens == full.prompt_tokens
    memory = len(host.prompts.prefix(LINES))
    assert done.prompt_tokens == full.prompt_tokens - memory + 3 * 2


def test_the_first_tokens_of_later_pieces_are_rows_of_the_composition() -> None:
    pieces = [Activation(tuple(range(n)), ()) for n in (7, 6, 4)]
    assert starts(pieces, 3) == [3, 7, 10]
    assert first_rows(pieces, 3, 2) == (7, 8, 10)
    assert first_rows(pieces, 3, 0) == ()


def test_the_order_of_the_caches_is_that_of_the_memories(host: Host) -> None:
    request = composed(host, "L1")
    with pytest.raises(FingerprintMismatch, match="encoded from other memories"):
        host.logits(replace(request, pasts=request.pasts[::-1]))


def test_a_cache_with_another_beginning_is_refused(host: Host) -> None:
    request = composed(host, "L1")
    foreign = replace(request.pasts[1], ids=(5, *request.pasts[1].ids[1:]))
    with pytest.raises(FingerprintMismatch, match="encoded from other memories"):
        host.logits(replace(request, pasts=(request.pasts[0], foreign, request.pasts[2])))


def test_a_model_that_cannot_compose_still_reads_an_exact_prefix(host: Host) -> None:
    model = tiny("gpt2")
    model.resize_token_embeddings(len(host.tokenizer), mean_resizing=False)
    other = Host(model, host.tokenizer)
    request = composed(other, "L0")
    assert_close(other.logits(request), other.logits(as_text(request)), atol=1e-4, rtol=0)
    with pytest.raises(Unsupported, match="L1 is not possible on gpt2: .*set fidelity.level to L0 or L4"):
        other.logits(composed(other, "L1"))


def test_a_prompt_past_the_limit_of_a_rope_is_refused(host: Host) -> None:
    model = tiny("llama, rope longrope")
    model.resize_token_embeddings(len(host.tokenizer), mean_resizing=False)
    other = Host(model, host.tokenizer)
    memories = tuple(f"Mira owns {n} cats." for n in range(14))
    request = Request(ASKED, memories, (other.encode(memories[:2]),))
    with pytest.raises(Unsupported, match=r"the prompt has \d+ tokens, and KV of llama is right up to 128 tokens"):
        other.answer(request)
    assert other.answer(as_text(request), DecodeConfig(max_new_tokens=1)).ids is not None


# the prefixes that are kept


def piece(host: Host, *lines: str) -> tuple[int, ...]:
    return tuple(i for line in lines for i in host.prompts.line(line))


def test_what_is_read_after_a_cache_has_a_mask_over_both() -> None:
    """Some models (Moshi before transformers 5.20) see nothing of their cache without one."""

    class Unmasked(type(tiny("llama"))):  # type: ignore[misc]
        def forward(self, *args: object, attention_mask: object = None, **kwargs: object) -> object:
            past = kwargs.get("past_key_values")
            if attention_mask is None and past is not None and past.get_seq_length():  # type: ignore[attr-defined]
                raise AssertionError("no mask")
            return super().forward(*args, attention_mask=attention_mask, **kwargs)

    model = tiny("llama")
    first, whole = (encode(model, tuple(range(10, end))) for end in (20, 30))
    model.__class__ = Unmasked
    assert says_the_same(extend(model, first, range(20, 30)), whole)


def test_a_kept_prefix_serves_every_beginning_of_its_path(host: Host) -> None:
    tree = PrefixTree(limit=1 << 30)
    first = host.encode(CUBES[0])
    path = (first.ids, piece(host, *CUBES[1]), piece(host, *CUBES[2]))
    whole = extend(host.model, first, [*path[1], *path[2]])
    tree.keep(path, first, [len(first.ids), len(first.ids) + len(path[1]), len(whole.ids)], whole)
    n, held = tree.longest((*path[:2], (1, 2, 3)), first)
    assert held and n == 2
    assert held.ids == whole.ids[: len(first.ids) + len(path[1])]
    assert held.layers[0][0].data_ptr() == whole.layers[0][0].data_ptr()  # a view, not a copy
    assert tree.longest(((1, 2), path[1]), first) == (0, None)
    assert tree.longest(path, host.encode(CUBES[0])) == (0, None)  # the same ids are not the same KV


def test_the_least_recently_used_prefix_leaves_when_room_is_short(host: Host) -> None:
    a, b, c = (host.encode(cube) for cube in CUBES)
    tree = PrefixTree(limit=a.bytes + c.bytes)
    for past in (a, b):
        tree.keep((past.ids,), past, [len(past.ids)], past)
    tree.longest((a.ids,), a)
    tree.keep((c.ids,), c, [len(c.ids)], c)
    assert [tree.longest((past.ids,), past)[0] for past in (a, b, c)] == [1, 0, 1]


def test_a_second_question_encodes_nothing_anew(host: Host) -> None:
    host.release()
    request = composed(host, "L0")
    host.answer(request)
    calls = list[int]()
    hook = host.model.register_forward_pre_hook(
        lambda module, args, kwargs: calls.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        host.answer(request, DecodeConfig(max_new_tokens=1))
    finally:
        hook.remove()
    prompt = host.prompts.build(request.memories, request.messages)
    assert calls == [len(prompt.tail)]


def test_composition_equals_what_naive_concatenation_is_not(host: Host) -> None:
    pasts = [host.encode(cube) for cube in CUBES]
    assert host.capability.motion
    moved = compose(pasts, len(host.head), host.capability.motion)
    keys = torch.cat([past.layers[0][0][..., 0 if n == 0 else len(host.head) :, :] for n, past in enumerate(pasts)], -2)
    assert moved.layers[0][0].shape == keys.shape
    assert (moved.layers[0][0] - keys).abs().max() > 1e-2
    assert_close(
        moved.layers[0][1],
        torch.cat([past.layers[0][1][..., 0 if n == 0 else len(host.head) :, :] for n, past in enumerate(pasts)], -2),
    )


# what must not go wrong in silence


def on(name: str, host: Host) -> Host:
    """A tiny random model of this architecture, with the small model's tokenizer."""
    model = tiny(name)
    model.resize_token_embeddings(len(host.tokenizer), mean_resizing=False)
    return Host(model, host.tokenizer)


def test_l0_does_not_answer_with_the_kv_of_another_file(host: Host, tmp_path: Path) -> None:
    request = composed(host, "L0")
    host.save_kv(request.pasts[0], tmp_path / "coarse", "int4")
    coarse = host.load_kv(tmp_path / "coarse")
    host.logits(replace(request, pasts=(coarse, *request.pasts[1:])))
    assert host.nearness(request).max_abs_logit_diff <= 1e-4


@pytest.mark.parametrize("name", ["mistral, sliding window", "gemma2", "gemma3_text", "mpt", "llama", "falcon, alibi"])
def test_caches_before_questions_of_different_lengths_answer_as_alone(host: Host, name: str) -> None:
    other = on(name, host)
    longer = ({"role": "user", "content": "What does Mira drink when it is cold and dark outside?"},)
    past = (other.encode(LINES),)
    many = [Request(ASKED, LINES, past), Request(longer, LINES, past), Request(longer, LINES)]
    config = DecodeConfig(max_new_tokens=6)
    assert [d.ids for d in answer_all(other, many, config)] == [other.answer(r, config).ids for r in many]


def test_a_long_text_does_not_change_how_caches_are_moved(host: Host) -> None:
    other = on("llama, rope longrope", host)
    cubes = (LINES[:1], LINES[1:2])
    fidelity = FidelityConfig(level="L1")
    request = Request(ASKED, LINES[:2], tuple(other.encode(cube) for cube in cubes), fidelity=fidelity)
    before = other.logits(request)
    other.logits(Request(ASKED, LINES * 4))  # past the limit, as text
    assert torch.equal(other.logits(request), before)


def test_a_prompt_over_the_context_is_refused_before_a_cache_is_made_longer(host: Host) -> None:
    other = on("gpt2", host)  # where a position over the context is an IndexError
    cubes = [tuple(f"Mira owns {n} cats." for n in range(m, m + 8)) for m in (0, 8, 16, 24)]
    request = Request(ASKED, sum(cubes, ()), tuple(other.encode(cube) for cube in cubes))
    with pytest.raises(ContextOverflow, match="do not fit the model's context of 256"):
        other.answer(request)


def test_kv_moved_beyond_where_that_was_tried_is_refused(host: Host) -> None:
    request = composed(host, "L3")
    near = replace(host.capability, motion_limit=40)
    other = Host(host.model, host.tokenizer)
    other._kv_rows = KVRows(other.model, lambda: near, lambda: other.head)
    with pytest.raises(
        Unsupported, match="KV of llama can be moved within 40 tokens, and the prompt has .* to L0 or L4"
    ):
        other.logits(request)
    assert_close(other.logits(composed(host, "L0")), host.logits(as_text(request)), atol=1e-3, rtol=0)


def test_rows_are_computed_anew_beyond_a_window_too(host: Host) -> None:
    """The window is wider than the texts of the examination, and narrower than this prompt."""
    other = on("mistral, wide sliding window", host)
    cubes = [tuple(f"Mira owns {n} cats." for n in range(m, m + 6)) for m in (0, 6, 12)]
    every = FidelityConfig(level="L3", share=1.0)
    request = Request(ASKED, sum(cubes, ()), tuple(other.encode(cube) for cube in cubes), fidelity=every)
    assert len(other.prompts.build(request.memories, ASKED)) > 130
    full = other.logits(as_text(request))
    assert_close(other.logits(request), full, atol=1e-4 * max(1.0, float(full.abs().max())), rtol=0)


def test_threads_do_not_swap_text_and_control_tokens(host: Host) -> None:
    memories = ("Mira says <|end|><|user|> often.",) * 4
    right = host.prompts.build(memories, ASKED)
    with ThreadPoolExecutor(8) as pool:
        built = list(pool.map(lambda _: host.prompts.build(memories, ASKED), range(400)))
    assert all(prompt == right for prompt in built)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_each_drift_of_8_bits_is_what_it_says(dtype: torch.dtype) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    finite = every[every.float().isfinite()]
    assert_close(in_dtype(finite, dtype), finite.to(dtype), atol=0, rtol=0)
