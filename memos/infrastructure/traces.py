"""Whether bytes are anywhere in the files of a folder. Must not know what they mean.

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
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memos.errors import VaultError

_KEY = 8  # bytes that are looked up
_PIECE, _STEP = 64, 256  # of tensors: so many bytes, from every so many
_MOST = 1 << 14  # pieces of one tensor
_PHRASE = 32  # bytes of a part of a long text
_BLOCK = 1 << 24  # bytes of a file at once
_VARIED = 6  # different bytes that a key must have at least: rows of zeros are everywhere


@dataclass(frozen=True)
class Searched:
    """What was looked through, for how many pieces, and where one was found: (file, place)."""

    files: int
    bytes: int
    pieces: int
    found: tuple[tuple[str, int], ...]


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


def search(folder: Path, pieces: Iterable[bytes], excused: Callable[[bytes], bool] = lambda _: False) -> Searched:
    """Look for every piece in every file beneath the folder. excused: True for one that may be there.

    In a process of its own: with any descriptor of a file that it closes, a process gives up all locks that it has on
    it (POSIX), and SQLite's are on some of these.
    """
    wanted = sorted({piece for piece in pieces if piece})
    asked = json.dumps({"folder": str(folder), "pieces": [piece.hex() for piece in wanted]})
    safe = ["-P"] if sys.version_info >= (3, 11) else []  # the folder that the user stands in is not imported from
    command = [sys.executable, *safe, "-m", "memos.infrastructure.traces"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise VaultError(f"{folder} could not be searched ({done.stderr.strip()[-200:]}); try again")
    told, allowed = json.loads(done.stdout), lru_cache(maxsize=None)(excused)
    hits = [(name, at) for name, at, piece in told["hits"] if not allowed(bytes.fromhex(piece))]
    return Searched(told["files"], told["bytes"], len(wanted), tuple(dict.fromkeys(hits)))


def _hits(folder: Path, wanted: Sequence[bytes]) -> dict[str, Any]:
    """How many files there are, of how many bytes, and where in them which piece is."""
    long = [piece for piece in wanted if len(piece) >= _KEY]
    short = [piece for piece in wanted if len(piece) < _KEY]
    by_key: dict[int, list[bytes]] = {}
    for piece in long:
        by_key.setdefault(int.from_bytes(piece[:_KEY], "little"), []).append(piece)
    keys = np.array(sorted(by_key), np.uint64)
    found, files, size = list[tuple[str, int, str]](), 0, 0
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()):
        with suppress(FileNotFoundError), path.open("rb") as file:  # it may go meanwhile
            files, size = files + 1, size + os.fstat(file.fileno()).st_size
            if not os.fstat(file.fileno()).st_size:
                continue
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                hits = [
                    (at, p) for at, key in _places(content, keys) for p in by_key[key] if content[at : at + len(p)] == p
                ]
                hits += [(at, piece) for piece in short if (at := content.find(piece)) >= 0]
            found += [(str(path.relative_to(folder)), at, piece.hex()) for at, piece in sorted(hits)]
    return {"files": files, "bytes": size, "hits": found}


def _places(content: mmap.mmap, keys: npt.NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
    """(place, key) of every key in a file."""
    if not len(keys):
        return
    for begin in range(0, len(content), _BLOCK):
        block = content[begin : begin + _BLOCK + _KEY - 1]
        for shift in range(_KEY):
            words = (
                np.frombuffer(block, "<u8", (len(block) - shift) // _KEY, shift) if len(block) >= shift + _KEY else ()
            )
            if not len(words):
                continue
            at = np.searchsorted(keys, words)
            hits = np.flatnonzero(keys[np.minimum(at, len(keys) - 1)] == words)
            yield from ((begin + shift + int(hit) * _KEY, int(words[hit])) for hit in hits)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps(_hits(Path(asked["folder"]), [bytes.fromhex(piece) for piece in asked["pieces"]])))
