"""The public calls on packs and on adapters that leave: each is permitted first, then carried out.

One whole service over the parts of a kernel, which knows nothing of it. Must not know a door.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from memos.cube import Frozen, MemCube, Namespace, in_zone
from memos.errors import Denied, InputError
from memos.kernel.calls import Services
from memos.ops import Get
from memos.plugins.packs.dumper import Dumped, MemDumper, Selection
from memos.plugins.packs.loader import Clash, Loaded, MemLoader
from memos.plugins.packs.mem_store import MemStore
from memos.plugins.packs.mip import Origin, RegistryEntry, release_of
from memos.plugins.packs.ops import Dump, ListPacks, Load, RemovePack, Untrust
from memos.plugins.packs.pack import PackReader
from memos.plugins.packs.pack_table import Installed, PackTable
from memos.plugins.packs.provenance import give
from memos.plugins.packs.subscriptions import PackUpdate, Subscriptions
from memos.plugins.packs.tensors import require_usable
from memos.plugins.packs.trusted_keys import TrustedKeys
from memos.rights import Caller

MAKER = "memos"  # the program that a pack names as the one that made it


class Packs:
    """Packs and registries, for the callers of one kernel."""

    def __init__(self, services: Services) -> None:
        parts = services.parts
        vault, governance, lifecycle, reader = parts.vault, parts.governance, parts.lifecycle, parts.reader
        self._governance, self._vault, self._access, self._freshness = governance, vault, parts.access, parts.freshness
        self._finding, self._forming, self._host = services.finding, services.forming, parts.host
        self._table = table = PackTable(vault.extensions)
        self.publishers = TrustedKeys(table, vault.audit_log.signer.path)
        self.dumper = MemDumper(vault, reader, table, lambda owner, cubes: governance.visible(Caller(owner), cubes))

        self.loader = MemLoader(
            vault, lifecycle, parts.knowledge, reader, table, parts.fits, partial(require_usable, parts)
        )
        self._subscriptions = Subscriptions(vault, lifecycle, table, self.dumper, self.loader, self.publishers)

    # -- dumps ---------------------------------------------------------------------------------------------

    def dump(
        self,
        caller: Caller,
        /,
        path: Path,
        *,
        everyone: bool = False,
        folder: bool = False,
        tensors: bool = True,
        history: bool = False,
        key: Path | None = None,
        **which: Any,
    ) -> Dumped:
        """Write the caller's memories, or everyone's, to a pack: a file, or a folder.

        tensors: KV and adapters too. history: earlier versions too. key: a PEM file to sign with, in place of the
        vault's own. which: see `_selected`. Raises InputError, NotFound.
        """
        if everyone:
            _require_keeper(caller, "dumps what is its own")
        if key is not None:
            _require_keeper(caller, "signs with the key of this vault alone")
        owners = [Caller(Namespace(user_id=name)) for name in self._vault.users()] if everyone else [caller]
        chosen = self._selected(caller, **which)
        for owner in owners:
            self._governance.permit(owner, Dump(ids=chosen.ids))
        signer = self.publishers.key(key)
        return self.dumper.dump(
            path,
            [owner.namespace for owner in owners],
            signer,
            selection=chosen,
            folder=folder,
            tensors=tensors,
            history=history,
            maker=MAKER,
        )

    def _selected(
        self,
        caller: Caller,
        ids: Sequence[str] = (),
        kinds: Sequence[str] = (),
        tags: Sequence[str] = (),
        query: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Selection:
        """Memories by their ids, kind (Header.kind), any of some tags, when they were said, and what a search finds;
        what is left out takes all. Raises InputError, NotFound."""
        chosen = tuple(self._access.cube(caller, Get(id=id), id).id for id in ids)
        if query is not None:
            chosen = tuple(id for id in self._found(caller, query) if not chosen or id in chosen)
            if not chosen:
                raise InputError(f"nothing is found for {query!r}; ask for something else, or leave the query out")
        since, until = in_zone(since), in_zone(until)
        return Selection(ids=chosen, kinds=tuple(kinds), tags=tuple(tags), since=since, until=until)

    def _found(self, caller: Caller, query: str) -> list[str]:
        return [hit.cube.id for hit in self._finding.search(caller, query)]

    def load(
        self, caller: Caller, path: Path, *, trust: str | None = None, clash: Clash = "refuse", owners: bool = False
    ) -> Loaded:
        """Take over the memories of a pack, which belong to the caller from then on; or, with `owners`, to whom they
        did.

        trust: the key that the pack may be signed with, where it is not known. clash: what to do where an id stands for
        something else here: refuse the pack, rename its memory, or update what came before. Done again, it goes on from
        where it was. Raises InputError, BadPack, UntrustedKey, IdClash, NoRoom.
        """
        if owners:
            _require_keeper(caller, "owns what it loads")
        self._permit(caller, Load(pack=str(path)), trust)
        with PackReader(path, self.publishers.required(trust)) as pack:
            self.publishers.pin(pack)
            owner, own = None if owners else caller.namespace, owners or self.publishers.own(pack.key)
            return self._freshness.changed(self.loader.load(pack, owner, clash, own))

    def origins(self, caller: Caller, id: str) -> list[Origin]:
        """Where a memory came from, if it came in a pack."""
        return self._table.origins(self._access.cube(caller, Get(id=id), id).id)

    def came_from(self, cube: MemCube) -> Sequence[Frozen]:
        """The packs that brought a memory, for the caller who may see it."""
        return self._table.origins(cube.id)

    # -- registries ----------------------------------------------------------------------------------------

    def publish(
        self,
        caller: Caller,
        /,
        place: str,
        pack: str,
        version: str,
        *,
        licence: str,
        description: str = "",
        requires: Sequence[str] = (),
        withdrawn: Mapping[str, str] | None = None,
        tensors: bool = True,
        key: Path | None = None,
        **which: Any,
    ) -> tuple[RegistryEntry, Dumped]:
        """Put a pack of the caller's memories in force into a registry, as PUBLISHER/NAME.

        requires: packs that it builds on, as "PUBLISHER/NAME>=1.0.0,<2.0.0". withdrawn: why a memory was taken back, by
        its id. which: see `_selected`. Raises RegistryError, InputError.
        """
        _require_keeper(caller, "publishes nothing, as that is signed in the vault's name")
        release = release_of(pack, version, licence, description, requires, withdrawn or {})
        chosen = self._selected(caller, **which)
        self._governance.permit(caller, Dump(ids=chosen.ids))
        signer = self.publishers.key(key)
        return self._subscriptions.publish(place, release, caller.namespace, signer, chosen, tensors, MAKER)

    def withdraw(
        self, caller: Caller, place: str, pack: str, version: str, why: str, *, key: Path | None = None
    ) -> RegistryEntry:
        """Take a published version back: whoever has it archives it with the next update. Raises RegistryError."""
        _require_keeper(caller, "withdraws nothing, as that is signed in the vault's name")
        self._governance.permit(caller, RemovePack(pack=pack))
        return MemStore(place).withdraw(pack, version, why, self.publishers.key(key))

    def install(
        self,
        caller: Caller,
        place: str,
        pack: str,
        *,
        versions: str = "",
        trust: str | None = None,
        subscribe: bool = False,
        clash: Clash = "refuse",
    ) -> list[PackUpdate]:
        """Take a pack from a registry, with what it builds on; see `Subscriptions.install`."""
        owner = self._permit(caller, Load(pack=pack), trust)
        return self._freshness.changed(
            self._subscriptions.install(place, pack, owner, versions, trust, subscribe, clash)
        )

    def subscribe(self, caller: Caller, pack: str, *, on: bool = True) -> None:
        """Keep an installed pack up with its publisher, or no longer. Raises NotFound."""
        self._subscriptions.subscribe(pack, self._permit(caller, Load(pack=pack)), on)

    def update_packs(self, caller: Caller, pack: str | None = None, *, trust: str | None = None) -> list[PackUpdate]:
        """Bring subscribed packs, or the one that is named, up to date; see `Subscriptions.update`."""
        owner = self._permit(caller, Load(pack=pack or ""), trust)
        return self._freshness.changed(self._subscriptions.update(owner, pack, trust))

    def remove_pack(self, caller: Caller, pack: str) -> list[str]:
        """Delete what a pack has brought, and nothing else; the ids that are gone. Raises NotFound, Conflict."""
        owner = self._permit(caller, RemovePack(pack=pack))
        return self._freshness.changed(self._subscriptions.remove(pack, owner))

    def installed(self, caller: Caller) -> list[Installed]:
        """The packs of the caller's user, by name."""
        return self._table.installed(self._permit(caller, ListPacks()).user_id)

    # -- keys ----------------------------------------------------------------------------------------------

    def trusted(self, caller: Caller) -> tuple[dict[str, str], str]:
        """(key by the name of a publisher, the vault's own key)."""
        _require_keeper(caller, "sees none of the keys that are trusted here")
        return self._table.pins(), self.publishers.key().public

    def untrust(self, caller: Caller, name: str) -> None:
        """Give up the key of a publisher. Raises NotFound."""
        _require_keeper(caller, "trusts no publishers")
        self._governance.permit(caller, Untrust(name=name))
        self._table.unpin(name)

    def _permit(self, caller: Caller, op: Load | RemovePack | ListPacks, trust: str | None = None) -> Namespace:
        """Whose packs they are, once that is permitted: packs are the user's as a whole, and whose key is trusted is
        for all users. Raises Denied."""
        if trust is not None:
            _require_keeper(caller, "says nothing of whose key is trusted")
        self._governance.permit(caller, op, over=Namespace(user_id=caller.user_id))
        return caller.namespace

    # -- adapters ------------------------------------------------------------------------------------------

    def export_adapter(self, caller: Caller, /, adapters: Sequence[str | Path], out: Path) -> Path:
        """Adapters as one folder for servers that take one adapter a request; named by its content. Who gave it is
        signed in it, see `memos.plugins.packs.provenance.given`. Raises NotFound, InputError, Unsupported."""
        from memos.plugins.packs.adapter_export import export_adapter  # loads torch and transformers

        made = export_adapter(self._host(), [self._forming.folder(caller, name) for name in adapters], out)
        give(made, str(caller), self._vault.now(), self._vault.audit_log.signer)
        return made


def make(services: Services) -> Packs:
    """The service of the extension point memos.services."""
    return Packs(services)


def _require_keeper(caller: Caller, but: str) -> None:
    """Some things are for whoever holds the folder; `but` says why not. Raises Denied."""
    if not caller.keeper:
        raise Denied(f"{caller} {but}; ask who keeps this vault")
