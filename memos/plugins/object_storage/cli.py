"""`memos vault move-blobs`: payloads into a bucket, and home again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memos.interface.doors.cli.shared import HERE, Config, Output, Set, command, settings_of
from memos.plugins.progress import progress_bars

vault_blobs = typer.Typer(name="vault")


@command(vault_blobs)
def move_blobs(
    to: Annotated[str, typer.Argument(help="s3://BUCKET/PREFIX, gs://, az:// or file:///FOLDER; or: home")],
    path: Annotated[
        Path | None, typer.Option("--vault", envvar="MEMOS_VAULT", help="folder of the vault; else that of the config")
    ] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="the bucket is of this vault, which lay elsewhere before it was moved")
    ] = False,
    config: Config = None,
    set_: Set = None,
) -> Output:
    """Move all payloads (KV files, adapters) of a vault into a bucket, or home: into its folder, or to its server.
    Interrupted, the same command goes on from where it was."""
    from memos.plugins.object_storage.moving import move

    settings = settings_of(config, set_).vault
    folder = path or settings.path or HERE
    with progress_bars() as show:
        made = move(folder, settings, None if to == "home" else to, adopt, show)
    lines = [f"{made.moved} payloads of {folder} were moved to {made.to}"]
    if made.damaged:
        lines.append(f"{made.damaged} are damaged, and were left where they are; see `memos vault check`")
    if to == "home":
        lines.append("unset vault.blobs, or new ones go there again")
    return Output(made, lines, failed=bool(made.damaged))
