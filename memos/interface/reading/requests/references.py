"""Resolves "she", "it" and "that café" by what was said before, or leaves them open; never guesses.

Knows English; other languages are plug-ins. Knows no intents.
"""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from memos.interface.reading.phrasebook import language, messages_in, read_book, sentences
from memos.interface.reading.requests import wordings
from memos.lazy import pattern

_NAME = pattern(
    r"(?<![\w.])(?:(?:Dr|Mr|Mrs|Ms|Prof)\.? )?[A-ZÀ-ÖØ-Þ][a-zà-öø-ÿ]+(?:-[A-Z][a-z]+)?(?![A-Z])(?: [A-ZÀ-ÖØ-Þ][a-zà-öø-ÿ]+(?![A-Z]))?"
)
_TITLED = pattern(  # what follows is the name of a thing
    r"\b(?:song|film|movie|book|novel|play|poem|game|band|show|series|album|painting|caf[eé]|hotel|restaurant|bar|ship|boat|app|brand|not) $",
    re.IGNORECASE,
)
# before a name, these say that it is a place, a thing or a time
_AT = pattern(
    r"\b(?:in|at|to|from|into|of|near|via|on|like|speak|speaks|speaking|visit|visited|called|named|using|use|play|plays|drive|drives|drove|by|a|an|the|than|learn|learning|love|watch|watched|reading|read) $",
    re.IGNORECASE,
)
_OF_PERSON = pattern(
    r"\b(?:about|on|for|with|to|by|of|from|like|visit|visited|called|named|love|than) $", re.IGNORECASE
)
_OF_WHOM = pattern(r"\b(?:about|with|for|by) $")
_PLACE = pattern(
    r"^(?:Café|Cafe|Hotel|Restaurant|Bar|Saint|St|Lake|Mount|Bay|North|South|East|West|University|Street)\b|\b(?:Street|Road|Avenue|Row|Lane|Hospital|School|University|Café|Airport|Station|Square|Bridge|Park|Hotel|Club|Inc|Ltd|Bank|Airlines|Church|Museum|Library|Beach|River|Lake|Island|Company|Group|Team)$"
)
_DET = r"(?:(?i:my|our|the|a|an|his|her|their|your|this|that)|[A-Z]\w+['’]s)"
_TIME_NOUN = pattern(
    r"^(?:week|month|year|day|time|times|moment|morning|evening|afternoon|night|weekend|way|lot|bit|one|other|same|end|town|idea|first|last|world|future|past|beginning|place|job)$"
)
_NP = pattern(rf"(?<![\w’'])(?P<det>{_DET}) (?P<rest>[\w’'-]+(?: [\w’'-]+){{0,7}})")
_NO_NOUN = r"again|too|now|any|please|either|to|and|or|but|for|at|with|from|on|about|in|yet|instead|back|also|when|where|what|who|how|that|if|because|as|by|is|was|anymore|until|off|out|up|down|so|then|there|here|today|tomorrow|yesterday|know|see|read|edit|have|use|access|write|change|look|the|a|an|my|our|this|these|those|some|all|not|only|alone"
_NOUN_ALONE = pattern(rf" (?!(?:{_NO_NOUN})\b|\w+(?:s|ed|ing|t)\b)[a-z]+\s*(?:$|[.!?,;])")
MAX_NOUN = 6  # words
_FEMALE, _MANY = ("she", "her", "hers", "herself", "她"), ("they", "them", "their", "theirs")
_TITLED = pattern(r"\b(mr|mister|mrs|ms|miss)\b\.? (?:[a-z]+ )?$")
_OWN_NAME = pattern(  # before who speaks
    r"(?:\bi['’]?m|\bi am|\bmy name(?:['’]?s| is)|\bcall me|[我俺](?:是|叫|名叫|的名字[是叫])) ?", re.IGNORECASE
)
_PRONOUN = pattern(
    r"\b(?:she|he|her|hers|his|him)\b(?!['’])|\b(?:she|he)(?=['’](?:s|ll|d)\b)|[她他](?![们俩們倆])", re.IGNORECASE
)
_MEANS = {"she": "she", "her": "she", "hers": "she", "she's": "she", "她": "she"}  # others are "he"
_NOBODY_YET = pattern(lambda: rf"(?:(?:{'|'.join(words_of('speak_of_nobody'))})(?![a-z])|[\W\d_])*", re.IGNORECASE)
_SOMEBODY_ELSE = pattern(  # a name within a sentence, or who says something
    r"\w,? (?-i:[A-Z])[a-z]|\w (?:sa(?:id|ys)|told \w+|thinks|reckons|promised|wants)(?: that)? $", re.IGNORECASE
)
_NEXT_TO, _LATELY = 18, 3  # characters between "my husband is called" and a name; messages that a pronoun points into
_HAN = r"\u4e00-\u9fff"
_WORDS, _FEW, _OWN_CLAUSE = (
    pattern(rf"[{_HAN}]|[\w'’]+"),
    4,
    pattern(r"(?:(?:I|we)\b|[我俺咱])[^,，.;]*", re.IGNORECASE),
)


