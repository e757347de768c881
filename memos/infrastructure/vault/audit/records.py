"""The rows, checkpoints and forgettings of an audit log, and the check that they are as written and signed.

Of a log, or of a file with a whole one. Knows rows, hashes and signatures; must not know a database.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from memos.errors import InputError
from memos.infrastructure.vault.audit.signing import is_signed, statement

FORMAT = "memos audit 1"
CHECKPOINT, FORGETTING, EXPORT = "audit checkpoint", "audit forgetting", "audit export"  # what is signed


class AuditRow(NamedTuple):
    """One decision; `hash` covers the row and `prev`, the hash of the row before.

    salt: at random, so that nobody can guess from the hash what the row said before it was made to name nobody.
    forgetting: the number of that, or 0.
    """

    n: int
    at: str
    caller: str
    action: str
    target: str
    allowed: bool
    why: str
    prev: str
    hash: str
    salt: str = ""
    forgetting: int = 0

    def expected_hash(self) -> str:
        return digest_of([*self[:8], self.salt])

    @property
    def as_written(self) -> bool:
        """True if all that is in it has the type that it was written in."""
        words = (self.at, self.caller, self.action, self.target, self.why, self.prev, self.hash, self.salt)
        numbers = self.n, self.forgetting
        return (
            all(type(w) is str for w in words) and all(type(n) is int for n in numbers) and type(self.allowed) is bool
        )


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


class Decision(NamedTuple):
    """One decision on what somebody asked: written down as a row of the log."""

    caller: str
    action: str
    target: str
    allowed: bool
    why: str


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
                except (ValueError, KeyError, TypeError, AttributeError):
                    problems.append(f"line {number} of {path.name} cannot be read")
    except (OSError, ValueError) as error:
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
        if not is_signed(c.key, CHECKPOINT, statement([c.n, c.hash, c.at, c.key, c.prev]), c.signature):
            say(f"the checkpoint of audit row {c.n} was changed")
        elif c.key not in keys:
            say(f"the checkpoint of audit row {c.n} is signed by another key, {c.key[:16]}")
        if c.prev != before:
            say(f"a checkpoint before that of audit row {c.n} was removed, changed or put in")
        before = c.signature
    known = {f.k: f for f in forgettings}
    for k in sorted({*digests, *known}, key=str):
        f = known.get(k)  # type: ignore[call-overload]
        sound = (
            f and f.key in keys and is_signed(f.key, FORGETTING, statement([f.k, f.digest, f.at, f.key]), f.signature)
        )
        if not f or not sound or f.digest != digest_of(digests[k]):
            say(f"audit rows that name nobody any more (forgetting {k}) were changed")
    verdict.unsigned = n - max((c.n for c in checkpoints if type(c.n) is int), default=0)
    return verdict


def row_of(values: Iterable[Any]) -> AuditRow:
    row = AuditRow(*values)
    return row._replace(allowed=bool(row.allowed)) if row.allowed in (0, 1) else row


def digest_of(values: object) -> str:
    return hashlib.sha256(json.dumps(values, default=repr).encode()).hexdigest()
