"""The state table, and that no derived cube outlives the truth of its sources."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from memos.cube import Blob, Form, Header, MemCube, Rights, Source, State, Text, new_id
from memos.errors import BadTransition, Conflict, InputError, NotFound
from memos.infrastructure.mem_vault import MemVault
from memos.operation.mem_lifecycle import ALLOWED, MemLifecycle

# how a test brings a new cube into each state
WAY = {
    State.GENERATED: [],
    State.ACTIVATED: [State.ACTIVATED],
    State.MERGED: [State.ACTIVATED, State.MERGED],
    State.ARCHIVED: [State.ARCHIVED],
    State.EXPIRED: [State.ARCHIVED, State.EXPIRED],
    State.FROZEN: [State.FROZEN],
}
MOVES = list(itertools.product(State, State))


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[MemVault]:
    with MemVault(tmp_path) as opened:
        yield opened


@pytest.fixture
def life(vault: MemVault) -> MemLifecycle:
    return MemLifecycle(vault)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemVault]:
    """One vault for the table's many cases, each with a cube of its own: opening one costs more than a case."""
    with MemVault(tmp_path_factory.mktemp("shared")) as opened:
        yield opened


def note(text: str = "Ada lives in Oslo.") -> MemCube:
    header = Header(created=datetime.now(timezone.utc))
    return MemCube(id=new_id(), form=Form.PLAINTEXT, rights=Rights(owner="ada"), header=header, payload=Text(text=text))


def cache_of(vault: MemVault, *sources: MemCube) -> MemCube:
    with vault.staging() as path:
        path.write_bytes(b"kv")
        sha256, size = vault.store(path)
    return note().model_copy(
        update={
            "form": Form.ACTIVATION,
            "payload": Blob(sha256=sha256, bytes=size, fingerprint="host"),
            "sources": tuple(Source(id=cube.id, version=cube.version) for cube in sources),
        }
    )


def brought_to(vault: MemVault, state: State, text: str = "Ada lives in Oslo.") -> MemCube:
    life = MemLifecycle(vault)
    with vault.transaction():
        cube = life.create(note(text))
        for step in WAY[state]:
            cube = life.move(cube.id, step, "test")
    return cube


def family(vault: MemVault, life: MemLifecycle) -> tuple[MemCube, MemCube, MemCube]:
    """A text, its cache, and an adapter made from the cache."""
    text = brought_to(vault, State.ACTIVATED)
    cache = life.publish(cache_of(vault, text))
    return text, cache, life.publish(cache_of(vault, cache))


def last_why(vault: MemVault, cube: MemCube) -> tuple[State, str]:
    _, state, why = vault.transitions(cube.id)[-1]
    return state, why


# the table


def test_the_table_names_every_state() -> None:
    assert set(ALLOWED) == set(State)


@pytest.mark.parametrize(("was", "to"), [move for move in MOVES if move[1] in ALLOWED[move[0]]])
def test_an_allowed_move_is_made_and_written_down(shared: MemVault, was: State, to: State) -> None:
    cube = brought_to(shared, was)
    assert MemLifecycle(shared).move(cube.id, to, "because").state is to
    assert last_why(shared, cube) == (to, "because")


@pytest.mark.parametrize(("was", "to"), [move for move in MOVES if move[1] not in ALLOWED[move[0]]])
def test_a_forbidden_move_is_refused_and_changes_nothing(shared: MemVault, was: State, to: State) -> None:
    cube = brought_to(shared, was)
    before = shared.transitions(cube.id)
    with pytest.raises(BadTransition, match=f"is {was} and cannot become {to}; allowed: "):
        MemLifecycle(shared).move(cube.id, to, "because")
    assert shared.get(cube.id) == cube
    assert shared.transitions(cube.id) == before


def test_a_move_makes_no_version(vault: MemVault) -> None:
    assert len(vault.versions(brought_to(vault, State.EXPIRED).id)) == 1


@pytest.mark.parametrize(("update", "error"), [({"state": State.ACTIVATED}, BadTransition), ({"version": 2}, Conflict)])
def test_a_cube_begins_generated_at_version_1(life: MemLifecycle, update: dict[str, object], error: type) -> None:
    with pytest.raises(error, match="cannot begin"):
        life.create(note().model_copy(update=update))


