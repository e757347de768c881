"""The public calls of a kernel, at their edge: which there are, what leaves by them, and how one caller makes them who
cannot be changed by what a call says.

Must not know what a call does, nor what a caller may do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from typing import Any, TypeVar

from memos.cube import MemCube
from memos.errors import InputError
from memos.infrastructure.mem_governance import MemGovernance
from memos.rights import Caller

AsRead = Callable[[MemCube], MemCube]  # a cube -> as somebody may read it
_Kernel = TypeVar("_Kernel")
# the calls of `MemOS` that act for a user; what administers the kernel or a key is not among them
CALLS = frozenset(
    """chat ask parity rewind add keep get update delete history tag fuse split consolidate reinstate conflicts
    audit_memory diff rollback freeze thaw archive unarchive snapshot snapshots restore delete_snapshot search memories
    turns cubes promote demote gate externalize export_adapter jobs cancel tick plan segments tiers grant revoke grants
    join leave groups dump load origins known_origins install subscribe update_packs remove_pack installed trust
    quarantined release hold end_hold forget_user""".split()
)


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

    def __init__(self, kernel: Any, governance: MemGovernance, caller: Callable[[], Caller]) -> None:
        """caller: raises Denied."""
        self._kernel, self._governance, self._who = kernel, governance, caller
        caller()

    @property
    def caller(self) -> Caller:
        """Who acts. Raises Denied."""
        return self._who()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in CALLS:
            raise AttributeError(f"{name!r} is no call that acts for a caller; there are {', '.join(sorted(CALLS))}")
        call = getattr(self._kernel, name)

        @wraps(call)
        def bound(*values: Any, **named: Any) -> Any:
            who = self._who()
            if "user" in named:
                raise InputError(f"{name} acts for {who.namespace} here and takes no user; leave it out")
            with self._governance.acting(who):
                return call(*values, **named)

        return bound
