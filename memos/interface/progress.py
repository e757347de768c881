"""Progress of long jobs on a terminal. Knows no jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[str, int, int], None]  # (what, done, of how many)


@contextmanager
def progress_bars() -> Iterator[Show]:
    """Progress bars on the terminal: call with (what, done, of how many)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        current: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            name = what.split(",")[0].split(":")[0]
            if name not in current:
                current[name] = bars.add_task(what, total=total)
            bars.update(current[name], description=what, completed=done, total=total)
            if done == total:
                del current[name]

        yield show
