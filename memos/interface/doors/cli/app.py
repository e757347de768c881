"""The command line `memos`: `chat`, `plugins`, those on memories, and the groups that plug-ins and packages add.

Exit codes: 0 done, 1 an error that is named, 2 a wrong command line, 130 interrupted.
"""

from __future__ import annotations

import itertools
import shlex
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup
from typer.main import get_group

import memos
from memos.cube import NOTED
from memos.errors import InputError, MemosError
from memos.extensions import Registry
from memos.interface.doors.cli.shared import ConfigFile, NewVault, Output, Set, User, command, counted, made, table

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter

    from memos.kernel.mem_os import MemOS, Reply


PARTS: Registry[typer.Typer] = Registry("memos.commands", "command group")
PURPOSES = {
    "Begin": "quickstart chat add search ls show config plugins doctor",
    "What is remembered": "update delete tag history rollback fuse split consolidate reinstate lineage audit-memory "
    "conflicts overview import",
    "Why it was answered": "explain feedback undo",
    "Forms of memory": "promote demote work work-on-ray jobs cancel gate externalize steering calibrate recommend top",
    "Life of a memory": "freeze thaw archive unarchive snapshot snapshots restore delete-snapshot",
    "Rights and trust": "grant revoke grants group key trust quarantine hold end-hold holds audit forget",
    "Vaults, and memories that travel": "vault dump load store export-adapter provenance",
    "Programs and agents": "serve mcp",
    "Measurements": "run bench simulate",
}
_UsageError: Any = typer.BadParameter.__mro__[1]  # which typer has under no name of its own


