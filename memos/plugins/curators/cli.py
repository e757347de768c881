"""`memos curators`: what policies that write have done, and the links between memories; knows no system."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from memos.interface.doors.cli.shared import Output, User, new_vault_command, vault_command

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS
    from memos.plugins.curators.calls import CuratorCalls
    from memos.plugins.curators.signals import StoredLink

curators = typer.Typer(name="curators", help="Policies that write (mem0, a-mem, ...), and links.", no_args_is_help=True)
Id = Annotated[str, typer.Argument(help="a memory, as `memos ls` lists it, or the beginning of its id")]
Kind = Annotated[str, typer.Argument(help="a word that says how they are tied")]


def calls(kernel: MemOS, user: str | None) -> CuratorCalls:
    from memos.plugins.curators.calls import CuratorCalls

    return CuratorCalls.of(kernel.within(user) if user else kernel)


@vault_command(curators)
def run(kernel: MemOS, user: User = None) -> Output:
    """Let the policy read what it has not read, and do what is due."""
    runs = calls(kernel, user).curate()
    return Output({"runs": runs}, f"{runs} runs have changed something; `memos curators runs` lists them")


@vault_command(curators)
def runs(
    kernel: MemOS, limit: Annotated[int, typer.Option(min=1, help="the latest so many")] = 20, user: User = None
) -> Output:
    """List what curators have done, the last first."""
    found = calls(kernel, user).curations()[:limit]
    lines = [f"{one.id} {one.at:%Y-%m-%d %H:%M:%S} {one.system} {one.hook} {one.steps} operations" for one in found]
    return Output(found, lines, empty="no curator has changed anything; set policy to one that writes, such as mem0")


@vault_command(curators)
def undo(
    kernel: MemOS, run: Annotated[str, typer.Argument(help="as `memos curators runs` lists it")], user: User = None
) -> Output:
    """Take back what one run has done: every memory reads as it did before."""
    count = calls(kernel, user).undo_curation(run)
    return Output({"operations": count}, f"{count} operations of {run} are taken back")


@new_vault_command(curators)
def talk(
    kernel: MemOS, message: Annotated[str, typer.Argument(help="what the model is told, or asked")], user: User = None
) -> Output:
    """Say something to the model, which remembers and looks things up by tools."""
    reply = calls(kernel, user).converse(message)
    lines = [f"{use.tool} {dict(use.arguments)}{f' ({use.run})' if use.run else ''}" for use in reply.calls]
    how = [] if reply.ended == "answered" else [f"[cut short: {reply.ended.value}]"]
    return Output(asdict(reply), [*lines, *how, reply.text])


@vault_command(curators)
def link(
    kernel: MemOS,
    a: Id,
    b: Id,
    kind: Kind,
    weight: Annotated[float, typer.Option(help="from 0 to 1000")] = 1.0,
    user: User = None,
) -> Output:
    """Tie two memories, of any form."""
    made = calls(kernel, user).link(a, b, kind, weight)
    return Output(made._asdict(), _line(made))


@vault_command(curators)
def unlink(kernel: MemOS, a: Id, b: Id, kind: Kind, user: User = None) -> Output:
    """Take a link away."""
    gone = calls(kernel, user).unlink(a, b, kind)
    return Output({"unlinked": gone}, f"{a} and {b} are no longer tied by {kind}" if gone else "there was no such link")


@vault_command(curators)
def links(kernel: MemOS, id: Id, user: User = None) -> Output:
    """List the links at or from a memory."""
    found = calls(kernel, user).linked(id)
    return Output([one._asdict() for one in found], list(map(_line, found)), empty=f"nothing is tied to {id}")


def _line(link: StoredLink) -> str:
    times = " ".join(f"{word} {when:%Y-%m-%d}" for word, when in (("since", link.since), ("until", link.until)) if when)
    return f"{link.a} {link.kind} {link.b} ({link.weight:g}) {times}".rstrip()
