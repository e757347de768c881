"""Damage is found wherever it is: every byte of a closed vault, every memory of one whose process died."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from memos.cube import Fact, Form, Header, MemCube, Namespace, Rights, Source, State, Text, new_id
from memos.errors import VaultError
from memos.infrastructure.vault.blobs.blob_store import Blobs
from memos.infrastructure.vault.blobs.vault_files import PlainFormat
from memos.infrastructure.vault.care import file_sums
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.store.schema import SCHEMA_VERSION
from memos.infrastructure.vault.stores import Place
from memos.infrastructure.vault.tables.vector_table import VectorRow
from memos.plugins.care import check as vault_check
from memos.plugins.care import wal_file
from memos.plugins.care.check import problems_of
from tests.infrastructure.vault.test_mem_vault import stored

pytestmark = pytest.mark.sqlite

SCRATCH = ("lock", "vault.db-shm", "vectors.db-shm")  # hold nothing that is not made anew


def text(vault: MemVault, said: str, fact: Fact | None = None) -> MemCube:
    cube = MemCube(
        id=new_id(),
        form=Form.PLAINTEXT,
        namespace=Namespace(user_id="ada"),
        rights=Rights(owner="ada"),
        header=Header(created=vault.now(), tags=("always",)),
        payload=Text(text=said, facts=(fact,) if fact else ()),
    )
    vault.put(cube)
    return cube


def payload(vault: MemVault, form: Form, content: bytes | dict[str, bytes], *of: MemCube) -> MemCube:
    sources = tuple(Source(id=cube.id, version=cube.version) for cube in of)
    made = {"id": new_id(), "form": form, "payload": stored(vault, content), "sources": sources, "version": 1}
    cube = of[0].model_copy(update=made)
    vault.put(cube)
    return cube


def fill(vault: MemVault, cubes: int = 60) -> list[MemCube]:
    """Texts with a history, KV, an adapter, vectors, a job that was cut off, an index, decisions."""
    chance = np.random.default_rng(0)
    told = [
        text(vault, f"Friend {i} lives in Oslo.", Fact(subject=f"F{i}", relation="city", object="Oslo"))
        for i in range(cubes)
    ]
    for cube in told[:5]:
        vault.set_state(cube.id, State.ACTIVATED, "recalled")
        vault.put(cube.model_copy(update={"version": 2, "payload": Text(text="He lives in Rome now.")}))
    vault.delete([cube.id for cube in told[-3:]])
    vault.usage.repeat(told[6].id, vault.now(), "api")
    vault.superseded.put(told[7].id, told[8].id, vault.now())
    vault.usage.record([cube.id for cube in told[:9]], vault.now())
    vault.snapshots.take(Namespace(user_id="ada"), "then")
    payload(vault, Form.ACTIVATION, chance.bytes(20_000), told[10], told[11])
    files = {"adapter_config.json": b'{"r": 8}', "adapter_model.safetensors": chance.bytes(9_000), "card.json": b"{}"}
    payload(vault, Form.PARAMETRIC, files, told[12])
    rows = [
        VectorRow(c.id, 1, "", chance.random(64, np.float32), chance.integers(-99, 99, (9, 64)).astype(np.int8))
        for c in told[5:-3]
    ]
    vault.vectors.put("embedder", rows)
    job = vault.jobs.start("parametric", {"sources": [f"{told[13].id}@1"]})
    (vault.blobs.work(job.id) / "state.safetensors").write_bytes(chance.bytes(3_000))
    for _ in range(5):
        vault.audit_log.append("ada", "read", told[0].id, True, "owner")
    assert vault.index.save("layout", "embedder", vault.last_change(), {"words": np.arange(2_000)})
    return told[:-3]


def files(folder: Path) -> list[Path]:
    there = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in there if path.name not in SCRATCH and path.stat().st_size]


def is_found(folder: Path) -> bool:
    """By the check, or by an opening that refuses."""
    try:
        return bool(vault_check.problems(Place(folder)))
    except VaultError:
        return True


def damages(path: Path, chance: random.Random, flips: int, cuts: int) -> Iterator[str]:
    """Spoil a file again and again, each time of what it was."""
    whole = path.read_bytes()
    try:
        for _ in range(flips):
            bit = chance.randrange(len(whole) * 8)
            spoilt = bytearray(whole)
            spoilt[bit // 8] ^= 1 << bit % 8
            path.write_bytes(spoilt)
            yield f"bit {bit % 8} of byte {bit // 8} of {path.name}"
        for _ in range(cuts):
            size = chance.randrange(len(whole))
            path.write_bytes(whole[:size])
            yield f"{path.name} cut to {size} bytes"
    finally:
        path.write_bytes(whole)


def missed(folder: Path, flips: int, cuts: int) -> tuple[int, list[str]]:
    """(damages done, those that were not found), in every file."""
    chance, done, unseen = random.Random(0), 0, list[str]()
    for path in files(folder):
        for what in damages(path, chance, flips, cuts):
            done += 1
            if not is_found(folder):
                unseen.append(what)
    return done, unseen


def said(folder: Path) -> str:
    """All that SQLite reads in the two databases, of a copy of them."""
    copy = folder.with_name("said")
    copy.mkdir()
    try:
        for path in folder.glob("v*.db*"):
            shutil.copy(path, copy / path.name)
        text = []
        for name in ("vault.db", "vectors.db"):
            with closing(sqlite3.connect(copy / name)) as db:
                text += list(db.iterdump())
        return "\n".join(text)
    finally:
        shutil.rmtree(copy)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    with MemVault(tmp_path / "vault") as vault:
        fill(vault)
    MemVault(tmp_path / "vault").close()  # takes away an index that a later one took the place of
    return vault.path


@pytest.fixture
def died(tmp_path: Path) -> Iterator[Path]:
    """What a process leaves that dies: a copy of an open vault, its log not yet in the database."""
    with MemVault(tmp_path / "open") as vault:
        fill(vault)
        text(vault, "The last that was said.")
        shutil.copytree(vault.path, tmp_path / "left")
    yield tmp_path / "left"


@pytest.mark.slow
def test_any_bit_that_flips_in_a_closed_vault_and_any_file_that_is_cut_is_found(closed: Path) -> None:
    assert {path.parent.name if path.parent != closed else path.name for path in files(closed)} >= {
        *("vault.db", "vectors.db", "sums.json", "index")
    }
    assert vault_check.problems(Place(closed)) == []
    done, unseen = missed(closed, flips=12, cuts=4)
    assert done >= 9 * 16 and unseen == []
    assert vault_check.problems(Place(closed)) == []


@pytest.mark.slow
def test_any_of_many_bits_that_flip_in_a_closed_vault_is_found(closed: Path) -> None:
    done, unseen = missed(closed, flips=400, cuts=50)
    assert done >= 9 * 450 and unseen == []


def test_the_check_changes_no_file(closed: Path, died: Path) -> None:
    for folder in (closed, died):
        before = {path: path.read_bytes() for path in files(folder)}
        assert vault_check.problems(Place(folder)) == []
        assert {path: path.read_bytes() for path in files(folder)} == before


@pytest.mark.parametrize("name", ["vault.db-wal", "vectors.db-wal"])
def test_what_was_committed_last_is_not_lost_without_a_word(died: Path, name: str) -> None:
    """SQLite takes a damaged frame for the end of the log. What lies behind the end is of no matter."""
    log = died / name
    end = 32 + wal_file.committed(died / f"{name.removesuffix('-wal')}-shm")[0] * (4096 + 24)
    whole, chance = log.read_bytes(), random.Random(0)
    for _ in range(100):
        bit = chance.randrange(end * 8)
        spoilt = bytearray(whole)
        spoilt[bit // 8] ^= 1 << bit % 8
        log.write_bytes(spoilt)
        assert "-wal is damaged" in vault_check.problems(Place(died))[0]
        log.write_bytes(whole[: chance.randrange(end)])
        assert "-wal is damaged" in vault_check.problems(Place(died))[0]
    log.write_bytes(whole)
    assert vault_check.problems(Place(died)) == []


@pytest.mark.slow
def test_after_a_crash_what_goes_unseen_changes_no_memory(closed: Path) -> None:
    """There are no sums then: a bit that flips is found, or is in space that nothing uses, or in a count or a note."""
    (closed / file_sums.NAME).unlink()
    before, harm = said(closed), dict[str, int]()
    for name in ("vault.db", "vectors.db"):
        for what in damages(closed / name, random.Random(1), flips=80, cuts=5):
            if is_found(closed):
                continue
            after = said(closed)
            for one, other in zip(before.splitlines(), after.splitlines(), strict=True):
                if one != other:
                    table = one.split('"')[1]
                    harm[table] = harm.get(table, 0) + 1
            assert "cut" not in what
    assert set(harm) <= UNCHECKED


# tables whose rows have no checksum and follow from no history: counts, notes, and names of what was replaced
UNCHECKED = {
    "usage",
    "uses",
    "repeats",
    "superseded",
    "jobs",
    "cards",
    "snapshots",
    "snapshot_cubes",
    "pipelines",
    "clock",
    "changes",
}


@pytest.mark.parametrize(
    "sql, told",
    [
        ("UPDATE versions SET json = replace(json, 'Oslo', 'Osln') WHERE rowid = 9", "is not what was written"),
        ("UPDATE transitions SET state = 'archived' WHERE n = 9", "is not what was written"),
        ("UPDATE heads SET state = 'archived' WHERE rowid = 9", "its state is not what follows"),
        ("UPDATE heads SET user_id = 'eve' WHERE rowid = 9", "what is said of it is not what follows"),
        ("UPDATE heads SET expires = '2020-01-01T00:00:00+00:00' WHERE rowid = 9", "what is said of it"),
        ("UPDATE heads SET repeats = 7 WHERE rowid = 9", "how often it was told"),
        ("UPDATE facts SET object = 'rome' WHERE rowid = 9", "its facts are not|its facts is not"),
        ("DELETE FROM facts WHERE rowid = 9", "its facts"),
        ("DELETE FROM sources", "its sources"),
        ("DELETE FROM changes WHERE n = 20", "that it has changed"),
        ("DELETE FROM heads WHERE rowid = 9", "no head|refers to no"),
        ("UPDATE usage SET last = 'x'", "a row of usage has no time"),
        ("UPDATE clock SET n = 1", "its clock is behind"),
        ("CREATE INDEX strange ON heads (since)", "strange is not as this memos makes it"),
        ("UPDATE audit SET caller = 'eve' WHERE n = 2", "audit row 2 was changed"),
        ("UPDATE vectors SET digest = 'x' WHERE rowid = 9", "the vectors of cube"),
    ],
)
def test_a_row_that_is_not_what_was_written_is_found_without_sums(closed: Path, sql: str, told: str) -> None:
    (closed / file_sums.NAME).unlink()
    with closing(sqlite3.connect(closed / "vault.db", isolation_level=None)) as db:
        db.execute("DROP TRIGGER changes_update")
        db.execute(sql)
    assert any(re.search(told, problem) for problem in vault_check.problems(Place(closed)))


def test_a_vault_in_use_is_checked_while_others_write(closed: Path) -> None:
    found, done = list[str](), threading.Event()

    def write() -> None:
        with MemVault(closed) as vault:
            while not done.is_set():
                cube = text(vault, "It comes and goes.")
                vault.set_state(cube.id, State.ACTIVATED, "recalled")
                payload(vault, Form.ACTIVATION, new_id().encode(), cube)
                vault.delete([cube.id, *(c.id for c in vault.derived(cube.id))])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(10):
            found += vault_check.problems(Place(closed))
    finally:
        done.set()
        writer.join()
    assert [problem for problem in found if "left traces" not in problem] == []  # of a deletion that is going on


def test_a_payload_that_is_removed_while_it_is_read_is_missing(closed: Path) -> None:
    class Removing(PlainFormat):
        def problem(self, stored: Path, sha256: str) -> bool:
            stored.unlink()
            return super().problem(stored, sha256)

    blobs = Blobs(closed, Removing())
    assert "is missing from" in blobs.problem(blobs.all()[0])


def test_a_vault_that_is_open_is_found_damaged(closed: Path) -> None:
    with MemVault(closed) as vault:
        cube = vault.cubes(form=Form.ACTIVATION)[0]
        assert problems_of(vault) == []
        vault.blobs.path(cube.blob).write_bytes(b"another")
        assert cube.id in problems_of(vault)[0]


def test_sums_are_there_only_while_nobody_has_the_vault_open(closed: Path) -> None:
    sums = closed / file_sums.NAME
    assert sums.exists()
    with MemVault(closed):
        assert not sums.exists()
        MemVault(closed).close()
        assert not sums.exists()
    assert sums.exists()


def test_a_file_that_was_not_written_is_not_read_again(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago = 10**18
    os.utime(closed / "vectors.db", ns=(long_ago, long_ago))
    MemVault(closed).close()  # reads it, as it is not as old as it was
    read, sums = list[str](), file_sums.sums_of
    monkeypatch.setattr(file_sums, "sums_of", lambda path: read.append(path.name) or sums(path))
    MemVault(closed).close()
    assert "vectors.db" not in read and "vault.db" in read
    monkeypatch.undo()
    assert vault_check.problems(Place(closed)) == []


def test_a_disk_without_room_for_sums_leaves_none(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    vault = MemVault(closed)
    monkeypatch.setattr(file_sums.on_disk, "write_json", full)
    vault.close()
    assert not (closed / file_sums.NAME).exists() and vault_check.problems(Place(closed)) == []


def test_a_file_that_is_lost_or_strange_is_named(closed: Path) -> None:
    (closed / "notes.txt").write_text("mine")
    (closed / "vectors.db").unlink()
    told = " ".join(vault_check.problems(Place(closed)))
    assert "notes.txt is not a file of this vault" in told and "vectors.db is missing" in told


@pytest.mark.parametrize(
    "version, told", [(SCHEMA_VERSION + 1, "upgrade memos"), (18, "open the vault once"), (1, "memos dump")]
)
def test_a_vault_of_another_schema_is_not_judged(closed: Path, version: int, told: str) -> None:
    with closing(sqlite3.connect(closed / "vault.db")) as db:
        db.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(VaultError, match=told):
        vault_check.problems(Place(closed))


def test_a_folder_without_a_vault_is_named(tmp_path: Path) -> None:
    with pytest.raises(VaultError, match="holds no vault"):
        vault_check.problems(Place(tmp_path))


def test_a_log_is_whole_after_each_commit(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (a)")
        for i in range(300):
            db.execute("INSERT INTO t VALUES (?)", (random.Random(i).randbytes(5_000),))
            assert i % 20 or wal_file.problems(tmp_path / "a.db") == []


def test_without_its_index_a_log_that_was_begun_anew_is_whole(tmp_path: Path) -> None:
    """Frames of the log before it lie behind its end."""
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (a)")
        for _ in range(2):
            for i in range(30):
                db.execute("INSERT INTO t VALUES (?)", (random.Random(i).randbytes(5_000),))
            db.execute("PRAGMA wal_checkpoint(RESTART)")
        db.execute("INSERT INTO t VALUES (1)")
        for end in ("", "-wal"):
            shutil.copy(tmp_path / f"a.db{end}", tmp_path / f"b.db{end}")
    assert wal_file.problems(tmp_path / "b.db") == []
    log = tmp_path / "b.db-wal"
    log.write_bytes(log.read_bytes()[:40] + b"\1" + log.read_bytes()[41:])
    assert "is damaged in frame 1" in wal_file.problems(tmp_path / "b.db")[0]
