"""Dumps the memories of a user into a pack, each after the memories it was made of.

Knows what of a memory travels. Must not know registries, nor who may dump what.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from memos.cube import GONE, Form, Frozen, MemCube, Namespace, Probe, State, Text, Turn, Usage
from memos.errors import CorruptBlob, InputError, NotFound
from memos.infrastructure.vault.audit.signing import SigningKey
from memos.infrastructure.vault.mem_vault import MemVault
from memos.interface.reading.mem_reader import MemReader
from memos.plugins.packs.mip import Origin, PackManifest, PackRelease, Record
from memos.plugins.packs.pack import PackWriter
from memos.plugins.packs.pack_file import writing
from memos.plugins.packs.pack_table import PackTable

_BATCH = 500  # cubes that are read at a time


class Selection(Frozen):
    """Which memories; each None or empty part leaves all in."""

    ids: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()  # Header.kind
    tags: tuple[str, ...] = ()  # any of them
    since: datetime | None = None  # said or made
    until: datetime | None = None
    states: tuple[State, ...] = ()
    turns: bool = True  # of conversations

    def takes(self, cube: MemCube) -> bool:
        header = cube.header
        return (
            (not self.ids or cube.id in self.ids)
            and (not self.kinds or header.kind in self.kinds)
            and (not self.tags or bool(set(self.tags) & set(header.tags)))
            and (self.since is None or cube.order[0] >= self.since)
            and (self.until is None or cube.order[0] <= self.until)
            and (not self.states or cube.state in self.states)
            and (self.turns or not isinstance(cube.payload, Turn))
        )


@dataclass(frozen=True)
class Dumped:
    """left: what did not go along, by its id, and why."""

    path: Path
    key: str
    manifest: PackManifest
    left: dict[str, str] = field(default_factory=dict)


class MemDumper:
    """Writes what belongs to a user."""

    def __init__(
        self,
        vault: MemVault,
        reader: MemReader,
        table: PackTable,
        visible: Callable[[Namespace, Iterable[MemCube]], list[MemCube]],
    ) -> None:
        """visible: those of the cubes that a caller may read."""
        self._vault, self._reader, self._table, self._visible = vault, reader, table, visible

    def dump(
        self,
        path: Path,
        owners: Sequence[Namespace],
        key: SigningKey,
        *,
        selection: Selection = Selection(),
        folder: bool = False,
        tensors: bool = True,
        history: bool = False,
        release: PackRelease | None = None,
        made: datetime | None = None,
        maker: str = "",
    ) -> Dumped:
        """A pack of the memories of these that are selected, with what those are made of and the KV and adapters that
        are made of them alone. Raises InputError where nothing is selected.

        history: earlier versions too, and tensors out of use.
        """
        with writing(path, folder) as sink:
            writer = PackWriter(sink)
            packing = _Packing(self._vault, self._reader, self._table, writer, tensors, history, release is not None)
            for owner in owners:
                for cube in self._own(owner, selection):
                    packing.take(cube)
                if tensors:
                    for cube in self._made(owner, packing.packed):
                        packing.take(cube)
            if not packing.packed:
                raise InputError(f"no memory of {', '.join(map(str, owners))} is selected; see `memos ls`")
            manifest = writer.seal(key, made or self._vault.now(), maker=maker, release=release, history=history)
        return Dumped(path, key.public, manifest, packing.left)

    def _own(self, owner: Namespace, selection: Selection) -> Iterator[MemCube]:
        """Texts and turns that belong to the owner, in the order of their making."""
        if missing := [id for id in selection.ids if not any(self._readable(owner, [id]))]:
            raise NotFound(f"no memory {missing[0]} of {owner}; see `memos ls`")
        for ids in _slices(selection.ids or self._vault.ids(owner.user_id)):
            for cube in self._readable(owner, ids):
                if (cube.form is Form.PLAINTEXT or selection.ids) and selection.takes(cube):
                    yield cube

    def _made(self, owner: Namespace, packed: Collection[str]) -> Iterator[MemCube]:
        """KV and adapters of what is in the pack."""
        for ids in _slices(self._vault.ids(owner.user_id)):
            for cube in self._readable(owner, ids):
                if cube.blob and all(source.id in packed for source in cube.sources):
                    yield cube

    def _readable(self, owner: Namespace, ids: Sequence[str]) -> list[MemCube]:
        seen = self._visible(owner, self._vault.at(ids))
        return [c for c in seen if c.rights.owner == owner.user_id and owner.covers(c.namespace)]


@dataclass(frozen=True)
class _Packing:
    """One pack in the making. public: others may read it. packed: the versions that are in it, by id. left: why a
    memory stays behind, by id."""

    vault: MemVault
    reader: MemReader
    table: PackTable
    writer: PackWriter
    tensors: bool
    history: bool
    public: bool
    packed: dict[str, range] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def take(self, cube: MemCube) -> bool:
        """Put it in the pack after its sources; False where it stays behind."""
        if cube.id in self.packed:
            return True
        if why := self._why_not(cube):
            self.left[cube.id] = why
            return False
        earlier = self._earlier(cube)
        shown = _without_usage(self.vault.guard.as_shown(cube) if self.public else cube)
        for digest in dict.fromkeys(one.stored for one in (*earlier, shown) if one.stored):
            try:
                self.writer.payload(digest, self.vault.blobs.file(digest))
            except CorruptBlob as error:
                self.left[cube.id] = str(error)
                return False
        self.writer.add(Record(cube=shown, earlier=earlier, probes=self._probes(shown), origin=self._origin(cube)))
        self.packed[cube.id] = range(1 if earlier else cube.version, cube.version + 1)
        return True

    def _why_not(self, cube: MemCube) -> str:
        if cube.blob and cube.header.kind == "turn":
            return "KV of a conversation is made anew by its next turn"
        if cube.blob and cube.state in GONE and not self.history:
            return f"it is {cube.state}, and its sources are in the pack"
        for source in cube.sources:
            now = self.vault.at([source.id])
            if not now or now[0].rights.owner != cube.rights.owner:
                return "it is made of a memory that is gone or of somebody else"
            if not self.take(now[0]):
                return f"it is made of {source.id}, which stays behind"
            if source.version not in self.packed[source.id]:
                return f"it is made of version {source.version} of {source.id}, which is not in the pack"
        return ""

    def _earlier(self, cube: MemCube) -> tuple[MemCube, ...]:
        """Its versions before, where all that those are made of is in the pack."""
        if not self.history or cube.blob:
            return ()
        earlier = self.vault.versions(cube.id)[:-1]
        sound = all(s.version in self.packed.get(s.id, ()) for c in earlier for s in c.sources)
        return tuple(map(_without_usage, earlier)) if sound else ()

    def _probes(self, cube: MemCube) -> tuple[Probe, ...]:
        if not isinstance(cube.payload, Text):
            return ()
        return tuple(dict.fromkeys((*cube.payload.probes, *self.reader.probes(cube.payload.facts))))

    def _origin(self, cube: MemCube) -> Origin | None:
        return next(iter(self.table.origins(cube.id)), None)


def _without_usage(cube: MemCube) -> MemCube:
    return cube.model_copy(update={"usage": Usage()})


def _slices(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[n : n + _BATCH] for n in range(0, len(ids), _BATCH))
