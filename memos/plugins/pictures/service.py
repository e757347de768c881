"""Keeps files beside the texts that tell of them, and gives them back to whoever may read these; knows no formats."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memos.cube import Text
from memos.errors import Denied, EmptyMemory, InputError, VaultError
from memos.kernel.calls import Services
from memos.kernel.services.keeping import checked_tags
from memos.ops import Get
from memos.plugins.pictures.media import FileContent, media_type

if TYPE_CHECKING:
    from memos.cube import MemCube
    from memos.rights import Caller

_NAME_CHARS = 80  # of a file's name that are told: its suffix is at the end


@dataclass(frozen=True)
class StoredFile:
    """A file that a memory tells of. path: where it can be read now, in the clear; it is to be opened at once."""

    media_type: str
    bytes: int
    sha256: str
    path: Path


class Pictures:
    """add_file, file."""

    def __init__(self, services: Services) -> None:
        self._parts, self._keeping, self._curating = services.parts, services.keeping, services.curating
        self._vault, self._access = services.parts.vault, services.parts.access

    def add_file(
        self, caller: Caller, text: str, file: Path | FileContent, *, tags: Sequence[str] = ()
    ) -> list[MemCube]:
        """Remember one statement, as a caption or a transcript, with the file that it tells of; durable when it
        returns. The same text with another file is another memory.

        Raises InputError for a file that is not what its name says, EmptyMemory for a text that asks not to be kept,
        NoRoom, QuotaExceeded.
        """
        reader, curating = self._parts.reader, self._curating(self._parts.schedulers.policy_of(caller))
        told, name = {"tags": checked_tags(tags)}, Path(file.name).name[-_NAME_CHARS:]
        if not text.strip() or reader.withholds(text):
            raise EmptyMemory(f"{name} comes without a text that is to be kept; give its caption or transcript")
        with self._vault.blobs.staging() as staged:
            _write(file, staged)
            media = media_type(staged, name)
            sha256, size = self._vault.blobs.store(staged)
            of_file = {"sha256": sha256, "bytes": size, "media_type": media}
            try:
                op = reader.statement(text).model_copy(update=told | of_file)
                memories = self._keeping.record(caller, [op], reads_later=False)
            finally:
                self._vault.blobs.discard(sha256)  # unless a cube names it now
        if curating:
            curating.told(caller)
        return memories

    def file(self, caller: Caller, id: str) -> StoredFile:
        """The file that a memory tells of. Raises InputError where it has none, Denied where what the caller reads of
        it is masked, CorruptBlob for a file that is no longer what was stored."""
        cube = self._access.cube(caller, Get(id=id), id)
        if not isinstance(cube.payload, Text) or not cube.payload.sha256:
            raise InputError(f"cube {cube.id} has no file beside it; add one with `memos file add CAPTION PATH`")
        if self._vault.guard.hides and cube.rights.owner != caller.user_id:
            raise Denied(
                f"cube {cube.id} belongs to {cube.rights.owner}, and others read memories with identifiers masked "
                f"(governance.redaction), which no file can be; ask its owner for the file"
            )
        payload = cube.payload
        return StoredFile(payload.media_type, payload.bytes, cube.stored, self._vault.blobs.file(cube.stored))


def _write(file: Path | FileContent, target: Path) -> None:
    """Raises InputError for a file that cannot be read, VaultError where there is no room for it."""
    try:
        source = io.BytesIO(file.content) if isinstance(file, FileContent) else file.open("rb")
    except OSError as error:
        raise InputError(f"{file.name} cannot be read ({error.strerror}); name a file that is there") from error
    try:
        with source, target.open("wb") as out:
            shutil.copyfileobj(source, out)
    except OSError as error:
        raise VaultError(
            f"{file.name} was not stored ({error.strerror}), and nothing of it is kept; make sure that it can be read "
            f"to its end and that {target.parent} has room, and try again"
        ) from error


def make(services: Services) -> Pictures:
    return Pictures(services)
