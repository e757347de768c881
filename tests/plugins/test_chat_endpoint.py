"""An endpoint that fails in a way that passes is asked again; one that will always refuse is not."""

from __future__ import annotations

import pytest

from memos.plugins import chat_endpoint
from memos.plugins.chat_endpoint import ChatEndpoint, EndpointError
from tests.chat_server import Said, chat_server

ASKED = [{"role": "user", "content": "Where does Mira live?"}]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_endpoint, "FIRST_WAIT_S", 0.01)


def test_an_answer_comes_with_what_it_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    with chat_server(lambda n, request: Said("Oslo")) as (url, asked):
        done = ChatEndpoint(url, "m", "MY_KEY", 5).ask(ASKED, max_tokens=7)
    assert (done.text, done.tokens, done.tries) == ("Oslo", (10, 2), 1)
    assert asked[0]["messages"] == ASKED and asked[0]["max_tokens"] == 7 and asked[0]["temperature"] == 0
    assert asked[0]["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    "bad",
    [
        Said(status=500),
        Said(status=429, headers={"Retry-After": "0"}),
        Said(status=503, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        Said(body=b"<html>"),
        Said(body=b'{"choices": []}'),
        Said(body=b'{"choices": [{"message": {"content": null}}]}'),
        Said(body=b"[]"),
        Said(" "),
        Said("late", wait=0.5),
    ],
)
def test_what_may_pass_is_asked_again(bad: Said) -> None:
    with chat_server(lambda n, request: bad if n == 0 else Said("Oslo")) as (url, asked):
        done = ChatEndpoint(url, "m", "NONE", 0.2, tries=3).ask(ASKED)
    assert (done.text, done.tries, len(asked)) == ("Oslo", 2, 2)


def test_it_waits_as_long_as_the_server_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = list[float]()
    monkeypatch.setattr(chat_endpoint.time, "sleep", waited.append)
    busy = Said(status=429, headers={"Retry-After": "7"})
    with chat_server(lambda n, request: busy if n == 0 else Said("Oslo")) as (url, _):
        ChatEndpoint(url, "m", "NONE", 5, tries=2).ask(ASKED)
    assert 7 in waited


@pytest.mark.parametrize(("status", "hopeless"), [(401, True), (404, True), (400, False), (422, False)])
def test_what_will_not_pass_is_not_asked_again(status: int, hopeless: bool) -> None:
    refusal = Said(status=status, body=b"no such model")
    with (
        chat_server(lambda n, request: refusal) as (url, asked),
        pytest.raises(EndpointError, match=f"refused: {status} .*no such model") as refused,
    ):
        ChatEndpoint(url, "m", "NONE", 5, tries=5).ask(ASKED)
    assert len(asked) == 1 and refused.value.hopeless is hopeless


def test_after_all_tries_the_reason_is_told() -> None:
    with (
        chat_server(lambda n, request: Said(status=500, body=b"out of memory")) as (url, asked),
        pytest.raises(EndpointError, match="gave no answer in 2 tries .*500 .*out of memory"),
    ):
        ChatEndpoint(url, "m", "NONE", 5, tries=2).ask(ASKED)
    assert len(asked) == 2
    with pytest.raises(EndpointError, match="gave no answer in 1 tries"):
        ChatEndpoint("http://127.0.0.1:1/v1", "m", "NONE", 5).ask(ASKED)
