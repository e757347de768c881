"""Tells which processes have a folder open; must not know what the folder holds."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memos.errors import VaultError
from memos.infrastructure.vault.store.on_disk import fsync


class FolderLock:
    """Held shared by each that has the folder open, so that one knows when it is alone; a death gives it up."""

    def __init__(self, folder: Path) -> None:
        """Make the folder if absent. Nothing is held before the first `alone`. Raises VaultError."""
        try:
            if not folder.exists():
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # memories are for their owner's eyes
                fsync(folder.parent)  # or a loss of power takes a new vault along
            self._folder, self._file = folder, (folder / "lock").open("a")
        except OSError as error:
            raise VaultError(
                f"{folder} cannot be the folder of a vault ({error.strerror}); "
                "set vault.path to a folder that you can write to"
            ) from error

    @contextmanager
    def alone(self, leaving: bool = False) -> Iterator[bool]:
        """True if no one else has the folder open; no one can open or leave it within the block. leaving: it is given
        up with the block."""
        gate = os.open(self._folder, os.O_RDONLY)  # a change of a lock is not atomic: the old one is given up first
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(self._file, fcntl.LOCK_UN)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = True
            except BlockingIOError:
                alone = False
                fcntl.flock(self._file, fcntl.LOCK_SH)
            try:
                yield alone
            finally:
                if leaving:
                    self.close()
                else:
                    fcntl.flock(self._file, fcntl.LOCK_SH)
        finally:
            os.close(gate)

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        self._file.close()


@contextmanager
def claimed(folder: Path, name: str) -> Iterator[Callable[[str], None]]:
    """A part that one process at a time has of a vault that is open; a death gives it up.

    What is yielded takes words on who has it, for who comes second. Raises VaultError for that one.
    """
    (folder / "tmp").mkdir(exist_ok=True)  # what lies there is of no matter once nobody has the vault open
    path = folder / "tmp" / name
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise VaultError(
                f"{folder} has a {name} already, {file.read().strip() or 'which is starting'}; use that one, stop it, "
                f"or name another vault with --vault"
            ) from None
        file.truncate(0)

        def tell(by: str) -> None:
            file.write(by)
            file.flush()

        yield tell
        with suppress(OSError):
            file.truncate(0)
