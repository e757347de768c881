"""Legal holds: which cubes must stay, who holds them and why; must not know what a hold forbids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple

from memos.errors import Held
from memos.infrastructure.vault.store.store import IN, Store


class LegalHold(NamedTuple):
    """A cube that must stay."""

    id: str
    holder: str
    why: str
    at: datetime


class HoldTable:
    def __init__(self, db: Store, as_written: Callable[[str], str]) -> None:
        """as_written: a reason as it may be kept."""
        self._db, self._as_written = db, as_written

    def put(self, id: str, holder: str, why: str) -> None:
        """Within a transaction. Raises Held for one that is held already."""
        self.require_none([id], "be held twice")
        self._db.write("INSERT INTO holds VALUES (?, ?, ?, ?)", id, holder, self._as_written(why), self._db.stamp())

    def end(self, id: str) -> bool:
        """Within a transaction; False if it was not held."""
        return self._db.write("DELETE FROM holds WHERE id = ?", id) > 0

    def of(self, ids: Iterable[str]) -> list[LegalHold]:
        """Those on `ids`, oldest first."""
        sql = f"SELECT id, holder, why, at FROM holds WHERE id {IN} ORDER BY at, id"
        rows = self._db.rows(sql, json.dumps(list(ids)))
        return [LegalHold(id, holder, why, datetime.fromisoformat(at)) for id, holder, why, at in rows]

    def rename(self, clean: Callable[[str], str]) -> None:
        """Within a transaction: put what `clean` makes of it in the place of each holder and reason."""
        for id, holder, why in self._db.rows("SELECT id, holder, why FROM holds"):
            if (new := (clean(holder), clean(why))) != (holder, why):
                self._db.write("UPDATE holds SET holder = ?, why = ? WHERE id = ?", *new, id)

    def require_none(self, ids: Iterable[str], what: str) -> None:
        """Raises Held, which names who holds which cube, and why."""
        if held := self.of(ids):
            first, more = held[0], f", and {len(held) - 1} more are held" if len(held) > 1 else ""
            raise Held(
                f"cube {first.id} is held by {first.holder} since {first.at:%Y-%m-%d} ({first.why}) and cannot "
                f"{what}{more}; ask {first.holder} to end the hold with `memos end-hold`"
            )
