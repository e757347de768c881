"""`memos top`: what a vault holds, live, in a terminal. A door: it shows what the Memory API tells, and asks it to act."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from memos.errors import MemosError
from memos.interface.mem_api import Memory
from memos.interface.report import size

Row = dict[str, Any]
FORMS = {"plaintext": ("text", "#78a6e6"), "activation": ("KV", "#e8ac58"), "parametric": ("adapter", "#c294e8")}
_MOST = 500  # memories that are listed
# what the rows are ordered by, in turn: its name, and a key that puts the greatest first
ORDERS: tuple[tuple[str, Callable[[Row], Any]], ...] = (
    ("heat", lambda row: (-row["heat"], -row["recalls"])),
    ("recalls", lambda row: -row["recalls"]),
    ("size", lambda row: -row["bytes"]),
    ("topic", lambda row: (row["segment"], row["form"])),
    ("form", lambda row: (list(FORMS).index(row["form"]), -row["heat"])),
)
