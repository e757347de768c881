"""Keeps what is known current: counts repeats, replaces, fuses and splits statements.

Knows what memories say and where they come from. Must not know who may do so, nor how anything is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from memos.cube import (
    ANSWERING,
    GONE,
    Fact,
    Form,
    Header,
    MemCube,
    Namespace,
    Probe,
    Rights,
    Source,
    State,
    Text,
    Trust,
    in_zone,
    new_id,
    plain,
)
from memos.errors import InputError, NoRoom
from memos.operation.life.agreement import Agreement, StatementReader, text_of
from memos.operation.life.currency import (
    HOLDING_MODES,
    contradicts,
    facts_out_of_force,
    is_outdated,
    modes_against,
    replaces,
    stated,
)
from memos.operation.life.mem_lifecycle import LOCKED, MemLifecycle

if TYPE_CHECKING:
    from memos.config import LimitsConfig
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.ops import Add, Correct


class Knowledge:
    """Works on the memories of one caller, who may see and change them."""

    def __init__(self, vault: MemVault, lifecycle: MemLifecycle, reader: StatementReader, limits: LimitsConfig) -> None:
        self._vault, self._lifecycle, self._reader, self._limits = vault, lifecycle, reader, limits
        self._agreement = Agreement(vault, reader)
        self.conflicts, self.duplicates = self._agreement.conflicts, self._agreement.duplicates
        self.audit = self._agreement.audit

    # -- remembering -----------------------------------------------------------------------------------------

    def remember(self, ops: Sequence[Add | Correct], caller: Namespace, fold: bool = True) -> list[MemCube]:
        """Keep statements, and archive what they replace; for each the cube that holds it.

        The same words of the same speaker, time and thread are one statement, however often it is read. fold: what says
        again what a memory in force says is counted there instead (MemCube.usage.repeats). All or nothing. Raises
        NoRoom.
        """
        if not ops:
            return []
        ops = [self._vault.guard.as_told(op) for op in ops]
        with self._vault.transaction():
            same = [
                c
                for c in self._vault.statements.saying((op.text for op in ops), caller.user_id)
                if c.namespace == caller
            ]
            known = {_content(c.text, c.header): c.id for c in same}
            there, ids = len(same), list[str]()
            for op in ops:
                content = _content(op.text, op)
                known[content] = self._remember(op, caller, same, known.get(content), fold).id
                ids.append(known[content])
            if len(same) > there:
                self.require_room(caller)
            now = {cube.id: cube for cube in self._vault.at(set(ids))}
            return [now[id] for id in ids]

    def _remember(
        self, op: Add | Correct, caller: Namespace, same: list[MemCube], known: str | None, fold: bool
    ) -> MemCube:
        """The cube that holds a statement; a new one is added to `same`. known: the id of one with the same content."""
        twin = None
        cube = next((c for c in self._vault.at([known] if known else []) if _is_known(c)), None)
        if fold and (cube is None or op.said is None):
            twin = self._twin(op, caller, same)
            cube = None if twin is None or self._is_overtaken(twin) else twin
            if cube:
                self._vault.usage.repeat(cube.id, in_zone(op.said), op.origin)
        if cube is not None:
            return cube if cube.state in LOCKED else self._completed(cube, op)
        cube = self._lifecycle.create(plaintext(op, caller, self._vault.now()))
        same.append(cube)
        if not self.examine(cube):  # what is in quarantine replaces nothing
            self._supersede(cube)
            if twin and twin.order < cube.order:
                self._lifecycle.supersede(twin.id, cube.id)
        return cube

    def disputes(self, op: Add, caller: Namespace) -> bool:
        """True if a fact of a statement would replace what is known, or cannot be true beside it."""
        user = caller.user_id
        return any(
            replaces(fact, known) or contradicts(fact, known)
            for fact in op.facts
            for cube in self._vault.statements.stating(fact, modes_against(fact), user, ANSWERING)
            for known in stated(cube)
            if cube.namespace == caller
        )

    def examine(self, cube: MemCube, new: bool = True) -> bool:
        """Put a text in quarantine where there is something against it, unless somebody let just this out before; True
        if so. new: it is counted as one more of its origin."""
        guard, quarantine = self._vault.guard, self._vault.quarantine
        user, origin = cube.namespace.user_id, cube.header.origin
        why = guard.suspicion(cube, lambda s: quarantine.arrived(user, origin, s) if new else 0)
        if why is None or quarantine.was_released(cube.id, guard.judged(cube)):
            return False
        self._lifecycle.quarantine(cube.id, why)
        return True

    def release(self, id: str) -> MemCube:
        """Let a memory out of quarantine; it replaces then what it would have replaced. Raises BadTransition."""
        with self._vault.transaction():
            cube = self._lifecycle.release(id, "released from quarantine")
            if cube.state in ANSWERING:
                self._supersede(cube)
            return self._vault.get(cube.id)

    def _completed(self, cube: MemCube, op: Add) -> MemCube:
        """The cube with the probes, the tags and the time that the statement adds to it; none of one that is believed
        less."""
        if (op.trust or Trust.USER).rank > cube.header.trust.rank:
            return cube
        probes = tuple(dict.fromkeys((*text_of(cube).probes, *op.probes)))
        if probes != text_of(cube).probes:
            cube = self._lifecycle.edit(cube.id, text_of(cube).model_copy(update={"probes": probes}))
        if set(op.tags) - set(cube.header.tags):
            cube = self._lifecycle.tag(cube.id, (*cube.header.tags, *op.tags))
        return self._lifecycle.renew(cube.id, in_zone(op.expires)) if _outlives(op, cube) else cube

    def _twin(self, op: Add, caller: Namespace, same: Sequence[MemCube]) -> MemCube | None:
        """A memory in force that says just what the statement says, and can take what it adds."""
        near = list(same)
        if op.facts and not op.more:
            near += self._vault.statements.agreeing(op.facts[0], caller.user_id, ANSWERING)
        if not near:
            return None
        says = self._agreement.meaning(plaintext(op, caller, self._vault.now()))
        # as they are now: one may have been replaced by a statement before this one
        for cube in self._vault.at(c.id for c in near):
            adds = _outlives(op, cube) or set(op.tags) - set(cube.header.tags) or set(op.probes) - _probes(cube)
            apart = (cube.namespace, cube.header.speaker) != (caller, op.speaker) or cube.state not in ANSWERING
            if not apart and not (cube.state in LOCKED and adds) and self._agreement.meaning(cube) == says:
                return cube
        return None

    def _is_overtaken(self, twin: MemCube) -> bool:
        """True if something else of the same things was told since: to tell this again then is to change it back."""
        modes, user = (*HOLDING_MODES, "ended"), twin.namespace.user_id
        about = (c for fact in stated(twin) for c in self._vault.statements.stating(fact, modes, user, ANSWERING))
        return any(c.order > twin.order and c.namespace == twin.namespace and c.id != twin.id for c in about)

    def require_room(self, caller: Namespace) -> None:
        most = self._limits.of(caller.user_id).memories
        if most is not None and (count := self._vault.stats.count(caller.user_id, ANSWERING)) > most:
            raise NoRoom(
                f"{caller.user_id} may have {most} memories (limits.memories), and this would make it {count}; nothing "
                f"was added: delete or archive some, or raise the limit"
            )

    def _supersede(self, new: MemCube) -> None:
        """Archive what says nothing but what no longer holds, among earlier statements or the new one itself, where
        later ones arrived before it. See memos.operation.life.currency."""
        near = {c.id: c for fact in stated(new) for c in self._about(fact, new)}
        for cube in (*near.values(), new):
            if facts_out_of_force(cube, near.values() if cube is new else (new,)):
                self._retire(cube)

    def _retire(self, cube: MemCube) -> None:
        """Archive a memory all of whose facts others have replaced; and what it was made of, where the same is true of
        that."""
        beside = {c.id: c for fact in stated(cube) for c in self._about(fact, cube)}
        gone = facts_out_of_force(cube, beside.values())
        if cube.state in ANSWERING and is_outdated(text_of(cube), gone):
            last = max((beside[id] for id in gone.values()), key=lambda c: c.order)
            self._lifecycle.supersede(cube.id, last.id)
            for source in self._vault.at(source.id for source in cube.sources):
                self._retire(source)

    def _about(self, fact: Fact, cube: MemCube) -> list[MemCube]:
        """The statements in force beside the cube that may replace a fact of it, or be replaced by it."""
        modes = modes_against(fact)
        found = self._vault.statements.stating(fact, modes, cube.namespace.user_id, ANSWERING) if modes else []
        return [c for c in found if c.namespace == cube.namespace and c.id != cube.id]

    # -- one of many, many of one --------------------------------------------------------------------------

    def fuse(self, cubes: Sequence[MemCube], text: str | None = None) -> MemCube:
        """One memory of several, in which they live on: with this text, or with what each of them says, once.

        Raises InputError for less than two, or for memories of different owners, BadTransition for one out of use.
        """
        by_text = {plain(text_of(cube).text): text_of(cube) for cube in sorted(cubes, key=lambda cube: cube.order)}
        distinct = sorted({cube.id: cube for cube in cubes}.values(), key=lambda cube: cube.order)
        if len(distinct) < 2:
            one = "".join(f", {cube.id}," for cube in distinct) or " or none"
            raise InputError(f"one memory{one} cannot be fused; name two or more")
        first, *others = distinct
        if any((cube.namespace, cube.rights) != (first.namespace, first.rights) for cube in others):
            raise InputError("memories of different users or readers cannot become one; fuse those of one at a time")
        if len({cube.header.expires for cube in cubes}) > 1:
            raise InputError("memories that expire at different times cannot become one; add them anew with one time")
        payload = Text(
            text=" ".join(payload.text for payload in by_text.values()),
            facts=tuple(dict.fromkeys(fact for payload in by_text.values() for fact in payload.facts)),
            more=any(payload.more or not payload.facts for payload in by_text.values()),
            probes=tuple(dict.fromkeys(probe for payload in by_text.values() for probe in payload.probes)),
        )
        if text is not None:
            read = self._reader.statement(text, first.header.speaker)
            payload = payload.model_copy(update={"text": read.text, "facts": read.facts, "more": read.more})
        with self._vault.transaction():
            [made] = self._lifecycle.merge([_made(payload, (first, *others), self._vault.now())])
            self.examine(made)
            return self._vault.get(made.id)

    def split(self, cube: MemCube, parts: Sequence[str] = ()) -> list[MemCube]:
        """A memory in parts, in which it lives on: these, or a part for each of its sentences. One that was made of
        others goes back to them.

        Raises InputError where there is but one part, or no memory but a turn of a conversation.
        """
        if cube.sources and not parts:
            return self._lifecycle.unmerge(cube.id)
        whole = text_of(cube)  # not of a turn, whose parts would be readable to fewer than may write them
        sentences = parts or self._reader.sentences(whole.text)
        if len(sentences) < 2:
            raise InputError(f"cube {cube.id} says one thing; give the parts that it should have")
        read = [self._reader.statement(part, cube.header.speaker) for part in sentences]
        now = self._vault.now()
        parts_of = [_made(Text(text=op.text, facts=op.facts, more=op.more), [cube], now, op.segment) for op in read]
        with self._vault.transaction():
            made = self._lifecycle.merge(parts_of)
            for part in made:
                self.examine(part, new=False)
            self.require_room(cube.namespace)
            return self._vault.at(part.id for part in made)

    # -- held against each other ---------------------------------------------------------------------------

    def consolidate(self, cubes: Iterable[MemCube]) -> list[MemCube]:
        """Each group of memories that say the same becomes one, with all of them as its sources; those made."""
        made = []
        for group in self._agreement.duplicates(cube for cube in cubes if cube.state not in LOCKED):
            probes = tuple(dict.fromkeys(p for c in group for p in text_of(c).probes))
            payload = text_of(group[0]).model_copy(update={"probes": probes})
            made += self._lifecycle.merge([_made(payload, group, self._vault.now())])
        return made

    # -- when true, when known -----------------------------------------------------------------------------

    def as_of(self, user: str, true_at: datetime, known_at: datetime) -> list[MemCube]:
        """The memories that held at one time, as far as they were known at another, as they read then."""
        ended = self._vault.superseded.of_user(user, known_at)
        return [
            cube
            for cube in self._vault.superseded.known(user, known_at)
            if cube.order[0] <= true_at
            and not (cube.header.expires and cube.header.expires <= true_at)
            and (
                cube.state in ANSWERING
                or (cube.id in ended and ended[cube.id] > true_at)
                or (cube.state is State.EXPIRED and cube.header.expires)  # later than that time
            )
        ]


def plaintext(op: Add, caller: Namespace, created: datetime) -> MemCube:
    return MemCube(
        id=new_id(),
        form=Form.PLAINTEXT,
        namespace=caller,
        rights=Rights(owner=caller.user_id),
        header=Header(
            created=created,
            expires=in_zone(op.expires),
            said=in_zone(op.said),
            origin=op.origin,
            trust=op.trust or Trust.USER,
            speaker=op.speaker,
            thread=op.thread,
            segment=op.segment,
            kind=op.kind,
            tags=op.tags,
            metadata=op.metadata,
        ),
        payload=Text(text=op.text, facts=op.facts, more=op.more, probes=op.probes),
    )


def _made(payload: Text, sources: Sequence[MemCube], created: datetime, segment: str | None = None) -> MemCube:
    """A memory made of others, oldest first, with what is known of the oldest: said later, it would overrule what has
    replaced a part of it since."""
    header = sources[0].header
    changed: dict[str, object] = {"created": created, "changed": None, "origin": "merge", "said": sources[0].order[0]}
    changed["tags"] = tuple(dict.fromkeys(tag for cube in sources for tag in cube.header.tags))
    return MemCube(
        id=new_id(),
        form=Form.PLAINTEXT,
        namespace=sources[0].namespace,
        rights=sources[0].rights,
        header=header.model_copy(update=changed | ({} if segment is None else {"segment": segment})),
        payload=payload,
        sources=tuple(Source(id=cube.id, version=cube.version) for cube in sources),
    )


def _content(text: str, statement: Add | Header) -> tuple[object, ...]:
    """What makes two statements the same."""
    return text, in_zone(statement.said), statement.speaker, statement.thread


def _is_known(cube: MemCube) -> bool:
    """In force, or put out of use since: the same words of the same time are no new memory then."""
    return cube.state in (*ANSWERING, State.MERGED) or (cube.state is State.ARCHIVED and cube.header.said is not None)


def _probes(cube: MemCube) -> set[Probe]:
    return set(text_of(cube).probes)


def _outlives(op: Add, cube: MemCube) -> bool:
    """True if a memory that may be changed would expire before the statement that is said again."""
    ends, until = cube.header.expires, in_zone(op.expires)
    return cube.state not in GONE | LOCKED and ends is not None and (until is None or until > ends)
