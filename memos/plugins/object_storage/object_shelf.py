"""The shelf of a vault whose payloads lie in buckets; what a payload is, it need not know.

    PREFIX/memos-vault                        which vault the prefix belongs to: made by conditional put, by the first
    PREFIX/blobs/ab/ab….<id>.safetensors      a file as the vault's folder has it, sealed where the vault is encrypted
    PREFIX/blobs/ab/ab….<id>.tar              a folder (an adapter); sealed, it is one file, without a suffix

A payload without a row lies where it was before the vault was given a bucket: in the folder, or on the server of the
rows. So a vault may be given one at any time, and payloads may be moved one by one.
"""

from __future__ import annotations

import errno
import hmac
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.poly1305 import Poly1305

from memos.cube import new_id
from memos.errors import CorruptBlob, VaultError
from memos.infrastructure.vault.blobs.blob_store import Blobs, ReadableShelf, Shelf
from memos.infrastructure.vault.blobs.vault_files import SUFFIX, FileFormat, made, remove
from memos.infrastructure.vault.store.transactions import Rows, Store
from memos.plugins.object_storage.bucket import Absent, Bucket
from memos.plugins.object_storage.copies import Copies
from memos.plugins.object_storage.tables import ObjectRow, ObjectRows, ObjectTable, PlaceRow

if TYPE_CHECKING:
    from obstore.store import ObjectStore

MARKER, _OBJECTS, _TAR = "memos-vault", "blobs/", ".tar"
_TRIES = 3  # of a payload that is replaced again and again meanwhile


class Objects:
    """A `ReadableShelf`."""

    def __init__(self, folder: Path, format: FileFormat, rows: Rows, below: ReadableShelf | None, budget: int) -> None:
        """below: where payloads lie that are in no bucket; None: in the folder. budget: bytes of copies."""
        self._format, self._rows, self._below = format, ObjectRows(rows), below
        self._local = Blobs(folder, format)
        self._copies = Copies(folder, format, budget, self._rows.names)
        self._buckets: dict[str, Bucket] = {}  # by URL

    def has(self, name: str) -> bool:
        if self._rows.here(name) is not None:
            return True
        return self._local.here(name) is not None if self._below is None else self._below.has(name)

    def names(self) -> list[str]:
        return sorted({*self._rows.names(), *(self._below.names() if self._below else self._local.all())})

    def used(self, path: Path) -> Path:
        return self._copies.used(path)

    def fetch(self, name: str, target: Path, suffix: str) -> Path | None:
        """Make a copy at `target`, a file with the suffix added; None where nothing is kept. Raises CorruptBlob,
        VaultError."""
        last = None
        for _ in range(_TRIES):
            there = self._rows.here(name)
            if there is None:
                return self._below.fetch(name, target, suffix) if self._below else None
            try:
                return self._copied(there, target, suffix)
            except Absent:  # replaced since its row was read, or gone for good
                if there == last:
                    break
                last = there
        assert there
        raise self._missing(there)

    def digest(self, name: str) -> str:
        """The name itself for a payload that is what it was; "" where nothing is kept. Raises VaultError."""
        there = self._rows.here(name)
        if there is None and self._below is not None:
            return self._below.digest(name)
        if there is None:
            path = self._local.here(name)
            return "" if path is None else "damaged" if self._format.problem(path, name) else name
        with tempfile.TemporaryDirectory() as folder:
            try:
                if not self._format.problem(self._copied(there, Path(folder) / name, SUFFIX), name):
                    return name
            except Absent:
                return ""
            except CorruptBlob:
                pass
        return f"{self._key_of(there)} in {self.bucket_of(there).url}"

    def bucket_of(self, row: ObjectRow) -> Bucket:
        return self._bucket(self._place(row.place))

    def _place(self, n: int) -> PlaceRow:
        return {place.n: place for place in self._rows.places()}[n]

    def _bucket(self, place: PlaceRow) -> Bucket:
        return self._buckets.setdefault(place.url, Bucket(place.url))

    def _key_of(self, row: ObjectRow) -> str:
        return f"{_OBJECTS}{row.key}"

    def _copied(self, row: ObjectRow, target: Path, suffix: str) -> Path:
        """A sound copy, or none. Raises Absent, CorruptBlob, VaultError."""
        path = target.with_name(target.name + suffix) if row.key.endswith(suffix) else target
        part = target.with_name(f".{new_id()}.part")
        try:
            made(target.parent)
            self._copies.make_room(row.bytes)
            if not self._downloaded(row, part):
                raise CorruptBlob(
                    f"{self._key_of(row)} in {self.bucket_of(row).url} does not match its digest; demote its cube, or "
                    "promote its sources again"
                )
            sound = _unpacked(part) if row.key.endswith(_TAR) else part
            if sound.is_dir() and path.exists():  # a rename replaces a file, but no folder
                if not self._format.problem(path, row.name):
                    return path
                remove(path)
            sound.replace(path)
        except OSError as error:
            raise VaultError(
                f"{path} was not copied from {self.bucket_of(row).url} ({error.strerror}); make sure that the disk has "
                "room and the folder can be written to, and try again"
            ) from error
        finally:
            remove(part)
            remove(_folder_of(part))
        return path

    def _downloaded(self, row: ObjectRow, part: Path, again: bool = True) -> bool:
        """False for bytes that are not what they were."""
        key, tag = (bytes.fromhex(half) for half in row.proof.split())
        proof = Poly1305(key)
        try:
            size = self.bucket_of(row).download(self._key_of(row), part, proof.update)
            return size == row.bytes and hmac.compare_digest(proof.finalize(), tag)
        except OSError as error:
            if not again or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        self._copies.clear()
        return self._downloaded(row, part, again=False)

    def _missing(self, row: ObjectRow) -> VaultError:
        """CorruptBlob where this payload alone is gone: who takes it for lost must not do so for a wrong bucket."""
        bucket = self.bucket_of(row)
        try:
            bucket.read(MARKER)
        except Absent:
            return VaultError(
                f"{bucket.url} has nothing of this vault: it was emptied, or is that of another endpoint; bring it "
                "back, or mend AWS_ENDPOINT_URL; memories answer as text meanwhile"
            )
        return CorruptBlob(
            f"{self._key_of(row)} is missing from {bucket.url}; demote its cube, or promote its sources again"
        )


