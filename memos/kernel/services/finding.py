"""Public calls that find and list memories, narrowed to what the caller may see before anything is ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from memos.cube import Fact, Form, MemCube, Namespace, in_zone
from memos.errors import InputError
from memos.kernel.wiring import Hit, Parts, each_once
from memos.operation.life.currency import stated
from memos.operation.life.mem_lifecycle import ANSWERING
from memos.operation.policies.policy import Tiers
from memos.ops import Forget, Get, Recall, Rewind, Search


class Finding(Parts):
    """search, memories, turns, cubes, tiers."""

    def rewind(self, session: str, turns: int, *, user: str | None = None) -> int:
        """Take a session back to its first `turns` turns; returns how many were taken back. Raises InputError."""
        caller = self._session(session, user)
        self.governance.permit(caller, Rewind(session=session, turns=turns))
        return self.sessions.rewind(caller, turns)

    def owner(self, id: str) -> str | None:
        """Who owns a cube, for whoever may act as any user; None where the id, or the prefix, is not of one cube."""
        found = self.vault.named(id)
        return found[0].rights.owner if len(found) == 1 else None

    def search(
        self,
        query: str,
        *,
        top_k: int | None = None,
        kinds: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        where: Callable[[MemCube], bool] | None = None,
        user: str | None = None,
        policy: str | None = None,
    ) -> list[Hit]:
        """The memories that answer the query best among those that the user may see, best first.

        kinds: of memories (Header.kind); since, until: when they were said, UTC where no zone is given; where: true of
        them, as the user may read them. policy: which one finds, in place of the user's. Raises InputError.
        """
        caller = self._caller(user)
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k {top_k} finds nothing; give 1 or more, or leave it out")
        read = self.reader.recall(query)
        op = Search(query=query, top_k=top_k or self.config.scheduler.top_k, about=read.about, asks=read.asks)
        limits = (None if kinds is None else frozenset(kinds), in_zone(since), in_zone(until))
        return self._find(op.query, op.top_k, caller, op, policy, limits, where)

    def memories(
        self, *, true_at: datetime | None = None, known_at: datetime | None = None, user: str | None = None
    ) -> list[MemCube]:
        """The memories in force that the user may see, as they were said.

        true_at, known_at: instead, the user's own that held at the one time, as far as was known at the other (UTC
        where no zone is given; left out: now).
        """
        caller = self._caller(user)
        if true_at is None and known_at is None:
            return self._texts(caller)
        now = self.vault.now()
        then = self.knowledge.as_of(caller.user_id, in_zone(true_at) or now, in_zone(known_at) or now)
        return self.governance.readable(caller, then)

    def turns(self, session: str, *, user: str | None = None) -> list[MemCube]:
        """The turns of a session in force, oldest first."""
        of = self._session(session, user)
        self.governance.permit(self._caller(user), Get(id=session))
        return self.sessions.turns(of)

    def cubes(self, *, form: Form | None = None, user: str | None = None) -> list[MemCube]:
        """Everything the user may see, of every state."""
        caller = self._caller(user)
        return self.governance.readable(caller, self.vault.cubes(form=form))

    def _find(
        self,
        query: str,
        k: int | None,
        caller: Namespace,
        read: Recall | Search | None = None,
        policy: str | None = None,
        limits: Sequence[Any] = (),
        where: Callable[[MemCube], bool] | None = None,
    ) -> list[Hit]:
        """What a policy, by default the caller's, finds in the caller's view, narrowed before anything is ranked.

        k: None for as much as a request needs. read: what the reader made of the query. limits: see `View`.
        """
        view = self._view(caller, *limits)
        if where:
            read_by, seen = self._as_read(caller), self.vault.at(self.operator.versions(view))
            view = replace(view, among=frozenset(cube.id for cube in seen if where(read_by(cube))))
        name = policy or self._policy(caller)
        if replay := self._replay(name):
            found = replay.search(query, k, self._view(caller), view)
        else:
            score = self._by_policy(name).policy.score
            about, asks = (read.about, read.asks) if read else ((), ())
            found = self.operator.search(query, k or self.config.scheduler.top_k, view, score, about, asks)
        self.governance.narrowed(caller, *self.operator.in_view(view, afresh=False))
        at = self.vault.at(f.id for f in found)  # one that is gone since is left out
        # what was revoked while it was looked for is left out as well
        cubes = {c.id: c for c in self.governance.visible(caller, at) if c.state in ANSWERING}
        hits = [Hit(cubes[f.id], f.score, f.why) for f in found if f.id in cubes]
        return self._by_use(hits) if any(hit.cube.usage.utility for hit in hits) else hits

    def _described(self, op: Forget, caller: Namespace) -> tuple[list[MemCube], list[Hit]]:
        """(the memories that a description means, those that are near it)."""
        texts = self._texts(caller)
        meant = [c for c in texts if any(_fits(wanted, said) for wanted in op.facts for said in stated(c))]
        # what is meant does not depend on how answers are found
        near = [] if op.facts else self._find(op.query, 3, caller, policy="memos")
        return meant or [hit.cube for hit in near if hit.why["near"] >= self.config.scheduler.forget_score], near

    def _behind(self, cube: MemCube) -> list[MemCube]:
        """What a memory was made of, down to what was told; a memory that was told, itself. All that is made of it goes
        with it."""
        if not cube.sources:
            return [cube]
        return each_once(root for source in self.vault.at(s.id for s in cube.sources) for root in self._behind(source))

    def _by_use(self, hits: Sequence[Hit]) -> list[Hit]:
        """The same, in the order of their scores and of how much they have helped so far."""
        weight = self.config.retrieval.useful
        told = [replace(h, score=h.score + weight * h.cube.usage.utility) for h in hits]
        told = [replace(h, why=h.why | {"useful": h.cube.usage.utility}) for h in told]
        return sorted(told, key=lambda hit: -hit.score)

    def tiers(self, *, user: str | None = None) -> Tiers:
        """What the user's policy has made of the memories, where it keeps tiers. Raises InputError."""
        caller = self._caller(user)
        self.governance.permit(caller, Search(query=""))
        if replay := self._replay(self._policy(caller)):
            return replay.tiers(self._view(caller))
        raise InputError(f"the policy {self._policy(caller)} keeps no tiers; set policy to one that does: memoryos")


def _fits(wanted: Fact, said: Fact) -> bool:
    """True if a fact with blanks describes another."""
    pairs = ((wanted.subject, said.subject), (wanted.relation, said.relation), (wanted.object, said.object))
    return all(not asked or asked.casefold() == there.casefold() for asked, there in pairs)
