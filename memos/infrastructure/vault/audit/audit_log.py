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
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from memos.config import AuditConfig
from memos.cube import Namespace
from memos.errors import InputError, VaultError
from memos.infrastructure.vault.audit.records import COLUMNS, AuditRow, DecisionLog, all_rows, digest_of, row_of
from memos.infrastructure.vault.audit.signing import KEY, Signer, is_signed, statement
from memos.infrastructure.vault.store import on_disk
from memos.infrastructure.vault.store.transactions import Rows, Store

log = logging.getLogger("memos")
FORMAT = "memos audit 1"
CHECKPOINT, FORGETTING, EXPORT = "audit checkpoint", "audit forgetting", "audit export"  # what is signed
_OVER = "namespace "  # before a namespace, in the place of a target


class Checkpoint(NamedTuple):
    """Signed: up to row n, which has this hash, the log is as it was at that time. prev: the signature before."""

    n: int
    hash: str
    at: str
    key: str
    prev: str
    signature: str


class Forgetting(NamedTuple):
    """Signed: the rows of this forgetting say what has this digest."""

    k: int
    digest: str
    at: str
    key: str
    signature: str


@dataclass
class Verdict:
    """What is wrong, in words, and how many rows at the end are not signed yet: one who rewrites or removes these alone
    is not found."""

    problems: list[str] = field(default_factory=list)
    rows: int = 0
    checkpoints: int = 0
    unsigned: int = 0
    keys: list[str] = field(default_factory=list)  # public keys, by which it was to be signed


class AuditLog(DecisionLog):
    """The log that is signed."""

    def __init__(self, db: Store, folder: Path, config: AuditConfig = AuditConfig()) -> None:
        """folder: of the vault."""
        super().__init__(db, config.every)
        self._config = config
        self.signer = Signer(config.key or folder / KEY)
        self._warned = False

    @property
    def _head(self) -> Path:
        """The last checkpoint, beside the key."""
        return self.signer.path.with_name(f"{self.signer.path.name}.head")

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
        keys = keys or {checkpoint.key for checkpoint in _checkpoints(self._db)[:1]}
        verdict = verify(all_rows(self._db), _checkpoints(self._db), _forgettings(self._db), keys)
        verdict.problems.extend(_removed(self._db, verdict.rows))
        try:
            self._require_what_was_signed(None)
        except VaultError as error:
            verdict.problems.append(str(error))
        if not self.signer.exists and (self._config.key or self._head.exists()) and verdict.checkpoints:
            verdict.problems.append(f"the key {self.signer.path} is gone, so nothing is signed any more; bring it back")
        if verdict.unsigned >= 2 * self._config.every:
            verdict.problems.append(f"the last {verdict.unsigned} audit rows are not signed: checkpoints were removed")
        return verdict

    def export(self, out: Path) -> int:
        """Write the whole log, which can be verified by itself, with a line for each row and checkpoint; how many rows.
        Raises VaultError, InputError."""
        self.sign()
        with self._db.writing():
            self._require_own_key(self._last_checkpoint())
            last = self._db.rows("SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1")
            n, hash = last[0] if last else (0, "")
            header = {"format": FORMAT, "rows": n, "hash": hash, "at": self._db.now().isoformat()}
            header |= {"key": self.signer.public, "checkpoints": len(_checkpoints(self._db))}
            header |= {"forgettings": len(_forgettings(self._db))}
            signed = header | {"signature": self.signer.sign(EXPORT, statement(header))}
            parts: Iterable[Any] = (("checkpoint", _checkpoints(self._db)), ("forgetting", _forgettings(self._db)))
            try:
                with out.open("w", encoding="utf-8") as file:
                    file.write(json.dumps(signed) + "\n")
                    for name, values in (("row", all_rows(self._db)), *parts):
                        for value in values:
                            file.write(json.dumps({name: value._asdict()}) + "\n")
            except OSError as error:
                raise InputError(f"{out} cannot be written ({error.strerror}); name another file") from error
        return int(n)

    # forgotten

    def pseudonymise(self, user: str, targets: Collection[str]) -> int:
        """Within a transaction: rows of a user, or about one of the targets, name neither any more; how many."""
        names, rows = {*targets, user}, dict[int, AuditRow]()
        for row in all_rows(self._db):
            if _is_of(row.caller, user) or _is_about(row.target, user, names):
                rows[row.n] = row
        if not rows:
            return 0
        self._require_own_key(self._last_checkpoint())
        before = {f.k: f for f in _forgettings(self._db)}
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
        sql = f"SELECT {COLUMNS} FROM audit WHERE forgetting = ? ORDER BY n"
        return digest_of([digest_of(row_of(row)) for row in self._db.rows(sql, k)])


