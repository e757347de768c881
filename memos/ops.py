"""The closed set of operations that every request becomes and the kernel carries out.

Each names its arguments and the right that it needs (`memos.rights.ACTIONS` says who has it); the caller travels beside
it. Knows the cube; knows nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, Literal

from pydantic import Field

from memos.cube import Fact, Form, Frozen, Namespace, Probe, State, Trust
from memos.rights import Action, Relation

Intent = Literal[
    "remember", "recall", "correct", "forget", "share", "unshare", "promote", "demote", "freeze", "thaw", "rollback",
    "about", "talk", "ask_back", "withhold",
]  # fmt: skip


class Add(Frozen):
    """Remember one statement."""

    right: ClassVar[Action] = "write"
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

    @property
    def is_marked(self) -> bool:
        """True where it can be told apart from another message of the same words."""
        return bool(self.said or self.message_id)


class Correct(Add):
    """Remember a statement in place of earlier ones about the same subject and relation."""


class Episode(Frozen):
    """Keep a turn of a conversation word for word, with the passages that it is found by where it is long, and the
    statements that were read in it. A turn that is one statement is kept as that: it has none beside it."""

    right: ClassVar[Action] = "write"
    turn: Add
    passages: tuple[Add, ...] = ()
    statements: tuple[Add, ...] = ()

    def each(self, change: Callable[[Add], Add]) -> Episode:
        """The same with every part changed."""
        passages, statements = (tuple(map(change, parts)) for parts in (self.passages, self.statements))
        return Episode(turn=change(self.turn), passages=passages, statements=statements)


class Wants(Frozen):
    """What a question wants beside its matter. side: "user" or "assistant" said it, "" either. request: a reply, for
    which what the user has asked for once and for all counts. overview: how something went, from its beginning."""

    side: Literal["user", "assistant", ""] = ""
    request: bool = False
    overview: bool = False

    @property
    def summary(self) -> bool:
        """An overview of all that was said, and not of the order in which one side has brought things up."""
        return self.overview and not self.side


class Search(Frozen):
    """Find memories; `about` names subjects that the query is about, `asks` are the facts, with blanks, that it asks
    for, and `wants` is how it asks."""

    right: ClassVar[Action] = "read"
    query: str
    top_k: int = 8
    about: tuple[str, ...] = ()
    asks: tuple[Fact, ...] = ()
    wants: Wants = Wants()


class Recall(Frozen):
    """Answer a question with what is remembered; `about` and `asks` as in a search."""

    right: ClassVar[Action] = "read"
    question: str
    about: tuple[str, ...] = ()
    asks: tuple[Fact, ...] = ()
    wants: Wants = Wants()


class Forget(Frozen):
    """Delete what `query` describes; `facts` say it more closely, with blanks for what is left open. naming: instead,
    all that names this."""

    right: ClassVar[Action] = "delete"
    query: str
    facts: tuple[Fact, ...] = ()
    naming: str = ""


class Asked(Frozen):
    """One thing that a message asks for, in its words: what the reader has understood, before anything is looked up.

    what: the statement, question or description, with references resolved where the conversation tells to what. who:
    the person that it is about; "user" is the speaker. when, until: a day or a range of days, ISO. to: the form of a
    promotion; the version, "previous" or the day of a rollback. ask: what is asked about the memory. doubted: the
    intent of a request that must be asked back. `model_dump(exclude_defaults=True, by_alias=True)` has the arguments
    that are given, by the names that doors have for them. last: it may mean what was said just before, or was done.
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


class Get(Frozen):
    right: ClassVar[Action] = "read"
    id: str


class Update(Frozen):
    """Change what a memory says (None: nothing), or the metadata that is kept with it."""

    right: ClassVar[Action] = "write"
    id: str
    text: str | None = None


class Tag(Frozen):
    """Give a memory these tags, in place of those that it has."""

    right: ClassVar[Action] = "annotate"
    id: str
    tags: tuple[str, ...]


class Rate(Frozen):
    """Say how much a memory has helped, from -1 to 1."""

    right: ClassVar[Action] = "annotate"
    id: str
    useful: float


class Fuse(Frozen):
    """Make one memory of several, with this text or with what they say."""

    right: ClassVar[Action] = "write"
    ids: tuple[str, ...]
    text: str | None = None


