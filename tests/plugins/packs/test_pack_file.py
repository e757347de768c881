"""A pack's container: one canonical form, and nothing else is read."""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

from memos.errors import BadPack, InputError, VaultError
from memos.plugins.packs.pack_file import MAX_NAME, MAX_PARTS, reading, require_names, writing

PARTS = {"records/000000.jsonl": b"one\ntwo\n", "blobs/a/card.json": b"{}", "manifest.json": b"x" * 3_000_000}


def packed(path: Path, parts: dict[str, bytes] = PARTS, folder: bool = False) -> Path:
    with writing(path, folder) as sink:
        for name, content in parts.items():
            sink.add(name, [content[:7], content[7:]])
    return path


def read(path: Path) -> dict[str, bytes]:
    parts = reading(path)
    try:
        return {name: b"".join(parts.pieces(name)) for name in parts.sizes}
    finally:
        parts.close()


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_what_is_written_is_read(tmp_path: Path, folder: bool) -> None:
    assert read(packed(tmp_path / "x", folder=folder)) == PARTS
    assert [p.name for p in tmp_path.iterdir()] == ["x"]  # nothing staged is left


def test_the_file_is_a_zip_that_other_programs_open(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.mip")
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None and {name: file.read(name) for name in file.namelist()} == PARTS
    assert packed(tmp_path / "y.mip").read_bytes() == path.read_bytes()


def test_nothing_is_written_over_or_left_half(tmp_path: Path) -> None:
    path = packed(tmp_path / "x")
    with pytest.raises(InputError, match="is there already"):
        packed(path)
    with pytest.raises(ZeroDivisionError), writing(tmp_path / "y") as sink:
        sink.add("a.json", (b"" if n else bytes(1 // n) for n in (1, 0)))
    with pytest.raises(VaultError, match="was not written"):
        packed(path / "beneath a file")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def zipped(tmp_path: Path, *entries: tuple[str | zipfile.ZipInfo, bytes], how: int = zipfile.ZIP_STORED) -> Path:
    """By another program."""
    with zipfile.ZipFile(tmp_path / "other.zip", "w", how) as file:
        for name, content in entries:
            file.writestr(name, content)
    return tmp_path / "other.zip"


def test_a_bomb_is_refused_before_it_unfolds(tmp_path: Path) -> None:
    path = zipped(tmp_path, ("manifest.json", bytes(1 << 28)), how=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(BadPack, match="does not end as a pack does|compressed"):
        read(path)


@pytest.mark.parametrize(
    "name",
    [
        *("../out.json", "/etc/out.json", "a/../../out.json", "a\\out.json", "C:/out.json", "nul.json", "a/com1.json"),
        *("a//b.json", ".hidden.json", "a./b.json", "ä.json", "a\0.json", "", "x" * MAX_NAME + ".json", "a\n.json"),
    ],
)
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadPack, match="no plain path"):
        require_names([name], tmp_path)


@pytest.mark.parametrize(
    "names, why",
    [
        (["a.json", "A.json"], "differ in case only"),
        (["a.json", "a.json/b.json"], "a part and a folder"),
        (["a.pkl"], "another kind"),
        (["a.sh"], "another kind"),
        (["a"], "another kind"),
    ],
)
def test_names_that_a_file_system_confuses_are_refused(tmp_path: Path, names: list[str], why: str) -> None:
    with pytest.raises(BadPack, match=why):
        require_names(names, tmp_path)


def test_a_name_that_leads_out_of_a_file_or_a_folder_is_found(tmp_path: Path) -> None:
    slip = packed(tmp_path / "x", {"aaaaaaaaaaa.json": b"x"})
    slip.write_bytes(slip.read_bytes().replace(b"aaaaaaaaaaa", b"../../../ab"))
    with pytest.raises(BadPack, match="no plain path"):
        reading(slip)
    twice = packed(tmp_path / "y", {"a.json": b"x", "b.json": b"x"})
    twice.write_bytes(twice.read_bytes().replace(b"b.json", b"a.json"))
    with pytest.raises(BadPack, match="the same name"):
        reading(twice)


def test_links_and_devices_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("manifest.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(BadPack):
        reading(zipped(tmp_path, (link, b"/etc/passwd")))
    (tmp_path / "secret.json").write_text("secret")
    for n, make in enumerate(
        (lambda p: p.symlink_to(tmp_path / "secret.json"), os.mkfifo, lambda p: p.symlink_to("/"))
    ):
        folder = packed(tmp_path / f"f{n}", folder=True)
        make(folder / "extra.json")
        with pytest.raises(BadPack, match="a link or a device"):
            reading(folder)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(BadPack, match="neither a file nor a folder"):
        reading(tmp_path / "fifo")


def test_a_folder_whose_part_becomes_a_link_is_refused(tmp_path: Path) -> None:
    folder = packed(tmp_path / "f", folder=True)
    parts = reading(folder)
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").symlink_to("/etc/hostname")
    with pytest.raises(BadPack, match="cannot be read"):
        list(parts.pieces("manifest.json"))


def test_every_changed_bit_and_every_cut_is_found(tmp_path: Path) -> None:
    whole = packed(tmp_path / "x", {"a.json": b"some text", "b/c.jsonl": b"more"}).read_bytes()
    changed = tmp_path / "changed"
    for bit in range(len(whole) * 8):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        changed.write_bytes(content)
        with pytest.raises(BadPack):
            read(changed)
    for end in range(len(whole)):
        changed.write_bytes(whole[:end])
        with pytest.raises(BadPack):
            read(changed)
    for content in (whole + b"\0", b"\0" + whole, whole + whole):
        changed.write_bytes(content)
        with pytest.raises(BadPack):
            read(changed)


def test_what_is_no_pack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no pack at"):
        reading(tmp_path / "absent")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w"):
        pass
    (tmp_path / "empty").write_bytes(buffer.getvalue() + bytes(100))
    with pytest.raises(BadPack, match="does not end as a pack does"):
        reading(tmp_path / "empty")


def test_too_many_parts_are_refused_before_they_are_listed(tmp_path: Path) -> None:
    from memos.plugins.packs.pack_file import _end

    (tmp_path / "many").write_bytes(_end(MAX_PARTS + 1, 0, 0))
    with pytest.raises(BadPack, match="at most 100,000 are read"):
        reading(tmp_path / "many")


@pytest.mark.skipif(shutil.which("unzip") is None, reason="there is no unzip here")
def test_unzip_finds_no_fault(tmp_path: Path) -> None:
    subprocess.run(["unzip", "-tq", packed(tmp_path / "x.mip")], check=True, capture_output=True)
