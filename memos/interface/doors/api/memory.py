"""The Memory API: the public calls as plain values, for programs and for every door.

mem0's habits work: `user_id=` at the top or in `filters`, `{"results": [...]}`, `AsyncMemory`. The calls: calls.py, and
table_calls.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memos.config import Config, load_config, parse_config
from memos.errors import Denied
from memos.interface.doors.api.calling import deleted
from memos.interface.doors.api.calls import MemoryCalls
from memos.interface.doors.api.values import Outcome

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS


class Memory(MemoryCalls):
    """The memories of one kernel, and their calls."""

    def __init__(
        self,
        config: Config | str | Path | None = None,
        *,
        vault: Path | str | None = None,
        kernel: MemOS | None = None,
        key: str | None = None,
        purpose: str = "",
    ) -> None:
        """config: settings, or their YAML. kernel: one that is there already, in place of both. key: acts for whom it
        stands for. Raises ConfigError, VaultError, Denied."""
        if kernel is None:
            from memos.kernel.mem_os import MemOS

            kernel = MemOS(config if isinstance(config, Config) else load_config(config and Path(config)), vault=vault)
        super().__init__(kernel, key, purpose)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any], **parts: Any) -> Memory:
        """Of settings as a mapping, as they stand in a YAML. Raises ConfigError."""
        return cls(parse_config(dict(config_dict)), **parts)

    def as_(self, key: str, purpose: str = "") -> Memory:
        """The same memories for whoever a key stands for. Raises Denied."""
        return Memory(kernel=self.kernel, key=key, purpose=purpose)

    def reset(self) -> Outcome:
        """Remove every memory of every user, or none where one is locked; keys, grants and the log stay. For whoever
        runs the process, in no other door. Raises Denied, Held, BadTransition."""
        if self._of_key:
            raise Denied(
                f"{self.within().caller} calls with a key, and reset removes the memories of all; use "
                f"delete_all for your own, or ask who keeps this vault"
            )
        ids = self.kernel.services.keeping.reset()
        return {"message": "All memories deleted.", "results": deleted(ids)}

    def close(self) -> None:
        self.kernel.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncMemory:
    """The same calls, awaited; each in a thread, so that the loop goes on. An add has its ids once it is durable, and a
    later call sees it; what makes it found, and forms of it, follow in the background."""

    def __init__(self, config: Config | str | Path | None = None, **parts: Any) -> None:
        self.memory = Memory(config, **parts)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any], **parts: Any) -> AsyncMemory:
        return cls(parse_config(dict(config_dict)), **parts)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        from memos.kernel.calls import api_names

        if name not in api_names():
            raise AttributeError(f"{name!r} is no call of the Memory API")
        call = getattr(self.memory, name)

        @wraps(call)
        async def awaited(*values: Any, **named: Any) -> Any:
            return await asyncio.to_thread(call, *values, **named)

        return awaited

    async def reset(self) -> Outcome:
        return await asyncio.to_thread(self.memory.reset)

    async def close(self) -> None:
        await asyncio.to_thread(self.memory.close)

    async def __aenter__(self) -> AsyncMemory:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
