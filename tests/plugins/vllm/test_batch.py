"""A host whose answers another server decodes answers as it would itself, in every form."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from memos.bench.baselines import random_adapters
from memos.bench.scenes import Scene, scene
from memos.config import DecodeConfig, DistilConfig, FidelityConfig, ModelConfig
from memos.errors import FingerprintMismatch, Unsupported
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.request import Request
from memos.plugins.vllm.batch import VllmBatch
from memos.plugins.vllm.exchange import Exchange, model_parts
from memos.plugins.vllm.options import VllmOptions
from tests.plugins.vllm.paged import PagedServer, paged_host

DECODE = DecodeConfig(max_new_tokens=12)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Host, PagedServer]:
    return paged_host(tmp_path_factory.mktemp("exchange"))


@pytest.fixture(scope="module")
def drawn() -> Scene:
    return scene("batch", 3, 4)


def requests(host: Host, drawn: Scene, fidelity: FidelityConfig) -> Iterator[Request]:
    pasts = tuple(map(host.encode, drawn.cubes))
    for probe in (*drawn.two, *drawn.one):
        yield Request(({"role": "user", "content": probe.question},), sum(drawn.cubes, ()), pasts, fidelity=fidelity)


@pytest.mark.parametrize("level", ["L0", "L1", "L2", "L3", "L4"])
def test_answers_over_kv_are_the_hosts_own(level: str, pair: tuple[Host, PagedServer], drawn: Scene) -> None:
    host, server = pair
    for request in requests(host, drawn, FidelityConfig.model_validate({"level": level})):
        ours, theirs = server.host.answer(request, DECODE), host.answer(request, DECODE)
        assert theirs.ids == ours.ids and theirs.text == ours.text
        if level == "L4":
            assert server.asked[-1].kv is None and theirs.past_tokens == 0
        elif level != "L0":  # of L0 the first cache alone is loaded, the rest is vLLM's own prefix
            assert (theirs.prompt_tokens, theirs.past_tokens) == (ours.prompt_tokens, ours.past_tokens)
        assert theirs.prompt_tokens + theirs.past_tokens == ours.prompt_tokens + ours.past_tokens


def test_all_rows_computed_anew_are_the_text(pair: tuple[Host, PagedServer], drawn: Scene) -> None:
    host, server = pair
    for request in requests(host, drawn, FidelityConfig(level="L3", share=1.0)):
        assert host.answer(request, DECODE).ids == server.host.answer(replace(request, pasts=()), DECODE).ids


def test_the_file_is_the_salt(pair: tuple[Host, PagedServer], drawn: Scene) -> None:
    host, server = pair
    (request, *_) = requests(host, drawn, FidelityConfig(level="L1"))
    first, again = host.answer(request, DECODE), host.answer(request, DECODE)
    one, two = server.asked[-2:]
    assert first.ids == again.ids and one.kv == two.kv and one.transfer == {"memos_kv": one.kv}
    host.answer(replace(request, pasts=()), DECODE)
    assert server.asked[-1].kv is None and server.asked[-1].ids == one.ids


def test_adapters_are_one_by_a_name_of_their_content(pair: tuple[Host, PagedServer], tmp_path: Path) -> None:
    host, server = pair
    folders = random_adapters(host.model, DistilConfig(), 2, tmp_path, host.fingerprint)
    for stack in ((folders[0],), (folders[1],), tuple(folders), (folders[0],)):
        request = Request(({"role": "user", "content": "Where does Mira live?"},), adapters=stack)
        assert host.answer(request, DECODE).ids == server.host.answer(request, DECODE).ids
    named = [asked.adapter for asked in server.asked[-4:]]
    assert named[0] == named[3] and len(set(named)) == 3 and set(server.adapters) == set(named)
    exported = list(server.adapters.values())
    assert host.adapters == {folder.name for folder in folders}
    host.release()
    assert not server.adapters and not any(folder.exists() for folder in exported)


def test_adapters_of_too_high_a_rank_together_are_answered_from_text(
    pair: tuple[Host, PagedServer], tmp_path: Path
) -> None:
    host, server = pair
    folders = random_adapters(host.model, DistilConfig(rank=40), 2, tmp_path, host.fingerprint)
    request = Request(({"role": "user", "content": "Where does Mira live?"},), adapters=tuple(folders))
    with pytest.raises(Unsupported, match="adapter_rank"):  # which the kernel answers from text
        host.answer(request, DECODE)
    assert not server.adapters and not list((server.exchange.folder / "adapters").iterdir())


def test_nothing_of_a_payload_is_left_after_a_release(pair: tuple[Host, PagedServer], drawn: Scene) -> None:
    host, server = pair
    (request, *_) = requests(host, drawn, FidelityConfig(level="L1"))
    host.answer(request, DECODE)
    asked, forgotten = server.asked[-1], server.forgotten
    host.release()
    assert server.forgotten == forgotten + 1
    again = list(server.decode(asked))
    assert sum(len(piece.ids) for piece in again) > 1 and again[-1].cached == 0


def test_it_streams_and_stops_where_the_host_does(pair: tuple[Host, PagedServer], drawn: Scene) -> None:
    host, server = pair
    (request, *_) = requests(host, drawn, FidelityConfig(level="L1"))
    pieces = list(host.stream(request, DECODE))
    assert "".join(pieces).strip() == server.host.answer(request, DECODE).text
    stop = DecodeConfig(max_new_tokens=12, stop=(pieces[0].strip()[-2:],))
    assert host.answer(request, stop).text == server.host.answer(request, stop).text


def test_what_vllm_cannot_do_the_host_decodes(pair: tuple[Host, PagedServer]) -> None:
    host, server = pair
    before = len(server.asked)
    request = Request(({"role": "user", "content": "Where does Mira live?"},))
    beams = DecodeConfig(max_new_tokens=4, beams=2)
    assert host.answer(request, beams).ids == server.host.answer(request, beams).ids
    assert len(server.asked) == before


def test_a_server_of_another_model_is_refused_and_an_unknown_one_gets_text(
    tmp_path: Path, drawn: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    plain, exchange, options = Host.load(ModelConfig()), Exchange(tmp_path, 1 << 30), VllmOptions(exchange=tmp_path)
    server = PagedServer(plain, exchange)
    with caplog.at_level(logging.WARNING, "memos"):
        host = Host(plain.model, plain.tokenizer, ModelConfig(), lambda h: VllmBatch(h, server, exchange, options))
    assert "has not announced itself" in caplog.text
    (request, *_) = requests(host, drawn, FidelityConfig(level="L1"))
    text = plain.answer(replace(request, pasts=()), DECODE)
    answer = host.answer(request, DECODE)
    assert answer.ids == text.ids and answer.past_tokens == 0
    exchange.announce(model_parts(plain.fingerprint) | {"dtype": "bfloat16"})
    with pytest.raises(FingerprintMismatch, match="dtype differ"):
        VllmBatch(host, server, exchange, options)
