"""What a process does whose test kills it, forked from one that has loaded the libraries: once, and not for each."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

from memos import MemOS
from memos.config import Config
from memos.infrastructure.vault.tables.job_list import Job
from tests.doubles import BRIEF, BriefReader

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    [
        "memos.operation.forms.transitions",
        "memos.operation.forms.sessions",
        "memos.infrastructure.host.encoders.embedder",
        "transformers.models.llama",
        "faiss",
    ]
)


def promote(told: Connection, vault: Path, phase: str, isolation: str) -> None:
    """Promote all that is in the vault, tell of each phase, and wait within one for the kill."""
    os.environ["MEMOS_TEST"] = str(vault)  # by which the test knows what this one starts
    distil = BRIEF.model_copy(update={"steps": 8, "checkpoint": 2, "isolation": isolation})
    with MemOS(Config(distil=distil), vault=vault) as memos:
        memos.parts.reader = BriefReader()
        note = memos.vault.jobs.note

        def tell(job: Job, said: str) -> bool:
            told.send(said.split()[0])
            if said.split()[0] == phase:
                told.recv()
            return note(job, said)

        memos.vault.jobs.note = tell  # type: ignore[method-assign]
        memos.promote([c.id for c in memos.memories()], "parametric")
        told.send("done")
