"""Exports the audit log of a vault, and verifies it or an export; must not know how a row is written.

Found is what one without the key has changed, removed, put in or moved: of rows, of checkpoints, and of what was signed
when somebody was forgotten.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memos.errors import InputError, VaultError
from memos.infrastructure.vault.audit.audit_log import (
    CHECKPOINT,
    EXPORT,
    FORGETTING,
    FORMAT,
    AuditLog,
    Checkpoint,
    Forgetting,
    LogContents,
    contents,
)
from memos.infrastructure.vault.audit.records import AuditRow, digest_of
from memos.infrastructure.vault.audit.signing import is_signed, statement
from memos.infrastructure.vault.store.transactions import Rows


@dataclass
class Verdict:
    """What is wrong, in words, and how many rows at the end are not signed yet: one who rewrites or removes these alone
    is not found."""

    problems: list[str] = field(default_factory=list)
    rows: int = 0
    checkpoints: int = 0
    unsigned: int = 0
    keys: list[str] = field(default_factory=list)  # public keys, by which it was to be signed


def export(log: AuditLog, out: Path) -> int:
    """Write the whole log, which can be verified by itself, with a line for each row and checkpoint; how many rows.
    Raises VaultError, InputError."""
    with log.signed() as (header, there):
        parts: Iterable[Any] = (("checkpoint", there.checkpoints), ("forgetting", there.forgettings))
        try:
            with out.open("w", encoding="utf-8") as file:
                file.write(json.dumps(header) + "\n")
                for name, values in (("row", there.rows), *parts):
                    for value in values:
                        file.write(json.dumps({name: value._asdict()}) + "\n")
        except OSError as error:
            raise InputError(f"{out} cannot be written ({error.strerror}); name another file") from error
        return int(header["rows"])


def verify_log(log: AuditLog, key: str | None = None) -> Verdict:
    """What was changed, removed, put in or moved since it was written. key: the public one, in hex, by which it must be
    signed, if not by that of the file; where none is known, by that of the first checkpoint."""
    there = log.contents()
    keys = {key} if key else {*log.config.trusted, *([log.signer.public] if log.signer.exists else [])}
    verdict = _verify(there, keys or {checkpoint.key for checkpoint in there.checkpoints[:1]})
    try:
        log.require_what_was_signed()
    except VaultError as error:
        verdict.problems.append(str(error))
    if not log.signer.exists and (log.config.key or log.head.exists()) and verdict.checkpoints:
        verdict.problems.append(f"the key {log.signer.path} is gone, so nothing is signed any more; bring it back")
    if verdict.unsigned >= 2 * log.config.every:
        verdict.problems.append(f"the last {verdict.unsigned} audit rows are not signed: checkpoints were removed")
    return verdict


def broken(db: Rows) -> list[str]:
    """As `verify_log`, by the keys that the log itself names: finds damage, and not one who has signed anew."""
    there = contents(db)
    return _verify(there, {c.key for c in there.checkpoints} | {f.key for f in there.forgettings}).problems


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
    verdict = _verify(LogContents(found["row"], found["checkpoint"], found["forgetting"]), {key})
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


def _verify(there: LogContents, keys: Collection[str]) -> Verdict:
    rows, checkpoints, forgettings, last = there
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
    if last is not None and not isinstance(last, int):
        say(f"the count of audit rows was changed to {last!r:.80}")
    elif last is not None and last > n:
        say(f"audit rows {n + 1} to {last} were removed")
    verdict.unsigned = n - max((c.n for c in checkpoints if type(c.n) is int), default=0)
    return verdict


def _is_signed(key: str, what: str, values: list[object], signature: str) -> bool:
    """False where damage has made bytes of a value, which nobody signs."""
    return not any(isinstance(value, bytes) for value in values) and is_signed(key, what, statement(values), signature)
