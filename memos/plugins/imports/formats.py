"""Defines what an importer of a format is, and finds the one that a file or a folder is for.

An importer is found in the extension point `memos.importers`, by the name that `memos import --as` takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from memos.errors import EmptyMemory, InputError
from memos.extensions import Registry
from memos.plugins.imports.entry import Read
from memos.plugins.imports.json_stream import Node
from memos.plugins.imports.records import mapping
from memos.plugins.imports.source import ImportSource

MAX_RECORDS_SEEN = 50  # of a JSON file, to tell its format


@dataclass(frozen=True)
class Importer:
    """One format of another program: how it is recognised, and how it is read.

    rank: of several that a source may be for, the one of the lowest rank reads it.
    """

    read: Callable[[ImportSource], Iterator[Read]]
    members: frozenset[str] = frozenset()  # of a JSON object, which no other format has
    fields: frozenset[str] = frozenset()  # of a record
    tables: frozenset[str] = frozenset()  # of a SQLite file
    files: re.Pattern[str] | None = None  # matches the name of one in a folder
    suffixes: tuple[str, ...] = ()  # of a file
    archives: bool = False  # whether zip archives are read
    rank: int = 1


IMPORTERS = Registry[Importer]("memos.importers", "importer")


def detected(source: ImportSource) -> str:
    """The name of the format, by what stands there. Raises InputError, EmptyMemory."""
    importers = dict(sorted(IMPORTERS.usable(), key=lambda pair: pair[1].rank))
    if source.is_folder:
        found = _of_folder(source, importers)
    elif source.is_archive:
        found = next((name for name, importer in importers.items() if importer.archives), None)
    elif source.is_database:
        tables = source.tables().keys()
        found = next((name for name, importer in importers.items() if importer.tables & tables), None)
    else:
        suffix = source.path.suffix.lower()
        found = next((name for name, importer in importers.items() if suffix in importer.suffixes), None)
        found = found or _of_json(source, importers)
    if found is None:
        raise InputError(
            f"{source.path} is in no format that is known; name one with --as: {', '.join(IMPORTERS.names())}"
        )
    return found


def _of_folder(source: ImportSource, importers: dict[str, Importer]) -> str | None:
    suffixes = {".json", *(suffix for importer in importers.values() for suffix in importer.suffixes)}
    names = {path.name for path in source.files(*suffixes) if isinstance(path, Path)}
    for format, importer in importers.items():
        if importer.files and any(importer.files.search(name) for name in names):
            return format
    return None


def _of_json(source: ImportSource, importers: dict[str, Importer]) -> str | None:
    nothing = True
    for node in islice(source.records(), MAX_RECORDS_SEEN):
        nothing = False
        if not isinstance(node, Node):
            continue
        member, fields = node.path[0] if node.path else None, mapping(node.value).keys()
        named = (name for name, importer in importers.items() if member in importer.members)
        if found := next(named, None) or next(
            (n for n, importer in importers.items() if importer.fields & fields), None
        ):
            return found
    if nothing:
        raise EmptyMemory(f"{source.path} is empty: there is nothing to import")
    return None
