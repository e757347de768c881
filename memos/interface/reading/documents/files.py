"""A file -> the turns, passages, rows and calls of tools in it. Knows which format a file is in; knows no language."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from memos.errors import EmptyMemory, InputError
from memos.interface.reading.documents.conversation import HOW, conversation
from memos.interface.reading.documents.markdown import markdown
from memos.interface.reading.documents.parts import Part, Passage, Turn
from memos.interface.reading.documents.table import delimited
from memos.plugins.documents.apart import parts_of

_LINE = re.compile(r"([A-ZÀ-Þ][\w-]+(?: [A-ZÀ-Þ][\w-]+)?): +(\S.*)")
_LONGEST = 1 << 24  # bytes of a file; it is read whole, and its statements are kept in one transaction
_LONGEST_PDF = 1 << 28  # most of one is pictures


def read(path: Path) -> list[Part]:
    """The content of a file, by its suffix. Raises InputError, EmptyMemory."""
    try:
        return _read(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}); give a file that this user may read") from error


def _read(path: Path) -> list[Part]:
    suffix = path.suffix.lower()
    if not path.is_file():
        raise InputError(f"{path}: no such file; give the path of a {_known()} file")
    if suffix not in FORMATS:
        its = suffix or "a file without a suffix"
        raise InputError(f"{path}: memos reads {_known()}, not {its}; convert it to one of them")
    size, most = path.stat().st_size, _LONGEST_PDF if suffix == ".pdf" else _LONGEST
    if size > most:
        raise InputError(
            f"{path}: {size:,} bytes, and memos adds {suffix} files of up to {most:,}; cut it in parts, or bring JSON "
            f"lines and Markdown of any size in with `memos import`"
        )
    return FORMATS[suffix](path)


def _json_lines(path: Path) -> list[Part]:
    lines = [(n, line) for n, line in enumerate(_text(path).split("\n"), start=1) if line.strip()]
    return list(conversation((f"{path}, line {n}", _json(line, path, n)) for n, line in lines))


def _json_list(path: Path) -> list[Part]:
    entries = _json(_text(path), path, 1)
    if not isinstance(entries, list):
        raise InputError(f"{path}, line 1: a .json conversation is a list of turns; {HOW}")
    return list(conversation((f"{path}, entry {n}", entry) for n, entry in enumerate(entries, start=1)))


def _markdown(path: Path) -> list[Part]:
    return list(markdown(_text(path), path.stem))


def _plain(path: Path) -> list[Part]:
    """A transcript if every line is "Name: words"; otherwise paragraphs, with a blank line between them."""
    text = _text(path)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    spoken = [match for line in lines if (match := _LINE.fullmatch(line))]
    if len(spoken) == len(lines):
        return [Turn(match[1], match[2]) for match in spoken]
    return [Passage(" ".join(part.split()), path.stem) for part in re.split(r"\n\s*\n", text) if part.strip()]


def _table(path: Path) -> list[Part]:
    return [*delimited(_text(path), str(path), tabs=path.suffix.lower() == ".tsv")]


def _html(path: Path) -> list[Part]:
    return [*parts_of("html", path)]


def _pdf(path: Path) -> list[Part]:
    return [*parts_of("pdf", path)]


FORMATS: dict[str, Callable[[Path], list[Part]]] = {
    ".jsonl": _json_lines,
    ".json": _json_list,
    ".md": _markdown,
    ".markdown": _markdown,
    ".txt": _plain,
    ".csv": _table,
    ".tsv": _table,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
}


def _known() -> str:
    *most, last = FORMATS
    return f"{', '.join(most)} or {last}"


def _text(path: Path) -> str:
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not UTF-8; save the file as UTF-8 and try again") from error
    if not text.strip():
        raise EmptyMemory(f"{path} is empty: there is nothing to remember; give a file with text in it")
    return text


def _json(text: str, path: Path, line: int) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = line + error.lineno - 1
        raise InputError(f"{path}, line {at}: not JSON ({error.msg}, column {error.colno}); {HOW}") from error
    except (ValueError, RecursionError) as error:  # a number of too many digits, or brackets without end
        raise InputError(f"{path}, line {line}: JSON that nobody writes ({error!s:.80}); {HOW}") from error
