"""`memos vault check`, `backup`, `restore`, `stats`, `compact`: a vault as a whole; knows no rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.interface.doors.cli.shared import HERE, Config, Output, Set, command, settings_of
from memos.plugins.progress import progress_bars

if TYPE_CHECKING:
    from memos.config import VaultConfig

vault = typer.Typer(name="vault", help="Look after a vault as a whole.", no_args_is_help=True)
_FOLDER = {"metavar": "[PATH]", "envvar": "MEMOS_VAULT"}
Folder = Annotated[Path | None, typer.Argument(**_FOLDER, help="folder of the vault; else that of the config")]


@command(vault)
def check(
    path: Annotated[Path | None, typer.Argument(**_FOLDER, help="folder of a vault, or of a backup")] = None,
    config: Config = None,
    set_: Set = None,
) -> Output:
    """Read every byte of a vault or a backup, and list what is wrong; exit code 1 if anything is. Changes nothing."""
    from memos.plugins.care.care import check

    folder, settings = _place(path, config, set_)
    with progress_bars() as show:
        found = check(folder, show, settings)
    return Output({"path": folder, "problems": found}, found, empty=f"{folder} is sound", failed=bool(found))


@command(vault)
def backup(
    dest: Annotated[Path, typer.Argument(help="a new folder, or an earlier backup of the same vault")],
    path: Annotated[Path | None, typer.Option("--vault", help="folder of the vault; else that of the config")] = None,
    config: Config = None,
    set_: Set = None,
) -> Output:
    """Copy a vault as it is now, while others write to it. Interrupted, the same command goes on from where it was."""
    from memos.plugins.care.care import back_up

    folder, settings = _place(path, config, set_)
    with progress_bars() as show:
        made = back_up(folder, dest, show, settings)
    line = f"{made.folder}: {made.bytes} bytes as of {made.at:%Y-%m-%d %H:%M:%S} UTC, {made.copied} of them copied"
    return Output(made, line)


@command(vault)
def restore(
    backup: Annotated[Path, typer.Argument(help="a folder that `memos vault backup` made")],
    path: Annotated[Path, typer.Argument(help="of the vault: a new or an empty folder")],
    forgotten: Annotated[
        Path | None, typer.Option(help="a vault or backup that knows who was forgotten since; else the vault it is of")
    ] = None,
    config: Config = None,
    set_: Set = None,
) -> Output:
    """Make a vault of a backup. Every digest is compared before the vault is there, and who was forgotten stays so."""
    from memos.plugins.care.care import restore

    governance = settings_of(config, set_).governance
    with progress_bars() as show:
        made = restore(backup, path, show, forgotten, governance)
    value = {"path": path, "vault": made.vault, "at": made.at}
    return Output(value, f"{path} is the vault {made.vault} as it was at {made.at}")


@command(vault)
def stats(path: Folder = None, config: Config = None, set_: Set = None) -> Output:
    """How much a vault holds: cubes, versions, users, jobs, bytes by place, quotas."""
    from memos.plugins.care.care import opened

    with opened(*_place(path, config, set_)) as found:
        figures = found.stats.all()
    return Output(figures, (line for name, value in figures.items() for line in _figures(name, value)))


@command(vault)
def compact(path: Folder = None, config: Config = None, set_: Set = None) -> Output:
    """Give the space of what was deleted back to the disk, and remove payloads that no cube refers to."""
    from memos.plugins.care.care import opened

    folder, settings = _place(path, config, set_)
    with opened(folder, settings) as found:
        before, after = found.compact()
    value = {"path": folder, "before": before, "after": after}
    return Output(value, f"{folder}: {before} bytes before, {after} after")


def _place(path: Path | None, config: Path | None, set_: list[str] | None) -> tuple[Path, VaultConfig]:
    """The folder that is meant, and how vaults are set."""
    settings = settings_of(config, set_).vault
    return path or settings.path or HERE, settings


def _figures(name: str, value: Any, indent: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        yield f"{indent}{name}:" if value else f"{indent}{name}: none"
        for key, inner in value.items():
            yield from _figures(key, inner, indent + "  ")
    else:
        yield f"{indent}{name}: {'none' if value is None else value}"
