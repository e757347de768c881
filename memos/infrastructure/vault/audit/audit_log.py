"""Keeps the audit log: a hash chain of decisions, signed at checkpoints.

Knows whether its rows are as they were written; must not know how one is decided.

    row -> row -> row -> row        each has the hash of the one before
     ^             ^
    checkpoint <- checkpoint        n, hash, time and the checkpoint before, signed; the last stands beside the key, too

A row that names somebody who was forgotten gets a pseudonym in that place, and keeps the hash that the next row has.
What such rows say since then is signed, those of one forgetting together.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from memos.config import AuditConfig
from memos.errors import InputError, VaultError
from memos.infrastructure.vault.audit.records import (
    CHECKPOINT,
    EXPORT,
    FORGETTING,
    FORMAT,
    AuditRow,
    Checkpoint,
    Decision,
    Forgetting,
    Verdict,
    digest_of,
    row_of,
    verify,
)
from memos.infrastructure.vault.audit.signing import KEY, Signer, statement
from memos.infrastructure.vault.store import on_disk
from memos.infrastructure.vault.store.store import IN, Rows, Store

log = logging.getLogger("memos")
UNSEEN = "may not see it"  # in why: to whoever was refused, there is no such target
_OVER = "namespace "  # before a namespace, in the place of a target
_PAGE = 10_000  # rows read at once
_EVERY = 2**63 - 1  # rows
_ROW = "n, at, caller, action, target, allowed, why, prev, hash, salt, forgetting"


class AuditLog:
    def __init__(self, db: Store, folder: Path, config: AuditConfig = AuditConfig()) -> None:
        """folder: of the vault."""
        self._db, self._config = db, config
        self.signer = Signer(config.key or folder / KEY)
        self._warned = False

    @property
    def _head(self) -> Path:
        """The last checkpoint, beside the key."""
        return self.signer.path.with_name(f"{self.signer.path.name}.head")

    def append(self, caller: str, action: str, target: str, allowed: bool, why: str) -> None:
        """Write down one decision; see `append_all`."""
        self.append_all([Decision(caller, action, target, allowed, why)])

    def append_all(self, decisions: Sequence[Decision], beside: Callable[[], None] | None = None) -> None:
        """Write down decisions in one transaction. A refusal is on disk when this returns; what was allowed, with the
        next write that is. So a write is never on disk without the decision that allowed it, and a read does not wait
        for the disk.

        beside: writes what belongs to these decisions, as the use of what was read, in the same transaction. Raises
        VaultError inside a transaction, which could undo it.
        """
        if self._db.in_transaction:
            names = ", ".join(f"{decision.action} {decision.target}" for decision in decisions)
            raise VaultError(f"the decision on {names} would be lost in a rollback; decide before transaction()")
        # nobody may come between reading the last row and writing the next
        with self._db.transaction(lasting=not all(decision.allowed for decision in decisions)):
            sql = "SELECT n, hash, (SELECT at FROM clock) FROM audit ORDER BY n DESC LIMIT 1"
            last = self._db.rows(sql) if decisions else []
            first, prev = (last[0][0] + 1, last[0][1]) if last else (1, "")
            if last:
                self._db.heard(last[0][2])  # with the same statement
            for n, decision in enumerate(decisions, start=first):
                row = AuditRow(n, self._db.stamp(), *decision, prev, "", secrets.token_hex(16))
                values = row._replace(hash=row.expected_hash())
                self._db.write(f"INSERT INTO audit ({_ROW}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *values)
                prev = values.hash
            if beside:
                beside()
        if any(n % self._config.every == 0 for n in range(first, first + len(decisions))):
            self.sign()

    def rows(self, limit: int | None = None) -> list[AuditRow]:
        """The last `limit` decisions, or all; oldest first."""
        sql = f"SELECT {_ROW} FROM audit ORDER BY n DESC LIMIT ?"
        return [row_of(row) for row in reversed(self._db.rows(sql, _EVERY if limit is None else limit))]

    def query(
        self,
        caller: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        allowed: bool | None = None,
        limit: int | None = None,
        also: Mapping[str, tuple[Any, ...]] | None = None,
    ) -> list[AuditRow]:
        """The last `limit` decisions of this kind, or all; oldest first. target: it begins with this. since, until: UTC
        where no zone is given. also: further tests in SQL, with their values."""
        given: dict[str, tuple[Any, ...]] = {
            "caller = ?": (caller,),
            "action = ?": (action,),
            "substr(target, 1, length(?)) = ?": (target, target),
            "at >= ?": (since and _utc(since).isoformat(),),
            "at < ?": (until and _utc(until).isoformat(),),
            "allowed = ?": (None if allowed is None else int(allowed),),
            **(also or {}),
        }
        asked = {test: values for test, values in given.items() if None not in values}
        where = f"WHERE {' AND '.join(asked)}" if asked else ""
        values = [value for of_test in asked.values() for value in of_test]
        sql = f"SELECT {_ROW} FROM audit {where} ORDER BY n DESC LIMIT ?"
        return [row_of(row) for row in reversed(self._db.rows(sql, *values, _EVERY if limit is None else limit))]

    def touched(self, user_id: str, viewer: str) -> list[str]:
        """The cubes of a user about which was decided for others than `viewer`, or for it while it did not see them."""
        sql = """SELECT DISTINCT target FROM audit JOIN heads ON id = target
                 WHERE user_id = ? AND (caller != ? OR instr(why, ?) > 0)"""
        return [id for (id,) in self._db.rows(sql, user_id, viewer, UNSEEN)]

    def visible_to(self, viewer: str, about: Iterable[str], own_reads: bool = True, **asked: Any) -> list[AuditRow]:
        """The same, as far as one caller may be told: what it did, but for asking after what it may not see, and what
        anybody did to one of these targets. own_reads: False: without what it has read itself, with leave."""
        may = {
            f"(caller = ? AND instr(why, ?) = 0 OR target {IN})": (viewer, UNSEEN, json.dumps([*about])),
            "NOT (caller = ? AND action = 'read' AND allowed = 1)": (None if own_reads else viewer,),
        }
        return self.query(**asked, also=may)

    # signed

    def sign(self) -> None:
        """Sign what is there, if it is not signed. Not if what was signed last is no longer there: then there is a
        warning, and `verify` tells. Nothing that is written depends on it, so a key that cannot be used is a warning
        too."""
        try:
            with self._db.writing():
                last = self._db.rows("SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1")
                before = self._last_checkpoint()
                if not last or (before and before.n >= last[0][0]):
                    return
                if before and not self.signer.exists:  # its key lies elsewhere: whoever has it signs
                    return
                self._require_what_was_signed(before)
                self._require_own_key(before)
                with self._db.transaction():
                    n, hash = last[0]
                    at, key, prev = self._db.stamp(), self.signer.public, before.signature if before else ""
                    made = Checkpoint(
                        n, hash, at, key, prev, self.signer.sign(CHECKPOINT, statement([n, hash, at, key, prev]))
                    )
                    self._db.write("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)", *made)
                self._keep_head(made)
        except (VaultError, OSError) as error:
            if not self._warned:
                log.warning("the audit log is not signed: %s", error)
            self._warned = True

    def _last_checkpoint(self) -> Checkpoint | None:
        rows = self._db.rows("SELECT * FROM checkpoints ORDER BY n DESC LIMIT 1")
        return Checkpoint(*rows[0]) if rows else None

    def _require_own_key(self, last: Checkpoint | None) -> None:
        """Raises VaultError where the log is signed by another key than that of the file."""
        if last and not (self.signer.exists and last.key in (self.signer.public, *self._config.trusted)):
            raise VaultError(
                f"the audit log is signed by {last.key}, and not by {self.signer.path}; set governance.audit.key to "
                f"the file of that key, or name it in governance.audit.trusted to go on with another"
            )

    def _require_what_was_signed(self, last: Checkpoint | None) -> None:
        """Raises VaultError where the log is not the one that was signed last: signing it would hide that."""
        for kept in (self._kept_head(), last):
            if kept:
                there = self._db.rows("SELECT hash FROM audit WHERE n = ?", kept.n)
                signed = self._db.rows("SELECT signature FROM checkpoints WHERE n = ?", kept.n)
                if there != [(kept.hash,)] or signed != [(kept.signature,)]:
                    raise VaultError(_cut(kept.n, self.signer.path))

    def _kept_head(self) -> Checkpoint | None:
        """Raises VaultError for one that cannot be read."""
        try:
            return Checkpoint(*json.loads(self._head.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise VaultError(
                f"{self._head} cannot be read ({error}); bring it back, or see `memos audit verify`"
            ) from None

    def _keep_head(self, made: Checkpoint) -> None:
        on_disk.write(self._head, json.dumps(made).encode())

    def public_key(self) -> str:
        """In hex."""
        return self.signer.public

    # verified

    def verify(self, key: str | None = None) -> Verdict:
        """What was changed, removed, put in or moved since it was written. key: the public one, in hex, by which it
        must be signed, if not by that of the file; where none is known, by that of the first checkpoint."""
        keys = {key} if key else {*self._config.trusted, *([self.signer.public] if self.signer.exists else [])}
        keys = keys or {checkpoint.key for checkpoint in self._checkpoints()[:1]}
        verdict = verify(_all(self._db), self._checkpoints(), self._forgettings(), keys)
        verdict.problems.extend(_removed(self._db, verdict.rows))
        try:
            self._require_what_was_signed(None)
        except VaultError as error:
            verdict.problems.append(str(error))
        if verdict.unsigned >= 2 * self._config.every:
            verdict.problems.append(f"the last {verdict.unsigned} audit rows are not signed: checkpoints were removed")
        return verdict

    def _checkpoints(self) -> list[Checkpoint]:
        return _checkpoints(self._db)

    def _forgettings(self) -> list[Forgetting]:
        return _forgettings(self._db)

    def export(self, out: Path) -> int:
        """Write the whole log, which can be verified by itself, with a line for each row and checkpoint; how many rows.
        Raises VaultError, InputError."""
        self.sign()
        with self._db.writing():
            self._require_own_key(self._last_checkpoint())
            last = self._db.rows("SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1")
            n, hash = last[0] if last else (0, "")
            header = {"format": FORMAT, "rows": n, "hash": hash, "at": self._db.now().isoformat()}
            header |= {"key": self.signer.public, "checkpoints": len(self._checkpoints())}
            header |= {"forgettings": len(self._forgettings())}
            signed = header | {"signature": self.signer.sign(EXPORT, statement(header))}
            parts: Iterable[Any] = (("checkpoint", self._checkpoints()), ("forgetting", self._forgettings()))
            try:
                with out.open("w", encoding="utf-8") as file:
                    file.write(json.dumps(signed) + "\n")
                    for name, values in (("row", _all(self._db)), *parts):
                        for value in values:
                            file.write(json.dumps({name: value._asdict()}) + "\n")
            except OSError as error:
                raise InputError(f"{out} cannot be written ({error.strerror}); name another file") from error
        return int(n)

    # forgotten

    def pseudonymise(self, user: str, targets: Collection[str]) -> int:
        """Within a transaction: rows of a user, or about one of the targets, name neither any more; how many."""
        names, rows = {*targets, user}, dict[int, AuditRow]()
        for row in _all(self._db):
            if _is_of(row.caller, user) or _is_about(row.target, user, names):
                rows[row.n] = row
        if not rows:
            return 0
        self._require_own_key(self._last_checkpoint())
        before = {f.k: f for f in self._forgettings()}
        touched = {row.forgetting for row in rows.values()} - {0}
        for k in touched:
            if self._digest_of(k) != before[k].digest:
                raise VaultError("the audit log was changed; see `memos audit verify` before anybody is forgotten")
        new, alias = max(before, default=0) + 1, f"forgotten-{secrets.token_hex(4)}"
        for row in rows.values():
            caller = alias if _is_of(row.caller, user) else row.caller
            target = alias if _is_about(row.target, user, names) else row.target
            sql = "UPDATE audit SET caller = ?, target = ?, salt = '', forgetting = ? WHERE n = ?"
            self._db.write(sql, caller, target, row.forgetting or new, row.n)
        for k in sorted(touched | {new}):
            digest, at, key = self._digest_of(k), self._db.stamp(), self.signer.public
            signature = self.signer.sign(FORGETTING, statement([k, digest, at, key]))
            self._db.write("DELETE FROM forgettings WHERE k = ?", k)
            self._db.write("INSERT INTO forgettings VALUES (?, ?, ?, ?, ?)", k, digest, at, key, signature)
        return len(rows)

    def _digest_of(self, k: int) -> str:
        sql = f"SELECT {_ROW} FROM audit WHERE forgetting = ? ORDER BY n"
        return digest_of([digest_of(row_of(row)) for row in self._db.rows(sql, k)])


def broken(db: Rows) -> list[str]:
    """As `AuditLog.verify`, by the keys that the log itself names: finds damage, and not one who has signed anew."""
    checkpoints, forgettings = _checkpoints(db), _forgettings(db)
    verdict = verify(_all(db), checkpoints, forgettings, {c.key for c in checkpoints} | {f.key for f in forgettings})
    return [*verdict.problems, *_removed(db, verdict.rows)]


def _all(db: Rows) -> Iterator[AuditRow]:
    last = -(2**63)
    while rows := db.rows(f"SELECT {_ROW} FROM audit WHERE n > ? ORDER BY n LIMIT {_PAGE}", last):
        yield from map(row_of, rows)
        last = rows[-1][0]


def _checkpoints(db: Rows) -> list[Checkpoint]:
    return [Checkpoint(*row) for row in db.rows("SELECT * FROM checkpoints ORDER BY n")]


def _forgettings(db: Rows) -> list[Forgetting]:
    return [Forgetting(*row) for row in db.rows("SELECT * FROM forgettings ORDER BY k")]


def _removed(db: Rows, rows: int) -> list[str]:
    """Rows that were there after the last one, by SQLite's count."""
    [(highest,)] = db.rows("SELECT max(seq) FROM sqlite_sequence WHERE name = 'audit'")
    if highest is not None and not isinstance(highest, int):
        return [f"the count of audit rows was changed to {highest!r:.80}"]
    return [f"audit rows {rows + 1} to {highest} were removed"] if highest is not None and highest > rows else []


def _utc(when: datetime) -> datetime:
    return when.astimezone(timezone.utc) if when.tzinfo else when.replace(tzinfo=timezone.utc)


def _is_of(caller: str, user: str) -> bool:
    """True for a user, and for its agents and sessions."""
    return caller == user or caller.startswith(f"{user}/")


def _is_about(target: str, user: str, names: Collection[str]) -> bool:
    """True for one of the names, and for the namespaces of the user."""
    return target in names or (target.startswith(_OVER) and _is_of(target.removeprefix(_OVER), user))


def _cut(n: int, key: Path) -> str:
    return (
        f"audit row {n} was signed by {key}, and it or its checkpoint is gone or changed: the log was cut or "
        f"rewritten, an older copy of the vault was brought back, or the key serves another vault too; bring back the "
        f"vault, or set governance.audit.key to a new file and keep the old one"
    )