class ObjectShelf(Objects):
    """A `Shelf`."""

    def __init__(
        self, folder: Path, format: FileFormat, db: Store, below: Shelf | None, budget: int, url: str, identity: str
    ) -> None:
        """db: with TABLES. url: of the bucket that new payloads go to. identity: of the vault, which a copy has not."""
        super().__init__(folder, format, db, below, budget)
        self._db, self._table, self._shelf_below, self._identity = db, ObjectTable(db), below, identity
        self._folder = folder
        self._current = self._table.require_place(url, identity)
        self._claimed = dict[int, str]()  # tokens of places, once their markers were read
        self._brought = dict[str, _Brought]()  # by name

    @property
    def place(self) -> PlaceRow:
        """That new payloads go to."""
        return self._current

    def bring(self, name: str, path: Path, suffix: str) -> None:
        there, bucket = self._rows.here(name), self._owned(self._current)
        if there and there.place == self._current.n and bucket.find(self._key_of(there)) == (there.bytes, there.etag):
            return
        self._brought[name] = _Brought(self._upload(name, path, suffix, bucket), there.key if there else "")

    def put(self, name: str, path: Path) -> None:
        """What was brought is the payload from the transaction on that goes on."""
        brought = self._brought.pop(name, None)
        with self._db.transaction():
            there = self._rows.here(name)
            if brought is None and there is not None:
                return  # it was found sound, and is still there
            if brought is None or not self._table.arrive(brought.row):
                # dropped, or given up, since it was brought: so it is brought in here. Where this transaction is undone
                # no row names the object, and `settle` finds it in the bucket's list
                row = self._upload(name, path, path.suffix, self._owned(self._current))
                brought = _Brought(row, there.key if there else "")
                self._table.arrive(row)
            if there and there.key != brought.replaces:  # another process was first
                self._table.leave(brought.row)
                return
            if there:
                self._leave(there)
            if self._shelf_below is not None:
                self._shelf_below.drop(name)
        self._copies.make_room(0)

    def drop(self, name: str) -> None:
        with self._db.transaction():
            if there := self._rows.here(name):
                self._leave(there)
            if self._shelf_below is not None:
                self._shelf_below.drop(name)

    def give_up(self) -> None:
        self._table.give_up(all=True)

    def settle(self, thorough: bool = False) -> None:
        self._table.give_up()
        rows = self._table.to_delete()
        for place in self._table.places() if rows or thorough else ():
            leaving = [row for row in rows if row.place == place.n]
            if leaving:
                self._owned(place).delete(map(self._key_of, leaving))
                self._table.deleted(leaving)
            if thorough and place.identity == self._identity:
                bucket = self._owned(place)
                listed = {key.removeprefix(_OBJECTS) for key in bucket.keys(_OBJECTS)}
                if strays := self._table.strays(place, listed):
                    bucket.delete(f"{_OBJECTS}{key}" for key in strays)

    # moving

    def elsewhere(self) -> list[str]:
        """The payloads that are not in the bucket that new ones go to."""
        inside = set(self._rows.names()) - set(self._rows.outside(self._current.n))
        return [name for name in self.names() if name not in inside and not name.startswith("index/")]

    def in_buckets(self) -> list[str]:
        return self._rows.names()

    def adopt(self) -> None:
        """Take the bucket over from the vault that it belonged to, which this one was before it was moved."""
        self._current = self._table.own(self._current, self._identity)
        self._bucket(self._current).replace(MARKER, self._current.token.encode())

    def bring_home(self, name: str, path: Path) -> None:
        """A payload lies where it would without a bucket. path: of a copy of it here, which is on disk."""
        with self._db.transaction():
            if there := self._rows.here(name):
                if self._shelf_below is not None:
                    self._shelf_below.put(name, path)
                self._leave(there)

    def object_of(self, name: str) -> tuple[ObjectStore, str]:
        """The client of the bucket that a payload is in, as obstore has it, and the key."""
        there = self._rows.here(name)
        assert there
        return self.bucket_of(there).client, self._key_of(there)

    def leave_empty(self) -> None:
        """The buckets that have nothing of this vault any more are forgotten."""
        for place in self._table.places():
            if self._table.close(place) and place.identity == self._identity:
                self._bucket(place).delete([MARKER])

    # what is done in a bucket

    def claim(self) -> None:
        """The bucket that new payloads go to is this vault's. Raises VaultError."""
        self._owned(self._current)

    def _owned(self, place: PlaceRow) -> Bucket:
        """A bucket that this vault may write to. Raises VaultError."""
        bucket = self._bucket(place)
        if place.identity != self._identity:
            raise VaultError(
                f"{place.url} is of the vault {place.identity}, and this is {self._identity}: a copy of it may read "
                "there, and needs a bucket or prefix of its own in vault.blobs; if that vault was moved here, run "
                f"`memos vault move-blobs {place.url} --adopt`"
            )
        if self._claimed.get(place.n) == place.token:
            return bucket
        try:
            found = bucket.read(MARKER)
        except Absent:
            found = bucket.claim(MARKER, place.token.encode())
        if found != place.token.encode():
            raise VaultError(
                f"{place.url} holds the payloads of another vault, which deletes what it does not know; name another "
                "prefix in vault.blobs"
            )
        self._claimed[place.n] = place.token
        return bucket

    def _upload(self, name: str, path: Path, suffix: str, bucket: Bucket) -> ObjectRow:
        """An object of a payload, whose row is there before it. Raises VaultError."""
        called = self._format.name(name)
        with _packed(path, self._folder) as file:
            key = f"{called[:2]}/{called}.{new_id()}{suffix if file == path else _TAR}"
            row = ObjectRow(key, self._current.n, name, file.stat().st_size, _proof(file), "")
            self._table.coming(row)
            try:
                return row._replace(etag=bucket.put(self._key_of(row), file))
            except BaseException:
                self._table.leave(row)  # which it may arrive after
                raise

    def _leave(self, row: ObjectRow) -> None:
        self._table.leave(row, owned=self._place(row.place).identity == self._identity)


