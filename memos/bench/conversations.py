"""`memos bench conversations`: adds dialogues by the public call, reads them back, and searches for answers.

Each conversation is a user of its own; each session a `run_id`; an exchange is a call of `add`, as a program that talks
with somebody makes them. The configuration is the default, the same for all. Nothing here knows the kernel.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import timedelta
from functools import partial
from itertools import chain, count, groupby, islice
from pathlib import Path
from statistics import median
from typing import Any

from memos.bench.dialogues import Conversation, figures, means, read
from memos.bench.search import most_mb
from memos.bench.serve import Client, served
from memos.cube import SUMMARY
from memos.errors import InputError, MemosError
from memos.interface.doors.api.memory import Memory
from memos.operation.policies.policy import POLICIES
from memos.ops import Add
from memos.plugins.progress import Show

BUDGET = 1_600  # tokens of memories in front of a question
TOP_K = 10
SEARCHES, SHOWN = 200, 500  # that are timed; turns between two signs of progress
SHARES = (0.01, 0.1, 0.3, 1)  # of the turns of one user, at which it is measured what they take
MAX_LISTED = 1_000_000
STATES = (None, "archived", "merged")  # in force; replaced by what was said later; said before
_NO_ORDERS = ("recall", "remember", "talk")
_OTHER_SIDE = ("Assistant",)  # of an exchange: it does not begin one

Call = Callable[..., dict[str, Any]]  # (name of a call of the Memory API, its arguments) -> its reply
Door = Callable[[Path, str], AbstractContextManager[Call]]  # (vault, user)


def bench_conversations(kind: str, data: Path, door: str, policy: str | None, show: Show) -> dict[str, Any]:
    """turns_lost: messages that cannot be read back word for word with their speaker and time. recall@10: share of a
    question's evidence among the first ten memories; recall@budget: among as many as fit into BUDGET tokens;
    recall@chat: among those that a reply of `chat` rests on, which the packaged model quotes; prompt_tokens: of its
    prompts, on average. orders: questions that `chat` took for orders to the memory. turns_per_s: from the first call
    of `add` until all can be found. Raises InputError."""
    if policy is not None:
        POLICIES.get(policy)  # a wrong name is told before anything is read
    conversations = read(data, kind)
    seconds, lost, adds_ms, searches_ms, memories = 0.0, 0, list[float](), list[float](), 0
    prompts, orders = list[int](), 0  # tokens of each
    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        vault = Path(folder) / "vault"
        calls = [stack.enter_context(DOORS[door](vault, c.name)) for c in conversations]
        for n, (conversation, call) in enumerate(zip(conversations, calls, strict=True)):
            began = time.perf_counter()
            adds_ms += added(conversation.turns.values(), call)
            call("search", query="ready", top_k=1)  # waits until everything can be found
            seconds += time.perf_counter() - began
            named, missing = read_back(conversation, call)
            lost, memories, measured = lost + missing, memories + len(named), list[dict[str, float]]()
            for question in conversation.questions:
                evidence, found = set(question.evidence), dict[str, list[set[str]]]()
                for name, how in (("top", {"top_k": TOP_K}), ("budget", {"budget": BUDGET})):
                    asked = time.perf_counter()
                    hits = call("search", query=question.text, policy=policy, **how)["results"]
                    if name == "top":
                        searches_ms.append((time.perf_counter() - asked) * 1e3)
                    found[name] = [evidence & named[hit["id"]] for hit in hits]
                ranks = figures([bool(turns) for turns in found["top"]], len(evidence))
                measured.append(
                    {
                        "recall@10": len(set().union(*found["top"])) / len(evidence),
                        "recall@budget": len(set().union(*found["budget"])) / len(evidence),
                        "ndcg@10": ranks["ndcg@10"],
                    }
                )
            for question, row in zip(conversation.questions, measured, strict=True):
                # after all searches, as a message may leave something behind
                reply = call("chat", messages=question.text, via="plaintext")
                shown = set().union(*(named[memory["id"]] for memory in reply["used"])) & set(question.evidence)
                rows[question.category].append(row | {"recall@chat": len(shown) / len(set(question.evidence))})
                prompts.append(reply["prompt_tokens"])
                orders += any(one["intent"] not in _NO_ORDERS for one in reply["operations"])
            show(kind, n + 1, len(conversations))
    turns = sum(len(c.turns) for c in conversations)
    every = [row for of_kind in rows.values() for row in of_kind]
    return {
        "set": kind,
        "door": door,
        "data": data.name,
        "turns": turns,
        "memories": memories,
        "turns_lost": lost,
        "questions": len(every),
        **means(every),
        "by_kind": {name: {"questions": len(of), **means(of)} for name, of in sorted(rows.items())},
        "prompt_tokens": sum(prompts) / len(prompts),
        "orders": orders,
        "turns_per_s": turns / seconds,
        "add_ms_p50": median(adds_ms),
        "search_ms_p50": median(searches_ms),
    }


def bench_growth(kind: str, data: Path, door: str, policy: str | None, turns: int, show: Show) -> dict[str, Any]:
    """The dialogues of all as those of one user, again each year, until there are so many turns: what an exchange, a
    search, opening the vault up to the first answer, and this process at most take, at some SHARES of them. Raises
    InputError."""
    if policy is not None:
        POLICIES.get(policy)
    conversations = read(data, kind)
    asked = [question.text for conversation in conversations for question in conversation.questions][:SEARCHES]
    said, rows, there = _year_after_year(conversations), list[dict[str, Any]](), 0
    with tempfile.TemporaryDirectory() as folder:
        vault = Path(folder) / "vault"
        for goal in sorted({max(1, round(turns * share)) for share in SHARES}):
            with DOORS[door](vault, "one") as call:
                began, took, more = time.perf_counter(), list[float](), goal - there
                while there < goal:
                    some = list(islice(said, min(SHOWN, goal - there)))
                    took += added(some, call)
                    there += len(some)
                    show(f"{kind}: add {median(took[-SEARCHES:]):.1f} ms", there, turns)
                call("search", query="ready", top_k=1)  # waits until everything can be found
                seconds, searches = time.perf_counter() - began, list[float]()
                for question in asked:
                    began = time.perf_counter()
                    call("search", query=question, policy=policy, top_k=TOP_K)
                    searches.append((time.perf_counter() - began) * 1e3)
                peak = most_mb()
            began = time.perf_counter()
            with DOORS[door](vault, "one") as call:
                call("search", query="ready", policy=policy, top_k=TOP_K)
                opened = time.perf_counter() - began
            rows.append(
                {
                    "turns": there,
                    "turns_per_s": more / seconds,
                    "add_ms_p50": median(took[-SEARCHES:]),
                    "search_ms_p50": median(searches),
                    "opened_s": opened,
                    "rss_mb": peak,
                    "vault_mb": sum(file.stat().st_size for file in vault.rglob("*") if file.is_file()) / 1e6,
                }
            )
            show(f"{kind}: {rows[-1]}", there, turns)
    return {"set": kind, "door": door, "data": data.name, "rows": rows}


def _year_after_year(conversations: Sequence[Conversation]) -> Iterator[Add]:
    """Their turns, and the same for ever, each time a year later and with the year's number behind the words."""
    for year in count():
        for conversation in conversations:
            for turn in conversation.turns.values():
                yield turn.model_copy(
                    update={
                        "text": f"{turn.text} ({year})",
                        "said": turn.said + year * timedelta(365) if turn.said else None,
                        "thread": f"{conversation.name} {year} {turn.thread}",
                        "message_id": f"{conversation.name} {year} {turn.message_id}",
                    }
                )


