"""`memos vault check`, `repair`, `backup`, `restore`, `stats`, `compact`: a vault as a whole. Doors; know no rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.interface import cli_keys
from memos.interface.cli_shared import HERE, AsJson, Config, Set, settings_of
from memos.interface.progress import progress_bars

if TYPE_CHECKING:
    from memos.config import VaultConfig

vault = typer.Typer(name="vault", help="Look after a vault as a whole.", no_args_is_help=True)
cli_keys.add_to(vault)
Folder = Annotated[Path | None, typer.Argument(metavar="[PATH]", help="folder of the vault; else that of the config")]


@vault.command()
def check(
    path: Annotated[Path | None, typer.Argument(metavar="[PATH]", help="folder of a vault, or of a backup")] = None,
    config: Config = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Read every byte of a vault or a backup, and list what is wrong; exit code 1 if anything is. Changes nothing."""
    from memos.care import check

    folder, settings = _place(path, config, set_)
    with progress_bars() as show:
        found = check(folder, show, settings.key, settings.server)
    if as_json:
        print(json.dumps({"path": str(folder), "problems": found}, indent=2))
    else:
        print("\n".join(found) if found else f"{folder} is sound")
    if found:
        raise typer.Exit(1)


@vault.command()
def repair(
    path: Folder = None,
    yes: Annotated[bool, typer.Option("--yes", help="do it; without this, only say what would be done")] = False,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Make a damaged vault sound: from text what can be made of text, and say what is lost. The old files are kept."""
    from memos.care import repair

    folder, settings = _place(path, config, set_)
    with progress_bars() as show:
        done = repair(folder, yes, show, settings.key, settings.scratch)
    _listed("wrong", done.problems)
    _listed("done" if yes else "to do", done.steps)
    _listed("lost", done.lost)
    _listed("to promote again", (f"{id}, made of {', '.join(of)}" for id, of in done.promote))
    if not done.steps:
        print(f"{folder}: there is nothing to repair")
    elif not yes:
        print("nothing was changed; add --yes to do this")
    else:
        print(f"the damaged files are in {done.aside}")
    _listed("still wrong", done.left)
    if done.left or (done.problems and not done.steps):
        raise typer.Exit(1)


@vault.command()
def backup(
    dest: Annotated[Path, typer.Argument(help="a new folder, or an earlier backup of the same vault")],
    path: Annotated[Path | None, typer.Option("--vault", help="folder of the vault; else that of the config")] = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Copy a vault as it is now, while others write to it. Interrupted, the same command goes on from where it was."""
    from memos.care import back_up

    folder, settings = _place(path, config, set_)
    with progress_bars() as show:
        made = back_up(folder, dest, show, settings.key, settings.scratch)
    print(f"{made.folder}: {made.bytes} bytes as of {made.at:%Y-%m-%d %H:%M:%S} UTC, {made.copied} of them copied")


@vault.command()
def restore(
    backup: Annotated[Path, typer.Argument(help="a folder that `memos vault backup` made")],
    path: Annotated[Path, typer.Argument(help="of the vault: a new or an empty folder")],
    forgotten: Annotated[
        Path | None, typer.Option(help="a vault or backup that knows who was forgotten since; else the vault it is of")
    ] = None,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Make a vault of a backup. Every digest is compared before the vault is there, and who was forgotten stays so."""
    from memos.care import restore

    governance = settings_of(config, set_).governance
    with progress_bars() as show:
        made = restore(backup, path, show, forgotten, governance)
    print(f"{path} is the vault {made.vault} as it was at {made.at}")


@vault.command()
def stats(path: Folder = None, config: Config = None, set_: Set = None, as_json: AsJson = False) -> None:
    """How much a vault holds: cubes, versions, users, jobs, bytes by place, quotas."""
    from memos.care import stats

    folder, settings = _place(path, config, set_)
    told = stats(folder, settings.quota, settings.key, settings.scratch, settings.server)
    if as_json:
        print(json.dumps(told, indent=2, ensure_ascii=False))
        return
    for name, value in told.items():
        _say(name, value)


@vault.command()
def compact(path: Folder = None, config: Config = None, set_: Set = None) -> None:
    """Give the space of what was deleted back to the disk, and remove payloads that no cube refers to."""
    from memos.care import compact

    folder, settings = _place(path, config, set_)
    before, after = compact(folder, settings.key, settings.scratch, settings.server)
    print(f"{folder}: {before} bytes before, {after} after")


def _place(path: Path | None, config: Path | None, set_: list[str] | None) -> tuple[Path, VaultConfig]:
    """The folder that is meant, and how vaults are set."""
    settings = settings_of(config, set_).vault
    return path or settings.path or HERE, settings


def _listed(what: str, lines: Iterable[str]) -> None:
    found = list(lines)
    if found:
        print(f"{what}:", *found, sep="\n  ")


def _say(name: str, value: Any, indent: str = "") -> None:
    if isinstance(value, dict):
        print(f"{indent}{name}:" if value else f"{indent}{name}: none")
        for key, inner in value.items():
            _say(key, inner, indent + "  ")
    else:
        print(f"{indent}{name}: {'none' if value is None else value}")
