"""Reads cubes from the rows of versions, heads and usage; must not know why one is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from memos.cube import MemCube, State, Usage
from memos.infrastructure.vault.store.clock import moment, odd_row
from memos.infrastructure.vault.store.store import Store

CUBE = """SELECT v.json, h.state, h.repeats, u.recalls, u.last, u.utility FROM heads h JOIN versions v ON v.id = h.id
          LEFT JOIN usage u ON u.id = h.id """
CURRENT = CUBE + "WHERE v.version = h.version "
STATE = "CASE WHEN h.expires <= ? THEN 'expired' ELSE h.state END"  # as `CubeRows.cube` tells it; of `CubeRows.at`


class CubeRows:
    """Reads cubes, each with the state and usage of now."""

    def __init__(self, db: Store) -> None:
        self._db = db

    def current(self, test: str = "", *values: object) -> list[MemCube]:
        """The current versions that pass a test ("AND …" in SQL), in canonical order."""
        return self.read(CURRENT + test, *values)

    def read(self, sql: str, *values: object) -> list[MemCube]:
        """The cubes that a statement gives, whose columns are those of CUBE, in canonical order."""
        return sorted(map(self.cube, self._db.rows(sql, *values)), key=lambda cube: cube.order)

    def cube(self, row: Sequence[Any]) -> MemCube:
        """One whose time to expire has come is expired, whatever state is written down."""
        content, written, repeats, recalls, last, utility = row
        cube, state = parsed(content), state_of(written)
        if cube.header.expires is not None and cube.header.expires <= self._db.now():
            state = State.EXPIRED
        if recalls or repeats or utility:
            return cube.model_copy(update={"state": state, "usage": _usage_of(recalls, last, repeats, utility)})
        return cube if state == cube.state else cube.model_copy(update={"state": state})

    def at(self) -> str:
        """Now, as times are written down."""
        return self._db.now().isoformat()


_of_json = TypeAdapter(MemCube).validator.validate_json
_STATES = {state.value: state for state in State}


@lru_cache(maxsize=1 << 11)  # the cubes of busy topic groups are read with every request
def parsed(content: str) -> MemCube:
    """A version as its JSON says. Raises VaultError for what is no cube."""
    try:
        cube: MemCube = _of_json(content)
    except ValidationError:
        raise odd_row(content) from None
    for part in (cube, cube.namespace, cube.rights, cube.header, cube.payload):
        # a set for each would be two thirds of what a cube takes here, 3 of 4.4 kB
        object.__setattr__(part, "__pydantic_fields_set__", _fields(type(part)))
    return cube


@cache
def _fields(kind: type[BaseModel]) -> set[str]:
    """Of a value that was read as it is kept, whole: pydantic copies the set before it changes one."""
    return set(kind.model_fields)


def _usage_of(recalls: int | None, last: str | None, repeats: int, utility: float | None) -> Usage:
    when = moment(last) if recalls else None
    try:
        return Usage(recalls=recalls or 0, last_recalled=when, repeats=repeats, utility=utility or 0.0)
    except ValidationError:
        raise odd_row((recalls, repeats, utility)) from None


def state_of(written: str) -> State:
    """A state as it is written down. Raises VaultError for what is none."""
    try:
        return _STATES[written]
    except KeyError:
        raise odd_row(written) from None
