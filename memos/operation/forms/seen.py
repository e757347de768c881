"""What is asked of whoever reads pictures of memories for a model; knows no processor and no pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from memos.cube import MemCube
from memos.extensions import Registry
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.request import Nearness, Request


class Vision(Protocol):
    """Reads the pictures that memories tell of. file: where one lies, by its sha256; raises CorruptBlob."""

    def names(self, host: Host, cubes: Sequence[MemCube]) -> tuple[str, ...]:
        """Of their pictures, as this model's processor reads them."""

    def encode(self, host: Host, cubes: Sequence[MemCube], file: Callable[[str], Path]) -> Activation | None:
        """KV of the memories, each picture before its text; None for a model that sees none. Raises Unsupported."""

    def nearness(self, host: Host, request: Request, cubes: Sequence[MemCube], file: Callable[[str], Path]) -> Nearness:
        """The request over its KV against the full prompt with the pictures in it."""


visions: Registry[Vision] = Registry("memos.vision", "reader of pictures")
VISION = "transformers"  # the one that is asked
