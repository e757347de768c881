"""The Memory API: plain values in and out, with mem0's habits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import get_type_hints

from memos import AsyncMemory, Memory
from memos.errors import BadTransition, ConfigError, Denied, InputError, MemosError, NotFound
from memos.interface.doors.api.calling import arguments, result
from memos.kernel.calls import Calls, api_names
from memos.plugins.packs.calls import PackCalls


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with Memory(vault=tmp_path_factory.mktemp("vault")) as memory:
        yield memory


def ids(reply: dict) -> list[str]:
    return [told["id"] for told in reply["results"]]


def test_what_is_added_is_found_by_its_user_alone(memory: Memory, ada: str, bob: str) -> None:
    added = memory.add([{"role": "user", "content": "I live in Oslo. I love tea."}], user_id=ada)
    assert [told["event"] for told in added["results"]] == ["ADD"] * 3  # the turn, and what it says
    assert memory.search("where do I live", user_id=ada, limit=1)["results"][0]["memory"] == "User: I live in Oslo."
    assert memory.search("where do I live", user_id=bob)["results"] == []
    again = memory.add([{"role": "user", "content": "I love tea."}], user_id=ada)
    assert [told["event"] for told in again["results"]] == ["NONE"]


def test_every_reply_is_json_and_says_what_it_cost(memory: Memory, ada: str) -> None:
    replies = [
        memory.add("I live in Rome.", user_id=ada, metadata={"source": {"page": 3}}),
        memory.chat("Where do I live?", user_id=ada),
        memory.explain("Where do I live?", user_id=ada),
        memory.overview(user_id=ada),
        memory.log(user_id=ada),
    ]
    for reply in replies:
        assert json.loads(json.dumps(reply)) == reply
        assert set(reply["cost"]) == {"model_calls", "tokens", "seconds"}
    assert replies[0]["cost"]["model_calls"] == 0
    assert replies[1]["cost"]["model_calls"] == 1
    assert replies[1]["cost"]["tokens"] > replies[1]["prompt_tokens"]


def test_scope_and_filters_may_say_the_same(memory: Memory, ada: str) -> None:
    kept = memory.add("I own a red bicycle.", user_id=ada, run_id="monday", metadata={"category": "things"})
    memory.add("I own a blue tent.", user_id=ada, metadata={"category": "camping"})
    assert ids(memory.get_all(filters={"user_id": ada, "run_id": "monday"})) == ids(kept)
    assert ids(
        memory.get_all(user_id=ada, filters={"AND": [{"category": "things"}, {"kind": {"in": ["note", "fact"]}}]})
    ) == ids(kept)
    assert ids(memory.search("what do I own", user_id=ada, filters={"category": "things"}, top_k=1)) == ids(kept)
    with pytest.raises(InputError, match="give one of them"):
        memory.search("what", user_id=ada, filters={"user_id": "eve"})
    for call in (memory.get_all, lambda **named: memory.search("what do I own", **named)):
        assert ids(call(filters={"user_id": ada, "AND": [{"category": "things"}]})) == ids(kept)
        assert ids(call(filters={"OR": [{"category": "things"}], "kind": "rule"}, user_id=ada)) == []


def test_a_filter_narrows_before_anything_is_ranked(memory: Memory, ada: str) -> None:
    for n in range(60):
        memory.add(f"Food that I like is dish {n}.", user_id=ada, metadata={"category": "food", "n": n})
    memory.add("I went to Oslo.", user_id=ada, metadata={"category": "travel"})
    memory.add("I went to Rome.", user_id=ada, metadata={"category": "travel"})
    for top_k in (None, 5):
        found = memory.search("which food", user_id=ada, filters={"category": "travel"}, top_k=top_k)["results"]
        assert [hit["memory"][:10] for hit in found] == ["I went to "] * 2
    assert len(ids(memory.search("which food", user_id=ada, filters={"n": {"gte": 50}}, top_k=9))) == 9
    assert ids(memory.search("which food", user_id=ada, filters={"n": {"gte": 60}})) == []
    told = memory.search("which food", user_id=ada, top_k=60, threshold=0.5)["results"]
    whole = memory.search("which food", user_id=ada, limit=60)["results"]
    assert told == [hit for hit in whole if hit["score"] >= 0.5] and whole[:3] == told[:3]
    for named in ({"top_k": 0}, {"top_k": -1}, {"limit": 0}, {"top_k": 0, "filters": {"category": "travel"}}):
        with pytest.raises(InputError, match="finds nothing; give 1 or more"):
            memory.search("which food", user_id=ada, **named)
    with pytest.raises(InputError, match="two names"):
        memory.search("which food", user_id=ada, top_k=1, limit=2)


def test_a_filter_sees_of_others_memories_what_its_caller_may_read(tmp_path: Path) -> None:
    settings = {"governance": {"redaction": {"email": "before_use"}}}
    with Memory.from_config(settings, vault=tmp_path) as memory:
        memory.add("My address is mira@example.com.", user_id="mira")
        memory.grant("namespace:mira", "tom", user_id="mira")
        by_address = {"memory": {"contains": "mira@"}}
        assert len(ids(memory.search("address", user_id="mira", filters=by_address))) == 1
        assert len(ids(memory.search("address", user_id="tom"))) == 1
        assert ids(memory.search("address", user_id="tom", filters=by_address)) == []


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda m: m.search("tea", topk=3), r"topk: unknown; did you mean top_k\?"),
        (lambda m: m.search("tea", rerank=True), "rerank is mem0's, and not known here: retrieval.reranker"),
        (lambda m: m.add("tea", memory_type="x", prompt="y"), "memory_type is mem0's.*; prompt is mem0's"),
        (lambda m: m.search(None), r"query: Input should be a valid string \(given: None\)"),
        (lambda m: m.search(), "query: Field required"),
        (lambda m: m.search("tea", 5), "search takes 1 values by their place, not 2"),
        (lambda m: m.get("0", memory_id="0"), "get is given memory_id by its place and by its name"),
        (lambda m: m.add(5), r"messages: .*valid string, or .*valid list.* \(given: 5\)"),
        (lambda m: m.add("tea", ttl_s="soon"), "ttl_s: .*valid number.*'soon'"),
        (lambda m: m.add("tea", tags=[1]), r"tags.0: Input should be a valid string \(given: 1\)"),
        (lambda m: m.get_all(limit=None), "limit: .*valid integer"),
        (lambda m: m.get_all(user_id=5), "user_id: .*valid string"),
        (lambda m: m.get_all(state="asleep"), "state: Input should be 'generated'"),
        (lambda m: m.get_all(filters="x"), "filters: .*valid dictionary"),
    ],
)
def test_what_a_call_does_not_take_is_said_in_the_words_of_memos(
    memory: Memory, call: Callable[[Any], Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        call(memory)


def test_every_message_is_kept_as_it_is_or_none(memory: Memory, ada: str) -> None:
    text, parts = {"role": "user", "content": "Plain."}, [{"type": "text", "text": "In a part."}]
    empty = {"role": "assistant", "content": " "}  # nothing was said
    kept = memory.add([text, empty, {"role": "assistant", "content": parts}], user_id=ada, infer=False, tags=["raw"])
    assert [told["memory"] for told in kept["results"]] == ["User: Plain.", "Assistant: In a part."]
    assert [(told["message"], told["role"]) for told in kept["results"]] == [
        ("Plain.", "user"),
        ("In a part.", "assistant"),
    ]
    assert [(told["tags"], told["kind"]) for told in kept["results"]] == [(["raw"], "episode")] * 2


def test_a_conversation_that_memos_keeps_sees_what_was_told_outside_it(memory: Memory, ada: str) -> None:
    memory.add("I live in Lisbon.", user_id=ada)
    told = memory.chat("Where do I live?", user_id=ada, run_id="first")
    assert told["text"] == "Lisbon"
    assert [seen["memory"] for seen in told["used"]] == ["I live in Lisbon."]


def test_an_answer_rests_on_the_memory_that_it_is_likelier_with(memory: Memory, ada: str) -> None:
    city = memory.add([{"speaker": "Mira", "content": "I live in Lisbon."}], user_id=ada)
    job = memory.add([{"speaker": "Mira", "content": "I work as a nurse."}], user_id=ada)
    told = memory.explain("Where does Mira live?", user_id=ada)
    assert told["answer"] == "Lisbon"
    change = {reason["id"]: reason["change"] for reason in told["reasons"]}
    assert change[ids(city)[0]] > 3 > abs(change[ids(job)[0]])
    assert told["likelihood"] > told["closed_book"] + 3

    memory.feedback(question="Where does Mira live?", answer="Lisbon", user_id=ada)
    found = memory.search("Where does Mira live?", user_id=ada)["results"]
    assert [hit["utility"] > 0.2 for hit in found] == [True, False]


def test_feedback_moves_what_is_found_first(memory: Memory, ada: str) -> None:
    one, other = (ids(memory.add(f"I keep {what} in the cellar.", user_id=ada))[0] for what in ("wine", "coal"))
    first, second = ids(memory.search("what do I keep in the cellar", user_id=ada))
    for _ in range(9):
        memory.feedback(first, -1.0, user_id=ada)
        memory.feedback(second, 1.0, user_id=ada)
    assert {one, other} == {first, second}
    assert ids(memory.search("what do I keep in the cellar", user_id=ada)) == [second, first]
    with pytest.raises(InputError, match="useful 2 is not from -1"):
        memory.feedback(first, 2.0, user_id=ada)
    with pytest.raises(InputError, match="give one of the pairs"):
        memory.feedback(first, user_id=ada)


def test_a_key_acts_for_its_holder_and_no_other(memory: Memory, ada: str, bob: str) -> None:
    key, _ = memory.kernel.services.governing.add_key(ada)
    own = memory.as_(key)
    own.add("I collect stamps.")
    assert ids(own.get_all()) == ids(memory.get_all(user_id=ada))
    assert ids(own.get_all(agent_id="planner")) == []
    with pytest.raises(Denied, match="does not reach"):
        own.get_all(user_id=bob)
    with pytest.raises(Denied, match="the key is unknown"):
        memory.as_("no key")


def test_a_memory_is_traced_to_its_sources_and_to_what_is_made_of_it(memory: Memory, ada: str) -> None:
    *kept, turn = ids(memory.add([{"speaker": "Mira", "content": "I live in Lisbon. I work as a nurse."}], user_id=ada))
    assert {*ids({"results": memory.provenance(turn, user_id=ada)["derived"]})} == {*kept}
    [kv] = memory.promote(kept, user_id=ada)["results"]
    assert kv["form"] == "activation" and kv["sources"] == kept and kv["bytes"] > 0
    assert {*ids({"results": memory.provenance(kv["id"], user_id=ada)["sources"]})} == {turn, *kept}
    assert ids({"results": memory.provenance(kept[0], user_id=ada)["derived"]}) == [kv["id"]]
    assert memory.overview(user_id=ada)["tiers"] == {kv["id"]: "disk"}


def test_the_hottest_are_told_first_whenever_they_were_said(memory: Memory, ada: str, bob: str) -> None:
    cold = [ids(memory.add(f"{name} lives in Rome.", user_id=ada))[0] for name in ("Tom", "Uma", "Bo")]
    (hot,) = ids(memory.add("Mira plays the flute.", user_id=ada))
    [kv] = ids(memory.promote([hot], user_id=ada))
    memory.kernel.within(ada).ask("What does Mira play?", via="activation")
    told = memory.overview(hottest=2, user_id=ada)
    assert [one["id"] for one in told["hottest"]] == [hot, cold[0], kv]
    assert told["hottest"][0]["heat"] == told["hottest"][2]["heat"] > 0
    assert memory.overview(user_id=ada)["hottest"] == memory.overview(hottest=9, user_id=bob)["hottest"] == []


def test_delete_all_needs_to_know_whose_and_leaves_the_others(memory: Memory, ada: str, bob: str) -> None:
    memory.add("I like figs.", user_id=ada)
    kept = memory.add("I like plums.", user_id=bob)
    with pytest.raises(InputError, match="whose memories"):
        memory.delete_all()
    memory.delete_all(user_id=ada)
    assert memory.get_all(user_id=ada)["results"] == []
    assert ids(memory.get_all(user_id=bob)) == ids(kept)
    with pytest.raises(NotFound):
        memory.get("0" * 14, user_id=bob)


@pytest.mark.parametrize(
    "lock, unlock, said",
    [
        ("freeze", "thaw", "{0} is frozen .*, and so are {1}; thaw"),
        ("hold", "end_hold", "{0} is held by .* and 1 more"),
    ],
)
def test_delete_all_removes_nothing_where_a_memory_is_locked(
    memory: Memory, ada: str, lock: str, unlock: str, said: str
) -> None:
    kept = [ids(memory.add(f"I like {fruit}.", user_id=ada))[0] for fruit in ("figs", "plums", "pears")]
    for id in kept[1:]:
        getattr(memory, lock)(id, why="a case", user_id=ada)
    with pytest.raises(BadTransition, match=said.format(*kept[1:])):
        memory.delete_all(user_id=ada)
    assert len(ids(memory.get_all(user_id=ada))) == 3
    for id in kept[1:]:
        getattr(memory, unlock)(id, user_id=ada)
    assert {gone["id"] for gone in memory.delete_all(user_id=ada)["results"]} == {*kept}


def test_a_key_of_an_agent_deletes_all_of_the_agent_alone(memory: Memory, ada: str) -> None:
    mine = ids(memory.add("I like figs.", user_id=ada))
    memory.add("I like plums.", user_id=ada, agent_id="planner")
    key, _ = memory.kernel.services.governing.add_key(f"agent:{ada}/planner")
    assert len(memory.as_(key).delete_all(agent_id="planner")["results"]) == 1
    assert ids(memory.get_all(user_id=ada)) == mine


def test_the_same_calls_are_awaited_and_see_what_was_added(memory: Memory, ada: str) -> None:
    async def session() -> list[str]:
        many = AsyncMemory(kernel=memory.kernel)
        added = await asyncio.gather(*(many.add(f"I own {n} books.", user_id=ada) for n in range(3)))
        found = await many.get_all(user_id=ada)
        assert sorted(ids(found)) == sorted(id for reply in added for id in ids(reply))
        with pytest.raises(AttributeError, match="no call of the Memory API"):
            await many.fly()
        return ids(found)

    assert len(asyncio.run(session())) == 3


def test_settings_may_be_a_mapping(tmp_path: Path) -> None:
    with Memory.from_config({"user_id": "mira"}, vault=tmp_path) as memory:
        assert memory.add("I like figs.")["results"][0]["user_id"] == "mira"
    with pytest.raises(ConfigError, match="unknown key"):
        Memory.from_config({"usr_id": "mira"})


def test_every_call_says_what_it_cost_and_that_it_does(memory: Memory, ada: str) -> None:
    """All public calls, in an order in which each has something to do."""
    mine = {"user_id": ada}
    one, other, more = (
        ids(memory.add(f"I own a {what}.", **mine))[0] for what in ("bicycle", "tent. I own a boat", "dog")
    )
    grant = {"on": one, "to": "bob"}
    replies: dict[str, Any] = {}

    def made(name: str, *values: Any, **named: Any) -> Any:
        replies[name] = getattr(memory, name)(*values, **named, **mine)
        return replies[name]

    made("add", "I own a kite.")
    made("get", one), made("get_all"), made("history", one), made("provenance", one), made("overview"), made("log")
    made("update", one, metadata={"a": 1}), made("tag", one, ["mine"]), made("search", "what do I own")
    done = made("chat", "I live in Oslo and remember that I like tea.")
    made("explain", "Where do I live?"), made("feedback", one, 1.0)
    made("freeze", one), made("thaw", one), made("archive", one), made("unarchive", one), made("rollback", one, 1)
    [kv] = ids(made("promote", [more]))
    made("demote", kv)
    [fused] = ids(made("fuse", [one, other]))
    made("split", fused), made("consolidate"), made("jobs")
    made("snapshot", "monday"), made("snapshots"), made("restore", "monday"), made("delete_snapshot", "monday")
    made("grant", **grant), made("grants"), made("revoke", **grant)
    made("join", "team", "bob"), made("groups"), made("leave", "team", "bob")
    made("trust", one, "user"), made("hold", one, "a case"), made("holds"), made("end_hold", one)
    made("quarantined"), made("tick"), made("delete", more), made("delete_all"), made("forget", user=True)
    # what needs something that is not there says so, and costs nobody anything
    for name, values in {"undo": ["none"], "cancel": ["none"], "release": ["none"], "reinstate": ["none"]}.items():
        with pytest.raises(MemosError):
            made(name, *values)
        replies[name] = None
    assert set(replies) == set(api_names()) and done["operations"]
    for name, reply in replies.items():
        assert "cost" in get_type_hints(result(getattr(Memory, name))), name
        assert reply is None or set(reply["cost"]) == {"model_calls", "tokens", "seconds"}, name
    assert replies["explain"]["cost"]["model_calls"] >= 2 and replies["promote"]["cost"]["tokens"] > 0


@pytest.mark.parametrize("name", list(api_names()))
def test_a_call_names_each_argument_for_the_doors(name: str) -> None:
    form = arguments(getattr(Memory, name))
    assert {"user_id", "agent_id", "run_id"} <= set(form.model_fields)
    assert "who" not in form.model_fields and form.model_json_schema()["additionalProperties"] is False
    assert getattr(Memory, name).__doc__


def test_what_is_left_out_of_the_api_is_for_those_who_run_the_kernel() -> None:
    other_names = {"get_all", "provenance", "forget"}
    files_and_models = {
        *("ask", "rewind", "keep", "conflicts", "audit_memory", "diff", "memories", "turns", "cubes"),
        *("gate", "export_adapter", "plan", "segments", "tiers", "dump", "load", "origins"),
        *("known_origins", "install", "subscribe", "update_packs", "remove_pack", "installed", "forget_user"),
        *("credit", "lineage", "publish", "withdraw", "trusted", "untrust"),
    }
    assert {*Calls.table(), *PackCalls.table()} - set(api_names()) == files_and_models
    assert set(api_names()) - {*Calls.table(), *PackCalls.table()} == other_names


def test_a_call_of_a_tool_is_remembered_with_its_task(memory: Memory, ada: str) -> None:
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    talk = [
        {"role": "user", "content": "Will it rain?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "1", "content": "3 mm"},
    ]
    turn, kept = memory.add(talk, user_id=ada)["results"]
    assert turn["message"] == "Will it rain?"
    assert kept["memory"] == "Task: Will it rain? weather(city=Oslo) was called; it returned 3 mm."
    assert (kept["kind"], kept["trust"]) == ("tool-trace", "tool")
    with pytest.raises(InputError, match="turn 1: a result without its call"):
        memory.add(talk[2:], user_id=ada)
    with pytest.raises(InputError, match=r"messages: .*valid dictionary \(given: \['hello'\]\)"):
        memory.add(["hello"], user_id=ada)  # type: ignore[list-item]
