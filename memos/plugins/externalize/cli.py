"""`memos externalize`: what an adapter or KV says, and kept as memories."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from memos.interface.doors.cli.shared import OpenVault, Output, User, optional_vault_command
from memos.plugins.commands.forms import named
from memos.plugins.externalize.values import SURE

commands = typer.Typer()


@optional_vault_command(commands)
def externalize(
    open_vault: OpenVault,
    what: Annotated[str, typer.Argument(help="id of a cube, folder of an adapter, or file of KV")],
    about: Annotated[list[str] | None, typer.Option("--about", help="a subject to ask about")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="as memories, believed as those that a model wrote")] = False,
    sure: Annotated[float, typer.Option(min=0, max=1, help="confidence from which --keep does so")] = SURE,
    user: User = None,
) -> Output:
    """What an adapter says with it on against off, each statement with its support; of a KV cache, its text."""
    from memos.plugins.externalize.calls import ExternalizeCalls

    with open_vault([what]) as kernel:
        calls = ExternalizeCalls.of(kernel.within(user))
        found = calls.externalize(named(what), about=about or (), keep=keep, sure=sure)
    none = "it answers as the base model does on everything asked; name subjects with --about"
    return Output(found.rows, map(_statement, found.rows), none)


def _statement(row: dict[str, Any]) -> str:
    source = f"backed by {row['source']}" if row["source"] else "not backed by any memory"
    how = "regenerated from its tokens"
    if row["asked"]:
        how = f"{row['support']} of {row['asked']} questions, confidence {row['confidence']:.2f}"
    became = "".join(f"; {word} {row[name]}" for name, word in (("kept", "kept as"), ("left", "left:")) if row[name])
    return f"{row['text']}  [{how}; {source}{became}]"
