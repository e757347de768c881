"""`memos work-on-ray`: background jobs by workers on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.interface.doors.cli.shared import Output, User, vault_command

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS

commands = typer.Typer()


@vault_command(commands, "work-on-ray")
def work_on_ray(
    kernel: MemOS,
    least: Annotated[int, typer.Option(min=0, help="workers that are there also while nothing waits")] = 1,
    most: Annotated[int, typer.Option(min=1, help="workers at most; between, one for each job that is open")] = 4,
    gpus: Annotated[float, typer.Option(min=0, help="that each worker asks the cluster for")] = 0.0,
    every: Annotated[float, typer.Option(min=0.1, help="seconds to the next round where nothing was to do")] = 2.0,
    user: User = None,
) -> Output:
    """Plan and carry out background work by workers on the Ray cluster of RAY_ADDRESS, or on one of this machine, until
    ctrl-C. Workers come and go with the jobs that wait; beside them `memos work` may run."""
    moves = _moves(kernel, least, most, gpus, every, user)
    lines = (f"{move['move']}: {move.get('cube', '')} {move.get('failed', move['why'])}" for move in moves)
    return Output(moves, lines, empty="there was nothing to move")


def _moves(
    kernel: MemOS, least: int, most: int, gpus: float, every: float, user: str | None
) -> Iterator[dict[str, Any]]:
    from memos.plugins.ray_executor.pool import cluster, pooled, rounds

    with cluster(), pooled(kernel.config, kernel.vault, least, most, gpus, user) as pool:
        yield from rounds(pool, every)
