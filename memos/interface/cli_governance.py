"""`memos audit`, `quarantine`, `trust`, `hold`, `end-hold`, `holds`, `forget`: what was decided, what is believed, what
must stay and what must go. Doors; know no rules.

`memos audit` looks at the log of decisions; `memos audit-memory` looks at what memories say.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.errors import InputError
from memos.interface.cli_shared import HERE, AsJson, Config, Id, Set, User, Vault, opened, over_vault

if TYPE_CHECKING:
    from memos.kernel import MemOS

governance = typer.Typer()
audit = typer.Typer(help="The log of decisions: who did what, and whether the log is as it was written.")
quarantine = typer.Typer(help="Memories that answer nothing until somebody has looked at them.")
governance.add_typer(audit, name="audit")
governance.add_typer(quarantine, name="quarantine")
Key = Annotated[str | None, typer.Option("--key", help="public key, in hex or in a file; unset: that of the vault")]


@audit.command()
def verify(
    file: Annotated[Path | None, typer.Argument(help="an export; unset: the log of the vault")] = None,
    key: Key = None,
    vault: Vault = HERE,
    config: Config = None,
    set_: Set = None,
    as_json: AsJson = False,
) -> None:
    """Exit 0 if every row and checkpoint is as it was written, else 1 with a list."""
    if file is not None and key is not None:
        from memos.kernel import MemOS

        verdict = MemOS.verify_audit_file(file, key)  # no vault is needed
    else:
        with opened(vault, config, set_) as kernel:
            verdict = kernel.audit_verify(file, key)
    if as_json:
        print(json.dumps(vars(verdict)))
    else:
        for problem in verdict.problems:
            print(problem)
        state = "not sound" if verdict.problems else "sound"
        print(
            f"{state}: {verdict.rows} rows, {verdict.checkpoints} checkpoints of {', '.join(verdict.keys) or 'nobody'}"
        )
        print(f"not signed yet, so that it would not be missed: the last {verdict.unsigned} rows")
    if verdict.problems:
        raise typer.Exit(1)


@audit.command()
def proof(
    file: Annotated[Path, typer.Argument(help="what `memos forget --proof` has written")],
    key: Key = None,
    vault: Vault = HERE,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Exit 0 if the proof of a forgetting is as it was signed and nothing was found, else 1 with a list."""
    if key is not None:
        from memos.kernel import MemOS

        problems = MemOS.verify_proof_file(file, key)  # no vault is needed
    else:
        with opened(vault, config, set_) as kernel:
            problems = kernel.verify_proof(file)
    for problem in problems:
        print(problem)
    print("it does not hold" if problems else "it holds")
    if problems:
        raise typer.Exit(1)


@audit.command()
@over_vault
def query(
    kernel: MemOS,
    caller: Annotated[str | None, typer.Option(help="who asked: USER, USER/AGENT or USER/AGENT/SESSION")] = None,
    action: Annotated[str | None, typer.Option(help="read, write or delete")] = None,
    target: Annotated[str | None, typer.Option(help="id of a cube, or the beginning of one")] = None,
    since: Annotated[datetime | None, typer.Option(help="UTC")] = None,
    until: Annotated[datetime | None, typer.Option(help="UTC")] = None,
    allowed: Annotated[bool | None, typer.Option("--allowed/--refused", help="what was decided")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="the last so many")] = None,
    as_json: AsJson = False,
) -> None:
    """List decisions, oldest first."""
    asked: dict[str, Any] = {"caller": caller, "action": action, "target": target, "limit": limit, "allowed": allowed}
    rows = kernel.audit_query(since=since, until=until, **asked)
    if as_json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    for row in rows:
        print(
            f"{row.n}  {row.at}  {row.caller}  {row.action} {row.target}  {'yes' if row.allowed else 'no'}: {row.why}"
        )
    if not rows:
        print("no decision is like that")


@audit.command("export")
@over_vault
def export_(
    kernel: MemOS,
    file: Annotated[Path, typer.Argument(help="JSON lines; verify it with `memos audit verify FILE --key PUB`")],
) -> None:
    """Write the log with its checkpoints to a file that can be verified by itself."""
    print(f"{kernel.audit_export(file)} rows in {file}, signed by {kernel.audit_key()}")


