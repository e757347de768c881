"""An array that grows: a value for each row, in one piece of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Column:
    """Appending costs the same however long it is; `all` is a view, good until the next append."""

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        """width: of a row that is a vector."""
        self._data = np.zeros((1024,) if width is None else (1024, width), dtype)
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def all(self) -> npt.NDArray[Any]:
        return self._data[: self._rows]

    def append(self, value: Any) -> None:
        if self._rows == len(self._data):
            self._data = np.concatenate([self._data, np.zeros_like(self._data)])
        self._data[self._rows] = value
        self._rows += 1
