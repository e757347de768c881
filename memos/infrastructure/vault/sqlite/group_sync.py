"""Lets all writers that wait for an fsync share one; must not know what was committed."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path


class GroupSync:
    """Commits are numbered by `wrote`. Who waits for one first syncs the file for all that were written by then; who
    comes meanwhile waits for the next."""

    def __init__(self, file: Path) -> None:
        """Raises OSError."""
        self._file = os.open(file, os.O_RDWR)
        self._changed = threading.Condition()
        self._written = self._synced = 0
        self._syncing = False
        self._failure: OSError | None = None

    def wrote(self) -> int:
        """The number of what was just written; called in the order of writing."""
        with self._changed:
            self._written += 1
            return self._written

    def wait(self, number: int) -> None:
        """Return when what has this number is on disk. Raises the OSError of a sync that covered it."""
        synced, failure, mine = 0, None, False
        try:
            with self._changed:
                while self._syncing and self._synced < number:
                    self._changed.wait()
                if self._synced >= number:
                    return
                self.require_sound()
                mine = self._syncing = True  # whatever comes from here on, even Ctrl-C, others get their turn
                upto = self._written
            os.fdatasync(self._file)
            synced = upto
        except OSError as error:
            failure = error
            raise
        finally:
            if mine:
                with self._changed:
                    self._syncing = False
                    self._synced = max(self._synced, synced)
                    self._failure = self._failure or failure
                    self._changed.notify_all()

    def require_sound(self) -> None:
        """Raises the OSError of a sync that failed: the system forgets what it could not write, so that a later one
        says nothing of it."""
        if self._failure is not None:
            raise OSError(self._failure.errno, self._failure.strerror)

    def close(self) -> None:
        """Once nothing more is written. Who still waits is served first."""
        with suppress(OSError):  # it is told to those who wait
            self.wait(self._written)
        os.close(self._file)
