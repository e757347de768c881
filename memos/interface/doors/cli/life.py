"""`memos history`, `rollback`, `freeze`, `restore`, `fuse`, `consolidate` and more: the life of memories.

Doors; know no states and no rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from memos.interface.doors.cli.shared import Id, Output, User, api, line_of, vault_command

if TYPE_CHECKING:
    from memos.cube import MemCube
    from memos.kernel.mem_os import MemOS

life = typer.Typer()
SnapshotName = Annotated[str, typer.Argument(help="of a snapshot")]
Why = Annotated[str | None, typer.Option("--why", help="a reason, for its history")]


@vault_command(life)
def history(
    kernel: MemOS,
    id: Id,
    user: User = None,
    diff: Annotated[bool, typer.Option("--diff", help="how each version differs from the one before")] = False,
) -> Output:
    """What became of a memory: its versions and its moves, with their reasons."""
    from memos.interface.doors.api.calling import changes

    events = kernel.within(user).history(id, diffs=diff)
    lines = (line for event in events for line in (event_line(event), *(f"    {d}" for d in event.get("diff", ()))))
    return Output(changes(kernel.within(user).get(id).id, events), lines)


@vault_command(life)
def rollback(
    kernel: MemOS,
    id: Id,
    version: Annotated[int, typer.Argument(help="as `memos history` lists it")],
    user: User = None,
) -> Output:
    """Bring back what an old version said, as a new version."""
    cube = kernel.within(user).rollback(id, version)
    return Output([cube], f"{cube.id} version {cube.version}: {cube.text}")


@vault_command(life)
def freeze(kernel: MemOS, id: Id, user: User = None, why: Why = None) -> Output:
    """Lock a memory: it answers, and nobody edits or deletes it."""
    return _state(kernel.within(user).freeze(id, **_reason(why)))


@vault_command(life)
def thaw(kernel: MemOS, id: Id, user: User = None, why: Why = None) -> Output:
    """Unlock a frozen memory."""
    return _state(kernel.within(user).thaw(id, **_reason(why)))


@vault_command(life)
def archive(kernel: MemOS, id: Id, user: User = None, why: Why = None) -> Output:
    """Put a memory out of use, with all that is derived from it; `memos unarchive` brings it back."""
    return _state(kernel.within(user).archive(id, **_reason(why)))


@vault_command(life)
def unarchive(kernel: MemOS, id: Id, user: User = None, why: Why = None) -> Output:
    """Bring an archived memory back into use."""
    return _state(kernel.within(user).unarchive(id, **_reason(why)))


@vault_command(life)
def snapshot(kernel: MemOS, name: SnapshotName, user: User = None) -> Output:
    """Write down how all memories of a user are now, to go back to with `memos restore`."""
    taken = kernel.within(user).snapshot(name)
    return Output([taken], f"{taken.name}: {taken.cubes} memories")


@vault_command(life)
def snapshots(kernel: MemOS, user: User = None) -> Output:
    """List the snapshots of a user."""
    taken = kernel.within(user).snapshots()
    lines = (
        f"{one.at:%Y-%m-%d %H:%M:%S}  {one.name}: {one.cubes} memories"
        + (f", {one.missing} of them deleted since" if one.missing else "")
        for one in taken
    )
    return Output(taken, lines, empty="there is no snapshot; take one with `memos snapshot NAME`")


@vault_command(life)
def restore(kernel: MemOS, name: SnapshotName, user: User = None) -> Output:
    """Take all memories of a user back to a snapshot. Their history stays, and the command says how to undo it."""
    done = kernel.within(user).restore(name)
    outcomes = (
        (done.changed, "as they were"),
        (done.archived, "archived, as they were not there or not in use then"),
        (done.revived, "KV, adapters and turns in use again"),
        (done.stale, "KV, adapters and turns out of use, as a source is not what it was"),
        (done.kept, "left as they are, being frozen or expired"),
    )
    lines = [f"{len(ids)} {what}" for ids, what in outcomes if ids]
    lines += [f"{done.missing} deleted since; a deletion is final"] if done.missing else []
    return Output([done], [*lines, f"to undo this: memos restore {done.undo!r}"])


@vault_command(life)
def undo(
    kernel: MemOS,
    pipeline: Annotated[str, typer.Argument(help="of what a message asked for, as `memos chat` tells it")],
    user: User = None,
) -> Output:
    """Take back what a message has asked for, all of it but what it has deleted."""
    reply = api(kernel).undo(pipeline, user_id=user)
    return Output(reply, (f"done: {call['undone']}" for call in reply["results"]))


@vault_command(life, "delete-snapshot")
def delete_snapshot(kernel: MemOS, name: SnapshotName, user: User = None) -> Output:
    """Forget a snapshot; the memories stay as they are."""
    return Output(api(kernel).delete_snapshot(name, user_id=user), f"{name} is deleted")


def event_line(event: Mapping[str, object]) -> str:
    """One line of a memory's history."""
    match event["event"]:
        case "version":
            what = f"version {event['version']}"
        case "state":
            what = f"{event['state']}: {event['why']}"
        case _:
            what = f"told again ({event['origin']})"
    return f"{event['at']}  {what}"