def _message(turn: Add) -> dict[str, Any]:
    """A turn as a program would give it: with a role where it is of a chat with an assistant, else with a name."""
    role = turn.speaker.lower()
    who = {"role": role} if role in ("user", "assistant") else {"role": "user", "name": turn.speaker}
    return {**who, "id": turn.message_id, "content": turn.text, "time": turn.said.isoformat() if turn.said else None}


def added(turns: Iterable[Add], call: Call) -> list[float]:
    """Milliseconds of each exchange: two turns of people, or a user's turns with what was answered."""
    took = []
    for session, of_session in groupby(turns, key=lambda turn: turn.thread):
        for exchange in _exchanges(list(of_session)):
            began = time.perf_counter()
            call("add", messages=[_message(turn) for turn in exchange], run_id=session)
            took.append((time.perf_counter() - began) * 1e3)
    return took


def _exchanges(turns: Sequence[Add]) -> Iterator[Sequence[Add]]:
    start = 0
    for end in range(1, len(turns) + 1):
        if end == len(turns) or (end - start >= 2 and turns[end].speaker not in _OTHER_SIDE):
            yield turns[start:end]
            start = end


def read_back(conversation: Conversation, call: Call) -> tuple[dict[str, set[str]], int]:
    """(for each id, the names of the turns that it is, or was read in; how many turns are not there as they were)."""
    named: dict[str, set[str]] = defaultdict(set)
    missing = 0
    for session, turns in groupby(conversation.turns.items(), key=lambda item: item[1].thread):
        kept: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        there = [call("get_all", run_id=session, state=one, limit=MAX_LISTED)["results"] for one in STATES]
        for one in chain(*there):
            kept[one["message"], one["speaker"], one["said_at"] or ""].append(one["id"])
        for name, turn in turns:
            ids = kept[turn.text, turn.speaker, turn.said.isoformat() if turn.said else ""]
            if ids:
                named[ids.pop(0)].add(name)
            else:
                missing += 1
    for one in chain(*(call("get_all", state=one, limit=MAX_LISTED)["results"] for one in STATES)):
        named[one["id"]].update(*(named.get(id, set()) for id in one["sources"][: _quoted(one)]))
    return named, missing


