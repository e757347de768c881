"""Packs of others in a vault: whom to trust, what is installed, kept up with its publisher, and taken out again.

Knows registries and what became of a pack's memories. Must not know how a memory is taken over, nor who may do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from memos.cube import Namespace, State, Text
from memos.errors import BadPack, Conflict, MemosError, NotFound, RegistryError, UntrustedKey
from memos.infrastructure.governance.signing import SigningKey
from memos.infrastructure.vault.blobs.vault_files import digest
from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.life.mem_lifecycle import ANSWERING, GONE, LOCKED, MemLifecycle
from memos.plugins.packs.exchange import Clash, Dumped, Fits, Loaded, MemDumper, MemLoader, Selection, Try
from memos.plugins.packs.mem_store import MemStore
from memos.plugins.packs.mip import Entry, Manifest, Release, Said, Version
from memos.plugins.packs.pack import PackReader
from memos.plugins.packs.pack_table import Installed


class TrustedKeys:
    """Trust on first use: who is trusted once is known by that key alone from then on."""

    def __init__(self, vault: MemVault, file: Path) -> None:
        """file: the vault's own key, made when it is first needed."""
        self._vault, self._file = vault, file

    def key(self, file: Path | None = None) -> SigningKey:
        """The key in another file, or the vault's own. Raises InputError."""
        return SigningKey.kept(file or self._file)

    def own(self, key: str) -> bool:
        """True for the vault's own."""
        return self._file.exists() and self.key().public == key

    def require(self, name: str, key: str, given: str | None) -> None:
        """Return if the key may stand for the name, a publisher's; "" for a dump's, which has none.

        given: a key that somebody vouches for. Raises UntrustedKey.
        """
        pinned = self._vault.packs.pins().get(name or key)
        whose = f"publisher {name}" if name else "who made the dump"
        if pinned is not None and pinned != key:
            raise UntrustedKey(
                f"the key of {whose} has changed from {pinned} to {key}: somebody else may have signed this; ask them, "
                f"and if it is theirs, give up the old key with `memos store untrust {name}` and trust the new one"
            )
        if pinned == key or given == key or self.own(key):
            return
        raise UntrustedKey(
            f"the key {key} of {whose} is not known here, so nothing was taken over; compare it with the one that they "
            f"tell you, and if it is theirs, give --trust {key}"
        )

    def required(self, given: str | None) -> Callable[[str, Manifest], None]:
        """`require`, as a reader of packs asks for it."""
        return lambda key, manifest: self.require(manifest.release.publisher if manifest.release else "", key, given)

    def pin(self, pack: PackReader) -> None:
        """Whoever signed it is trusted from now on."""
        release = pack.manifest.release
        name = release.publisher if release else pack.key
        if self._vault.packs.pins().get(name) != pack.key:
            self._vault.packs.pin(name, pack.key)


