"""`memos explain`, `feedback`, `lineage`, `overview`: why an answer is given, what has helped, where a memory comes
from, and what there is. Doors; know no scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memos.interface.doors.cli.shared import Id, Output, User, api, vault_command

if TYPE_CHECKING:
    from memos.interface.doors.api.memory import Overviewed, Traced, Why
    from memos.kernel.mem_os import MemOS

insight = typer.Typer()


@vault_command(insight)
def explain(
    kernel: MemOS,
    question: Annotated[str, typer.Argument(help="what is asked")],
    answer: Annotated[str | None, typer.Option(help="explain this answer; without: the one that is given")] = None,
    user: User = None,
) -> Output:
    """Why a question is answered so: by how many nats the answer is likelier with each memory than without it."""
    told = api(kernel).explain(question, answer=answer, user_id=user)
    return Output(told, _why(told))


def _why(told: Why) -> Iterator[str]:
    yield f"{told['answer']}  [{told['likelihood']:.2f} nats; without any memory {told['closed_book']:.2f}]"
    for reason in told["reasons"]:
        yield f"{reason['change']:+7.2f}  {reason['id']}  {reason['memory']}  [{reason['form']}]"


@vault_command(insight)
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
    told = api(kernel).feedback(id, useful, question=question, answer=answer, user_id=user)
    lines = (
        f"{one['id']}  " + (f"utility {one['utility']:+.3f}" if "utility" in one else f"{one['useful']:+.3f}")
        for one in told["results"]
    )
    return Output(told, lines, empty="no memory was seen, so none is credited")


@vault_command(insight)
def lineage(kernel: MemOS, id: Id, user: User = None) -> Output:
    """What a memory was made of, what is made of it, and which packs brought it."""
    told = api(kernel).provenance(kernel.get(id, user=user).id, user_id=user)
    return Output(told, _from(told))


def _from(told: Traced) -> Iterator[str]:
    for said, cubes in (("", [told["memory"]]), ("made of ", told["sources"]), ("made of it: ", told["derived"])):
        for cube in cubes:
            yield f"{said}{cube['id']} {cube['form']} {cube['state']}  {cube['memory']}"
    for origin in told["origins"]:
        yield "from " + ", ".join(f"{name} {value}" for name, value in origin.items() if value)


@vault_command(insight)
def overview(kernel: MemOS, user: User = None) -> Output:
    """What there is of a user's: counts by form and state, topics by heat, budgets, jobs."""
    told = api(kernel).overview(user_id=user)
    return Output(told, _there_is(told))


def _there_is(told: Overviewed) -> Iterator[str]:
    for name, count in sorted(told["cubes"].items()):
        yield f"{count} {name}"
    for topic in told["topics"]:
        yield f"heat {topic['heat']:6.2f}  {topic['name']}: {len(topic['ids'])} memories"
    for form, budget in told["budget"].items():
        yield f"{form}: {told['used'].get(form, 0):,.0f} of {budget:,.0f}"
    yield f"recalled {told['recalls']} times; policy {told['policy']}, model {told['model']}"
