"""The file that holds what an index was: whole, named by the vault, and gone with a deleted text."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from memos.cube import Form, Header, MemCube, Rights, Text, new_id
from memos.errors import CorruptBlob, VaultError
from memos.infrastructure.vault.blobs import index_store
from memos.infrastructure.vault.mem_vault import MemVault

ROOT = Path(__file__).parents[4]
ARRAYS = {
    "words": np.frombuffer(b"LIMPET", np.uint8),
    "vectors": np.arange(12, dtype=np.float32).reshape(3, 4),
    "rows": np.array([-1, 2**40]),
    "asks": np.array([True, False]),
    "counts": np.array([65_535], np.uint16),
    "said": np.array([1.5]),
    "speaker": np.zeros(0, np.int32),
    "none": np.zeros((0, 4), np.float32),
}


def note(text: str = "Ada lives in Oslo.") -> MemCube:
    header = Header(created=datetime.now(timezone.utc))
    return MemCube(id=new_id(), form=Form.PLAINTEXT, rights=Rights(owner="ada"), header=header, payload=Text(text=text))


def files(vault: MemVault) -> list[Path]:
    return sorted((vault.path / "index").glob("*"))


def keep(vault: MemVault, embedder: str = "mini") -> Path:
    assert vault.index.save("l/1", embedder, vault.last_change(), ARRAYS)
    [path] = files(vault)
    return path


def test_arrays_come_back_as_they_were_and_can_be_written_to(vault: MemVault) -> None:
    vault.put(note())
    path = keep(vault)
    kept = vault.index.load("l/1", "mini")
    assert kept is not None and kept[0] == vault.last_change()
    read_by_others = load_file(path)  # the file is what it says it is
    for name, array in ARRAYS.items():
        assert (kept[1][name].dtype, kept[1][name].shape) == (array.dtype, array.shape)
        assert kept[1][name].tobytes() == array.tobytes() == read_by_others[name].tobytes()
        kept[1][name][...] = 0


def test_nothing_kept_is_none(vault: MemVault) -> None:
    assert vault.index.load("l/1", "mini") is None


def test_the_last_one_kept_takes_the_place_of_the_others(vault: MemVault) -> None:
    first = keep(vault)
    assert keep(vault, "other") != first
    assert not first.exists()


def test_how_many_changed_since_is_told(vault: MemVault) -> None:
    vault.put(note())
    assert vault.index.behind("l/1", "mini") == 1
    keep(vault)
    assert (vault.index.behind("l/1", "mini"), vault.index.behind("l/1", "other")) == (0, 1)
    for _ in range(2):
        vault.put(note())
    assert vault.index.behind("l/1", "mini") == 2


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(at: int) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[at] ^= 0x10
        path.write_bytes(content)

    return spoil


def test_a_file_that_is_cut_is_not_completed_by_what_memory_holds(vault: MemVault) -> None:
    """Memory that is asked for often still holds what was read into it before: the very bytes that are missing."""
    numbers = {"numbers": np.arange(200, dtype=np.int32)}
    assert vault.index.save("l/1", "mini", vault.last_change(), numbers)
    [path] = files(vault)
    whole, unseen = path.read_bytes(), []
    [(digest,)] = vault._db.rows("SELECT digest FROM indexes")
    for size in range(len(whole) - 800, len(whole), 8):
        path.write_bytes(whole)
        index_store.read_kept(path, vault._files.format, digest)
        path.write_bytes(whole[:size])
        try:
            index_store.read_kept(path, vault._files.format, digest)
            unseen.append(size)
        except CorruptBlob:
            pass
    assert unseen == []


@pytest.mark.parametrize(
    "spoil",
    [cut, lengthen, empty, pytest.param(Path.unlink, marks=pytest.mark.sqlite), *map(flip, (0, 6, 20, 60, -1, -30))],
)
def test_a_file_that_is_not_what_was_written_is_named_and_forgotten(
    vault: MemVault, spoil: Callable[[Path], None]
) -> None:
    path = keep(vault)
    spoil(path)
    with pytest.raises(CorruptBlob, match=path.name):
        vault.index.load("l/1", "mini")
    assert vault.index.load("l/1", "mini") is None  # and is kept anew


@pytest.mark.parametrize(
    "wanted, message", [(("l/2", "mini"), "layout 'l/1', not 'l/2'"), (("l/1", "big"), "embedder 'mini', not 'big'")]
)
def test_an_index_of_something_else_is_refused(vault: MemVault, wanted: tuple[str, str], message: str) -> None:
    keep(vault)
    with pytest.raises(VaultError, match=message):
        vault.index.load(*wanted)


def test_a_deletion_takes_the_words_away(vault: MemVault) -> None:
    cube = note()
    vault.put(cube)
    path = keep(vault)
    part = path.with_name("x.safetensors.part")  # of a process that writes one now
    part.write_bytes(b"LIMPET")
    with pytest.raises(ZeroDivisionError), vault.transaction():
        vault.delete([cube.id])
        raise ZeroDivisionError
    assert vault.index.load("l/1", "mini") is not None and path.exists()  # as it was not deleted
    vault.delete([cube.id])
    assert vault.index.load("l/1", "mini") is None and files(vault) == []


def test_what_was_read_before_a_deletion_is_not_kept_after_it(vault: MemVault) -> None:
    cube = note()
    vault.put(cube)
    change = vault.last_change()
    with MemVault(vault.path) as other:
        other.delete([cube.id])
    assert not vault.index.save("l/1", "mini", change, ARRAYS)
    assert files(vault) == []


def test_a_deletion_while_it_is_written_wins(vault: MemVault, monkeypatch: pytest.MonkeyPatch) -> None:
    cube, write = note(), index_store._write
    vault.put(cube)

    def written_meanwhile(to: Callable[[bytes], object], arrays: index_store.Arrays) -> str:
        digest = write(to, arrays)
        with MemVault(vault.path) as other:
            other.delete([cube.id])
        assert files(vault) == []
        return digest

    monkeypatch.setattr(index_store, "_write", written_meanwhile)
    assert not vault.index.save("l/1", "mini", vault.last_change() + 5, ARRAYS)
    assert files(vault) == [] and vault.index.load("l/1", "mini") is None


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from memos.infrastructure.vault.mem_vault import MemVault
at = sys.argv[2]
def killed(*_): os.kill(os.getpid(), signal.SIGKILL)
vault = MemVault(Path(sys.argv[1]))
if at == "rename":
    Path.rename = killed
elif at == "sync":
    os.fsync = killed
vault.index.save("l/1", "mini", vault.last_change(), {"words": np.frombuffer(b"LIMPET", np.uint8)})
if at == "after":
    killed()
"""


