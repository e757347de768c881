"""The calls of the Memory API, with typed JSON values; what a call does is the kernel's."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Literal, cast

from typing_extensions import Unpack

from memos.cube import Form, MemCube, State
from memos.errors import InputError
from memos.interface.doors.api import filters as conditions
from memos.interface.doors.api import messages as given
from memos.interface.doors.api import values
from memos.interface.doors.api.calling import api_call
from memos.interface.doors.api.filters import SCOPE
from memos.interface.doors.api.messages import Filters, Messages
from memos.interface.doors.api.scope import Scope
from memos.interface.doors.api.values import (
    Answer,
    Items,
    Json,
    LineageValue,
    Outcome,
    OverviewValue,
    Records,
    Single,
    Who,
    Why,
)

if TYPE_CHECKING:
    from memos.kernel.calls import Calls
    from memos.kernel.services.finding import Hit

DEFAULT_LIMIT = 100  # memories that a listing gives where no limit is named


class MemoryCalls:
    """The public calls in one scope. Every call raises what the kernel's call of the same name raises."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def within(self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None) -> Calls:
        """The kernel's calls in a part of the scope. Raises Denied; with a key, the calls do."""
        return self.scope.within(user_id, agent_id, run_id)

    @api_call
    def add(
        self,
        messages: Messages,
        *,
        metadata: dict[str, Json] | None = None,
        infer: bool = True,
        tags: list[str] | None = None,
        ttl_s: float | None = None,
        expires: datetime | None = None,
        **who: Unpack[Who],
    ) -> Items:
        """Remember a statement, or what is worth it in the messages of a conversation, and what its calls of tools came
        to; durable when it returns.

        infer: False keeps every message as it is. metadata: kept with each memory. ttl_s: seconds for which it answers.
        """
        calls, began = self.within(**who), self.scope.kernel.vault.now()
        more: dict[str, Json] = {"metadata": metadata, "tags": tags or (), "expires": expires}
        more["ttl"] = None if ttl_s is None else given.seconds_of(ttl_s)
        cubes = calls.add(messages if isinstance(messages, str) else given.turns_of(messages), infer=infer, **more)
        return {"results": values.added(cubes, began)}

    @api_call
    def get(self, memory_id: str, **who: Unpack[Who]) -> Single:
        """One memory."""
        return cast(Single, values.item(self.scope.around(memory_id, who).get(memory_id)))

    @api_call
    def get_all(
        self,
        *,
        filters: Filters | None = None,
        limit: int = DEFAULT_LIMIT,
        top_k: int | None = None,
        form: Form | None = None,
        state: State | None = None,
        kind: str | None = None,
        topic: str | None = None,
        **who: Unpack[Who],
    ) -> Items:
        """The memories in force, as they were said; or, with a form or a state, all of that. filters: see `search`.
        top_k: another name of limit."""
        most = given.checked_limit(limit if top_k is None else top_k)
        who, wanted = given.filtered(filters, who)
        calls = self.within(**who)
        cubes: list[MemCube] = calls.memories() if form is None and state is None else calls.cubes(form=form)
        fields = {"state": state, "kind": kind, "topic": topic}
        fit = (one for one in map(values.item, cubes) if all(v in (None, one.get(name)) for name, v in fields.items()))
        return {"results": list(islice((one for one in fit if conditions.fits(one, wanted)), most))}

    @api_call
    def update(
        self,
        memory_id: str,
        data: str | None = None,
        *,
        text: str | None = None,
        metadata: dict[str, Json] | None = None,
        **who: Unpack[Who],
    ) -> Items:
        """A new version of a memory, with this text, this metadata, or both; what was made of it is stale at once.

        text: another name of data. metadata: set beside what is there; a name with the value null is taken out.
        """
        data = given.either(data, text, "data", "text", "what the memory should say")
        return values.items_of([self.scope.around(memory_id, who).update(memory_id, data, metadata=metadata)])

    @api_call
    def delete(self, memory_id: str, **who: Unpack[Who]) -> Outcome:
        """Remove a memory with every form made from it."""
        ids = self.scope.around(memory_id, who).delete(memory_id)
        return values.done("Memory deleted successfully!", values.deleted(ids))

    @api_call
    def delete_all(self, **who: Unpack[Who]) -> Outcome:
        """Remove all memories in this scope, which has to be named, or none where one is locked; `forget(user=True)`
        does so with a proof."""
        if not any(who.get(name) for name in SCOPE):
            raise InputError("delete_all needs to know whose memories; give user_id, agent_id or run_id")
        return values.done("Memories deleted successfully!", values.deleted(self.within(**who).delete_all()))

    @api_call
    def history(self, memory_id: str, *, diffs: bool = False, **who: Unpack[Who]) -> Records:
        """Versions and moves of a memory in time order; with diffs, how each version differs from the one before. A
        version tells what mem0's rows tell, by their names; its event is ADD or UPDATE."""
        calls = self.scope.around(memory_id, who)
        id, events = calls.get(memory_id).id, calls.history(memory_id, diffs=diffs)
        return {"results": values.changes(id, [values.plain(event) for event in events])}

    @api_call
    def tag(self, memory_id: str, tags: list[str], **who: Unpack[Who]) -> Items:
        """Give a memory these tags. "always": in every request; "apart:NAME": never beside another of that name."""
        return values.items_of([self.within(**who).tag(memory_id, tags)])

    @api_call
    def fuse(self, memory_ids: list[str], text: str | None = None, **who: Unpack[Who]) -> Items:
        """One memory of several; `split` undoes it."""
        return values.items_of([self.within(**who).fuse(memory_ids, text)])

    @api_call
    def split(self, memory_id: str, parts: list[str] | None = None, **who: Unpack[Who]) -> Items:
        """A memory in parts: these, its sentences, or what it was fused of."""
        return values.items_of(self.within(**who).split(memory_id, parts or ()))

    @api_call
    def consolidate(self, **who: Unpack[Who]) -> Items:
        """Make one of each group of memories that say the same; those made."""
        return values.items_of(self.within(**who).consolidate())

    @api_call
    def reinstate(self, memory_id: str, **who: Unpack[Who]) -> Items:
        """Bring back a memory that another has replaced."""
        return values.items_of([self.within(**who).reinstate(memory_id)])

    @api_call
    def search(
        self,
        query: str,
        *,
        filters: Filters | None = None,
        top_k: int | None = None,
        limit: int | None = None,
        kinds: list[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        policy: str | None = None,
        explain: bool = False,
        threshold: float | None = None,
        **who: Unpack[Who],
    ) -> Items:
        """The memories that answer a query best, best first.

        filters: {"user_id": ..., "agent_id": ..., "run_id": ...}, and names of a memory's metadata or fields, each with
        the value that it has, "*" for any, or {operator: value} (eq, ne, gt, gte, lt, lte, in, nin, contains,
        icontains); AND, OR and NOT take lists of filters. limit: another name of top_k. since, until: when it was said.
        threshold: the least score.
        """
        who, wanted = given.filtered(filters, who)
        hits: list[Hit] = self.within(**who).search(
            query,
            top_k=given.either(top_k, limit, f"top_k {top_k}", f"limit {limit}", "how many are found"),
            kinds=kinds,
            since=since,
            until=until,
            where=(lambda cube: conditions.fits(values.item(cube), wanted)) if wanted.parts else None,
            policy=policy,
        )
        return {"results": [values.scored(hit, explain) for hit in hits if threshold is None or hit.score >= threshold]}

    @api_call
    def chat(
        self,
        messages: Messages,
        *,
        session: str | None = None,
        via: Literal["auto", "none", "plaintext", "activation", "parametric"] = "auto",
        **who: Unpack[Who],
    ) -> Answer:
        """Do what a message asks for: remember, correct, forget, or answer from memory.

        messages: the message, or a conversation that ends with it. session, or run_id: instead of earlier messages, a
        conversation that memos keeps; it sees the memories outside it, too.
        """
        *turns, last = given.texts_of(messages)
        calls = self.within(who.get("user_id"), who.get("agent_id"))
        return values.answered(calls.chat(last["content"], via=via, turns=turns, session=session or who.get("run_id")))

    @api_call
    def undo(self, pipeline: str, **who: Unpack[Who]) -> Records:
        """Take back what a message of `chat` has values.done, but for what it has deleted."""
        return {"results": [{"undone": what} for what in self.within(**who).undo(pipeline)]}

    @api_call
    def explain(self, question: str, *, answer: str | None = None, **who: Unpack[Who]) -> Why:
        """Why a question is answered so: the memories that were seen, in which form, and by how many nats the answer
        (or the given one) is likelier with each of them than without."""
        return values.why(self.within(**who).explain(question, answer=answer))

    @api_call
    def feedback(
        self,
        memory_id: str | None = None,
        useful: float | None = None,
        *,
        question: str | None = None,
        answer: str | None = None,
        **who: Unpack[Who],
    ) -> Records:
        """Say how much a memory has helped, from -1 to 1; or give a question with its right answer, and what each
        memory does for that answer is measured. What helps is found sooner."""
        calls = self.within(**who)
        match memory_id, useful, question, answer:
            case str(), float() | int(), None, None:
                cube = calls.feedback(memory_id, useful)
                return {"results": [{"id": cube.id, "utility": cube.usage.utility}]}
            case None, None, str(), str():
                credited = calls.credit(question, answer)
                return {"results": [values.reason_of(reason) for reason in credited.reasons]}
            case _:
                raise InputError("feedback takes memory_id and useful, or question and answer; give one of the pairs")

    @api_call
    def promote(
        self, memory_ids: list[str], to: Literal["activation", "parametric"] = "activation", **who: Unpack[Who]
    ) -> Items:
        """Make a KV cache or an adapter of memories; published once it has proven itself."""
        return values.items_of([self.within(**who).promote(memory_ids, to)])

    @api_call
    def demote(self, memory_id: str, **who: Unpack[Who]) -> Items:
        """Give up a KV cache or an adapter; its memories answer as text again."""
        return values.items_of(self.within(**who).demote(memory_id))

    @api_call
    def tick(self, **who: Unpack[Who]) -> Records:
        """Let the scheduler plan moves, and carry them out; what was done."""
        return values.records_of(self.within(**who).tick())

    @api_call
    def jobs(self, **who: Unpack[Who]) -> Records:
        """Work that goes on, waits, or can be taken up again."""
        return values.records_of(self.within(**who).jobs())

    @api_call
    def cancel(self, job_id: str, **who: Unpack[Who]) -> Outcome:
        """End a job; nothing of it is published."""
        self.within(**who).cancel(job_id)
        return values.done("Job cancelled.", [{"id": job_id}])

    @api_call
    def freeze(self, memory_id: str, *, why: str = "frozen", **who: Unpack[Who]) -> Items:
        """Lock a memory: it answers, and is neither edited nor deleted."""
        return values.items_of([self.within(**who).freeze(memory_id, why=why)])

    @api_call
    def thaw(self, memory_id: str, *, why: str = "thawed", **who: Unpack[Who]) -> Items:
        """Unlock a frozen memory."""
        return values.items_of([self.within(**who).thaw(memory_id, why=why)])

    @api_call
    def archive(self, memory_id: str, *, why: str = "archived", **who: Unpack[Who]) -> Items:
        """Put a memory out of use, with all that is made of it."""
        return values.items_of([self.within(**who).archive(memory_id, why=why)])

    @api_call
    def unarchive(self, memory_id: str, *, why: str = "brought back", **who: Unpack[Who]) -> Items:
        """Bring an archived memory back."""
        return values.items_of([self.within(**who).unarchive(memory_id, why=why)])

    @api_call
    def rollback(self, memory_id: str, version: int, **who: Unpack[Who]) -> Items:
        """Bring back what an old version said, as a new version."""
        return values.items_of([self.within(**who).rollback(memory_id, version)])

    @api_call
    def snapshot(self, name: str, **who: Unpack[Who]) -> Records:
        """Write down how all memories are now."""
        return values.records_of([self.within(**who).snapshot(name)])

    @api_call
    def snapshots(self, **who: Unpack[Who]) -> Records:
        """What was written down, oldest first."""
        return values.records_of(self.within(**who).snapshots())

    @api_call
    def restore(self, name: str, **who: Unpack[Who]) -> Records:
        """Take all memories back to a snapshot; one is taken before, so that this can be undone."""
        return values.records_of([self.within(**who).restore(name)])

    @api_call
    def delete_snapshot(self, name: str, **who: Unpack[Who]) -> Outcome:
        """Forget a snapshot; the memories stay."""
        self.within(**who).delete_snapshot(name)
        return values.done("Snapshot deleted.", [{"name": name}])

    @api_call
    def forget(self, *, user: bool = False, **who: Unpack[Who]) -> Outcome:
        """Remove a user, who must be meant (user=True): every memory in every form, with a proof. One memory is removed
        by `delete`, or by asking for it in `chat`."""
        if not user:
            raise InputError("forget removes all that is known of a user; say so with user=true, or use delete")
        proof = self.within(**who).forget_user()
        return values.done("Forgotten.", [values.plain(proof)])

    @api_call
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
        grant = self.within(**who).grant(on, to, relation, purpose=purpose, until=until)
        return {"results": [values.plain(grant)]}

    @api_call
    def revoke(
        self, on: str, to: str, relation: str | None = None, *, purpose: str | None = None, **who: Unpack[Who]
    ) -> Outcome:
        """Take back what was granted, from all that is made of it as well; null: of every relation, for every purpose.
        purpose: "" for what was granted for none."""
        return values.done(f"{self.within(**who).revoke(on, to, relation, purpose=purpose)} grants taken back.", [])

    @api_call
    def grants(self, on: str | None = None, **who: Unpack[Who]) -> Records:
        """What is granted on one's memories, and to oneself."""
        return values.records_of(self.within(**who).grants(on))

    @api_call
    def join(self, group: str, member: str, **who: Unpack[Who]) -> Outcome:
        """Put somebody into a group of one's own, which is made if there is none."""
        return values.done(f"{member} is in {self.within(**who).join(group, member)}.", [])

    @api_call
    def leave(self, group: str, member: str, **who: Unpack[Who]) -> Outcome:
        """Take somebody out of a group of one's own."""
        return values.done(f"{member} is no longer in {self.within(**who).leave(group, member)}.", [])

    @api_call
    def groups(self, **who: Unpack[Who]) -> Records:
        """One's groups with their members."""
        found = self.within(**who).groups().items()
        return {"results": [{"group": str(group), "members": list(map(str, members))} for group, members in found]}

    @api_call
    def trust(self, memory_id: str, trust: str, **who: Unpack[Who]) -> Items:
        """Say how far a memory is believed."""
        return values.items_of([self.within(**who).trust(memory_id, trust)])

    @api_call
    def quarantined(self, **who: Unpack[Who]) -> Items:
        """Memories that answer nothing until they are released."""
        return {
            "results": [{**values.item(cube), "note": found.why} for cube, found in self.within(**who).quarantined()]
        }

    @api_call
    def release(self, memory_id: str, **who: Unpack[Who]) -> Items:
        """Let a memory out of quarantine."""
        return values.items_of([self.within(**who).release(memory_id)])

    @api_call
    def holds(self, **who: Unpack[Who]) -> Items:
        """Memories under a legal hold, with who holds each and why."""
        found = self.within(**who).holds()
        return {"results": [{**values.item(cube), "note": f"{hold.holder}: {hold.why}"} for cube, hold in found]}

    @api_call
    def hold(self, memory_id: str, why: str, **who: Unpack[Who]) -> Items:
        """Lay a legal hold on a memory: nobody and no rule edits, deletes or forgets it."""
        return values.items_of([self.within(**who).hold(memory_id, why)])

    @api_call
    def end_hold(self, memory_id: str, **who: Unpack[Who]) -> Items:
        """Take a legal hold off."""
        return values.items_of([self.within(**who).end_hold(memory_id)])

    @api_call
    def provenance(self, memory_id: str, **who: Unpack[Who]) -> LineageValue:
        """What a memory was made of, what is made of it, and where it came from."""
        return values.lineage_value(self.within(**who).lineage(memory_id))

    @api_call
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
        asked: dict[str, Json] = {
            "action": action,
            "target": target,
            "since": since,
            "until": until,
            "allowed": allowed,
        }
        most = given.checked_limit(limit)
        return values.records_of(self.within(**who).log(**asked, own_reads=own_reads, limit=most))

    @api_call
    def overview(self, *, hottest: int = 0, **who: Unpack[Who]) -> OverviewValue:
        """What there is: counts by form and state, topics by heat, tiers, budgets. hottest: with so many memories of
        each form, the hottest first."""
        return values.overview_value(self.within(**who).overview(hottest=hottest))
