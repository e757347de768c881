"""The jobs of a benchmark: memories of many users, each user's to be made into KV or into an adapter.

Knows how many there are and how they ended; must not know who carries them out.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from memos.cube import Form
from memos.errors import VaultError
from memos.infrastructure.vault.tables.job_list import OPEN
from memos.operation.choosing.upkeep import JobKind

if TYPE_CHECKING:
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.kernel.mem_os import MemOS

LEASE_S, TRIES = 3.0, 1000  # a kill from outside is not a job's fault, so that none is given up for it
SETTINGS: dict[str, Any] = {
    "vault": {"jobs": {"lease_s": LEASE_S, "tries": TRIES}},
    # short trainings whose gate is open: what is measured is whether they are published once
    "distil": {
        **{"steps": 6, "batch": 4, "batch_keep": 4, "rank": 4, "layers": 0.25, "checkpoint": 2, "isolation": "thread"},
        "gate": {"reliability": 0, "generality": 0, "locality": 0, "in_context": 0, "override": 0, "drift": 1e9},
    },
}
_PATIENCE_S = 60.0  # for a database that is away
_NAMES = "Ada Ben Cleo Dan Eve Finn Gus Hana Ivo Jun Kim Lea Max Nia Olga Pia Quin Rosa Sam Tom".split()
_CITIES = "Oslo Rome Lima Cairo Delhi Tokyo Quito Malta Porto Berlin Vienna Dublin".split()
_TRADES = "nurse cook pilot baker tailor farmer judge welder".split()
_PETS = "cat dog parrot rabbit hamster goose".split()
_Result = TypeVar("_Result")


def settings_with(url: str | None, folder: Path) -> dict[str, Any]:
    """Of the config, for whoever opens the vault at this URL, or in a folder. folder: of the key that all sign with."""
    key = {"governance": {"audit": {"key": str(folder / "signing.key")}}}
    return {**SETTINGS, **key, "vault": {**SETTINGS["vault"], "url": url}}


def patiently(call: Callable[[], _Result]) -> _Result:
    """What a call returns, made again while the database is away. Raises VaultError where it stays away."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return call()
        except VaultError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


class JobFeed:
    """Queues jobs, and looks at how they end."""

    def __init__(self, kernel: MemOS, rng: random.Random, adapters: float) -> None:
        """adapters: the share of jobs that make one; the others make KV."""
        self._kernel, self._rng, self._adapters = kernel, rng, adapters
        self.ids: list[str] = []

    @property
    def _vault(self) -> MemVault:
        return self._kernel.vault

    def said(self) -> list[str]:
        """The memories of one more user, as "id@version"."""
        user, rng = f"user{len(self._vault.users())}-{self._rng.randrange(1 << 30)}", self._rng
        said = (
            f"I live in {rng.choice(_CITIES)}.",
            f"I am a {rng.choice(_TRADES)} by trade.",
            f"I have a {rng.choice(_PETS)} as a pet.",
        )
        speaker = f"{rng.choice(_NAMES)} {rng.choice(_NAMES)}son"
        turns = [{"speaker": speaker, "content": text} for text in said]
        made = patiently(lambda: self._kernel.within(user).add(turns))
        return [f"{cube.id}@{cube.version}" for cube in made]

    def queue(self, sources: list[str]) -> str:
        """Of adapters, one at a time: they take so long that all workers would be busy with nothing else."""
        kind = JobKind.ENCODE
        if self._rng.random() < self._adapters and not patiently(lambda: self._vault.jobs.open(JobKind.DISTIL)):
            kind = JobKind.DISTIL
        payload = {"sources": sources, "why": "benchmark"}
        id = patiently(lambda: self._vault.jobs.queue(kind, payload))  # adapters as soon as KV: some are to be hit
        self.ids.append(id)
        return id

    def open(self) -> Counter[str]:
        """How many jobs wait or run, by state."""
        states = patiently(lambda: [(state, self._vault.jobs.all(state)) for state in OPEN])
        return Counter({state: sum(job.id in set(self.ids) for job in jobs) for state, jobs in states})

    def done(self) -> int:
        """How many jobs have been done."""
        return len(set(self.ids) & {job.id for job in patiently(lambda: self._vault.jobs.all("done"))})


def ended(vault: MemVault, ids: list[str]) -> dict[str, Any]:
    """How jobs ended. lost: those that did not end, failed, or whose cube is not there. published_twice: derived cubes
    beyond one for the same memories in the same form, in whatever state, and those that no job names. begun_again: how
    often a job was begun beyond the first time."""
    done = {job.id: job for job in vault.jobs.all("done")}
    undone = {job.id: job.note for job in vault.jobs.all("undone")}
    derived = [cube for cube in vault.cubes() if cube.form is not Form.PLAINTEXT]
    known, published = {cube.id for cube in derived}, {job.note for job in done.values()}
    several = Counter((cube.form, cube.sources) for cube in derived)
    lost = [id for id in ids if id not in done or done[id].note not in known]
    return {
        "jobs": len(ids),
        "lost": len(lost),
        "published_twice": sum(n - 1 for n in several.values()) + len(known - published),
        "begun_again": sum(job.tries - 1 for job in done.values()),
        "failed": [undone[id] for id in lost if id in undone][:10],
    }
