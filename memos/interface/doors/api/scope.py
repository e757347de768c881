"""Resolves whose memories a call of the Memory API is about: a user, agent or session, by name or by a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memos.interface.doors.api.values import Who

if TYPE_CHECKING:
    from memos.kernel.calls import Calls
    from memos.kernel.mem_os import MemOS


class Scope:
    """Makes the kernel's calls for the scope that a call names."""

    def __init__(self, kernel: MemOS, key: str | None = None, purpose: str = "") -> None:
        """key: acts for whom it stands for; None: for whoever the call names. Raises Denied."""
        self.kernel, self.purpose = kernel, purpose
        # that the key is let in is written down here; each call looks again whether it is in force
        self.of_key = None if key is None else kernel.as_(key, purpose)

    def within(self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None) -> Calls:
        """The kernel's calls in this scope. Raises Denied; with a key, the calls do."""
        agent, session = agent_id or "", run_id or ""
        if self.of_key:
            return self.of_key.within(user_id, agent, session)
        return self.kernel.within(user_id, agent, session, self.purpose)

    def around(self, memory_id: str, who: Who) -> Calls:
        """The calls on one memory. As in mem0, an id will do: where neither a key nor the call says who acts, its owner
        does. Raises Denied."""
        if not self.of_key and not any(who.values()):
            return self.within(self.kernel.owner(memory_id))
        return self.within(**who)
