"""An encrypted vault does what any vault does, shows nothing of it on disk, and is changed by no wrong key."""

from __future__ import annotations

import gc
import hashlib
import inspect
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from memos.config import VaultConfig
from memos.cube import MemCube
from memos.errors import CorruptBlob, KeyUnusable, VaultError, WrongKey
from memos.infrastructure.vault.blobs.vault_files import made
from memos.infrastructure.vault.care.residue import search
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.sqlite.opening import PLAIN_DRIVER
from memos.infrastructure.vault.tables.vector_table import VectorRow
from memos.plugins.care import care
from memos.plugins.care.check import problems_of
from memos.plugins.care.reader import VaultReader
from memos.plugins.encryption import sealed_files
from memos.plugins.encryption.recrypt import decrypt, encrypt, rekey
from memos.plugins.encryption.store import SealedDriver
from memos.plugins.encryption.vault_key import NAME, DataKey, is_encrypted, source, unlock
from tests.infrastructure.vault import test_mem_vault
from tests.infrastructure.vault.blobs import test_index_store
from tests.infrastructure.vault.sqlite.test_database import of_the_schema_before
from tests.infrastructure.vault.test_mem_vault import derived_from, note, stored

pytestmark = pytest.mark.sqlite

ROOT = Path(__file__).parents[3]
# what these compare lies on disk as it is written
LOOKING = {
    "test_arrays_come_back_as_they_were_and_can_be_written_to",
    "test_a_payload_is_stored_once_under_its_digest",
    "test_a_flipped_bit_is_found_and_storing_again_repairs_it",
    "test_a_tampered_audit_is_found",
    "test_vectors_that_a_crash_left_alone_go_with_the_next_deletion",
}
SECRET = "LIMPETS cling to the rocks of Oslo"
ARRAYS = {"words": np.frombuffer(SECRET.encode(), np.uint8)}
VECTOR = np.random.default_rng(0).normal(size=64).astype(np.float32)
TOKENS = np.random.default_rng(1).integers(-127, 127, (40, 64)).astype(np.int8)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KEY", "ab" * 32)
    monkeypatch.setenv("OTHER", "cd" * 32)
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(sealed_files, "MEMORY", tmp_path / "memory")


