"""Several threads and processes on one vault, a full or read-only disk, and the way from one schema to the next."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from memos.bench.vault import drawn
from memos.cube import Blob, Form, MemCube, Source, Text
from memos.errors import VaultError
from memos.infrastructure.vault.care.residue import search
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.sqlite.database import Database
from memos.infrastructure.vault.sqlite.opening import PLAIN_DRIVER, Driver
from memos.infrastructure.vault.store import reserve
from memos.infrastructure.vault.store.folder_lock import FolderLock
from memos.infrastructure.vault.store.schema import SCHEMA_VERSION, TABLES
from memos.infrastructure.vault.tables.cube_table import HEAD, checksum, facts, head
from memos.plugins.care.check import problems_of
from memos.plugins.packs import pack_table

pytestmark = pytest.mark.sqlite

ROOT = Path(__file__).parents[4]
_NOBODY = 65534


def cubes(count: int, seed: int = 0) -> list[MemCube]:
    return drawn(random.Random(seed), count)


def edited(cube: MemCube, text: str) -> MemCube:
    return cube.model_copy(update={"version": cube.version + 1, "payload": Text(text=text)})


# threads and processes


@pytest.mark.crash
def test_reading_waits_for_no_writer_and_a_writer_reads_its_own_writes(tmp_path: Path) -> None:
    [old, new] = cubes(2)
    with MemVault(tmp_path / "vault") as vault, MemVault(tmp_path / "vault") as another:
        vault.put(old)
        found: list[list[MemCube]] = []

        def read(through: MemVault) -> None:
            found.append(through.at([old.id, new.id]))

        with vault.transaction():
            vault.put(new)
            assert vault.at([old.id, new.id]) == [old, new]
            for through in (vault, another):  # of this process, and as from another
                thread = threading.Thread(target=read, args=(through,))
                thread.start()
                thread.join(20)
                assert found.pop() == [old]
        assert vault.at([new.id]) == another.at([new.id]) == [new]


WRITE = """
import random, sys
from pathlib import Path
from memos.bench.vault import drawn
from memos.infrastructure.vault.mem_vault import MemVault
with MemVault(Path(sys.argv[1])) as vault:
    for cube in drawn(random.Random(int(sys.argv[2])), 40):
        vault.put(cube)
        print(cube.id, flush=True)
    if len(sys.argv) > 3:
        with vault.transaction():
            vault.put(drawn(random.Random(0), 1)[0])
            print("within", flush=True)
            sys.stdin.read()
