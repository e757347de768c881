"""Reads HTML: paragraphs and bullets under their heading, and rows of tables; leaves out what is not seen.

Runs in a process of its own (`memos.plugins.documents.isolated`), as some pages cost a parser the square of their size.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bs4.dammit import EncodingDetector, UnicodeDammit
from bs4.element import NavigableString, Tag

from memos.errors import EmptyMemory, InputError
from memos.interface.reading.documents.parts import Passage, TableRow
from memos.plugins.documents.table import row
from memos.plugins.documents.tree import BLOCKS, TITLES, Page
from memos.plugins.documents.visible import hidden

MAX_SPAN = 1_000  # columns or rows by one cell


def read(path: Path) -> list[Passage | TableRow]:
    """Raises InputError, EmptyMemory."""
    data = path.read_bytes()
    if b"\0" in data[:4096] and data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{path}: no HTML, but some other file under its name; give it the suffix that it should have")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        declared = EncodingDetector.find_declared_encoding(data, is_html=True) or "windows-1252"  # as browsers do
        text = UnicodeDammit(data, user_encodings=[declared], is_html=True).unicode_markup or ""
    soup = Page(text)
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    parts = list(_parts(soup, title or path.stem, hidden(soup)))
    if not parts:
        raise EmptyMemory(
            f"{path} shows no text: there is nothing to remember; a page that a script writes is saved with its text "
            f"by the browser's print to PDF"
        )
    return parts


def _parts(page: Tag, heading: str, unseen: frozenset[int]) -> Iterator[Passage | TableRow]:
    block, table = list[str](), None
    for event, node in _walked(page, unseen):
        if table:  # a table whose rows have been read
            table = None if event == "end" and node is table else table
        elif event == "text":
            block.append(node)
        elif node.name == "br":
            block.append(" ")
        elif node.name in BLOCKS:  # one begins or ends
            if text := " ".join("".join(block).split()):
                if event == "end" and node.name in TITLES:
                    heading = text
                else:
                    yield Passage(text, heading)
            block = []
            if event == "begin" and node.name == "table" and (rows := _rows(node, unseen)):
                yield from rows
                table = node


def _walked(page: Tag, unseen: frozenset[int]) -> Iterator[tuple[Literal["begin", "text", "end"], Any]]:
    """What is seen of a page, in its order: texts, and tags that begin and end. Without recursion, as nothing bounds
    how deep a page is nested."""
    path = [(page, iter(page.children))]
    while path:
        tag, inside = path[-1]
        match next(inside, None):
            case None:
                yield "end", tag
                path.pop()
            case node if id(node) in unseen:
                continue
            case Tag() as inner:
                yield "begin", inner
                path.append((inner, iter(inner.children)))
            case NavigableString() as words if type(words) is NavigableString:  # no comment, and no style
                yield "text", str(words)


def _rows(table: Tag, unseen: frozenset[int]) -> list[TableRow]:
    """The rows of a table with a header; none of one that lays out a page, or has a row of more cells than columns."""
    lines = list[list[_TableCell]]()
    for event, node in _walked(table, unseen):
        if event == "text" and lines and lines[-1]:
            lines[-1][-1].words.append(node)
        elif event != "begin":
            continue
        elif node.name == "table":
            return []
        elif node.name == "tr":
            lines.append([])
        elif node.name in ("td", "th") and lines:
            lines[-1].append(_TableCell(node.name == "th", _span(node, "colspan"), _span(node, "rowspan")))
        elif lines and lines[-1] and node.name in (*BLOCKS, "br"):
            lines[-1][-1].words.append(" ")
    if not lines or not all(cell.names for cell in lines[0]):
        return []
    header, *rows = _spread(lines)
    if len(header) < 2 or any(len(cells) > len(header) for cells in rows):
        return []
    return [row(header, cells) for cells in rows if any(cells)]


@dataclass
class _TableCell:
    """names: it is a heading. wide, high: the columns and rows that it spans."""

    names: bool
    wide: int
    high: int
    words: list[str] = field(default_factory=list)


def _span(cell: Tag, name: str) -> int:
    value = str(cell.get(name, "1"))
    return max(1, min(int(value), MAX_SPAN)) if re.fullmatch(r"[0-9]{1,9}", value) else 1


def _spread(lines: list[list[_TableCell]]) -> list[list[str]]:
    """The texts of each row, column by column: a cell stands in each column and row that it spans."""
    spread, above = list[list[str]](), dict[int, tuple[str, int]]()  # by column: what reaches down, and how far
    for line in lines:
        texts, below = list[str](), dict[int, tuple[str, int]]()
        cells = deque((" ".join("".join(c.words).split()), c.high) for c in line for _ in range(c.wide))
        while cells or len(texts) in above:
            text, high = above.pop(len(texts)) if len(texts) in above else cells.popleft()
            if high > 1:
                below[len(texts)] = text, high - 1
            texts.append(text)
        spread.append(texts)
        above = below
    return spread
