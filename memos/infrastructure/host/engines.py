"""Finds what runs the local model by its name in model.engine; `transformers`, which ships, runs it in this process.

Imports neither torch nor transformers until a model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from memos.config import ModelConfig
from memos.extensions import Registry
from memos.infrastructure.host.loading import loading

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host

Engine = Callable[[ModelConfig], "Host"]
engines: Registry[Engine] = Registry("memos.engines", "engine")


def transformers(config: ModelConfig) -> Host:
    """Raises ModelNotFound, HostError."""
    with loading():
        from memos.infrastructure.host.host import Host

        return Host.load(config)