@audit.command("key")
@over_vault
def key_(kernel: MemOS) -> None:
    """Print the public key by which the log can be verified."""
    print(kernel.audit_key())


@quarantine.command("list")
@over_vault
def list_(kernel: MemOS, user: User = None, as_json: AsJson = False) -> None:
    """What is in quarantine, and why."""
    found = kernel.quarantined(user=user)
    if as_json:
        rows = [
            {"id": c.id, "why": s.why, "at": s.at.isoformat(), "origin": c.header.origin, "text": c.text}
            for c, s in found
        ]
        print(json.dumps(rows, ensure_ascii=False))
        return
    for cube, suspect in found:
        print(f"{cube.id}  {cube.header.trust}, from {cube.header.origin}: {suspect.why}\n    {cube.text}")
    if not found:
        print("nothing is in quarantine")


@quarantine.command()
@over_vault
def release(kernel: MemOS, id: Id, user: User = None) -> None:
    """Let a memory answer again."""
    cube = kernel.release(id, user=user)
    print(f"{cube.id} is {cube.state}")


@governance.command()
@over_vault
def trust(
    kernel: MemOS,
    id: Id,
    how: Annotated[str, typer.Argument(help="user, tool, document, model, imported or untrusted")],
    user: User = None,
) -> None:
    """Say how far a memory is believed; adapters are made only of what is trusted."""
    cube = kernel.trust(id, how, user=user)
    print(f"{cube.id} is of trust {cube.header.trust}")


@governance.command()
@over_vault
def hold(
    kernel: MemOS,
    id: Id,
    why: Annotated[str, typer.Option("--why", help="the reason, for those who meet the hold")],
    user: User = None,
) -> None:
    """Lay a legal hold on a memory: it is frozen, and nothing deletes, expires or forgets it."""
    cube = kernel.hold(id, why, user=user)
    print(f"{cube.id} is {cube.state}, held: {why}")


@governance.command("end-hold")
@over_vault
def end_hold(kernel: MemOS, id: Id, user: User = None) -> None:
    """Take a legal hold off a memory."""
    cube = kernel.end_hold(id, user=user)
    print(f"{cube.id} is {cube.state}")


@governance.command()
@over_vault
def holds(kernel: MemOS, user: User = None, as_json: AsJson = False) -> None:
    """Memories under a legal hold: who holds each, and why."""
    found = kernel.holds(user=user)
    if as_json:
        print(json.dumps([{"id": cube.id, "holder": hold.holder, "why": hold.why} for cube, hold in found]))
        return
    for cube, hold in found:
        print(f"{cube.id}  held by {hold.holder}: {hold.why}\n    {cube.text}")
    if not found:
        print("nothing is held")


@governance.command()
@over_vault
def forget(
    kernel: MemOS,
    user: Annotated[str, typer.Option("--user", help="whom to forget")],
    proof: Annotated[Path | None, typer.Option(help="file for the signed proof")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Remove all of a user's memories, and what was made of them, for good; exit 1 if a byte of them is found after."""
    gone = len(kernel.forgetting.concerned(user))
    if not yes and not typer.confirm(f"forget {user}: {gone} cubes in every form, for good?"):
        raise InputError("nothing was forgotten; answer y, or give --yes")
    done = kernel.forget_user(user)
    for what, count in done.counts.items():
        print(f"{what.replace('_', ' ')}: {count}")
    searched = done.searched
    print(f"searched {searched['files']} files, {searched['bytes']:,} bytes for {searched['pieces']} pieces")
    if searched["decrypted"]:
        print(f"{searched['decrypted']} of them are encrypted, and were searched decrypted, too")
    if proof is not None:
        done.write(proof)
        print(f"proof: {proof}, signed by {done.key}")
    for file, at in searched["found"]:
        print(f"found in {file} at byte {at}")
    for file in searched["unread"]:
        print(f"not searched: {file}")
    if not done.clean:
        raise typer.Exit(1)
