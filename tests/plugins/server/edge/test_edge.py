"""Who may call, how much, and how large; and what is told of it."""

from __future__ import annotations

import json
import logging
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest

from memos import Memory
from memos.config import KeyLimits, ServeConfig
from memos.cost import metered
from memos.errors import Busy, Denied, MemosError, NotFound, Unauthenticated
from memos.kernel.calls import api_names
from memos.plugins.server import run
from memos.plugins.server.edge import failures
from memos.plugins.server.edge.callers import Meter
from memos.plugins.server.edge.lanes import ClientDisconnected
from tests.plugins.server.conftest import running


def error(reply: httpx.Response) -> dict:
    return reply.json()["error"]


@pytest.fixture(scope="module")
def own(keyless: Memory) -> Iterator[httpx.Client]:
    """Of whoever sits at this machine."""
    with running(keyless) as (url, _), httpx.Client(base_url=url, timeout=300) as client:
        yield client


# -- the Memory API


def test_every_call_of_the_memory_api_has_a_route_of_its_form(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    calls = {
        path.removeprefix("/v1/memory/"): of["post"] for path, of in described["paths"].items() if "/memory/" in path
    }
    of_plugins = {"linked", "externalize", "steer", "steerings", "add_file", "file"}
    assert calls.keys() == {*api_names(), *of_plugins}
    assert all(call["description"] and call["security"] for call in calls.values())
    search = described["paths"]["/v1/memory/search"]["post"]
    form = described["components"]["schemas"]["search_arguments"]
    assert search["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/search_arguments")
    assert form["required"] == ["query"] and form["additionalProperties"] is False
    assert search["security"]


def test_a_call_over_http_is_the_call_in_python(client: httpx.Client, memory: Memory, key: str, ada: str) -> None:
    added = client.post("/v1/memory/add", json={"messages": "I live in Oslo.", "metadata": {"page": 3}}).json()
    [told] = added["results"]
    assert (told["user_id"], told["metadata"], told["event"]) == (ada, {"page": 3}, "ADD")
    assert set(added["cost"]) == {"model_calls", "tokens", "seconds"}
    told = client.post("/v1/memory/update", json={"memory_id": told["id"], "metadata": {"page": None, "a": 1}}).json()
    assert [(one["memory"], one["metadata"]) for one in told["results"]] == [("I live in Oslo.", {"a": 1})]
    [told] = told["results"]
    mine = memory.as_(key)
    for name, given in (("get", {"memory_id": told["id"]}), ("get_all", {}), ("history", {"memory_id": told["id"]})):
        there, here = client.post(f"/v1/memory/{name}", json=given).json(), getattr(mine, name)(**given)
        assert there | {"cost": {}} == here | {"cost": {}}


def test_errors_have_the_words_that_they_have_in_python(client: httpx.Client, memory: Memory, key: str) -> None:
    with pytest.raises(NotFound) as met:
        memory.as_(key).get("nothing")
    reply = client.post("/v1/memory/get", json={"memory_id": "nothing"})
    assert (reply.status_code, error(reply)["message"], error(reply)["code"]) == (404, str(met.value), "NotFound")


@pytest.mark.parametrize(
    "body, status, told, param",
    [
        (b'{"query": "tea"', 400, "broken JSON (EOF while parsing an object at line 1 column 15)", None),
        (b'{"query": "\\ud800"}', 400, "broken JSON", None),
        (b'{"query": NaN}', 400, "broken JSON", None),
        (b"[" * 100_000, 400, "broken JSON", None),
        (b"\xff\xfe", 400, "broken JSON", None),
        (b'["tea"]', 422, "send one JSON object", None),
        (b'{"query": "tea", "topk": 3}', 422, "topk: unknown; did you mean top_k?", "topk"),
        (b'{"query": 3}', 422, "query: Input should be a valid string (given: 3)", "query"),
        (b"{}", 422, "query: Field required", "query"),
        (b'{"query": "tea", "user_id": "somebody-else"}', 403, "does not reach", None),
    ],
)
def test_bad_input_is_named_with_the_way_out(
    client: httpx.Client, body: bytes, status: int, told: str, param: str | None
) -> None:
    reply = client.post("/v1/memory/search", content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code == status
    assert told in error(reply)["message"]
    assert error(reply)["param"] == param


EDGES = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")  # of the calendar; beyond it in UTC


@pytest.mark.parametrize(
    "call, given",
    [
        *(("log", {name: when}) for name in ("since", "until") for when in EDGES),
        ("add", {"messages": "I like tea.", "expires": EDGES[1]}),
        *(("add", {"messages": [{"content": "I like tea.", "time": when}]}) for when in EDGES),
        ("grant", {"on": "namespace:eve", "to": "bob", "until": EDGES[1]}),
        ("log", {"limit": 1 << 63}),
        ("rollback", {"memory_id": "none", "version": 1 << 200}),
        ("get", {"memory_id": "\0"}),
    ],
)
def test_what_no_vault_can_keep_is_refused(client: httpx.Client, call: str, given: dict) -> None:
    reply = client.post(f"/v1/memory/{call}", json=given)
    assert 400 <= reply.status_code < 500, reply.text


def test_as_many_as_there_are_is_enough(client: httpx.Client) -> None:
    assert client.post("/v1/memory/get_all", json={"limit": 1 << 70}).json()["results"] == []


@pytest.mark.parametrize("least", [{"temperature": 1e-300}, {"temperature": 1, "top_p": 1e-300}])
def test_the_least_that_can_be_asked_for_is_the_likeliest(client: httpx.Client, least: dict) -> None:
    ask = {"messages": [{"role": "user", "content": "Where does Kim live?"}], "max_tokens": 3, "memory": False}
    told = [client.post("/v1/chat/completions", json=ask | more) for more in (least, {"temperature": 0})]
    assert [reply.status_code for reply in told] == [200, 200]
    assert len({reply.json()["choices"][0]["message"]["content"] for reply in told}) == 1


@pytest.mark.parametrize(
    "kind, body, status",
    [
        ("application/json; charset=utf-8", b'{"query": "tea"}', 200),
        ("application/vnd.memos+json", b'{"query": "tea"}', 200),
        ("text/plain", b'{"query": "tea"}', 422),
        ("", b'{"query": "tea"}', 422),
        ("application/json", b"", 422),
    ],
)
def test_a_body_is_read_where_it_says_that_it_is_json(
    client: httpx.Client, kind: str, body: bytes, status: int
) -> None:
    reply = client.post("/v1/memory/search", content=body, headers={"Content-Type": kind} if kind else {})
    assert reply.status_code == status
    assert status == 200 or "the body: " in error(reply)["message"]


def test_what_is_not_there_is_told(client: httpx.Client) -> None:
    assert error(client.get("/v1/nothing"))["message"].startswith("there is nothing at /v1/nothing")
    wrong = client.get("/v1/memory/search")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert error(wrong)["message"] == "/v1/memory/search takes POST, and no GET"
    stream = client.get("/v1/mcp", headers={"Accept": "text/event-stream"})
    assert stream.status_code == 405, "nothing would ever come"


def test_every_error_of_memos_has_a_status() -> None:
    def below(kind: type[Exception]) -> Iterator[type[Exception]]:
        yield kind
        for part in kind.__subclasses__():
            yield from below(part)

    assert all(400 <= failures.status_of(kind.__new__(kind)) < 600 for kind in below(MemosError))
    assert [failures.status_of(e) for e in (NotFound(""), Denied(""), Busy("", 1), KeyError())] == [404, 403, 429, 500]


# -- who calls


@pytest.mark.parametrize("given", [{}, {"Authorization": "Bearer memos_no_key"}, {"Authorization": "Basic eDp5"}])
def test_without_a_key_that_is_in_force_nothing_is_opened(url: str, given: dict) -> None:
    for call in (lambda: httpx.get(f"{url}/v1/models", headers=given), lambda: httpx.post(f"{url}/v1/memory/get_all")):
        reply = call()
        assert (reply.status_code, error(reply)["code"]) == (401, "Unauthenticated")
        assert "memos key add" in error(reply)["message"] and reply.headers["www-authenticate"] == "Bearer"


def test_a_key_that_is_revoked_opens_nothing_from_the_next_call_on(url: str, memory: Memory, ada: str) -> None:
    key, made = memory.kernel.services.governing.add_key(ada)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300) as client:
        assert client.post("/v1/memory/get_all").status_code == 200
        memory.kernel.services.governing.revoke_key(made.id)
        assert client.post("/v1/memory/get_all").status_code == 401
        assert client.post("/v1/embeddings", json={"input": "tea"}).status_code == 401
        chat = {"messages": [{"role": "user", "content": "Where is Kim?"}]}
        assert client.post("/v1/chat/completions", json=chat).status_code == 401


@pytest.mark.parametrize("path", ["models", "models/memos-small"])
def test_a_key_that_is_revoked_is_told_of_no_models(url: str, memory: Memory, ada: str, path: str) -> None:
    key, made = memory.kernel.services.governing.add_key(ada)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300) as client:
        assert client.get(f"/v1/{path}").status_code == 200
        memory.kernel.services.governing.revoke_key(made.id)
        assert client.get(f"/v1/{path}").status_code == 401


