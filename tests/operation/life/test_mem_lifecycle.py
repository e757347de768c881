"""The state table, and that no derived cube outlives the truth of its sources."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

import pytest

from memos.config import AgeingConfig, LifecycleConfig
from memos.cube import Blob, Fact, Form, Header, MemCube, Rights, Source, State, Text, new_id
from memos.errors import BadTransition, Conflict, InputError, NotFound
from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.life.forgetting import Ageing, retention
from memos.operation.life.mem_lifecycle import ALLOWED, MemLifecycle
from memos.operation.life.time_machine import diff, history
from memos.plugins.care.check import problems_of

# how a test brings a new cube into each state
WAY = {
    State.GENERATED: [],
    State.ACTIVATED: [State.ACTIVATED],
    State.COLD: [State.COLD],
    State.MERGED: [State.MERGED],
    State.ARCHIVED: [State.ARCHIVED],
    State.EXPIRED: [State.ARCHIVED, State.EXPIRED],
    State.FROZEN: [State.FROZEN],
}
MOVES = list(itertools.product(State, State))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemVault]:
    """One vault for the table's many cases, each with a cube of its own: opening one costs more than a case."""
    with MemVault(tmp_path_factory.mktemp("shared")) as opened:
        yield opened


def note(text: str = "Ada lives in Oslo.") -> MemCube:
    header = Header(created=datetime.now(timezone.utc))
    return MemCube(id=new_id(), form=Form.PLAINTEXT, rights=Rights(owner="ada"), header=header, payload=Text(text=text))


def made_of(*sources: MemCube, text: str = "Ada lives in Oslo and has a cat.") -> MemCube:
    pinned = tuple(Source(id=source.id, version=source.version) for source in sources)
    return note(text).model_copy(update={"sources": pinned})


def cache_of(vault: MemVault, *sources: MemCube) -> MemCube:
    with vault.blobs.staging() as path:
        path.write_bytes(b"kv")
        sha256, size = vault.blobs.store(path)
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
        return lead(vault, life, life.create(note(text)), state)


def lead(vault: MemVault, life: MemLifecycle, cube: MemCube, state: State) -> MemCube:
    for step in WAY[state]:
        if step is State.MERGED:
            life.merge([made_of(cube)])
        else:
            life.move(cube.id, step, "test")
    return vault.get(cube.id)


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


@pytest.mark.parametrize(
    ("was", "to"),
    [
        (was, to)
        for was, to in MOVES
        if to in ALLOWED[was] and to is not State.MERGED and (was, to) != (State.MERGED, State.ACTIVATED)  # see merging
    ],
)
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
    assert problems_of(vault) == []


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


def test_several_are_deleted_together_or_not_at_all(vault: MemVault, life: MemLifecycle) -> None:
    source, cache, _ = family(vault, life)
    frozen = [brought_to(vault, State.FROZEN, f"Ada has {n} cats.") for n in (1, 2)]
    with pytest.raises(BadTransition, match=f"{frozen[0].id} is frozen .*, and so are {frozen[1].id}; thaw"):
        life.delete(source.id, *(cube.id for cube in frozen))
    assert vault.get(source.id) == source
    life.move(cache.id, State.FROZEN, "locked")
    for cube in frozen:
        life.move(cube.id, State.ACTIVATED, "thaw")
    every = [cube.id for cube in vault.cubes()]
    assert sorted(life.delete(*every)) == sorted(every) and vault.cubes() == []


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
    events = json.loads(json.dumps(history(vault, cube.id)))
    assert [event.get("state") or event["payload"]["text"] for event in events] == [
        "one",
        "generated",
        "activated",
        "two",
        "archived",
    ]
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)


def test_an_id_may_be_a_prefix(life: MemLifecycle) -> None:
    cube = life.create(note().model_copy(update={"id": "abcdef0123"}))
    assert life.move("abcdef", State.ACTIVATED, "admitted").id == cube.id
    assert life.edit("abcdef", Text(text="x")).version == 2
    assert life.delete("abcdef") == [cube.id]


# merging


