"""A file -> the turns or passages in it. Knows formats and what is wrong with a file; knows no language."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from memos.cube import in_zone
from memos.errors import EmptyMemory, InputError

_SILENT = frozenset({"assistant", "system", "tool", "developer", "function"})  # roles whose words are no memories
_HOW = 'write one {"role": "user", "content": "..."} or {"speaker": "Mira", "content": "..."} an entry'
_LINE = re.compile(r"([A-ZÀ-Þ][\w-]+(?: [A-ZÀ-Þ][\w-]+)?): +(\S.*)")
_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?")
_HALF = re.compile(r"[\ud800-\udfff]")
# bounded, as a row of brackets would take the square of its length
_LINK = re.compile(r"!?\[([^\]]{0,1000})\]\([^)]{0,4000}\)")
_TITLE = re.compile(r"#{1,6}\s+(\S.*)$")
_MARKUP = re.compile(r"\*\*|__|`|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)")


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


def read(path: Path) -> list[Turn] | list[Passage]:
    """The content of a .jsonl, .json, .md or .txt file."""
    text = _text(path)
    match path.suffix.lower():
        case ".jsonl":
            lines = [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
            return [turn(_json(line, path, n), f"{path}, line {n}") for n, line in lines]
        case ".json":
            entries = _json(text, path, 1)
            if not isinstance(entries, list):
                raise InputError(f"{path}, line 1: a .json conversation is a list of turns; {_HOW}")
            return [turn(entry, f"{path}, entry {n}") for n, entry in enumerate(entries, start=1)]
        case ".md" | ".markdown":
            return list(markdown(text, path.stem))
        case ".txt":
            return _plain(text, path.stem)
        case other:
            suffix = other or "a file without a suffix"
            raise InputError(
                f"{path}: memos reads .jsonl, .json, .md and .txt, not {suffix}; convert it to one of them"
            )


def turn(entry: object, where: str) -> Turn:
    """One entry of a conversation; `where` names it in an error."""
    if not isinstance(entry, dict):
        raise InputError(f"{where}: a turn is a JSON object, not {type(entry).__name__}; {_HOW}")
    content, role, name = entry.get("content"), entry.get("role", ""), entry.get("speaker", "")
    if not isinstance(content, str):
        raise InputError(f'{where}: "content" is missing or not text; {_HOW}')
    for part in (content, role, name):
        if isinstance(part, str):
            require_text(part, where)
    if not (isinstance(role, str) and isinstance(name, str)) or not (role or name):
        raise InputError(f'{where}: a turn needs a "role" or a "speaker" as text; {_HOW}')
    speaker = name or ("User" if role.lower() == "user" else role)
    return Turn(speaker, content, _time(entry.get("time"), where), role.lower() in _SILENT)


def require_text(text: str, where: str) -> None:
    """Raises InputError for half a character, which JSON can write and nothing can keep."""
    if half := _HALF.search(text):
        raise InputError(f"{where}: character {half.start() + 1} is half of one ({half[0]!r}); remove it")


def _time(value: object, where: str) -> datetime | None:
    """ISO 8601."""
    if value is None:
        return None
    try:
        said = datetime.fromisoformat(value.replace("Z", "+00:00")) if isinstance(value, str) else None
    except ValueError:
        said = None
    if said is None:
        raise InputError(f'{where}: "time" {value!r} is not ISO 8601; write it like 2025-03-01T09:30:00Z or omit it')
    return in_zone(said)


def _text(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"{path}: no such file; give the path of a .jsonl, .json, .md or .txt file")
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
        raise InputError(f"{path}, line {at}: not JSON ({error.msg}, column {error.colno}); {_HOW}") from error
    except (ValueError, RecursionError) as error:  # a number of too many digits, or brackets without end
        raise InputError(f"{path}, line {line}: JSON that nobody writes ({error!s:.80}); {_HOW}") from error


def _plain(text: str, stem: str) -> list[Turn] | list[Passage]:
    """A transcript if every line is "Name: words"; otherwise paragraphs, with a blank line between them."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    spoken = [match for line in lines if (match := _LINE.fullmatch(line))]
    if len(spoken) == len(lines):
        return [Turn(match[1], match[2]) for match in spoken]
    return [Passage(" ".join(part.split()), stem) for part in re.split(r"\n\s*\n", text) if part.strip()]


def markdown(text: str, stem: str) -> Iterator[Passage]:
    """Paragraphs and bullets under the nearest heading; code and front matter are no memories."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = _without_comments(text)
    text = re.sub(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)", "", text, flags=re.DOTALL | re.MULTILINE)
    heading, block = stem, list[str]()
    for line in [*text.splitlines(), ""]:
        title = _TITLE.match(line)
        bullet = _BULLET.match(line)
        if block and (title or bullet or not line.strip()):
            yield Passage(" ".join(block).strip(), heading)
            block = []
        if title:
            heading = _bare(title[1].rstrip("#").rstrip() or title[1])
        elif not re.fullmatch(r"[\s|:=*_-]*", line):  # a rule, an underline, the second row of a table
            block.append(_bare(line[bullet.end() :] if bullet else line.strip().lstrip("> ")))


def _without_comments(text: str) -> str:
    kept, at = [], 0
    while (begin := text.find("<!--", at)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        kept.append(text[at:begin])
        at = end + 3
    return "".join([*kept, text[at:]])


def _bare(text: str) -> str:
    """Without links and emphasis."""
    return _MARKUP.sub("", _LINK.sub(r"\1", text)).strip()
