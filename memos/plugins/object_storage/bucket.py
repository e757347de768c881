"""Reads and writes the objects of one bucket under one prefix, and names what goes wrong there.

Knows keys and bytes; must not know what they are for. obstore speaks to the stores: it retries what may be retried, and
its errors become VaultError here, with the way out. A bucket that cannot be reached is not asked again for a while, so
that a request that could be answered from text does not wait for it each time.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memos.errors import VaultError, how_to_install
from memos.lazy import Lazy

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = ("s3", "gs", "az", "file")
_CHUNK = 1 << 18  # bytes of a stream, which the cache of a core holds while they are checked and written
_CONNECT_S, _SILENCE_S, _REQUEST_S = 5, 20, 1800  # for a connection, of one that says nothing, and for a whole payload
_RETRIES, _RETRY_S = 2, 60
_PAUSE_S = 30.0  # in which a bucket that could not be reached is not asked again
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|bucket does not exist|Unable to canonicalize")
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION",
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "file": "the rights of the folder",
}
_MOST_BYTES = 5 << 30  # that S3 takes in one conditional put


class Absent(Exception):
    """There is no object of that key."""


class Bucket:
    """Thread safe; reaches nobody before its first use."""

    def __init__(self, url: str) -> None:
        """url: as `vault.blobs`. Raises VaultError for one that is none."""
        self.url, self._scheme = url.rstrip("/"), _require_scheme(url)
        self._connected = Lazy(self._connect)
        self._outage: tuple[float, str] | None = None  # until when nobody asks, and why
        self._lock = threading.Lock()

    @property
    def client(self) -> ObjectStore:
        """As obstore has it."""
        return self._connected()

    def _connect(self) -> ObjectStore:
        store = _obstore().store
        if self._scheme == "file":
            return store.LocalStore(urlsplit(self.url).path, automatic_cleanup=True)
        plain = any(value.startswith("http://") for name, value in os.environ.items() if "ENDPOINT" in name)
        options = {
            "connect_timeout": timedelta(seconds=_CONNECT_S),
            "read_timeout": timedelta(seconds=_SILENCE_S),
            "timeout": timedelta(seconds=_REQUEST_S),
            "allow_http": plain,
        }
        retries = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)}
        return store.from_url(self.url, client_options=options, retry_config=retries)

    # objects

    def put(self, key: str, path: Path) -> str:
        """Create an object of a file, under a key that nobody else uses; its ETag. Raises VaultError."""
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise VaultError(
                f"a payload of {size:,} bytes is more than {_MOST_BYTES:,}, which a bucket takes in one conditional "
                "put; promote fewer memories at once, or set activation.codec to a smaller one"
            )
        with self._named(f"{key} was not written to") as obstore:
            try:
                return obstore.put(self.client, key, path, mode="create")["e_tag"] or ""
            except (
                obstore.exceptions.AlreadyExistsError
            ):  # an earlier try of this very put has arrived, and its answer was lost
                found = self.find(key)
                if found is None or found[0] != size:
                    raise
                return found[1]

    def claim(self, key: str, content: bytes) -> bytes:
        """Create a small object unless it is there; what it says. Raises VaultError also for a bucket that does not
        refuse to create it again."""
        with self._named("nothing can be claimed in") as obstore:
            with suppress(obstore.exceptions.AlreadyExistsError):
                obstore.put(self.client, key, content, mode="create")
            try:
                obstore.put(self.client, key, content, mode="create")
            except obstore.exceptions.AlreadyExistsError:
                return self.read(key)
        self.delete([key])  # else it would pass for claimed the next time
        raise VaultError(
            f"{self.url} does not honour conditional puts (If-None-Match): it let an object be created twice, so that "
            "two vaults could take it for theirs; name a bucket of a store that does in vault.blobs"
        )

    def replace(self, key: str, content: bytes) -> None:
        """Write a small object in place of what was. Raises VaultError."""
        with self._named(f"{key} was not written to") as obstore:
            obstore.put(self.client, key, content)

    def read(self, key: str) -> bytes:
        """A small object. Raises Absent, VaultError."""
        with self._named(f"{key} cannot be read from") as obstore:
            return bytes(obstore.get(self.client, key).bytes())

    def find(self, key: str) -> tuple[int, str] | None:
        """Bytes and ETag of an object, if it is there. Raises VaultError."""
        try:
            with self._named(f"{key} cannot be found in") as obstore:
                head = obstore.head(self.client, key)
        except Absent:
            return None
        return head["size"], head["e_tag"] or ""

    def download(self, key: str, target: Path, seen: Callable[[memoryview], object]) -> int:
        """Copy an object to a file as it comes, in one stream; its bytes. seen: told of each part. Raises Absent,
        VaultError, OSError for the file."""
        size = 0
        with target.open("wb", buffering=0) as file, self._named(f"{key} cannot be read from") as obstore:
            for chunk in obstore.get(self.client, key).stream(min_chunk_size=_CHUNK):
                part = memoryview(chunk)
                seen(part)
                size += len(part)
                while part:
                    part = part[os.write(file.fileno(), part) :]
        return size

    def delete(self, keys: Iterable[str]) -> None:
        """Those that are there. Raises VaultError."""
        with self._named("nothing can be deleted from") as obstore:
            if self._scheme != "file":
                obstore.delete(self.client, list(keys))
                return
            for key in keys:
                with suppress(FileNotFoundError):
                    obstore.delete(self.client, key)

    def keys(self, prefix: str) -> Iterator[str]:
        """Raises VaultError."""
        with self._named("nothing can be listed in") as obstore:
            for batch in obstore.list(self.client, prefix):
                yield from (one["path"] for one in batch)

    # what goes wrong

    @contextmanager
    def _named(self, what: str) -> Iterator[ModuleType]:
        """obstore, and its errors as ours. Raises Absent, VaultError."""
        if self._outage and time.monotonic() < self._outage[0]:
            raise VaultError(self._outage[1])
        obstore = _obstore()
        exceptions = obstore.exceptions
        try:
            yield obstore
        except FileNotFoundError as error:
            if _NO_BUCKET.search(str(error)):
                raise self._unusable(what, error, "the bucket is not there: create it, or mend vault.blobs") from error
            raise Absent from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            way = f"its credentials are refused: mend {_CREDENTIALS[self._scheme]}"
            raise self._unusable(what, error, way) from error
        except exceptions.NotSupportedError as error:
            raise self._unconditional(what, error) from error
        except exceptions.BaseError as error:
            raise self._other(what, error) from error

    def _other(self, what: str, error: Exception) -> VaultError:
        if _NO_BUCKET.search(str(error)):
            return self._unusable(what, error, "the bucket is not there: create it, or mend vault.blobs")
        if re.search("501 Not Implemented|NotImplemented", str(error)):
            return self._unconditional(what, error)
        way = "see that its endpoint is up (AWS_ENDPOINT_URL, where it is not the provider's own) and try again"
        found = self._unusable(what, error, f"{way}; memories answer as text meanwhile")
        with self._lock:
            self._outage = time.monotonic() + _PAUSE_S, str(found)
        return found

    def _unconditional(self, what: str, error: Exception) -> VaultError:
        way = "it refuses conditional puts (If-None-Match): name a bucket of a store that has them in vault.blobs"
        return self._unusable(what, error, way)

    def _unusable(self, what: str, error: Exception, way: str) -> VaultError:
        return VaultError(f"{what} {self.url} ({_why(error)}); {way}")


def _obstore() -> ModuleType:
    try:
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise VaultError(
            f"vault.blobs needs the package obstore; {how_to_install('object-storage')}, or unset it"
        ) from error
    return obstore


def _why(error: Exception) -> str:
    """What obstore says, in a line, without what it adds for debugging; an S3 server's own code, if it has one."""
    said = str(error).split("\n\nDebug source")[0]
    if code := re.search("<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", said, re.DOTALL):
        return f"{code[1]}: {code[2]}"
    return " ".join(said.split())[-300:]


def _require_scheme(url: str) -> str:
    """Raises VaultError."""
    parts = urlsplit(url)
    place = parts.path.strip("/") if parts.scheme == "file" else parts.netloc
    if parts.scheme not in SCHEMES or not place or parts.query or (parts.netloc and parts.scheme == "file"):
        raise VaultError(
            f"vault.blobs is {_without_secret(url)!r}, which nothing serves; give s3://BUCKET/PREFIX, "
            "gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER"
        )
    if "@" in parts.netloc:
        raise VaultError(
            f"vault.blobs is {_without_secret(url)!r}, and is kept in the vault: no credentials may stand in it; set "
            f"{_CREDENTIALS[parts.scheme]}"
        )
    return parts.scheme


def _without_secret(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", url)
