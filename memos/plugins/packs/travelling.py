"""Public calls by which memories travel: packs, registries, trusted keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memos.cube import Namespace, in_zone
from memos.errors import InputError
from memos.kernel.services.finding import Finding
from memos.kernel.services.keeping import Keeping
from memos.ops import Dump, Get, ListPacks, Load, RemovePack, Untrust
from memos.plugins.packs.exchange import Clash, Dumped, Loaded, Selection
from memos.plugins.packs.mem_store import MemStore
from memos.plugins.packs.mip import release_of
from memos.plugins.packs.pack import PackReader
from memos.plugins.packs.subscriptions import Kept

if TYPE_CHECKING:
    from memos.plugins.packs.mip import Entry, Origin
    from memos.plugins.packs.pack_table import Installed

MAKER = "memos"  # of packs


class Travelling(Finding, Keeping):
    """dump, load, publish, install, subscribe."""

    def dump(
        self,
        path: Path,
        *,
        everyone: bool = False,
        folder: bool = False,
        tensors: bool = True,
        history: bool = False,
        key: Path | None = None,
        user: str | None = None,
        **which: Any,
    ) -> Dumped:
        """Write the user's memories, or everyone's, to a pack: a file, or a folder.

        tensors: KV and adapters too. history: earlier versions too. key: a PEM file to sign with, in place of the
        vault's own. which: see `_selected`. Raises InputError, NotFound.
        """
        if everyone:
            self.sharing.require_keeper("dumps what is its own")
        if key is not None:
            self.sharing.require_keeper("signs with the key of this vault alone")
        owners = [self._caller(name) for name in self.vault.users()] if everyone else [self._caller(user)]
        chosen = self._selected(user, **which)
        for owner in owners:
            self.governance.permit(owner, Dump(ids=chosen.ids))
        signed = self.publishers.key(key)
        return self.dumper.dump(
            path, owners, signed, selection=chosen, folder=folder, tensors=tensors, history=history, maker=MAKER
        )

    def _selected(
        self,
        user: str | None,
        ids: Sequence[str] = (),
        kinds: Sequence[str] = (),
        tags: Sequence[str] = (),
        query: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Selection:
        """Memories by their ids, kind (Header.kind), any of some tags, when they were said, and what a search finds;
        what is left out takes all. Raises InputError, NotFound."""
        chosen = tuple(self.get(id, user=user).id for id in ids)
        if query is not None:
            found = [hit.cube.id for hit in self.search(query, user=user)]
            chosen = tuple(id for id in found if not chosen or id in chosen)
            if not chosen:
                raise InputError(f"nothing is found for {query!r}; ask for something else, or leave the query out")
        since, until = in_zone(since), in_zone(until)
        return Selection(ids=chosen, kinds=tuple(kinds), tags=tuple(tags), since=since, until=until)

    def load(
        self,
        path: Path,
        *,
        trust: str | None = None,
        clash: Clash = "refuse",
        owners: bool = False,
        user: str | None = None,
    ) -> Loaded:
        """Take over the memories of a pack, which belong to the user from then on; or, with `owners`, to whom they did.

        trust: the key that the pack may be signed with, where it is not known. clash: what to do where an id stands for
        something else here: refuse the pack, rename its memory, or update what came before. Done again, it goes on from
        where it was. Raises InputError, BadPack, UntrustedKey, IdClash, NoRoom.
        """
        if owners:
            self.sharing.require_keeper("owns what it loads")
        caller = self._on_packs(Load(pack=str(path)), user, trust)
        with PackReader(path, self.publishers.required(trust)) as pack:
            self.publishers.pin(pack)
            owner, own = None if owners else caller, owners or self.publishers.own(pack.key)
            return self._changed(self.loader.load(pack, owner, self._fits, self._accept, clash, own))

    def _on_packs(self, op: Load | RemovePack | ListPacks, user: str | None, trust: str | None = None) -> Namespace:
        """Who acts, once that is permitted: packs are the user's as a whole, and whose key is trusted is for all users.
        Raises Denied."""
        if trust is not None:
            self.sharing.require_keeper("says nothing of whose key is trusted")
        caller = self._caller(user)
        self.governance.permit(caller, op, over=Namespace(user_id=caller.user_id))
        return caller

    def origins(self, id: str, *, user: str | None = None) -> list[Origin]:
        """Where a memory came from, if it came in a pack."""
        return self.vault.packs.origins(self._visible(Get(id=id), id, user).id)

    def publish(
        self,
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
        user: str | None = None,
        **which: Any,
    ) -> tuple[Entry, Dumped]:
        """Put a pack of the user's memories in force into a registry, as PUBLISHER/NAME.

        requires: packs that it builds on, as "PUBLISHER/NAME>=1.0.0,<2.0.0". withdrawn: why a memory was taken back, by
        its id. which: see `_selected`. Raises RegistryError, InputError.
        """
        self.sharing.require_keeper("publishes nothing, as that is signed in the vault's name")
        caller, release = self._caller(user), release_of(pack, version, licence, description, requires, withdrawn or {})
        chosen = self._selected(user, **which)
        self.governance.permit(caller, Dump(ids=chosen.ids))
        return self.subscriptions.publish(place, release, caller, self.publishers.key(key), chosen, tensors, MAKER)

    def withdraw(
        self, place: str, pack: str, version: str, why: str, *, key: Path | None = None, user: str | None = None
    ) -> Entry:
        """Take a published version back: whoever has it archives it with the next update. Raises RegistryError."""
        self.sharing.require_keeper("withdraws nothing, as that is signed in the vault's name")
        self.governance.permit(self._caller(user), RemovePack(pack=pack))
        return MemStore(place).withdraw(pack, version, why, self.publishers.key(key))

    @staticmethod
    def registry(place: str) -> MemStore:
        """A registry of packs, to look into. Raises RegistryError."""
        return MemStore(place)

    def install(
        self,
        place: str,
        pack: str,
        *,
        versions: str = "",
        trust: str | None = None,
        subscribe: bool = False,
        clash: Clash = "refuse",
        user: str | None = None,
    ) -> list[Kept]:
        """Take a pack from a registry, with what it builds on; see `Subscriptions.install`."""
        caller = self._on_packs(Load(pack=pack), user, trust)
        return self._changed(self.subscriptions.install(place, pack, caller, versions, trust, subscribe, clash))

    def subscribe(self, pack: str, *, on: bool = True, user: str | None = None) -> None:
        """Keep an installed pack up with its publisher, or no longer. Raises NotFound."""
        caller = self._on_packs(Load(pack=pack), user)
        self.subscriptions.subscribe(pack, caller, on)

    def update_packs(self, pack: str | None = None, *, trust: str | None = None, user: str | None = None) -> list[Kept]:
        """Bring subscribed packs, or the one that is named, up to date; see `Subscriptions.update`."""
        caller = self._on_packs(Load(pack=pack or ""), user, trust)
        return self._changed(self.subscriptions.update(caller, pack, trust))

    def remove_pack(self, pack: str, *, user: str | None = None) -> list[str]:
        """Delete what a pack has brought, and nothing else; the ids that are gone. Raises NotFound, Conflict."""
        caller = self._on_packs(RemovePack(pack=pack), user)
        return self._changed(self.subscriptions.remove(pack, caller))

    def installed(self, *, user: str | None = None) -> list[Installed]:
        """The packs of the user, by name."""
        return self.vault.packs.installed(self._on_packs(ListPacks(), user).user_id)

    def trusted(self) -> tuple[dict[str, str], str]:
        """(key by the name of a publisher, the vault's own key)."""
        return self.vault.packs.pins(), self.publishers.key().public

    def untrust(self, name: str, *, user: str | None = None) -> None:
        """Give up the key of a publisher. Raises NotFound."""
        self.sharing.require_keeper("trusts no publishers")
        self.governance.permit(self._caller(user), Untrust(name=name))
        self.vault.packs.unpin(name)
