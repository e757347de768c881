"""Defines the MemCube: one memory in one form and one state, with its header, payload and use."""

from __future__ import annotations

import re
import secrets
import time
from datetime import datetime, timezone
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from memos.errors import InputError

MOMENT = 14  # characters with which an id begins: when it was made
USER = "User"  # who "I" is where nobody is named
NOTED = "noted"  # kind of a turn of a chat that was carried out without the model, and is not shown to it
AT_LEAST = " at least"  # after the name of a share: its bound, with 95 % certainty
_WORDS = re.compile(r"\w+").findall


def plain(text: str) -> str:
    """The words of a text alone: the same for texts that differ in case, spaces and punctuation."""
    return " ".join(_WORDS(text.casefold()))


def in_zone(when: datetime | None) -> datetime | None:
    """A time without a zone is UTC, so that all times can be ordered. Raises InputError."""
    zoned = when if when is None or when.tzinfo else when.replace(tzinfo=timezone.utc)
    _ = zoned and in_utc(zoned)
    return zoned


def in_utc(when: datetime) -> datetime:
    """The same moment in UTC. Raises InputError for one that no year there has."""
    try:
        return when.astimezone(timezone.utc) if when.tzinfo else when.replace(tzinfo=timezone.utc)
    except OverflowError:
        raise InputError(f"{when} lies beyond the years 1 to 9999 in UTC; give a time within them") from None


class Word(str, Enum):
    """An enumeration whose members are their words, in text and in JSON (StrEnum, which Python 3.10 lacks)."""

    __str__ = str.__str__


class Form(Word):
    """How a memory reaches the model (MemOS 2507.03724, section 3)."""

    PLAINTEXT = "plaintext"  # text in the prompt
    ACTIVATION = "activation"  # KV cache in attention
    PARAMETRIC = "parametric"  # LoRA adapter in the weights


class State(Word):
    """Where a memory is in its life; `memos/operation/life/mem_lifecycle.py` has the table of moves."""

    GENERATED = "generated"
    ACTIVATED = "activated"
    COLD = "cold"
    MERGED = "merged"
    ARCHIVED = "archived"
    EXPIRED = "expired"
    FROZEN = "frozen"


GONE = frozenset({State.ARCHIVED, State.EXPIRED})  # a cube here answers nothing, nor does one derived from it
ANSWERING = tuple(state for state in State if state not in GONE | {State.MERGED})  # a merged one does through another


EPISODE, PASSAGE = "episode", "passage"  # Header.kind of a turn of a conversation, and of a part of a long one
SUMMARY = "summary"  # Header.kind of what sums up a part of a conversation
STEERING = "steering"  # Header.kind of a direction that every answer of its owner is steered by
BY_HAND = "promotion:asked"  # origin of a derived cube that somebody asked for, and no plan did
READ = "model:"  # origin of what a model has read in a turn, before the id of the copy that it read
TOLD = ("api", "chat")  # origins of what a person has said beside conversations that are kept word for word
PASSAGE_CHARS = 350  # about 80 tokens: twenty fit in front of a question