class Commands(TyperGroup):
    """The commands of memos, and those of the packages that add some: loaded when one is asked for that is not ours.

    A group with a name of its own is mounted under it, beside what is there; of one without, each command by itself.
    What ships keeps its name. Ends with the exit code of an error; a wrong command line is typer's own: 2.
    """

    @cached_property
    def _left_out(self) -> list[str]:
        """Why each part that failed to load is left out."""
        return []

    @cached_property
    def _parts(self) -> Iterator[None]:
        """Adds what packages bring, what ships first: a part with each step."""
        return itertools.starmap(self._mount, PARTS.usable(self._left_out.append))

    def _mount(self, name: str, part: object) -> None:
        if not isinstance(part, typer.Typer):
            self._left_out.append(f"the command group {name!r} is no typer.Typer; mend or uninstall what provides it")
            return
        group = get_group(part)
        there = self.commands.setdefault(group.name, group) if group.name else self
        if isinstance(there, TyperGroup):
            for name, command in group.commands.items():
                there.commands.setdefault(name, command)

    def list_commands(self, ctx: Context) -> list[str]:
        list(self._parts)  # all of them
        return super().list_commands(ctx)

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Print the commands by what they are for."""
        left = self.list_commands(ctx)
        out = [ctx.get_usage(), "", str(self.help), "`memos COMMAND --help` tells more of one."]
        for purpose, names in {**PURPOSES, "Of other packages": " ".join(left)}.items():
            chosen = [name for name in names.split() if name in left]
            out += ["", purpose] if chosen else []
            for name in chosen:
                left.remove(name)
                about = textwrap.wrap(" ".join((self.commands[name].help or "").split()), 62, break_on_hyphens=False)
                out.append(f"  {name:15} " + f"\n{'':18}".join(about))
        out += [
            "",
            "--version tells this one; --install-completion and --show-completion complete commands in your shell.",
        ]
        typer.echo("\n".join(out))

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        for _ in itertools.chain([None], self._parts):
            found = self.commands.get(cmd_name)
            if found is not None and not isinstance(found, TyperGroup):
                return found  # no package can add to it
        if cmd_name not in self.commands:
            for problem in self._left_out:
                print(f"left out: {problem}", file=sys.stderr)
        return self.commands.get(cmd_name)

    def make_context(self, *args: Any, **named: Any) -> Context:
        with _usage_told():
            return super().make_context(*args, **named)

    def invoke(self, ctx: Context) -> object:
        try:
            with _usage_told():
                return super().invoke(ctx)
        except MemosError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            print("interrupted; what was acknowledged is kept, the same command goes on from there", file=sys.stderr)
            raise typer.Exit(130) from None


@contextmanager
def _usage_told() -> Iterator[None]:
    """Say in one line what is wrong with a command line."""
    try:
        yield
    except _UsageError as error:
        command = error.ctx.command_path if error.ctx else "memos"
        message = error.format_message().rstrip(".")
        if isinstance(error.__cause__, ValidationError):  # of which typer gives the rule alone
            message += f" (given: {error.__cause__.errors()[0]['input']!r:.80})"
        if hasattr(error, "possibilities") and (name := getattr(error, "option_name", "")):  # NoSuchOption
            known = [option for one in error.ctx.command.params for option in one.opts] if error.ctx else []
            near = get_close_matches(name, [option for option in known if option.startswith("-")], 1)
            message = f"No such option: {name}" + "".join(f"; did you mean {option}?" for option in near)
        print(f"error: {message} (`{command} --help` lists what there is)", file=sys.stderr)
        raise typer.Exit(2) from None


app = typer.Typer(
    name="memos",
    cls=Commands,
    help="A memory operating system for local language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _tell_version(asked: bool) -> None:
    if asked:
        print(f"memos {memos.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_tell_version)] = False,
) -> None:
    """A memory operating system for local language models."""


@command(app)
def plugins() -> Output:
    """What packages add, by extension point: each part with its package, and why one cannot be used."""
    from memos.extensions import extensions

    found = extensions(load=True)
    columns = ("extension point", "name", "package", "problem")
    rows = ((part.group, part.name, f"{part.package} {part.version}", part.problem) for part in found)
    lines = [table(columns, rows, folded=("package", "problem"))] if found else ()
    return Output(found, lines, empty="nothing is installed that adds a part")


@app.command()
def chat(
    config: ConfigFile = None,
    set_: Set = None,
    vault: NewVault = None,
    user: User = None,
    session: Annotated[
        str | None, typer.Option("--session", help="name of a conversation to go on with; it is kept turn by turn")
    ] = None,
    rewind: Annotated[
        int | None, typer.Option("--rewind", min=0, help="first take the session back to so many turns")
    ] = None,
) -> None:
    """Talk with the model; it remembers, and shows what it answered from. End with ctrl-D."""
    if config and config.suffix not in (".yaml", ".yml") and not config.exists():
        said = shlex.quote(str(config))
        raise InputError(f"no config file {said}; what is meant for the model is typed in, or echo {said} | memos chat")
    with made(vault, config, set_) as kernel:
        kernel.host  # noqa: B018  load the model before the first prompt, so that its errors come first
        if rewind is not None:
            if session is None:
                raise InputError("--rewind takes a session back; name it with --session")
            print(f"{kernel.within(user).rewind(session, rewind)} turns of {session} taken back")
        model, count = kernel.config.model.path, len(kernel.within(user).memories())
        print(f"{model}, {counted(count)} in {kernel.vault.path}. ctrl-D ends.")
        if session is not None:
            print(f"session {session}: {len(kernel.within(user).turns(session))} turns so far")
        turns: list[dict[str, str]] = []
        while (message := _read_line()) is not None:
            if message.strip():
                _turn(kernel, message, turns, session, user)


def _read_line() -> str | None:
    try:
        return input("> ")
    except EOFError:
        print()
        return None


def _turn(kernel: MemOS, message: str, turns: list[dict[str, str]], session: str | None, user: str | None) -> None:
    """One message and its answer. A person sees an error and the talk goes on; a script ends with it."""
    earlier = turns if session is None else ()
    try:
        reply = kernel.within(user).chat(
            message, turns=earlier, session=session, on_text=lambda piece: print(piece, end="", flush=True)
        )
    except MemosError as error:
        if not sys.stdin.isatty():
            raise
        print(f"error: {error}", file=sys.stderr)
        return
    answered = bool(reply.prompt_tokens)  # and so streamed already
    print("" if answered else reply.text)
    if reply.pipeline:
        print(f"to undo this: memos undo {reply.pipeline} --vault {kernel.vault.path}")
    print(_used(reply))
    if answered and not (reply.admission.cubes or reply.admission.internal):
        at = f"--vault {shlex.quote(str(kernel.vault.path))}"
        print(f"  see what is near: memos search {shlex.quote(message)} {at}; tell it: here, or by memos add {at}")
    if reply.forgotten:
        turns.clear()
    else:  # what was carried out is read with what follows, and not shown to the model
        kind = {} if answered else {"kind": NOTED}
        turns += [{"role": "user", "content": message} | kind, {"role": "assistant", "content": reply.text} | kind]


def _used(reply: Reply) -> str:
    """One line: which memories, in which form, at what cost."""
    admission = reply.admission
    parts = []
    if admission.adapters:
        names = ", ".join(adapter.id[-8:] for adapter in admission.adapters)
        parts.append(f"adapter {names} for {counted(len(admission.internal))}")
    parts += [f"KV {kv.id[-8:]} of {counted(len(kv.sources))}" for kv in admission.activations]
    if admission.as_text:
        parts.append("text: " + " | ".join(c.text for c in admission.as_text))
    if reply.remembered:
        parts.append("kept as " + ", ".join(c.id for c in reply.remembered))
    total = reply.prompt_tokens + reply.past_tokens
    cost = f"; {reply.prompt_tokens} of {total} prompt tokens read, first after {reply.ttft_ms:.0f} ms"
    return f"  [{'; '.join(parts) or 'no memory used'}{cost if total else ''}]"
