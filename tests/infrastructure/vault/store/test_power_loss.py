"""What was acknowledged is there after a loss of power, at any moment.

A file layer under SQLite (a VFS of its own, put in through ctypes) and under `os.fsync` and `os.fdatasync` writes down
every write, truncation, sync and folder listing. From this log the disk is made as it may be after a loss of power at
some moment: what was synced is there; of each 512 bytes that were not, and of truncations, chance decides, so that
writes are torn and come in any order. A name is there if its folder was synced since, a file beside SQLite's is empty
unless it was. Not covered: a disk that lies about its syncs, and one that spoils what it had written before.
"""

from __future__ import annotations

import ctypes
import os
import random
import stat
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memos.bench.vault import drawn
from memos.cube import Blob, Form, MemCube, Source
from memos.errors import NotFound
from memos.infrastructure.vault.mem_vault import MemVault
from memos.plugins.care.check import problems_of

pytestmark = pytest.mark.sqlite

_SECTOR = 512
_POINTER = ctypes.c_void_p


class _Vfs(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("version", "size", "longest")),
        *((name, _POINTER) for name in ("next", "name", "data", "open")),
        ("others", _POINTER * 15),
    ]


class _Methods(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_int),
        *((name, _POINTER) for name in ("close", "read", "write", "truncate", "sync")),
        ("others", _POINTER * 13),
    ]


_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER, _POINTER, ctypes.c_int, _POINTER)
_WRITE = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER, ctypes.c_int, ctypes.c_int64)
_TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_int64)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_int)


@dataclass(frozen=True)
class Written:
    """data: None cuts the file off at `at`."""

    inode: int
    at: int
    data: bytes | None


@dataclass(frozen=True)
class Synced:
    """All of the file that stands in the log before `upto`; content: of a file that SQLite does not write."""

    inode: int
    upto: int
    content: bytes | None


@dataclass(frozen=True)
class Listed:
    folder: int
    names: dict[str, tuple[int, bool]]  # inode, and whether it is a folder


class Recorder:
    """Everything that may decide what is on disk, in order; `log` takes the acknowledgements of the test too."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.inodes: dict[int, int] = {}  # of SQLite's open files, by their address
        self.lie = False  # syncs do nothing
        self._kept: list[Any] = []  # what SQLite points to
        self._patched: dict[int, int] = {}
        [library] = {
            line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "sqlite3.so" in line
        }
        self._sqlite = ctypes.CDLL(library)
        self._sqlite.sqlite3_vfs_find.restype = _POINTER
        self._unix = self._sqlite.sqlite3_vfs_find(None)

    def __enter__(self) -> Recorder:
        unix = _Vfs.from_address(self._unix)
        mine = _Vfs.from_buffer_copy(unix)
        name = ctypes.create_string_buffer(b"recording")
        opens = _OPEN(self._opener(_OPEN(unix.open)))
        mine.next, mine.name, mine.open = None, ctypes.addressof(name), ctypes.cast(opens, _POINTER).value
        self._kept += [mine, name, opens]
        assert self._sqlite.sqlite3_vfs_register(ctypes.byref(mine), 1) == 0
        self._fsync, self._fdatasync = os.fsync, os.fdatasync
        os.fsync, os.fdatasync = self._syncer(os.fsync), self._syncer(os.fdatasync)
        return self

    def __exit__(self, *_: object) -> None:
        os.fsync, os.fdatasync = self._fsync, self._fdatasync
        self._sqlite.sqlite3_vfs_unregister(ctypes.byref(self._kept[0]))
        assert self._sqlite.sqlite3_vfs_register(_POINTER(self._unix), 1) == 0

    def _opener(self, real: Any) -> Any:
        def opens(vfs: int, name: int | None, file: int, flags: int, out: int | None) -> int:
            code = real(vfs, name, file, flags, out)
            if code == 0 and name:
                self.inodes[file] = os.stat(ctypes.string_at(name)).st_ino
                methods = _POINTER.from_address(file)
                methods.value = self._patch(methods.value or 0)
            return code

        return opens

    def _patch(self, address: int) -> int:
        """SQLite's own methods for a file, with three of them watched."""
        if address in self._patched.values():
            return address
        if address not in self._patched:
            methods = _Methods.from_address(address)
            mine = _Methods.from_buffer_copy(methods)
            write, truncate, sync = _WRITE(methods.write), _TRUNCATE(methods.truncate), _SYNC(methods.sync)

            def writes(file: int, data: int, size: int, at: int) -> int:
                code = write(file, data, size, at)
                self.log.append(Written(self.inodes[file], at, ctypes.string_at(data, size)))
                return code

            def truncates(file: int, at: int) -> int:
                code = truncate(file, at)
                self.log.append(Written(self.inodes[file], at, None))
                return code

            def syncs(file: int, flags: int) -> int:
                upto = len(self.log)
                code = sync(file, flags)
                self.log.append(Synced(self.inodes[file], upto, None))
                return code

            watched = _WRITE(writes), _TRUNCATE(truncates), _SYNC(syncs)
            mine.write, mine.truncate, mine.sync = (ctypes.cast(one, _POINTER).value for one in watched)
            self._kept += [mine, watched, write, truncate, sync]
            self._patched[address] = ctypes.addressof(mine)
        return self._patched[address]

    def _syncer(self, real: Any) -> Any:
        def sync(file: int) -> None:
            if self.lie:
                return
            upto, found = len(self.log), os.fstat(file)
            path = Path(os.readlink(f"/proc/self/fd/{file}"))
            if stat.S_ISDIR(found.st_mode):
                names = {one.name: (one.inode(), one.is_dir()) for one in os.scandir(path)}
                entry: Any = Listed(found.st_ino, names)
            else:
                content = None if _by_sqlite(path.name) else path.read_bytes()
                entry = Synced(found.st_ino, upto, content)
            real(file)
            self.log.append(entry)

        return sync


