"""Brings memories of other programs into a kernel, in batches that are whole or absent, and reports on them.

Knows entries and the kernel. Must not know any format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from memos.errors import EmptyMemory, InputError, MemosError
from memos.interface.reading.mem_reader import MemReader
from memos.ops import Add, Correct
from memos.plugins.imports.entry import ForeignEntry, Read, Unmapped, operation
from memos.plugins.imports.formats import IMPORTERS, detected
from memos.plugins.imports.source import ImportSource

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS

BATCH = 200  # records that are kept in one transaction
MAX_PLACES = 3  # places of each reason that a report names
MAX_READ = 4_000  # characters that the rules read facts in; what is longer is kept as it is


@dataclass
class ImportReport:
    """What became of a source: each of its records is mapped, known, or not mapped for a reason.

    memories: cubes that are there now; records that say the same are one. places: of each reason, the first few.
    """

    format: str
    records: int = 0
    mapped: int = 0
    known: int = 0  # imported before
    memories: int = 0
    unmapped: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)  # fields of mapped records
    owners: Counter[str] = field(default_factory=Counter)  # of mapped records, over there

    def refuse(self, place: str, why: str) -> None:
        self.unmapped[why] += 1
        named = self.places.setdefault(why, [])
        if len(named) < MAX_PLACES:
            named.append(place)


def bring_in(
    kernel: MemOS,
    path: Path,
    format: str | None = None,
    *,
    user: str | None = None,
    of: Collection[str] = (),
    whole: bool = False,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> ImportReport:
    """Import a file or a folder; the format is found out where none is named.

    What was imported before, as its origin tells, is passed over: interrupted, the same call goes on. of: only what
    belongs to these over there. whole: keep each turn and passage as it stands, not what the reader finds in it.
    progress: called with bytes (of a database, rows) read, and of how many. Raises InputError, EmptyMemory, NoRoom.
    """
    if format is not None and format not in IMPORTERS.names():
        raise InputError(f"there is no format {format!r}; the formats are {', '.join(IMPORTERS.names())}")
    source = ImportSource(path)
    name = format or detected(source)
    source.done = 0
    report, known = ImportReport(name), kernel.within(user).known_origins()
    made = set[str]()
    now = datetime.now(timezone.utc)
    for batch in _batches(_new(IMPORTERS.get(name).read(source), report, known, of, now)):
        ops = [op for entry in batch for op in _read(entry, report, kernel.parts.reader, whole)]
        made.update(cube.id for cube in kernel.within(user).keep(ops, fold=True))
        report.memories = len(made)
        progress(min(source.done, source.total - 1), source.total)
    if not report.records:
        raise EmptyMemory(f"{path} holds no record of {name}: there is nothing to import")
    progress(source.total, source.total)
    return report


def _new(
    found: Iterator[Read], report: ImportReport, known: set[str], of: Collection[str], now: datetime
) -> Iterator[ForeignEntry]:
    """The entries that are to be imported; the others are counted."""
    for read in found:
        report.records += 1
        if isinstance(read, Unmapped):
            report.refuse(read.place, read.why)
        elif of and read.owner not in of:
            report.refuse(read.place, "it belongs to another, over there")
        elif read.expires and read.expires <= now:
            report.refuse(read.place, "it has expired")
        elif read.origin in known:
            report.known += 1
        else:
            known.add(read.origin)
            yield read


def _batches(entries: Iterator[ForeignEntry]) -> Iterator[list[ForeignEntry]]:
    batch = list[ForeignEntry]()
    for entry in entries:
        batch.append(entry)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _read(entry: ForeignEntry, report: ImportReport, reader: MemReader, whole: bool) -> list[Add | Correct]:
    """The operations of an entry, which is counted."""
    try:
        ops = _statements(entry, reader, whole)
    except MemosError as error:
        report.refuse(entry.place, str(error))
        return []
    if not ops:
        report.refuse(entry.place, "it states nothing that is worth keeping (--whole keeps it as it stands)")
        return []
    report.mapped += 1
    report.dropped.update(entry.dropped)
    if entry.owner:
        report.owners[entry.owner] += 1
    return [operation(entry, op) for op in ops]


def _statements(entry: ForeignEntry, reader: MemReader, whole: bool) -> list[Add | Correct]:
    if len(entry.text) > MAX_READ and (whole or entry.how == "statement"):  # no statement, but a document
        return [Add(text=entry.text, speaker=entry.speaker, segment=entry.heading or entry.speaker, kind="note")]
    if entry.how == "spoken" and not whole:
        return reader.read_turns([{"speaker": entry.speaker or "User", "content": entry.text}], entry.origin)
    if entry.how == "written" and not whole:
        return [
            op
            for part in entry.text.split("\n")
            if part.strip()
            for op in reader.passage(part, entry.heading, entry.origin)
        ]
    statement = reader.statement(entry.text, entry.speaker)
    return [statement.model_copy(update={"segment": entry.heading}) if entry.heading else statement]
