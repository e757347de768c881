"""`memos top`. A thin door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from memos.errors import InputError
from memos.interface.cli_shared import User, over_vault

if TYPE_CHECKING:
    from memos.kernel import MemOS


@over_vault
def top(
    kernel: MemOS,
    every: Annotated[float, typer.Option(min=0.1, help="seconds between two looks")] = 2.0,
    user: User = None,
) -> None:
    """Watch a vault: memories by heat, forms, tiers, budgets, jobs; and promote, freeze or inspect them."""
    try:
        from memos.interface.top import Top
    except ImportError as error:
        raise InputError(f"memos top needs {error.name}; run `pip install 'memos[top]'`") from None
    from memos.interface.mem_api import Memory

    Top(Memory(kernel=kernel), every, user).run()
