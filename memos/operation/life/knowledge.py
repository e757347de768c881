"""Keeps what is known current: counts what is told again, and archives what later statements replace.

Knows what memories say and where they come from. Must not know who may do so, nor how anything is found. Only the same
relation of the same subject is replaced, and only by what was said later. In doubt both stay.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from memos.cube import ANSWERING, EPISODE, GONE, Header, MemCube, State, Text, Trust, Turn, in_zone, new_cube, plain
from memos.errors import InputError, NoRoom
from memos.operation.life.mem_lifecycle import LOCKED, MemLifecycle

if TYPE_CHECKING:
    from memos.config import LimitsConfig
    from memos.cube import Fact, Namespace
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.ops import Add, Correct, Episode

_WORD = re.compile(r"\w+")
_SMALL = frozenset("a an the my our his her their some of".split())
HOLDING_MODES = ("is", "also", "now")  # modes of what holds once it has been said
_OF_TEXT = tuple(name for name in Text.model_fields if name != "type")  # which a statement has, too
# of a header, which a statement has as they are kept
_OF_HEADER = ("origin", "speaker", "role", "thread", "message_id", "segment", "kind", "tags", "metadata")
_MODES_AGAINST: dict[str, tuple[str, ...]] = {
    "ended": HOLDING_MODES,
    "now": ("is", "now", "ended"),
    "is": ("is", "now", "ended"),
    "also": ("ended",),
}


class StatementReader(Protocol):
    """What is asked of language here: what a text states, and of which sentences it consists."""

    def statement(self, text: str, speaker: str = "") -> Add | Correct: ...

    def says_no_more(self, text: str, speaker: str = "") -> bool:
        """True if a text says nothing beside facts that can be read in it."""

    def sentences(self, text: str) -> list[str]: ...


class Knowledge:
    """Works on the memories of one caller, who may see and change them."""

    def __init__(self, vault: MemVault, lifecycle: MemLifecycle, reader: StatementReader, limits: LimitsConfig) -> None:
        self._vault, self._lifecycle, self._reader, self._limits = vault, lifecycle, reader, limits

    def remember(
        self, ops: Sequence[Add | Correct], caller: Namespace, fold: bool = True, of: MemCube | None = None
    ) -> list[MemCube]:
        """Keep statements, and archive what they replace; for each the cube that holds it.

        The same words of the same speaker, time and thread are one statement, however often it is read. fold: what says
        again what a memory in force says is counted there instead (MemCube.usage.repeats). of: the turn that they were
        read in. All or nothing. Raises NoRoom.
        """
        if not ops:
            return []
        ops = [self._vault.guard.as_told(op) for op in ops]
        with self._vault.transaction():
            there = self._vault.statements.saying((op.text for op in ops), caller.user_id)
            there = [cube for cube in there if cube.namespace == caller]
            known = {_content(c.text, c.header, c.stored): c.id for c in there}
            same, ids = defaultdict[str, list[MemCube]](list), list[str]()  # by their words
            for cube in there:
                same[plain(cube.text)].append(cube)
            for op in ops:
                content = _content(op.text, op, op.sha256)
                known[content] = self._remember(op, caller, same[plain(op.text)], known.get(content), fold, of).id
                ids.append(known[content])
            if sum(map(len, same.values())) > len(there):
                self.require_room(caller)
            return self._vault.at(ids)

    # -- what was said ---------------------------------------------------------------------------------------

    def record(self, episodes: Sequence[Episode], caller: Namespace) -> list[MemCube]:
        """Keep turns of one conversation as they were said, with what is derived of each; the cubes of what is new, or
        of what was there already, of each turn its statements first. All or nothing. Raises NoRoom."""
        episodes = [episode.each(self._vault.guard.as_told) for episode in episodes]
        with self._vault.transaction():
            known = self._known_turns([episode.turn for episode in episodes], caller)
            kept = list[MemCube]()
            for episode, there in zip(episodes, known, strict=True):
                kept += [there] if there else self._record(episode, caller)
            if not all(known):
                self.require_room(caller)
            return self._vault.at(dict.fromkeys(cube.id for cube in kept))

    def _record(self, episode: Episode, caller: Namespace) -> list[MemCube]:
        turn, now = episode.turn, self._vault.now()
        if turn.kind != EPISODE:  # it is a statement
            [cube] = self.remember([turn], caller)
            if cube.header.created < now:  # that is known: the turn answers through what is
                said = plaintext(turn.model_copy(update={"kind": EPISODE}), caller, now)
                said = self._lifecycle.create(said.model_copy(update={"sources": (cube.pin,)}))
                self._vault.set_state(said.id, State.MERGED, f"says what {cube.id} says")
            return [cube]
        cube = self._lifecycle.create(plaintext(turn, caller, now))
        self.examine(cube)
        return [*self.derive(episode, cube), cube]

    def derive(self, episode: Episode, cube: MemCube) -> list[MemCube]:
        """Keep what is found of a turn beside it; the statements."""
        for part in episode.passages:
            passage = plaintext(part, cube.namespace, self._vault.now())
            self.examine(self._lifecycle.create(passage.model_copy(update={"sources": (cube.pin,)})))
        return self.remember(episode.statements, cube.namespace, of=cube)

    def _known_turns(self, turns: Sequence[Add], caller: Namespace) -> list[MemCube | None]:
        """For each turn the cube that it was kept as before, where the conversation, or its beginning, is given again.

        A turn that has a time or an id is known by that; the second of the same words at one time by the second. Turns
        without are known where all of a call are, one after the other, or where it begins with two or more that are.
        """
        if len(turns) == 1 and turns[0].kind != EPISODE and not turns[0].is_marked:
            return [None]  # it counts as told again
        there: dict[tuple[object, ...], list[MemCube]] = defaultdict(list)
        for cube in self._vault.statements.saying((turn.text for turn in turns), caller.user_id):
            if cube.namespace == caller and text_of(cube).verbatim and _is_known(cube):
                there[_content(cube.text, cube.header)].append(cube)
        found, last = list[MemCube | None](), ""
        for turn in turns:
            of_turn = there[_content(turn.text, turn)]
            same = next((c for c in of_turn if turn.is_marked or c.id > last), None)
            if same is not None:
                of_turn.remove(same)
                last = same.id
            found.append(same)
        if not all(turn.is_marked for turn in turns) and not all(found):
            begun = next(n for n, cube in enumerate(found) if cube is None)
            found = [
                cube if turn.is_marked or (begun > 1 and n < begun) else None
                for n, (turn, cube) in enumerate(zip(turns, found, strict=True))
            ]
        return found

    # -- what is known ---------------------------------------------------------------------------------------

    def _remember(
        self,
        op: Add | Correct,
        caller: Namespace,
        same: list[MemCube],
        known: str | None,
        fold: bool,
        of: MemCube | None,
    ) -> MemCube:
        """The cube that holds a statement; a new one is added to `same`, those of the same words. known: the id of one
        with the same content."""
        twin = None
        cube = next((c for c in self._vault.at([known] if known else []) if _is_known(c)), None)
        if fold and not op.sha256 and (cube is None or op.said is None):
            twin = self._twin(op, caller, same)
            cube = None if twin is None or self._is_overtaken(twin) else twin
            if cube:
                self._vault.usage.repeat(cube.id, in_zone(op.said), op.origin)
        if cube is not None:
            return cube if cube.state in LOCKED else self._completed(cube, op)
        cube = plaintext(op, caller, self._vault.now())
        cube = self._lifecycle.create(cube.model_copy(update={"sources": (of.pin,)}) if of else cube)
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
            cube = self._lifecycle.edit(cube.id, tags=tuple(dict.fromkeys((*cube.header.tags, *op.tags))))
        return self._lifecycle.edit(cube.id, expires=in_zone(op.expires)) if _outlives(op, cube) else cube

    def _twin(self, op: Add, caller: Namespace, same: Sequence[MemCube]) -> MemCube | None:
        """A memory in force that says just what the statement says, and can take what it adds."""
        near = list(same)  # what says the same in other words states the same fact
        if op.facts and not op.more:
            near += self._vault.statements.agreeing(op.facts[0], caller.user_id, ANSWERING)
        if not near:
            return None
        says = self.meaning(plaintext(op, caller, self._vault.now()))
        # as they are now: one may have been replaced by a statement before this one
        for cube in self._vault.at(c.id for c in near):
            new = (set(op.tags) - set(cube.header.tags)) | (set(op.probes) - set(text_of(cube).probes))
            adds = new or _outlives(op, cube)
            apart = (cube.namespace, cube.header.speaker) != (caller, op.speaker) or cube.state not in ANSWERING
            if not apart and not (cube.state in LOCKED and adds) and self.meaning(cube) == says:
                return cube
        return None

    def _is_overtaken(self, twin: MemCube) -> bool:
        """True if something else of the same things was told since: to tell this again then is to change it back."""
        about = (c for fact in stated(twin) for c in self._about(fact, twin, (*HOLDING_MODES, "ended")))
        return any(c.order > twin.order for c in about)

    def require_room(self, caller: Namespace) -> None:
        most = self._limits.of(caller.user_id).memories
        if most is not None and (count := self._vault.stats.count(caller.user_id, ANSWERING)) > most:
            raise NoRoom(
                f"{caller.user_id} may have {most} memories (limits.memories), and this would make it {count}; nothing "
                f"was added: delete or archive some, or raise the limit"
            )

    def _supersede(self, new: MemCube) -> None:
        """Archive what says nothing but what no longer holds, among earlier statements or the new one itself, where
        later ones arrived before it."""
        near = {c.id: c for fact in stated(new) for c in self._about(fact, new, modes_against(fact))}
        for cube in (*near.values(), new):
            if facts_out_of_force(cube, near.values() if cube is new else (new,)):
                self._retire(cube)

    def outdate(self, ids: Iterable[str], by: MemCube) -> None:
        """Archive memories that a later one ends, turns that say nothing else, and what was read in them."""
        for cube in self._vault.at(ids):
            words, turns = plain(said_words(cube)), self._vault.at(source.id for source in cube.sources)
            read = self._vault.derived(cube.id) if cube.header.kind == EPISODE else []
            whole = [turn for turn in turns if plain(said_words(turn)) == words]
            parts = [one for one in read if one.text and plain(said_words(one)) in words]
            for id in [one.id for one in (cube, *whole, *parts)]:
                if self._vault.get(id).state in ANSWERING:  # as it is by now
                    self._lifecycle.supersede(id, by.id)

    def _retire(self, cube: MemCube) -> None:
        """Archive a memory all of whose facts others have replaced; and what it was made of, where the same is true of
        that."""
        beside = {c.id: c for fact in stated(cube) for c in self._about(fact, cube, modes_against(fact))}
        gone = facts_out_of_force(cube, beside.values())
        if cube.state in ANSWERING and is_outdated(text_of(cube), gone):
            last = max((beside[id] for id in gone.values()), key=lambda c: c.order)
            self._lifecycle.supersede(cube.id, last.id)
            for source in self._vault.at(source.id for source in cube.sources):
                self._retire(source)
            self.outdate([cube.id], last)  # and the turn that says nothing else

    def _about(self, fact: Fact, cube: MemCube, modes: tuple[str, ...]) -> list[MemCube]:
        """The statements in force beside the cube that speak of what a fact of it does, in one of these modes."""
        found = self._vault.statements.stating(fact, modes, cube.namespace.user_id, ANSWERING) if modes else []
        return [c for c in found if c.namespace == cube.namespace and c.id != cube.id]

    def meaning(self, cube: MemCube) -> object:
        """The same for memories that say the same: the same facts and nothing beside them, or the same words. What is
        no lasting fact must have been said on the same day, in the same conversation: it may have happened again."""
        payload, day = text_of(cube), cube.header.said
        if not payload.facts or payload.more:
            return plain(payload.text), day and day.date(), cube.header.thread
        if not self._reader.says_no_more(payload.text, cube.header.speaker):
            return plain(payload.text)
        modes = {"now": "is"}  # both say the same of what holds
        facts = payload.facts
        return frozenset(
            (f.subject.casefold(), f.relation, f.object.casefold(), modes.get(f.mode, f.mode)) for f in facts
        )


def plaintext(op: Add, caller: Namespace, created: datetime) -> MemCube:
    header = Header(
        created=created,
        expires=in_zone(op.expires),
        said=in_zone(op.said),
        trust=op.trust or Trust.USER,
        **{name: getattr(op, name) for name in _OF_HEADER},
    )
    return new_cube(caller, header, Text(**{name: getattr(op, name) for name in _OF_TEXT}))


def _content(text: str, statement: Add | Header, file: str | None = "") -> tuple[object, ...]:
    """What makes two statements the same. file: the digest of the one beside the text."""
    return text, in_zone(statement.said), statement.speaker, statement.thread, statement.message_id, file or ""


def _is_known(cube: MemCube) -> bool:
    """In force, or put out of use since: the same words of the same time are no new memory then."""
    return cube.state in (*ANSWERING, State.MERGED) or (cube.state is State.ARCHIVED and cube.header.said is not None)


def _outlives(op: Add, cube: MemCube) -> bool:
    """True if a memory that may be changed would expire before the statement that is said again."""
    ends, until = cube.header.expires, in_zone(op.expires)
    return cube.state not in GONE | LOCKED and ends is not None and (until is None or until > ends)


def text_of(cube: MemCube) -> Text:
    """The payload of a plaintext cube. Raises InputError for a derived one, and for a turn of a conversation."""
    if isinstance(cube.payload, Turn):
        raise InputError(f"cube {cube.id} is a turn of a conversation, and no memory; name one that `memos ls` lists")
    if not isinstance(cube.payload, Text):
        raise InputError(
            f"cube {cube.id} is {cube.form}: it holds no text of its own; name the memories it was made from"
        )
    return cube.payload


def replaces(later: Fact, earlier: Fact) -> bool:
    """True if the earlier one no longer holds once the later one is said."""
    if later.subject.casefold() != earlier.subject.casefold() or later.relation not in ("", earlier.relation):
        return False
    match later.mode, earlier.mode:
        case "ended", ("is" | "also" | "now"):
            return not later.object or _covers(later.object, earlier.object)
        case (("is" | "also" | "now"), "ended"):  # "I don't eat fish", "I eat fish again"
            return bool(earlier.object) and _key(earlier.object) == _key(later.object)
        case "now", ("is" | "now"):
            return not _alike(later.object, earlier.object)
        case "is", ("is" | "now"):
            return later.sole and earlier.sole and not _alike(later.object, earlier.object)
        case _:
            return False


def contradicts(one: Fact, other: Fact) -> bool:
    """True if both are said to hold and only one can: of one subject, what has one value at a time."""
    about = one.subject.casefold() == other.subject.casefold() and one.relation == other.relation
    both = one.sole and other.sole and "also" not in (one.mode, other.mode) and one.holds and other.holds
    return about and both and not _alike(one.object, other.object)


def modes_against(fact: Fact) -> tuple[str, ...]:
    """The modes of other facts that may replace this one, or be replaced by it."""
    if fact.mode == "is" and not fact.sole:
        return "now", "ended"
    return _MODES_AGAINST.get(fact.mode, ())


def is_outdated(text: Text, gone: Collection[Fact]) -> bool:
    """True if a statement says nothing but facts that no longer hold."""
    return bool(text.facts) and not text.more and all(fact in gone for fact in text.facts)


def facts_out_of_force(cube: MemCube, others: Iterable[MemCube]) -> dict[Fact, str]:
    """Which facts of a statement no longer hold, each with the id of the first later statement that replaced it."""
    found: dict[Fact, str] = {}
    for other in sorted(others, key=lambda c: c.order):
        if other.order > cube.order and other.id != cube.id:
            for fact in stated(cube):
                if any(replaces(later, fact) for later in stated(other)):
                    found.setdefault(fact, other.id)
    return found


def said_words(cube: MemCube) -> str:
    """What was said, without who said it and when; "" for what is no text."""
    return cube.payload.verbatim or cube.text if isinstance(cube.payload, Text) else ""


def stated(cube: MemCube) -> tuple[Fact, ...]:
    """The facts of a statement; none for what is no statement."""
    return cube.payload.facts if isinstance(cube.payload, Text) else ()


def _key(words: str) -> tuple[str, ...]:
    return tuple(word for word in _WORD.findall(words.casefold()) if word not in _SMALL)


def _alike(a: str, b: str) -> bool:
    """True if one object may be the other, said more closely: "nurse" and "night nurse"."""
    one, other = _key(a), _key(b)
    if len(one) == len(other) == 1 and not (one[0].isascii() or other[0].isascii()):
        return one[0] in other[0] or other[0] in one[0]  # "北京朝阳区" and "北京"
    return set(one) <= set(other) or set(other) <= set(one)


def _covers(ended: str, holding: str) -> bool:
    """True if what has ended is what was held: "cat" ends "grey cat", and "tennis" ends "tennis club"'s sport not."""
    one, other = _key(ended), _key(holding)
    if not one or not other:
        return False
    if len(one) == len(other) == 1 and not (one[0].isascii() and other[0].isascii()):
        return one[0].endswith(other[0]) or other[0].endswith(one[0])  # "灰猫" is a "猫"
    short, long = sorted((one, other), key=len)
    return long[-len(short) :] == short or _singular(long) == _singular(short)


def _singular(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(re.sub(r"(?<=\w{2})s$", "", word) for word in words)
