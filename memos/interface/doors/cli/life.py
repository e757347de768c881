"""`memos history`, `rollback`, `undo`, `freeze`, `thaw`, `archive`, `unarchive`, `snapshot`, `snapshots`, `restore`,
`delete-snapshot`: the life of memories, and the way back. Doors; know no states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.interface.doors.cli.shared import Id, Told, User, api, over_vault

if TYPE_CHECKING:
    from memos.cube import MemCube
    from memos.kernel.mem_os import MemOS

life = typer.Typer()
Name = Annotated[str, typer.Argument(help="of a snapshot")]
Why = Annotated[str | None, typer.Option("--why", help="a reason, for its history")]


@life.command()
@over_vault
def history(
    kernel: MemOS,
    id: Id,
    user: User = None,
    diff: Annotated[bool, typer.Option("--diff", help="how each version differs from the one before")] = False,
) -> Told:
    """What became of a memory: its versions and its moves, with their reasons."""
    from memos.interface.doors.api.memory import changes

    events = kernel.history(id, diffs=diff, user=user)
    told = changes(kernel.get(id, user=user).id, events)
    return Told(told, (line for event in events for line in (event_line(event), *_diff(event))))


@life.command()
@over_vault
def rollback(
    kernel: MemOS,
    id: Id,
    version: Annotated[int, typer.Argument(help="as `memos history` lists it")],
    user: User = None,
) -> Told:
    """Bring back what an old version said, as a new version."""
    cube = kernel.rollback(id, version, user=user)
    return Told([cube], f"{cube.id} version {cube.version}: {cube.text}")


@life.command()
@over_vault
def freeze(kernel: MemOS, id: Id, user: User = None, why: Why = None) -> Told:
    """Lock a memory: it answers, and nobody edits or deletes it."""
    return _state(kernel.freeze(id, user=user, **_given(why)))


@life.command()
@over_vault
def thaw(kernel: MemOS, id: Id, user: User = None, why: Why = None) -> Told:
    """Unlock a frozen memory."""
    return _state(kernel.thaw(id, user=user, **_given(why)))


@life.command()
@over_vault
def archive(kernel: MemOS, id: Id, user: User = None, why: Why = None) -> Told:
    """Put a memory out of use, with all that is derived from it; `memos unarchive` brings it back."""
    return _state(kernel.archive(id, user=user, **_given(why)))


@life.command()
@over_vault
def unarchive(kernel: MemOS, id: Id, user: User = None, why: Why = None) -> Told:
    """Bring an archived memory back into use."""
    return _state(kernel.unarchive(id, user=user, **_given(why)))


@life.command()
@over_vault
def snapshot(kernel: MemOS, name: Name, user: User = None) -> Told:
    """Write down how all memories of a user are now, to go back to with `memos restore`."""
    taken = kernel.snapshot(name, user=user)
    return Told([taken], f"{taken.name}: {taken.cubes} memories")


@life.command()
@over_vault
def snapshots(kernel: MemOS, user: User = None) -> Told:
    """List the snapshots of a user."""
    taken = kernel.snapshots(user=user)
    lines = (
        f"{one.at:%Y-%m-%d %H:%M:%S}  {one.name}: {one.cubes} memories"
        + (f", {one.missing} of them deleted since" if one.missing else "")
        for one in taken
    )
    return Told(taken, lines, none="there is no snapshot; take one with `memos snapshot NAME`")


@life.command()
@over_vault
def restore(kernel: MemOS, name: Name, user: User = None) -> Told:
    """Take all memories of a user back to a snapshot. Their history stays, and the command says how to undo it."""
    done = kernel.restore(name, user=user)
    return Told([done], _restored(done))


def _restored(done: Any) -> Iterator[str]:
    for what, ids in (
        ("as they were", done.changed),
        ("archived, as they were not there or not in use then", done.archived),
        ("KV, adapters and turns in use again", done.revived),
        ("KV, adapters and turns out of use, as a source is not what it was", done.stale),
        ("left as they are, being frozen or expired", done.kept),
    ):
        if ids:
            yield f"{len(ids)} {what}"
    if done.missing:
        yield f"{done.missing} deleted since; a deletion is final"
    yield f"to undo this: memos restore {done.undo!r}"


@life.command()
@over_vault
def undo(
    kernel: MemOS,
    pipeline: Annotated[str, typer.Argument(help="of what a message asked for, as `memos chat` tells it")],
    user: User = None,
) -> Told:
    """Take back what a message has asked for, all of it but what it has deleted."""
    told = api(kernel).undo(pipeline, user_id=user)
    return Told(told, (f"done: {call['undone']}" for call in told["results"]))


@life.command("delete-snapshot")
@over_vault
def delete_snapshot(kernel: MemOS, name: Name, user: User = None) -> Told:
    """Forget a snapshot; the memories stay as they are."""
    return Told(api(kernel).delete_snapshot(name, user_id=user), f"{name} is deleted")


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


def _diff(event: dict[str, Any]) -> Iterator[str]:
    return (f"    {line}" for line in event.get("diff", ()))


def _given(why: str | None) -> dict[str, Any]:
    return {} if why is None else {"why": why}


def _state(cube: MemCube) -> Told:
    return Told([cube], f"{cube.id} is {cube.state}")