def verify_export(path: Path, key: str) -> Verdict:
    """What is wrong with a file that `AuditLog.export` wrote. key: the public one, in hex. Raises InputError."""
    found: dict[str, list[Any]] = {"row": [], "checkpoint": [], "forgetting": []}
    made: dict[str, Any] = {"row": AuditRow, "checkpoint": Checkpoint, "forgetting": Forgetting}
    problems = []
    try:
        with path.open(encoding="utf-8") as file:
            head = json.loads(file.readline())
            if not isinstance(head, dict) or head.get("format") != FORMAT:
                raise InputError(f"{path} is no export of an audit log; make one with `memos audit export`")
            for number, line in enumerate(file, start=2):
                try:
                    [(name, values)] = json.loads(line).items()
                    found[name].append(made[name](**values))
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    problems.append(f"line {number} of {path.name} cannot be read")
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read ({error}); name a file that `memos audit export` wrote") from None
    verdict = verify(found["row"], found["checkpoint"], found["forgetting"], {key})
    last = found["row"][-1] if found["row"] else None
    signature = head.pop("signature", "")
    if head.get("key") != key or not is_signed(key, EXPORT, statement(head), signature):
        problems.append(f"the first line of {path.name} is not signed by {key[:16]}")
    else:
        there = (*((last.n, last.hash) if last else (0, "")), len(found["checkpoint"]), len(found["forgetting"]))
        if there != (head["rows"], head["hash"], head["checkpoints"], head["forgettings"]):
            problems.append(
                f"the export had {head['rows']} rows and {head['checkpoints']} checkpoints: lines were removed"
            )
    verdict.problems[:0] = problems
    return verdict


def verify(
    rows: Iterable[AuditRow], checkpoints: list[Checkpoint], forgettings: list[Forgetting], keys: Collection[str]
) -> Verdict:
    verdict = Verdict(checkpoints=len(checkpoints), keys=sorted(keys))
    say = verdict.problems.append
    wanted = {c.n: c.hash for c in checkpoints}
    digests: dict[object, list[str]] = defaultdict(list)
    n, prev = 0, ""
    for row in rows:
        n += 1
        forgotten = row.forgetting != 0
        if not row.as_written or row.n != n or row.prev != prev or not (forgotten or row.hash == row.expected_hash()):
            say(f"audit row {row.n} was changed, or does not follow the row before it")
        if forgotten:
            digests[row.forgetting].append(digest_of(row))
        if row.n in wanted and wanted.pop(row.n) != row.hash:
            say(f"audit row {row.n} is not the one that was signed")
        n, prev = (row.n if type(row.n) is int else n), row.hash
    verdict.rows = n
    for missing in wanted:
        say(f"audit row {missing} was signed, and is not there")
    before = ""
    for c in checkpoints:
        if not _is_signed(c.key, CHECKPOINT, [c.n, c.hash, c.at, c.key, c.prev], c.signature):
            say(f"the checkpoint of audit row {c.n} was changed")
        elif c.key not in keys:
            say(f"the checkpoint of audit row {c.n} is signed by another key, {c.key[:16]}")
        if c.prev != before:
            say(f"a checkpoint before that of audit row {c.n} was removed, changed or put in")
        before = c.signature
    known = {f.k: f for f in forgettings}
    for k in sorted({*digests, *known}, key=str):
        f = known.get(k)  # type: ignore[call-overload]
        sound = f and f.key in keys and _is_signed(f.key, FORGETTING, [f.k, f.digest, f.at, f.key], f.signature)
        if not f or not sound or f.digest != digest_of(digests[k]):
            say(f"audit rows that name nobody any more (forgetting {k}) were changed")
    verdict.unsigned = n - max((c.n for c in checkpoints if type(c.n) is int), default=0)
    return verdict


def _is_signed(key: str, what: str, values: list[object], signature: str) -> bool:
    """False where damage has made bytes of a value, which nobody signs."""
    return not any(isinstance(value, bytes) for value in values) and is_signed(key, what, statement(values), signature)


def broken(db: Rows) -> list[str]:
    """As `AuditLog.verify`, by the keys that the log itself names: finds damage, and not one who has signed anew."""
    checkpoints, forgettings = _checkpoints(db), _forgettings(db)
    verdict = verify(
        all_rows(db), checkpoints, forgettings, {c.key for c in checkpoints} | {f.key for f in forgettings}
    )
    return [*verdict.problems, *_removed(db, verdict.rows)]


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


def _is_of(caller: str, user: str) -> bool:
    """True for a user, and for its agents and sessions."""
    name = str(Namespace(user_id=user))
    return caller == name or caller.startswith(f"{name}/")


def _is_about(target: str, user: str, names: Collection[str]) -> bool:
    """True for one of the names, and for the namespaces of the user."""
    return target in names or (target.startswith(_OVER) and _is_of(target.removeprefix(_OVER), user))


def _cut(n: int, key: Path) -> str:
    return (
        f"audit row {n} was signed by {key}, and it or its checkpoint is gone or changed: the log was cut or "
        f"rewritten, an older copy of the vault was brought back, or the key serves another vault too; bring back the "
        f"vault, or set governance.audit.key to a new file and keep the old one"
    )
