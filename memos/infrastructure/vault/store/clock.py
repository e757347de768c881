"""The time of a vault, which never goes back behind what was read or written; must not know what it is for."""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from memos.errors import VaultError

if TYPE_CHECKING:
    from memos.infrastructure.vault.store.store import Store

log = logging.getLogger("memos")
_NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WARN_S = 1.0  # by how much a clock must go back for a warning; less is its being set by a time server


class Times:
    """The times of one open store. What is written is read once a transaction; else this process goes by what it knows
    and by the machine's clock."""

    def __init__(self) -> None:
        self.stamped: datetime | None = None  # the latest time that this transaction has stamped
        self._written: datetime | None = None  # what this transaction found written down
        self._known = _NEVER  # the latest time that is known to be written down
        self._warned, self._latest = False, clock()  # of the clock; the latest time that was told
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A transaction begins."""
        self.stamped = self._written = None

    def now(self, store: Store) -> datetime:
        if not store.in_transaction:
            return self._told(self._known)
        if self._written is None:
            [(at,)] = store.rows("SELECT at FROM clock")
            self._written = moment(at) if at else _NEVER
        return self._told(self.stamped or self._written)

    def stamp(self, store: Store) -> str:
        """Within a transaction, which writes it down at its end."""
        self.stamped = self._known = self.now(store)
        return self.stamped.isoformat()

    def heard(self, at: str) -> None:
        """A time that was read where it is written down: all that is told from here on is after it."""
        if at:
            self._known = max(self._known, moment(at))
            self._written = self._written or self._known

    def _told(self, after: datetime) -> datetime:
        said = clock()
        with self._lock:
            if after is not _NEVER:
                after += timedelta(microseconds=1)
            self._latest = max(self._latest, said, after)
            if (self._latest - said).total_seconds() > _WARN_S and not self._warned:
                self._warned = True
                log.warning(
                    "the clock says %s, and it was %s before: time goes on from there, and nothing ages until the "
                    "clock is past it; set the clock of this machine",
                    *(said.isoformat(), self._latest.isoformat()),
                )
            return self._latest


def clock() -> datetime:
    """What the machine's clock says."""
    return datetime.now(timezone.utc)


def moment(at: object) -> datetime:
    """A time as it was written down. Raises VaultError for what is none."""
    try:
        return datetime.fromisoformat(at)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise odd_row(at) from None


def odd_row(value: object) -> VaultError:
    """The error for a row that memos would not have written."""
    return VaultError(
        f"vault.db holds {value!r:.80} where memos writes nothing of the kind: it was damaged, or changed by another "
        f"program; bring back a copy of the vault folder"
    )
