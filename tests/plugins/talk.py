"""A conversation with a system that writes, through the public calls; for tests of systems."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

from memos.config import Config, parse_config
from memos.cube import MemCube
from memos.infrastructure.host.encoders.embedder import STATEMENTS, Embedder, TextTagger
from memos.interface.doors.api.memory import Memory
from memos.interface.reading.mem_reader import MemReader
from memos.kernel.mem_os import MemOS
from memos.kernel.wiring import Parts
from memos.operation.policies.policy import Policy
from memos.plugins.curators.calls import CuratorCalls
from memos.plugins.curators.carrying_out import maker
from memos.plugins.curators.signals import StoredLink

FIRST = datetime(2025, 3, 3, 9, tzinfo=timezone.utc)


@cache
def embedder() -> Embedder:
    """One for all: loading it takes longer than a test, and than a run may take."""
    made = Embedder(Config().embedder)
    made.embed(["loaded"])
    return made


class Conversation:
    """One user's, with a system. `say("Ann: I moved to Oslo.", "Bo: Nice!")`; `user:` and `assistant:` are roles."""

    def __init__(self, memory: Memory, system: str, user: str = "ann") -> None:
        self.memory, self.system, self.user = memory, system, user
        self.kernel = memory.kernel.within(user)
        self.calls = CuratorCalls.of(self.kernel)
        self.turns = 0

    def say(self, *lines: str, day: int = 0, thread: str = "talk") -> None:
        """One call of `add`, and what the system makes of it. day: after the first; turns are a minute apart."""
        messages = []
        for line in lines:
            who, _, words = line.partition(": ")
            as_role = who in ("user", "assistant")
            said = FIRST + timedelta(days=day, minutes=self.turns)
            message = {"role": who if as_role else "user", "content": words, "time": said.isoformat()}
            messages.append(message if as_role else message | {"name": who})
            self.turns += 1
        self.memory.add(messages=messages, user_id=self.user, run_id=thread)
        self.calls.curate()

    def made(self, *kinds: str) -> list[MemCube]:
        """What the system has made and is in force, in the order of its making."""
        mine = [cube for cube in self.kernel.memories() if maker(cube) == self.system]
        return sorted((c for c in mine if not kinds or c.header.kind in kinds), key=lambda c: c.id)

    def texts(self, *kinds: str) -> list[str]:
        return [cube.text for cube in self.made(*kinds)]

    def find(self, query: str, k: int = 5) -> list[str]:
        return [hit.cube.text for hit in self.kernel.search(query, top_k=k)]

    def links(self) -> set[StoredLink]:
        return {link for cube in self.kernel.memories() for link in self.calls.linked(cube.id)}

    def one(self, words: str) -> MemCube:
        """The memory of the system's that has these words."""
        [found] = [cube for cube in self.made() if words in cube.text]
        return found


@cache
def reader() -> MemReader:
    """One for all: its taggers take as long to load."""
    return MemReader(TextTagger(), TextTagger(STATEMENTS))


class SharedParts(Parts):
    """A kernel's, but for what is loaded, which all kernels of the tests share."""

    def __init__(self, config: Config, vault: Path, policy: Policy | None = None) -> None:
        super().__init__(config, vault=vault, policy=policy)
        self.reader = reader()

    def load_embedder(self) -> Embedder:
        return embedder()


@contextmanager
def conversation(vault: Path, system: str, **config: Any) -> Iterator[Conversation]:
    parts = SharedParts(parse_config({"policy": system, **config}), vault)
    with MemOS(parts=parts) as kernel:
        yield Conversation(Memory(kernel=kernel), system)
