"""Answers: the same alone and in a batch, as transformers gives them, cut and streamed where they should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, PreTrainedConfig

from memos.bench.architectures import tiny
from memos.bench.batch import answer_all
from memos.config import DecodeConfig, DistilConfig, FidelityConfig, ModelConfig
from memos.errors import ContextOverflow
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import encode
from memos.infrastructure.host.model.capability import examine
from memos.infrastructure.host.model.decode import Decoder, DecodeRow, ModelAnswer, prefill_inputs
from memos.infrastructure.host.request import Request
from memos.plugins.training.student import fresh_adapter

MEMORIES = ("Mira: I live in Lisbon.", "Tom is a nurse.", "Nadia's pet is a grey cat.")
ASKED = ({"role": "user", "content": "Where does Mira live?"},)
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
RANDOM: dict[str, Callable[[int], PreTrainedConfig]] = {
    "llama": lambda v: LlamaConfig(
        vocab_size=v, hidden_size=32, intermediate_size=64, **SIZES, initializer_range=0.3, eos_token_id=5
    ),
    "gpt2": lambda v: GPT2Config(
        vocab_size=v, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.3, eos_token_id=5
    ),
}
ROOM = 128  # context of the reciting model


@pytest.fixture(scope="module", params=["small", *RANDOM])
def host(request: pytest.FixtureRequest, small: Host) -> Host:
    """The small model, and models that say something random at length."""
    if request.param == "small":
        return small
    torch.manual_seed(0)
    config = RANDOM[request.param](len(small.tokenizer))
    return Host(AutoModelForCausalLM.from_config(config).eval(), small.tokenizer)


@pytest.fixture(scope="module")
def reciting(small: Host) -> Callable[[str], Host]:
    """A host whose model answers ASKED with a given text, whatever it was trained on."""

    def build(text: str) -> Host:
        ids = [*small.prompts.ids(text), small.tokenizer.eos_token_id]
        asked = len(small.prompts.build((), ASKED))
        assert asked + len(ids) <= ROOM
        config = GPT2Config(
            vocab_size=len(small.tokenizer), n_embd=ROOM, n_positions=ROOM, n_layer=1, n_head=2, eos_token_id=5,
            tie_word_embeddings=False,
        )  # fmt: skip
        model = GPT2LMHeadModel(config).eval()
        with torch.no_grad():  # the position alone decides: its one-hot embedding reaches the head as it is
            for parameter in model.parameters():
                parameter.zero_()
            model.transformer.wpe.weight.copy_(torch.eye(ROOM))
            model.transformer.ln_f.weight.fill_(1)
            for n, token in enumerate(ids):
                model.lm_head.weight[token, asked - 1 + n] = 1
        return Host(model, small.tokenizer)

    return build


def stream(host: Host, request: Request, config: DecodeConfig) -> tuple[list[str], ModelAnswer]:
    pieces, running = [], host.stream(request, config)
    while True:
        try:
            pieces.append(next(running))
        except StopIteration as done:
            return pieces, done.value


# the same answers


def mixed(host: Host) -> list[Request]:
    """Requests of every kind: long and short, with and without memories and KV, KV of all and of some."""
    briefly = ({"role": "user", "content": "Who?"},)
    talk = (*ASKED, {"role": "assistant", "content": "In Lisbon."}, {"role": "user", "content": "And Tom?"})
    return [
        Request(ASKED, MEMORIES, (host.encode(MEMORIES),)),
        Request(briefly),
        Request(talk, MEMORIES, (host.encode(MEMORIES[:1]),)),
        Request(talk, MEMORIES),
        Request(briefly, MEMORIES[:1], (host.encode(MEMORIES[:1]),)),
        Request(ASKED),
    ]


@pytest.mark.parametrize("config", [DecodeConfig(max_new_tokens=12), DecodeConfig(max_new_tokens=12, temperature=1.5)])
def test_a_batch_gives_the_same_answers_as_one_by_one(host: Host, config: DecodeConfig) -> None:
    requests = mixed(host)
    alone = [host.answer(r, config) for r in requests]
    for order in (requests, requests[::-1], requests[:2], requests[1:2]):
        together = answer_all(host, order, config)
        expected = [alone[requests.index(r)] for r in order]
        assert [(c.ids, c.text) for c in together] == [(c.ids, c.text) for c in expected]
        assert [(c.prompt_tokens, c.past_tokens) for c in together] == [
            (c.prompt_tokens, c.past_tokens) for c in expected
        ]
    assert answer_all(host, []) == []


def test_padding_changes_no_logit(host: Host) -> None:
    rows = [host.row(r, DecodeConfig(max_new_tokens=1)) for r in mixed(host)]
    with torch.inference_mode():
        together = host.model(**prefill_inputs(host.model, rows, 0)[0]).logits[:, -1]
        alone = [host.model(**prefill_inputs(host.model, [row], 0)[0]).logits[0, -1] for row in rows]
    assert_close(together, torch.stack(alone), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "prompt", ["Mira lives in", "1 2 3 4", "- Tom is a nurse.\n- Tom now is a cook.\n", "你好"]
)  # fmt: skip
def test_greedy_answers_are_those_of_transformers(host: Host, prompt: str) -> None:
    asked = host.prompts.build((), [{"role": "user", "content": prompt}])
    for ids in (tuple(host.prompts.ids(prompt)), asked.tail):
        row = torch.tensor([ids], device=host.model.device)
        settings = {"do_sample": False, "max_new_tokens": 20, "pad_token_id": 0}
        reference = host.model.generate(row, attention_mask=torch.ones_like(row), **settings)[0, len(ids) :].tolist()
        [own] = host.decoder.complete(host.model, [DecodeRow(ids)], DecodeConfig(max_new_tokens=20))
        ended = reference[-1:] == [host.tokenizer.eos_token_id]
        assert list(own.ids) == (reference[:-1] if ended else reference)


def test_only_the_last_position_reaches_the_head(host: Host) -> None:
    """A prompt of a thousand tokens must not cost a thousand rows of the vocabulary."""
    requests, seen = mixed(host), list[tuple[int, ...]]()
    hook = host.model.lm_head.register_forward_hook(lambda module, given, out: seen.append(tuple(out.shape[:2])))
    answer_all(host, requests, DecodeConfig(max_new_tokens=4))
    hook.remove()
    assert set(seen) == {(len(requests), 1)}


# sampling


def test_a_seed_decides_what_is_sampled(host: Host) -> None:
    def sampled(seed: int) -> tuple[int, ...]:
        return host.answer(Request(ASKED), DecodeConfig(max_new_tokens=12, temperature=3.0, seed=seed)).ids

    answers = [sampled(seed) for seed in range(5)]
    assert [sampled(seed) for seed in range(5)] == answers
    assert len(set(answers)) >= 3


def test_a_tiny_top_p_is_greedy(host: Host) -> None:
    greedy = host.answer(Request(ASKED, MEMORIES))
    assert host.answer(Request(ASKED, MEMORIES), DecodeConfig(temperature=2.0, top_p=1e-6)).ids == greedy.ids


@pytest.mark.parametrize(
    "top_p, temperature, shares",
    [
        (1.0, 1.0, {0: 0.5, 1: 0.3, 2: 0.2}),
        (0.6, 1.0, {0: 0.625, 1: 0.375}),  # the first token that reaches top_p is kept
        (0.5, 1.0, {0: 1.0}),
        (1.0, 0.5, {0: 0.658, 1: 0.237, 2: 0.105}),  # p² over its sum
    ],
)
def test_tokens_are_drawn_by_their_probability(top_p: float, temperature: float, shares: dict[int, float]) -> None:
    logits, generator = torch.tensor([0.5, 0.3, 0.2]).log(), torch.Generator().manual_seed(0)
    config = DecodeConfig(top_p=top_p, temperature=temperature)
    drawn = Counter(Decoder.pick(logits, generator, config) for _ in range(4000))
    assert drawn.keys() == shares.keys()
    assert {token: n / 4000 for token, n in drawn.items()} == pytest.approx(shares, abs=0.03)


# where an answer ends


def test_the_reciting_model_recites(reciting: Callable[[str], Host]) -> None:
    answer = reciting(" Mira lives in Lisbon, and Tom in Bergen.").answer(Request(ASKED))
    assert answer.text == "Mira lives in Lisbon, and Tom in Bergen."
    assert answer.prompt_tokens == len(reciting("x").prompts.build((), ASKED))
    assert 0 < answer.ttft_s < answer.seconds


@pytest.mark.parametrize(
    "stop, text",
    [
        (("\n",), "Lisbon, I think."),
        (("I think",), "Lisbon,"),
        (("n, I t",), "Lisbo"),  # begins and ends within a token
        (("Tom", ", I"), "Lisbon"),  # the first to come, not the first in the list
        (("Lisbon",), ""),
        (("zorb",), "Lisbon, I think.\nTom lives in Bergen."),
    ],
)
def test_an_answer_ends_before_a_stop_string(reciting: Callable[[str], Host], stop: tuple[str, ...], text: str) -> None:
    host = reciting("Lisbon, I think.\nTom lives in Bergen.")
    config = DecodeConfig(stop=stop)
    answer = host.answer(Request(ASKED), config)
    pieces, streamed = stream(host, Request(ASKED), config)
    assert answer.text == text
    assert "".join(pieces).strip() == streamed.text == text
    assert not any(s in "".join(pieces) for s in stop)


def test_a_plain_prompt_ends_where_the_model_begins_to_ask_itself(small: Host, reciting: Callable[[str], Host]) -> None:
    plain = Host(small.model, small.tokenizer, ModelConfig(template="plain"))
    assert plain.decoder._stop == ("\nUser:",)
    answer = reciting("Lisbon.\nUser: And Tom?").answer(Request(ASKED), DecodeConfig(stop=plain.prompts.stop))
    assert answer.text == "Lisbon."


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_more_tokens_than_allowed(host: Host, most: int) -> None:
    for answer in answer_all(host, mixed(host), DecodeConfig(max_new_tokens=most)):
        assert len(answer.ids) <= most


def test_an_allowance_that_is_used_up_cuts_the_answer(reciting: Callable[[str], Host]) -> None:
    host = reciting("one two three four five")
    whole = host.answer(Request(ASKED)).ids
    assert [host.answer(Request(ASKED), DecodeConfig(max_new_tokens=n)).ids for n in (1, 3)] == [whole[:1], whole[:3]]


@pytest.mark.parametrize("with_kv", [False, True])
def test_a_prompt_over_the_context_is_refused_with_the_numbers(small: Host, with_kv: bool) -> None:
    memories = tuple(f"Mira owns {n} cats." for n in range(100))
    request = Request(ASKED, memories, (small.encode(memories),) if with_kv else ())
    prompt = len(small.prompts.build(memories, ASKED))
    context = small.model.config.max_position_embeddings
    room = context - prompt
    assert small.answer(request, DecodeConfig(max_new_tokens=room, stop=("",))).ids != ()
    said = f"{prompt} tokens of prompt and {room + 1} of answer do not fit the model's context of {context}; lower"
    with pytest.raises(ContextOverflow, match=said):
        small.answer(request, DecodeConfig(max_new_tokens=room + 1))
    with pytest.raises(ContextOverflow, match=said):  # one that does not fit is said before any is answered
        answer_all(small, [Request(ASKED), request], DecodeConfig(max_new_tokens=room + 1))


# piece by piece


@pytest.mark.parametrize(
    "text",
    ["Mira lives in Lisbon.", " né Ünïcödé, 北京 and 你好", "🐕‍🦺 a dog 🇵🇹, a flag", "\n two  spaces \n", "\ufffd x"],
)
def test_the_pieces_of_an_answer_join_to_the_whole(reciting: Callable[[str], Host], text: str) -> None:
    host = reciting(text)
    pieces, whole = stream(host, Request(ASKED), DecodeConfig())
    assert "".join(pieces).strip() == whole.text == text.strip()
    assert len(pieces) > 1 and "" not in pieces
    assert replace(whole, ttft_s=0, seconds=0) == replace(host.answer(Request(ASKED)), ttft_s=0, seconds=0)


def test_no_piece_is_half_a_character(reciting: Callable[[str], Host]) -> None:
    host = reciting("né 北京 🐕‍🦺")
    pieces, whole = stream(host, Request(ASKED), DecodeConfig())
    assert len(whole.ids) > len(whole.text)  # several tokens a character
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("most", range(1, 8))
def test_the_pieces_join_where_an_answer_is_cut(reciting: Callable[[str], Host], most: int) -> None:
    """Within a character, or where the beginning of a stop string was held back."""
    host = reciting("x北京, and")
    config = DecodeConfig(max_new_tokens=most, stop=(", and", "京, or"))
    pieces, whole = stream(host, Request(ASKED), config)
    assert "".join(pieces).strip() == whole.text == host.answer(Request(ASKED), config).text


def test_random_answers_join_too(host: Host) -> None:
    for seed in range(3):
        config = DecodeConfig(max_new_tokens=24, temperature=2.0, seed=seed, stop=("e", " a"))
        pieces, whole = stream(host, Request(ASKED), config)
        assert "".join(pieces).strip() == whole.text


# beams

QUESTIONS = ("Where does Mira live?", "What is Tom's job?", "What pet does Nadia have?", "Who plays the harp?")
RENEWED = {"L2": {"first_tokens": 1000}, "L3": {"first_tokens": 2, "share": 1.0}}  # so that nothing is left out


def over(host: Host, form: str, question: str) -> Request:
    """A question over all memories: as text, as one KV, or composed of one KV each at a level."""
    asked = Request(({"role": "user", "content": question},), MEMORIES)
    if form in ("text", "one KV"):
        return replace(asked, pasts=(host.encode(MEMORIES),) if form == "one KV" else ())
    fidelity = FidelityConfig.model_validate({"level": form, **RENEWED.get(form, {})})
    return replace(asked, pasts=tuple(host.encode([m]) for m in MEMORIES), fidelity=fidelity)


def by_transformers(
    decoder: Decoder, model: torch.nn.Module, ids: Sequence[int], config: DecodeConfig, **settings: object
) -> tuple[int, ...]:
    """The answer of `generate` to the ids, without the token that ended it."""
    row = torch.tensor([list(ids)], device=next(model.parameters()).device)
    settings |= {"num_beams": config.beams, "do_sample": False, "length_penalty": 1.0, "early_stopping": False}
    settings |= {"max_new_tokens": config.max_new_tokens, "eos_token_id": sorted(decoder.ends), "pad_token_id": 0}
    out = model.generate(input_ids=row, attention_mask=torch.ones_like(row), **settings)[0, len(ids) :].tolist()
    return tuple(out[:-1] if out[-1] in decoder.ends else out)


def full_prompt(host: Host, request: Request) -> tuple[int, ...]:
    prompt = host.prompts.build(request.memories, request.messages)
    return prompt.prefix + prompt.tail


@pytest.mark.parametrize("beams", [2, 4])
@pytest.mark.parametrize("form", ["text", "one KV", "L0"])
def test_beams_over_memory_answer_as_transformers_over_the_full_prompt(host: Host, form: str, beams: int) -> None:
    config = DecodeConfig(max_new_tokens=12, beams=beams)
    for question in QUESTIONS:
        request = over(host, form, question)
        before = [past.digest() for past in request.pasts]
        expected = by_transformers(host.decoder, host.model, full_prompt(host, request), config)
        assert host.answer(request, config).ids == expected
        assert [past.digest() for past in request.pasts] == before


@pytest.mark.parametrize("host", ["small", "llama"], indirect=True)
@pytest.mark.parametrize("level", RENEWED)
def test_beams_go_on_from_rows_computed_anew(host: Host, level: str) -> None:
    config = DecodeConfig(max_new_tokens=12, beams=3)
    request = over(host, level, QUESTIONS[0])
    before = [past.digest() for past in request.pasts]
    assert host.row(request, config).renewed
    expected = by_transformers(host.decoder, host.model, full_prompt(host, request), config)
    assert host.answer(request, config).ids == expected
    assert [past.digest() for past in request.pasts] == before


@pytest.mark.parametrize("host", ["small", "llama"], indirect=True)
def test_beams_over_a_composed_cache_answer_as_transformers_over_it(host: Host) -> None:
    """At L1 the full prompt is no reference: the cache itself differs from it."""
    config = DecodeConfig(max_new_tokens=12, beams=3)
    request = over(host, "L1", QUESTIONS[0])
    held = host.row(request, config).past
    assert held
    cache = held.fork()
    cache.batch_repeat_interleave(config.beams)
    expected = by_transformers(host.decoder, host.model, full_prompt(host, request), config, past_key_values=cache)
    assert host.answer(request, config).ids == expected


@pytest.mark.parametrize("host", ["small", "llama"], indirect=True)
def test_beams_under_an_adapter_are_the_adapted_models(host: Host, tmp_path: Path) -> None:
    config = DecodeConfig(max_new_tokens=12, beams=3)
    student = fresh_adapter(lora.twin(host.model), DistilConfig(rank=4, targets="all-linear"))
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.normal(0.0, 0.5, parameter.shape, generator=torch.Generator().manual_seed(0)))
    lora.save_adapter(student, tmp_path, {"fingerprint": host.fingerprint})
    request = Request(ASKED, adapters=(tmp_path,))
    adapted = PeftModel.from_pretrained(lora.twin(host.model), str(tmp_path)).eval()
    expected = by_transformers(host.decoder, adapted, full_prompt(host, request), config)
    assert host.answer(request, config).ids == expected != host.answer(Request(ASKED), config).ids


@pytest.mark.parametrize("beams", [2, 3, 4])
def test_a_search_ends_where_that_of_transformers_does(small: Host, beams: int) -> None:
    """Models of few tokens, two of which end an answer: beams end early, late, and not at all."""
    lengths, better = Counter[int](), 0
    for seed in range(25):
        torch.manual_seed(seed)
        config = GPT2Config(
            vocab_size=16, n_embd=16, n_layer=1, n_head=2, n_positions=32, initializer_range=0.3, eos_token_id=[3, 5]
        )
        model = GPT2LMHeadModel(config).eval()
        decoder, decode = Decoder(small.tokenizer, model), DecodeConfig(max_new_tokens=10, beams=beams)
        [own] = decoder.complete(model, [DecodeRow((4, 6, 7))], decode)
        assert own.ids == by_transformers(decoder, model, (4, 6, 7), decode)
        [greedy] = decoder.complete(model, [DecodeRow((4, 6, 7))], DecodeConfig(max_new_tokens=10))
        lengths[len(own.ids)] += 1
        better += own.ids != greedy.ids
    assert lengths[10] and len(lengths) >= 4 and better >= 5  # else a search that does nothing would pass


@pytest.mark.parametrize(
    "name", ["mistral, sliding window", "gemma3_text", "cohere2, layers without positions", "jamba, hybrid"]
)
def test_beams_on_layers_that_forget(small: Host, name: str) -> None:
    """A prompt longer than the sliding window, as text and over KV of its beginning, or a state."""
    model, config = tiny(name), DecodeConfig(max_new_tokens=12, beams=3)
    if "hybrid" in name:
        examine(model)  # finds that it forgets its state where it reads several tokens after it
    decoder = Decoder(small.tokenizer, model)
    ids = tuple(torch.randint(3, 300, (40,), generator=torch.Generator().manual_seed(0)).tolist())
    expected = by_transformers(decoder, model, ids, config)
    for row in (DecodeRow(ids), DecodeRow(ids[25:], encode(model, ids[:25]))):
        assert decoder.complete(model, [row], config)[0].ids == expected


@pytest.mark.parametrize("name, beams", [("rwkv", 1), ("mamba2", 1), ("mamba2", 3)])
def test_a_model_without_a_cache_reads_the_whole_text_for_each_token(
    small: Host, name: str, beams: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Slow, and as transformers answers, which keeps the states of this one. Mamba's cache has another name."""
    model = tiny(name, vocabulary=len(small.tokenizer))
    decoder, config = Decoder(small.tokenizer, model), DecodeConfig(max_new_tokens=6, beams=beams)
    rows = [DecodeRow((70, 80, 90, 100)), DecodeRow((300, 400, 500, 600))]
    said = [decoder.complete(model, [row], config)[0].ids for row in rows]
    assert said == [by_transformers(decoder, model, row.ids, config) for row in rows]
    assert [answer.ids for answer in decoder.complete(model, rows, config)] == said
    warned = [m for m in caplog.messages if f"{name} does not go on from its own cache" in m]
    assert caplog.messages == warned and len(warned) == (name == "rwkv")


