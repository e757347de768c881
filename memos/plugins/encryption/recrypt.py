"""Rewrites a vault under another key, or under none: a whole copy in its folder, and then a swap."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memos.errors import CorruptBlob, KeyUnusable, VaultError
from memos.infrastructure.vault.blobs.blob_store import place
from memos.infrastructure.vault.blobs.vault_files import SUFFIX, Files, PlainFiles, digest, made, remove
from memos.infrastructure.vault.care import file_sums
from memos.infrastructure.vault.sqlite.database import Database
from memos.infrastructure.vault.sqlite.opening import PLAIN_DRIVER
from memos.infrastructure.vault.store.folder_lock import FolderLock
from memos.infrastructure.vault.store.on_disk import fsync
from memos.infrastructure.vault.store.schema import READINGS, reading
from memos.infrastructure.vault.stores import Place, beyond, store_of
from memos.plugins.encryption import vault_key
from memos.plugins.encryption.store import PAGE_PROOF_BYTES, SealedDriver, literal
from memos.plugins.encryption.swap import FILES, NEXT, PART, finish_swap, swap
from memos.plugins.encryption.vault_key import DataKey


def encrypt(folder: Path, key: str, scratch: Path | None = None) -> None:
    """Encrypt a vault that is not. key: where the user's is, see vault_key.py.

    The files that it was in are removed, and not overwritten: a disk may keep their bytes until it needs the room.
    Raises VaultError.
    """
    with _alone(folder):
        if vault_key.is_encrypted(folder):
            raise KeyUnusable(f"{folder} is encrypted already; change its key with `memos vault rekey`")
        vault_key.require_packages(folder)
        with _summed(folder, alone=True):
            _rewrite(folder, None, DataKey.fresh(), key, scratch)


def decrypt(folder: Path, key: str | None = None, scratch: Path | None = None) -> None:
    """Take the encryption off. key: None: where key.json says that it is. Raises VaultError."""
    with _alone(folder):
        if not vault_key.is_encrypted(folder):
            raise KeyUnusable(f"{folder} is not encrypted, so there is nothing to take off")
        old = vault_key.unlock(folder, key)
        with _summed(folder, alone=True):
            _rewrite(folder, old, None, "", scratch)


def rekey(
    folder: Path, key: str | None = None, to: str | None = None, data: bool = False, scratch: Path | None = None
) -> None:
    """Change the user's key; to: None: it stays. data: encrypt everything anew, which a data key that leaked needs.

    Raises VaultError.
    """
    with _alone(folder, must=data) as alone:
        if not vault_key.is_encrypted(folder):
            raise KeyUnusable(f"{folder} is not encrypted, so it has no key to change; see `memos vault encrypt`")
        old, to = vault_key.unlock(folder, key), to or key or vault_key.source(folder)
        assert old
        with _summed(folder, alone):
            if data:
                _rewrite(folder, old, DataKey.fresh(), to, scratch)
            else:
                vault_key.write(folder, old, to)


@contextmanager
def _summed(folder: Path, alone: bool) -> Iterator[None]:
    """Files are written, so that what they were in a closed vault is summed up anew."""
    if not alone:  # whoever has it open does that
        yield
        return
    sums = file_sums.take(folder)
    try:
        yield
    finally:
        file_sums.keep(folder, sums)


@contextmanager
def _alone(folder: Path, must: bool = True) -> Iterator[bool]:
    """True if nobody else opens the vault meanwhile. Raises VaultError if somebody has it open, and must not."""
    if store_of(Place(folder)).elsewhere:
        raise VaultError(
            f"{folder} is of a vault on a server, whose rows memos cannot encrypt; encrypt the disk of its server"
        )
    if not (folder / "vault.db").exists() and not (folder / NEXT).exists():
        raise VaultError(f"there is no vault in {folder}; name its folder with --vault")
    lock = FolderLock(folder)
    try:
        with lock.alone() as alone:
            if must and not alone:
                raise VaultError(f"{folder} is open in another process, and all of it must be written; close that one")
            finish_swap(folder, alone)
            yield alone
    finally:
        lock.close()


def _rewrite(folder: Path, old: DataKey | None, new: DataKey | None, source: str, scratch: Path | None) -> None:
    """source: of the user's key to the new one."""
    database = Database(folder / "vault.db", SealedDriver(old) if old else PLAIN_DRIVER)
    elsewhere = beyond(database)
    database.close()  # as this memos has it, and all of it in the file
    if elsewhere:
        raise VaultError(
            f"payloads of {folder} lie in {elsewhere}, sealed as they are; bring them home with `memos vault "
            "move-blobs home`, and move them back afterwards"
        )
    part = folder / PART
    try:
        part.mkdir()
        if new:
            vault_key.write(part, new, source)
        else:
            (part / vault_key.NAME).touch()  # empty: there is none
        _copy_databases(folder, old, part, new)
        were, are = _files_of(folder, old, scratch), _files_of(part, new, scratch)
        try:
            _copy_blobs(folder, were, part, are, plain=new is None)
            _copy_indexes(folder, were, part, are)
        finally:
            for files in (were, are):
                files.close(alone=True)
        for path in [*(p for p in part.rglob("*") if p.is_dir()), *part.glob("*.*"), part]:
            fsync(path)
        part.rename(folder / NEXT)
    except OSError as error:
        raise VaultError(
            f"{part} was not written ({error.strerror}); the vault is as it was, make sure that the disk has room "
            f"for all of it once more, and try again"
        ) from error
    finally:
        remove(part)
    fsync(folder)
    swap(folder)


