"""Turns a cube into rows that follow from its versions and transitions, so that tables can be checked and rebuilt.

Knows cubes and columns; must not know a database.
"""

from __future__ import annotations

import hashlib
import struct
from datetime import datetime, timezone

import xxhash

from memos.cube import MemCube, Text, plain

_LENGTH = struct.Struct("<Q").pack
# of `head`, in order
HEAD = ("version", "form", "segment", "user_id", "expires", "words", "tags")


def head(cube: MemCube) -> tuple[int | str | None, ...]:
    """The columns HEAD of the current version of a cube."""
    about = cube.header
    text = words(cube.text) if cube.text else ""
    place = (cube.form.value, about.segment, cube.namespace.user_id)
    return cube.version, *place, kept(about.expires), text, "\n".join(about.tags)


def facts(cube: MemCube) -> list[tuple[str, ...]]:
    """Rows (id, user_id, subject, relation, object, mode)."""
    found = cube.payload.facts if isinstance(cube.payload, Text) else ()
    about = ((f.subject.casefold(), f.relation, f.object.casefold(), f.mode) for f in found)
    return [(cube.id, cube.namespace.user_id, *fact) for fact in about]


def sources(cube: MemCube) -> list[tuple[str, str, int]]:
    """Rows (derived id, source id, source version); one source named twice is one."""
    first = {source.id: source.version for source in reversed(cube.sources)}
    return [(cube.id, id, version) for id, version in first.items()]


def words(text: str) -> str:
    """A digest of a text's words, the same for all texts that differ in case, spaces and punctuation only."""
    return hashlib.sha256(plain(text).encode()).hexdigest()[:32]


def kept(when: datetime | None) -> str | None:
    """A time as it is kept, so that it sorts as text."""
    return None if when is None else when.astimezone(timezone.utc).isoformat()


def checksum(*values: str | int | bytes) -> str:
    """Of the values of a row that is not changed once it is written. Against accidents, not against people."""
    digest = xxhash.xxh3_128()
    for value in values:
        part = value if isinstance(value, bytes) else str(value).encode()
        digest.update(_LENGTH(len(part)))
        digest.update(part)
    return str(digest.hexdigest())