def test_who_shows_many_wrong_keys_is_not_listened_to_for_a_while(memory: Memory, key: str) -> None:
    def refusals() -> int:
        return sum(row.target == "a key" and not row.allowed for row in memory.kernel.vault.audit_log.query())

    def shown(key: str) -> httpx.Response:
        return client.post("/v1/memory/get_all", headers={"Authorization": f"Bearer {key}"})

    with running(memory) as (url, _), httpx.Client(base_url=url, timeout=300) as client:
        assert shown(key).status_code == 200
        before, replies = refusals(), [shown(f"memos_wrong_{n}") for n in range(40)]
        told = [reply.status_code for reply in replies]
        assert (told[:30], 429 in told[30:]) == ([401] * 30, True)
        assert refusals() - before == told.count(401)
        late = replies[told.index(429)]
        assert 1 <= int(late.headers["retry-after"]) <= 2
        assert "127.0.0.1 has shown 30 keys a minute that are not in force" in error(late)["message"]
        assert shown(key).status_code == 200  # who is known is not looked up


@pytest.mark.parametrize("proxies, most", [((), 30), (("127.0.0.1",), 100)])
def test_wrong_keys_are_counted_by_the_peer_and_before_they_are_looked_at(
    memory: Memory, proxies: tuple[str, ...], most: int
) -> None:
    with running(memory, proxies=proxies) as (url, _), ThreadPoolExecutor(50) as threads:

        def shown(n: int) -> int:
            headers = {"Authorization": f"Bearer memos_wrong_{n}", "X-Forwarded-For": f"10.0.0.{n}"}
            return httpx.get(f"{url}/v1/models", headers=headers, timeout=300).status_code

        began = time.monotonic()
        told = list(threads.map(shown, range(100)))
        assert told.count(401) <= most + (time.monotonic() - began) / 2, "one more in two seconds"
        assert told.count(401) >= most and set(told) <= {401, 429}


