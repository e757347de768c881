"""Saves the search indexes as named arrays in one file, so that opening a vault need not read every memory.

Knows arrays, files and which of them vault.db names. Must not know what an index makes of them.

    index/<name>.safetensors   whole: written as .part, fsynced, renamed in the transaction that names it

The words of memories are in there: the transaction that deletes a text takes the name away, and the file goes with the
text. A file that vault.db does not name, as after a crash or beside a copy that was brought back, is never read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xxhash

from memos.cube import new_id
from memos.errors import CorruptBlob, VaultError
from memos.infrastructure.vault.blobs.vault_files import FileFormat
from memos.infrastructure.vault.store.transactions import Store

if TYPE_CHECKING:
    from memos.infrastructure.vault.blobs.blob_store import Shelf

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
_DTYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1"}
_PIECE = 1 << 24  # bytes
_SHELVED = "index/"  # before the name of a file on a shelf
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}


class IndexStore:
    def __init__(self, folder: Path, format: FileFormat, db: Store, shelf: Shelf | None = None) -> None:
        """folder: of the vault. shelf: where the file is kept, if that is elsewhere."""
        self._folder, self._format, self._db, self._shelf = folder / "index", format, db, shelf

    def save(self, layout: str, embedder: str, change: int, arrays: Arrays) -> bool:
        """Keep these in place of what was kept. False where memories were deleted after `change`: nothing is kept,
        since their words must not come back to disk.

        layout: what the arrays mean; change: the last one of the vault that is in them. Raises VaultError.
        """
        name = f"{new_id()}.safetensors"
        part = self._folder / f"{name}.part"
        try:
            try:
                self._db.require_room()
                self._folder.mkdir(exist_ok=True)
                with self._format.writing(part, f"index/{name}") as write:
                    digest = _write(write, arrays)
                with self._db.transaction():
                    [(deleted,)] = self._db.rows("SELECT deleted FROM clock")
                    if deleted > change:
                        return False
                    part.rename(self._folder / name)
                    if self._shelf is not None:
                        self._shelf.put(f"{_SHELVED}{name}", self._folder / name)
                    self._db.write("DELETE FROM indexes")
                    self._db.write("INSERT INTO indexes VALUES (?, ?, ?, ?, ?)", name, layout, embedder, change, digest)
                self.sweep()
            finally:
                with suppress(NotADirectoryError):
                    part.unlink(missing_ok=True)
        except FileNotFoundError:  # a deletion in another process took it away
            return False
        except OSError as error:
            raise VaultError(
                f"{part} was not written ({error.strerror}); the next opening reads every memory again, "
                "make sure that the folder can be written to and the disk has room"
            ) from error
        return True

    def load(self, layout: str, embedder: str) -> tuple[int, dict[str, Array]] | None:
        """(change, arrays) as they were saved; None where nothing is kept.

        Raises VaultError, naming what does not fit: another layout or embedder, or a file that is gone or changed.
        """
        rows = self._db.rows("SELECT name, layout, embedder, change, digest FROM indexes")
        if not rows:
            return None
        [(name, kept_layout, kept_embedder, change, digest)] = rows
        for what, its, wanted in (("layout", kept_layout, layout), ("embedder", kept_embedder, embedder)):
            if its != wanted:
                raise VaultError(f"{self._folder / name} is of {what} {its!r}, not {wanted!r}")
        try:
            return change, read_kept(place_of(self._folder, name, self._shelf), self._format, digest)
        except CorruptBlob:
            with self._db.transaction():
                is_last = self._db.write("DELETE FROM indexes WHERE name = ?", name) > 0
            if is_last:
                raise
        return self.load(layout, embedder)  # another process kept a newer one meanwhile

    def behind(self, layout: str, embedder: str) -> int:
        """How many cubes changed since such an index was kept; all, where none is."""
        sql = """SELECT count(*) FROM changes WHERE n > ifnull(
                   (SELECT max(change) FROM indexes WHERE layout = ? AND embedder = ?), 0)"""
        [(behind,)] = self._db.rows(sql, layout, embedder)
        return int(behind)

    def sweep(self, alone: bool = False) -> list[str]:
        """Remove the files that vault.db does not name; the names removed.

        alone: those that are being written, too: nobody else is there to write them, or nobody may.
        """
        with self._db.transaction():  # none is between its renaming and its naming
            named = {name for (name,) in self._db.rows("SELECT name FROM indexes")}
            pattern = "*" if alone else "*.safetensors"
            others = [path for path in self._folder.glob(pattern) if path.name not in named]
            for path in others:
                path.unlink(missing_ok=True)
            if self._shelf is not None:
                shelved = {name for name in self._shelf.names() if name.startswith(_SHELVED)}
                for name in shelved - {f"{_SHELVED}{name}" for name in named}:
                    self._shelf.drop(name)
        return sorted(str(path.relative_to(self._folder.parent)) for path in others)


def place_of(folder: Path, name: str, shelf: Shelf | None) -> Path:
    path = folder / name
    if shelf is not None and not path.exists():
        shelf.fetch(f"{_SHELVED}{name}", path, "")
    return path


def _write(write: Callable[[bytes], object], arrays: Arrays) -> str:
    """A safetensors file; the checksum of all of it."""
    head, at = dict[str, Any](), 0
    for name, array in arrays.items():
        head[name] = {"dtype": _NAMES[array.dtype], "shape": array.shape, "data_offsets": [at, at := at + array.nbytes]}
    header = json.dumps(head).encode()
    header += b" " * (-len(header) % 8)
    checksum = xxhash.xxh3_128()
    for part in chain([len(header).to_bytes(8, "little"), header], chain.from_iterable(map(_pieces, arrays.values()))):
        checksum.update(part)
        write(part)
    return str(checksum.hexdigest())


def _pieces(array: Array) -> Iterator[bytes]:
    """Copies, as the array may be written to meanwhile, and what is in the file must be what its checksum is of."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return (flat[start : start + _PIECE].tobytes() for start in range(0, len(flat), _PIECE))


def read_kept(path: Path, format: FileFormat, digest: str) -> dict[str, Array]:
    """Arrays that can be written to. Raises CorruptBlob for a file that is not what was written."""
    checksum = xxhash.xxh3_128()
    arrays = {}
    try:
        with format.reading(path, f"index/{path.name}") as file:
            size = file.read(8) or b""
            header = file.read(int.from_bytes(size, "little")) or b""
            checksum.update(size + header)
            for name, array in dict(json.loads(header)).items():
                arrays[name] = np.empty(array["shape"], _DTYPES[array["dtype"]])
                room = arrays[name].reshape(-1).view(np.uint8).data
                read = 0
                while read < len(room) and (more := file.readinto(room[read:])):
                    read += more
                if read < len(room):  # the rest is what memory held before: maybe the very bytes that are missing
                    raise CorruptBlob(f"{path} does not match its checksum: {name} has {read} of {len(room)} bytes")
                checksum.update(room)
            whole = checksum.hexdigest() == digest and not file.read(1)
    except (OSError, ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
        raise CorruptBlob(f"{path} cannot be read ({error})") from error
    if not whole:
        raise CorruptBlob(f"{path} does not match its checksum")
    return arrays
