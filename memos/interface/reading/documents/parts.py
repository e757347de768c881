"""The parts of a document (turns, passages, rows of tables, calls of tools), and who reads a file into them.

Readers are found in the extension point `memos.readers` by the suffix they read, without its dot. Knows no format and
no language.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from memos.errors import InputError
from memos.extensions import Registry


@dataclass(frozen=True)
class DialogueTurn:
    """What one person said at one time; no statement is read in a `silent` turn, the model's own. id: of the message,
    where the program that sent it gave one."""

    speaker: str
    content: str
    time: datetime | None = None
    silent: bool = False
    role: str = "user"
    id: str = ""


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


READERS = Registry[DocumentReader]("memos.readers", "reader of documents")


def read(path: Path) -> list[Part]:
    """The content of a file. Raises InputError, EmptyMemory, PluginError."""
    try:
        return _reader(path).read(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}); give a file that this user may read") from error


def _reader(path: Path) -> DocumentReader:
    """The reader of a file that is there and not too large for it. Raises InputError, PluginError."""
    suffix = path.suffix.lower()
    if not path.is_file():
        raise InputError(f"{path}: no such file; give the path of a {_readable()} file")
    if suffix.removeprefix(".") not in READERS.names():
        kind = suffix or "a file without a suffix"
        raise InputError(
            f"{path}: memos reads {_readable()}, not {kind}; convert it to one of them, or keep it beside a "
            f"statement of what is in it by `memos file add`"
        )
    reader = READERS.get(suffix.removeprefix("."))
    if (size := path.stat().st_size) > reader.max_bytes:
        raise InputError(
            f"{path}: {size:,} bytes, and memos adds {suffix} files of up to {reader.max_bytes:,}; cut it in parts, or "
            f"bring JSON lines and Markdown of any size in with `memos import`"
        )
    return reader


def _readable() -> str:
    *most, last = (f".{name}" for name in READERS.names())
    return f"{', '.join(most)} or {last}"


def one_line(text: str, max_length: int) -> str:
    """The text with single spaces; of a longer one the beginning, and how long it was."""
    line = " ".join(text.split())
    return line if len(line) <= max_length else f"{line[:max_length]}… ({len(line):,} characters)"


def ended(text: str) -> str:
    """The text with the full stop of a sentence, unless it ends in one."""
    return text if text[-1:] in (*".!?…。！？", "") else f"{text}."
