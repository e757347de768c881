"""Runs the policies that write, each for the callers whose policy it is; and the calls on what they have done.

    add -> told -> a thread of its own, while nobody calls:
    turns after the last one read -> an exchange -> on_turns -> operations -> one transaction with how far it has read

A run that fails changes nothing and is told in the log; what was said stays, and the system goes on behind it. One that
is killed is begun again by the next who asks. What is found waits for what is to be read where that is done by
rules. Must not know a system.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING
from uuid import uuid4

from memos.cube import ANSWERING, EPISODE, MemCube, Namespace, Text
from memos.errors import BadTransition, Denied, InputError, MemosError, NotFound
from memos.infrastructure.vault.audit.records import Decision
from memos.interface.reading.phrasebook import SPEAKER
from memos.kernel.calls import Services
from memos.kernel.unread import QUIET_S
from memos.lazy import Lazy
from memos.operation.finding.mem_operator import FoundMemory
from memos.ops import Get
from memos.plugins.chat_endpoint import Messages
from memos.plugins.curators import ops
from memos.plugins.curators.carrying_out import CarryingOut, maker
from memos.plugins.curators.curator import Curator, CuratorOp, CuratorOps, CuratorView, Writer
from memos.plugins.curators.rules import EMOTIONS
from memos.plugins.curators.signals import Neighbour, StoredLink
from memos.plugins.curators.tables import Curation, CuratorTables, Step, WriterCost
from memos.plugins.curators.tool_loop import MAX_STEPS, TOOL_LOOP, MemoryTools, ToolLoop, ToolTalk
from memos.plugins.curators.view import SAID, MemoriesInView
from memos.plugins.curators.writers import CountedWriter, LocalModel, model_of
from memos.rights import Caller

if TYPE_CHECKING:
    from datetime import datetime

    from memos.operation.finding.catalog import View

log = logging.getLogger("memos")
PAGE = 256  # turns that are looked for at once
MAX_RUNS = 1_000  # that are listed
Hook = Callable[[CuratorView, Writer], CuratorOps]


class Curators:
    """Policies that write, and links, for the callers of one kernel."""

    def __init__(self, services: Services) -> None:
        self._parts, self._keeping = services.parts, services.keeping
        parts = services.parts
        self._vault, self._governance, self._access = parts.vault, parts.governance, parts.access
        self._config, self._schedulers = parts.config.curators, parts.schedulers
        self._tables = CuratorTables(parts.vault.extensions)
        self._carrying_out = CarryingOut(parts, self._tables)
        self._model = model_of(self._config, parts.host)
        self._emotions = Lazy(lambda: parts.embedder().embed(EMOTIONS))
        self._locks: dict[str, threading.RLock] = defaultdict(threading.RLock)  # by user: one run at a time
        self._thread = Lazy(lambda: ThreadPoolExecutor(1, "memos-curators"))
        self._waiting: set[tuple[str, str]] = set()  # users and systems that the thread has to look at
        self._closing = threading.Event()

    # -- what the kernel calls -----------------------------------------------------------------------------

    def told(self, caller: Caller) -> None:
        """Have what was kept read in the background."""
        key = caller.user_id, self._schedulers.policy_of(caller)
        if key not in self._waiting and not self._closing.is_set():
            self._waiting.add(key)
            self._thread().submit(self._in_background, *key)

    def find(self, caller: Caller, policy: str, query: str, k: int, within: View) -> list[FoundMemory]:
        """What a system finds; first it reads what it has not, where that takes no language model."""
        curator = self._curator(policy)
        if self._model is None:
            self._read_on(caller.user_id, policy)
        else:
            self.told(caller)
        view, writer = self._view(caller, policy, within), self._writer(policy)
        found = curator.find(query, k, view, writer)
        self._pay(caller, policy, writer.cost)
        allowed = self._parts.operator().versions(within)
        return [FoundMemory(one.id, one.score, one.why) for one in found if one.id in allowed][:k]

    def before_answer(self, caller: Caller, question: str) -> None:
        name = self._schedulers.policy_of(caller)
        curator = self._curator(name)
        if type(curator).before_answer is not Curator.before_answer:  # else nobody waits for a run that goes on
            self._tried(caller, name, "before_answer", partial(curator.before_answer, question))

    def on_answer(self, caller: Caller, question: str, answer: str, used: Sequence[MemCube]) -> None:
        name = self._schedulers.policy_of(caller)
        curator = self._curator(name)
        run = partial(curator.on_answer, question, answer, used)
        if type(curator).on_answer is Curator.on_answer:
            return
        if self._model is None:
            self._tried(caller, name, "on_answer", run)
        elif not self._closing.is_set():  # nobody waits for a language model after the answer
            self._thread().submit(self._tried, caller, name, "on_answer", run)

    def on_idle(self, caller: Caller) -> None:
        self.curate(caller)

    def stop(self) -> None:
        """What is being read is read to its end; the next who opens the vault goes on."""
        self._closing.set()
        if thread := self._thread.if_made:
            thread.shutdown(cancel_futures=True)

    # -- the calls -----------------------------------------------------------------------------------------

    def curate(self, caller: Caller) -> int:
        """Let the caller's policy read what it has not read, and do what is due from time to time; the number of runs
        that have changed something. Raises InputError for a policy that writes nothing."""
        self._governance.permit(caller, ops.Curate())
        name = self._schedulers.policy_of(caller)
        curator = self._curator(name)
        if others := [system for system in self._tables.systems(caller.user_id) if system != name]:
            log.info("%s works over what was said; what %s has made of it stays apart", name, ", ".join(others))
        runs = self._read_on(caller.user_id, name)
        return runs + self._tried(_whole(caller.namespace), name, "on_idle", curator.on_idle)

    def curations(self, caller: Caller) -> list[Curation]:
        """The latest runs of curators over the caller's memories that are not undone, the last first."""
        self._governance.permit(caller, ops.ListCurations())
        return self._tables.runs(caller.user_id, MAX_RUNS)

    def undo_curation(self, caller: Caller, run: str) -> int:
        """Take back what one run has done: every memory reads as it did before; the number of operations taken back.
        Raises NotFound, and BadTransition where a later run rests on it."""
        self._governance.permit(caller, ops.UndoCuration(run=run))
        with self._locks[caller.user_id], self._vault.transaction():
            steps = self._tables.steps(caller.user_id, run)
            if not steps:
                raise NotFound(f"there is no run {run!r} of a curator to undo; `memos curators runs` lists them")
            if later := self._tables.later(caller.user_id, run):
                raise BadTransition(f"run {run} was built upon by {later[-1]}; undo that first")
            for step in steps:
                if self._vault.at([step.id]):
                    self._carrying_out.take_back(step)
            self._tables.undone(caller.user_id, run)
        return self._parts.freshness.changed(len(steps))

    def converse(self, caller: Caller, message: str, *, turns: Messages = ()) -> ToolTalk:
        """Answer a message with tools for memory (tool_loop.py), which the model of `curators.writer`, or else that of
        `model.path`, calls in steps held to a schema. The message is kept as a turn, which what the model keeps goes
        with; each call that changes something is a run to be undone. turns: the messages before it. Raises InputError,
        Unsupported, MemosError."""
        self._governance.permit(caller, ops.Converse(message=message))
        if not message.strip():
            raise InputError("the message is empty; say something")
        kept = self._keeping.add(caller, [{"role": "user", "content": message}])
        turn = [cube.id for cube in kept if _is_said(cube)][:1]
        write, view = partial(self._written, caller), partial(self._view, caller, TOOL_LOOP)
        tools = MemoryTools(view, write, caller.namespace, turn, self._vault.guard.shown)
        loop = ToolLoop(self._model or LocalModel(self._parts.host), tools, min(MAX_STEPS, self._config.calls))
        try:
            return loop.run(message, turns)
        finally:
            self._pay(caller, TOOL_LOOP, loop.cost)

    def writer_cost(self, caller: Caller, system: str) -> WriterCost:
        """What the writing of one system has taken for the caller so far."""
        self._governance.permit(caller, ops.ListCurations())
        return self._tables.spent(caller.user_id, system)

    def link(
        self,
        caller: Caller,
        a: str,
        b: str,
        kind: str,
        weight: float = 1.0,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> StoredLink:
        """Tie two memories, of any form; one link of a kind from a to b. since, until: when it is true. Raises
        InputError, NotFound, Denied."""
        if not kind.strip() or not 0 <= weight <= 1_000:
            raise InputError(f"a link of kind {kind!r} and weight {weight:g}: give a word, and 0 to 1000")
        one, other = self._tied(caller, a, b, kind)
        link = StoredLink(one, other, kind, weight, since, until)
        with self._vault.transaction():
            self._tables.link(link, str(caller))
        return link

    def unlink(self, caller: Caller, a: str, b: str, kind: str) -> bool:
        """Take a link away; False where there was none. Raises NotFound, Denied."""
        one, other = self._tied(caller, a, b, kind)
        with self._vault.transaction():
            return self._tables.unlink(one, other, kind) is not None

    def linked(self, caller: Caller, id: str) -> list[StoredLink]:
        """The links at or from a memory, to what the caller may see. Raises NotFound."""
        return [one.link for one in self.neighbours(caller, id)]

    def neighbours(self, caller: Caller, id: str) -> list[Neighbour]:
        """The same, each with the memory at its other end. Raises NotFound."""
        cube = self._access.cube(caller, Get(id=id), id)
        found = self._tables.links([cube.id])
        others = self._vault.at({end for link in found for end in (link.a, link.b)} - {cube.id})
        seen = {one.id: one for one in self._governance.visible(caller, others)}
        ends = [(link, seen.get(link.b if link.a == cube.id else link.a)) for link in found]
        return [Neighbour(self._as_read(caller, link, cube, end), end) for link, end in ends if end]

    def _as_read(self, caller: Caller, link: StoredLink, *ends: MemCube) -> StoredLink:
        """The kind is free text, and shown as tags are: whole to whoever owns both ends."""
        own = all(end.rights.owner == caller.user_id for end in ends)
        return link if own else link._replace(kind=self._vault.guard.shown(link.kind))

    def _tied(self, caller: Caller, a: str, b: str, kind: str) -> tuple[str, str]:
        op = ops.Tie(a=a, b=b, kind=kind)
        one, other = (self._access.cube(caller, op, id).id for id in (a, b))
        if one == other:
            raise InputError(f"cube {one} cannot be linked to itself; name two memories")
        return one, other

    # -- runs ----------------------------------------------------------------------------------------------

    def _curator(self, name: str) -> Curator:
        curator = self._schedulers.named(name).policy
        if not isinstance(curator, Curator):
            raise InputError(f"the policy {name!r} writes nothing; set policy to one that does, such as mem0")
        return curator

    def _view(self, caller: Caller, name: str, within: View | None = None) -> MemoriesInView:
        until = time.monotonic() + self._config.seconds
        return MemoriesInView(self._parts, self._tables, caller, name, within, until, self._emotions)

    def _writer(self, name: str) -> CountedWriter:
        return CountedWriter(self._model, name, self._config.calls)

    def _read_on(self, user: str, name: str, before_each: Callable[[], None] = lambda: None) -> int:
        """Have a system read what it has not, an exchange at a time; the number of runs that have changed something."""
        runs, curator = 0, self._curator(name)
        with self._locks[user]:
            while exchanges := list(_exchanges(self._unread(user, name))):
                self._parts.embedder().read(["ready"])  # loading it is nothing that a run should be cut off for
                for turns in exchanges:
                    before_each()
                    owner, last = _whole(turns[0].namespace), max(turn.id for turn in turns)
                    runs += self._tried(owner, name, "on_turns", partial(curator.on_turns, turns), read_to=last)
        return runs

    def _unread(self, user: str, name: str) -> list[MemCube]:
        """The next turns of a user's that the system has not read."""
        after, found = self._tables.after(user, name), list[MemCube]()
        while not found and (page := self._vault.statements.texts_after(after, PAGE)):
            after = page[-1].id
            own = (cube for cube in page if cube.namespace.user_id == user and cube.state in ANSWERING)
            found = [_as_turn(cube) for cube in own if _is_said(cube)]
        return found

    def _tried(self, caller: Caller, name: str, hook: str, run: Hook, read_to: str = "") -> int:
        """One run; 1 where it has changed something. What fails changes nothing, and is told."""
        with self._locks[caller.user_id]:
            writer, view, done = self._writer(name), self._view(caller, name), ""
            try:
                operations = list(islice(run(view, writer), self._config.operations + 1))
                if operations:
                    done = self._carried_out(caller, name, hook, operations, read_to)
                else:
                    self._read_to(caller, name, read_to)
            except MemosError as error:
                self._changed_nothing(caller, name, hook, error, read_to)
            except Exception as error:  # of a system's own, which nobody foresaw
                why = MemosError(f"it raised {type(error).__name__}: {error}")
                self._changed_nothing(caller, name, hook, why, read_to)
            self._pay(caller, name, writer.cost)
        if done:
            self._parts.freshness.changed(None)
        return bool(done)

    def _carried_out(self, caller: Caller, name: str, hook: str, operations: Sequence[CuratorOp], read_to: str) -> str:
        """All of it in one transaction: what is asked for, how it is undone, how far it has read, a line of the log.
        The id of the run; "" where nothing is to be undone."""
        run, steps = uuid4().hex[:12], list[Step]()

        def carry_out() -> None:
            steps.extend(self._carrying_out.carry_out(caller, name, operations, self._config.operations))
            if steps:
                self._tables.keep_run(run, caller.user_id, name, hook, steps)
            self._read_to(caller, name, read_to)

        self._governance.record(
            [Decision(str(caller), "write", f"run {run}", True, f"curate: {name} {hook}")], carry_out
        )
        return run if steps else ""

    def _written(self, caller: Caller, tool: str, operations: Sequence[CuratorOp]) -> str:
        """What a tool asks for, as one run; its id. Raises what carrying out raises."""
        with self._locks[caller.user_id]:
            try:
                run = self._carried_out(caller, TOOL_LOOP, tool, operations, "")
            except MemosError as error:
                self._changed_nothing(caller, TOOL_LOOP, tool, error, "")
                raise
        self._parts.freshness.changed(None)
        return run

    def _changed_nothing(self, caller: Caller, name: str, hook: str, why: MemosError, read_to: str) -> None:
        """The turns of a failed run are kept as they were said, and the system goes on behind them."""
        log.warning("%s changed nothing in %s: %s", name, hook, why)
        if isinstance(why, (Denied, NotFound)):
            self._governance.record(
                [
                    Decision(
                        str(caller), "write", "no cube", False, f"curate: {name} {hook} asked for what it may not do"
                    )
                ]
            )
        self._read_to(caller, name, read_to)

    def _read_to(self, caller: Caller, name: str, last: str) -> None:
        if last:
            with self._vault.transaction():
                self._tables.read_to(caller.user_id, name, last)

    def _pay(self, caller: Caller, name: str, cost: WriterCost) -> None:
        if cost.calls:
            with self._vault.transaction():
                self._tables.spend(caller.user_id, name, cost)

    def _in_background(self, user: str, name: str) -> None:
        self._waiting.discard((user, name))
        try:
            self._await_quiet()
            self._read_on(user, name, self._await_quiet)
        except KeyboardInterrupt:
            return
        except Exception:  # nobody waits for this thread, so nobody else would tell
            log.exception("%s failed", name)

    def _await_quiet(self) -> None:
        """Until nobody has called for a while. Raises KeyboardInterrupt as the kernel is closed."""
        while not self._closing.wait(0.2):
            if self._parts.embedder.if_made and self._parts.quiet_for() >= QUIET_S:
                return
        raise KeyboardInterrupt


def _is_said(cube: MemCube) -> bool:
    """True of a turn of a conversation, and of what was added as a statement; not of a passage, which is a part of a
    turn, nor of what any system has made."""
    return bool(cube.text) and not maker(cube) and not cube.sources


def _as_turn(cube: MemCube) -> MemCube:
    """What was added as a statement, or was kept as one that is all of a turn, as a turn: who said it stands beside its
    words, and not in them."""
    payload, header = cube.payload, cube.header
    if not isinstance(payload, Text) or header.kind in SAID:
        return cube
    words = payload.verbatim or SPEAKER.sub("", payload.text, count=1)
    return cube.model_copy(
        update={
            "payload": payload.model_copy(update={"verbatim": words}),
            "header": header.model_copy(update={"kind": EPISODE}),
        }
    )


def _whole(namespace: Namespace) -> Caller:
    """The user, or one of its agents, in all sessions: on whose behalf a system writes."""
    return Caller(namespace.model_copy(update={"session_id": ""}))


def _exchanges(turns: Sequence[MemCube]) -> Iterator[list[MemCube]]:
    """What one says with what others answer: as long as a conversation goes on, up to the next turn of the one that
    began."""
    exchange = list[MemCube]()
    for turn in turns:
        if exchange and (
            turn.namespace != exchange[0].namespace
            or turn.header.thread != exchange[0].header.thread
            or turn.header.speaker == exchange[0].header.speaker
            or not turn.header.thread
        ):
            yield exchange
            exchange = []
        exchange.append(turn)
    if exchange:
        yield exchange


def make(services: Services) -> Curators:
    return Curators(services)
