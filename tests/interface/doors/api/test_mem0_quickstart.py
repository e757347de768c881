"""mem0's quick start with its import swapped: the calls and arguments that mem0 documents, as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memos import AsyncMemory, Memory
from memos.errors import BadTransition, Denied, InputError, NotFound
from memos.plugins.server.edge.callers import OwnMemory

TALK = [
    {"role": "user", "content": "Hello! I live in Lisbon and I have a cat called Miso."},
    {"role": "assistant", "content": "Nice to meet you. How can I help?"},
    {"role": "user", "content": "I am allergic to peanuts. Which snack should I buy?"},
    {"role": "assistant", "content": "Rice crackers are a safe choice."},
    {"role": "user", "content": "I love sci-fi films, but I do not like thrillers."},
]


@pytest.fixture(scope="module")
def m(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("here"))  # a vault is made in the folder that one stands in
        with Memory() as m:
            yield m


def texts(reply: Any) -> list[str]:
    return [entry["memory"] for entry in reply["results"]]


def test_a_conversation_is_added_searched_and_listed(m: Memory) -> None:
    added = m.add(TALK, user_id="alice", metadata={"category": "small talk"})
    assert {entry["event"] for entry in added["results"]} == {"ADD"}
    assert all(entry["id"] and entry["memory"] for entry in added["results"])
    assert any("peanuts" in text for text in texts(added)) and not any(
        "crackers" in one["memory"] for one in added["results"] if one["role"] == "user"
    )

    related = m.search(query="What is the user allergic to?", user_id="alice", limit=1)
    assert "peanuts" in texts(related)[0] and related["results"][0]["score"] > 0
    newer = m.search("What is the user allergic to?", filters={"user_id": "alice"}, top_k=1)
    assert texts(newer) == texts(related)
    assert texts(m.get_all(user_id="alice")) == texts(m.get_all(filters={"user_id": "alice"}))
    assert m.search("films", user_id="bob")["results"] == []
    listed = m.get_all(filters={"AND": [{"user_id": "alice"}, {"category": "small talk"}]})
    assert texts(listed) == texts(m.get_all(user_id="alice"))


def test_a_memory_is_read_changed_and_deleted_by_its_id_alone(m: Memory) -> None:
    [kept] = m.add("I live in Lisbon.", user_id="carol")["results"]
    id = kept["id"]
    got = m.get(id)
    assert got["id"] == id and got["created_at"] and got["metadata"] == {} and got["user_id"] == "carol"
    m.update(memory_id=id, data="I live in Oslo.")
    assert "Oslo" in m.get(memory_id=id)["memory"]
    m.update(id, data="I live in Oslo.", metadata={"category": "home", "page": 3})
    m.update(id, metadata={"page": None, "seen": True})
    assert (m.get(id)["memory"], m.get(id)["metadata"]) == ("I live in Oslo.", {"category": "home", "seen": True})
    m.update(id, text="I live in Rome.")
    assert (m.get(id)["memory"], m.get(id)["metadata"]["category"]) == ("I live in Rome.", "home")
    versions = [one for one in m.history(memory_id=id[:14])["results"] if "version" in one]
    assert [one["version"] for one in versions] == [1, 2, 3, 4, 5]
    assert [(one["memory_id"], one["event"]) for one in versions] == [(id, "ADD"), *[(id, "UPDATE")] * 4]
    said = [one["new_memory"] for one in versions]
    assert (said[0], said[-1]) == ("I live in Lisbon.", "I live in Rome.")
    assert [one["old_memory"] for one in versions] == [None, *said[:-1]]
    assert {one["created_at"] for one in versions} == {versions[0]["at"]} and versions[4]["updated_at"] > got[
        "created_at"
    ]
    for wrong, told in (
        ({}, "changes nothing"),
        ({"data": "a", "text": "b"}, "two names"),
        ({"metadata": {"a": {1}}}, "no JSON"),
    ):
        with pytest.raises(InputError, match=told):
            m.update(id, **wrong)
    assert m.delete(memory_id=id)["message"] == "Memory deleted successfully!"
    assert m.get_all(user_id="carol")["results"] == []


def test_an_id_alone_opens_nothing_to_a_key_or_to_a_named_user(m: Memory) -> None:
    [kept] = m.add("I live in Lisbon.", user_id="gina")["results"]
    key, _ = m.kernel.services.governing.add_key("user:henry")
    own = OwnMemory(kernel=m.kernel)  # as a server without keys acts
    for call in (m.as_(key).get, own.get, lambda id: m.get(id, user_id="henry")):
        with pytest.raises(NotFound, match=kept["id"]):
            call(kept["id"])
    with pytest.raises(NotFound):
        m.get("0123")


def test_agents_and_runs_have_their_own(m: Memory) -> None:
    m.add(
        [{"role": "user", "content": "I work as a barista in Bergen."}], user_id="dan", agent_id="barista", run_id="r1"
    )
    m.add([{"role": "user", "content": "My bike is red."}], user_id="dan", run_id="r2")
    assert len(m.get_all(user_id="dan")["results"]) == 2
    assert "barista" in texts(m.get_all(user_id="dan", agent_id="barista"))[0]
    assert "bike" in texts(m.get_all(user_id="dan", run_id="r2"))[0]
    m.delete_all(user_id="dan", run_id="r2")
    assert len(m.get_all(user_id="dan")["results"]) == 1
    m.delete_all(user_id="dan")
    assert m.get_all(user_id="dan")["results"] == []


def test_messages_are_kept_as_they_are_without_inference(m: Memory) -> None:
    told = m.add(TALK[:2], user_id="eve", infer=False)
    assert len(told["results"]) == 2 and "Hello!" in texts(told)[0] and "How can I help?" in texts(told)[1]


def test_a_chat_loop_around_a_model_of_ones_own(m: Memory) -> None:
    def chat_with_memories(message: str, user_id: str = "frank") -> str:
        relevant = m.search(query=message, user_id=user_id, limit=3)
        known = "\n".join(f"- {entry['memory']}" for entry in relevant["results"])
        answer = f"I know:\n{known}"
        m.add([{"role": "user", "content": message}, {"role": "assistant", "content": answer}], user_id=user_id)
        return answer

    chat_with_memories("I work as a nurse.")
    assert "nurse" in chat_with_memories("What do I do for a living?")
    facts = m.get_all(user_id="frank", kind="fact")
    assert texts(facts) == ["User: I work as a nurse."]  # the rest is what was said


def test_the_quick_start_runs_as_it_is_written_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    m = Memory()
    messages = [
        {"role": "user", "content": "I'm planning to watch a movie tonight. Any recommendations?"},
        {"role": "assistant", "content": "How about a thriller movies? They can be quite engaging."},
        {"role": "user", "content": "I'm not a big fan of thriller movies but I love sci-fi movies."},
        {"role": "assistant", "content": "Got it! I'll avoid thriller recommendations and suggest sci-fi movies."},
    ]
    result = m.add(messages, user_id="alice", metadata={"category": "movie_recommendations"})
    m.add(messages, user_id="alice", metadata={"category": "movie_recommendations"}, infer=False)
    all_memories = m.get_all(user_id="alice")
    assert len(all_memories["results"]) > len(result["results"]) > 0
    id = result["results"][0]["id"]
    specific_memory = m.get(id)
    assert specific_memory["metadata"] == {"category": "movie_recommendations"}
    related_memories = m.search(query="What do you know about me?", user_id="alice")
    assert {"id", "memory", "score", "metadata", "user_id"} <= related_memories["results"][0].keys()
    m.update(memory_id=id, data="I love India, it is my favorite country.")
    history = m.history(memory_id=id)
    assert [row["new_memory"] for row in history["results"] if row["event"] == "UPDATE"] == [m.get(id)["memory"]]
    m.delete(memory_id=id)
    m.delete_all(user_id="alice")
    m.reset()  # Reset all memories
    m.close()


def test_a_reset_leaves_no_memory_of_anybody_or_all(tmp_path: Path) -> None:
    with Memory(vault=tmp_path) as m:
        for user in ("alice", "bob"):
            m.add("I live in Oslo.", user_id=user, agent_id="planner")
        [kept] = m.add("I live in Lisbon.", user_id="carol")["results"]
        m.freeze(kept["id"], user_id="carol")
        key, _ = m.kernel.services.governing.add_key("user:alice")
        with pytest.raises(
            Denied, match="alice calls with a key, and reset removes the memories of all; use delete_all"
        ):
            m.as_(key).reset()
        with pytest.raises(BadTransition, match=f"{kept['id']} is frozen and cannot be deleted; thaw it"):
            m.reset()
        assert len(m.kernel.vault.cubes()) == 3
        m.thaw(kept["id"], user_id="carol")
        assert len(m.reset()["results"]) == 3 and m.kernel.vault.cubes() == []
        assert m.as_(key).get_all()["results"] == []


def test_the_asynchronous_one_is_the_same(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncMemory(vault=tmp_path) as m:
            [kept] = (await m.add("I have a cat called Miso.", user_id="alice"))["results"]
            assert texts(await m.search("pets", filters={"user_id": "alice"})) == [kept["memory"]]
            await m.update(kept["id"], "I have a dog called Rex.")
            assert "Rex" in (await m.get(kept["id"]))["memory"]
            await m.update(kept["id"], metadata={"category": "pets"})
            assert (await m.get(kept["id"]))["metadata"] == {"category": "pets"}
            await m.history(kept["id"])
            await m.delete(kept["id"])
            await m.delete_all(user_id="alice")
            assert (await m.get_all(user_id="alice"))["results"] == []
            await m.add("I live in Oslo.", user_id="bob")
            assert [gone["event"] for gone in (await m.reset())["results"]] == ["DELETE"]

    asyncio.run(run())
