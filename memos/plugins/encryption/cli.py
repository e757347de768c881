"""`memos vault encrypt`, `decrypt` and `rekey`: the key of a vault, as commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memos.interface.doors.cli.shared import HERE, Output, Vault, command

vault_keys = typer.Typer(name="vault")
_SOURCE = "file:PATH, env:NAME or keyring:SERVICE/NAME; a passphrase, or 32 random bytes in hex or base64"
Key = Annotated[str | None, typer.Option("--key", help=f"where the key is now, unless it is where it was: {_SOURCE}")]
Scratch = Annotated[
    Path | None, typer.Option("--scratch", help="folder on a file system in memory, for plaintext; unset: /dev/shm")
]


@command(vault_keys)
def encrypt(
    key: Annotated[str, typer.Option("--key", help=f"where the key is: {_SOURCE}")],
    vault: Vault = HERE,
    scratch: Scratch = None,
) -> Output:
    """Encrypt a vault that is there; without its key nobody can read it again. It needs its size on disk once more."""
    from memos.plugins.encryption import recrypt

    recrypt.encrypt(vault, key, scratch)
    lines = [
        f"{vault} is encrypted; every command finds its key in {key}, as long as that is there",
        "what it was before is deleted, not overwritten: the disk, and older backups, may still hold it",
    ]
    return Output({"path": vault, "key": key}, lines)


@command(vault_keys)
def decrypt(vault: Vault = HERE, key: Key = None, scratch: Scratch = None) -> Output:
    """Take the encryption off a vault. It needs its size on disk once more."""
    from memos.plugins.encryption import recrypt

    recrypt.decrypt(vault, key, scratch)
    return Output({"path": vault, "key": None}, f"{vault} is not encrypted any more")


@command(vault_keys)
def rekey(
    vault: Vault = HERE,
    key: Key = None,
    to: Annotated[str | None, typer.Option("--to", help="where the new key is; unset: the key stays")] = None,
    data: Annotated[
        bool, typer.Option("--data", help="encrypt all data anew, too, as after the vault's own key has leaked")
    ] = False,
    scratch: Scratch = None,
) -> Output:
    """Change the key of a vault. Without --data nothing but key.json is written, and the old key opens old copies."""
    from memos.plugins.encryption import recrypt

    if to is None and not data:
        raise typer.BadParameter("name the new key with --to, or encrypt all data anew with --data")
    recrypt.rekey(vault, key, to, data, scratch)
    anew = "is encrypted anew, and " if data else ""
    return Output({"path": vault, "key": to or key}, f"{vault} {anew}opens with the key in {to or key or 'its place'}")
