"""What can be read of a damaged vault is kept, what cannot is named, and nothing is thrown away."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from memos.cube import Form, State
from memos.errors import InputError, VaultError
from memos.infrastructure.vault.care import backup as vault_backup
from memos.infrastructure.vault.care import check as vault_check
from memos.infrastructure.vault.care import file_sums
from memos.infrastructure.vault.care import repair as vault_repair
from memos.infrastructure.vault.mem_vault import MemVault
from tests.infrastructure.vault.care.test_check import files, fill, text

pytestmark = pytest.mark.sqlite

PAGE = 4096


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with MemVault(tmp_path / "vault") as vault:
        fill(vault, cubes=120)
    return vault.path


def told(folder: Path) -> dict[str, str]:
    with MemVault(folder) as vault:
        return {cube.id: cube.text for cube in vault.cubes(form=Form.PLAINTEXT)}


def flip(path: Path, bit: int) -> None:
    spoilt = bytearray(path.read_bytes())
    spoilt[bit // 8] ^= 1 << bit % 8
    path.write_bytes(spoilt)


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in files(folder)}


@pytest.mark.parametrize("with_sums", [True, False])
def test_a_flipped_bit_of_a_memory_is_put_right_by_its_checksum(folder: Path, with_sums: bool) -> None:
    before = told(folder)
    id = sorted(before)[40]
    database = folder / "vault.db"
    flip(database, database.read_bytes().index(before[id].encode()) * 8 + 2)
    if not with_sums:
        (folder / file_sums.NAME).unlink()
    done = vault_repair.repair(folder)
    assert done.lost == () and done.left == () and told(folder) == before
    assert done.aside and (done.aside / "vault.db").is_file()


def test_wherever_a_bit_flips_no_memory_is_lost(folder: Path, tmp_path: Path) -> None:
    before, chance = told(folder), random.Random(0)
    size = (folder / "vault.db").stat().st_size
    for _ in range(12):
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        flip(copy / "vault.db", chance.randrange(size * 8))
        done = vault_repair.repair(copy)
        after = told(copy)
        assert all("audit row" in left for left in done.left)  # which nobody may write anew
        lost = {id for id in before if after.get(id) != before[id]}
        # a flip in the lengths before a row can take the rest of its page along
        assert len(lost) <= 12 and all(any(id in line for line in done.lost) for id in lost)
        shutil.rmtree(copy)


def test_what_a_spoilt_page_held_is_named_and_the_rest_is_kept(folder: Path) -> None:
    before = told(folder)
    with MemVault(folder) as vault:
        archived = sorted(before)[100]
        vault.set_state(archived, State.ARCHIVED, "given up")
    data = bytearray((folder / "vault.db").read_bytes())
    page = data.index(before[sorted(before)[40]].encode()) // PAGE * PAGE
    data[page : page + PAGE] = random.Random(0).randbytes(PAGE)
    (folder / "vault.db").write_bytes(data)
    planned = vault_repair.plan(folder)
    done = vault_repair.repair(folder)
    after = told(folder)
    gone = before.keys() - after.keys()
    assert 0 < len(gone) < 20 and all(after[id] == before[id] for id in after)
    assert all(any(id in line for line in done.lost) for id in gone)
    assert done.steps == planned.steps and done.left == ()
    with MemVault(folder) as vault:
        assert vault.get(archived).state is State.ARCHIVED


@pytest.mark.parametrize("place", [0, 18, 57, 61])
def test_a_spoilt_head_of_the_file_is_mended(folder: Path, place: int) -> None:
    before = told(folder)
    flip(folder / "vault.db", place * 8 + 6)
    done = vault_repair.repair(folder)
    assert done.lost == () and done.left == () and told(folder) == before


def test_a_database_that_is_cut_off_gives_what_is_left(folder: Path) -> None:
    before = told(folder)
    data = (folder / "vault.db").read_bytes()
    (folder / "vault.db").write_bytes(data[: len(data) * 3 // 4])
    done = vault_repair.repair(folder)
    after = told(folder)
    assert after and all("audit row" in left for left in done.left)
    in_part = {f"rows of {table}: a part of the table cannot be read" for table in ("versions", "heads")}
    for id in before:  # where its head is gone with its last version, nothing else has its name
        assert after.get(id) == before[id] or any(id in line for line in done.lost) or in_part <= {*done.lost}


def test_where_nothing_can_be_read_nothing_is_changed(folder: Path) -> None:
    data = (folder / "vault.db").read_bytes()
    (folder / "vault.db").write_bytes(bytes(PAGE) + data[PAGE:])
    before = content(folder)
    with pytest.raises(VaultError, match="bring back a backup"):
        vault_repair.repair(folder)
    assert all((folder / path).read_bytes() == was for path, was in before.items())


def test_a_plan_writes_nothing(folder: Path) -> None:
    flip(folder / "vault.db", 70_000)
    flip(folder / "vectors.db", 70_000)
    before = content(folder)
    planned = vault_repair.plan(folder)
    assert len(planned.steps) == 2 and planned.problems and content(folder) == before


@pytest.mark.parametrize("name", ["vectors.db", "index"])
def test_vectors_and_indexes_are_made_anew(folder: Path, name: str) -> None:
    before = told(folder)
    path = folder / name if name == "vectors.db" else next((folder / name).iterdir())
    if name == "vectors.db":
        (folder / file_sums.NAME).unlink()
        spoilt = path.read_bytes()
        path.write_bytes(spoilt[: len(spoilt) // 2])
    else:
        flip(path, 4_000)
    done = vault_repair.repair(folder)
    assert done.lost == () and done.left == () and told(folder) == before
    assert done.aside and ((done.aside / name).exists() or name == "index")
    with MemVault(folder) as vault:
        assert vault.index("layout", "embedder") is None


@pytest.mark.parametrize("form", [Form.ACTIVATION, Form.PARAMETRIC])
def test_a_form_without_its_payload_is_given_up_and_named(folder: Path, form: Form) -> None:
    before = told(folder)
    with MemVault(folder) as vault:
        [cube] = vault.cubes(form=form)
        assert cube.blob
        path = vault.blob_path(cube.blob)
    flip(path if path.is_file() else path / "adapter_model.safetensors", 800)
    done = vault_repair.repair(folder)
    assert done.promote == ((cube.id, tuple(source.id for source in cube.sources)),)
    assert done.left == () and told(folder) == before
    assert done.aside and (done.aside / path.relative_to(folder)).exists()


def test_payloads_that_nobody_refers_to_are_removed(folder: Path) -> None:
    with MemVault(folder) as vault, vault.staging() as path:
        path.write_bytes(b"an orphan")
        sha256, _ = vault.store(path)
        orphan = vault.path / "blobs" / sha256[:2] / f"{sha256}.safetensors"
        assert orphan.exists()
    done = vault_repair.repair(folder)
    assert done.steps == ("remove 1 payloads that no cube refers to",) and not orphan.exists()


def test_a_damaged_log_gives_what_was_committed_before(tmp_path: Path) -> None:
    with MemVault(tmp_path / "open") as vault:
        fill(vault)
        first, last = text(vault, "The first of them."), text(vault, "The last of them.")
        shutil.copytree(vault.path, tmp_path / "left")
    log = tmp_path / "left" / "vault.db-wal"
    flip(log, log.read_bytes().rindex(b"The last of them.") * 8)
    done = vault_repair.repair(tmp_path / "left")
    after = told(tmp_path / "left")
    assert first.id in after and last.id not in after and done.left == ()
    assert done.aside and (done.aside / "vault.db-wal").is_file()


def test_a_vault_that_is_open_and_a_backup_are_not_repaired(folder: Path, tmp_path: Path) -> None:
    flip(next((folder / "index").iterdir()), 4_000)
    with MemVault(folder):
        with pytest.raises(VaultError, match="is open in another process"):
            vault_repair.repair(folder)
    with MemVault(tmp_path / "other") as other:
        vault_backup.back_up(other.path, tmp_path / "backup")
    with pytest.raises(InputError, match="is a backup"):
        vault_repair.repair(tmp_path / "backup")


def test_a_sound_vault_has_nothing_to_repair(folder: Path) -> None:
    before = content(folder)
    assert vault_repair.repair(folder) == vault_repair.Repair(problems=())
    assert content(folder) == before and vault_check.problems(folder) == []


def test_what_was_set_aside_goes_with_a_text_that_is_deleted(folder: Path) -> None:
    flip(folder / "vault.db", 70_000)
    done = vault_repair.repair(folder)
    assert done.aside and done.aside.exists()
    with MemVault(folder) as vault:
        cube = text(vault, "Mira fears herons.")
        vault.delete([cube.id])
    assert not (folder / "damaged").exists()


def test_a_sound_vault_of_another_schema_is_not_repaired(folder: Path) -> None:
    (folder / file_sums.NAME).unlink()
    with sqlite3.connect(folder / "vault.db") as db:
        db.execute("CREATE TABLE later (a TEXT)")
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = content(folder)
    with pytest.raises(VaultError, match="has schema 99.*upgrade memos"):
        vault_repair.repair(folder)
    assert content(folder) == before
