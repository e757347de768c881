"""Reads SQLite's write-ahead log from outside, and checks that everything committed there is whole.

SQLite itself takes a damaged frame for the end of the log, so that what was acknowledged after it would go without a
word. Knows the format of the file (sqlite.org/fileformat2.html, 4; walformat.html, 2.1); must not know what is in a
page.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

_HEAD, _FRAME, _INDEX = 32, 24, 48  # bytes
_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}  # the order of the bytes that checksums are over
_WORD = 0xFFFFFFFF
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
        state = _sums((0, 0), head[:24], order)
        if state != struct.unpack(">2I", head[24:]):
            return [f"{wal} is damaged in its head: the changes in it cannot be read"]
        if known is not None and salts != head[16:24]:
            frames, known = 0, None  # the index is of another log
        good, why = 0, ""
        while frame := log.read(_FRAME + page):
            if len(frame) < _FRAME + page:
                why = "cut off"
                break
            state = _sums(_sums(state, frame[:8], order), frame[_FRAME:], order)
            if frame[8:16] != head[16:24] or state != struct.unpack(">2I", frame[16:24]):
                why = "left" if _differ(frame[8:16], head[16:24]) else "damaged"
                break
            good += 1
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
    sums = _sums((0, 0), one[:40], "=")
    if sums != struct.unpack("=2I", one[40:]):
        return None
    return struct.unpack("=I", one[16:20])[0], one[32:40]


def _sums(state: tuple[int, int], data: bytes, order: str) -> tuple[int, int]:
    """A checksum of words, taken further; order: of their bytes."""
    one, other = state
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for x, y in zip(words, words, strict=True):
        one = (one + x + other) & _WORD
        other = (other + y + one) & _WORD
    return one, other
