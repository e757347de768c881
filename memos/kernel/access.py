"""What one caller sees: cubes by id, texts, and the view that a search is narrowed to."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from memos.cube import ANSWERING, Form, MemCube, Namespace, Text
from memos.errors import Denied
from memos.infrastructure.vault.mem_vault import MemVault, absent
from memos.operation.finding.catalog import View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memos.infrastructure.governance.mem_governance import MemGovernance
    from memos.kernel.identity import AsRead
    from memos.kernel.wiring import Parts
    from memos.lazy import Lazy
    from memos.operation.finding.mem_operator import MemOperator
    from memos.operation.forms.serving import Serving
    from memos.ops import Operation
    from memos.rights import Caller

T = TypeVar("T")
Limits = tuple[frozenset[str] | None, datetime | None, datetime | None]  # kinds, since, until: see `View`


class Access:
    """The vault as one caller sees it."""

    def __init__(self, vault: MemVault, governance: MemGovernance) -> None:
        self._vault, self._governance = vault, governance

    def cube(self, caller: Caller, op: Operation, id: str) -> MemCube:
        """The cube, if the caller may do `op` to it. A prefix of its id will do where it fits one cube alone of those
        that the caller may see. Raises NotFound, Denied."""
        found = self._vault.named(id)
        if len(found) != 1:
            found = self._governance.visible(caller, found)
        if len(found) != 1:
            raise absent(id)
        self._governance.permit(caller, op, found[0])
        return found[0]

    def texts(self, caller: Caller) -> list[MemCube]:
        """The memories in force, as the caller may read them and in the order of their saying."""
        readable = self._governance.readable(caller, self._vault.cubes(form=Form.PLAINTEXT, states=ANSWERING))
        return list(map(self.as_read(caller), (c for c in readable if isinstance(c.payload, Text))))

    def as_read(self, caller: Caller) -> AsRead:
        """Memories as the caller may read them: its own whole, those of others without identifiers
        (governance.redaction)."""
        shown = self._vault.guard.as_shown
        return lambda cube: cube if cube.rights.owner == caller.user_id else shown(cube)

    def view(self, caller: Caller, limits: Limits = (None, None, None)) -> View:
        """What the caller may see, within limits."""
        return View(*self._governance.sight(caller), *limits, owner=caller.user_id)

    def session(self, caller: Caller, name: str) -> Namespace:
        """A conversation of the caller. Raises Denied where the caller stands for another one alone."""
        if caller.session_id not in ("", name):
            raise Denied(f"{caller} is one session and reaches no other, {name!r}; use a key of the user or the agent")
        return caller.namespace.model_copy(update={"session_id": name})


class Freshness:
    """After a change that a search or a request may not have seen, what is loaded keeps up with it."""

    def __init__(self, operator: Lazy[MemOperator], serving: Lazy[Serving]) -> None:
        self._operator, self._serving = operator, serving

    def changed(self, result: T) -> T:
        """The same result, of a call that has changed memories."""
        if operator := self._operator.if_made:
            operator.refresh_soon()
        self.release()
        return result

    def release(self) -> None:
        """Let go of what is in memory of cubes that are no longer in use: a source may have changed."""
        serving = self._serving.if_made
        if serving and serving.payloads_used:
            serving.release()


class Service:
    """The calls of one kind, over the parts that all kinds share."""

    def __init__(self, parts: Parts) -> None:
        self._config, self._vault, self._governance = parts.config, parts.vault, parts.governance
        self._access, self._freshness, self._schedulers = parts.access, parts.freshness, parts.schedulers
        self._reader, self._lifecycle, self._knowledge = parts.reader, parts.lifecycle, parts.knowledge
        self._consolidation, self._ageing = parts.consolidation, parts.ageing
        self._replays, self._budgets, self._foresight = parts.replays, parts.budgets, parts.foresight
        self._host, self._operator, self._serving = parts.host, parts.operator, parts.serving
        self._sessions, self._transitions = parts.sessions, parts.transitions
        self._tokens, self._is_ours = parts.tokens, parts.is_ours


def unique(cubes: Iterable[MemCube]) -> list[MemCube]:
    """Drop duplicates by id, keeping the last version and the first place."""
    return list({cube.id: cube for cube in cubes}.values())