def test_a_revoked_key_is_a_wrong_one(memory: Memory, ada: str) -> None:
    key, made = memory.kernel.services.governing.add_key(ada)
    with (
        running(memory) as (url, _),
        httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300) as client,
    ):
        assert client.post("/v1/memory/get_all").status_code == 200
        memory.kernel.services.governing.revoke_key(made.id)
        assert 429 in [client.post("/v1/memory/get_all").status_code for _ in range(40)]


def test_a_key_is_let_in_once_and_looked_up_once_a_request(
    url: str, memory: Memory, ada: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, made = memory.kernel.services.governing.add_key(ada)
    looked, match = list[str](), memory.kernel.vault.credentials.match
    monkeypatch.setattr(memory.kernel.vault.credentials, "match", lambda given: looked.append(given) or match(given))
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300) as client:
        [told] = client.post("/v1/memory/add", json={"messages": "I live in Oslo."}).json()["results"]
        for path, given in (
            ("memory/get", {"memory_id": told["id"]}),
            ("memory/update", {"memory_id": told["id"], "data": "I live in Rome."}),
            ("memory/search", {"query": "home"}),
            ("memory/get_all", {"run_id": "monday"}),
            ("memory/log", {}),
            ("embeddings", {"input": "tea"}),
            ("chat/completions", {"messages": [{"role": "user", "content": "I like tea."}]}),
        ):
            looked.clear()
            assert client.post(f"/v1/{path}", json=given).status_code == 200
            assert looked == [key]
        other = client.post("/v1/memory/get_all", json={"user_id": "somebody-else"})
        assert (other.status_code, "does not reach" in error(other)["message"]) == (403, True)
        kept = memory.as_(key).within(run_id="monday")  # lets the key in a second time
        memory.kernel.services.governing.revoke_key(made.id)
        assert client.post("/v1/memory/get_all").status_code == 401
        with pytest.raises(Unauthenticated):
            kept.memories()
    rows = [row for row in memory.kernel.vault.audit_log.query() if row.action == "authenticate"]
    assert [row.allowed for row in rows if row.target == f"key {made.id}"] == [True, True]
    assert [(row.target, row.allowed) for row in rows[-2:]] == [("a key", False)] * 2


