"""A part that is made when it is first needed, once, whichever thread needs it first."""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import RLock
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class Lazy(Generic[T]):
    """One value, made by the first call, whichever thread makes it; later calls return the same.

    A maker that raises leaves nothing behind: the next call tries again.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []  # empty, or the one value: a value may be None
        self._making = RLock()

    def __call__(self) -> T:
        if not self._made:
            with self._making:
                if not self._made:
                    self._made.append(self._make())
        return self._made[0]

    @property
    def if_made(self) -> T | None:
        """The value if there is one already; makes none."""
        return self._made[0] if self._made else None


def pattern(source: str | Callable[[], str], flags: int = 0) -> re.Pattern[str]:
    """A regular expression that its first use compiles: a command uses few of those that language is read by. source:
    it, or what makes it then."""
    return cast(re.Pattern[str], _LazyPattern(source, flags))


class _LazyPattern:
    def __init__(self, source: str | Callable[[], str], flags: int) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> object:
        source = self._source if isinstance(self._source, str) else self._source()
        vars(self)[name] = source if name == "pattern" else getattr(re.compile(source, self._flags), name)
        return vars(self)[name]
