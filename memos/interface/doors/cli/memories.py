"""`memos add`, `delete`, `ls`, `show`, `conflicts`, `audit-memory`: commands on memories that do more than one call.

Doors; know no rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.errors import EmptyMemory, InputError
from memos.interface.doors.cli.api_commands import event_line
from memos.interface.doors.cli.shared import Output, User, new_vault_command, table, vault_command

if TYPE_CHECKING:
    from rich.table import Table

    from memos.cube import MemCube
    from memos.kernel.mem_os import MemOS

memories = typer.Typer()


@new_vault_command(memories)
def add(
    kernel: MemOS,
    what: Annotated[
        list[str], typer.Argument(help="statements, or files (.txt, .md, .html, .pdf, .csv, .tsv, .json, .jsonl)")
    ],
    user: User = None,
    tag: Annotated[list[str] | None, typer.Option(help="see `memos tag`; may be given again")] = None,
) -> Output:
    """Remember statements, and what is worth keeping in files; each file is kept as a whole, or not at all."""
    from memos.interface.doors.api.calling import added

    began = kernel.vault.now()
    added_by = (
        (one, kernel.within(user).add(Path(one) if _is_path(Path(one)) else one, tags=tag or ())) for one in what
    )
    nothing = "nothing in it is worth keeping; a statement that is given as text is always kept"
    return Output(
        (result for _, cubes in added_by for result in added(cubes, began)),
        (line for one, cubes in added_by for line in [f"{c.id}  {c.text}" for c in cubes] or [f"{one}: {nothing}"]),
    )


@vault_command(memories)
def delete(
    kernel: MemOS,
    ids: Annotated[list[str], typer.Argument(help="memories, as `memos ls` lists them")],
    user: User = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> Output:
    """Remove memories with every form made from them, for good; `memos forget` removes all of a user, with a proof."""
    from memos.interface.doors.api.calling import deleted

    cubes = [kernel.within(user).get(id) for id in ids]
    if not yes and not typer.confirm("\n".join(cube.text for cube in cubes) + "\ndelete for good?"):
        raise InputError("nothing was deleted; answer y, or give --yes")
    gone = list[str]()
    for cube in cubes:
        gone += [] if cube.id in gone else kernel.within(user).delete(cube.id)
    value = {"message": "Memories deleted successfully!", "results": deleted(gone)}
    return Output(value, (f"{id} is deleted" for id in gone))


@vault_command(memories, "ls")
def list_cubes(kernel: MemOS, user: User = None) -> Output:
    """List the memories of a vault."""
    cubes = kernel.within(user).cubes()
    return Output(cubes, _table(cubes, f"the vault {kernel.vault.path} holds no memories of {user or 'this user'}"))


def _table(cubes: list[MemCube], empty: str) -> Iterator[Table]:
    """Raises EmptyMemory: an empty list tells a program enough, an empty table nobody."""
    if not cubes:
        raise EmptyMemory(f"{empty}; add some with `memos chat` or an ingest step")
    rows = ((c.id, str(c.form), str(c.state), c.header.segment, str(c.usage.recalls), _content(c)) for c in cubes)
    yield table(("id", "form", "state", "segment", "recalls", "content"), rows, folded=("segment", "content"))


@vault_command(memories)
def show(
    kernel: MemOS,
    id: Annotated[str, typer.Argument(help="of a memory, as `memos ls` lists it")],
    user: User = None,
) -> Output:
    """Show one memory: what it says or holds, where it comes from, and its life."""
    from memos.interface.doors.api.calling import changes, item

    cube = kernel.within(user).get(id)
    events = changes(cube.id, kernel.within(user).history(id))
    return Output({**item(cube), "history": events}, [cube.model_dump_json(indent=1), *map(event_line, events)])


def _content(cube: MemCube) -> str:
    from memos.cube import Blob, Turn
    from memos.interface.doors.figures import size

    match cube.payload:
        case Blob(bytes=n):
            return f"{size(n)} from {len(cube.sources)} memories"
        case Turn(said=utterance):
            return utterance
        case _:
            return cube.text


def _is_path(path: Path) -> bool:
    """True for a file that is there, and for one word that ends as a file of a known format does: a misspelt name is
    no statement."""
    from memos.extensions import Registry

    formats = Registry[object]("memos.readers", "reader of documents").names()
    try:
        return path.is_file() or (
            path.suffix.lower().removeprefix(".") in formats and not any(map(str.isspace, str(path)))
        )
    except OSError:  # too long for a name
        return False


@vault_command(memories, "audit-memory")
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


@vault_command(memories)
def conflicts(kernel: MemOS, user: User = None) -> Output:
    """Pairs of memories of which only one can be true."""
    found, lines = list[dict[str, object]](), list[str]()
    for pair in kernel.within(user).conflicts():
        fact = pair.facts[0]
        found.append({"one": pair.one, "other": pair.other, "subject": fact.subject, "relation": fact.relation})
        lines += (f"{cube.id} {cube.text}" for cube in (pair.one, pair.other))
        lines.append(f"  both give the {fact.relation} of {fact.subject}; delete or correct one of them")
    return Output(found, lines, empty="no two memories contradict each other")