def _quoted(memory: dict[str, Any]) -> int:
    """How many of its sources a memory stands for: a summary quotes one in each line below its first; what a curator
    has made tells one in each line. Everything else is made of one."""
    lines = int(memory["memory"].count("\n"))
    return lines if memory["kind"] == SUMMARY else lines + 1


# -- the doors -----------------------------------------------------------------------------------------------------


@contextmanager
def _memory(vault: Path, user: str) -> Iterator[Call]:
    with Memory(vault=vault) as memory:
        yield lambda name, **given: dict(getattr(memory, name)(user_id=user, **given))


def _key(vault: Path, user: str) -> str:
    with Memory(vault=vault) as memory:
        return memory.kernel.services.governing.add_key(f"user:{user}")[0]


@contextmanager
def _http(vault: Path, user: str) -> Iterator[Call]:
    key = _key(vault, user)
    with served(vault) as (_, url), closing(Client(url, key)) as client:

        def call(name: str, **given: Any) -> dict[str, Any]:
            status, reply = client.call(name, **{key: value for key, value in given.items() if value is not None})
            if status != 200:
                raise MemosError(f"{name} over HTTP was answered with {status}: {reply}")
            return dict(reply)

        yield call


@contextmanager
def _mcp(vault: Path, user: str) -> Iterator[Call]:
    try:
        import mcp
        from anyio.from_thread import start_blocking_portal
    except ImportError as error:
        raise InputError(f"--door mcp needs {error.name}; pip install 'memos-kernel[mcp]'") from None
    environment = {**os.environ, "MEMOS_KEY": _key(vault, user)}
    command = ["-m", "memos", "mcp", "--vault", str(vault)]
    transport = mcp.stdio_client(mcp.StdioServerParameters(command=sys.executable, args=command, env=environment))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(mcp.Client(transport)) as client:

        def call(name: str, **given: Any) -> dict[str, Any]:
            arguments = {key: value for key, value in given.items() if value is not None}
            done = portal.call(partial(client.call_tool, name, arguments))
            if done.is_error:
                raise MemosError(f"the tool {name} was answered with {done.content}")
            return dict(done.structured_content or {})

        yield call


DOORS: dict[str, Door] = {"memory": _memory, "http": _http, "mcp": _mcp}
