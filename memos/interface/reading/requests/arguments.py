"""Turns a message into the requests it contains, one after the other, each with its arguments.

Knows what a tagger finds in a message, times and references; knows no kernel. Which parts ask for something, and which
words say what and who, is read by the tagger; what those words stand for is said by rules. What is to be destroyed and
cannot be told is asked back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Protocol, cast

from memos.interface.reading.requests import orders, picks, references, wordings
from memos.interface.reading.requests.references import Known
from memos.interface.reading.requests.spans import DAYS, TaggedSpan, WholeQuestion, joined, questions, uncut, within
from memos.interface.reading.times import times
from memos.ops import Asked, Intent

_DESTRUCTIVE = ("forget", "rollback", "unshare", "correct")
_REMOVES = _DESTRUCTIVE[:3]
_STATED = ("remember", "recall", "correct")  # what they are about is a sentence
_ABOUT_SOMEBODY = (*_STATED, "forget")
_PEOPLE = ("person", "me")  # marks
MAX_REQUEST = 600  # characters; what is longer is a text
NEAR = 400  # characters of what was said before a message, of which the tagger reads as many
SURE = 0.8  # likelihood of the labels of a destructive part; what is less sure is asked back
SURE_OF = {"correct": 0.5}  # what was corrected is still in its history
MAX_POINTER = 24  # characters of words that may point to what was said before: "that list"


class TaggedMessage(Protocol):
    """parts: what asks for something. slots: words within the message. pointed: words within what was said before.
    addressed: how likely it is that the message speaks to the memory, 0 to 1."""

    @property
    def parts(self) -> Sequence[TaggedSpan]: ...
    @property
    def slots(self) -> Sequence[TaggedSpan]: ...
    @property
    def pointed(self) -> Sequence[TaggedSpan]: ...
    @property
    def addressed(self) -> float: ...


class MessageTagger(Protocol):
    """Marks the parts of a message and their slots: `memos.infrastructure.host.encoders.embedder.TextTagger`."""

    def tag(self, text: str, before: str = "") -> TaggedMessage: ...


@dataclass(frozen=True)
class _Discourse:
    """What was said before a message: what it speaks of, and what the message points to in it."""

    known: Known
    things: tuple[str, ...] = ()  # that the message points to as what is meant
    partners: tuple[str, ...] = ()  # as with whom
    named: tuple[str, ...] = ()  # within a longer text
    of_form: bool = False  # whether it is about the cache or an adapter


@dataclass(frozen=True)
class _RequestPart:
    """One part of a message that asks for something, with its slots and all that its arguments are read from.

    what, with_, to: the likeliest slot of each. refs: words that point within a longer text. days, people: marks.
    """

    text: str
    part: TaggedSpan
    slots: Sequence[TaggedSpan]
    discourse: _Discourse
    earlier: Sequence[Asked]  # parts of the same message
    today: date

    @property
    def what(self) -> TaggedSpan | None:
        return self._likeliest("what")

    @property
    def with_(self) -> TaggedSpan | None:
        return self._likeliest("with")

    @property
    def to(self) -> TaggedSpan | None:
        return self._likeliest("to")

    @property
    def refs(self) -> list[TaggedSpan]:
        return [slot for slot in self.slots if slot.label == "ref"]

    @property
    def days(self) -> list[str]:
        """The days that the part names, "" for each that no rule knows."""
        days, near = list[str](), self.today
        for mark in sorted((slot for slot in self.slots if slot.label in DAYS), key=lambda slot: slot.begin):
            words = _cut(self.text, mark)
            of_that = times.is_day_of_month(words)  # "in August, flying on the 9th"
            is_ahead = self.text[: mark.begin].endswith(("到", "至", "成", "为"))  # "改到周三了"
            days.append(_when(words, "ahead" if is_ahead else mark.label, near if of_that else self.today))
            near = date.fromisoformat(days[-1].split("/")[0]) if days[-1] else near
        return days

    @property
    def people(self) -> list[TaggedSpan]:
        return [slot for slot in self.slots if slot.label in _PEOPLE]

    def _likeliest(self, label: str) -> TaggedSpan | None:
        """The surest of the slots that say something, else of those that point to it: "forget that I live in Oslo"."""
        slots = [slot for slot in self.slots if slot.label == label]
        plain = [slot for slot in slots if not wordings.POINTS.fullmatch(_cut(self.text, slot))]
        return max(plain or slots, key=lambda slot: slot.sure, default=None)


def read(text: str, turns: Sequence[Mapping[str, object]], today: date, tagger: MessageTagger) -> list[Asked]:
    """What a message asks for; never nothing. turns: what was said before. today: the day of the message."""
    asks = text.rstrip().endswith(("?", "？"))
    if len(text) > MAX_REQUEST:
        return [Asked(intent="recall", what=text.strip()) if asks else Asked(intent="talk")]
    if not wordings.WORD.search(text):  # "2", to whatever was asked before
        return [Asked(intent="talk")]
    before = " ".join(str(turn.get("content", "")) for turn in turns)
    tagged = _tagged(text, before, bool(turns), tagger)
    if orders.none_meant(text, tagged):
        said = zip(("remember", "recall"), orders.told_and_asked(text, tagged), strict=True)
        out = [
            Asked(intent=cast(Intent, intent), what=words, who=references.who(words)) for intent, words in said if words
        ]
        return out or [Asked(intent="talk")]
    found = _read_parts(text, tagged, _discourse(turns, before, tagged.pointed), today)
    clear = {asked.intent for asked in found}
    # what is said twice, or once with what is meant, is one thing
    found = [asked for asked in found if asked.intent != "ask_back" or asked.what or asked.doubted not in clear]
    if found:
        return [asked for n, asked in enumerate(found) if asked not in found[:n]]
    if asks and not tagged.parts:
        return [Asked(intent="recall", what=text.strip(), who=references.who(text))]
    return [Asked(intent="talk")]


# -- parts ---------------------------------------------------------------------------------------------


def _tagged(text: str, before: str, has_turns: bool, tagger: MessageTagger) -> TaggedMessage:
    """The parts and slots of a message; without what was said before, where that only blurs a clear request."""
    tagged = tagger.tag(text, before)
    destroys_in_doubt = any(part.label in _DESTRUCTIVE and part.sure < SURE for part in tagged.parts)
    asks_back = any(label.startswith("ask_back") for label in _labels(tagged))
    unsure = destroys_in_doubt or asks_back
    stands = not wordings.REFERS.search(text) and _labels(tagged) != ["recall"]  # by itself, as far as a word can tell
    if not has_turns or (tagged.pointed and not stands) or not (unsure or stands):
        return tagged
    alone = tagger.tag(text)
    if stands and _is_plain(alone, text) and not (asks_back and _labels(alone) == ["forget"]):
        return alone
    if stands and asks_back and not any(orders.is_order(part) for part in alone.parts):
        return alone
    is_clear = unsure and _says_whose(alone) and (destroys_in_doubt or _is_pronoun(text, alone))
    return alone if is_clear or (stands and _labels(alone) == ["recall"]) else tagged


def _is_plain(tagged: TaggedMessage, text: str) -> bool:
    """True of a message that tells, asks or wants forgotten one thing, beyond doubt."""
    sure = [one for one in tagged.parts if one.label in ("remember", "recall", "forget") and one.sure >= SURE]
    return len(tagged.parts) == len(sure) == 1 and sure[0].end - sure[0].begin > orders.WHOLE * len(text)


def _labels(tagged: TaggedMessage) -> list[str]:
    return [part.label for part in tagged.parts]


def _is_pronoun(text: str, tagged: TaggedMessage) -> bool:
    """True where nobody is named: "where I live" is clear, "where she lives" if one woman was spoken of."""
    people = [_cut(text, mark) for mark in tagged.slots if mark.label in _PEOPLE]
    return all(wordings.PERSON.fullmatch(word) or wordings.SPEAKER.fullmatch(word) for word in people)


def _says_whose(tagged: TaggedMessage) -> bool:
    """True where what is to be destroyed is sure, and described by whom it is about: "where I live"."""
    destroyed = [part for part in tagged.parts if part.label in _DESTRUCTIVE]
    whats = [slot for part in destroyed for slot in within(part, tagged.slots) if slot.label == "what"]
    people = [mark for mark in tagged.slots if mark.label in _PEOPLE]
    sure = all(part.sure >= SURE for part in destroyed)
    return sure and bool(whats) and all(any(within(what, people)) for what in whats)


def _read_parts(text: str, tagged: TaggedMessage, discourse: _Discourse, today: date) -> list[Asked]:
    """What each part of a message asks for; parts that ask for nothing, or withhold what they name, are left out."""
    found: list[Asked] = []
    all_slots = uncut(text, tagged.slots)
    parts = questions(text, joined(uncut(text, tagged.parts), all_slots))
    withheld = [match.end() for match in wordings.WITHHELD.finditer(text)]
    for part in parts:
        slots, whole = within(part, all_slots), isinstance(part, WholeQuestion)
        if whole:
            slots = [slot for slot in slots if slot.label != "what"]  # that of a part of it
        if part.label in _REMOVES and any(part.begin < end <= part.end for end in withheld):
            continue
        if not (slots or whole) and any(other.label == part.label and within(other, all_slots) for other in parts):
            continue  # goes with the part that says what
        asked = _asked(_RequestPart(text, part, slots, discourse, tuple(found), today))
        if asked.intent != "talk":
            found.append(asked)
    return found


def _cut(text: str, slot: TaggedSpan | None) -> str:
    return text[slot.begin : slot.end].strip(" \t,，;；。.") if slot else ""


def _discourse(turns: Sequence[Mapping[str, object]], before: str, pointed: Iterable[TaggedSpan]) -> _Discourse:
    """What was said before, and the words that are pointed to, as the user would say them. before: the turns as one
    text."""
    found: dict[str, list[str]] = {"what": [], "with": [], "ref": []}
    places: list[tuple[int, Mapping[str, object]]] = []
    start, about = 0, references.known(turns)
    for turn in turns:
        places.append((start, turn))
        start += len(str(turn.get("content", ""))) + 1
    for span in pointed:
        begin, turn = [place for place in places if place[0] <= span.begin][-1]
        words = str(turn.get("content", ""))[span.begin - begin : span.end - begin].strip()
        own = _uncapitalised(references.yours(words, str(turn.get("role", "")) == "assistant")).strip('“”"')
        own = next((name for name in about.people if own in name and not own.isascii()), own)  # "小" of 小雨
        if own and own not in found.setdefault(span.label, []):
            found[span.label].append(own)
    of_form = bool(wordings.FORMS.search(before[-NEAR:]))
    things, partners, named = (tuple(found[label]) for label in ("what", "with", "ref"))
    return _Discourse(about, things, partners, named, of_form)


def _uncapitalised(words: str) -> str:
    """Words as within a sentence: "The list" -> "the list"."""
    return wordings.OPENS.sub(lambda word: word[0].lower(), words)


# -- one part ------------------------------------------------------------------------------------------


def _asked(request: _RequestPart) -> Asked:
    """One part, with its arguments."""
    name, _, detail = request.part.label.partition(":")
    intent = cast(Intent, name)
    if intent == "talk":
        return Asked(intent="talk")
    if intent in _REMOVES and not (request.with_ or request.to) and _of_form(request):
        intent = "demote"
    what, sure = _what(intent, request)
    if intent == "ask_back" or (intent in _DESTRUCTIVE and not (sure and what and _is_clear(intent, what, request))):
        stated = _cut(request.text, request.what)
        doubted = detail if intent == "ask_back" else intent
        return Asked(intent="ask_back", doubted=doubted, what="" if wordings.POINTS.fullmatch(stated) else stated)
    if intent in _ABOUT_SOMEBODY:
        return _asked_about_somebody(intent, what, request)
    if intent in ("share", "unshare"):
        return _asked_to_share(intent, what, detail, request)
    if intent == "about":
        if detail == "why" and not what:
            earlier = [one.what for one in request.earlier if one.what]
            what = "".join(earlier[-1:] or request.discourse.known.statements[-1:])
        return Asked(intent=intent, ask=detail, what=what)
    if intent == "rollback":
        return Asked(intent=intent, what=what, to=_version(request))
    return Asked(intent=intent, what=what, to=detail if intent == "promote" else "")


def _is_clear(intent: Intent, what: str, request: _RequestPart) -> bool:
    """True where a destructive request is sure of what it destroys."""
    if request.part.sure < SURE_OF.get(intent, SURE):
        return False
    if intent == "forget":
        return request.with_ is None and len(what) > 1  # who is to be kept out, or what is to go?
    return intent != "correct" or not (request.what is None or wordings.SO.fullmatch(what))  # wrong: what is right?


def _asked_about_somebody(intent: Intent, what: str, request: _RequestPart) -> Asked:
    people = request.people
    if intent == "correct" and request.what:  # "sorry, I meant 14 Elm Street" is about nobody
        people = [mark for mark in people if mark.label != "me" or within(request.what, [mark])]
    when = request.days[-1:] if intent in _STATED else []
    return Asked(intent=intent, what=what, who=_about(request, people, what), when="".join(when))


def _asked_to_share(intent: Intent, what: str, relation: str, request: _RequestPart) -> Asked:
    partner = _partner(request)
    if not partner and request.what and (after := wordings.AFTER.match(request.text, request.what.end)):
        partner = after["with"]  # a name that is none to the tagger: "with user12"
    if not partner and (inside := wordings.INSIDE.fullmatch(what)):  # or in what is shared: "where I live with user12"
        what, partner = inside["what"], inside["with"]
    if not partner and intent == "unshare" and not request.discourse.known.shared:
        return Asked(intent="ask_back", doubted="unshare", what=what)
    until = request.days[-1].split("/")[-1] if request.days and intent == "share" else ""
    return Asked(intent=intent, what=what, with_=partner, relation=relation, until=until)


def _version(request: _RequestPart) -> str | int:
    """The version to go back to; of "that one" the version that the message names elsewhere, or that was named last."""
    part = request.part
    lines = (
        _cut(request.text, request.to),
        request.text[part.begin : part.end],
        *reversed(request.discourse.known.statements),
    )
    return next((state for line in lines if (state := picks.version(line, request.today))), "previous")


def _of_form(request: _RequestPart) -> bool:
    """True where a memory is not to go, but only its KV or its adapter, as with 1,905 of 1,925 such messages of
    scripts/reader. Of the two the one that can be undone."""
    text, part, what = request.text, request.part, request.what
    words = text[part.begin : part.end]
    around = words if what is None else text[part.begin : what.begin] + "\n" + text[what.end : part.end]
    if wordings.WHOLLY.search(words):
        return False
    return bool(wordings.FORMS.search(around)) or (request.discourse.of_form and not wordings.ERASES.search(words))


# -- what the words of a part stand for ----------------------------------------------------------------


def _what(intent: str, request: _RequestPart) -> tuple[str, bool]:
    """(what is meant, with what it points to put in its place; False where that could be several)."""
    text, part, slot, discourse = request.text, request.part, request.what, request.discourse
    words, things = _cut(text, slot), discourse.things
    earlier = [one.what for one in request.earlier if one.what]
    if intent in _STATED:
        end = part.end if slot is None or 2 * (slot.end - slot.begin) < part.end - slot.begin else slot.end
        begin = (slot or part).begin
        if (rest := wordings.TORN_ZH.match(text, end)) and not wordings.ADDS_NOTHING.fullmatch(rest[0]):
            end = rest.end()
        opens = text[part.begin : begin]  # "note that", and no "I can't go, so"
        introduces = wordings.LEADS_IN.search(opens) or wordings.ADDS_NOTHING.fullmatch(opens)
        if intent == "remember" and not (introduces and wordings.INTRODUCES.search(opens)):
            begin = part.begin
        end += bool(re.match(r"\d!.*\w", text[end - 1 :]))  # of a password
        return _resolved(begin, end, request, intent), True
    points = slot is None or bool(wordings.POINTS.fullmatch(words))
    if points and slot and (of := wordings.OF_WHAT.match(text, slot.end)):
        return of["what"].strip(), True
    if intent == "about" and points and not things:
        return "", True
    if slot and wordings.PERSON.fullmatch(words) and not (wordings.MANY.fullmatch(words) and (things or earlier)):
        named = _named(words, " ".join(one.what for one in request.earlier), discourse)
        return named or (references.person_of(words.lower(), discourse.known) or [words])[-1], True
    if slot is None or points:
        candidates = earlier[-1:] or things or discourse.known.things
        return (candidates[-1], len(candidates) == 1) if candidates else (words, False)
    if things and wordings.DEFINITE.match(words) and len(words) <= MAX_POINTER and not any(t in words for t in things):
        return things[-1], len(things) == 1
    if intent in _DESTRUCTIVE and any(_several(word, discourse) for word in wordings.SOMEBODY.findall(words)):
        return words, False
    return wordings.NEXT.sub("", _uncapitalised(_resolved(slot.begin, slot.end, request))), True


def _several(word: str, discourse: _Discourse) -> bool:
    """True where a pronoun could be one of several people who were spoken of."""
    return len(references.person_of(word.lower(), discourse.known)) > 1


def _resolved(begin: int, end: int, request: _RequestPart, intent: str = "") -> str:
    """The words [begin, end) of a message with what they point to in its place; of what is told as far as that is sure:
    whom a pronoun means, and what is put right."""
    text, out, done = request.text, "", begin
    is_told = intent in ("remember", "correct")
    for ref in (ref for ref in request.refs if begin <= ref.begin and ref.end <= end and intent != "remember"):
        word = text[ref.begin : ref.end]
        if is_told and (ref.begin > begin + MAX_POINTER // 2 or not wordings.POINTS.fullmatch(word)):
            continue
        if one := wordings.ONE_ZH.match(text, ref.begin):  # "他" of 他女朋友
            word = one[0]
        name = _named(word, text[: ref.begin], request.discourse)
        another = wordings.NAMES_A_THING.match(word)  # "the key" is no "list of calls"
        is_open = not wordings.SAYS_WHAT.match(name) or text.startswith("俩", ref.begin + len(word))
        is_open = is_open or word[-2:] == "那天" or (is_told and name in request.discourse.known.people)  # "they"
        if is_open or (another and another["noun"].lower() not in name.lower()):
            continue
        owns = wordings.OWNS.fullmatch(word) or (word.lower() == "her" and not wordings.NO_NOUN.match(text[ref.end :]))
        out += text[done : ref.begin] + (f"{name}'s" if owns and not name.endswith(("'s", "’s")) else name)
        done = ref.begin + len(word)
    out = re.sub(r"(?:[.。！]|(?<!\d)!| (?:and|but|so)$)+$", "", (out + text[done:end]).strip(" \t,，;；"))
    return out if done > begin else references.resolved(out, request.discourse.known, text[:begin], is_told)


def _named(word: str, before: str, discourse: _Discourse) -> str:
    """Who or what is pointed to by a word within a text; "" where that is open. before: what the message says first."""
    named = discourse.named
    if not wordings.PERSON.fullmatch(word):
        # "Leo aspirin" is no thing, nor is somebody
        anybody = "|".join(map(re.escape, discourse.known.people)) or "(?!)"
        somebody = re.compile(rf"(?:dr|mr|mrs|ms|prof)\b|(?:.*\b)?(?:{anybody})(?: |$)", re.IGNORECASE)
        nouns = references.words_of("person_nouns")  # "it" is no baby
        things = [name for name in named if not (somebody.match(name) or nouns.intersection(name.lower().split()))]
        return things[-1] if things else discourse.things[-1] if len(discourse.things) == 1 else ""
    own = references.person_of(word.lower(), Known(tuple(references.names_in(before))))
    if own and not named:
        return own[-1]
    fits = [name for name in references.person_of(word.lower(), discourse.known) if name in named]
    # "Holle formula" and "hiya" are nobody, and Anna is not "he"
    known, nobody = discourse.known, wordings.NOBODY
    people = [n for n in named if n in known.people or not (n[:1].isupper() or nobody.fullmatch(n) or n in known.own)]
    people = [name for name in people if references.may_be(word.lower(), name, discourse.known)]
    return (fits or people or [""])[-1]


def _partner(request: _RequestPart) -> str:
    """With whom something is shared."""
    words, discourse = _cut(request.text, request.with_), request.discourse
    if words and not wordings.PERSON.fullmatch(words):
        return wordings.CALLED.sub("", words)
    if discourse.partners:
        return discourse.partners[-1]
    if earlier := [one.with_ for one in request.earlier if one.with_]:
        return earlier[-1]
    if discourse.known.shared:
        return discourse.known.shared[-1][1]
    if words and len(who := references.person_of(words.lower(), discourse.known)) == 1:
        return who[0]
    return words


def _about(request: _RequestPart, people: Sequence[TaggedSpan], what: str) -> str:
    """Whom a part is about; "user": who speaks."""
    text, slot = request.text, request.what
    if people and people[0].label == "me":
        return "user"
    put_in = next((name for name in references.names_in(what) if name not in text), "")  # for a pointer
    if not people:
        if slot is None or wordings.POINTS.fullmatch(_cut(text, slot)):  # words from before the message
            return references.who(what)
        return put_in
    mark = people[0]
    words = re.sub(r"['’]s?$", "", _cut(text, mark))
    if wordings.PERSON.fullmatch(words) or wordings.POINTS.fullmatch(words):
        return _named(words, text[: mark.begin], request.discourse) or put_in
    return words


def _when(words: str, which: str, today: date) -> str:
    """The day or days that the words stand for; "" where no rule knows them. which: of DAYS."""
    past = which == "past"
    found = times.find(words, today, past) or times.find(f"on {words}", today, past)
    if found and which == "ahead" and found.when < today.isoformat():  # the nearest is the last one
        next_one = times.find(words, today + timedelta(days=183))
        found = next_one if next_one and next_one.when[4:] == found.when[4:] else found
    if found or which != "until":
        return found.when if found else ""
    return times.until(words, today)
