"""The database that the processes of a benchmark share: a PostgreSQL server of its own, or else a file of SQLite.

Knows how each is made, killed and begun again; must not know what is kept there.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from memos.errors import VaultError

_AWAY_S = 0.5  # for which a killed server is left alone
_STARTS = 10


class SharedDatabase(Protocol):
    """Where vaults of a benchmark are."""

    name: str
    can_die: bool  # by itself, beside the processes that use it

    def url(self) -> str | None:
        """Of a new vault; None: it is in the folder of whoever opens it."""

    def die(self) -> None:
        """Kill every process of the server at once, and begin it again a little later."""


class FileDatabase:
    """A file of SQLite in the folder that all processes open."""

    name, can_die = "SQLite (pgserver is not installed)", False

    def url(self) -> None:
        return None

    def die(self) -> None:
        raise NotImplementedError("a file has no process to kill")


class ServerDatabase:
    """A PostgreSQL server of its own, which pgserver brings."""

    can_die = True

    def __init__(self, folder: Path) -> None:
        from pgserver.postgres_server import get_server

        self._server: Any = get_server(folder)
        self._schemas = count()
        self._server.psql("CREATE EXTENSION vector;")
        self.name = f"PostgreSQL {self._server.psql('SHOW server_version;').split()[2]}"

    def url(self) -> str:
        name = f"vault{next(self._schemas)}"
        self._server.psql(f"CREATE SCHEMA {name};")
        return f"{self._server.get_uri()}&options=-csearch_path%3D{name},public"

    def cpu_s(self) -> float:
        """CPU seconds of all its processes so far."""
        import psutil

        master = psutil.Process(self._server.get_pid())
        return sum(map(cpu_of, [self._server.get_pid(), *(child.pid for child in master.children(recursive=True))]))

    def die(self) -> None:
        import psutil

        master = psutil.Process(self._server.get_pid())
        processes = [master, *master.children(recursive=True)]  # it first, so that none is added
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)
        time.sleep(_AWAY_S)
        self._begin_again()

    def _begin_again(self) -> None:
        """A connection that was just made may hold the server's memory for a moment. Raises VaultError."""
        for _ in range(_STARTS):
            with suppress(subprocess.SubprocessError):
                self._server.ensure_postgres_running()
                return
            time.sleep(_AWAY_S)
        raise VaultError(f"the server in {self._server.pgdata} does not start again; its log says why")

    def close(self) -> None:
        self._server.cleanup()


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far, and of those of its children that have ended; 0 of one that is gone."""
    import psutil

    try:
        return sum(psutil.Process(pid).cpu_times()[:4])
    except psutil.NoSuchProcess:
        return 0.0


@contextmanager
def shared_database(folder: Path) -> Iterator[SharedDatabase]:
    """On a server where pgserver and psycopg are installed; what it keeps goes with it. folder: for its files."""
    if not (find_spec("pgserver") and find_spec("psycopg")):
        yield FileDatabase()
        return
    server = ServerDatabase(folder)
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
