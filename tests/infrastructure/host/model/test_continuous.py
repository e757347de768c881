"""Answers that share forwards: the same as one by one, whoever joins or leaves."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from memos.bench.architectures import tiny
from memos.bench.scenes import scene
from memos.config import DecodeConfig, FidelityConfig, ModelConfig
from memos.errors import CorruptBlob, MemosError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation, Arriving, encode
from memos.infrastructure.host.model import continuous
from memos.infrastructure.host.model.continuous import STEP_TOKENS, ContinuousBatch, packs
from memos.infrastructure.host.model.decode import DecodeRow, ModelAnswer, drained
from memos.infrastructure.host.model.packed import PackedText, Pages, packed_forward
from memos.infrastructure.host.request import Request
from tests.infrastructure.host.adapters.test_serving import random_adapter

# peft's use of transformers
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
PACKED = [
    *("llama", "qwen2", "qwen3", "qwen3-moe", "mistral, sliding window", "gemma3_text", "phi3", "gpt-neox", "gpt2"),
    *("glm4", "cohere2, layers without positions"),
]
ALONE = [  # llama4_text has chunks wider than a trial
    "gemma2",
    "gpt-j",
    "bloom",
    "falcon, alibi",
    "llama4, chunked attention",
    "llama4_text",
    "mamba2",
    "deepseek-v3, latent attention",
]


@pytest.mark.parametrize("name", PACKED)
def test_texts_share_a_forward_where_that_gives_what_each_gives_alone(name: str) -> None:
    assert packs(tiny(name))


@pytest.mark.parametrize("name", ALONE)
def test_where_it_does_not_requests_go_one_at_a_time(name: str, small: Host) -> None:
    host = Host(tiny(name, vocabulary=2048), small.tokenizer)
    assert not packs(host.model)
    request = Request(({"role": "user", "content": "Where?"},))
    asked = DecodeConfig(max_new_tokens=3)
    assert host.answer(request, asked).ids == alone(host, request, asked).ids


def test_a_fault_in_how_texts_are_told_apart_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Pages.where
    monkeypatch.setattr(Pages, "where", lambda self, new, device: real(self, new, device).flip(0))
    assert not packs(tiny("llama"))


def test_logits_are_those_of_the_whole_text_in_pieces_and_over_shared_kv(small: Host) -> None:
    model, draw = small.model, torch.Generator().manual_seed(2)
    ids = torch.randint(10, 2000, (400,), generator=draw).tolist()
    long, short = encode(model, ids[:350]), encode(model, ids[:9])  # merged, and moved
    begun: list[tuple[Activation | None, list[int]]] = [
        (long, ids[:350]),
        (long, ids[:350]),
        (short, ids[:9]),
        (None, []),
        (encode(model, ids[:350]), ids[:350]),  # moved, as nobody else has it
    ]
    pages, texts = Pages(), [PackedText(past, private=n == 4) for n, (past, _) in enumerate(begun)]
    for step in ((3, 1, 20, 40, 8), (1, 1, 1, 1, 1), (7, 1, 1, 30, 1), (1, 1, 1, 1, 6)):
        new = [torch.randint(10, 2000, (n,), generator=draw).tolist() for n in step]
        with torch.inference_mode():
            logits = packed_forward(model, pages, texts, new)
            for (_, whole), more, mine in zip(begun, new, logits, strict=True):
                whole += more if whole is not ids else []
                plain = model(input_ids=torch.tensor([whole])).logits[0, -1]
                torch.testing.assert_close(mine, plain, atol=1e-4, rtol=0)


# -- requests -------------------------------------------------------------------------------------------------


def alone(host: Host, request: Request, decode: DecodeConfig) -> ModelAnswer:
    """The oracle: decoded in a batch of its own."""
    row = host.row(request, decode, alone=True)
    return host.decoder.complete(host.model_under([request.adapters]), [row], decode)[0]


def mixes(host: Host, folder: Path, draw: random.Random) -> Callable[[], tuple[Request, DecodeConfig]]:
    """Draws requests of every kind: text, KV, its own or shared, at any fidelity, adapters; sampled, or of a schema."""
    drawn = [scene(f"mix {n}", 3, 4) for n in range(4)]
    kvs = {cube: host.encode(cube) for one in drawn for cube in one.cubes}
    adapters = [random_adapter(host, folder / f"a{n}", n) for n in range(3)]

    def one() -> tuple[Request, DecodeConfig]:
        about = draw.choice(drawn)
        cubes = draw.sample(about.cubes, draw.randint(1, 3))
        asked = Request(
            ({"role": "user", "content": draw.choice(about.one).question},), tuple(t for c in cubes for t in c)
        )
        match draw.randint(0, 5):
            case 1:
                asked = replace(asked, pasts=(kvs[cubes[0]],))
            case 2:
                level = draw.choice(("L0", "L1", "L2", "L3"))
                asked = replace(asked, pasts=tuple(kvs[c] for c in cubes), fidelity=FidelityConfig(level=level))
            case 3:
                asked = replace(asked, adapters=tuple(draw.sample(adapters, draw.randint(1, 2))))
            case 4:
                asked = replace(asked, keep=True)
        decode = DecodeConfig(max_new_tokens=draw.choice((1, 4, 12)), seed=draw.randint(0, 9))
        match draw.randint(0, 5):
            case 1:
                decode = decode.model_copy(update={"temperature": 0.8, "top_p": 0.9})
            case 2:
                decode = decode.model_copy(update={"stop": ("a",)})
            case 3:
                schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
                decode = decode.model_copy(update={"json_schema": schema, "max_new_tokens": 24})
            case 4:
                decode = decode.model_copy(update={"beams": 2})
        return asked, decode

    return one


def differing(
    host: Host, folder: Path, requests: int, seed: int, at_once: int = 24
) -> list[tuple[Request, DecodeConfig]]:
    """Requests, of so many that come from many threads at odd times, whose answers are not those of one by one."""
    draw = random.Random(seed)
    one = mixes(host, folder, draw)
    asked = [one() for _ in range(requests)]
    with ThreadPoolExecutor(at_once) as threads:
        together = list(threads.map(lambda pair: host.answer(*pair), asked))
    right = [alone(host, *pair) for pair in asked]
    same = [(a.ids, a.text, a.kv and a.kv.ids) for a in right]
    return [pair for pair, a, b in zip(asked, together, same, strict=True) if (a.ids, a.text, a.kv and a.kv.ids) != b]


def test_answers_are_those_of_one_by_one_in_any_mix(small: Host, tmp_path: Path) -> None:
    assert differing(small, tmp_path, 60, 1) == []


@pytest.mark.slow
def test_answers_are_those_of_one_by_one_in_ten_thousand_mixes(small: Host, tmp_path: Path) -> None:
    for n in range(100):
        assert differing(small, tmp_path / str(n), 100, n) == []


def test_kv_that_is_kept_is_that_of_the_whole_text(small: Host) -> None:
    request = Request(({"role": "user", "content": "Where does Mira live?"},), ("Mira lives in Lisbon.",), keep=True)
    kv = small.answer(request).kv
    assert kv
    plain = encode(small.model, kv.ids)
    for mine, right in zip(kv.layers, plain.layers, strict=True):
        for one, other in zip(mine, right, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=0)


def questions(n: int) -> list[Request]:
    return [Request(({"role": "user", "content": f"Where does number {i} live?"},)) for i in range(n)]


def endless(host: Host) -> Host:
    """A host of the same model whose answers go on to their bound."""
    other = Host(host.model, host.tokenizer, ModelConfig(requests_at_once=4))
    other.decoder.ends = set()
    return other


def test_an_answer_that_nobody_waits_for_leaves_and_the_others_go_on(small: Host) -> None:
    host, decode = endless(small), DecodeConfig(max_new_tokens=40)
    first, *others = questions(3)
    left = host.stream(first, DecodeConfig(max_new_tokens=1500))
    next(left)
    with ThreadPoolExecutor(2) as threads:
        answers = threads.map(lambda one: host.answer(one, decode), others)
        left.close()
        assert [a.ids for a in answers] == [alone(host, one, decode).ids for one in others]
    assert host.answer(first, decode).ids == alone(host, first, decode).ids  # nothing of it holds up who comes then


def test_a_file_that_cannot_be_read_fails_its_own_request_alone(small: Host) -> None:
    memories = ("Mira lives in Lisbon.",)
    kv = small.encode(memories)

    def damaged(n: int) -> tuple[torch.Tensor, ...]:
        if n == 2:
            raise CorruptBlob("layer 2 is not what was written")
        return kv.layers[n]

    host, decode = endless(small), DecodeConfig(max_new_tokens=8)
    bad = replace(kv, layers=Arriving(len(kv.layers), damaged, host.model.device))
    sound = questions(3)
    asked = [Request(sound[0].messages, memories, (bad,)), *sound, Request(sound[1].messages, memories, (kv,))]

    def ask(request: Request) -> tuple[int, ...] | type[Exception]:
        try:
            return host.answer(request, decode).ids
        except MemosError as error:
            return type(error)

    with ThreadPoolExecutor(5) as threads:
        assert list(threads.map(ask, asked)) == [CorruptBlob, *(alone(host, one, decode).ids for one in asked[1:])]


def test_a_forward_that_fails_fails_who_makes_it_fail(small: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host, decode, real = endless(small), DecodeConfig(max_new_tokens=8), continuous.packed_forward
    poison = host.prompts.build((), questions(3)[1].messages)

    def failing(model: object, pages: Pages, texts: Sequence[PackedText], ids: Sequence[Sequence[int]]) -> torch.Tensor:
        if any(tuple(new) == poison.prefix + poison.tail for new in ids):
            raise RuntimeError("[enforce fail] can't allocate memory: you tried to allocate 99 bytes")
        return real(model, pages, texts, ids)  # type: ignore[arg-type]

    monkeypatch.setattr(continuous, "packed_forward", failing)
    with ThreadPoolExecutor(3) as threads:
        done = [threads.submit(host.answer, one, decode) for one in questions(3)]
        said = [one.exception() or one.result().ids for one in done]
    assert "no memory left for this request" in str(said[1])
    assert [said[0], said[2]] == [alone(host, one, decode).ids for one in questions(3)[::2]]


def test_rows_that_there_is_no_memory_for_fail_their_own_request_alone(
    small: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, real, met = endless(small), Pages.put, list[int]()
    host.answer(questions(1)[0])  # the model is tried first

    def full(self: Pages, layer: int, at: tuple[torch.Tensor, torch.Tensor], new: torch.Tensor) -> torch.Tensor:
        if layer == 1 and self.room > 40:  # after the first layer has grown
            met.append(self.room)
            raise RuntimeError("[enforce fail] can't allocate memory: you tried to allocate 99 bytes")
        return real(self, layer, at, new)

    monkeypatch.setattr(Pages, "put", full)
    decode, long = DecodeConfig(max_new_tokens=30), Request(({"role": "user", "content": "word " * 800},))
    begun = host.stream(questions(1)[0], DecodeConfig(max_new_tokens=150))
    next(begun)  # somebody's answer grows already
    with ThreadPoolExecutor(3) as threads:
        done = [threads.submit(host.answer, one, decode) for one in (questions(3)[1], long, questions(3)[2])]
        said = [one.exception() or one.result().ids for one in done]
    assert met and "no memory left for this request" in str(said[1])
    assert [said[0], said[2]] == [alone(host, one, decode).ids for one in questions(3)[1:]]
    assert drained(begun).ids == alone(host, questions(1)[0], DecodeConfig(max_new_tokens=150)).ids


def test_what_fails_as_a_token_is_chosen_fails_alone(small: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host, decode = endless(small), DecodeConfig(max_new_tokens=8)
    sampled = decode.model_copy(update={"temperature": 0.5})
    monkeypatch.setattr(host.decoder, "pick", lambda *_: 1 // 0)
    with ThreadPoolExecutor(2) as threads:
        bad, good = (threads.submit(host.answer, questions(1)[0], how) for how in (sampled, decode))
        assert isinstance(bad.exception(), ZeroDivisionError) and len(good.result().ids) == 8


def test_no_more_than_are_allowed_are_answered_at_once(small: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host, most, real = endless(small), list[int](), continuous.packed_forward

    def counted(model: object, pages: Pages, texts: Sequence[PackedText], ids: Sequence[Sequence[int]]) -> torch.Tensor:
        most.append(len(texts))
        return real(model, pages, texts, ids)  # type: ignore[arg-type]

    monkeypatch.setattr(continuous, "packed_forward", counted)
    with ThreadPoolExecutor(9) as threads:
        list(threads.map(lambda one: host.answer(one, DecodeConfig(max_new_tokens=12)), questions(9)))
    assert max(most) == 4


def test_those_who_ask_at_once_read_their_prompts_together_and_nobody_waits_long(
    small: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, read, real = endless(small), list[int](), continuous.packed_forward
    host.answer(questions(1)[0])  # the model is tried first
    rows, row, coming = threading.Barrier(3), host.row, threading.Event()

    def counted(model: object, pages: Pages, texts: Sequence[PackedText], ids: Sequence[Sequence[int]]) -> torch.Tensor:
        read.append(len(texts))
        return real(model, pages, texts, ids)  # type: ignore[arg-type]

    def delayed(request: Request, decode: DecodeConfig, alone: bool = False) -> DecodeRow:
        rows.wait()  # all three are coming
        if request is last:
            coming.wait()
        return row(request, decode, alone)

    monkeypatch.setattr(continuous, "packed_forward", counted)
    monkeypatch.setattr(host, "row", delayed)
    *_, last = asked = questions(3)
    for late, forwards in ((False, [3, 3]), (True, [2, 2, 1, 1])):  # the others wait for no row that takes a second
        monkeypatch.setattr(continuous, "_GATHER_S", 0.5 if late else 60.0)
        (coming.clear if late else coming.set)()
        read.clear()
        with ThreadPoolExecutor(3) as threads:
            answers = [threads.submit(host.answer, one, DecodeConfig(max_new_tokens=2)) for one in asked]
            for one in answers[:2]:
                one.result()
            coming.set()
        assert read == forwards and all(len(one.result().ids) == 2 for one in answers)


def test_a_long_prompt_is_read_in_pieces_between_the_tokens_of_others(
    small: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, read, real = endless(small), list[list[int]](), continuous.packed_forward
    host.answer(questions(1)[0])  # the model is tried first

    def noted(model: object, pages: Pages, texts: Sequence[PackedText], ids: Sequence[Sequence[int]]) -> torch.Tensor:
        read.append(sorted(len(new) for new in ids))
        return real(model, pages, texts, ids)  # type: ignore[arg-type]

    monkeypatch.setattr(continuous, "packed_forward", noted)
    monkeypatch.setattr(continuous, "STEP_S", 0.0)  # nobody waits for more than STEP_TOKENS
    long = Request(({"role": "user", "content": "word " * 800},))
    begun = host.stream(questions(1)[0], DecodeConfig(max_new_tokens=200))
    next(begun)  # somebody's answer grows already
    said = host.answer(long, DecodeConfig(max_new_tokens=2))
    drained(begun)
    pieces = [sizes for sizes in read if sizes[-1] > 1][1:]  # after the question of the first
    assert len(host.prompts.build((), long.messages)) == sum(sizes[-1] for sizes in pieces) > 2 * STEP_TOKENS
    assert all(sizes[0] == 1 and sizes[-1] <= STEP_TOKENS for sizes in pieces) and len(pieces) > 2
    assert said.ids == alone(host, long, DecodeConfig(max_new_tokens=2)).ids


def test_a_request_holds_its_own_rows_and_little_more(small: Host) -> None:
    kv = small.encode(("Mira lives in Lisbon.",) * 90)
    pages, text = Pages(), PackedText(kv)
    with torch.inference_mode():
        packed_forward(small.model, pages, [text], [list(range(10, 310))])
        for n in range(100):
            packed_forward(small.model, pages, [text], [[10 + n]])
    assert text.shared[0][0].data_ptr() == kv.layers[0][0].data_ptr()  # what others begin with, too
    row = kv.bytes / kv.rows
    held = sum(layer.numel() * layer.element_size() for layer in pages.layers)
    assert text.rows * row <= held <= 1.1 * text.rows * row


def test_what_is_composed_for_one_request_is_held_once(small: Host) -> None:
    about = scene("held once", 3, 4)
    request = Request(
        ({"role": "user", "content": about.one[0].question},),
        tuple(text for cube in about.cubes for text in cube),
        pasts=tuple(small.encode(cube) for cube in about.cubes),
        fidelity=FidelityConfig(level="L1"),
    )
    decode, expected = DecodeConfig(max_new_tokens=12), alone(small, request, DecodeConfig(max_new_tokens=12))
    row = small.row(request, decode)
    assert row.past
    composed = weakref.ref(row.past.layers[-1][1])
    answer = small._batch.stream(row, decode, (), 0.0, True)
    del row
    next(answer)
    assert composed() is None  # its pages are all that there is
    done = drained(answer)
    assert (done.ids, done.past_tokens) == (expected.ids, expected.past_tokens)


@pytest.mark.slow
def test_pages_of_who_leaves_are_given_to_others_and_rows_stay_what_they_were(small: Host) -> None:
    model, draw, pages = small.model, random.Random(5), Pages()
    begins = [encode(model, tuple(draw.randrange(10, 2000) for _ in range(n))) for n in (40, 40, 700)]
    going, held, ways = list[tuple[PackedText, list[int]]](), set[int](), set[tuple[bool, bool]]()
    with torch.inference_mode():
        for _ in range(40):
            if len(going) > 5 or (going and draw.random() < 0.2):
                pages.drop([going.pop(draw.randrange(len(going)))[0]])
            if len(going) < 6:
                past = draw.choice([None, *begins])
                going.append((PackedText(past), list(past.ids if past else ())))
            going.sort(key=lambda pair: pair[0].beginning or (0, 0))
            new = [[draw.randrange(10, 2000) for _ in range(draw.choice((1, 1, 1, 45)))] for _ in going]
            logits = packed_forward(model, pages, [text for text, _ in going], new)
            held.add(pages.room)
            ways |= {(bool(text.shared), bool(text.copied)) for text, _ in going}
            for (text, ids), more, mine in zip(going, new, logits, strict=True):
                ids += more
                plain = model(input_ids=torch.tensor([ids]), logits_to_keep=1).logits[0, -1]
                torch.testing.assert_close(mine, plain, atol=1e-4, rtol=0)
                assert [pages.owners[page] for page in text.pages] == [text] * len(text.pages)
            assert sorted(page for text, _ in going for page in text.pages) == list(range(len(pages.owners)))
    assert len(held) > 1 and ways == {(False, False), (True, False), (True, True)}


def test_what_a_row_cannot_share_is_answered_alone(small: Host) -> None:
    batch: ContinuousBatch = small._batch
    assert batch.takes(DecodeRow((1, 2)), DecodeConfig())
    assert not batch.takes(DecodeRow((1, 2)), DecodeConfig(beams=2))
    assert not batch.takes(DecodeRow((1, 2), Activation((1,), (), states=True)), DecodeConfig())
