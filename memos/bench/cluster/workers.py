"""Worker processes that do what `memos work --every` does, in which they are killed, stopped and begun again.

They are forked from a process that has loaded the libraries, so that a kill costs seconds and not a minute.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from memos.errors import MemosError

_EVERY_S = 0.1  # between two rounds
_LEAVE_S = 20.0  # for a worker that is asked to end
_PRELOADED = [
    "memos.operation.forms.transitions",
    "memos.operation.forms.sessions",
    "memos.infrastructure.host.encoders.embedder",
    "memos.plugins.commands.forms",
    "transformers.models.llama",
    "faiss",
]
_FORKED = get_context("forkserver")


@dataclass
class Worker:
    """One process. folder: of its own, as on a machine of its own."""

    folder: Path
    process: ForkServerProcess
    told: Connection
    is_ready: bool = False  # it has loaded the model
    is_stopped: bool = False

    def heard(self) -> bool:
        """Whether it has said by now that it is ready."""
        if not self.is_ready and self.told.poll():
            with suppress(EOFError):  # it has ended, and is begun again
                self.is_ready = self.told.recv_bytes() == b"ready"
        return self.is_ready


@dataclass
class Workers:
    """A number of them over one vault, each begun again when it has ended."""

    settings: dict[str, Any]  # of the config
    folders: list[Path]
    running: list[Worker] = field(default_factory=list)

    def look(self) -> None:
        """Begin those again that have ended."""
        for n, worker in enumerate(self.running):
            worker.heard()
            if not worker.process.is_alive():
                self.running[n] = self._begun(worker.folder)

    def are_ready(self) -> bool:
        return all([worker.heard() for worker in self.running])

    def kill(self, rng: random.Random) -> bool:
        """One that works, drawn at random; False where none does."""
        if victim := self._drawn(rng):
            victim.process.kill()
            victim.process.join()
        return victim is not None

    def stall(self, rng: random.Random, seconds: float) -> bool:
        """Stop one for so long, drawn at random; False where none works."""
        if victim := self._drawn(rng):
            self._signal(victim, signal.SIGSTOP)
            victim.is_stopped = True
            # whoever asks for this may wait for the very worker that is stopped while it has the turn to write
            threading.Timer(seconds, self._go_on, (victim,)).start()
        return victim is not None

    def _drawn(self, rng: random.Random) -> Worker | None:
        able = [w for w in self.running if w.heard() and not w.is_stopped and w.process.is_alive()]
        return rng.choice(able) if able else None

    def begin(self) -> None:
        self.running = [self._begun(folder) for folder in self.folders]

    def wait_until_ready(self, seconds: float) -> None:
        """Raises MemosError where one does not come so far."""
        until = time.monotonic() + seconds
        while not self.are_ready():
            if time.monotonic() > until or not all(worker.process.is_alive() for worker in self.running):
                raise MemosError(f"a worker did not start: {self.log()[-500:]}; try `memos work` by itself")
            time.sleep(0.05)

    def end(self) -> None:
        """Ask all to end, as ctrl-C does, and kill who does not."""
        for worker in self.running:
            self._signal(worker, signal.SIGCONT)
            self._signal(worker, signal.SIGINT)
        for worker in self.running:
            worker.process.join(_LEAVE_S)
            worker.process.kill()
            worker.process.join()
        self.running = []

    def log(self) -> str:
        """What all have written."""
        files = (folder.with_suffix(".log") for folder in dict.fromkeys(self.folders))
        return "\n".join(file.read_text("utf-8", "replace") for file in files if file.exists())

    def _begun(self, folder: Path) -> Worker:
        ours, theirs = _FORKED.Pipe(duplex=False)
        threads = max(1, (os.cpu_count() or 1) // len(self.folders))  # more than there are cores wait for one another
        given = (json.dumps(self.settings), str(folder), threads, theirs)
        process = _FORKED.Process(target=_work, args=given, daemon=True)
        process.start()
        theirs.close()
        return Worker(folder, process, ours)

    def _go_on(self, worker: Worker) -> None:
        self._signal(worker, signal.SIGCONT)
        worker.is_stopped = False

    @staticmethod
    def _signal(worker: Worker, number: int) -> None:
        if worker.process.is_alive() and worker.process.pid:
            os.kill(worker.process.pid, number)


@contextmanager
def working(settings: dict[str, Any], folders: list[Path]) -> Iterator[Workers]:
    """A worker for each folder; none is left when the block ends, however it does."""
    _FORKED.set_forkserver_preload(_PRELOADED)
    workers = Workers(settings, folders)
    try:
        workers.begin()
        yield workers
    finally:
        workers.end()


def _work(settings: str, folder: str, threads: int, told: Connection) -> None:
    """What runs in the process: `memos work --every`, for a user who has no memories, so that all it does is jobs."""
    import torch

    from memos.config import parse_config
    from memos.kernel.mem_os import MemOS
    from memos.plugins.commands.forms import rounds

    torch.set_num_threads(threads)
    log = os.open(Path(folder).with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    with MemOS(parse_config(json.loads(settings)), vault=folder) as kernel:
        kernel.host.counts(["Loads the model before the first job."])
        told.send_bytes(b"ready")
        for move in rounds(kernel, _EVERY_S, "worker"):
            print(json.dumps(move, default=str), flush=True)
    sys.stdout.flush()
