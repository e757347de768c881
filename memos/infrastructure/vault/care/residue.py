"""Searches the files of folders for bytes that must be gone, in the decrypted contents of an encrypted vault too.

Must not know what the bytes mean.

The first 8 bytes of each piece are looked up at all places of a file at once; where they stand, the piece is compared.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from memos.errors import CorruptBlob, VaultError

_KEY = 8  # bytes that are looked up
_PIECE, _STEP = 64, 256  # of tensors: so many bytes, from every so many
_MOST = 1 << 14  # pieces of one tensor
_PHRASE = 32  # bytes of a part of a long text
_BLOCK = 1 << 24  # bytes of a file at once
_TRIES = 3  # at what does not fit its proof: it may just be written
_VARIED = 6  # different bytes that a key must have at least: rows of zeros are everywhere


class Unsealer(NamedTuple):
    """How another process reads what sealed files say: `pieces(path, secret)` of a module gives their content, or None
    for a file that is not sealed."""

    module: str
    secret: str


@dataclass(frozen=True)
class Searched:
    """What was looked through, for how many pieces, and where one was found: (file, place).

    decrypted: of the files, those that were also looked through as what they say; unread: those of which that could not
    be done, and why.
    """

    files: int
    bytes: int
    pieces: int
    found: tuple[tuple[str, int], ...]
    decrypted: int = 0
    unread: tuple[str, ...] = ()


def pieces_of(data: bytes) -> Iterator[bytes]:
    """Parts of a tensor by which any of it is found; one whose bytes are alike is left out."""
    for start in range(0, len(data), max(_STEP, len(data) // _MOST)):
        piece = data[start : start + _PIECE]
        if len(set(piece[:_KEY])) >= _VARIED and len(piece) >= 2 * _KEY:
            yield piece


def phrases_of(text: bytes) -> Iterator[bytes]:
    """A text, and the parts of a long one."""
    yield text
    if len(text) >= 2 * _PHRASE:
        yield from (text[start : start + _PHRASE] for start in range(0, len(text) - _PHRASE + 1, _PHRASE))


def search(
    folder: Path,
    pieces: Iterable[bytes],
    excused: Callable[[bytes], bool] = lambda _: False,
    unsealer: Unsealer | None = None,
    beside: Iterable[Path] = (),
) -> Searched:
    """Look for every piece in every file beneath the folder, and the folders `beside` it. excused: True for one that
    may be there. unsealer: of an encrypted vault, whose files are looked through as what they say, too.

    In a process of its own: with any descriptor of a file that it closes, a process gives up all locks that it has on
    it (POSIX), and SQLite's are on some of these.
    """
    wanted = sorted({piece for piece in pieces if piece})
    asked = {"folders": [str(folder), *map(str, beside)], "pieces": [*map(bytes.hex, wanted)], "unsealer": unsealer}
    safe = ["-P"] if sys.version_info >= (3, 11) else []  # the folder that the user stands in is not imported from
    command = [sys.executable, *safe, "-m", "memos.infrastructure.vault.care.residue"]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    if done.returncode:
        raise VaultError(f"{folder} could not be searched ({done.stderr.strip()[-200:]}); try again")
    told, allowed = json.loads(done.stdout), lru_cache(maxsize=None)(excused)
    hits = [(name, at) for name, at, piece in told["hits"] if not allowed(bytes.fromhex(piece))]
    found = tuple(dict.fromkeys(hits))
    return Searched(told["files"], told["bytes"], len(wanted), found, told["decrypted"], tuple(told["unread"]))


class _Wanted:
    """The pieces, ready to be looked for."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._short = [piece for piece in pieces if len(piece) < _KEY]
        self._by_key: dict[int, list[bytes]] = {}
        for piece in pieces:
            if len(piece) >= _KEY:
                self._by_key.setdefault(int.from_bytes(piece[:_KEY], "little"), []).append(piece)
        self._keys = np.array(sorted(self._by_key), np.uint64)
        self.longest = max(map(len, pieces), default=0)

    def within(self, content: mmap.mmap | bytes) -> Iterator[tuple[int, bytes]]:
        """(place, piece); of a short one its first place alone."""
        for at, key in _places(content, self._keys):
            yield from ((at, piece) for piece in self._by_key[key] if content[at : at + len(piece)] == piece)
        yield from ((at, piece) for piece in self._short if (at := content.find(piece)) >= 0)

    def along(self, parts: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """The same of what comes in parts; what lies over the end of one is found, and may be told twice."""
        block, begin = bytearray(), 0
        for part in parts:
            block += part
            if len(block) >= _BLOCK:
                yield from ((begin + at, piece) for at, piece in self.within(bytes(block)))
                done = max(0, len(block) - max(self.longest, _KEY))
                del block[:done]
                begin += done
        yield from ((begin + at, piece) for at, piece in self.within(bytes(block)))


def _hits(folders: Sequence[Path], wanted: _Wanted, unsealer: Unsealer | None) -> dict[str, Any]:
    """How many files there are, of how many bytes, and where in them which piece is."""
    found, unread, files, size, decrypted = list[tuple[str, int, str]](), list[str](), 0, 0, 0
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()):
            name = str(path.relative_to(folder))
            with suppress(FileNotFoundError):  # it may go meanwhile
                with path.open("rb") as file:
                    files, size = files + 1, size + os.fstat(file.fileno()).st_size
                    if not os.fstat(file.fileno()).st_size:
                        continue
                    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                        hits = {*wanted.within(content)}
                said, why = _hits_unsealed(path, unsealer, wanted) if unsealer else (None, "")
                decrypted += said is not None
                unread += [f"{name}: {why}"] if why else []
                found += [(name, at, piece.hex()) for at, piece in sorted(hits | (said or set()))]
    return {"files": files, "bytes": size, "hits": found, "decrypted": decrypted, "unread": unread}


def _hits_unsealed(path: Path, unsealer: Unsealer, wanted: _Wanted) -> tuple[set[tuple[int, bytes]] | None, str]:
    """What is found in what an encrypted file says, or why that cannot be told; (None, "") for one that is not
    encrypted."""
    pieces = import_module(unsealer.module).pieces
    why = ""
    for _ in range(_TRIES):
        try:
            parts = pieces(path, unsealer.secret)
            return (None if parts is None else {*wanted.along(parts)}), ""
        except CorruptBlob as error:
            why = str(error)
    return None, why


def _places(content: mmap.mmap | bytes, keys: npt.NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
    """(place, key) of every key in a file."""
    if not len(keys):
        return
    for begin in range(0, len(content), _BLOCK):
        block = content[begin : begin + _BLOCK + _KEY - 1]
        for shift in range(min(_KEY, len(block) - _KEY + 1)):
            words = np.frombuffer(block, "<u8", (len(block) - shift) // _KEY, shift)
            at = np.searchsorted(keys, words)
            hits = np.flatnonzero(keys[np.minimum(at, len(keys) - 1)] == words)
            yield from ((begin + shift + int(hit) * _KEY, int(words[hit])) for hit in hits)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    how = asked["unsealer"] and Unsealer(*asked["unsealer"])
    print(json.dumps(_hits([*map(Path, asked["folders"])], _Wanted([*map(bytes.fromhex, asked["pieces"])]), how)))
