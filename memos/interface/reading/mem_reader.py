"""Turns language into operations: files and turns into statements, messages into requests, facts into probes.

What is kept of a conversation is read by rules: a sentence where the phrasebook finds a fact in it, where the speaker
asks for it, or where it states something concrete; what the rules do not read is never guessed. What a message asks
for, of which there is no end of wordings, is read by a tagger that was trained for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from unicodedata import category

from typing_extensions import assert_never

from memos.cube import USER, Contrast, Fact, Lesson, Probe, Text, whose
from memos.errors import InputError
from memos.interface.reading.contrasts import askable, contrasts, lessons, probes
from memos.interface.reading.documents.conversation import conversation
from memos.interface.reading.documents.parts import DialogueTurn, Part, Passage, TableRow, ToolCall, read
from memos.interface.reading.episodes import episode
from memos.interface.reading.phrasebook import (
    SPEAKER,
    is_all_parsed,
    is_known_question,
    language,
    messages_in,
    opened,
    parse,
    parse_question,
    require_text,
    sentences,
)
from memos.interface.reading.requests import arguments, corrections, intents, references, telling, wordings
from memos.interface.reading.requests.arguments import MessageTagger
from memos.interface.reading.requests.intents import SentenceIntent
from memos.interface.reading.statements import tagged
from memos.interface.reading.statements.statements import asked_of, says_change
from memos.interface.reading.statements.statements import read as read_statement
from memos.interface.reading.statements.tagged import TaggedStatement
from memos.interface.reading.times import times
from memos.lazy import pattern
from memos.ops import Add, Asked, Correct, Episode, Forget, Recall

UNSAID = ("system", "developer")  # roles of what a program says, which nobody has said in the conversation
TOOL_TRACE = "tool-trace"  # Header.kind of what a call of a tool came to
_SAME_SUBJECT = pattern(r"(?:It|He|She|They|This|That|These|Those|Its|His|Her|Their)\b")


@dataclass(frozen=True)
class _Origin:
    """Where a statement comes from, who made it, and when or under which heading."""

    origin: str
    speaker: str = ""
    time: datetime | None = None
    heading: str = ""


class MemReader:
    """Turns files, conversations, requests and questions into operations and probes."""

    def __init__(self, tagger: MessageTagger | None = None, statement_tagger: MessageTagger | None = None) -> None:
        """tagger: finds what a message asks for. statement_tagger: what one states beside what the rules read."""
        self._tagger, self._statement_tagger = tagger, statement_tagger

    def read_content(
        self, content: Path | Iterable[dict[str, object]], infer: bool = True
    ) -> tuple[list[Episode | Add], list[Episode]]:
        """(what is to be kept of a file or of turns; of these, the turns of people in which no rule finds anything).
        infer: False reads no statements in turns. A turn that asks not to be kept is not. Raises InputError,
        EmptyMemory."""
        origin = str(content) if isinstance(content, Path) else "turns"
        found, unread = list[Episode | Add](), list[Episode]()
        for part in read(content) if isinstance(content, Path) else _conversation(content, origin):
            if not isinstance(part, DialogueTurn):
                found += self._part(part, origin)
            elif part.content.strip() and part.role not in UNSAID:
                if not part.silent and self.withholds(part.content):
                    if wordings.UNKEPT.fullmatch(part.content.strip()):  # it is the turn before that is meant
                        own = [op for op in found if isinstance(op, Episode) and op.turn.speaker == part.speaker]
                        found = [op for op in found if op not in own[-1:]]
                        unread = [op for op in unread if op not in own[-1:]]
                    continue
                statements = tuple(self._spoken(part, origin)) if infer else ()
                found.append(said := episode(part, origin, statements))
                forgets = any(intents.forgets(one, part.speaker) for one in sentences(part.content))
                if infer and not (statements or part.silent or forgets):
                    unread.append(said)
        return found, unread

    def read_turn(self, speaker: str, words: str, said: datetime | None, role: str) -> Episode:
        """A turn that was kept, read anew."""
        turn = DialogueTurn(speaker, words, said, silent=role == "assistant", role=role)
        return episode(turn, "turns", tuple(self._spoken(turn, "turns")))

    def stated(self, words: str, speaker: str, day: date) -> list[TaggedStatement]:
        """What somebody's words state, of whom and when. day: of saying them. TypeError without a tagger."""
        return tagged.read(words, speaker, day, _given(self._statement_tagger))

    def ends(self, earlier: str, later: str, alike: float, speaker: str, day: date, shared: float = 1.0) -> bool:
        """True if what somebody said does not hold any more after what the same one said later, on that day. alike:
        cosine of the two. shared: of the earlier one's words that say something, the share that the later one has."""
        return tagged.ends(earlier, later, alike, shared, speaker, day, _given(self._statement_tagger))

    def of_statement(self, stated: TaggedStatement, speaker: str, said: datetime | None = None) -> Add:
        """A statement as one to remember, with the day that it names behind its words."""
        words = stated.words.rstrip(" .!。！")
        dated = f"{words} ({stated.when})" if stated.when and not times.is_dated(words) else words
        return Add(
            text=_line(dated, speaker, stated.facts, said),
            verbatim=stated.words,
            speaker=speaker,
            segment=stated.subject,
            kind="fact" if stated.facts else "note",
            facts=stated.facts,
        )

    def attributed(self, text: str, speaker: str) -> Add | Correct:
        """What somebody else says of a speaker's turn, as one memory: the speaker's words only in the first person."""
        return self.statement(text, speaker if intents.FIRST_PERSON.search(text) else "")

    def read_turns(self, turns: Iterable[dict[str, object]], origin: str) -> list[Add | Correct]:
        """One operation per statement worth keeping in turns of {role or speaker, content, time?}, or tool call."""
        return [op for part in _conversation(turns, origin) for op in self._part(part, origin)]

    def read_message(self, text: str) -> list[Add | Correct]:
        """One operation per statement worth keeping in what the user says in a chat. Raises InputError."""
        _require_words(text)
        plain = intents.spelled_out(text)
        return [] if plain != text and intents.is_asked(plain) else self._spoken(DialogueTurn(USER, text), "chat")

    def passage(self, text: str, heading: str, origin: str) -> list[Add | Correct]:
        """One operation per statement of written text, all of which is worth keeping."""
        return self._written(Passage(text, heading), origin)

    def read_request(
        self, text: str, turns: Sequence[Mapping[str, object]] = (), today: date | None = None
    ) -> tuple[Asked, ...]:
        """What a message asks for, in its words. turns: what was said before it. today: its day, against which times
        resolve; by default this one. Raises InputError; TypeError without a tagger."""
        _require_words(text)
        text = wordings.IF_TOLD.sub("", text.strip())
        if (plain := intents.spelled_out(text)) == text:
            return self._read_request(text, turns, today or _today())
        asked = self._read_request(plain, turns, today or _today())
        if len(plain) != len(text) and any(one.intent in ("remember", "correct", "withhold") for one in asked):
            return self._read_request(text, turns, today or _today())  # what is told is kept as it was said
        return tuple(intents.as_written(one, plain, text) for one in asked)

    def _read_request(self, text: str, turns: Sequence[Mapping[str, object]], day: date) -> tuple[Asked, ...]:
        if wordings.ASKS_PLAINLY.match(text) and not re.search(r"[.!?:;]", text):
            text += "?"  # as the tagger knows questions
        turns, whole_talk = turns[-6:], turns  # it is read with the latest, and may put right what was told long before
        if asked := self._plainly_asked(text, turns, day):
            return (asked,)
        [first, *more] = found = arguments.read(text, turns, day, _given(self._tagger))
        if asked := self._put_right(text, first, whole_talk, day):
            return (asked,)
        if not more and (asked := intents.follow_up(text, first, turns)):
            return (asked,)
        clear = not more and (first.doubted or first.intent in ("forget", "rollback"))
        opens, *behind = re.split("[,，]", text, maxsplit=1)
        undo = any(map(wordings.UNDO.fullmatch, (text, opens)))  # "undo that, I need it"
        if undo or (first.doubted == "rollback" and not first.what):
            return (Asked(intent="ask_back", doubted="rollback", last="done"), *more)
        is_last = first.doubted == "forget" and wordings.LAST_SAID.fullmatch(first.what)
        if is_last or wordings.TAKES_BACK.fullmatch(text) or wordings.UNKEPT.fullmatch(text):
            back = first if clear else Asked(intent="ask_back", doubted="forget")
            return (back.model_copy(update={"last": "said"}), *more)
        intent, words = intents.intent(text, USER)
        if intent is SentenceIntent.FORGET and not more and first.doubted == "correct":
            return (Asked(intent="forget", what=words),)  # "Forget that ..." says which of the two
        is_order = first.intent == "forget" and first.what in text
        if not more and (order := intents.to_forget(text, first, lambda told: bool(self._stated(told, day)))):
            return order
        names = behind and not is_order and re.search(r"(?i)\b(?:my|our|the)\b", opens)
        if names and (named := wordings.FORGETS.fullmatch(opens)):
            [first, *more] = found = [Asked(intent="forget", what=next(filter(None, named.groups())))]
        tells = first.intent != "recall" or language(text) == "zh"
        if changes := telling.to_change(text, found):
            return (changes,)
        stated = self._stated(text, day) if tells else []
        states, has_fact = bool(stated or self.facts(text)), any(one.facts for one in stated)
        days = [one.when for one in stated]
        odd = [one for one in found if one.intent not in ("remember", "correct")] if more else [first]
        is_one = all(one.doubted == "correct" or intents.is_unsaid(text, one) for one in odd)
        is_one = not more or is_one or all(one.intent == "recall" for one in found)  # a statement may be torn
        is_told = is_one and odd and intents.is_told(text, odd[0], states, has_fact, day)
        if (more and telling.tells_on(text, found)) or is_told:
            told = references.resolved(text, references.known(turns), is_told=True)
            return (Asked(intent="remember", what=told, when=intents.day_of(days, "", text)),)
        for_model = first.intent in ("remember", "correct") and wordings.ASKS_MODEL.match(text)
        of_life = first.intent in ("talk", "remember", "correct", "ask_back") and intents.asks_of_life(text)
        if not more and (for_model or of_life):
            return (Asked(intent="recall", what=text),)
        if not more and first.intent == "recall" and wordings.REMINDS.match(text):
            return (Asked(intent="remember", what=text, when=first.when),)
        if any(one.ask == "why" for one in found) and not wordings.ORIGIN.search(text):  # "原来说的是几月?"
            return (Asked(intent="recall", what=text),)
        meant = [one for one in found if one.intent != "forget" or wordings.GETS_RID.search(text)]
        rest = telling.told_behind(text, meant[0].what) if [one.intent for one in meant] == ["forget"] else ""
        if rest and (self._stated(rest, day) or self.facts(rest)):
            meant.append(Asked(intent="remember", what=rest))
        if any(one.intent == "forget" for one in meant):
            meant = [one for one in meant if one.intent != "remember" or not wordings.STAYS.search(one.what)]
        if not more and first.intent in ("remember", "correct"):
            whole = telling.whole(first, text, self.facts)
            meant = [whole.model_copy(update={"when": intents.day_of(days, whole.when, text)})]
        return tuple(telling.untorn(meant, text, [one.words for one in stated])) or (Asked(intent="talk"),)

    def _plainly_asked(self, text: str, turns: Sequence[Mapping[str, object]], day: date) -> Asked | None:
        """What a message asks for by its form alone; None where that does not tell."""
        if self.withholds(text) and not wordings.UNKEPT.fullmatch(text):
            return Asked(intent="withhold", what=intents.intent(text, USER)[1])
        all_of = wordings.FORGETS_ALL.fullmatch(text)
        every = all_of["all"] or all_of["zh_all"] if all_of else ""
        if every and (naming := self.forget(every).naming):
            doubted = "forget" if naming == USER else ""
            return Asked(intent="ask_back" if doubted else "forget", what=every, doubted=doubted)
        if wordings.REPLIES.fullmatch(text) or wordings.SMALL_TALK_ZH.fullmatch(text):
            return Asked(intent="talk")
        if lists := wordings.LISTS.fullmatch(text):
            return Asked(intent="about", ask="list", what=next(filter(None, lists.groups())))
        if asked := self._asked_within(text, turns, day):
            return asked
        is_asked = is_known_question(text) or wordings.JUST_A_NOUN.fullmatch(text)
        return Asked(intent="recall", what=text, who=references.who(text)) if is_asked else None

    def _put_right(self, text: str, asked: Asked, turns: Sequence[Mapping[str, object]], today: date) -> Asked | None:
        """A correction of what was told by what is right: "no, it's 5200"; None for any other message."""

        def facts(line: str) -> list[Fact]:
            reads = "correct" in (asked.intent, asked.doubted) and wordings.CORRECTS.match(text)
            return [fact for one in (self._stated(line, today) if reads else ()) for fact in one.facts]

        what, of = corrections.right_in_place(text, turns, asked.intent in ("ask_back", "talk"), facts, today)
        if not what:
            return None
        was, now = (found.when if (found := times.find(one, today)) else "" for one in (of, what))
        is_same = of and was == now  # the day behind what was told stays
        when = "" if is_same else intents.day_of([one.when for one in self._stated(what, today)], now, what)
        when = when or corrections.dated(of, "\n".join(str(turn.get("content", "")) for turn in turns))
        return Asked(intent="correct" if of else "remember", what=what, to=of, when=when)

    def _stated(self, text: str, day: date) -> list[TaggedStatement]:
        return self.stated(text, USER, day) if self._statement_tagger else []

    def _asked_within(self, text: str, turns: Sequence[Mapping[str, object]], today: date) -> Asked | None:
        """A request for a list, a count or a search of what was said in some time; None for any other message."""
        if not ((within := times.bounds(text, today)) and self._tagger):
            return None
        asked, when = arguments.read(within.rest, turns, today, self._tagger), f"{within.first}/{within.last}"
        if [one.ask for one in asked] in (["list"], ["count"]):
            return asked[0].model_copy(update={"when": when})
        return Asked(intent="recall", what=text, when=when) if intents.wants(text, today).since else None

    def withholds(self, text: str) -> bool:
        """True of words that ask not to be kept."""
        return bool(wordings.UNKEPT.search(text))

    def taken_back(self, content: str | Sequence[dict[str, object]]) -> str:
        """Who asks, first of all, that what they have said before this be not kept; "" if nobody does."""
        if isinstance(content, str):
            return USER if wordings.UNKEPT.fullmatch(content.strip()) else ""
        first = next(_conversation(content[:1], "turns"), None)
        if not isinstance(first, DialogueTurn) or first.silent:
            return ""
        return first.speaker if wordings.UNKEPT.fullmatch(first.content.strip()) else ""

    def to_statement(self, asked: Asked, speaker: str = USER) -> Add | Correct:
        """What was asked to be remembered or corrected, as a statement; behind "last Friday" stands which that was."""
        words = opened(asked.what)
        names = corrections.change_named(words) if asked.intent == "correct" else {}  # "change my city to Oslo"
        if names and language(words) == "en":
            words = f"{names['of']} is now {names['new']}"
        op = _statement(words, _Origin("chat", speaker), corrects=asked.intent == "correct")
        if not asked.when or times.is_dated(words):
            return op
        return op.model_copy(update={"text": _line(f"{words} ({asked.when})", op.speaker, op.facts)})

    def forget(self, words: str, speaker: str = USER) -> Forget:
        """To delete what words describe. Raises InputError."""
        _require_words(words)
        words = wordings.RUN_ON.sub("", wordings.ASIDE.sub("", words, count=1))
        if everything := wordings.EVERYTHING.fullmatch(words.rstrip(" .!。！")):
            name = everything["name"] or everything["zh"] or everything["zh2"] or "me"
            if not (wordings.PERSON.fullmatch(name) or wordings.POINTS.fullmatch(name)):  # whom they mean is not known
                own = wordings.FIRST.fullmatch(name) or name.casefold() == USER.casefold()
                return Forget(query=words, naming=USER if own else name)
        facts = (*intents.described(words, speaker), *(fact for fact, _ in parse(words, speaker)))
        return Forget(query=words, facts=tuple(dict.fromkeys(facts)))

    def recall(self, question: str, speaker: str = USER, today: date | None = None) -> Recall:
        """To answer a question, whatever the rules would think of it. today: as in a request."""
        today = today or _today()
        wants, now = intents.wants(question, today), intents.asked_now(question, today)
        asks = tuple(dict.fromkeys(parse_question(now, speaker)))
        about = intents.about(question, speaker, asks)
        foreign = messages_in(question)
        if not asks:
            asks = tuple(foreign.asked(question, speaker)) if foreign else asked_of(now, speaker)
        also = tuple(foreign.other_words(question)) if foreign else ()
        return Recall(question=question, also=also, about=about, asks=asks, wants=wants)

    def facts(self, text: str) -> tuple[Fact, ...]:
        """What a remembered text says."""
        return self.statement(text).facts

    def probes(self, facts: Iterable[Fact]) -> list[Probe]:
        """Questions about facts; see memos.interface.reading.contrasts."""
        return probes(facts)

    def askable(self, facts: Iterable[Fact]) -> list[Fact]:
        """Those that a question of the phrasebook has for its answer."""
        return askable(facts)

    def lessons(self, memories: Sequence[Text]) -> list[Lesson]:
        """The probes of each memory over that memory alone; see memos.interface.reading.contrasts."""
        return lessons(memories)

    def contrasts(self, facts: Sequence[Fact], known: Sequence[str], seed: int) -> list[Contrast]:
        """Prompts whose answers an adapter of these facts must not change; see memos.interface.reading.contrasts."""
        return contrasts(self.askable(facts), known, seed)

    def statement(self, text: str, speaker: str = "") -> Add | Correct:
        """The text as one memory, whatever the rules would think of it; "Mira: I live in Oslo." is Mira's."""
        if not text.strip():
            raise InputError("the memory is empty: there is nothing to remember; write a sentence")
        require_text(text, "the memory")
        named = SPEAKER.match(text)
        words = text[named.end() :] if named and named[1] == (speaker or named[1]) else text
        return _statement(words.strip(), _Origin("api", speaker or (named[1] if named else "")))

    def says_no_more(self, text: str, speaker: str = "") -> bool:
        """True if a text says nothing beside facts that the phrasebook reads in it."""
        return all(is_all_parsed(part, speaker or USER) for part in self.sentences(text))

    def sentences(self, text: str) -> list[str]:
        """The sentences of a memory, without the speaker in front."""
        named = SPEAKER.match(text)
        return sentences(text[named.end() :] if named else text)

    def _part(self, part: Part, origin: str) -> list[Add | Correct]:
        """What is to be kept of a part of a file or a conversation."""
        match part:
            case DialogueTurn():
                return self._spoken(part, origin)
            case Passage():
                return self._written(part, origin)
            case TableRow():
                return [Add(text=part.content, origin=origin, segment=part.subject, kind="note")]
            case ToolCall():
                # its origin says how far it is believed: what a tool returns, the user has not said
                place = {"origin": f"tool:{origin}", "segment": part.task or part.tool, "said": part.time}
                return [Add(text=part.content, kind=TOOL_TRACE, **place)]
            case _:
                assert_never(part)

    def _spoken(self, turn: DialogueTurn, origin: str) -> list[Add | Correct]:
        """A turn's statements; the model's own words are never memories."""
        if turn.silent:
            return []
        place = _Origin(origin, turn.speaker, turn.time)
        ops: list[Add | Correct] = []
        for sentence in sentences(turn.content):
            intent, words = intents.intent(sentence, turn.speaker)
            if intents.forgets(sentence, turn.speaker):
                continue
            if intent is SentenceIntent.REMEMBER or intents.is_worth_keeping(words, turn.speaker):
                op = _statement(words, place, corrects=intent is SentenceIntent.CORRECT)
                ops.append(op.model_copy(update={"verbatim": sentence}))
        return ops

    def _written(self, passage: Passage, origin: str) -> list[Add | Correct]:
        """A passage's statements. What was written down is worth keeping, unless it asks.

        A sentence about "it" or "she" stays with the one before it, which says who that is.
        """
        groups: list[list[str]] = []
        for sentence in sentences(passage.content):
            if sentence.endswith(("?", "？")):
                continue
            if groups and _SAME_SUBJECT.match(sentence):
                groups[-1].append(sentence)
            else:
                groups.append([sentence])
        place = _Origin(origin, heading=passage.heading)
        return [_statement(" ".join(group), place) for group in groups]


