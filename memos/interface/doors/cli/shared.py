"""What the commands share: opening a kernel, common options, and printing what was done as lines or JSON."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.errors import EmptyMemory, MemosError

if TYPE_CHECKING:
    from rich.table import Table

    from memos.config import Config as Settings
    from memos.kernel.mem_os import MemOS

Config = Annotated[Path | None, typer.Option("--config", help="YAML; without one, the embedded default")]
ConfigFile = Annotated[Path | None, typer.Argument(help="YAML; without one, the embedded default")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="change one setting of the config")]
_VAULT = typer.Option("--vault", envvar="MEMOS_VAULT", help="folder of the vault")
Vault = Annotated[Path, _VAULT]
NewVault = Annotated[Path | None, _VAULT]  # that is made where none is
User = Annotated[str | None, typer.Option("--user", help="act as this user")]
Json = Annotated[Path | None, typer.Option("--json", help="write the result to this file")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON value instead of lines")]
HERE = Path("memos-data")


@dataclass(frozen=True)
class Output:
    """What a command prints.

    value: for programs, in the words of the Memory API (`plain`). lines: for people, texts and what rich draws; empty:
    printed where there are none. Both may be made while they are printed; an error in the middle leaves what was done
    before printed. failed: the error that is raised at the end; or just that the exit code is 1.
    """

    value: object
    lines: str | Iterable[object] = ()
    empty: str = ""
    failed: MemosError | bool | None = None


Command = Callable[..., Output]
Registered = Callable[[Command], Callable[..., None]]
OpenVault = Callable[[Sequence[str | Path]], "MemOS"]  # of the paths that a command was given in place of a vault
_Opener = Callable[[Path, Path | None, list[str] | None], AbstractContextManager[object]]


def counted(memories: int) -> str:
    """How many memories, for people."""
    return "1 memory" if memories == 1 else f"{memories} memories"


def _option(name: str, default: object, kind: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


_AS_JSON = _option("as_json", False, AsJson)
_OPENS = (_option("vault", HERE, Vault), _option("config", None, Config), _option("set_", None, Set))


def _printing(function: Command, open_first: _Opener | None = None) -> Callable[..., None]:
    """The function as typer takes it: with the options that open its first argument, and with --json."""

    def run(as_json: bool, **given: Any) -> None:
        opener = open_first(*(given.pop(option.name) for option in _OPENS)) if open_first else nullcontext()
        with opener as first:
            call = partial(function, first, **given) if open_first else partial(function, **given)
            failed = _print_json(call) if as_json else _print(call())
            if isinstance(failed, MemosError):
                raise failed
            if failed:
                raise typer.Exit(1)

    kernel = {"MemOS": object, "OpenVault": object}  # none is imported for help
    own = list(inspect.signature(function, locals=kernel, eval_str=True).parameters.values())
    options = [*own[1:], _AS_JSON, *_OPENS] if open_first else [*own, _AS_JSON]
    options = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # typer makes its options of it
    run.__annotations__ = {option.name: option.annotation for option in options}
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return run


def opened(
    vault: Path, config: Path | None = None, set_: list[str] | None = None, paths: Sequence[str | Path] = ()
) -> MemOS:
    """A kernel over a vault that is there already, or one made for the work if only paths are named.

    Raises EmptyMemory.
    """
    from memos.kernel.mem_os import MemOS
    from memos.kernel.wiring import Parts, is_vault

    settings = settings_of(config, set_)
    if not (settings.vault.url or is_vault(vault) or (paths and all(Path(p).exists() for p in paths))):
        raise EmptyMemory(
            f"there is no vault in {vault}; give the folder with --vault, or make one with `memos add` or `memos chat`"
        )
    return MemOS(parts=Parts(settings, vault=vault, brief=True))


def made(vault: Path | None, config: Path | None = None, set_: list[str] | None = None) -> MemOS:
    """A kernel over a vault that may be a new one."""
    from memos.kernel.mem_os import MemOS
    from memos.kernel.wiring import Parts

    return MemOS(parts=Parts(settings_of(config, set_), vault=vault, brief=True))


def settings_of(config: Path | None, set_: list[str] | None) -> Settings:
    """What --config and --set say. Raises ConfigError."""
    from memos.config import load_config

    return load_config(config, tuple(set_ or ()))


def _opener(*vault: Path | list[str] | None) -> AbstractContextManager[OpenVault]:
    return nullcontext(partial(opened, *vault))  # type: ignore[arg-type]


def _register(open_first: _Opener | None, group: typer.Typer, name: str | None = None) -> Registered:
    return lambda function: group.command(name)(_printing(function, open_first))


# Adds a command that prints what it returns: as lines or, with --json, as one JSON value and nothing beside it: an
# object, a listing as {"results": [...]}, with its cost, as every reply of the Memory API.
command = partial(_register, None)
# The same, of a command whose first argument, a kernel over a vault that is there, is given as --vault, --config and
# --set. The command raises EmptyMemory.
vault_command = partial(_register, opened)
# The same, and the vault is made where there is none.
new_vault_command = partial(_register, made)
# The same, of a command that can do without a vault: its first argument opens it; see `opened`.
optional_vault_command = partial(_register, _opener)


def _print_json(call: Callable[[], Output]) -> MemosError | bool | None:
    """Returns whether it has failed, as `Output` has it."""
    from memos.interface.doors.api.calling import costing, plain

    with costing() as cost, redirect_stdout(sys.stderr):  # where questions go meanwhile
        output = call()
        failed = output.failed
        if isinstance(output.value, Iterator):
            value: list[object] = []
            try:
                value.extend(map(plain, output.value))
            except MemosError as error:
                if not value:
                    raise
                failed = error
        else:
            value = plain(output.value)
    reply = {"results": value} if isinstance(value, list) else value
    print(json.dumps(reply | {"cost": cost}, ensure_ascii=False))
    return failed


def _print(output: Output) -> MemosError | bool | None:
    """Returns whether it has failed, as `Output` has it."""
    empty = output.empty
    for line in [output.lines] if isinstance(output.lines, str) else output.lines:
        empty = ""
        if isinstance(line, str):
            print(line)
        else:
            from rich.console import Console

            Console().print(line)
    if empty:
        print(empty)
    return output.failed


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], folded: Collection[str]) -> Table:
    """What rich draws; the columns that are not folded stay on one line."""
    from rich.table import Table

    drawn = Table(box=None)
    for name in columns:
        least = 12 if name == columns[-1] else None
        drawn.add_column(name, no_wrap=name not in folded, overflow="fold", min_width=least)
    for row in rows:
        drawn.add_row(*row)
    return drawn
