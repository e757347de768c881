"""A backup is whole, or is not there; what it holds is what the vault held at one moment."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from memos.cube import Form, State
from memos.errors import CorruptBlob, InputError, VaultError
from memos.infrastructure.vault.audit.signing import KEY
from memos.infrastructure.vault.blobs.vault_files import digest
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.store import on_disk
from memos.infrastructure.vault.store.schema import SCHEMA_VERSION
from memos.infrastructure.vault.stores import Place
from memos.plugins.care import backup as vault_backup
from memos.plugins.care import check as vault_check
from memos.plugins.care.audit import verify_log
from tests.plugins.care.test_check import damages, files, fill, payload, text

pytestmark = pytest.mark.sqlite

ROOT = Path(__file__).parents[4]


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[MemVault]:
    with MemVault(tmp_path / "vault") as opened:
        fill(opened)
        yield opened


def test_a_backup_comes_back_as_the_vault_that_it_is_of(vault: MemVault, tmp_path: Path) -> None:
    made = vault_backup.back_up(vault.path, tmp_path / "backup")
    assert vault_backup.problems(tmp_path / "backup") == []
    assert (
        made.bytes
        == made.copied
        == sum(p.stat().st_size for p in files(tmp_path / "backup"))
        - ((tmp_path / "backup" / vault_backup.NAME).stat().st_size)
    )
    vault_backup.restore(tmp_path / "backup", tmp_path / "again")
    assert vault_check.problems(Place(tmp_path / "again")) == []
    with MemVault(tmp_path / "again") as again:
        assert again.cubes() == vault.cubes() and again.audit_log.query() == vault.audit_log.query()
        assert again.index.load("layout", "embedder") is not None
        ids = [cube.id for cube in vault.cubes()]
        assert again.vectors.of("embedder", ids).keys() == vault.vectors.of("embedder", ids).keys() != set()
        for cube in again.cubes():
            assert cube.blob is None or again.blobs.path(cube.blob)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "backup", "vault"]


def test_any_bit_that_flips_in_a_backup_and_any_file_that_is_cut_is_found_and_refused(
    vault: MemVault, tmp_path: Path
) -> None:
    backup, chance, done = tmp_path / "backup", random.Random(0), 0
    vault_backup.back_up(vault.path, backup)
    for path in files(backup):
        for what in damages(path, chance, flips=8, cuts=2):
            done += 1
            assert vault_backup.problems(backup), what
            with pytest.raises(CorruptBlob):
                vault_backup.restore(backup, tmp_path / "again")
            assert not (tmp_path / "again").exists() and not (tmp_path / "again.memos-part").exists()
    assert done == 10 * len(files(backup)) and vault_backup.problems(backup) == []


def test_an_index_that_goes_while_it_is_copied_is_not_in_the_backup(
    vault: MemVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, cubes = vault_backup._Copy._take, iter([None, [cube.id for cube in vault.cubes()]])

    def take(copy: vault_backup._Copy, payloads: list[str]) -> None:
        if gone := next(cubes, None):
            vault.delete(gone)  # and with them the index, which is copied by now
            raise vault_backup._Gone
        finish(copy, payloads)

    monkeypatch.setattr(vault_backup._Copy, "_take", take)
    vault_backup.back_up(vault.path, tmp_path / "backup")
    assert vault_backup.problems(tmp_path / "backup") == []


def test_a_backup_is_sound_while_others_write_and_delete(vault: MemVault, tmp_path: Path) -> None:
    done = threading.Event()

    def write() -> None:
        with MemVault(vault.path) as other:
            while not done.is_set():
                cube = text(other, "It comes and goes.")
                other.set_state(cube.id, State.ACTIVATED, "recalled")
                kv = payload(other, Form.ACTIVATION, os.urandom(2_000), cube)
                other.delete([kv.id, cube.id])

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(5):
            vault_backup.back_up(vault.path, tmp_path / "backup")
            found = vault_backup.problems(tmp_path / "backup")
            assert [problem for problem in found if "left traces" not in problem] == []  # of a deletion just going on
    finally:
        done.set()
        for writer in writers:
            writer.join()


def test_all_of_a_backup_and_of_a_restored_vault_is_on_disk_before_it_has_its_name(
    vault: MemVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, rename, synced, named = os.fsync, Path.rename, dict[int, int](), list[str]()

    def syncs(handle: int) -> None:
        fsync(handle)
        told = os.fstat(handle)
        synced[told.st_ino] = told.st_mtime_ns

    def renames(path: Path, target: Path) -> Path:
        if path.name.endswith(".memos-part"):
            named.append(target.name)
            for part in (path, *path.rglob("*")):
                told = part.stat()
                assert synced.get(told.st_ino) == told.st_mtime_ns or part.name == "lock", part
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(Path, "rename", renames)
    for _ in range(2):
        vault_backup.back_up(vault.path, tmp_path / "backup")
    vault_backup.restore(tmp_path / "backup", tmp_path / "again")
    assert named == ["backup", "backup", "again"]
    assert synced[tmp_path.stat().st_ino] == tmp_path.stat().st_mtime_ns


def test_of_many_payloads_a_damaged_one_is_named_and_the_next_backup_goes_on(vault: MemVault, tmp_path: Path) -> None:
    source = vault.cubes()[0]
    stored = [payload(vault, Form.ACTIVATION, os.urandom(10_000), source).blob for _ in range(40)]
    assert stored[17]
    path = vault.blobs.path(stored[17])
    sound, before = path.read_bytes(), threading.active_count()
    path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    with pytest.raises(CorruptBlob, match=stored[17].sha256):
        vault_backup.back_up(vault.path, tmp_path / "backup")
    assert threading.active_count() == before and not (tmp_path / "backup").exists()
    path.write_bytes(sound)
    made = vault_backup.back_up(vault.path, tmp_path / "backup")
    assert made.copied < made.bytes and vault_backup.problems(tmp_path / "backup") == []


def test_a_payload_that_goes_during_a_backup_goes_with_its_cube(
    vault: MemVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = vault.cubes(form=Form.ACTIVATION)[0]
    copy, seen = vault_backup._copy, list[str]()

    def deleted_meanwhile(path: Path, target: Path, sha256: str = "") -> tuple[str, int]:
        if kv.blob and sha256 == kv.blob.sha256 and not seen:
            seen.append(sha256)
            vault.delete([kv.id])
        return copy(path, target, sha256)

    monkeypatch.setattr(vault_backup, "_copy", deleted_meanwhile)
    vault_backup.back_up(vault.path, tmp_path / "backup")
    assert seen and vault_backup.problems(tmp_path / "backup") == []
    vault_backup.restore(tmp_path / "backup", tmp_path / "again")
    with MemVault(tmp_path / "again") as again:
        assert again.cubes() == vault.cubes() and kv not in again.cubes()


def test_a_later_backup_copies_new_payloads_only_and_forgets_deleted_ones(vault: MemVault, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    first = vault_backup.back_up(vault.path, backup)
    [kv] = vault.cubes(form=Form.ACTIVATION)
    assert kv.blob
    vault.delete([kv.id])
    new = payload(vault, Form.ACTIVATION, b"new" * 999, vault.cubes()[0])
    second = vault_backup.back_up(vault.path, backup)
    assert vault_backup.problems(backup) == []
    there = {path.name for path in (backup / "blobs").glob("*/*")}
    assert f"{kv.blob.sha256}.safetensors" not in there and new.blob and f"{new.blob.sha256}.safetensors" in there
    kept = sum(cube.blob.bytes for cube in vault.cubes() if cube.blob) - new.blob.bytes
    assert second.copied == second.bytes - kept < first.copied


def test_a_damaged_payload_of_an_earlier_backup_is_not_taken_over(vault: MemVault, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    vault_backup.back_up(vault.path, backup)
    path = next((backup / "blobs").glob("*/*.safetensors"))
    path.write_bytes(b"another")
    vault_backup.back_up(vault.path, backup)
    assert vault_backup.problems(backup) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from memos.plugins.care import backup as vault_backup
from memos.infrastructure.vault.mem_vault import MemVault
left = int(sys.argv[3])
def counted(event, _):
    global left
    if event in ("os.rename", "os.link", "open", "shutil.rmtree", "os.remove"):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
with MemVault(Path(sys.argv[1])) as vault:
    sys.addaudithook(counted)
    vault_backup.back_up(vault.path, Path(sys.argv[2]))
"""


