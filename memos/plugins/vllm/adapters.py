"""Adapters as vLLM takes them: one a request, by a name made of its content, loaded when it is first used."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from memos.errors import Unsupported
from memos.infrastructure.host.adapters.serving import Stack
from memos.plugins.vllm.server import Server, VllmFailed

log = logging.getLogger("memos")
Export = Callable[[Stack, Path], Path]  # folders of adapters, where to -> a folder that is all of them together


class ServedAdapters:
    """The stacks that vLLM has; beyond `most`, the least recently used is dropped."""

    def __init__(self, server: Server, export: Export, folder: Path, most: int, rank: int) -> None:
        """rank: the largest that vLLM was started for."""
        self._server, self._export, self._folder, self._most, self._rank = server, export, folder, most, rank
        self._served, self._lock = OrderedDict[Stack, Path](), threading.Lock()

    @property
    def folders(self) -> set[str]:
        """Names of the folders that it has something of."""
        return {folder.name for stack in list(self._served) for folder in stack}

    def name(self, stack: Stack) -> str | None:
        """What vLLM calls the adapters of a request together; None without any. Raises what reading them raises,
        Unsupported where their ranks are too many, VllmFailed."""
        if not stack:
            return None
        with self._lock:
            if stack not in self._served:
                exported = self._fitting(self._export(stack, self._folder))
                self._server.load_adapter(exported.name, exported)
                self._served[stack] = exported
                if len(self._served) > self._most:
                    self._drop(next(iter(self._served)))
            self._served.move_to_end(stack)
            return self._served[stack].name

    def _fitting(self, exported: Path) -> Path:
        rank = int(json.loads((exported / "adapter_config.json").read_text("utf-8"))["r"])
        if rank > self._rank:
            shutil.rmtree(exported)
            raise Unsupported(
                f"the adapters have rank {rank} together, and vLLM takes {self._rank}; raise "
                f"model.engine_options.adapter_rank (and --max-lora-rank of a server), or ask with fewer"
            )
        return exported

    def clear(self) -> None:
        """Drop all of them: the sources of one may be gone."""
        with self._lock:
            for stack in list(self._served):
                self._drop(stack)

    def _drop(self, stack: Stack) -> None:
        folder = self._served.pop(stack)
        if folder in self._served.values():  # the same content from other folders
            return
        try:
            self._server.drop_adapter(folder.name)
        except VllmFailed as error:  # no request of ours names it any more
            log.warning("adapter %s was not unloaded: %s", folder.name, error)
        shutil.rmtree(folder, ignore_errors=True)