def _by_sqlite(name: str) -> bool:
    return name.endswith((".db", "-wal", "-journal"))


def disk_after(log: list[Any], folder: int, to: Path, rng: random.Random) -> None:
    """Make the folder with this inode as it may be where the power went off after `log`."""
    listed: dict[int, dict[str, tuple[int, bool]]] = {}
    safe, contents = dict[int, int](), dict[int, bytes]()
    for entry in log:
        match entry:
            case Listed():
                listed[entry.folder] = entry.names
            case Synced(content=None):
                safe[entry.inode] = max(safe.get(entry.inode, 0), entry.upto)
            case Synced():
                contents[entry.inode] = entry.content
    files: dict[int, bytearray] = {}
    for n, entry in enumerate(log):
        if isinstance(entry, Written):
            _apply(files.setdefault(entry.inode, bytearray()), entry, n < safe.get(entry.inode, 0), rng)

    def make(inode: int, path: Path) -> None:
        path.mkdir()
        for name, (child, is_folder) in listed.get(inode, {}).items():
            if is_folder:
                make(child, path / name)
            elif not name.endswith("-shm"):
                (path / name).write_bytes(files.get(child, b"") if _by_sqlite(name) else contents.get(child, b""))

    make(folder, to)


def _apply(file: bytearray, entry: Written, safe: bool, rng: random.Random) -> None:
    if entry.data is None:
        if safe or rng.random() < 0.5:
            del file[entry.at :]
        return
    for start in range(0, len(entry.data), _SECTOR):
        if safe or rng.random() < 0.5:
            part, at = entry.data[start : start + _SECTOR], entry.at + start
            file.extend(bytes(max(0, at + len(part) - len(file))))
            file[at : at + len(part)] = part


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    if sys.platform != "linux" or "sqlite3.so" not in Path("/proc/self/maps").read_text():
        pytest.skip("Python's SQLite is not a library of its own here, so that no file layer can be put under it")
    with Recorder() as recording:
        yield recording


