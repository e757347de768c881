"""`memos audit`, `forget` and `key`: the log of decisions, users who are removed, and keys that stand for somebody.

Doors; know no rules. `memos audit` looks at the log of decisions; `memos audit-memory` looks at what memories say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.errors import InputError
from memos.interface.doors.cli.shared import OpenVault, Output, optional_vault_command, vault_command

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS
    from memos.operation.life.forgetting import Proof

governance = typer.Typer()
audit = typer.Typer(help="The log of decisions: who did what, and whether the log is as it was written.")
keys = typer.Typer(help="Keys that stand for a user, an agent or a session.", no_args_is_help=True)
governance.add_typer(audit, name="audit")
governance.add_typer(keys, name="key")
Key = Annotated[str | None, typer.Option("--key", help="public key, in hex or in a file; unset: that of the vault")]


@optional_vault_command(audit)
def verify(
    open_vault: OpenVault,
    file: Annotated[Path | None, typer.Argument(help="an export; unset: the log of the vault")] = None,
    key: Key = None,
) -> Output:
    """Exit 0 if every row and checkpoint is as it was written, else 1 with a list."""
    from memos.plugins.care.audit import verify_export, verify_log

    public = None if key is None else read_public(key)
    if file is not None and public is not None:
        verdict = verify_export(file, public)  # no vault is needed
    else:
        with open_vault(()) as kernel:
            log = kernel.vault.audit_log
            verdict = verify_log(log, public) if file is None else verify_export(file, log.public_key())
    state, keys = "not sound" if verdict.problems else "sound", ", ".join(verdict.keys) or "nobody"
    lines = [
        *verdict.problems,
        f"{state}: {verdict.rows} rows, {verdict.checkpoints} checkpoints of {keys}",
        f"not signed yet, so that it would not be missed: the last {verdict.unsigned} rows",
    ]
    return Output(verdict, lines, failed=bool(verdict.problems))


@optional_vault_command(audit)
def proof(
    open_vault: OpenVault,
    file: Annotated[Path, typer.Argument(help="what `memos forget --proof` has written")],
    key: Key = None,
) -> Output:
    """Exit 0 if the proof of a forgetting is as it was signed and nothing was found, else 1 with a list."""
    if key is not None:
        problems = faults(read_proof(file), read_public(key))  # no vault is needed
    else:
        with open_vault(()) as kernel:
            problems = faults(read_proof(file), kernel.vault.audit_log.public_key())
    lines = [*problems, "it does not hold" if problems else "it holds"]
    return Output({"problems": problems}, lines, failed=bool(problems))


def read_public(given: str) -> str:
    """A public key in hex, or from a file with it. Raises InputError."""
    path = Path(given)
    try:
        text = path.read_text("utf-8").strip() if len(given) < 256 and path.is_file() else given.strip()
        if len(bytes.fromhex(text)) == 32:
            return text.lower()
    except (OSError, ValueError):
        pass
    raise InputError(
        f"{given:.80} is no public key: give 64 hexadecimal digits, as `memos audit key` prints, or a file"
    )


def write_proof(proof: Proof, file: Path) -> None:
    """Raises InputError."""
    try:
        file.write_text(json.dumps(asdict(proof), indent=2) + "\n", "utf-8")
    except OSError as error:
        raise InputError(f"{file} cannot be written ({error.strerror}); name another file") from error


def read_proof(file: Path) -> Proof:
    """Raises InputError."""
    from memos.operation.life.forgetting import Proof

    try:
        given = json.loads(file.read_text("utf-8"))
        return Proof(**given | {"cubes": tuple(given["cubes"])})
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(
            f"{file} is no proof of a forgetting ({error}); give the file of `memos forget --proof`"
        ) from None


def faults(proof: Proof, key: str) -> list[str]:
    """What speaks against a proof; nothing, if all of it holds. key: the public one, in hex, of the log that should
    have signed it."""
    found = [] if proof.signed else ["it is not as it was signed"]
    if proof.key != key:
        found.append(f"it was signed by {proof.key}, not by {key}")
    found += [f"a piece was found in {file} at byte {at}" for file, at in proof.searched["found"]]
    return found + [f"{file} was not searched" for file in proof.searched["unread"]]


@vault_command(audit)
def query(
    kernel: MemOS,
    caller: Annotated[str | None, typer.Option(help="who asked: USER, USER/AGENT or USER/AGENT/SESSION")] = None,
    action: Annotated[str | None, typer.Option(help="read, write or delete")] = None,
    target: Annotated[str | None, typer.Option(help="id of a cube, or the beginning of one")] = None,
    since: Annotated[datetime | None, typer.Option(help="UTC")] = None,
    until: Annotated[datetime | None, typer.Option(help="UTC")] = None,
    allowed: Annotated[bool | None, typer.Option("--allowed/--refused", help="what was decided")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="the last so many")] = None,
) -> Output:
    """List decisions, oldest first."""
    rows = kernel.vault.audit_log.query(
        caller=caller, action=action, target=target, since=since, until=until, allowed=allowed, limit=limit
    )
    lines = (
        f"{row.n}  {row.at}  {row.caller}  {row.action} {row.target}  {'yes' if row.allowed else 'no'}: {row.why}"
        for row in rows
    )
    return Output(rows, lines, empty="no matching log entries")


@vault_command(audit, "export")
def export_(
    kernel: MemOS,
    file: Annotated[Path, typer.Argument(help="JSON lines; verify it with `memos audit verify FILE --key PUB`")],
) -> Output:
    """Write the log with its checkpoints to a file that can be verified by itself."""
    from memos.plugins.care.audit import export

    rows, by = export(kernel.vault.audit_log, file), kernel.vault.audit_log.public_key()
    return Output({"path": file, "rows": rows, "key": by}, f"{rows} rows in {file}, signed by {by}")


@vault_command(audit, "key")
def key_(kernel: MemOS) -> Output:
    """Print the public key by which the log can be verified."""
    return Output({"key": kernel.vault.audit_log.public_key()}, kernel.vault.audit_log.public_key())


@vault_command(governance)
def forget(
    kernel: MemOS,
    user: Annotated[str, typer.Option("--user", help="whom to forget")],
    proof: Annotated[Path | None, typer.Option(help="file for the signed proof")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> Output:
    """Remove all of a user's memories, and what was made of them, for good; exit 1 if a byte of them is found after."""
    gone = len(kernel.vault.forgetting.concerned(user))
    if not yes and not typer.confirm(f"forget {user}: {gone} cubes in every form, for good?"):
        raise InputError("nothing was forgotten; answer y, or give --yes")
    done, error = kernel.within(user).forget_user(), None
    try:
        if proof is not None:
            write_proof(done, proof)
    except InputError as refused:  # what is gone is gone, and is told
        proof, error = None, refused
    value = {"message": "Forgotten.", "results": [done]}
    return Output(value, _proven(done, proof), failed=error or not done.clean)


