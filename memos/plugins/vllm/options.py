"""What `model.engine_options` may say where `model.engine` is vllm."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from memos.config import Section
from memos.config.section import explain


class VllmOptions(Section):
    """How vLLM is reached, and what it may use."""

    endpoint: str | None = Field(None, description="`vllm serve` at http://HOST:PORT; none: vLLM is started here")
    key_from: str = Field("VLLM_API_KEY", description="the environment variable that has the endpoint's key, if any")
    timeout_s: float = Field(600.0, gt=0, description="that an endpoint may take for its next token")
    exchange: Path = Field(
        default_factory=lambda: default_exchange(), description="the folder that KV reaches vLLM through"
    )
    exchange_bytes: int = Field(
        1 << 31, ge=0, description="of KV in the exchange; the least recently used is deleted; 0: memories are text"
    )
    adapters_at_once: int = Field(8, ge=1, description="different adapters in one batch")
    adapter_rank: int = Field(64, ge=1, description="the largest rank of adapters active together")
    arguments: dict[str, Any] = Field({}, description="of vLLM itself, in the names of its AsyncEngineArgs")

    @classmethod
    def of(cls, given: dict[str, Any]) -> VllmOptions:
        """Raises ConfigError, naming the option."""
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise explain(error, "model.engine_options.", cls) from None


def default_exchange() -> Path:
    """In memory where there is such a folder: what lies there is soon read, and gone with the machine."""
    memory = Path("/dev/shm")
    return (memory if memory.is_dir() else Path(tempfile.gettempdir())) / f"memos-vllm-{os.getuid()}"
