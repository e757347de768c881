"""Reads plain text, and conversations as JSON, whole or a turn a line."""

from __future__ import annotations

import json
import re
from pathlib import Path

from memos.errors import EmptyMemory, InputError
from memos.interface.reading.documents.conversation import HOW, conversation
from memos.interface.reading.documents.parts import DialogueTurn, DocumentReader, Part, Passage

_SPOKEN_LINE = re.compile(r"([A-ZÀ-Þ][\w-]+(?: [A-ZÀ-Þ][\w-]+)?): +(\S.*)")


def _json_lines(path: Path) -> list[Part]:
    lines = [(n, line) for n, line in enumerate(text_of(path).split("\n"), start=1) if line.strip()]
    return list(conversation((f"{path}, line {n}", _json(line, path, n)) for n, line in lines))


def _json_list(path: Path) -> list[Part]:
    entries = _json(text_of(path), path, 1)
    if not isinstance(entries, list):
        raise InputError(f"{path}, line 1: a .json conversation is a list of turns; {HOW}")
    return list(conversation((f"{path}, entry {n}", entry) for n, entry in enumerate(entries, start=1)))


def _plain(path: Path) -> list[Part]:
    """A transcript if every line is "Name: words"; otherwise paragraphs, with a blank line between them."""
    text = text_of(path)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    spoken = [match for line in lines if (match := _SPOKEN_LINE.fullmatch(line))]
    if len(spoken) == len(lines):
        return [DialogueTurn(match[1], match[2]) for match in spoken]
    return [Passage(" ".join(part.split()), path.stem) for part in re.split(r"\n\s*\n", text) if part.strip()]


JSON_LINES = DocumentReader(_json_lines)
JSON_LIST = DocumentReader(_json_list)
PLAIN_TEXT = DocumentReader(_plain)


def text_of(path: Path) -> str:
    """What a file of text holds. Raises InputError, EmptyMemory."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not UTF-8; save the file as UTF-8 and try again") from error
    if not text.strip():
        raise EmptyMemory(f"{path} is empty: there is nothing to remember; give a file with text in it")
    return text


def _json(text: str, path: Path, first_line: int) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise InputError(f"{path}, line {line}: not JSON ({error.msg}, column {error.colno}); {HOW}") from error
    except (ValueError, RecursionError) as error:  # a number of too many digits, or brackets without end
        raise InputError(f"{path}, line {first_line}: JSON that nobody writes ({error!s:.80}); {HOW}") from error
