"""Public calls that change the form of memories, judge adapters, and plan such moves as jobs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from memos.cube import Form, MemCube, Namespace, Source, State, Text
from memos.errors import EmptyMemory, InputError, MemosError, NoRoom, Untrusted
from memos.infrastructure.vault.audit.provenance import Provenance, give, given
from memos.infrastructure.vault.tables.job_list import no_job, sources_of
from memos.kernel.services.keeping import Keeping
from memos.kernel.wiring import log
from memos.once import once
from memos.operation.choosing.mem_scheduler import composable
from memos.operation.choosing.moves import Budgets, Move
from memos.operation.choosing.upkeep import JobKind, Upkeep
from memos.operation.life.mem_lifecycle import ANSWERING
from memos.operation.policies.policy import Segment
from memos.ops import Demote, Get, Promote
from memos.rights import Caller

if TYPE_CHECKING:
    from memos.infrastructure.vault.tables.job_list import Job
    from memos.operation.forms.externalize import Statement
    from memos.operation.forms.trainer import Progress


class Forming(Keeping):
    """promote, demote, gate, externalize, jobs, tick."""

    @once
    def upkeep(self) -> Upkeep:
        return Upkeep(self.vault, self._plan_all, self._act)

    def keep_card(self, card: dict[str, Any]) -> None:
        """Keep what `memos calibrate` measured on this model."""
        self.vault.keep_card(self.host.digest, card)

    def promote(
        self,
        ids: str | Sequence[str],
        to: Form | Literal["activation", "parametric"],
        *,
        user: str | None = None,
        progress: Progress | None = None,
        job: str | None = None,
    ) -> MemCube:
        """Make one derived cube of these memories; published only once it has proven itself.

        An activation cube needs parity with the full prompt, a parametric one its gate. What is there already is
        returned, what was given up before is taken back. Killed at any point, nothing is published, and the next
        start clears away what was staged. job: the running one that asks for it.

        Raises NoProbes, GateRejected, Unsupported, Conflict (a source changed meanwhile), ContextOverflow.
        """
        if str(to) not in (str(Form.ACTIVATION), str(Form.PARAMETRIC)):
            raise InputError(f"memories cannot be promoted to {str(to)!r}; promote to activation or parametric")
        form = Form(to)
        asked = (ids,) if isinstance(ids, str) else tuple(ids)
        op = Promote(ids=asked, to=form)
        sources = self._sources(op, user)
        self._require_trust(form, sources)
        beside = self._beside(sources) if form is Form.PARAMETRIC else ()
        require = partial(self._require_share, form, self._caller(user))
        return self.transitions.promote(form, sources, progress or (lambda *_: None), beside, job, require)

    def _require_trust(self, form: Form, sources: Sequence[MemCube]) -> None:
        """Raises Untrusted for an adapter of memories that are not believed so far, as nobody could read them there."""
        for cube in sources:
            if form is Form.PARAMETRIC and not self.vault.guard.may_teach(cube):
                raise Untrusted(
                    f"cube {cube.id} (from {cube.header.origin}) is {cube.header.trust}, and no adapter is made of "
                    f"such memories; look at it and say `memos trust {cube.id} user`, leave it out, or add its trust "
                    f"to governance.trust.adapters"
                )

    def _beside(self, sources: Sequence[MemCube]) -> list[MemCube]:
        """The adapters that a new one may be active with: the latest of its owner that compose with each other."""
        most = self.config.scheduler.segments - 1
        owner = sources[0].rights.owner
        mine = [
            c
            for c in self.vault.cubes(form=Form.PARAMETRIC, states=(State.ACTIVATED,))
            if c.rights.owner == owner and c.blob and c.blob.fingerprint == self.host.digest
        ]
        known = {c.id for c in sources}
        apart = [c for c in reversed(mine) if not known & {s.id for s in c.sources}]
        return list(composable(apart, most)) if most > 0 else []

    def demote(self, id: str, *, user: str | None = None) -> list[MemCube]:
        """Give up a derived cube; its sources, returned as they are, answer as text again.

        It is archived, so promoting the same memories again takes it back without building it.
        """
        cube = self._visible(Demote(id=id), id, user)
        if not cube.blob:
            raise InputError(
                f"cube {cube.id} is plaintext, and there is no cheaper form; "
                f"delete it, or demote what is derived from it"
            )
        self.lifecycle.move(cube.id, State.ARCHIVED, "demoted")
        self._release()
        return self.vault.at(s.id for s in cube.sources)

    def gate(
        self, adapters: Sequence[str | Path], *, on: Sequence[str] = (), user: str | None = None
    ) -> tuple[dict[str, float], list[str]]:
        """Judge adapters, active together, as a promotion would: (scores, what falls short).

        adapters: ids of cubes, or folders, a stranger's too. on: ids of memories that they should know; without, those
        of their cards. Raises NoProbes where nothing says what to ask them.
        """
        memories = [self._visible(Get(id=id), id, user) for id in on]
        if other := [c for c in memories if not isinstance(c.payload, Text)]:
            kind = "a turn of a conversation" if other[0].form is Form.PLAINTEXT else other[0].form
            raise InputError(
                f"cube {other[0].id} is {kind}; an adapter is judged on memories, as `memos ls` lists them"
            )
        shown = [self.vault.guard.as_shown(cube) for cube in memories]
        return self.transitions.gate([self._folder(name, user) for name in adapters], shown)

    def externalize(
        self, what: str | Path, *, about: Sequence[str] = (), user: str | None = None
    ) -> list[Statement] | list[str]:
        """What an adapter says when it is asked with it on against off; of a KV cache, its text.

        what: id of a cube, a folder of an adapter, or a file of KV. about: subjects to ask about, beside those of the
        memories that the user may see.
        """
        from memos.operation.forms.externalize import externalize, externalize_kv  # loads torch and transformers

        path = self._folder(what, user, "activation", "parametric")
        if path.is_file():
            return externalize_kv(self.host, path)
        return externalize(self.host, self.reader, path, about, self._texts(self._caller(user)))

    def export_adapter(self, adapters: Sequence[str | Path], out: Path, *, user: str | None = None) -> Path:
        """Adapters as one folder for servers that take one adapter a request; named by its content. Who gave it is
        signed in it, see `provenance`."""
        from memos.infrastructure.host.adapters.export import export_adapter  # loads torch and transformers

        made = export_adapter(self.host, [self._folder(name, user) for name in adapters], out)
        give(made, str(self._caller(user)), self.vault.now(), self.vault.audit_log.signer)
        return made

    @staticmethod
    def provenance(folder: Path) -> Provenance:
        """Who gave an exported adapter away, and when. Raises InputError, CorruptBlob if it is not as it was given."""
        return given(folder)

    def _folder(self, what: str | Path, user: str | None, *forms: str) -> Path:
        """Where the payload of a cube lies, or the path that is named. Raises NotFound, InputError."""
        if isinstance(what, Path):
            if what.resolve().is_relative_to(self.vault.path.resolve()):
                raise InputError(f"{what} lies in the vault, whose payloads are used by the ids of their cubes")
            return what
        cube = self._visible(Get(id=what), what, user)
        if cube.blob is None or str(cube.form) not in (forms or ("parametric",)):
            raise InputError(f"cube {cube.id} is {cube.form}; name one that is {' or '.join(forms or ('parametric',))}")
        return self.vault.blob_path(cube.blob)

    def jobs(self, *, user: str | None = None) -> list[Job]:
        """Work on memories that the user may see: going on, cut off and to be taken up again, or waiting; each oldest
        first."""
        caller = self._caller(user)
        found = [*self.vault.jobs("running"), *self.vault.jobs("interrupted"), *self.vault.jobs("queued")]
        return [job for job in found if self._sees(caller, job)]

    def cancel(self, job: str, *, user: str | None = None) -> None:
        """End a job on the user's memories; what it had made is removed. Raises NotFound, Denied."""
        there = next((known for known in self.jobs(user=user) if known.id == job), None)
        if there is None:
            raise no_job(job)
        for cube in self.vault.at(sources_of(there)):
            self.governance.permit(self._caller(user), Promote(ids=(cube.id,), to=Form.ACTIVATION), cube)
        self.vault.cancel_job(job)

    def _sees(self, caller: Namespace, job: Job) -> bool:
        ids = set(sources_of(job))
        return self.governance.visible_ids(caller, self.vault.at(ids)) == ids

    def tick(self, *, user: str | None = None, progress: Progress | None = None) -> list[dict[str, Any]]:
        """Let the scheduler plan moves and carry them out; returns what was done, and what failed and why, of the
        memories that the user may see.

        The moves are written down first: killed or interrupted, the next tick goes on with them.
        """
        caller = self._caller(user)
        aged = self._age(caller)
        told = self.governance.visible_ids(caller, self.vault.at(move["cube"] for move in aged))
        self.plan(user=user)
        return [m for m in aged if m["cube"] in told] + self.upkeep.work(progress, partial(self._sees, caller))

    def plan(self, *, user: str | None = None) -> list[str]:
        """Let the scheduler plan moves of the user's cubes, and queue them as jobs, whose ids are returned; so is the
        reading of turns that the rules left."""
        caller = self._caller(user)
        own = self.governance.readable(caller, self.vault.owned(caller))
        shown = self.vault.guard.as_shown
        texts = [shown(c) for c in own if isinstance(c.payload, Text) and c.state in ANSWERING]
        derived = [c for c in own if c.blob and c.header.kind != "turn"]  # a conversation's KV goes with its turns
        now, pays = self.vault.now(), lambda segment: self.serving.pays(segment, self._tokens)
        scheduler = self._scheduling(caller)
        moves = scheduler.plan(self._segments(texts), derived, now, pays, self._budgets(caller), self._is_ours)
        return [self._queue(move) for move in moves if not self._refused(move)] + self.unread.plan(caller)

    def _budgets(self, caller: Namespace) -> Budgets:
        held = {
            Form.ACTIVATION: {user: float(size) for user, (_, size) in self.vault.held(Form.ACTIVATION).items()},
            Form.PARAMETRIC: {user: float(count) for user, (count, _) in self.vault.held(Form.PARAMETRIC).items()},
        }
        return self.scheduler.budgets(caller.user_id, held, self.config.limits.of(caller.user_id))

    def _require_share(self, form: Form, caller: Namespace) -> None:
        """Raises NoRoom where the caller has as much of KV or adapters already as may be its own."""
        mine = self.vault.held(form).get(caller.user_id, (0, 0))[form is Form.ACTIVATION]
        most = self._budgets(caller)[form]
        if mine >= most:
            what = f"{mine:,} bytes of KV" if form is Form.ACTIVATION else f"{mine} adapters"
            raise NoRoom(
                f"{caller.user_id} has {what} and may have {most:,.0f}: its limit (limits), or its share of what all "
                f"have room for (scheduler.disk_kv_bytes, scheduler.adapters); demote what is not used, or raise it"
            )

    def _plan_all(self) -> bool:
        """Plan for every user; False as long as no request has loaded the model, without which nothing can be moved."""
        ready = "serving" in self.__dict__
        for user in self.vault.users() if ready else ():
            try:
                with self.governance.acting(Caller(Namespace(user_id=user))):
                    self._age(self._caller(user))
                    self.plan(user=user)
            except MemosError as error:  # the others' turn comes all the same
                log.warning("nothing is planned for %s now: %s", user, error)
        return ready

    def _age(self, caller: Namespace) -> list[dict[str, Any]]:
        """Archive and expire what of the caller's has had its time."""
        moved = self.lifecycle.age(self.vault.now(), caller.user_id)
        aged = [{"move": str(to), "cube": id, "why": why} for id, to, why in moved]
        return self._changed(aged) if aged else []

    def _refused(self, move: Move) -> bool:
        """A promotion that was tried and refused is not tried again until its memories change; nor is an adapter made
        of what is not trusted."""
        if not (move.segment and move.to):
            return False
        if move.to is Form.PARAMETRIC and not all(map(self.vault.guard.may_teach, move.segment.cubes)):
            return True
        return self.transitions.refused(move.to, move.segment.cubes)

    def _queue(self, move: Move) -> str:
        cubes = move.segment.cubes if move.segment else (move.cube,) if move.cube else ()
        kind = JobKind.promote(move.to) if move.to else JobKind.DEMOTE
        return self.vault.queue_job(kind, {"sources": [f"{c.id}@{c.version}" for c in cubes], "why": move.why})

    def _act(self, job: Job, progress: Progress) -> dict[str, Any]:
        """Do a queued job for the owner of its cubes."""
        ids = sources_of(job)
        first = self.vault.get(ids[0])
        with self.governance.acting(Caller(Namespace(user_id=first.rights.owner))):
            return self._acted(job, ids, first, progress)

    def _acted(self, job: Job, ids: list[str], first: MemCube, progress: Progress) -> dict[str, Any]:
        done = {"move": job.kind, "why": job.payload.get("why", "")}
        if job.kind == JobKind.READ_TURNS:
            return self.unread.act(job)
        if job.kind == JobKind.DEMOTE:
            give_up = self.demote if first.state is State.ACTIVATED else self.delete  # stale: of no use again
            give_up(first.id)
            return done | {"cube": first.id}
        to = JobKind(job.kind).form
        assert to
        made = self.promote(ids, to, progress=progress, job=job.id)
        return done | {"cube": made.id}

    def segments(self, *, user: str | None = None) -> list[Segment]:
        """The topic groups that move together."""
        return self._segments(self._texts(self._caller(user)))

    def heat(self, segment: Segment) -> float:
        """How much a topic group is used, by its user's policy."""
        return self._scheduling(segment.cubes[0].namespace).policy.heat(segment.cubes, self.vault.now())

    def _sources(self, op: Promote, user: str | None) -> list[MemCube]:
        """The plaintext cubes that are meant, in canonical order; of a derived cube, its sources."""
        if not op.ids:
            raise EmptyMemory("promote needs the ids of at least one memory; see `memos ls`")
        named = [self._visible(op, id, user) for id in op.ids]
        cubes = {
            s.id: self._visible(op, s.id, user)
            for c in named
            for s in (c.sources if c.blob else (Source(id=c.id, version=c.version),))
        }
        gone = [c.id for c in cubes.values() if c.state not in ANSWERING]
        if gone:
            raise InputError(
                f"{', '.join(gone)} is {self.vault.get(gone[0]).state} and cannot be promoted; "
                f"promote memories in force"
            )
        return sorted(map(self.vault.guard.as_shown, cubes.values()), key=lambda c: c.order)
