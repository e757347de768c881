"""Translates between English phrasings and (subject, relation, object); knows no stores and no tensors.

A form is read both ways: `Relation.fill` makes words of a fact, `parse` and `parse_question` find facts in words.
Below it what every reader asks of a text first: its sentences, its language, and whether it can be kept at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import yaml

from memos.cube import USER, Fact
from memos.errors import InputError
from memos.extensions import Registry
from memos.interface.reading.times.days import Resolve
from memos.lazy import pattern

MAX_SENTENCE = (
    2_000  # characters of a sentence that is read; what is longer is no sentence, and takes its square in time
)
_CHOICE = pattern(r"\[([^|\]]*)\|[^\]]*\]")
_SLOT = pattern(r"\{(s's|s|me|o|a|noun)\}|\[([^|\]]*)\|([^\]]*)\]")


@dataclass(frozen=True)
class Relation:
    """One relation and its forms, the generic ones included."""

    name: str
    noun: str
    says: tuple[str, ...]
    updates: tuple[str, ...]
    asks: tuple[str, ...]
    who: tuple[str, ...]
    held_out: frozenset[str] = frozenset()  # the asks and who forms that no promotion trains on
    heard: tuple[str, ...] = ()  # asks that are understood, and never used
    examples: tuple[str, ...] = ()  # objects that it may have; without any it has dates or numbers

    @property
    def who_else(self) -> tuple[str, ...]:
        """More ways to ask for the subject, made of the statements: "{s} is based in {o}" -> "Who is based in {o}?" """
        plain = (
            form for form in self.says if form.startswith("{s} ") and "{s" not in form[3:] and "{noun}" not in form
        )
        asked = (f"Who{form[3:]}?" for form in plain)
        return tuple(form for form in asked if _CHOICE.sub(r"\1", form) not in self.who)

    def fill(self, form: str, subject: str, obj: str = "") -> str:
        """The form in words; the subject "I" gives the first person."""
        first = subject == "I"
        words = {
            "s": subject,
            "me": "me" if first else subject,
            "s's": "my" if first else f"{subject}'s",
            "o": obj,
            "a": "an" if obj[:1].lower() in "aeiou" else "a",
            "noun": self.noun,
        }
        text = _SLOT.sub(lambda m: words[m[1]] if m[1] else m[3] if first else m[2], form)
        return text[0].upper() + text[1:]


def read_book(package: str, name: str) -> Any:
    """The YAML of a package. By PyYAML's own parser, where libyaml is missing, it takes ten times as long."""
    return yaml.load(files(package).joinpath(name).read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def phrasebook() -> dict[str, Relation]:
    """The relations of phrasebook.yaml by name, generic forms first."""
    book = read_book("memos.interface.reading", "phrasebook.yaml")
    generic = book["generic"]
    return {
        name: Relation(
            name=name,
            noun=entry["noun"],
            says=(*generic["says"], *entry["says"]),
            updates=(*generic["updates"], *entry["updates"]),
            asks=(*generic["asks"], *entry["asks"]),
            who=(*generic["who"], *entry["who"]),
            held_out=_held_out(generic["asks"], entry["asks"], generic["who"] + entry["who"]),
            heard=tuple(entry.get("heard", ())),
            examples=tuple(entry.get("examples", "").split()),
        )
        for name, entry in book["relations"].items()
    }


def _held_out(generic: list[str], specific: list[str], who: list[str]) -> frozenset[str]:
    """A fixed part, so that a probe is held out in every run: two generic asks, a specific one, a who form."""
    return frozenset(generic[-2:] + specific[-1:] + (who[-1:] if len(who) > 1 else []))


# --- words -> facts -----------------------------------------------------------------------------------

# These relations have objects that are names: a capital or a digit tells "I live in Oslo" from "I live in a hurry".
_NAMED = frozenset("city employer language birthday sister boss friend book trip code".split())
# Words with a capital that are never the name of a subject.
NOT_NAMES = frozenset(
    """A Actually After Already Also An And Any Anyone As At Because Before But By Can Correction Could Currently Did Do
    Does Edit Every Everybody Everyone Finally For From Good Has Have He Her Here His Hm How I If In Is It Its Just Let
    Maybe Me My No Nobody None Not Note Now Of Officially Oh On Or Our PS Perhaps Please Recently Remember Reminder She
    Since So Some Somebody Someone Still Sure Tell Thank Thanks That The Their Them Then There These They This Those To
    Today Tomorrow Tonight Was We Well Were What When Where Which While Who Whom Whose Why With Would Yes Yesterday You
    Your""".split()
)
_WORD = r"[A-ZÀ-ÖØ-Þ][0-9A-Za-zÀ-ɏ_-]+"
NAME = rf"(?!(?:My|The)\b){_WORD}(?: {_WORD})?"
OBJECT = r"[\w&][\w&'’-]*(?: [\w&][\w&'’-]*){0,3}?"
# Words that continue a clause ("my job is to ...", "my boss is very ...") and so never begin an object.
_NO_OBJECT = pattern(
    r"(?:to|not|that|what|where|who|why|how|so|very|too|quite|really|my|your|his|her|their|our|it|its|this|there|any"
    r"|always|never|all|no|going|being|one|only|still|just|also|something|somebody|someone|anything|nothing)\b",
    re.IGNORECASE,
)
_ARTICLE = pattern(r"(?:an?|the|on|in|called|named) ")
# Words that end an object: "a nurse in Porto", "jazz and I", "tea since May".
_STOP = (
    r"(?:now|right now|these days|nowadays|at the moment|since|because|but|though|although|while|when|where|which|who"
    r"|so|if|with|for|as|too|again|already|anyway|instead|of course|I think|by the way|more or less|from|after|before"
    r"|in|at|on|every|together|and (?:a|not|I|my|s?he|his|her|it|its|we|our|you|your|they|their|this|that|the))\b"
)
END = rf"(?=\s*(?:[,.!?;:)—\"]|$)| {_STOP})"
# Where a statement may begin: the sentence, a clause ("By the way, ...", "... and I ..."), "my sister Anna ...".
_BEGIN = r"(?:^|[,:;—(\"] ?|\b(?:that|and|but|so|because|since) )(?:(?:[Mm]y|[Oo]ur) [a-z]+ (?:[a-z]+ )?)?"
_SLOTS = {
    "s": rf"(?:I|(?P<s>{NAME}))",
    "me": rf"(?:me|(?P<s>{NAME}))",
    "s's": rf"(?:(?i:my)|(?P<s>{NAME})['’]s)",
    "o": rf"(?P<o>{OBJECT})",
    "a": r"an?",
}
# A slot of the subject after the first: the same subject again, or a pronoun.
_AGAIN = {"s": r"(?:I|(?P=s)|s?he|they)", "me": "(?:me|(?P=s))", "s's": r"(?:my|his|her|their|(?P=s)['’]s)"}
SPEAKER = pattern(rf"({NAME})(?:, \d{{1,2}} [A-Z][a-z]+ \d{{4}})?: +(?=\S)")  # and perhaps when
_STILL = pattern(r",? (?:now|these days|nowadays)\b")
_SPELLING = (  # (what must stand in a text for it to be worth the expression, the expression, the usual spelling)
    ("i", pattern(r"\bi\b(?!\.)"), "I"),
    ("I", pattern(r"\bI['’]m\b"), "I am"),
    ("I", pattern(r"\bI['’]ve\b"), "I have"),
    ("h", pattern(r"\b([Ww]h(?:at|o|en|ere))['’]?s\b"), r"\1 is"),
    ("can", pattern(r"\bcan(?:['’]t| not)\b"), "cannot"),
    ("avorite", pattern(r"\b([Ff])avorite\b"), r"\1avourite"),
    ("olor", pattern(r"\b([Cc])olor\b"), r"\1olour"),
)


@dataclass(frozen=True)
class PhraseForm:
    """One form as a regular expression."""

    text: str  # as the book has it
    relation: str
    regex: re.Pattern[str]
    literal: int  # how many of its characters are fixed: the more, the more specific
    anchor: str  # its longest fixed words: a text without them is not worth the expression
    update: bool = False
    opens: bool = False  # begins with the object, which then carries the sentence's capital


@dataclass(frozen=True)
class FormMatch:
    """Where a form fits, and what it states there."""

    form: PhraseForm
    span: tuple[int, int]
    fact: Fact
    update: bool


def _compile(relation: Relation, form: str, update: bool = False) -> PhraseForm:
    """Slots become groups, [third|first] either word. Literal words may differ in case, names may not."""
    parts, literal, at, named, anchor = [_BEGIN], 0, 0, False, ""
    words = form.replace("{noun}", relation.noun)  # which is as fixed as the rest
    for slot in [*_SLOT.finditer(words), None]:
        fixed = words[at : slot.start()] if slot else words[at:].rstrip("?.")
        parts.append(f"(?i:{re.escape(fixed)})".replace("'", "['’]"))
        literal += len(fixed)
        anchor = max(anchor, fixed.lower(), key=len)
        if slot is None:
            break
        at = slot.end()
        if slot[1]:
            parts.append(_AGAIN[slot[1]] if named and slot[1] in _AGAIN else _SLOTS[slot[1]])
            named = named or slot[1] in _AGAIN
        else:
            parts.append(f"(?i:{re.escape(slot[2])}|{re.escape(slot[3])})")
            literal += len(slot[3])
    asks = form in (*relation.asks, *relation.heard, *relation.who)
    parts.append(r"\s*[?.!]*$" if asks else END if form.endswith("{o}") else r"\b")
    return PhraseForm(form, relation.name, pattern("".join(parts)), literal, anchor, update, form.startswith("{o}"))


@cache
def _statements() -> tuple[PhraseForm, ...]:
    book = phrasebook().values()
    says = [_compile(relation, form) for relation in book for form in relation.says]
    return (*says, *(_compile(relation, form, update=True) for relation in book for form in relation.updates))


@cache
def _questions() -> tuple[PhraseForm, ...]:
    book = phrasebook().values()
    return tuple(
        _compile(relation, form) for relation in book for form in relation.asks + relation.heard + relation.who
    )


def parse(sentence: str, speaker: str = "") -> list[tuple[Fact, bool]]:
    """The facts that a sentence states, each with whether it replaces an earlier one.

    "I" is the speaker, who may also stand in front ("Mira: I live in Oslo."); without one, "I" states nothing.
    """
    return [(match.fact, match.update) for match in _matches(sentence, speaker, _statements)]


def parse_question(question: str, speaker: str = "") -> list[Fact]:
    """What a question asks for, as facts with a blank: no object to ask for it, no subject to ask who."""
    return [match.fact for match in _matches(question, speaker, _questions)]


def is_known_question(text: str) -> bool:
    """True of a text that is one question of the phrasebook, and nothing else."""
    return [match.span for match in _matches(text, USER, _questions)] == [(0, len(text))]


def matches(text: str, speaker: str, lower: bool) -> list[FormMatch]:
    """Where a clause states a fact. lower: it was written without capitals."""
    return list(_matches(text, speaker, _statements, lower))


@lru_cache(maxsize=1 << 8)  # one sentence is asked for what it wants, what it is worth and what it states
def _matches(
    text: str, speaker: str, forms: Callable[[], tuple[PhraseForm, ...]], lower: bool | None = None
) -> tuple[FormMatch, ...]:
    """Matches that do not overlap, in the order of the text; updates win, then the most specific form."""
    if len(text) > MAX_SENTENCE:
        return ()
    speaker, text, is_lower = _spelt(text, speaker)
    lower = is_lower if lower is None else lower
    words = text.lower().replace("’", "'")
    near = [form for form in forms() if form.anchor in words]
    fits = ((form, fit) for form in near for fit in form.regex.finditer(text))
    found = [match for form, fit in fits if (match := _match(form, fit, speaker, lower))]
    chosen: list[FormMatch] = []
    for match in sorted(found, key=lambda match: (match.form.update, match.form.literal), reverse=True):
        if all(match.span[1] <= other.span[0] or match.span[0] >= other.span[1] for other in chosen):
            chosen.append(match)
    return tuple(sorted(chosen, key=lambda match: match.span))


@lru_cache(maxsize=1 << 4)
def _spelt(text: str, speaker: str) -> tuple[str, str, bool]:
    """Who speaks, the words in the spelling of the forms, and whether they were written without capitals."""
    if not speaker and (named := SPEAKER.match(text)) and named[1] not in NOT_NAMES:
        speaker, text = named[1], text[named.end() :]
    lower = in_small_letters(text)
    for part, spelling, usual in _SPELLING:
        text = spelling.sub(usual, text) if part in text else text
    return speaker, text, lower


def is_all_parsed(sentence: str, speaker: str = "") -> bool:
    """True if a sentence says nothing beside the facts that the forms find in it."""
    _, left, _ = _spelt(sentence, speaker)
    found = _matches(sentence, speaker, _statements)
    for begin, end in (match.span for match in reversed(found)):
        left = left[:begin] + left[end:]
    return bool(found) and not re.search(r"\w", _STILL.sub("", left))


def _match(form: PhraseForm, match: re.Match[str], speaker: str, lower: bool) -> FormMatch | None:
    """The fact of one match, or None where a slot holds something else than a name or a value."""
    groups = match.groupdict()
    subject = _name(groups["s"] or speaker) if "s" in groups else ""
    obj = as_object(form.relation, groups["o"], lower, form.opens) if "o" in groups else ""
    if subject is None or obj is None or subject == obj:
        return None
    update = form.update or bool(_STILL.match(match.string, match.end()))
    return FormMatch(form, match.span(), Fact(subject=subject, relation=form.relation, object=obj), update)


def _name(words: str) -> str | None:
    """The name of a subject: "Yes Mira" is Mira, "She" is nobody."""
    return " ".join(word for word in words.split() if word not in NOT_NAMES) or None


def as_object(relation: str, words: str, lower: bool, opens: bool = False) -> str | None:
    """The value of a fact, bare; None where the words are no value of this relation.

    opens: they open a sentence, which gives them a capital. lower: the text has no capitals.
    """
    words = _ARTICLE.sub("", words, count=1) if _ARTICLE.match(words) else words
    named = relation in _NAMED
    if opens and not named and words[1:] == words[1:].lower():
        words = words[0].lower() + words[1:]
    if _NO_OBJECT.match(words) or words in NOT_NAMES:
        return None
    if named and not lower and all(word[0].islower() for word in words.split()):
        return None
    return words


# --- texts: their sentences, and their language -----------------------------------------------------------

_SENTENCE_END = pattern(
    r"(?:(?<=[.!?])|(?<=[.!?][\"')”]))(?<!\b[A-Z]\.)(?<!\b(?:Dr|Mr|Ms|St)\.)(?<!\bMrs\.)(?<!\b(?:e\.g|i\.e)\.)\s+"
    r"|(?<=[。！？])\s*|\s*\n\s*"
)
# Unicode blocks and what they tell.
_SCRIPTS = (
    ("ja", "\u3040-\u30ff"), ("ko", "\uac00-\ud7af\u1100-\u11ff"), ("zh", "\u3400-\u4dbf\u4e00-\u9fff"),
    ("ru", "\u0400-\u04ff"), ("ar", "\u0600-\u06ff\u0750-\u077f"), ("he", "\u0590-\u05ff"),
    ("hi", "\u0900-\u097f"), ("bn", "\u0980-\u09ff"), ("th", "\u0e00-\u0e7f"),
    ("el", "\u0370-\u03ff"), ("hy", "\u0530-\u058f"), ("ka", "\u10a0-\u10ff"),
)  # fmt: skip
_SCRIPT_OF = tuple((tag, pattern(f"[{block}]")) for tag, block in _SCRIPTS)
_LATIN = pattern(r"[A-Za-zÀ-ɏ]")
_LETTER = pattern(r"[^\W\d_]")
_LATIN_WORD = pattern(r"[A-Za-zÀ-ɏ]+")
_SURROGATE = pattern(r"[\ud800-\udfff]")


Say = Callable[..., str]  # (what memos says, in English, and what fills its {gaps}) -> how it is said


@dataclass(frozen=True)
class MessageReading:
    """How messages in a language beside English are read."""

    asks: Callable[[str], bool]  # a text without its full stop
    tells: Callable[[str], bool]  # whether a sentence in which no fact is read is worth keeping
    people: Callable[[str], list[str]]  # that a text names, in order
    things: Callable[[str], list[str]]
    asked: Callable[[str, str], list[Fact]]  # (question, speaker) -> the facts, without their objects, that it asks for
    replies: tuple[dict[str, str], ...]  # what memos says, by what it says in English, in each way to write it
    spelling: Callable[[str], int]  # which of them is that of a text
    other_words: Callable[[str], list[str]]  # for the same as those of a question


@dataclass(frozen=True)
class Language:
    """How a language beside English is read."""

    read: Callable[[str, str], tuple[list[Fact], list[str]]]  # (sentence, speaker) -> (facts, clauses not read)
    times: tuple[tuple[re.Pattern[str], Resolve], ...]
    day_of_month: Callable[[str], tuple[int, int] | None]  # a text that opens with "5th" -> (5, where it ends)
    until: Callable[[str, date], str]  # (text, today) -> the last day that it names; "" for none
    messages: MessageReading | None = None  # without one, as English ones


LANGUAGES = Registry[Language]("memos.languages", "language")  # by the tags of _SCRIPTS


def languages(text: str) -> Iterator[Language]:
    """The installed languages in whose script something in a text is written; English is the reader's own."""
    tags = [] if text.isascii() else [tag for tag, script in _SCRIPT_OF if script.search(text)]
    yield from (_installed()[tag] for tag in tags if tag in _installed())


def language_of(sentence: str, many: float = 1.5) -> Language | None:
    """The installed language that most of a sentence is in. many: of its characters for each word of Latin letters."""
    if sentence.isascii():
        return None
    counts = {tag: len(script.findall(sentence)) for tag, script in _SCRIPT_OF}
    tag = max(counts, key=lambda tag: counts[tag])
    return _installed().get(tag) if counts[tag] >= len(_LATIN_WORD.findall(sentence)) * many else None


def messages_in(text: str) -> MessageReading | None:
    """How messages in the language of a text are read; None where that is as English ones are."""
    tag = language(text)
    installed = None if tag == "en" else _installed().get(tag)
    return installed.messages if installed else None


def say_in_language_of(*messages: str) -> Say:
    """Says it in the language of the first message with letters, as far as that is installed."""
    spoken = language_of(next((text for text in messages if _LETTER.search(text)), ""), many=1)
    reading = spoken and spoken.messages
    replies = reading.replies[reading.spelling(" ".join(messages))] if reading else {}
    mine = f"{USER}: "

    def say(english: str, /, **values: object) -> str:
        told = {gap: re.sub(f"^{mine}", replies.get(mine, mine), str(value)) for gap, value in values.items()}
        return replies.get(english, english).format(**told)

    return say


@cache
def reply_openings(english: str) -> tuple[str, ...]:
    """How a reply begins in each language, up to its first gap."""
    readings = [language.messages for language in _installed().values() if language.messages]
    replies = [said.get(english, english) for reading in readings for said in reading.replies]
    return tuple(reply.partition("{")[0] for reply in (english, *replies))


@cache
def _installed() -> dict[str, Language]:
    return dict(LANGUAGES.usable())


def language(text: str) -> str:
    """A rough tag by script: "en" for Latin letters and for none; a foreign name in an English text does not count."""
    if text.isascii():
        return "en"
    counts = {tag: len(script.findall(text)) for tag, script in _SCRIPT_OF}
    # One Han or kana character is about a word of Latin letters.
    if sum(counts.values()) * 3 <= len(_LATIN.findall(text)):
        return "en"
    if counts["ja"]:  # Japanese is written with Han characters too
        return "ja"
    return max(counts, key=lambda tag: counts[tag])


_SMALL_I = pattern(r"(?<![\w.])i(?=['’ ])")


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text, without the space around them."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def opened(words: str, text: str = "") -> str:
    """Words as they open a sentence: with a capital, unless the text that they are of is written without any."""
    return words if in_small_letters(text or words) else words[:1].upper() + words[1:]


def in_small_letters(text: str) -> bool:
    """True of a text whose names may be, too: one without capitals, or whose speaker is "i"."""
    return text.islower() or bool(_SMALL_I.search(text))


def require_text(text: str, where: str) -> None:
    """Raises InputError for half a character, which JSON can write and nothing can keep."""
    if half := _SURROGATE.search(text):
        raise InputError(f"{where}: character {half.start() + 1} is half of one ({half[0]!r}); remove it")
