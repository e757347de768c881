"""What a record of a foreign file becomes: an entry, or the reason why there is none; knows no format."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from memos.cube import in_zone
from memos.errors import InputError
from memos.ops import Add

LONGEST_TEXT = 100_000  # characters of one memory
_LONGEST_NAME = 200  # characters of a speaker, a thread, a tag
_MOST_TAGS = 50
_MARK = "import:"  # how the origin of everything that was imported begins
# halves of characters, what no text has, and bytes that are no UTF-8
_UNFIT = re.compile(r"[\ud800-\udfff\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_OURS = frozenset({"turn", "derived"})  # kinds that memos gives by itself
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FRACTION = re.compile(r"\.(\d+)")


@dataclass(frozen=True)
class ForeignEntry:
    """A statement of a foreign file.

    how: "statement" is a memory as it stands; "spoken" is a turn of a conversation, "written" a passage under a
    heading, of which the reader keeps what is worth keeping. owner: whose it is over there. dropped: fields that have
    no place in a memory.
    """

    place: str
    text: str
    origin: str
    how: Literal["statement", "spoken", "written"] = "statement"
    speaker: str = ""
    heading: str = ""
    said: datetime | None = None
    expires: datetime | None = None
    thread: str = ""
    kind: str = ""
    tags: tuple[str, ...] = ()
    owner: str = ""
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unmapped:
    """A place that gives no memory, and why; the same words for all places of which the same is true."""

    place: str
    why: str


Read = ForeignEntry | Unmapped


def entry(
    place: str,
    text: object,
    source: str,
    id: object,
    *,
    how: Literal["statement", "spoken", "written"] = "statement",
    speaker: object = "",
    heading: str = "",
    said: object = None,
    expires: object = None,
    thread: object = "",
    kind: object = "",
    tags: Iterable[object] = (),
    owner: object = "",
    dropped: Iterable[str] = (),
) -> Read:
    """An entry of fields as they come from a file: what does not fit is dropped and named, and text must be text.

    source, id: of what the origin is made, so that the same thing is not imported twice; with a digest of what was said
    by whom and when, so that a change over there is seen.
    """
    if not isinstance(text, str):
        return Unmapped(place, "its text is missing, or is no text")
    clean, unfit = _UNFIT.subn("\ufffd", text)
    clean = clean.replace("\r\n", "\n").strip()
    if not clean.strip("\ufffd"):
        return Unmapped(place, "its text is empty")
    if len(clean) > LONGEST_TEXT:
        return Unmapped(place, f"its text is longer than {LONGEST_TEXT:,} characters")
    lost = [*dropped, *(["characters that are no text"] if unfit else [])]
    times = {}
    for name, value in (("said", said), ("expires", expires)):
        times[name] = time_of(value)
        if times[name] is None and value not in (None, ""):
            lost.append(f"{name} (no time between the years 2 and 9998)")
    named = {}
    for name, value in (("speaker", speaker), ("thread", thread), ("owner", owner)):
        named[name] = _name(value)
        if not named[name] and value not in (None, ""):
            lost.append(f"{name} (no name of 1 to {_LONGEST_NAME} characters)")
    fit = isinstance(kind, str) and re.fullmatch(r"[a-z][a-z0-9_-]{0,39}", kind) and kind not in _OURS
    if not fit and kind not in (None, ""):
        lost.append("kind (no word of its own)")
    its_tags, odd = _tags(tags)
    return ForeignEntry(
        place=place,
        text=clean,
        origin=f"{_MARK}{source}:{_name(id) or _digest(str(id))}@{_digest(f'{clean}|{times}|{named}')}",
        how=how,
        heading=_name(heading),
        said=times["said"],
        expires=times["expires"],
        kind=str(kind) if fit else "",
        tags=its_tags,
        dropped=tuple(lost + odd),
        **named,
    )


def time_of(value: object) -> datetime | None:
    """ISO 8601, or seconds since 1970 (or milliseconds, where seconds would lie beyond the year 5138); UTC where no
    zone is given. None for what is no time, or so near the ends of the calendar that a zone may lead beyond them."""
    try:
        when = _iso(value) if isinstance(value, str) else _since_1970(value)
    except (ValueError, OverflowError, InputError):
        return None
    return when if when and 1 < when.year < 9999 else None


def _iso(value: str) -> datetime | None:
    # Python 3.10 reads 3 or 6 digits of a second, and no Z
    plain = _FRACTION.sub(lambda digits: f".{digits[1][:6]:0<6}", value.strip().replace("Z", "+00:00"), count=1)
    return in_zone(datetime.fromisoformat(plain))


def _since_1970(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return _EPOCH + timedelta(seconds=value / 1000 if abs(value) >= 1e11 else value)


def left_over(record: dict[str, Any], known: Iterable[str]) -> list[str]:
    """The names of fields that hold something and are not among the known."""
    used = set(known)
    return sorted(
        _UNFIT.sub("\ufffd", k)[:40] for k, v in record.items() if k not in used and v not in (None, "", [], {})
    )


def _name(value: object) -> str:
    """One line of text, or "" for what is none."""
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        return ""
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return ""
    line = " ".join(_UNFIT.sub("\ufffd", str(value)).split())
    return line if len(line) <= _LONGEST_NAME else ""


def _tags(values: Iterable[object]) -> tuple[tuple[str, ...], list[str]]:
    """Those that are words, and what is to be said of the others. A tag that memos obeys must come from its user: one
    in a file of somebody else's would put a memory into every request."""
    tags, odd = dict[str, None](), list[str]()
    for value in values:
        tag = _name(value)
        if tag == "always" or tag.startswith("apart:"):
            odd.append("tags (always and apart: are given by `memos tag` alone)")
        elif not tag or len(tags) == _MOST_TAGS:
            odd.append(f"tags (no word of 1 to {_LONGEST_NAME} characters, or more than {_MOST_TAGS})")
        else:
            tags[tag] = None
    return tuple(tags), sorted(set(odd))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def operation(read: ForeignEntry, statement: Add) -> Add:
    """A statement of the reader's with all that the entry says of it."""
    header = {"said": read.said, "expires": read.expires, "thread": read.thread, "tags": read.tags}
    return statement.model_copy(update={**header, "origin": read.origin, **({"kind": read.kind} if read.kind else {})})
