"""Reads what people state as they type, of whom and of when, and what it ends, with a tagger trained for it.

The tagger marks words; what they come to is decided here, by rules for what is regular: "my little sister" is
"Mira's sister", and "on Friday" lies behind a verb in the past and ahead of any other. Trained by
scripts/train_statements.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date

from memos.cube import Fact, plain
from memos.interface.reading.requests.arguments import MessageTagger
from memos.interface.reading.requests.spans import TaggedSpan
from memos.interface.reading.statements import cues
from memos.interface.reading.statements.readings import Mode, english_readings, one_of
from memos.interface.reading.times import times
from memos.lazy import pattern

MODES: dict[str, Mode] = {mode: mode for mode in ("is", "also", "now", "ended", "was", "will")}
ABOUT, KEY, VALUE, OUT, CITY = "who", "key", "value", "out", "city"  # labels of the tagger, beside other relations
SURE, SURE_ENDED = 0.5, 0.7  # mean probability of its labels from which a run of words is taken; to hold no more
ALIKE, CHANGES, MORE, STRANGE, UNLIKELY = 10.0, 2.0, 2.0, 1.5, 3.5  # what counts for an end: log odds
# where they have no word in common, of Chinese, of which the encoder knows little: the cosine of any two is .4 to .7;
# and where less than this share of the earlier one's words is in the later one
STRANGE_ZH, FEW, FEW_SHARED = 5.0, 0.2, 1.0
MOST = 0.5  # share of the words of a message without which it says nothing any more
_FIRST_PERSON = pattern(lambda: f"(?:{one_of('first_person')}|[我俺咱]们?[跟和与同].*)", re.IGNORECASE)  # or nobody
_MY = pattern(r"(?:(?:my|our|me|the)\s+|我(?:们|的|家)?(?:的)?|咱(?:们)?(?:的|家)?|俺)", re.IGNORECASE)
_ADJECTIVE = pattern(lambda: rf"(?:(?:{one_of('adjectives')})\s+)+(?=\w)", re.IGNORECASE)
_OF_CHURCH = pattern(r"(?:Father|Mother|Sister|Brother) [A-Z]\w+")
_KIN = pattern(
    lambda: rf"(?:uncle|auntie?|cousin|mate|bestie) (?=\w)|(?:[爸妈哥姐弟妹爷奶]+|{one_of('chinese_kin')})$",
    re.IGNORECASE,
)
_DOUBT = pattern(
    r"\btraining to be\b|可能|也许|说不定|如果|要是|假如|差点|差一点|[去前]年的|以前的|不会", re.IGNORECASE
)
_PRONOUN = pattern(r"s?he|they|it|her|his|their|him|them|[她他它](?:们)?的?", re.IGNORECASE)
_PRONOUN_OPENS = pattern(r"(?:s?he|they)(?:['’]?(?:s|re|ve|d|ll))?\s", re.IGNORECASE)
_IT_OPENS = pattern(r"(?:(?:no|oh|oops|sorry|wait|actually|well|and|so)\b[,.!]* ?)*(?:it|that)['’]?s?\b", re.IGNORECASE)
_IN_LAW = pattern(r"\w+[ -]in[ -]laws?$", re.IGNORECASE)
_HAN = pattern(r"[\u3400-\u9fff]")
_ZH_KIN = pattern(
    lambda: rf"[我俺咱](?:们|家)?的?前?(?:[爸妈哥姐弟妹]{{1,2}}|{one_of('chinese_kin', 'chinese_people')})(?=的?\S)"
)
_EVERY = pattern(r"\b(?:every|each|since) (?:\w+ )?$|每(?:个|一)?$|逢$|自从$", re.IGNORECASE)
_MONTH = pattern(r"^(?!.*\d{4}).*(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|\d月)", re.IGNORECASE)
_SINCE = pattern(r"since\b|自从", re.IGNORECASE)
_AND_I = pattern(r" (?:and|&) (?:i|me)\b", re.IGNORECASE)
_I_FIRST = pattern(r"^(?:\W|and |so |but |then )*(?:i|we|me)\b|^[我咱]们?[跟和给帮陪]", re.IGNORECASE)  # who does it
_CLAUSE_END = pattern(r"[，。！？；、：,.!?;\s…～~（）()]")
_PAST = r"(?:{}|(?!need|speed|feed|bed|red|wed|seed|indeed|hundred|sacred|embed|shed)\w{{2,}}ed)\b"  # a verb
_PAST_VERB = pattern(lambda: rf"\b{_PAST.format(one_of('past_verbs'))}|[了过刚昨]", re.IGNORECASE)
# "just moved", which the tagger takes for talk: a word for whom it is about, or the beginning of what they did
_JUST = pattern(lambda: rf"(?P<who>(?<=\w) )?\bjust (?={_PAST.format(one_of('past_verbs'))})", re.IGNORECASE)
_AHEAD = pattern(
    r"\b(?:until|till?|by|due|from|starting)\s+(?:the\s+)?\w+$|\b(?:will|gonna|going to|['’]ll)\b|[到直]$|[报约订挂]了"
    r"|改[到成为]|^were \w+ing\b|\bnow (?:i|we|it|he|she)\b|\bgetting \w+ed\b",
    re.IGNORECASE,
)
_NO_HOME = pattern(r"(?i)\bfrom \||\|\w+(?: \w+)? (?:rd|road|st|street|ave|lane|ln)\b")  # | stands before a place
_SET_FOR = pattern(  # | stands before a day
    r"\b(?:moved?|pushed|postponed|(?:re)?scheduled|booked|delayed|shifted|planned|set|due|put off|bumped)\b"
    r"[^,.!?]{0,30}?(?: to (?:(?:the|on|mon|tue|wed|thu|fri|sat|sun)\w* )*\|| \|(?:for|till?|until)\b)|[到至]\|",
    re.IGNORECASE,
)
_CUT = pattern(lambda: rf"(?:['’](?:m|re|s)| (?:{one_of('unended')}))$", re.IGNORECASE)
_HAIL = pattern(lambda: f"(?:{one_of('hails')})", re.IGNORECASE)
_THING = pattern(lambda: rf"\b(?:{one_of('animals', 'things')})\b|[猫狗鸟鱼兔鸡](?! \w)", re.IGNORECASE)
_PERSON = pattern(lambda: rf"(?i:{one_of('kin', 'people')})(?:,? ([A-Z]\w+),?)?")  # and the name
# "my sister" or "our new dentist", before what is said of them; not "my sister is called", nor "my dentist appointment"
_MY_PERSON = pattern(
    lambda: (
        rf"(?:my|our) (?:\w+ )?(?:{one_of('kin', 'people')})(?= |['’]s )"
        rf"(?! (?:(?:is|are)(?: an? \w+)? (?:called|named)|{one_of('of_people')})\b)"
    ),
    re.IGNORECASE,
)


@dataclass(frozen=True)
class TaggedStatement:
    """words: as they were said. subject: whom they are about. when: the day or days that they name, as times.FoundTime
    has it, or "". facts: what is known to be asked for in it."""

    words: str
    subject: str
    when: str
    mode: Mode
    facts: tuple[Fact, ...]


def read(text: str, speaker: str, day: date, tagger: MessageTagger) -> list[TaggedStatement]:
    """What somebody's words state, in their order. day: that on which they were said."""
    # as the tagger knows it, of the same length: "I just moved" as "I moved", and "just moved" as well
    plain = _JUST.sub(lambda just: f"{' ' if just['who'] else 'I':{len(just[0])}}", text)
    tagged, found = tagger.tag(plain), list[TaggedStatement]()
    for begin, end, mode in _parts(text, [part for part in tagged.parts if part.sure >= SURE]):
        words, slots = text[begin:end], [s for s in tagged.slots if begin <= s.begin < end]
        slots = [s for s in slots if s.label != CITY or not _NO_HOME.search(f"{text[: s.begin]}|{text[s.begin :]}")]
        named = {s.label: text[s.begin : s.end] for s in reversed(slots)}  # the first of each
        before = next((one.subject for one in reversed(found) if one.subject != speaker), "")
        about = named.pop(ABOUT, "") or _opening_kin(words) or (before if _PRONOUN_OPENS.match(words) else "")
        subject = speaker if _speaks_of_self(words, about) else _subject(about, speaker, before)
        is_open = subject == speaker and _IT_OPENS.match(words)  # "its mrs doyle" is not said of who speaks
        facts = () if is_open or _doubted(words) else tuple(_facts(named, subject, mode))
        found.append(TaggedStatement(words, subject, _when(words, mode, day), mode, facts))
    return found


