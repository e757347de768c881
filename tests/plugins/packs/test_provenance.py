"""Who gave what away is told in a text that holds for just these bytes."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from memos.errors import CorruptBlob, InputError
from memos.infrastructure.vault.audit.signing import Signer
from memos.plugins.packs.provenance import NAME, give, given, provenance, read_provenance

AT = datetime(2026, 11, 21, tzinfo=timezone.utc)


def test_a_statement_holds_for_its_bytes_as_it_was_signed(tmp_path: Path) -> None:
    said = str(provenance(b"a pack", "ada: the first", AT, Signer(tmp_path / "key.pem")))
    read = read_provenance(said)
    assert read.by == "ada: the first" and read.at == AT.isoformat()
    assert read.is_of(b"a pack") and not read.is_of(b"a pick")
    for name, value in read._asdict().items():
        other = value.replace(value[:4], value[:4][::-1] if value[:4] != value[:4][::-1] else "zzzz", 1)
        assert not read._replace(**{name: other}).is_of(b"a pack"), name


@pytest.mark.parametrize("text", ["", "memos provenance 2\nby: a", "memos provenance 1\nby: a\nat: b", "x: y"])
def test_what_is_no_statement_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no statement of provenance"):
        read_provenance(text)


@pytest.mark.parametrize("by", ["", "ada\nat: never"])
def test_a_name_of_several_lines_is_refused(tmp_path: Path, by: str) -> None:
    with pytest.raises(InputError, match="give a name in one line"):
        provenance(b"", by, AT, Signer(tmp_path / "key.pem"))


def test_a_folder_is_as_it_was_given_until_a_file_of_it_changes(tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "weights").write_bytes(b"w" * 99)
    with pytest.raises(InputError, match="does not say who gave it"):
        given(folder)
    give(folder, "ada", AT, Signer(tmp_path / "key.pem"))
    assert given(folder).by == "ada"
    changes = {"weights": b"v" * 99, "another": b"", NAME: (folder / NAME).read_bytes().replace(b"by: ada", b"by: bob")}
    for name, data in changes.items():
        before = (folder / name).read_bytes() if (folder / name).exists() else None
        (folder / name).write_bytes(data)
        with pytest.raises(CorruptBlob, match="is not as"):
            given(folder)
        (folder / name).unlink() if before is None else (folder / name).write_bytes(before)
    assert given(folder).by == "ada"
