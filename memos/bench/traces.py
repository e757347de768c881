"""Traces of what memories are used for: who asked for which topic group, and when. Made by rules, or recorded.

The generated ones are of people who talk with a memory. Their figures were set before any policy was run on them:

- A session has 10 requests in the mean (geometric), a minute apart: LoCoMo's have 21.6 turns of two speakers.
- A conversation stays on a topic for 4 requests (geometric; TIAGE, arXiv 2109.04562, finds shifts as often), each of
  which uses one of the 3 to 12 groups of the topic. Then it goes on to one of three topics that this one leads to, or,
  as often, to any by its popularity. One request in twenty uses any group at all.
- Popularity of topics is Zipf with exponent 1, that of the groups within one with exponent 0.8.
- People have sessions on some days more than once (Poisson), about the hour of their habit (1.5 hours deviation).
- A group has 32 to 256 tokens: `scheduler.segment_tokens` is the most.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from random import Random

from memos.bench.locomo import Conversation
from memos.bench.locomo import read as read_conversations
from memos.errors import InputError

REQUESTS = 20_000
DAY, HOUR, MINUTE = 86_400.0, 3_600.0, 60.0
_SEGMENT = 256  # tokens, SchedulerConfig.segment_tokens
_LETTERS = 4  # of a token


@dataclass(frozen=True)
class Access:
    """A request of a user that uses the memories of one topic group."""

    at: float  # seconds
    user: str
    group: str
    tokens: int


@dataclass(frozen=True)
class Talk:
    """What differs between the generated traces.

    moving: share of the topics that exchange their places in popularity every day. bursts: chance of one each day; one
    draws six in ten choices of a topic to one topic, any, for half a day in the mean.
    """

    users: int
    topics: int
    own: bool = False  # each user has so many topics; else all have these
    moving: float = 0.0
    bursts: float = 0.0
    sessions: float = 2.0  # a day, of a user in the mean; users differ by Zipf's law with exponent 0.5


GENERATED = {
    "zipf": Talk(users=8, topics=200),
    "drift": Talk(users=8, topics=200, moving=0.1),
    "bursts": Talk(users=8, topics=200, bursts=0.5),
    "tenants": Talk(users=100, topics=10, own=True),
}


@dataclass(frozen=True)
class _Burst:
    start: float = 0.0
    end: float = 0.0
    topic: int = 0

    def topic_at(self, at: float, draw: Random) -> int | None:
        """The topic that everybody talks about, if the next choice falls on it."""
        return self.topic if self.start <= at < self.end and draw.random() < 0.6 else None


class _Topics:
    """Topics of a user, or of all: how popular each is, and where a conversation goes from each."""

    def __init__(self, name: str, number: int, draw: Random) -> None:
        self._groups = [
            [(f"{name}topic {t}, group {g}", draw.randint(32, _SEGMENT)) for g in range(draw.randint(3, 12))]
            for t in range(number)
        ]
        self._leads = [[draw.randrange(number) for _ in range(3)] for _ in range(number)]
        self._places = list(range(number))  # of each topic in the order of popularity
        draw.shuffle(self._places)

    def move(self, share: float, draw: Random) -> None:
        """So many topics exchange their places."""
        moved = draw.sample(range(len(self._places)), round(share * len(self._places)))
        places = draw.sample([self._places[t] for t in moved], len(moved))
        for topic, place in zip(moved, places, strict=True):
            self._places[topic] = place

    def any(self, draw: Random) -> int:
        return draw.choices(range(len(self._places)), [1 / (1 + place) for place in self._places])[0]

    def next(self, topic: int | None, called: int | None, draw: Random) -> int:
        if called is not None:
            return called
        return draw.choice(self._leads[topic]) if topic is not None and draw.random() < 1 / 2 else self.any(draw)

    def group(self, topic: int, draw: Random) -> tuple[str, int]:
        groups = self._groups[topic]
        return draw.choices(groups, [(1 + n) ** -0.8 for n in range(len(groups))])[0]


def generate(name: str, seed: int, requests: int = REQUESTS) -> list[Access]:
    """One of the GENERATED traces; the same for the same seed."""
    talk, draw = GENERATED[name], Random(f"{name} {seed}")
    shared = _Topics("", talk.topics, draw)
    topics = [_Topics(f"user {u}, ", talk.topics, draw) if talk.own else shared for u in range(talk.users)]
    activity = [(1 + u) ** -0.5 for u in range(talk.users)]
    habits = [draw.uniform(8, 22) * HOUR for _ in range(talk.users)]
    out, day, burst = list[Access](), 0, _Burst()
    while len(out) < requests:
        shared.move(talk.moving, draw)
        if draw.random() < talk.bursts:
            start = day * DAY + draw.uniform(8, 22) * HOUR
            burst = _Burst(start, start + draw.expovariate(2 / DAY), draw.randrange(talk.topics))
        for user in range(talk.users):
            mean = talk.sessions * talk.users * activity[user] / sum(activity)
            for _ in range(_poisson(mean, draw)):
                start = day * DAY + draw.gauss(habits[user], 1.5 * HOUR)
                out += _session(f"user {user}", start, topics[user], burst, draw)
        day += 1
    return sorted(out, key=lambda access: access.at)[:requests]


def _session(user: str, at: float, topics: _Topics, burst: _Burst, draw: Random) -> list[Access]:
    out = list[Access]()
    topic = topics.next(None, burst.topic_at(at, draw), draw)
    while not out or draw.random() >= 1 / 10:
        if out and draw.random() < 1 / 4:
            topic = topics.next(topic, burst.topic_at(at, draw), draw)
        group, tokens = topics.group(topics.any(draw) if draw.random() < 1 / 20 else topic, draw)
        out.append(Access(at, user, group, tokens))
        at += draw.expovariate(1 / MINUTE)
    return out


def _poisson(mean: float, draw: Random) -> int:
    """Knuth's, which is fine for a few."""
    number, product = 0, draw.random()
    while product > math.exp(-mean):
        number, product = number + 1, product * draw.random()
    return number


