"""Bytes are found at every place of every file beneath a folder, and what is not there is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memos.infrastructure.vault.care import residue
from memos.infrastructure.vault.care.residue import phrases_of, pieces_of, search

PIECE = b"Quillfeather the heron"


PLACES = (0, 1, 7, 8, 57, 63, 64, 65, 100, 128)
LENGTHS = (len(PIECE), 8, 3)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_piece_is_found_wherever_it_stands(tmp_path: Path, length: int) -> None:
    piece = PIECE[:length]
    (tmp_path / "deep").mkdir()
    for at in PLACES:
        (tmp_path / "deep" / f"at{at:03}").write_bytes(b"x" * at + piece)
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "at000")
    found = search(tmp_path, [piece, b"absent from here", b"no"])
    assert found.found == tuple((f"deep/at{at:03}", at) for at in PLACES)
    assert (found.files, found.pieces) == (len(PLACES) + 1, 3)
    assert found.bytes == sum(at + length for at in PLACES)
    assert search(tmp_path, [piece], lambda p: p == piece).found == ()


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("part", [5, 64, 1000])
def test_a_piece_is_found_over_the_end_of_what_comes_in_parts(
    monkeypatch: pytest.MonkeyPatch, at: int, length: int, part: int
) -> None:
    monkeypatch.setattr(residue, "_BLOCK", 64)
    content, piece = b"x" * at + PIECE[:length] + b"y" * 100, PIECE[:length]
    parts = [content[start : start + part] for start in range(0, len(content), part)]
    assert {*residue._Wanted([piece, b"absent from here"]).along(parts)} == {(at, piece)}


def test_half_of_a_piece_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(PIECE[:-1])
    assert search(tmp_path, [PIECE, b""]).found == ()


def test_what_is_left_of_a_tensor_or_a_text_is_found(tmp_path: Path) -> None:
    tensor = np.random.default_rng(0).normal(size=2048).astype("<f4").tobytes()
    (tmp_path / "tensor").write_bytes(b"\0" * 5 + tensor[4000:4600])
    assert search(tmp_path, pieces_of(tensor)).found
    text = (
        "Ada keeps a heron called Quillfeather, and an ibis called Zephyrine, and feeds them at dawn. " * 2
    ).encode()
    (tmp_path / "tensor").write_bytes(text[40:110])
    assert search(tmp_path, phrases_of(text)).found


def test_zeros_are_no_trace(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(10_000))
    assert list(pieces_of(bytes(10_000))) == [] and search(tmp_path, [*pieces_of(bytes(10_000))]).found == ()
