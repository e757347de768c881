"""Decides whether a caller may perform an operation on a cube, and logs each decision.

Knows namespaces, relations and where a cube came from. Must not know models, ranking or what a cube says.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

from memos.cube import MemCube, Namespace, Rights
from memos.errors import Denied, Held, NotFound
from memos.infrastructure.vault.audit.records import UNSEEN, Decision
from memos.infrastructure.vault.mem_vault import MemVault, absent
from memos.ops import Operation
from memos.rights import ACTIONS, Action, Caller, Standing

_STANDINGS = 256  # callers whose grants are remembered
_MAY = {
    "annotate": "its owner, an editor or an annotator",
    "write": "its owner or an editor",
    "delete": "its owner",
    "manage": "its owner",
}


class _Asked:
    """One question about what a caller may do. known: what was found of cubes, so that a long line of descent is walked
    once, and what is granted, which is looked up where namespace and owner do not decide."""

    def __init__(
        self, caller: Caller, standing: Callable[[], Standing], at: Callable[[list[str]], list[MemCube]]
    ) -> None:
        """at: the cubes of these ids, without those that are not there."""
        self._caller, self._look, self._read = caller, standing, at
        self.known: dict[str, bool] = {}
        self._cubes: dict[str, MemCube | None] = {}  # that others are made of

    def found_readable(self, cubes: Iterable[MemCube]) -> None:
        for cube in cubes:
            self.known[cube.id], self._cubes[cube.id] = True, cube

    def at(self, ids: Iterable[str]) -> list[MemCube]:
        """What others are made of, read once: all that are named together at once."""
        wanted = list(ids)
        if missing := [id for id in dict.fromkeys(wanted) if id not in self._cubes]:
            self._cubes |= dict.fromkeys(missing) | {cube.id: cube for cube in self._read(missing)}
        return [cube for id in wanted if (cube := self._cubes[id])]

    @cached_property
    def _standing(self) -> Standing:
        return self._look()

    def has(self, right: Action, id: str, namespace: Namespace, rights: Rights) -> bool:
        """By its namespace, or by what is granted; whatever it is made of."""
        if self._caller.covers(namespace) and (right == "read" or self._caller.user_id == rights.owner):
            return True
        return self._standing.allows(right, id, namespace)


class Sight(NamedTuple):
    """What one caller may read, in the words of `catalog.View`. key: another whenever it may be another."""

    key: Hashable
    may: Callable[..., bool]
    single: Callable[[], frozenset[str]]
    expect: Callable[[Iterable[str]], object]


class MemGovernance:
    """Decides by namespace, owner and what is granted; a derived cube is as secret as the most secret of its sources.

    What is granted is read from the vault whenever it may have changed there, so that a revocation in any process holds
    with the next decision in each.
    """

    def __init__(self, vault: MemVault) -> None:
        self._vault = vault
        # the state is a part of the key, so that nothing outlives a change of rights or the end of a grant
        self._standings = lru_cache(_STANDINGS)(lambda caller, state: self._granted(caller))
        self._singles: dict[Hashable, frozenset[str]] = {}

    def _granted(self, caller: Caller) -> Standing:
        namespaces: dict[tuple[str, str, str], frozenset[Action]] = {}
        cubes: dict[str, frozenset[Action]] = {}
        for grant in self._vault.grants.of(caller.namespace, caller.purpose):
            if isinstance(grant.on, Namespace):
                over = (grant.on.user_id, grant.on.agent_id, grant.on.session_id)
                namespaces[over] = namespaces.get(over, frozenset()) | ACTIONS[grant.relation]
            else:
                cubes[grant.on] = cubes.get(grant.on, frozenset()) | ACTIONS[grant.relation]
        return Standing(namespaces, cubes)

    def _standing(self, caller: Caller) -> Standing:
        return self._standings(caller, self._vault.grants.state())

    # -- the door ------------------------------------------------------------------------------------------

    def permit(self, caller: Caller, op: Operation, cube: MemCube | None = None, over: Namespace | None = None) -> None:
        """Return if `caller` may do `op` to `cube`, or to the whole namespace `over`; without either, any caller may
        act in its own namespace.

        Raises Denied; or, for a cube that the caller may not even see, what an absent id raises, so that asking to
        write does not reveal more than asking to read. To be asked before a transaction, which could undo the line.
        """
        self.record([self.permitted(caller, op, cube, over)])

    def permitted(
        self, caller: Caller, op: Operation, cube: MemCube | None = None, over: Namespace | None = None
    ) -> Decision:
        """The same, for who writes several decisions down together by `record`. A refusal is written at once."""
        right, name = op.right, type(op).__name__.lower()
        if cube is not None:
            allowed = self.may(caller, right, cube)
        else:
            allowed = over is None or self.may_over(caller, right, over)
        hidden = not allowed and cube is not None and not self.may(caller, "read", cube)
        why = name if allowed else f"{name}: {UNSEEN if hidden else 'not the owner, or outside its namespace'}"
        target = cube.id if cube else name if over is None else f"namespace {over}"
        decision = Decision(str(caller), right, target, allowed, why)
        if allowed:
            return decision
        self.record([decision])
        if cube is not None and hidden:
            raise absent(_as_asked(op, cube.id))
        if cube is not None:
            raise Denied(
                f"{caller} may not {right} cube {cube.id}: only {_MAY[right]} may, from within its namespace or by a "
                "grant; ask the owner, or add a memory of your own"
            )
        raise Denied(f"{caller} may not {right} namespace {over}: only its user may, or an owner by a grant; ask them")

    def unknown(self, caller: Caller, op: Operation, id: str) -> NotFound:
        """The error for an id that fits nothing which the caller may see. It is written down as a refusal is, without
        the words that were given: else the log and the disk would tell a hidden memory from an absent one."""
        self.record([Decision(str(caller), op.right, "no cube", False, f"{type(op).__name__.lower()}: {UNSEEN}")])
        return absent(id)

    @contextmanager
    def noting_holds(self, caller: Caller, right: Action, call: str) -> Iterator[None]:
        """What the rights allow and a legal hold forbids was refused: the log says that, too."""
        try:
            yield
        except Held as held:
            self.record([Decision(str(caller), right, held.id, False, f"{call}: a legal hold")])
            raise

    def record(self, decisions: Sequence[Decision], beside: Callable[[], None] | None = None) -> None:
        """Write decisions into the audit log; see `AuditLog.append_all`."""
        self._vault.audit_log.append_all(decisions, beside)

    def may(self, caller: Caller, right: Action, cube: MemCube) -> bool:
        """The rule by itself, not audited. What cannot be read can be cleared away by its owner, and nothing else."""
        return self._may(self._asked(caller), right, cube)

    def manages(self, caller: Caller, cubes: Iterable[MemCube]) -> list[MemCube]:
        """Those of which `caller` may know all that was decided about them, in the order given; not audited."""
        return self._allowed(self._asked(caller), "manage", cubes)

    def _may(self, asked: _Asked, right: Action, cube: MemCube) -> bool:
        if right == "read":
            return self._may_read(asked, cube)
        own = asked.has(right, cube.id, cube.namespace, cube.rights)
        return own and (right == "delete" or self._may_read(asked, cube))

    def may_over(self, caller: Caller, right: Action, over: Namespace) -> bool:
        """The same for all that lies in a namespace."""
        return caller.covers(over) or self._standing(caller).over(right, over)

    def users_in_sight(self, caller: Caller) -> set[str]:
        """Whose memories there may be any of that the caller may read: all others need not be looked at."""
        standing = self._standing(caller)
        owners = {cube.namespace.user_id for cube in self._vault.at(standing.cubes)}
        return {caller.user_id, *(user for user, _, _ in standing.namespaces), *owners}

    def sight(self, caller: Caller) -> Sight:
        """What the caller may read by the rights of now; not audited. All of it rests on what the key is made of: a
        right that changes meanwhile is for the next one."""
        state = self._vault.grants.state()
        standing = self._standings(caller, state)
        key = caller.namespace, caller.purpose, standing.key, state.moved
        asked = _Asked(caller, lambda: standing, self._vault.at)

        def single() -> frozenset[str]:
            if key not in self._singles:
                if len(self._singles) >= _STANDINGS:
                    self._singles.clear()
                made = self._vault.made(standing.cubes)
                found = {cube.id for cube in self._allowed(asked, "read", self._vault.at(made))}
                self._singles[key] = frozenset({*standing.cubes} - made) | found
            return self._singles[key]

        return Sight(key, partial(self._may_read_sort, asked), single, asked.at)

    def _may_read_sort(self, asked: _Asked, namespace: Namespace, rights: Rights, *sources: str) -> bool:
        """The rule for all memories of a namespace with these rights and sources, beside what is granted on single
        ones of them."""
        own = asked.has("read", "", namespace, rights)
        if not sources:
            return own
        return self._may_read_all(asked, sources) and (own or self._only(asked, rights, sources))

    def _asked(self, caller: Caller) -> _Asked:
        return _Asked(caller, lambda: self._standing(caller), self._vault.at)

    def _may_read(self, asked: _Asked, cube: MemCube) -> bool:
        """What is made of memories of its owner alone, and says nothing but them, is readable to all who may read
        these."""
        if cube.id not in asked.known:
            sources = [source.id for source in cube.rests_on]
            asked.known[cube.id] = self._may_read_all(asked, sources) and (
                asked.has("read", cube.id, cube.namespace, cube.rights)
                or (bool(sources) and cube.header.kind != "turn" and self._only(asked, cube.rights, sources))
            )
        return asked.known[cube.id]

    def _may_read_all(self, asked: _Asked, ids: Iterable[str]) -> bool:
        return all(asked.known[id] if id in asked.known else self._may_read_source(asked, id) for id in ids)

    def _may_read_source(self, asked: _Asked, id: str) -> bool:
        cubes = asked.at([id])  # none: deleted since the cube was listed, and the cube with it
        return bool(cubes) and self._may_read(asked, cubes[0])

    def _only(self, asked: _Asked, rights: Rights, sources: Iterable[str]) -> bool:
        """True if all that a cube is made of is its owner's, so that it has no words of anybody else."""
        return all(source.rights.owner == rights.owner for source in asked.at(sources))

    def visible(self, caller: Caller, cubes: Iterable[MemCube], seen: Iterable[MemCube] = ()) -> list[MemCube]:
        """Those that `caller` may read, in the order given; not audited. seen: cubes found readable just before."""
        asked = self._asked(caller)
        asked.found_readable(seen)
        return self._allowed(asked, "read", cubes)

    def _allowed(self, asked: _Asked, right: Action, cubes: Iterable[MemCube]) -> list[MemCube]:
        given = list(cubes)
        asked.at(source.id for cube in given for source in cube.rests_on)
        return [cube for cube in given if self._may(asked, right, cube)]

    def visible_ids(self, caller: Caller, cubes: Iterable[MemCube]) -> set[str]:
        return {cube.id for cube in self.visible(caller, cubes)}

    def readable(self, caller: Caller, cubes: Iterable[MemCube]) -> list[MemCube]:
        """Those that `caller` may read, in the order given; to be asked before anything is ranked."""
        seen = self.visible(caller, cubes)
        self.record([self.narrowed(caller, len(seen))])
        return seen

    def narrowed(self, caller: Caller, seen: int) -> Decision:
        """That a search may look at so many memories; how many there are would tell of others."""
        return Decision(str(caller), "read", f"{seen} cubes", True, "search narrowed")


def _as_asked(op: Operation, id: str) -> str:
    """The cube's id in the caller's own words: that may be a prefix, and the rest of it must not leak."""
    asked = (getattr(op, "id", ""), getattr(op, "on", ""), *getattr(op, "ids", ()))
    return next((words for words in asked if words and isinstance(words, str) and id.startswith(words)), id)
