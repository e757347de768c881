"""Loads the memories of a pack as a user's own, each part of the pack in one transaction.

Knows what becomes of what is there already. Must not know registries, nor who may load what.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from memos.cube import ANSWERING, GONE, Blob, Form, MemCube, Namespace, Rights, Source, State, Text, Turn, new_id
from memos.errors import BadTransition, IdClash, InputError, MemosError
from memos.infrastructure.vault.mem_vault import MemVault
from memos.interface.reading.mem_reader import MemReader
from memos.operation.choosing.mem_scheduler import ALWAYS
from memos.operation.choosing.upkeep import JobKind
from memos.operation.life.knowledge import Knowledge
from memos.operation.life.mem_lifecycle import MemLifecycle
from memos.plugins.packs.mip import Origin, Record, content_of
from memos.plugins.packs.pack import PackReader
from memos.plugins.packs.pack_table import Arrival, PackTable
from memos.plugins.pictures.media import require_media

log = logging.getLogger("memos")
Clash = Literal["refuse", "rename", "update"]
Fits = Callable[[Blob], bool]  # made by the model that is there
# (tensor, where it lies, what it is made of, whether it was published, whether this vault signed it): raises where it
# cannot be used
Accept = Callable[[Blob, Path, Sequence[MemCube], bool, bool], None]


@dataclass(frozen=True)
class Loaded:
    """What became of a pack's memories, in ids of this vault.

    source: the pack, or the key of a dump. there: what was in already. renamed: new ids by those in the pack. tensors:
    KV and adapters that are used as they came; rebuilding: jobs, by id, that make them anew. left: what was not taken
    over, by its id in the pack, and why.
    """

    source: str
    added: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    tensors: list[str] = field(default_factory=list)
    rebuilding: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


class MemLoader:
    """Takes packs over for a user, who owns what is loaded."""

    def __init__(
        self,
        vault: MemVault,
        lifecycle: MemLifecycle,
        knowledge: Knowledge,
        reader: MemReader,
        table: PackTable,
        fits: Fits,
        accept: Accept,
    ) -> None:
        """fits: tells whether a tensor was made by the model that is there; it is used then, and made anew by a job
        where not. accept: tries such a tensor, and raises where it cannot be used."""
        self.vault, self.lifecycle, self.knowledge, self.reader = vault, lifecycle, knowledge, reader
        self.table, self.fits, self.accept = table, fits, accept

    def load(self, pack: PackReader, owner: Namespace | None, clash: Clash = "refuse", own: bool = False) -> Loaded:
        """Take over all memories of a pack that has been checked; done again, it goes on from where it was cut off.

        owner: whose they are from now on; None: as they were. clash: what happens where an id stands for something
        else here: see docs/mip.md. own: it was made here, and what it says of how far its memories are believed holds;
        of others, where they come from decides, and what is against one puts it in quarantine. Raises IdClash before
        anything is written, NoRoom after whole parts.
        """
        release = pack.manifest.release
        done = Loaded(release.pack if release else pack.key)
        task = _Loading(self, pack, owner, clash, own and release is None, done)
        task.require_free()
        for records in pack.parts_of_records():
            task.take(records)
        return task.done


@dataclass(frozen=True)
class _Loading:
    """One pack on its way in."""

    to: MemLoader
    pack: PackReader
    owner: Namespace | None
    clash: Clash
    own: bool
    done: Loaded

    @property
    def vault(self) -> MemVault:
        return self.to.vault

    @property
    def user(self) -> str:
        """For whom arrivals are written down."""
        return self.owner.user_id if self.owner else ""

    @property
    def published(self) -> bool:
        return self.pack.manifest.release is not None

    @property
    def name(self) -> str:
        release = self.pack.manifest.release
        return f"{release.pack} {release.version}" if release else ""

    def require_free(self) -> None:
        """Raises IdClash where something would be overwritten, or stand beside itself under another id."""
        if self.clash != "refuse":
            return
        for records in self.pack.parts_of_records():
            arrived = self._arrived(records)
            for record in records:
                cube = record.cube
                known = arrived.get(cube.id)
                if known and known.digest != _digest(cube):
                    raise IdClash(
                        f"memory {cube.id} of {self.pack.path} was loaded before and says something else now; nothing "
                        f"was loaded: give --clash update to make that a new version"
                    )
                if not known and self._taken(cube):
                    raise IdClash(
                        f"the id {cube.id} of {self.pack.path} stands for something else in this vault; nothing was "
                        f"loaded: give --clash rename to load the pack's memory under a new id"
                    )

    def _arrived(self, records: Sequence[Record]) -> dict[str, Arrival]:
        """What came before, of these and of what they are made of."""
        ids = {r.cube.id for r in records} | {s.id for r in records for c in _versions(r) for s in c.sources}
        turns = [r.cube.payload for r in records if isinstance(r.cube.payload, Turn)]
        ids |= {id for turn in turns for id in (turn.since, *turn.shown)}
        return self.to.table.arrived(self.done.source, self.user, sorted(ids))

    def _taken(self, cube: MemCube) -> bool:
        return bool(self.vault.at([cube.id])) and not self._is_ours(cube)

    def _is_ours(self, cube: MemCube) -> bool:
        """True if the user has this very memory already."""
        [*found] = self.vault.at([cube.id])
        owner = self.owner.user_id if self.owner else cube.rights.owner
        return any(c.rights.owner == owner and content_of(c) == content_of(cube) for c in found)

    def take(self, records: Sequence[Record]) -> None:
        """All of them, with their payloads, in one transaction."""
        with ExitStack() as staged:
            arrived = self._arrived(records)
            self._bring_files(records, arrived, staged)
            useful = {r.cube.id for r in records if r.cube.blob and self._comes_along(r, records, arrived, staged)}
            with self.vault.transaction():
                for record in records:
                    self._take(record, arrived, record.cube.id in useful)
                for user in {r.cube.namespace.user_id for r in records} if self.owner is None else {self.user}:
                    self.to.knowledge.require_room(Namespace(user_id=user))

    def _bring_files(self, records: Sequence[Record], arrived: dict[str, Arrival], staged: ExitStack) -> None:
        """Bring the files that texts tell of into blobs/, from where they go again if no cube names them after all."""
        known = {id: arrival.digest for id, arrival in arrived.items()}
        new = [r for r in records if not r.cube.blob and known.get(r.cube.id) != _digest(r.cube)]
        for cube in (cube for record in new for cube in _versions(record) if cube.stored):
            path = staged.enter_context(self.vault.blobs.staging())
            self.pack.extract(cube.stored, path)
            try:
                require_media(path, cube.media_type, f"the file of memory {cube.id}")
            except InputError as error:
                self.done.left[cube.id] = str(error)
                continue
            self.vault.blobs.store(path)
            staged.callback(self.vault.blobs.discard, cube.stored)

    def _comes_along(
        self, record: Record, records: Sequence[Record], arrived: dict[str, Arrival], staged: ExitStack
    ) -> bool:
        """True if a tensor can be used here; it is in blobs/ then."""
        cube = record.cube
        assert cube.blob
        if cube.id in arrived or self._is_ours(cube) or not self.to.fits(cube.blob):
            return False
        if cube.form is Form.PARAMETRIC and not self.vault.guard.may_teach(self._believed(cube)):
            return False
        beside = {r.cube.id: r.cube for r in records}
        here = {s.id: self.vault.at([arrived[s.id].id])[0] for s in cube.sources if s.id in arrived}
        sources = [beside.get(s.id) or here[s.id] for s in cube.sources if s.id in beside or s.id in here]
        path = staged.enter_context(self.vault.blobs.staging())
        self.pack.extract(cube.blob.sha256, path)
        try:
            self.to.accept(cube.blob, path, sources, self.published, self.own)
        except MemosError as error:
            log.warning("made anew: %s", error)
            return False
        sha256, _ = self.vault.blobs.store(path)
        assert sha256 == cube.blob.sha256  # checked as it was extracted
        return True

    def _take(self, record: Record, arrived: dict[str, Arrival], useful: bool) -> None:
        cube = record.cube
        known = arrived.get(cube.id)
        if cube.id in self.done.left:
            return
        if known and known.digest == _digest(cube):
            self.done.there.append(known.id)
        elif known:
            self._update(record, known, arrived)
        elif self._is_ours(cube):
            [here] = self.vault.at([cube.id])
            self._arrive(record, here, arrived, own=True)
            self.done.there.append(cube.id)
        elif cube.blob and not useful:
            self._rebuild(cube, arrived)
        else:
            self._add(record, arrived)

    def _add(self, record: Record, arrived: dict[str, Arrival]) -> None:
        cube = record.cube
        if why := self._against(cube):
            self.done.left[cube.id] = why
            return
        id = cube.id if not self.vault.at([cube.id]) else new_id()
        lines = [self._placed(c, n, id, record, arrived) for n, c in enumerate(_versions(record), 1)]
        if any(line is None for line in lines):
            self.done.left[cube.id] = "what it is made of has changed here, or was not taken over"
            return
        state = self._state(cube.state)
        here = self.to.lifecycle.take_over([c for c in lines if c], state, f"as it was in {self.name or 'the dump'}")
        self._arrive(record, here, arrived)
        self._examine(here)
        self.done.added.append(id)
        if id != cube.id:
            self.done.renamed[cube.id] = id
        if cube.blob:
            self.done.tensors.append(id)

    def _state(self, state: State) -> State:
        """What a publisher has locked is not locked for those who take it."""
        return State.ACTIVATED if self.published and state is State.FROZEN else state

    def _placed(
        self, cube: MemCube, version: int, id: str, record: Record, arrived: dict[str, Arrival]
    ) -> MemCube | None:
        """The memory as it is to be kept here; None where what it is made of is not here as it was."""
        sources = tuple(_here(source, arrived) for source in cube.sources)
        if any(source is None for source in sources):
            return None
        update = {
            "id": id,
            "version": version,
            "sources": tuple(source for source in sources if source),
            "payload": self._payload(cube, id, record, arrived),
            "header": self._believed(cube).header,
        }
        if self.owner:
            update["rights"] = Rights(owner=self.owner.user_id)
            update["namespace"] = self._namespace(cube.namespace)
        return cube.model_copy(update=update)

    def _namespace(self, original: Namespace) -> Namespace:
        assert self.owner
        if self.published:
            return self.owner
        agent, session = self.owner.agent_id or original.agent_id, self.owner.session_id or original.session_id
        return Namespace(user_id=self.owner.user_id, agent_id=agent, session_id=session)

    def _believed(self, cube: MemCube) -> MemCube:
        """As far as where it comes from is. Of a published one, where that is; and that it is in every request is not
        for a publisher to say."""
        if self.own:
            return cube
        header, come = cube.header, f"pack:{self.name}" if self.published else "import"
        update: dict[str, object] = {"trust": self.vault.guard.trust(come, header.trust)}
        if self.published:
            update |= {"origin": come, "tags": tuple(tag for tag in header.tags if tag != ALWAYS)}
        return cube.model_copy(update={"header": header.model_copy(update=update)})

    def _examine(self, cube: MemCube) -> None:
        """A text of somebody else, that is in use or can be brought back."""
        if not self.own and isinstance(cube.payload, Text) and cube.state is not State.EXPIRED:
            self.to.knowledge.examine(cube)

    def _against(self, cube: MemCube) -> str | None:
        """Why somebody else's turn of a conversation, which has no quarantine, is not taken over."""
        if self.own or not isinstance(cube.payload, Turn):
            return None
        whole = Text(text=f"{cube.payload.question}\n{cube.payload.answer}")
        return self.vault.guard.suspicion(self._believed(cube).model_copy(update={"payload": whole}), lambda _: 0)

    def _payload(self, cube: MemCube, id: str, record: Record, arrived: dict[str, Arrival]) -> Text | Turn | Blob:
        match cube.payload:
            case Text() as text:
                known = {*text.probes, *self.to.reader.probes(text.facts)}
                more = tuple(probe for probe in record.probes if probe not in known) if cube is record.cube else ()
                return text.model_copy(update={"probes": (*text.probes, *more)}) if more else text
            case Turn() as turn:
                names = {original: arrival.id for original, arrival in arrived.items()} | {cube.id: id}
                shown = tuple(names.get(other, other) for other in turn.shown)
                return turn.model_copy(update={"shown": shown, "since": names.get(turn.since, turn.since)})
            case Blob() as blob:
                return blob

    def _arrive(self, record: Record, here: MemCube, arrived: dict[str, Arrival], own: bool = False) -> None:
        cube = record.cube
        origin = Origin(
            key=self.pack.key,
            pack=self.name,
            id=cube.id,
            version=cube.version,
            owner=cube.rights.owner,
            namespace=cube.namespace,
        )
        arrival = Arrival(cube.id, here.id, here.version, cube.version, _digest(cube), own, origin)
        self.to.table.arrive(self.done.source, self.user, arrival)
        arrived[cube.id] = arrival

    def _update(self, record: Record, known: Arrival, arrived: dict[str, Arrival]) -> None:
        """A new version of what came before, believed no further than either; what is the user's own stays."""
        cube, [here] = self._believed(record.cube), self.vault.at([known.id])
        try:
            if not isinstance(cube.payload, Text):
                raise BadTransition("only what a text says is updated")
            if known.own and not self.own:
                raise BadTransition("it is the user's own here; edit it by hand")
            if here.payload != self.vault.get(known.id, known.here).payload:
                raise BadTransition("it was edited here; edit it by hand, or delete it and load it anew")
            payload = self._payload(record.cube, here.id, record, arrived)
            assert isinstance(payload, Text)
            header: dict[str, object] = {} if cube.sources else {"expires": cube.header.expires}
            header["trust"] = max((cube.header.trust, here.header.trust), key=lambda trust: trust.rank)
            new = self.to.lifecycle.edit(here.id, payload, cube.header.segment, None, **header)
        except MemosError as error:
            self.done.left[cube.id] = str(error)
            return
        self._arrive(record, new, arrived, known.own)
        self._examine(new)
        self.done.updated.append(new.id)

    def _rebuild(self, cube: MemCube, arrived: dict[str, Arrival]) -> None:
        """A job that makes a tensor anew of its sources, which are here as texts."""
        sources = [_here(source, arrived) for source in cube.sources]
        pins = [source for source in sources if source]
        texts = self.vault.at(pin.id for pin in pins)
        fresh = [c for c, pin in zip(texts, pins, strict=True) if c.version == pin.version and c.state in ANSWERING]
        if len(fresh) < len(cube.sources) or self._state(cube.state) in GONE:
            self.done.left[cube.id] = "it fits another model, and what it is made of is not in use here"
            return
        payload = {"sources": [f"{c.id}@{c.version}" for c in fresh], "why": "the pack's was made by another model"}
        job = self.vault.jobs.queue(JobKind.promote(cube.form), payload)
        if job not in self.done.rebuilding:
            self.done.rebuilding.append(job)


def _versions(record: Record) -> tuple[MemCube, ...]:
    return (*record.earlier, record.cube)


def _here(source: Source, arrived: dict[str, Arrival]) -> Source | None:
    """A source by its name and version here; None where it is not here."""
    arrival = arrived.get(source.id)
    version = arrival.here - (arrival.there - source.version) if arrival else 0
    return Source(id=arrival.id, version=version) if arrival and version > 0 else None


def _digest(cube: MemCube) -> str:
    return hashlib.sha256(json.dumps(content_of(cube), sort_keys=True).encode()).hexdigest()