@pytest.mark.parametrize("at, kept", [("sync", False), ("rename", False), ("after", True)])
def test_a_kill_leaves_the_old_one_or_the_new_one(tmp_path: Path, at: str, kept: bool) -> None:
    with MemVault(tmp_path) as vault:
        old = keep(vault)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), at], env=env)
    assert run.returncode == -signal.SIGKILL
    assert len(files(vault)) == 2 - kept
    with MemVault(tmp_path) as vault:
        found = vault.index.load("l/1", "mini")
        assert found is not None and (len(found[1]) == 1) == kept
        assert len(files(vault)) == 1 and (old in files(vault)) != kept


@pytest.mark.sqlite
def test_a_file_beside_a_copy_that_was_brought_back_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with MemVault(tmp_path) as vault:
        vault.put(note())
    copy = (tmp_path / "vault.db").read_bytes()
    with MemVault(tmp_path) as vault:
        vault.put(note())
        path = keep(vault)
    (tmp_path / "vault.db").write_bytes(copy)
    with caplog.at_level(logging.WARNING, "memos"), MemVault(tmp_path) as vault:
        assert vault.index.load("l/1", "mini") is None and files(vault) == []
    assert path.name in caplog.text and "not named by the vault" in caplog.text


def test_a_folder_that_cannot_be_written_is_named(vault: MemVault) -> None:
    (vault.path / "index").write_text("a file in the way")
    with pytest.raises(VaultError, match="index.*make sure that the folder can be written to"):
        vault.index.save("l/1", "mini", 0, ARRAYS)
