"""The files beside vault.db in an encrypted vault: sealed on disk, in the clear in memory only.

blobs/ab/<name>   sealed; the name is the payload's digest under the key: the digest itself would confirm a guess
index/, work/     sealed; work/ is what interrupted jobs can be taken up from, after the vault was closed

<scratch>/memos-<user>-<vault>/           on a file system in memory, for this user alone
    work/<job>/                           of jobs
    <an opening of the vault>/staged/     payloads being written
    <an opening of the vault>/lent/       payloads being read
"""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from memos.cube import new_id
from memos.errors import CorruptBlob, VaultError
from memos.infrastructure.vault.blobs.vault_files import SUFFIX, FileFormat, made, remove, remove_others
from memos.plugins.encryption.sealed_file import CHUNK, Unsealed, sealing
from memos.plugins.encryption.vault_key import DataKey

log = logging.getLogger("memos")
MEMORY = Path("/dev/shm")  # Linux's file system in memory
_LENT_S = 60.0  # what was lent must have been opened by then
_LENGTH = 4  # bytes that say how long the list of a folder's files is
_SHARE = 0.5  # of the file system's room for files that are lent


class SealedFormat:
    """A `FileFormat`: authenticated, under names that do not tell a payload's digest."""

    def __init__(self, key: DataKey) -> None:
        self._key, self._siv = key.made("files"), AESSIV(key.made("names", 64))

    def name(self, sha256: str) -> str:
        return self._siv.encrypt(bytes.fromhex(sha256), None).hex()

    def sha256(self, name: str) -> str:
        try:
            return self._siv.decrypt(bytes.fromhex(name), None).hex()
        except (ValueError, InvalidTag):
            return ""

    def problem(self, stored: Path, sha256: str) -> bool:
        try:
            with self.reading(stored, f"blobs/{sha256}") as file:
                for _ in file.chunks():
                    pass
        except (CorruptBlob, OSError):
            return True
        return False

    def reading(self, stored: Path, what: str) -> Unsealed:
        return Unsealed(stored, self._key, what)

    def writing(self, stored: Path, what: str) -> AbstractContextManager[Callable[[bytes], object]]:
        return sealing(stored, self._key, what)