def pages(file: Path) -> Iterator[bytes]:
    """What one with the key reads in SQLCipher's pages, free ones and gaps too: AES-256-CBC, the IV before the HMAC."""
    content, key = file.read_bytes(), unlock(file.parent, None)
    assert key
    starts = [(at, at // 4096 + 1) for at in range(0, len(content), 4096)]
    if file.name.endswith("-wal"):
        frames = range(32, len(content), 24 + 4096)
        starts = [(at + 24, int.from_bytes(content[at : at + 4], "big")) for at in frames]
    cipher = AES(key.made(file.name.removesuffix("-wal")))
    for at, number in starts:
        page = content[at : at + 4096]
        opener = Cipher(cipher, CBC(page[-80:-64])).decryptor()
        yield opener.update(page[16 if number == 1 else 0 : -80]) + opener.finalize()


@pytest.fixture(autouse=True)
def as_one_with_the_key_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion is for those with the key, too."""

    def decrypted(vault: MemVault) -> bytes:
        return b"".join(
            page for file in sorted(vault.path.glob("*.db*")) if "shm" not in file.name for page in pages(file)
        )

    monkeypatch.setattr(test_mem_vault, "bytes_on_disk", decrypted)


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[MemVault]:
    with MemVault(tmp_path / "vault", key="env:KEY") as opened:
        yield opened


def like(module: Any) -> dict[str, Callable[..., None]]:
    """The tests of any vault that is given one."""
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and name not in LOOKING and "vault" in inspect.signature(test).parameters
    }


globals().update(like(test_mem_vault) | like(test_index_store))


def in_memory(tmp_path: Path) -> list[str]:
    return sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "memory").rglob("*") if path.is_file())


class Kept:
    """A vault with something of every kind, and whether it is all there."""

    def __init__(self, path: Path, key: str | None) -> None:
        self.path = path
        with MemVault(path, key=key) as vault:
            self.cubes: list[MemCube] = [note(f"{SECRET} {n}") for n in range(20)]
            for cube in self.cubes:
                vault.put(cube)
            vault.vectors.put("mini", [VectorRow(cube.id, 1, "", VECTOR, TOKENS) for cube in self.cubes])
            self.kv = stored(vault, SECRET.encode() * 100)
            self.adapter = stored(vault, {"adapter_config.json": b"{}", "w.safetensors": SECRET.encode() * 50})
            for cube, blob in zip(self.cubes, (self.kv, self.adapter), strict=False):
                vault.put(derived_from(cube, blob=blob))
            job = vault.jobs.start("promote", {"sources": []})
            (vault.blobs.work(job.id) / "checkpoint").write_bytes(SECRET.encode() * 10)
            vault.jobs.end(job, "interrupted")
            vault.index.save("l/1", "mini", vault.last_change(), ARRAYS)

    def require_all(self, key: str | None = None) -> None:
        with MemVault(self.path, key=key) as vault:
            assert problems_of(vault) == []
            assert [vault.get(cube.id).payload for cube in self.cubes] == [cube.payload for cube in self.cubes]
            assert len(vault.cubes()) == 22
            read = (
                vault.vectors.of("mini", [c.id for c in self.cubes]),
                vault.vectors.tokens("mini", [self.cubes[3].id]),
            )
            assert all(np.array_equal(vector, VECTOR) for _, _, vector in read[0].values()) and len(read[0]) == 20
            assert np.array_equal(read[1][self.cubes[3].id], TOKENS)
            assert vault.blobs.path(self.kv).read_bytes() == SECRET.encode() * 100
            assert (vault.blobs.path(self.adapter) / "w.safetensors").read_bytes() == SECRET.encode() * 50
            kept = vault.index.load("l/1", "mini")
            assert kept is not None and np.array_equal(kept[1]["words"], ARRAYS["words"])

    def digests(self) -> dict[str, tuple[str, int]]:
        return {
            str(path.relative_to(self.path)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
            for path in sorted(self.path.rglob("*"))
            if path.is_file()
        }


def shows(path: Path, kept: Kept) -> list[str]:
    """What of a vault can be read in the names and bytes of its files."""
    secrets = {
        "text": SECRET.encode(),
        "wide text": SECRET.encode("utf-16-le"),
        "vector": VECTOR.tobytes()[:16],
        "tokens": TOKENS.tobytes()[:16],
        "id": kept.cubes[0].id.encode(),
        "digest": kept.kv.sha256.encode(),
        "digest of a folder": kept.adapter.sha256[:12].encode(),
        "table": b"CREATE TABLE",
        "database": b"SQLite format 3",
    }
    files = [file for file in path.rglob("*") if file.is_file()]
    on_disk = b"".join(file.read_bytes() + str(file.relative_to(path)).encode() for file in files)
    return [name for name, secret in secrets.items() if secret in on_disk]


# nothing is shown


def test_nothing_of_an_encrypted_vault_can_be_read_on_disk(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "plain", None)
    assert len(shows(kept.path, kept)) == 8  # what is looked for would be found; utf-16 nobody writes
    kept = Kept(tmp_path / "vault", "env:KEY")
    assert shows(kept.path, kept) == []
    with MemVault(kept.path) as vault:  # nor while it is open, with its write-ahead log, and what it lends
        vault.put(note(SECRET))
        with vault.blobs.staging() as staged:
            staged.write_bytes(SECRET.encode())
            assert shows(kept.path, kept) == []
            assert vault.path not in staged.parents and vault.path not in vault.blobs.path(kept.kv).parents
    assert in_memory(tmp_path) == []


def test_what_lies_in_memory_is_for_this_user_alone_and_goes(tmp_path: Path, vault: MemVault) -> None:
    cube, blob = note(), stored(vault, b"kv" * 100)
    vault.put(cube)
    derived = derived_from(cube, blob=blob)
    vault.put(derived)
    path = vault.blobs.path(blob)
    assert all(parent.stat().st_mode & 0o077 == 0 for parent in path.parents if parent.parent == tmp_path / "memory")
    vault.delete([cube.id, derived.id])
    assert not path.exists() and in_memory(tmp_path) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from memos.infrastructure.vault.sqlite.opening import PLAIN_DRIVER
from memos.plugins.encryption import sealed_files
from memos.infrastructure.vault.sqlite.database import Database
sealed_files.MEMORY = Path(sys.argv[2])
from memos.infrastructure.vault.mem_vault import MemVault
vault = MemVault(Path(sys.argv[1]), key="env:KEY")
job = vault.jobs.start("promote", {})
(vault.blobs.work(job.id) / "checkpoint").write_bytes(b"half")
with vault.blobs.staging() as staged:
    staged.write_bytes(b"secret")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_in_memory_is_removed_and_its_work_is_taken_up(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "vault"), str(tmp_path / "memory")]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(in_memory(tmp_path)) == 2
    with MemVault(tmp_path / "vault") as vault:
        [job] = vault.jobs.all("interrupted")
        assert [name.split("/")[-1] for name in in_memory(tmp_path)] == ["checkpoint"]
    assert in_memory(tmp_path) == []  # it is sealed while the vault is closed
    with MemVault(tmp_path / "vault") as vault:
        resumed = vault.jobs.resume("promote", {})
        assert resumed and resumed.id == job.id
        assert (vault.blobs.work(job.id) / "checkpoint").read_bytes() == b"half"
        vault.jobs.end(resumed, "done")
        assert in_memory(tmp_path) == [] and not list((tmp_path / "vault" / "work").iterdir())


def test_what_lies_in_memory_goes_where_nobody_closes_the_vault(tmp_path: Path) -> None:
    path = tmp_path / "vault"
    files = sealed_files.SealedFiles(path, DataKey.fresh(), None, alone=True)
    made(files.staged).joinpath("x").write_bytes(b"x")
    assert len(in_memory(tmp_path)) == 1
    del files
    gc.collect()
    assert in_memory(tmp_path) == []


def test_an_open_folder_for_plaintext_is_refused(tmp_path: Path, vault: MemVault) -> None:
    [folder] = (tmp_path / "memory").iterdir()
    folder.chmod(0o755)
    with pytest.raises(VaultError, match=r"open to others.*vault\.scratch"):
        MemVault(vault.path)
    with pytest.raises(VaultError, match=r"is no folder.*vault\.scratch"):
        MemVault(vault.path, scratch=tmp_path / "nowhere")
    MemVault(vault.path, scratch=tmp_path).close()
    folder.chmod(0o700)


def test_files_that_are_lent_make_room_and_are_lent_again(vault: MemVault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_files, "_SHARE", 1e-12)
    blobs = [stored(vault, bytes([n]) * 100) for n in range(3)]
    paths = [vault.blobs.path(blob) for blob in blobs]
    assert all(path.exists() for path in paths)  # just lent: somebody is about to open them
    monkeypatch.setattr(sealed_files, "_LENT_S", 0.0)
    with paths[0].open("rb") as opened:
        again = stored(vault, b"x" * 100)
        assert vault.blobs.path(again).exists() and not any(path.exists() for path in paths)
        assert opened.read() == bytes(100)
    assert vault.blobs.path(blobs[1], verified=False).read_bytes() == bytes([1]) * 100


def test_a_payload_that_meets_a_full_disk_is_named_and_leaves_nothing(vault: MemVault) -> None:
    vault.put(note())
    before = sorted(vault.path.rglob("*"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with vault.blobs.staging() as staged:
        staged.write_bytes(bytes(3 << 20))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        try:
            with pytest.raises(VaultError, match="was not written.*File too large"):
                vault.blobs.store(staged)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(path for path in vault.path.rglob("*") if path.name != "tmp") == before


# nothing is taken that was changed


@pytest.mark.slow
def test_a_flipped_bit_in_any_file_is_found(tmp_path: Path) -> None:
    kept, chance = Kept(tmp_path / "vault", "env:KEY"), random.Random(7)
    for path in every_file(kept.path):
        sound = path.read_bytes()
        bits = {chance.randrange(8 * len(sound)) for _ in range(12)} | set(range(0, 8 * 96, 61))
        for bit in sorted(bit for bit in bits if bit < 8 * len(sound)):
            spoilt = bytearray(sound)
            spoilt[bit // 8] ^= 1 << bit % 8
            path.write_bytes(spoilt)
            # the checksums of the rest, and room that holds nothing
            assert path.name in ("sums.json", "reserve") or found(kept), f"bit {bit} of {path}"
            path.write_bytes(sound)
    kept.require_all()


def test_the_check_of_a_closed_vault_and_of_its_backup_finds_a_flipped_bit_in_any_file(tmp_path: Path) -> None:
    kept, backup, chance = Kept(tmp_path / "vault", "env:KEY"), tmp_path / "backup", random.Random(11)
    care.back_up(kept.path, backup)
    for folder in (kept.path, backup):
        assert care.check(folder) == []
        for path in every_file(folder):
            sound = path.read_bytes()
            for spoilt in (flipped(sound, chance.randrange(8 * len(sound))), sound[:-1]):
                path.write_bytes(spoilt)
                assert care.check(folder), path
            path.write_bytes(sound)
        assert care.check(folder) == []


def every_file(folder: Path) -> list[Path]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock")
    return [path for path in files if path.stat().st_size]


def flipped(sound: bytes, bit: int) -> bytes:
    spoilt = bytearray(sound)
    spoilt[bit // 8] ^= 1 << bit % 8
    return bytes(spoilt)


@pytest.mark.parametrize("count", [1, pytest.param(60, marks=pytest.mark.slow)])
def test_a_flipped_bit_in_any_page_is_found(tmp_path: Path, count: int) -> None:
    """Of free ones, too."""
    kept, chance = Kept(tmp_path / "vault", "env:KEY"), random.Random(13)
    with MemVault(kept.path) as vault:
        vault.delete([cube.id for cube in kept.cubes[5:]])
        assert vault._db.rows("PRAGMA side.freelist_count")[0][0] > 5
    key = unlock(kept.path, None)
    for name in ("vault.db", "vectors.db"):
        sound = (kept.path / name).read_bytes()
        for page in range(0, len(sound), 4096):
            for _ in range(count):
                at, bit = page + chance.randrange(4096), chance.randrange(8)
                spoilt = bytearray(sound)
                spoilt[at] ^= 1 << bit
                (kept.path / name).write_bytes(spoilt)
                assert damaged(kept.path, key), f"bit {bit} of byte {at} of {name}"
                (kept.path / name).write_bytes(sound)
    assert not damaged(kept.path, key)


def damaged(folder: Path, key: DataKey | None) -> bool:
    try:
        with VaultReader(folder, alone=True, driver=SealedDriver(key) if key else PLAIN_DRIVER) as reader:
            return bool(reader.side_problem or reader.damage("main") or reader.damage("side"))
    except VaultError:
        return True


def found(kept: Kept) -> bool:
    """By the proofs alone. Work that cannot be taken up is told, and begun anew; an index is made anew."""
    copy = kept.path.with_name("copy")
    shutil.copytree(kept.path, copy)
    (copy / "sums.json").unlink()
    try:
        with MemVault(copy) as vault:
            [job] = vault.jobs.all("interrupted")
            if problems_of(vault) or not list(vault.blobs.work(job.id).iterdir()):
                return True
            vault.index.load("l/1", "mini")
    except VaultError:
        return True
    finally:
        shutil.rmtree(copy)
    return False


def test_files_that_changed_places_are_found(vault: MemVault) -> None:
    one, other = stored(vault, b"a" * 99), stored(vault, b"b" * 99)
    paths = [vault.blobs.stored(blob) for blob in (one, other)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[::-1], strict=True):
        path.write_bytes(content)
    for blob in (one, other):
        for verified in (True, False):
            with pytest.raises(CorruptBlob):
                vault.blobs.path(blob, verified=verified)


# no wrong key changes anything


@pytest.mark.parametrize(
    "named, error",
    [("env:OTHER", WrongKey), ("env:NONE", KeyUnusable), ("file:/no/such", KeyUnusable), ("x", KeyUnusable)],
)
@pytest.mark.parametrize("act", [lambda p, k: MemVault(p, key=k), decrypt, rekey, lambda p, k: rekey(p, k, data=True)])
def test_a_wrong_key_changes_no_file(
    tmp_path: Path, named: str, error: type[VaultError], act: Callable[[Path, str], object]
) -> None:
    kept = Kept(tmp_path / "vault", "env:KEY")
    before = kept.digests()
    with pytest.raises(error):
        act(kept.path, named)
    assert kept.digests() == before
    kept.require_all()


def test_a_key_for_a_plain_vault_changes_no_file(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "vault", None)
    before = kept.digests()
    with pytest.raises(KeyUnusable, match="not encrypted.*memos vault encrypt"):
        MemVault(kept.path, key="env:KEY")
    for act in (decrypt, rekey):
        with pytest.raises(KeyUnusable, match="not encrypted"):
            act(kept.path)
    assert kept.digests() == before


@pytest.mark.parametrize("package", ["sqlcipher3", "cryptography"])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    kept = Kept(tmp_path / "vault", "env:KEY")
    before = kept.digests()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(KeyUnusable, match=rf"package {package}.*\.\[encryption\]"):
        MemVault(kept.path)
    with pytest.raises(KeyUnusable, match=rf"package {package}.*\.\[encryption\]"):
        MemVault(tmp_path / "new", key="env:KEY")
    assert kept.digests() == before and not (tmp_path / "new" / NAME).exists()


# a vault changes its key


def test_a_vault_is_encrypted_rekeyed_and_decrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path / "vault", None)
    encrypt(kept.path, "env:KEY")
    assert shows(kept.path, kept) == []
    kept.require_all()
    before = kept.digests()

    rekey(kept.path, to="env:OTHER")
    assert {name for name, told in kept.digests().items() if told != before[name]} == {NAME, "sums.json"}
    monkeypatch.delenv("KEY")
    kept.require_all("env:OTHER")

    rekey(kept.path, data=True)
    after = kept.digests()
    same = {name for name in after.keys() & before.keys() if after[name][0] == before[name][0]}
    assert {
        name for name in same if (kept.path / name).read_bytes().strip(b"\0")
    } == set()  # empty files, and the reserve
    assert shows(kept.path, kept) == []
    kept.require_all()

    with pytest.raises(KeyUnusable, match="already"):
        encrypt(kept.path, "env:OTHER")
    decrypt(kept.path)
    assert not is_encrypted(kept.path)
    kept.require_all()
    assert in_memory(tmp_path) == []


def test_an_open_vault_is_not_written_anew_but_its_key_is_changed(vault: MemVault) -> None:
    vault.put(note())
    for act in (decrypt, lambda path: rekey(path, data=True)):
        with pytest.raises(VaultError, match="open in another process"):
            act(vault.path)
    rekey(vault.path, to="env:OTHER")
    with MemVault(vault.path, key="env:OTHER") as other:
        assert len(other.cubes()) == 1
    with pytest.raises(WrongKey):
        MemVault(vault.path, key="env:KEY")


def test_a_folder_without_a_vault_is_named(tmp_path: Path) -> None:
    for act in (lambda path: encrypt(path, "env:KEY"), decrypt, rekey):
        with pytest.raises(VaultError, match="no vault"):
            act(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_damaged_payload_is_not_taken_along(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "vault", None)
    with MemVault(kept.path) as vault:
        file = vault.blobs.stored(kept.kv)
    file.write_bytes(b"x" + file.read_bytes()[1:])
    with pytest.raises(CorruptBlob, match="memos vault check"):
        encrypt(kept.path, "env:KEY")
    assert not is_encrypted(kept.path) and not list(kept.path.glob("next*"))


ACTS: dict[str, Callable[[Path], None]] = {
    "encrypt": lambda path: encrypt(path, "env:KEY"),
    "rekey": lambda path: rekey(path, to="env:OTHER"),
    "rekey --data": lambda path: rekey(path, to="env:OTHER", data=True),
    "decrypt": decrypt,
}
_CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "sqlite3.connect")


def killed_at(act: Callable[[Path], None], path: Path, n: int) -> bool:
    """Act in a process that is killed before the n-th time that it touches a file; False if it had ended before."""
    child = os.fork()
    if child == 0:
        left = n

        def count(event: str, told: tuple[Any, ...]) -> None:
            nonlocal left
            if event in _CHANGES and str(path) in str(told):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        act(path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "act", [act if act == "encrypt" else pytest.param(act, marks=pytest.mark.slow) for act in ACTS]
)
def test_killed_at_any_time_a_vault_opens_with_the_old_or_the_new_key(tmp_path: Path, act: str, every: int) -> None:
    kept = Kept(tmp_path / "sound", None if act == "encrypt" else "env:KEY")
    kept.path, n, ends = tmp_path / "vault", 1, set[str]()
    cut_off = True
    while cut_off:
        shutil.copytree(tmp_path / "sound", kept.path)
        cut_off = killed_at(ACTS[act], kept.path, n)
        kept.require_all()  # key.json says which key it is
        ends.add(source(kept.path) if is_encrypted(kept.path) else "none")
        assert not list(kept.path.glob("next*")) and not in_memory(tmp_path)
        assert not is_encrypted(kept.path) or shows(kept.path, kept) == []
        shutil.rmtree(kept.path)
        n += every
    assert n > (5 if act == "rekey" else 30)
    assert ends == {
        "none" if act == "encrypt" else "env:KEY",
        {"encrypt": "env:KEY", "decrypt": "none"}.get(act, "env:OTHER"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS)
def test_killed_at_random_times(tmp_path: Path, act: str) -> None:
    kept, chance = Kept(tmp_path / "sound", None if act == "encrypt" else "env:KEY"), random.Random(11)
    kept.path = tmp_path / "vault"
    for _ in range(50):
        shutil.copytree(tmp_path / "sound", kept.path)
        child = os.fork()
        if child == 0:
            ACTS[act](kept.path)
            os._exit(0)
        time.sleep(chance.uniform(0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kept.require_all()
        shutil.rmtree(kept.path)


# what looks after a vault needs its key, and writes nothing in the clear


def test_a_backup_of_an_encrypted_vault_is_encrypted_and_comes_back(tmp_path: Path) -> None:
    kept, backup, again = Kept(tmp_path / "vault", "env:KEY"), tmp_path / "backup", tmp_path / "again"
    first = care.back_up(kept.path, backup)
    later = care.back_up(kept.path, backup)  # payloads of the first are taken over
    blobs = sum(path.stat().st_size for path in (backup / "blobs").rglob("*") if path.is_file())
    assert first.copied == first.bytes and later.copied == later.bytes - blobs
    assert shows(backup, kept) == [] and care.check(backup) == []
    care.restore(backup, again)
    assert care.check(again) == [] and shows(again, kept) == []
    kept.path.rename(tmp_path / "elsewhere")
    again.rename(kept.path)
    kept.require_all()


def test_a_backup_of_before_the_encryption_is_replaced_whole(tmp_path: Path) -> None:
    kept, backup = Kept(tmp_path / "vault", None), tmp_path / "backup"
    care.back_up(kept.path, backup)
    assert shows(backup, kept)
    encrypt(kept.path, "env:KEY")
    care.back_up(kept.path, backup)
    assert shows(backup, kept) == [] and care.check(backup) == []


@pytest.mark.parametrize("named, error", [("env:OTHER", WrongKey), ("env:NONE", KeyUnusable)])
def test_nothing_is_looked_after_with_a_wrong_key(named: str, error: type[Exception], tmp_path: Path) -> None:
    kept, backup = Kept(tmp_path / "vault", "env:KEY"), tmp_path / "backup"
    care.back_up(kept.path, backup)
    before, settings = kept.digests(), VaultConfig(key=named)
    for act in (
        lambda: care.check(kept.path, settings=settings),
        lambda: care.check(backup, settings=settings),
        lambda: care.back_up(kept.path, tmp_path / "other", settings=settings),
        lambda: care.opened(kept.path, settings),  # as for its figures, and to be compacted
    ):
        with pytest.raises(error):
            act()
    assert kept.digests() == before and not (tmp_path / "other").exists()


def test_damage_of_an_encrypted_vault_is_found_and_a_backup_brings_it_back(tmp_path: Path) -> None:
    kept, file, backup = Kept(tmp_path / "vault", "env:KEY"), tmp_path / "vault" / "vault.db", tmp_path / "backup"
    care.back_up(kept.path, backup)
    sound = file.read_bytes()
    for page in range(2, len(sound) // 4096, 5):
        file.write_bytes(flipped(sound, 8 * 4096 * page + 99))
        assert care.check(kept.path)
    care.restore(backup, tmp_path / "again")
    assert care.check(tmp_path / "again") == [] and shows(tmp_path / "again", kept) == []
    with MemVault(tmp_path / "again") as vault:
        assert len(vault.cubes()) == 22


def test_a_damaged_key_is_named(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "vault", "env:KEY")
    (kept.path / NAME).write_bytes(flipped((kept.path / NAME).read_bytes(), 700))
    before = kept.digests()
    [problem] = care.check(kept.path)
    assert "key.json is not what was written" in problem
    assert kept.digests() == before


def test_a_damaged_key_of_a_vault_whose_process_died_is_named_too(tmp_path: Path) -> None:
    with MemVault(tmp_path / "vault", key="env:KEY") as vault:
        vault.put(note())
        shutil.copytree(tmp_path / "vault", tmp_path / "killed")  # as a kill leaves it
    file = tmp_path / "killed" / NAME
    sound = file.read_bytes()
    for spoilt in (*(flipped(sound, bit) for bit in range(0, 8 * len(sound), 61)), sound[:-9], b""):
        file.write_bytes(spoilt)
        [problem] = care.check(tmp_path / "killed")
        assert "key.json cannot be used" in problem and "bring back a copy" in problem
    file.write_bytes(sound)
    assert care.check(tmp_path / "killed") == []


def test_bytes_are_found_in_what_is_encrypted(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "vault", "env:KEY")
    with MemVault(kept.path) as vault:
        found = vault.forgetting.search([b"absent from here"])
        assert (found.found, found.unread) == ((), ()) and found.decrypted >= 4
        vault.put(note(SECRET))
        blob = stored(vault, SECRET.encode())
        shutil.copy(vault.path / "vault.db", vault.path / "vault.old.db")
        shutil.copy(vault.path / "vault.db-wal", vault.path / "vault.old.db-wal")
        raw, said = (
            search(vault.path, [SECRET.encode()]),
            search(vault.path, [SECRET.encode()], unsealer=vault.sealing.unsealer),
        )
        assert raw.found == () == raw.unread and raw.decrypted == 0
        names = {Path(name).name for name, _ in said.found}
        assert names >= {"vault.old.db-wal", vault.blobs.stored(blob).name} and said.unread == ()
    (vault.path / "vectors.db").write_bytes(flipped((vault.path / "vectors.db").read_bytes(), 8 * 5000))
    [unread] = search(kept.path, [b"x" * 9], unsealer=vault.sealing.unsealer).unread
    assert unread.startswith("vectors.db: page 2 of ")


def test_space_is_given_back_in_an_encrypted_vault(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "vault", "env:KEY")
    with MemVault(kept.path) as vault:
        vault.delete([cube.id for cube in kept.cubes[2:]])
    with care.opened(kept.path) as vault:
        before, after = vault.compact()
        assert after < before and vault.stats.all()["users"]
    assert care.check(kept.path) == []


def test_the_copy_before_an_upgrade_is_encrypted_too(tmp_path: Path) -> None:
    path = tmp_path / "vault"
    path.mkdir()
    key = unlock(path, "env:KEY")
    cube = of_the_schema_before(path, SealedDriver(key))
    with MemVault(path) as vault:
        assert vault.get(cube.id).payload == cube.payload
    copy = path / "vault.schema-18.db"
    assert cube.text.encode() not in copy.read_bytes()
    with closing(SealedDriver(key).connect(copy, "vault.db")) as db:
        assert db.execute("SELECT id FROM versions").fetchall() == [(cube.id,)]


def test_copies_from_before_an_upgrade_are_not_left_in_the_clear(tmp_path: Path) -> None:
    path = tmp_path / "vault"
    cube = of_the_schema_before(path)
    MemVault(path).close()
    assert cube.text.encode() in (path / "vault.schema-18.db").read_bytes()
    encrypt(path, "env:KEY")
    assert not any(cube.text.encode() in file.read_bytes() for file in path.rglob("*") if file.is_file())
    assert care.check(path) == []
