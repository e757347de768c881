"""`memos import`: imports memories of other programs; knows no format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.interface.doors.cli.shared import Output, User, new_vault_command
from memos.plugins.progress import progress_bars

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS
    from memos.plugins.imports.importer import ImportReport

imports = typer.Typer()


@new_vault_command(imports, "import")
def import_(
    kernel: MemOS,
    path: Annotated[Path, typer.Argument(help="file or folder, as the other program exported it")],
    as_: Annotated[
        str | None,
        typer.Option("--as", help="mem0, memoryos, langgraph, letta, jsonl, markdown or chatgpt; default: found out"),
    ] = None,
    user: User = None,
    of: Annotated[
        list[str] | None, typer.Option("--of", help="only what belongs to this user over there; may be given again")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="keep turns and passages as they stand, not what the reader finds in them")
    ] = False,
) -> Output:
    """Bring in memories of mem0, MemoryOS, LangGraph, Letta, ChatGPT, JSON lines or Markdown, and say what did not map.

    Nothing is added twice; interrupted, the same command goes on.
    """
    from memos.plugins.imports.importer import bring_in

    with progress_bars() as show:
        report = bring_in(
            kernel, path, as_, user=user, of=of or (), whole=whole, progress=lambda done, all: show("import", done, all)
        )
    return Output(vars(report), _lines(report))


def _lines(report: ImportReport) -> Iterator[str]:
    yield (
        f"{report.format}: {report.records} records, {report.mapped} mapped to {report.memories} memories, "
        f"{report.known} imported before, {report.unmapped.total()} not mapped"
    )
    for why, count in report.unmapped.most_common():
        yield f"  {count} not mapped: {why} [{'; '.join(report.places[why])}{'; ...' if count > 3 else ''}]"
    for name, count in report.dropped.most_common():
        yield f"  {count} without a place in a memory: {name}"
    if len(report.owners) > 1:
        of = ", ".join(f"{name} {count}" for name, count in report.owners.most_common(20))
        yield f"  memories of several users are one's now: {of}; --of takes those of one alone"