def test_each_key_sees_its_own_namespace(url: str, memory: Memory, ada: str, bob: str) -> None:
    for user in (ada, bob):
        key = memory.kernel.services.governing.add_key(user)[0]
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300) as client:
            assert client.post("/v1/memory/get_all").json()["results"] == []
            client.post("/v1/memory/add", json={"messages": f"I am {user}."})


def test_without_any_key_this_machine_acts_as_its_user(own: httpx.Client) -> None:
    added = own.post("/v1/memory/add", json={"messages": "I live in Oslo."}, headers={"Authorization": "Bearer none"})
    assert added.json()["results"][0]["user_id"] == "default"
    other = own.post("/v1/memory/get_all", json={"filters": {"user_id": "ada"}})
    assert (other.status_code, "leave user_id out" in error(other)["message"]) == (403, True)
    elsewhere = own.post("/v1/memory/get_all", headers={"Host": "page.example"})
    assert (elsewhere.status_code, "this machine alone" in error(elsewhere)["message"]) == (403, True)


@pytest.mark.parametrize(
    "origin, status",
    [
        ("http://page.example", 403),
        ("https://page.example:8000", 403),
        ("http://127.0.0.1.page.example", 403),
        ("null", 403),
        ("", 403),
        ("http://127.0.0.1:8000", 200),
        ("http://localhost", 200),
        ("http://[::1]:8000", 200),
    ],
)
@pytest.mark.parametrize("path", ["memory/get_all", "mcp"])
def test_without_any_key_no_page_of_another_site_acts_as_its_user(
    own: httpx.Client, path: str, origin: str, status: int
) -> None:
    body = {"json": {"jsonrpc": "2.0", "id": 1, "method": "ping"}} if path == "mcp" else {}
    accept = {"Accept": "application/json, text/event-stream"}
    reply = own.post(f"/v1/{path}", headers={"Origin": origin, **accept}, **body)
    assert reply.status_code == status
    assert status == 200 or repr(origin) in error(reply)["message"]


def test_with_a_key_it_is_the_key_that_says_who_calls(client: httpx.Client) -> None:
    assert client.post("/v1/memory/get_all", headers={"Origin": "http://page.example"}).status_code == 200


