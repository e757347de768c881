"""Arrays of rows: one that grows, and an index as named arrays that can be stored and read back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]  # [rows]: of a catalog, those that are meant
Rows = npt.NDArray[np.int64]  # numbers of rows
Parts = dict[str, Array]


class Column(Generic[Scalar]):
    """Appending costs the same however long it is; `all` is a view, good until the next append."""

    def __init__(self, dtype: type[Scalar], width: int | None = None) -> None:
        """width: of a row that is a vector."""
        self._data = np.empty((1024,) if width is None else (1024, width), dtype)
        self._rows = 0

    @classmethod
    def of(cls, values: npt.NDArray[Scalar]) -> Column[Scalar]:
        """These rows; they may be changed in place."""
        column = cls(values.dtype.type, *values.shape[1:])
        if len(values):
            column._data, column._rows = values, len(values)
        return column

    def __len__(self) -> int:
        return self._rows

    @property
    def all(self) -> npt.NDArray[Scalar]:
        return self._data[: self._rows]

    def append(self, value: npt.ArrayLike) -> None:
        if self._rows == len(self._data):
            grown = np.empty((2 * self._rows, *self._data.shape[1:]), self._data.dtype)  # takes no memory until used
            grown[: self._rows] = self._data
            self._data = grown
        self._data[self._rows] = value
        self._rows += 1

    def keep(self, rows: npt.NDArray[np.int64]) -> None:
        """Of all rows these alone, in this order."""
        chosen = self._data[rows]
        self._data[: len(chosen)], self._rows = chosen, len(chosen)


def pack(texts: Sequence[str]) -> Parts:
    whole = "".join(texts).encode()
    lengths = np.fromiter(map(len, texts), np.int32, len(texts))
    return {"utf8": np.frombuffer(whole, np.uint8), "lengths": lengths}


def unpack(parts: Parts) -> list[str]:
    whole, ends = parts["utf8"].tobytes().decode(), list(accumulate(parts["lengths"].tolist(), initial=0))
    return [whole[begin:end] for begin, end in pairwise(ends)]


def beneath(name: str, parts: Parts) -> Parts:
    return {f"{name}.{part}": array for part, array in parts.items()}


def at(name: str, parts: Parts) -> Parts:
    """Those that are beneath a name."""
    return {part.removeprefix(f"{name}."): array for part, array in parts.items() if part.startswith(f"{name}.")}


def split(values: Array, lengths: Array) -> list[list[Any]]:
    """One list after the other, of these lengths."""
    flat, ends = values.tolist(), list(accumulate(lengths.tolist(), initial=0))
    return [flat[begin:end] for begin, end in pairwise(ends)]
