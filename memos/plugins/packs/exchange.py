"""Memories that travel: from a vault to a pack, and from a pack to a vault, another model, another user.

    vault -> MemDumper -> pack -> MemLoader -> vault
             sources first        each part in one transaction

Knows what of a memory travels, and what becomes of what is there already. Must not know registries, nor who may do so.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from memos.cube import Blob, Form, Frozen, MemCube, Namespace, Probe, Rights, Source, State, Text, Turn, Usage, new_id
from memos.errors import BadTransition, CorruptBlob, IdClash, InputError, MemosError, NotFound
from memos.infrastructure.governance.signing import SigningKey
from memos.infrastructure.vault.mem_vault import MemVault
from memos.interface.reading.mem_reader import MemReader
from memos.operation.choosing.mem_scheduler import ALWAYS
from memos.operation.life.knowledge import Knowledge
from memos.operation.life.mem_lifecycle import ANSWERING, GONE, MemLifecycle
from memos.plugins.packs.mip import Manifest, Origin, Record, Release, content_of
from memos.plugins.packs.pack import PackReader, PackWriter
from memos.plugins.packs.pack_file import writing
from memos.plugins.packs.pack_table import Arrival

log = logging.getLogger("memos")
Clash = Literal["refuse", "rename", "update"]
Fits = Callable[[Blob], bool]  # made by the model that is there
# (tensor, where it lies, what it is made of, whether it is of a stranger): raises where it cannot be used
Try = Callable[[Blob, Path, Sequence[MemCube], bool], None]
_AT_ONCE = 500  # cubes that are read at once


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
    manifest: Manifest
    left: dict[str, str] = field(default_factory=dict)


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


class MemDumper:
    """Writes what belongs to a user."""

    def __init__(
        self, vault: MemVault, reader: MemReader, visible: Callable[[Namespace, Iterable[MemCube]], list[MemCube]]
    ) -> None:
        """visible: those of the cubes that a caller may read."""
        self._vault, self._reader, self._visible = vault, reader, visible

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
        release: Release | None = None,
        made: datetime | None = None,
        maker: str = "",
    ) -> Dumped:
        """A pack of the memories of these that are selected, with what those are made of and the KV and adapters that
        are made of them alone. Raises InputError where nothing is selected.

        history: earlier versions too, and tensors out of use.
        """
        left: dict[str, str] = {}
        with writing(path, folder) as sink:
            writer, there = PackWriter(sink), dict[str, range]()
            for owner in owners:
                public = release is not None
                travel = _Travel(self._vault, self._reader, writer, there, left, tensors, history, public)
                for cube in self._own(owner, selection):
                    travel.take(cube)
                if tensors:
                    for cube in self._made(owner, there):
                        travel.take(cube)
            if not there:
                raise InputError(f"no memory of {', '.join(map(str, owners))} is selected; see `memos ls`")
            manifest = writer.seal(key, made or self._vault.now(), maker=maker, release=release, history=history)
        return Dumped(path, key.public, manifest, left)

    def _own(self, owner: Namespace, selection: Selection) -> Iterator[MemCube]:
        """Texts and turns that belong to the owner, in the order of their making."""
        if missing := [id for id in selection.ids if not any(self._readable(owner, [id]))]:
            raise NotFound(f"no memory {missing[0]} of {owner}; see `memos ls`")
        for ids in _slices(selection.ids or self._vault.ids(owner.user_id)):
            for cube in self._readable(owner, ids):
                if (cube.form is Form.PLAINTEXT or selection.ids) and selection.takes(cube):
                    yield cube

    def _made(self, owner: Namespace, there: Collection[str]) -> Iterator[MemCube]:
        """KV and adapters of what is in the pack."""
        for ids in _slices(self._vault.ids(owner.user_id)):
            for cube in self._readable(owner, ids):
                if cube.blob and all(source.id in there for source in cube.sources):
                    yield cube

    def _readable(self, owner: Namespace, ids: Sequence[str]) -> list[MemCube]:
        seen = self._visible(owner, self._vault.at(ids))
        return [c for c in seen if c.rights.owner == owner.user_id and owner.covers(c.namespace)]


@dataclass(frozen=True)
class _Travel:
    """One pack in the making. there: the versions that are in it, by id. public: others may read it."""

    vault: MemVault
    reader: MemReader
    writer: PackWriter
    there: dict[str, range]
    left: dict[str, str]
    tensors: bool
    history: bool
    public: bool

    def take(self, cube: MemCube) -> bool:
        """Put it in the pack after its sources; False where it stays behind."""
        if cube.id in self.there:
            return True
        if why := self._why_not(cube):
            self.left[cube.id] = why
            return False
        earlier = self._earlier(cube)
        if cube.blob:
            try:
                self.writer.payload(cube.blob, self.vault.blob_path(cube.blob))
            except CorruptBlob as error:
                self.left[cube.id] = str(error)
                return False
        told = _bare(self.vault.guard.as_shown(cube) if self.public else cube)
        self.writer.add(Record(cube=told, earlier=earlier, probes=self._probes(told), origin=self._origin(cube)))
        self.there[cube.id] = range(1 if earlier else cube.version, cube.version + 1)
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
            if source.version not in self.there[source.id]:
                return f"it is made of version {source.version} of {source.id}, which is not in the pack"
        return ""

    def _earlier(self, cube: MemCube) -> tuple[MemCube, ...]:
        """Its versions before, where all that those are made of is in the pack."""
        if not self.history or cube.blob:
            return ()
        line = self.vault.versions(cube.id)[:-1]
        sound = all(s.version in self.there.get(s.id, ()) for c in line for s in c.sources)
        return tuple(map(_bare, line)) if sound else ()

    def _probes(self, cube: MemCube) -> tuple[Probe, ...]:
        if not isinstance(cube.payload, Text):
            return ()
        return tuple(dict.fromkeys((*cube.payload.probes, *self.reader.probes(cube.payload.facts))))

    def _origin(self, cube: MemCube) -> Origin | None:
        return next(iter(self.vault.packs.origins(cube.id)), None)


class MemLoader:
    """Takes packs over for a user, who owns what is loaded."""

    def __init__(self, vault: MemVault, lifecycle: MemLifecycle, knowledge: Knowledge, reader: MemReader) -> None:
        self._vault, self._lifecycle, self._knowledge, self._reader = vault, lifecycle, knowledge, reader

    def load(
        self,
        pack: PackReader,
        owner: Namespace | None,
        fits: Fits,
        usable: Try,
        clash: Clash = "refuse",
        own: bool = False,
    ) -> Loaded:
        """Take over all memories of a pack that has been checked; done again, it goes on from where it was cut off.

        owner: whose they are from now on; None: as they were. fits: tells whether a tensor was made by the model that
        is there; it is used then, and made anew by a job where not. clash: what happens where an id stands for
        something else here: see docs/mip.md. own: it was made here, and what it says of how far its memories are
        believed holds; of others, where they come from decides, and what is against one puts it in quarantine. Raises
        IdClash before anything is written, NoRoom after whole parts.
        """
        release = pack.manifest.release
        done = Loaded(release.pack if release else pack.key)
        task = _Loading(self, pack, owner, fits, usable, clash, own and release is None, done)
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
    fits: Fits
    usable: Try
    clash: Clash
    own: bool
    done: Loaded

    @property
    def vault(self) -> MemVault:
        return self.to._vault

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
        ids = {r.cube.id for r in records} | {s.id for r in records for c in _line(r) for s in c.sources}
        turns = [r.cube.payload for r in records if isinstance(r.cube.payload, Turn)]
        ids |= {id for turn in turns for id in (turn.since, *turn.shown)}
        return self.vault.packs.arrived(self.done.source, self.user, sorted(ids))

    def _taken(self, cube: MemCube) -> bool:
        return bool(self.vault.at([cube.id])) and not self._is_ours(cube)

    def _is_ours(self, cube: MemCube) -> bool:
        """True if the user has this very memory already."""
        [*there] = self.vault.at([cube.id])
        owner = self.owner.user_id if self.owner else cube.rights.owner
        return any(c.rights.owner == owner and content_of(c) == content_of(cube) for c in there)

    def take(self, records: Sequence[Record]) -> None:
        """All of them, with their payloads, in one transaction."""
        with ExitStack() as staged:
            arrived = self._arrived(records)
            useful = {r.cube.id for r in records if r.cube.blob and self._comes_along(r, records, arrived, staged)}
            with self.vault.transaction():
                for record in records:
                    self._take(record, arrived, record.cube.id in useful)
                for user in {r.cube.namespace.user_id for r in records} if self.owner is None else {self.user}:
                    self.to._knowledge.require_room(Namespace(user_id=user))

    def _comes_along(
        self, record: Record, records: Sequence[Record], arrived: dict[str, Arrival], staged: ExitStack
    ) -> bool:
        """True if a tensor can be used here; it is in blobs/ then."""
        cube = record.cube
        assert cube.blob
        if cube.id in arrived or self._is_ours(cube) or not self.fits(cube.blob):
            return False
        if cube.form is Form.PARAMETRIC and not self.vault.guard.may_teach(self._believed(cube)):
            return False
        beside = {r.cube.id: r.cube for r in records}
        here = {s.id: self.vault.at([arrived[s.id].id])[0] for s in cube.sources if s.id in arrived}
        sources = [beside.get(s.id) or here[s.id] for s in cube.sources if s.id in beside or s.id in here]
        path = staged.enter_context(self.vault.staging())
        self.pack.extract(cube.blob, path)
        try:
            self.usable(cube.blob, path, sources, self.published)
        except MemosError as error:
            log.warning("made anew: %s", error)
            return False
        sha256, _ = self.vault.store(path)
        assert sha256 == cube.blob.sha256  # checked as it was extracted
        return True

    def _take(self, record: Record, arrived: dict[str, Arrival], useful: bool) -> None:
        cube = record.cube
        known = arrived.get(cube.id)
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
        lines = [self._placed(c, n, id, record, arrived) for n, c in enumerate(_line(record), 1)]
        if any(line is None for line in lines):
            self.done.left[cube.id] = "what it is made of has changed here, or was not taken over"
            return
        state = self._state(cube.state)
        here = self.to._lifecycle.take_over([c for c in lines if c], state, f"as it was in {self.name or 'the dump'}")
        self._arrive(record, here, arrived)
        self._examine(here)
        self.done.added.append(id)
        if id != cube.id:
            self.done.renamed[cube.id] = id
        if cube.blob:
            self.done.tensors.append(id)

    def _state(self, there: State) -> State:
        """What a publisher has locked is not locked for those who take it."""
        return State.ACTIVATED if self.published and there is State.FROZEN else there

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

    def _namespace(self, there: Namespace) -> Namespace:
        assert self.owner
        if self.published:
            return self.owner
        agent, session = self.owner.agent_id or there.agent_id, self.owner.session_id or there.session_id
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
            self.to._knowledge.examine(cube)

    def _against(self, cube: MemCube) -> str | None:
        """Why somebody else's turn of a conversation, which has no quarantine, is not taken over."""
        if self.own or not isinstance(cube.payload, Turn):
            return None
        said = Text(text=f"{cube.payload.question}\n{cube.payload.answer}")
        return self.vault.guard.suspicion(self._believed(cube).model_copy(update={"payload": said}), lambda _: 0)

    def _payload(self, cube: MemCube, id: str, record: Record, arrived: dict[str, Arrival]) -> Text | Turn | Blob:
        match cube.payload:
            case Text() as text:
                known = {*text.probes, *self.to._reader.probes(text.facts)}
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
        self.vault.packs.arrive(self.done.source, self.user, arrival)
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
            new = self.to._lifecycle.edit(here.id, payload, cube.header.segment, **header)
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
        job = self.vault.queue_job(f"promote to {cube.form}", payload)
        if job not in self.done.rebuilding:
            self.done.rebuilding.append(job)


def _bare(cube: MemCube) -> MemCube:
    return cube.model_copy(update={"usage": Usage()})


def _line(record: Record) -> tuple[MemCube, ...]:
    return (*record.earlier, record.cube)


def _here(source: Source, arrived: dict[str, Arrival]) -> Source | None:
    """A source by its name and version here; None where it is not here."""
    arrival = arrived.get(source.id)
    version = arrival.here - (arrival.there - source.version) if arrival else 0
    return Source(id=arrival.id, version=version) if arrival and version > 0 else None


def _digest(cube: MemCube) -> str:
    return hashlib.sha256(json.dumps(content_of(cube), sort_keys=True).encode()).hexdigest()


def _slices(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[n : n + _AT_ONCE] for n in range(0, len(ids), _AT_ONCE))
