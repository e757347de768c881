"""A file lands whole, or what was there stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memos.infrastructure.vault.store import on_disk


def test_a_file_is_on_disk_before_it_has_its_name_and_then_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, fsync, replace = list[tuple[str, int]](), os.fsync, Path.replace

    def syncs(handle: int) -> None:
        done.append(("synced", os.fstat(handle).st_ino))
        fsync(handle)

    def replaces(part: Path, path: Path) -> Path:
        done.append(("named", part.stat().st_ino))
        return replace(part, path)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(Path, "replace", replaces)
    on_disk.write(tmp_path / "a", b"one")
    file, folder = (tmp_path / "a").stat().st_ino, tmp_path.stat().st_ino
    assert done == [("synced", file), ("named", file), ("synced", folder)]
    assert (tmp_path / "a").read_bytes() == b"one"


@pytest.mark.parametrize("cut", ["fsync", "open"])
def test_what_was_there_stays_where_a_write_fails_and_nothing_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    path = tmp_path / "a"
    on_disk.write(path, b"one")

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, cut, full)
    with pytest.raises(OSError, match="No space"):
        on_disk.write(path, b"another")
    monkeypatch.undo()
    assert path.read_bytes() == b"one" and list(tmp_path.iterdir()) == [path]


def test_a_secret_is_for_its_owner_alone_whatever_a_crash_has_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(b"half")
    (tmp_path / "a.part").chmod(0o666)
    on_disk.write(tmp_path / "a", b"secret", mode=0o600)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]
