"""`memos audit-memory`, `conflicts`: which memories are worth a second look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from memos.interface.doors.cli.shared import Output, User, vault_command

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS

review = typer.Typer()


@vault_command(review, "audit-memory")
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


@vault_command(review)
def conflicts(kernel: MemOS, user: User = None) -> Output:
    """Pairs of memories of which only one can be true."""
    found, lines = list[dict[str, object]](), list[str]()
    for pair in kernel.within(user).conflicts():
        fact = pair.facts[0]
        found.append({"one": pair.one, "other": pair.other, "subject": fact.subject, "relation": fact.relation})
        lines += (f"{cube.id} {cube.text}" for cube in (pair.one, pair.other))
        lines.append(f"  both give the {fact.relation} of {fact.subject}; delete or correct one of them")
    return Output(found, lines, empty="no two memories contradict each other")
