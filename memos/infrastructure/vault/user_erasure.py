"""Removes a user from a vault: every cube, every version, and every row that names the user.

Knows in which tables and files a name or a text can stand. Must not know who may ask for it.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from memos.cube import GONE, MemCube, Namespace, State, Text, Turn
from memos.errors import VaultError
from memos.infrastructure.vault.care.residue import Searched, search
from memos.infrastructure.vault.store.transactions import IN, Rows, Store, moment
from memos.infrastructure.vault.tables.cube_table import DERIVED, CubeWriter, checksum, kept, parsed

if TYPE_CHECKING:
    from memos.infrastructure.vault.blobs.blob_store import BlobStore
    from memos.infrastructure.vault.blobs.vault_files import Files
    from memos.infrastructure.vault.mem_vault import MemVault

What = Literal["cube", "user"]


class Forgotten(NamedTuple):
    """The digest of a salt and the id of a cube, or the name of a user; of a user, all from before `at` is meant."""

    digest: str
    salt: str
    what: What
    at: datetime


def _add(db: Store, what: What, names: Iterable[str]) -> None:
    """Within a transaction. Cubes share a salt, so that an old copy is compared with one pass."""
    salt, at = secrets.token_hex(16), moment(db.stamp())
    _write(db, (Forgotten(_digest(salt, name), salt, what, at) for name in names))


def _write(db: Store, new: Iterable[Forgotten]) -> None:
    sql = "INSERT INTO forgotten (digest, salt, what, at) VALUES (?, ?, ?, ?)"
    db.write_many(sql, [(*entry[:3], entry.at.isoformat()) for entry in new])


def entries(db: Rows) -> list[Forgotten]:
    """Oldest first."""
    rows = db.rows("SELECT digest, salt, what, at FROM forgotten ORDER BY at, digest")
    return [Forgotten(digest, salt, what, moment(at)) for digest, salt, what, at in rows]


def named(entries: Iterable[Forgotten], what: What, names: Iterable[str]) -> dict[str, datetime]:
    """Those of `names` that are in the ledger, each with the last time that it was forgotten."""
    of_salt: dict[str, dict[str, datetime]] = {}
    for entry in entries:
        if entry.what == what:
            of_salt.setdefault(entry.salt, {})[entry.digest] = entry.at
    found: dict[str, datetime] = {}
    for name in names:
        for salt, digests in of_salt.items():
            if at := digests.get(_digest(salt, name)):
                found[name] = max(at, found.get(name, at))
    return found


def _digest(salt: str, name: str) -> str:
    return hashlib.sha256(f"{salt}\0{name}".encode()).hexdigest()


_NAMES = (  # where a user stands beside cubes, snapshots and the tables of plug-ins
    *(("credentials", "user_id"), ("grants", "to_user"), ("grants", "over_user"), ("grants", "by")),
    *(("group_members", "owner"), ("group_members", "user_id")),
    *(("uses", "user_id"), ("newcomers", "user_id"), ("pipelines", "user_id")),
)
_FORGOTTEN = "one that was forgotten"  # in place of a name


class UserErasure:
    def __init__(self, vault: MemVault, db: Store, blobs: BlobStore, files: Files) -> None:
        self._vault, self._db, self._blobs, self._files = vault, db, blobs, files

    def concerned(self, user_id: str, before: datetime | None = None) -> list[str]:
        """The ids of all cubes of a user, by namespace or owner, and of all that was ever made of one of them, by
        whomever. before: only of the user's cubes that were kept before."""
        at = kept(before) or self._vault.now().isoformat()
        made: dict[str, set[str]] = {}
        roots = set()
        for id, version, content, written in self._db.rows("SELECT id, version, json, at FROM versions"):
            cube = parsed(content)
            if user_id in (cube.namespace.user_id, cube.rights.owner) and (version > 1 or written <= at):
                roots.add(id)
            for source in cube.sources:
                made.setdefault(source.id, set()).add(id)
        out = dict.fromkeys(sorted(roots))
        for id in (queue := list(out)):  # grows while it is read
            new = [other for other in sorted(made.get(id, ())) if other not in out]
            queue += new
            out |= dict.fromkeys(new)
        return list(out)

    def set_aside(self, user_id: str) -> int:
        """From now on nothing of a user's answers, nor what is made of it, and nobody else may read it: to remove it
        takes longer. How many rights named the user. Raises Held."""
        with self._vault.transaction():
            if self._db.rows("SELECT 1 FROM holds LIMIT 1"):
                self._vault.holds.require_none(self.concerned(user_id), "be forgotten")
            own = json.dumps(self._vault.ids(user_id))
            sql = f"SELECT id, state FROM heads WHERE id {IN} OR id IN ({DERIVED})"
            states: dict[str, str] = dict(self._db.rows(sql, own, own))
            used = [id for id, state in states.items() if state not in GONE]
            CubeWriter(self._db).move(used, State.ARCHIVED, self._db.stamp(), "its user is forgotten")
            self._db.write(f"DELETE FROM grants WHERE cube {IN}", json.dumps(list(states)))
            return self._vault.grants.forget(user_id)

    def bytes_of(self, ids: Iterable[str]) -> tuple[list[bytes], list[bytes], list[Path]]:
        """(texts, vectors, payloads) that the cubes are made of in all versions: as UTF-8, as float32 and int8, and
        where they lie, sealed and in the clear. What other cubes hold too is left out."""
        names = json.dumps(list(ids))
        versions = self._db.rows(f"SELECT id, json FROM versions WHERE id {IN}", names)
        others = self._db.rows(f"SELECT json FROM versions WHERE NOT id {IN}", names)
        elsewhere = {text for (content,) in others for text in _texts_of(parsed(content))}
        contents = {(id, text) for id, content in versions for text in _texts_of(parsed(content))}
        texts = {text for _, text in contents} - elsewhere
        own = json.dumps(sorted({id for id, text in contents if text in texts}))
        sql = f"SELECT r.vector, r.tokens FROM vectors v JOIN readings r ON r.n = v.n WHERE v.id {IN}"
        rows = self._db.rows(sql, own)
        blobs = {parsed(content).stored for _, content in versions}
        shared = {parsed(content).stored for (content,) in others}
        paths = [path for sha256 in sorted(blobs - shared - {""}) for path in self._places(sha256)]
        return [t.encode() for t in sorted(texts)], [bytes(b) for row in rows for b in row if b], paths

    def _places(self, sha256: str) -> set[Path]:
        """Where a payload lies, as it is on disk and in the clear."""
        stored = None
        try:
            stored = self._blobs.find(sha256)
            return {stored, self._files.lend(stored, sha256)} if stored else set()
        except VaultError:  # damaged, or in a bucket that is out of reach
            return {stored} if stored else set()

    def forget(self, user_id: str, ids: Iterable[str]) -> dict[str, int]:
        """Remove these cubes of a user, and what else names the user or them; how many of each. Raises Held, Conflict.

        The audit log keeps its rows, with a pseudonym in the place of the name.
        """
        known = list(ids)
        with self._vault.transaction():
            names, counts = json.dumps(known), dict[str, int]()
            for table in ("versions", "vectors", "uses"):
                counts[table] = int(self._db.rows(f"SELECT count(*) FROM {table} WHERE id {IN}", names)[0][0])
            self._vault.delete(known)
            counts["uses"] += self._db.write("DELETE FROM uses WHERE user_id = ?", user_id)
            counts["snapshots"] = self._vault.snapshots.forget(user_id)
            counts["jobs"] = self._vault.jobs.forget(known)
            self._db.write(f"DELETE FROM superseded WHERE by {IN}", names)
            for n, *move, why in self._db.rows("SELECT n, id, state, at, why FROM transitions WHERE why != ''"):
                clean = _unnamed(_without(why, known), user_id)
                if clean != why:
                    digest = checksum(*move, clean)
                    self._db.write("UPDATE transitions SET why = ?, digest = ? WHERE n = ?", clean, digest, n)
            self._vault.holds.rename(lambda words: _unnamed(words, user_id))
            counts["rights"] = self._vault.grants.forget(user_id)
            counts["keys"] = self._vault.credentials.forget(user_id)
            counts |= self._vault.extensions.forget(user_id)
            self._vault.quarantine.forget(user_id)
            self._vault.pipelines.forget(user_id, lambda words: _unnamed(words, user_id) != words)
            _add(self._db, "user", [user_id])
            _add(self._db, "cube", known)
            counts["audit_rows"] = self._vault.audit_log.pseudonymise(user_id, known)
            self._db.write("INSERT INTO erasures (sha256) VALUES (NULL)")  # names go from free pages too
        return counts

    def search(self, pieces: Iterable[bytes]) -> Searched:
        """Look for bytes in all that lies on disk of this vault, in any file and whatever is left in it; of an
        encrypted one as it is and as it says. What a cube of anybody says, in any version, is passed over."""
        return search(self._vault.path, pieces, self._says, self._vault.sealing.unsealer, self._files.beside)

    def _says(self, piece: bytes) -> bool:
        return any(piece in content.encode() for (content,) in self._db.rows("SELECT json FROM versions"))

    def ledger(self) -> list[Forgotten]:
        """Who and what was forgotten, as digests: kept beside backups, and applied to one that is brought back."""
        return entries(self._db)

    def note(self, others: Iterable[Forgotten]) -> None:
        """Who and what was forgotten in another copy of the vault is forgotten here, too. Within a transaction."""
        known = {entry.digest for entry in entries(self._db)}
        _write(self._db, {entry.digest: entry for entry in others if entry.digest not in known}.values())

    def users(self) -> list[str]:
        """The users that anything here names, also those who own no cube."""
        names = {o for c in self._vault.cubes() for o in (c.namespace.user_id, c.rights.owner)}
        for table, column in _NAMES:
            names |= {name for (name,) in self._db.rows(f"SELECT DISTINCT {column} FROM {table}")}
        names |= self._vault.extensions.users()
        spaces = self._db.rows("SELECT DISTINCT namespace FROM snapshots")
        return sorted(names | {Namespace.model_validate_json(space).user_id for (space,) in spaces})


def _texts_of(cube: MemCube) -> list[str]:
    """What a cube says, in one piece each."""
    match cube.payload:
        case Text(text=text, probes=probes):
            return [text, *(said for probe in probes for said in (probe.question, probe.answer))]
        case Turn(question=question, answer=answer, shown=shown):
            return [question, answer, *shown]
        case _:
            return []


def _without(why: str, ids: Collection[str]) -> str:
    """A reason that names none of the cubes."""
    known = set(ids)
    return " ".join(_FORGOTTEN if word.strip(",") in known else word for word in why.split(" "))


def _unnamed(words: str, user_id: str) -> str:
    """The same without the name of a user."""
    return re.sub(rf"(?<!\w){re.escape(user_id)}(?!\w)", _FORGOTTEN, words)
