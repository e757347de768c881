"""`memos config`: lists the settings; knows no part that is set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memos.errors import InputError
from memos.interface.doors.cli.shared import Output, command

config = typer.Typer(name="config", help="The settings that a YAML or --set can change.", no_args_is_help=True)


@command(config)
def keys(
    under: Annotated[str, typer.Argument(help="only keys that begin so, as `scheduler`; all without")] = "",
) -> Output:
    """List settings, each with its default and what it is for."""
    from memos.plugins.settings.settings import groups

    found = [key for group in groups() for key in group.keys if key.path.startswith(under)]
    if not found:
        names = ", ".join(sorted({key.path.split(".")[0] for group in groups() for key in group.keys}))
        raise InputError(f"no setting begins with {under!r}; there are {names}")
    lines = (
        f"{key.path} ({key.type}; {key.default})" + (f"\n    {key.description}" if key.description else "")
        for key in found
    )
    return Output(found, lines)


@config.command()
def schema(
    out: Annotated[Path | None, typer.Argument(help="file to write; without one it is printed")] = None,
) -> None:
    """The JSON Schema of the YAML, by which editors complete and check it."""
    from memos.plugins.settings.settings import schema_text

    if out is None:
        print(schema_text(), end="")
        return
    try:
        out.write_text(schema_text(), "utf-8")
    except OSError as error:
        raise InputError(f"{out} cannot be written ({error.strerror}); name another file") from None
    print(f"{out}: name it in the first line of a YAML, `# yaml-language-server: $schema={out}`")
