"""`memos vault encrypt`, `decrypt`, `rekey`: a vault that is locked, and what is said where it cannot be opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

from memos import MemOS
from memos.config import Config, VaultConfig
from memos.errors import KeyUnusable, WrongKey
from memos.plugins.encryption import recrypt
from tests.commands import invoke, no

pytestmark = pytest.mark.sqlite


def done(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def key(path: Path, secret: str) -> Path:
    path.write_text(secret)
    path.chmod(0o600)
    return path


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    with MemOS(vault=tmp_path / "vault") as kernel:
        kernel.add("I live in Lisbon.")
    return tmp_path / "vault"


def test_a_vault_is_locked_and_every_command_finds_its_key(vault: Path, tmp_path: Path) -> None:
    one, other = key(tmp_path / "one", "ab" * 32), key(tmp_path / "other", "cd" * 32)
    listed = done(invoke("ls", "--vault", vault))
    assert "Lisbon" in listed
    assert "encrypted" in done(invoke("vault", "encrypt", "--vault", vault, "--key", f"file:{one}"))
    assert done(invoke("ls", "--vault", vault)) == listed
    assert b"Lisbon" not in b"".join(path.read_bytes() for path in vault.rglob("*") if path.is_file())

    told = json.loads(done(invoke("vault", "rekey", "--vault", vault, "--to", f"file:{other}", "--json")))
    assert (told["path"], told["key"]) == (str(vault), f"file:{other}")
    one.unlink()
    assert done(invoke("ls", "--vault", vault)) == listed
    done(invoke("vault", "rekey", "--vault", vault, "--data"))
    assert done(invoke("ls", "--vault", vault)) == listed

    kept = other.rename(tmp_path / "elsewhere")
    no(invoke("ls", "--vault", vault), "other", "cannot be read", "bring it there")
    done(invoke("vault", "decrypt", "--vault", vault, "--key", f"file:{kept}"))
    assert done(invoke("ls", "--vault", vault)) == listed


def test_what_cannot_be_done_is_named(vault: Path, tmp_path: Path) -> None:
    right, wrong = key(tmp_path / "right", "ab" * 32), key(tmp_path / "wrong", "cd" * 32)
    no(invoke("vault", "decrypt", "--vault", vault), "not encrypted")
    no(invoke("vault", "rekey", "--vault", vault, "--data"), "not encrypted", "memos vault encrypt")
    no(invoke("vault", "encrypt", "--vault", tmp_path / "none", "--key", f"file:{right}"), "no vault", "--vault")
    no(invoke("vault", "encrypt", "--vault", vault, "--key", "right"), "'right'", "file:PATH, env:NAME")
    done(invoke("vault", "encrypt", "--vault", vault, "--key", f"file:{right}"))
    no(invoke("vault", "encrypt", "--vault", vault, "--key", f"file:{right}"), "already", "memos vault rekey")
    no(invoke("vault", "decrypt", "--vault", vault, "--key", f"file:{wrong}"), "does not open", "nothing was changed")
    assert invoke("vault", "rekey", "--vault", vault).exit_code == 2


def test_a_config_names_the_key_of_a_new_vault(tmp_path: Path) -> None:
    named, wrong = f"file:{key(tmp_path / 'k', 'ab' * 32)}", f"file:{key(tmp_path / 'l', 'cd' * 32)}"
    path = tmp_path / "vault"
    with MemOS(Config(vault=VaultConfig(path=path, key=named))) as kernel:
        kernel.add("I live in Lisbon.")
    assert (path / "key.json").exists()
    with MemOS(Config(vault=VaultConfig(path=path))) as kernel:
        assert len(kernel.memories()) == 1
    with pytest.raises(WrongKey):
        MemOS(Config(vault=VaultConfig(path=path, key=wrong)))
    recrypt.decrypt(path)
    with pytest.raises(KeyUnusable):
        MemOS(Config(vault=VaultConfig(path=path, key=named)))


def test_an_encrypted_vault_is_looked_after_with_the_key_of_its_place_or_of_the_config(
    vault: Path, tmp_path: Path
) -> None:
    kept, backup = key(tmp_path / "one", "ab" * 32), tmp_path / "backup"
    done(invoke("vault", "encrypt", "--vault", vault, "--key", f"file:{kept}"))
    done(invoke("vault", "backup", backup, "--vault", vault))
    moved = kept.rename(tmp_path / "elsewhere")
    for args in (("check", vault), ("check", backup), ("stats", vault), ("compact", vault)):
        no(invoke("vault", *args), "cannot be read", "bring it there")
        done(invoke("vault", *args, "--set", f"vault.key=file:{moved}"))
    done(invoke("vault", "restore", backup, tmp_path / "again"))
    moved.rename(kept)
    assert "sound" in done(invoke("vault", "check", tmp_path / "again"))
