"""Who may do what, what a refusal gives away, and that each decision is written down."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from memos.cube import Form, Header, MemCube, Namespace, Rights, Source, Text, new_id
from memos.errors import Denied, NotFound
from memos.infrastructure.governance.mem_governance import MemGovernance
from memos.infrastructure.vault.mem_vault import MemVault
from memos.ops import Add, Delete, Get, History, Operation, Promote, Search, Update
from memos.plugins.care.audit import verify_log
from memos.rights import Caller, Grant

ADA, BOB, EVE = (Namespace(user_id=name) for name in ("ada", "bob", "eve"))
ADA_AGENT = Namespace(user_id="ada", agent_id="planner")
ADA_SESSION = Namespace(user_id="ada", agent_id="planner", session_id="s1")
ADA_OTHER = Namespace(user_id="ada", agent_id="coder")


@pytest.fixture
def governance(vault: MemVault) -> MemGovernance:
    return MemGovernance(vault)


def kept(
    vault: MemVault, *sources: MemCube, space: Namespace = ADA, owner: str = "ada", readers: tuple[str, ...] = ()
) -> MemCube:
    """A cube in the vault. Plaintext also when derived: rights do not depend on the form."""
    cube = MemCube(
        id=new_id(),
        form=Form.PLAINTEXT,
        namespace=space,
        rights=Rights(owner=owner, readers=readers),
        header=Header(created=datetime.now(timezone.utc)),
        payload=Text(text="the code is LIMPET"),
        sources=tuple(Source(id=source.id, version=source.version) for source in sources),
    )
    vault.put(cube)
    return cube


@pytest.mark.parametrize(
    ("caller", "space", "read", "write"),
    [
        (ADA, ADA, True, True),
        (ADA, ADA_SESSION, True, True),  # a user reaches all of her agents and sessions
        (ADA_AGENT, ADA_SESSION, True, True),
        (ADA_AGENT, ADA, False, False),  # but an agent only its own
        (ADA_OTHER, ADA_SESSION, False, False),
        (BOB, ADA, True, False),  # a reader
        (Namespace(user_id="bob", agent_id="x"), ADA, True, False),  # rights are granted to users
        (EVE, ADA, False, False),
    ],
)
def test_a_namespace_and_the_rights_decide(
    vault: MemVault, governance: MemGovernance, caller: Namespace, space: Namespace, read: bool, write: bool
) -> None:
    cube = kept(vault, space=space, readers=("bob",))
    assert governance.may(Caller(caller), "read", cube) is read
    assert governance.may(Caller(caller), "write", cube) is write
    assert governance.may(Caller(caller), "delete", cube) is write


def test_one_who_reaches_a_cube_but_does_not_own_it_may_only_read(vault: MemVault, governance: MemGovernance) -> None:
    cube = kept(vault, space=ADA, owner="company")
    governance.permit(Caller(ADA), Get(id=cube.id), cube)
    with pytest.raises(Denied, match=f"ada may not write cube {cube.id}"):
        governance.permit(Caller(ADA), Update(id=cube.id, text="mine"), cube)


def test_a_reader_can_read_but_not_write(vault: MemVault, governance: MemGovernance) -> None:
    cube = kept(vault, readers=("bob",))
    governance.permit(Caller(BOB), Get(id=cube.id), cube)
    for op, right in ((Update(id=cube.id, text="x"), "write"), (Delete(id=cube.id), "delete")):
        with pytest.raises(Denied, match=f"bob may not {right} cube {cube.id}: only its owner") as error:
            governance.permit(Caller(BOB), op, cube)
        assert "LIMPET" not in str(error.value)


@pytest.mark.parametrize("asked", ["whole", "prefix"])
@pytest.mark.parametrize("kind", [Get, Delete, History])
def test_a_cube_that_may_not_be_seen_looks_absent(
    vault: MemVault, governance: MemGovernance, kind: type[Get], asked: str
) -> None:
    cube = kept(vault)
    id = cube.id if asked == "whole" else cube.id[:8]
    with pytest.raises(NotFound) as hidden:
        governance.permit(Caller(EVE), kind(id=id), cube)
    vault.delete([cube.id])
    with pytest.raises(NotFound) as absent:
        vault.get(id)
    assert str(hidden.value) == str(absent.value)
    assert [(row.caller, row.target, row.allowed) for row in vault.audit_log.query()] == [("eve", cube.id, False)]


def test_promoting_by_a_prefix_does_not_give_away_the_rest(vault: MemVault, governance: MemGovernance) -> None:
    cube = kept(vault)
    with pytest.raises(NotFound) as error:
        governance.permit(Caller(EVE), Promote(ids=(cube.id[:8],), to=Form.ACTIVATION), cube)
    assert cube.id not in str(error.value)


@pytest.mark.parametrize("op", [Search(query="LIMPET"), Add(text="LIMPET")])
def test_anyone_may_act_in_their_own_namespace_and_the_audit_does_not_quote(
    vault: MemVault, governance: MemGovernance, op: Operation
) -> None:
    governance.permit(Caller(EVE), op)
    [row] = vault.audit_log.query()
    assert row.allowed
    assert "LIMPET" not in " ".join(map(str, row))


def test_a_derived_cube_is_unreadable_when_one_source_is(vault: MemVault, governance: MemGovernance) -> None:
    shared, secret = kept(vault, readers=("bob",)), kept(vault)
    open_summary = kept(vault, shared, readers=("bob",))
    closed_summary = kept(vault, shared, secret, readers=("bob",))
    on_top = kept(vault, closed_summary, readers=("bob",))
    assert governance.may(Caller(BOB), "read", open_summary)
    assert not governance.may(Caller(BOB), "read", closed_summary)
    assert not governance.may(Caller(BOB), "read", on_top)
    assert governance.may(Caller(ADA), "read", on_top)


def test_a_right_that_is_revoked_reaches_derived_cubes(vault: MemVault, governance: MemGovernance) -> None:
    source = kept(vault, readers=("bob",))
    summary = kept(vault, source, space=BOB, owner="bob")
    assert governance.may(Caller(BOB), "read", summary)
    vault.grants.remove(source.id, BOB)
    assert not governance.may(Caller(BOB), "read", summary)
    governance.permit(Caller(BOB), Delete(id=summary.id), summary)  # his own, though: he may still clear it away


def test_reading_is_narrowed_in_order_with_one_line(vault: MemVault, governance: MemGovernance) -> None:
    cubes = [kept(vault), kept(vault, readers=("bob",)), kept(vault, readers=("eve",)), kept(vault, readers=("bob",))]
    assert governance.readable(Caller(BOB), cubes) == [cubes[1], cubes[3]]
    [row] = vault.audit_log.query()
    assert (row.caller, row.action, row.target) == ("bob", "read", "2 cubes")


def test_a_source_deleted_meanwhile_makes_a_listed_cube_unreadable(vault: MemVault, governance: MemGovernance) -> None:
    source = kept(vault)
    summary = kept(vault, source)
    vault.delete([source.id, summary.id])
    assert governance.readable(Caller(ADA), [summary]) == []


def test_every_decision_is_written_down(vault: MemVault, governance: MemGovernance) -> None:
    cube = kept(vault, readers=("bob",))
    governance.permit(Caller(ADA), Delete(id=cube.id), cube)
    with pytest.raises(Denied):
        governance.permit(Caller(BOB), Delete(id=cube.id), cube)
    assert [(row.caller, row.action, row.target, row.allowed) for row in vault.audit_log.query()] == [
        ("ada", "delete", cube.id, True),
        ("bob", "delete", cube.id, False),
    ]
    assert verify_log(vault.audit_log).problems == []


def test_what_is_granted_to_somebody_else_is_no_reason_to_ask_again(vault: MemVault, governance: MemGovernance) -> None:
    cube = kept(vault)
    made = kept(vault, cube)
    before = governance.sight(Caller(BOB))
    vault.grants.put(Grant(on=cube.id, to=EVE, relation="reader"), "ada")
    assert governance.sight(Caller(BOB)).key == before.key != governance.sight(Caller(EVE)).key
    vault.grants.put(Grant(on=cube.id, to=BOB, relation="reader"), "ada")
    after = governance.sight(Caller(BOB))
    assert after.key != before.key and after.single() == {cube.id} and before.single() == frozenset()
    vault.grants.remove(cube.id, BOB)
    assert governance.sight(Caller(BOB)).key == before.key and governance.sight(Caller(BOB)).single() == frozenset()
    vault.put(cube.model_copy(update={"version": 2, "rights": Rights(owner="bob")}))  # it is another's now
    assert governance.sight(Caller(BOB)).key != before.key
    at_last = governance.sight(Caller(BOB))
    vault.delete([made.id, cube.id])  # its id could come back in a pack
    assert governance.sight(Caller(BOB)).key != at_last.key


def test_a_sight_is_of_the_rights_that_its_key_names(vault: MemVault, governance: MemGovernance) -> None:
    """Else a grant that comes while it is asked would be remembered under the rights of before, which may come back."""
    cube = kept(vault)
    before = governance.sight(Caller(BOB))
    vault.grants.put(Grant(on=ADA, to=BOB, relation="reader"), "ada")
    assert governance.sight(Caller(BOB)).may(ADA, cube.rights) and not before.may(ADA, cube.rights)


def test_what_many_are_made_of_is_read_at_once(
    vault: MemVault, governance: MemGovernance, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [kept(vault, kept(vault), kept(vault)) for _ in range(5)]
    asked, at = list[int](), vault.at
    monkeypatch.setattr(vault, "at", lambda ids: (asked.append(1), at(ids))[1])
    sight = governance.sight(Caller(ADA))
    sight.expect(source.id for cube in made for source in cube.sources)
    assert all(sight.may(cube.namespace, cube.rights, *(s.id for s in cube.sources)) for cube in made)
    assert governance.visible(Caller(ADA), made) == made and len(asked) == 2