def test_a_backup_that_is_killed_anywhere_leaves_the_earlier_one_and_goes_on(vault: MemVault, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    vault_backup.back_up(vault.path, backup)
    killed = 0
    for left in (1, 12, 28, 44, 52):
        text(vault, f"It is number {left}.")
        command = [sys.executable, "-c", KILLED, str(vault.path), str(backup), str(left)]
        run = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
        killed += run.returncode == -signal.SIGKILL
        there = backup if backup.exists() else backup.with_name("backup.memos-old")
        assert vault_backup.problems(there) == []
    assert killed >= 3
    vault_backup.back_up(vault.path, backup)
    assert vault_backup.problems(backup) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "vault"]


def test_a_damaged_payload_is_not_backed_up(vault: MemVault, tmp_path: Path) -> None:
    [kv] = vault.cubes(form=Form.ACTIVATION)
    assert kv.blob
    path = vault.blobs.path(kv.blob)
    path.write_bytes(b"another")
    with pytest.raises(CorruptBlob, match="bring back an earlier backup"):
        vault_backup.back_up(vault.path, tmp_path / "backup")
    path.unlink()
    with pytest.raises(CorruptBlob, match="is missing"):
        vault_backup.back_up(vault.path, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_backup_goes_nowhere_that_is_something_else(vault: MemVault, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    for target, told in [
        (tmp_path / "mine", "is no backup"),
        (vault.path, "lie in each other"),
        (vault.path / "backup", "lie in each other"),
        (tmp_path, "lie in each other"),
    ]:
        with pytest.raises(InputError, match=told):
            vault_backup.back_up(vault.path, target)
    with MemVault(tmp_path / "other") as other:
        vault_backup.back_up(other.path, tmp_path / "backup")
    with pytest.raises(InputError, match="is a backup of"):
        vault_backup.back_up(vault.path, tmp_path / "backup")


def test_a_full_disk_is_named_and_leaves_the_earlier_backup(
    vault: MemVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault_backup.back_up(vault.path, tmp_path / "backup")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(on_disk, "write_json", full)
    with pytest.raises(VaultError, match="has room"):
        vault_backup.back_up(vault.path, tmp_path / "backup")
    monkeypatch.undo()
    assert vault_backup.problems(tmp_path / "backup") == []


def test_a_file_that_the_disk_takes_a_part_of_is_no_backup(vault: MemVault, tmp_path: Path) -> None:
    size, (soft, hard) = 3 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)
    payload(vault, Form.ACTIVATION, os.urandom(size), vault.cubes()[0])
    vault_backup.back_up(vault.path, tmp_path / "backup")
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 100, hard))  # the last write is cut short, and is no error
    try:
        with pytest.raises(VaultError, match="was not written"):
            vault_backup.back_up(vault.path, tmp_path / "other")
        with pytest.raises(VaultError, match="was not written"):
            vault_backup.restore(tmp_path / "backup", tmp_path / "again")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "other").exists() and not (tmp_path / "again").exists()
    vault_backup.back_up(vault.path, tmp_path / "other")
    assert vault_backup.problems(tmp_path / "other") == []


