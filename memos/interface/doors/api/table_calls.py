# mypy: disable-error-code="empty-body"
"""The calls of the Memory API that are the kernel's, with typed JSON values: their declaration, which is all there is.

Each is carried out by the line of that name in the table of calls (memos/kernel/calls.py); see `calling.table_calls`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from typing_extensions import Unpack

from memos.interface.doors.api.calling import Scope, table_calls
from memos.interface.doors.api.values import DEFAULT_LIMIT, Items, LineageValue, OverviewValue, Records, Who, Why


@table_calls
class TableCalls(Scope):
    """Every call raises what the kernel's call of the same name raises."""

    def tag(self, memory_id: str, tags: list[str], **who: Unpack[Who]) -> Items:
        """Give a memory these tags. "always": in every request; "apart:NAME": never beside another of that name."""

    def fuse(self, memory_ids: list[str], text: str | None = None, **who: Unpack[Who]) -> Items:
        """One memory of several; `split` undoes it."""

    def split(self, memory_id: str, parts: list[str] | None = None, **who: Unpack[Who]) -> Items:
        """A memory in parts: these, its sentences, or what it was fused of."""

    def consolidate(self, **who: Unpack[Who]) -> Items:
        """Make one of each group of memories that say the same; those made."""

    def reinstate(self, memory_id: str, **who: Unpack[Who]) -> Items:
        """Bring back a memory that another has replaced."""

    def explain(self, question: str, *, answer: str | None = None, **who: Unpack[Who]) -> Why:
        """Why a question is answered so: the memories that were seen, in which form, and by how many nats the answer
        (or the given one) is likelier with each of them than without."""

    def promote(
        self, memory_ids: list[str], to: Literal["activation", "parametric"] = "activation", **who: Unpack[Who]
    ) -> Items:
        """Make a KV cache or an adapter of memories; published once it has proven itself."""

    def demote(self, memory_id: str, **who: Unpack[Who]) -> Items:
        """Give up a KV cache or an adapter; its memories answer as text again."""

    def tick(self, **who: Unpack[Who]) -> Records:
        """Let the scheduler plan moves, and carry them out; what was done."""

    def jobs(self, **who: Unpack[Who]) -> Records:
        """Work that goes on, waits, or can be taken up again."""

    def freeze(self, memory_id: str, *, why: str = "frozen", **who: Unpack[Who]) -> Items:
        """Lock a memory: it answers, and is neither edited nor deleted."""

    def thaw(self, memory_id: str, *, why: str = "thawed", **who: Unpack[Who]) -> Items:
        """Unlock a frozen memory."""

    def archive(self, memory_id: str, *, why: str = "archived", **who: Unpack[Who]) -> Items:
        """Put a memory out of use, with all that is made of it."""

    def unarchive(self, memory_id: str, *, why: str = "brought back", **who: Unpack[Who]) -> Items:
        """Bring an archived memory back."""

    def rollback(self, memory_id: str, version: int, **who: Unpack[Who]) -> Items:
        """Bring back what an old version said, as a new version."""

    def snapshot(self, name: str, **who: Unpack[Who]) -> Records:
        """Write down how all memories are now."""

    def snapshots(self, **who: Unpack[Who]) -> Records:
        """The snapshots that were taken, oldest first."""

    def restore(self, name: str, **who: Unpack[Who]) -> Records:
        """Take all memories back to a snapshot; one is taken before, so that this can be undone."""

    def grant(
        self,
        on: str,
        to: str,
        relation: str = "reader",
        *,
        purpose: str | None = None,
        until: datetime | None = None,
        **who: Unpack[Who],
    ) -> Records:
        """Give somebody a relation (owner, editor, annotator, reader) to a memory, or to "namespace:USER/AGENT"."""

    def grants(self, on: str | None = None, **who: Unpack[Who]) -> Records:
        """What is granted on one's memories, and to oneself."""

    def trust(self, memory_id: str, trust: str, **who: Unpack[Who]) -> Items:
        """Say how far a memory is believed."""

    def release(self, memory_id: str, **who: Unpack[Who]) -> Items:
        """Let a memory out of quarantine."""

    def hold(self, memory_id: str, why: str, **who: Unpack[Who]) -> Items:
        """Lay a legal hold on a memory: nobody and no rule edits, deletes or forgets it."""

    def end_hold(self, memory_id: str, **who: Unpack[Who]) -> Items:
        """Take a legal hold off."""

    def provenance(self, memory_id: str, **who: Unpack[Who]) -> LineageValue:
        """What a memory was made of, what is made of it, and where it came from."""

    def log(
        self,
        *,
        action: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        allowed: bool | None = None,
        own_reads: bool = True,
        limit: int = DEFAULT_LIMIT,
        **who: Unpack[Who],
    ) -> Records:
        """The last decisions on what the caller did, and, by whomever, on its own memories, oldest first.

        target: it begins with this, as with the id of a memory; named so, what was decided on another's memory that the
        caller may manage is told, too. own_reads: False leaves out what the caller itself has read, so that looking
        does not crowd out the rest.
        """

    def overview(self, *, hottest: int = 0, **who: Unpack[Who]) -> OverviewValue:
        """What there is: counts by form and state, topics by heat, tiers, budgets. hottest: with so many memories of
        each form, the hottest first."""
