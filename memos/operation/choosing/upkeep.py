"""Carries out planned moves between requests, as jobs that survive a kill, in any thread or process.

Knows jobs and when to look for them. Must not know what a job does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from memos.cube import Form, Word
from memos.errors import Cancelled, MemosError, VaultError
from memos.lazy import Lazy

if TYPE_CHECKING:
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.infrastructure.vault.tables.job_list import Ending, Job

log = logging.getLogger("memos")
Done = dict[str, Any]  # of a job: `move`, `why`, `cube`; and `failed`, if it did
Progress = Callable[[int, int, float], None]  # (step, most steps, loss)


class JobKind(Word):
    """What a job is to do, as it is written in the vault."""

    ENCODE = "promote to activation"
    DISTIL = "promote to parametric"
    DEMOTE = "give up"
    READ_TURNS = "read"

    @classmethod
    def promote(cls, to: Form) -> JobKind:
        return {Form.ACTIVATION: cls.ENCODE, Form.PARAMETRIC: cls.DISTIL}[to]

    @property
    def form(self) -> Form | None:
        """What is promoted to; None where nothing is."""
        return {JobKind.ENCODE: Form.ACTIVATION, JobKind.DISTIL: Form.PARAMETRIC}.get(self)

    @property
    def priority(self) -> int:
        """What makes room comes first, and what takes minutes last."""
        return {JobKind.DEMOTE: 3, JobKind.READ_TURNS: 2, JobKind.ENCODE: 1}.get(self, 0)


class Upkeep:
    """Carries out queued jobs one by one, and, once it is started, looks for new ones from time to time."""

    def __init__(self, vault: MemVault, plan: Callable[[], bool], act: Callable[[Job, Progress], Done]) -> None:
        """plan: queues what should be done; False where nothing can be done yet. act: does one job, and says what came
        of it."""
        self._vault, self._plan, self._act = vault, plan, act
        self._closing = threading.Event()
        self._beside = Lazy(lambda: ThreadPoolExecutor(1, "memos-soon"))
        self._thread: threading.Thread | None = None

    def work(
        self,
        progress: Progress | None = None,
        reported: Callable[[Job], bool] = lambda job: True,
        kind: str | None = None,
    ) -> list[Done]:
        """Carry out all that is queued, the most urgent first. What fails is reported, and the others go on. reported:
        of which jobs to report. kind: of this kind alone."""
        done, tried = list[Done](), list[str]()
        while not self._closing.is_set() and (job := self._vault.jobs.take(tried, kind)) is not None:
            tried.append(job.id)
            is_reported = reported(job)  # before its memories are gone
            outcome = self._do(job, progress or (lambda *_: None))
            done += [outcome] if is_reported else []
        return done

    def _do(self, job: Job, progress: Progress) -> Done:
        try:
            with self._vault.jobs.renewed(job):
                done = self._act(job, progress)
        except MemosError as error:  # the plan was sound, its memory unfit; or it has changed since
            note = f"{type(error).__name__}: {error}"
            if type(error) is VaultError:  # not of a memory: the disk or the server was in the way
                with suppress(Cancelled):
                    self._vault.jobs.try_again(job, note)
            else:
                self._end(job, "undone", note)
            return {"move": job.kind, "why": job.payload.get("why", ""), "failed": str(error)}
        except KeyboardInterrupt:
            with suppress(VaultError):  # the lease ends by itself
                self._end(job, "interrupted", "interrupted")
            raise
        except BaseException as error:  # of a kind that nobody foresaw: it is not begun again by itself
            self._end(job, "undone", f"{type(error).__name__}: {error}")
            raise
        self._end(job, "done", str(done.get("cube", "")))
        return done

    def _end(self, job: Job, how: Ending, note: str) -> None:
        """Unless what carried it out has ended it, or another has it by now."""
        with suppress(Cancelled):
            self._vault.jobs.end(job, how, note)

    def start(self, every_s: float) -> None:
        """Plan and work in a thread of its own every so many seconds, until `stop`."""
        self._thread = threading.Thread(target=self._go_on, args=(every_s,), name="memos-upkeep", daemon=True)
        self._thread.start()

    def soon(self, kind: str, wait: Callable[[], None] = lambda: None) -> Future[None] | None:
        """Carry out what is queued of a kind in a thread beside the caller's, which does not wait for it. wait: called
        there first. None once it is stopped."""
        return None if self._closing.is_set() else self._beside().submit(self._quietly, kind, wait)

    def _quietly(self, kind: str, wait: Callable[[], None]) -> None:
        try:
            wait()
            for done in self.work(kind=kind):
                if "failed" in done:
                    log.warning("%s failed: %s", done["move"], done["failed"])
        except Exception:  # nobody waits for this thread, so nobody else would tell
            log.exception("%s failed", kind)

    def stop(self) -> None:
        """What is being done is interrupted, and taken up again when the vault is opened the next time; what `soon` has
        begun is done to its end."""
        self._closing.set()
        if (beside := self._beside.if_made) is not None:
            beside.shutdown(cancel_futures=True)
        if self._thread:
            self._thread.join()

    def _go_on(self, every_s: float) -> None:
        while not self._closing.wait(every_s):
            try:
                if self._plan():
                    self.work(self._progress)
            except KeyboardInterrupt:  # of `_progress`
                return
            except Exception:  # nobody waits for this thread, so nobody else would tell; the next round goes on
                log.exception("upkeep failed")

    def _progress(self, *_: object) -> None:
        if self._closing.is_set():
            raise KeyboardInterrupt
