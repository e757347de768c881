"""`memos promote`, `work`, `gate`: the forms of memories."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.cube import AT_LEAST, MadeBy
from memos.errors import GateRejected, VaultError
from memos.interface.doors.cli.shared import OpenVault, Output, User, counted, optional_vault_command, vault_command
from memos.plugins.progress import progress_bars

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS

log = logging.getLogger("memos")
forms = typer.Typer()
_HOW = {
    MadeBy.EDIT: " edited from the one before",
    MadeBy.INSTANT: " without training",
    MadeBy.REFINED: " written without training, and refined",
}
Adapters = Annotated[list[str], typer.Argument(help="ids of parametric cubes, or folders of adapters")]


@vault_command(forms)
def promote(
    kernel: MemOS,
    ids: Annotated[list[str], typer.Argument(help="memories, as `memos ls` lists them; KV or adapters are merged")],
    to: Annotated[str, typer.Option("--to", help="activation or parametric")],
    user: User = None,
) -> Output:
    """Make KV or an adapter of memories. Interrupted, the same command goes on from where it was."""
    with progress_bars() as show:
        cube = kernel.within(user).promote(ids, to, progress=lambda step, of, loss: show("promote", step, of))  # type: ignore[arg-type]
    assert cube.blob
    scores, built = cube.blob.scores, cube.blob.build_s
    how = _HOW.get(cube.blob.made_by, "") if cube.blob.made_by else ""
    made = f"{cube.id} {cube.form} of {counted(len(cube.sources))},{how} {built:.1f} s"
    lines = filter(None, (made, scores_line(scores), cube.asked))
    more = {"build_s": built, "made_by": cube.blob.made_by, "unasked": cube.unasked}
    return Output({"results": [cube], "scores": scores, **more}, lines)


@vault_command(forms)
def work(
    kernel: MemOS,
    every: Annotated[float | None, typer.Option(min=0.1, help="seconds to the next round, until ctrl-C")] = None,
    user: User = None,
) -> Output:
    """Plan which memories should change form, and carry it out; what was cut off before goes on. Several may work on
    one vault: each job is done by one of them."""
    moves = rounds(kernel, every, user)
    lines = (f"{move['move']}: {move.get('cube', '')} {move.get('failed', move['why'])}" for move in moves)
    return Output(moves, lines, empty="there is nothing to move")


def rounds(kernel: MemOS, every: float | None, user: str | None) -> Iterator[dict[str, Any]]:
    """What is done, round by round, each once it is done; one round where `every`, the seconds between two, is None."""
    try:
        while True:
            try:
                with progress_bars() as show:
                    done = kernel.within(user).tick(progress=lambda step, of, loss: show("promote", step, of))
            except VaultError as error:
                if every is None or _interrupted(error):
                    raise
                log.warning("this round is not finished, and the next one goes on: %s", error)
                done = []
            yield from done
            if every is None:
                return
            time.sleep(every)
    except KeyboardInterrupt:
        if every is None:
            raise  # else it is how the rounds end, and what was done is told


def _interrupted(error: BaseException | None) -> bool:
    """Whether ctrl-C has led to an error, as where it cuts off a statement."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _interrupted(error.__context__))


@optional_vault_command(forms)
def gate(
    open_vault: OpenVault,
    adapters: Adapters,
    on: Annotated[list[str] | None, typer.Option("--on", help="a memory that they should know; else by card")] = None,
    user: User = None,
) -> Output:
    """Judge adapters, several of them together, by what they should know and by what they must not change."""
    with open_vault(adapters) as kernel:
        scores, short = kernel.within(user).gate([named(a) for a in adapters], on=on or ())
    refused = GateRejected(f"the gate is not passed: {', '.join(short)}", scores) if short else None
    lines = [scores_line(scores), *([] if short else ["the gate is passed"])]
    return Output({"passed": not short, "short": short, "scores": scores}, lines, failed=refused)


def named(what: str) -> str | Path:
    """A path where there is one, else an id."""
    return Path(what) if Path(what).exists() else what


def scores_line(scores: dict[str, float]) -> str:
    """Each with what it is at least, with 95 % certainty, where that is known."""
    bounds = {name: scores.get(name + AT_LEAST) for name in scores if not name.endswith(AT_LEAST)}
    return ", ".join(
        f"{name} {scores[name]:.3f}" + (f" (at least {bound:.3f})" if bound is not None else "")
        for name, bound in bounds.items()
    )
