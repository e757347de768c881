"""What the benchmark commands share: progress while one runs, its report, and a table of it on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from memos.bench import measured, write_report
from memos.plugins.progress import Show, progress_bars

Dialogues = Enum("Dialogues", {"locomo": "locomo", "beam": "beam"})
Seed = Annotated[int, typer.Option(help="of what is drawn at random")]
Model = Annotated[str, typer.Option("--model", help="a folder, a hub name, memos-small, or shape:NAME")]


def report_of_model(
    name: str, json: Path | None, model: str, seed: int, measure: Callable[[Any, Show], dict[str, Any]]
) -> dict[str, Any]:
    """The report of a benchmark on a model, of which `measure` is given the host. Raises ModelNotFound, HostError."""
    with progress_bars() as show:
        return measured(name, json, model, seed, lambda host: measure(host, show))


def report_of_cpu(name: str, json: Path | None, seed: int, measure: Callable[[Show], dict[str, Any]]) -> dict[str, Any]:
    """The report of a benchmark that is not of a model."""
    with progress_bars() as show:
        return write_report(name, seed, "cpu", measure(show), json)


def print_table(table: Any) -> None:
    from rich.console import Console

    Console().print(table)
