"""The links of a memory over HTTP: whole to whoever owns both ends, and nothing of what the caller may not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone

import pytest
from fastapi.testclient import TestClient
from talk import SharedParts

from memos import Memory
from memos.config import ServeConfig, parse_config
from memos.kernel.mem_os import MemOS
from memos.plugins.curators.calls import CuratorCalls
from memos.plugins.server.app import create_app

CLOSED = {"governance": {"redaction": {"email": "before_use"}}}
FROM = datetime(2020, 1, 1, tzinfo=timezone.utc)
PATH = "/v1/memory/linked"
ClientOf = Callable[[str], TestClient]


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with MemOS(parts=SharedParts(parse_config(CLOSED), tmp_path_factory.mktemp("links") / "vault")) as kernel:
        yield Memory(kernel=kernel)


@pytest.fixture(scope="module")
def client_of(memory: Memory) -> ClientOf:
    app = create_app(memory, ServeConfig(), loopback=True)

    def made(user: str) -> TestClient:
        key, _ = memory.kernel.services.governing.add_key(user)
        return TestClient(app, headers={"Authorization": f"Bearer {key}"})

    return made


@pytest.fixture
def ids(memory: Memory, ada: str) -> list[str]:
    """Ada's: a flat, its landlord and her diary, each linked with the first."""
    calls = memory.kernel.within(ada)
    told = ["Ada rents a flat in Oslo.", "Her landlord is lea@oslo.example.", "The diary says she will move out."]
    flat, landlord, diary = ids = [calls.add(text)[0].id for text in told]
    CuratorCalls.of(calls).link(flat, landlord, "rented from lea@oslo.example", 0.5, since=FROM)
    CuratorCalls.of(calls).link(diary, flat, "about")
    return ids


def test_each_link_tells_its_direction_and_the_memory_at_its_other_end(
    client_of: ClientOf, ada: str, ids: list[str]
) -> None:
    flat, landlord, diary = ids
    reply = client_of(ada).post(PATH, json={"memory_id": flat}).json()
    assert set(reply) == {"results", "cost"}
    to, gone = sorted(reply["results"], key=lambda link: link["kind"])
    assert gone == {
        "id": landlord,
        "memory": "Her landlord is lea@oslo.example.",
        "form": "plaintext",
        "kind": "rented from lea@oslo.example",
        "weight": 0.5,
        "since": FROM.isoformat(),
        "until": None,
        "direction": "from",
    }
    assert (to["id"], to["direction"], to["weight"], to["since"]) == (diary, "to", 1.0, None)


def test_what_the_caller_may_not_see_is_not_shown_and_the_rest_is_masked(
    client_of: ClientOf, memory: Memory, ada: str, bob: str, ids: list[str]
) -> None:
    flat, landlord, _ = ids
    for id in (flat, landlord):
        memory.grant(id, bob, user_id=ada)
    client = client_of(bob)
    [link] = client.post(PATH, json={"memory_id": flat}).json()["results"]
    assert (link["id"], link["memory"]) == (landlord, "Her landlord is [email].")
    assert link["kind"] == "rented from [email]"
    assert [link["id"] for link in client.post(PATH, json={"memory_id": landlord}).json()["results"]] == [flat]
    memory.revoke(landlord, bob, user_id=ada)
    assert client.post(PATH, json={"memory_id": flat}).json()["results"] == []


def test_a_hidden_memory_answers_as_one_that_is_absent(client_of: ClientOf, bob: str, ids: list[str]) -> None:
    client = client_of(bob)
    hidden, absent = (client.post(PATH, json={"memory_id": id}) for id in (ids[0], "nothing"))
    assert hidden.status_code == absent.status_code == 404
    assert hidden.text.replace(ids[0], "nothing") == absent.text


@pytest.mark.parametrize(
    "body, status, told",
    [
        ({}, 422, "memory_id: Field required"),
        ({"memory_id": 3}, 422, "memory_id: Input should be a valid string (given: 3)"),
        ({"memory_ids": "x"}, 422, "did you mean memory_id?"),
        ({"memory_id": "x", "user_id": "somebody-else"}, 403, "does not reach"),
        ({"memory_id": "\0"}, 404, "give the whole id"),
    ],
)
def test_bad_input_is_named_as_by_other_calls(
    client_of: ClientOf, bob: str, body: object, status: int, told: str
) -> None:
    client = client_of(bob)
    reply = client.post(PATH, json=body)
    assert (reply.status_code, told in reply.json()["error"]["message"]) == (status, True), reply.text
    assert TestClient(client.app).post(PATH, json=body).status_code == 401
