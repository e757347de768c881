"""A damaged vault made sound: what follows from text is made anew, what cannot be is named, and nothing is thrown away.

    damaged/<time>/   what was there before: databases, payloads, indexes

Must not know how a form is built.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from memos.cube import Form, MemCube
from memos.errors import InputError, VaultError
from memos.infrastructure.vault.blobs.blob_store import Blobs
from memos.infrastructure.vault.blobs.vault_files import kept_of
from memos.infrastructure.vault.care import backup as vault_backup
from memos.infrastructure.vault.care import check as vault_check
from memos.infrastructure.vault.care import file_sums
from memos.infrastructure.vault.care.salvage import salvage
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.store.database import clock, schema
from memos.infrastructure.vault.store.folder_lock import FolderLock
from memos.infrastructure.vault.store.on_disk import fsync
from memos.infrastructure.vault.store.sqlite_file import connect, damaged
from memos.plugins.encryption import recrypt
from memos.plugins.encryption.vault_key import DataKey, unlock_there

Show = Callable[[str, int, int], None]  # (what, done, of how many)
_MAIN = ("vault.db", "vault.db-wal")
_SIDE = ("vectors.db", "vectors.db-wal")
# of SQLite's head, what is the same in every vault: all but counters, sizes and versions
_CONSTANT = (slice(0, 24), slice(44, 48), slice(52, 60), slice(64, 92))
_COUNTER, _PAGES, _VALID_FOR, _PAGE = slice(24, 28), slice(28, 32), slice(92, 96), 4096


@dataclass(frozen=True)
class Repair:
    """problems: what was found. steps: what is done about it. lost: what cannot be brought back. promote: (cube, its
    sources) of forms that were given up, and can be made of the sources again. aside: where the old files are.
    left: what is still wrong."""

    problems: tuple[str, ...]
    steps: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    promote: tuple[tuple[str, tuple[str, ...]], ...] = ()
    aside: Path | None = None
    left: tuple[str, ...] = ()


def plan(folder: Path, show: Show = lambda *_: None, key: str | None = None) -> Repair:
    """What `repair` would do; writes nothing. key: where the key of an encrypted vault is; None: where it was.

    Raises InputError for a backup, VaultError where there is no vault, WrongKey, KeyUnusable.
    """
    if (folder / vault_backup.NAME).exists():
        raise InputError(
            f"{folder} is a backup, which is not repaired; take another one, or restore it elsewhere first"
        )
    found = _examined(folder, show, unlock_there(folder, key))
    return Repair(tuple(found.problems), tuple(_steps(found)))


def repair(folder: Path, show: Show = lambda *_: None, key: str | None = None, scratch: Path | None = None) -> Repair:
    """Make the vault in a folder sound, as `plan` says. key, scratch: as a MemVault has them.

    Raises InputError for a backup, VaultError while somebody has the vault open, or where nothing can be read of it,
    WrongKey, KeyUnusable.
    """
    planned = plan(folder, show, key)
    if not planned.steps:
        return planned
    data_key, lock, lost = unlock_there(folder, key), FolderLock(folder), list[str]()
    found = _examined(folder, show, data_key)
    aside = folder / "damaged" / f"{clock():%Y%m%d-%H%M%S-%f}"
    try:
        with lock.alone() as alone:
            if not alone:
                raise VaultError(f"{folder} is open in another process; close it there, and repair again")
            aside.mkdir(parents=True)
            if _is_main(found):
                lost += _rebuild(folder, aside, data_key)
            if found.vectors or found.log or _is_main(found):
                _move(folder, aside, *_SIDE)
            for sha256 in found.payloads:
                path = Blobs(folder, kept_of(folder, data_key)).find(sha256)
                if path:
                    _move(folder, aside, path.relative_to(folder).as_posix())
            for name in found.files:
                if name.startswith("work/"):
                    _move(folder, aside, name)
            fsync(aside)
    except OSError as error:
        raise VaultError(f"{folder} was not repaired ({error}); what was there is in it, or in {aside}") from error
    finally:
        lock.close()
    with MemVault(folder, key=key, scratch=scratch) as vault:
        if found.index or found.vectors:
            vault.drop_index()
        promote = _drop_without_payload(vault)
    left = vault_check.problems(folder, show, data_key)
    return Repair(planned.problems, planned.steps, tuple(lost), tuple(promote), aside, tuple(left))


def _examined(folder: Path, show: Show, key: DataKey | None) -> vault_check.Findings:
    """Of a vault whose schema cannot be told, all is doubtful."""
    try:
        return vault_check.examine(folder, show, key)
    except VaultError as error:
        if not (folder / "vault.db").is_file() or vault_check.in_use(folder) or _is_as_written(folder):
            raise
        if (folder / recrypt.NEXT).exists() or _is_of_another_schema(folder, key):
            raise
        return vault_check.Findings(rows=(str(error),))


def _is_as_written(folder: Path) -> bool:
    """True if vault.db is what was written: then it is of another schema, not damaged."""
    with suppress(VaultError):
        kept = file_sums.read(folder)
        return kept is not None and "vault.db" not in file_sums.problems(folder, kept)
    return False


def _is_of_another_schema(folder: Path, key: DataKey | None) -> bool:
    """True if vault.db can be read, and its tables are others: then it is not its version that is damaged."""
    file = folder / "vault.db"
    try:
        with closing(connect(f"{file.absolute().as_uri()}?mode=ro", key, file.name, uri=True)) as db:
            there = frozenset(db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
            whole = [line for (line,) in db.execute("PRAGMA quick_check")] == ["ok"]
    except damaged(key):
        return False
    return whole and there != schema()


def _is_main(found: vault_check.Findings) -> bool:
    return bool(found.rows or found.log or "vault.db" in found.files)


def _steps(found: vault_check.Findings) -> list[str]:
    steps = []
    if _is_main(found):
        steps.append("read vault.db row by row into a new one; versions and moves are trusted by their checksums")
    if found.vectors or found.log or _is_main(found):
        steps.append("set vectors.db aside; vectors are made anew from text")
    elif "vectors.db" in found.files:
        steps.append("keep vectors.db: its rows are sound, the damage is where nothing is kept")
    if found.index:
        steps.append("set the kept index aside; it is made anew from text")
    for problem in found.payloads.values():
        steps.append(f"set a payload aside, and give up its cubes: {problem.split(';')[0]}")
    if found.unused:
        steps.append(f"remove {len(found.unused)} payloads that no cube refers to")
    if any(name.startswith("work/") for name in found.files):
        steps.append("set aside what an interrupted job would go on from; it begins anew")
    if file_sums.NAME in found.files:
        steps.append(f"write {file_sums.NAME} anew")
    return steps


def _rebuild(folder: Path, aside: Path, key: DataKey | None) -> list[str]:
    """Put a new vault.db in place of the damaged one, which is set aside; what was lost."""
    work = folder / "damaged" / "new"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        for name in _MAIN:
            if (folder / name).exists():
                shutil.copy2(folder / name, work / name)
                shutil.copy2(folder / name, aside / name)
                fsync(aside / name)
        if key is None:  # the head of an encrypted file is not known
            fresh = work / "fresh"
            fresh.mkdir()
            MemVault(fresh).close()
            _heal_head(work / "vault.db", fresh / "vault.db")
        made = work / "made"
        made.mkdir()
        told = salvage(work / "vault.db", made, key)
        if not told.cubes and not _is_empty(work / "vault.db", key):
            raise VaultError(f"nothing can be read of {folder / 'vault.db'}; it stays as it is, bring back a backup")
        fsync(made / "vault.db")
        (made / "vault.db").replace(folder / "vault.db")
        for end in ("-wal", "-shm"):
            (folder / f"vault.db{end}").unlink(missing_ok=True)
        fsync(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return told.lost


def _heal_head(damaged: Path, sound: Path) -> None:
    """Without its head, SQLite takes a file for none of its own; one that is cut off, for damaged from end to end."""
    head, pages = sound.read_bytes()[:100], damaged.stat().st_size // _PAGE
    with damaged.open("r+b") as file:
        mended = bytearray(file.read(100).ljust(100, b"\0"))
        for part in _CONSTANT:
            mended[part] = head[part]
        mended[_PAGES], mended[_VALID_FOR] = pages.to_bytes(4, "big"), mended[_COUNTER]
        file.seek(0)
        file.write(mended)


def _is_empty(file: Path, key: DataKey | None) -> bool:
    """True for a vault in which there was never a cube."""
    try:
        with closing(connect(file, key)) as db:
            return not db.execute("SELECT 1 FROM versions LIMIT 1").fetchone()
    except damaged(key):
        return False


def _move(folder: Path, aside: Path, *names: str) -> None:
    for name in names:
        if (folder / name).exists():
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).rename(aside / name)


def _drop_without_payload(vault: MemVault) -> list[tuple[str, tuple[str, ...]]]:
    """Delete the cubes whose payload is gone, with what was derived from them; (cube, its sources) of each."""
    bare = [cube for cube in vault.cubes() if cube.form is not Form.PLAINTEXT and not vault.has_payload(cube)]
    gone: dict[str, MemCube] = {cube.id: cube for cube in bare}
    for cube in vault.derived(*gone):
        gone[cube.id] = cube
    texts = [cube.id for cube in gone.values() if cube.form is Form.PLAINTEXT]
    if texts:
        raise VaultError(f"{', '.join(texts)} would go with a payload; delete these yourself, and repair again")
    if gone:
        vault.delete(gone)
    return [(id, tuple(source.id for source in cube.sources)) for id, cube in gone.items()]
