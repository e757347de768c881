"""`memos dump`, `load`, `export-adapter`, `provenance`: what travels to other vaults and servers; knows no packs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memos.errors import InputError
from memos.interface.doors.cli.shared import (
    OpenVault,
    Output,
    User,
    command,
    new_vault_command,
    optional_vault_command,
    vault_command,
)
from memos.plugins.commands.forms import Adapters, named

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS
    from memos.plugins.packs.calls import PackCalls
    from memos.plugins.packs.loader import Loaded

packs = typer.Typer()
Trusted = Annotated[str | None, typer.Option("--trust", help="the key that it may be signed with, if not known here")]
Clash = Annotated[
    str, typer.Option("--clash", help="where an id stands for something else here: refuse, rename or update")
]
Key = Annotated[Path | None, typer.Option("--key", help="PEM file to sign with; else the vault's own key")]
Ids = Annotated[list[str] | None, typer.Option("--id", help="a memory, as `memos ls` lists it; all without")]
Kinds = Annotated[list[str] | None, typer.Option("--kind", help="only of this kind")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="only with this tag, or another that is given")]
Query = Annotated[str | None, typer.Option("--query", help="only what a search for this finds")]
Since = Annotated[datetime | None, typer.Option("--since", help="only what was said since then, UTC")]
Until = Annotated[datetime | None, typer.Option("--until", help="only what was said until then, UTC")]
Tensors = Annotated[bool, typer.Option("--tensors/--no-tensors", help="KV and adapters too")]


@vault_command(packs)
def dump(
    kernel: MemOS,
    path: Annotated[Path, typer.Argument(help="file to write; a folder with --folder")],
    id: Ids = None,
    kind: Kinds = None,
    tag: Tags = None,
    query: Query = None,
    since: Since = None,
    until: Until = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="of every user of the vault")] = False,
    folder: Annotated[bool, typer.Option("--folder", help="a folder of files in place of one file")] = False,
    tensors: Tensors = True,
    history: Annotated[bool, typer.Option("--history", help="earlier versions too")] = False,
    key: Key = None,
    user: User = None,
) -> Output:
    """Write memories to a pack, signed, for another vault, model or user."""
    done = calls(kernel, user).dump(
        path,
        ids=id or (),
        kinds=kind or (),
        tags=tag or (),
        query=query,
        since=since,
        until=until,
        everyone=everyone,
        folder=folder,
        tensors=tensors,
        history=history,
        key=key,
    )
    records = done.manifest.records
    lines = [f"{records} memories in {path}, signed with {done.key}", *left_lines(done.left)]
    return Output({"path": path, "key": done.key, "memories": records, "left": done.left}, lines)


@new_vault_command(packs)
def load(
    kernel: MemOS,
    path: Annotated[Path, typer.Argument(help="a pack, as `memos dump` makes it")],
    trust: Trusted = None,
    clash: Clash = "refuse",
    owners: Annotated[bool, typer.Option("--owners", help="each memory stays with the user it belonged to")] = False,
    user: User = None,
) -> Output:
    """Take over the memories of a pack. Cut off, the same command goes on from there."""
    done = calls(kernel, user).load(path, trust=trust, clash=clashing(clash), owners=owners)
    return Output(done, [loaded_line(done), *left_lines(done.left)])


@optional_vault_command(packs, "export-adapter")
def export_adapter(
    open_vault: OpenVault,
    adapters: Adapters,
    out: Annotated[Path, typer.Option("--out", help="folder to put the adapter in")],
    user: User = None,
) -> Output:
    """One adapter folder that is all of these together, for peft, vLLM and other servers."""
    with open_vault(adapters) as kernel:
        made = calls(kernel, user).export_adapter([named(a) for a in adapters], out)
    return Output({"path": made}, str(made))


@command(packs)
def provenance(folder: Annotated[Path, typer.Argument(help="an adapter that `memos export-adapter` made")]) -> Output:
    """Say who gave an exported adapter away; exit 1 if it is not as it was given."""
    from memos.plugins.packs.provenance import given  # loads the vault

    card = given(folder)
    return Output(card, f"given by {card.by} at {card.at}, signed with {card.key}")


def calls(kernel: MemOS, user: str | None = None) -> PackCalls:
    """The calls on packs as a user, or as the one of the config."""
    from memos.plugins.packs.calls import PackCalls  # loads the kernel

    return PackCalls.of(kernel.within(user))


def clashing(way: str) -> Literal["refuse", "rename", "update"]:
    """The option --clash. Raises InputError."""
    match way:
        case "refuse" | "rename" | "update":
            return way
        case _:
            raise InputError(f"--clash {way!r} is no way to treat a clash; give one of refuse, rename, update")


def loaded_line(done: Loaded) -> str:
    """One line: what became of the memories of a pack."""
    counts = {
        "added": len(done.added),
        "there already": len(done.there),
        "updated": len(done.updated),
        "under a new id": len(done.renamed),
        "with KV or adapter used as it came": len(done.tensors),
        "to be made anew by `memos work`": len(done.rebuilding),
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "nothing to take over"


def left_lines(left: dict[str, str]) -> Iterator[str]:
    """A line for each memory that was left out."""
    return (f"left out: {id}: {why}" for id, why in left.items())
