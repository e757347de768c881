"""The key of a vault: had from where it is, wrapped, checked before anything is touched."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backend import KeyringBackend

from memos.errors import KeyUnusable, VaultError, WrongKey
from memos.plugins.encryption import vault_key
from memos.plugins.encryption.vault_key import NAME, DataKey, _summed, _text, problems, unlock, write

pytestmark = pytest.mark.sqlite

RAW = bytes(range(32))


class OneKeyring(KeyringBackend):  # type: ignore[no-untyped-call]
    """In memory, so that no test asks for the person's own."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = dict[tuple[str, str], str]()

    def get_password(self, service: str, username: str) -> str | None:
        return self.held.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.held[service, username] = password


@pytest.fixture
def ring() -> Iterator[OneKeyring]:
    before, ring = keyring.get_keyring(), OneKeyring()
    keyring.set_keyring(ring)
    yield ring
    keyring.set_keyring(before)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault_key, "_SCRYPT", {"n": 1 << 10, "r": 8, "p": 1})


def keyed(path: Path, secret: str, mode: int = 0o600) -> str:
    path.write_text(secret)
    path.chmod(mode)
    return f"file:{path}"


@pytest.mark.parametrize(
    "secret, stretched",
    [
        (RAW.hex(), False),
        (RAW.hex().upper() + "\n", False),
        (base64.b64encode(RAW).decode(), False),
        ("correct horse battery staple", True),
        ("Fjörður 冰岛", True),
        (RAW.hex()[:-2], True),
    ],
)
def test_a_key_opens_what_it_has_locked(tmp_path: Path, quick: None, secret: str, stretched: bool) -> None:
    key = DataKey.fresh()
    write(tmp_path, key, keyed(tmp_path / "k", secret))
    assert unlock(tmp_path, None) == key
    assert (json.loads((tmp_path / NAME).read_text())["scrypt"] is not None) is stretched


def test_hex_and_base64_of_the_same_bytes_are_one_key(tmp_path: Path) -> None:
    key = DataKey.fresh()
    write(tmp_path, key, keyed(tmp_path / "k", RAW.hex()))
    assert unlock(tmp_path, keyed(tmp_path / "l", base64.b64encode(RAW).decode())) == key


def test_a_key_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_KEY", RAW.hex())
    key = unlock(tmp_path, "env:VAULT_KEY")
    assert key is not None and unlock(tmp_path, None) == key
    monkeypatch.delenv("VAULT_KEY")
    with pytest.raises(KeyUnusable, match="VAULT_KEY, which is not set"):
        unlock(tmp_path, None)


def test_a_key_comes_from_a_keyring(tmp_path: Path, ring: OneKeyring) -> None:
    with pytest.raises(KeyUnusable, match="no entry me/mos/ada"):
        unlock(tmp_path, "keyring:me/mos/ada")
    keyring.set_password("me/mos", "ada", RAW.hex())
    key = unlock(tmp_path, "keyring:me/mos/ada")
    assert key is not None and unlock(tmp_path, None) == key


def test_a_key_file_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed(tmp_path / "k", RAW.hex())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vault").mkdir()
    key = unlock(tmp_path / "vault", "file:k")
    monkeypatch.chdir("/")
    assert unlock(tmp_path / "vault", None) == key


@pytest.mark.parametrize("named", ["k", "file:", "env:", "keyring:a", "keyring:/a", "vault:x", ""])
def test_a_place_of_another_form_is_refused(tmp_path: Path, named: str) -> None:
    with pytest.raises(KeyUnusable, match=r"file:PATH, env:NAME or keyring:SERVICE/NAME"):
        unlock(tmp_path, named)
    assert not list(tmp_path.iterdir())


def test_a_key_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyUnusable, match=r"no.key, which cannot be read \(No such file"):
        unlock(tmp_path, f"file:{tmp_path}/no.key")
    with pytest.raises(KeyUnusable, match="empty"):
        unlock(tmp_path, keyed(tmp_path / "empty", " \n"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(KeyUnusable, match="no text"):
        unlock(tmp_path, f"file:{tmp_path}/bytes")
    assert not (tmp_path / NAME).exists()


def test_a_key_that_others_can_read_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="memos"):
        unlock(tmp_path, keyed(tmp_path / "mine", RAW.hex()))
        assert not caplog.messages
        unlock(tmp_path, keyed(tmp_path / "ours", RAW.hex(), 0o640))
    assert any("ours can be read by others (mode 640)" in told for told in caplog.messages)


@pytest.mark.parametrize("right, wrong", [(RAW.hex(), bytes(32).hex()), ("right", "wrong"), ("right", RAW.hex())])
def test_a_wrong_key_is_refused_and_never_told(tmp_path: Path, quick: None, right: str, wrong: str) -> None:
    write(tmp_path, DataKey.fresh(), keyed(tmp_path / "k", right))
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(WrongKey) as refused:
        unlock(tmp_path, keyed(tmp_path / "l", wrong))
    assert wrong not in str(refused.value).replace(f"{tmp_path}", "")
    assert (tmp_path / NAME).read_bytes() == before


def test_the_data_key_is_never_shown() -> None:
    key = DataKey(RAW)
    assert RAW.hex() not in repr(key) and str(RAW) not in repr(key)
    assert len({key.made(label) for label in ("a", "b", "vault.db")}) == 3


def test_every_flipped_bit_of_key_json_is_refused(tmp_path: Path) -> None:
    write(tmp_path, DataKey.fresh(), keyed(tmp_path / "k", RAW.hex()))
    named, sound = f"file:{tmp_path}/k", (tmp_path / NAME).read_bytes()
    for bit in range(8 * len(sound)):
        spoilt = bytearray(sound)
        spoilt[bit // 8] ^= 1 << bit % 8
        (tmp_path / NAME).write_bytes(spoilt)
        with pytest.raises(VaultError):
            unlock(tmp_path, named)
        assert "key.json cannot be used" in problems(tmp_path)[0]  # and is found without the key
    (tmp_path / NAME).write_bytes(sound)
    assert unlock(tmp_path, named) and problems(tmp_path) == []


@pytest.mark.parametrize(
    "change, told",
    [
        ({"format": 2}, "format 2.*upgrade"),
        ({"scrypt": {"n": 1 << 40, "r": 8, "p": 1, "salt": "00"}}, "out of range"),
        ({"more": 1}, "not as memos writes it"),
        ({"wrapped": "zz"}, "cannot be used"),
    ],
)
def test_a_key_json_of_another_make_is_refused(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    write(tmp_path, DataKey.fresh(), keyed(tmp_path / "k", RAW.hex()))
    said = json.loads((tmp_path / NAME).read_text()) | change
    del said["sum"]
    (tmp_path / NAME).write_text(_text(_summed(said)))
    with pytest.raises(VaultError, match=told):
        unlock(tmp_path, None)