"""


def writing(vault: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITE, str(vault), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


@pytest.mark.crash
def test_two_processes_write_into_one_vault(tmp_path: Path) -> None:
    processes = [writing(tmp_path / "vault", str(n)) for n in range(2)]
    with MemVault(tmp_path / "vault") as vault:
        mine = cubes(40, seed=2)
        for cube in mine:
            vault.put(cube)
        told = [process.communicate(timeout=60)[0].split() for process in processes]
        assert [len(ids) for ids in told] == [40, 40]
        assert {cube.id for cube in vault.cubes()} == {*told[0], *told[1], *(cube.id for cube in mine)}
        assert problems_of(vault) == []


@pytest.mark.crash
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_is_killed_in_a_transaction_leaves_nothing_and_one_that_is_stopped_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    other = writing(tmp_path / "vault", "0", "stay")
    assert other.stdout is not None
    told = [line.strip() for line in iter(other.stdout.readline, "within\n")]
    [cube] = cubes(1, seed=1)
    with MemVault(tmp_path / "vault") as vault:
        os.kill(other.pid, how)
        if how is signal.SIGSTOP:
            monkeypatch.setattr("memos.infrastructure.vault.store.transactions.WAIT_S", 0.1)
            with pytest.raises(VaultError, match="locked: another process .* try again"):
                vault.put(cube)
            assert len(vault.cubes()) == len(told)  # reading goes on
            other.kill()
        other.communicate()
        monkeypatch.undo()
        vault.put(cube)
        assert {one.id for one in vault.cubes()} == {*told, cube.id}
        assert problems_of(vault) == []


def test_a_part_that_failed_takes_its_transaction_along_even_where_its_error_is_caught(tmp_path: Path) -> None:
    [first, second] = cubes(2)
    with MemVault(tmp_path / "vault") as vault:
        with pytest.raises(VaultError, match="a part of this change had failed"), vault.transaction():
            vault.put(first)
            with pytest.raises(VaultError, match="not written"), vault._db.indivisible():
                vault._db.write("INSERT INTO versions SELECT * FROM versions")
        assert vault.cubes() == []
        vault.put(second)
        assert vault.cubes() == [second]


# a disk that takes nothing more


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file can grow beyond this many bytes: a limit of the system's, and real failing writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def write_all(vault: MemVault, kept: list[MemCube]) -> tuple[list[MemCube], list[str], int]:
    """One write of each kind, several times: what was acknowledged (the last of each id counts), what was deleted, and
    how many were refused by name."""
    acknowledged, deleted, refused = list[MemCube](), list[str](), 0
    for n in range(3):
        source, doomed = kept[2 * n], kept[2 * n + 1]

        def derive(source: MemCube = source) -> list[MemCube]:
            with vault.blobs.staging() as path:
                try:
                    path.write_bytes(os.urandom(9000))
                except OSError as error:  # the caller's own write
                    raise VaultError("no room") from error
                sha256, size = vault.blobs.store(path)
                payload = Blob(sha256=sha256, bytes=size, fingerprint="none")
                update = {"form": Form.ACTIVATION, "payload": payload, "sources": (Source(id=source.id, version=1),)}
                made = cubes(1)[0].model_copy(update=update)
                vault.put(made)
            return [made]

        def together() -> list[MemCube]:
            made = cubes(5)
            with vault.transaction():
                for cube in made:
                    vault.put(cube)
            return made

        def edit(source: MemCube = source) -> list[MemCube]:
            vault.put(changed := edited(source, "something else"))
            return [changed]

        def delete(doomed: MemCube = doomed) -> list[MemCube]:
            vault.delete([doomed.id])
            deleted.append(doomed.id)
            return []

        def refuse() -> list[MemCube]:
            vault.audit_log.append("ada", "read", "a", False, "not hers")
            return []

        for work in (together, derive, edit, delete, refuse):
            try:
                acknowledged += work()
            except VaultError:
                refused += 1
    return acknowledged, deleted, refused


@pytest.mark.crash
def test_a_disk_that_is_full_at_any_write_refuses_it_by_name_and_loses_nothing(tmp_path: Path) -> None:
    kept = cubes(30)
    with MemVault(tmp_path / "before") as vault:
        for cube in kept:
            vault.put(cube)
    seen = set[bool]()
    for size in [0, 1, 600, 4096, 4200, 8300, *range(12_000, 400_000, 29_011), 2_000_000]:
        shutil.copytree(tmp_path / "before", tmp_path / "vault")
        with MemVault(tmp_path / "vault") as vault:
            with room_for(size):
                acknowledged, deleted, refused = write_all(vault, kept)
        seen.add(refused > 0)
        sound(tmp_path / "vault", kept, acknowledged, deleted)
        shutil.rmtree(tmp_path / "vault")
    assert seen == {True, False}


@pytest.mark.crash
@pytest.mark.parametrize("pages", [0, 1, 2, 3])
def test_a_database_that_may_not_grow_refuses_by_name_and_loses_nothing(tmp_path: Path, pages: int) -> None:
    kept = cubes(30)
    with MemVault(tmp_path / "vault") as vault:
        for cube in kept:
            vault.put(cube)
        (there,) = vault._db._db.execute("PRAGMA page_count").fetchone()
        vault._db._db.execute(f"PRAGMA max_page_count = {there + pages}")
        acknowledged, deleted, refused = write_all(vault, kept)
    assert refused
    sound(tmp_path / "vault", kept, acknowledged, deleted)


def sound(path: Path, kept: list[MemCube], acknowledged: list[MemCube], deleted: list[str]) -> None:
    """What was acknowledged is there, and nothing else is missing."""
    with MemVault(path) as vault:
        expected = {cube.id: cube for cube in [*kept, *acknowledged] if cube.id not in deleted}
        found = {cube.id: cube for cube in vault.cubes()}
        assert {id: found.get(id) for id in expected} == expected
        assert not found.keys() & set(deleted)
        assert problems_of(vault) == []


def test_a_full_disk_gives_up_the_reserve_for_reading_and_deleting_and_takes_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = tmp_path / reserve.NAME

    def room(free: int) -> None:
        """As the system tells it, with what the reserve gives back."""
        there = held.stat().st_size if held.exists() else 0
        monkeypatch.setattr(reserve, "_free", lambda _: free + there - (held.stat().st_size if held.exists() else 0))

    first, second = drawn(random.Random(0), 2)
    with MemVault(tmp_path) as vault:
        vault.put(first)
        assert held.stat().st_size == reserve.RESERVE_BYTES
    monkeypatch.setattr(reserve, "_CLOSING_BYTES", 1)
    room(0)
    with MemVault(tmp_path) as vault:
        vault.audit_log.append("user", "read", first.id, True, "read")
        assert not held.exists() and vault.get(first.id) == first
        with pytest.raises(VaultError, match="disk of .* is full"):
            vault.put(second)
        vault.delete([first.id])
    assert held.stat().st_size == reserve.RESERVE_BYTES - 1  # other programs do not get it
    room(4 * reserve.RESERVE_BYTES)
    with MemVault(tmp_path) as vault:
        vault.put(second)
        assert held.stat().st_size == reserve.RESERVE_BYTES and problems_of(vault) == []


def test_a_folder_that_became_read_only_refuses_every_write_by_name(tmp_path: Path) -> None:
    kept = cubes(6)
    folder = Path(tempfile.mkdtemp())  # where another user may look
    try:
        with MemVault(folder / "vault") as vault:
            for cube in kept:
                vault.put(cube)
            before = {path: path.read_bytes() for path in folder.rglob("*.db")}
            for path in [*folder.rglob("*"), folder]:
                path.chmod(0o555 if path.is_dir() else 0o444)
            child = os.fork()
            if not child:  # as one who may not write: for root, there is no folder that is read-only
                try:
                    if os.geteuid() == 0:
                        os.setuid(_NOBODY)
                    acknowledged, deleted, refused = write_all(vault, kept)
                    reading = vault.cubes() == kept
                    try:
                        MemVault(folder / "vault")
                    except VaultError as error:
                        named = "set vault.path to a folder that you can write to" in str(error)
                    os._exit(0 if not acknowledged and not deleted and refused == 15 and reading and named else 1)
                finally:
                    os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            for path in [folder, *folder.rglob("*")]:
                path.chmod(0o755 if path.is_dir() else 0o644)
        assert before.keys() == set(folder.rglob("*.db"))
        sound(folder / "vault", kept, [], [])
    finally:
        shutil.rmtree(folder)


# from one schema to the next


def of_the_schema_before(path: Path, driver: Driver = PLAIN_DRIVER) -> MemCube:
    """A vault with one memory, in which the tables of packs are not described yet."""
    [cube] = cubes(1)
    path.mkdir(exist_ok=True)
    version = (cube.id, 1, cube.model_dump_json(exclude={"state", "usage"}), cube.header.created.isoformat())
    move = (cube.id, "generated", cube.header.created.isoformat(), "created")
    with closing(driver.connect(path / "vault.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        for statement in TABLES:
            if "extension_tables" not in statement and "superseded_by" not in statement:
                db.execute(statement)
        for column in ("priority", "holder", "until"):
            db.execute(f"ALTER TABLE jobs DROP COLUMN {column}")
        for table in pack_table.TABLES:
            for statement in table.statements:
                db.execute(statement)
        db.execute("INSERT INTO versions VALUES (?, ?, ?, ?, ?)", (*version, checksum(*version)))
        row = dict(zip(("id", *HEAD, "state", "since"), (cube.id, *head(cube), "generated", version[3]), strict=True))
        names, places = ", ".join(row), ", ".join("?" * len(row))
        db.execute(f"INSERT INTO heads ({names}) VALUES ({places})", (*row.values(),))
        db.execute(
            "INSERT INTO transitions (id, state, at, why, digest) VALUES (?, ?, ?, ?, ?)", (*move, checksum(*move))
        )
        db.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?)", facts(cube))
        arrival = ("a pack", cube.namespace.user_id, "there", cube.id, 1, 1, "digest", 0, "{}")
        db.execute("INSERT INTO arrivals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", arrival)
        db.execute("PRAGMA user_version = 18")
    return cube


def dump(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as db:
        [(version,)] = db.execute("PRAGMA user_version")
        return [str(version), *db.iterdump()]


def test_an_upgrade_keeps_what_was_there_until_a_text_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "vault"
    cube = of_the_schema_before(path)
    before = dump(path / "vault.db")
    with MemVault(path) as vault:
        assert vault.get(cube.id).payload == cube.payload and problems_of(vault) == []
        assert vault.extensions.users() == {cube.namespace.user_id}
        assert vault.extensions.open(*pack_table.TABLES).rows("SELECT id FROM arrivals") == [(cube.id,)]
        assert dump(path / "vault.schema-18.db") == before != dump(path / "vault.db")
        assert not list(path.glob("*.part*"))
    with MemVault(path) as vault:  # no second copy, and the first is left alone
        assert [copy.name for copy in path.glob("*.schema-*")] == ["vault.schema-18.db"]
        vault.delete([cube.id])
        assert not any(cube.text.encode() in file.read_bytes() for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize("size", [None, 20_000, 60_000])
def test_an_upgrade_that_fails_leaves_the_vault_as_it_was(tmp_path: Path, size: int | None) -> None:
    path = tmp_path / "vault"
    of_the_schema_before(path)
    if size is None:
        with closing(sqlite3.connect(path / "vault.db", isolation_level=None)) as db:
            db.execute("CREATE TABLE extension_tables (mine TEXT)")  # in the way of the step
    before = dump(path / "vault.db")
    with pytest.raises(VaultError, match=f"(from schema 18 to {SCHEMA_VERSION}|cannot be opened) .*as it was"):
        with room_for(resource.RLIM_INFINITY if size is None else size):
            MemVault(path)
    assert dump(path / "vault.db") == before
    assert not list(path.glob("*.schema-*"))
    with closing(sqlite3.connect(path / "vault.db", isolation_level=None)) as db:
        db.execute("DROP TABLE IF EXISTS extension_tables")
    with MemVault(path) as vault:
        assert len(vault.cubes()) == 1 and problems_of(vault) == []


def test_a_vault_of_a_schema_that_cannot_be_brought_up_to_date_is_left_alone(tmp_path: Path) -> None:
    of_the_schema_before(tmp_path)
    with closing(sqlite3.connect(tmp_path / "vault.db")) as db:
        db.execute("PRAGMA user_version = 17")
    before = dump(tmp_path / "vault.db")
    with pytest.raises(VaultError, match="has schema 17, which is older .*`memos dump`"):
        MemVault(tmp_path)
    assert dump(tmp_path / "vault.db") == before


def test_what_is_deleted_from_a_large_vault_does_not_keep_a_caller_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memos.infrastructure.vault.erasing.AT_ONCE_BYTES", 0)
    first, second, other = cubes(3)
    with MemVault(tmp_path / "vault") as vault:
        for cube in (first, second, other):
            vault.put(cube)
        rewritten: list[bool] = []
        monkeypatch.setattr(vault._db, "vacuum", lambda: rewritten.append(Database.vacuum(vault._db)) or rewritten[-1])
        vault.delete([first.id])
        vault.delete([second.id])
        assert vault.erasing.wait()
        assert problems_of(vault) == [] and not vault.erasing.wait()
        assert rewritten == [True]
        vault.delete([other.id])  # and what a closing has to pay it pays
    with MemVault(tmp_path / "vault") as vault:
        assert (
            not vault.erasing.wait()
            and not vault.forgetting.search([cube.text.encode() for cube in (first, second, other)]).found
        )


def test_what_an_opening_has_to_erase_from_a_large_vault_does_not_keep_it_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memos.infrastructure.vault.erasing.AT_ONCE_BYTES", 0)
    [cube, other] = cubes(2)
    with MemVault(tmp_path / "vault") as vault:
        vault.put(cube)
        vault.put(other)
        monkeypatch.setattr(vault.erasing, "erase", lambda: None)  # as if it were killed right after the commit
        vault.delete([cube.id])
        assert vault.erasing.wait()
    with MemVault(tmp_path / "vault") as vault:
        assert vault.cubes() == [other] and vault.erasing.wait()
        assert problems_of(vault) == []


def held(path: Path) -> list[str]:
    """The locks that this process has on the files of a vault."""
    nodes = {f":{file.stat().st_ino}" for file in path.glob("*.db*")}
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sorted(" ".join(line[1:]) for line in lines if line[1] == "POSIX" and any(map(line[5].endswith, nodes)))


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="locks are listed on Linux alone")
def test_looking_at_the_files_of_an_open_vault_gives_up_none_of_its_locks(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault:
        vault.put(*cubes(1))
        before = held(tmp_path)
        assert problems_of(vault) == [] and search(tmp_path, [b"nowhere"]).found == ()
        assert held(tmp_path) == before != []


def test_what_fails_in_a_nested_transaction_takes_that_alone_along(tmp_path: Path) -> None:
    with closing(Database(tmp_path / "vault.db")) as db:
        with db.transaction():
            db.write("INSERT INTO snapshots (namespace, name, at, cubes) VALUES ('', 'one', '', 0)")
            with pytest.raises(ValueError), db.transaction(), db.indivisible():
                raise ValueError
        assert db.rows("SELECT name FROM snapshots") == [("one",)]


def test_closing_waits_for_those_who_read(tmp_path: Path) -> None:
    slow = "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3000000) SELECT count(*) FROM c"
    vault = MemVault(tmp_path)
    vault.put(*cubes(20))
    found: list[object] = []
    reading = threading.Thread(target=lambda: found.append(vault._db.rows(slow)))
    reading.start()
    time.sleep(0.05)
    vault.close()
    reading.join()
    assert found == [[(3_000_000,)]]
    with MemVault(tmp_path) as again:
        assert problems_of(again) == []


def test_of_those_who_leave_a_folder_the_last_is_alone(tmp_path: Path) -> None:
    one, other = FolderLock(tmp_path), FolderLock(tmp_path)
    with one.alone() as alone:
        assert alone
    for lock in (other, one, other):  # to ask does not give one's place away
        with lock.alone() as alone:
            assert not alone
    with one.alone(leaving=True) as alone:
        assert not alone
    with other.alone(leaving=True) as alone:
        assert alone


def test_a_new_vault_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with MemVault(tmp_path / "vault"):
            folder = tmp_path / "vault"
            modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.glob("*.db*"))}
    finally:
        os.umask(before)
    assert modes["vault"] == 0o700
    assert {modes[name] for name in ("vault.db", "vault.db-wal", "vault.db-shm", "vectors.db")} == {0o600}
