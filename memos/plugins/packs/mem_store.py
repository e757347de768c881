"""A registry of packs at any place that fsspec reads: a folder, a bucket, a web server, the Hub.

    README.md                             a card, as the Hub shows it
    index.json                            all entries; made of those below
    entries/PUBLISHER/NAME/VERSION.json   what the version is, signed by its publisher
    packs/PUBLISHER/NAME/VERSION.mip      the pack

A pack is in place before its entry is, and that before the index names it, so that a reader finds what is whole.
Knows places, versions and signatures of entries. Must not know vaults, nor whom to trust.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import fsspec
from pydantic import BaseModel, ValidationError

from memos.cube import new_id
from memos.errors import BadPack, MemosError, RegistryError
from memos.infrastructure.vault.audit.signing import SigningKey, is_signed
from memos.plugins.packs.mip import MIP, SIGNED_ENTRY, Listing, RegistryEntry, RegistryIndex, Version, canonical
from memos.plugins.packs.pack_file import PIECE_BYTES

_Value = TypeVar("_Value", bound=BaseModel)
MAX_INDEX_BYTES, MAX_ENTRY_BYTES = 64 << 20, 1 << 20
_HUB = "hf:"
_CARD = """---
pretty_name: Packs of memories
tags:
- memos
- memory-interchange-protocol
---

A registry of memory packs (MIP). Read it with `memos store search --registry PLACE`.