def test_a_vault_is_brought_back_to_an_empty_place_only(vault: MemVault, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    vault_backup.back_up(vault.path, backup)
    with pytest.raises(InputError, match="is not empty"):
        vault_backup.restore(backup, vault.path)
    with pytest.raises(InputError, match="is no backup"):
        vault_backup.restore(vault.path, tmp_path / "again")
    (tmp_path / "again").mkdir()
    vault_backup.restore(backup, tmp_path / "again")
    assert vault_check.problems(Place(tmp_path / "again")) == []


def test_a_backup_whose_files_go_by_sha256_as_the_first_did_is_held_to_that(vault: MemVault, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    vault_backup.back_up(vault.path, backup)
    manifest = vault_backup.read(backup)
    files = {name: digest(backup / name)[::-1] for name in manifest.files}
    on_disk.write_json(backup / vault_backup.NAME, manifest._replace(files=files))
    assert vault_backup.problems(backup) == []
    vault_backup.restore(backup, tmp_path / "again")
    for what in damages(backup / "vault.db", random.Random(0), flips=4, cuts=1):
        assert vault_backup.problems(backup), what
        with pytest.raises(CorruptBlob):
            vault_backup.restore(backup, tmp_path / "other")


def test_a_backup_of_a_newer_schema_is_refused(vault: MemVault, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    vault_backup.back_up(vault.path, backup)
    manifest = vault_backup.read(backup)._replace(schema=SCHEMA_VERSION + 1)
    on_disk.write_json(backup / vault_backup.NAME, manifest)
    for use in (vault_backup.problems, lambda folder: vault_backup.restore(folder, tmp_path / "again")):
        with pytest.raises(VaultError, match="upgrade memos"):
            use(backup)
    assert not (tmp_path / "again").exists()


def test_a_file_too_many_or_too_few_in_a_backup_is_named(vault: MemVault, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    vault_backup.back_up(vault.path, backup)
    (backup / "notes.txt").write_text("mine")
    assert "notes.txt is not of this backup" in vault_backup.problems(backup)[0]
    (backup / "notes.txt").unlink()
    shutil.rmtree(backup / "blobs")
    assert len([told for told in vault_backup.problems(backup) if "is missing" in told]) == 2


def test_the_key_of_a_vault_goes_along_for_its_owner_alone(vault: MemVault, tmp_path: Path) -> None:
    public = vault.audit_log.public_key()
    vault_backup.back_up(vault.path, tmp_path / "backup")
    vault_backup.restore(tmp_path / "backup", tmp_path / "again")
    for folder in ("backup", "again"):
        assert (tmp_path / folder / KEY).stat().st_mode & 0o777 == 0o600
    with MemVault(tmp_path / "again") as again:
        assert again.audit_log.public_key() == public and verify_log(again.audit_log).problems == []
        again.audit_log.append("ann", "read", "a", False, "get")
    assert vault_check.problems(Place(tmp_path / "again")) == []
