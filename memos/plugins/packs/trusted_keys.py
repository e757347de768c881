"""The public key by which each publisher is known here, pinned on first use.

Knows names and keys. Must not know what a pack holds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from memos.errors import UntrustedKey
from memos.infrastructure.vault.audit.signing import SigningKey
from memos.plugins.packs.mip import PackManifest
from memos.plugins.packs.pack import PackReader
from memos.plugins.packs.pack_table import PackTable


class TrustedKeys:
    """Trust on first use: who is trusted once is known by that key alone from then on."""

    def __init__(self, table: PackTable, file: Path) -> None:
        """file: the vault's own key, made when it is first needed."""
        self._table, self._file = table, file

    def key(self, file: Path | None = None) -> SigningKey:
        """The key in another file, or the vault's own. Raises InputError."""
        return SigningKey.kept(file or self._file)

    def own(self, key: str) -> bool:
        """True for the vault's own."""
        return self._file.exists() and self.key().public == key

    def require(self, name: str, key: str, given: str | None) -> None:
        """Return if the key may stand for the name, a publisher's; "" for a dump's, which has none.

        given: a key that somebody vouches for. Raises UntrustedKey.
        """
        pinned = self._table.pins().get(name or key)
        whose = f"publisher {name}" if name else "who made the dump"
        if pinned is not None and pinned != key:
            raise UntrustedKey(
                f"the key of {whose} has changed from {pinned} to {key}: somebody else may have signed this; ask them, "
                f"and if it is theirs, give up the old key with `memos store untrust {name}` and trust the new one"
            )
        if pinned == key or given == key or self.own(key):
            return
        raise UntrustedKey(
            f"the key {key} of {whose} is not known here, so nothing was taken over; compare it with the one that they "
            f"tell you, and if it is theirs, give --trust {key}"
        )

    def required(self, given: str | None) -> Callable[[str, PackManifest], None]:
        """`require`, as a reader of packs asks for it."""
        return lambda key, manifest: self.require(manifest.release.publisher if manifest.release else "", key, given)

    def pin(self, pack: PackReader) -> None:
        """Whoever signed it is trusted from now on."""
        release = pack.manifest.release
        name = release.publisher if release else pack.key
        if self._table.pins().get(name) != pack.key:
            self._table.pin(name, pack.key)
