"""Carries out what a curator returns: one transaction, with what takes each operation back.

A curator changes only what curators have made; what was said stays as it was said, and may be linked, tagged and
scored. Every memory that it makes is believed as a model's words are, and goes with the turns that it names. Whatever
may not be, or names what is not there, undoes all of it. Must not know a system.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from memos import ops
from memos.cube import GONE, READ, Form, Header, MemCube, Rights, State, Text, Trust, new_id
from memos.errors import Denied, InputError
from memos.infrastructure.vault.mem_vault import absent
from memos.plugins.curators.curator import (
    Archive,
    BringBack,
    CuratorOp,
    CuratorOps,
    ForgetMemory,
    Keep,
    Link,
    Merge,
    Retag,
    Revise,
    Score,
    Unlink,
)
from memos.plugins.curators.signals import StoredLink
from memos.plugins.curators.tables import CuratorTables, Step

if TYPE_CHECKING:
    from memos.kernel.wiring import Parts
    from memos.rights import Caller

MADE = f"{READ}curator:"  # origin of what a curator has made, before the name of the system
MAX_TEXT = 20_000  # characters of a memory


def maker(cube: MemCube) -> str:
    """The system that has made a memory; "" for what none has."""
    return cube.header.origin.removeprefix(MADE) if cube.header.origin.startswith(MADE) else ""


def segment_of(kind: str, system: str) -> str:
    """The topic group of what a system has made of one kind."""
    return f"{kind} of {system}"


class CarryingOut:
    """The operations of one vault."""

    def __init__(self, parts: Parts, tables: CuratorTables) -> None:
        self._vault, self._lifecycle, self._knowledge = parts.vault, parts.lifecycle, parts.knowledge
        self._governance, self._tables = parts.governance, tables

    def carry_out(self, caller: Caller, system: str, operations: CuratorOps, most: int) -> list[Step]:
        """Within a transaction: do these in their order; how each is taken back. Raises InputError for more than
        `most`, and for what no curator may do; Denied, NotFound, BadTransition."""
        run = _Run(self, caller, system)
        for count, operation in enumerate(operations):
            if count >= most:
                raise InputError(f"{system} asks for more than {most} operations at once; raise curators.operations")
            run.do(operation)
        self._knowledge.require_room(caller.namespace)
        return run.steps

    def take_back(self, step: Step) -> None:
        """Within a transaction. Raises BadTransition, Held."""
        match step.undo:
            case {"do": "delete"}:
                self._lifecycle.delete(step.id)
            case {"do": "rollback", "version": int(version)}:
                before = self._vault.get(step.id, version)
                if isinstance(before.payload, Text):
                    self._lifecycle.edit(step.id, before.payload, sources=before.sources)
            case {"do": "restore"}:
                self._lifecycle.move(step.id, State.ACTIVATED, "undone")
            case {"do": "archive"}:
                self._lifecycle.move(step.id, State.ARCHIVED, "undone")
            case {"do": "tags", "tags": list(tags)}:
                self._lifecycle.edit(step.id, tags=tuple(map(str, tags)))
            case {"do": "score", "name": str(name), "value": value}:
                owner = self._vault.get(step.id).namespace.user_id
                self._tables.score(step.id, owner, name, value if isinstance(value, float) else None)
            case {"do": "unlink", "b": str(b), "kind": str(kind)}:
                self._tables.unlink(step.id, b, kind)
            case {"do": "link", "b": str(b), "kind": str(kind), "weight": float(weight), **times}:
                since, until = (datetime.fromisoformat(str(t)) if t else None for t in (times["since"], times["until"]))
                if self._vault.at([b]):
                    self._tables.link(StoredLink(step.id, b, kind, weight, since, until), "undone")
            case _:
                raise InputError(f"a step that was written down cannot be read: {step.undo!r:.200}")

    # for _Run

    def _cube(self, caller: Caller, id: str, op: ops.Operation) -> MemCube:
        """Raises NotFound, also for what the caller may not see; Denied."""
        cubes = self._governance.visible(caller, self._vault.at([id]))
        if not cubes:
            raise absent(id)
        if not self._governance.may(caller, op.right, cubes[0]):
            raise Denied(f"{caller} may not {op.right} cube {id}, and so no curator of its own")
        return cubes[0]


class _Run:
    """One list of operations. names: what operations before have made, by the name that was given."""

    def __init__(self, by: CarryingOut, caller: Caller, system: str) -> None:
        self._by, self._caller, self._system = by, caller, system
        self._vault, self._lifecycle, self._tables = by._vault, by._lifecycle, by._tables
        self._names: dict[str, str] = {}
        self.steps: list[Step] = []

    def do(self, operation: CuratorOp) -> None:
        match operation:
            case Revise(id=id, text=text, sources=sources):
                self._revise(id, text, sources)
            case Merge():
                self._merge(operation)
            case Keep():
                self._keep(operation)
            case Link():
                self._link(operation)
            case Unlink(a=a, b=b, kind=kind):
                before = self._tables.unlink(self._to_tie(a).id, self._to_tie(b).id, kind)
                if before:
                    self._step(before.a, do="link", **_as_undo(before))
            case Retag(id=id, tags=tags):
                cube = self._cube(id, ops.Tag(id=id, tags=tags))
                self._lifecycle.edit(cube.id, tags=tuple(dict.fromkeys(tags)))
                self._step(cube.id, do="tags", tags=list(cube.header.tags))
            case Score(id=id, name=name, value=value):
                cube = self._to_tie(id)
                owner = cube.namespace.user_id
                self._step(cube.id, do="score", name=name, value=self._tables.score(cube.id, owner, name, value))
            case Archive(id=id, why=why):
                cube = self._own(id)
                forgotten = "forgotten" if isinstance(operation, ForgetMemory) else "archived"
                if cube.state not in GONE:
                    self._lifecycle.move(
                        cube.id, State.ARCHIVED, f"{forgotten} by {self._system}: {why or 'no reason'}"
                    )
                    self._step(cube.id, do="restore")
            case BringBack(id=id):
                cube = self._own(id)
                if cube.state is State.ARCHIVED:
                    self._lifecycle.move(cube.id, State.ACTIVATED, f"brought back by {self._system}")
                    self._step(cube.id, do="archive")

    def _step(self, id: str, **undo: object) -> None:
        self.steps.append(Step(id, undo))

    def _id(self, name: str) -> str:
        if name.startswith("#") and name not in self._names:
            raise InputError(f"{self._system} names {name}, which no operation before it has made")
        return self._names.get(name, name)

    def _cube(self, id: str, op: ops.Operation) -> MemCube:
        return self._by._cube(self._caller, self._id(id), op)

    def _to_tie(self, id: str) -> MemCube:
        """What may be linked and scored: all that the caller may annotate."""
        return self._cube(id, ops.Rate(id=id, useful=0.0))

    def _own(self, id: str) -> MemCube:
        """What a curator may change."""
        cube = self._cube(id, ops.Update(id=id))
        if not maker(cube):
            raise InputError(
                f"{self._system} may not change cube {cube.id}, which no curator has made; keep a memory beside it"
            )
        return cube

    def _keep(self, keep: Keep) -> str:
        sources = [self._cube(id, ops.Get(id=id)) for id in dict.fromkeys(keep.sources)]
        made = self._made(keep, sources)
        if keep.name:
            self._names[keep.name] = made.id
        for name, value in keep.scores.items():
            self._tables.score(made.id, made.namespace.user_id, name, value)
        return made.id

    def _made(self, keep: Keep, sources: list[MemCube]) -> MemCube:
        text = _checked(self._system, keep.text)
        gone = [source.id for source in sources if source.state in GONE]
        if gone:
            raise InputError(f"{self._system} makes a memory of cube {gone[0]}, which is out of use")
        whole = self._caller.namespace
        header = Header(
            created=self._vault.now(),
            said=keep.said or max((source.order[0] for source in sources), default=None),
            origin=MADE + self._system,
            trust=Trust.MODEL,
            speaker=keep.speaker,
            thread=keep.thread,
            segment=segment_of(keep.kind, self._system),
            kind=keep.kind,
            tags=keep.tags,
        )
        cube = MemCube(
            id=new_id(),
            form=Form.PLAINTEXT,
            namespace=whole,
            rights=Rights(owner=whole.user_id),
            header=header,
            payload=Text(text=text),
            sources=tuple(source.pin for source in sources),
        )
        cube = self._lifecycle.publish(cube) if sources else self._lifecycle.create(cube)
        self._by._knowledge.examine(cube)
        self._step(cube.id, do="delete")
        return cube

    def _revise(self, id: str, text: str, sources: tuple[str, ...]) -> None:
        cube = self._own(id)
        new = [self._cube(source, ops.Get(id=source)).pin for source in dict.fromkeys(sources)]
        known = {source.id for source in cube.sources}
        added = [source for source in new if source.id not in known]
        if cube.text == text and not added:
            return
        edited = self._lifecycle.edit(cube.id, Text(text=_checked(self._system, text)), sources=(*cube.sources, *added))
        self._by._knowledge.examine(edited, new=False)
        self._step(cube.id, do="rollback", version=cube.version)

    def _merge(self, merge: Merge) -> None:
        merged = [self._own(id) for id in dict.fromkeys(merge.ids)]
        if len(merged) < 2:
            raise InputError(f"{self._system} merges {len(merged)} memory; name two or more")
        roots = tuple(dict.fromkeys([*merge.sources, *(source.id for cube in merged for source in cube.sources)]))
        made = self._keep(merge.model_copy(update={"sources": roots}))
        for cube in merged:
            self._lifecycle.move(cube.id, State.ARCHIVED, f"merged into {made} by {self._system}")
            self._step(cube.id, do="restore")

    def _link(self, link: Link) -> None:
        a, b = self._to_tie(link.a), self._to_tie(link.b)
        if a.id == b.id:
            raise InputError(f"{self._system} links cube {a.id} to itself; name two")
        before = self._tables.unlink(a.id, b.id, link.kind)
        self._tables.link(StoredLink(a.id, b.id, link.kind, link.weight, link.since, link.until), self._system)
        undo = {"do": "link", **_as_undo(before)} if before else {"do": "unlink", "b": b.id, "kind": link.kind}
        self._step(a.id, **undo)


def _checked(system: str, text: str) -> str:
    if not text.strip():
        raise InputError(f"{system} keeps an empty text; leave it out")
    if len(text) > MAX_TEXT:
        raise InputError(f"{system} keeps a text of {len(text):,} characters, and a memory has {MAX_TEXT:,} at most")
    return text


def _as_undo(link: StoredLink) -> dict[str, object]:
    since, until = (time and time.isoformat() for time in (link.since, link.until))
    return {"b": link.b, "kind": link.kind, "weight": float(link.weight), "since": since, "until": until}
