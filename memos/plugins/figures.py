"""Shows figures to people: sizes, tables, and what one must know of the machine to repeat them; knows no reports."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from typing import TypedDict

from rich.table import Table

import memos

_UNITS = (("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30))


class Surroundings(TypedDict):
    """What one must know of the machine to repeat a figure."""

    machine: str
    versions: dict[str, str]


def size(n: float) -> str:
    """A number of bytes for people."""
    unit, scale = next(((u, s) for u, s in reversed(_UNITS) if n >= s), _UNITS[0])
    return f"{n / scale:.0f} {unit}" if scale == 1 else f"{n / scale:.1f} {unit}"


def surroundings(packages: Sequence[str]) -> Surroundings:
    """The machine, and the versions of memos and these packages."""
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"python": platform.python_version(), "memos": memos.__version__} | versions,
    }


def table_of(title: str, *names: str) -> Table:
    """Numbers to the right of a first column, narrow enough for 80 characters."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, collapse_padding=True)
    for n, name in enumerate(names):
        table.add_column(name, justify="right" if n else "left", no_wrap=True)
    return table
