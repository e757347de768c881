"""What each system shows for a question: turns added by the public `add`, memories found by the public `search`.

Systems that only read share one user of a vault that is made for one conversation; one that writes has its own. Three
are no policies: `none` shows nothing, `full-context` all that was said, and `oracle` the evidence that the data names.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from memos.bench.arena import SharedParts
from memos.bench.conversations import MAX_LISTED, STATES, added, read_back
from memos.bench.dialogues import Conversation, Question
from memos.bench.qa.records import Shown, Value
from memos.config import Config
from memos.errors import InputError
from memos.interface.doors.api.memory import Memory as MemoryAPI
from memos.kernel.mem_os import MemOS
from memos.operation.policies.policy import POLICIES, Writes
from memos.plugins.curators.calls import CuratorCalls

NONE, FULL_CONTEXT, ORACLE, OURS = "none", "full-context", "oracle", "memos"
BASELINES = (NONE, FULL_CONTEXT, "plain-rag", OURS, ORACLE)  # that every report has
READERS = "all who read"  # the user whom systems share that only read
Progress = Callable[[int, int], None]  # (questions done, of how many)


class Memory(Value):
    """A memory as it was found. turns: names of the turns that it stands for."""

    text: str
    words: str
    speaker: str
    said: str
    turns: tuple[str, ...]


class Cost(Value):
    """What a system's writing of a conversation took: calls of a model, and their tokens; where rules write, those that
    a model would have been asked."""

    calls: int = 0
    tokens: int = 0


class Exhibit(Value):
    """What is shown of one conversation. found: for each system and question (by its place in the file), which of the
    memories, best first, with their scores. writer: of each system; nothing of those that only read."""

    turns: int
    memories: tuple[Memory, ...]
    found: dict[str, tuple[tuple[tuple[int, float], ...], ...]]
    writer: dict[str, Cost]

    def shown(self, system: str, question: int) -> tuple[Shown, ...]:
        return tuple(
            Shown(**self.memories[n].model_dump(exclude={"turns"}), score=score)
            for n, score in self.found[system][question]
        )

    def recall(self, system: str, question: int, evidence: Sequence[str]) -> float:
        """The share of the evidence that is shown."""
        turns = {name for n, _ in self.found[system][question] for name in self.memories[n].turns}
        return len(turns & set(evidence)) / len(set(evidence))


def named_systems(names: Sequence[str], has_evidence: bool) -> tuple[str, ...]:
    """The baselines, then those that are named. Raises InputError."""
    for name in names:
        if name not in BASELINES:
            POLICIES.require(name)
    if ORACLE in names and not has_evidence:
        raise InputError("the data names no evidence, which the system oracle would show; leave it out of --systems")
    every = dict.fromkeys([*BASELINES, *names])
    return tuple(name for name in every if has_evidence or name != ORACLE)


def exhibit(systems: Sequence[str], conversation: Conversation, config: Config, budget: int, show: Progress) -> Exhibit:
    """What each system shows for each question that is asked of the conversation."""
    asked, ask_of = conversation.asked, [name for name in systems if name != NONE]
    users = {name: name for name in systems if name not in BASELINES and _writes(name, config)}
    places, memories = dict[str, int](), list[Memory]()  # by id: no id is of two users
    found: dict[str, tuple[tuple[tuple[int, float], ...], ...]] = {NONE: ((),) * len(asked)}
    with tempfile.TemporaryDirectory() as folder:
        parts = SharedParts(config.model_copy(update={"policies": users}), vault=Path(folder) / "vault")
        with MemOS(parts=parts) as kernel:
            api, told = MemoryAPI(kernel=kernel), dict[str, _Told]()
            for done, name in enumerate(ask_of):
                user = users.get(name, READERS)
                if user not in told:
                    told[user] = _Told(conversation, api, user)
                of_name = []
                for question in asked:
                    hits = told[user].hits(name, question, budget)
                    for hit in hits:
                        if hit["id"] not in places:
                            places[hit["id"]] = len(memories)
                            memories.append(told[user].memory(hit))
                    of_name.append(tuple((places[hit["id"]], float(hit.get("score", 0))) for hit in hits))
                    show(done * len(asked) + len(of_name), len(ask_of) * len(asked))
                found[name] = tuple(of_name)
            writer = {name: _cost(kernel, name, users.get(name)) for name in systems}
    return Exhibit(
        turns=len(conversation.turns),
        memories=tuple(memories),
        found={name: found[name] for name in systems},
        writer=writer,
    )


class _Told:
    """A user to whom a conversation was told, once all of it can be found. said: the turns as they are kept."""

    def __init__(self, conversation: Conversation, api: MemoryAPI, user: str) -> None:
        self._api, self._user = api, user
        added(conversation.turns.values(), self._call)
        self._call("search", query="ready", top_k=1)
        self._named = read_back(conversation, self._call)[0]  # for an id the names of the turns that it stands for
        every = chain(*(self._call("get_all", state=one, limit=MAX_LISTED)["results"] for one in STATES))
        self._said = [one for one in every if not one["sources"]]  # not what was read in a turn, nor a part of one

    def _call(self, method: str, **given: Any) -> dict[str, Any]:
        return dict(getattr(self._api, method)(user_id=self._user, **given))

    def hits(self, system: str, question: Question, budget: int) -> list[dict[str, Any]]:
        """What the system shows, best first."""
        if system == FULL_CONTEXT:
            return self._said
        if system == ORACLE:
            return [one for one in self._said if self._named[one["id"]] & set(question.evidence)]
        return list(self._call("search", query=question.text, budget=budget, policy=system)["results"])

    def memory(self, hit: dict[str, Any]) -> Memory:
        return Memory(
            text=hit["memory"],
            words=hit["message"] or hit["memory"],
            speaker=hit["speaker"],
            said=hit["said_at"] or "",
            turns=tuple(sorted(self._named[hit["id"]])),
        )


def _cost(kernel: MemOS, system: str, user: str | None) -> Cost:
    """user: of a system that writes."""
    if user is None:
        return Cost()
    spent = CuratorCalls.of(kernel.within(user)).writer_cost(system)
    return Cost(calls=spent.calls, tokens=spent.tokens)


def _writes(system: str, config: Config) -> bool:
    return isinstance(POLICIES.get(system)(config), Writes)
