"""`memos grant`, `revoke`, `grants`, `group`, `key`: who may do what with memories, and who is who. Doors; know no
rules."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.interface.cli_shared import Json, User, over_vault, write_json
from memos.rights import name_of

if TYPE_CHECKING:
    from memos.kernel import MemOS
    from memos.rights import Grant

rights = typer.Typer()
group = typer.Typer(help="Groups of users, agents and other groups, to grant rights to.", no_args_is_help=True)
key = typer.Typer(help="Keys that stand for a user, an agent or a session.", no_args_is_help=True)
rights.add_typer(group, name="group")
rights.add_typer(key, name="key")
On = Annotated[str, typer.Argument(help="id of a memory, or namespace:USER, namespace:USER/AGENT")]
To = Annotated[str, typer.Argument(help="USER, agent:USER/AGENT, group:NAME or group:OWNER/NAME")]
Purpose = Annotated[str | None, typer.Option("--purpose", help="holds only for callers who state it")]
Until = Annotated[datetime | None, typer.Option("--until", help="when it ends by itself, in UTC")]
Name = Annotated[str, typer.Argument(help="of a group of the user's")]


@rights.command()
@over_vault
def grant(
    kernel: MemOS,
    on: On,
    to: To,
    relation: Annotated[str, typer.Argument(help="owner, editor, annotator or reader")],
    user: User = None,
    purpose: Purpose = None,
    until: Until = None,
) -> None:
    """Give somebody a right to a memory, or to all memories of a namespace."""
    print(_line(kernel.grant(on, to, relation, purpose=purpose, until=until, user=user)))


@rights.command()
@over_vault
def revoke(
    kernel: MemOS,
    on: On,
    to: To,
    relation: Annotated[str | None, typer.Argument(help="owner, editor, annotator or reader; without: all")] = None,
    user: User = None,
    purpose: Purpose = None,
) -> None:
    """Take rights back; what is made of the memory is out of reach at once."""
    print(f"{kernel.revoke(on, to, relation, purpose=purpose, user=user)} grants taken back")


@rights.command()
@over_vault
def grants(
    kernel: MemOS,
    on: Annotated[str | None, typer.Argument(help="a memory or a namespace; without: all")] = None,
    user: User = None,
    out: Json = None,
) -> None:
    """What is granted on the user's memories, and to the user."""
    found = kernel.grants(on, user=user)
    for one in found:
        print(_line(one))
    if not found:
        print("nothing is granted")
    write_json(out, [_row(one) for one in found])


@group.command("join")
@over_vault
def join(kernel: MemOS, name: Name, member: To, user: User = None) -> None:
    """Put somebody, or another group, into a group; it is made if there is none."""
    print(f"{member} is in {kernel.join(name, member, user=user)}")


@group.command("leave")
@over_vault
def leave(kernel: MemOS, name: Name, member: To, user: User = None) -> None:
    """Take somebody out of a group."""
    print(f"{member} is no longer in {kernel.leave(name, member, user=user)}")


@group.command("list")
@over_vault
def groups(kernel: MemOS, user: User = None, out: Json = None) -> None:
    """The user's groups with their members, and those that the user belongs to."""
    found = {str(one): [name_of(m) for m in members] for one, members in kernel.groups(user=user).items()}
    for name, members in found.items():
        print(f"{name}: {', '.join(members) or 'of which the user is a member'}")
    if not found:
        print("there is no group; make one with `memos group join NAME MEMBER`")
    write_json(out, found)


@key.command("add")
@over_vault
def add_key(
    kernel: MemOS,
    to: Annotated[str, typer.Argument(help="USER, agent:USER/AGENT or namespace:USER/AGENT/SESSION")],
    purpose: Annotated[list[str] | None, typer.Option("--purpose", help="one that its holder may state")] = None,
    until: Until = None,
) -> None:
    """Make a key. It is shown this once: what is kept cannot tell it."""
    secret, made = kernel.add_key(to, purposes=purpose or (), until=until)
    print(secret)
    typer.echo(f"key {made.id} stands for {made.namespace}; it is not shown again", err=True)


@key.command("list")
@over_vault
def list_keys(kernel: MemOS, out: Json = None) -> None:
    """The keys that there are, without their secrets."""
    found = kernel.keys()
    for one in found:
        ends = f", until {one.until:%Y-%m-%d %H:%M}" if one.until else ""
        gone = f", revoked {one.revoked:%Y-%m-%d %H:%M}" if one.revoked else ""
        print(f"{one.id} {one.namespace} {' '.join(one.purposes)}".rstrip() + ends + gone)
    if not found:
        print("there is no key; make one with `memos key add USER`")
    rows = [one._asdict() | {"namespace": str(one.namespace)} for one in found]
    write_json(out, rows)


@key.command("revoke")
@over_vault
def revoke_key(kernel: MemOS, id: Annotated[str, typer.Argument(help="as `memos key list` tells it")]) -> None:
    """End a key; it opens nothing from the next call on."""
    kernel.revoke_key(id)
    print(f"key {id} is revoked")


def _row(one: Grant) -> dict[str, Any]:
    on = one.on if isinstance(one.on, str) else f"namespace:{one.on}"
    return {"on": on, "to": name_of(one.to), "relation": one.relation, "purpose": one.purpose, "until": one.until}


def _line(one: Grant) -> str:
    row = _row(one)
    purpose = f" for {one.purpose}" if one.purpose else ""
    until = f" until {one.until:%Y-%m-%d %H:%M} UTC" if one.until else ""
    return f"{row['to']} is {one.relation} of {row['on']}{purpose}{until}"
