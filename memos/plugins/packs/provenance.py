"""Signs a statement that travels with an exported folder: who gave it, when, and which bytes it covers.

Must not know what is in its files.

    memos provenance 1
    by: ada
    at: 2026-11-21T10:00:00+00:00
    sha256: 9f86d0…
    key: 3b6a27…
    signature: 5d6e…
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from memos.errors import CorruptBlob, InputError
from memos.infrastructure.vault.audit.signing import Signer, is_signed, statement
from memos.infrastructure.vault.store import on_disk

NAME = "provenance.txt"
_FORMAT = "memos provenance 1"


class Provenance(NamedTuple):
    """Signed by whoever has the key: that `by` gave the bytes of this digest at this time."""

    by: str
    at: str
    sha256: str
    key: str
    signature: str

    def __str__(self) -> str:
        return "\n".join((_FORMAT, *(f"{name}: {value}" for name, value in self._asdict().items()), ""))

    def is_of(self, data: bytes) -> bool:
        """True if these are the bytes that were given, and the statement is as it was signed."""
        fields = [self.by, self.at, self.sha256, self.key]
        return sha256(data).hexdigest() == self.sha256 and is_signed(
            self.key, _FORMAT, statement(fields), self.signature
        )


def provenance(data: bytes, by: str, at: datetime, signer: Signer) -> Provenance:
    """The statement about bytes that `by` gives away. Raises InputError for a name of several lines."""
    if not by.isprintable() or not by.strip():
        raise InputError(f"{by!r} cannot be written as who gave this; give a name in one line")
    fields = by, at.isoformat(), sha256(data).hexdigest(), signer.public
    return Provenance(*fields, signature=signer.sign(_FORMAT, statement(fields)))


def read_provenance(text: str) -> Provenance:
    """The statement in a text. Raises InputError."""
    head, *lines = text.splitlines() or [""]
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    if head != _FORMAT or fields.keys() != set(Provenance._fields) or len(lines) != len(fields):
        raise InputError(
            f"this is no statement of provenance: it begins {head[:40]!r}, not {_FORMAT!r}, or lacks a line"
        )
    return Provenance(**fields)


def give(folder: Path, by: str, at: datetime, signer: Signer) -> None:
    """Put the statement about all other files of a folder into it. Raises InputError."""
    on_disk.write(folder / NAME, str(provenance(_bytes_of(folder), by, at, signer)).encode())


def given(folder: Path) -> Provenance:
    """The statement in a folder, which holds for the files beside it. Raises InputError, CorruptBlob."""
    try:
        provenance = read_provenance((folder / NAME).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{folder} does not say who gave it ({error}); name a folder that `memos export-adapter` made"
        ) from error
    if not provenance.is_of(_bytes_of(folder)):
        raise CorruptBlob(
            f"{folder} is not as {provenance.by} gave it at {provenance.at}, or never was; ask them for it again"
        )
    return provenance


def _bytes_of(folder: Path) -> bytes:
    """Names and contents, in order."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    lines = (f"{path.relative_to(folder).as_posix()}\0{sha256(path.read_bytes()).hexdigest()}" for path in files)
    return "\n".join(lines).encode()
