"""Imports folders of Markdown, such as Obsidian's: a passage for each paragraph and bullet, under its heading.

Followed: CommonMark's headings, lists and fences, and GitHub's tables, as
`memos.plugins.documents.markdown` reads them; Obsidian's links, embeds, comments and block names (1.x); front
matter with `date` or `created`, and `tags`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memos.config import parse_yaml
from memos.errors import ConfigError
from memos.interface.reading.documents.parts import TableRow
from memos.plugins.documents.markdown import markdown
from memos.plugins.imports.entry import Read, Unmapped, entry, left_over
from memos.plugins.imports.formats import Importer
from memos.plugins.imports.records import listed, mapping
from memos.plugins.imports.source import ImportSource

_FRONT = re.compile(r"\A---\n(.*?\n)?---(?:\n|\Z)", re.DOTALL)
_EMBED = re.compile(r"!\[\[[^\[\]\n]*\]\]")
_LINK = re.compile(r"\[\[(?:[^\[\]|\n]*\|)?([^\[\]|\n]*)\]\]")
_COMMENT = re.compile(r"%%.*?%%", re.DOTALL)
_BLOCK_NAME = re.compile(r"[ \t]\^[A-Za-z0-9-]+$", re.MULTILINE)
_TIMES = ("date", "created", "updated")


def read(source: ImportSource) -> Iterator[Read]:
    for path in source.files(".md", ".markdown"):
        yield from [path] if isinstance(path, Unmapped) else _file(source, path)


def _file(source: ImportSource, path: Path) -> Iterator[Read]:
    where, text = source.place(path), source.text(path)
    if isinstance(text, Unmapped):
        yield text
        return
    front, body = _front(text)
    said = next((_day(front[name]) for name in _TIMES if front.get(name)), None)
    tags = front.get("tags")
    tags = tags.replace(",", " ").split() if isinstance(tags, str) else listed(tags)
    dropped = left_over(front, (*_TIMES, "tags", "title", "aliases"))
    for pattern, put in ((_EMBED, ""), (_LINK, r"\1"), (_COMMENT, ""), (_BLOCK_NAME, "")):
        body = pattern.sub(put, body)
    n = 0
    for n, passage in enumerate(markdown(body, str(front.get("title") or path.stem)), start=1):
        yield entry(
            f"{where}, passage {n}",
            passage.content,
            "markdown",
            where,
            how="statement" if isinstance(passage, TableRow) else "written",
            heading=passage.subject if isinstance(passage, TableRow) else passage.heading,
            said=said,
            tags=tags,
            dropped=dropped if n == 1 else (),
        )
    if not n:
        yield Unmapped(where, "the file has no text outside of code")


def _front(text: str) -> tuple[dict[str, Any], str]:
    """The front matter, and what stands behind it. What is no YAML is no front matter, and is left out."""
    found = _FRONT.match(text)
    if not found:
        return {}, text
    try:
        front = mapping(parse_yaml(found[1] or ""))
    except ConfigError:
        front = {"front matter": "no YAML"}
    return {str(key): value for key, value in front.items()}, text[found.end() :]


def _day(value: object) -> object:
    """YAML reads times by itself; text and numbers are read as all others are."""
    return value.isoformat() if hasattr(value, "isoformat") else value


IMPORTER = Importer(read, files=re.compile(r"\.(?:md|markdown)$", re.IGNORECASE), suffixes=(".md", ".markdown"), rank=3)
