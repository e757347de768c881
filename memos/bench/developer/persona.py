"""`memos bench persona`: tells a memory the lives of invented people through the front door, and asks about them.

The people lie in scripts/reader/personas, each a user of the default configuration: what they say over nine months, and
questions at the end; pairs of messages of which the second changes the first; and requests to the memory. A pair and a
request have a user of their own. All is told message by message, and what is read in the background is waited for.
"""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import memos
from memos.cube import State
from memos.errors import InputError, MemosError
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.api.values import Item, Json
from memos.plugins.progress import Show

PEOPLE = Path(memos.__file__).parents[1] / "scripts" / "reader" / "personas"
TOP_K = 3
MAX_LISTED = 10_000
_STATES = (None, State.ARCHIVED, State.MERGED)  # in force; replaced by what was said later; said before
_WEEK = datetime.timedelta(weeks=1)
_MONDAY = datetime.datetime(2026, 5, 4, 9, tzinfo=datetime.timezone.utc)  # of a pair

Part = Literal["messages", "questions", "changes", "requests"]
Words = tuple[str, ...]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Message(_Entry):
    """What somebody says on a day."""

    date: datetime.date
    text: str


class Question(_Entry):
    """What is asked at the end; one of the words of `answer` stands in each of the right messages, told by number."""

    ask: str
    answer: Words
    messages: tuple[int, ...]


class Change(_Entry):
    """Two messages, of which the later one changes what the earlier one says; `now`: words of the new state."""

    earlier: str
    later: str
    question: str
    now: Words


class Request(_Entry):
    """What is asked of the memory, message by message, after what was said; and what holds afterwards.

    gone: words that no memory has. stays: words that memories in force have, also those that `partner` sees. says:
    words of the last reply. asks: to lose nothing and to ask back is right, too, or alone where no words are named.
    """

    said: Words
    chat: Words
    gone: Words
    stays: Words
    says: Words = ()
    partner: str = Field("", alias="with")
    asks: bool = False


class Person(_Entry):
    """An invented person; messages by number, in the order of time."""

    name: str
    messages: dict[int, Message]
    questions: tuple[Question, ...]
    changes: tuple[Change, ...]
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class Verdict:
    """Whether one message, question, pair or request of somebody came out right, and what came out."""

    person: str
    part: Part
    is_right: bool
    message: Sequence[str]
    expected: Json
    got: Json
    is_first: bool = False  # of a pair: the new state, not both with their days
    is_told: bool = False  # of a question, and of a pair: the reply of a chat has an answer, or the new state


def people(folder: Path = PEOPLE) -> list[Person]:
    """Those of the checkout, by name. Raises InputError."""
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise InputError(f"{folder} has no people (*.yaml); run the benchmark in a checkout of memos")
    try:
        return [Person.model_validate(yaml.safe_load(file.read_text("utf-8"))) for file in files]
    except (OSError, ValidationError, yaml.YAMLError) as error:
        raise InputError(f"{folder} has people that cannot be read: {error}") from None


def bench_persona(show: Show, chosen: Sequence[Person] | None = None, infer: bool = True) -> dict[str, Json]:
    """kept: messages that can be read back word for word. top3: the share of questions of which one of the first
    three memories has an answer; told: of which a reply of `chat` has. changes: of pairs of which the first memory has
    the new state, or the three have both states with their days; first: the former alone; told_now: of which a reply of
    `chat` has the new state. requests: of requests after which all holds that should. None for a part that somebody
    lacks. infer: as of `add`, for what they say over the months. Raises InputError."""
    told, verdicts = list(people() if chosen is None else chosen), list[Verdict]()
    steps = sum(len(p.messages) + len(p.questions) + len(p.changes) + len(p.requests) for p in told)
    with tempfile.TemporaryDirectory() as folder, Memory(vault=Path(folder) / "vault") as memory:
        for person in told:
            for judged in (_life(memory, person, infer), _changes(memory, person), _requests(memory, person)):
                for verdict in judged:
                    verdicts.append(verdict)
                    show(person.name, len(verdicts), steps)
    names = ["all", *(person.name for person in told)]
    rows = [{"people": name, **_figures([v for v in verdicts if name in ("all", v.person)])} for name in names]
    failures = [
        {k: v for k, v in vars(verdict).items() if not k.startswith("is_")}
        for verdict in verdicts
        if not verdict.is_right
    ]
    return {**_figures(verdicts), "rows": rows, "failures": failures}


def _figures(verdicts: Sequence[Verdict]) -> dict[str, float | None]:
    def judged(part: Part, what: str = "is_right") -> list[bool]:
        return [getattr(verdict, what) for verdict in verdicts if verdict.part == part]

    def share(of: list[bool]) -> float | None:
        return sum(of) / len(of) if of else None

    return {
        "sentences": len(judged("messages")),
        "kept": sum(judged("messages")),
        "questions": len(judged("questions")),
        "top3": share(judged("questions")),
        "told": share(judged("questions", "is_told")),
        "pairs": len(judged("changes")),
        "changes": share(judged("changes")),
        "first": share(judged("changes", "is_first")),
        "told_now": share(judged("changes", "is_told")),
        "requests": share(judged("requests")),
    }


