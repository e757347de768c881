"""Rights that are given and taken back through the public calls, and keys that say who calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from memos import Config, MemOS
from memos.config import GovernanceConfig
from memos.cube import Form, MemCube, Namespace, Turn, new_id
from memos.errors import Denied, InputError, NotFound
from memos.infrastructure.vault.store import transactions as vault_clock
from memos.kernel.calls import Calls
from memos.ops import Recall
from memos.plugins.externalize.calls import ExternalizeCalls
from memos.plugins.packs.calls import PackCalls
from memos.rights import ACTIONS, Caller, Group, name_of, object_of, subject_of

pytestmark = pytest.mark.rights


@pytest.fixture(scope="module")
def memos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    with MemOS(vault=tmp_path_factory.mktemp("sharing") / "vault") as kernel:
        yield kernel


def told(memos: MemOS, user: str, text: str = "My code is LIMPET.") -> MemCube:
    [cube] = memos.within(user).add(text)
    return cube


def texts(memos: MemOS, user: str) -> list[str]:
    return [cube.text for cube in memos.within(user).memories()]


def found(memos: MemOS, user: str) -> list[str]:
    return [hit.cube.text for hit in memos.within(user).search("what is the code")]


# relations


@pytest.mark.parametrize("relation", ACTIONS)
def test_a_relation_allows_what_the_table_says(memos: MemOS, ada: str, bob: str, relation: str) -> None:
    cube = told(memos, ada)
    memos.within(ada).grant(cube.id, bob, relation)
    tries = {
        "read": lambda: memos.within(bob).get(cube.id),
        "annotate": lambda: memos.within(bob).tag(cube.id, ["red"]),
        "write": lambda: memos.within(bob).update(cube.id, "My code is WHELK."),
        "manage": lambda: memos.within(bob).grant(cube.id, "eve", "reader"),
        "delete": lambda: memos.within(bob).delete(cube.id),
    }
    for action, call in tries.items():
        if action in ACTIONS[relation]:  # type: ignore[index]
            call()
        else:
            with pytest.raises(Denied, match=f"{bob} may not {action} cube {cube.id}: only its owner"):
                call()


def test_a_grant_reaches_search_and_a_revocation_takes_it_back_at_once(memos: MemOS, ada: str, bob: str) -> None:
    cube = told(memos, ada)
    assert found(memos, bob) == texts(memos, bob) == []
    memos.within(ada).grant(cube.id, bob, "reader")
    assert found(memos, bob) == texts(memos, bob) == ["My code is LIMPET."]
    assert memos.within(ada).revoke(cube.id, bob) == 1
    assert found(memos, bob) == texts(memos, bob) == []
    with pytest.raises(NotFound):
        memos.within(bob).get(cube.id)


def test_a_namespace_is_granted_with_all_that_comes_into_it(memos: MemOS, ada: str, bob: str) -> None:
    memos.within(ada).grant(Namespace(user_id=ada), bob, "reader")
    told(memos, ada)
    assert found(memos, bob) == ["My code is LIMPET."]
    with pytest.raises(Denied, match=f"{bob} may not manage namespace {ada}: only its user"):
        memos.within(bob).grant(f"namespace:{ada}", "eve", "reader")
    memos.within(ada).revoke(f"namespace:{ada}", bob)
    assert found(memos, bob) == []


def test_a_grant_ends_by_itself_in_what_was_looked_at_before_too(
    memos: MemOS, ada: str, bob: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cube, until = told(memos, ada), memos.vault.now() + timedelta(hours=1)
    memos.within(ada).grant(cube.id, bob, "reader", until=until)
    assert found(memos, bob) == ["My code is LIMPET."]
    with monkeypatch.context() as patch:
        patch.setattr(vault_clock, "clock", lambda: until + timedelta(seconds=1))
        assert found(memos, bob) == [] and memos.within(bob).grants() == []


def test_a_grant_that_is_repeated_has_the_later_end(memos: MemOS, ada: str, bob: str) -> None:
    cube, until = told(memos, ada), memos.vault.now() + timedelta(hours=1)
    memos.within(ada).grant(cube.id, bob, "reader", until=until)
    memos.within(ada).grant(cube.id, bob, "reader")
    assert [(g.relation, g.until) for g in memos.within(ada).grants(cube.id)] == [("reader", None)]


def test_a_grant_for_a_purpose_holds_for_those_who_state_it(memos: MemOS, ada: str, bob: str) -> None:
    cube = told(memos, ada)
    memos.within(ada).grant(cube.id, bob, "reader", purpose="billing")
    assert found(memos, bob) == []
    assert [h.cube.id for h in memos.within(bob, purpose="billing").search("what is the code")] == [cube.id]
    assert memos.within(bob, purpose="marketing").search("what is the code") == []


def test_groups_nest_and_cycles_are_harmless(memos: MemOS, ada: str, bob: str) -> None:
    cube = told(memos, ada)
    memos.within(ada).join("inner", bob)
    memos.within(ada).join("outer", "group:inner")
    memos.within(ada).join("inner", "group:outer")
    memos.within(ada).grant(cube.id, "group:outer", "reader")
    assert texts(memos, bob) == ["My code is LIMPET."]
    assert [str(group) for group in memos.within(bob).groups()] == [f"group:{ada}/inner", f"group:{ada}/outer"]
    memos.within(ada).leave("inner", bob)
    assert texts(memos, bob) == [] and memos.within(bob).groups() == {}
    with pytest.raises(NotFound, match=f"user:{bob} is no member of group:{ada}/inner"):
        memos.within(ada).leave("inner", bob)


def test_an_agent_changes_no_group_of_its_user_whatever_is_granted_to_it(memos: MemOS, ada: str, bob: str) -> None:
    """What others have granted to the group is not in the namespace that was granted."""
    cube = told(memos, bob)
    memos.within(bob).grant(cube.id, f"group:{ada}/team", "reader")
    memos.within(ada).grant(f"namespace:{ada}", f"agent:{ada}/planner", "owner")
    agent = memos.as_(memos.services.governing.add_key(f"agent:{ada}/planner")[0])
    with pytest.raises(Denied, match=f"{ada}/planner keeps no groups, whatever is granted to it; ask {ada}"):
        agent.join("team", f"agent:{ada}/planner")
    assert agent.memories() == [] and not memos.vault.audit_log.query(limit=2)[0].allowed


def test_what_is_granted_to_an_agent_is_not_granted_to_its_user(memos: MemOS, ada: str, bob: str) -> None:
    cube = told(memos, ada)
    memos.within(ada).grant(cube.id, f"agent:{bob}/planner", "reader")
    key, _ = memos.services.governing.add_key(f"agent:{bob}/planner")
    assert texts(memos, bob) == []
    assert [c.id for c in memos.as_(key).memories()] == [cube.id]


def test_another_process_sees_a_revocation_at_once(memos: MemOS, ada: str, bob: str) -> None:
    cube = told(memos, ada)
    memos.within(ada).grant(cube.id, bob, "reader")
    with MemOS(vault=memos.vault.path) as other:
        assert found(other, bob) == ["My code is LIMPET."]
        memos.within(ada).revoke(cube.id, bob)
        assert found(other, bob) == texts(other, bob) == []


def test_what_is_made_of_granted_memories_can_be_read_with_all_of_them_alone(memos: MemOS, ada: str, bob: str) -> None:
    one, other = told(memos, ada, "Tom likes tea."), told(memos, ada, "Tom likes jam.")
    fused = memos.within(ada).fuse([one.id, other.id])
    memos.within(ada).grant(one.id, bob, "reader")
    assert found(memos, bob) == []
    memos.within(ada).grant(other.id, bob, "reader")
    assert found(memos, bob) == [fused.text]
    memos.within(ada).revoke(one.id, bob)
    assert found(memos, bob) == []


# what a refusal, or a result, gives away


def test_a_prefix_means_one_of_those_that_may_be_seen(memos: MemOS, ada: str, bob: str) -> None:
    """Else it would tell that somebody else has kept something at that time."""
    mine, other = told(memos, ada), told(memos, bob)
    common = "".join(a for n, a in enumerate(mine.id) if other.id.startswith(mine.id[: n + 1]))
    assert len(common) >= 6 and memos.within(ada).get(common).id == mine.id
    with pytest.raises(NotFound) as refused:
        memos.within("nobody").get(common)
    with pytest.raises(NotFound) as nothing:
        memos.within("nobody").get("f" * len(common))
    assert str(refused.value).replace(common, "f" * len(common)) == str(nothing.value)


def test_an_owner_is_not_told_what_others_made_of_a_memory(memos: MemOS, ada: str, bob: str) -> None:
    cube = told(memos, ada)
    memos.within(ada).grant(cube.id, bob, "reader")
    kept = memos.parts.sessions()
    from memos.operation.choosing.mem_scheduler import Admission, Session, Talk

    own = Session(Namespace(user_id=bob, session_id="s"), Caller(Namespace(user_id=bob)))
    talk = Talk("What is the code?", session=own)
    kept.keep(talk, "LIMPET", Admission(cubes=(memos.within(bob).get(cube.id),)), (), None)
    [turn] = memos.within(bob).turns("s")
    assert memos.within(ada).delete(cube.id) == [cube.id]
    with pytest.raises(NotFound):
        memos.within(bob).get(turn.id)


def test_reasons_of_moves_are_the_owners(memos: MemOS, ada: str, bob: str) -> None:
    old = told(memos, ada, "I live in Rome.")
    memos.within(ada).grant(old.id, bob, "reader")
    new = told(memos, ada, "I live in Oslo.")
    assert new.id in str(memos.within(ada).history(old.id))
    assert new.id not in str(memos.within(bob).history(old.id))


def test_jobs_of_others_are_neither_told_nor_ended(memos: MemOS, ada: str, bob: str) -> None:
    cube = told(memos, ada)
    job = memos.vault.jobs.queue("promote to activation", {"sources": [f"{cube.id}@1"]})
    assert [j.id for j in memos.within(ada).jobs()] == [job] and memos.within(bob).jobs() == []
    with pytest.raises(NotFound, match=f"no open job {job}"):
        memos.within(bob).cancel(job)
    memos.within(ada).grant(cube.id, bob, "reader")
    with pytest.raises(Denied):
        memos.within(bob).cancel(job)
    memos.within(ada).cancel(job)
    assert memos.within(ada).jobs() == []


def test_grants_are_told_to_those_they_concern(memos: MemOS, ada: str, bob: str) -> None:
    cube = told(memos, ada)
    memos.within(ada).grant(cube.id, bob, "reader")
    memos.within(ada).grant(cube.id, "carol-of-nobody", "editor")
    assert [name_of(g.to) for g in memos.within(ada).grants(cube.id)] == [f"user:{bob}", "user:carol-of-nobody"]
    assert [name_of(g.to) for g in memos.within(bob).grants()] == [f"user:{bob}"]
    assert memos.within("eve-of-nobody").grants() == []


def test_each_decision_on_rights_is_written_down(memos: MemOS, ada: str, bob: str) -> None:
    cube = told(memos, ada)
    memos.within(ada).grant(cube.id, bob, "reader")
    with pytest.raises(Denied):
        memos.within(bob).revoke(cube.id, bob)
    rows = [(r.caller, r.action, r.target, r.allowed) for r in memos.vault.audit_log.query(limit=2)]
    assert rows == [(ada, "manage", cube.id, True), (bob, "manage", cube.id, False)]


def test_who_may_edit_a_turn_of_others_makes_no_memories_of_it(memos: MemOS, ada: str, bob: str) -> None:
    turn = Turn(question="What is my code?", answer="LIMPET.", since="0")
    cube = told(memos, ada).model_copy(update={"id": new_id(), "payload": turn})
    cube = cube.model_copy(update={"header": cube.header.model_copy(update={"kind": "turn"})})
    memos.vault.put(cube)
    memos.within(ada).grant(cube.id, bob, "editor")
    assert memos.within(bob).get(cube.id).payload == turn
    with pytest.raises(InputError, match=f"cube {cube.id} is a turn of a conversation, and no memory"):
        memos.within(bob).split(cube.id, ["My code is WHELK.", "I sing."])
    assert memos.vault.derived(cube.id) == []


# keys


def test_a_key_stands_for_its_namespace_and_nothing_in_a_call_widens_it(memos: MemOS, ada: str, bob: str) -> None:
    mine, other = told(memos, ada), told(memos, bob, "My code is WHELK.")
    key, made = memos.services.governing.add_key(ada)
    memory = memos.as_(key)
    assert memos.parts.identity.authenticate(key) == Caller(Namespace(user_id=ada))
    assert [hit.cube.id for hit in memory.search("what is the code")] == [mine.id]
    with pytest.raises(NotFound):
        memory.get(other.id)
    with pytest.raises(Denied, match="does not reach"):
        memory.within(bob).get(other.id)
    with pytest.raises(AttributeError, match="has no attribute"):
        memory.vault  # noqa: B018
    assert made.id in key and key not in str(memos.services.governing.keys())


def test_a_key_of_an_agent_and_a_session_reaches_no_further(memos: MemOS, ada: str) -> None:
    told(memos, ada)
    agent, _ = memos.services.governing.add_key(f"agent:{ada}/planner")
    session, _ = memos.services.governing.add_key(f"namespace:{ada}/planner/monday")
    assert memos.as_(agent).memories() == []
    [cube] = memos.as_(session).add("My code is WHELK.")
    assert cube.namespace == Namespace(user_id=ada, agent_id="planner", session_id="monday")
    assert [c.id for c in memos.as_(agent).memories()] == [cube.id]
    with pytest.raises(Denied, match="reaches no other, 'tuesday'"):
        memos.as_(session).turns("tuesday")


def test_a_revoked_key_opens_nothing_even_where_it_was_used_before(memos: MemOS, ada: str) -> None:
    key, made = memos.services.governing.add_key(ada)
    memory = memos.as_(key)
    memory.memories()
    memos.services.governing.revoke_key(made.id)
    with pytest.raises(Denied, match="unknown, revoked or has ended"):
        memory.memories()


def test_a_key_ends(memos: MemOS, ada: str, monkeypatch: pytest.MonkeyPatch) -> None:
    until = memos.vault.now() + timedelta(hours=1)
    key, _ = memos.services.governing.add_key(ada, until=until)
    memos.as_(key)
    with monkeypatch.context() as patch:
        patch.setattr(vault_clock, "clock", lambda: until + timedelta(seconds=1))
        with pytest.raises(Denied):
            memos.as_(key)


@pytest.mark.parametrize("wrong", ["", "memos", "memos_", "memos_0_x", "memos_\ud800_x", "x_{id}_{secret}", "{half}"])
def test_a_wrong_key_is_refused_and_written_down_without_it(memos: MemOS, ada: str, wrong: str) -> None:
    key, made = memos.services.governing.add_key(ada)
    given = wrong.format(id=made.id, secret=key.split("_", 2)[2], half=key[:-1])
    with pytest.raises(Denied) as error:
        memos.as_(given)
    row = memos.vault.audit_log.query(limit=1)[0]
    assert (row.action, row.allowed) == ("authenticate", False)
    assert not given or (given not in str(error.value).split() and given not in map(str, row))


def test_what_is_kept_of_a_key_does_not_tell_it(memos: MemOS, ada: str) -> None:
    key, made = memos.services.governing.add_key(ada)
    secret = key.split("_", 2)[2]
    [row] = memos.vault._db.rows("SELECT * FROM credentials WHERE id = ?", made.id)
    assert len(secret) >= 43 and secret not in str(row)  # 256 bits


def test_a_key_states_only_its_purposes(memos: MemOS, ada: str) -> None:
    key, made = memos.services.governing.add_key(ada, purposes=["billing"])
    assert memos.as_(key, "billing").caller == Caller(Namespace(user_id=ada), "billing")
    with pytest.raises(Denied, match=f"key {made.id} is not for the purpose 'marketing'; it is for billing"):
        memos.as_(key, "marketing")


def test_a_kernel_may_require_keys(tmp_path: Path) -> None:
    with MemOS(Config(governance=GovernanceConfig(require_credentials=True)), vault=tmp_path) as kernel:
        for call in (kernel.memories, kernel.grants, lambda: kernel.add("x is y"), lambda: kernel.within(purpose="x")):
            with pytest.raises(Denied, match="no call without a key"):
                call()
        key, _ = kernel.services.governing.add_key("ada")
        assert kernel.as_(key).add("My code is LIMPET.")[0].rights.owner == "ada"


def test_who_calls_is_said_before_the_call(memos: MemOS, ada: str) -> None:
    with pytest.raises(InputError, match=r"search takes no user; whose call it is says within\(user\)\.search"):
        memos.search("what is the code", user=ada)  # type: ignore[call-arg]


def test_each_line_of_the_table_is_a_method_that_takes_a_caller_first() -> None:
    for table in (Calls, PackCalls):
        for name, line in table.table().items():
            assert list(inspect.signature(line.method).parameters)[:2] == ["self", "caller"], name
            assert "caller" not in line.signature.parameters


# bad input


@pytest.mark.parametrize(
    "to", ["", "user:", "agent:ada", "group:", "group:a/b/c", "robot:x", "namespace:a/b/c/d", "\ud800"]
)
def test_who_cannot_be_meant_is_named(memos: MemOS, ada: str, to: str) -> None:
    with pytest.raises(InputError, match="names nobody; give user:NAME"):
        memos.within(ada).grant(told(memos, ada).id, to, "reader")


def test_a_relation_purpose_or_time_that_cannot_be_is_named(memos: MemOS, ada: str) -> None:
    id = told(memos, ada).id
    with pytest.raises(InputError, match="'writer' is no relation; give one of owner, editor, annotator, reader"):
        memos.within(ada).grant(id, "bob", "writer")
    with pytest.raises(InputError, match="cannot be a purpose"):
        memos.within(ada).grant(id, "bob", "reader", purpose="")
    with pytest.raises(InputError, match="has passed"):
        memos.within(ada).grant(id, "bob", "reader", until=datetime(2020, 1, 1, tzinfo=timezone.utc))
    with pytest.raises(InputError, match="is a group, and a key stands for one"):
        memos.services.governing.add_key("group:ada/team")


@pytest.mark.parametrize(
    "text",
    ["user:bob", "user:bob/p", "user:5%", "agent:bob/p", "agent:b%2Fb/5%25", "namespace:bob/p/s", "group:ada/team"],
)
def test_names_are_read_as_they_are_written(text: str) -> None:
    assert name_of(subject_of(text, "ada")) == text
    assert subject_of("bob/x", "ada") == Namespace(user_id="bob/x")
    assert subject_of("group:team", "ada") == Group(owner="ada", name="team")
    assert object_of("namespace:bob") == Namespace(user_id="bob")


def test_a_payload_of_the_vault_is_used_by_the_id_of_its_cube(memos: MemOS, ada: str) -> None:
    with pytest.raises(InputError, match="lies in the vault"):
        ExternalizeCalls.of(memos.within(ada)).externalize(memos.vault.path / "blobs" / "x")


# what is in memory


def test_kv_and_adapters_in_memory_answer_only_those_who_may_read_their_sources(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as kernel:
        kernel.within("ada").add("Mira lives in Rome.")
        kernel.within("ada").add("Tom lives in Oslo.")
        cubes = kernel.within("ada").memories()
        kv = [kernel.within("ada").promote(cube.id, Form.ACTIVATION) for cube in cubes]
        kernel.within("ada").ask("Where does Mira live?", via="activation")  # it is in memory now
        asked = Recall(question="Where does Mira live?")
        bob = Caller(Namespace(user_id="bob"))
        assert kernel.services.answering.admit(bob, asked).cubes == ()
        kernel.within("ada").grant(cubes[0].id, "bob", "reader")
        reply = kernel.within("bob").ask("Where does Mira live?", via="activation", session=None)
        assert [c.id for c in reply.admission.activations] == [kv[0].id] and "Rome" in reply.text
        in_talk = kernel.within("bob").chat("Where does Mira live?", session="s")
        assert "Rome" in in_talk.text and len(kernel.within("bob").turns("s")) == 1
        kernel.within("ada").revoke(cubes[0].id, "bob")
        assert kernel.within("bob").turns("s") == []
        after = kernel.within("bob").ask("Where does Mira live?", session="s")
        assert after.admission.cubes == after.admission.activations == () and "Rome" not in after.text
        assert "Rome" in kernel.within("ada").ask("Where does Mira live?", via="activation").text


# packs and forgetting, through the one door


@pytest.fixture
def exchanging(tmp_path: Path) -> Iterator[MemOS]:
    config = Config(governance=GovernanceConfig(exchange_folder=tmp_path / "exchange"))
    with MemOS(config, vault=tmp_path / "vault") as kernel:
        yield kernel


def test_what_is_for_the_keeper_of_a_vault_is_refused_to_who_has_a_key(exchanging: MemOS, tmp_path: Path) -> None:
    told(exchanging, "tess", "My code is WHELK.")
    bound = exchanging.as_(exchanging.services.governing.add_key("tess")[0])
    made = PackCalls.of(bound).dump(Path("own.mip"))
    assert made.path == tmp_path / "exchange" / "tess" / "own.mip"
    for refused in (
        lambda: PackCalls.of(bound).dump(Path("all.mip"), everyone=True),
        lambda: PackCalls.of(bound).dump(Path("all.mip"), key=Path("key.pem")),
        lambda: PackCalls.of(bound).load(Path("own.mip"), owners=True),
        lambda: PackCalls.of(bound).load(Path("own.mip"), trust=made.key),
        lambda: PackCalls.of(bound).install(".", "ada/life", trust=made.key),
        lambda: PackCalls.of(bound).update_packs(trust=made.key),
    ):
        with pytest.raises(Denied, match="ask who keeps this vault"):
            refused()
    for name in ("publish", "withdraw", "untrust", "trusted", "audit_query", "audit_export", "vault"):
        with pytest.raises(AttributeError, match="has no attribute"):
            getattr(bound, name)
    assert PackCalls.of(bound).load(Path("own.mip")).added == [] and not made.path.with_name("all.mip").exists()


def test_who_has_a_key_names_no_file_of_the_process(memos: MemOS, ada: str, tmp_path: Path) -> None:
    told(memos, ada)
    (tmp_path / "notes.md").write_text("# Ada\n\nAda lives in Oslo.\n")
    bound = memos.as_(memos.services.governing.add_key(ada)[0])
    for refused in files_named(bound, tmp_path):
        with pytest.raises(Denied, match=rf"{ada} calls with a key.*files are for who keeps.*exchange_folder"):
            refused()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.md"] and texts(memos, ada) == ["My code is LIMPET."]


@pytest.mark.parametrize("where", ["outside", "..", "../bob", "link", "https://example.org", "zip::file:"])
def test_files_of_who_has_a_key_lie_in_a_folder_of_its_own(exchanging: MemOS, tmp_path: Path, where: str) -> None:
    own, outside = tmp_path / "exchange" / "ada", tmp_path / "outside"
    for folder in (own, outside, tmp_path / "exchange" / "bob"):
        folder.mkdir(parents=True)
        (folder / "notes.md").write_text("# Ada\n\nAda lives in Oslo.\n")
    (own / "link").symlink_to(outside)
    bound = exchanging.as_(exchanging.services.governing.add_key("ada")[0])
    for refused in files_named(bound, outside if where == "outside" else Path(where)):
        with pytest.raises(Denied, match=r"not in its part of governance\.exchange_folder.*relative to it"):
            refused()
    assert texts(exchanging, "ada") == [] and {path.name for path in outside.iterdir()} == {"notes.md"}
    assert [cube.text for cube in bound.add(Path("notes.md"))] == [cube.text for cube in bound.add(own / "notes.md")]
    assert exchanging.within("ada", purpose="care").add(outside / "notes.md")  # who runs the process names any


def files_named(bound: Any, folder: Path) -> list[Callable[[], object]]:
    """Every way to name a file by a call."""
    adapters = [folder / "adapter"]
    return [
        lambda: bound.add(folder / "notes.md"),
        lambda: PackCalls.of(bound).dump(folder / "own.mip"),
        lambda: PackCalls.of(bound).load(folder / "own.mip"),
        lambda: PackCalls.of(bound).load(str(folder / "own.mip")),
        lambda: PackCalls.of(bound).install(str(folder), "ada/life"),
        lambda: PackCalls.of(bound).install(place=str(folder), pack="ada/life"),
        lambda: bound.gate(adapters),
        lambda: bound.gate(iter(adapters)),
        lambda: ExternalizeCalls.of(bound).externalize(folder / "adapter"),
        lambda: PackCalls.of(bound).export_adapter(["0" * 24], folder / "out"),
        lambda: PackCalls.of(bound).export_adapter(adapters, out=folder / "out"),
    ]


def test_every_call_that_takes_a_file_is_known_to_do_so() -> None:
    for name, line in {**Calls.table(), **PackCalls.table()}.items():
        for parameter in line.signature.parameters.values():
            is_file = parameter.annotation in ("Path", "Path | None") or parameter.name == "place"
            assert is_file == (parameter.name in line.files), (name, parameter)


@pytest.mark.parametrize("one, other", [("ada", "ada/p"), (".", ".."), ("a/b", "a%2Fb"), ("x" * 300, "x" * 301)])
def test_no_two_users_share_a_folder(exchanging: MemOS, tmp_path: Path, one: str, other: str) -> None:
    there = [exchanging.as_(exchanging.services.governing.add_key(Namespace(user_id=user))[0]) for user in (one, other)]
    for user, bound in zip((one, other), there, strict=True):
        told(exchanging, user)
        PackCalls.of(bound).dump(Path("own.mip"))
    found = sorted(tmp_path.rglob("own.mip"))
    assert len(found) == 2 and {path.parent.parent for path in found} == {tmp_path / "exchange"}


def test_an_agent_takes_no_packs_for_its_user_and_forgets_nobody(exchanging: MemOS, tmp_path: Path) -> None:
    memos = exchanging
    cube = told(memos, "uma", "My code is COCKLE.")
    own = tmp_path / "exchange" / "uma" / "agent planner"
    own.mkdir(parents=True)
    PackCalls.of(memos.within("uma")).dump(own / "uma.mip")
    agent = memos.as_(memos.services.governing.add_key("agent:uma/planner")[0])
    for refused in (
        lambda: PackCalls.of(agent).load(Path("uma.mip"), clash="update"),
        lambda: PackCalls.of(agent).install(".", "ada/life"),
        lambda: PackCalls.of(agent).subscribe("ada/life"),
        lambda: PackCalls.of(agent).update_packs(),
        lambda: PackCalls.of(agent).remove_pack("ada/life"),
        lambda: PackCalls.of(agent).installed(),
        lambda: agent.forget_user(),
    ):
        with pytest.raises(Denied, match="namespace uma"):
            refused()
    with pytest.raises(NotFound):
        agent.hold(cube.id, "case 7")
    memos.within("uma").grant(cube.id, "agent:uma/planner", "editor")
    for refused in (
        lambda: agent.trust(cube.id, "user"),
        lambda: agent.hold(cube.id, "case 7"),
        lambda: agent.release(cube.id),
        lambda: agent.end_hold(cube.id),
    ):
        with pytest.raises(Denied, match="only its owner"):
            refused()
