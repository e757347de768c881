"""The public calls of a kernel, at their edge: which there are, what leaves by them, and how one caller makes them who
cannot be changed by what a call says.

Must not know what a call does, nor what a caller may do.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from memos.cube import MemCube, Namespace
from memos.errors import Denied, InputError
from memos.infrastructure.governance.mem_governance import MemGovernance
from memos.rights import Caller

AsRead = Callable[[MemCube], MemCube]  # a cube -> as somebody may read it
_Kernel = TypeVar("_Kernel")
# the calls of `MemOS` that act for a user; what administers the kernel or a key is not among them
CALLS = frozenset(
    """chat undo ask parity rewind add keep get update delete delete_all history tag fuse split consolidate reinstate
    conflicts audit_memory diff rollback freeze thaw archive unarchive snapshot snapshots restore delete_snapshot
    search memories turns cubes promote demote gate externalize export_adapter jobs cancel tick plan segments tiers
    grant revoke grants join leave groups dump load origins known_origins install subscribe update_packs remove_pack
    installed trust quarantined release holds hold end_hold forget_user explain feedback credit overview lineage
    log""".split()
)
# what names a file or a folder of this machine in them where it is text; a path does so wherever it stands
FILES: Mapping[str, frozenset[str]] = {
    "dump": frozenset({"path", "key"}),
    "load": frozenset({"path"}),
    "install": frozenset({"place"}),
    "export_adapter": frozenset({"out"}),
}
_LONGEST = 200  # characters of a folder's name


def handing_over(kernel: type[_Kernel]) -> type[_Kernel]:
    """Every call of CALLS hands over what the kernel's `_handed_over` makes of its result: there is no other way out,
    so that none can be forgotten."""
    for name in CALLS:
        setattr(kernel, name, _handing(getattr(kernel, name)))
    return kernel


def _handing(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def handing(kernel: Any, *values: Any, **named: Any) -> Any:
        return kernel._handed_over(call(kernel, *values, **named), named.get("user"))

    return handing


def handed(value: Any, as_read: AsRead) -> Any:
    """The same with every cube in it, however deep it lies, as it may be read."""
    match value:
        case MemCube():
            return as_read(value)
        case list() | tuple():
            parts = [handed(part, as_read) for part in value]
            if all(new is old for new, old in zip(parts, value, strict=True)):
                return value
            return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
        case dict():
            told = {name: handed(part, as_read) for name, part in value.items()}
            return value if all(told[name] is value[name] for name in value) else told
        case _ if is_dataclass(value) and not isinstance(value, type):
            was = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
            new = {name: handed(part, as_read) for name, part in was.items()}
            return value if all(new[name] is was[name] for name in was) else replace(value, **new)
        case _:
            return value


class Bound:
    """Each call asks anew who the caller is, so that a key that is revoked opens nothing from then on."""

    def __init__(
        self,
        kernel: Any,
        governance: MemGovernance,
        caller: Callable[[], Caller],
        files: Exchange | None = None,
    ) -> None:
        """caller: raises Denied. files: those that the caller may name; None: all that the process can reach."""
        self._kernel, self._governance, self._who, self._files = kernel, governance, caller, files

    @property
    def caller(self) -> Caller:
        """Who acts. Raises Denied."""
        return self._who()

    def within(self, user: str | None = None, agent: str = "", session: str = "") -> Bound:
        """The same calls within a part of what the caller reaches; they raise Denied where it does not."""

        def who() -> Caller:
            held = self._who()
            return Caller(_part(held.namespace, user, agent, session), held.purpose)

        return Bound(self._kernel, self._governance, who, self._files)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in CALLS:
            raise AttributeError(f"{name!r} is no call that acts for a caller; there are {', '.join(sorted(CALLS))}")
        call = getattr(self._kernel, name)

        @wraps(call)
        def bound(*values: Any, **named: Any) -> Any:
            who = self._who()
            if "user" in named:
                raise InputError(f"{name} acts for {who.namespace} here and takes no user; leave it out")
            if self._files:
                values, named = self._files.only_own(call, who.namespace, values, named)
            with self._governance.acting(who):
                return call(*values, **named)

        return bound


def _part(held: Namespace, user: str | None, agent: str, session: str) -> Namespace:
    """Raises Denied."""
    wanted = {"user_id": user or held.user_id, "agent_id": agent or held.agent_id}
    part = Namespace(**wanted, session_id=session or held.session_id)
    if not held.covers(part):
        raise Denied(f"{held} does not reach {str(part)!r:.200}; name what lies within {held}, or use another key")
    return part


class Exchange:
    """Where holders of keys leave and find files: each below a folder of its own, an agent's and a session's within
    that of its user. What lies elsewhere belongs to whoever runs the process."""

    def __init__(self, folder: Path | None) -> None:
        """None: there is no such place, and no file may be named."""
        self._folder = folder

    def only_own(
        self, call: Callable[..., Any], caller: Namespace, values: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What a call is given, with each file that it names as a path within the caller's folder. Raises Denied for
        one that lies elsewhere, TypeError for what the call does not take."""
        given = inspect.signature(call).bind(*values, **named)
        texts = FILES.get(call.__name__, frozenset())
        for name, value in given.arguments.items():
            given.arguments[name] = self._own(value, caller, name in texts)
        return given.args, given.kwargs

    def _own(self, value: Any, caller: Namespace, is_file: bool) -> Any:
        match value:
            case os.PathLike():
                return self._within(os.fsdecode(value), caller)
            case str() if is_file:
                return type(value)(self._within(value, caller))
            case list() | tuple() | set() | frozenset() | Iterator():  # what is read once is read here
                return [self._own(part, caller, is_file) for part in value]
            case _:
                return value

    def _within(self, path: str, caller: Namespace) -> Path:
        if self._folder is None:
            raise Denied(
                f"{caller} calls with a key and names the file {path!r:.200}: files are for who keeps this vault, "
                f"unless governance.exchange_folder is set; ask who keeps this vault to set it"
            )
        own = (self._folder / _of(caller)).resolve()
        found = (own / path).resolve()
        if ":" in path or not found.is_relative_to(own):  # an address, as of a registry, may lead anywhere
            raise Denied(
                f"{caller} calls with a key and names {path!r:.200}, which is not in its part of "
                f"governance.exchange_folder; name a file there, relative to it, or ask who keeps this vault"
            )
        own.mkdir(parents=True, exist_ok=True)
        return found


def _of(caller: Namespace) -> Path:
    """The folder of a caller, beneath that of all."""
    marks = (("", caller.user_id), ("agent ", caller.agent_id), ("session ", caller.session_id))
    return Path(*(mark + _plain(name) for mark, name in marks if name))


def _plain(name: str) -> str:
    """As the name of a folder, another for each."""
    quoted = re.sub(r"^\.", "%2E", quote(name, safe=" @+,="))
    return quoted if len(quoted) <= _LONGEST else sha256(name.encode()).hexdigest()