# -- how much


def test_a_key_has_its_requests_a_minute() -> None:
    now = [0.0]
    meter = Meter(ServeConfig(requests_a_minute=2, keys={"big": KeyLimits(requests_a_minute=4)}), lambda: now[0])

    def taken(key: str) -> int:
        for n in range(10):
            try:
                with meter.admitted(key):
                    pass
            except Busy as busy:
                assert 0 < busy.after <= 30
                return n
        return 10

    assert (taken("small"), taken("big")) == (2, 4)
    now[0] += 30
    assert (taken("small"), taken("big")) == (1, 2)


def test_beyond_its_limits_a_key_is_told_when_to_ask_again(memory: Memory, key: str) -> None:
    with running(memory, requests_a_minute=3) as (url, _), httpx.Client(base_url=url, timeout=300) as client:
        replies = [client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}) for _ in range(5)]
        assert [reply.status_code for reply in replies] == [200, 200, 200, 429, 429]
        assert 1 <= int(replies[-1].headers["retry-after"]) <= 20
        assert "serve.requests_a_minute" in error(replies[-1])["message"]
        assert client.get("/healthz").status_code == 200


def test_a_header_that_does_not_end_holds_no_connection(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HEADER_S", 0.5)
    host, _, port = url.removeprefix("http://").partition(":")
    body = b"POST /v1/none HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
    starts = {b"": True, b"GET /he": True, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET": True, body: False}
    for start, closes in starts.items():
        with socket.create_connection((host, int(port)), timeout=10) as client:
            began, closed = time.monotonic(), False
            client.sendall(start)
            client.setblocking(False)
            while not closed and time.monotonic() - began < 3:
                time.sleep(0.1)
                try:
                    closed = not client.recv(1 << 16)
                except ConnectionResetError:  # by what was sent after its end
                    closed = True
                except BlockingIOError:
                    pass
                with suppress(OSError):
                    client.send(b"x" if start and closes else b"")
            assert closed is closes, start
    assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_key_may_have_so_many_requests_at_once() -> None:
    meter = Meter(ServeConfig(concurrent=2))
    with meter.admitted("a"), meter.admitted("a"), meter.admitted("b"):
        with pytest.raises(Busy, match="serve.concurrent"), meter.admitted("a"):
            pass
    with meter.admitted("a"):
        pass


# -- how large


def test_a_body_that_is_too_large_is_not_read(client: httpx.Client) -> None:
    sent = 0

    def pieces() -> Iterator[bytes]:  # of no announced length
        nonlocal sent
        for _ in range(50):
            sent += 1 << 20
            yield b"x" * (1 << 20)

    announced = client.post("/v1/memory/add", content=b"x" * (50 << 20))
    assert (announced.status_code, error(announced)["code"]) == (413, "TooLarge")
    assert "52,428,800 bytes, and 4,194,304 are read (serve.body_bytes)" in error(announced)["message"]
    unannounced = client.post("/v1/memory/add", content=pieces(), headers={"Content-Type": "application/json"})
    assert unannounced.status_code == 413
    assert client.post("/v1/memory/get_all").status_code == 200


TOOL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"promote","arguments":%s}}'


