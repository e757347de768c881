"""Who has a folder open. Knows processes; must not know what the folder holds."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memos.errors import VaultError


class FolderLock:
    """Held shared by each that has the folder open, so that one knows when it is alone; a death gives it up."""

    def __init__(self, folder: Path) -> None:
        """Make the folder if absent. Nothing is held before the first `alone`. Raises VaultError."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / "lock").open("a")
        except OSError as error:
            raise VaultError(
                f"{folder} cannot be the folder of a vault ({error.strerror}); "
                "set vault.path to a folder that you can write to"
            ) from error

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """True if no one else has the folder open; no one can open it within the block then."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
            fcntl.flock(self._file, fcntl.LOCK_SH)  # waits for one who is alone and opening
        try:
            yield alone
        finally:
            fcntl.flock(self._file, fcntl.LOCK_SH)

    def close(self) -> None:
        self._file.close()