class SealedFiles:
    """Thread safe. Payloads that are folders (adapters) stay lent while the vault is open: they are small, and read
    again and again; of files (KV), which are opened at once, the least recently used makes room."""

    def __init__(self, folder: Path, key: DataKey, scratch: Path | None, alone: bool) -> None:
        """folder: of the vault. alone: nobody else has it open, so that what others left in memory is removed.

        Raises VaultError where there is no place for plaintext.
        """
        self._folder, self._seals = folder, SealedFormat(key)
        self.format: FileFormat = self._seals
        self._base = _own_folder(scratch, key.made("scratch", 8).hex())
        self._mine = self._base / new_id()
        self._lock = threading.Lock()
        self._lent: OrderedDict[str, tuple[int, float]] = OrderedDict()  # files: bytes, and when they were lent last
        if alone:
            remove_others(self._base, {"work"})
        self._mine.mkdir()
        self._leave = weakref.finalize(self, remove, self._mine)  # where nobody closes the vault, as the process ends

    @property
    def staged(self) -> Path:
        return self._mine / "staged"

    @property
    def beside(self) -> tuple[Path, ...]:
        return (self._base,)

    def work(self, job: str) -> Path:
        """What was sealed when the vault was closed is opened again."""
        sealed, path, part = self._folder / "work" / job, self._base / "work" / job, self._mine / "work.part"
        with self._lock:
            if sealed.exists() and not path.exists():
                try:
                    self._unseal(sealed, part, f"work/{job}")
                    part.rename(made(path.parent) / job)
                except CorruptBlob as error:
                    log.warning("%s; its job begins anew", error)
                finally:
                    remove(part)
            remove(sealed)
            return made(path)

    def keep(self, path: Path, sha256: str) -> Path:
        stored = made(self._folder / "tmp") / (new_id() + ("" if path.is_dir() else SUFFIX))
        try:
            self._seal(path, stored, f"blobs/{sha256}")
        except OSError as error:
            remove(stored)
            raise VaultError(
                f"{stored} was not written ({error.strerror}); nothing of this payload is stored, make sure that the "
                f"disk has room, and try again"
            ) from error
        return stored

    def lend(self, stored: Path, sha256: str) -> Path:
        path = self._mine / "lent" / (sha256 + stored.suffix)
        with self._lock:
            if not path.exists():
                part = self._mine / f"{sha256}.part"
                try:
                    self._make_room(stored.stat().st_size)
                    self._unseal(stored, part, f"blobs/{sha256}")
                    part.rename(made(path.parent) / path.name)
                finally:
                    remove(part)
            if path.is_file():
                self._lent[sha256] = path.stat().st_size, time.monotonic()
                self._lent.move_to_end(sha256)
        return path

    def forget(self, sha256: str) -> None:
        with self._lock:
            self._lent.pop(sha256, None)
        for path in self._base.glob(f"*/lent/{sha256}*"):
            remove(path)

    def has_work(self, job: str = "") -> bool:
        return any(any((base / "work" / job).glob("*")) for base in (self._base, self._folder))

    def clear_work(self, keep: set[str]) -> None:
        for base in (self._base, self._folder):
            remove_others(base / "work", keep)

    def close(self, alone: bool) -> None:
        self._leave()
        if alone:
            for job in (self._base / "work").glob("*"):
                if any(job.iterdir()):
                    self._seal(job, made(self._folder / "work") / job.name, f"work/{job.name}")
            remove(self._base)

    def _make_room(self, more: int) -> None:
        """Whoever reads a file that goes here has it open, and reads on."""
        disk, now = os.statvfs(self._mine), time.monotonic()
        room = disk.f_blocks * disk.f_frsize * _SHARE
        while self._lent and sum(size for size, _ in self._lent.values()) + more > room:
            oldest, (_, since) = next(iter(self._lent.items()))
            if now - since < _LENT_S:
                return
            del self._lent[oldest]
            remove(self._mine / "lent" / f"{oldest}.safetensors")

    def _seal(self, path: Path, stored: Path, what: str) -> None:
        """A file, or a folder as one file without a suffix: the names and bytes of what is in it, and then that."""
        parts = sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else [path]
        with self.format.writing(stored, what) as write:
            if path.is_dir():
                told = json.dumps([(part.relative_to(path).as_posix(), part.stat().st_size) for part in parts]).encode()
                write(len(told).to_bytes(_LENGTH, "big") + told)
            for part in parts:
                with part.open("rb") as file:
                    while chunk := file.read(CHUNK):
                        write(chunk)

    def _unseal(self, stored: Path, path: Path, what: str) -> None:
        """Raises CorruptBlob, VaultError."""
        try:
            with self._seals.reading(stored, what) as sealed:
                if stored.suffix:
                    _write(path, sealed.chunks())
                    return
                path.mkdir()
                told = sealed.read(int.from_bytes(sealed.read(_LENGTH) or b"", "big")) or b""
                for name, size in json.loads(told):
                    part = path / name
                    part.parent.mkdir(parents=True, exist_ok=True)
                    _write(part, (sealed.read(min(CHUNK, size - at)) or b"" for at in range(0, size, CHUNK)))
                for _ in sealed.chunks():  # nothing is left; the last chunk is read, which tells that this is the end
                    pass
        except FileNotFoundError as error:
            raise CorruptBlob(f"{stored} is gone") from error
        except OSError as error:
            raise VaultError(
                f"{stored} cannot be opened to {path} ({error.strerror}); make room there, or set vault.scratch to a "
                f"folder on a larger file system in memory"
            ) from error


def _write(path: Path, content: Iterable[bytes | memoryview]) -> None:
    with path.open("wb") as file:
        for chunk in content:
            file.write(chunk)


def _own_folder(scratch: Path | None, vault: str) -> Path:
    """A folder that nobody else can look into. Raises VaultError."""
    root = scratch or MEMORY
    if not root.is_dir():
        raise VaultError(
            f"{root} is no folder, and an encrypted vault needs one for payloads in the clear; set vault.scratch to a "
            f"folder on a file system in memory (macOS: one made with `diskutil` on a `hdiutil attach -nomount ram://`)"
        )
    folder = root / f"memos-{os.getuid()}-{vault}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        told = folder.lstat()
    except OSError as error:
        raise VaultError(f"{folder} cannot be made ({error.strerror}); set vault.scratch to another folder") from error
    if not stat.S_ISDIR(told.st_mode) or told.st_uid != os.getuid() or stat.S_IMODE(told.st_mode) & 0o077:
        raise VaultError(
            f"{folder} is open to others, and payloads would lie there in the clear; remove it, or set vault.scratch "
            f"to another folder"
        )
    return folder