def _files_of(folder: Path, key: DataKey | None, scratch: Path | None) -> Files:
    if key is None:
        return PlainFiles(folder)
    from memos.plugins.encryption.sealed_files import SealedFiles  # loads cryptography

    return SealedFiles(folder, key, scratch, alone=True)


def _copy_databases(folder: Path, old: DataKey | None, part: Path, new: DataKey | None) -> None:
    vault, vectors = FILES
    import sqlcipher3

    db = sqlcipher3.connect(folder / vault, isolation_level=None)
    try:
        if old:
            db.execute(f"PRAGMA key = {literal(old, vault)}")
        for name, file, key in (
            ("side", folder / vectors, old),
            ("next", part / vault, new),
            ("next_side", part / vectors, new),
        ):
            db.execute(f"ATTACH ? AS {name} KEY {literal(key, file.name)}", (str(file),))
        [version] = db.execute("PRAGMA user_version").fetchone()
        db.execute("SELECT sqlcipher_export('next')").fetchall()
        db.execute(f"PRAGMA next.user_version = {version}")
        db.execute("BEGIN")
        for statement in READINGS:
            db.execute(statement.replace("TABLE ", "TABLE next_side.").replace("INDEX ", "INDEX next_side."))
        layout = reading(PAGE_PROOF_BYTES if new else 0)
        db.execute(f"INSERT INTO next_side.readings {layout} SELECT n, vector, tokens FROM side.readings)")
        db.execute("COMMIT")
    except db.DatabaseError as error:
        raise VaultError(f"{folder / vault} cannot be copied ({error}); the vault is as it was") from error
    finally:
        db.close()


def _copy_blobs(folder: Path, were: Files, part: Path, are: Files, plain: bool) -> None:
    """Raises CorruptBlob."""
    (part / "blobs").mkdir()
    made(part / "tmp")
    for kept in sorted((folder / "blobs").glob("*/*")):
        sha256 = were.format.sha256(kept.name.removesuffix(SUFFIX))
        if not sha256:
            continue
        path = were.lend(kept, sha256)
        source = part / "tmp" / sha256 if plain else path
        if plain:
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, source)
        if digest(source)[0] != sha256:
            raise CorruptBlob(f"{kept} does not match its digest; `memos vault check` says whose it is")
        name, suffix = are.format.name(sha256), "" if path.is_dir() else SUFFIX
        place(are.keep(source, sha256), part / "blobs" / name[:2], sha256, suffix, are.format)
        were.forget(sha256)
    remove(part / "tmp")


def _copy_indexes(folder: Path, were: Files, part: Path, are: Files) -> None:
    (part / "index").mkdir()
    for kept in (folder / "index").glob(f"*{SUFFIX}"):
        what = f"index/{kept.name}"
        with were.format.reading(kept, what) as file, are.format.writing(part / "index" / kept.name, what) as write:
            while chunk := file.read(1 << 20):
                write(chunk)
