"""A new database out of what can be read in a damaged one.

Versions and moves are trusted by their checksums; what follows from them is made anew; other rows are taken as they
read, if they fit. Must not know how it came to the damage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memos.cube import Form, MemCube, State
from memos.errors import VaultError
from memos.infrastructure.vault.store import sqlite_file
from memos.infrastructure.vault.store.database import Database
from memos.infrastructure.vault.store.rows import HEAD, checksum, facts, head, sources
from memos.plugins.encryption.vault_key import DataKey

Row = dict[str, Any]
_MADE_ANEW = {
    *("versions", "transitions", "heads", "facts", "sources", "changes", "clock", "indexes", "vectors", "rights_clock")
}
_VERSION, _MOVE = ("id", "version", "json", "at"), ("id", "state", "at", "why")  # what their checksums are of
_LONGEST = 1 << 16  # bytes of a row in which a flipped bit is looked for: about a second
_PROBED = 1_000_000  # rows, at most, that are asked for one by one where a table cannot be read through


@dataclass
class Salvaged:
    """What was lost, in words, and the cubes that are kept."""

    lost: list[str] = field(default_factory=list)
    cubes: int = 0


def salvage(damaged: Path, folder: Path, key: DataKey | None = None) -> Salvaged:
    """Make vault.db in a folder where there is none out of a damaged one, which SQLite may write to; with the same key,
    if that is encrypted. Raises VaultError.

    Vectors are left out: they are made anew.
    """
    told = Salvaged()
    with closing(_Source(damaged, key)) as source:
        versions = _versions(source, told)
        moves, spoilt = _moves(source, told)
        was = {row["id"]: row for row in _readable(source, "heads", told)}
        database = Database(folder / "vault.db", key)
        try:
            with database.transaction():
                _put_cubes(database, versions, moves, was, spoilt, told)
                _put_others(database, source, told)
        except (source.module.Error, *source.damaged) as error:
            told_why = sqlite_file.why(error)
            raise VaultError(f"{damaged} was not brought into {folder} ({told_why}); bring back a backup") from error
        finally:
            database.close()
    return told


class _Source:
    """What can be read of a damaged file."""

    def __init__(self, file: Path, key: DataKey | None) -> None:
        self._file, self._key = file, key
        self.module, self.damaged = sqlite_file.module(key), sqlite_file.damaged(key)
        self._db = self._opened()

    def _opened(self) -> Any:
        db = sqlite_file.connect(self._file, self._key, isolation_level=None)
        db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")  # a byte may be none of UTF-8
        return db

    def execute(self, sql: str, values: tuple[object, ...] = ()) -> Any:
        return self._db.execute(sql, values)

    def go_on(self) -> None:
        """After an error: a connection of SQLCipher reads nothing more once a page was not as it was encrypted."""
        if self._key:
            self._db.close()
            self._db = self._opened()

    def close(self) -> None:
        self._db.close()


def _versions(source: _Source, told: Salvaged) -> dict[str, dict[int, tuple[Row, MemCube]]]:
    found: dict[str, dict[int, tuple[Row, MemCube]]] = defaultdict(dict)
    for read in _readable(source, "versions", told):
        row = _mended(read, _VERSION)
        with suppress(ValidationError, TypeError, KeyError, UnicodeEncodeError):
            cube = MemCube.model_validate_json(row["json"])
            if (cube.id, cube.version) == (row["id"], row["version"]) and _is_trusted(row, _VERSION):
                found[cube.id][cube.version] = row, cube
                continue
        told.lost.append(f"version {row.get('version')} of cube {row.get('id')!r:.40}: it is not what was written")
    return found


def _moves(source: _Source, told: Salvaged) -> tuple[dict[str, list[Row]], set[str]]:
    """By cube, oldest first; and the ids of the cubes of which a move cannot be trusted."""
    found, spoilt = defaultdict(list), set[str]()
    for read in _readable(source, "transitions", told):
        row = _mended(read, _MOVE)
        try:
            trusted = row["state"] in list(State) and _is_trusted(row, _MOVE)
        except (TypeError, UnicodeEncodeError):
            trusted = False
        if trusted:
            found[row["id"]].append(row)
        else:
            spoilt.add(str(row["id"]))
            told.lost.append(f"a move of cube {row['id']!r:.40}: it is not what was written")
    return {id: sorted(rows, key=lambda row: row["n"]) for id, rows in found.items()}, spoilt


def _put_cubes(
    database: Database,
    versions: dict[str, dict[int, tuple[Row, MemCube]]],
    moves: dict[str, list[Row]],
    was: dict[str, Row],
    spoilt: set[str],
    told: Salvaged,
) -> None:
    kept, doubtful = {id: its[max(its)][1] for id, its in versions.items()}, bool(told.lost)
    for id, cube in kept.items():
        missing = [str(n) for n in range(1, cube.version) if n not in versions[id]]
        if missing:
            told.lost.append(f"cube {id}: its versions {', '.join(missing)}")
        newest = was.get(id, {}).get("version", cube.version)
        if isinstance(newest, int) and newest > cube.version:
            told.lost.append(f"cube {id}: it is at version {cube.version} again")
        if doubtful and id not in was:
            told.lost.append(f"cube {id}: what came after version {cube.version}, if anything did")
    for id in was.keys() - kept.keys():
        told.lost.append(f"cube {id!r:.40}: no version of it can be read")
    _drop_orphans(kept, versions, told)
    for id, its in versions.items():
        for row, _ in (its[n] for n in sorted(its) if id in kept):
            values = row["id"], row["version"], row["json"], row["at"]
            database.write(_INSERT_VERSION, *values, checksum(*values))
    at = database.stamp()
    for id, cube in kept.items():
        its_moves = moves.get(id, [])
        state = _state(its_moves, was.get(id, {}).get("state"), id in spoilt or doubtful)
        known, last = versions[id][cube.version][0]["at"], its_moves[-1] if its_moves else None
        since = max(known, last["at"]) if last else known
        repaired = last is None or last["state"] != state
        columns = ", ".join(("id", *HEAD, "state", "since"))
        marks = ", ".join("?" * (len(HEAD) + 3))
        values = id, *head(cube), state, max(since, at) if repaired else since
        database.write(f"INSERT INTO heads ({columns}) VALUES ({marks})", *values)
        for row in its_moves:
            move = row["id"], row["state"], row["at"], row["why"]
            database.write(_INSERT_MOVE, row["n"], *move, checksum(*move))
    for cube in kept.values():
        database.write_many("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?)", facts(cube))
        database.write_many("INSERT INTO sources VALUES (?, ?, ?)", sources(cube))
    for id, state in database.rows(_MOVED):
        move = id, state, at, "repaired: the move to this state was lost"
        database.write(_INSERT_MOVE, None, *move, checksum(*move))
    told.cubes = len(kept)


_INSERT_VERSION = "INSERT INTO versions (id, version, json, at, digest) VALUES (?, ?, ?, ?, ?)"
_INSERT_MOVE = "INSERT INTO transitions (n, id, state, at, why, digest) VALUES (?, ?, ?, ?, ?, ?)"
_MOVED = """SELECT h.id, h.state FROM heads h WHERE h.state != ifnull(
            (SELECT t.state FROM transitions t WHERE t.id = h.id ORDER BY t.n DESC LIMIT 1), '')"""


def _drop_orphans(
    kept: dict[str, MemCube], versions: dict[str, dict[int, tuple[Row, MemCube]]], told: Salvaged
) -> None:
    """A payload goes with a source that is lost. A text stays, and is told to be of those that are there."""
    again = True
    while again:
        again = False
        for id, cube in list(kept.items()):
            there = tuple(s for s in cube.sources if s.id in kept and s.version in versions[s.id])
            if len(there) == len(cube.sources):
                continue
            if cube.form is not Form.PLAINTEXT:
                del kept[id]
                again = True
                told.lost.append(f"cube {id}, {cube.form}: a source of it is lost; promote the others again")
                continue
            kept[id] = cube = cube.model_copy(update={"version": cube.version + 1, "sources": there})
            at = versions[id][cube.version - 1][0]["at"]
            row = {"id": id, "version": cube.version, "at": at}
            row["json"] = cube.model_dump_json(exclude={"state", "usage"})
            versions[id][cube.version] = row, cube
            told.lost.append(f"cube {id}: some of what it was made of")


def _state(moves: list[Row], told: object, doubtful: bool) -> State:
    """As the head says, or the last move if all of them can be read; else out of use, where it can be brought back."""
    if told in list(State):
        return State(told)
    return State(moves[-1]["state"]) if moves and not doubtful else State.ARCHIVED


def _put_others(database: Database, source: _Source, told: Salvaged) -> None:
    tables = database.rows("SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY rowid")
    for (table,) in tables:
        if table in _MADE_ANEW or table.startswith("sqlite_"):
            continue
        known, lost = {name for _, name, *_ in database.rows(f"PRAGMA main.table_info({table})")}, 0
        for row in _readable(source, table, told):
            names = [name for name in row if name in known]
            sql = f"INSERT INTO main.{table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            try:
                database.write(sql, *(row[name] for name in names))
            except (source.module.IntegrityError, UnicodeEncodeError):  # of a cube that is lost, or damaged itself
                lost += 1
        if lost:
            told.lost.append(f"{lost} rows of {table}")
    with suppress(*source.damaged):
        for name, highest in source.execute("SELECT name, seq FROM sqlite_sequence").fetchall():
            if isinstance(highest, int):  # so that rows that were cut off are missed, and no number is used again
                there = database.write("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", highest, name)
                if not there:
                    database.write("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", name, highest)
    database.write("UPDATE heads SET repeats = (SELECT count(*) FROM repeats r WHERE r.id = heads.id)")


def _mended(row: Row, columns: tuple[str, ...]) -> Row:
    """A row in which one bit of a text has flipped, as it was: the checksum tells which."""
    parts = {name: row[name].encode("utf-8", "surrogateescape") for name in columns if isinstance(row[name], str)}
    digest = row.get("digest")
    if not digest or None in (row[name] for name in columns) or sum(map(len, parts.values())) > _LONGEST:
        return row
    sound = _checksum_of(row, parts, columns)
    if _bits_apart(sound, digest) <= 1:
        return row | {"digest": sound}
    for name, part in parts.items():
        tried = bytearray(part)
        for bit in range(8 * len(part)):
            tried[bit // 8] ^= 1 << bit % 8
            if _checksum_of(row, parts | {name: bytes(tried)}, columns) == digest:
                return row | {name: tried.decode()}
            tried[bit // 8] ^= 1 << bit % 8
    return row


def _checksum_of(row: Row, parts: dict[str, bytes], columns: tuple[str, ...]) -> str:
    return checksum(*(parts[name] if name in parts else row[name] for name in columns))


def _bits_apart(one: str, other: str) -> int:
    pairs = zip(one.encode(), other.encode("utf-8", "surrogateescape"), strict=False)
    return abs(len(one) - len(other)) * 8 + sum((a ^ b).bit_count() for a, b in pairs)


def _is_trusted(row: Row, columns: tuple[str, ...]) -> bool:
    """By its checksum; a row of an older schema has none."""
    return "digest" not in row or row["digest"] == checksum(*(row[name] for name in columns))


def _readable(source: _Source, table: str, told: Salvaged) -> Iterator[Row]:
    """The rows of a table: in order, as far as they can be read; from the end; and one by one between these."""
    seen, whole = set[int](), True
    for order in ("ASC", "DESC"):
        try:
            found = source.execute(f"SELECT rowid AS _rowid, * FROM {table} ORDER BY rowid {order}")
            names = [column[0] for column in found.description]
            while (row := found.fetchone()) is not None and row[0] not in seen:
                seen.add(row[0])
                yield dict(zip(names[1:], row[1:], strict=True))
            if order == "ASC" and row is None:
                return
        except source.module.OperationalError as error:
            if "no such column" in str(error):  # a table without rowid
                yield from _without_rowid(source, table, told)
                return
            whole = False
            if "no such table" in str(error):
                break
            source.go_on()
        except source.damaged:
            whole = False
            source.go_on()
    if not whole:
        told.lost.append(f"rows of {table}: a part of the table cannot be read")
    gap = sorted(seen)
    for low, high in pairwise(gap):
        for rowid in range(low + 1, min(high, low + _PROBED)):
            try:
                found = source.execute(f"SELECT * FROM {table} WHERE rowid = ?", (rowid,))
                names = [column[0] for column in found.description]
                rows = found.fetchall()
            except source.damaged:
                source.go_on()
                continue
            for row in rows:
                yield dict(zip(names, row, strict=True))


def _without_rowid(source: _Source, table: str, told: Salvaged) -> Iterator[Row]:
    try:
        found = source.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in found.description]
        for row in found:
            yield dict(zip(names, row, strict=True))
    except source.damaged:
        source.go_on()
        told.lost.append(f"rows of {table}: a part of the table cannot be read")
