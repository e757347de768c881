"""The calls that plan moves of memories, as jobs that a request never waits for."""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from memos.cube import ANSWERING, Form, Namespace, State, Text
from memos.errors import BadTransition, Conflict, MemosError
from memos.infrastructure.vault.tables.job_list import Job, no_job, sources_of
from memos.kernel.access import Service
from memos.operation.choosing.moves import Move, MovePlanner
from memos.operation.choosing.upkeep import JobKind, Progress, Upkeep
from memos.ops import Promote
from memos.rights import Caller

if TYPE_CHECKING:
    from memos.kernel.access import CuratingOf
    from memos.kernel.services.forming import Forming
    from memos.kernel.services.keeping import Keeping
    from memos.kernel.services.life import Life
    from memos.kernel.unread import Unread
    from memos.kernel.wiring import Parts
    from memos.operation.policies.policy import Segment

log = logging.getLogger("memos")


class Planning(Service):
    """jobs, cancel, tick, plan, segments; and the upkeep in the background."""

    def __init__(
        self, parts: Parts, life: Life, forming: Forming, keeping: Keeping, unread: Unread, curating: CuratingOf
    ) -> None:
        super().__init__(parts)
        self._life, self._forming, self._keeping, self._unread = life, forming, keeping, unread
        self._curating = curating
        self.upkeep = Upkeep(self._vault, self._plan_all, self._act)

    def stop(self) -> None:
        """What goes on in the background is interrupted, and taken up again by the next who opens the vault."""
        self.upkeep.stop()

    def jobs(self, caller: Caller) -> list[Job]:
        """Work on memories that the user may see: going on, cut off and to be taken up again, or waiting; each oldest
        first."""
        found = chain.from_iterable(map(self._vault.jobs.all, ("running", "interrupted", "queued")))
        return [job for job in found if self._sees(caller, job)]

    def cancel(self, caller: Caller, job: str) -> str:
        """End a job on the user's memories; what it had made is removed; its id. Raises NotFound, Denied."""
        found = [known for known in self.jobs(caller) if job and known.id.startswith(job)]
        if len(found) != 1:  # an id, or as much of one as no other job has
            raise no_job(job)
        for cube in self._vault.at(sources_of(found[0])):
            self._governance.permit(caller, Promote(ids=(cube.id,), to=Form.ACTIVATION), cube)
        self._vault.jobs.cancel(found[0].id)
        return found[0].id

    def _sees(self, caller: Caller, job: Job) -> bool:
        ids = set(sources_of(job))
        return bool(ids) and self._governance.visible_ids(caller, self._vault.at(ids)) == ids

    def tick(self, caller: Caller, *, progress: Progress | None = None) -> list[dict[str, Any]]:
        """Let the scheduler plan moves and carry them out; returns what was done, and what failed and why, of the
        memories that the user may see.

        The moves are written down first: killed or interrupted, the next tick goes on with them.
        """
        self._unread.finish()
        if curating := self._curating(self._schedulers.policy_of(caller)):
            curating.on_idle(caller)
        made = self._consolidated(caller)
        aged = self._age(caller)
        visible = self._governance.visible_ids(caller, self._vault.at(move["cube"] for move in aged))
        self.plan(caller)
        told = made + [move for move in aged if move["cube"] in visible]
        return told + self.upkeep.work(progress, partial(self._sees, caller))

    def _consolidated(self, caller: Caller) -> list[dict[str, Any]]:
        try:
            made = self._life.consolidate(caller)
        except (BadTransition, Conflict) as error:  # another worker was at the same memories, and was first
            log.info("left to another worker: %s", error)
            return []
        return [{"move": cube.header.origin, "cube": cube.id, "why": "consolidated"} for cube in made]

    def plan(self, caller: Caller) -> list[str]:
        """Let the scheduler plan moves of the user's cubes, and queue them as jobs, whose ids are returned; so is the
        reading of turns that the rules left."""
        own = self._governance.readable(caller, self._vault.owned(caller.namespace))
        shown = self._vault.guard.as_shown
        texts = [shown(c) for c in own if isinstance(c.payload, Text) and c.state in ANSWERING]
        derived = [c for c in own if c.stands_in]
        now, pays = self._vault.now(), lambda segment: self._serving().pays(segment, self._tokens)
        scheduler, segments = self._schedulers.of(caller), self._schedulers.main.segments(texts, self._tokens)
        planner = MovePlanner(scheduler.config, scheduler.policy)
        moves = planner.plan(segments, derived, now, pays, self._budgets(caller), self._is_ours)
        return [self._queue(move) for move in moves if not self._refused(move)] + self._unread.plan(caller)

    def _age(self, caller: Caller) -> list[dict[str, Any]]:
        """Archive and expire what of the caller's has had its time."""
        moved = self._ageing.age(self._vault.now(), caller.user_id)
        aged = [{"move": str(to), "cube": id, "why": why} for id, to, why in moved]
        return self._freshness.changed(aged) if aged else []

    def _refused(self, move: Move) -> bool:
        """A promotion that was tried and refused is not tried again until its memories change; nor is an adapter made
        of what is not trusted."""
        if not (move.segment and move.to):
            return False
        if move.to is Form.PARAMETRIC and not all(map(self._vault.guard.may_teach, move.segment.cubes)):
            return True
        return self._transitions().refused(move.to, move.segment.cubes)

    def _queue(self, move: Move) -> str:
        cubes = move.segment.cubes if move.segment else (move.cube,) if move.cube else ()
        kind = JobKind.promote(move.to) if move.to else JobKind.DEMOTE
        payload = {"sources": [f"{c.id}@{c.version}" for c in cubes], "why": move.why}
        return self._vault.jobs.queue(kind, payload, kind.priority)

    def segments(self, caller: Caller) -> list[Segment]:
        """The topic groups that move together."""
        return self._schedulers.main.segments(self._access.texts(caller), self._tokens)

    def heat(self, segment: Segment) -> float:
        """How much a topic group is used, by its user's policy."""
        scheduler = self._schedulers.of(Caller(segment.cubes[0].namespace))
        return scheduler.policy.heat(segment.cubes, self._vault.now())

    # in the background

    def _plan_all(self) -> bool:
        """Plan for every user; False as long as no request has loaded the model, without which nothing can be moved."""
        ready = self._serving.if_made is not None
        for user in self._vault.users() if ready else ():
            caller = Caller(Namespace(user_id=user))
            try:
                if curating := self._curating(self._schedulers.policy_of(caller)):
                    curating.on_idle(caller)
                self._life.consolidate(caller)
                self._age(caller)
                self.plan(caller)
            except MemosError as error:  # the others' turn comes all the same
                log.warning("nothing is planned for %s now: %s", user, error)
        return ready

    def _act(self, job: Job, progress: Progress) -> dict[str, Any]:
        """Do a queued job for the owner of its cubes."""
        if job.kind == JobKind.READ_TURNS:
            return self._unread.act(job)
        ids = sources_of(job)
        first = self._vault.get(ids[0])
        owner = Caller(Namespace(user_id=first.rights.owner))
        done = {"move": job.kind, "why": job.payload.get("why", "")}
        if job.kind == JobKind.DEMOTE:
            with self._vault.transaction():
                if first.state is State.ACTIVATED:
                    self._forming.demote(owner, first.id)
                else:  # stale: of no use again
                    self._keeping.delete(owner, first.id)
                self._vault.jobs.end(job, "done", first.id)
            return done | {"cube": first.id}
        to = JobKind(job.kind).form
        assert to
        made = self._forming.promote(owner, ids, to, progress=progress, job=job)
        return done | {"cube": made.id}
