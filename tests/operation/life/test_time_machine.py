"""Snapshots of a namespace: what a way back brings, what it leaves, and that it can be undone."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest

from memos.cube import Blob, Form, Header, MemCube, Namespace, Rights, Source, State, Text, new_id
from memos.errors import InputError, NotFound
from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.life.mem_lifecycle import MemLifecycle
from memos.operation.life.time_machine import restore
from memos.plugins.care.check import problems_of

ADA, BOB = Namespace(user_id="ada"), Namespace(user_id="bob")
SESSION = Namespace(user_id="ada", session_id="monday")


def note(text: str, space: Namespace = ADA) -> MemCube:
    return MemCube(
        id=new_id(),
        form=Form.PLAINTEXT,
        namespace=space,
        rights=Rights(owner=space.user_id),
        header=Header(created=datetime.now(timezone.utc)),
        payload=Text(text=text),
    )


def told(life: MemLifecycle, text: str, space: Namespace = ADA) -> MemCube:
    return life.move(life.create(note(text, space)).id, State.ACTIVATED, "test")


def kv_of(vault: MemVault, *sources: MemCube) -> MemCube:
    with vault.blobs.staging() as path:
        path.write_bytes(b"kv of " + b", ".join(cube.text.encode() for cube in sources))
        sha256, size = vault.blobs.store(path)
        cube = note("").model_copy(
            update={
                "form": Form.ACTIVATION,
                "payload": Blob(sha256=sha256, bytes=size, fingerprint="host"),
                "sources": tuple(Source(id=cube.id, version=cube.version) for cube in sources),
            }
        )
        return MemLifecycle(vault).publish(cube)


def says(vault: MemVault) -> dict[str, tuple[str, State]]:
    return {cube.id: (cube.text, cube.state) for cube in vault.cubes()}


def test_a_restore_brings_words_and_states_back_as_new_versions(vault: MemVault, life: MemLifecycle) -> None:
    home, pet, job = (told(life, text) for text in ("Ada lives in Oslo.", "Ada has a cat.", "Ada is a nurse."))
    life.move(job.id, State.FROZEN, "locked")
    before = says(vault)
    vault.snapshots.take(ADA, "monday")
    life.edit(home.id, Text(text="Ada lives in Rome."))
    life.move(pet.id, State.ARCHIVED, "old")
    life.move(job.id, State.ACTIVATED, "thaw")
    done = restore(vault, life, ADA, "monday")
    assert says(vault) == before
    assert sorted(done.changed) == sorted([home.id, pet.id, job.id])
    assert [cube.text[-5:] for cube in vault.versions(home.id)] == ["Oslo.", "Rome.", "Oslo."]
    assert vault.transitions(pet.id)[-1][1:] == (State.ACTIVATED, "restored to the snapshot monday")


def test_a_restore_can_be_undone_and_that_too(vault: MemVault, life: MemLifecycle) -> None:
    home = told(life, "Ada lives in Oslo.")
    vault.snapshots.take(ADA, "monday")
    life.edit(home.id, Text(text="Ada lives in Rome."))
    told(life, "Ada has a cat.")
    late = says(vault)
    first = restore(vault, life, ADA, "monday")
    early = says(vault)
    assert early != late
    second = restore(vault, life, ADA, first.undo)
    assert says(vault) == late
    restore(vault, life, ADA, second.undo)
    assert says(vault) == early
    assert restore(vault, life, ADA, "monday").undo == f"{first.undo} (2)"


def test_what_was_made_since_is_archived_with_the_reason(vault: MemVault, life: MemLifecycle) -> None:
    home = told(life, "Ada lives in Oslo.")
    vault.snapshots.take(ADA, "monday")
    late = told(life, "Ada has a cat.")
    kv, of_late = kv_of(vault, home), kv_of(vault, late)
    assert sorted(restore(vault, life, ADA, "monday").archived) == sorted([late.id, kv.id])
    assert vault.get(of_late.id).state is State.ARCHIVED  # with its source
    assert vault.transitions(late.id)[-1][2] == "made after the snapshot monday"


def test_kv_of_words_that_are_back_comes_back_and_kv_of_others_goes(vault: MemVault, life: MemLifecycle) -> None:
    home = told(life, "Ada lives in Oslo.")
    of_oslo = kv_of(vault, home)
    on_top = kv_of(vault, of_oslo)
    vault.snapshots.take(ADA, "monday")
    of_rome = kv_of(vault, life.edit(home.id, Text(text="Ada lives in Rome.")))
    done = restore(vault, life, ADA, "monday")
    assert (done.revived, done.stale) == ([of_oslo.id, on_top.id], [])
    revived = vault.get(of_oslo.id)
    assert (revived.state, revived.sources) == (State.ACTIVATED, (Source(id=home.id, version=3),))
    assert revived.blob == of_oslo.blob
    assert vault.get(on_top.id).sources == (Source(id=of_oslo.id, version=2),)
    assert vault.get(of_rome.id).state is State.ARCHIVED
    undone = restore(vault, life, ADA, done.undo)
    assert undone.revived == [of_rome.id]
    assert vault.get(of_rome.id).sources == (Source(id=home.id, version=4),)
    assert [vault.get(cube.id).state for cube in (of_oslo, on_top)] == [State.ARCHIVED] * 2
    assert problems_of(vault) == []


def test_a_frozen_memory_is_left_alone_and_its_old_kv_stays_out(vault: MemVault, life: MemLifecycle) -> None:
    home = told(life, "Ada lives in Oslo.")
    kv = kv_of(vault, home)
    vault.snapshots.take(ADA, "monday")
    life.edit(home.id, Text(text="Ada lives in Rome."))
    frozen = life.move(home.id, State.FROZEN, "locked")
    made_since = told(life, "Ada has a cat.")
    life.move(made_since.id, State.FROZEN, "locked")
    done = restore(vault, life, ADA, "monday")
    assert (done.kept, done.stale) == ([home.id, made_since.id], [kv.id])
    assert vault.get(home.id) == frozen
    assert vault.get(kv.id).state is State.ARCHIVED


def test_a_lock_that_a_restore_brought_back_is_undone_with_it(vault: MemVault, life: MemLifecycle) -> None:
    home = told(life, "Ada lives in Oslo.")
    life.move(home.id, State.FROZEN, "locked")
    vault.snapshots.take(ADA, "monday")
    life.move(home.id, State.ACTIVATED, "thaw")
    life.edit(home.id, Text(text="Ada lives in Rome."))
    late = says(vault)
    done = restore(vault, life, ADA, "monday")
    assert says(vault) == {home.id: ("Ada lives in Oslo.", State.FROZEN)}
    restore(vault, life, ADA, done.undo)
    assert says(vault) == late


def test_what_was_frozen_then_is_frozen_again_over_new_versions(vault: MemVault, life: MemLifecycle) -> None:
    home = told(life, "Ada lives in Oslo.")
    kv = kv_of(vault, home)
    life.move(kv.id, State.FROZEN, "locked")
    vault.snapshots.take(ADA, "monday")
    life.edit(home.id, Text(text="Ada lives in Rome."))
    restore(vault, life, ADA, "monday")
    assert vault.get(kv.id).state is State.FROZEN


def test_what_was_deleted_stays_deleted_and_leaves_no_trace(vault: MemVault, life: MemLifecycle) -> None:
    home, secret = told(life, "Ada lives in Oslo."), told(life, "The code is 4711.")
    kv = kv_of(vault, home, secret)
    vault.snapshots.take(ADA, "monday")
    life.delete(secret.id)
    assert [(s.name, s.cubes, s.missing) for s in vault.snapshots.all(ADA)] == [("monday", 3, 2)]
    assert list(vault.snapshots.of(ADA, "monday")) == [home.id]
    assert restore(vault, life, ADA, "monday").missing == 2
    for gone in (secret.id, kv.id):
        with pytest.raises(NotFound):
            vault.get(gone)
        on_disk = b"".join(path.read_bytes() for path in vault.path.rglob("*") if path.is_file())
        assert gone.encode() not in on_disk


def test_what_has_expired_stays_expired(vault: MemVault, life: MemLifecycle) -> None:
    home = told(life, "Ada lives in Oslo.")
    vault.snapshots.take(ADA, "monday")
    for state in (State.ARCHIVED, State.EXPIRED):
        life.move(home.id, state, "old")
    assert restore(vault, life, ADA, "monday").kept == [home.id]
    assert vault.get(home.id).state is State.EXPIRED


def test_a_snapshot_is_of_the_callers_namespace_alone(vault: MemVault, life: MemLifecycle) -> None:
    mine, ours, his = (told(life, "one", space) for space in (ADA, SESSION, BOB))
    vault.snapshots.take(ADA, "all")
    vault.snapshots.take(SESSION, "session")
    for cube in (mine, ours, his):
        life.edit(cube.id, Text(text="two"))
    assert restore(vault, life, SESSION, "session").changed == [ours.id]
    assert restore(vault, life, ADA, "all").changed == [mine.id]
    assert vault.get(his.id).text == "two"
    with pytest.raises(NotFound, match="no snapshot 'all' of bob: there is none yet"):
        restore(vault, life, BOB, "all")
    with pytest.raises(NotFound, match="no snapshot 'al' of ada: the latest are 'all', 'before restore of all'"):
        restore(vault, life, ADA, "al")


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "\ud800"])
def test_a_snapshot_needs_a_name(vault: MemVault, name: str) -> None:
    with pytest.raises(InputError, match="cannot name a snapshot; give it a name of 1 to 200"):
        vault.snapshots.take(ADA, name)


def test_a_name_is_taken_once_until_its_snapshot_is_deleted(vault: MemVault) -> None:
    vault.snapshots.take(ADA, "monday")
    with pytest.raises(InputError, match="there is a snapshot 'monday' of .* already; take another name"):
        vault.snapshots.take(ADA, "monday")
    vault.snapshots.delete(ADA, "monday")
    with pytest.raises(NotFound, match="no snapshot 'monday'"):
        vault.snapshots.delete(ADA, "monday")
    assert vault.snapshots.take(ADA, "monday").cubes == 0


def test_a_long_name_can_be_restored_again_and_again(vault: MemVault, life: MemLifecycle) -> None:
    vault.snapshots.take(ADA, "x" * 200)
    undos = {restore(vault, life, ADA, "x" * 200).undo for _ in range(3)}
    assert len(undos) == 3


def test_a_restore_lands_whole_or_not_at_all(
    vault: MemVault, life: MemLifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    cubes = [told(life, f"Ada has {n} cats.") for n in range(3)]
    vault.snapshots.take(ADA, "monday")
    for cube in cubes:
        life.edit(cube.id, Text(text="Ada has no cat."))
    before, put = says(vault), vault.put

    def fail_at_the_last(cube: MemCube) -> None:
        put(cube)
        if cube.id == cubes[-1].id:
            raise KeyError("the power went")

    monkeypatch.setattr(vault, "put", fail_at_the_last)
    with pytest.raises(KeyError):
        restore(vault, life, ADA, "monday")
    assert says(vault) == before
    assert [s.name for s in vault.snapshots.all(ADA)] == ["monday"]


def test_a_renewed_life_is_kept_over_a_restore(vault: MemVault, life: MemLifecycle) -> None:
    home = told(life, "Ada lives in Oslo.")
    vault.snapshots.take(ADA, "monday")
    until = vault.now() + timedelta(days=1)
    life.edit(home.id, expires=until)
    life.edit(home.id, Text(text="Ada lives in Rome."))
    restore(vault, life, ADA, "monday")
    assert (vault.get(home.id).text, vault.get(home.id).header.expires) == ("Ada lives in Oslo.", until)


@pytest.mark.slow
def test_ten_thousand_memories_go_back_in_seconds(vault: MemVault, life: MemLifecycle) -> None:
    with vault.transaction():
        cubes = [told(life, f"Ada has {n} cats.") for n in range(10_000)]
    vault.snapshots.take(ADA, "monday")
    with vault.transaction():
        for cube in cubes:
            life.edit(cube.id, Text(text="Ada has no cat."))
    began = time.process_time()
    assert len(restore(vault, life, ADA, "monday").changed) == 10_000
    assert time.process_time() - began < 20
