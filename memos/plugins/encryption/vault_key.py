"""The key of an encrypted vault: a random data key, wrapped by the user's key in key.json.

    user's key --(scrypt, if it is a passphrase)--> AES key wrap --> data key --(HKDF, by label)--> keys of the files

So the user's key is changed without a byte of data being written again, and a wrong one is found before any file is
opened. Knows keys and where they come from; must not know what is encrypted with them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memos.errors import KeyUnusable, VaultError, WrongKey, how_to_install
from memos.infrastructure.vault.store import on_disk

log = logging.getLogger("memos")
NAME, FORMAT = "key.json", 1
_BYTES = 32
# about 0.3 s and 128 MiB for each guess (RFC 7914; OWASP's first choice)
_SCRYPT = {"n": 1 << 17, "r": 8, "p": 1}
_MOST_SCRYPT = 1 << 30  # bytes: a changed key.json must not take all memory
_UNREADABLE = (OSError, ValueError, KeyError, TypeError)
_INSTALL = how_to_install("encryption")


@dataclass(frozen=True)
class DataKey:
    """What all files of a vault are encrypted with, by keys made of it."""

    _bytes: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> DataKey:
        return cls(os.urandom(_BYTES))

    def made(self, label: str, size: int = _BYTES) -> bytes:
        """A key for one use."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), size, None, f"memos {label}".encode()).derive(self._bytes)

    @property
    def id(self) -> str:
        return self.made("id", 8).hex()

    @property
    def hex(self) -> str:
        """All of it, for a process that this one starts, through a pipe."""
        return self._bytes.hex()

    @classmethod
    def of_hex(cls, told: str) -> DataKey:
        return cls(bytes.fromhex(told))


def unlock(folder: Path, named: str | None) -> DataKey | None:
    """The data key of the vault in a folder; None for one that is not encrypted. A new vault is given a key of its own.

    named: where the user's key is: `file:PATH`, `env:NAME` or `keyring:SERVICE/NAME`; None: where key.json says.
    Writes nothing to a vault that is there. Raises KeyUnusable, WrongKey, VaultError.
    """
    if is_encrypted(folder):
        require_packages(folder)
        return _unlocked(folder, named)
    if named is None:
        return None
    require_packages(folder)
    if (folder / "vault.db").exists():
        raise KeyUnusable(
            f"{folder} is not encrypted, and a key was named ({named}); unset vault.key, or encrypt it with "
            f"`memos vault encrypt --vault {folder} --key {named}`"
        )
    key = DataKey.fresh()
    write(folder, key, named)
    return key


def is_encrypted(folder: Path) -> bool:
    return (folder / NAME).exists()


def source(folder: Path) -> str:
    """Where key.json says that the user's key is. Raises VaultError."""
    return str(_read(folder)["source"])


def require_packages(folder: Path) -> None:
    """Raises KeyUnusable where a package is missing."""
    try:
        import cryptography
        import sqlcipher3
    except ImportError as error:
        raise KeyUnusable(f"{folder} needs the package {error.name} for its encryption; {_INSTALL}") from error
    del cryptography, sqlcipher3


def write(folder: Path, key: DataKey, source: str) -> None:
    """Wrap the data key by the user's key; on disk, whole, when this returns. Raises KeyUnusable, VaultError."""
    from cryptography.hazmat.primitives.keywrap import aes_key_wrap

    secret = _secret(source)
    scrypt = None if _raw(secret) else _SCRYPT | {"salt": os.urandom(16).hex()}
    told = {
        "format": FORMAT,
        "data_key": key.id,
        "source": _lasting(source),
        "scrypt": scrypt,
        "wrapped": aes_key_wrap(_stretched(secret, scrypt), key._bytes).hex(),
    }
    try:
        on_disk.write(folder / NAME, _text(_summed(told | {"check": _check(key, told)})).encode())
    except OSError as error:
        raise VaultError(
            f"{folder / NAME} was not written ({error.strerror}); the key is the one that it was, make sure that the "
            f"folder can be written to and the disk has room, and try again"
        ) from error


def _unlocked(folder: Path, named: str | None) -> DataKey:
    from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

    told = _read(folder)
    where = named or str(told["source"])
    secret = _secret(where)
    scrypt = None if _raw(secret) else told["scrypt"]
    wrong = WrongKey(
        f"the key from {where} does not open {folder}, which was locked with one from {told['source']}; nothing was "
        f"changed: name the right one as vault.key"
    )
    if (scrypt is None) != (told["scrypt"] is None):
        raise wrong
    try:
        key = DataKey(aes_key_unwrap(_stretched(secret, scrypt), bytes.fromhex(told["wrapped"])))
    except InvalidUnwrap:
        raise wrong from None
    except (ValueError, TypeError, KeyError) as error:
        raise _unreadable(folder, str(error)) from error
    said = {name: value for name, value in told.items() if name not in ("check", "sum")}
    if not hmac.compare_digest(_check(key, said), str(told["check"])):
        raise _unreadable(folder, "it does not match its check value")
    return key


