"""`memos audit-memory`, `conflicts`, `fuse`, `split`, `consolidate`, `reinstate`, `tag`: what is known, kept current.
Doors; know no rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.interface.cli_forms import HERE, User, Vault, opened

if TYPE_CHECKING:
    from memos.cube import MemCube

knowledge = typer.Typer()
Id = Annotated[str, typer.Argument(help="id of a memory, as `memos ls` lists it")]
Json = Annotated[Path | None, typer.Option("--json", help="write what is found to this file")]


@knowledge.command("audit-memory")
def audit_memory(vault: Vault = HERE, user: User = None, out: Json = None) -> None:
    """Which memories are told twice, overtaken by later ones, or not supported by what they were made of."""
    with opened(vault) as kernel:
        found = kernel.audit_memory(user=user)
        faults = {"duplicate": found.duplicates, "stale": found.stale, "unsupported": found.unsupported}
        texts = {cube.id: cube.text for cube in kernel.memories(user=user)}
    for fault, ids in faults.items():
        print(f"{fault}: {len(ids)} of {found.memories} memories, {found.share(ids):.1%}")
        for id in ids:
            print(f"  {id} {texts[id]}")
    if out:
        shares = {f"{fault}_share": found.share(ids) for fault, ids in faults.items()}
        out.write_text(json.dumps({"memories": found.memories, **shares, **faults}, indent=1), "utf-8")


@knowledge.command()
def conflicts(vault: Vault = HERE, user: User = None) -> None:
    """Pairs of memories of which only one can be true."""
    with opened(vault) as kernel:
        found = kernel.conflicts(user=user)
    for pair in found:
        _told([pair.one])
        _told([pair.other])
        print(f"  both give the {pair.facts[0].relation} of {pair.facts[0].subject}; delete or correct one of them")
    if not found:
        print("no two memories contradict each other")


@knowledge.command()
def fuse(
    ids: Annotated[list[str], typer.Argument(help="two memories or more")],
    text: Annotated[str | None, typer.Option("--text", help="what the one should say; else what each says")] = None,
    vault: Vault = HERE,
    user: User = None,
) -> None:
    """Make one memory of several; `memos split` undoes it."""
    with opened(vault) as kernel:
        _told([kernel.fuse(ids, text, user=user)])


@knowledge.command()
def split(
    id: Id,
    part: Annotated[list[str] | None, typer.Option("--part", help="what a part says; may be given again")] = None,
    vault: Vault = HERE,
    user: User = None,
) -> None:
    """Cut a memory into its sentences, or these parts; one that was made of others goes back to them."""
    with opened(vault) as kernel:
        _told(kernel.split(id, part or (), user=user))


@knowledge.command()
def consolidate(vault: Vault = HERE, user: User = None) -> None:
    """Make one of each group of memories that say the same."""
    with opened(vault) as kernel:
        made = kernel.consolidate(user=user)
    for cube in made:
        print(f"{cube.id} {cube.text}  [of {len(cube.sources)} memories]")
    if not made:
        print("no two memories say the same")


@knowledge.command()
def reinstate(id: Id, vault: Vault = HERE, user: User = None) -> None:
    """Bring back a memory that another has replaced."""
    with opened(vault) as kernel:
        _told([kernel.reinstate(id, user=user)])


@knowledge.command()
def tag(
    id: Id,
    tags: Annotated[
        list[str] | None, typer.Argument(help="always, apart:NAME, or words of your own; none: no tags")
    ] = None,
    vault: Vault = HERE,
    user: User = None,
) -> None:
    """Give a memory these tags: `always` is seen by every request, of those `apart:NAME` one at a time."""
    with opened(vault) as kernel:
        cube = kernel.tag(id, tags or (), user=user)
    print(f"{cube.id} {cube.text}  [{', '.join(cube.header.tags) or 'no tags'}]")


def _told(cubes: list[MemCube]) -> None:
    for cube in cubes:
        print(f"{cube.id} {cube.text}")
