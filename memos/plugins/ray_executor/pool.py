"""Keeps as many workers on a Ray cluster as there is work for; each is an actor that holds a model and does jobs.

The queue, its leases and what publishes stay in the vault (record 0089). So Ray only decides where a worker runs and
begins it again when it dies: an actor that is lost loses no job, and one that comes back late publishes nothing. A
cluster with an autoscaler grows by what the actors ask for, and shrinks when they are let go.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memos.config import Config, parse_config
from memos.errors import InputError, MemosError, how_to_install

if TYPE_CHECKING:
    from memos.infrastructure.vault.mem_vault import MemVault

log = logging.getLogger("memos")
_LOOK_S = 0.05  # between two looks at who has done a round


class RayWorker:
    """What runs as an actor: `memos work`, round by round, over a model that stays loaded."""

    def __init__(self, settings: str, vault: str | None) -> None:
        """settings: the config as JSON. vault: the folder of a vault in files; None: one of its own, as the vault is on
        a server."""
        from memos.kernel.mem_os import MemOS  # loads torch, on the machine of the actor
        from memos.kernel.wiring import Parts

        self._own = None if vault else tempfile.TemporaryDirectory(prefix="memos-ray-")  # which ends with the actor
        folder = Path(self._own.name) / "vault" if self._own else Path(vault or "")
        self._kernel = MemOS(parts=Parts(parse_config(json.loads(settings)), vault=folder, brief=True))
        self._kernel.host  # noqa: B018  loaded before the first job, and held from then on

    def round(self, user: str | None) -> str:
        """Do what there is to do; what was done, as JSON, each with "failed" where it was not. Errors of memos are told
        in the same way: they are not a reason to begin the actor again."""
        try:
            return json.dumps({"moves": self._kernel.within(user).tick()}, default=str)
        except MemosError as error:
            return json.dumps({"failed": f"{type(error).__name__}: {error}"})


@dataclass
class Pool:
    """Actors that work on one vault. least, most: how many; between them, one for each job that waits or runs. folder:
    of a vault in files; None: it is on a server."""

    settings: dict[str, Any]
    vault: MemVault
    folder: Path | None
    least: int = 1
    most: int = 4
    gpus: float = 0.0  # of each
    user: str | None = None
    _idle: list[Any] = field(default_factory=list)
    _rounds: dict[Any, Any] = field(default_factory=dict)  # a round that goes on -> its actor

    @property
    def size(self) -> int:
        return len(self._idle) + len(self._rounds)

    def step(self) -> Iterator[dict[str, Any]]:
        """Begin a round of each actor that has none, and give what has been done since."""
        import ray

        self._fit()
        for actor in self._idle:
            self._rounds[actor.round.remote(self.user)] = actor
        self._idle = []
        done, _ = ray.wait(list(self._rounds), num_returns=len(self._rounds), timeout=_LOOK_S)
        for ref in done:
            actor = self._rounds.pop(ref)
            try:
                reply = json.loads(ray.get(ref))
            except ray.exceptions.ActorUnavailableError:  # it is begun again by Ray
                reply = {}
            except ray.exceptions.RayError as error:  # it is not: another one takes its place
                log.warning("a worker on Ray ended: %s", str(error).splitlines()[0])
                continue
            self._idle.append(actor)
            if "failed" in reply:
                log.warning("this round is not finished, and the next one goes on: %s", reply["failed"])
            yield from reply.get("moves", ())

    def close(self) -> None:
        """Let all actors go; the jobs that they were doing are others' once their leases have ended."""
        import ray

        for actor in self._idle:
            actor.__ray_terminate__.remote()
        for actor in self._rounds.values():
            ray.kill(actor)
        self._idle, self._rounds = [], {}

    def _fit(self) -> None:
        """As many actors as there is work for; only one that has nothing to do is let go."""

        waiting = sum(len(self.vault.jobs.all(state)) for state in ("queued", "running"))
        wanted = min(self.most, max(self.least, waiting))
        while self.size < wanted:
            self._idle.append(self._begun())
        while self.size > wanted and self._idle:
            self._idle.pop().__ray_terminate__.remote()

    def _begun(self) -> Any:
        import ray

        made = ray.remote(RayWorker).options(num_cpus=1, num_gpus=self.gpus, max_restarts=-1)
        return made.remote(json.dumps(self.settings), str(self.folder.absolute()) if self.folder else None)


@contextmanager
def cluster() -> Iterator[None]:
    """That of RAY_ADDRESS, or one of this machine, which ends with the block. Raises InputError."""
    try:
        import ray
    except ImportError as error:
        raise InputError(f"workers on Ray need {error.name}; {how_to_install('ray')}") from None
    try:
        ray.init(namespace="memos", log_to_driver=False, ignore_reinit_error=True)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise InputError(f"Ray is not reached ({str(error).splitlines()[0]}); unset RAY_ADDRESS or mend it") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def pooled(config: Config, vault: MemVault, least: int, most: int, gpus: float, user: str | None) -> Iterator[Pool]:
    """Raises InputError for a vault in a folder that other machines of the cluster do not have, and for bounds that are
    none."""
    import ray

    if least > most:
        raise InputError(f"--least {least} is more than --most {most}; give at least as many")
    nodes, folder = sum(bool(node["Alive"]) for node in ray.nodes()), None if config.vault.server else vault.path
    if nodes > 1 and folder:
        raise InputError(
            f"the vault {vault.path} is a folder of this machine, and the Ray cluster has {nodes}; set vault.url to a "
            "PostgreSQL server, or use `memos work` here"
        )
    settings = config.model_dump(mode="json")
    settings["vault"]["url"] = config.vault.server  # with its password, which a dump hides
    pool = Pool(settings, vault, folder, least, most, gpus, user)
    try:
        yield pool
    finally:
        pool.close()


def rounds(pool: Pool, every: float) -> Iterator[dict[str, Any]]:
    """What is done, until ctrl-C. every: seconds between two rounds in which nobody had anything to do."""
    try:
        while True:
            moves = list(pool.step())
            yield from moves
            if not moves:
                time.sleep(every)
    except KeyboardInterrupt:
        return
