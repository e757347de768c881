"""Keys in files, and what they sign."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memos.errors import InputError, VaultError
from memos.infrastructure.vault.audit.signing import Signer, SigningKey, is_signed, statement
from memos.plugins.care.governance import read_public

P = 2**255 - 19
Y8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022  # of a point of order 8


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


@pytest.mark.parametrize("sign_bit", [0, 1 << 255])
@pytest.mark.parametrize("y", [0, 1, P - 1, P, P + 1, Y8, P - Y8])
def test_a_key_of_small_order_signs_nothing(y: int, sign_bit: int) -> None:
    key = (y | sign_bit).to_bytes(32, "little").hex()
    neutral, zero = (1).to_bytes(32, "little").hex(), bytes(32).hex()
    assert not any(is_signed(key, "test", str(n).encode(), neutral + zero) for n in range(64))  # one in eight would be


def test_a_file_that_holds_no_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("no key")
    with pytest.raises(InputError, match="has no key to sign with"):
        SigningKey.kept(tmp_path / "other")
    with pytest.raises(VaultError, match=r"other cannot be used.*governance\.audit\.key"):
        _ = Signer(tmp_path / "other").public