@pytest.mark.parametrize(
    "path, body",
    [
        ("memory/promote", b'{"memory_ids":[' + b"1," * 1_000_000 + b"1]}"),
        ("memory/promote", b'{"memory_ids":[' + b'"a",' * 500_000 + b'"a"]}'),
        ("memory/promote", json.dumps({f"k{n}": 1 for n in range(100_000)}).encode()),
        ("memory/add", b'{"messages":[' + b"[]," * 1_000_000 + b"[]]}"),
        ("chat/completions", b'{"messages":[' + b"1," * 1_000_000 + b"1]}"),
        ("mcp", TOOL % (b'{"memory_ids":[' + b"1," * 1_000_000 + b"1]}")),
    ],
)
def test_a_body_of_too_many_values_is_not_parsed(client: httpx.Client, path: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    began = time.process_time()
    reply = client.post(f"/v1/{path}", content=body, headers=headers)
    assert (reply.status_code, error(reply)["code"]) == (413, "TooLarge")
    assert "values, and 20,000 are read at once; send it in parts" in error(reply)["message"]
    assert time.process_time() - began < 2  # to parse and to refuse each took up to 20


def test_many_mistakes_are_told_in_few_words_and_hold_nobody_up(client: httpx.Client) -> None:
    reply = client.post("/v1/memory/promote", json={"memory_ids": [1] * 15_000})
    assert reply.status_code == 422 and len(reply.content) < 1000
    assert error(reply)["message"].endswith("; and 14,990 more")


def test_a_long_text_is_one_value(client: httpx.Client) -> None:
    table = 'a,"b",[c],\\,{d}\n' * 20_000
    assert client.post("/v1/memory/add", json={"messages": table, "infer": False}).status_code == 200


# -- what is told


def test_health_needs_no_key_and_figures_which_tell_of_others_do(url: str, client: httpx.Client) -> None:
    client.post("/v1/memory/get_all")
    assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{url}/readyz").json() == {"status": "ready"}
    assert httpx.get(f"{url}/metrics").status_code == 401
    figures = client.get("/metrics").text
    assert 'memos_requests_total{route="/v1/memory/get_all",status="200"}' in figures
    assert "process_resident_memory_bytes" in figures


def test_the_figures_count_what_the_model_did_for_every_door(client: httpx.Client, memory: Memory, key: str) -> None:
    def counted() -> tuple[float, float]:
        figures = client.get("/metrics").text
        return tuple(  # type: ignore[return-value]
            float(re.search(rf"^memos_model_{name}_total (\S+)", figures, re.MULTILINE)[1])  # type: ignore[index]
            for name in ("calls", "tokens")
        )

    ask: dict = {"messages": [{"role": "user", "content": "Where does Kim live?"}]}
    tool = {"name": "chat", "arguments": {"messages": "Where does Kim live?"}}
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool}
    mcp = {"Accept": "application/json, text/event-stream"}
    with metered() as cost:
        memory.as_(key).chat("Where does Kim live?")
    for path, body, calls in (
        ("memory/chat", {"messages": "Where does Kim live?"}, 1),
        ("chat/completions", ask, 1),
        ("chat/completions", ask | {"stream": True}, 1),
        ("completions", {"prompt": ["Where does Kim live?"] * 2}, 2),
        ("mcp", rpc, 1),
        ("memory/get_all", {}, 0),
    ):
        before = counted()
        assert client.post(f"/v1/{path}", json=body, headers=mcp).status_code == 200
        assert tuple(map(float.__sub__, counted(), before)) == (calls, calls * cost.tokens), path


def test_an_answer_that_nobody_waits_for_is_counted(memory: Memory) -> None:
    def tell(piece: str) -> None:
        raise ClientDisconnected("left")

    with metered() as cost, pytest.raises(ClientDisconnected):
        memory.kernel.ask("Where does Kim live?", via="none", on_text=tell)
    assert cost.model_calls == 1 and cost.tokens > 5


def test_the_access_log_tells_nothing_of_what_was_said(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "memos.access"):
        client.post("/v1/memory/add", json={"messages": "My secret is tea."})
        client.post("/v1/secret-tea?secret=tea")
        client.post("/v1/mcp?secret=tea", json={})
        deadline = time.monotonic() + 5
        while len(caplog.records) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "memos.access"]
    told = [(line["route"], line["status"]) for line in lines]
    assert told == [("/v1/memory/add", 200), ("other", 404), ("/v1/mcp", 400)]
    assert lines[0]["ms"] > 0 and len(lines[0]["key"]) == 16
    assert "tea" not in str(lines)
