"""LangGraph's stores: `batch` of puts and `search` in a namespace for each user; variant: memory or sqlite.

Its SQLite store loads an extension, which Python's own sqlite3 cannot everywhere; pysqlite3 is the same module with it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pysqlite3 as sqlite3

sys.modules["sqlite3"] = sqlite3  # what langgraph finds as sqlite3

from langgraph.store.base import PutOp  # noqa: E402
from langgraph.store.memory import InMemoryStore  # noqa: E402
from langgraph.store.sqlite import SqliteStore  # noqa: E402
from worker import DIM, Embedding, Turn, line  # noqa: E402


class LangGraph:
    def __init__(self, store: InMemoryStore | SqliteStore) -> None:
        self._store = store

    def add(self, turns: Sequence[Turn]) -> None:
        self._store.batch([PutOp(("turns", turn["user"]), turn["name"], {"text": line(turn)}) for turn in turns])

    def ready(self) -> None:
        """Found as soon as added."""

    def search(self, user: str, question: str, k: int) -> list[str]:
        return [item.key for item in self._store.search(("turns", user), query=question, limit=k)]


def open_store(folder: Path, embed: Embedding, variant: str) -> LangGraph:
    def vectors(texts: Sequence[str]) -> list[list[float]]:
        return embed(texts).tolist()  # type: ignore[no-any-return]

    # the same for both: one reads fields, the other text_fields, and without it embeds the value as JSON
    index = {"dims": DIM, "embed": vectors, "fields": ["text"], "text_fields": ["text"]}
    if variant == "memory":
        return LangGraph(InMemoryStore(index=index))
    # as SqliteStore.from_conn_string opens it
    connection = sqlite3.connect(folder / "store.db", check_same_thread=False, isolation_level=None)
    store = SqliteStore(connection, index=index)
    store.setup()
    return LangGraph(store)
