"""Reads SQLite's write-ahead log from outside, and checks that everything committed there is whole.

SQLite itself takes a damaged frame for the end of the log, so that what was acknowledged after it would go without a
word. Knows the format of the file (sqlite.org/fileformat2.html, 4; walformat.html, 2.1); must not know what is in a
page.
"""

from __future__ import annotations

import os
import struct
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
_HEAD, _FRAME, _INDEX = 32, 24, 48  # bytes
_MAGIC = {0x377F0682: "<u4", 0x377F0683: ">u4"}  # the order of the bytes that checksums are over
_MODULUS = 1 << 32
_BATCH = 1024  # frames
_TRIES = 5
# Descriptors that stay open: with any that it closes, a process gives up all locks that it has on the file (POSIX), and
# SQLite's are on these.
_OPENED: dict[tuple[int, int], int] = {}
_MOST = 64  # of them; more vaults than a process has open


def problems(file: Path) -> list[str]:
    """What is wrong with the log of a database, in words; nothing where there is no log.

    The index of the log (-shm) says how many frames were committed; without it, as after a loss of power, a frame that
    was half written looks damaged.
    """
    wal = file.with_name(f"{file.name}-wal")
    found = list[str]()
    for _ in range(_TRIES):
        known = committed(file.with_name(f"{file.name}-shm"))
        try:
            found = _problems(wal, known)
        except FileNotFoundError:
            return []
        if not found or known == committed(file.with_name(f"{file.name}-shm")):
            return found  # else it was begun anew meanwhile
    return found


def is_empty(file: Path) -> bool:
    """True if all of the database is in its own file."""
    wal = file.with_name(f"{file.name}-wal")
    return not wal.exists() or wal.stat().st_size == 0


def _problems(wal: Path, known: tuple[int, bytes] | None) -> list[str]:
    with wal.open("rb") as log:
        head = log.read(_HEAD)
        frames, salts = known or (0, b"")
        if (known is not None and frames == 0) or not (head or frames):
            return []
        magic, _, page = struct.unpack(">3I", head[:12].ljust(12, b"\0"))
        order = _MAGIC.get(magic)
        if order is None or len(head) < _HEAD or not 512 <= page <= 65536 or page & (page - 1):
            return [f"{wal} is damaged in its head: the changes in it cannot be read"]
        state = tuple(int(word) for word in struct.unpack(">2I", head[24:]))
        if state != _step((0, 0), _contributions(np.frombuffer(head[:24], order)[None])[0], 3):
            return [f"{wal} is damaged in its head: the changes in it cannot be read"]
        if known is not None and salts != head[16:24]:
            frames, known = 0, None  # the index is of another log
        good, state, why = 0, state, ""
        while not why and (batch := log.read(_BATCH * (_FRAME + page))):
            whole = len(batch) // (_FRAME + page)
            part = np.frombuffer(batch, np.uint8)[: whole * (_FRAME + page)].reshape(whole, _FRAME + page)
            covered = np.concatenate([part[:, :8], part[:, _FRAME:]], 1).copy().view(order)
            for frame, given in zip(part, _contributions(covered), strict=True):
                state = _step(state, given, covered.shape[1] // 2)
                its, sums = frame[8:16].tobytes(), struct.unpack(">2I", frame[16:24].tobytes())
                if its != head[16:24] or sums != state:
                    why = "left" if _differ(its, head[16:24]) else "damaged"
                    break
                good += 1
            else:
                why = "cut off" if len(batch) % (_FRAME + page) else ""
    if good < frames:
        return [f"{wal} is damaged in frame {good + 1} of {frames}: the changes from there on cannot be read"]
    if known is None and why in ("damaged", "cut off"):
        return [f"{wal} is {why} in frame {good + 1}; what was not yet acknowledged when the power failed, if it did"]
    return []


def _differ(its: bytes, salts: bytes) -> bool:
    """True for a frame of the log before this one: then both salts differ."""
    return its[:4] != salts[:4] and its[4:] != salts[4:]


def committed(shm: Path) -> tuple[int, bytes] | None:
    """(frames, salts) of the index of the log; None where there is none that is whole."""
    try:
        of = shm.stat()
        if (of.st_dev, of.st_ino) not in _OPENED:
            _OPENED[of.st_dev, of.st_ino] = os.open(shm, os.O_RDONLY)
            if len(_OPENED) > _MOST:
                os.close(_OPENED.pop(next(iter(_OPENED))))
    except FileNotFoundError:
        return None
    copies = os.pread(_OPENED[of.st_dev, of.st_ino], 2 * _INDEX, 0)
    one, other = copies[:_INDEX], copies[_INDEX:]
    if len(other) < _INDEX or one != other or not one[12]:
        return None
    sums = _step((0, 0), _contributions(np.frombuffer(one[:40], "=u4")[None])[0], 5)
    if sums != struct.unpack("=2I", one[40:]):
        return None
    return struct.unpack("=I", one[16:20])[0], one[32:40]


def _contributions(words: npt.NDArray[np.uint32]) -> list[tuple[int, int]]:
    """What rows of words [rows, 2 n] add to a checksum. For words x, y: a += x + b; b += y + a."""
    weights = _weights(words.shape[1] // 2)
    x, y = words[:, 0::2].astype(np.uint32), words[:, 1::2].astype(np.uint32)
    ones, others = ((x * w[0] + y * w[1]).sum(axis=1, dtype=np.uint32) for w in weights)
    return list(zip(ones.tolist(), others.tolist(), strict=True))


def _step(state: tuple[int, ...], given: tuple[int, int], pairs: int) -> tuple[int, int]:
    (a, b), (c, d) = _power(pairs)
    one, other = state
    return (a * one + b * other + given[0]) % _MODULUS, (c * one + d * other + given[1]) % _MODULUS


@cache
def _power(n: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of the matrix ((1, 1), (1, 2)), which a pair of words takes a checksum through."""
    a, b, c, d = 1, 0, 0, 1
    for _ in range(n):
        a, b, c, d = (a + c) % _MODULUS, (b + d) % _MODULUS, (a + 2 * c) % _MODULUS, (b + 2 * d) % _MODULUS
    return (a, b), (c, d)


@cache
def _weights(n: int) -> tuple[tuple[Words, Words], tuple[Words, Words]]:
    """By how much the words x and y of each of n pairs count in either half of the checksum."""
    rows = []
    for i in range(n):
        (a, b), (c, d) = _power(n - 1 - i)
        rows.append((a + b, b, c + d, d))
    table = np.array(rows, np.uint64) % _MODULUS
    xa, ya, xb, yb = (table[:, i].astype(np.uint32) for i in range(4))
    return (xa, ya), (xb, yb)
