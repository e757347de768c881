"""Turns the rows of a table into statements that name their columns, as "city = Oslo"; knows no language."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from memos.errors import EmptyMemory, InputError
from memos.interface.reading.documents.parts import DocumentReader, TableRow, ended, one_line
from memos.plugins.documents.text import text_of

_LONGEST_SUBJECT = 100


def delimited(text: str, path: str, tabs: bool) -> list[TableRow]:
    """The rows of a CSV or TSV file, whose first line names the columns. Raises InputError for one that is ragged."""
    first, _, _ = text.lstrip("\r\n").partition("\n")
    delimiter = "\t" if tabs else ";" if first.count(";") > first.count(",") else ","
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows, header = list[TableRow](), list[str]()
    try:
        for cells in lines:
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = cells
                continue
            if len(cells) != len(header):
                raise InputError(
                    f"{path}, line {lines.line_num}: a row of {len(cells)} cells in a table of {len(header)} columns "
                    f"({one_line(', '.join(header), 200)}); give each row as many cells as the first line has names, "
                    f"and put a cell that has {delimiter!r} in it in quotes"
                )
            rows.append(row(header, cells))
    except csv.Error as error:
        raise InputError(
            f"{path}, line {lines.line_num}: not a table ({error}); close every quote, and write one in a cell twice"
        ) from error
    if not rows:
        raise EmptyMemory(f"{path} holds no row under its header: there is nothing to remember; add a row")
    return rows


def row(header: Sequence[str], cells: Sequence[str]) -> TableRow:
    """Of a row that has at least one cell with text in it, and no more cells than there are columns."""
    names = [one_line(name, 200) or f"column {n}" for n, name in enumerate(header, start=1)]
    named = [(name, " ".join(cell.split())) for name, cell in zip(names, cells, strict=False) if cell.strip()]
    content = "; ".join(f"{name} = {cell}" for name, cell in named)
    return TableRow(ended(content), one_line(named[0][1], _LONGEST_SUBJECT))


TABLE = DocumentReader(lambda path: [*delimited(text_of(path), str(path), tabs=path.suffix.lower() == ".tsv")])