# sources and derived cubes


def test_an_edit_archives_derived_cubes(vault: MemVault, life: MemLifecycle) -> None:
    text, cache, adapter = family(vault, life)
    edited = life.edit(text.id, Text(text="Ada lives in Rome."))
    assert (edited.version, edited.text, edited.state) == (2, "Ada lives in Rome.", State.ACTIVATED)
    for cube in (cache, adapter):
        assert last_why(vault, cube) == (State.ARCHIVED, f"source {text.id} edited")


@pytest.mark.parametrize("to", [State.ARCHIVED, State.EXPIRED])
def test_a_source_out_of_use_takes_derived_cubes_along(vault: MemVault, life: MemLifecycle, to: State) -> None:
    text, cache, adapter = family(vault, life)
    life.move(text.id, State.ARCHIVED, "old")
    if to is State.EXPIRED:
        life.move(text.id, to, "older")
    for cube in (cache, adapter):
        assert last_why(vault, cube) == (State.ARCHIVED, f"source {text.id} archived")


def test_a_deletion_takes_derived_cubes_along(vault: MemVault, life: MemLifecycle) -> None:
    text, cache, adapter = family(vault, life)
    assert life.delete(text.id) == [text.id, cache.id, adapter.id]
    assert vault.cubes() == []
    assert vault.check() == []


def test_giving_up_a_derived_cube_leaves_its_source(vault: MemVault, life: MemLifecycle) -> None:
    text, cache, adapter = family(vault, life)
    assert life.delete(cache.id) == [cache.id, adapter.id]
    assert vault.cubes() == [text]


@pytest.mark.parametrize("change", ["edit", "archive", "delete"])
def test_a_change_and_what_it_does_to_derived_cubes_land_together(
    vault: MemVault, life: MemLifecycle, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, cache, adapter = family(vault, life)
    write = vault.delete if change == "delete" else vault.set_state
    calls = {
        "edit": lambda: life.edit(text.id, Text(text="Ada lives in Rome.")),
        "archive": lambda: life.move(text.id, State.ARCHIVED, "old"),
        "delete": lambda: life.delete(text.id),
    }

    def fail_at_the_last(*args: object) -> None:
        write(*args)  # type: ignore[arg-type]
        if change == "delete" or args[0] == adapter.id:
            raise KeyError("the power went")

    monkeypatch.setattr(vault, write.__name__, fail_at_the_last)
    with pytest.raises(KeyError):
        calls[change]()
    assert vault.cubes() == [text, cache, adapter]


@pytest.mark.parametrize("change", ["edit", "archive", "delete"])
def test_even_a_frozen_derived_cube_follows_its_source(vault: MemVault, life: MemLifecycle, change: str) -> None:
    text, _, adapter = family(vault, life)
    life.move(adapter.id, State.FROZEN, "pinned")
    if change == "delete":
        assert adapter.id in life.delete(text.id)
        return
    if change == "edit":
        life.edit(text.id, Text(text="Ada lives in Rome."))
    else:
        life.move(text.id, State.ARCHIVED, "old")
    assert vault.get(adapter.id).state is State.ARCHIVED


@pytest.mark.parametrize("to", [State.ACTIVATED, State.FROZEN])
def test_a_stale_derived_cube_does_not_come_back(vault: MemVault, life: MemLifecycle, to: State) -> None:
    text, cache, _ = family(vault, life)
    life.edit(text.id, Text(text="Ada lives in Rome."))
    with pytest.raises(Conflict, match=f"{cache.id} is stale: source {text.id} is at version 2, not 1"):
        life.move(cache.id, to, "again")
    assert vault.get(cache.id).state is State.ARCHIVED


def test_an_archived_derived_cube_comes_back_over_unchanged_sources(vault: MemVault, life: MemLifecycle) -> None:
    text, cache, _ = family(vault, life)
    life.move(text.id, State.ARCHIVED, "old")
    life.move(text.id, State.ACTIVATED, "asked for")
    assert life.move(cache.id, State.ACTIVATED, "asked for").state is State.ACTIVATED


# publishing


def test_a_published_cube_is_active(vault: MemVault, life: MemLifecycle) -> None:
    text = brought_to(vault, State.ACTIVATED)
    published = life.publish(cache_of(vault, text))
    assert published.state is State.ACTIVATED
    assert [state for _, state, _ in vault.transitions(published.id)] == [State.GENERATED, State.ACTIVATED]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda life, id: life.edit(id, Text(text="Ada lives in Rome.")), "is at version 2, not 1"),
        (lambda life, id: life.move(id, State.ARCHIVED, "old"), "is archived"),
        (lambda life, id: life.delete(id), "was deleted"),
    ],
)
def test_publishing_fails_when_a_source_changed_meanwhile(
    vault: MemVault, life: MemLifecycle, change, found: str
) -> None:
    steady, moving = (brought_to(vault, State.ACTIVATED, text) for text in ("one", "two"))
    cache = cache_of(vault, steady, moving)
    change(life, moving.id)
    with pytest.raises(Conflict, match=f"source {moving.id} {found}"):
        life.publish(cache)
    with pytest.raises(NotFound):
        vault.get(cache.id)


