"""The public calls of a kernel as one caller who cannot be changed by what a call says.

Knows which calls there are. Must not know what they do, nor what the caller may do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from memos.errors import InputError
from memos.infrastructure.mem_governance import MemGovernance
from memos.rights import Caller

# the calls of `MemOS` that act for a user; what administers the kernel or a key is not among them
CALLS = frozenset(
    """chat ask parity rewind add keep get update delete history tag fuse split consolidate reinstate conflicts
    audit_memory diff rollback freeze thaw archive unarchive snapshot snapshots restore delete_snapshot search memories
    turns cubes promote demote gate externalize export_adapter jobs cancel tick plan segments tiers grant revoke grants
    join leave groups dump load origins known_origins install subscribe update_packs remove_pack installed trust
    quarantined release hold end_hold forget_user""".split()
)


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
            if "user" in named:
                raise InputError(f"{name} acts for {self._who().namespace} here and takes no user; leave it out")
            with self._governance.acting(self._who()):
                return call(*values, **named)

        return bound
