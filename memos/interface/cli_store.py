"""`memos store`: packs of memories in registries, published, found, installed, kept up and taken out. Doors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.errors import InputError, PackError
from memos.interface.cli_forms import HERE, Config, Set, User, Vault, opened
from memos.interface.cli_packs import (
    Clash,
    Ids,
    Json,
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
)

if TYPE_CHECKING:
    from memos.kernel import MemOS

store = typer.Typer(help="Packs of memories in registries.", no_args_is_help=True)
Registry = Annotated[
    str, typer.Option("--registry", help="folder, address that fsspec knows, or hf:OWNER/NAME of the Hub")
]
Pack = Annotated[str, typer.Argument(help="PUBLISHER/NAME")]


@store.command()
def publish(
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
    vault: Vault = HERE,
    user: User = None,
) -> None:
    """Make a pack of memories in force, signed, and put it into a registry."""
    with opened(vault) as kernel:
        entry, made = kernel.publish(
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
    for one, why in made.left.items():
        print(f"left out: {one}: {why}")


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
def install(
    pack: Pack,
    registry: Registry,
    version: Annotated[str, typer.Option("--version", help="such as 1.0.0, or >=1.0.0,<2.0.0; else the latest")] = "",
    trust: Trusted = None,
    follow: Annotated[bool, typer.Option("--subscribe", help="`memos store update` keeps it up")] = False,
    clash: Clash = "refuse",
    vault: Vault = HERE,
    config: Config = None,
    set_: Set = None,
    user: User = None,
    out: Json = None,
) -> None:
    """Take a pack, with what it builds on, into the memories of a user."""
    with _made(vault, config, set_) as kernel:
        done = kernel.install(
            registry, pack, versions=version, trust=trust, subscribe=follow, clash=clashing(clash), user=user
        )
    _told(done, out)


@store.command()
def subscribe(
    pack: Pack,
    on: Annotated[bool, typer.Option("--on/--off", help="keep it up, or no longer")] = True,
    vault: Vault = HERE,
    user: User = None,
) -> None:
    """Keep an installed pack up with its publisher."""
    with opened(vault) as kernel:
        kernel.subscribe(pack, on=on, user=user)
    print(f"{pack} is {'kept up with `memos store update`' if on else 'left as it is'}")


@store.command()
def update(
    pack: Annotated[str | None, typer.Argument(help="PUBLISHER/NAME; else all that are subscribed to")] = None,
    trust: Trusted = None,
    vault: Vault = HERE,
    config: Config = None,
    set_: Set = None,
    user: User = None,
    out: Json = None,
) -> None:
    """Bring packs to their latest versions, and archive what was withdrawn."""
    with opened(vault, config, set_) as kernel:
        done = kernel.update_packs(pack, trust=trust, user=user)
    _told(done, out)
    if failed := [kept.failed for kept in done if kept.failed]:
        raise PackError(f"{len(failed)} of {len(done)} packs could not be brought up to date; see above")


@store.command()
def remove(pack: Pack, vault: Vault = HERE, user: User = None) -> None:
    """Delete what a pack has brought, and nothing else."""
    with opened(vault) as kernel:
        gone = kernel.remove_pack(pack, user=user)
    print(f"{pack} is removed, {len(gone)} memories")


@store.command()
def withdraw(
    pack: Pack,
    version: Annotated[str, typer.Argument(help="such as 1.0.0")],
    registry: Registry,
    why: Annotated[str, typer.Option("--why", help="a reason, for those who have it")],
    key: Key = None,
    vault: Vault = HERE,
) -> None:
    """Take a published version back: whoever has it archives it with the next update."""
    with opened(vault) as kernel:
        kernel.withdraw(registry, pack, version, why, key=key)
    print(f"{pack} {version} is withdrawn: {why}")


@store.command("list")
def list_installed(vault: Vault = HERE, user: User = None, out: Json = None) -> None:
    """The packs that a user has installed."""
    with opened(vault) as kernel:
        found = kernel.installed(user=user)
    _list([there.entry for there in found], out)
    for there in found:
        print(f"{there.pack}: from {there.registry}, {'kept up' if there.subscribed else 'left as it is'}")
    if not found:
        print("no pack is installed; find some with `memos store search --registry PLACE`")


@store.command()
def keys(vault: Vault = HERE, out: Json = None) -> None:
    """Whose key is trusted here; and the vault's own."""
    with opened(vault) as kernel:
        pins, own = kernel.trusted()
    print(f"{own}  this vault")
    for name, key in pins.items():
        print(f"{key}  {name if name != key else 'whoever made a dump'}")
    if out:
        out.write_text(json.dumps({"own": own, "trusted": pins}, indent=1), "utf-8")


@store.command()
def untrust(
    name: Annotated[str, typer.Argument(help="publisher, or the key of a dump")],
    vault: Vault = HERE,
    user: User = None,
) -> None:
    """Give up the key of a publisher; the next one is asked about anew."""
    with opened(vault) as kernel:
        kernel.untrust(name, user=user)
    print(f"no key of {name} is trusted")


def _store(registry: str) -> Any:
    from memos.kernel import MemOS

    if not registry:
        raise InputError("name the place of a registry with --registry: a folder, an address, or hf:OWNER/NAME")
    return MemOS.registry(registry)


def _made(vault: Path, config: Path | None, set_: list[str] | None) -> MemOS:
    """A kernel over a vault that may be a new one."""
    from memos.config import load_config
    from memos.kernel import MemOS

    return MemOS(load_config(config, tuple(set_ or ())), vault=vault)


def _list(entries: Iterable[Any], out: Path | None) -> None:
    found = list(entries)
    for entry in found:
        said = entry.said
        taken = f"  withdrawn: {said.withdrawn}" if said.withdrawn else ""
        what = f"{said.records} memories, {said.release.licence}  {said.release.description}".rstrip()
        print(f"{said.release.pack} {said.release.version}  {what}{taken}")
    if out:
        out.write_text(json.dumps([entry.model_dump(mode="json") for entry in found], indent=1), "utf-8")


def _told(done: list[Any], out: Path | None) -> None:
    for kept in done:
        if kept.failed:
            print(f"{kept.pack} {kept.version}: not brought up to date: {kept.failed}")
        elif kept.loaded is None and not kept.withdrawn:
            print(f"{kept.pack} {kept.version}: nothing is new")
        else:
            what = loaded_line(kept.loaded) if kept.loaded else "no version is left"
            print(f"{kept.pack} {kept.version}: {what}")
        for id, why in (kept.loaded.left if kept.loaded else {}).items():
            print(f"left out: {id}: {why}")
        for id, why in kept.withdrawn.items():
            print(f"archived: {id}: {why}")
    if out:
        out.write_text(json.dumps([asdict(kept) for kept in done], indent=1), "utf-8")
