"""chroma: one collection on disk, `collection.add` and `collection.query` with the user as a filter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import chromadb
from chromadb.config import Settings
from worker import Embedding, Turn, line


class Chroma:
    def __init__(self, folder: Path, embed: Embedding) -> None:
        client = chromadb.PersistentClient(str(folder), settings=Settings(anonymized_telemetry=False))
        cosine = {"hnsw": {"space": "cosine"}}
        self._turns = client.get_or_create_collection("turns", embedding_function=None, configuration=cosine)
        self._embed = embed

    def add(self, turns: Sequence[Turn]) -> None:
        texts = [line(turn) for turn in turns]
        self._turns.add(
            ids=[f"{turn['user']} {turn['name']}" for turn in turns],
            embeddings=self._embed(texts),
            documents=texts,
            metadatas=[{"user": turn["user"], "name": turn["name"]} for turn in turns],
        )

    def ready(self) -> None:
        """Found as soon as added."""

    def search(self, user: str, question: str, k: int) -> list[str]:
        found = self._turns.query(query_embeddings=self._embed([question]), n_results=k, where={"user": user})
        return [str(one["name"]) for one in (found["metadatas"] or [[]])[0]]


def open_store(folder: Path, embed: Embedding, variant: str) -> Chroma:
    return Chroma(folder, embed)