@dataclass(frozen=True)
class Kept:
    cube: MemCube


@dataclass(frozen=True)
class Gone:
    cube: MemCube


def write(vault: MemVault, rng: random.Random, log: list[Any], times: int, deletions: bool = True) -> None:
    """Add, edit, derive and delete; each into the log once it was acknowledged."""
    mine: list[MemCube] = []
    for _ in range(times):
        made = drawn(rng, rng.choice([1, 1, 4]))
        vault.put(*made)
        log += map(Kept, made)
        mine += made
        source = mine[rng.randrange(len(mine))]
        if rng.random() < 0.3:
            with vault.blobs.staging() as path:
                path.write_bytes(rng.randbytes(3000))
                sha256, size = vault.blobs.store(path)
                payload = Blob(sha256=sha256, bytes=size, fingerprint="none")
                update = {"form": Form.ACTIVATION, "payload": payload, "sources": (Source(id=source.id, version=1),)}
                [cube] = drawn(rng, 1)
                vault.put(cube := cube.model_copy(update=update))
            log.append(Kept(cube))
        if deletions and rng.random() < 0.1:
            doomed = [source, *vault.derived(source.id)]
            log.append(("doomed", [cube.id for cube in doomed]))
            vault.delete([cube.id for cube in doomed])
            log += map(Gone, doomed)
            mine.remove(source)


def losses(log: list[Any], path: Path) -> list[str]:
    """What was acknowledged in the log and is not so in the vault."""
    kept = {entry.cube.id: entry.cube for entry in log if isinstance(entry, Kept)}
    begun = {id for entry in log if isinstance(entry, tuple) for id in entry[1]}
    gone = [entry.cube for entry in log if isinstance(entry, Gone)]
    wrong = []
    with MemVault(path) as vault:
        for id, cube in kept.items():
            if id in begun:
                continue  # it may be there, or gone
            try:
                found = vault.get(id)
                if found.blob:
                    vault.blobs.path(found.blob)
                if found != cube:
                    wrong.append(f"{id} is another")
            except NotFound:
                wrong.append(f"{id} is lost")
        wrong += [f"{cube.id} is back" for cube in gone if vault.at([cube.id])]
        wrong += problems_of(vault)
    on_disk = b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())
    return wrong + [f"{cube.id} left its text" for cube in gone if cube.text and cube.text.encode() in on_disk]


@pytest.mark.crash
@pytest.mark.parametrize(
    "seed", [0, 1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_what_was_acknowledged_outlives_a_loss_of_power(tmp_path: Path, recorder: Recorder, seed: int) -> None:
    rng = random.Random(seed)
    with MemVault(tmp_path / "vault") as vault:
        began = len(recorder.log)
        vault._db._db.execute("PRAGMA wal_autocheckpoint = 60")  # and so checkpoints too, often
        threads = [
            threading.Thread(target=write, args=(vault, random.Random(f"{seed} {n}"), recorder.log, 15))
            for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        inode = vault.path.stat().st_ino
        log = list(recorder.log)
    assert sum(isinstance(entry, Kept) for entry in log) > 45 and any(isinstance(entry, Gone) for entry in log)
    for n in range(15):
        end = rng.randrange(began, len(log) + 1)
        disk_after(log[:end], inode, tmp_path / f"disk{n}", rng)
        assert losses(log[:end], tmp_path / f"disk{n}") == []


@pytest.mark.crash
def test_the_layer_finds_a_write_that_was_acknowledged_too_early(tmp_path: Path, recorder: Recorder) -> None:
    with MemVault(tmp_path / "vault") as vault:
        recorder.lie = True  # of `os.fdatasync`, which the vault calls; SQLite syncs by itself only what it checkpoints
        write(vault, random.Random(0), recorder.log, 3, deletions=False)
        recorder.lie = False
        log = list(recorder.log)
        disk_after(log, vault.path.stat().st_ino, tmp_path / "disk", random.Random(0))
    assert any("lost" in problem for problem in losses(log, tmp_path / "disk"))
