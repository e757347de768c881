"""What an index holds as named arrays, and back, so that it can be kept in a file. Knows no index and no file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Parts = dict[str, npt.NDArray[Any]]


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


def split(values: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> list[list[Any]]:
    """One list after the other, of these lengths."""
    flat, ends = values.tolist(), list(accumulate(lengths.tolist(), initial=0))
    return [flat[begin:end] for begin, end in pairwise(ends)]
