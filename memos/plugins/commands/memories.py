"""`memos add`, `delete`, `ls`, `show`: commands on memories that do more than one call.

Doors; know no rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.cube import Form, State, in_zone
from memos.errors import EmptyMemory, InputError
from memos.interface.doors.cli.shared import Output, User, counted, new_vault_command, vault_command

if TYPE_CHECKING:
    from memos.cube import MemCube
    from memos.interface.doors.api.values import Json
    from memos.kernel.mem_os import MemOS

memories = typer.Typer()
MAX_ROWS = 100  # of a table, if none is named: more than a few screens
_FILE_NAME = re.compile(r"\S*/\S*|\S+\.[A-Za-z]\w{1,8}")  # one word with a separator or a suffix


@new_vault_command(memories)
def add(
    kernel: MemOS,
    what: Annotated[
        list[str], typer.Argument(help="statements, or files (.txt, .md, .html, .pdf, .csv, .tsv, .json, .jsonl)")
    ],
    user: User = None,
    tag: Annotated[list[str] | None, typer.Option(help="see `memos tag`; may be given again")] = None,
    text: Annotated[bool, typer.Option("--text", help="statements alone, also those that look like a file")] = False,
) -> Output:
    """Remember statements, and what is worth keeping in files; each file is kept as a whole, or not at all."""
    from memos.interface.doors.api.calling import added

    began = kernel.vault.now()
    added_by = ((one, kernel.within(user).add(one if text else _source(one), tags=tag or ())) for one in what)
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
def list_cubes(
    kernel: MemOS,
    form: Annotated[Form | None, typer.Option(help="of this form")] = None,
    state: Annotated[State | None, typer.Option(help="in this state")] = None,
    topic: Annotated[str | None, typer.Option(help="about this")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="with this tag; may be given again")] = None,
    since: Annotated[datetime | None, typer.Option(help="made at this time or later (UTC)")] = None,
    until: Annotated[datetime | None, typer.Option(help="made at this time or before (UTC)")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help=f"the last so many; a table has {MAX_ROWS} without")] = None,
    user: User = None,
) -> Output:
    """List the memories of a vault, oldest first."""

    first, last = in_zone(since), in_zone(until)

    def fits(cube: MemCube) -> bool:
        header = cube.header
        named = ((form, cube.form), (state, cube.state), (topic, header.segment))
        return (
            all(wanted in (None, has) for wanted, has in named)
            and {*header.tags} >= {*(tag or ())}
            and (first is None or header.created >= first)
            and (last is None or header.created <= last)
        )

    every = kernel.within(user).cubes()
    cubes = [cube for cube in every if fits(cube)][-(limit or 0) :]
    empty = f"the vault {kernel.vault.path} holds no memories of {user or 'this user'}; add some with `memos add`"
    none = f"of the {len(every)} memories in {kernel.vault.path} none is so; leave options out" if every else empty
    return Output(cubes, _rows(cubes, limit or MAX_ROWS, none))


def _rows(cubes: list[MemCube], limit: int, empty: str) -> Iterator[str]:
    """Raises EmptyMemory: an empty list tells a program enough, an empty table nobody."""
    if not cubes:
        raise EmptyMemory(empty)
    cells: list[tuple[str, ...]] = [("id", "form", "state", "topic", "recalls", "made", "content")]
    for one in cubes[-limit:]:
        header, content = one.header, " ".join(_content(one).split())
        about = (one.form, one.state, f"{header.segment:.20}", one.usage.recalls, f"{header.created:%Y-%m-%d}", content)
        cells.append((one.id, *map(str, about)))
    *widths, _ = (max(map(len, column)) for column in zip(*cells, strict=True))
    for row in cells:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, (*widths, 0), strict=True))
    if len(cubes) > limit:
        yield f"the last {limit} of {len(cubes)}; --limit {len(cubes)} lists all"


@vault_command(memories)
def show(
    kernel: MemOS, id: Annotated[str, typer.Argument(help="of a memory, as `memos ls` lists it")], user: User = None
) -> Output:
    """Show one memory: what it says or holds, where it comes from, and its life."""
    from memos.interface.doors.api.calling import changes, item

    cube = kernel.within(user).get(id)
    events = changes(cube.id, kernel.within(user).history(id))
    return Output({**item(cube), "history": events}, [cube.model_dump_json(indent=1), *map(event_line, events)])


def event_line(event: Json) -> str:
    """One line of a memory's history."""
    match event:
        case {"event": "state"}:
            what = f"{event['state']}: {event['why']}"
        case {"version": version}:
            what = f"version {version}"
        case _:
            what = f"told again ({event['origin']})"
    return f"{event['at']}  {what}"


def _content(cube: MemCube) -> str:
    from memos.cube import Blob, Turn
    from memos.plugins.figures import size

    match cube.payload:
        case Blob(bytes=n):
            return f"{size(n)} from {counted(len(cube.sources))}"
        case Turn(said=utterance):
            return utterance
        case _:
            return cube.text


def _source(one: str) -> str | Path:
    """The file, where there is one, or else the statement. Raises InputError for one word that looks like the name of a
    file: a misspelt name is no statement."""
    try:
        if Path(one).is_file():
            return Path(one)
    except OSError:  # too long for a name
        return one
    if _FILE_NAME.fullmatch(one):
        raise InputError(f"{one}: no such file; give the name of one that is there, or --text if it is a statement")
    return one
