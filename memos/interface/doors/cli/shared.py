"""What the commands share: a kernel over a vault, the options that many take, and how each tells what it did."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.errors import EmptyMemory, MemosError

if TYPE_CHECKING:
    from memos.config import Config as Settings
    from memos.interface.doors.api.memory import Memory
    from memos.kernel.mem_os import MemOS

Config = Annotated[Path | None, typer.Option("--config", help="YAML; without one, the embedded default")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="change one setting of the config")]
Vault = Annotated[Path, typer.Option("--vault", help="folder of the vault")]
User = Annotated[str | None, typer.Option("--user", help="act as this user")]
Id = Annotated[str, typer.Argument(help="id of a memory, as `memos ls` lists it")]
Json = Annotated[Path | None, typer.Option("--json", help="write the result to this file")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON value instead of lines")]
HERE = Path("memos-data")


@dataclass(frozen=True)
class Told:
    """What a command has to say.

    value: for programs, in the words of the Memory API (`plain`). lines: for people, texts and what rich draws; none:
    said where there are none. Both may be made while they are told; an error in the middle leaves what was done before
    told. failed: the error that is raised once all is told; or just that the exit code is 1.
    """

    value: Any
    lines: str | Iterable[Any] = ()
    none: str = ""
    failed: MemosError | bool | None = None


def telling(command: Callable[..., Told]) -> Callable[..., None]:
    """A command that tells what it returns, as lines or, with --json, as one JSON value and nothing beside it: an
    object, a listing as {"results": [...]}, with its cost, as every reply of the Memory API."""

    def run(*given: Any, as_json: bool = False, **named: Any) -> None:
        if as_json:
            failed = _print_json(partial(command, *given, **named))
        else:
            told = command(*given, **named)
            _print(told)
            failed = told.failed
        if isinstance(failed, MemosError):
            raise failed
        if failed:
            raise typer.Exit(1)

    hints = inspect.get_annotations(command, locals={"MemOS": object}, eval_str=True)  # no kernel is imported for help
    own = [p.replace(annotation=hints[p.name]) for p in inspect.signature(command).parameters.values()]
    flag = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)
    return _taking([*own, flag], run, command)


def _print_json(command: Callable[[], Told]) -> MemosError | bool | None:
    """Returns whether it has failed, as `Told` has it."""
    from memos.interface.doors.api.memory import costing, plain

    with costing() as cost, redirect_stdout(sys.stderr):  # where questions go meanwhile
        told = command()
        failed, value = told.failed, told.value
        if isinstance(value, Iterator):
            done = list[Any]()
            try:
                done.extend(map(plain, value))
            except MemosError as error:
                if not done:
                    raise
                failed = error
            value = done
        else:
            value = plain(value)
    reply = {"results": value} if isinstance(value, list) else value
    print(json.dumps(reply | {"cost": cost}, ensure_ascii=False))
    return failed


def _print(told: Told) -> None:
    none = told.none
    for line in [told.lines] if isinstance(told.lines, str) else told.lines:
        none = ""
        if isinstance(line, str):
            print(line)
        else:
            from rich.console import Console

            Console().print(line)
    if none:
        print(none)


def over_vault(command: Callable[..., Told]) -> Callable[..., None]:
    """A command that tells what it returns, and whose first argument, a kernel over a vault that is there, is given as
    --vault, --config and --set.

    Raises EmptyMemory.
    """
    return _over(opened, telling(command))


def over_new_vault(command: Callable[..., Told]) -> Callable[..., None]:
    """The same, and the vault is made where there is none."""
    return _over(made, telling(command))


def _over(
    kernel_of: Callable[[Path, Path | None, list[str] | None], MemOS], command: Callable[..., None]
) -> Callable[..., None]:
    def run(vault: Vault = HERE, config: Config = None, set_: Set = None, **own: Any) -> None:
        with kernel_of(vault, config, set_) as kernel:
            command(kernel, **own)

    _, *own = inspect.signature(command).parameters.values()
    *shared, _ = inspect.signature(run, eval_str=True).parameters.values()
    return _taking([p.replace(kind=p.KEYWORD_ONLY) for p in (*own, *shared)], run, command)


def _taking(
    options: list[inspect.Parameter], run: Callable[..., None], command: Callable[..., Any]
) -> Callable[..., None]:
    """`run` in place of the command, with these options: typer makes them of the signature."""
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
    from memos.kernel.care import is_vault

    settings = settings_of(config, set_)
    if not (settings.vault.url or is_vault(vault) or (paths and all(Path(p).exists() for p in paths))):
        raise EmptyMemory(
            f"there is no vault in {vault}; give the folder with --vault, or make one with `memos chat` or `memos run`"
        )
    return _kernel(settings, vault)


def made(vault: Path | None, config: Path | None = None, set_: list[str] | None = None) -> MemOS:
    """A kernel over a vault that may be a new one."""
    return _kernel(settings_of(config, set_), vault)


def _kernel(settings: Settings, vault: Path | None) -> MemOS:
    from memos.kernel.mem_os import MemOS

    return MemOS(settings, vault=vault)


def settings_of(config: Path | None, set_: list[str] | None) -> Settings:
    """What --config and --set say. Raises ConfigError."""
    from memos.config import load_config

    return load_config(config, tuple(set_ or ()))


def api(kernel: MemOS) -> Memory:
    """The Memory API over a kernel, for what its replies say beside the memories."""
    from memos.interface.doors.api.memory import Memory

    return Memory(kernel=kernel)
