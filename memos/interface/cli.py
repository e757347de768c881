"""The command line: `memos run`, `chat`, `ls`, `show`, and what the other cli_ files add. A thin door.


Exit codes: 0 done, 1 an error that is named, 2 a wrong command line, 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from memos.errors import EmptyMemory, InputError, MemosError
from memos.interface.cli_bench import bench, calibrate, doctor
from memos.interface.cli_forms import User, Vault, forms, opened
from memos.interface.progress import progress_bars

if TYPE_CHECKING:
    from memos.cube import MemCube
    from memos.kernel import MemOS, Reply


class _Named(TyperGroup):
    """Says what went wrong, and ends with its exit code. A wrong command line is typer's own: 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MemosError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            print("interrupted; what was acknowledged is kept, the same command goes on from there", file=sys.stderr)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="memos",
    cls=_Named,
    help="A memory operating system for local language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(bench, name="bench")
app.command()(calibrate)
app.command()(doctor)
app.add_typer(forms)
Set = Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="change one setting of the config")]


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="YAML of the experiment")],
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="folder for report.json, report.png and the vault")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="begin anew instead of going on with an interrupted run")
    ] = False,
) -> None:
    """Run the steps of an experiment and report what each form of memory cost and gave."""
    from rich.console import Console

    from memos.config import load_config
    from memos.interface.experiment import Experiment
    from memos.interface.report import phases_table, plot, promotions_table

    settings = load_config(config, tuple(set_ or ()))
    out = out or Path("out") / settings.experiment.name
    with progress_bars() as show:
        report = Experiment(settings, out, show).run(fresh)
    plot(report, out / "report.png")
    console = Console()
    console.print(phases_table(report))
    if report["promotions"]:
        console.print(promotions_table(report))
    if report["parity"]:
        parity = report["parity"]
        console.print(
            f"KV against the full prompt: logits differ by at most {parity['max_abs_logit_diff']:.1e}, "
            f"top-1 agreement {parity['top1_agreement']:.3f}"
        )
    vault = settings.vault.path or out / "vault"
    console.print(f"report: {out / 'report.json'}, {out / 'report.png'}", soft_wrap=True)
    console.print(
        f"look at the memories: memos ls --vault {vault}; talk with them: memos chat --vault {vault}", soft_wrap=True
    )


@app.command()
def chat(
    config: Annotated[Path | None, typer.Argument(help="YAML; without one, the embedded default")] = None,
    set_: Set = None,
    vault: Annotated[Path | None, typer.Option("--vault", help="folder of the vault")] = None,
    user: User = None,
    session: Annotated[
        str | None, typer.Option("--session", help="name of a conversation to go on with; it is kept turn by turn")
    ] = None,
    rewind: Annotated[
        int | None, typer.Option("--rewind", min=0, help="first take the session back to so many turns")
    ] = None,
) -> None:
    """Talk with the model; it remembers, and shows what it answered from. End with ctrl-D."""
    from memos.config import load_config
    from memos.kernel import MemOS

    settings = load_config(config, tuple(set_ or ()))
    with MemOS(settings, vault=vault) as kernel:
        kernel.host  # noqa: B018  load the model before the first prompt, so that its errors come first
        if rewind is not None:
            if session is None:
                raise InputError("--rewind takes a session back; name it with --session")
            print(f"{kernel.rewind(session, rewind, user=user)} turns of {session} taken back")
        print(f"{settings.model.path}, {len(kernel.memories(user=user))} memories in {kernel.vault.path}. ctrl-D ends.")
        if session is not None:
            print(f"session {session}: {len(kernel.turns(session, user=user))} turns so far")
        turns: list[dict[str, str]] = []
        while (message := _read_line()) is not None:
            if message.strip():
                _turn(kernel, message, turns, session, user)


def _read_line() -> str | None:
    try:
        return input("> ")
    except EOFError:
        print()
        return None


def _turn(kernel: MemOS, message: str, turns: list[dict[str, str]], session: str | None, user: str | None) -> None:
    """One message and its answer. To a person an error is said and the talk goes on; a script ends with it."""
    try:
        said: dict[str, Any] = {"turns": turns} if session is None else {"session": session}
        reply = kernel.chat(message, **said, user=user, on_text=lambda piece: print(piece, end="", flush=True))
    except MemosError as error:
        if not sys.stdin.isatty():
            raise
        print(f"error: {error}", file=sys.stderr)
        return
    answered = bool(reply.prompt_tokens)  # and so streamed already
    print("" if answered else reply.text)
    print(_used(reply))
    if answered:
        turns += [{"role": "user", "content": message}, {"role": "assistant", "content": reply.text}]


def _used(reply: Reply) -> str:
    """One line: which memories, in which form, at what cost."""
    seen = reply.admission
    parts = []
    if seen.adapters:
        names = ", ".join(adapter.id[-8:] for adapter in seen.adapters)
        parts.append(f"adapter {names} for {len(seen.internal)} memories")
    parts += [f"KV {kv.id[-8:]} of {len(kv.sources)} memories" for kv in seen.activations]
    if seen.as_text:
        parts.append("text: " + " | ".join(c.text for c in seen.as_text))
    if reply.remembered:
        parts.append("kept as " + ", ".join(c.id for c in reply.remembered))
    every = reply.prompt_tokens + reply.past_tokens
    cost = f"; {reply.prompt_tokens} of {every} prompt tokens read, first after {reply.ttft_ms:.0f} ms"
    return f"  [{'; '.join(parts) or 'no memory used'}{cost if every else ''}]"


@app.command("ls")
def list_cubes(vault: Vault = Path("memos-data"), user: User = None) -> None:
    """List the memories of a vault."""
    from rich.console import Console
    from rich.table import Table

    with opened(vault) as kernel:
        cubes = kernel.cubes(user=user)
    if not cubes:
        raise EmptyMemory(
            f"the vault {vault} holds no memories of {user or 'this user'}; "
            f"add some with `memos chat` or an ingest step"
        )
    table = Table(box=None)
    for name in ("id", "form", "state", "segment", "recalls", "content"):
        free = name in ("segment", "content")
        table.add_column(name, no_wrap=not free, overflow="fold", min_width=12 if name == "content" else None)
    for cube in cubes:
        table.add_row(
            cube.id, str(cube.form), str(cube.state), cube.header.segment, str(cube.usage.recalls), _content(cube)
        )
    Console().print(table)


@app.command()
def show(
    id: Annotated[str, typer.Argument(help="id of a memory, as `memos ls` lists it")],
    vault: Vault = Path("memos-data"),
    user: User = None,
) -> None:
    """Show one memory: what it says or holds, where it comes from, and its life."""
    with opened(vault) as kernel:
        cube = kernel.get(id, user=user)
        events = kernel.history(id, user=user)
    print(cube.model_dump_json(indent=1))
    for event in events:
        what = f"version {event['version']}" if event["event"] == "version" else f"{event['state']}: {event['why']}"
        print(f"{event['at']}  {what}")


def _content(cube: MemCube) -> str:
    from memos.cube import Blob, Turn
    from memos.interface.report import size

    match cube.payload:
        case Blob(bytes=n):
            return f"{size(n)} from {len(cube.sources)} memories"
        case Turn(question=question, answer=answer):
            return f"{question} | {answer}"
        case _:
            return cube.text


def main() -> None:
    """Entry point of the `memos` command."""
    app()
