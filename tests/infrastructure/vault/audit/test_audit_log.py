"""Every change of the audit log by one without its key is found: of each field of each row, of checkpoints, of an
export."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from memos.config import AuditConfig, GovernanceConfig
from memos.errors import InputError, VaultError
from memos.infrastructure.vault.audit.records import AuditRow
from memos.infrastructure.vault.audit.signing import Signer, statement
from memos.infrastructure.vault.mem_vault import MemVault
from memos.plugins.care.audit import Verdict, export, verify_export, verify_log

ROWS, EVERY = 57, 10
FIELDS = AuditRow._fields
OTHER = {"n": 1000, "allowed": 2, "forgetting": 1}  # values that no row has


def config(tmp_path: Path, **audit: object) -> GovernanceConfig:
    key = {"key": tmp_path / "outside" / "audit.pem", "every": EVERY}
    return GovernanceConfig(audit=AuditConfig(**(key | audit)))  # type: ignore[arg-type]


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[MemVault]:
    with MemVault(tmp_path / "vault", governance=config(tmp_path)) as opened:
        for n in range(ROWS):
            opened.audit_log.append(
                f"user{n % 3}", ("read", "write", "delete")[n % 3], f"cube{n}", n % 5 > 0, "because"
            )
        yield opened


def tamper(vault: MemVault, *statements: str, values: tuple[object, ...] = ()) -> Verdict:
    """What is told of the log after the statements; they are undone."""
    db, tables = vault._db, ("audit", "checkpoints", "forgettings", "sqlite_sequence")
    was = {table: db.rows(f"SELECT * FROM {table}") for table in tables}
    with db.transaction():
        for statement in statements:
            db.write(statement, *values)
    verdict = verify_log(vault.audit_log)
    with db.transaction():
        for table, rows in was.items():
            db.write(f"DELETE FROM {table}")
            for row in rows:
                db.write(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", *row)
    return verdict


def test_a_log_is_signed_every_so_many_rows_and_on_closing(tmp_path: Path, vault: MemVault) -> None:
    verdict = verify_log(vault.audit_log)
    assert (verdict.problems, verdict.rows, verdict.checkpoints, verdict.unsigned) == ([], ROWS, ROWS // EVERY, 7)
    vault.close()
    with MemVault(vault.path, governance=config(tmp_path)) as again:
        assert verify_log(again.audit_log) == Verdict([], ROWS, ROWS // EVERY + 1, 0, [again.audit_log.public_key()])
    assert not (vault.path / "signing.key").exists()
    assert (tmp_path / "outside" / "audit.pem").stat().st_mode & 0o777 == 0o600


@pytest.mark.sqlite
@pytest.mark.parametrize("field", FIELDS)
def test_a_change_of_any_field_of_any_row_is_found(vault: MemVault, field: str) -> None:
    missed = []
    with closing(sqlite3.connect(vault.path / "vault.db", isolation_level=None)) as intruder:
        for row in vault.audit_log.query():
            old = int(row.allowed) if field == "allowed" else getattr(row, field)
            others = {OTHER.get(field, f"{old}x"), *([] if field == "n" else ["", b"x"])} - {old}
            key, its = ("hash", row.hash) if field == "n" else ("n", row.n)
            for new in others:
                intruder.execute(f"UPDATE audit SET {field} = ? WHERE {key} = ?", (new, its))
                if not verify_log(vault.audit_log).problems:
                    missed.append((row.n, new))
                intruder.execute(f"UPDATE audit SET {field} = ? WHERE {key} = ?", (old, its))
    assert missed == [] and verify_log(vault.audit_log).problems == []


@pytest.mark.parametrize("field", ["n", "hash", "at", "key", "prev", "signature"])
def test_a_change_of_any_field_of_a_checkpoint_is_found(vault: MemVault, field: str) -> None:
    for n in range(EVERY, ROWS, EVERY):
        for new in (3,) if field == "n" else ("0" * 64, b"0" * 64):
            assert tamper(vault, f"UPDATE checkpoints SET {field} = ? WHERE n = {n}", values=(new,)).problems
    assert verify_log(vault.audit_log).problems == []


@pytest.mark.parametrize(
    "statements",
    [
        ("DELETE FROM audit WHERE n = 23",),
        (
            "DELETE FROM audit WHERE n > 50",
            "UPDATE sqlite_sequence SET seq = 49 WHERE name = 'audit'",
            "DELETE FROM audit WHERE n > 49",
        ),
        ("DELETE FROM audit",),
        (
            "DELETE FROM audit WHERE n > 40",
            "DELETE FROM checkpoints WHERE n > 40",
            "UPDATE sqlite_sequence SET seq = 40",
        ),
        ("DELETE FROM audit", "DELETE FROM checkpoints", "DELETE FROM sqlite_sequence"),
        (
            "INSERT INTO audit SELECT 1000, at, caller, action, target, allowed, why, prev, hash, salt, 0 "
            "FROM audit WHERE n = 5",
        ),
        (
            "UPDATE audit SET n = -1 WHERE n = 7",
            "UPDATE audit SET n = 7 WHERE n = 8",
            "UPDATE audit SET n = 8 WHERE n = -1",
        ),
        ("DELETE FROM checkpoints WHERE n = 20",),
        ("DELETE FROM checkpoints WHERE n = 50",),
        ("DELETE FROM checkpoints",),
    ],
)
def test_rows_that_were_removed_put_in_or_moved_are_found(vault: MemVault, statements: tuple[str, ...]) -> None:
    assert tamper(vault, *statements).problems
    assert verify_log(vault.audit_log).problems == []


def rewrite(vault: MemVault, signer: Signer | None) -> None:
    """Row 5 says that it was allowed, and the chain and the checkpoints are made anew to fit."""
    db, prev = vault._db, ""
    with db.transaction():
        for row in vault.audit_log.query():
            row = row._replace(prev=prev, why="all is well" if row.n == 5 else row.why)
            prev = row.expected_hash()
            db.write("UPDATE audit SET why = ?, prev = ?, hash = ? WHERE n = ?", row.why, row.prev, prev, row.n)
        before = ""
        for n, at in db.rows("SELECT n, at FROM checkpoints ORDER BY n") if signer else ():
            [(hash,)] = db.rows("SELECT hash FROM audit WHERE n = ?", n)
            signature = signer.sign("audit checkpoint", statement([n, hash, at, signer.public, before]))
            new = (hash, signer.public, before, signature, n)
            db.write("UPDATE checkpoints SET hash = ?, key = ?, prev = ?, signature = ? WHERE n = ?", *new)
            before = signature


def test_a_whole_chain_that_was_rewritten_without_the_key_is_found_and_not_signed(
    tmp_path: Path, vault: MemVault, caplog: pytest.LogCaptureFixture
) -> None:
    rewrite(vault, None)
    assert any("not the one that was signed" in problem for problem in verify_log(vault.audit_log).problems)
    signed = verify_log(vault.audit_log).checkpoints
    vault.audit_log.append("ann", "read", "a", True, "get")
    vault.close()
    assert "the log was cut or rewritten" in caplog.text
    with MemVault(vault.path, governance=config(tmp_path)) as again:
        assert verify_log(again.audit_log).checkpoints == signed


def test_a_chain_that_was_signed_anew_with_another_key_is_found(tmp_path: Path, vault: MemVault) -> None:
    rewrite(vault, Signer(tmp_path / "stranger.pem"))
    problems = verify_log(vault.audit_log).problems
    assert any("signed by another key" in problem for problem in problems)
    assert any("the log was cut or rewritten" in problem for problem in problems)


def test_whoever_has_not_the_key_neither_signs_nor_makes_one(tmp_path: Path, vault: MemVault) -> None:
    vault.close()
    with MemVault(vault.path) as other:  # without the config that says where the key lies
        other.audit_log.append("ann", "read", "a", True, "get")
        assert verify_log(other.audit_log).problems == []
        with pytest.raises(VaultError, match=r"set governance\.audit\.key to the file of that key"):
            export(other.audit_log, tmp_path / "audit.jsonl")
    assert not (vault.path / "signing.key").exists()
    with MemVault(vault.path, governance=config(tmp_path)) as own:
        assert verify_log(own.audit_log) == Verdict([], ROWS + 1, 6, 1, [own.audit_log.public_key()])


def test_a_key_that_is_gone_is_a_problem(tmp_path: Path, vault: MemVault) -> None:
    vault.audit_log.signer.path.unlink()
    assert verify_log(vault.audit_log).problems == [
        f"the key {tmp_path / 'outside' / 'audit.pem'} is gone, so nothing is signed any more; bring it back"
    ]


def test_a_key_that_cannot_be_used_is_named_and_stops_no_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "key.pem").write_text("no key")
    with MemVault(tmp_path / "vault", governance=config(tmp_path, key=tmp_path / "key.pem", every=1)) as vault:
        vault.audit_log.append("ann", "read", "a", False, "get")
        assert len(vault.audit_log.query()) == 1
    assert f"{tmp_path / 'key.pem'} has no key to sign with" in caplog.text


def test_decisions_are_asked_for_by_caller_action_target_time_and_outcome(vault: MemVault) -> None:
    query, rows = vault.audit_log.query, vault.audit_log.query()
    assert query() == rows
    assert {row.caller for row in query(caller="user1")} == {"user1"}
    assert query(action="write", caller="user2") == []
    assert [row.target for row in query(target="cube11")] == ["cube11"]
    assert [row.n for row in query(allowed=False, limit=2)] == [51, 56]
    at = datetime.fromisoformat(rows[30].at)
    assert query(since=at) == rows[30:] and query(until=at) == rows[:30]
    elsewhere = at.astimezone(timezone(timedelta(hours=8)))
    assert query(since=elsewhere) == rows[30:] == query(since=at.replace(tzinfo=None))


def test_an_export_is_verified_by_itself(tmp_path: Path, vault: MemVault) -> None:
    out, key = tmp_path / "audit.jsonl", vault.audit_log.public_key()
    assert export(vault.audit_log, out) == ROWS
    assert verify_export(out, key) == Verdict([], ROWS, 6, 0, [key])
    assert verify_export(out, Signer(tmp_path / "stranger.pem").public).problems
    lines = out.read_text().splitlines()
    for n in range(len(lines)):  # each line removed; and, where it has one, its first field changed
        (tmp_path / "cut.jsonl").write_text("\n".join(lines[:n] + lines[n + 1 :]))
        if n:
            assert verify_export(tmp_path / "cut.jsonl", key).problems, f"line {n + 1} removed"
    for n, line in enumerate(lines):
        told = json.loads(line)
        values = told if n == 0 else next(iter(told.values()))
        for name in values.keys() - {"format"}:
            changed = {**values, name: "x" if values[name] != "x" else "y"}
            new = changed if n == 0 else {next(iter(told)): changed}
            (tmp_path / "changed.jsonl").write_text("\n".join([*lines[:n], json.dumps(new), *lines[n + 1 :]]))
            assert verify_export(tmp_path / "changed.jsonl", key).problems, f"{name} of line {n + 1}"
    with pytest.raises(InputError, match="no export of an audit log"):
        (tmp_path / "no.jsonl").write_text("{}\n")
        verify_export(tmp_path / "no.jsonl", key)


def test_who_was_forgotten_is_not_named_and_the_log_still_verifies(vault: MemVault) -> None:
    before = {row.n: row.hash for row in vault.audit_log.query()}
    with vault.transaction():
        assert vault.audit_log.pseudonymise("user1", ["cube0", "cube1"]) == ROWS // 3 + 1
    with vault.transaction():
        vault.audit_log.pseudonymise("user0", ["cube4"])  # rows of the first forgetting among them
    rows = vault.audit_log.query()
    assert {row.n: row.hash for row in rows} == before
    assert not {"user0", "user1"} & {row.caller for row in rows} and not {"cube0", "cube4"} & {r.target for r in rows}
    assert verify_log(vault.audit_log).problems == []
    for k in (1, 2):
        for change in (
            f"UPDATE audit SET caller = 'eve' WHERE n = (SELECT min(n) FROM audit WHERE forgetting = {k})",
            f"UPDATE audit SET forgetting = 0 WHERE n = (SELECT max(n) FROM audit WHERE forgetting = {k})",
            f"UPDATE forgettings SET digest = 'x' WHERE k = {k}",
            f"UPDATE forgettings SET at = x'00' WHERE k = {k}",
            f"DELETE FROM forgettings WHERE k = {k}",
            f"UPDATE audit SET forgetting = {k}, why = 'x' WHERE n = 3",
        ):
            assert tamper(vault, change).problems, change
