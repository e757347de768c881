"""`memos store`: publishes, finds, installs, updates and removes packs in registries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memos.errors import InputError, PackError
from memos.interface.doors.cli.shared import Output, User, command, new_vault_command, vault_command
from memos.plugins.packs.cli_packs import (
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
    calls,
    clashing,
    left_lines,
    loaded_line,
)

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS
    from memos.plugins.packs.mem_store import MemStore
    from memos.plugins.packs.mip import RegistryEntry
    from memos.plugins.packs.subscriptions import PackUpdate

store = typer.Typer(name="store", help="Packs of memories in registries.", no_args_is_help=True)
Registry = Annotated[
    str, typer.Option("--registry", help="folder, address that fsspec knows, or hf:OWNER/NAME of the Hub")
]
Pack = Annotated[str, typer.Argument(help="PUBLISHER/NAME")]


@vault_command(store)
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
) -> Output:
    """Make a pack of memories in force, signed, and put it into a registry."""
    entry, written = calls(kernel, user).publish(
        registry,
        pack,
        version,
        licence=licence,
        description=description,
        requires=requires or (),
        withdrawn=dict(one.partition("=")[::2] for one in withdrawn or ()),
        tensors=tensors,
        key=key,
        ids=id or (),
        kinds=kind or (),
        tags=tag or (),
        query=query,
        since=since,
        until=until,
    )
    listing = entry.said
    summary = f"{pack} {version}: {listing.records} memories, {listing.bytes:,} bytes, signed with {entry.key}"
    return Output({**entry.model_dump(mode="json"), "left": written.left}, [summary, *left_lines(written.left)])


@command(store)
def search(
    words: Annotated[list[str] | None, typer.Argument(help="in the name, description or licence; all without")] = None,
    registry: Registry = "",
) -> Output:
    """List the packs of a registry, each in its latest version."""
    found = _store(registry).search(words or ())
    none = "no pack says all of these words; see all with `memos store search --registry PLACE`"
    return Output(found, map(_entry, found), none)


@command(store)
def show(pack: Pack, registry: Registry) -> Output:
    """Every version of a pack, with its key, licence and what it builds on."""
    found = _store(registry).versions(pack)
    lines = list(map(_entry, found))
    for entry in found:
        needs = ", ".join(f"{r.pack} {r.versions}".strip() for r in entry.said.release.requires)
        lines.append(f"{entry.said.release.version}: key {entry.key}{f', builds on {needs}' if needs else ''}")
    return Output(found, lines)


@new_vault_command(store)
def install(
    kernel: MemOS,
    pack: Pack,
    registry: Registry,
    version: Annotated[str, typer.Option("--version", help="such as 1.0.0, or >=1.0.0,<2.0.0; else the latest")] = "",
    trust: Trusted = None,
    follow: Annotated[bool, typer.Option("--subscribe", help="`memos store update` keeps it up")] = False,
    clash: Clash = "refuse",
    user: User = None,
) -> Output:
    """Take a pack, with what it builds on, into the memories of a user."""
    done = calls(kernel, user).install(
        registry, pack, versions=version, trust=trust, subscribe=follow, clash=clashing(clash)
    )
    return Output(done, _update_lines(done))


@vault_command(store)
def subscribe(
    kernel: MemOS,
    pack: Pack,
    on: Annotated[bool, typer.Option("--on/--off", help="keep it up, or no longer")] = True,
    user: User = None,
) -> Output:
    """Keep an installed pack up with its publisher."""
    calls(kernel, user).subscribe(pack, on=on)
    outcome = f"{pack} is {'kept up with `memos store update`' if on else 'left as it is'}"
    return Output({"pack": pack, "subscribed": on}, outcome)


@vault_command(store)
def update(
    kernel: MemOS,
    pack: Annotated[str | None, typer.Argument(help="PUBLISHER/NAME; else all that are subscribed to")] = None,
    trust: Trusted = None,
    user: User = None,
) -> Output:
    """Bring packs to their latest versions, and archive what was withdrawn."""
    done = calls(kernel, user).update_packs(pack, trust=trust)
    failed = sum(bool(update.failed) for update in done)
    error = PackError(f"{failed} of {len(done)} packs could not be brought up to date; see above")
    return Output(done, _update_lines(done), failed=error if failed else None)


@vault_command(store)
def remove(kernel: MemOS, pack: Pack, user: User = None) -> Output:
    """Delete what a pack has brought, and nothing else."""
    from memos.interface.doors.api.calling import deleted

    gone = calls(kernel, user).remove_pack(pack)
    return Output({"pack": pack, "results": deleted(gone)}, f"{pack} is removed, {len(gone)} memories")


@vault_command(store)
def withdraw(
    kernel: MemOS,
    pack: Pack,
    version: Annotated[str, typer.Argument(help="such as 1.0.0")],
    registry: Registry,
    why: Annotated[str, typer.Option("--why", help="a reason, for those who have it")],
    key: Key = None,
) -> Output:
    """Take a published version back: whoever has it archives it with the next update."""
    calls(kernel).withdraw(registry, pack, version, why, key=key)
    return Output({"pack": pack, "version": version, "withdrawn": why}, f"{pack} {version} is withdrawn: {why}")


@vault_command(store, "list")
def list_installed(kernel: MemOS, user: User = None) -> Output:
    """The packs that a user has installed."""
    found = calls(kernel, user).installed()
    lines = [_entry(one.entry) for one in found]
    lines += [f"{one.pack}: from {one.registry}, {'kept up' if one.subscribed else 'left as it is'}" for one in found]
    value = [
        {**one.entry.model_dump(mode="json"), "registry": one.registry, "subscribed": one.subscribed} for one in found
    ]
    return Output(value, lines, empty="no pack is installed; find some with `memos store search --registry PLACE`")


@vault_command(store)
def keys(kernel: MemOS) -> Output:
    """Whose key is trusted here; and the vault's own."""
    pins, own = calls(kernel).trusted()
    others = (f"{key}  {name if name != key else 'whoever made a dump'}" for name, key in pins.items())
    return Output({"own": own, "trusted": pins}, [f"{own}  this vault", *others])


