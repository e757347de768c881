"""What the commands share: a kernel over a vault, the options that many take, and JSON for other programs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.errors import EmptyMemory

if TYPE_CHECKING:
    from memos.config import Config as Settings
    from memos.kernel import MemOS

Config = Annotated[Path | None, typer.Option("--config", help="YAML; without one, the embedded default")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="change one setting of the config")]
Vault = Annotated[Path, typer.Option("--vault", help="folder of the vault")]
User = Annotated[str | None, typer.Option("--user", help="act as this user")]
Id = Annotated[str, typer.Argument(help="id of a memory, as `memos ls` lists it")]
Json = Annotated[Path | None, typer.Option("--json", help="write the result to this file")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON value instead of lines")]
HERE = Path("memos-data")


def over_vault(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first argument, a kernel over a vault that is there, is given as --vault, --config and --set.

    Raises EmptyMemory.
    """
    return _over(opened, command)


def over_new_vault(command: Callable[..., None]) -> Callable[..., None]:
    """The same, and the vault is made where there is none."""
    return _over(made, command)


def _over(
    kernel_of: Callable[[Path, Path | None, list[str] | None], MemOS], command: Callable[..., None]
) -> Callable[..., None]:
    def run(vault: Vault = HERE, config: Config = None, set_: Set = None, **own: Any) -> None:
        with kernel_of(vault, config, set_) as kernel:
            command(kernel, **own)

    # typer makes the options of a signature: here the command's own, then those above
    hints = inspect.get_annotations(command, locals={"MemOS": object}, eval_str=True)  # no kernel is imported for help
    _, *own = inspect.signature(command).parameters.values()
    *shared, _ = inspect.signature(run, eval_str=True).parameters.values()
    options = [p.replace(annotation=hints.get(p.name, p.annotation), kind=p.KEYWORD_ONLY) for p in (*own, *shared)]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def opened(
    vault: Path, config: Path | None = None, set_: list[str] | None = None, paths: list[str] | None = None
) -> MemOS:
    """A kernel over a vault that is there already, or one made for the work if only paths are named.

    Raises EmptyMemory.
    """
    from memos.care import is_vault

    there = is_vault(vault) or settings_of(config, set_).vault.url is not None
    if not there and not (paths and all(Path(p).exists() for p in paths)):
        raise EmptyMemory(
            f"there is no vault in {vault}; give the folder with --vault, or make one with `memos chat` or `memos run`"
        )
    return made(vault, config, set_)


def made(vault: Path | None, config: Path | None = None, set_: list[str] | None = None) -> MemOS:
    """A kernel over a vault that may be a new one."""
    from memos.kernel import MemOS

    return MemOS(settings_of(config, set_), vault=vault)


def settings_of(config: Path | None, set_: list[str] | None) -> Settings:
    """What --config and --set say. Raises ConfigError."""
    from memos.config import load_config

    return load_config(config, tuple(set_ or ()))


def write_json(out: Path | None, value: object) -> None:
    """To the file of --json, where one is given; times as text."""
    if out:
        out.write_text(json.dumps(value, indent=1, default=str), "utf-8")