def ends(earlier: str, later: str, alike: float, shared: float, speaker: str, day: date, tagger: MessageTagger) -> bool:
    """True if most of an earlier message no longer holds after a later one of the same person: the tagger says so, both
    are about the same one, and not to the same effect, and it is likely of two messages so alike: by their cosine, and
    the share of the earlier one's words that the later one has. The tagger alone sees an end in a fifth of pairs that
    have nothing to do with each other (docs/decisions/0082-what-is-alike-ends.md)."""
    if _doubted(later) or share_out(earlier, later, tagger) < MOST:
        return False
    before, after = (read(text, speaker, day, tagger) for text in (earlier, later))
    now = [one for one in after if one.mode not in ("also", "was", "will")]
    about = {one.subject for one in now} & {one.subject for one in before}
    same = {(f.subject, f.relation, plain(f.object)) for one in before for f in one.facts if f.holds}
    again = {(f.subject, f.relation, plain(f.object)) for one in now for f in one.facts if f.holds}
    changes = bool(after) and all(one.mode in ("now", "ended") for one in after)
    kinds = ({f.relation for one in some for f in one.facts} for some in (before, now))
    strange = STRANGE_ZH if _HAN.search(later) else STRANGE
    apart = FEW_SHARED * (0 < shared < FEW) if shared or set.intersection(*kinds) else strange
    likely = ALIKE * alike + CHANGES * changes - MORE * (len(before) + len(after) - 2) - apart - UNLIKELY
    return bool(about) and not same & again and likely > 0


