"""`memos audit-memory`, `conflicts`, `fuse`, `split`, `consolidate`, `reinstate`, `tag`: what is known, kept current.
Doors; know no rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.interface.doors.cli.shared import Id, Output, User, vault_command

if TYPE_CHECKING:
    from memos.cube import MemCube
    from memos.kernel.mem_os import MemOS

knowledge = typer.Typer()


@vault_command(knowledge, "audit-memory")
def audit_memory(kernel: MemOS, user: User = None) -> Output:
    """Which memories are told twice, overtaken by later ones, or not supported by what they were made of."""
    found = kernel.audit_memory(user=user)
    faults = {"duplicate": found.duplicates, "stale": found.stale, "unsupported": found.unsupported}
    texts = {cube.id: cube.text for cube in kernel.memories(user=user)}
    lines = list[str]()
    for fault, ids in faults.items():
        lines.append(f"{fault}: {len(ids)} of {found.memories} memories, {found.share(ids):.1%}")
        lines += (f"  {id} {texts[id]}" for id in ids)
    shares = {f"{fault}_share": found.share(ids) for fault, ids in faults.items()}
    return Output({"memories": found.memories, **shares, **faults}, lines)


@vault_command(knowledge)
def conflicts(kernel: MemOS, user: User = None) -> Output:
    """Pairs of memories of which only one can be true."""
    found, lines = list[dict[str, Any]](), list[str]()
    for pair in kernel.conflicts(user=user):
        of = pair.facts[0]
        found.append({"one": pair.one, "other": pair.other, "subject": of.subject, "relation": of.relation})
        lines += [_line(pair.one), _line(pair.other)]
        lines.append(f"  both give the {of.relation} of {of.subject}; delete or correct one of them")
    return Output(found, lines, empty="no two memories contradict each other")


@vault_command(knowledge)
def fuse(
    kernel: MemOS,
    ids: Annotated[list[str], typer.Argument(help="two memories or more")],
    text: Annotated[str | None, typer.Option("--text", help="what the one should say; else what each says")] = None,
    user: User = None,
) -> Output:
    """Make one memory of several; `memos split` undoes it."""
    return _told([kernel.fuse(ids, text, user=user)])


@vault_command(knowledge)
def split(
    kernel: MemOS,
    id: Id,
    part: Annotated[list[str] | None, typer.Option("--part", help="what a part says; may be given again")] = None,
    user: User = None,
) -> Output:
    """Cut a memory into its sentences, or these parts; one that was made of others goes back to them."""
    return _told(kernel.split(id, part or (), user=user))


@vault_command(knowledge)
def consolidate(kernel: MemOS, user: User = None) -> Output:
    """Make one of each group of memories that say the same."""
    made = kernel.consolidate(user=user)
    lines = (f"{_line(cube)}  [of {len(cube.sources)} memories]" for cube in made)
    return Output(made, lines, empty="no two memories say the same")


@vault_command(knowledge)
def reinstate(kernel: MemOS, id: Id, user: User = None) -> Output:
    """Bring back a memory that another has replaced."""
    return _told([kernel.reinstate(id, user=user)])


@vault_command(knowledge)
def tag(
    kernel: MemOS,
    id: Id,
    tags: Annotated[
        list[str] | None, typer.Argument(help="always, apart:NAME, or words of your own; none: no tags")
    ] = None,
    user: User = None,
) -> Output:
    """Give a memory these tags: `always` is seen by every request, of those `apart:NAME` one at a time."""
    cube = kernel.tag(id, tags or (), user=user)
    return Output([cube], f"{_line(cube)}  [{', '.join(cube.header.tags) or 'no tags'}]")


def _told(cubes: list[MemCube]) -> Output:
    return Output(cubes, map(_line, cubes))


def _line(cube: MemCube) -> str:
    return f"{cube.id} {cube.text}"
