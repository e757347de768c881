"""Manages packs of others in a vault: whom to trust, what is installed, updates and removal.

Knows registries and what became of a pack's memories. Must not know how a memory is taken over, nor who may do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from memos.cube import ANSWERING, GONE, Namespace, State, Text
from memos.errors import BadPack, Conflict, MemosError, NotFound, RegistryError, UntrustedKey
from memos.infrastructure.vault.audit.signing import SigningKey
from memos.infrastructure.vault.blobs.vault_files import digest
from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.life.mem_lifecycle import LOCKED, MemLifecycle
from memos.plugins.packs.dumper import Dumped, MemDumper, Selection
from memos.plugins.packs.loader import Clash, Loaded, MemLoader
from memos.plugins.packs.mem_store import MemStore
from memos.plugins.packs.mip import Listing, PackRelease, RegistryEntry, Version
from memos.plugins.packs.pack import PackReader
from memos.plugins.packs.pack_table import Installed, PackTable
from memos.plugins.packs.trusted_keys import TrustedKeys


@dataclass(frozen=True)
class PackUpdate:
    """What became of an installed pack. withdrawn: memories that are archived, by id, and why."""

    pack: str
    version: str
    was: str | None = None
    loaded: Loaded | None = None
    withdrawn: dict[str, str] = field(default_factory=dict)
    failed: str = ""


class Subscriptions:
    """Acts on the packs of one user at a time, who may do so."""

    def __init__(
        self,
        vault: MemVault,
        lifecycle: MemLifecycle,
        table: PackTable,
        dumper: MemDumper,
        loader: MemLoader,
        trust: TrustedKeys,
    ) -> None:
        self._vault, self._lifecycle, self._table = vault, lifecycle, table
        self._dumper, self._loader, self._trust = dumper, loader, trust

    def publish(
        self,
        place: str,
        release: PackRelease,
        owner: Namespace,
        key: SigningKey,
        selection: Selection = Selection(),
        tensors: bool = True,
        maker: str = "",
    ) -> tuple[RegistryEntry, Dumped]:
        """Make a pack of the owner's memories in force and put it in a registry. Raises RegistryError, InputError."""
        store = MemStore(place)
        chosen = selection.model_copy(update={"states": ANSWERING, "turns": False})
        for needed in release.requires:
            store.pick(needed.pack, needed.versions)
        with self._vault.blobs.staging() as folder:
            folder.mkdir()
            made = self._dumper.dump(
                folder / "pack.mip",
                [owner],
                key,
                selection=chosen,
                tensors=tensors,
                release=release,
                maker=maker,
            )
            sha256, size = digest(made.path)
            listing = Listing(
                release=release,
                sha256=sha256,
                bytes=size,
                records=made.manifest.records,
                published=made.manifest.made,
            )
            return store.publish(made.path, listing, key), made

    def install(
        self,
        place: str,
        pack: str,
        owner: Namespace,
        versions: str = "",
        given: str | None = None,
        subscribed: bool = False,
        clash: Clash = "refuse",
    ) -> list[PackUpdate]:
        """Take a pack, with what it builds on, for a user; a pack that is there at another version is brought to this.

        All packs are checked before anything of one is taken over. given: see `TrustedKeys.require`. Raises
        RegistryError, UntrustedKey, BadPack, IdClash, NoRoom.
        """
        order = MemStore(place).resolve(pack, versions)
        with self._fetched(place, order, given) as packs:
            return [
                self._bring(place, entry, reader, owner, subscribed and entry is order[-1], clash)
                for entry, reader in zip(order, packs, strict=True)
            ]

    def subscribe(self, pack: str, owner: Namespace, on: bool = True) -> None:
        """Whether an installed pack is kept up. Raises NotFound."""
        installed = self._installed(pack, owner)
        with self._vault.transaction():
            self._table.install(owner.user_id, installed.entry, installed.registry, on)

    def update(self, owner: Namespace, pack: str | None = None, given: str | None = None) -> list[PackUpdate]:
        """Bring one installed pack, or all that are subscribed to, to its latest version; what was withdrawn is
        archived, with the reason. What fails is told, and the others go on; of one that is named, it is raised."""
        if pack is not None:
            return self._updated(self._installed(pack, owner), owner, given)
        out = []
        for there in self._table.installed(owner.user_id):
            if not there.subscribed:
                continue
            try:
                out += self._updated(there, owner, given)
            except (RegistryError, UntrustedKey, BadPack) as error:
                out.append(PackUpdate(there.pack, there.entry.said.release.version, failed=str(error)))
        return out

    def _updated(self, there: Installed, owner: Namespace, given: str | None) -> list[PackUpdate]:
        was = there.entry.said.release.version
        known = MemStore(there.registry).versions(there.pack)
        usable = [e for e in known if not e.said.withdrawn and Version(e.said.release.version).within("")]
        if usable and Version(usable[0].said.release.version) > Version(was):
            version = f"=={usable[0].said.release.version}"
            return self.install(there.registry, there.pack, owner, version, given, there.subscribed, "update")
        [now] = [e for e in known if e.said.release.version == was] or [there.entry]
        self._trust.require(now.said.release.publisher, now.key, given)
        if not now.said.withdrawn or there.entry.said.withdrawn:
            return [PackUpdate(there.pack, was, was)]
        with self._vault.transaction():
            gone = self._archive(there.pack, owner, lambda _: f"{there.pack} {was} was withdrawn: {now.said.withdrawn}")
            self._table.install(owner.user_id, now, there.registry, there.subscribed)
        return [PackUpdate(there.pack, was, was, withdrawn=gone)]

    def remove(self, pack: str, owner: Namespace) -> list[str]:
        """Delete the memories that a pack has brought, with KV and adapters of them, and nothing else.

        Raises NotFound, and Conflict where something else is made of them.
        """
        self._require_alone(pack, owner)
        with self._vault.transaction():
            ids = {a.id for a in self._table.arrivals(pack, owner.user_id) if not a.own}
            for made in self._vault.derived(*ids):
                if isinstance(made.payload, Text) and made.id not in ids:
                    raise Conflict(
                        f"memory {made.id} was made of one of {pack} and would go with it; `memos split {made.id}` or "
                        f"delete it first"
                    )
            self._table.depart(pack, owner.user_id)
            gone = list[str]()
            for id in ids:
                brought_by_another = self._table.origins(id)
                if not brought_by_another and self._vault.at([id]):  # it may have gone with one before
                    gone += self._lifecycle.delete(id)
            self._table.uninstall(owner.user_id, pack)
        return gone

    def _require_alone(self, pack: str, owner: Namespace) -> None:
        """Raises NotFound, Conflict."""
        self._installed(pack, owner)
        for other in self._table.installed(owner.user_id):
            if any(needed.pack == pack for needed in other.entry.said.release.requires):
                raise Conflict(f"{other.pack} builds on {pack}; remove that first")

    def _installed(self, pack: str, owner: Namespace) -> Installed:
        found = self._table.installed(owner.user_id)
        for there in found:
            if there.pack == pack:
                return there
        names = ", ".join(there.pack for there in found) or "none"
        raise NotFound(f"{owner} has not installed {pack!r:.200}; installed: {names}")

    @contextmanager
    def _fetched(self, place: str, entries: Sequence[RegistryEntry], given: str | None) -> Iterator[list[PackReader]]:
        """The packs of these, each checked to the last byte and against its entry."""
        store = MemStore(place)
        for entry in entries:
            self._trust.require(entry.said.release.publisher, entry.key, given)
        with ExitStack() as open_:
            packs = []
            for entry in entries:
                file = open_.enter_context(self._vault.blobs.staging())
                store.fetch(entry, file)
                pack = open_.enter_context(PackReader(file, self._trust.required(given)))
                if pack.key != entry.key or pack.manifest.release != entry.said.release:
                    raise BadPack(
                        f"{entry.said.release.pack} {entry.said.release.version} in {place} is another pack than its "
                        f"entry says; nothing was installed, tell {entry.said.release.publisher}"
                    )
                packs.append(pack)
            for pack in packs:
                self._trust.pin(pack)
            yield packs

    def _bring(
        self, place: str, entry: RegistryEntry, pack: PackReader, owner: Namespace, subscribed: bool, clash: Clash
    ) -> PackUpdate:
        release, user = entry.said.release, owner.user_id
        before = [there for there in self._table.installed(user) if there.pack == release.pack]
        subscribed = subscribed or any(there.subscribed for there in before)
        if not before:  # so that what is cut off here can be removed
            with self._vault.transaction():
                self._table.install(user, entry, place, subscribed)
        try:
            loaded = self._loader.load(pack, owner, "update" if before else clash)
        except MemosError:
            if not before and not self._table.arrivals(release.pack, user):
                with self._vault.transaction():
                    self._table.uninstall(user, release.pack)
            raise
        now = {record.cube.id for records in pack.parts_of_records() for record in records}
        reasons = {taken.id: taken.why for taken in release.withdrawn}

        def why(original: str) -> str:
            return "" if original in now else reasons.get(original, f"no longer in {release.pack} {release.version}")

        with self._vault.transaction():
            gone = self._archive(release.pack, owner, why)
            self._table.install(user, entry, place, subscribed)
        was = before[0].entry.said.release.version if before else None
        return PackUpdate(release.pack, release.version, was, loaded, gone)

    def _archive(self, pack: str, owner: Namespace, why: Callable[[str], str]) -> dict[str, str]:
        """Put memories of a pack out of use, each by the name that it has there; "" leaves one in. What somebody has
        locked here stays."""
        gone = {}
        for arrival in self._table.arrivals(pack, owner.user_id):
            cube = self._vault.get(arrival.id)
            reason = why(arrival.original)
            if reason and not arrival.own and cube.state not in GONE | LOCKED:
                self._lifecycle.move(cube.id, State.ARCHIVED, reason)
                gone[cube.id] = reason
        return gone
