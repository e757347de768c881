"""Ed25519 keys, in memory and in files, and their signatures; must not know what is signed."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from memos.errors import InputError, VaultError
from memos.infrastructure.vault.store import on_disk

# y of the eight public keys by which anybody can sign anything (RFC 8032, section 5.1: points whose order divides 8)
_P = 2**255 - 19
_Y8 = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")
_SMALL_ORDER = {0, 1, _P - 1, _Y8, _P - _Y8}
KEY = "signing.key"  # in a vault's folder: of its packs, and of its audit log where no other is named


class SigningKey:
    """A private key; `public` is its other half, in hex."""

    def __init__(self, seed: bytes) -> None:
        """seed: 32 bytes."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # loads OpenSSL

        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw().hex()

    @classmethod
    def kept(cls, path: Path) -> SigningKey:
        """The key in a PEM file, which is made, for its owner alone to read, if absent. Raises InputError."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            if not path.exists():
                _make(path)
            key = load_pem_private_key(path.read_bytes(), None)
            if not isinstance(key, Ed25519PrivateKey):
                raise ValueError("it is a key of another kind than Ed25519")
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise InputError(
                f"{path} has no key to sign with ({error}); give a PEM file with an Ed25519 key and no password, or a "
                f"name that is free, and one is made"
            ) from error
        return cls(key.private_bytes_raw())

    def sign(self, what: str, content: bytes) -> str:
        """what: the kind of thing that is signed, so that a signature of one kind never stands for another's."""
        return self._key.sign(_message(what, content)).hex()


class Signer:
    """The key of a file; it is read, or made, when it is first needed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        return self.path.is_file()

    @property
    def public(self) -> str:
        """In hex. Raises VaultError."""
        return self._key().public

    def sign(self, what: str, content: bytes) -> str:
        """As `SigningKey.sign`. Raises VaultError."""
        return self._key().sign(what, content)

    def _key(self) -> SigningKey:
        try:
            return SigningKey.kept(self.path)
        except InputError as error:
            raise VaultError(
                f"the key {self.path} cannot be used: {error}; bring it back, or set governance.audit.key"
            ) from error


def statement(value: Any) -> bytes:
    """What can be written as JSON, as it is signed."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True).encode()


def is_signed(key: object, what: str, content: bytes, signature: object) -> bool:
    """True if the owner of `key` has signed this as a thing of this kind; both in hex, without capitals, so that there
    is one writing alone."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not (isinstance(key, str) and isinstance(signature, str)) or (key + signature) != (key + signature).lower():
        return False
    try:
        if int.from_bytes(bytes.fromhex(key), "little") % 2**255 % _P in _SMALL_ORDER:
            return False
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), _message(what, content))
    except (InvalidSignature, ValueError):
        return False
    return True


def _message(what: str, content: bytes) -> bytes:
    return what.encode() + b"\0" + content


def _make(path: Path) -> None:
    """On disk, and readable by its owner alone, before it is used; of two who make one, the first wins."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    made = Ed25519PrivateKey.generate()
    on_disk.write(part, made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), mode=0o600)
    try:
        os.link(part, path)
    except FileExistsError:
        pass
    finally:
        part.unlink()
    on_disk.fsync(path.parent)