def problems(folder: Path) -> list[str]:
    """What is wrong with key.json, in words, as far as that can be told without the key; of a newer format, nothing."""
    try:
        _parsed(folder)
    except _UNREADABLE as error:
        return [str(_unreadable(folder, str(error)))] if is_encrypted(folder) else []
    return []


def _read(folder: Path) -> dict[str, Any]:
    """key.json, as far as it can be checked without the key. Raises VaultError."""
    try:
        told = _parsed(folder)
    except _UNREADABLE as error:
        raise _unreadable(folder, str(error)) from error
    if told["format"] > FORMAT:
        raise VaultError(f"{folder / NAME} has format {told['format']}, this memos reads up to {FORMAT}; upgrade memos")
    return told


def _parsed(folder: Path) -> dict[str, Any]:
    """Raises _UNREADABLE."""
    text = (folder / NAME).read_text("utf-8")
    told = dict(json.loads(text))
    if _text(told) != text or _summed({name: value for name, value in told.items() if name != "sum"}) != told:
        raise ValueError("it is not as memos writes it")
    if not isinstance(told["format"], int):
        raise ValueError("its format is no number")
    if told["format"] > FORMAT:
        return told
    if set(told) != {"format", "data_key", "source", "scrypt", "wrapped", "check", "sum"}:
        raise ValueError("it is not as memos writes it")
    if told["scrypt"] is not None and not _fair(told["scrypt"]):
        raise ValueError("its scrypt parameters are out of range")
    return told


def _fair(scrypt: Any) -> bool:
    n, r, p = scrypt["n"], scrypt["r"], scrypt["p"]
    return all(isinstance(x, int) and x > 0 for x in (n, r, p)) and 128 * n * r * p <= _MOST_SCRYPT


def _unreadable(folder: Path, why: str) -> VaultError:
    return VaultError(
        f"{folder / NAME} cannot be used ({why}), and without it nothing in {folder} can be read; bring back a copy "
        f"of it"
    )


def _text(told: dict[str, Any]) -> str:
    return json.dumps(told, indent=2, sort_keys=True) + "\n"


def _summed(told: dict[str, Any]) -> dict[str, Any]:
    """With a checksum of all of it, which finds what was damaged where the key is not at hand."""
    return told | {"sum": hashlib.sha256(_text(told).encode()).hexdigest()}


def _check(key: DataKey, told: dict[str, Any]) -> str:
    """Of all that key.json says."""
    return hmac.digest(key.made("check"), _text(told).encode(), "sha256").hex()


def _secret(source: str) -> str:
    """What the user has written down as the key. Raises KeyUnusable."""
    kind, _, where = source.partition(":")
    match kind:
        case "file" if where:
            secret = _of_file(Path(where).expanduser())
        case "env" if where:
            if where not in os.environ:
                raise KeyUnusable(f"the key should be in the environment variable {where}, which is not set; set it")
            secret = os.environ[where]
        case "keyring" if all(where.rpartition("/")):
            secret = _of_keyring(*where.rpartition("/")[::2])
        case _:
            raise KeyUnusable(
                f"vault.key is {source!r}; name where the key is: file:PATH, env:NAME or keyring:SERVICE/NAME"
            )
    if not secret.strip():
        raise KeyUnusable(f"the key from {source} is empty; put a passphrase there, or 32 random bytes in hex")
    return secret.strip()


def _of_file(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        secret = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise KeyUnusable(f"the key should be in {path}, which cannot be read ({why}); bring it there") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        log.warning("the key in %s can be read by others (mode %o); chmod 600 it", path, stat.S_IMODE(mode))
    return secret


def _of_keyring(service: str, name: str) -> str:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError as error:
        raise KeyUnusable(f"the key is in a keyring, and the package {error.name} is missing; {_INSTALL}") from error
    try:
        secret = keyring.get_password(service, name)
    except KeyringError as error:
        raise KeyUnusable(
            f"the keyring cannot be asked for {service}/{name} ({error}); unlock it, or name the key as file: or env:"
        ) from error
    if secret is None:
        raise KeyUnusable(
            f"the keyring has no entry {service}/{name}; make it with `keyring set {service} {name}`, or name another"
        )
    return secret


def _raw(secret: str) -> bytes | None:
    """32 bytes in hex or base64; None for a passphrase."""
    if re.fullmatch(r"[0-9a-fA-F]{64}", secret):
        return bytes.fromhex(secret)
    try:
        raw = base64.b64decode(secret, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == _BYTES else None


def _stretched(secret: str, scrypt: dict[str, Any] | None) -> bytes:
    if scrypt is None:
        raw = _raw(secret)
        assert raw
        return raw
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    salt = bytes.fromhex(scrypt["salt"])
    return Scrypt(salt, _BYTES, scrypt["n"], scrypt["r"], scrypt["p"]).derive(secret.encode())


def _lasting(source: str) -> str:
    """As it is found from any folder."""
    kind, _, where = source.partition(":")
    return f"file:{Path(where).expanduser().absolute()}" if kind == "file" else source