@dataclass(frozen=True)
class Kept:
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
        dumper: MemDumper,
        loader: MemLoader,
        trust: TrustedKeys,
        fits: Fits,
        usable: Try,
    ) -> None:
        self._vault, self._lifecycle, self._dumper, self._loader = vault, lifecycle, dumper, loader
        self._trust, self._fits, self._usable = trust, fits, usable

    def publish(
        self,
        place: str,
        release: Release,
        owner: Namespace,
        key: SigningKey,
        selection: Selection = Selection(),
        tensors: bool = True,
        maker: str = "",
    ) -> tuple[Entry, Dumped]:
        """Make a pack of the owner's memories in force and put it in a registry. Raises RegistryError, InputError."""
        store = MemStore(place)
        chosen = selection.model_copy(update={"states": ANSWERING, "turns": False})
        for needed in release.requires:
            store.pick(needed.pack, needed.versions)
        with self._vault.staging() as folder:
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
            said = Said(
                release=release,
                sha256=sha256,
                bytes=size,
                records=made.manifest.records,
                published=made.manifest.made,
            )
            return store.publish(made.path, said, key), made

    def install(
        self,
        place: str,
        pack: str,
        owner: Namespace,
        versions: str = "",
        given: str | None = None,
        subscribed: bool = False,
        clash: Clash = "refuse",
    ) -> list[Kept]:
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
        there = self._installed(pack, owner)
        with self._vault.transaction():
            self._vault.packs.install(owner.user_id, there.entry, there.registry, on)

    def update(self, owner: Namespace, pack: str | None = None, given: str | None = None) -> list[Kept]:
        """Bring one installed pack, or all that are subscribed to, to its latest version; what was withdrawn is
        archived, with the reason. What fails is told, and the others go on; of one that is named, it is raised."""
        if pack is not None:
            return self._updated(self._installed(pack, owner), owner, given)
        out = []
        for there in self._vault.packs.installed(owner.user_id):
            if not there.subscribed:
                continue
            try:
                out += self._updated(there, owner, given)
            except (RegistryError, UntrustedKey, BadPack) as error:
                out.append(Kept(there.pack, there.entry.said.release.version, failed=str(error)))
        return out

    def _updated(self, there: Installed, owner: Namespace, given: str | None) -> list[Kept]:
        was = there.entry.said.release.version
        known = MemStore(there.registry).versions(there.pack)
        usable = [e for e in known if not e.said.withdrawn and Version(e.said.release.version).within("")]
        if usable and Version(usable[0].said.release.version) > Version(was):
            version = f"=={usable[0].said.release.version}"
            return self.install(there.registry, there.pack, owner, version, given, there.subscribed, "update")
        [now] = [e for e in known if e.said.release.version == was] or [there.entry]
        self._trust.require(now.said.release.publisher, now.key, given)
        if not now.said.withdrawn or there.entry.said.withdrawn:
            return [Kept(there.pack, was, was)]
        with self._vault.transaction():
            gone = self._archive(there.pack, owner, lambda _: f"{there.pack} {was} was withdrawn: {now.said.withdrawn}")
            self._vault.packs.install(owner.user_id, now, there.registry, there.subscribed)
        return [Kept(there.pack, was, was, withdrawn=gone)]

    def remove(self, pack: str, owner: Namespace) -> list[str]:
        """Delete the memories that a pack has brought, with KV and adapters of them, and nothing else.

        Raises NotFound, and Conflict where something else is made of them.
        """
        self._require_alone(pack, owner)
        with self._vault.transaction():
            ids = {a.id for a in self._vault.packs.arrivals(pack, owner.user_id) if not a.own}
            for made in self._vault.derived(*ids):
                if isinstance(made.payload, Text) and made.id not in ids:
                    raise Conflict(
                        f"memory {made.id} was made of one of {pack} and would go with it; `memos split {made.id}` or "
                        f"delete it first"
                    )
            self._vault.packs.depart(pack, owner.user_id)
            gone = list[str]()
            for id in ids:
                brought_by_another = self._vault.packs.origins(id)
                if not brought_by_another and self._vault.at([id]):  # it may have gone with one before
                    gone += self._lifecycle.delete(id)
            self._vault.packs.uninstall(owner.user_id, pack)
        return gone

    def _require_alone(self, pack: str, owner: Namespace) -> None:
        """Raises NotFound, Conflict."""
        self._installed(pack, owner)
        for other in self._vault.packs.installed(owner.user_id):
            if any(needed.pack == pack for needed in other.entry.said.release.requires):
                raise Conflict(f"{other.pack} builds on {pack}; remove that first")

    def _installed(self, pack: str, owner: Namespace) -> Installed:
        found = self._vault.packs.installed(owner.user_id)
        for there in found:
            if there.pack == pack:
                return there
        names = ", ".join(there.pack for there in found) or "none"
        raise NotFound(f"{owner} has not installed {pack!r:.200}; installed: {names}")

    @contextmanager
    def _fetched(self, place: str, entries: Sequence[Entry], given: str | None) -> Iterator[list[PackReader]]:
        """The packs of these, each checked to the last byte and against its entry."""
        store = MemStore(place)
        for entry in entries:
            self._trust.require(entry.said.release.publisher, entry.key, given)
        with ExitStack() as open_:
            packs = []
            for entry in entries:
                file = open_.enter_context(self._vault.staging())
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
        self, place: str, entry: Entry, pack: PackReader, owner: Namespace, subscribed: bool, clash: Clash
    ) -> Kept:
        release, user = entry.said.release, owner.user_id
        before = [there for there in self._vault.packs.installed(user) if there.pack == release.pack]
        subscribed = subscribed or any(there.subscribed for there in before)
        if not before:  # so that what is cut off here can be removed
            with self._vault.transaction():
                self._vault.packs.install(user, entry, place, subscribed)
        try:
            loaded = self._loader.load(pack, owner, self._fits, self._usable, "update" if before else clash)
        except MemosError:
            if not before and not self._vault.packs.arrivals(release.pack, user):
                with self._vault.transaction():
                    self._vault.packs.uninstall(user, release.pack)
            raise
        now = {record.cube.id for records in pack.parts_of_records() for record in records}
        reasons = {taken.id: taken.why for taken in release.withdrawn}

        def why(original: str) -> str:
            return "" if original in now else reasons.get(original, f"no longer in {release.pack} {release.version}")

        with self._vault.transaction():
            gone = self._archive(release.pack, owner, why)
            self._vault.packs.install(user, entry, place, subscribed)
        was = before[0].entry.said.release.version if before else None
        return Kept(release.pack, release.version, was, loaded, gone)

    def _archive(self, pack: str, owner: Namespace, why: Callable[[str], str]) -> dict[str, str]:
        """Put memories of a pack out of use, each by the name that it has there; "" leaves one in. What somebody has
        locked here stays."""
        gone = {}
        for arrival in self._vault.packs.arrivals(pack, owner.user_id):
            cube = self._vault.get(arrival.id)
            reason = why(arrival.original)
            if reason and not arrival.own and cube.state not in GONE | LOCKED:
                self._lifecycle.move(cube.id, State.ARCHIVED, reason)
                gone[cube.id] = reason
        return gone
