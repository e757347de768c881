"""Reads what the files of an encrypted vault contain, free pages and old log frames included.

Read piece by piece and in memory alone. Knows SQLCipher's pages (zetetic.net/sqlcipher/design) and our own sealed
files; must not know what is looked for.

    page: content, encrypted | IV, 16 bytes | HMAC-SHA512 over both and the page's number, 64 bytes
    the first page begins with the salt of the file in the place of its first 16 bytes
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from memos.errors import CorruptBlob
from memos.infrastructure.vault.blobs.vault_files import SUFFIX
from memos.plugins.encryption.sealed_file import MAGIC
from memos.plugins.encryption.sealed_files import SealedFormat
from memos.plugins.encryption.vault_key import DataKey

_PAGE, _IV, _HMAC = 4096, 16, 64  # bytes
_BODY = _PAGE - _IV - _HMAC
_HEAD, _FRAME = 32, 24  # bytes before the frames of a log, and before the page of each
_MASK = 0x3A  # of the salt from which the key of the HMAC is made
_LOG = "-wal"


def pieces(path: Path, secret: str) -> Iterator[bytes] | None:
    """What a file in the vault's folder says, in order; None for one that is not encrypted. secret: the vault's data
    key, in hex.

    While it is read, raises CorruptBlob for what cannot be decrypted with the key, and OSError.
    """
    key = DataKey.of_hex(secret)
    database = next((name for name in ("vault", "vectors") if path.name.startswith(name)), "")
    if database and path.name.removesuffix(_LOG).endswith(".db"):
        return _pages(path, key.made(f"{database}.db"))
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return None
    return _unsealed(path, SealedFormat(key))


def _pages(path: Path, key: bytes) -> Iterator[bytes]:
    """Of a database or of its log."""
    is_log, of = path.name.endswith(_LOG), path.with_name(path.name.removesuffix(_LOG))
    if not of.exists():
        raise CorruptBlob(f"{path} cannot be decrypted without {of.name}, which is gone")
    with of.open("rb") as database:
        salt = database.read(_IV)
    proof = hashlib.pbkdf2_hmac("sha512", key, bytes(byte ^ _MASK for byte in salt), 2, len(key))
    before = _FRAME if is_log else 0
    with path.open("rb") as file:
        file.seek(_HEAD if is_log else 0)
        n = 0
        while len(read := file.read(before + _PAGE)) == before + _PAGE:
            n = int.from_bytes(read[:4], "big") if is_log else n + 1
            yield _page(read[before:], n, key, proof, path)


def _page(page: bytes, n: int, key: bytes, proof: bytes, path: Path) -> bytes:
    start = _IV if n == 1 else 0
    body, iv, told = page[start:_BODY], page[_BODY : _BODY + _IV], page[_BODY + _IV :]
    if hmac.digest(proof, body + iv + n.to_bytes(4, "little"), "sha512") != told:
        if not any(page):  # room that was never written to
            return page
        raise CorruptBlob(f"page {n} of {path} was not encrypted with this vault's key, or is damaged")
    return page[:start] + Cipher(AES(key), CBC(iv)).decryptor().update(body)


def _unsealed(path: Path, seals: SealedFormat) -> Iterator[bytes]:
    """Raises CorruptBlob for one that is not in its place, where what it is cannot be told."""
    kind = path.parent.name
    sha256 = seals.sha256(path.name.removesuffix(SUFFIX))
    what = f"{kind}/{path.name}" if kind in ("index", "work") else f"blobs/{sha256}"
    with seals.reading(path, what) as file:
        for chunk in file.chunks():
            yield bytes(chunk)
