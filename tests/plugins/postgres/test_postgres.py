"""A vault on a PostgreSQL server: shared, whole after the server went away, and every refusal named."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memos.config import Config, VaultConfig
from memos.cube import Form, State
from memos.errors import Conflict, CorruptBlob, KeyUnusable, VaultError
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.tables.vector_table import VectorRow
from memos.plugins.care import care
from memos.plugins.care.audit import verify_log
from memos.plugins.care.check import problems_of
from memos.plugins.encryption import recrypt
from memos.plugins.postgres import postgres_dialect
from memos.plugins.postgres.postgres_dialect import translated
from tests.conftest import new_schema, running_server
from tests.plugins.care.test_check import fill, payload, text

pytest.importorskip("psycopg")
NewUrl = Callable[[], str]
BESIDE = """
import sys
from pathlib import Path
from memos.infrastructure.vault.mem_vault import MemVault
from tests.plugins.care.test_check import text
with MemVault(Path(sys.argv[1]), url=sys.argv[2]) as vault:
    for line in sys.stdin:
        match line.split():
            case ["say", *words]:
                print(text(vault, " ".join(words)).id, flush=True)
            case ["read"]:
                print("|".join(cube.text for cube in vault.cubes()), flush=True)
"""


class Between:
    """The line to a server, which can be cut at a commit: before it is sent, or before it is confirmed."""

    def __init__(self, server: Path, folder: Path) -> None:
        folder.mkdir()
        self.folder, self._server = folder, str(server / ".s.PGSQL.5432")
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(folder / ".s.PGSQL.5432"))
        self._door.listen()
        self._cut: bool | None = None
        self._instead: Callable[[], None] = lambda: None
        self._unheard = threading.Lock()  # while the client is not to know that the line is cut
        self.has_cut = False

    def __enter__(self) -> Between:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()

    def through(self, url: str) -> str:
        return re.sub("host=[^&]*", f"host={self.folder}", url)

    def cut_at_commit(self, arrives: bool, instead: Callable[[], None] = lambda: None) -> None:
        """instead: what happens before the client hears of it."""
        self._cut, self._instead = arrives, instead

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, server = self._door.accept()[0], socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
                threading.Thread(target=self._back, args=(server, client), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self._cut is not None and b"COMMIT" in data:
                    arrives, self._cut, self.has_cut = self._cut, None, True
                    with self._unheard:
                        self._instead()
                    client.shutdown(socket.SHUT_RDWR)
                    if arrives:
                        server.sendall(data)
                        time.sleep(0.3)
                    break
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)
        server.close()

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        with self._unheard:
            client.close()


@pytest.fixture
def url(new_url: NewUrl) -> str:
    return new_url()


@pytest.fixture(scope="module")
def mortal() -> Iterator[Any]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(mortal: Any) -> Any:
    """One that may be killed."""
    mortal.ensure_postgres_running()
    return mortal


def beside(folder: Path, url: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BESIDE, str(folder), url]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin and process.stdout
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def kill(server: Any) -> None:
    """Every process of the server ends at once, as in a crash, and nothing is written any more."""
    os.kill(server.get_pid(), signal.SIGQUIT)
    server.get_postmaster_info().process.wait(10)


# what is kept


def test_a_vault_on_a_server_keeps_all_that_one_in_a_folder_does(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path / "here", url=url) as vault:
        told = fill(vault)
        assert problems_of(vault) == []
        before = [cube.model_copy() for cube in vault.cubes()]
        assert verify_log(vault.audit_log).problems == []
    with MemVault(tmp_path / "here") as again:  # server.json says where
        assert again.cubes() == before and again.index.load("layout", "embedder")
        vectors = again.vectors.of("embedder", [cube.id for cube in told])
        assert len(vectors) == 52 and all(vector.shape == (64,) for _, _, vector in vectors.values())


def test_a_vector_comes_back_bit_for_bit_and_can_be_compared_on_the_server(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path, url=url) as vault:
        one, other = text(vault, "One."), text(vault, "Other.")
        vectors = np.array([[0.1, -1e-30, 3.0], [0.1, 7.0, 3.0]], np.float32)
        coarse = np.array([[-127, 0, 127]], np.int8)
        vault.vectors.put("e", [VectorRow(c.id, 1, "", v, coarse) for c, v in zip((one, other), vectors, strict=True)])
        vault.vectors.put("e", [VectorRow(one.id, 1, "", vectors[0], coarse)])  # again, in place of it
        found = vault.vectors.of("e", [one.id, other.id])
        assert np.array_equal([found[one.id][2], found[other.id][2]], vectors)
        assert np.array_equal(vault.vectors.tokens("e", [one.id])[one.id], coarse)
        nearest = "SELECT v.id FROM vectors v JOIN readings r ON r.n = v.n ORDER BY r.vector <-> '[0,6,3]' LIMIT 1"
        assert vault._db.rows(nearest) == [(other.id,)]


def test_a_payload_is_on_the_server_and_a_copy_of_it_in_each_folder_that_reads_it(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path / "a", url=url) as here, MemVault(tmp_path / "b", url=url) as there:
        source = text(here, "One.")
        kv = payload(here, Form.ACTIVATION, os.urandom(3 << 20), source)
        adapter = payload(here, Form.PARAMETRIC, {"a.json": b"{}", "empty": b"", "w": b"weights"}, source)
        assert kv.blob and adapter.blob
        assert there.blobs.path(kv.blob).read_bytes() == here.blobs.path(kv.blob).read_bytes()
        assert (there.blobs.path(adapter.blob) / "w").read_bytes() == b"weights"
        assert (there.blobs.path(adapter.blob) / "empty").read_bytes() == b""
        there.blobs.path(kv.blob).write_bytes(b"spoilt")  # a copy; another is made
        assert there.blobs.path(kv.blob).stat().st_size == 3 << 20
        here.delete([kv.id, adapter.id])
        with pytest.raises(CorruptBlob, match="is missing"):
            there.blobs.path(kv.blob)
        text(there, "A write on the other machine.")
        assert not [path for path in (tmp_path / "b" / "blobs").rglob("*") if path.is_file()]


def test_what_is_deleted_leaves_the_tables_that_texts_stand_in(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path, url=url) as vault:
        gone = [text(vault, f"Aardvark number {i}.") for i in range(20)]
        text(vault, "What stays.")
        vault.delete([cube.id for cube in gone])
        assert (
            not vault.erasing.wait()
            and not vault._db.rows("SELECT 1 FROM versions WHERE instr(json, 'Aardvark') > 0")
            and problems_of(vault) == []
        )
        [(file,)] = vault._db.rows("SELECT pg_relation_filepath('versions')")
        [(folder,)] = vault._db.rows("SELECT current_setting('data_directory')")
        assert b"Aardvark" not in (Path(folder) / file).read_bytes()


def test_a_row_that_is_changed_on_the_server_is_found(url: str, tmp_path: Path) -> None:
    import psycopg

    with MemVault(tmp_path, url=url) as vault:
        cube, kv_source = text(vault, "One."), text(vault, "Two.")
        kv = payload(vault, Form.ACTIVATION, b"k" * 999, kv_source)
        vault.audit_log.append("ada", "read", cube.id, True, "owner")
        vault.audit_log.append("ada", "read", cube.id, True, "owner")
        with psycopg.connect(url, autocommit=True) as other:
            for change, said in (
                ("UPDATE versions SET json = replace(json, 'One.', 'Won.')", "is not what was written"),
                ("UPDATE heads SET state = 'archived'", "its state is not what follows"),
                ("UPDATE payloads SET piece = 'x'", "does not match its digest"),
                ("DELETE FROM payloads", "is missing"),
                ("UPDATE audit SET why = 'else' WHERE n = 1", "audit row 1 was changed"),
                ("DELETE FROM audit WHERE n = 2", "audit rows 2 to 2 were removed"),
                ("DROP TABLE cards", "table cards is gone"),
            ):
                other.execute(change)
                assert any(said in problem for problem in care.check(tmp_path)), change
        assert kv.blob


# several at once


def test_two_processes_on_one_vault_see_each_others_writes(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path / "here", url=url) as vault, beside(tmp_path / "there", url) as other:
        mine = text(vault, "Mine.")
        assert ask(other, "read") == "Mine."
        theirs = ask(other, "say Theirs.")
        assert [cube.text for cube in vault.cubes()] == ["Mine.", "Theirs."] and vault.get(theirs).text == "Theirs."
        with vault.transaction():
            text(vault, "Not there yet.")
            assert ask(other, "read") == "Mine.|Theirs."
        assert ask(other, "read") == "Mine.|Theirs.|Not there yet."
        with pytest.raises(Conflict, match="is at version 0"):
            vault.put(mine.model_copy(update={"id": "0" * 32, "version": 2}))
        assert other.stdin
        other.stdin.close()
        assert other.wait(20) == 0
    with MemVault(tmp_path / "here") as alone:
        assert len(alone.cubes()) == 3 and problems_of(alone) == []


def test_writers_of_two_processes_take_turns_and_nothing_is_lost(url: str, tmp_path: Path) -> None:
    writer = """
