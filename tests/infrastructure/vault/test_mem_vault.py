"""The vault keeps what it acknowledged, finds damage, and forgets what it is told to forget."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from memos.cube import Blob, Fact, Form, Header, MemCube, Namespace, Rights, Source, State, Text, new_id
from memos.errors import Cancelled, Conflict, CorruptBlob, InputError, NotFound, VaultError
from memos.infrastructure.vault.blobs.vault_files import digest
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.store.schema import SCHEMA_VERSION
from memos.infrastructure.vault.tables.vector_table import VectorRow
from memos.plugins.care.audit import verify_log
from memos.plugins.care.check import problems_of

ROOT = Path(__file__).parents[3]
DAY = datetime(2025, 1, 1, tzinfo=timezone.utc)


def note(text: str = "Ada lives in Oslo.", *, day: int = 0, segment: str = "", user: str = "ada") -> MemCube:
    return MemCube(
        id=new_id(),
        form=Form.PLAINTEXT,
        namespace=Namespace(user_id=user),
        rights=Rights(owner=user),
        header=Header(created=DAY + timedelta(days=day), segment=segment),
        payload=Text(text=text),
    )


def next_version(cube: MemCube, text: str) -> MemCube:
    return cube.model_copy(update={"version": cube.version + 1, "payload": Text(text=text)})


def stored(vault: MemVault, content: bytes | dict[str, bytes]) -> Blob:
    with vault.blobs.staging() as path:
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.mkdir()
            for name, part in content.items():
                (path / name).write_bytes(part)
        sha256, size = vault.blobs.store(path)
    return Blob(sha256=sha256, bytes=size, fingerprint="host")


def derived_from(*cubes: MemCube, blob: Blob) -> MemCube:
    sources = tuple(Source(id=cube.id, version=cube.version) for cube in cubes)
    return note().model_copy(update={"form": Form.ACTIVATION, "payload": blob, "sources": sources})


def bytes_on_disk(vault: MemVault) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(vault.path.rglob("*")) if path.is_file())


# cubes


def test_a_cube_comes_back_as_it_was_put(vault: MemVault) -> None:
    cube = note()
    vault.put(cube)
    assert vault.get(cube.id) == cube


def test_a_cube_survives_closing_and_opening(tmp_path: Path) -> None:
    cube = note()
    with MemVault(tmp_path) as vault:
        vault.put(cube)
    with MemVault(tmp_path) as vault:
        assert vault.get(cube.id) == cube


def test_what_is_read_and_written_stays_while_memory_is_given_back(vault: MemVault) -> None:
    cubes, done = [note(f"Fact {n}.") for n in range(40)], threading.Event()

    def write() -> None:
        for cube in cubes:
            vault.put(cube)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        vault.shrink()
        vault.at([cubes[0].id])
    writer.join()
    assert [vault.get(cube.id) for cube in cubes] == cubes
    vault.close()
    vault.shrink()  # nothing is held, and nothing is opened


def test_versions_are_kept_and_the_last_is_current(vault: MemVault) -> None:
    first = note("Ada lives in Oslo.")
    second = next_version(first, "Ada lives in Rome.")
    vault.put(first)
    vault.put(second)
    assert vault.versions(first.id) == [first, second]
    assert vault.get(first.id) == second
    assert vault.get(first.id, version=1) == first


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_version_that_is_not_the_next_is_a_conflict(vault: MemVault, version: int) -> None:
    cube = note()
    vault.put(cube)
    with pytest.raises(Conflict, match="at version 1"):
        vault.put(cube.model_copy(update={"version": version}))


def test_several_cubes_are_kept_together_or_not_at_all(vault: MemVault) -> None:
    kept = note()
    fact = Fact(subject="Tom", relation="city", object="Oslo")
    said = note().model_copy(update={"payload": Text(text="Tom lives in Oslo.", facts=(fact,))})
    vault.put(kept, said)
    fused = note("both").model_copy(update={"sources": (Source(id=kept.id, version=2), Source(id=said.id, version=1))})
    changed = next_version(kept, "Ada lives in Rome.")
    vault.put(note("new"), fused, changed)
    assert vault.get(kept.id) == changed and vault.derived(said.id) == [fused]
    assert [
        cube.id for cube in vault.statements.stating(fact.model_copy(update={"object": "Rome"}), ["is"], "ada", State)
    ] == [said.id]
    before = vault.cubes()
    for wrong, error in (
        (next_version(changed, "again").model_copy(update={"version": 5}), Conflict),
        (note().model_copy(update={"sources": (Source(id="nobody", version=1),)}), NotFound),
        (
            note().model_copy(
                update={"form": Form.ACTIVATION, "payload": Blob(sha256="0" * 64, bytes=1, fingerprint="x")}
            ),
            CorruptBlob,
        ),
    ):
        with pytest.raises(error):
            vault.put(note("whole"), wrong)
    with pytest.raises(Conflict, match="named twice"):
        vault.put(wrong := note(), wrong)
    assert vault.cubes() == before and problems_of(vault) == []


def test_a_new_cube_begins_at_version_1(vault: MemVault) -> None:
    with pytest.raises(Conflict, match="at version 0"):
        vault.put(note().model_copy(update={"version": 2}))


def test_a_next_version_keeps_the_state(vault: MemVault) -> None:
    cube = note()
    vault.put(cube)
    vault.set_state(cube.id, State.ACTIVATED, "admitted")
    vault.put(next_version(cube, "Ada lives in Rome."))
    assert vault.get(cube.id).state is State.ACTIVATED
    assert [(state, why) for _, state, why in vault.transitions(cube.id)] == [
        (State.GENERATED, "created"),
        (State.ACTIVATED, "admitted"),
    ]


def test_a_unique_prefix_of_an_id_will_do(vault: MemVault) -> None:
    cube = note().model_copy(update={"id": "abcdef01"})
    vault.put(cube)
    assert vault.get("abcdef").id == "abcdef01"


@pytest.mark.parametrize("asked", ["abcde", "abcdef", "zzzzzz", ""])
def test_an_id_that_fits_none_or_several_says_how_to_find_one(vault: MemVault, asked: str) -> None:
    for id in ("abcdef01", "abcdef02"):
        vault.put(note().model_copy(update={"id": id}))
    with pytest.raises(NotFound, match=f"no cube {asked}; .*memos ls") as error:
        vault.get(asked)
    assert "abcdef0" not in str(error.value)  # another user's id must not leak


def test_a_version_that_is_not_there_is_named(vault: MemVault) -> None:
    cube = note()
    vault.put(cube)
    with pytest.raises(NotFound, match=f"no version 7; see `memos show {cube.id}`"):
        vault.get(cube.id, version=7)


def test_cubes_come_in_the_order_they_were_said(vault: MemVault) -> None:
    late, early = note(day=2), note(day=1)
    vault.put(late)
    vault.put(early)
    assert vault.cubes() == [early, late]


def test_cubes_are_filtered_by_form_state_and_segment(vault: MemVault) -> None:
    work, home = note(segment="work", day=1), note(segment="home", day=2)
    for cube in (work, home):
        vault.put(cube)
    cache = derived_from(work, blob=stored(vault, b"kv"))
    vault.put(cache)
    vault.set_state(home.id, State.ARCHIVED, "old")
    assert vault.cubes(segment="work") == [work]
    assert vault.cubes(form=Form.ACTIVATION) == [cache]
    assert [cube.id for cube in vault.cubes(states=[State.ARCHIVED])] == [home.id]
    assert vault.cubes(states=[]) == []
    assert vault.cubes(form=Form.PLAINTEXT, states={State.GENERATED}, segment="home") == []


def test_use_is_counted_apart_from_versions(vault: MemVault) -> None:
    cube = note()
    vault.put(cube)
    vault.usage.record([cube.id, cube.id, "deleted meanwhile"], DAY)
    vault.usage.record([cube.id], DAY + timedelta(days=1))
    usage = vault.get(cube.id).usage
    assert (usage.recalls, usage.last_recalled) == (2, DAY + timedelta(days=1))
    assert len(vault.versions(cube.id)) == 1


def test_each_use_of_a_text_is_written_down_until_it_is_deleted(vault: MemVault) -> None:
    one, other = note(), note()
    for cube in (one, other):
        vault.put(cube)
    vault.put(cache := derived_from(one, blob=stored(vault, b"kv")))
    vault.usage.record(iter([one.id, other.id, cache.id]), DAY)
    vault.usage.record([other.id], DAY + timedelta(days=1))
    first, second, third = vault.usage.uses()
    assert {first[1:], second[1:]} == {(one.id, DAY), (other.id, DAY)} and third[1:] == (
        other.id,
        DAY + timedelta(days=1),
    )
    assert vault.usage.uses(since=second[0]) == [third]
    assert vault.get(other.id).usage.recalls == 2 and vault.get(cache.id).usage.recalls == 1
    vault.delete([other.id])
    assert [id for _, id, _ in vault.usage.uses()] == [one.id]
    vault.usage.record([one.id], DAY)
    assert vault.usage.uses(since=third[0])[0][1] == one.id  # a number is never given twice


def test_derived_cubes_are_found_through_other_cubes(vault: MemVault) -> None:
    text = note()
    vault.put(text)
    cache = derived_from(text, blob=stored(vault, b"kv"))
    adapter = derived_from(cache, blob=stored(vault, b"lora"))
    vault.put(cache)
    vault.put(adapter)
    assert vault.derived(text.id) == [cache, adapter]
    assert vault.derived(adapter.id) == vault.derived() == []


def test_a_source_that_does_not_exist_is_refused(vault: MemVault) -> None:
    with pytest.raises(NotFound, match="derived from"):
        vault.put(derived_from(note(), blob=stored(vault, b"kv")))
    assert vault.cubes() == []


# transactions


def test_a_transaction_lands_whole_or_not_at_all(vault: MemVault) -> None:
    with pytest.raises(KeyError), vault.transaction():
        vault.put(note())
        vault.jobs.start("promote", {})
        raise KeyError
    assert (vault.cubes(), vault.jobs.all("running")) == ([], [])


def test_a_nested_failure_that_is_answered_undoes_only_itself(vault: MemVault) -> None:
    kept, lost = note(), note()
    with vault.transaction():
        vault.put(kept)
        with pytest.raises(KeyError), vault.transaction():
            vault.put(lost)
            raise KeyError
    assert vault.cubes() == [kept]


def test_threads_write_without_losing_anything(vault: MemVault) -> None:
    cubes = [note() for _ in range(16)]
    threads = [threading.Thread(target=vault.put, args=(cube,)) for cube in cubes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {cube.id for cube in vault.cubes()} == {cube.id for cube in cubes}


def test_two_vaults_on_one_folder_see_each_other(vault: MemVault) -> None:
    cube = note()
    with MemVault(vault.path) as other:
        other.put(cube)
        assert vault.get(cube.id) == cube


ADD_FOR_EVER = """
import sys
from pathlib import Path
from datetime import datetime, timezone
from memos.cube import Form, Header, MemCube, Rights, Text, new_id
from memos.infrastructure.vault.mem_vault import MemVault
vault = MemVault(Path(sys.argv[1]))
while True:
    header = Header(created=datetime.now(timezone.utc))
    cube = MemCube(id=new_id(), form=Form.PLAINTEXT, rights=Rights(owner="ada"), header=header, payload=Text(text="x"))
    vault.put(cube)
    print(cube.id, flush=True)
