"""A pack as named parts in one file or folder; knows what is safe to read, not what a part says.

The file is a zip in one canonical form: parts stored as they are, one after the other, and headers that follow from
their names, sizes and checksums. The reader makes each header anew and compares, so that no byte goes unchecked, and
nothing unfolds to more than it is. docs/mip.md has the form, byte by byte.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, Protocol

from memos.cube import new_id
from memos.errors import BadPack, InputError, VaultError
from memos.infrastructure.vault.store.on_disk import fsync, fsync_all

MAX_PARTS = 100_000
MAX_NAME, MAX_STEP = 240, 100  # characters of a part's name, and of each step between slashes
PIECE_BYTES = 1 << 20  # read or written at a time
_STEP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_KINDS = (".json", ".jsonl", ".safetensors", ".md")  # of parts; nothing that a program would run
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
# a zip's numbers, little-endian; sizes and places stand in the zip64 fields alone
_VERSION, _DATE, _ELSEWHERE = 45, 0x21, 0xFFFFFFFF
_LOCAL = struct.Struct("<4s5H3L2H2H2Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_CENTRAL_MORE = struct.Struct("<2H3Q")
_END = struct.Struct("<4sQ2H2L4Q4sLQL4s4H2LH")


@dataclass(frozen=True)
class ZipMember:
    """A part in the file. offset: where its header begins."""

    name: str
    size: int
    crc: int
    offset: int

    @property
    def header(self) -> bytes:
        name, size = self.name.encode("ascii"), self.size
        head = _LOCAL.pack(
            *(b"PK\3\4", _VERSION, 0, 0, 0, _DATE, self.crc, _ELSEWHERE, _ELSEWHERE, len(name), 20, 1, 16, size, size)
        )
        return head[:30] + name + head[30:]

    @property
    def listed(self) -> bytes:
        """Its line of the central directory."""
        name = self.name.encode("ascii")
        fixed = (b"PK\1\2", _VERSION, _VERSION, 0, 0, 0, _DATE, self.crc, _ELSEWHERE, _ELSEWHERE)
        head = _CENTRAL.pack(*fixed, len(name), _CENTRAL_MORE.size, 0, 0, 0, 0, _ELSEWHERE)
        return head + name + _CENTRAL_MORE.pack(1, 24, self.size, self.size, self.offset)

    @property
    def end(self) -> int:
        """Where the next part begins."""
        return self.offset + len(self.header) + self.size


def _end(parts: int, offset: int, size: int) -> bytes:
    """What follows a central directory that begins at `offset` and has `size` bytes."""
    record = (b"PK\6\6", 44, _VERSION, _VERSION, 0, 0, parts, parts, size, offset)
    locator = (b"PK\6\7", 0, offset + size, 1)
    return _END.pack(*record, *locator, b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, _ELSEWHERE, _ELSEWHERE, 0)


class Sink(Protocol):
    """Where parts are written to, one after the other."""

    def add(self, name: str, pieces: Iterable[bytes]) -> None: ...


class PartSource(Protocol):
    """Where parts are read from; `sizes` has those that are there. Raises BadPack."""

    sizes: dict[str, int]

    def pieces(self, name: str) -> Iterator[bytes]: ...

    def close(self) -> None: ...


@contextmanager
def writing(path: Path, folder: bool = False) -> Iterator[Sink]:
    """A new pack at `path`, which is there, whole, once the block has ended; after an error nothing is.

    Raises InputError where something is there already, VaultError where it cannot be written.
    """
    if path.exists() or path.is_symlink():
        raise InputError(f"{path} is there already; give another name, or move it away")
    staged = path.with_name(f".{path.name}.{new_id()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if folder:
            staged.mkdir()
            yield _FolderSink(staged)
        else:
            with staged.open("xb") as file:
                sink = _ZipSink(file)
                yield sink
                sink.finish()
        fsync_all(staged)
        staged.rename(path)
        fsync(path.parent)
    except OSError as error:
        raise VaultError(f"{path} was not written ({error}); make room, or give another place") from error
    finally:
        if staged.is_dir():
            shutil.rmtree(staged)
        elif staged.exists():
            staged.unlink()


class _ZipSink:
    def __init__(self, file: BinaryIO) -> None:
        self._file, self._entries, self._offset = file, list[ZipMember](), 0

    def add(self, name: str, pieces: Iterable[bytes]) -> None:
        self._file.seek(self._offset)
        self._file.write(ZipMember(name, 0, 0, self._offset).header)  # as long as the one that takes its place below
        size, crc = 0, 0
        for piece in pieces:
            self._file.write(piece)
            size, crc = size + len(piece), zlib.crc32(piece, crc)
        entry = ZipMember(name, size, crc, self._offset)
        self._file.seek(self._offset)
        self._file.write(entry.header)
        self._entries.append(entry)
        self._offset = entry.end

    def finish(self) -> None:
        self._file.seek(self._offset)
        size = 0
        for entry in self._entries:
            size += self._file.write(entry.listed)
        self._file.write(_end(len(self._entries), self._offset, size))
        self._file.flush()


class _FolderSink:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str, pieces: Iterable[bytes]) -> None:
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            for piece in pieces:
                file.write(piece)


def reading(path: Path | str) -> PartSource:
    """The parts of a pack that somebody gave us. Raises InputError where there is none, BadPack."""
    path = Path(path)
    try:
        if path.is_dir():
            return _FolderParts(path)
        return _ZipParts(path)
    except FileNotFoundError:
        raise InputError(f"there is no pack at {path}; give a file or a folder that `memos dump` has made") from None
    except (OSError, ValueError) as error:  # a NUL in its name is a ValueError
        raise InputError(f"{str(path)!r} cannot be read ({error}); give a file or a folder that may be read") from error


class _ZipParts:
    def __init__(self, path: Path) -> None:
        if not S_ISREG(path.stat().st_mode):
            raise bad(path, "it is neither a file nor a folder")
        self._path, self._file = path, path.open("rb")
        try:
            self._entries = {entry.name: entry for entry in self._listed()}
        except BaseException:
            self._file.close()
            raise
        self.sizes = {name: entry.size for name, entry in self._entries.items()}
        require_names(self.sizes, path)

    def close(self) -> None:
        self._file.close()

    def _listed(self) -> list[ZipMember]:
        """Every entry of the central directory, which must be just what the writer would have written."""
        whole = os.fstat(self._file.fileno()).st_size
        if whole < _END.size:
            raise bad(self._path, "it is cut short, or no pack")
        tail = self._read(whole - _END.size, _END.size)
        numbers = _END.unpack(tail)
        parts, size, start = numbers[6], numbers[8], numbers[9]
        if tail != _end(parts, start, size) if max(parts, size, start) < 1 << 62 else True:
            raise bad(self._path, "it does not end as a pack does: it is cut short, changed, or no pack")
        if parts > MAX_PARTS:
            raise bad(self._path, f"it has {parts:,} parts, and at most {MAX_PARTS:,} are read")
        if start + size + _END.size != whole or size > parts * (_CENTRAL.size + _CENTRAL_MORE.size + MAX_NAME):
            raise bad(self._path, "its parts and their list do not add up to its size")
        listing, place, expected = self._read(start, size), 0, 0
        entries = []
        for _ in range(parts):
            entry, place = self._entry(listing, place, expected)
            entries.append(entry)
            expected = entry.end
        if place != size or expected != start:
            raise bad(self._path, "there is something between its parts or after their list")
        if len({entry.name for entry in entries}) < parts:
            raise bad(self._path, "two of its parts have the same name")
        return entries

    def _entry(self, listing: bytes, place: int, offset: int) -> tuple[ZipMember, int]:
        """The entry listed at `place`, whose header stands at `offset` in the file; and the next place."""
        fixed = listing[place : place + _CENTRAL.size]
        if len(fixed) < _CENTRAL.size:
            raise bad(self._path, "the list of its parts is cut short")
        numbers = _CENTRAL.unpack(fixed)
        crc, length = numbers[7], numbers[10]
        after = place + _CENTRAL.size + length
        name, more = listing[place + _CENTRAL.size : after], listing[after : after + _CENTRAL_MORE.size]
        if len(more) < _CENTRAL_MORE.size or length > MAX_NAME or not name.isascii():
            raise bad(self._path, "the name of a part is too long or not plain, or the list is cut short")
        entry = ZipMember(name.decode("ascii"), _CENTRAL_MORE.unpack(more)[2], crc, offset)
        if listing[place : after + _CENTRAL_MORE.size] != entry.listed:
            raise bad(self._path, f"the list's line of {entry.name!r} is not as a pack has it (compressed, or changed)")
        if self._read(offset, len(entry.header)) != entry.header:
            raise bad(self._path, f"the header of {entry.name!r} is not what the list says")
        return entry, after + _CENTRAL_MORE.size

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)

    def pieces(self, name: str) -> Iterator[bytes]:
        entry, crc = self._entries[name], 0
        offset, left = entry.end - entry.size, entry.size
        while left:
            piece = self._read(offset, min(PIECE_BYTES, left))
            if not piece:
                raise bad(self._path, f"it ends within {name}")
            offset, left, crc = offset + len(piece), left - len(piece), zlib.crc32(piece, crc)
            yield piece
        if crc != entry.crc:
            raise bad(self._path, f"{name} does not match its checksum")


class _FolderParts:
    def __init__(self, folder: Path) -> None:
        self._folder, self.sizes = folder, dict[str, int]()
        for root, folders, files in os.walk(folder):
            for name in (*folders, *files):
                path = Path(root) / name
                if path.is_symlink() or not (path.is_dir() or S_ISREG(path.lstat().st_mode)):
                    raise bad(folder, f"{name!r} in it is a link or a device")
            for name in files:
                path = Path(root) / name
                self.sizes[path.relative_to(folder).as_posix()] = path.lstat().st_size
                if len(self.sizes) > MAX_PARTS:
                    raise bad(folder, f"it has more than {MAX_PARTS:,} parts")
        require_names(self.sizes, folder)

    def close(self) -> None: ...

    def pieces(self, name: str) -> Iterator[bytes]:
        left = self.sizes[name]
        try:
            handle = os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise bad(self._folder, f"{name} cannot be read ({error})") from error
        with open(handle, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                left -= len(piece)
                if left < 0:
                    break
                yield piece
        if left:
            raise bad(self._folder, f"{name} changed while it was read")


def require_names(names: Iterable[str], path: Path) -> None:
    """Every name must be one that any file system keeps apart from the others, beneath the folder that it is put in.
    Raises BadPack."""
    seen, folders = set[str](), set[str]()
    for name in names:
        steps = name.split("/")
        plain = all(_STEP.fullmatch(s) and len(s) <= MAX_STEP and not s.endswith(".") for s in steps)
        if not plain or len(name) > MAX_NAME or any(s.split(".")[0].lower() in _DEVICES for s in steps):
            raise bad(path, f"a part is called {name[:MAX_NAME]!r}, which is no plain path beneath the pack")
        if not name.endswith(_KINDS):
            raise bad(path, f"its part {name} is of another kind than {', '.join(_KINDS)}")
        folded = name.lower()
        if folded in seen:
            raise bad(path, f"two of its parts are called {name!r}, or differ in case only")
        seen.add(folded)
        folders.update("/".join(steps[:n]).lower() for n in range(1, len(steps)))
    if both := seen & folders:
        raise bad(path, f"{min(both)!r} is a part and a folder of others")


def bad(path: Path | str, why: str) -> BadPack:
    return BadPack(f"{path} is refused: {why}; nothing was taken over, get the pack again from where it was made")
