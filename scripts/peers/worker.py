"""One peer in its own environment: reads commands as JSON lines, writes what they gave. Knows no peer and no figures.

    {"open": "for_chroma", "variant": "", "folder": "some/where"}
    {"versions": ["chromadb"]}             -> {"versions": {...}}
    {"learn": [turn, ...]}                 vectors made beforehand, so that only the store's own time is left
    {"add": [turn, ...], "batch": 1, "stop_s": 600}  -> {"turns": n, "seconds": s, "ready_s": s, "embedding_s": s}
    {"search": [[user, question], ...], "k": 10}     -> {"found": [[name, ...], ...], "ms": [...], "own_ms": [...]}

While it works it may ask in turn: {"embed": [text, ...]} is answered by {"vectors": base64 of float32}, so that all
peers have one embedder, and no environment needs torch for it. A turn is {user, name, speaker, said, thread, text}.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Turn = dict[str, str]
Ask = Callable[[dict[str, Any]], dict[str, Any]]
DIM = 384


class Store(Protocol):
    """What a peer is asked for. `add` returns once all turns are as durable as the peer makes them; `ready` once they
    are found."""

    def add(self, turns: Sequence[Turn]) -> None: ...
    def ready(self) -> None: ...
    def search(self, user: str, question: str, k: int) -> list[str]: ...  # names of turns, best first


class Embedding:
    """Texts -> unit vectors of whoever started this process. `seconds`: spent here so far."""

    def __init__(self, ask: Ask) -> None:
        self._ask, self._known, self._lock = ask, dict[str, np.ndarray](), threading.Lock()
        self.seconds = 0.0

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """[texts, DIM] float32."""
        began = time.perf_counter()
        with self._lock:  # a peer may search in several threads
            if all(text in self._known for text in texts):
                found = np.stack([self._known[text] for text in texts])
            else:
                answer = base64.b64decode(self._ask({"embed": list(texts)})["vectors"])
                found = np.frombuffer(answer, np.float32).reshape(len(texts), DIM)
            self.seconds += time.perf_counter() - began
        return found

    def learn(self, turns: Sequence[Turn]) -> None:
        texts = [line(turn) for turn in turns]
        self._known = dict(zip(texts, self(texts), strict=True))


def line(turn: Turn) -> str:
    """A turn as one text, for peers that have no field for who speaks."""
    return f"{turn['speaker']}: {turn['text']}"


class Worker:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._store: Any = None
        self._embedding: Any = None

    def do(self, command: dict[str, Any]) -> dict[str, Any]:
        if "open" in command:
            return self._open(command)
        if "versions" in command:
            return {"versions": {name: version(name) for name in command["versions"]}}
        if "learn" in command:
            self._embedding.learn(command["learn"])
            return {}
        if "add" in command:
            return self._add(command["add"], command["batch"], command["stop_s"])
        return self._search(command["search"], command["k"])

    def _open(self, command: dict[str, Any]) -> dict[str, Any]:
        module = importlib.import_module(command["open"])
        self._embedding = getattr(module, "Embedding", Embedding)(self._ask)
        self._store = module.open_store(Path(command["folder"]), self._embedding, command["variant"])
        return {}

    def _add(self, turns: Sequence[Turn], batch: int, stop_s: float) -> dict[str, Any]:
        """stop_s: no further turns once it took so long."""
        spent, began, done = self._embedding.seconds, time.perf_counter(), 0
        while done < len(turns) and time.perf_counter() - began < stop_s:
            self._store.add(turns[done : done + batch])
            done += len(turns[done : done + batch])
        seconds = time.perf_counter() - began
        self._store.ready()
        ready_s = time.perf_counter() - began
        return {"turns": done, "seconds": seconds, "ready_s": ready_s, "embedding_s": self._embedding.seconds - spent}

    def _search(self, questions: Sequence[tuple[str, str]], k: int) -> dict[str, Any]:
        found, all_ms, own_ms = [], [], []
        for user, question in questions:
            spent, began = self._embedding.seconds, time.perf_counter()
            found.append(self._store.search(user, question, k))
            ms = (time.perf_counter() - began) * 1e3
            all_ms.append(ms)
            own_ms.append(ms - (self._embedding.seconds - spent) * 1e3)
        return {"found": found, "ms": all_ms, "own_ms": own_ms}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a peer prints is no answer

    def tell(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        tell(question)
        return dict(json.loads(sys.stdin.readline()))

    worker = Worker(ask)
    for command in iter(sys.stdin.readline, ""):
        try:
            tell(worker.do(json.loads(command)))
        except Exception as error:  # whatever a peer raises is its result
            traceback.print_exc()
            tell({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
