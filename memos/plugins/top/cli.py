"""`memos top`: the terminal view, as a command."""

from __future__ import annotations

from typing import Annotated

import typer

from memos.errors import InputError, how_to_install
from memos.interface.doors.cli.shared import HERE, Config, Set, User, Vault, opened

commands = typer.Typer()


@commands.command()
def top(
    every: Annotated[float, typer.Option(min=0.1, help="seconds between two looks")] = 2.0,
    user: User = None,
    vault: Vault = HERE,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Watch a vault: memories by heat, forms, tiers, budgets, jobs; and promote, freeze or inspect them."""
    try:
        from memos.plugins.top.top import Top
    except ImportError as error:
        raise InputError(f"memos top needs {error.name}; {how_to_install('top')}") from None
    from memos.interface.doors.api.memory import Memory

    with opened(vault, config, set_) as kernel:
        Top(Memory(kernel=kernel), every, user).run()
