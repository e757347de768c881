"""`memos store`: packs of memories in registries, published, found, installed, kept up and taken out. Doors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.errors import InputError, PackError
from memos.interface.cli_packs import (
    Clash,
    Ids,
    Key,
    Kinds,
    Query,
    Since,
    Tags,
    Tensors,
    Trusted,
    Until,
    clashing,
    loaded_line,
    print_left,
)
from memos.interface.cli_shared import Json, User, over_new_vault, over_vault, write_json

if TYPE_CHECKING:
    from memos.kernel import MemOS

store = typer.Typer(help="Packs of memories in registries.", no_args_is_help=True)
Registry = Annotated[
    str, typer.Option("--registry", help="folder, address that fsspec knows, or hf:OWNER/NAME of the Hub")
]
Pack = Annotated[str, typer.Argument(help="PUBLISHER/NAME")]


@store.command()
@over_vault
def publish(
    kernel: MemOS,
    pack: Pack,
    version: Annotated[str, typer.Argument(help="such as 1.0.0")],
    registry: Registry,
    licence: Annotated[str, typer.Option("--licence", help="such as CC-BY-4.0")],
    description: Annotated[str, typer.Option("--description", help="one line")] = "",
    requires: Annotated[
        list[str] | None, typer.Option("--requires", help="PUBLISHER/NAME, or PUBLISHER/NAME>=1.0.0,<2.0.0")
    ] = None,
    withdrawn: Annotated[
        list[str] | None, typer.Option("--withdrawn", metavar="ID=WHY", help="a memory that was taken back")
    ] = None,
    id: Ids = None,
    kind: Kinds = None,
    tag: Tags = None,
    query: Query = None,
    since: Since = None,
    until: Until = None,
    tensors: Tensors = True,
    key: Key = None,
    user: User = None,
) -> None:
    """Make a pack of memories in force, signed, and put it into a registry."""
    entry, written = kernel.publish(
        registry,
        pack,
        version,
        licence=licence,
        description=description,
        requires=requires or (),
        withdrawn=dict(one.partition("=")[::2] for one in withdrawn or ()),
        tensors=tensors,
        key=key,
        user=user,
        ids=id or (),
        kinds=kind or (),
        tags=tag or (),
        query=query,
        since=since,
        until=until,
    )
    print(f"{pack} {version}: {entry.said.records} memories, {entry.said.bytes:,} bytes, signed with {entry.key}")
    print_left(written.left)


@store.command()
def search(
    words: Annotated[list[str] | None, typer.Argument(help="in the name, description or licence; all without")] = None,
    registry: Registry = "",
    out: Json = None,
) -> None:
    """List the packs of a registry, each in its latest version."""
    found = _store(registry).search(words or ())
    _list(found, out)
    if not found:
        print("no pack says all of these words; see all with `memos store search --registry PLACE`")


@store.command()
def show(pack: Pack, registry: Registry, out: Json = None) -> None:
    """Every version of a pack, with its key, licence and what it builds on."""
    found = _store(registry).versions(pack)
    _list(found, out)
    for entry in found:
        needs = ", ".join(f"{r.pack} {r.versions}".strip() for r in entry.said.release.requires)
        print(f"{entry.said.release.version}: key {entry.key}{f', builds on {needs}' if needs else ''}")


@store.command()
@over_new_vault
def install(
    kernel: MemOS,
    pack: Pack,
    registry: Registry,
    version: Annotated[str, typer.Option("--version", help="such as 1.0.0, or >=1.0.0,<2.0.0; else the latest")] = "",
    trust: Trusted = None,
    follow: Annotated[bool, typer.Option("--subscribe", help="`memos store update` keeps it up")] = False,
    clash: Clash = "refuse",
    user: User = None,
    out: Json = None,
) -> None:
    """Take a pack, with what it builds on, into the memories of a user."""
    done = kernel.install(
        registry, pack, versions=version, trust=trust, subscribe=follow, clash=clashing(clash), user=user
    )
    _told(done, out)


@store.command()
@over_vault
def subscribe(
    kernel: MemOS,
    pack: Pack,
    on: Annotated[bool, typer.Option("--on/--off", help="keep it up, or no longer")] = True,
    user: User = None,
) -> None:
    """Keep an installed pack up with its publisher."""
    kernel.subscribe(pack, on=on, user=user)
    print(f"{pack} is {'kept up with `memos store update`' if on else 'left as it is'}")


@store.command()
@over_vault
def update(
    kernel: MemOS,
    pack: Annotated[str | None, typer.Argument(help="PUBLISHER/NAME; else all that are subscribed to")] = None,
    trust: Trusted = None,
    user: User = None,
    out: Json = None,
) -> None:
    """Bring packs to their latest versions, and archive what was withdrawn."""
    done = kernel.update_packs(pack, trust=trust, user=user)
    _told(done, out)
    if failed := [kept.failed for kept in done if kept.failed]:
        raise PackError(f"{len(failed)} of {len(done)} packs could not be brought up to date; see above")


@store.command()
@over_vault
def remove(kernel: MemOS, pack: Pack, user: User = None) -> None:
    """Delete what a pack has brought, and nothing else."""
    gone = kernel.remove_pack(pack, user=user)
    print(f"{pack} is removed, {len(gone)} memories")


@store.command()
@over_vault
def withdraw(
    kernel: MemOS,
    pack: Pack,
    version: Annotated[str, typer.Argument(help="such as 1.0.0")],
    registry: Registry,
    why: Annotated[str, typer.Option("--why", help="a reason, for those who have it")],
    key: Key = None,
) -> None:
    """Take a published version back: whoever has it archives it with the next update."""
    kernel.withdraw(registry, pack, version, why, key=key)
    print(f"{pack} {version} is withdrawn: {why}")


@store.command("list")
@over_vault
def list_installed(kernel: MemOS, user: User = None, out: Json = None) -> None:
    """The packs that a user has installed."""
    found = kernel.installed(user=user)
    _list([there.entry for there in found], out)
    for there in found:
        print(f"{there.pack}: from {there.registry}, {'kept up' if there.subscribed else 'left as it is'}")
    if not found:
        print("no pack is installed; find some with `memos store search --registry PLACE`")


@store.command()
@over_vault
def keys(kernel: MemOS, out: Json = None) -> None:
    """Whose key is trusted here; and the vault's own."""
    pins, own = kernel.trusted()
    print(f"{own}  this vault")
    for name, key in pins.items():
        print(f"{key}  {name if name != key else 'whoever made a dump'}")
    write_json(out, {"own": own, "trusted": pins})