def test_merged_memories_live_on_in_what_was_made_of_them(vault: MemVault, life: MemLifecycle) -> None:
    one, other = life.create(note("Ada lives in Oslo.")), life.create(note("Ada has a cat."))
    cache = life.publish(cache_of(vault, one))
    [made] = life.merge([made_of(one, other)])
    assert made.state is State.ACTIVATED
    assert [vault.get(c.id).state for c in (one, other, cache)] == [State.MERGED, State.MERGED, State.ARCHIVED]
    assert last_why(vault, one) == (State.MERGED, f"lives on in {made.id}")


def test_a_memory_may_be_cut_in_parts(vault: MemVault, life: MemLifecycle) -> None:
    whole = life.create(note("Ada lives in Oslo. Ada has a cat."))
    parts = life.merge([made_of(whole, text="Ada lives in Oslo."), made_of(whole, text="Ada has a cat.")])
    life.move(parts[0].id, State.ARCHIVED, "no longer")
    assert vault.get(whole.id).state is State.MERGED  # it lives on in the other
    life.move(parts[1].id, State.ARCHIVED, "no longer")
    assert vault.get(whole.id).state is State.ACTIVATED


def test_a_text_is_merged_just_while_it_lives_on(vault: MemVault, life: MemLifecycle) -> None:
    one = life.create(note("Ada lives in Oslo."))
    with pytest.raises(BadTransition, match="cannot become merged: no memory in use is made of it"):
        life.move(one.id, State.MERGED, "tidy")
    [made] = life.merge([made_of(one)])
    with pytest.raises(BadTransition, match=f"is merged and lives on in {made.id}; undo that with `split`"):
        life.move(one.id, State.ACTIVATED, "back")
    life.move(one.id, State.FROZEN, "lock")
    assert life.move(one.id, State.ACTIVATED, "thaw").state is State.MERGED
    life.move(made.id, State.ARCHIVED, "no longer")
    assert vault.get(one.id).state is State.ACTIVATED


def test_what_is_made_of_others_is_in_force_no_longer_than_these(vault: MemVault, life: MemLifecycle) -> None:
    one = life.create(note("Ada lives in Oslo."))
    one = life.edit(one.id, expires=vault.now() + timedelta(days=1))
    [made] = life.merge([made_of(one)])
    assert life.edit(made.id, expires=None).header.expires == one.header.expires


@pytest.mark.parametrize("change", ["edit", "delete", "archive", "edit the other"])
def test_sources_answer_again_when_what_they_lived_on_in_goes(vault: MemVault, life: MemLifecycle, change: str) -> None:
    one, other = life.create(note("Ada lives in Oslo.")), life.create(note("Ada has a cat."))
    [made] = life.merge([made_of(one, other)])
    again = life.merge([made_of(made, text="Ada of Oslo has a cat.")])
    match change:
        case "edit":
            life.edit(one.id, Text(text="Ada lives in Rome."))
        case "edit the other":
            life.edit(other.id, Text(text="Ada has a dog."))
        case "delete":
            life.delete(one.id)
        case "archive":
            life.move(one.id, State.ARCHIVED, "superseded")
    assert vault.get(other.id).state is State.ACTIVATED
    left = {cube.id: cube.state for cube in vault.cubes()}
    assert left.get(made.id, State.ARCHIVED) is left.get(again[0].id, State.ARCHIVED) is State.ARCHIVED


def test_a_merge_is_undone_by_any_part_of_it(vault: MemVault, life: MemLifecycle) -> None:
    whole = life.create(note("Ada lives in Oslo. Ada has a cat."))
    parts = life.merge([made_of(whole, text="Ada lives in Oslo."), made_of(whole, text="Ada has a cat.")])
    assert [cube.id for cube in life.unmerge(parts[1].id)] == [whole.id]
    assert vault.get(whole.id).state is State.ACTIVATED
    assert {vault.get(part.id).state for part in parts} == {State.ARCHIVED}
    with pytest.raises(InputError, match="not made of other memories"):
        life.unmerge(whole.id)


