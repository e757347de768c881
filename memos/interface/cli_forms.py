"""`memos promote`, `demote`, `jobs`, `cancel`, `gate`, `externalize`, `export-adapter`: memories that change form."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.cube import AT_LEAST
from memos.errors import GateRejected
from memos.interface.cli_shared import HERE, Config, Set, User, Vault, opened, over_vault
from memos.interface.progress import progress_bars

if TYPE_CHECKING:
    from memos.kernel import MemOS

forms = typer.Typer()
Adapters = Annotated[list[str], typer.Argument(help="ids of parametric cubes, or folders of adapters")]


@forms.command()
@over_vault
def promote(
    kernel: MemOS,
    ids: Annotated[list[str], typer.Argument(help="memories, as `memos ls` lists them")],
    to: Annotated[str, typer.Option("--to", help="activation or parametric")],
    user: User = None,
) -> None:
    """Make KV or an adapter of memories. Interrupted, the same command goes on from where it was."""
    with progress_bars() as show:
        cube = kernel.promote(ids, to, user=user, progress=lambda step, of, loss: show("train", step, of))  # type: ignore[arg-type]
    assert cube.blob
    print(f"{cube.id} {cube.form} of {len(cube.sources)} memories, {cube.blob.build_s:.1f} s")
    print_scores(cube.blob.scores)


@forms.command()
@over_vault
def demote(
    kernel: MemOS, id: Annotated[str, typer.Argument(help="an activation or parametric cube")], user: User = None
) -> None:
    """Give up KV or an adapter; the memories that it was made from answer as text again."""
    for cube in kernel.demote(id, user=user):
        print(f"{cube.id} {cube.text}")


@forms.command()
@over_vault
def jobs(kernel: MemOS, user: User = None) -> None:
    """Work that is going on, that can be taken up again, or that waits."""
    found = kernel.jobs(user=user)
    for job in found:
        print(f"{job.id} {job.state} {job.kind} {' '.join(job.payload.get('sources', []))} {job.note}".rstrip())
    if not found:
        print("no job is running or waits, and none was interrupted")


@forms.command()
@over_vault
def work(
    kernel: MemOS,
    every: Annotated[float | None, typer.Option(min=0.1, help="seconds to the next round, until ctrl-C")] = None,
    user: User = None,
) -> None:
    """Plan which memories should change form, and carry it out; what was cut off before goes on."""
    while True:
        with progress_bars() as show:
            done = kernel.tick(user=user, progress=lambda step, of, loss: show("train", step, of))
        for move in done:
            print(f"{move['move']}: {move.get('cube', '')} {move.get('failed', move['why'])}")
        if every is None:
            break
        time.sleep(every)
    if not done:
        print("there is nothing to move")


@forms.command()
@over_vault
def cancel(
    kernel: MemOS, job: Annotated[str, typer.Argument(help="id, as `memos jobs` lists it")], user: User = None
) -> None:
    """End a job; what it had made is removed, and nothing is published."""
    kernel.cancel(job, user=user)
    print(f"{job} is cancelled")


@forms.command()
def gate(
    adapters: Adapters,
    on: Annotated[list[str] | None, typer.Option("--on", help="a memory that they should know; else by card")] = None,
    vault: Vault = HERE,
    config: Config = None,
    set_: Set = None,
    user: User = None,
) -> None:
    """Judge adapters, several of them together, by what they should know and by what they must not change."""
    with opened(vault, config, set_, adapters) as kernel:
        scores, short = kernel.gate([named(a) for a in adapters], on=on or (), user=user)
    print_scores(scores)
    if short:
        raise GateRejected(f"the gate is not passed: {', '.join(short)}", scores)
    print("the gate is passed")


@forms.command()
def externalize(
    what: Annotated[str, typer.Argument(help="id of a cube, folder of an adapter, or file of KV")],
    about: Annotated[list[str] | None, typer.Option("--about", help="a subject to ask about")] = None,
    vault: Vault = HERE,
    config: Config = None,
    set_: Set = None,
    user: User = None,
) -> None:
    """What an adapter says with it on against off, each statement with its support; of a KV cache, its text."""
    with opened(vault, config, set_, [what]) as kernel:
        found = kernel.externalize(named(what), about=about or (), user=user)
    for statement in found:
        if isinstance(statement, str):
            print(f"{statement}  [regenerated from its tokens]")
        else:
            source = f"backed by {statement.source}" if statement.source else "not backed by any memory"
            print(f"{statement.text}  [{statement.support} of {statement.asked} questions; {source}]")
    if not found:
        print("it answers as the base model does on everything asked; name subjects with --about")


@forms.command("export-adapter")
def export_adapter(
    adapters: Adapters,
    out: Annotated[Path, typer.Option("--out", help="folder to put the adapter in")],
    vault: Vault = HERE,
    config: Config = None,
    set_: Set = None,
    user: User = None,
) -> None:
    """One adapter folder that is all of these together, for peft, vLLM and other servers."""
    with opened(vault, config, set_, adapters) as kernel:
        print(kernel.export_adapter([named(a) for a in adapters], out, user=user))


def named(what: str) -> str | Path:
    """A path where there is one, else an id."""
    return Path(what) if Path(what).exists() else what


def print_scores(scores: dict[str, float]) -> None:
    """Each with what it is at least, with 95 % certainty, where that is known."""
    bounds = {name: scores.get(name + AT_LEAST) for name in scores if not name.endswith(AT_LEAST)}
    print(
        ", ".join(
            f"{name} {scores[name]:.3f}" + (f" (at least {bound:.3f})" if bound is not None else "")
            for name, bound in bounds.items()
        )
    )
