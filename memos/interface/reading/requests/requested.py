"""A message -> what it asks for, one after the other, each with its arguments.

Knows what a tagger finds in a message, times and references; knows no kernel. Which parts ask for something, and which
words say what and who, is read by the tagger; what those words stand for is said by rules. What is to be destroyed and
cannot be told is asked back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol, cast

from memos.interface.reading.requests import references, versions
from memos.interface.reading.requests.references import Known
from memos.interface.reading.times import times
from memos.ops import Asked, Intent

_DESTRUCTIVE = ("forget", "rollback", "unshare", "correct")
_REMOVES = _DESTRUCTIVE[:3]
_NEAR = 400  # characters of what was said before, of which the tagger reads as many
_STATED = ("remember", "recall", "correct")  # what they are about is a sentence
_ABOUT_SOMEBODY = (*_STATED, "forget")
_DAYS, _PEOPLE = ("past", "ahead", "until"), ("person", "me")  # marks: days behind today, and others; ends
_LONGEST = 600  # characters of a request; what is longer is a text
_SURE_OF = {"correct": 0.5}  # what was corrected is still in its history
_SURE = 0.8  # of the labels of a destructive part; what is less sure is asked back
_FIRST = re.compile(
    r"\b(?:I|me|my|mine|myself|I['’]\w+|we|us|our|ours)\b|(?<!\w)i(?=['’ ])|我|咱|俺|自己", re.IGNORECASE
)
_I = re.compile(r"I|我", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]")
_TO_ME = re.compile(r"\b(?:remind|tell|show|give|let) (?:me|us)\b", re.IGNORECASE)
_POINTS = re.compile(
    r"(?:all of |both of )?(?:it|its|that|this|them|those|these|they|there|here|both|the same|all that|that all|it all)"
    r"(?: (?:one|ones|thing|things|stuff))?|the (?:one|other|thing|latter|former|lot)"
    r"|(?:它们?|其|这些?|那些?|此)(?:都|全部|全)?|[这那][个只条家本份张件间辆台部座所套幅篇首款次处种位名]?(?:东西|玩意儿?|事儿?|些)?|里[面头]|上[面头]|那[里儿]|这[里儿]",
    re.IGNORECASE,
)
_DEFINITE = re.compile(r"(?:the|that|this|those|these|his|her|its|their)\b|[这那该其]", re.IGNORECASE)
_SO = re.compile(r"(?:like )?(?:that|this|so|it|right|true|correct)|[这那]样(?:的)?|对|真的?", re.IGNORECASE)
_PERSON = re.compile(r"she|he|her|hers|his|him|they|them|their|[她他](?:们)?|人家", re.IGNORECASE)
_SOMEBODY = re.compile(r"\b(?:she|he|hers?|him|his)\b|[她他]", re.IGNORECASE)
_MANY = re.compile(r"they|them|their", re.IGNORECASE)  # people or things
_OPENS = re.compile(r"^(?:The|My|Our|His|Her|Their|All|Every|Everything|What|Where|When|Who|How)\b")  # a sentence
_AFTER = re.compile(r"(?:(?<=with)|(?<=to)|(?<=from)| (?:with|to|from)) (?P<with>[\w@.-]*\w)")
_INSIDE = re.compile(r"(?P<what>.*\S) with (?P<with>[\w@.-]*\w)")
_NEXT = re.compile(r"(?<=\w) (?:back to|with|to|from)$|(?<=.)的$")  # what opens the slot after it
_CALLED = re.compile(  # what stands around a name: "the group hikers", "hikers' "
    r"^(?:the |our )?(?:group|team|user|agent) (?:called )?(?=\w)|^(?:the|our) (?=\w)|['’]s?$"
    r"|^(?:用户|群组|同事)(?=[\u4e00-\u9fffA-Za-z])",
    re.IGNORECASE,
)
_OWNS = re.compile(r"his|its|their", re.IGNORECASE)
_WITHHELD = re.compile(  # "don't delete it yet"; not "don't keep it"
    r"(?:\b(?:do not|dont|never|not to|no need to|rather not)|n['’]t)"
    r"(?: (?:ever|yet|just|actually|you|go and|dare|want (?:you )?to))* "
    r"(?:delet|eras|remov|wip|scrap|purg|bin|ditch|revok|withdraw|unshar|roll|revert|undo|undid)\w*\b"
    r"|(?:别|不要|勿|莫|不用|不必|不许|不准|不能|先不|暂不|暂时不)(?:急着|忙着|着急|给我|随便|现在|马上|真的?)?"
    r"(?:删|清[掉除空]|抹[掉去]|撤[销回掉]|收回|回滚|擦掉|销毁|扔|丢掉|取消)",
    re.IGNORECASE,
)
_FORMS = re.compile(  # where a memory may be taken out of without being lost
    r"(?<![a-z])(?:cached?|adapter|LoRA|KV|GPU|weights|by heart|(?:pre|un)?loaded|train(?:ed)? (?:on|into?)|resident"
    r"|memori[sz]ed?|(?:kept?|still|is|are|stays?) warm|warm slots?|(?:at|to) hand|within reach)(?![a-z])"
    r"|缓存|快取|显存|显卡|适配器|权重|激活|常驻|预热|热着|温着|预载|加载|载入|[进入]模型|手边|背(?:下|熟|过|着|会)",
    re.IGNORECASE,
)
_ERASES = re.compile(r"\b(?:delet|eras|forg[eo]t)|删|忘|销", re.IGNORECASE)  # a cache, too, is wiped and cleared
_WHOLLY = re.compile(  # not out of the cache alone
    r"\b(?:memor|records?\b|originals?\b|backups?\b|trace|destr|eradicat|obliterat|shred|purg|wholly|completely"
    r"|entirely|altogether|for good|permanently)"
    r"|记忆|记录|彻底|原[文件始]|底稿|备份|存底|全部|通通|一概|永久|毁|连根|抹平",
    re.IGNORECASE,
)
_NO_NOUN = re.compile(r"\s*(?:$|[,.!?;:]|(?:again|too|now|any|please|to|and|or|but|for|at|with|from|on|about|in)\b)")


class Span(Protocol):
    """Characters [begin, end) of a text with their label; sure: how likely it is."""

    @property
    def label(self) -> str: ...
    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def sure(self) -> float: ...


class Tagged(Protocol):
    """parts: what asks for something. slots: words within the message. pointed: words within what was said before."""

    @property
    def parts(self) -> Sequence[Span]: ...
    @property
    def slots(self) -> Sequence[Span]: ...
    @property
    def pointed(self) -> Sequence[Span]: ...


class Tagger(Protocol):
    """Reads the parts of a message and their slots: `memos.infrastructure.host.encoders.tagger.RequestTagger`."""

    def tag(self, text: str, before: str = "") -> Tagged: ...


@dataclass(frozen=True)
class _Said:
    """What was said before a message: as one text, what it speaks of, and what the message points to in it."""

    known: Known
    things: tuple[str, ...] = ()  # that the message points to as what is meant
    partners: tuple[str, ...] = ()  # as with whom
    named: tuple[str, ...] = ()  # within a longer text
    of_form: bool = False  # whether it is about the cache or an adapter


def read(text: str, turns: Sequence[Mapping[str, object]], today: date, tagger: Tagger) -> list[Asked]:
    """What a message asks for; never nothing. turns: what was said before. today: the day of the message."""
    if len(text) > _LONGEST:
        return [
            Asked(intent="recall", what=text.strip()) if text.rstrip().endswith(("?", "？")) else Asked(intent="talk")
        ]
    if not _WORD.search(text):  # "2", to whatever was asked before
        return [Asked(intent="talk")]
    before = " ".join(str(turn.get("content", "")) for turn in turns)
    tagged = tagger.tag(text, before)
    if turns and (_doubtful(tagged) or _is_open(tagged)):
        alone = tagger.tag(text)
        if _says_whose(alone) and (_doubtful(tagged) or _is_pronoun(text, alone)):
            tagged = alone
    said = _said(turns, before, tagged.pointed)
    out: list[Asked] = []
    parts = _whole(tagged.parts, tagged.slots)
    for part in parts:
        slots = _within(part, tagged.slots)
        if part.label in _REMOVES and any(part.begin < found.end() <= part.end for found in _WITHHELD.finditer(text)):
            continue
        if not slots and any(other.label == part.label and _within(other, tagged.slots) for other in parts):
            continue  # goes with the part that says what
        asked = _asked(text, part, slots, said, out, today)
        if asked.intent != "talk":
            out.append(asked)
    clear = {asked.intent for asked in out}
    # what is said twice, or once with what is meant, is one thing
    out = [asked for asked in out if asked.intent != "ask_back" or asked.what or asked.doubted not in clear]
    out = [asked for n, asked in enumerate(out) if asked not in out[:n]]
    if out:
        return out
    if text.rstrip().endswith(("?", "？")) and not tagged.parts:
        return [Asked(intent="recall", what=text.strip(), who=_who(text))]
    return [Asked(intent="talk")]


def _doubtful(tagged: Tagged) -> bool:
    """True where something is to be destroyed, one is not sure, and nothing that was said before is pointed to."""
    return not tagged.pointed and any(part.label in _DESTRUCTIVE and part.sure < _SURE for part in tagged.parts)


def _is_open(tagged: Tagged) -> bool:
    """True where it is not clear what is meant, and nothing that was said before is pointed to."""
    return not tagged.pointed and any(part.label.startswith("ask_back") for part in tagged.parts)


def _is_pronoun(text: str, tagged: Tagged) -> bool:
    """True where nobody is named: "where I live" is clear, "where she lives" if one woman was spoken of."""
    people = [mark for mark in tagged.slots if mark.label in _PEOPLE]
    return all(_PERSON.fullmatch(word := _cut(text, mark)) or _I.fullmatch(word) for mark in people)


def _says_whose(tagged: Tagged) -> bool:
    """True where what is to be destroyed is sure, and described by whom it is about: "where I live"."""
    destroyed = [part for part in tagged.parts if part.label in _DESTRUCTIVE]
    whats = [slot for part in destroyed for slot in _within(part, tagged.slots) if slot.label == "what"]
    people = [mark for mark in tagged.slots if mark.label in _PEOPLE]
    sure = all(part.sure >= _SURE for part in destroyed)
    return sure and bool(whats) and all(any(_within(what, people)) for what in whats)


@dataclass(frozen=True)
class _Part:
    label: str
    begin: int
    end: int
    sure: float


def _whole(parts: Sequence[Span], slots: Sequence[Span]) -> list[Span]:
    """The parts; two of a kind that touch are one, as sure as the less sure, where one has no words of its own."""
    out: list[Span] = []
    for part in parts:
        last = out[-1] if out else None
        if (
            last
            and last.label == part.label
            and part.begin == last.end
            and not all(_within(p, slots) for p in (last, part))
        ):
            out[-1] = _Part(part.label, last.begin, part.end, min(last.sure, part.sure))
        else:
            out.append(part)
    return out


def _within(part: Span, slots: Iterable[Span]) -> list[Span]:
    return [slot for slot in slots if part.begin <= slot.begin and slot.end <= part.end]


def _said(turns: Sequence[Mapping[str, object]], before: str, pointed: Iterable[Span]) -> _Said:
    """The words that are pointed to, as the user would say them. before: the turns as one text."""
    found: dict[str, list[str]] = {}
    places: list[tuple[int, Mapping[str, object]]] = []
    start = 0
    for turn in turns:
        places.append((start, turn))
        start += len(str(turn.get("content", ""))) + 1
    for span in pointed:
        begin, turn = [place for place in places if place[0] <= span.begin][-1]
        words = str(turn.get("content", ""))[span.begin - begin : span.end - begin].strip()
        own = _OPENS.sub(
            lambda word: word[0].lower(), references.yours(words, str(turn.get("role", "")) == "assistant")
        )
        if own and own not in found.setdefault(span.label, []):
            found[span.label].append(own)
    things, partners, named = (tuple(found.get(label, ())) for label in ("what", "with", "ref"))
    return _Said(references.known(turns), things, partners, named, bool(_FORMS.search(before[-_NEAR:])))


def _of_form(text: str, part: Span, what: Span | None, said: _Said) -> bool:
    """True where a memory is not to go, but only its KV or its adapter, as with 1,905 of 1,925 such messages of
    scripts/reader. Of the two the one that can be undone."""
    words = text[part.begin : part.end]
    around = words if what is None else text[part.begin : what.begin] + "\n" + text[what.end : part.end]
    if _WHOLLY.search(words):
        return False
    return bool(_FORMS.search(around)) or (said.of_form and not _ERASES.search(words))


def _asked(text: str, part: Span, slots: Sequence[Span], said: _Said, before: Sequence[Asked], today: date) -> Asked:
    """One part, with its arguments."""
    name, _, detail = part.label.partition(":")
    intent = cast(Intent, name)
    if intent == "talk":
        return Asked(intent="talk")
    first = {label: _likeliest(text, [s for s in slots if s.label == label]) for label in ("what", "with", "to")}
    words = text[part.begin : part.end]
    if intent in _REMOVES and not (first["with"] or first["to"]) and _of_form(text, part, first["what"], said):
        intent = "demote"
    refs, marks = ([slot for slot in slots if slot.label in labels] for labels in (("ref",), (*_DAYS, *_PEOPLE)))
    what, sure = _what(intent, text, part, first["what"], refs, said, before)
    doubted = detail if intent == "ask_back" else intent
    if intent == "ask_back" or (
        intent in _DESTRUCTIVE
        and (
            not (sure and what and part.sure >= _SURE_OF.get(intent, _SURE))
            or (intent == "forget" and first["with"])  # who is to be kept out, or what is to go?
            or (intent == "correct" and (first["what"] is None or _SO.fullmatch(what)))  # wrong, but what is right?
        )
    ):
        told = _cut(text, first["what"])
        return Asked(intent="ask_back", doubted=doubted, what="" if _POINTS.fullmatch(told) else told)
    days = [_when(_cut(text, mark), mark.label, today) for mark in marks if mark.label in _DAYS]
    if intent in _ABOUT_SOMEBODY:
        when = days[-1] if days and intent in _STATED else ""
        if intent == "correct" and first["what"]:  # "sorry, I meant 14 Elm Street" is about nobody
            marks = [mark for mark in marks if mark.label != "me" or _within(first["what"], [mark])]
        return Asked(intent=intent, what=what, who=_about(text, first["what"], marks, what, said), when=when)
    asked = Asked(intent=intent, what=what)
    if intent == "about":
        if detail == "why" and not what:
            what = next(
                (one.what for one in reversed(before) if one.what), said.known.said[-1] if said.known.said else ""
            )
        return asked.model_copy(update={"ask": detail, "what": what})
    if intent in ("share", "unshare"):
        with_ = _with(text, first["with"], said, before)
        if not with_ and first["what"] and (after := _AFTER.match(text, first["what"].end)):
            with_ = after["with"]  # a name that is none to the tagger: "with user12"
        if not with_ and (inside := _INSIDE.fullmatch(what)):  # or part of what is shared: "where I live with user12"
            what, with_ = inside["what"], inside["with"]
        if not with_ and intent == "unshare" and not said.known.shared:
            return Asked(intent="ask_back", doubted="unshare", what=what)
        until = days[-1].split("/")[-1] if days and intent == "share" else ""
        return asked.model_copy(update={"what": what, "with_": with_, "relation": detail, "until": until})
    if intent == "rollback":
        # "that one": the version that the message names elsewhere, or that was spoken of last
        lines = (_cut(text, first["to"]), words, *reversed(said.known.said))
        named = (state for line in lines if (state := versions.state(line, today)))
        return asked.model_copy(update={"to": next(named, "previous")})
    return asked.model_copy(update={"to": detail}) if intent == "promote" else asked


def _likeliest(text: str, slots: Sequence[Span]) -> Span | None:
    """The surest of slots that say something, rather than of those that point to it; "forget that I live in Oslo"."""
    plain = [slot for slot in slots if not _POINTS.fullmatch(_cut(text, slot))]
    return max(plain or slots, key=lambda slot: slot.sure, default=None)


def _cut(text: str, slot: Span | None) -> str:
    return text[slot.begin : slot.end].strip(" \t,，;；。.") if slot else ""


def _what(
    intent: str, text: str, part: Span, slot: Span | None, refs: Sequence[Span], said: _Said, before: Sequence[Asked]
) -> tuple[str, bool]:
    """(what is meant, with what it points to put in its place; False where that could be several)."""
    words = _cut(text, slot)
    if intent in _STATED:
        end = part.end if slot is None or 2 * (slot.end - slot.begin) < part.end - slot.begin else slot.end
        return _resolved(text, (slot or part).begin, end, refs, said), True
    if intent == "about" and (slot is None or _POINTS.fullmatch(words)) and not said.things:
        return "", True
    earlier = [one.what for one in before if one.what]
    if _PERSON.fullmatch(words) and slot is not None and not (_MANY.fullmatch(words) and (said.things or earlier)):
        named = " ".join(one.what for one in before)
        return _named(words, named, said) or (references.person_of(words.lower(), said.known) or [words])[-1], True
    if slot is None or _POINTS.fullmatch(words):
        if said.things and not earlier:
            return said.things[-1], len(said.things) == 1
        if earlier:
            return earlier[-1], True
        things = said.known.things
        return (things[-1], len(things) == 1) if things else (words, False)
    if said.things and _DEFINITE.match(words) and len(words) <= 24 and not any(t in words for t in said.things):
        return said.things[-1], len(said.things) == 1
    if intent in _DESTRUCTIVE and any(_several(word, said) for word in _SOMEBODY.findall(words)):
        return words, False
    what = _resolved(text, slot.begin, slot.end, refs, said)
    return _NEXT.sub("", _OPENS.sub(lambda word: word[0].lower(), what)), True


def _several(word: str, said: _Said) -> bool:
    """True where a pronoun could be one of several people who were spoken of."""
    return len(references.person_of(word.lower(), said.known)) > 1


def _resolved(text: str, begin: int, end: int, refs: Sequence[Span], said: _Said) -> str:
    """The words [begin, end) of a text with what they point to in its place."""
    inside = [ref for ref in refs if begin <= ref.begin and ref.end <= end]
    out, at = "", begin
    for ref in inside:
        word = text[ref.begin : ref.end]
        name = _named(word, text[: ref.begin], said)
        if not name:
            continue
        owns = _OWNS.fullmatch(word) or (word.lower() == "her" and not _NO_NOUN.match(text[ref.end :]))
        out += text[at : ref.begin] + (f"{name}'s" if owns and not name.endswith(("'s", "’s")) else name)
        at = ref.end
    out = (out + text[at:end]).strip(" \t,，;；")
    out = re.sub(r"[.。!！]+$", "", out)
    return out if at > begin else references.resolved(out, said.known)


def _named(word: str, before: str, said: _Said) -> str:
    """Who or what is pointed to by a word within a text; "" where that is open. before: what the message says first."""
    if said.named and not _PERSON.fullmatch(word):
        return said.named[-1]
    if _PERSON.fullmatch(word):
        own = references.person_of(word.lower(), Known(tuple(references.names_in(before))))
        if own and not said.named:
            return own[-1]
        fits = [name for name in references.person_of(word.lower(), said.known) if name in said.named]
        return (fits or said.named or ("",))[-1]
    return said.things[-1] if len(said.things) == 1 else ""


def _with(text: str, slot: Span | None, said: _Said, before: Sequence[Asked]) -> str:
    """With whom something is shared."""
    words = _cut(text, slot)
    if words and not _PERSON.fullmatch(words):
        return _CALLED.sub("", words)
    if said.partners:
        return said.partners[-1]
    earlier = [one.with_ for one in before if one.with_]
    if earlier:
        return earlier[-1]
    if said.known.shared:
        return said.known.shared[-1][1]
    if words and len(who := references.person_of(words.lower(), said.known)) == 1:
        return who[0]
    return words


def _who(text: str) -> str:
    """The person whom words are about: the first that they name; "user" for the speaker."""
    plain = _TO_ME.sub(lambda m: " " * len(m[0]), text)
    first = _FIRST.search(plain)
    people = [(plain.find(name), name) for name in references.names_in(plain) if plain.find(name) >= 0]
    people += [(plain.lower().find(name.lower()), name) for name in references.names_in(plain) if plain.find(name) < 0]
    at, name = min(people, default=(len(text) + 1, ""))
    return "user" if first and first.start() <= at else name


def _about(text: str, slot: Span | None, marks: Sequence[Span], what: str, said: _Said) -> str:
    """Whom a part is about; "user": who speaks."""
    mark = next((mark for mark in marks if mark.label in _PEOPLE), None)
    put_in = next((name for name in references.names_in(what) if name not in text), "")  # for a pointer
    if mark is None:
        if slot is None or _POINTS.fullmatch(_cut(text, slot)):  # words from before the message
            return _who(what)
        return put_in
    words = re.sub(r"['’]s?$", "", _cut(text, mark))
    pointed = _PERSON.fullmatch(words) or _POINTS.fullmatch(words)
    if mark.label == "me":
        return "user"
    return (_named(words, text[: mark.begin], said) or put_in) if pointed else words


def _when(words: str, which: str, today: date) -> str:
    """The day or days that the words stand for; "" where no rule knows them. which: of _DAYS."""
    past = which == "past"
    found = times.find(words, today, past) or times.find(f"on {words}", today, past)
    if found or which != "until":
        return found.when if found else ""
    return times.until(words, today)
