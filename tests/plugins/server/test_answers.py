"""Answers that go on: whoever leaves ends them, one waits for another, and a server that stops lets them end."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from memos import Config, Memory, MemOS
from memos.config import DecodeConfig, ModelConfig
from memos.errors import Busy, HostError, TooLarge
from memos.plugins.server.edge.lanes import CALLER, ClientDisconnected, Lane
from tests.plugins.server.conftest import endless, refused, running, until

MOST = 20_000  # tokens: minutes, if nobody ends it
ASK = {"messages": [{"role": "user", "content": "Kim lives in Rome. Where does Kim live?"}], "stream": True}


@contextmanager
def of_many_words(memory: Memory, folder: Path, at_once: int) -> Iterator[Memory]:
    """Answers do not end by themselves; so many go on at once."""
    tokenizer = memory.kernel.host.tokenizer
    parts = {"model": endless(tokenizer), "tokenizer": tokenizer}
    config = Config(decode=DecodeConfig(max_new_tokens=MOST), model=ModelConfig(requests_at_once=at_once))
    with MemOS(config, vault=folder, **parts) as kernel:
        kernel.parts.operator().refresh_soon()
        yield Memory(kernel=kernel)


@pytest.fixture(scope="module")
def talkative(memory: Memory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """One answer at a time."""
    with of_many_words(memory, tmp_path_factory.mktemp("talkative"), at_once=1) as other:
        yield other


def going(client: httpx.Client) -> int:
    """Requests that go on, beside this one."""
    lines = client.get("/metrics").text.splitlines()
    return int(float(next(line for line in lines if line.startswith("memos_requests_going ")).split()[1])) - 1


@pytest.mark.parametrize("stream", [True, False])
def test_whoever_leaves_in_the_middle_ends_the_answer(talkative: Memory, stream: bool) -> None:
    with running(talkative) as (url, _), httpx.Client(base_url=url, timeout=300) as client:
        if stream:
            with client.stream("POST", "/v1/chat/completions", json=ASK) as reply:
                told = [line for line, _ in zip(reply.iter_lines(), range(9), strict=False) if line]
            assert "content" in json.loads(told[0].removeprefix("data: "))["choices"][0]["delta"]
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/chat/completions", json=ASK | {"stream": False}, timeout=3)
        until(lambda: going(client) == 0)
        # the model is free again, and what was acknowledged stays
        short = client.post("/v1/chat/completions", json=ASK | {"stream": False, "max_tokens": 2})
        assert short.json()["choices"][0]["finish_reason"] == "length"
        kept = client.post("/v1/memory/get_all").json()["results"]
        assert [item["memory"] for item in kept] == ["Kim lives in Rome."]


@pytest.mark.parametrize(
    "path, more",
    [
        ("/v1/memory/chat", {}),
        ("/v1/completions", {"prompt": "Tom lives in Oslo."}),
        ("/v1/completions", {"prompt": "Tom lives in Oslo.", "stream": True}),
    ],
)
def test_who_leaves_while_it_waits_is_not_served(talkative: Memory, path: str, more: dict) -> None:
    with running(talkative) as (url, _), httpx.Client(base_url=url, timeout=300) as client:
        with client.stream("POST", "/v1/chat/completions", json=ASK) as reply:
            lines = reply.iter_lines()
            next(lines)
            with pytest.raises(httpx.ReadTimeout):
                client.post(path, json=more or {"messages": "Tom lives in Oslo."}, timeout=1)
            until(lambda: going(client) == 1 and 'memos_waiting{lane="model"} 0.0' in client.get("/metrics").text)
        until(lambda: going(client) == 0)
        kept = client.post("/v1/memory/get_all").json()["results"]
        assert "Tom lives in Oslo." not in [item["memory"] for item in kept]


def test_one_answer_waits_for_another_and_few_wait_at_once(talkative: Memory) -> None:
    with running(talkative, queue=0) as (url, _), httpx.Client(base_url=url, timeout=300) as client:
        with client.stream("POST", "/v1/chat/completions", json=ASK) as reply:
            lines = reply.iter_lines()  # let go of, it would close the connection
            next(lines)
            assert client.get("/readyz").status_code == 503
            second = client.post("/v1/chat/completions", json=ASK)
            assert (second.status_code, second.headers["retry-after"]) == (429, "1")
            assert "serve.queue" in second.json()["error"]["message"]
            assert client.post("/v1/memory/get_all").status_code == 200  # needs no model


def test_a_short_answer_does_not_wait_for_a_long_one(memory: Memory, tmp_path: Path) -> None:
    with (
        of_many_words(memory, tmp_path / "vault", at_once=4) as other,
        running(other, queue=0) as (url, _),
        httpx.Client(base_url=url, timeout=300) as client,
        client.stream("POST", "/v1/chat/completions", json=ASK) as reply,
    ):
        lines = reply.iter_lines()  # let go of, it would close the connection
        next(lines)
        short = client.post("/v1/chat/completions", json=ASK | {"stream": False, "max_tokens": 2})
        assert short.json()["choices"][0]["finish_reason"] == "length"
        assert going(client) == 1 and next(lines) is not None  # the long one goes on


@pytest.mark.parametrize("mcp", [False, True])
def test_who_trains_keeps_nobody_waiting(
    memory: Memory, client: httpx.Client, key: str, monkeypatch: pytest.MonkeyPatch, mcp: bool
) -> None:
    [kim] = client.post("/v1/memory/add", json={"messages": "Kim lives in Rome."}).json()["results"]
    begun, hold, promote = threading.Semaphore(0), threading.Event(), memory.kernel.parts.transitions().promote
    monkeypatch.setattr(
        memory.kernel.parts.transitions(), "promote", lambda *all: (begun.release(), hold.wait(60), promote(*all))[-1]
    )
    asked = {"memory_ids": [kim["id"]]}
    tool = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "promote", "arguments": asked}}
    accept = {"Accept": "application/json, text/event-stream"}
    with (
        running(memory, workers=1) as (url, _),
        httpx.Client(base_url=url, headers=client.headers, timeout=10) as client,
        ThreadPoolExecutor() as threads,
    ):
        path, body = ("/v1/mcp", tool) if mcp else ("/v1/memory/promote", asked)
        going = [threads.submit(client.post, path, json=body, headers=accept, timeout=300) for _ in range(2)]
        try:
            assert begun.acquire(timeout=60)
            assert [client.get("/readyz").status_code, client.post("/v1/memory/get_all").status_code] == [200, 200]
            until(lambda: 'memos_waiting{lane="jobs"} 1.0' in client.get("/metrics").text)  # one at a time
        finally:
            hold.set()
        assert [reply.result().status_code for reply in going] == [200, 200]


def test_a_server_that_stops_lets_an_answer_end_and_takes_no_other(talkative: Memory) -> None:
    with running(talkative) as (url, server), httpx.Client(base_url=url, timeout=300) as client:
        with client.stream("POST", "/v1/chat/completions", json=ASK | {"max_tokens": 150}) as reply:
            lines = reply.iter_lines()
            next(lines)
            server.should_exit = True
            until(lambda: refused(url))
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"


def test_a_model_without_a_chat_template_is_named(memory: Memory, tmp_path: Path) -> None:
    import copy

    bare = copy.deepcopy(memory.kernel.host.tokenizer)
    bare.chat_template = None
    parts = {"model": memory.kernel.host.model, "tokenizer": bare}
    ask = {"messages": [{"role": "user", "content": "Where does Kim live?"}]}
    strict = Config.model_validate({"model": {"template": "chat"}})
    with MemOS(strict, vault=tmp_path / "strict", **parts) as kernel:
        with pytest.raises(HostError) as met:
            kernel.host  # noqa: B018
        with running(Memory(kernel=kernel)) as (url, _):
            told = httpx.post(f"{url}/v1/chat/completions", json=ask, timeout=300)
        assert (told.status_code, told.json()["error"]["message"]) == (500, str(met.value))
        assert "set it to auto or plain" in str(met.value)
    with MemOS(Config(), vault=tmp_path / "plain", **parts) as kernel, running(Memory(kernel=kernel)) as (url, _):
        assert httpx.post(f"{url}/v1/chat/completions", json=ask, timeout=300).status_code == 200


# -- the lane by itself


def test_a_lane_takes_as_many_calls_as_it_says() -> None:
    async def session() -> None:
        lane, hold = Lane("model", 1, 1), threading.Event()
        first = asyncio.create_task(lane.run(lambda: hold.wait(30)))
        second = asyncio.create_task(lane.run(lambda: True))
        await asyncio.sleep(0.05)
        assert (lane.waiting, lane.full) == (1, True)
        with pytest.raises(Busy, match="1 calls wait for the model already"):
            await lane.run(lambda: True)
        second.cancel()  # who waits may leave, and the place is free
        await asyncio.sleep(0.05)
        third = asyncio.create_task(lane.run(lambda: "done"))
        hold.set()
        assert (await first, await third) == (True, "done")
        lane.close()

    asyncio.run(session())


def test_callers_take_turns_and_none_takes_all_threads() -> None:
    async def session() -> None:
        lane, hold, made = Lane("workers", 4, 20), threading.Event(), list[str]()

        def asked(key: str, call: Callable[[], object]) -> asyncio.Task[object]:
            CALLER.set(key)
            return asyncio.create_task(lane.run(call))

        long = [asked("ann", lambda: (hold.wait(30), made.append("ann"))) for _ in range(6)]
        await asyncio.wait_for(asked("ben", lambda: made.append("ben")), 10)
        assert made == ["ben"], "two threads are left to others"
        hold.set()
        await asyncio.gather(*long)
        assert made == ["ben"] + ["ann"] * 6, "what was put off is done"
        lane.close()

    asyncio.run(session())


def test_a_lane_that_closes_leaves_nobody_waiting() -> None:
    async def session() -> None:
        lane, hold = Lane("model", 1, 3), threading.Event()
        first, second = (asyncio.create_task(lane.run(lambda: hold.wait(30))) for _ in range(2))
        await asyncio.sleep(0.05)
        threading.Timer(0.1, hold.set).start()
        await asyncio.to_thread(lane.close)
        assert await first
        with pytest.raises(asyncio.CancelledError):
            await second

    asyncio.run(session())


def test_a_call_that_does_the_work_of_several_takes_their_places() -> None:
    async def session() -> None:
        lane, hold = Lane("model", 1, 3), threading.Event()
        first = asyncio.create_task(lane.run(lambda: hold.wait(30), 3))
        await asyncio.sleep(0.05)
        assert (lane.waiting, lane.full) == (2, False)
        with pytest.raises(Busy, match="2 calls wait for the model already, and there is no room for 2 more"):
            await lane.run(lambda: True, 2)
        with pytest.raises(TooLarge, match=r"5 calls of the model are asked for at once, and 4 may .*serve.queue"):
            await lane.run(lambda: True, 5)
        second = asyncio.create_task(lane.run(lambda: "done"))
        hold.set()
        assert (await first, await second) == (True, "done")
        await asyncio.to_thread(until, lambda: lane.waiting == 0 and not lane.full)
        assert await lane.run(lambda: True, 4)
        lane.close()

    asyncio.run(session())


def test_an_answer_that_nobody_hears_ends_with_its_next_piece() -> None:
    ended: list[BaseException] = []

    async def session() -> None:
        lane = Lane("model", 1, 1)

        def talk(tell: Callable[[str], None]) -> str:
            try:
                while True:
                    tell("on and on")
                    time.sleep(0.01)
            except ClientDisconnected as gone:
                ended.append(gone)
                raise

        pieces = lane.pieces(talk)
        assert await anext(pieces) == "on and on"
        await pieces.aclose()
        await asyncio.to_thread(until, lambda: bool(ended) and lane.waiting == 0)
        lane.close()

    asyncio.run(session())
    assert isinstance(ended[0], ClientDisconnected)
