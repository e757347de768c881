"""Finds by name what runs the local model, where adapters are trained, and what reads texts beside a query.

`transformers`, which ships, runs the model in this process. Imports neither torch nor transformers until a model is
loaded; `loading` is the lock under which that happens, by one thread of the process at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from memos.config import ModelConfig
from memos.errors import ConfigError
from memos.extensions import Registry

if TYPE_CHECKING:
    import numpy as np

    from memos.infrastructure.host.host import Host
    from memos.infrastructure.host.training.teach import Crafted, Task, Tell

    Executor = Callable[[Host, Task, Path, Tell], Crafted]
    Rerank = Callable[[str, Sequence[str]], np.ndarray]  # query, texts -> [texts] float32, how well each answers

Engine = Callable[[ModelConfig], "Host"]
_LOADING = threading.RLock()
engines: Registry[Engine] = Registry("memos.engines", "engine")  # by model.engine
EXECUTORS: Registry[Executor] = Registry("memos.executors", "executor")  # by distil.isolation
RERANKERS: Registry[Callable[[str], Rerank]] = Registry("memos.rerankers", "reranker")  # of retrieval.reranker


def loading() -> AbstractContextManager[object]:
    """Around imports of transformers within functions, and around what it loads.

    While it builds a model it changes torch for the whole process (the default dtype, how weights are initialised,
    their device), and a thread that imports it while another one does is handed a module that is not complete.
    """
    return _LOADING


def transformers(config: ModelConfig) -> Host:
    """Raises ModelNotFound, HostError, ConfigError."""
    if config.engine_options:
        raise ConfigError("model.engine_options: the engine transformers takes none; leave them out")
    with loading():
        from memos.infrastructure.host.host import Host

        return Host.load(config)
