"""An array that grows: a value for each row, in one piece of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Column:
    """Appending costs the same however long it is; `all` is a view, good until the next append."""

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        """width: of a row that is a vector."""
        self._data = np.empty((1024,) if width is None else (1024, width), dtype)
        self._rows = 0

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Column:
        """These rows; they may be changed in place."""
        column = cls(values.dtype, *values.shape[1:])
        if len(values):
            column._data, column._rows = values, len(values)
        return column

    def __len__(self) -> int:
        return self._rows

    @property
    def all(self) -> npt.NDArray[Any]:
        return self._data[: self._rows]

    def append(self, value: Any) -> None:
        if self._rows == len(self._data):
            grown = np.empty((2 * self._rows, *self._data.shape[1:]), self._data.dtype)  # takes no memory until used
            grown[: self._rows] = self._data
            self._data = grown
        self._data[self._rows] = value
        self._rows += 1

    def keep(self, rows: npt.NDArray[np.int64]) -> None:
        """Of all rows these alone, in this order."""
        kept = self._data[rows]
        self._data[: len(kept)], self._rows = kept, len(kept)
