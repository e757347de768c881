"""Turns a file into its parts with the reader registered for its suffix; knows no format and no language.

Readers are found in the extension point `memos.readers` by the suffix they read, without its dot.
"""

from __future__ import annotations

from pathlib import Path

from memos.errors import InputError
from memos.extensions import Registry
from memos.interface.reading.documents.parts import DocumentReader, Part

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
        raise InputError(f"{path}: memos reads {_readable()}, not {kind}; convert it to one of them")
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