@pytest.mark.parametrize("beams", [1, 3])
def test_an_answer_across_the_limit_of_its_positions_is_read_anew(small: Host, beams: int) -> None:
    """Longrope turns all positions otherwise from the 129th token on, those that are in the cache too."""
    host = Host(tiny("llama, rope longrope", vocabulary=len(small.tokenizer)), small.tokenizer)
    assert host.decoder.limit and host.decoder.limit.tokens == 128
    config = DecodeConfig(max_new_tokens=12, beams=beams)
    ids = tuple(torch.randint(300, 2000, (122,), generator=torch.Generator().manual_seed(1)).tolist())
    kept = encode(host.model, ids[:100])
    rows = [DecodeRow(ids), DecodeRow(ids[100:], kept), DecodeRow(ids[:30])]
    assert [host.decoder.crosses(row, 12) for row in rows] == [True, True, False]
    right = [greedy_by_whole_texts(host, ids, 12), greedy_by_whole_texts(host, ids[:30], 12)]
    done = [answer.ids for answer in host.complete(rows, config)]
    assert done[0] == done[1]
    if beams == 1:
        assert done == [right[0], right[0], right[1]]
    else:
        assert probability(host, ids, done[0]) >= probability(host, ids, right[0])


@torch.inference_mode()
def greedy_by_whole_texts(host: Host, ids: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    """The oracle: a plain forward of the whole text for each token."""
    out = list(ids)
    for _ in range(tokens):
        best = int(host.model(input_ids=torch.tensor([out]), use_cache=False).logits[0, -1].argmax())
        if best in host.decoder.ends:
            break
        out.append(best)
    return tuple(out[len(ids) :])


@torch.inference_mode()
def probability(host: Host, ids: tuple[int, ...], answer: tuple[int, ...]) -> float:
    """Its logarithm, with a plain forward of the whole text for each token."""
    total = 0.0
    for n, token in enumerate(answer):
        logits = host.model(input_ids=torch.tensor([[*ids, *answer[:n]]]), use_cache=False).logits[0, -1]
        total += float(torch.log_softmax(logits, -1)[token])
    return total


def test_a_batch_of_beams_gives_the_same_answers_as_one_by_one(host: Host) -> None:
    requests, config = [*mixed(host), over(host, "L0", QUESTIONS[1])], DecodeConfig(max_new_tokens=12, beams=3)
    alone = [host.answer(request, config).ids for request in requests]
    for order in (requests, requests[::-1], requests[:2]):
        assert [c.ids for c in answer_all(host, order, config)] == [alone[requests.index(r)] for r in order]


@pytest.mark.parametrize("stop", [("e",), (" a", "or"), ("zorb",)])
def test_a_beam_ends_at_a_stop_string(host: Host, stop: tuple[str, ...]) -> None:
    config = DecodeConfig(max_new_tokens=12, beams=3, stop=stop)
    pieces, answer = stream(host, Request(ASKED), config)
    assert not any(s in answer.text for s in stop)
    assert pieces == [] or (len(pieces) == 1 and pieces[0].strip() == answer.text)
    settings = {"stop_strings": list(stop), "tokenizer": host.tokenizer}
    prompt = full_prompt(host, Request(ASKED))
    assert answer.ids == by_transformers(host.decoder, host.model, prompt, config, **settings)


def test_a_searched_answer_comes_in_one_piece_with_its_costs(reciting: Callable[[str], Host]) -> None:
    host, config = reciting(" Mira lives in Lisbon, and Tom in Bergen."), DecodeConfig(beams=3)
    pieces, answer = stream(host, Request(ASKED), config)
    assert pieces == [" Mira lives in Lisbon, and Tom in Bergen."]
    assert answer.text == pieces[0].strip()
    assert 0 < answer.ttft_s < answer.seconds
    greedy = host.answer(Request(ASKED))
    assert replace(answer, ttft_s=0, seconds=0) == replace(greedy, ttft_s=0, seconds=0)


@pytest.mark.parametrize("most", [1, 3])
def test_beams_keep_to_the_allowance_and_the_context(host: Host, most: int) -> None:
    config = DecodeConfig(max_new_tokens=most, beams=4)
    for answer in answer_all(host, mixed(host), config):
        assert len(answer.ids) <= most
    context = host.decoder.context
    assert context
    with pytest.raises(ContextOverflow, match="do not fit the model's context"):
        host.answer(Request(ASKED), DecodeConfig(max_new_tokens=context, beams=4))