def trace(name: str, seed: int) -> list[Access]:
    """A generated trace by name, a recorded one from its file, or LoCoMo's dialogues. Raises InputError."""
    if name in GENERATED:
        return generate(name, seed)
    path = Path(name)
    if path.suffix == ".jsonl":
        return recorded(path)
    if path.suffix == ".json":
        return of_dialogues(read_conversations(path))
    raise InputError(
        f"there is no trace {name!r}; give one of {', '.join(GENERATED)}, a .jsonl file of accesses, or a .json file "
        "of LoCoMo's dialogues"
    )


def recorded(path: Path) -> list[Access]:
    """A file with {"at": seconds or ISO time, "user": name, "group": name, "tokens": number} on each line, in the order
    of time. Raises InputError."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); give a UTF-8 file with one access on each line") from None
    out = list[Access]()
    for n, line in enumerate(lines, start=1):
        if line.strip():
            access = _access(line, f"{path}:{n}")
            if out and access.at < out[-1].at:
                raise InputError(f"{path}:{n} is earlier than the line before it; sort the file by its time")
            out.append(access)
    if not out:
        raise InputError(f"{path} holds no accesses; {_LINE}")
    return out


def record(accesses: Sequence[Access], path: Path) -> None:
    """Write a trace as `recorded` reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(a)) + "\n" for a in accesses), "utf-8")


_LINE = 'each line is {"at": seconds or ISO time, "user": name, "group": name, "tokens": a number from 1 on}'


def _access(line: str, where: str) -> Access:
    try:
        match json.loads(line):
            case {"at": at, "user": str() as user, "group": str() as group, "tokens": tokens}:
                seconds = _moment(at)
                if type(tokens) is int and tokens >= 1 and math.isfinite(seconds):  # True is an int, and no number here
                    return Access(seconds, user, group, tokens)
    except ValueError as error:
        raise InputError(f"{where} is not an access ({error}); {_LINE}") from None
    raise InputError(f"{where} is not an access; {_LINE}")


def _moment(at: object) -> float:
    if type(at) in (int, float):
        return float(at)  # type: ignore[arg-type]
    if not isinstance(at, str):
        raise ValueError(f"{at!r} is no time")
    when = datetime.fromisoformat(at)
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()


def of_dialogues(conversations: Sequence[Conversation]) -> list[Access]:
    """What the questions about dialogues use: the parts of sessions, of at most 256 tokens, that hold their evidence.

    A question is asked once its evidence has been said, a minute after the one before: the questions on a session, in
    their order in the file, follow that session. Tokens are estimated as four letters each.
    """
    out = list[Access]()
    for conversation in conversations:
        parts, tokens = _parts(conversation)
        place = {name: n for n, name in enumerate(conversation.turns)}
        at = -math.inf
        for question in sorted(conversation.questions, key=lambda q: max(place[name] for name in q.evidence)):
            used = sorted(question.evidence, key=lambda name: place[name])
            said = conversation.turns[used[-1]].said
            assert said  # every turn of LoCoMo has its session's time
            at = max(said.timestamp(), at + MINUTE)
            out += [Access(at, conversation.name, g, tokens[g]) for g in dict.fromkeys(parts[name] for name in used)]
    return sorted(out, key=lambda access: access.at)


def _parts(conversation: Conversation) -> tuple[dict[str, str], dict[str, int]]:
    """The group of each turn, and the tokens of each group."""
    parts, tokens, number = dict[str, str](), dict[str, int](), Counter[str]()
    for name, turn in conversation.turns.items():
        need = -(-len(turn.text) // _LETTERS)
        group = f"{conversation.name} {turn.thread}, part {number[turn.thread]}"
        if tokens.get(group, _SEGMENT) + need > _SEGMENT:
            number[turn.thread] += 1
            group = f"{conversation.name} {turn.thread}, part {number[turn.thread]}"
        parts[name] = group
        tokens[group] = tokens.get(group, 0) + need
    return parts, tokens