@store.command()
@over_vault
def untrust(
    kernel: MemOS, name: Annotated[str, typer.Argument(help="publisher, or the key of a dump")], user: User = None
) -> None:
    """Give up the key of a publisher; the next one is asked about anew."""
    kernel.untrust(name, user=user)
    print(f"no key of {name} is trusted")


def _store(registry: str) -> Any:
    from memos.kernel import MemOS

    if not registry:
        raise InputError("name the place of a registry with --registry: a folder, an address, or hf:OWNER/NAME")
    return MemOS.registry(registry)


def _list(entries: Iterable[Any], out: Path | None) -> None:
    found = list(entries)
    for entry in found:
        said = entry.said
        taken = f"  withdrawn: {said.withdrawn}" if said.withdrawn else ""
        what = f"{said.records} memories, {said.release.licence}  {said.release.description}".rstrip()
        print(f"{said.release.pack} {said.release.version}  {what}{taken}")
    write_json(out, [entry.model_dump(mode="json") for entry in found])


def _told(done: list[Any], out: Path | None) -> None:
    for kept in done:
        if kept.failed:
            print(f"{kept.pack} {kept.version}: not brought up to date: {kept.failed}")
        elif kept.loaded is None and not kept.withdrawn:
            print(f"{kept.pack} {kept.version}: nothing is new")
        else:
            what = loaded_line(kept.loaded) if kept.loaded else "no version is left"
            print(f"{kept.pack} {kept.version}: {what}")
        print_left(kept.loaded.left if kept.loaded else {})
        for id, why in kept.withdrawn.items():
            print(f"archived: {id}: {why}")
    write_json(out, [asdict(kept) for kept in done])