| pack | version | licence | what it is |
|---|---|---|---|
"""


class MemStore:
    """One registry."""

    def __init__(self, place: str) -> None:
        """place: a folder, an address that fsspec knows (memory://, https://, s3://), or hf:OWNER/NAME[@REVISION], a
        dataset of the Hugging Face Hub. Raises RegistryError for an address of no kind that is known here."""
        address = place
        if place.startswith(_HUB) and not place.startswith("hf://"):
            address = f"hf://datasets/{place.removeprefix(_HUB)}"
        try:
            self._fs, root = fsspec.core.url_to_fs(address)
        except (ValueError, ImportError, OSError) as error:
            raise RegistryError(
                f"{place} is no place of a registry ({error}); give a folder, an address like https://…, or "
                f"hf:OWNER/NAME"
            ) from error
        self._root = root.rstrip("/")
        self.place = self._root if "file" in self._fs.protocol else place  # a folder, wherever it is asked for

    @cached_property
    def entries(self) -> tuple[RegistryEntry, ...]:
        """Every version of every pack, each as its publisher has signed it. Raises RegistryError, BadPack."""
        content = self._attempted(self._read, "index.json", MAX_INDEX_BYTES)
        return tuple(self._sound(entry) for entry in self._parsed(RegistryIndex, content, "index.json").entries)

    def versions(self, pack: str) -> list[RegistryEntry]:
        """Of one pack, the latest first. Raises RegistryError where there is none."""
        found = [entry for entry in self.entries if entry.said.release.pack == pack]
        if not found:
            names = ", ".join(sorted({entry.said.release.pack for entry in self.entries})[:5])
            raise RegistryError(f"there is no pack {pack!r:.200} in {self.place}; it has {names or 'none'}")
        return sorted(found, key=_version, reverse=True)

    def pick(self, pack: str, versions: str = "") -> RegistryEntry:
        """The latest version that fits and is not withdrawn. Raises RegistryError."""
        known = self.versions(pack)
        for entry in known:
            if not entry.said.withdrawn and _version(entry).within(versions):
                return entry
        offered = ", ".join(f"{e.said.release.version}{' (withdrawn)' if e.said.withdrawn else ''}" for e in known[:8])
        raise RegistryError(f"no version of {pack} fits {versions or 'any'!r} in {self.place}; it has {offered}")

    def search(self, words: Iterable[str] = ()) -> list[RegistryEntry]:
        """The latest version of each pack that says all of these words of itself, by name; one of which every version
        is withdrawn is left out."""
        wanted = [word.casefold() for word in words]
        latest: dict[str, RegistryEntry] = {}
        for entry in sorted((e for e in self.entries if not e.said.withdrawn), key=_version):
            latest[entry.said.release.pack] = entry
        return [e for _, e in sorted(latest.items()) if all(word in _searchable(e) for word in wanted)]

    def resolve(self, pack: str, versions: str = "") -> list[RegistryEntry]:
        """The pack with all that it builds on, before it. Raises RegistryError for what is missing, and for packs that
        build on each other in a circle."""
        order: dict[str, RegistryEntry] = {}
        self._resolve(pack, versions, order, ())
        return list(order.values())

    def _resolve(self, pack: str, versions: str, order: dict[str, RegistryEntry], above: tuple[str, ...]) -> None:
        if pack in above:
            raise RegistryError(f"packs build on each other in a circle: {' -> '.join((*above, pack))}; ask publishers")
        if chosen := order.get(pack):
            if not _version(chosen).within(versions):
                raise RegistryError(
                    f"{above[-1]} needs {pack} {versions}, and another needs {chosen.said.release.version}; no version "
                    f"of {pack} suits both, install one of them"
                )
            return
        try:
            entry = self.pick(pack, versions)
        except RegistryError as error:
            if not above:
                raise
            raise RegistryError(f"{above[-1]} builds on {pack}, which is missing: {error}") from error
        for needed in entry.said.release.requires:
            self._resolve(needed.pack, needed.versions, order, (*above, pack))
        order[pack] = entry

    def fetch(self, entry: RegistryEntry, target: Path) -> None:
        """Write the pack of an entry to a file. Raises BadPack unless it is just what the entry says."""
        listing, sha256, left = entry.said, hashlib.sha256(), entry.said.bytes
        name = self._name("packs", listing, ".mip")

        def copy() -> None:
            nonlocal left
            with self._fs.open(f"{self._root}/{name}", "rb") as source, target.open("xb") as out:
                while piece := source.read(min(PIECE_BYTES, left + 1)):
                    left -= len(piece)
                    if left < 0:
                        break
                    sha256.update(piece)
                    out.write(piece)

        self._attempted(copy)
        if left or sha256.hexdigest() != listing.sha256:
            raise BadPack(
                f"{self.place}/{name} is not what its entry says: it was changed or cut short; nothing was installed, "
                f"tell {listing.release.publisher}"
            )

    def publish(self, pack: Path, listing: Listing, key: SigningKey) -> RegistryEntry:
        """Put a pack in its place. Raises RegistryError for a version that is there, or a publisher's name that is
        another key's."""
        entry = _signed(listing, key)
        release = listing.release
        for other in self._published():
            if other.said.release.publisher == release.publisher and other.key != key.public:
                raise RegistryError(
                    f"{release.publisher} publishes in {self.place} with key {other.key}, and this is {key.public}; "
                    f"sign with that key, or publish under another name"
                )
            if (other.said.release.pack, other.said.release.version) == (release.pack, release.version):
                raise RegistryError(
                    f"{release.pack} {release.version} is in {self.place} already; publish under a later version"
                )
        self._attempted(self._put, self._name("packs", listing, ".mip"), pack)
        self._list(entry)
        return entry

    def withdraw(self, pack: str, version: str, why: str, key: SigningKey) -> RegistryEntry:
        """Say that a version is taken back; whoever has it learns of it. Raises RegistryError."""
        for entry in self.versions(pack):
            if entry.said.release.version == version:
                if entry.key != key.public:
                    raise RegistryError(f"{pack} {version} was signed by {entry.key}; withdraw it with that key")
                taken = _signed(entry.said.model_copy(update={"withdrawn": why}), key)
                self._list(taken)
                return taken
        raise RegistryError(f"{pack} has no version {version!r:.100} in {self.place}; see `memos store show {pack}`")

    def _published(self) -> list[RegistryEntry]:
        """The entries of a registry that may be a new one."""
        pattern = f"{self._root}/entries/*/*/*.json"
        names = self._attempted(lambda: sorted(self._fs.glob(pattern)))
        contents = [self._attempted(self._read, name[len(self._root) + 1 :], MAX_ENTRY_BYTES) for name in names]
        return [self._sound(self._parsed(RegistryEntry, c, n)) for n, c in zip(names, contents, strict=True)]

    def _list(self, entry: RegistryEntry) -> None:
        """Name it in the index; of several who publish at once, the last one names all."""
        self._attempted(self._put, self._name("entries", entry.said, ".json"), canonical(entry))
        named: list[RegistryEntry] = []
        while (published := self._published()) != named:
            named = published
            self._attempted(self._put, "index.json", canonical(RegistryIndex(mip=MIP, entries=tuple(named))))
        self.__dict__.pop("entries", None)
        rows = (
            f"| {e.said.release.pack} | {e.said.release.version} | {_cell(e.said.release.licence)} | "
            f"{_cell(e.said.release.description)} |\n"
            for e in self.search()
        )
        self._attempted(self._put, "README.md", (_CARD + "".join(rows)).encode())

    def _put(self, name: str, content: bytes | Path) -> None:
        """Under another name first, where a write is not one step as it is."""
        target = f"{self._root}/{name}"
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        staged = target if "hf" in self._fs.protocol else f"{target}.{new_id()}.part"  # a commit is one step
        if isinstance(content, Path):
            self._fs.put_file(str(content), staged)
        else:
            self._fs.pipe_file(staged, content)
        if staged != target:
            self._fs.mv(staged, target)

    def _read(self, name: str, max_bytes: int) -> bytes:
        with self._fs.open(f"{self._root}/{name}", "rb") as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise BadPack(f"{self.place}/{name} has more than {max_bytes:,} bytes and is refused; tell who keeps it")
        return bytes(content)

    def _attempted(self, do: Callable[..., Any], *arguments: Any) -> Any:
        """Raises RegistryError where the place does not do it."""
        try:
            return do(*arguments)
        except MemosError:
            raise
        except Exception as error:  # each kind of place has errors of its own library
            raise RegistryError(
                f"{self.place} is no registry that can be used so ({type(error).__name__}: {error}); give the place of "
                f"one with --registry, or make one with `memos store publish` where you may write"
            ) from error

    def _parsed(self, kind: type[_Value], content: bytes, name: str) -> _Value:
        try:
            return kind.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise BadPack(
                f"{self.place}: {name} is not as docs/mip.md says ({first['msg'][:200]}); tell who keeps the registry"
            ) from None

    def _sound(self, entry: RegistryEntry) -> RegistryEntry:
        if not is_signed(entry.key, SIGNED_ENTRY, canonical(entry.said), entry.signature):
            raise BadPack(
                f"{self.place}: the entry of {entry.said.release.pack} {entry.said.release.version} does not match its "
                f"signature: it was changed; tell who keeps the registry"
            )
        return entry

    @staticmethod
    def _name(folder: str, listing: Listing, suffix: str) -> str:
        return f"{folder}/{listing.release.pack}/{listing.release.version}{suffix}"


def _signed(listing: Listing, key: SigningKey) -> RegistryEntry:
    return RegistryEntry(said=listing, key=key.public, signature=key.sign(SIGNED_ENTRY, canonical(listing)))


def _version(entry: RegistryEntry) -> Version:
    return Version(entry.said.release.version)


def _searchable(entry: RegistryEntry) -> str:
    release = entry.said.release
    return f"{release.pack} {release.description} {release.licence}".casefold()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