@vault_command(store)
def untrust(
    kernel: MemOS, name: Annotated[str, typer.Argument(help="publisher, or the key of a dump")], user: User = None
) -> Output:
    """Give up the key of a publisher; the next one is asked about anew."""
    calls(kernel, user).untrust(name)
    return Output({"name": name}, f"no key of {name} is trusted")


def _store(registry: str) -> MemStore:
    from memos.plugins.packs.mem_store import MemStore  # loads fsspec

    if not registry:
        raise InputError("name the place of a registry with --registry: a folder, an address, or hf:OWNER/NAME")
    return MemStore(registry)


def _entry(entry: RegistryEntry) -> str:
    listing, release = entry.said, entry.said.release
    withdrawn = f"  withdrawn: {listing.withdrawn}" if listing.withdrawn else ""
    what = f"{listing.records} memories, {release.licence}  {release.description}".rstrip()
    return f"{release.pack} {release.version}  {what}{withdrawn}"


def _update_lines(updates: Iterable[PackUpdate]) -> Iterator[str]:
    """What became of each pack, and of the memories that were left out or archived."""
    for update in updates:
        if update.failed:
            yield f"{update.pack} {update.version}: not brought up to date: {update.failed}"
        elif update.loaded is None and not update.withdrawn:
            yield f"{update.pack} {update.version}: nothing is new"
        else:
            what = loaded_line(update.loaded) if update.loaded else "no version is left"
            yield f"{update.pack} {update.version}: {what}"
        yield from left_lines(update.loaded.left if update.loaded else {})
        for id, why in update.withdrawn.items():
            yield f"archived: {id}: {why}"
