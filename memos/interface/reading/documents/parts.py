"""The parts of a document: turns, passages, rows of tables, calls of tools; knows no format and no language."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True)
class DialogueTurn:
    """What one person said at one time; `silent` turns are the model's own."""

    speaker: str
    content: str
    time: datetime | None = None
    silent: bool = False


@dataclass(frozen=True)
class Passage:
    """A paragraph or bullet of written text, and the heading it stands under."""

    content: str
    heading: str


@dataclass(frozen=True)
class TableRow:
    """A row of a table as one statement, which names its columns; `subject` is its first cell."""

    content: str
    subject: str


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool and what came of it, as one statement; `task` is what it was called for."""

    content: str
    tool: str
    task: str
    time: datetime | None = None


Part = DialogueTurn | Passage | TableRow | ToolCall


@dataclass(frozen=True)
class DocumentReader:
    """Reads the files of one format, each whole. What it finds is kept in one transaction, so files have a limit."""

    read: Callable[[Path], list[Part]]  # raises InputError, EmptyMemory
    max_bytes: int = 1 << 24


def one_line(text: str, max_length: int) -> str:
    """The text with single spaces; of a longer one the beginning, and how long it was."""
    line = " ".join(text.split())
    return line if len(line) <= max_length else f"{line[:max_length]}… ({len(line):,} characters)"


def ended(text: str) -> str:
    """The text with the full stop of a sentence, unless it ends in one."""
    return text if text[-1:] in (*".!?…。！？", "") else f"{text}."
