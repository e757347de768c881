"""Gives bounded, counted access to the files of an import; follows nothing out of them, and writes nothing.

Knows folders, encodings, archives and SQLite files. Must not know what stands in them.
"""

from __future__ import annotations

import codecs
import json
import re
import sqlite3
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

from memos.errors import InputError
from memos.plugins.imports import json_stream
from memos.plugins.imports.entry import Unmapped
from memos.plugins.imports.json_stream import Fault, Node

_PIECE = 1 << 18  # bytes read at once
_PEEK = 1 << 20  # bytes looked at to tell what a file is
# what reading an archive raises that is damaged, encrypted, or of a kind that is not known
_DAMAGED_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError, OverflowError)
_EXPANSION = 200  # times that an archive may grow; JSON grows about 20 times
_SMALL = 1 << 24  # bytes below which growth does no harm
_LONGEST_FILE = 1 << 24  # bytes of a file that is read whole
_MOST_FILES = 1_000_000
_LONGEST_CELL = 1 << 26  # characters of one column of one row
SQLITE = b"SQLite format 3\0"
ZIP = b"PK\x03\x04"


class ImportSource:
    """A file or a folder. `done` of `total` bytes have been read."""

    def __init__(self, path: Path) -> None:
        """Raises InputError for what is neither a file nor a folder."""
        self.path = path
        self.done = 0
        try:
            kind = path.stat()
        except (OSError, ValueError) as error:  # a NUL in the name is a ValueError
            raise InputError(f"{path} cannot be read ({error}); give the path of a file or a folder") from error
        self.is_folder = stat.S_ISDIR(kind.st_mode)
        if not self.is_folder and not stat.S_ISREG(kind.st_mode):
            raise InputError(f"{path} is a device or a pipe; give the path of a file or a folder")
        self.total = 0 if self.is_folder else kind.st_size

    def head(self, most: int = 4096) -> bytes:
        """The first bytes of the file."""
        with self._open(self.path) as file:
            return file.read(most)

    @property
    def is_archive(self) -> bool:
        return not self.is_folder and self.head(4) == ZIP

    @property
    def is_database(self) -> bool:
        return not self.is_folder and self.head(len(SQLITE)) == SQLITE

    def at(self, name: str) -> Path:
        return self.path / name if self.is_folder else self.path

    # -- JSON ----------------------------------------------------------------------------------------------

    def records(self, path: Path | None = None) -> Iterator[Node | Fault]:
        """Of a JSON file: a record for each line, or the elements of its lists. See `json_stream`."""
        path = path or self.path
        with self._open(path) as file:
            start = file.read(_PEEK)
            by_line = path.suffix.lower() in (".jsonl", ".ndjson") or _is_by_line(start)
            pieces = self._decoded(chain([start], iter(lambda: file.read(_PIECE), b"")), start)
            yield from json_stream.lines(pieces) if by_line else json_stream.documents(pieces)

    def archived(self, wanted: re.Pattern[str]) -> Iterator[tuple[str, Iterator[Node | Fault]]]:
        """The JSON files of an archive whose names match, in order of their names, each with its records. Nothing is
        unpacked to disk. Raises InputError."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                found = sorted((i for i in archive.infolist() if wanted.search(i.filename)), key=lambda i: i.filename)
                if not found:
                    raise InputError(
                        f"{self.path} holds no file {wanted.pattern!r}; give the archive as it was exported"
                    )
                self.total = sum(i.file_size for i in found)
                for info in found:
                    with archive.open(info) as file:
                        pieces = self._unpacked(file, info)
                        start = next(pieces, b"")
                        yield (info.filename, json_stream.documents(self._decoded(chain([start], pieces), start)))
        except _DAMAGED_ARCHIVE as error:
            raise InputError(f"{self.path} cannot be unpacked ({error}); export it again") from error

    def _unpacked(self, file: IO[bytes], info: zipfile.ZipInfo) -> Iterator[bytes]:
        most, got = max(_SMALL, info.compress_size * _EXPANSION), 0
        while piece := self._piece(file):
            got += len(piece)
            if got > most:
                raise InputError(
                    f"{info.filename} in {self.path} grows to more than {_EXPANSION} times its size, as no export "
                    f"does; nothing more of it is read"
                )
            yield piece

    def _piece(self, file: IO[bytes]) -> bytes:
        """The next bytes of a member. Raises InputError: whoever reads it later is outside the guard of its opening."""
        try:
            return file.read(_PIECE)
        except _DAMAGED_ARCHIVE as error:
            raise InputError(f"{self.path} cannot be unpacked ({error}); export it again") from error

    def _decoded(self, pieces: Iterator[bytes], start: bytes) -> Iterator[str]:
        """As text. Bytes that are none of the encoding become half characters, which `entry` names where they stand."""
        encoding = json.detect_encoding(start[:4])
        errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
        decoder = codecs.getincrementaldecoder(encoding)(errors)
        for piece in pieces:
            self.done += len(piece)
            if text := decoder.decode(piece):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    # -- folders -------------------------------------------------------------------------------------------

    def files(self, *suffixes: str) -> Iterator[Path | Unmapped]:
        """The files of these suffixes in the folder and below, by name. No link is followed, hidden folders are passed
        over. Raises InputError."""
        if not self.is_folder:
            self.total = self.path.stat().st_size
            yield self.path
            return
        found = list(self._below(self.path, suffixes))
        self.total = sum(path.stat().st_size for path in found if isinstance(path, Path))
        yield from found

    def _below(self, folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path | Unmapped]:
        waiting, seen = [folder], 0
        while waiting:
            folder = waiting.pop()
            try:
                inside = sorted(folder.iterdir(), reverse=True)
            except OSError as error:
                yield Unmapped(self.place(folder), f"the folder cannot be read ({error.strerror})")
                continue
            for path in reversed(inside):
                seen += 1
                if seen > _MOST_FILES:
                    raise InputError(
                        f"{self.path} holds more than {_MOST_FILES:,} files; import its folders one by one"
                    )
                if path.is_symlink():
                    yield Unmapped(self.place(path), "it is a link, and links are not followed")
                elif path.suffix.lower() in suffixes and not path.is_dir():
                    yield path if path.is_file() else Unmapped(self.place(path), "it is a device or a pipe")
            waiting += [p for p in inside if not p.is_symlink() and p.is_dir() and not p.name.startswith(".")]

    def place(self, path: Path) -> str:
        """Of a file in the folder, as it is named in a report."""
        name = str(path.relative_to(self.path)) if path != self.path else path.name
        return name.encode("utf-8", "replace").decode()

    def text(self, path: Path) -> str | Unmapped:
        """A whole file, with line ends as on this machine."""
        try:
            size = path.stat().st_size
            if size > _LONGEST_FILE:
                self.done += size
                return Unmapped(self.place(path), f"the file is longer than {_LONGEST_FILE:,} bytes")
            with self._open(path) as file:
                data = file.read()
        except (OSError, InputError):
            return Unmapped(self.place(path), "the file cannot be read")
        text = "".join(self._decoded(iter([data]), data))
        return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")

    # -- SQLite --------------------------------------------------------------------------------------------

    def tables(self) -> dict[str, tuple[str, ...]]:
        """The plain tables of the database with their columns. Raises InputError."""
        with self._database() as db:
            sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%' LIMIT 1000"
            names = [name for (name,) in db.execute(sql).fetchall() if isinstance(name, str)]
            columns = "SELECT name FROM pragma_table_info(?)"
            return {name: tuple(column for (column,) in db.execute(columns, (name,)).fetchall()) for name in names}

    def rows(self, table: str, columns: tuple[str, ...], order: str) -> Iterator[dict[str, Any]]:
        """Rows of a plain table, one by one; a cell that is longer than its bound is None. Raises InputError."""
        with self._database() as db:
            cut = ", ".join(f"CASE WHEN length({c}) <= {_LONGEST_CELL} THEN {c} END" for c in columns)
            self.total = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            self.done = 0
            for row in db.execute(f"SELECT {cut} FROM {table} ORDER BY {order}"):
                self.done += 1
                yield dict(zip(columns, row, strict=True))

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """Read as it lies there: no journal is rolled back and no file is made beside it."""
        for beside in ("-wal", "-journal"):
            other = self.path.with_name(self.path.name + beside)
            if other.is_file() and other.stat().st_size:
                raise InputError(
                    f"{other} says that a program has {self.path.name} open, or ended in the middle of a change; "
                    f"close it, or copy the file with `sqlite3 {self.path.name} '.backup copy.db'` and import the copy"
                )
        try:
            with closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
                db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
                db.execute("PRAGMA trusted_schema = OFF")
                db.execute("PRAGMA cell_size_check = ON")
                yield db
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise InputError(f"{self.path} cannot be read as a database ({error}); export it again") from error

    @contextmanager
    def _open(self, path: Path) -> Iterator[IO[bytes]]:
        try:
            with path.open("rb") as file:
                yield file
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); see that it is there and you may") from error


def _is_by_line(start: bytes) -> bool:
    """True where the first line is a whole JSON value and more follow."""
    text = start.decode(json.detect_encoding(start[:4]), "ignore").strip("\ufeff \t\r\n")
    first, end, rest = text.partition("\n")
    if not end or not rest.strip() or json_stream.depth(first) > json_stream.DEEPEST:
        return False
    try:
        return isinstance(json.loads(first, strict=False), dict)
    except (ValueError, RecursionError):
        return False
