"""`memos bench arena`: every memory system on the same turns and questions, through the public calls.

Each system has its own users in one vault, so that none sees another's memories: the same embedder, the same writer,
the same number of tokens to fill. Turns and questions are encoded once for all, before anything is timed. A system that
is done is written down, and a run that was cut off goes on behind it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from memos.bench.conversations import BUDGET, MAX_LISTED, TOP_K, added, read_back
from memos.bench.dialogues import Conversation, figures, means, read
from memos.config import Config, EmbedderConfig
from memos.errors import InputError, MemosError
from memos.infrastructure.host.encoders.embedder import Embedder, Reading
from memos.interface.doors.api.memory import Memory
from memos.kernel.mem_os import MemOS
from memos.kernel.wiring import Parts
from memos.operation.policies.policy import POLICIES, Writes
from memos.plugins.curators.calls import CuratorCalls
from memos.plugins.progress import Show

log = logging.getLogger("memos")
PARTS = 4  # of a conversation, after which memories are counted: how they grow
FIRST = ("memos",)  # in the table
ENCODED = "encodings"  # whose users have read what all others read again


class SharedEncodings(Embedder):
    """Reads each text once."""

    def __init__(self, config: EmbedderConfig) -> None:
        super().__init__(config)
        self._known: dict[tuple[str, tuple[int, int]], Reading] = {}

    def read(self, texts: Sequence[str], spans: Sequence[tuple[int, int]] | None = None) -> list[Reading]:
        keys = list(zip(texts, spans or [(0, len(text)) for text in texts], strict=True))
        if missing := list(dict.fromkeys(key for key in keys if key not in self._known)):
            found = super().read([text for text, _ in missing], [span for _, span in missing])
            self._known.update(zip(missing, found, strict=True))
        return [self._known[key] for key in keys]


class SharedParts(Parts):
    def load_embedder(self) -> Embedder:
        return SharedEncodings(self.config.embedder)


def bench_arena(
    systems: Sequence[str],
    kind: str,
    data: Path,
    conversations: int | None,
    config: Config,
    partial: Path | None,
    show: Show,
) -> dict[str, Any]:
    """A row for each system. recall@10, recall@budget, ndcg@10: as of `memos bench conversations`, where a memory of n
    lines stands for the first n of the turns that it was made of. tokens_shown_mean: of the memories that fit into
    BUDGET tokens. memories: in force at the end, growth: after each quarter of the turns. turns_lost: that cannot be
    read back word for word. writer_calls_per_turn, writer_tokens_per_turn: schemas filled, and tokens of what a model
    is asked and answers; where rules write, of what it would have been asked, at four characters each. adds_per_s:
    turns a second until they are found, and search_ms_p50, beside the encoding of turns and questions. bytes: that the
    vault has grown by. failed: runs that a curator could not end, and answers that its model could not give.

    systems: names of policies. partial: where rows are kept until all are there. Raises InputError.
    """
    for name in systems:
        POLICIES.require(name)
    chosen = read(data, kind)[:conversations]
    key = _key(systems, chosen, config)
    rows: dict[str, dict[str, Any]] = _kept(partial, key)
    who = {_user(name, one): name for name in systems for one in chosen}
    with tempfile.TemporaryDirectory() as folder:
        parts = SharedParts(config.model_copy(update={"policies": who}), vault=Path(folder) / "vault")
        with MemOS(parts=parts) as kernel:
            memory = Memory(kernel=kernel)
            show("encodings", 0, len(systems))
            _encode(chosen, memory)
            for n, name in enumerate(systems):
                if name not in rows:
                    rows[name] = _measured(name, chosen, memory, Path(folder))
                    if partial is not None:
                        partial.write_text(json.dumps({"key": key, "rows": rows}), "utf-8")
                show(name, n + 1, len(systems))
    if partial is not None:
        partial.unlink(missing_ok=True)
    return {
        "set": kind,
        "data": data.name,
        "writer": config.curators.writer,
        "conversations": len(chosen),
        "questions": sum(len(one.questions) for one in chosen),
        "budget": BUDGET,
        "rows": [rows[name] for name in systems],
    }


def all_systems() -> list[str]:
    """Every policy there is, the default first."""
    return [*FIRST, *(name for name in POLICIES.names() if name not in FIRST)]


def _key(systems: Sequence[str], chosen: Sequence[Conversation], config: Config) -> str:
    """Another for another task."""
    turns = [[turn.text for turn in one.turns.values()] for one in chosen]
    task = json.dumps([list(systems), turns, config.model_dump(mode="json")], sort_keys=True)
    return hashlib.sha256(task.encode()).hexdigest()


def _kept(partial: Path | None, key: str) -> dict[str, dict[str, Any]]:
    """Rows of a run of the same task that was cut off."""
    try:
        there = json.loads(partial.read_text("utf-8")) if partial else {}
    except (OSError, ValueError):
        return {}
    return dict(there["rows"]) if there.get("key") == key else {}


class _Warnings(logging.Handler):
    """Counts the runs that failed: a curator's errors are told in the log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "changed nothing in" in record.getMessage()


