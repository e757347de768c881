"""memoryos-pro: `Memoryos.add_memory` and `Memoryos.retriever.retrieve_context`, a Memoryos for each user.

It wants a language model for summaries, keywords and continuity. Where none answers, its client gives a fixed text and
the package goes on without; here that text is given at once, so that no time goes into calls that fail. short_term is
1 long, so that each turn goes to mid-term memory, where it can be found; profiles, which only a model makes, are off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import memoryos.memoryos as package
import numpy as np
from memoryos import utils
from worker import Embedding, Turn, line

_NO_ANSWER = "Error: Could not get response from LLM."  # what OpenAIClient.chat_completion returns then


class NoModel:
    """In the shape of memoryos' OpenAIClient."""

    def __init__(self, api_key: str, base_url: str | None = None) -> None: ...

    def chat_completion(self, *args: Any, **options: Any) -> str:
        return _NO_ANSWER


class Vectors:
    """In the shape of a SentenceTransformer. A page is embedded as "User: ... Assistant: ...", as the package does."""

    def __init__(self, embed: Embedding) -> None:
        self._embed = embed

    def encode(self, texts: Sequence[str], **options: Any) -> np.ndarray:
        return self._embed([text.removeprefix("User: ").removesuffix(" Assistant:  ") for text in texts])


class MemoryOS:
    def __init__(self, folder: Path) -> None:
        self._folder, self._of = folder, dict[str, Any]()

    def add(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            # an empty response would drop the page; the time is kept with the page and no more, so it carries the name
            self._memory(turn["user"]).add_memory(line(turn), " ", timestamp=turn["name"])

    def ready(self) -> None:
        """Found as soon as added."""

    def search(self, user: str, question: str, k: int) -> list[str]:
        memory = self._memory(user)
        memory.retriever.retrieval_queue_capacity = k
        pages = memory.retriever.retrieve_context(question, user)["retrieved_pages"]
        return [page["timestamp"] for page in pages]

    def _memory(self, user: str) -> Any:
        if user not in self._of:
            self._of[user] = package.Memoryos(
                user, "none", str(self._folder), short_term_capacity=1, mid_term_heat_threshold=math.inf
            )
        return self._of[user]


def open_store(folder: Path, embed: Embedding, variant: str) -> MemoryOS:
    package.OpenAIClient = NoModel
    utils._model_cache["all-MiniLM-L6-v2"] = Vectors(embed)
    return MemoryOS(folder)
