"""Keeps the audit log: a hash chain of decisions, signed at checkpoints.

Must not know how one is decided, nor how what is signed is verified.

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
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from memos.config import AuditConfig
from memos.cube import Namespace
from memos.errors import VaultError
from memos.infrastructure.vault.audit.records import COLUMNS, AuditRow, DecisionLog, all_rows, digest_of, row_of
from memos.infrastructure.vault.audit.signing import KEY, Signer, statement
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


# by their names: a later schema may add columns while this process goes on
_CHECKPOINTS = f"SELECT {', '.join(Checkpoint._fields)} FROM checkpoints ORDER BY n"
_FORGETTINGS = f"SELECT {', '.join(Forgetting._fields)} FROM forgettings ORDER BY k"


class LogContents(NamedTuple):
    """All that a log says. last: the number of the last row that there has been, as the database counts; None for an
    export, or where there was none."""

    rows: Iterable[AuditRow]
    checkpoints: list[Checkpoint]
    forgettings: list[Forgetting]
    last: object = None


class AuditLog(DecisionLog):
    """The log that is signed."""

    def __init__(self, db: Store, folder: Path, config: AuditConfig = AuditConfig()) -> None:
        """folder: of the vault."""
        super().__init__(db, config.every)
        self.config = config
        self.signer = Signer(config.key or folder / KEY)
        self._warned = False

    @property
    def head(self) -> Path:
        """The last checkpoint, beside the key."""
        return self.signer.path.with_name(f"{self.signer.path.name}.head")

    # signed

    def sign(self) -> None:
        """Sign what is there, if it is not signed. Not if what was signed last is no longer there: then there is a
        warning, and `memos audit verify` tells. Nothing that is written depends on it, so a key that cannot be used is
        a warning too."""
        try:
            with self._db.writing():
                last = self._db.rows("SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1")
                before = self._last_checkpoint()
                if not last or (before and before.n >= last[0][0]):
                    return
                if before and not self.signer.exists:  # its key lies elsewhere: whoever has it signs
                    return
                self.require_what_was_signed(before)
                self._require_own_key(before)
                with self._db.transaction():
                    n, hash = last[0]
                    at, key, prev = self._db.stamp(), self.signer.public, before.signature if before else ""
                    signature = self.signer.sign(CHECKPOINT, statement([n, hash, at, key, prev]))
                    made = Checkpoint(n, hash, at, key, prev, signature)
                    self._db.write("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)", *made)
                on_disk.write(self.head, json.dumps(made).encode())
        except (VaultError, OSError) as error:
            if not self._warned:
                log.warning("the audit log is not signed: %s", error)
            self._warned = True

    def _last_checkpoint(self) -> Checkpoint | None:
        rows = self._db.rows(f"{_CHECKPOINTS} DESC LIMIT 1")
        return Checkpoint(*rows[0]) if rows else None

    def _require_own_key(self, last: Checkpoint | None) -> None:
        """Raises VaultError where the log is signed by another key than that of the file."""
        if last and not (self.signer.exists and last.key in (self.signer.public, *self.config.trusted)):
            raise VaultError(
                f"the audit log is signed by {last.key}, and not by {self.signer.path}; set governance.audit.key to "
                f"the file of that key, or name it in governance.audit.trusted to go on with another"
            )

    def require_what_was_signed(self, last: Checkpoint | None = None) -> None:
        """Raises VaultError where the log is not the one that was signed last: signing it would hide that."""
        for kept in filter(None, (self._kept_head(), last)):
            there = self._db.rows("SELECT hash FROM audit WHERE n = ?", kept.n)
            signed = self._db.rows("SELECT signature FROM checkpoints WHERE n = ?", kept.n)
            if there != [(kept.hash,)] or signed != [(kept.signature,)]:
                raise VaultError(_cut(kept.n, self.signer.path))

    def _kept_head(self) -> Checkpoint | None:
        """Raises VaultError for one that cannot be read."""
        try:
            return Checkpoint(*json.loads(self.head.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise VaultError(
                f"{self.head} cannot be read ({error}); bring it back, or see `memos audit verify`"
            ) from None

    def public_key(self) -> str:
        """In hex."""
        return self.signer.public

    def contents(self) -> LogContents:
        """All that it says."""
        return contents(self._db)

    @contextmanager
    def signed(self) -> Iterator[tuple[dict[str, Any], LogContents]]:
        """All of the log, which nobody writes to meanwhile, and what says so, signed. Raises VaultError."""
        self.sign()
        with self._db.writing():
            self._require_own_key(self._last_checkpoint())
            last = self._db.rows("SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1")
            n, hash = last[0] if last else (0, "")
            there = self.contents()
            header = {"format": FORMAT, "rows": int(n), "hash": hash, "at": self._db.now().isoformat()}
            header |= {"key": self.signer.public, "checkpoints": len(there.checkpoints)}
            header |= {"forgettings": len(there.forgettings)}
            yield header | {"signature": self.signer.sign(EXPORT, statement(header))}, there

    # forgotten

    def pseudonymise(self, user: str, targets: Collection[str]) -> int:
        """Within a transaction: rows of a user, or about one of the targets, name neither any more; how many."""
        names = {*targets, user}
        rows = [r for r in all_rows(self._db) if _is_of(r.caller, user) or _is_about(r.target, user, names)]
        if not rows:
            return 0
        self._require_own_key(self._last_checkpoint())
        before = {f.k: f for f in self.contents().forgettings}
        touched = {row.forgetting for row in rows} - {0}
        for k in touched:
            if self._digest_of(k) != before[k].digest:
                raise VaultError("the audit log was changed; see `memos audit verify` before anybody is forgotten")
        new, alias = max(before, default=0) + 1, f"forgotten-{secrets.token_hex(4)}"
        for row in rows:
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


def contents(db: Rows) -> LogContents:
    """All that the log among the rows of a vault says."""
    [(last,)] = db.rows("SELECT max(seq) FROM sqlite_sequence WHERE name = 'audit'")
    checkpoints = [Checkpoint(*row) for row in db.rows(_CHECKPOINTS)]
    forgettings = [Forgetting(*row) for row in db.rows(_FORGETTINGS)]
    return LogContents(all_rows(db), checkpoints, forgettings, last)


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
