"""`memos audit-memory`, `conflicts`, `fuse`, `split`, `consolidate`, `reinstate`, `tag`: what is known, kept current.
Doors; know no rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from memos.interface.cli_shared import Id, Json, User, over_vault, write_json

if TYPE_CHECKING:
    from memos.cube import MemCube
    from memos.kernel import MemOS

knowledge = typer.Typer()


@knowledge.command("audit-memory")
@over_vault
def audit_memory(kernel: MemOS, user: User = None, out: Json = None) -> None:
    """Which memories are told twice, overtaken by later ones, or not supported by what they were made of."""
    found = kernel.audit_memory(user=user)
    faults = {"duplicate": found.duplicates, "stale": found.stale, "unsupported": found.unsupported}
    texts = {cube.id: cube.text for cube in kernel.memories(user=user)}
    for fault, ids in faults.items():
        print(f"{fault}: {len(ids)} of {found.memories} memories, {found.share(ids):.1%}")
        for id in ids:
            print(f"  {id} {texts[id]}")
    shares = {f"{fault}_share": found.share(ids) for fault, ids in faults.items()}
    write_json(out, {"memories": found.memories, **shares, **faults})


@knowledge.command()
@over_vault
def conflicts(kernel: MemOS, user: User = None) -> None:
    """Pairs of memories of which only one can be true."""
    found = kernel.conflicts(user=user)
    for pair in found:
        _told([pair.one])
        _told([pair.other])
        print(f"  both give the {pair.facts[0].relation} of {pair.facts[0].subject}; delete or correct one of them")
    if not found:
        print("no two memories contradict each other")


@knowledge.command()
@over_vault
def fuse(
    kernel: MemOS,
    ids: Annotated[list[str], typer.Argument(help="two memories or more")],
    text: Annotated[str | None, typer.Option("--text", help="what the one should say; else what each says")] = None,
    user: User = None,
) -> None:
    """Make one memory of several; `memos split` undoes it."""
    _told([kernel.fuse(ids, text, user=user)])


@knowledge.command()
@over_vault
def split(
    kernel: MemOS,
    id: Id,
    part: Annotated[list[str] | None, typer.Option("--part", help="what a part says; may be given again")] = None,
    user: User = None,
) -> None:
    """Cut a memory into its sentences, or these parts; one that was made of others goes back to them."""
    _told(kernel.split(id, part or (), user=user))


@knowledge.command()
@over_vault
def consolidate(kernel: MemOS, user: User = None) -> None:
    """Make one of each group of memories that say the same."""
    made = kernel.consolidate(user=user)
    for cube in made:
        print(f"{cube.id} {cube.text}  [of {len(cube.sources)} memories]")
    if not made:
        print("no two memories say the same")


@knowledge.command()
@over_vault
def reinstate(kernel: MemOS, id: Id, user: User = None) -> None:
    """Bring back a memory that another has replaced."""
    _told([kernel.reinstate(id, user=user)])


@knowledge.command()
@over_vault
def tag(
    kernel: MemOS,
    id: Id,
    tags: Annotated[
        list[str] | None, typer.Argument(help="always, apart:NAME, or words of your own; none: no tags")
    ] = None,
    user: User = None,
) -> None:
    """Give a memory these tags: `always` is seen by every request, of those `apart:NAME` one at a time."""
    cube = kernel.tag(id, tags or (), user=user)
    print(f"{cube.id} {cube.text}  [{', '.join(cube.header.tags) or 'no tags'}]")


def _told(cubes: list[MemCube]) -> None:
    for cube in cubes:
        print(f"{cube.id} {cube.text}")