import sys
from pathlib import Path
from memos.infrastructure.vault.mem_vault import MemVault
from tests.plugins.care.test_check import text
with MemVault(Path(sys.argv[1]), url=sys.argv[2]) as vault:
    for i in range(25):
        text(vault, f"{sys.argv[1]} said {i}.")
"""
    MemVault(tmp_path / "first", url=url).close()
    commands = [[sys.executable, "-c", writer, str(tmp_path / name), url] for name in ("a", "b")]
    for process in [subprocess.Popen(command) for command in commands]:
        assert process.wait(60) == 0
    with MemVault(tmp_path / "first") as vault:
        assert len({cube.text for cube in vault.cubes()}) == 50 and problems_of(vault) == []
        times = [at for (at,) in vault._db.rows("SELECT at FROM versions ORDER BY at")]
        assert len(set(times)) == 50  # one clock for all


def test_a_killed_writer_is_no_hindrance_and_its_job_is_taken_up(url: str, tmp_path: Path) -> None:
    holder = """
import sys
from pathlib import Path
from memos.infrastructure.vault.mem_vault import MemVault
vault = MemVault(Path(sys.argv[1]), url=sys.argv[2])
vault.jobs.queue("tick", {"sources": []})
vault.jobs.take()
with vault.transaction():
    print("writing", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", holder, str(tmp_path / "there"), url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline()
        process.kill()
    with MemVault(tmp_path / "here", url=url) as vault:
        text(vault, "Goes on.")
    with MemVault(tmp_path / "here") as vault:
        assert [job.note for job in vault.jobs.all("queued")] == ["its process died"]


# a server that goes away


@pytest.mark.crash
def test_a_server_that_dies_within_a_write_is_named_and_nothing_of_it_is_kept(server: Any, tmp_path: Path) -> None:
    with MemVault(tmp_path, url=new_schema(server)) as vault:
        kept = text(vault, "Kept.")
        with pytest.raises(VaultError, match="was not written .*; nothing of this change is kept, make sure that the"):
            with vault.transaction():
                text(vault, "Half.")
                vault.set_state(kept.id, State.ARCHIVED, "half")
                kill(server)
                text(vault, "Written.")
        with pytest.raises(VaultError, match="cannot be reached"):
            vault.get(kept.id)
        with pytest.raises(VaultError, match="cannot be reached"):
            text(vault, "While it is away.")
        server.ensure_postgres_running()
        assert [(cube.text, cube.state) for cube in vault.cubes()] == [("Kept.", State.GENERATED)]
        text(vault, "Goes on.")
        assert len(vault.cubes()) == 2 and problems_of(vault) == []
    with MemVault(tmp_path) as again:
        assert len(again.cubes()) == 2


@pytest.mark.crash
def test_a_server_that_dies_before_the_commit_has_kept_nothing_of_it(server: Any, tmp_path: Path) -> None:
    with MemVault(tmp_path, url=new_schema(server)) as vault:
        text(vault, "Kept.")
        with pytest.raises(VaultError, match=r"was not written .*; nothing of this change is kept"):
            with vault.transaction():
                text(vault, "All of it.")
                kill(server)
        server.ensure_postgres_running()
        assert [cube.text for cube in vault.cubes()] == ["Kept."] and problems_of(vault) == []


@pytest.mark.crash
@pytest.mark.parametrize("arrives", [True, False])
def test_a_commit_whose_confirmation_is_lost_is_told_by_what_the_server_has(
    server: Any, tmp_path: Path, arrives: bool
) -> None:
    with Between(Path(server.get_uri().split("host=")[1]), tmp_path / "between") as line:
        with MemVault(tmp_path / "vault", url=line.through(new_schema(server))) as vault:
            text(vault, "Kept.")
            line.cut_at_commit(arrives)
            if arrives:
                text(vault, "Confirmed late.")
            else:
                with pytest.raises(VaultError, match="nothing of this change is kept"):
                    text(vault, "Never arrived.")
            assert line.has_cut
            assert [cube.text for cube in vault.cubes()] == ["Kept.", *(["Confirmed late."] if arrives else [])]
            text(vault, "Goes on.")


@pytest.mark.crash
def test_a_commit_lost_in_a_crash_is_not_taken_for_another_that_the_server_gave_its_number_to(
    server: Any, tmp_path: Path
) -> None:
    import psycopg

    def crash() -> None:
        kill(server)
        server.ensure_postgres_running()
        with psycopg.connect(server.get_uri(), autocommit=True) as others:
            while int(others.execute("SELECT pg_current_xact_id()::text").fetchone()[0]) < int(vault._db._number):
                pass

    with Between(Path(server.get_uri().split("host=")[1]), tmp_path / "between") as line:
        with MemVault(tmp_path / "vault", url=line.through(new_schema(server))) as vault:
            text(vault, "Kept.")
            line.cut_at_commit(False, instead=crash)
            with pytest.raises(VaultError, match="nothing of this change is kept"):
                text(vault, "Lost.")
            assert line.has_cut
            assert [cube.text for cube in vault.cubes()] == ["Kept."]


@pytest.mark.crash
def test_a_statement_that_fails_takes_its_transaction_along_and_no_more(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path, url=url) as vault:
        with pytest.raises(VaultError, match="nothing of this change is kept"):
            with vault.transaction():
                text(vault, "Half.")
                vault._db.write("INSERT INTO heads (id) VALUES ('x')")
        assert vault.cubes() == []
        text(vault, "Whole.")
        assert len(vault.cubes()) == 1


# refused by name


def test_what_cannot_be_reached_is_named_without_its_password(url: str, server: Any, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(server.get_uri(), autocommit=True) as admin:
        admin.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
        [(rules,)] = admin.execute("SHOW hba_file").fetchall()
        Path(rules).write_text("local all guarded scram-sha-256\n" + Path(rules).read_text())
        admin.execute("SELECT pg_reload_conf()")
    host = server.get_uri().split("host=")[1]
    for wrong, said in (
        (f"postgresql://guarded:s3cret@/postgres?host={host}", "password authentication failed"),
        (f"postgresql://postgres:s3cret@/nowhere?host={host}", 'database "nowhere" does not exist'),
        ("postgresql://ada:s3cret@/x?host=/nowhere", "No such file or directory"),
        ("postgresql://ada:s3cret@localhost:1/x", "refused"),
        ("postgresql://ada:s3cret@[half/x", "is none that libpq reads"),
        ("mysql://ada:s3cret@host/x", "is none that libpq reads"),
        (f"postgresql://postgres:s3cret@/postgres?host={host}&options=-csearch_path%3Dnone", "no schema to put tables"),
    ):
        with pytest.raises(VaultError, match=said) as error:
            MemVault(tmp_path / "new", url=wrong)
        assert "s3cret" not in str(error.value) and "s3cret" not in str(error.value.__cause__ or "")
    assert "s3cret" not in repr(Config(vault=VaultConfig(url="postgresql://ada:s3cret@h/x")))  # type: ignore[arg-type]


def test_a_password_is_not_written_down(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path, url=url.replace("postgres:@", "postgres:s3cret@")) as vault:
        text(vault, "One.")
    assert not any(b"s3cret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_server_that_is_too_old_or_lacks_pgvector_is_named(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("memos.plugins.postgres.postgres.OLDEST", 990_000)
        with pytest.raises(VaultError, match="is PostgreSQL 16, and memos needs 99 or later; upgrade the server"):
            MemVault(tmp_path, url=url)
    monkeypatch.setattr("memos.plugins.postgres.postgres.EXTENSION", "no_such_extension")
    with pytest.raises(VaultError, match="lacks pgvector .*; install it on the server"):
        MemVault(tmp_path, url=url)


def test_a_vault_of_a_newer_schema_and_the_tables_of_another_program_are_left_alone(url: str, tmp_path: Path) -> None:
    import psycopg

    with MemVault(tmp_path / "a", url=url) as vault:
        text(vault, "One.")
        vault._db.rows("SELECT 1 FROM heads")
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("UPDATE memos_vault SET schema = 999")
        with pytest.raises(VaultError, match="has schema 999, this memos reads up to"):
            MemVault(tmp_path / "a")
        other.execute("DROP TABLE memos_vault")
        with pytest.raises(VaultError, match=r"cannot be used \(.* already exists"):
            MemVault(tmp_path / "a")
        assert other.execute("SELECT count(*) FROM versions").fetchone() == (1,)


def test_a_folder_belongs_to_one_vault(url: str, new_url: NewUrl, tmp_path: Path) -> None:
    with MemVault(tmp_path / "a", url=url) as vault:
        text(vault, "One.")
    with pytest.raises(VaultError, match="is of the vault .*; set vault.path to another folder"):
        MemVault(tmp_path / "a", url=new_url())
    with pytest.raises(KeyUnusable, match="unset vault.key, and encrypt the server's disk"):
        MemVault(tmp_path / "b", url=url, key="env:KEY")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "vault.db").touch()
    with pytest.raises(VaultError, match="holds a vault of its own; set vault.path to another folder"):
        MemVault(tmp_path / "c", url=url)


def test_what_is_about_files_is_refused_with_the_way_out(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path / "a", url=url) as vault:
        text(vault, "One.")
    with pytest.raises(VaultError, match="cannot make a backup; run `pg_dump`"):
        care.back_up(tmp_path / "a", tmp_path / "backup")
    with pytest.raises(VaultError, match="whose rows memos cannot encrypt; encrypt the disk of its server"):
        recrypt.encrypt(tmp_path / "a", "env:KEY")
    assert care.check(tmp_path / "a") == []
    with care.opened(tmp_path / "a") as vault:
        assert vault.stats.all()["bytes"]["database"] > 0 and vault.compact()[1] > 0


# the dialect


@pytest.mark.parametrize(
    "sqlite, postgres",
    [
        ("SELECT ifnull(?, a) FROM t", "SELECT coalesce(%s, a) FROM t"),
        ("SELECT 1 WHERE a LIKE '%x'", "SELECT 1 WHERE a LIKE '%%x'"),
        ("INSERT OR IGNORE INTO t VALUES (?)", "INSERT INTO t VALUES (%s) ON CONFLICT DO NOTHING"),
        ("DELETE FROM t WHERE instr(a, ?) > 0", "DELETE FROM t WHERE strpos(a, %s) > 0"),
        (
            "INSERT OR REPLACE INTO readings (n, vector) SELECT 1, 2",
            "INSERT INTO readings (n, vector) SELECT 1, 2 ON CONFLICT (n) DO UPDATE SET vector = excluded.vector",
        ),
    ],
)
def test_a_statement_is_translated(sqlite: str, postgres: str) -> None:
    assert translated(sqlite) == postgres


def test_every_table_of_sqlite_has_a_counterpart() -> None:
    assert {name for name, _ in postgres_dialect.blank()[0] if name == "versions"} == {"versions"}
    made = {name for name, sql in postgres_dialect.blank()[0] if sql.startswith("CREATE TABLE")}
    assert made <= postgres_dialect.table_names()


def test_ctrl_c_within_a_statement_leaves_the_turn_to_others_and_the_vault_usable(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path / "here", url=url) as vault, MemVault(tmp_path / "there", url=url) as other:
        with pytest.raises(KeyboardInterrupt), vault.transaction():
            text(vault, "Half.")
            # as where it comes between the sending of a statement and its answer
            vault._db._writer.pgconn.send_query(b"SELECT pg_sleep(0.1)")  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        text(other, "The other's turn.")
        text(vault, "Goes on.")
        assert [cube.text for cube in vault.cubes()] == ["The other's turn.", "Goes on."]


def test_a_machine_that_was_never_there_looks_after_the_vault_of_the_url(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path / "first", url=url) as vault:
        fill(vault)
    settings = VaultConfig(url=url)
    assert care.check(tmp_path / "a" / "new", settings=settings) == []
    with care.opened(tmp_path / "another", settings) as vault:
        assert vault.stats.all()["users"]
