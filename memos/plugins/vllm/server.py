"""What decodes, as the batch sees it: vLLM beside memos, or on a server. Knows no memories and no tensors."""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memos.config import DecodeConfig
from memos.errors import HostError


class VllmFailed(HostError):
    """vLLM is gone, or refused a request."""


@dataclass(frozen=True)
class Decoding:
    """One request. ids: the whole prompt; kv: the file that has KV of its first tokens, if any; adapter: a name that
    was loaded; ends: tokens that end the answer."""

    ids: tuple[int, ...]
    decode: DecodeConfig
    ends: Collection[int]
    kv: str | None = None
    adapter: str | None = None

    @property
    def params(self) -> dict[str, object]:
        """How it is decoded, in the words that vLLM's SamplingParams and its server share. What a model's own
        generation config would set is named, so that it does not."""
        decode = self.decode
        return {
            "max_tokens": decode.max_new_tokens,
            "temperature": decode.temperature,
            "top_p": decode.top_p,
            "seed": decode.seed,
            "stop_token_ids": sorted(self.ends),
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
        }

    @property
    def transfer(self) -> dict[str, object]:
        """What the connector is told. The name is the salt of the prefix cache too: blocks that hold this KV are found
        by requests over just this KV."""
        return {"memos_kv": self.kv}


@dataclass(frozen=True)
class Decoded:
    """Some tokens of an answer. cached: tokens of the prompt that were not computed."""

    ids: tuple[int, ...]
    cached: int = 0


class Server(Protocol):
    """Where requests are decoded. Its methods raise VllmFailed."""

    def decode(self, asked: Decoding) -> Generator[Decoded, None, None]:
        """The answer in pieces; to close it drops the request."""

    def load_adapter(self, name: str, folder: Path) -> None: ...
    def drop_adapter(self, name: str) -> None: ...

    def forget(self) -> None:
        """Empty the prefix cache."""
