"""Shows the progress of long jobs on a terminal; knows no jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

Show = Callable[[str, int, int], None]  # (what, done, of how many)
LINE_INTERVAL_S = 30.0  # between two lines, where there is no terminal to draw on


@contextmanager
def progress_bars() -> Iterator[Show]:
    """Progress bars on the terminal: call with (what, done, of how many). In a file, a line twice a minute, and the
    bars at the end."""
    from rich import progress as rich
    from rich.console import Console

    times = (rich.TimeElapsedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn())
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.MofNCompleteColumn(), *times)
    console = Console(stderr=True)
    with rich.Progress(*columns, console=console) as bars:
        current: dict[str, rich.TaskID] = {}
        printed = time.monotonic()

        def show(what: str, done: int, total: int) -> None:
            nonlocal printed
            if not console.is_terminal and (now := time.monotonic()) - printed >= LINE_INTERVAL_S:
                printed = now
                left = next((task.time_remaining for task in bars.tasks if task.description == what), None)
                console.print(f"{what} {done}/{total}" + (f", {timedelta(seconds=round(left))} left" if left else ""))
            name = what.split(",")[0].split(":")[0]
            if name not in current:
                current[name] = bars.add_task(what, total=total)
            bars.update(current[name], description=what, completed=done, total=total)
            if done == total:
                del current[name]

        yield show