def share_out(earlier: str, later: str, tagger: MessageTagger) -> float:
    """Which share of the words of an earlier message no longer holds after a later one of the same person, 0 to 1."""
    pointed = tagger.tag(later, earlier).pointed
    gone = [(span.begin, span.end) for span in pointed if span.label == OUT and span.sure >= SURE_ENDED]
    words = [match.span() for match in re.finditer(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+", earlier)]
    return sum(any(b <= begin and end <= e for b, e in gone) for begin, end in words) / max(1, len(words))


def _parts(text: str, tagged: list[TaggedSpan]) -> list[tuple[int, int, Mode]]:
    """Where each statement begins and ends. Of Chinese, of which the tagger knows few words, whole clauses."""
    found: list[tuple[int, int, Mode]] = []
    for part in tagged:
        begin, end = part.begin, part.end
        if _HAN.search(text, begin, end):
            while begin > 0 and not _CLAUSE_END.match(text[begin - 1]):
                begin -= 1
            while end < len(text) and not _CLAUSE_END.match(text[end]):
                end += 1
            if found and begin < found[-1][1]:
                continue
        elif _CUT.search(text, begin, end):
            end = next((end + n for n, mark in enumerate(text[end:]) if mark in ",.!?;\n"), len(text))
        begin += len(text[begin:end]) - len(text[begin:end].lstrip(" ,;-"))
        end = begin + len(text[begin:end].rstrip(" ,;-!"))
        if begin < end and not _HAIL.fullmatch(text, begin, end):
            found.append((begin, end, MODES[part.label]))
    return found


def _opening_kin(words: str) -> str:
    """ "My sister" or "我妈", which opens a clause."""
    found = _ZH_KIN.match(words) or _MY_PERSON.match(words)
    return found[0] if found else ""


def _speaks_of_self(words: str, about: str) -> bool:
    """True where the speaker does what is said to whom the tagger finds, or with them: "I moved my mother's things"."""
    at = words.find(about)
    return bool(_I_FIRST.search(words[:at]) or _AND_I.match(words, at + len(about)))


def _when(words: str, mode: Mode, day: date) -> str:
    """The day or days that words name, if it is not each of them."""
    behind = _lies_behind(words, mode)
    found = times.find(words, day, past=behind)
    if behind and found and _SET_FOR.search(f"{words[: found.span[0]]}|{words[found.span[0] :]}"):
        behind, found = False, times.find(words, day)
    if not found or _EVERY.search(words[: found.span[0]]) or _SINCE.match(words, found.span[0]):
        return ""
    if not behind and found.when < day.isoformat() and _MONTH.search(words[slice(*found.span)]):
        return _a_year_later(found.when)  # the nearest is the last one
    return found.when


def _a_year_later(when: str) -> str:
    days = (date.fromisoformat(one) for one in when.split("/"))
    with suppress(ValueError):
        return "/".join(day.replace(year=day.year + 1).isoformat() for day in days)
    return when  # 29 February


def _lies_behind(words: str, mode: Mode) -> bool:
    """True if a day that could be the last or the next is the last one."""
    if mode == "will" or _AHEAD.search(words):
        return False
    return mode in ("was", "ended") or bool(_PAST_VERB.search(words))


def _subject(words: str, speaker: str, before: str) -> str:
    """Whom the words for a subject name; a relative without a name is named by the speaker. before: whom the last
    statement was about, which is "she" or "he"."""
    # "my mums dating"; "表妹大后天", of which the tagger takes a sign too many
    words = re.sub(r"['’]s?$|(?<=\bmum|\bmom|\bdad|\bnan)s$|(?<=[爸妈哥姐弟妹])[大上前今]$", "", words.strip())
    words = re.sub(r" (?:(?:from|at|in) (?:the|my|our) .*|and (?:his|her|their) .*|both|all|now|still)$", "", words)
    if not words or _FIRST_PERSON.fullmatch(words) or _MY.fullmatch(f"{words} "):
        return speaker
    if _PRONOUN.fullmatch(words):
        return before or words
    if _OF_CHURCH.fullmatch(words):
        return words
    own = _MY.match(words)
    rest = _ADJECTIVE.sub("", words[own.end() :] if own else words, count=1)
    relative = english_readings().kin.match(f"my {rest} ")
    name = rest[relative.end() - len("my ") :].strip(" ,") if relative and not _IN_LAW.match(rest) else ""
    if name and name[0] not in "'’" and not name.startswith("and "):  # not "our neighbour's goat"
        return name
    person = None if _THING.search(rest) else _PERSON.fullmatch(rest)
    if person and person[1]:
        return str(person[1])
    if kin := _KIN.match(rest):
        return rest[kin.end() :] or _of(speaker, rest)
    if own and not person and (_THING.search(rest) or (own[0].lower().startswith("the") and not relative)):
        return speaker  # what becomes of a thing or an animal is told of whose it is
    if own and own[0].lower() == "our " and rest.istitle() and not (person or relative):  # "our Siân"
        return rest
    return _of(speaker, rest) if (own or person) and rest else words


def _doubted(words: str) -> bool:
    return any(doubt.search(words) for doubt in (cues.DOUBT, cues.QUOTED, _DOUBT))


def _of(speaker: str, relative: str) -> str:
    return f"{speaker}的{relative}" if _HAN.search(relative) else f"{speaker}'s {relative.lower()}"


def _facts(named: dict[str, str], subject: str, mode: Mode) -> Iterator[Fact]:
    """One for each relation of which there is a value; none of what is in doubt."""
    key, value = named.pop(KEY, ""), named.pop(VALUE, "")
    pairs = [*named.items(), *([(key.lower(), value)] if key and value else [])]
    for relation, words in pairs:
        sole = english_readings().holds.get(relation) == "one" or relation == key.lower()
        bare = re.sub(r"^(?:an?|the|my|our)\s+(?=\S)", "", words, flags=re.IGNORECASE)
        yield Fact(subject=subject, relation=relation, object=bare, mode=mode, sole=sole and mode == "now")
