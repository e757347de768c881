"""Keys in files, and what they sign."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memos.errors import InputError, VaultError
from memos.infrastructure.vault.audit.signing import Signer, SigningKey, is_signed, read_public, statement


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key.pem"
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: SigningKey.kept(path).public, range(8)))) == 1
    assert [p.name for p in path.parent.iterdir()] == ["key.pem"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_signature_holds_for_its_statement_kind_and_key_alone(tmp_path: Path) -> None:
    one, other = Signer(tmp_path / "one.pem"), Signer(tmp_path / "other.pem")
    assert not one.exists
    signature, told = one.sign("test", statement({"a": 1})), statement({"a": 1})
    assert one.exists and is_signed(one.public, "test", told, signature)
    assert SigningKey.kept(one.path).sign("test", told) == signature
    for key, kind, content, said in (
        (one.public, "test", statement({"a": 2}), signature),
        (one.public, "tests", told, signature),
        (other.public, "test", told, signature),
        (one.public, "test", told, signature.upper()),
        (one.public.upper(), "test", told, signature),
        ("no hex", "test", told, signature),
        (None, "test", told, signature),
        (one.public, "test", told, 7),
    ):
        assert not is_signed(key, kind, content, said)
    assert Signer(tmp_path / "one.pem").public == one.public == read_public(one.public.upper())
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        read_public("abc")


def test_a_file_that_holds_no_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("no key")
    with pytest.raises(InputError, match="has no key to sign with"):
        SigningKey.kept(tmp_path / "other")
    with pytest.raises(VaultError, match=r"other cannot be used.*governance\.audit\.key"):
        _ = Signer(tmp_path / "other").public
