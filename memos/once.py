"""Parts that are made when they are first needed, each once whichever thread needs it first."""

from __future__ import annotations

from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    once = cached_property
else:

    class once(cached_property):
        """A cached property of which two threads never make two values, as they may from Python 3.12 on."""

        def __init__(self, func: Any) -> None:
            super().__init__(func)
            self._making = RLock()

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            with self._making:
                return super().__get__(instance, owner)