class Split(Frozen):
    """Cut a memory in parts, or one that was made of others back into them."""

    right: ClassVar[Action] = "write"
    id: str
    parts: tuple[str, ...] = ()


class Reinstate(Frozen):
    """Bring back a memory that another has replaced."""

    right: ClassVar[Action] = "write"
    id: str


class Delete(Frozen):
    right: ClassVar[Action] = "delete"
    id: str


class Promote(Frozen):
    """Make one derived cube of `ids` in the dearer form `to`."""

    right: ClassVar[Action] = "manage"
    ids: tuple[str, ...]
    to: Form


class Demote(Frozen):
    """Give up a derived cube for its sources."""

    right: ClassVar[Action] = "manage"
    id: str


class History(Frozen):
    right: ClassVar[Action] = "read"
    id: str


class Rewind(Frozen):
    """Take a session back to its first turns."""

    right: ClassVar[Action] = "write"
    session: str
    turns: int


class ChangeState(Frozen):
    """Change the state of a memory."""

    right: ClassVar[Action] = "manage"
    id: str
    to: State


class Rollback(Frozen):
    """Bring back what an old version said."""

    right: ClassVar[Action] = "write"
    id: str
    version: int


class TakeSnapshot(Frozen):
    right: ClassVar[Action] = "manage"
    name: str


class ListSnapshots(Frozen):
    right: ClassVar[Action] = "read"


class Restore(Frozen):
    """Take the whole namespace back to a snapshot."""

    right: ClassVar[Action] = "manage"
    name: str


class DeleteSnapshot(Frozen):
    right: ClassVar[Action] = "delete"
    name: str


class Dump(Frozen):
    """Write memories to a pack: these, or all of a namespace."""

    right: ClassVar[Action] = "read"
    ids: tuple[str, ...] = ()


class Load(Frozen):
    """Take over the memories of a pack."""

    right: ClassVar[Action] = "write"
    pack: str


class RemovePack(Frozen):
    """Take the memories of a pack out again."""

    right: ClassVar[Action] = "delete"
    pack: str


class ListPacks(Frozen):
    """List the packs that are installed."""

    right: ClassVar[Action] = "read"


class Untrust(Frozen):
    """No key stands for the name from now on."""

    right: ClassVar[Action] = "manage"
    name: str


class GiveRight(Frozen):
    """Grant a relation to a cube, or to all in a namespace; `grants` of the public calls tells more."""

    right: ClassVar[Action] = "manage"
    on: str | Namespace
    relation: Relation


class TakeRight(Frozen):
    """Take back what was granted."""

    right: ClassVar[Action] = "manage"
    on: str | Namespace


class ListRights(Frozen):
    right: ClassVar[Action] = "read"


class Join(Frozen):
    """Put a member into one of the caller's groups, or take it out."""

    right: ClassVar[Action] = "manage"
    group: str


class ListGroups(Frozen):
    right: ClassVar[Action] = "read"


class SetTrust(Frozen):
    """Say how far a memory is believed."""

    right: ClassVar[Action] = "manage"
    id: str
    trust: Trust


class Quarantined(Frozen):
    """List what is in quarantine."""

    right: ClassVar[Action] = "read"


class Holds(Frozen):
    """List what is held."""

    right: ClassVar[Action] = "read"


class Release(Frozen):
    """Let a memory out of quarantine."""

    right: ClassVar[Action] = "manage"
    id: str


class Hold(Frozen):
    """Lay a legal hold on a memory."""

    right: ClassVar[Action] = "manage"
    id: str
    why: str


class EndHold(Frozen):
    """Take a legal hold off a memory."""

    right: ClassVar[Action] = "manage"
    id: str


class ForgetUser(Frozen):
    """Remove all that is known of the caller."""

    right: ClassVar[Action] = "delete"


Operation = (
    Add | Episode | Search | Recall | Correct | Forget | Get | Update | Delete | Promote | Demote | History | Rewind
    | Tag | Rate | Fuse | Split | Reinstate
    | ChangeState | Rollback | TakeSnapshot | ListSnapshots | Restore | DeleteSnapshot
    | Dump | Load | RemovePack | ListPacks | Untrust
    | GiveRight | TakeRight | ListRights | Join | ListGroups
    | SetTrust | Quarantined | Holds | Release | Hold | EndHold | ForgetUser
)  # fmt: skip


Call = tuple[str, tuple[Any, ...], dict[str, Any]]  # of the kernel: name, values, named values; all of JSON