def test_what_is_frozen_or_has_changed_is_not_merged(vault: MemVault, life: MemLifecycle) -> None:
    one, frozen = life.create(note("Ada lives in Oslo.")), brought_to(vault, State.FROZEN)
    before = [cube.model_dump() for cube in vault.cubes()]
    with pytest.raises(BadTransition, match="is frozen and cannot become merged"):
        life.merge([made_of(one, frozen)])
    assert [cube.model_dump() for cube in vault.cubes()] == before
    life.edit(one.id, Text(text="Ada lives in Rome."))
    with pytest.raises(Conflict, match="stale"):
        life.merge([made_of(one)])


# guards


def test_a_move_needs_a_reason(vault: MemVault, life: MemLifecycle) -> None:
    cube = brought_to(vault, State.GENERATED)
    with pytest.raises(InputError, match="without a reason; say why"):
        life.move(cube.id, State.ACTIVATED, " ")


def test_a_move_may_name_where_it_is_from(vault: MemVault, life: MemLifecycle) -> None:
    cube = brought_to(vault, State.ARCHIVED)
    with pytest.raises(BadTransition, match="is archived and cannot become activated from frozen"):
        life.move(cube.id, State.ACTIVATED, "thaw", State.FROZEN)


def test_a_derived_cube_is_not_merged(vault: MemVault, life: MemLifecycle) -> None:
    _, cache, _ = family(vault, life)
    with pytest.raises(BadTransition, match="is derived and cannot become merged"):
        life.move(cache.id, State.MERGED, "same")


@pytest.mark.parametrize(
    ("was", "to", "steps"),
    [
        (State.EXPIRED, State.EXPIRED, []),
        (State.GENERATED, State.EXPIRED, [State.ARCHIVED, State.EXPIRED]),
        (State.ARCHIVED, State.MERGED, [State.ACTIVATED]),  # nothing is made of it
        (State.MERGED, State.ACTIVATED, []),  # it lives on
        (State.ARCHIVED, State.GENERATED, [State.ACTIVATED]),
        (State.FROZEN, State.FROZEN, []),
    ],
)
def test_a_state_is_led_to_by_allowed_moves(
    vault: MemVault, life: MemLifecycle, was: State, to: State, steps: list[State]
) -> None:
    cube = brought_to(vault, was)
    before = len(vault.transitions(cube.id))
    life.lead(cube.id, to, "back")
    assert [state for _, state, _ in vault.transitions(cube.id)[before:]] == steps


def test_nothing_leads_out_of_expired(vault: MemVault, life: MemLifecycle) -> None:
    with pytest.raises(BadTransition, match="from where no moves lead to activated"):
        life.lead(brought_to(vault, State.EXPIRED).id, State.ACTIVATED, "back")


def test_a_first_recall_activates(vault: MemVault, life: MemLifecycle) -> None:
    new, frozen = brought_to(vault, State.GENERATED), brought_to(vault, State.FROZEN)
    for _ in range(2):
        vault.usage.record([new.id, frozen.id], vault.now())
        life.recalled(vault.at([new.id, frozen.id]))
    assert [(vault.get(c.id).state, vault.get(c.id).usage.recalls) for c in (new, frozen)] == [
        (State.ACTIVATED, 2),
        (State.FROZEN, 2),
    ]
    assert [why for *_, why in vault.transitions(new.id)] == ["created", "recalled"]


# time

DAY = timedelta(days=1)
RULES = LifecycleConfig(
    generated_ttl_days=2,
    archive_after_idle_days=10,
    expire_after_archived_days=30,
    kinds={"draft": AgeingConfig(archive_after_idle_days=1), "law": AgeingConfig()},
)


def ageing(vault: MemVault) -> Ageing:
    return Ageing(vault, MemLifecycle(vault), RULES, {})


def until(vault: MemVault, days: float, state: State = State.ACTIVATED) -> MemCube:
    cube = brought_to(vault, state)
    life = MemLifecycle(vault)
    return life.edit(cube.id, expires=vault.now() + days * DAY)