def words_of(name: str) -> frozenset[str]:
    """A list of names.yaml."""
    return _lists()[name]


@cache
def _lists() -> dict[str, frozenset[str]]:
    lists = read_book("memos.interface.reading.requests", "names.yaml")
    return {name: frozenset(words.split()) for name, words in lists.items()}


def _relative(kind: str, owned: str) -> re.Pattern[str]:
    """Those of a list of names.yaml, with whose they are. owned: "?" where that can be left out."""
    english, others = (
        [w for w in sorted(words_of(kind), key=len, reverse=True) if w.isascii() is is_english]
        for is_english in (True, False)
    )
    whose = rf"(?:(?:my|our|his|her|their) (?:(?!dog|cat|kid)[\w-]+ )?){owned}(?:ex-?|step-?|god|great-)?"
    return re.compile(
        rf"(?i)\b{whose}(?:{'|'.join(english)})(?:[- ]in[- ]law)?\b(?!-)|[我咱俺]?们?的?(?:{'|'.join(others)})"
    )


@cache
def _relatives() -> dict[str, re.Pattern[str]]:
    """Who is spoken of by what they are to the user, by the pronoun for them; "" where it is either."""
    return {"she": _relative("kin_she", "?"), "he": _relative("kin_he", "?"), "": _relative("kin_either", "")}


