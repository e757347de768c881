"""`memos audit-memory`, `conflicts`, `fuse`, `split`, `consolidate`, `reinstate`, `tag`: what is known, kept current.
Doors; know no rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.interface.doors.cli.shared import Id, Told, User, over_vault

if TYPE_CHECKING:
    from memos.cube import MemCube
    from memos.kernel.mem_os import MemOS

knowledge = typer.Typer()


@knowledge.command("audit-memory")
@over_vault
def audit_memory(kernel: MemOS, user: User = None) -> Told:
    """Which memories are told twice, overtaken by later ones, or not supported by what they were made of."""
    found = kernel.audit_memory(user=user)
    faults = {"duplicate": found.duplicates, "stale": found.stale, "unsupported": found.unsupported}
    texts = {cube.id: cube.text for cube in kernel.memories(user=user)}
    lines = list[str]()
    for fault, ids in faults.items():
        lines.append(f"{fault}: {len(ids)} of {found.memories} memories, {found.share(ids):.1%}")
        lines += (f"  {id} {texts[id]}" for id in ids)
    shares = {f"{fault}_share": found.share(ids) for fault, ids in faults.items()}
    return Told({"memories": found.memories, **shares, **faults}, lines)


@knowledge.command()
@over_vault
def conflicts(kernel: MemOS, user: User = None) -> Told:
    """Pairs of memories of which only one can be true."""
    found, lines = list[dict[str, Any]](), list[str]()
    for pair in kernel.conflicts(user=user):
        of = pair.facts[0]
        found.append({"one": pair.one, "other": pair.other, "subject": of.subject, "relation": of.relation})
        lines += [_line(pair.one), _line(pair.other)]
        lines.append(f"  both give the {of.relation} of {of.subject}; delete or correct one of them")
    return Told(found, lines, none="no two memories contradict each other")


@knowledge.command()
@over_vault
def fuse(
    kernel: MemOS,
    ids: Annotated[list[str], typer.Argument(help="two memories or more")],
    text: Annotated[str | None, typer.Option("--text", help="what the one should say; else what each says")] = None,
    user: User = None,
) -> Told:
    """Make one memory of several; `memos split` undoes it."""
    return _told([kernel.fuse(ids, text, user=user)])


@knowledge.command()
@over_vault
def split(
    kernel: MemOS,
    id: Id,
    part: Annotated[list[str] | None, typer.Option("--part", help="what a part says; may be given again")] = None,
    user: User = None,
) -> Told:
    """Cut a memory into its sentences, or these parts; one that was made of others goes back to them."""
    return _told(kernel.split(id, part or (), user=user))


@knowledge.command()
@over_vault
def consolidate(kernel: MemOS, user: User = None) -> Told:
    """Make one of each group of memories that say the same."""
    made = kernel.consolidate(user=user)
    lines = (f"{_line(cube)}  [of {len(cube.sources)} memories]" for cube in made)
    return Told(made, lines, none="no two memories say the same")


@knowledge.command()
@over_vault
def reinstate(kernel: MemOS, id: Id, user: User = None) -> Told:
    """Bring back a memory that another has replaced."""
    return _told([kernel.reinstate(id, user=user)])


@knowledge.command()
@over_vault
def tag(
    kernel: MemOS,
    id: Id,
    tags: Annotated[
        list[str] | None, typer.Argument(help="always, apart:NAME, or words of your own; none: no tags")
    ] = None,
    user: User = None,
) -> Told:
    """Give a memory these tags: `always` is seen by every request, of those `apart:NAME` one at a time."""
    cube = kernel.tag(id, tags or (), user=user)
    return Told([cube], f"{_line(cube)}  [{', '.join(cube.header.tags) or 'no tags'}]")


def _told(cubes: list[MemCube]) -> Told:
    return Told(cubes, map(_line, cubes))


def _line(cube: MemCube) -> str:
    return f"{cube.id} {cube.text}"
