"""Finds by name what runs the local model (model.engine), and where adapters are trained (distil.isolation).

`transformers`, which ships, runs the model in this process. Imports neither torch nor transformers until a model is
loaded; `loading` is the lock under which that happens, by one thread of the process at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from memos.config import ModelConfig
from memos.extensions import Registry

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host
    from memos.infrastructure.host.training.teach import Crafted, Task, Tell

    Executor = Callable[[Host, Task, Path, Tell], Crafted]

Engine = Callable[[ModelConfig], "Host"]
_LOADING = threading.RLock()
engines: Registry[Engine] = Registry("memos.engines", "engine")
EXECUTORS: Registry[Executor] = Registry("memos.executors", "executor")


@contextmanager
def loading() -> Iterator[None]:
    """Around imports of transformers within functions, and around what it loads.

    While it builds a model it changes torch for the whole process (the default dtype, how weights are initialised,
    their device), and a thread that imports it while another one does is handed a module that is not complete.
    """
    with _LOADING:
        yield


def transformers(config: ModelConfig) -> Host:
    """Raises ModelNotFound, HostError."""
    with loading():
        from memos.infrastructure.host.host import Host

        return Host.load(config)
