"""`memos add`, `update`, `delete`, `ls`, `show`, `search`, `explain`, `feedback` and more: single memories.

Doors; know no ranking and no scores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.errors import EmptyMemory, InputError
from memos.interface.doors.cli.life import event_line
from memos.interface.doors.cli.shared import Id, Output, User, api, new_vault_command, vault_command

if TYPE_CHECKING:
    from rich.table import Table

    from memos.cube import MemCube
    from memos.interface.doors.api.values import LineageValue, OverviewValue, Why
    from memos.kernel.mem_os import MemOS
    from memos.kernel.services.finding import Hit

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
def update(
    kernel: MemOS,
    id: Id,
    text: Annotated[str | None, typer.Argument(help="what it should say; without: as now")] = None,
    metadata: Annotated[
        str | None, typer.Option(help="a JSON object, set beside what is there; a name that is null is taken out")
    ] = None,
    user: User = None,
) -> Output:
    """A new version of a memory: what it says, its metadata, or both; KV and adapters made of it are out of use."""
    cube = kernel.within(user).update(id, text, metadata=None if metadata is None else _object(metadata))
    return Output([cube], f"{cube.id} version {cube.version}: {cube.text}")


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
    from rich.table import Table

    if not cubes:
        raise EmptyMemory(f"{empty}; add some with `memos chat` or an ingest step")
    table = Table(box=None)
    for name in ("id", "form", "state", "segment", "recalls", "content"):
        free = name in ("segment", "content")
        table.add_column(name, no_wrap=not free, overflow="fold", min_width=12 if name == "content" else None)
    for cube in cubes:
        table.add_row(
            cube.id, str(cube.form), str(cube.state), cube.header.segment, str(cube.usage.recalls), _content(cube)
        )
    yield table


@vault_command(memories)
def show(kernel: MemOS, id: Id, user: User = None) -> Output:
    """Show one memory: what it says or holds, where it comes from, and its life."""
    from memos.interface.doors.api.calling import changes, item

    cube = kernel.within(user).get(id)
    events = kernel.within(user).history(id)
    return Output(
        {**item(cube), "history": changes(cube.id, events)}, [cube.model_dump_json(indent=1), *map(event_line, events)]
    )


@vault_command(memories)
def search(
    kernel: MemOS,
    query: Annotated[str, typer.Argument(help="what to look for")],
    user: User = None,
    top_k: Annotated[int | None, typer.Option("--top-k", help="most memories; default: scheduler.top_k")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="fact, event, ...; may be given again")] = None,
    since: Annotated[datetime | None, typer.Option(help="said at this time or later (UTC)")] = None,
    until: Annotated[datetime | None, typer.Option(help="said at this time or before (UTC)")] = None,
    policy: Annotated[str | None, typer.Option(help="what finds; default: the user's policy")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="what each score is made of")] = False,
) -> Output:
    """Find memories, the best first."""
    from memos.interface.doors.api.calling import scored

    hits = kernel.within(user).search(query, top_k=top_k, kinds=kind, since=since, until=until, policy=policy)
    vault = kernel.vault.path
    none = f"nothing in {vault} is found by that; `memos ls --vault {vault}` lists what there is"
    return Output([scored(hit, explain) for hit in hits], _hits(hits, explain), none)


def _hits(hits: list[Hit], explain: bool) -> Iterator[str]:
    for hit in hits:
        yield f"{hit.score:6.3f}  {hit.cube.id}  {hit.cube.text}"
        if explain:
            yield "        " + ", ".join(f"{name} {value:g}" for name, value in hit.why.items() if value)


@vault_command(memories)
def explain(
    kernel: MemOS,
    question: Annotated[str, typer.Argument(help="what is asked")],
    answer: Annotated[str | None, typer.Option(help="explain this answer; without: the one that is given")] = None,
    user: User = None,
) -> Output:
    """Why a question is answered so: by how many nats the answer is likelier with each memory than without it."""
    reply = api(kernel).explain(question, answer=answer, user_id=user)
    return Output(reply, _reasons(reply))


def _reasons(reply: Why) -> Iterator[str]:
    yield f"{reply['answer']}  [{reply['likelihood']:.2f} nats; without any memory {reply['closed_book']:.2f}]"
    for reason in reply["reasons"]:
        yield f"{reason['change']:+7.2f}  {reason['id']}  {reason['memory']}  [{reason['form']}]"


@vault_command(memories)
def feedback(
    kernel: MemOS,
    id: Annotated[str | None, typer.Argument(help="id of a memory, as `memos ls` lists it")] = None,
    useful: Annotated[float | None, typer.Option(min=-1, max=1, help="how much it has helped, from -1 to 1")] = None,
    question: Annotated[str | None, typer.Option(help="instead of a memory: a question")] = None,
    answer: Annotated[
        str | None, typer.Option(help="its right answer: what each memory does for it is measured")
    ] = None,
    user: User = None,
) -> Output:
    """Say how much a memory has helped, or which answer was right; what helps is found sooner."""
    reply = api(kernel).feedback(id, useful, question=question, answer=answer, user_id=user)
    lines = (
        f"{one['id']}  " + (f"utility {one['utility']:+.3f}" if "utility" in one else f"{one['useful']:+.3f}")
        for one in reply["results"]
    )
    return Output(reply, lines, empty="no memory was seen, so none is credited")


@vault_command(memories)
def lineage(kernel: MemOS, id: Id, user: User = None) -> Output:
    """What a memory was made of, what is made of it, and which packs brought it."""
    trace = api(kernel).provenance(kernel.within(user).get(id).id, user_id=user)
    return Output(trace, _lineage(trace))


def _lineage(trace: LineageValue) -> Iterator[str]:
    for role, cubes in (("", [trace["memory"]]), ("made of ", trace["sources"]), ("made of it: ", trace["derived"])):
        for cube in cubes:
            yield f"{role}{cube['id']} {cube['form']} {cube['state']}  {cube['memory']}"
    for origin in trace["origins"]:
        yield "from " + ", ".join(f"{name} {value}" for name, value in origin.items() if value)


@vault_command(memories)
def overview(kernel: MemOS, user: User = None) -> Output:
    """What there is of a user's: counts by form and state, topics by heat, budgets, jobs."""
    reply = api(kernel).overview(user_id=user)
    return Output(reply, _overview(reply))


def _overview(reply: OverviewValue) -> Iterator[str]:
    for name, count in sorted(reply["cubes"].items()):
        yield f"{count} {name}"
    for topic in reply["topics"]:
        yield f"heat {topic['heat']:6.2f}  {topic['name']}: {len(topic['ids'])} memories"
    for form, budget in reply["budget"].items():
        yield f"{form}: {reply['used'].get(form, 0):,.0f} of {budget:,.0f}"
    yield f"recalled {reply['recalls']} times; policy {reply['policy']}, model {reply['model']}"


def _content(cube: MemCube) -> str:
    from memos.cube import Blob, Turn
    from memos.interface.doors.experiment.report import size

    match cube.payload:
        case Blob(bytes=n):
            return f"{size(n)} from {len(cube.sources)} memories"
        case Turn(said=utterance):
            return utterance
        case _:
            return cube.text


def _object(text: str) -> dict[str, object]:
    """Raises InputError."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"--metadata {text!r:.80} is no JSON object; give one, as '{{\"page\": 3}}'")
    return found


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
