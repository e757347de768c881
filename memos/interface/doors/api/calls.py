"""The calls of the Memory API whose arguments or replies are not those of one call of the kernel; it does the work."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice
from typing import Literal, TypeVar, cast

from typing_extensions import Unpack

from memos.cube import Form, MemCube, State
from memos.errors import InputError
from memos.interface.doors.api import filters as conditions
from memos.interface.doors.api.calling import added, answered, api_calls, changes, deleted, item, plain, scored, why
from memos.interface.doors.api.table_calls import TableCalls
from memos.interface.doors.api.values import DEFAULT_LIMIT, Answer, Items, Json, Messages, Outcome, Records, Single, Who

T = TypeVar("T")


@api_calls
class MemoryCalls(TableCalls):
    """The public calls in one scope. Every call raises what the kernel's call of the same name raises."""

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
        """Remember a statement, or a conversation: every message as it was said, what it states, and what its calls of
        tools came to; durable when it returns.

        A message is known by its `id`, where it has one, or its `time`: given again, it adds nothing. infer: False
        reads no statements in messages. metadata: kept with each memory. ttl_s: seconds for which it answers.
        """
        calls, began = self.within(**who), self.kernel.vault.now()
        cubes = calls.add(
            messages if isinstance(messages, str) else _turns(messages),
            metadata=metadata,
            infer=infer,
            tags=tags or (),
            ttl=None if ttl_s is None else _seconds(ttl_s),
            expires=expires,
        )
        return {"results": added(cubes, began)}

    def get(self, memory_id: str, **who: Unpack[Who]) -> Single:
        """One memory."""
        return cast(Single, item(self.around(memory_id, who).get(memory_id)))

    def get_all(
        self,
        *,
        filters: dict[str, Json] | None = None,
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
        most = limit if top_k is None else top_k
        if most < 1:
            raise InputError(f"limit {most} gives nothing; give 1 or more")
        who, wanted = conditions.read(filters, who)
        calls = self.within(**who)
        cubes: list[MemCube] = calls.memories() if form is None and state is None else calls.cubes(form=form)
        fields = {"state": state, "kind": kind, "topic": topic}
        fit = (one for one in map(item, cubes) if all(v in (None, one.get(name)) for name, v in fields.items()))
        return {"results": list(islice((one for one in fit if conditions.fits(one, wanted)), min(most, len(cubes))))}

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
        data = _either(data, text, "data", "text", "what the memory should say")
        cube = self.around(memory_id, who).update(memory_id, data, metadata=metadata)
        return {"results": [item(cube)]}

    def delete(self, memory_id: str, **who: Unpack[Who]) -> Outcome:
        """Remove a memory with every form made from it."""
        ids = self.around(memory_id, who).delete(memory_id)
        return {"message": "Memory deleted successfully!", "results": deleted(ids)}

    def delete_all(self, **who: Unpack[Who]) -> Outcome:
        """Remove all memories in this scope, which has to be named, or none where one is locked; `forget(user=True)`
        does so with a proof."""
        if not any(who.values()):
            raise InputError("delete_all needs to know whose memories; give user_id, agent_id or run_id")
        ids = self.within(**who).delete_all()
        return {"message": "Memories deleted successfully!", "results": deleted(ids)}

    def history(self, memory_id: str, *, diffs: bool = False, **who: Unpack[Who]) -> Records:
        """Versions and moves of a memory in time order; with diffs, how each version differs from the one before. A
        version tells what mem0's rows tell, by their names; its event is ADD or UPDATE."""
        calls = self.around(memory_id, who)
        id, events = calls.get(memory_id).id, calls.history(memory_id, diffs=diffs)
        return {"results": changes(id, [plain(event) for event in events])}

    def search(
        self,
        query: str,
        *,
        filters: dict[str, Json] | None = None,
        top_k: int | None = None,
        limit: int | None = None,
        budget: int | None = None,
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
        icontains); AND, OR and NOT take lists of filters. limit: another name of top_k. budget: in place of a number of
        memories, as many as fit into so many tokens. since, until: when it was said. threshold: the least score.
        """
        who, wanted = conditions.read(filters, who)
        hits = self.within(**who).search(
            query,
            top_k=_either(top_k, limit, f"top_k {top_k}", f"limit {limit}", "how many are found"),
            budget=budget,
            kinds=kinds,
            since=since,
            until=until,
            where=(lambda cube: conditions.fits(item(cube), wanted)) if wanted.parts else None,
            policy=policy,
        )
        return {"results": [scored(hit, explain) for hit in hits if threshold is None or hit.score >= threshold]}

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
        *turns, last = _texts(messages)
        calls = self.within(who.get("user_id"), who.get("agent_id"))
        return answered(calls.chat(last["content"], via=via, turns=turns, session=session or who.get("run_id")))

    def undo(self, pipeline: str, **who: Unpack[Who]) -> Records:
        """Take back what a message of `chat` has done, but for what it has deleted."""
        return {"results": [{"undone": what} for what in self.within(**who).undo(pipeline)]}

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
                return {"results": why(calls.credit(question, answer))["reasons"]}
            case _:
                raise InputError("feedback takes memory_id and useful, or question and answer; give one of the pairs")

    def cancel(self, job_id: str, **who: Unpack[Who]) -> Outcome:
        """End a job; nothing of it is published."""
        return {"message": "Job cancelled.", "results": [{"id": self.within(**who).cancel(job_id)}]}

    def delete_snapshot(self, name: str, **who: Unpack[Who]) -> Outcome:
        """Forget a snapshot; the memories stay."""
        self.within(**who).delete_snapshot(name)
        return {"message": "Snapshot deleted.", "results": [{"name": name}]}

    def forget(self, *, user: bool = False, **who: Unpack[Who]) -> Outcome:
        """Remove a user, who must be meant (user=True): every memory in every form, with a proof. One memory is removed
        by `delete`, or by asking for it in `chat`."""
        if not user:
            raise InputError("forget removes all that is known of a user; say so with user=true, or use delete")
        return {"message": "Forgotten.", "results": [plain(self.within(**who).forget_user())]}

    def revoke(
        self, on: str, to: str, relation: str | None = None, *, purpose: str | None = None, **who: Unpack[Who]
    ) -> Outcome:
        """Take back what was granted, from all that is made of it as well. relation, purpose: null for each of them;
        purpose: "" for what was granted for none."""
        count = self.within(**who).revoke(on, to, relation, purpose=purpose)
        return {"message": f"{count} grants taken back.", "results": []}

    def join(self, group: str, member: str, **who: Unpack[Who]) -> Outcome:
        """Put somebody into a group of one's own, which is made if there is none."""
        return {"message": f"{member} is in {self.within(**who).join(group, member)}.", "results": []}

    def leave(self, group: str, member: str, **who: Unpack[Who]) -> Outcome:
        """Take somebody out of a group of one's own."""
        return {"message": f"{member} is no longer in {self.within(**who).leave(group, member)}.", "results": []}

    def groups(self, **who: Unpack[Who]) -> Records:
        """One's groups with their members."""
        found = self.within(**who).groups().items()
        return {"results": [{"group": str(group), "members": list(map(str, members))} for group, members in found]}

    def quarantined(self, **who: Unpack[Who]) -> Items:
        """Memories that answer nothing until they are released."""
        found = self.within(**who).quarantined()
        return {"results": [{**item(cube), "note": suspect.why} for cube, suspect in found]}

    def holds(self, **who: Unpack[Who]) -> Items:
        """Memories under a legal hold, with who holds each and why."""
        found = self.within(**who).holds()
        return {"results": [{**item(cube), "note": f"{hold.holder}: {hold.why}"} for cube, hold in found]}


def _turns(messages: Messages) -> list[dict[str, Json]]:
    """Messages as turns, as the reader takes them: {role, content}, and calls of tools. Raises InputError."""
    given = {"content": messages} if isinstance(messages, str) else messages
    turns = given if isinstance(given, list) else [given]
    if not turns:
        raise InputError("there is no message; give a text, or a list of {role, content}")
    return [{"role": "user", **turn} for turn in turns]


def _texts(messages: Messages) -> list[dict[str, Json]]:
    """The same, each with a text: no calls of tools. Raises InputError."""
    turns = _turns(messages)
    for turn in turns:
        if not (isinstance(turn["role"], str) and isinstance(turn.get("content"), str)):
            raise InputError(f"{str(turn)[:80]!r} is no message; give {{role, content}}, each a text")
    return turns


def _either(one: T | None, other: T | None, name: str, other_name: str, what: str) -> T | None:
    """The value of an argument that has two names. Raises InputError where both are given and differ."""
    if None not in (one, other) and one != other:
        raise InputError(f"{name} and {other_name} are two names of {what}; give one of them")
    return other if one is None else one


def _seconds(seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InputError(f"ttl_s {seconds} is no time that ends; leave it out for a memory without end") from None