def _conversation(turns: Iterable[dict[str, object]], origin: str) -> Iterator[Part]:
    return conversation((f"{origin}, turn {n}", entry) for n, entry in enumerate(turns, start=1))


def _given(tagger: MessageTagger | None) -> MessageTagger:
    if tagger is None:
        raise TypeError(
            "a reader without a tagger reads no requests, and few statements: give MemReader a tagger of each"
        )
    return tagger


def _require_words(text: str) -> None:
    """Raises InputError."""
    if not text.strip():
        raise InputError("the message is empty: there is nothing to remember or answer; write a sentence")
    require_text(text, "the message")


def _today() -> date:
    return datetime.now().astimezone().date()


def _statement(words: str, place: _Origin, corrects: bool = False) -> Add | Correct:
    """Sentences that belong together as one operation."""
    # "I" in a note without a speaker is the user, who gave the note.
    readings = [read_statement(part, place.speaker or USER, corrects) for part in sentences(words)]
    facts = tuple(dict.fromkeys(fact for reading in readings for fact in reading.facts))
    unread = (part for reading in readings for part in reading.unread)
    segment = facts[0].subject if facts else place.speaker or place.heading
    update = corrects or any(f.mode in ("now", "ended") for f in facts) or says_change(words)
    return (Correct if update else Add)(
        text=_line(words, place.speaker, facts, place.time),
        speaker=place.speaker,
        said=place.time,
        origin=place.origin,
        segment=segment,
        kind="fact" if facts else "note",
        facts=facts,
        more=bool(facts) and any(intents.is_worth_keeping(part, place.speaker or USER) for part in unread),
    )


def _line(words: str, speaker: str, facts: tuple[Fact, ...], said: datetime | None = None) -> str:
    """The text as it is kept: "Mira, 8 May 2023: I moved yesterday."; or "Mira: I live in Lisbon.", where nothing but
    facts is stated, which hold until they are replaced.
    A statement about others alone stands without its speaker, whom the header names: "Mira: Nadia lives in Oslo."
    reads to a small model as if Mira did.
    """
    is_ended = words[-1] in ".!?。！？…" or category(words[-1]) in ("So", "Mn")  # as emojis are
    end = "" if is_ended else "。" if language(words) == "zh" else "."
    others = facts and not intents.FIRST_PERSON.search(words) and all(fact.subject != speaker for fact in facts)
    if others or not speaker:
        return f"{words}{end}"
    return f"{whose(speaker, None if is_all_parsed(words, speaker) else said)}: {words}{end}"
