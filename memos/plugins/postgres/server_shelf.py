"""Stores payloads on the server of a vault, in pieces, and gives every machine a copy of each as a file.

Knows names, files and bytes; must not know what a payload is. A payload is named by its sha256, an index by "index/"
and its file's name. A folder is kept file by file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from memos.cube import new_id
from memos.errors import CorruptBlob, VaultError
from memos.infrastructure.vault.blobs.vault_files import made, remove
from memos.infrastructure.vault.store.transactions import Store

_PIECE = 1 << 20  # bytes


class ServerShelf:
    """A `Shelf`."""

    def __init__(self, db: Store) -> None:
        self._db = db

    def has(self, name: str) -> bool:
        return bool(self._db.rows("SELECT 1 FROM payloads WHERE name = ? LIMIT 1", name))

    def names(self) -> list[str]:
        """All, sorted."""
        return [name for (name,) in self._db.rows("SELECT DISTINCT name FROM payloads ORDER BY name")]

    def bring(self, name: str, path: Path, suffix: str) -> None:
        """Nothing: pieces are rows, which the transaction holds."""

    def used(self, path: Path) -> Path:
        return path

    def give_up(self) -> None: ...

    def settle(self, thorough: bool = False) -> None:
        """Nothing: what was dropped went with its transaction."""

    def put(self, name: str, path: Path) -> None:
        """Keep a file or a folder, in place of what was, unless it is the very same; part of the transaction that goes
        on. Raises VaultError, OSError."""
        if self.digest(name) == name:
            return
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        with self._db.transaction():
            self.drop(name)
            for file in files:
                inner = "" if file == path else file.relative_to(path).as_posix()
                pieces = ((name, inner, n, piece) for n, piece in enumerate(_pieces(file)))
                self._db.write_many("INSERT INTO payloads (name, file, n, piece) VALUES (?, ?, ?, ?)", pieces)

    def fetch(self, name: str, target: Path, suffix: str) -> Path | None:
        """Make a copy at `target`, a file with the suffix added; None where nothing is kept. Raises VaultError."""
        files = self._files(name)
        if not files:
            return None
        path = target.with_name(target.name + suffix) if list(files) == [""] else target
        part = target.with_name(f".{new_id()}.part")
        try:
            made(target.parent)
            for inner, count in files.items():
                file = part / _safe(inner) if inner else part
                made(file.parent)
                with file.open("wb") as out:
                    for n in range(count):
                        out.write(self._piece(name, inner, n))
            remove(path)
            part.rename(path)
        except OSError as error:
            if path.exists():  # another thread or process was first, with the very same
                return path
            raise VaultError(
                f"{path} was not copied from the server ({error.strerror}); make sure that the disk has room and the "
                "folder can be written to, and try again"
            ) from error
        finally:
            remove(part)
        return path

    def digest(self, name: str) -> str:
        """As `vault_files.digest`; "" where nothing is kept."""
        sums = dict[str, str]()
        for inner, count in self._files(name).items():
            sha256 = hashlib.sha256()
            for n in range(count):
                sha256.update(self._piece(name, inner, n))
            sums[inner] = sha256.hexdigest()
        if list(sums) in ([], [""]):
            return sums.get("", "")
        return hashlib.sha256("".join(f"{inner}\0{found}\n" for inner, found in sums.items()).encode()).hexdigest()

    def drop(self, name: str) -> None:
        with self._db.transaction():
            self._db.write("DELETE FROM payloads WHERE name = ?", name)

    def _files(self, name: str) -> dict[str, int]:
        """How many pieces each has."""
        sql = "SELECT file, count(*) FROM payloads WHERE name = ? GROUP BY file ORDER BY file"
        return dict(self._db.rows(sql, name))

    def _piece(self, name: str, inner: str, n: int) -> bytes:
        sql = "SELECT piece FROM payloads WHERE name = ? AND file = ? AND n = ?"
        for (piece,) in self._db.rows(sql, name, inner, n):
            return bytes(piece)
        raise CorruptBlob(f"piece {n} of payload {name} is not on the server: it was deleted just now, or is damaged")


def _pieces(file: Path) -> Iterator[bytes]:
    """At least one, which may be empty."""
    with file.open("rb") as content:
        yield content.read(_PIECE)
        while piece := content.read(_PIECE):
            yield piece


def _safe(inner: str) -> PurePosixPath:
    path = PurePosixPath(inner)
    if path.is_absolute() or ".." in path.parts:
        raise CorruptBlob(f"a payload on the server has a file {inner!r:.80}, which leads out of its folder")
    return path