def test_a_cube_without_sources_is_not_published(life: MemLifecycle) -> None:
    with pytest.raises(InputError, match="names no sources"):
        life.publish(note())


# content


@pytest.mark.parametrize("state", [State.FROZEN, State.EXPIRED])
def test_a_cube_that_is_locked_is_not_edited(vault: MemVault, life: MemLifecycle, state: State) -> None:
    cube = brought_to(vault, state)
    for change in (lambda: life.edit(cube.id, Text(text="x")), lambda: life.rollback(cube.id, 1)):
        with pytest.raises(BadTransition, match=f"is {state} and cannot be edited"):
            change()
    assert vault.get(cube.id) == cube


def test_a_frozen_cube_is_not_deleted_until_it_is_thawed(vault: MemVault, life: MemLifecycle) -> None:
    cube = brought_to(vault, State.FROZEN)
    with pytest.raises(BadTransition, match="frozen and cannot be deleted; thaw"):
        life.delete(cube.id)
    life.move(cube.id, State.ACTIVATED, "thaw")
    assert life.delete(cube.id) == [cube.id]


def test_a_derived_cube_is_not_edited(vault: MemVault, life: MemLifecycle) -> None:
    _, cache, _ = family(vault, life)
    for change in (lambda: life.edit(cache.id, Text(text="x")), lambda: life.rollback(cache.id, 1)):
        with pytest.raises(InputError, match="is derived"):
            change()


def test_a_rollback_is_a_new_version_with_the_old_payload(vault: MemVault, life: MemLifecycle) -> None:
    cube = brought_to(vault, State.ACTIVATED, "Ada lives in Oslo.")
    life.edit(cube.id, Text(text="Ada lives in Rome."))
    assert life.rollback(cube.id, 1).version == 3
    assert [version.text[-5:] for version in vault.versions(cube.id)] == ["Oslo.", "Rome.", "Oslo."]


def test_history_tells_versions_and_moves_in_time_order_as_json(vault: MemVault, life: MemLifecycle) -> None:
    cube = brought_to(vault, State.ACTIVATED, "one")
    life.edit(cube.id, Text(text="two"))
    life.move(cube.id, State.ARCHIVED, "old")
    history = json.loads(json.dumps(life.history(cube.id)))
    assert [event.get("state") or event["payload"]["text"] for event in history] == [
        "one",
        "generated",
        "activated",
        "two",
        "archived",
    ]
    assert [event["at"] for event in history] == sorted(event["at"] for event in history)


def test_an_id_may_be_a_prefix(life: MemLifecycle) -> None:
    cube = life.create(note().model_copy(update={"id": "abcdef0123"}))
    assert life.move("abcdef", State.ACTIVATED, "admitted").id == cube.id
    assert life.edit("abcdef", Text(text="x")).version == 2
    assert life.delete("abcdef") == [cube.id]
