"""One kernel, with the small model, and servers over it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from memos import Config, Memory
from memos.config import ServeConfig
from memos.plugins.server.app import create_app
from memos.plugins.server.run import listening, settings_of
from tests.interface.doors.conftest import install

__all__ = ["install"]

Serving = Callable[..., AbstractContextManager[httpx.Client]]


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """A vault whose callers have keys."""
    with Memory(vault=tmp_path_factory.mktemp("vault")) as memory:
        memory.kernel.services.governing.add_key("keeper")
        memory.kernel.host, memory.kernel.parts.operator().refresh_soon()
        yield memory


@pytest.fixture(scope="session")
def keyless(memory: Memory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """A vault without a key."""
    from memos import MemOS

    host = memory.kernel.host
    parts: dict[str, Any] = {"model": host.model, "tokenizer": host.tokenizer}
    with Memory(kernel=MemOS(Config(), vault=tmp_path_factory.mktemp("keyless"), **parts)) as memory:
        yield memory


def endless(tokenizer: Any) -> Any:
    """A model with random weights, which goes on and on."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    end = tokenizer.eos_token_id
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=1 << 16, eos_token_id=end, **small)
    ).eval()
    model.lm_head.weight.data[end] = 0  # never the likeliest
    return model


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def refused(url: str) -> bool:
    """True once nothing is listening there any more."""
    try:
        return httpx.get(f"{url}/healthz").status_code != 200
    except (httpx.ReadError, httpx.RemoteProtocolError):  # it came just as the listening ended: the next one tells
        return False
    except httpx.ConnectError:
        return True


@contextmanager
def running(memory: Memory, *, loopback: bool = True, **config: Any) -> Iterator[tuple[str, uvicorn.Server]]:
    """A server on a free port, in a thread: its address, and what can stop it."""
    limits = ServeConfig(grace_s=10, **config)
    settings = settings_of(create_app(memory, limits, loopback=loopback), limits)
    server, listener = uvicorn.Server(settings), listening("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def url(memory: Memory) -> Iterator[str]:
    """A server that callers with keys share."""
    with running(memory) as (url, _):
        yield url


@pytest.fixture
def key(memory: Memory, ada: str) -> str:
    """Of the test's own user."""
    return memory.kernel.services.governing.add_key(ada)[0]


@pytest.fixture
def client(url: str, key: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300) as client:
        yield client
