"""mem0: `Memory.add(..., infer=False)` and `Memory.search` with the user as a filter; variant: qdrant or faiss.

Its language model is an OpenAI client with no key, which nothing here calls; its telemetry is off.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worker import DIM, Embedding, Turn, line


class Vectors:
    """In the shape of mem0's embedders."""

    def __init__(self, embed: Embedding) -> None:
        self._embed = embed

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self._embed([text])[0].tolist()  # type: ignore[no-any-return]

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:
        return self._embed(texts).tolist()  # type: ignore[no-any-return]


class Mem0:
    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def add(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            self._memory.add(line(turn), user_id=turn["user"], infer=False, metadata={"name": turn["name"]})

    def ready(self) -> None:
        """Found as soon as added."""

    def search(self, user: str, question: str, k: int) -> list[str]:
        found = self._memory.search(question, filters={"user_id": user}, top_k=k, threshold=0.0)
        return [one["metadata"]["name"] for one in found["results"]]


def open_store(folder: Path, embed: Embedding, variant: str) -> Mem0:
    os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder / "mem0"), "OPENAI_API_KEY": "none"}
    from mem0 import Memory  # reads the environment when it is imported

    place: dict[str, Any] = {"path": str(folder / variant), "embedding_model_dims": DIM, "collection_name": "turns"}
    place |= {"on_disk": True} if variant == "qdrant" else {"distance_strategy": "cosine"}
    memory = Memory.from_config(
        {
            "vector_store": {"provider": variant, "config": place},
            "history_db_path": str(folder / "history.db"),
        }
    )
    memory.embedding_model = Vectors(embed)
    return Mem0(memory)
