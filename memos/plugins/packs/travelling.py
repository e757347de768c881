"""The calls of `Packs` on a kernel that names the user of each call."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from memos.cube import Blob, MemCube
from memos.kernel.services.finding import Finding
from memos.kernel.services.keeping import Keeping
from memos.once import once
from memos.ops import Operation
from memos.plugins.packs.dumper import Dumped
from memos.plugins.packs.loader import Loaded
from memos.plugins.packs.mem_store import MemStore
from memos.plugins.packs.mip import Origin, RegistryEntry
from memos.plugins.packs.pack_table import Installed
from memos.plugins.packs.service import Caller, Packs
from memos.plugins.packs.subscriptions import PackUpdate

T = TypeVar("T")


class Travelling(Finding, Keeping):
    """dump, load, publish, install, subscribe."""

    @once
    def packs(self) -> Packs:
        return Packs(_Kernel(self))

    def _of(self, user: str | None) -> Caller:
        return Caller(self._caller(user), keeper=self.governance.caller is None)

    def dump(self, path: Path, *, user: str | None = None, **how: Any) -> Dumped:
        return self.packs.dump(self._of(user), path, **how)

    def load(self, path: Path, *, user: str | None = None, **how: Any) -> Loaded:
        return self.packs.load(self._of(user), path, **how)

    def origins(self, id: str, *, user: str | None = None) -> list[Origin]:
        return self.packs.origins(self._of(user), id)

    def publish(
        self, place: str, pack: str, version: str, *, user: str | None = None, **how: Any
    ) -> tuple[RegistryEntry, Dumped]:
        return self.packs.publish(self._of(user), place, pack, version, **how)

    def withdraw(
        self, place: str, pack: str, version: str, why: str, *, key: Path | None = None, user: str | None = None
    ) -> RegistryEntry:
        return self.packs.withdraw(self._of(user), place, pack, version, why, key=key)

    @staticmethod
    def registry(place: str) -> MemStore:
        return MemStore(place)

    def install(self, place: str, pack: str, *, user: str | None = None, **how: Any) -> list[PackUpdate]:
        return self.packs.install(self._of(user), place, pack, **how)

    def subscribe(self, pack: str, *, on: bool = True, user: str | None = None) -> None:
        self.packs.subscribe(self._of(user), pack, on=on)

    def update_packs(
        self, pack: str | None = None, *, trust: str | None = None, user: str | None = None
    ) -> list[PackUpdate]:
        return self.packs.update_packs(self._of(user), pack, trust=trust)

    def remove_pack(self, pack: str, *, user: str | None = None) -> list[str]:
        return self.packs.remove_pack(self._of(user), pack)

    def installed(self, *, user: str | None = None) -> list[Installed]:
        return self.packs.installed(self._of(user))

    def trusted(self) -> tuple[dict[str, str], str]:
        return self.packs.trusted()

    def untrust(self, name: str, *, user: str | None = None) -> None:
        self.packs.untrust(self._of(user), name)


class _Kernel:
    def __init__(self, kernel: Travelling) -> None:
        self._kernel = kernel
        self.vault, self.governance, self.lifecycle = kernel.vault, kernel.governance, kernel.lifecycle
        self.knowledge, self.reader = kernel.knowledge, kernel.reader

    def visible(self, caller: Caller, op: Operation, id: str) -> MemCube:
        return self._kernel._visible(op, id, caller.namespace.user_id)

    def found(self, caller: Caller, query: str) -> list[str]:
        return [hit.cube.id for hit in self._kernel.search(query, user=caller.namespace.user_id)]

    def fits(self, blob: Blob) -> bool:
        return self._kernel._fits(blob)

    def accept(self, blob: Blob, path: Path, sources: Any, judged: bool) -> None:
        self._kernel._accept(blob, path, sources, judged)

    def changed(self, result: T) -> T:
        return self._kernel._changed(result)
