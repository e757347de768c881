"""Reads Markdown: paragraphs and bullets under their heading, and rows of tables; no code, no front matter."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memos.interface.reading.documents.parts import DocumentReader, Passage, TableRow
from memos.plugins.documents import table
from memos.plugins.documents.text import text_of

_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?")
# bounded, as a row of brackets would take the square of its length
_LINK = re.compile(r"!?\[([^\]]{0,1000})\]\([^)]{0,4000}\)")
_TITLE = re.compile(r"#{1,6}\s+(\S.*)$")
_MARKUP = re.compile(r"\*\*|__|`|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)")
_RULE = re.compile(r"[\s|:=*_-]*")  # a rule, an underline
_UNDER_HEADER = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")  # the second row of a table
_PIPE = re.compile(r"(?<!\\)\|")


def markdown(text: str, stem: str) -> Iterator[Passage | TableRow]:
    """The parts of a text; `stem` stands for the heading before the first one. A row with more cells than its table
    has columns is read as a paragraph."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = _without_comments(text)
    text = re.sub(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [*text.splitlines(), ""]
    heading, block, header = stem, list[str](), list[str]()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        title = _TITLE.match(line)
        bullet = _BULLET.match(line)
        begins = not header and _is_header(line, following)
        cells = _cells(line) if header and "|" in line else []
        if not cells and not begins:
            header = []
        if block and (title or bullet or begins or cells or not line.strip()):
            yield Passage(" ".join(block).strip(), heading)
            block = []
        if title:
            heading = _bare(title[1].rstrip("#").rstrip() or title[1])
        elif begins:
            header = _cells(line)
        elif _RULE.fullmatch(line):
            continue
        elif cells and len(cells) <= len(header):
            yield table.row(header, cells)
        elif cells:
            yield Passage(" | ".join(cells), heading)
        else:
            block.append(_bare(line[bullet.end() :] if bullet else line.strip().lstrip("> ")))


def _is_header(line: str, following: str) -> bool:
    """True for the first row of a table, as GitHub's Markdown has it."""
    if "|" not in line or "-" not in following or not _UNDER_HEADER.fullmatch(following):
        return False
    return len(_cells(line)) == len(_cells(following)) > 1


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [_bare(cell.replace("\\|", "|")) for cell in _PIPE.split(inner)]


def _without_comments(text: str) -> str:
    parts, position = [], 0
    while (begin := text.find("<!--", position)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        parts.append(text[position:begin])
        position = end + 3
    return "".join([*parts, text[position:]])


def _bare(text: str) -> str:
    """Without links and emphasis."""
    return _MARKUP.sub("", _LINK.sub(r"\1", text)).strip()


MARKDOWN = DocumentReader(lambda path: [*markdown(text_of(path), path.stem)])
