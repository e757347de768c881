"""`memos explain`, `feedback`, `lineage`, `overview`: why an answer is given, what has helped, where a memory comes
from, and what there is. Doors; know no scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.interface.cli_shared import AsJson, Id, User, over_vault

if TYPE_CHECKING:
    from memos.interface.mem_api import Memory
    from memos.kernel import MemOS

insight = typer.Typer()


@insight.command()
@over_vault
def explain(
    kernel: MemOS,
    question: Annotated[str, typer.Argument(help="what is asked")],
    answer: Annotated[str | None, typer.Option(help="explain this answer; without: the one that is given")] = None,
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Why a question is answered so: by how many nats the answer is likelier with each memory than without it."""
    told = _api(kernel).explain(question, answer=answer, user_id=user)
    if as_json:
        print(_json(told))
        return
    print(f"{told['answer']}  [{told['likelihood']:.2f} nats; without any memory {told['closed_book']:.2f}]")
    for reason in told["reasons"]:
        print(f"{reason['change']:+7.2f}  {reason['id']}  {reason['memory']}  [{reason['form']}]")


@insight.command()
@over_vault
def feedback(
    kernel: MemOS,
    id: Annotated[str | None, typer.Argument(help="id of a memory, as `memos ls` lists it")] = None,
    useful: Annotated[float | None, typer.Option(min=-1, max=1, help="how much it has helped, from -1 to 1")] = None,
    question: Annotated[str | None, typer.Option(help="instead of a memory: a question")] = None,
    answer: Annotated[
        str | None, typer.Option(help="its right answer: what each memory does for it is measured")
    ] = None,
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Say how much a memory has helped, or which answer was right; what helps is found sooner."""
    told = _api(kernel).feedback(id, useful, question=question, answer=answer, user_id=user)
    if as_json:
        print(_json(told))
        return
    for one in told["results"]:
        print(f"{one['id']}  " + (f"utility {one['utility']:+.3f}" if "utility" in one else f"{one['useful']:+.3f}"))
    if not told["results"]:
        print("no memory was seen, so none is credited")


@insight.command()
@over_vault
def lineage(kernel: MemOS, id: Id, user: User = None, as_json: AsJson = False) -> None:
    """What a memory was made of, what is made of it, and which packs brought it."""
    told = _api(kernel).provenance(kernel.get(id, user=user).id, user_id=user)
    if as_json:
        print(_json(told))
        return
    for said, cubes in (("", [told["memory"]]), ("made of ", told["sources"]), ("made of it: ", told["derived"])):
        for cube in cubes:
            print(f"{said}{cube['id']} {cube['form']} {cube['state']}  {cube['memory']}")
    for origin in told["origins"]:
        print("from " + ", ".join(f"{name} {value}" for name, value in origin.items() if value))


@insight.command()
@over_vault
def overview(kernel: MemOS, user: User = None, as_json: AsJson = False) -> None:
    """What there is of a user's: counts by form and state, topics by heat, budgets, jobs."""
    told = _api(kernel).overview(user_id=user)
    if as_json:
        print(_json(told))
        return
    for name, count in sorted(told["cubes"].items()):
        print(f"{count} {name}")
    for topic in told["topics"]:
        print(f"heat {topic['heat']:6.2f}  {topic['name']}: {len(topic['ids'])} memories")
    for form, budget in told["budget"].items():
        print(f"{form}: {told['used'].get(form, 0):,.0f} of {budget:,.0f}")
    print(f"recalled {told['recalls']} times; policy {told['policy']}, model {told['model']}")


def _api(kernel: MemOS) -> Memory:
    from memos.interface.mem_api import Memory

    return Memory(kernel=kernel)


def _json(told: Mapping[str, Any]) -> str:
    return json.dumps(told, ensure_ascii=False)
