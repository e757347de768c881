"""`memos history`, `rollback`, `freeze`, `thaw`, `archive`, `unarchive`, `snapshot`, `snapshots`, `restore`,
`delete-snapshot`: the life of memories, and the way back. Doors; know no states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.interface.cli_forms import HERE, User, Vault, opened

if TYPE_CHECKING:
    from memos.cube import MemCube

life = typer.Typer()
Id = Annotated[str, typer.Argument(help="id of a memory, as `memos ls` lists it")]
Name = Annotated[str, typer.Argument(help="of a snapshot")]
Why = Annotated[str | None, typer.Option("--why", help="a reason, for its history")]


@life.command()
def history(
    id: Id,
    vault: Vault = HERE,
    user: User = None,
    diff: Annotated[bool, typer.Option("--diff", help="how each version differs from the one before")] = False,
) -> None:
    """What became of a memory: its versions and its moves, with their reasons."""
    with opened(vault) as kernel:
        events = kernel.history(id, diffs=diff, user=user)
    for event in events:
        print(event_line(event))
        for line in event.get("diff", ()):
            print(f"    {line}")


@life.command()
def rollback(
    id: Id,
    version: Annotated[int, typer.Argument(help="as `memos history` lists it")],
    vault: Vault = HERE,
    user: User = None,
) -> None:
    """Bring back what an old version said, as a new version."""
    with opened(vault) as kernel:
        cube = kernel.rollback(id, version, user=user)
    print(f"{cube.id} version {cube.version}: {cube.text}")


@life.command()
def freeze(id: Id, vault: Vault = HERE, user: User = None, why: Why = None) -> None:
    """Lock a memory: it answers, and nobody edits or deletes it."""
    with opened(vault) as kernel:
        _say(kernel.freeze(id, user=user, **_given(why)))


@life.command()
def thaw(id: Id, vault: Vault = HERE, user: User = None, why: Why = None) -> None:
    """Unlock a frozen memory."""
    with opened(vault) as kernel:
        _say(kernel.thaw(id, user=user, **_given(why)))


@life.command()
def archive(id: Id, vault: Vault = HERE, user: User = None, why: Why = None) -> None:
    """Put a memory out of use, with all that is derived from it; `memos unarchive` brings it back."""
    with opened(vault) as kernel:
        _say(kernel.archive(id, user=user, **_given(why)))


@life.command()
def unarchive(id: Id, vault: Vault = HERE, user: User = None, why: Why = None) -> None:
    """Bring an archived memory back into use."""
    with opened(vault) as kernel:
        _say(kernel.unarchive(id, user=user, **_given(why)))


@life.command()
def snapshot(name: Name, vault: Vault = HERE, user: User = None) -> None:
    """Write down how all memories of a user are now, to go back to with `memos restore`."""
    with opened(vault) as kernel:
        taken = kernel.snapshot(name, user=user)
    print(f"{taken.name}: {taken.cubes} memories")


@life.command()
def snapshots(vault: Vault = HERE, user: User = None) -> None:
    """List the snapshots of a user."""
    with opened(vault) as kernel:
        taken = kernel.snapshots(user=user)
    for one in taken:
        deleted = f", {one.missing} of them deleted since" if one.missing else ""
        print(f"{one.at:%Y-%m-%d %H:%M:%S}  {one.name}: {one.cubes} memories{deleted}")
    if not taken:
        print("there is no snapshot; take one with `memos snapshot NAME`")


@life.command()
def restore(name: Name, vault: Vault = HERE, user: User = None) -> None:
    """Take all memories of a user back to a snapshot. Their history stays, and the command says how to undo it."""
    with opened(vault) as kernel:
        done = kernel.restore(name, user=user)
    for what, ids in (
        ("as they were", done.changed),
        ("archived, as they were not there or not in use then", done.archived),
        ("KV, adapters and turns in use again", done.revived),
        ("KV, adapters and turns out of use, as a source is not what it was", done.stale),
        ("left as they are, being frozen or expired", done.kept),
    ):
        if ids:
            print(f"{len(ids)} {what}")
    if done.missing:
        print(f"{done.missing} deleted since; a deletion is final")
    print(f"to undo this: memos restore {done.undo!r}")


@life.command("delete-snapshot")
def delete_snapshot(name: Name, vault: Vault = HERE, user: User = None) -> None:
    """Forget a snapshot; the memories stay as they are."""
    with opened(vault) as kernel:
        kernel.delete_snapshot(name, user=user)
    print(f"{name} is deleted")


def event_line(event: dict[str, Any]) -> str:
    """One line of a memory's history."""
    match event["event"]:
        case "version":
            what = f"version {event['version']}"
        case "state":
            what = f"{event['state']}: {event['why']}"
        case _:
            what = f"told again ({event['origin']})"
    return f"{event['at']}  {what}"


def _given(why: str | None) -> dict[str, Any]:
    return {} if why is None else {"why": why}


def _say(cube: MemCube) -> None:
    print(f"{cube.id} is {cube.state}")
