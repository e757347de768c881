"""`memos steering`: directions that answers are steered by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.interface.doors.cli.shared import Output, User, new_vault_command, vault_command
from memos.plugins.progress import progress_bars

if TYPE_CHECKING:
    from memos.cube import MemCube
    from memos.kernel.mem_os import MemOS
    from memos.plugins.steering.calls import SteeringCalls

steering = typer.Typer(name="steering", help="Directions that steer every answer.", no_args_is_help=True)


def calls(kernel: MemOS, user: str | None) -> SteeringCalls:
    from memos.plugins.steering.calls import SteeringCalls

    return SteeringCalls.of(kernel.within(user) if user else kernel)


@new_vault_command(steering)
def make(
    kernel: MemOS,
    behaviour: Annotated[Path, typer.Argument(help="YAML with instruction, examples and unrelated")],
    seed: int = 0,
    user: User = None,
) -> Output:
    """Make a direction of contrasting prompts; in force once it has passed its gate, until `memos demote ID`."""
    with progress_bars() as show:
        cube = calls(kernel, user).steer(behaviour, seed=seed, tell=show)
    return Output({"results": [cube], "scores": cube.blob.scores if cube.blob else {}}, [_line(kernel, cube)])


@vault_command(steering)
def ls(kernel: MemOS, user: User = None) -> Output:
    """List the directions in force."""
    found = calls(kernel, user).steerings()
    none = "no answer is steered; `memos steering make FILE` makes a direction"
    return Output(found, [_line(kernel, cube) for cube in found], empty=none)


def _line(kernel: MemOS, cube: MemCube) -> str:
    scores = ", ".join(f"{name} {value:.3f}" for name, value in (cube.blob.scores if cube.blob else {}).items())
    return f"{cube.id} {kernel.get(cube.sources[0].id).text!r}: {scores}"
