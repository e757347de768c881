"""`memos grant`, `revoke`, `grants`, `group`, `key`: who may do what, and who is who; knows no rules."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.interface.doors.cli.shared import Output, User, api, vault_command
from memos.rights import name_of

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS
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


@vault_command(rights)
def grant(
    kernel: MemOS,
    on: On,
    to: To,
    relation: Annotated[str, typer.Argument(help="owner, editor, annotator or reader")],
    user: User = None,
    purpose: Purpose = None,
    until: Until = None,
) -> Output:
    """Give somebody a right to a memory, or to all memories of a namespace."""
    given = kernel.within(user).grant(on, to, relation, purpose=purpose, until=until)
    return Output([given], _line(given))


@vault_command(rights)
def revoke(
    kernel: MemOS,
    on: On,
    to: To,
    relation: Annotated[str | None, typer.Argument(help="owner, editor, annotator or reader; without: all")] = None,
    user: User = None,
    purpose: Purpose = None,
) -> Output:
    """Take rights back; what is made of the memory is out of reach at once."""
    message = f"{kernel.within(user).revoke(on, to, relation, purpose=purpose)} grants taken back."
    return Output({"message": message, "results": []}, message)


@vault_command(rights)
def grants(
    kernel: MemOS,
    on: Annotated[str | None, typer.Argument(help="a memory or a namespace; without: all")] = None,
    user: User = None,
) -> Output:
    """What is granted on the user's memories, and to the user."""
    found = kernel.within(user).grants(on)
    return Output(found, map(_line, found), empty="nothing is granted")


@vault_command(group, "join")
def join(kernel: MemOS, name: Name, member: To, user: User = None) -> Output:
    """Put somebody, or another group, into a group; it is made if there is none."""
    reply = api(kernel).join(name, member, user_id=user)
    return Output(reply, reply["message"])


@vault_command(group, "leave")
def leave(kernel: MemOS, name: Name, member: To, user: User = None) -> Output:
    """Take somebody out of a group."""
    reply = api(kernel).leave(name, member, user_id=user)
    return Output(reply, reply["message"])


@vault_command(group, "list")
def groups(kernel: MemOS, user: User = None) -> Output:
    """The user's groups with their members, and those that the user belongs to."""
    found = kernel.within(user).groups()
    lines = (
        f"{one}: {', '.join(map(name_of, members)) or 'of which the user is a member'}"
        for one, members in found.items()
    )
    value = [{"group": str(one), "members": list(map(str, members))} for one, members in found.items()]
    return Output(value, lines, empty="there is no group; make one with `memos group join NAME MEMBER`")


@vault_command(key, "add")
def add_key(
    kernel: MemOS,
    to: Annotated[str, typer.Argument(help="USER, agent:USER/AGENT or namespace:USER/AGENT/SESSION")],
    purpose: Annotated[list[str] | None, typer.Option("--purpose", help="one that its holder may state")] = None,
    until: Until = None,
) -> Output:
    """Make a key. It is shown this once: what is kept cannot tell it."""
    from memos.interface.doors.api.calling import plain

    secret, made = kernel.services.sharing.add_key(to, purposes=purpose or (), until=until)
    typer.echo(f"key {made.id} stands for {made.namespace}; it is not shown again", err=True)
    return Output({"key": secret, **plain(made)}, secret)


@vault_command(key, "list")
def list_keys(kernel: MemOS) -> Output:
    """The keys that there are, without their secrets."""
    found = kernel.services.sharing.keys()
    none = "there is no key; make one with `memos key add USER`"
    return Output(found, map(_key_line, found), none)


@vault_command(key, "revoke")
def revoke_key(kernel: MemOS, id: Annotated[str, typer.Argument(help="as `memos key list` tells it")]) -> Output:
    """End a key; it opens nothing from the next call on."""
    kernel.services.sharing.revoke_key(id)
    return Output({"id": id}, f"key {id} is revoked")


def _key_line(one: Any) -> str:
    ends = f", until {one.until:%Y-%m-%d %H:%M}" if one.until else ""
    gone = f", revoked {one.revoked:%Y-%m-%d %H:%M}" if one.revoked else ""
    return f"{one.id} {one.namespace} {' '.join(one.purposes)}".rstrip() + ends + gone


def _line(one: Grant) -> str:
    on = one.on if isinstance(one.on, str) else f"namespace:{one.on}"
    purpose = f" for {one.purpose}" if one.purpose else ""
    until = f" until {one.until:%Y-%m-%d %H:%M} UTC" if one.until else ""
    return f"{name_of(one.to)} is {one.relation} of {on}{purpose}{until}"