def test_what_has_expired_is_told_so_before_any_sweep(vault: MemVault, later: Callable[[timedelta], None]) -> None:
    life = MemLifecycle(vault)
    text = until(vault, 1)
    cache = life.publish(cache_of(vault, text))
    adapter = life.publish(cache_of(vault, cache))
    assert adapter.header.expires == text.header.expires
    later(DAY)
    for cube in (text, cache, adapter):
        assert vault.get(cube.id).state is State.EXPIRED
    assert vault.cubes(states=[State.ACTIVATED]) == []
    assert vault.stats.in_use([cube.blob.sha256 for cube in (cache, adapter) if cube.blob]) == set()
    assert vault.cubes(states=[State.EXPIRED]) == vault.cubes()
    with pytest.raises(Conflict, match=f"source {text.id} is expired"):
        life.publish(cache_of(vault, text))
    with pytest.raises(BadTransition, match="is expired and cannot become archived"):
        life.move(text.id, State.ARCHIVED, "old")


def test_a_sweep_writes_down_what_has_expired_even_if_frozen(
    vault: MemVault, later: Callable[[timedelta], None]
) -> None:
    life = MemLifecycle(vault)
    text, frozen = until(vault, 1), until(vault, 1)
    life.move(frozen.id, State.FROZEN, "locked")
    cache = life.publish(cache_of(vault, text))
    assert ageing(vault).age(vault.now()) == []
    later(DAY)
    assert {aged.id for aged in ageing(vault).age(vault.now())} == {text.id, frozen.id, cache.id}
    for cube in (text, frozen, cache):
        moves = [state for _, state, _ in vault.transitions(cube.id)]
        assert moves[-2:] == [State.ARCHIVED, State.EXPIRED]
        assert last_why(vault, cube) == (State.EXPIRED, "its time to expire has come")
    assert ageing(vault).age(vault.now()) == []


@pytest.mark.parametrize(
    ("state", "kind", "days", "to"),
    [
        (State.GENERATED, "fact", 1.9, None),
        (State.GENERATED, "fact", 2.1, State.ARCHIVED),
        (State.ACTIVATED, "fact", 9.9, None),
        (State.ACTIVATED, "fact", 10.1, State.ARCHIVED),
        (State.ARCHIVED, "fact", 29.9, None),
        (State.ARCHIVED, "fact", 30.1, State.EXPIRED),
        (State.FROZEN, "fact", 1000, None),
        (State.GENERATED, "draft", 1.1, State.ARCHIVED),
        (State.ARCHIVED, "draft", 1000, None),
        (State.ACTIVATED, "law", 1000, None),
    ],
)
def test_idle_texts_age_by_the_rules_of_their_kind(
    vault: MemVault, later: Callable[[timedelta], None], state: State, kind: str, days: float, to: State | None
) -> None:
    life = MemLifecycle(vault)
    cube = life.create(note().model_copy(update={"header": note().header.model_copy(update={"kind": kind})}))
    lead(vault, life, cube, state)
    later(days * DAY)
    aged = ageing(vault).age(vault.now())
    assert [(a.id, a.to) for a in aged] == ([] if to is None else [(cube.id, to)])
    assert vault.get(cube.id).state is (to or state)
    assert all("days" in a.why for a in aged)


@pytest.mark.parametrize(("days", "recalls", "kept"), [(0, 0, 1.0), (30, 0, 0.368), (60, 1, 0.368), (60, 0, 0.135)])
def test_retention_falls_with_time_and_slower_with_each_recall(days: int, recalls: int, kept: float) -> None:
    assert retention(days * DAY, recalls, 30 * DAY) == pytest.approx(kept, abs=1e-3)


def test_a_recall_warms_what_is_cold(vault: MemVault, life: MemLifecycle) -> None:
    cube = brought_to(vault, State.COLD)
    life.recalled([cube])
    assert vault.get(cube.id).state is State.ACTIVATED


def test_without_rules_nothing_ages(vault: MemVault, later: Callable[[timedelta], None]) -> None:
    for state in State:
        brought_to(vault, state)
    cubes = vault.cubes()
    later(10_000 * DAY)
    assert Ageing(vault, MemLifecycle(vault), LifecycleConfig(), {}).age(vault.now()) == []
    assert vault.cubes() == cubes


def test_use_and_edits_keep_a_text_young(vault: MemVault, later: Callable[[timedelta], None]) -> None:
    life = MemLifecycle(vault)
    used, edited, idle = (brought_to(vault, State.ACTIVATED) for _ in range(3))
    later(9 * DAY)
    vault.usage.record([used.id], vault.now())
    life.edit(edited.id, Text(text="two"))
    later(2 * DAY)
    assert [aged.id for aged in ageing(vault).age(vault.now())] == [idle.id]


