"""Stores turns that the rules could not read, and has the local model read several at once in the background.

Knows which turns wait and what of an answer is a memory. Must not know how the model answers, nor what rules read.

    kept in UNREAD -> a job for each batch -> one answer of the model -> memories, and the turns in READ

A turn that was read is a version derived from the memories that were made of it: it goes with any of them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from memos.cost import metered
from memos.cube import ANSWERING, MOMENT, Form, MemCube, Source, Trust, Turn, new_id
from memos.cube import READ as ORIGIN
from memos.errors import ContextOverflow, HostError, MemosError
from memos.infrastructure.vault.tables.job_list import OPEN, Job, sources_of
from memos.interface.reading import extraction
from memos.interface.reading.documents.parts import DialogueTurn
from memos.kernel.access import Service
from memos.operation.choosing.upkeep import JobKind, Upkeep
from memos.operation.policies.policy import asks, terms
from memos.ops import Add
from memos.rights import Caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memos.kernel.wiring import Parts

log = logging.getLogger("memos")
READ_TURNS = JobKind.READ_TURNS
UNREAD, READ = "turns to read", "turns read"  # segments
_GIVEN_UP = ("its process died", "cancelled")  # how a job has ended that is not tried again


class Unread(Service):
    """What conversations leave, and what becomes of it."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._upkeep = Upkeep(parts.vault, lambda: True, lambda job, _: self.act(job))
        self._failed: set[tuple[str, ...]] = set()  # jobs, by their turns, that are not tried again by this process

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
        if not (self._queue(self._batches(caller, timedelta.max)) or self._vault.jobs.all("queued", READ_TURNS)):
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
        """What is being read is read to its end."""
        self._upkeep.stop()

    def _batches(self, caller: Caller, quiet: timedelta) -> list[list[MemCube]]:
        """The caller's turns that no job is about, conversation by conversation: as many as are read together, or
        fewer where the last was kept that long ago."""
        taken = {id for state in OPEN for job in self._vault.jobs.all(state, READ_TURNS) for id in sources_of(job)}
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
        ended = self._vault.jobs.all("undone", READ_TURNS)
        refused = self._failed | {_key(job) for job in ended if job.note in _GIVEN_UP}
        pinned = [[f"{cube.id}@{cube.version}" for cube in batch] for batch in batches]
        return [
            self._vault.jobs.queue(READ_TURNS, {"sources": sources, "why": f"{len(sources)} turns that no rule reads"})
            for sources in pinned
            if tuple(sources) not in refused
        ]

    # -- reading -------------------------------------------------------------------------------------------

    def act(self, job: Job) -> dict[str, Any]:
        """Read a batch for the owner of its turns; what came of it. What fails leaves the turns as they are."""
        turns = self._waiting(sources_of(job))
        done = {"move": job.kind, "why": job.payload.get("why", ""), "cube": "", "memories": 0}
        if not turns:  # deleted, or read by another meanwhile
            return done
        try:
            with metered() as spent:
                made = self._freshness.changed(self._learn(turns, self._found(turns)))
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

    def _learn(self, turns: Sequence[MemCube], found: Mapping[str, Sequence[Add]]) -> list[MemCube]:
        """All of it or nothing, so that what is read again after a crash is learnt once. Of a turn that was deleted
        meanwhile nothing is. Raises NoRoom."""
        for op in [op for ops in found.values() for op in ops][:1]:
            self._governance.permit(Caller(turns[0].namespace), op)
        made: list[MemCube] = []
        with self._vault.transaction():
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