def _user(name: str, conversation: Conversation) -> str:
    return f"{name} {conversation.name}"


def _encode(conversations: Sequence[Conversation], memory: Memory) -> None:
    """Have the turns and the questions read that all systems are given."""
    for conversation in conversations:
        user = _user(ENCODED, conversation)

        def call(method: str, user: str = user, **given: Any) -> dict[str, Any]:
            return dict(getattr(memory, method)(user_id=user, **given))

        added(conversation.turns.values(), call)
        for question in conversation.questions:
            memory.search(question.text, user_id=user, policy="memos")


@dataclass
class Tally:
    """What is summed up of one system, over its conversations."""

    totals: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    rows: list[dict[str, float]] = field(default_factory=list)  # of questions
    shown: list[int] = field(default_factory=list)  # tokens
    searches: list[float] = field(default_factory=list)  # ms
    growth: list[list[int]] = field(default_factory=list)


def _measured(name: str, conversations: Sequence[Conversation], memory: Memory, folder: Path) -> dict[str, Any]:
    """One system's row."""
    tally, failures, size = Tally(), _Warnings(), _bytes(folder)
    log.addHandler(failures)
    try:
        for conversation in conversations:
            _add_up(tally, name, conversation, memory)
    finally:
        log.removeHandler(failures)
    totals = tally.totals
    turns = totals["turns"]
    return {
        "system": name,
        **means(tally.rows),
        "tokens_shown_mean": mean(tally.shown),
        "memories": int(totals["memories"]),
        "growth": [sum(part) for part in zip(*tally.growth, strict=True)],
        "turns_lost": int(totals["lost"]),
        "writer_calls_per_turn": totals["calls"] / turns,
        "writer_tokens_per_turn": totals["tokens"] / turns,
        "adds_per_s": turns / totals["seconds"],
        "search_ms_p50": median(tally.searches),
        "bytes": _bytes(folder) - size,
        "failed": failures.count + int(totals["failed"]),
    }


def _add_up(tally: Tally, name: str, conversation: Conversation, memory: Memory) -> None:
    """One conversation with one system."""
    totals = tally.totals
    user, turns = _user(name, conversation), list(conversation.turns.values())
    kernel = memory.kernel.within(user)
    writes = isinstance(memory.kernel.parts.schedulers.named(name).policy, Writes)
    writes_later = writes and memory.kernel.config.curators.writer != "rules"  # a search does not wait for a model

    def call(method: str, **given: Any) -> dict[str, Any]:
        return dict(getattr(memory, method)(user_id=user, **given))

    sizes, seconds = list[int](), 0.0
    for part in _parts(turns):
        began = time.perf_counter()
        added(part, call)
        call("search", query="ready", top_k=1)  # waits until everything can be found
        if writes_later:
            CuratorCalls.of(kernel).curate()
        seconds += time.perf_counter() - began
        sizes.append(len(call("get_all", limit=MAX_LISTED)["results"]))
    tally.growth.append(sizes)
    named, lost = read_back(conversation, call)
    count = memory.kernel.parts.embedder().counts
    for question in conversation.questions:
        evidence = set(question.evidence)
        try:
            began = time.perf_counter()
            top = call("search", query=question.text, top_k=TOP_K)["results"]
            tally.searches.append((time.perf_counter() - began) * 1e3)
            within = call("search", query=question.text, budget=BUDGET)["results"]
        except MemosError as error:
            log.warning("%s found nothing for a question: %s", name, error)
            totals["failed"] += 1
            top = within = []
        found, inside = ([evidence & named[hit["id"]] for hit in hits] for hits in (top, within))
        tally.shown.append(sum(count([hit["memory"] for hit in within])))
        tally.rows.append(
            {
                "recall@10": len(set().union(*found)) / len(evidence),
                "recall@budget": len(set().union(*inside)) / len(evidence),
                "ndcg@10": figures([bool(some) for some in found], len(evidence))["ndcg@10"],
            }
        )
    if writes:
        cost = CuratorCalls.of(kernel).writer_cost(name)
        totals["calls"] += cost.calls
        totals["tokens"] += cost.tokens
        totals["failed"] += cost.failed
    totals["turns"] += len(turns)
    totals["seconds"] += seconds
    totals["memories"] += sizes[-1]
    totals["lost"] += lost


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _parts(turns: Sequence[Any]) -> Iterable[Sequence[Any]]:
    size = -(-len(turns) // PARTS)
    return (turns[start : start + size] for start in range(0, len(turns), size))


def named_systems(text: str) -> list[str]:
    """Names with commas between them, or "all". Raises InputError."""
    names = all_systems() if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"--systems {text!r} names no system; give names with commas between them, or all")
    for name in names:
        POLICIES.require(name)
    return list(dict.fromkeys(names))