def test_an_archived_source_takes_its_derived_cubes_along(vault: MemVault, later: Callable[[timedelta], None]) -> None:
    text, cache, adapter = family(vault, MemLifecycle(vault))
    later(11 * DAY)
    ageing(vault).age(vault.now())
    assert {vault.get(cube.id).state for cube in (text, cache, adapter)} == {State.ARCHIVED}


def test_a_clock_that_goes_back_ages_nothing_and_keeps_the_order(
    vault: MemVault, later: Callable[[timedelta], None], caplog: pytest.LogCaptureFixture
) -> None:
    life = MemLifecycle(vault)
    expired, cube = until(vault, 1), brought_to(vault, State.ACTIVATED)
    later(2 * DAY)
    life.edit(cube.id, Text(text="two"))
    later(-1000 * DAY)
    newer = brought_to(vault, State.ACTIVATED)
    life.edit(cube.id, Text(text="three"))
    assert ageing(vault).age(vault.now() - 1000 * DAY) == []
    assert vault.get(expired.id).state is State.EXPIRED
    assert newer.id > cube.id
    times = [at for at, _ in vault.written(cube.id)]
    assert times == sorted(times) and times[-1] < vault.now()
    assert [event["payload"]["text"] for event in history(vault, cube.id) if event["event"] == "version"][1:] == [
        "two",
        "three",
    ]
    assert [r.message for r in caplog.records if "set the clock of this machine" in r.message][1:] == []
    assert "the clock says" in caplog.text
    with MemVault(vault.path) as another:  # another process goes on from the same time
        assert another.now() >= times[-1]


# words of old versions


def test_a_difference_is_told_by_sentence_and_fact(vault: MemVault, life: MemLifecycle) -> None:
    fact = Fact(subject="Ada", relation="home", object="Oslo")
    cube = life.create(note("Ada lives in Oslo. She has a cat."))
    life.edit(cube.id, Text(text="Ada lives in Rome. She has a cat.", facts=(fact,)))
    assert diff(vault, cube.id, 1, 2) == [
        "-Ada lives in Oslo.",
        "+Ada lives in Rome.",
        " She has a cat.",
        "+fact: Ada | home | Oslo",
    ]
    assert diff(vault, cube.id, 2, 2) == []
    events = [event for event in history(vault, cube.id, diffs=True) if event["event"] == "version"]
    assert [event.get("diff") for event in events] == [None, diff(vault, cube.id, 1, 2)]
    with pytest.raises(NotFound, match="has no version 3"):
        diff(vault, cube.id, 1, 3)


def test_a_rollback_brings_the_topic_back_and_the_life_stays(vault: MemVault, life: MemLifecycle) -> None:
    cube = life.create(note())
    life.edit(cube.id, Text(text="Eva lives in Rome."), segment="Eva")
    renewed = life.edit(cube.id, expires=vault.now() + DAY)
    back = life.rollback(cube.id, 1)
    assert (back.header.segment, back.text, back.version) == ("", cube.text, 4)
    assert back.header.expires == renewed.header.expires
    assert life.rollback(cube.id, 4) == back


def test_a_derived_cube_is_revived_over_the_same_words_alone(vault: MemVault, life: MemLifecycle) -> None:
    text, cache, _ = family(vault, life)
    life.edit(text.id, Text(text="Ada lives in Rome."))
    with pytest.raises(Conflict, match=f"source {text.id} says something else at version 2 than at 1"):
        life.revive(cache.id, State.ACTIVATED, "back")
    life.rollback(text.id, 1)
    revived = life.revive(cache.id, State.ACTIVATED, "back")
    assert (revived.state, revived.version, revived.sources[0].version) == (State.ACTIVATED, 2, 3)
    assert diff(vault, cache.id, 1, 2) == [
        f" payload: {cache.blob.sha256 if cache.blob else ''}",
        f"-source: {text.id} version 1",
        f"+source: {text.id} version 3",
    ]
