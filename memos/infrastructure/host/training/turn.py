"""Lets one training at a time run on a device, whatever process it is of; knows no models and no vaults.

Each takes a ticket, a file that it holds locked, in a folder that all processes of a user share. The lowest that is
still held has its turn, and writes into its ticket when it expects to end; a death gives a ticket up.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SHARED = Path(tempfile.gettempdir()) / f"memos-{os.getuid()}"
POLL_S = 1.0  # between two looks whether it is one's turn
Report = Callable[[float], None]  # the share of the work that is done, 0 to 1


@contextmanager
def training_turn(device: str, at_once: int, waiting: Callable[[int, float | None], None]) -> Iterator[Report]:
    """Held while one trains on a device; gives what takes how far that is.

    at_once: so many may train together. waiting: told every second how many come before and how long the first of them
    will still take (s; None: not known yet); what it raises ends the wait.
    """
    folder = SHARED / f"training-{device.replace(':', '-')}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _queued(folder) as ticket:
        while len(before := _held(folder, ticket)) >= at_once:
            waiting(len(before), _left_s(before[0]))
            time.sleep(POLL_S)
        began = time.time()

        def report(done: float) -> None:
            if done > 0:
                ticket.write_text(str(began + (time.time() - began) / done))

        yield report


@contextmanager
def _queued(folder: Path) -> Iterator[Path]:
    """A ticket after all that are there."""
    gate = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)  # nobody sees a ticket that is not locked yet, and no number is taken twice
        ticket = folder / f"{max((int(one.name) for one in folder.iterdir()), default=0) + 1:09}"
        file = ticket.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
    finally:
        os.close(gate)
    with file:
        try:
            yield ticket
        finally:
            ticket.unlink(missing_ok=True)


def _held(folder: Path, ticket: Path) -> list[Path]:
    """The tickets before this one that somebody holds, in order; those of the dead are removed."""
    held = []
    for one in sorted(folder.iterdir()):
        if one.name >= ticket.name:
            break
        with suppress(FileNotFoundError), one.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(one)
            else:
                one.unlink(missing_ok=True)
    return held


def _left_s(ticket: Path) -> float | None:
    try:
        return max(0.0, float(ticket.read_text()) - time.time())
    except (OSError, ValueError):  # it has ended, or has only begun
        return None