def _reason(why: str | None) -> dict[str, str]:
    return {} if why is None else {"why": why}


def _state(cube: MemCube) -> Output:
    return Output([cube], f"{cube.id} is {cube.state}")


@vault_command(life, "audit-memory")
def audit_memory(kernel: MemOS, user: User = None) -> Output:
    """Which memories are told twice, overtaken by later ones, or not supported by what they were made of."""
    found = kernel.within(user).audit_memory()
    faults = {"duplicate": found.duplicates, "stale": found.stale, "unsupported": found.unsupported}
    texts = {cube.id: cube.text for cube in kernel.within(user).memories()}
    lines = list[str]()
    for fault, ids in faults.items():
        lines.append(f"{fault}: {len(ids)} of {found.memories} memories, {found.share(ids):.1%}")
        lines += (f"  {id} {texts[id]}" for id in ids)
    shares = {f"{fault}_share": found.share(ids) for fault, ids in faults.items()}
    return Output({"memories": found.memories, **shares, **faults}, lines)


@vault_command(life)
def conflicts(kernel: MemOS, user: User = None) -> Output:
    """Pairs of memories of which only one can be true."""
    found, lines = list[dict[str, object]](), list[str]()
    for pair in kernel.within(user).conflicts():
        fact = pair.facts[0]
        found.append({"one": pair.one, "other": pair.other, "subject": fact.subject, "relation": fact.relation})
        lines += [line_of(pair.one), line_of(pair.other)]
        lines.append(f"  both give the {fact.relation} of {fact.subject}; delete or correct one of them")
    return Output(found, lines, empty="no two memories contradict each other")


@vault_command(life)
def fuse(
    kernel: MemOS,
    ids: Annotated[list[str], typer.Argument(help="two memories or more")],
    text: Annotated[str | None, typer.Option("--text", help="what the one should say; else what each says")] = None,
    user: User = None,
) -> Output:
    """Make one memory of several; `memos split` undoes it."""
    return _changed([kernel.within(user).fuse(ids, text)])


@vault_command(life)
def split(
    kernel: MemOS,
    id: Id,
    part: Annotated[list[str] | None, typer.Option("--part", help="what a part says; may be given again")] = None,
    user: User = None,
) -> Output:
    """Cut a memory into its sentences, or these parts; one that was made of others goes back to them."""
    return _changed(kernel.within(user).split(id, part or ()))


@vault_command(life)
def consolidate(kernel: MemOS, user: User = None) -> Output:
    """Make one of each group of memories that say the same."""
    made = kernel.within(user).consolidate()
    lines = (f"{line_of(cube)}  [of {len(cube.sources)} memories]" for cube in made)
    return Output(made, lines, empty="no two memories say the same")


@vault_command(life)
def reinstate(kernel: MemOS, id: Id, user: User = None) -> Output:
    """Bring back a memory that another has replaced."""
    return _changed([kernel.within(user).reinstate(id)])


@vault_command(life)
def tag(
    kernel: MemOS,
    id: Id,
    tags: Annotated[
        list[str] | None, typer.Argument(help="always, apart:NAME, or words of your own; none: no tags")
    ] = None,
    user: User = None,
) -> Output:
    """Give a memory these tags: `always` is seen by every request, of those `apart:NAME` one at a time."""
    cube = kernel.within(user).tag(id, tags or ())
    return Output([cube], f"{line_of(cube)}  [{', '.join(cube.header.tags) or 'no tags'}]")


def _changed(cubes: list[MemCube]) -> Output:
    return Output(cubes, map(line_of, cubes))