def _life(memory: Memory, person: Person, infer: bool) -> Iterator[Verdict]:
    for n, message in person.messages.items():  # a minute apart: a message is known by its time
        morning = datetime.datetime.combine(message.date, datetime.time(9), datetime.timezone.utc)
        _add(memory, person.name, message.text, morning + datetime.timedelta(minutes=n), infer)
    memory.tick(user_id=person.name)
    kept = {one["message"] for one in _listed(memory, person.name, _STATES)}
    in_force = {one["message"] for one in _listed(memory, person.name)}
    for message in person.messages.values():
        yield Verdict(person.name, "messages", message.text in kept, [message.text], "kept", "not kept word for word")
    for question in person.questions:
        hits = _found(memory, person.name, question.ask)
        sources = [person.messages[n].text for n in question.messages]
        expected = {"answer": question.answer, "messages": sources}
        is_right = any(_has(hit["memory"], question.answer) for hit in hits)
        got = {"memories": [hit["memory"] for hit in hits], "out_of_force": [t for t in sources if t not in in_force]}
        is_told = _has(_reply(memory, [_said(question.ask)], person.name), question.answer)
        yield Verdict(person.name, "questions", is_right, [question.ask], expected, got, is_told=is_told)


def _changes(memory: Memory, person: Person) -> Iterator[Verdict]:
    for n, change in enumerate(person.changes):
        user = f"{person.name} change {n}"
        for text, when in ((change.earlier, _MONDAY), (change.later, _MONDAY + _WEEK)):
            _add(memory, user, text, when)
            memory.tick(user_id=user)  # within the week it has been read
        hits = _found(memory, user, change.question)
        states = [_has(hit["memory"], change.now) for hit in hits]
        is_dated = {hit["said_at"] for hit in hits} == {when.isoformat() for when in (_MONDAY, _MONDAY + _WEEK)}
        is_right = any(states[:1]) or (any(states) and is_dated)
        told = [change.earlier, change.later, change.question]
        got = [hit["memory"] for hit in hits]
        is_told = _has(_reply(memory, [_said(change.question)], user), change.now)
        yield Verdict(person.name, "changes", is_right, told, change.now, got, any(states[:1]), is_told)


def _requests(memory: Memory, person: Person) -> Iterator[Verdict]:
    for n, request in enumerate(person.requests):
        user, turns, reply = f"{person.name} request {n}", list[dict[str, Json]](), ""
        if request.partner:
            memory.add("I am new here.", user_id=request.partner)
        for text in request.said:
            turns.append(_said(text))
            memory.add(turns[-1:], user_id=user)
        memory.tick(user_id=user)
        for text in request.chat:
            turns.append(_said(text))
            reply = _reply(memory, turns, user)
            turns.append({"role": "assistant", "content": reply})
        memory.tick(user_id=user)
        left = [one["memory"] for one in _listed(memory, user)]
        yield Verdict(
            person.name,
            "requests",
            _is_done(memory, user, request, reply),
            [*request.said, *request.chat],
            request.model_dump(exclude_defaults=True, by_alias=True, exclude={"said", "chat"}),
            {"reply": reply, "memories": left},
        )


def _is_done(memory: Memory, user: str, request: Request, reply: str) -> bool:
    """Whether all holds that the request names, or nothing was lost and it asked back where that is right."""
    there, ever = _listed(memory, user), _listed(memory, user, _STATES)
    if request.asks and ("?" in reply or "？" in reply) and {one["message"] for one in there} >= set(request.said):
        return True
    seen = [there] + ([_found(memory, request.partner, request.chat[-1])] if request.partner else [])
    return (
        bool(request.gone or request.stays or request.says)
        and not any(_has(one["memory"] + one["message"], request.gone) for one in ever)
        and all(any(_has(one["memory"], [word]) for one in some) for word in request.stays for some in seen)
        and all(_has(reply, [word]) for word in request.says)
    )


def _said(text: str) -> dict[str, Json]:
    return {"role": "user", "content": text}


def _reply(memory: Memory, turns: list[dict[str, Json]], user: str) -> str:
    try:
        return memory.chat(turns, user_id=user)["text"]
    except MemosError as error:  # all that somebody sees: the packaged model refuses to answer in Chinese
        return f"error: {error}"


def _add(memory: Memory, user: str, text: str, when: datetime.datetime, infer: bool = True) -> None:
    memory.add([{"role": "user", "content": text, "time": when.isoformat()}], infer=infer, user_id=user)


def _found(memory: Memory, user: str, query: str) -> list[Item]:
    return memory.search(query, limit=TOP_K, user_id=user)["results"]


def _listed(memory: Memory, user: str, states: Sequence[State | None] = (None,)) -> list[Item]:
    return [one for state in states for one in memory.get_all(state=state, limit=MAX_LISTED, user_id=user)["results"]]


def _has(text: str, words: Sequence[str]) -> bool:
    return any(word in text.casefold() for word in words)