class _Brought:
    """An object that waits for its transaction, in place of another or of none."""

    def __init__(self, row: ObjectRow, replaces: str) -> None:
        self.row, self.replaces = row, replaces


def _proof(file: Path) -> str:
    key = os.urandom(32)
    tag = Poly1305(key)
    with file.open("rb", buffering=0) as content:
        while chunk := content.read(1 << 20):
            tag.update(chunk)
    return f"{key.hex()} {tag.finalize().hex()}"


@contextmanager
def _packed(path: Path, folder: Path) -> Iterator[Path]:
    """A payload as one file."""
    if not path.is_dir():
        yield path
        return
    packed = made(folder / "tmp") / f"{new_id()}{_TAR}"
    try:
        with tarfile.open(packed, "w") as tar:
            for part in sorted(part for part in path.rglob("*") if part.is_file()):
                tar.add(part, part.relative_to(path).as_posix())
        yield packed
    finally:
        remove(packed)


def _folder_of(part: Path) -> Path:
    """For what is unpacked of a copy that is being made; a sweep knows it by its name."""
    return part.with_name(f".folder{part.name}")


def _unpacked(part: Path) -> Path:
    """The folder that was packed; what it says is not believed before its digest was compared. Raises CorruptBlob."""
    folder = _folder_of(part)
    folder.mkdir()
    try:
        with tarfile.open(part) as tar:
            for member in tar:
                if not member.isfile() or os.path.isabs(member.name) or ".." in Path(member.name).parts:
                    raise CorruptBlob(
                        f"{part.name}: a payload in a bucket has a file {member.name!r:.80}, which leads out"
                    )
                content = tar.extractfile(member)
                assert content
                target = folder / member.name
                made(target.parent)
                with target.open("wb") as file:
                    shutil.copyfileobj(content, file)
    except tarfile.TarError as error:
        raise CorruptBlob(f"{part.name}: a payload in a bucket cannot be unpacked ({error})") from error
    return folder
