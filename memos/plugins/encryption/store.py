"""The encrypted store of `memos.stores`: the plain store's files, sealed. Imports ciphers once a vault is opened."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from memos.errors import CorruptBlob, VaultError
from memos.infrastructure.vault.care import file_sums
from memos.infrastructure.vault.care.residue import Unsealer
from memos.infrastructure.vault.sqlite.database import Database
from memos.infrastructure.vault.sqlite.plain_store import PLAIN_STORE
from memos.infrastructure.vault.stores import PLAIN_SEALING, OpenStore, Place, Sealing
from memos.plugins.encryption import vault_key
from memos.plugins.encryption.swap import finish_swap, is_being_swapped
from memos.plugins.encryption.vault_key import DataKey
from memos.plugins.progress import Show

PAGE_PROOF_BYTES = 80  # of a page of SQLCipher's: IV and HMAC


class SealedDriver:
    """SQLCipher's module with the key of one vault; each page carries a proof (HMAC-SHA512)."""

    reserved_bytes = PAGE_PROOF_BYTES
    checks: tuple[str, ...] = ("cipher_integrity_check", "integrity_check")

    def __init__(self, key: DataKey) -> None:
        import sqlcipher3

        self._key, self._module = key, sqlcipher3
        # a lack of memory is told, too, where a page is not as it was encrypted
        self.damaged: tuple[type[Exception], ...] = (sqlcipher3.DatabaseError, UnicodeDecodeError, MemoryError)
        self.unusable: type[Exception] = sqlcipher3.OperationalError

    def connect(self, file: Path | str, name: str = "", **options: Any) -> sqlite3.Connection:
        # cached_statements: SQLCipher's module keeps the first ones in a full cache, and those only made the tables
        db = cast(sqlite3.Connection, self._module.connect(file, cached_statements=1000, **options))
        try:
            db.execute(f"PRAGMA key = {literal(self._key, name or Path(file).name)}")
            db.execute("PRAGMA cipher_log_level = NONE")  # what it writes to stderr
        except BaseException:
            db.close()
            raise
        return db

    def attach(self, schema: str, file: Path | str, name: str = "") -> tuple[str, tuple[str]]:
        key = None if str(file) == ":memory:" else self._key
        return f"ATTACH ? AS {schema} KEY {literal(key, name or Path(file).name)}", (str(file),)


def literal(key: DataKey | None, name: str) -> str:
    """SQLCipher's, of a file's key as it is, without its slow derivation from a passphrase; of none."""
    return f"\"x'{key.made(name).hex()}'\"" if key else "''"


def encrypted_sealing(key: DataKey) -> Sealing:
    """With the key of a vault."""
    from memos.plugins.encryption.sealed_files import SealedFormat  # loads cryptography

    unsealer = Unsealer("memos.plugins.encryption.decrypted", key.hex)
    return Sealing(SealedDriver(key), SealedFormat(key), unsealer, (vault_key.NAME,))


class EncryptedStore:
    """A `StoreKind`."""

    elsewhere = ""

    def claims(self, place: Place) -> bool:
        folder = place.folder
        return place.key is not None or vault_key.is_encrypted(folder) or is_being_swapped(folder)

    def open(self, place: Place, alone: bool) -> OpenStore:
        finish_swap(place.folder, alone)
        key = vault_key.unlock(place.folder, place.key)
        if key is None:  # its encryption was being taken off, and that is finished
            return PLAIN_STORE.open(place, alone)
        from memos.plugins.encryption.sealed_files import SealedFiles  # loads cryptography

        sealing = encrypted_sealing(key)
        files = SealedFiles(place.folder, key, place.scratch, alone)
        return OpenStore(Database(place.folder / "vault.db", sealing.driver), files, sealing)

    def sealing(self, place: Place) -> Sealing:
        """Of one that is not encrypted, that of plain files: a key that is named for it is not needed."""
        if not vault_key.is_encrypted(place.folder):
            return PLAIN_SEALING
        key = vault_key.unlock(place.folder, place.key)
        assert key
        return encrypted_sealing(key)

    def problems(self, place: Place, show: Show, sealing: Sealing | None = None) -> list[str]:
        from memos.plugins.care import check  # with all that it reads vaults by

        if damage := _key_problems(place.folder):
            return damage
        if is_being_swapped(place.folder, whole=True):
            raise VaultError(
                f"the key of {place.folder} was being changed, and that was cut off; open it once to finish it"
            )
        return check.examine(place.folder, show, sealing or self.sealing(place))


def _key_problems(folder: Path) -> list[str]:
    """What is wrong with the key.json of a vault: no key opens it then, and nothing else is read. Of a closed one, how
    it differs from what it was; else what it tells by itself."""
    from memos.plugins.care import check

    with suppress(CorruptBlob):  # which is told with the rest
        sums = file_sums.read(folder)
        if sums and vault_key.NAME in sums:
            key = str(folder / vault_key.NAME)
            return [told for told in check.changed_files(folder, sums) if told.startswith(key)]
    return vault_key.problems(folder)


ENCRYPTED_STORE = EncryptedStore()
