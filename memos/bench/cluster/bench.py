"""`memos bench cluster`: background work and serving in several processes over one vault."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memos.bench.cluster.database import shared_database
from memos.bench.cluster.kills import run_kills
from memos.bench.cluster.revocation import revocation
from memos.bench.cluster.speed import measure_speed, simulated_speed
from memos.plugins.progress import Show

_JOBS, _SIMULATED = 40, 4000  # of each measurement of speed, and of each simulation
_SPEEDS = (1, 2, 4)  # workers


def bench_cluster(
    workers: int, kills: int, database_kills: int | None, rounds: int, server_kills: int, seed: int, show: Show
) -> dict[str, Any]:
    """See the functions of each part. speedup: jobs a second with so many workers, as a multiple of one worker's;
    simulated: with a core for each and one for the database, by the CPU seconds that a job of one worker took; none
    without simpy.
    database_kills: None for one to ten kills of workers, where there is a server to kill."""
    with tempfile.TemporaryDirectory(prefix="memos-cluster-") as root, shared_database(Path(root) / "server") as where:
        folder = Path(root)
        for name in ("kills", "servers", *(f"speed{n}" for n in _SPEEDS)):
            (folder / name).mkdir()
        deaths = (kills // 10 if database_kills is None else database_kills) if where.can_die else 0
        killed = run_kills(where, folder / "kills", workers, kills, deaths, seed, show)
        gone = revocation(where, folder / "servers", workers, rounds, server_kills, seed, show)
        speed = {n: measure_speed(where, folder / f"speed{n}", n, _JOBS, seed, show) for n in _SPEEDS}
    apart = {n: simulated_speed(speed[1], n, _SIMULATED, seed) for n in _SPEEDS} if find_spec("simpy") else {}
    return {
        "executor": f"{workers} worker processes (memos work) over {where.name}",
        **killed,
        **gone,
        "speedup": {str(n): speed[n].jobs_a_second / speed[1].jobs_a_second for n in _SPEEDS[1:]},
        "speedup_simulated": {str(n): each / apart[1] for n, each in apart.items() if n > 1},
        "jobs_a_second": {str(n): each.jobs_a_second for n, each in speed.items()},
        "job_cpu_s": {"worker": speed[1].worker_s, "database": speed[1].database_s},
    }
