"""What a file holds: turns, passages, rows of tables, calls of tools. Knows no format and no language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from memos.errors import InputError

_HALF = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True)
class Turn:
    """What one person said at one time; `silent` turns are the model's own."""

    speaker: str
    content: str
    said: datetime | None = None
    silent: bool = False


@dataclass(frozen=True)
class Passage:
    """A paragraph or bullet of written text, and the heading it stands under."""

    content: str
    heading: str


@dataclass(frozen=True)
class Row:
    """A row of a table as one statement, which names its columns; `subject` is its first cell."""

    content: str
    subject: str


@dataclass(frozen=True)
class Call:
    """A call of a tool and what came of it, as one statement; `task` is what it was called for."""

    content: str
    tool: str
    task: str
    said: datetime | None = None


Part = Turn | Passage | Row | Call


def require_text(text: str, where: str) -> None:
    """Raises InputError for half a character, which JSON can write and nothing can keep."""
    if half := _HALF.search(text):
        raise InputError(f"{where}: character {half.start() + 1} is half of one ({half[0]!r}); remove it")


def one_line(text: str, most: int) -> str:
    """With single spaces; of what is longer the beginning, and how long it was."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}… ({len(line):,} characters)"


def ended(text: str) -> str:
    """As a sentence."""
    return text if text[-1:] in (*".!?…。！？", "") else f"{text}."