"""


def killed_after(lines: int, script: str, vault: Path) -> list[str]:
    """What the script, run on the folder of a vault, has printed when it is killed."""
    command = [sys.executable, "-c", script, str(vault)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as child:
        assert child.stdout is not None
        printed = [child.stdout.readline().strip() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        return printed + child.stdout.read().split()


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    acknowledged = killed_after(25, ADD_FOR_EVER, tmp_path)
    with MemVault(tmp_path) as vault:
        kept = {cube.id for cube in vault.cubes()}
        assert problems_of(vault) == []
    assert set(acknowledged) <= kept
    assert len(kept) - len(acknowledged) <= 1  # at most the one that was committed but not yet printed


# deletion


@pytest.mark.sqlite
def test_a_deleted_text_is_nowhere_on_disk(vault: MemVault) -> None:
    secret, other = note("the code is 7341-LIMPET"), note()
    for cube in (secret, next_version(secret, "the code is 8812-LIMPET"), other):
        vault.put(cube)
    vault.vectors.put("mini", [read(secret.id, np.full(4, 0.123), version=2)])
    vault.vectors.put("mini", [read(other.id, np.full(4, 0.321), around=f"{secret.id}:2")])
    vault.usage.record([secret.id], DAY)
    assert b"LIMPET" in bytes_on_disk(vault)
    vault.delete([secret.id])
    left = bytes_on_disk(vault)
    assert b"LIMPET" not in left
    for value in (0.123, 0.321):  # its own vector, and that of another which was made of it too
        assert np.full(4, value, np.float32).tobytes() not in left
    assert secret.id.encode() not in left
    assert vault.cubes() == [other]


@pytest.mark.sqlite
def test_deleted_texts_leave_nothing_behind_as_pages_are_balanced(vault: MemVault) -> None:
    """With secure_delete but no VACUUM this seed leaves what a fact says in a gap of a page of their index."""
    rng, cubes = random.Random(1), list[MemCube]()
    for i in range(1500):
        fact = Fact(subject="ada", relation="likes", object=f"{rng.randrange(10**6):06d} secret{i:04d}")
        said = Text(text=f"SECRET{i:04d}. " * rng.choice([1, 3, 30]), facts=(fact,))
        cubes.append(note().model_copy(update={"payload": said}))
    names = {cube.id: f"secret{i:04d}".encode() for i, cube in enumerate(cubes)}
    vault.put(*cubes)
    rng.shuffle(cubes)
    for end in range(100, 1501, 100):
        vault.delete([cube.id for cube in cubes[end - 100 : end]])
        left = bytes_on_disk(vault)
        assert set(re.findall(rb"secret\d{4}", left.lower())) == {names[cube.id] for cube in cubes[end:]}


def test_a_deletion_cut_short_is_finished_on_opening(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault:
        cube = note("LIMPET")
        vault.put(cube)
        blob = stored(vault, b"kv")
        cache = derived_from(cube, blob=blob)
        vault.put(cache)
        with vault._db.transaction():  # a transaction whose process dies before it erases
            vault.delete([cube.id, cache.id])
        assert "have left traces" in problems_of(vault)[0]
    with MemVault(tmp_path) as vault:
        assert problems_of(vault) == []
        assert b"LIMPET" not in bytes_on_disk(vault)
        with pytest.raises(CorruptBlob, match="missing"):
            vault.blobs.path(blob)


def test_a_blob_goes_with_the_last_cube_that_refers_to_it(vault: MemVault) -> None:
    text, blob = note(), stored(vault, b"kv")
    first, second = derived_from(text, blob=blob), derived_from(text, blob=blob)
    for cube in (text, first, second):
        vault.put(cube)
    vault.delete([first.id])
    path = vault.blobs.path(blob)
    vault.delete([second.id])
    assert not path.exists()


def test_a_rolled_back_deletion_keeps_the_blob(vault: MemVault) -> None:
    text, blob = note(), stored(vault, b"kv")
    cache = derived_from(text, blob=blob)
    vault.put(text)
    vault.put(cache)
    with pytest.raises(KeyError), vault.transaction():
        vault.delete([cache.id])
        raise KeyError
    assert vault.blobs.path(blob).read_bytes() == b"kv"
    assert vault.get(cache.id) == cache


def test_a_source_is_not_deleted_from_under_a_derived_cube(vault: MemVault) -> None:
    text = note()
    vault.put(text)
    cache = derived_from(text, blob=stored(vault, b"kv"))
    vault.put(cache)
    with pytest.raises(Conflict, match=f"{cache.id} would outlive"):
        vault.delete([text.id])


# vectors


def read(id: str, vector: np.ndarray, version: int = 1, around: str = "") -> VectorRow:
    tokens = np.ones((2, vector.shape[-1]), np.int8)
    return VectorRow(id, version, around, vector.astype(np.float32), tokens)


def test_vectors_are_those_of_current_versions(vault: MemVault) -> None:
    edited, plain = note(), note()
    vault.put(edited)
    vault.put(plain)
    rows = {cube.id: np.arange(3, dtype=np.float32) + i for i, cube in enumerate((edited, plain))}
    vault.vectors.put("mini", [read(id, vector) for id, vector in rows.items()])
    vault.put(next_version(edited, "Ada lives in Rome."))
    late = [read(edited.id, np.zeros(3)), read("deleted meanwhile", np.zeros(3))]
    vault.vectors.put("mini", [*late, read(plain.id, np.zeros(3), around="deleted:1")])
    [(id, (version, around, vector))] = vault.vectors.of("mini", rows).items()
    assert (id, version, around, vector.dtype) == (plain.id, 1, "", np.float32)
    np.testing.assert_array_equal(vector, rows[plain.id])
    np.testing.assert_array_equal(vault.vectors.tokens("mini", rows)[plain.id], np.ones((2, 3)))
    assert vault.vectors.of("maxi", rows) == vault.vectors.of("mini", []) == {}


def test_what_changed_is_told_once_to_each_who_asks(vault: MemVault) -> None:
    first, second = note("one"), note("two")
    vault.put(first)
    begun = vault.last_change()
    assert vault.changed_since(begun, State) == ([], [])
    vault.put(second)
    vault.set_state(first.id, State.ARCHIVED, "test")
    cubes, others = vault.changed_since(begun, {State.GENERATED})
    assert ([c.id for c in cubes], others) == ([second.id], [first.id])
    now, noon = vault.last_change(), vault.now()
    assert vault.news(0, noon).change == now > vault.news(0, noon).deletion
    vault.delete([second.id])
    assert vault.last_change() > now
    assert vault.news(0, noon).change == vault.news(0, noon).deletion == vault.last_change()
    assert vault.deleted([first.id, second.id]) == [second.id]
    assert not vault.news(0, noon).used and not vault.news(0, noon).lapsed
    vault.usage.record([first.id], noon)
    assert vault.news(0, noon).used and not vault.news(1, noon).used


def test_texts_are_found_by_what_they_say(vault: MemVault) -> None:
    long = "x" * 64
    for cube in (one := note(long + "1"), note(long + "2"), gone := note(long + "1")):
        vault.put(cube)
    vault.set_state(gone.id, State.ARCHIVED, "test")
    user = one.namespace.user_id
    assert {c.id for c in vault.statements.saying([long + "1", "else"], user)} == {one.id, gone.id}
    assert vault.statements.saying([long + "1"], "somebody else") == []
    assert [c.id for c in vault.at([gone.id, "absent", one.id])] == [gone.id, one.id]


@pytest.mark.parametrize("vector", [np.zeros(4), np.zeros((1, 3))])
def test_a_vector_of_another_width_is_refused(vault: MemVault, vector: np.ndarray) -> None:
    cube = note()
    vault.put(cube)
    vault.vectors.put("mini", [read(cube.id, np.zeros(3))])
    with pytest.raises(InputError, match=cube.id):
        vault.vectors.put("mini", [read(cube.id, vector)])


# blobs

CONTENTS = [b"kv", {"adapter_config.json": b"{}", "adapter_model.safetensors": b"lora"}]


@pytest.mark.parametrize("content", CONTENTS)
def test_a_payload_is_stored_once_under_its_digest(vault: MemVault, content: bytes | dict[str, bytes]) -> None:
    blob = stored(vault, content)
    assert stored(vault, content) == blob
    path = vault.blobs.path(blob)
    assert path.relative_to(vault.path).parts[:2] == ("blobs", blob.sha256[:2])
    assert path.name == (f"{blob.sha256}.safetensors" if isinstance(content, bytes) else blob.sha256)
    assert list((vault.path / "tmp").iterdir()) == []


@pytest.mark.sqlite
@pytest.mark.parametrize("content", CONTENTS)
def test_a_flipped_bit_is_found_and_storing_again_repairs_it(
    vault: MemVault, content: bytes | dict[str, bytes]
) -> None:
    text, blob = note(), stored(vault, content)
    cache = derived_from(text, blob=blob)
    vault.put(text)
    vault.put(cache)
    path = vault.blobs.path(blob)
    file = path if path.is_file() else path / "adapter_model.safetensors"
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptBlob, match=rf"{path} does not match.*{cache.id}.*MemOS.delete.*MemOS.promote"):
        vault.blobs.path(blob)
    assert any(str(path) in problem for problem in problems_of(vault))
    stored(vault, content)
    assert vault.blobs.path(blob) == path
    assert problems_of(vault) == []


def test_a_renamed_file_in_a_folder_changes_its_digest(tmp_path: Path) -> None:
    for folder, name in (("a", "x"), ("b", "y")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(b"same")
    assert digest(tmp_path / "a")[0] != digest(tmp_path / "b")[0]


@pytest.mark.parametrize("sha256", ["0" * 64, "../../../etc/passwd", ""])
def test_a_payload_that_was_not_stored_is_refused(vault: MemVault, sha256: str) -> None:
    text = note()
    vault.put(text)
    with pytest.raises(CorruptBlob, match="store"):
        vault.put(derived_from(text, blob=Blob(sha256=sha256, bytes=1, fingerprint="host")))


def test_leftovers_are_swept_on_opening(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault:
        text, kept, orphan = note(), stored(vault, b"kept"), stored(vault, b"orphan")
        vault.put(text)
        vault.put(derived_from(text, blob=kept))
        (tmp_path / "tmp" / "half-written").mkdir()
        (tmp_path / "tmp" / "half-written" / "adapter").write_bytes(b"x")
    with MemVault(tmp_path) as vault:
        assert list((tmp_path / "tmp").iterdir()) == []
        assert vault.blobs.path(kept).exists()
        with pytest.raises(CorruptBlob):
            vault.blobs.path(orphan)


def test_nothing_is_swept_while_another_has_the_vault_open(vault: MemVault) -> None:
    with vault.blobs.staging() as path:
        path.write_bytes(b"kv")
        with MemVault(vault.path) as other:
            assert other.sweep() == vault.sweep() == []
        assert path.exists()
        assert vault.sweep() == []  # alone again, but staging
    stored(vault, b"orphan")
    assert len(vault.sweep()) == 1


# jobs and audit


def test_a_job_runs_until_it_is_ended_once(vault: MemVault) -> None:
    going, ended = vault.jobs.start("promote", {"ids": ["a"]}), vault.jobs.start("demote", {})
    vault.jobs.end(ended, "done")
    with pytest.raises(Cancelled, match=f"job {ended.id} .*has ended"):
        vault.jobs.end(ended, "undone")
    assert [(job.id, job.kind, job.payload) for job in vault.jobs.all("running")] == [
        (going.id, "promote", {"ids": ["a"]})
    ]


START_A_JOB = """
import sys, time
from pathlib import Path
from memos.infrastructure.vault.mem_vault import MemVault
vault = MemVault(Path(sys.argv[1]))
vault.jobs.end(vault.jobs.start("demote", {}), "done", "cold")
vault.jobs.start("promote", {"sources": ["a"]})
with vault.blobs.staging() as path:
    path.write_bytes(b"half an adapter")
    print("started", flush=True)
    time.sleep(600)