@dataclass(frozen=True)
class Known:
    """What a conversation has spoken of, the latest last: people, things, whole statements by anybody.

    women, men: names that were spoken of as "she" and as "he". shared: (what, with whom), in its words. own: names that
    the user has given as theirs. said: what the user said.
    """

    people: tuple[str, ...] = ()
    things: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    women: tuple[str, ...] = ()
    men: tuple[str, ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    own: tuple[str, ...] = ()
    said: tuple[str, ...] = ()


def known(turns: Sequence[Mapping[str, object]]) -> Known:
    """What turns of {role or speaker, content} speak of."""
    people, things, statements, women, men = list[str](), list[str](), list[str](), list[str](), list[str]()
    shared, own, said = list[tuple[str, str]](), list[str](), list[str]()
    for turn in turns:
        content = str(turn.get("content", ""))
        by_model = str(turn.get("role", "")) == "assistant"
        names = names_in(content)
        own += [name for name in names if re.search(_OWN_NAME.pattern + re.escape(name), content, re.IGNORECASE)]
        names = [name for name in names if name not in own]
        people += [speaker] if (speaker := str(turn.get("speaker", ""))) else []
        people += names
        things += [yours(thing, by_model) for thing in things_in(content)]
        said += [] if by_model else [f"{speaker}: {content}" if speaker else content]
        of = {gender: [who for who, called in spoken_of(content) if called == gender] for gender in ("she", "he")}
        women += [name for name in names if name in of["she"]]
        men += [name for name in names if name in of["he"]]
        for sentence in sentences(content):
            if not sentence.endswith(("?", "？")):
                statements.append(yours(sentence.rstrip(".!。！ "), by_model))
            shared += _shared(sentence)
    named = _latest(people), _latest(things)
    return Known(*named, tuple(statements), tuple(women), tuple(men), tuple(shared), tuple(own), tuple(said))


_SHARED = pattern(
    r"(?:^|\b(?:can|could|may|does|do|is|yes, |no, )\s*)(?P<with>(?!(?:can|could|may|does|do|is|yes|no)\b)(?:the |my |our )?[\w-]+(?: (?-i:[A-Z])[\w-]+| team| group)?)(?: and (?-i:[A-Z])\w+)?(?: (?:can|may|still|now|also|able|allowed|to))* (?:see|read|view|access|edit|open|annotate|comment on|change) (?P<what>(?:my|our|the|[A-Z]\w+['’]s) [\w' -]+?)[?.!]*$|\b(?P<what2>(?:my|our|the|[A-Z]\w+['’]s) [\w' -]+?) (?:is|was|are|has been)? ?(?:shared with|visible to|open to) (?P<with2>(?:the |my |our )?[\w-]+(?: team| group)?)|\bshared? (?P<what3>(?:my|our|the|[A-Z]\w+['’]s) [\w' -]+?) with (?P<with3>(?:the |my |our )?[\w-]+(?: team| group)?)"
    rf"|(?P<with4>[{_HAN}]{{2,5}}?)(?:还|也|现在)?(?:可以|能|能够|有权)(?:看到|看见|查看|看|编辑|读|访问|批注|修改)(?P<what4>[{_HAN}]{{2,10}}?)[吗？。！]*$|(?P<what5>[{_HAN}]{{2,10}}?)(?:已经|是|已)?(?:共享|分享|开放)给(?:了)?(?P<with5>[{_HAN}]{{2,5}}?)[了吗？。！，]*$",
    re.IGNORECASE,
)


def _shared(sentence: str) -> list[tuple[str, str]]:
    """What a sentence says, or asks, that somebody can see: (what, with whom)."""
    found = _SHARED.search(sentence)
    if not found:
        return []
    groups = {name.rstrip("2345"): value for name, value in found.groupdict().items() if value}
    partner = re.sub(r"^(?:the|our) ", "", groups["with"], flags=re.IGNORECASE)
    nobody = re.fullmatch(r"i|you|who|we|我|你|谁|大家|yes|no|it", partner, re.IGNORECASE)
    return [] if nobody else [(groups["what"], partner)]


def _latest(names: Sequence[str]) -> tuple[str, ...]:
    """Drop duplicates, keeping the last."""
    return tuple(reversed(dict.fromkeys(reversed(names))))


def yours(text: str, by_model: bool) -> str:
    """The model's "your" is the user's "my"."""
    if not by_model:
        return text
    text = re.sub(r"\byour\b", "my", text)
    text = re.sub(r"\bYour\b", "my", text)
    return re.sub(r"您|你", "我", text) if language(text) == "zh" else text


def names_in(text: str) -> list[str]:
    """The people whom a text names, in order; what lies in a place or is a product is none."""
    if reading := messages_in(text):
        return reading.people(text)
    found = [named for match in _NAME.finditer(text) if (named := _person(match, text))]
    if text == text.lower():  # written without capitals
        usual = (words_of("she") | words_of("he")) - words_of("common_words")
        words = ((m.start(), m[0].capitalize()) for m in re.finditer(r"[a-z]+", text))
        found += [(start, name) for start, name in words if name in usual]
    return list(dict.fromkeys(name for _, name in sorted(found)))


def _person(match: re.Match[str], text: str) -> tuple[int, str] | None:
    """(where it begins, the name) of words with capitals; None where they name nobody."""
    first_names = words_of("she") | words_of("he")
    parts, start = match[0].split(), match.start()
    while parts and (parts[0] in words_of("openings") or parts[0] in ("St", "St.")):
        if parts[0] in first_names - {"Will", "Mark", "May"}:
            break
        start += len(parts[0]) + 1
        parts = parts[1:]
    while len(parts) > 1 and parts[-1] in words_of("openings"):
        parts = parts[:-1]
    name, before = " ".join(parts), text[:start]
    if not parts or parts[0] in words_of("not_people") or _PLACE.search(name):
        return None
    if re.match(r"\w*(?: [A-Z]\w+)? (?:Street|Road|Row|Lane|Hospital|Airport)", text[start:]):
        return None
    if parts[0] not in first_names:
        if _NOUN_ALONE.match(text, start + len(name)):  # "Holle formula"
            return None
        owns = text.startswith(("'s", "’s"), start + len(name))
        of_person = _OF_PERSON.search(before) and (owns or _OF_WHOM.search(before))  # as far as that can be seen
        if _TITLED.search(before) or (_AT.search(before) and not of_person):
            return None
    return start, name


def things_in(text: str) -> list[str]:
    """The things that a text names with "my", "the" and the like, in order."""
    reading = messages_in(text)
    if reading:
        return reading.things(text)
    return list(dict.fromkeys(phrase for match in _NP.finditer(text) if (phrase := _phrase(match))))


def _phrase(match: re.Match[str]) -> str:
    """A noun with its determiner, up to a word that ends it; "" for times and people."""
    det, words = match["det"], _noun_words(match["rest"].split())
    if not words:
        return ""
    head = words[-1] if "of" not in words else words[words.index("of") - 1] if words.index("of") else ""
    if _TIME_NOUN.match(head.lower()) or {head.lower().removesuffix("'s"), words[0].lower()} & words_of("person_nouns"):
        return ""
    if det.lower() in ("a", "an", "this", "that"):
        return " ".join(words)
    if det.lower() in ("my", "our", "the", "your", "his", "her", "their"):
        det = det[0].lower() + det[1:]
    return f"{det} {' '.join(words)}"


def _noun_words(words: list[str]) -> list[str]:
    noun: list[str] = []
    for word in words[:MAX_NOUN]:
        if word.lower() in words_of("noun_ends") and not (word.lower() == "of" and noun):
            break
        if noun and re.fullmatch(r"[a-z]+(?:ed|ly)", word):
            break
        noun.append(word)
    while noun and noun[-1] == "of":
        noun.pop()
    return noun


# -- resolving -----------------------------------------------------------------------------------------


def person_of(pronoun: str, about: Known) -> list[str]:
    """Whom "she" or "he" can be: one name where that is sure, several or none where it is not. A name of which nothing
    tells that it is a woman's or a man's is nobody's: it may be a company's."""
    if pronoun in _MANY:
        return list(about.people)
    own, named_so = (words_of("she"), about.women) if pronoun in _FEMALE else (words_of("he"), about.men)
    fits = (name for name in about.people if name.split()[0] in own or name in named_so)
    return [name for name in fits if may_be(pronoun, name, about)]


def may_be(pronoun: str, name: str, about: Known) -> bool:
    """False of a woman's name for "he", and of a man's for "she"."""
    if pronoun in _MANY:
        return True
    female, first = pronoun in _FEMALE, name.split()[0].capitalize()
    named_so, named_otherwise = (about.women, about.men) if female else (about.men, about.women)
    other = words_of("he" if female else "she")
    return first not in other and (name.capitalize() not in named_otherwise or name in named_so)


def who(text: str) -> str:
    """The person whom words are about: the first that they name; "user" for the speaker."""
    plain = wordings.TO_ME.sub(lambda m: " " * len(m[0]), text)
    first = wordings.FIRST.search(plain)
    people = [(plain.find(name), name) for name in names_in(plain) if plain.find(name) >= 0]
    people += [(plain.lower().find(name.lower()), name) for name in names_in(plain) if plain.find(name) < 0]
    position, name = min(people, default=(len(text) + 1, ""))
    return "user" if first and first.start() <= position else name


def asked_last(turns: Sequence[Mapping[str, object]]) -> str:
    """The last message of the user, in one line and without how it ends."""
    said = (str(turn.get("content", "")) for turn in reversed(turns) if turn.get("role") != "assistant")
    return " ".join(next(said, "").split()).rstrip(" .?!。？！")


def spoken_of(text: str) -> list[tuple[str, str]]:
    """(who, "she", "he" or "" where it is not told) of those whom a text speaks of, by their names or as "my sister"."""
    low, names = text.lower(), {name: (text.lower().find(name.lower()), "") for name in names_in(text)}
    found = list[tuple[int, str, str]]()
    for gender, relative in _relatives().items():
        for match in relative.finditer(text):
            near = low[match.end() : match.end() + (_NEXT_TO if match[0].isascii() else _NEXT_TO // 3)]
            before = low[: match.start()].rstrip()
            called = [n for n in names if n.lower() in near or before.endswith((n.lower() + ",", n.lower() + " is"))]
            if called:
                names[called[0]] = (names[called[0]][0], gender)
            else:
                found.append((match.start(), match[0], gender))
    titles = {name: _TITLED.search(low[:at]) for name, (at, _) in names.items()}
    by_title = {name: "he" if title[1] in ("mr", "mister") else "she" for name, title in titles.items() if title}
    found += [(at, name, gender or by_title.get(name, "")) for name, (at, gender) in names.items()]
    return [(who, gender) for _, who, gender in sorted(found)]


def meant(pronoun: str, before: str, about: Known, within: int | None = None) -> list[str]:
    """Whom "she" can mean; nobody where the message itself has spoken of somebody, which is said without a name then.
    before: what the message says first. within: so many of the messages before it."""
    gender = _MEANS.get(pronoun.lower(), "he")

    def fit(text: str) -> list[str]:
        people = [who for who, called in spoken_of(text) if called in ("", gender) and who not in about.own]
        people = [who for who in people if not pronoun.isascii() or language(who) == "en"]
        return list(dict.fromkeys(who for who in people if may_be(pronoun.lower(), who, about)))

    if (
        fit(before)
        or _SOMEBODY_ELSE.search(before)
        or not (_NOBODY_YET.fullmatch(before) or wordings.FIRST.search(before) or spoken_of(before))
    ):
        return []  # "eoin lost his job"
    if any(_MEANS.get(earlier[0].lower(), "he") == gender for earlier in _PRONOUN.finditer(before)):
        return []  # as it was there
    return next(filter(None, map(fit, reversed(about.said[-within:] if within else about.said))), [])


def resolved(text: str, about: Known, before: str = "", is_told: bool = False) -> str:
    """The text with whom "she" and "his" mean, as far as the conversation tells it. before: what stands in front of it.
    is_told: it is kept, and nobody is put in who is not the only one lately spoken of."""
    out, done = "", 0
    for match in _PRONOUN.finditer(text):
        out, done = out + text[done : match.start()], match.start()
        opening = text[: match.start()]
        if is_told and len(_WORDS.findall(opening)) > _FEW and not _OWN_CLAUSE.fullmatch(opening):
            continue  # "tash is on my couch till the 12th cos her lease ended"
        who = meant(match[0], before + out, about, _LATELY if is_told else None)
        if not who or (is_told and len(who) > 1):
            continue
        word, done = match[0].lower(), match.end()
        noun_follows = not re.match(rf"\s*(?:$|[,.!?;:]|(?:{_NO_NOUN})\b)", text[done:])
        owns = word in ("his", "hers") or (word == "her" and noun_follows)
        out += f"{who[-1]}'s" if owns else who[-1]
    return out + text[done:]
