"""Seals files with authenticated encryption in chunks, and opens them; knows bytes, not what they mean.

    magic (16 bytes) | salt (32 bytes) | chunk | chunk | ... | last chunk

A chunk is 256 KiB of plaintext (the last one what is left) and AES-256-GCM's tag. Its nonce is its number and whether
it is the last (STREAM, Hoang, Reyhanitabar, Rogaway, Vizár, 2015/189), so a file that is cut, extended or reordered is
refused. Its key is made of the salt and of what the file is, so one in the place of another is refused.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from memos.errors import CorruptBlob

MAGIC = b"memos sealed 1\n\0"
_SALT, _TAG = 32, 16  # bytes
CHUNK = 1 << 18


@contextmanager
def sealing(path: Path, key: bytes, what: str) -> Iterator[Callable[[bytes], None]]:
    """Write a file; it is on disk when the block ends, and has no end where the block raises.

    what: the file is, which must be said again to read it.
    """
    head = MAGIC + os.urandom(_SALT)
    cipher, number, waiting = _cipher(key, head, what), 0, bytearray()
    with path.open("wb") as file:
        file.write(head)

        def write(content: bytes) -> None:
            nonlocal number
            waiting.extend(content)
            begin = 0
            while len(waiting) - begin > CHUNK:  # what just fills a chunk may be the last
                file.write(cipher.encrypt(_nonce(number, False), bytes(waiting[begin : begin + CHUNK]), head))
                number, begin = number + 1, begin + CHUNK
            del waiting[:begin]

        yield write
        file.write(cipher.encrypt(_nonce(number, True), bytes(waiting), head))
        file.flush()
        os.fsync(file.fileno())


class Unsealed(io.RawIOBase):
    """A sealed file to read from. Raises CorruptBlob for a byte that is not as it was written."""

    def __init__(self, path: Path, key: bytes, what: str) -> None:
        """Raises OSError, CorruptBlob."""
        self._path, self._number, self._last = path, 0, False
        self._file = path.open("rb", buffering=0)
        try:
            self._left = os.fstat(self._file.fileno()).st_size - len(MAGIC) - _SALT
            self._head = self._file.read(len(MAGIC) + _SALT) or b""
            if self._left < _TAG or not self._head.startswith(MAGIC):
                raise self._damaged()
        except BaseException:
            self._file.close()
            raise
        self._cipher, self._open = _cipher(key, self._head, what), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        """Fills the room, unless the file ends."""
        into, done = memoryview(room).cast("B"), 0
        while done < len(into):
            if not self._open and not self._advance():
                break
            part = self._open[: len(into) - done]
            into[done : done + len(part)] = part
            self._open, done = self._open[len(part) :], done + len(part)
        return done

    def chunks(self) -> Iterator[memoryview]:
        """What is left of the file."""
        while self._open or self._advance():
            yield self._open
            self._open = memoryview(b"")

    def close(self) -> None:
        self._file.close()
        super().close()

    def _advance(self) -> bool:
        if self._last:
            return False
        size = min(CHUNK + _TAG, self._left)
        self._left -= size
        self._last = not self._left
        sealed = bytearray(size)
        got, view = 0, memoryview(sealed)
        while got < size and (more := self._file.readinto(view[got:])):
            got += more
        try:
            if got < size:
                raise InvalidTag
            opened = self._cipher.decrypt(_nonce(self._number, self._last), sealed, self._head)
        except (InvalidTag, ValueError) as error:  # ValueError: shorter than a tag
            raise self._damaged() from error
        self._open, self._number = memoryview(opened), self._number + 1
        return bool(opened)

    def _damaged(self) -> CorruptBlob:
        return CorruptBlob(f"{self._path} is not as it was sealed with this vault's key; bring back a copy of it")


def _cipher(key: bytes, head: bytes, what: str) -> AESGCM:
    return AESGCM(HKDF(SHA256(), 32, head[len(MAGIC) :], f"memos file {what}".encode()).derive(key))


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])