def _proven(done: Any, path: Path | None) -> Iterator[str]:
    searched = done.searched
    for what, count in done.counts.items():
        yield f"{what.replace('_', ' ')}: {count}"
    yield f"searched {searched['files']} files, {searched['bytes']:,} bytes for {searched['pieces']} pieces"
    if searched["decrypted"]:
        yield f"{searched['decrypted']} of them are encrypted, and were searched decrypted, too"
    if path is not None:
        yield f"proof: {path}, signed by {done.key}"
    for file, position in searched["found"]:
        yield f"found in {file} at byte {position}"
    for file in searched["unread"]:
        yield f"not searched: {file}"


@vault_command(keys, "add")
def add_key(
    kernel: MemOS,
    to: Annotated[str, typer.Argument(help="USER, agent:USER/AGENT or namespace:USER/AGENT/SESSION")],
    purpose: Annotated[list[str] | None, typer.Option("--purpose", help="one that its holder may state")] = None,
    until: Annotated[datetime | None, typer.Option("--until", help="when it ends by itself, in UTC")] = None,
) -> Output:
    """Make a key. It is shown this once: what is kept cannot tell it."""
    from memos.interface.doors.api.calling import plain

    secret, made = kernel.services.governing.add_key(to, purposes=purpose or (), until=until)
    typer.echo(f"key {made.id} stands for {made.namespace}; it is not shown again", err=True)
    return Output({"key": secret, **plain(made)}, secret)


@vault_command(keys, "list")
def list_keys(kernel: MemOS) -> Output:
    """The keys that there are, without their secrets."""
    found = kernel.services.governing.keys()
    none = "there is no key; make one with `memos key add USER`"
    return Output(found, map(_key_line, found), none)


@vault_command(keys, "revoke")
def revoke_key(kernel: MemOS, id: Annotated[str, typer.Argument(help="as `memos key list` tells it")]) -> Output:
    """End a key; it opens nothing from the next call on."""
    kernel.services.governing.revoke_key(id)
    return Output({"id": id}, f"key {id} is revoked")


def _key_line(one: Any) -> str:
    ends = f", until {one.until:%Y-%m-%d %H:%M}" if one.until else ""
    gone = f", revoked {one.revoked:%Y-%m-%d %H:%M}" if one.revoked else ""
    return f"{one.id} {one.namespace} {' '.join(one.purposes)}".rstrip() + ends + gone
