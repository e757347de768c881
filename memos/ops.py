"""The operations that every request becomes and the kernel carries out.

Each names its arguments and the right that it needs (`memos.rights.ACTIONS` says who has it); the caller travels beside
it. Knows the cube; knows nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any, ClassVar, Literal

from pydantic import Field

from memos.cube import Fact, Form, Frozen, Namespace, Probe, State, Trust
from memos.rights import Action, Relation

Intent = Literal[
    "remember", "recall", "correct", "forget", "share", "unshare", "promote", "demote", "freeze", "thaw", "rollback",
    "about", "talk", "ask_back", "withhold",
]  # fmt: skip


class Operation(Frozen):
    """What is asked of the kernel; a service of a plug-in has operations of its own."""

    right: ClassVar[Action]

    def __init_subclass__(cls, right: Action | None = None) -> None:
        """right: what it needs; by default that of its base."""
        super().__init_subclass__()
        if right:
            cls.right = right


class OnMemory(Operation):
    """What is asked of one memory. id: its name, or the beginning of that."""

    id: str


class Add(Operation, right="write"):
    """Remember one statement."""

    text: str
    verbatim: str = ""
    speaker: str = ""
    role: str = ""
    said: datetime | None = None
    expires: datetime | None = None
    origin: str = "api"
    trust: Trust | None = None  # where it is lower than that of its origin
    thread: str = ""
    message_id: str = ""
    segment: str = ""
    kind: str = "fact"
    facts: tuple[Fact, ...] = ()
    more: bool = False  # it says more than its facts
    tags: tuple[str, ...] = ()
    metadata: str = ""
    probes: tuple[Probe, ...] = ()
    sha256: str | None = None  # of its file, which is in the vault by then
    bytes: int = 0
    media_type: str = ""

    @property
    def is_marked(self) -> bool:
        """True where it can be told apart from another message of the same words."""
        return bool(self.said or self.message_id)


class Correct(Add):
    """Remember a statement in place of earlier ones about the same subject and relation."""


class Episode(Operation, right="write"):
    """Keep a turn of a conversation word for word, with the passages that it is found by where it is long, and the
    statements that were read in it. A turn that is one statement is kept as that: it has none beside it."""

    turn: Add
    passages: tuple[Add, ...] = ()
    statements: tuple[Add, ...] = ()

    def each(self, change: Callable[[Add], Add]) -> Episode:
        """The same with every part changed."""
        passages, statements = (tuple(map(change, parts)) for parts in (self.passages, self.statements))
        return Episode(turn=change(self.turn), passages=passages, statements=statements)


class Wants(Frozen):
    """What a question wants beside its matter. side: "user" or "assistant" said it, "" either. request: a reply, for
    which what the user has asked for once and for all counts. overview: how something went, from its beginning. held:
    what held at some time between two days, also where it does not any more. since: only what was said from then on;
    whatever: any of that."""

    side: Literal["user", "assistant", ""] = ""
    request: bool = False
    overview: bool = False
    held: tuple[date, date] | None = None
    since: datetime | None = None
    whatever: bool = False

    @property
    def summary(self) -> bool:
        """An overview of all that was said, and not of the order in which one side has brought things up."""
        return self.overview and not self.side


class Lookup(Operation, right="read"):
    """What is looked for: `about` names subjects that it is about, `asks` are the facts, with blanks, that it asks for,
    and `wants` is how it asks."""

    about: tuple[str, ...] = ()
    asks: tuple[Fact, ...] = ()
    wants: Wants = Wants()


class Search(Lookup):
    """Find memories."""

    query: str
    top_k: int = 8


class Recall(Lookup):
    """Answer a question with what is remembered. also: other words for those of the question."""

    question: str
    also: tuple[str, ...] = ()


class Forget(Operation, right="delete"):
    """Delete what `query` describes; `facts` say it more closely, with blanks for what is left open. naming: instead,
    all that names this."""

    query: str
    facts: tuple[Fact, ...] = ()
    naming: str = ""


class Asked(Frozen):
    """One thing that a message asks for, in its words: what the reader has understood, before anything is looked up.

    what: the statement, question or description, with references resolved where the conversation tells to what. who:
    the person that it is about; "user" is the speaker. when, until: a day or a range of days, ISO. to: the form of a
    promotion; the version, "previous" or the day of a rollback; the words that a correction puts right. ask: what is
    asked about the memory. doubted: the intent of a request that must be asked back.
    `model_dump(exclude_defaults=True, by_alias=True)` has the arguments that are given, by the names that doors have
    for them. last: it may mean what was said just before, or was done.
    """

    intent: Intent = Field(exclude=True)
    what: str = ""
    who: str = ""
    when: str = ""
    with_: str = Field("", serialization_alias="with")
    relation: str = ""
    until: str = ""
    to: str | int = ""
    ask: str = ""
    doubted: str = Field("", serialization_alias="intent")
    last: Literal["", "said", "done"] = Field("", exclude=True)


class Get(OnMemory, right="read"): ...


class Update(OnMemory, right="write"):
    """Change what a memory says (None: nothing), or the metadata that is kept with it."""

    text: str | None = None


class Tag(OnMemory, right="annotate"):
    """Give a memory these tags, in place of those that it has."""

    tags: tuple[str, ...]


class Rate(OnMemory, right="annotate"):
    """Say how much a memory has helped, from -1 to 1."""

    useful: float


class Fuse(Operation, right="write"):
    """Make one memory of several, with this text or with what they say."""

    ids: tuple[str, ...]
    text: str | None = None


class Split(OnMemory, right="write"):
    """Cut a memory in parts, or one that was made of others back into them."""

    parts: tuple[str, ...] = ()


class Reinstate(OnMemory, right="write"):
    """Bring back a memory that another has replaced."""


class Delete(OnMemory, right="delete"): ...


class Promote(Operation, right="manage"):
    """Make one derived cube of `ids` in the dearer form `to`."""

    ids: tuple[str, ...]
    to: Form


class Demote(OnMemory, right="manage"):
    """Give up a derived cube for its sources."""


class History(OnMemory, right="read"): ...


class Rewind(Operation, right="write"):
    """Take a session back to its first turns."""

    session: str
    turns: int


class ChangeState(OnMemory, right="manage"):
    """Change the state of a memory."""

    to: State


class Rollback(OnMemory, right="write"):
    """Bring back what an old version said."""

    version: int


class TakeSnapshot(Operation, right="manage"):
    name: str


class ListSnapshots(Operation, right="read"): ...


class Restore(Operation, right="manage"):
    """Take the whole namespace back to a snapshot."""

    name: str


class DeleteSnapshot(Operation, right="delete"):
    name: str


class GiveRight(Operation, right="manage"):
    """Grant a relation to a cube, or to all in a namespace; `grants` of the public calls tells more."""

    on: str | Namespace
    relation: Relation


class TakeRight(Operation, right="manage"):
    """Take back what was granted."""

    on: str | Namespace


class ListRights(Operation, right="read"): ...


class Join(Operation, right="manage"):
    """Put a member into one of the caller's groups, or take it out."""

    group: str


class ListGroups(Operation, right="read"): ...


class SetTrust(OnMemory, right="manage"):
    """Say how far a memory is believed."""

    trust: Trust


class Quarantined(Operation, right="read"):
    """List what is in quarantine."""


class Holds(Operation, right="read"):
    """List what is held."""


class Release(OnMemory, right="manage"):
    """Let a memory out of quarantine."""


class Hold(OnMemory, right="manage"):
    """Lay a legal hold on a memory."""

    why: str


class EndHold(OnMemory, right="manage"):
    """Take a legal hold off a memory."""


class ForgetUser(Operation, right="delete"):
    """Remove all that is known of the caller."""


Call = tuple[str, tuple[Any, ...], dict[str, Any]]  # of the kernel: name, values, named values; all of JSON
