"""A sealed file is read as it was written, or refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from memos.errors import CorruptBlob
from memos.plugins.encryption.sealed_file import CHUNK, MAGIC, Unsealed, sealing

KEY = bytes(range(32))
HEAD = len(MAGIC) + 32
SEALED = CHUNK + 16  # bytes of a chunk on disk


def seal(path: Path, content: bytes, piece: int = 1 << 20) -> Path:
    with sealing(path, KEY, "a") as write:
        for at in range(0, len(content), piece):
            write(content[at : at + piece])
    return path


def read(path: Path, key: bytes = KEY, what: str = "a") -> bytes:
    with Unsealed(path, key, what) as file:
        return b"".join(file.chunks())


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 5])
@pytest.mark.parametrize("piece", [CHUNK // 3, 1 << 22])
def test_what_was_written_is_read(tmp_path: Path, size: int, piece: int) -> None:
    content = os.urandom(size)
    path = seal(tmp_path / "f", content, piece)
    assert read(path) == content
    assert path.stat().st_size == HEAD + size + 16 * max(1, -(-size // CHUNK))
    with Unsealed(path, KEY, "a") as file:  # by pieces that fit no chunk
        pieces = [file.read(size // 3 + 1) or b"" for _ in range(5)]
    assert b"".join(pieces) == content


def test_nothing_of_the_content_is_in_the_file_and_no_two_files_are_alike(tmp_path: Path) -> None:
    content = b"LIMPET" * 1000
    one, other = (seal(tmp_path / name, content).read_bytes() for name in "ab")
    assert b"LIMPET" not in one and one[HEAD:] != other[HEAD:]


def test_every_flipped_bit_is_refused(tmp_path: Path) -> None:
    path = seal(tmp_path / "f", b"Ada lives in Oslo.")
    sealed = path.read_bytes()
    for bit in range(8 * len(sealed)):
        spoilt = bytearray(sealed)
        spoilt[bit // 8] ^= 1 << bit % 8
        path.write_bytes(spoilt)
        with pytest.raises(CorruptBlob, match="not as it was sealed"):
            read(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = seal(tmp_path / "f", b"Ada lives in Oslo.")
    sealed = path.read_bytes()
    for size in range(len(sealed)):
        path.write_bytes(sealed[:size])
        with pytest.raises(CorruptBlob):
            read(path)


def chunks(sealed: bytes) -> list[bytes]:
    return [sealed[at : at + SEALED] for at in range(HEAD, len(sealed), SEALED)]


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c[:-1],  # cut between chunks: what is then the last was not sealed as that
        lambda c: [c[1], c[0], c[2]],
        lambda c: [c[0], c[0], c[1], c[2]],
        lambda c: [c[0], c[2]],
        lambda c: [*c, c[2]],
        lambda c: [*c, b"x"],
        lambda c: [],
    ],
    ids=["cut", "swapped", "repeated", "left out", "last repeated", "longer", "none"],
)
def test_chunks_that_are_not_where_they_were_are_refused(
    tmp_path: Path, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    path = seal(tmp_path / "f", os.urandom(2 * CHUNK + 7))
    sealed = path.read_bytes()
    path.write_bytes(sealed[:HEAD] + b"".join(change(chunks(sealed))))
    with pytest.raises(CorruptBlob):
        read(path)


def test_a_chunk_of_another_file_is_refused(tmp_path: Path) -> None:
    content = os.urandom(CHUNK + 7)
    one, other = seal(tmp_path / "a", content), seal(tmp_path / "b", content)
    one.write_bytes(one.read_bytes()[: HEAD + SEALED] + chunks(other.read_bytes())[1])
    with pytest.raises(CorruptBlob):
        read(one)


def test_another_key_and_another_name_are_refused(tmp_path: Path) -> None:
    path = seal(tmp_path / "f", b"Ada")
    for key, what in ((bytes(32), "a"), (KEY, "b")):
        with pytest.raises(CorruptBlob):
            read(path, key, what)


def test_a_file_whose_writing_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with pytest.raises(ZeroDivisionError), sealing(path, KEY, "a") as write:
        write(os.urandom(2 * CHUNK + 1))
        raise ZeroDivisionError
    with pytest.raises(CorruptBlob):
        read(path)