class Frozen(BaseModel):
    """A value: a change is a new value, and a misspelt field is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)  # a command builds those it uses


class Namespace(Frozen):
    """The address space a cube lives in, and the identity a caller acts under."""

    user_id: str = "default"
    agent_id: str = ""
    session_id: str = ""

    def covers(self, other: Namespace) -> bool:
        """True if a caller here reaches `other`: same user; an agent or session left empty reaches all."""
        same = self.user_id == other.user_id
        return same and self.agent_id in ("", other.agent_id) and self.session_id in ("", other.session_id)

    def __str__(self) -> str:
        """Another for each: the audit log knows callers by it."""
        parts = (self.user_id, self.agent_id, self.session_id)
        return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts).rstrip("/")


class MadeBy(Word):
    """How an adapter came to be."""

    TRAINING = "training"
    EDIT = "edit"  # brought up to date from an adapter of the same memories as they were before
    INSTANT = "instant"  # written in one forward by a network that was trained for the model
    REFINED = "refined"  # begun so, and trained on for a few steps


class Trust(Word):
    """How far a memory is believed, by where it came from; the most trusted first."""

    USER = "user"  # said by the user
    TOOL = "tool"  # told by a program that the user runs
    DOCUMENT = "document"  # read in a file
    MODEL = "model"  # written by a language model
    IMPORTED = "imported"  # from another system
    UNTRUSTED = "untrusted"  # from anybody

    @property
    def rank(self) -> int:
        """Higher for what is trusted less."""
        return tuple(Trust).index(self)


class Rights(Frozen):
    """Who owns a cube. readers: users to whom reading it is granted when it is first kept; grants tell it from then on
    (memos/rights.py), and a cube from the vault names none."""

    owner: str
    readers: tuple[str, ...] = ()


class Fact(Frozen):
    """What a statement says: `relation` is a name of the phrasebook, or of what is read beside it; "" is any."""

    subject: str
    relation: str
    object: str  # "" is all
    # from now on, beside others, in place of others; no longer or not; in the past only; in the future or as a wish
    mode: Literal["is", "also", "now", "ended", "was", "will"] = "is"
    sole: bool = False  # said of what has one value at a time

    @property
    def holds(self) -> bool:
        """True if it is so once it has been said."""
        return self.mode in ("is", "also", "now")


class Probe(Frozen):
    """A question with its expected answer; a held-out probe is never trained on."""

    question: str
    answer: str
    held_out: bool = False
    reversed: bool = False  # asks for the subject of a fact, by its object

    def holds(self, given: str) -> bool:
        """True if the expected answer stands in the given one, word for word; case and punctuation aside."""
        wanted, said = plain(self.answer), plain(given)
        return bool(wanted) and f" {wanted} " in f" {said} "


class Lesson(Frozen):
    """A question about a memory: the teacher sees `memories`, the student sees none."""

    memories: tuple[str, ...]
    probe: Probe


class Contrast(Frozen):
    """A prompt whose answer a new adapter must not change: closed-book, or over memories of something else.

    Where `answer` is given, the prompt counts only if the base model answers it so: an ability it does not have
    cannot be kept.
    """

    question: str
    answer: str = ""
    memories: tuple[str, ...] = ()
    held_out: bool = False
    known: bool = False  # the model may have the answer by heart
    contradicts: bool = False  # its memories contradict what the adapter has learnt


class Header(Frozen):
    """What is known about a memory beside its content."""

    # times have a zone, so that all of them can be ordered
    created: AwareDatetime  # when memos learnt it
    expires: AwareDatetime | None = None  # from then on it answers nothing, nor does what is derived from it
    changed: AwareDatetime | None = None  # when its content was last edited
    said: AwareDatetime | None = None  # when it was said, where the origin tells
    origin: str = "api"  # a file, "chat", "api", or the move that derived it
    trust: Trust = Trust.USER  # by its origin, or by that of its least trusted source
    speaker: str = ""
    role: str = ""  # user, assistant, ...: on which side of a conversation it was said
    thread: str = ""  # the conversation it was said in; what was said around it there helps to find it
    message_id: str = ""  # of the message that it is, where the program that sent it gave one
    segment: str = ""  # the topic group (MemoryOS segment) that is admitted and promoted together
    kind: str = "fact"  # semantic type
    tags: tuple[str, ...] = ()  # "always": in every request; "apart:NAME": in none beside another of that name
    metadata: str = ""  # JSON that a program keeps with it; memos reads none of it


class Source(Frozen):
    """A cube that another was derived from, pinned at the version that was read."""

    id: str
    version: int


class Text(Frozen):
    """Payload of a plaintext cube: the source of truth, as it was said."""

    type: Literal["text"] = "text"
    text: str  # as a model is shown it
    verbatim: str = ""  # what was said, word for word, where that is a turn of a conversation or a part of one
    facts: tuple[Fact, ...] = ()
    more: bool = False  # it says more than its facts
    probes: tuple[Probe, ...] = ()  # probes given by the user; those of `facts` come from the reader
    # of the file that it tells of, as a picture's caption does; None: there is none
    sha256: str | None = None
    bytes: int = 0
    media_type: str = ""


class Turn(Frozen):
    """Payload of a plaintext cube: one question of a conversation and its answer; without an answer, what somebody said
    that no rule reads (memos/kernel/unread.py)."""

    type: Literal["turn"] = "turn"
    question: str
    answer: str
    shown: tuple[str, ...] = ()  # memories that came into the conversation with the question
    since: str  # when the first turn was made that its prompt showed, as ids begin: that turn may be gone, or secret

    @property
    def said(self) -> str:
        """In one line."""
        return f"{self.question} | {self.answer}" if self.answer else self.question


FEW_ROWS = ("trained", "compact")  # codecs of KV that a gate judges, as it judges an adapter


class Blob(Frozen):
    """Payload of an activation or parametric cube: a file in the vault."""

    type: Literal["blob"] = "blob"
    sha256: str
    bytes: int
    tokens: int = 0  # tokens of prompt that it stands for
    codec: str = "raw"  # of KV; of FEW_ROWS: `tokens` rows of it, for more tokens than that
    after: int = 0  # tokens before those it stands for, which another cube holds
    pictures: int = 0  # that KV was read from, whose tokens stand in no prompt: no other KV is put beside it
    fingerprint: str  # digest of the host that made it
    build_s: float = 0.0
    beside: tuple[str, ...] = ()  # adapters, by sha256, that it was trained and judged together with
    scores: dict[str, float] = Field(default_factory=dict)  # what its gate or parity check measured
    made_by: MadeBy | None = None  # of an adapter
    unasked: tuple[int, ...] = ()  # places of sources that no question was made of: nothing proves they are in it

    @property
    def stored(self) -> str:
        """How the bytes of KV lie in its file."""
        return "raw" if self.few_rows else self.codec

    @property
    def few_rows(self) -> bool:
        """Whether rows of KV stand for more tokens than there are of them."""
        return self.codec in FEW_ROWS


Payload = Annotated[Text | Turn | Blob, Field(discriminator="type")]


class Usage(Frozen):
    """How a cube has been used; kept apart from its versions."""

    recalls: int = 0
    last_recalled: datetime | None = None
    repeats: int = 0  # times that it was told again
    utility: float = 0.0  # from -1 to 1: how much it has helped, by what was said of it and measured


def whose(speaker: str, said: datetime | None) -> str:
    """Who said something, and on which day, as it stands before the words."""
    return f"{speaker}, {said:%-d %B %Y}" if said else speaker


def undated(text: str, speaker: str, said: datetime | None) -> str:
    """What somebody said, without the day on which that was."""
    dated = f"{whose(speaker, said)}: "
    return f"{speaker}: {text[len(dated) :]}" if text.startswith(dated) else text


class MemCube(Frozen):
    """One memory: identity, header, payload, usage."""

    id: str
    version: int = 1
    form: Form
    state: State = State.GENERATED
    namespace: Namespace = Namespace()
    rights: Rights
    header: Header
    payload: Payload
    sources: tuple[Source, ...] = ()  # empty for a plaintext cube as it was said
    usage: Usage = Usage()

    @property
    def text(self) -> str:
        """The text of a plaintext cube; "" for the other forms."""
        return self.payload.text if isinstance(self.payload, Text) else ""

    @property
    def words(self) -> str:
        """What is compared with a query: of what was said, without who said it and when; of a statement, without
        when."""
        if isinstance(self.payload, Text) and self.header.kind in (EPISODE, PASSAGE):
            return self.payload.verbatim
        return undated(self.text, self.header.speaker, self.header.said)

    @property
    def rests_on(self) -> tuple[Source, ...]:
        """The sources that whoever reads it must be able to read. Not the turns that it was read in or quotes: it can
        be shared without what else was said."""
        is_said = isinstance(self.payload, Text) and (self.payload.verbatim or self.header.origin.startswith(READ))
        return () if is_said or self.header.kind == SUMMARY else self.sources

    @property
    def is_cut(self) -> bool:
        """True of a turn so long that it is found by its passages."""
        return self.header.kind == EPISODE and len(self.words) > PASSAGE_CHARS

    @property
    def pin(self) -> Source:
        """As what is made of it, as it is now, names it."""
        return Source(id=self.id, version=self.version)

    @property
    def blob(self) -> Blob | None:
        return self.payload if isinstance(self.payload, Blob) else None

    @property
    def stored(self) -> str:
        """The digest of what the vault keeps of it as a file: its payload, or what a text tells of; "" for nothing."""
        return "" if isinstance(self.payload, Turn) else self.payload.sha256 or ""

    @property
    def is_picture(self) -> bool:
        """True of a text that tells of one."""
        return self.media_type.startswith("image/")

    @property
    def media_type(self) -> str:
        """Of the file of a text; "" where it has none."""
        return self.payload.media_type if isinstance(self.payload, Text) else ""

    @property
    def stands_in(self) -> bool:
        """True of KV and adapters that answer in place of their memories; a conversation's KV goes with its turns."""
        return self.blob is not None and self.header.kind not in ("turn", STEERING)

    @property
    def unasked(self) -> list[str]:
        """Ids of the memories of an adapter, or of trained KV, that its scores do not tell of."""
        places = self.blob.unasked if self.blob else ()
        return [source.id for place, source in enumerate(self.sources) if place in places]

    @property
    def asked(self) -> str:
        """How many of its memories the scores tell of, in words; "" for all."""
        left, count = self.unasked, len(self.sources)
        return f"asks about {count - len(left)} of {count} memories; not asked: {', '.join(left)}" if left else ""

    @property
    def order(self) -> tuple[datetime, str]:
        """Canonical order of cubes in a prompt: as they were said, so that a later statement wins."""
        return self.header.said or self.header.created, self.id


_latest = 0  # µs since 1970: of the last name


def new_id() -> str:
    """A name for a new cube; later names sort after earlier ones of the same process, even as the clock goes back."""
    global _latest
    _latest = max(_latest + 1, time.time_ns() // 1000)
    return f"{_latest:0{MOMENT}x}{secrets.token_hex(5)}"  # not counted: that would tell how many others made


def new_cube(namespace: Namespace, header: Header, payload: Text | Turn | Blob, **more: Any) -> MemCube:
    """A cube that was not there before: a plaintext one that its user owns, unless `more` says otherwise."""
    usual = {"id": new_id(), "form": Form.PLAINTEXT, "rights": Rights(owner=namespace.user_id)}
    return MemCube(namespace=namespace, header=header, payload=payload, **usual | more)


def ids_after(when: datetime) -> None:
    """Names that are made from here on sort after those that were made before `when`, in whichever process."""
    global _latest
    _latest = max(_latest, int(when.timestamp() * 1e6))