"""


def test_a_job_of_a_killed_process_ends_as_undone_on_opening(tmp_path: Path) -> None:
    killed_after(1, START_A_JOB, tmp_path)
    with MemVault(tmp_path) as vault:
        assert vault.jobs.all("running") == []
        assert vault._db.rows("SELECT kind, state, note FROM jobs ORDER BY kind") == [
            ("demote", "done", "cold"),
            ("promote", "undone", "its process died"),
        ]
        assert list((tmp_path / "tmp").iterdir()) == []


def test_a_job_goes_on_while_another_opens_the_vault(vault: MemVault) -> None:
    job = vault.jobs.start("promote", {})
    with MemVault(vault.path) as other:
        assert [running.id for running in other.jobs.all("running")] == [job.id]
    assert vault.sweep() == []
    vault.jobs.end(job, "done")


def test_audit_rows_come_oldest_first_and_the_last_can_be_asked_for(vault: MemVault) -> None:
    for target in ("a", "b", "c"):
        vault.audit_log.append("ada", "read", target, target != "b", "because")
    assert [(row.target, row.allowed) for row in vault.audit_log.query(limit=2)] == [("b", False), ("c", True)]
    assert verify_log(vault.audit_log).problems == []


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("tampering", "found"),
    [
        ("UPDATE audit SET allowed = 1 WHERE n = 2", "row 2"),
        ("UPDATE audit SET target = 'z' WHERE n = 1", "row 1"),
        ("DELETE FROM audit WHERE n = 2", "row 3"),
        ("DELETE FROM audit WHERE n = 3", "rows 3 to 3 were removed"),
        ("DELETE FROM audit", "rows 1 to 3 were removed"),
    ],
)
def test_a_tampered_audit_is_found(vault: MemVault, tampering: str, found: str) -> None:
    for target in ("a", "b", "c"):
        vault.audit_log.append("ada", "read", target, False, "not hers")
    with sqlite3.connect(vault.path / "vault.db") as intruder:
        intruder.execute(tampering)
    intruder.close()
    assert any(found in problem for problem in verify_log(vault.audit_log).problems)
    assert verify_log(vault.audit_log).problems == problems_of(vault)


def test_a_decision_is_not_written_where_a_rollback_would_lose_it(vault: MemVault) -> None:
    with pytest.raises(VaultError, match="before transaction"), vault.transaction():
        vault.audit_log.append("ada", "read", "a", True, "")


# opening


def a_file(path: Path) -> None:
    path.write_text("not a folder")


def not_sqlite(path: Path) -> None:
    path.mkdir()
    (path / "vault.db").write_bytes(b"not a database at all" * 100)


def another_program(path: Path) -> None:
    path.mkdir()
    with sqlite3.connect(path / "vault.db") as db:
        db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.close()


def newer_schema(path: Path) -> None:
    path.mkdir()
    with sqlite3.connect(path / "vault.db") as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (a_file, "set vault.path"),
        (not_sqlite, "vault.db is not a vault"),
        (another_program, "another program"),
        (newer_schema, f"schema {SCHEMA_VERSION + 1}.*upgrade"),
    ],
)
def test_what_cannot_be_opened_is_left_alone_and_named(tmp_path: Path, spoil, message: str) -> None:
    path = tmp_path / "vault"
    spoil(path)
    before = (path / "vault.db").read_bytes() if path.is_dir() else path.read_bytes()
    with pytest.raises(VaultError, match=message):
        MemVault(path)
    assert before == ((path / "vault.db").read_bytes() if path.is_dir() else path.read_bytes())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(VaultError, match=r"Permission denied.*set vault\.path"):
        MemVault(tmp_path / "vault")


def test_a_write_that_finds_the_vault_locked_says_so(vault: MemVault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memos.infrastructure.vault.store.transactions.WAIT_S", 0.0)
    with MemVault(vault.path) as other, vault.transaction(), pytest.raises(VaultError, match="locked"):
        other.put(note())


@pytest.mark.sqlite
def test_damage_to_the_database_is_found(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault:
        for _ in range(40):
            vault.put(note("x" * 300))
    file = tmp_path / "vault.db"
    data = bytearray(file.read_bytes())
    page = data.index(b"x" * 300) // 4096 * 4096  # one of texts
    data[page : page + 64] = b"\xff" * 64
    file.write_bytes(data)
    with MemVault(tmp_path) as vault:
        assert problems_of(vault)[-1] == "vault.db: bring back a backup with `memos vault restore`"
        with pytest.raises(VaultError, match="cannot be read"):
            vault.cubes()


def test_a_card_is_kept_for_each_host(tmp_path: Path) -> None:
    with MemVault(tmp_path / "vault") as vault:
        assert vault.cards.of("a") is None
        vault.cards.put("a", {"levels": [1]})
        vault.cards.put("b", {"levels": []})
        vault.cards.put("a", {"levels": [2]})
    with MemVault(tmp_path / "vault") as vault:
        assert (vault.cards.of("a"), vault.cards.of("b")) == ({"levels": [2]}, {"levels": []})


def test_what_is_stated_is_found_by_subject_and_relation(vault: MemVault) -> None:
    oslo = Fact(subject="Tom", relation="city", object="Oslo")
    first = note().model_copy(update={"payload": Text(text="Tom lives in Oslo.", facts=(oslo,))})
    vault.put(first)
    rome = oslo.model_copy(update={"subject": "tom", "object": "Rome"})
    found = [vault.statements.stating(rome, ["is"], user, State) for user in ("ada", "bob")]
    assert found == [[first], []]
    assert vault.statements.stating(oslo, ["is"], "ada", State) == []  # the same again
    assert vault.statements.stating(oslo.model_copy(update={"mode": "ended"}), ["is"], "ada", State) == [first]
    assert vault.statements.stating(rome.model_copy(update={"relation": ""}), ["is"], "ada", State) == [first]
    assert (
        vault.statements.stating(rome, ["ended"], "ada", State)
        == vault.statements.stating(rome, ["is"], "ada", [State.FROZEN])
        == []
    )
    vault.put(next_version(first, "Tom is well."))
    assert vault.statements.stating(rome, ["is"], "ada", State) == []  # of current versions only
    vault.delete([first.id])
    assert problems_of(vault) == []


@pytest.mark.sqlite
@pytest.mark.parametrize("column, value", [("heads SET repeats", b"\xff\x00"), ("usage SET utility", "much")])
def test_a_count_that_is_none_is_named(tmp_path: Path, column: str, value: object) -> None:
    with MemVault(tmp_path) as vault:
        vault.put(cube := note())
        vault.usage.record([cube.id], DAY)
    with sqlite3.connect(tmp_path / "vault.db") as db:
        db.execute(f"UPDATE {column} = ?", (value,))
    db.close()
    with MemVault(tmp_path) as vault, pytest.raises(VaultError, match="where memos writes nothing of the kind"):
        vault.get(cube.id)


@pytest.mark.sqlite
def test_deleted_vectors_leave_nothing_behind_as_pages_are_balanced(vault: MemVault) -> None:
    """They are not vacuumed. Where rows lay in pages with others, as before, this seed would leave some behind."""
    rng = random.Random(3)
    cubes = [note(str(n)) for n in range(200)]
    texts = {cube.id: n for n, cube in enumerate(cubes)}

    def of(cube: MemCube, tokens: int) -> VectorRow:
        made = np.frombuffer(f"<{texts[cube.id]:06d}>".encode(), "i1")
        return VectorRow(cube.id, 1, "", np.tile(made, 2).copy().view("<f4"), np.tile(made[:4], (tokens, 1)))

    with vault.transaction():
        for cube in cubes:
            vault.put(cube)
    for _ in range(2):  # the second time they take each other's places
        rng.shuffle(cubes)
        for start in range(0, 200, 10):
            vault.vectors.put("mini", [of(cube, rng.choice([0, 30, 600, 1100])) for cube in cubes[start : start + 10]])
    rng.shuffle(cubes)
    for end in range(8, 201, 8):
        vault.delete([cube.id for cube in cubes[end - 8 : end]])
        left = bytes_on_disk(vault)
        assert {int(n) for n in re.findall(rb"<(\d{6})>", left)} == {texts[cube.id] for cube in cubes[end:]}


@pytest.mark.sqlite
def test_the_file_of_vectors_may_be_lost(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault:
        vault.put(cube := note())
        vault.vectors.put("mini", [read(cube.id, np.ones(3))])
    (tmp_path / "vectors.db").unlink()
    with MemVault(tmp_path) as vault:
        assert vault.vectors.of("mini", [cube.id]) == {} == vault.vectors.tokens("mini", [cube.id])
        vault.vectors.put("mini", [read(cube.id, np.ones(5))])
        assert list(vault.vectors.of("mini", [cube.id])) == [cube.id]
    (tmp_path / "vectors.db").write_bytes(b"not a database, and long enough to be taken for one" * 100)
    with pytest.raises(VaultError, match="vectors.db cannot be used .* remove it"):
        MemVault(tmp_path)


@pytest.mark.sqlite
def test_vectors_that_a_crash_left_alone_go_with_the_next_deletion(vault: MemVault) -> None:
    vault.put(cube := note())
    with sqlite3.connect(vault.path / "vectors.db") as db:
        db.execute("INSERT INTO readings VALUES (77, zeroblob(512), ?, x'', zeroblob(4000))", [b"LIMPET" * 10])
    db.close()
    assert b"LIMPET" in bytes_on_disk(vault)
    vault.delete([cube.id])
    assert b"LIMPET" not in bytes_on_disk(vault)


@pytest.mark.sqlite
def test_what_was_allowed_is_written_down_without_waiting_for_the_disk(
    vault: MemVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = 0

    def sync(file: int, real=os.fdatasync) -> None:
        nonlocal syncs
        syncs += 1
        real(file)

    monkeypatch.setattr(os, "fdatasync", sync)

    def waits(lasting: bool) -> bool:
        before = syncs
        with vault._db.transaction(lasting):
            vault._db.stamp()
        return syncs > before

    assert waits(True) and not waits(False) and waits(True)
    with pytest.raises(ValueError), vault._db.transaction(lasting=False):
        raise ValueError
    assert waits(True)
    vault.audit_log.append("ann", "read", "a", True, "get")
    vault.audit_log.append("ann", "write", "a", False, "denied")
    assert [row.allowed for row in vault.audit_log.query()] == [True, False]
    assert verify_log(vault.audit_log).problems == []
