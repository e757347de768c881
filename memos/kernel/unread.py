"""Has turns read again in the background: by the tagger of statements, or those that no rule reads by the local model.

Knows which turns wait and what of an answer is a memory. Must not know how either reads, nor what rules read.

    one job, from the first new turn on -> the tagger -> memories, and what they put out of force
    reader.model: kept in UNREAD -> a job for each batch -> one answer of the model -> memories, and the turns in READ

The tagger reads while nobody calls, so that no call waits for it. A turn that the model has read is a version derived
from the memories that were made of it: it goes with any of them.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import defaultdict
from concurrent.futures import Future, wait
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from memos.cost import metered
from memos.cube import (
    ANSWERING,
    MOMENT,
    SUMMARY,
    TOLD,
    USER,
    Form,
    MemCube,
    Namespace,
    Source,
    Text,
    Trust,
    Turn,
    new_id,
)
from memos.cube import READ as ORIGIN
from memos.errors import Cancelled, ContextOverflow, HostError, MemosError, VaultError
from memos.infrastructure.vault.tables.job_list import DIED, Job, sources_of
from memos.interface.reading import extraction
from memos.interface.reading.documents.parts import DialogueTurn
from memos.kernel.access import Service, Summing
from memos.operation.choosing.upkeep import JobKind, Upkeep
from memos.operation.life.knowledge import said_words
from memos.operation.life.knowledge import stated as facts_of
from memos.operation.policies.policy import asks, terms
from memos.ops import Add
from memos.rights import Caller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from memos.kernel.wiring import Parts

log = logging.getLogger("memos")
READ_TURNS = JobKind.READ_TURNS
UNREAD, READ = "turns to read", "turns read"  # segments
QUIET_S = 1.0  # after the last call, before the tagger goes on
NEAR = 6  # memories that a turn may put out of force
PAGE = 64  # turns that are looked at at once
MAX_COMPARED_CHARS = 100  # of a turn that may put others out of force, or be put so: what is longer says more
_RESOLVED = re.compile(r" \(\d{4}(?:-\d\d)*(?:/\d{4}(?:-\d\d)*)?\)(?=\W*$)")  # days that the reader put behind words
_OF_TURN = ("said", "expires", "tags", "metadata", "role", "origin", "trust")  # that statements in it have, too
_GIVEN_UP = (DIED, "cancelled")  # how a job has ended that is not tried again


class Unread(Service):
    """What conversations leave, and what becomes of it."""

    def __init__(self, parts: Parts, summing: Summing) -> None:
        super().__init__(parts)
        self._parts, self._summing = parts, summing
        self._upkeep = Upkeep(parts.vault, lambda: True, lambda job, _: self.act(job, self._await_quiet))
        self._failed: set[tuple[str, ...]] = set()  # jobs, by their turns, that are not tried again by this process
        self._closing, self._hurry = threading.Event(), threading.Event()
        self._reading: Future[None] | None = None
        self._lock = threading.Lock()

    def keep(self, episodes: Iterable[MemCube], caller: Caller) -> list[MemCube]:
        """Let turns wait to be read, each as a copy beside what it is kept as; on disk when this returns. Raises
        Denied."""
        cubes = [_cube(episode, self._vault.now()) for episode in episodes]
        for cube in cubes[:1]:
            self._governance.permit(caller, Add(text=cube.id))
        with self._vault.transaction():
            return [self._lifecycle.create(cube) for cube in cubes]

    def begin(self, caller: Caller) -> None:
        """Have read in the background what has gathered, and what another process has left queued.

        The model is loaded here, the first time: large libraries that two threads import at once meet each other's
        half-made modules. Where there is none, the turns wait.
        """
        if not (self._queue(self._batches(caller, timedelta.max)) or self._vault.jobs.all("queued", kind=READ_TURNS)):
            return
        try:
            self._host()
        except HostError as error:
            log.warning("turns wait to be read: %s", error)
        else:
            self._upkeep.soon(READ_TURNS)

    def plan(self, caller: Caller) -> list[str]:
        """Queue what has gathered, and what has lain for a while; the ids of the jobs."""
        if not self._config.reader.model:
            return []
        return self._queue(self._batches(caller, timedelta(seconds=self._config.reader.after_s)))

    def stop(self) -> None:
        """What the model is reading is read to its end; the tagger's job goes on when the vault is opened again. After
        a process of few calls nobody might open it for long: what is left there is read, where it is little."""
        try:
            if self._parts.brief:
                self.finish_few(PAGE)
        except VaultError as error:  # whoever closes it closes it all the same
            log.warning("what waits to be read is read later: %s", error)
        finally:
            self._closing.set()
            self._upkeep.stop()

    # -- the tagger ----------------------------------------------------------------------------------------

    def read_from(self, first: str) -> None:
        """Have the turns from this one on read by the tagger in the background."""
        with self._lock:
            is_new = not self._after()  # who reads by an open job, here or elsewhere, comes to this turn too
            if is_new:
                payload = {"sources": [], "after": first[:-1], "why": "turns that no rule reads"}
                self._vault.jobs.queue(READ_TURNS, payload, READ_TURNS.priority)
            if is_new or self._reading is None or self._reading.done():
                self._reading = self._upkeep.soon(READ_TURNS, self._await_quiet)

    def resume(self) -> None:
        """Go on with what another process has left."""
        if self._after():
            self._reading = self._upkeep.soon(READ_TURNS, self._await_quiet)

    def _after(self) -> list[str]:
        """What the turns that wait for the tagger come after, where any do."""
        return [str(job.payload["after"]) for job in self._vault.jobs.open(READ_TURNS) if "after" in job.payload]

    def finish(self, timeout_s: float | None = None) -> None:
        """Have what waits for the tagger read now, and wait for it; after the timeout it is read later."""
        self._hurry.set()
        try:
            if self._reading is not None and not self._reading.cancelled():
                wait([self._reading], timeout_s)
        finally:
            self._hurry.clear()

    def finish_few(self, most: int, timeout_s: float | None = None) -> None:
        """The same, where fewer turns than `most` wait."""
        if any(len(self._vault.statements.texts_after(first, most)) < most for first in self._after()):
            self.finish(timeout_s)

    def _await_quiet(self) -> None:
        """Until nobody has called for a while, and the encoder is loaded: large libraries that two threads import at
        once meet each other's half-made modules. Raises KeyboardInterrupt, as the kernel is closed."""
        while not self._closing.is_set() and not self._hurry.is_set():
            if self._embedder.if_made and self._parts.quiet_for() >= QUIET_S:
                return
            self._hurry.wait(min(0.1, QUIET_S))
        if self._closing.is_set():
            raise KeyboardInterrupt

    def _read_on(self, job: Job, before_each: Callable[[], None]) -> int:
        """Read every turn after that of a job, and end it; the number of memories that were made. Then what its users
        have said so far is summed up."""
        after, made, users = str(job.payload["after"]), 0, set[str]()
        while True:
            with self._vault.transaction():  # a turn that is kept from here on finds no open job
                if not (turns := self._vault.statements.texts_after(after, PAGE)):
                    self._vault.jobs.end(job, "done", f"{made} memories")
                    break
            for turn in turns:
                before_each()
                after = turn.id
                users.add(turn.namespace.user_id)
                try:
                    made += self._read_tagged(turn, job) if _is_said(turn) else 0
                except Cancelled:  # another has the job
                    raise
                except MemosError as error:  # the others' turn comes all the same
                    log.warning("turn %s stays unread: %s", turn.id, error)
            self._vault.jobs.describe(job, job.payload | {"after": after})
        for user in sorted(users):
            before_each()
            try:
                self._summing.sum_up(Caller(Namespace(user_id=user)))
            except MemosError as error:  # a turn was changed meanwhile: the next time tries again
                log.warning("what %s has said is not summed up: %s", user, error)
        return made

    def _read_tagged(self, turn: MemCube, job: Job) -> int:
        """Keep the facts that a turn states, and archive what it puts out of force, if the rules have read no fact in
        it; the number of memories made."""
        header, speaker = turn.header, turn.header.speaker or USER
        words = _RESOLVED.sub("", said_words(turn).removeprefix(f"{speaker}: "))
        read = [cube for cube in self._vault.derived(turn.id) if cube.header.kind != SUMMARY]
        day = _day(turn)
        if any(known for cube in (turn, *read) for known in facts_of(cube)):
            return 0
        if not (stated := self._reader.stated(words, speaker, day)):
            return 0
        known = {name: getattr(header, name) for name in _OF_TURN}
        facts = [one for one in stated if one.facts and not any(cube.text for cube in read)]
        found = [self._reader.of_statement(one, speaker, header.said).model_copy(update=known) for one in facts]
        near = self._near(turn)
        vectors = [vector for vector, _ in self._embedder().read([*map(said_words, near), words])] if near else []
        ended, own = list[str](), set(terms(words, query=True))
        for cube, vector in zip(near, vectors, strict=False):
            earlier, alike = said_words(cube), float(vector @ vectors[-1])
            before = set(terms(earlier, query=True))
            if self._reader.ends(earlier, words, alike, speaker, day, len(own & before) / max(1, len(before))):
                ended.append(cube.id)
        for op in found[:1]:
            self._governance.permit(Caller(turn.namespace), op)
        with self._vault.transaction():
            self._vault.jobs.require(job)
            if not [now for now in self._vault.at([turn.id]) if now.version == turn.version and now.state in ANSWERING]:
                return 0
            made = self._knowledge.remember(found, turn.namespace, of=turn)
            self._knowledge.outdate(ended, turn)
        self._freshness.changed(ended)
        return len(made)

    def _near(self, turn: MemCube) -> list[MemCube]:
        """The memories nearest to a turn that the same one has said before it."""
        words = said_words(turn)
        if len(words) > MAX_COMPARED_CHARS:
            return []
        found = self._operator().search(words, NEAR + 1, self._access.view(Caller(turn.namespace)))
        return [
            cube
            for cube in self._vault.at(one.id for one in found)
            if cube.order < turn.order
            and _day(cube) != _day(turn)  # of one conversation, one goes on with the other
            and cube.namespace == turn.namespace
            and cube.header.speaker == turn.header.speaker
            and 0 < len(said_words(cube)) <= MAX_COMPARED_CHARS
            and cube.state in ANSWERING
        ]

    # -- the local model -----------------------------------------------------------------------------------

    def _batches(self, caller: Caller, quiet: timedelta) -> list[list[MemCube]]:
        """The caller's turns that no job is about, conversation by conversation: as many as are read together, or
        fewer where the last was kept that long ago."""
        taken = {id for job in self._vault.jobs.open(READ_TURNS) for id in sources_of(job)}
        talks: dict[object, list[MemCube]] = defaultdict(list)
        for cube in self._vault.cubes(form=Form.PLAINTEXT, states=ANSWERING, segment=UNREAD):
            own = caller.covers(cube.namespace) and cube.rights.owner == caller.user_id
            if own and isinstance(cube.payload, Turn) and cube.id not in taken:
                talks[cube.namespace, cube.header.origin].append(cube)
        most, now, found = self._config.reader.every_turns, self._vault.now(), list[list[MemCube]]()
        for talk in talks.values():
            talk.sort(key=lambda cube: cube.id)
            ended = now - talk[-1].header.created >= quiet
            cut = [talk[start : start + most] for start in range(0, len(talk), most)]
            found += [batch for batch in cut if ended or len(batch) == most]
        return found

    def _queue(self, batches: Iterable[Sequence[MemCube]]) -> list[str]:
        ended = self._vault.jobs.all("undone", kind=READ_TURNS)
        refused = self._failed | {_key(job) for job in ended if job.note in _GIVEN_UP}
        pinned = [[f"{cube.id}@{cube.version}" for cube in batch] for batch in batches]
        wanted = [sources for sources in pinned if tuple(sources) not in refused]
        payloads = [{"sources": sources, "why": f"{len(sources)} turns that no rule reads"} for sources in wanted]
        return [self._vault.jobs.queue(READ_TURNS, payload, READ_TURNS.priority) for payload in payloads]

    # -- reading -------------------------------------------------------------------------------------------

    def act(self, job: Job, before_each: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Read a batch for the owner of its turns, or all turns from one on; what came of it. What fails leaves the
        turns as they are. before_each: called before the tagger reads a turn."""
        done = {"move": job.kind, "why": job.payload.get("why", ""), "cube": "", "memories": 0}
        if "after" in job.payload:
            return done | {"memories": self._read_on(job, before_each)}
        turns = self._waiting(sources_of(job))
        if not turns:  # deleted, or read by another meanwhile
            return done
        try:
            with metered() as spent:
                made = self._freshness.changed(self._learn(turns, self._found(turns), job))
        except Cancelled:  # another has the job
            raise
        except MemosError:
            self._failed.add(_key(job))
            raise
        cost = {"model_calls": spent.model_calls, "tokens": spent.tokens}
        return done | {"cube": made[0].id if made else "", "memories": len(made)} | cost

    def _waiting(self, ids: Iterable[str]) -> list[MemCube]:
        return [c for c in self._vault.at(ids) if c.header.segment == UNREAD and c.state in ANSWERING]

    def _found(self, turns: Sequence[MemCube]) -> dict[str, list[Add]]:
        """What the model finds in each turn, by its id. Raises ContextOverflow, HostError."""
        shown = [self._vault.guard.as_shown(cube) for cube in turns]
        prompt = extraction.prompt([DialogueTurn(c.header.speaker, _words(c), c.header.said) for c in shown])
        answer = ""
        for facts in (len(turns), extraction.FEW):  # in a small context there is room for few
            answer = answer or self._host().extract([prompt], extraction.schema(facts))[0]
        if not answer:
            raise ContextOverflow(
                f"{len(turns)} turns and what may be found in them do not fit the model's context; lower "
                "reader.every_turns, or set model.path to a model with a longer one"
            )
        parsed = extraction.parsed(answer)
        if parsed is None:
            raise HostError("what the model found is not of the schema; set model.path to another model")
        found: dict[str, list[Add]] = {cube.id: [] for cube in turns}
        for n, statement in extraction.statements(parsed):
            if n < len(shown) and _rests_on(statement, shown[n]):
                found[turns[n].id].append(self._memory(statement, turns[n]))
        return found

    def _memory(self, statement: str, turn: MemCube) -> Add:
        """A statement of the model as one to remember. It replaces nothing: where a fact of it stands against what is
        known, the statement is kept without its facts."""
        header = turn.header
        op = self._reader.attributed(statement, header.speaker)
        if self._knowledge.disputes(op, turn.namespace):
            op = op.model_copy(update={"facts": (), "more": False, "kind": "note"})
        known = {name: getattr(header, name) for name in ("speaker", "said", "expires", "tags", "metadata")}
        trust = max((Trust.MODEL, header.trust), key=lambda trust: trust.rank)
        return op.model_copy(update={**known, "origin": f"{ORIGIN}{turn.id}", "trust": trust})

    def _learn(self, turns: Sequence[MemCube], found: Mapping[str, Sequence[Add]], job: Job) -> list[MemCube]:
        """All of it or nothing, so that what is read again after a crash is learnt once. Of a turn that was deleted
        meanwhile nothing is. Raises NoRoom."""
        for op in [op for ops in found.values() for op in ops][:1]:
            self._governance.permit(Caller(turns[0].namespace), op)
        made: list[MemCube] = []
        with self._vault.transaction():
            self._vault.jobs.require(job)
            for turn in self._waiting(turn.id for turn in turns):
                episode = next(iter(self._vault.at(source.id for source in turn.sources)), None)
                kept = self._knowledge.remember(found[turn.id], turn.namespace, of=episode)
                self._lifecycle.attach(turn.id, kept, READ)
                made += kept
        return made


def _cube(episode: MemCube, now: datetime) -> MemCube:
    id = new_id()
    header = episode.header.model_copy(update={"created": now, "segment": UNREAD, "kind": "turn", "thread": ""})
    return MemCube(
        id=id,
        form=Form.PLAINTEXT,
        namespace=episode.namespace,
        rights=episode.rights,
        header=header,
        payload=Turn(question=episode.words, answer="", since=id[:MOMENT]),
        sources=(Source(id=episode.id, version=episode.version),),
    )


def _is_said(cube: MemCube) -> bool:
    """True for what a person has said, whole, that is in force."""
    spoken = isinstance(cube.payload, Text) and (cube.payload.verbatim or cube.header.origin in TOLD)
    return bool(spoken) and not cube.sources and cube.header.trust is not Trust.MODEL and cube.state in ANSWERING


def _day(cube: MemCube) -> date:
    return (cube.header.said or cube.header.created).date()


def _words(turn: MemCube) -> str:
    return turn.payload.question if isinstance(turn.payload, Turn) else ""


def _key(job: Job) -> tuple[str, ...]:
    return tuple(job.payload["sources"])


def _rests_on(statement: str, turn: MemCube) -> bool:
    """True if at least half of what a statement says beside the speaker's name stands in the turn."""
    if asks(statement) or "\ufffd" in statement:
        return False
    said, names = set(terms(_words(turn))), set(terms(turn.header.speaker))
    matter = [term for term in terms(statement, query=True) if term not in names]
    shared = sum(term in said for term in matter)
    return shared > 0 and 2 * shared >= len(matter)
