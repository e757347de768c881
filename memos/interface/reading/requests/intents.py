"""Recognises what a sentence is for (remember, ask, correct, forget, talk) and what a question wants, by rules.

Knows English and Chinese; knows no stores and no tensors.
"""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timezone
from difflib import SequenceMatcher
from enum import Enum
from functools import cache, lru_cache

from memos.cube import Fact
from memos.interface.reading.phrasebook import (
    MAX_SENTENCE,
    NAME,
    NOT_NAMES,
    language,
    messages_in,
    opened,
    parse,
    parse_question,
    sentences,
)
from memos.interface.reading.requests import wordings
from memos.interface.reading.requests.references import asked_last, words_of
from memos.interface.reading.statements.statements import attribute_in, read
from memos.interface.reading.times import times
from memos.lazy import pattern
from memos.ops import Asked, Wants
from memos.skeleton import simplified


class SentenceIntent(Enum):
    REMEMBER = "remember"
    ASK = "ask"
    CORRECT = "correct"
    FORGET = "forget"
    TALK = "talk"


FIRST_PERSON = pattern(r"\b(?:I|[Mm]e|[Mm]y|[Mm]ine|[Ww]e|[Uu]s|[Oo]ur)\b|我")
_PLEASE = r"(?:please[, ]+|you can |(?:I want|I would like|I['’]d like) you to )*"
_DONT = r"(?:do not|don['’]t|never)"
_SAID = r"(?: what I (?:said|told you))?(?: about)?"
_WRONG = r"wrong|not (?:right|true|correct)(?: any ?more)?"
# In order: "don't forget" is to remember. "Do you remember ...?" has no mark.
_OPENINGS = {
    SentenceIntent.REMEMBER: (
        _PLEASE + rf"(?:{_DONT} forget|remember|note|(?:keep|bear) in mind|make a note)(?:[,:]? that|:|,)\s+",
        _PLEASE + rf"(?:{_DONT} forget|remember) (?=(?:I|my|we|our)\b)",
        r"(?:for the record|note to self|fyi)[,:]\s*",
        r"请?(?:帮我)?(?:记住|记下来?|记一下|记得|(?:别|不要|不能)忘[了记]?)[，,：:、\s]*",
    ),
    SentenceIntent.FORGET: (
        _PLEASE + rf"(?:forget|erase|delete|remove|{_DONT} remember)(?: about)?(?:[,:]? that)?{_SAID}\s+",
        r"请?(?:帮我)?(?:忘记|忘掉|忘了|删除|删掉)(?:关于)?[，,：:\s]*",
    ),
    SentenceIntent.CORRECT: (
        r"(?:no[,.]? )?(?:actually|in fact|correction|update|scratch that|sorry|wait|I was wrong)[,.:;—-]+\s*",
        rf"(?:no[,.]? )?that(?:['’]s| is) (?:{_WRONG})[,.:;—-]+\s*",
        r"no[,.:;—-]+\s*",
        r"(?:不对|不是的|错了|说错了|更正(?:一下)?|纠正(?:一下)?|其实)[，,。：:\s]*",
    ),
}
_MARKS = {kind: pattern("|".join(forms), re.IGNORECASE) for kind, forms in _OPENINGS.items()}
# "Change my home city to Oslo" says what "My home city is now Oslo" says.
_CHANGE = pattern(rf"{_PLEASE}(?:change|update|set) ((?:my|(?-i:{NAME})['’]s) .+?) to (.+)", re.IGNORECASE)
_COULD_YOU = pattern(r"(?:can|could|would|will) you (?=.+\?$)", re.IGNORECASE)
_OF_SOMEBODY = pattern(rf"(?:my|our|what|where|who|when|how|I|{NAME})\b")  # not "Will you forget me?"
_FROM_MEMORY = pattern(r"(?: from (?:your |the )?memory)?[\s.!。！]*$", re.IGNORECASE)
_NOTHING = pattern(r"(?:it|that|this|about it|about that)?[.!。！\s]*", re.IGNORECASE)  # "Forget it."

_JOINED = pattern(r"(?:(?:and|but|so|also|then|oh|please|ok(?:ay)?),? )+|(?:另外|还有|对了|然后)[，,]?", re.IGNORECASE)

_QUESTION_WORDS = pattern(rf"(?:{wordings.QUESTION_WORDS}|tell me|do you know)\b", re.IGNORECASE)

# Of sentences without a fact: what opens a reaction, and what makes it talk between two people.
_REACTION = pattern(
    r"(?:hi|hello|hey|good|thanks?|thank you|bye|goodbye|see you|ha+|haha|wow|congratulations|happy|same|me too|sounds|great|nice|lovely|sure|okay?|really|welcome|cheers|dear)\b",
    re.IGNORECASE,
)
_CHAT = pattern(
    r"\b(?:you|your|yours|if|maybe|perhaps|might|would|could|should|hope|wish|guess|wonder|suppose|sorry|weather|rain\w*|sunny|snow\w*|storm\w*|let us|let['’]s)\b",
    re.IGNORECASE,
)
_LEAD = pattern(r"\b(?:[A-Z][a-z]+(?: [a-z]+){0,3}[,:] |(?:and|but|so) )+", re.IGNORECASE)
_SUBJECT = pattern(rf"(?:I(?:['’](?:m|ve|d|ll))?|[Mm]y [a-z]+|We|we|[Oo]ur [a-z]+|({NAME})(?:['’]s [a-z]+)?) (?=[a-z])")
_CALLED = pattern(rf", {NAME}[.!]*$")  # "..., Tom."
_CONCRETE = pattern(r"\d|\b[A-ZÀ-Þ][\w-]+")

_NO_NAMES = NOT_NAMES | frozenset(
    """Will Are Am May Might Must Should Give List Show Describe Summarise Find Search Forget Monday Tuesday Wednesday
    Thursday Friday Saturday Sunday January February March April June July August September October November
    December""".split()
)


def intent(text: str, speaker: str) -> tuple[SentenceIntent, str]:
    """What the speaker wants, and the words it is about."""
    text = text.strip()
    if change := _CHANGE.fullmatch(text):
        return SentenceIntent.CORRECT, opened(f"{change[1]} is now {change[2]}", text)
    if (polite := _COULD_YOU.match(text)) and (asks := intent(text[polite.end() :].rstrip(" ?"), speaker)):
        # "Could you remember my birthday?" asks; "Could you remember that my birthday is 3 May?" states
        clear = _OF_SOMEBODY.match(asks[1]) if asks[0] is SentenceIntent.FORGET else parse(asks[1], speaker)
        return asks if clear else (SentenceIntent.ASK, text)
    for kind, mark in _MARKS.items():
        if (found := mark.match(text)) and not _NOTHING.fullmatch(rest := text[found.end() :]):
            if kind is SentenceIntent.FORGET:
                return kind, _FROM_MEMORY.sub("", rest)
            return (SentenceIntent.ASK, text) if is_question(rest, speaker) else (kind, opened(rest, text))
    return (SentenceIntent.ASK if is_question(text, speaker) else SentenceIntent.TALK), text


def forgets(sentence: str, speaker: str) -> bool:
    """True where something is to be forgotten: what is named for that is not to be learnt from it."""
    return intent(_JOINED.sub("", sentence, count=1), speaker)[0] is SentenceIntent.FORGET


def is_asked(text: str) -> bool:
    """True if a text ends as a question does, or has what makes one in a language beside English."""
    reading = messages_in(text)
    return text.endswith(("?", "？")) or bool(reading and reading.asks(text.rstrip("。！!.")))


@lru_cache(maxsize=1 << 8)
def is_question(text: str, speaker: str = "") -> bool:
    """True if the text, or its last sentence, asks."""
    last = sentences(text)[-1][-MAX_SENTENCE:] if text.strip() else ""
    if (asked := is_asked(last)) or messages_in(last):
        return asked
    if parse(last, speaker):  # "Will lives in Oslo" opens like a question
        return False
    return bool(_QUESTION_WORDS.match(_LEAD.sub("", last, count=1)) or parse_question(last, speaker or "User"))


@cache
def _spelling(name: str) -> Callable[[str], str]:
    """Replaces words of a text as a list of names.yaml says."""
    pairs = dict(pair.split("=") for pair in words_of(name))
    words = "|".join(map(re.escape, sorted(pairs, key=len, reverse=True)))
    found = re.compile(rf"(?i)\b(?:{words})\b" if words.isascii() else words)
    return lambda text: found.sub(lambda word: pairs[word[0].lower()], text)


def spelled_out(text: str) -> str:
    """A message in the characters and the words that the taggers and the tables know: simplified Chinese and
    Mandarin, of the same length, and "about" for "abt"."""
    plain = _spelling("short_forms")(simplified(text))
    return _spelling("cantonese")(plain) if wordings.IS_CANTONESE.search(plain) else plain


def as_written(asked: Asked, plain: str, text: str) -> Asked:
    """A request that was read in `plain`, in the words of a text of the same length."""
    words = list(asked.what)
    if len(plain) == len(text):
        for at, there, n in SequenceMatcher(None, asked.what, plain, autojunk=False).get_matching_blocks():
            words[at : at + n] = text[there : there + n]
    return asked.model_copy(update={"what": "".join(words)})


def day_of(stated: Sequence[str], when: str, text: str) -> str:
    """The day of what is told: that of its one statement with one, which knows by its verb whether it is over, else
    `when`."""
    if wordings.RECURS.search(text):
        return ""
    days = [day for day in stated if day]
    is_open = language(text) == "zh" or wordings.MAY.search(text)  # "he said he can do it on saturday"
    return days[0] if len(days) == 1 and not (when and is_open) else when


def is_unsaid(text: str, asked: Asked) -> bool:
    """True of an order to forget, to share, to freeze or to go back that no word of the message says."""
    order = asked.doubted or asked.intent
    said = {"forget": wordings.GETS_RID, "share": wordings.SHARES, "rollback": wordings.GOES_BACK}.get(order)
    return bool((order == "freeze" and wordings.IS_COLD.search(text)) or (said and not said.search(text)))


def is_told(text: str, asked: Asked, states: bool, has_fact: bool, day: date) -> bool:
    """True of what is no question and states something, where it is taken for talk, for a question, for an order that
    no word says ("Lukas can't come anymore"), or for a correction of nobody knows what."""
    over = is_unsaid(text, asked)
    is_chinese = language(text) == "zh"
    if asked.intent == "recall":
        return is_chinese and not is_asked(text) and (states or not wordings.ASKS_ZH.match(text))
    if text.endswith(("?", "？")) or not (over or asked.intent == "talk" or asked.doubted == "correct"):
        return False
    if has_fact or wordings.HOLDS.match(text):
        return True
    if asked.doubted == "correct":
        points = wordings.REFERS.search(wordings.SOMEBODY.sub("", text).replace("they", ""))
        points = points if points and points.start() < 12 else None
        return (states or is_chinese or times.find(text, day) is not None) and not (
            points or ((is_chinese or not states) and (wordings.CORRECTS.match(text) or wordings.WRONG_ZH.search(text)))
        )
    if wordings.EXCLAIMS_ZH.fullmatch(text):
        return states
    # "周五要交季度report", "no wait, its monday at 10.15"
    return states or (bool(is_chinese or wordings.CORRECTS.match(text)) and times.find(text, day) is not None)


def to_forget(text: str, asked: Asked, states: Callable[[str], bool]) -> tuple[Asked, ...]:
    """What is told to be forgotten in words of its own, by the form of a message, where the tagger has none of them, or
    not what the message tells before that. states: true of words that state something."""
    own = wordings.FORGETS_OWN.fullmatch(text) if "forget" in (asked.intent, asked.doubted) else None
    if own and own["told"] and states(own["told"]):
        return Asked(intent="remember", what=own["told"]), Asked(intent="forget", what=own["what"])
    order = wordings.FORGETS.fullmatch(text)
    if asked.intent == "forget" and asked.what in text and not (order and (order["zh_of"] or order["zh_unkept"])):
        return ()
    if order:
        unsure = asked if asked.doubted == "forget" else Asked(intent="forget")
        return (unsure.model_copy(update={"what": next(filter(None, order.groups()))}),)
    return (Asked(intent="forget", what=own["what"]),) if own and not asked.doubted else ()


def follow_up(text: str, asked: Asked, turns: Sequence[Mapping[str, object]]) -> Asked | None:
    """A question about what held before that goes on from the last one, or is taken for talk, or for one about what a
    memory was made of; and any that is taken for one about where one comes from, without a word of that."""
    opens, held = wordings.ASKS_ITSELF.match(text) or is_asked(text), _PAST.search(text)
    goes_on, refers = wordings.GOES_ON_ZH.match(text), wordings.REFERS.search(text)
    of_memory = asked.intent == "talk" or asked.ask == "why" or (asked.ask == "history" and asked.what in text)
    of_memory = of_memory or (asked.intent == "recall" and bool(goes_on or refers))
    is_other = asked.ask == "why" and not wordings.ORIGIN.search(text)
    if not (opens and (is_other or (of_memory and held))):
        return None
    if asked.intent == "recall" and not (goes_on or wordings.REFERS.search(asked.what)):  # whom it means is known
        return asked.model_copy(update={"last": "said"})
    named = asked.ask == "history" and asked.what
    said = asked_last(turns) if held and (goes_on or refers) and not named else ""
    return Asked(intent="recall", what=f"{said}, {text}".strip(" ,"), last="said" if said else "")


def asks_of_life(text: str) -> bool:
    """True of a question about somebody's life, and not of who is talked to: one in Chinese, or of what "I" do."""
    if wordings.ASKS_OWN.match(text):
        return True
    return bool(wordings.ASKS_OF_LIFE.search(text)) and is_asked(text) and not wordings.ORDER_ZH.match(text)


def is_worth_keeping(sentence: str, speaker: str) -> bool:
    """True for a fact, and for a statement by "I", "my ..." or a named subject with a name or a number in it."""
    sentence = sentence[:MAX_SENTENCE]
    if is_question(sentence, speaker) or re.match(r"if\b", sentence, re.IGNORECASE):
        return False
    if parse(sentence, speaker) or read(sentence, speaker).facts:
        return True
    if reading := messages_in(sentence):
        return reading.tells(sentence)
    plain = _CALLED.sub("", _LEAD.sub("", sentence, count=1))
    subject = _SUBJECT.match(plain)
    if not subject or _REACTION.match(plain) or _CHAT.search(plain):
        return False
    if subject[1] and subject[1].split()[0] in NOT_NAMES:
        return False
    return any(word not in NOT_NAMES for word in _CONCRETE.findall(plain[subject.end() :]))


def names(text: str) -> list[str]:
    """The names in a text, in order; for texts that no form of the phrasebook reads."""
    found: list[str] = []
    for match in re.finditer(NAME, text):
        words = match[0].split()
        while words and (words[0] in _NO_NAMES or _REACTION.fullmatch(words[0])):
            words = words[1:]
        if words and words[-1] not in _NO_NAMES:
            found.append(" ".join(words))
    return list(dict.fromkeys(found))


def about(question: str, speaker: str, asks: Iterable[Fact]) -> tuple[str, ...]:
    """The subjects that a question names; "I" is the speaker. Empty where it asks who."""
    facts = [*asks, *(fact for fact, _ in parse(question, speaker))]
    if facts:
        return tuple(dict.fromkeys(fact.subject for fact in facts if fact.subject))
    first = (speaker,) if FIRST_PERSON.search(re.sub(r"\bi\b", "I", question)) else ()
    return tuple(dict.fromkeys((*first, *names(question))))


# -- what a question wants beside its matter: whose words, standing instructions, how things went -----------

_OVERVIEW = pattern(
    r"\b(?:summar(?:y|ies|i[sz]e)\w*|overview|recap|in (?:the |which |what )?order\b(?! to\b)|order in which|over time|how (?:\w+ ){1,8}(?:developed|evolved|progressed|changed))|总结|概括|回顾|先后|顺序",
    re.IGNORECASE,
)
_BOTH_SIDES = pattern(r"\b(?:summar|overview|recap)|总结|概括|回顾", re.IGNORECASE)
_REPLIED = pattern(  # "what did you recommend to me?", and not "what would you recommend?"
    r"\b(?:you(?:['’]ve| have| had)|(?:did|have|had|were) you) (?:\w+ )?(?:recommend|suggest|advis|tell|told|say|said|mention|explain|propos|giv|gave|list|answer|show)\w*|\byou (?:\w+ )?(?:(?:recommend|suggest|advis|mention|explain|propos|list|answer|show)ed|told|said|gave)\b|(?:(?:之前|上次|刚才)你|你(?:之前|上次|刚才))(?:推荐|建议|说|告诉|提到)|你(?:推荐|建议|说|告诉|提到)我?(?:过|了|的)",
    re.IGNORECASE,
)
_REQUEST = pattern(
    r"\b(?:how (?:can|do|should|would|could|might) (?:i|we)\b|(?:can|could|would) you\b|help me|suggest|recommend|what (?:are|should|would|steps|tools)|show me|i(?:['’]m| am) (?:planning|looking|thinking|working|about|trying)|explain|walk me through|which|when i(?:['’]m| am))|怎么|如何|帮我|请",
    re.IGNORECASE,
)

_SAID_OR_NEW = r"(?:(?:what|anything|everything|all)(?:(?:['’]?s| is| has| have| did| was)? (?:that )?(?:i|we) (?:have |had )?(?:say|said|tell|told|mention\w*|talk\w*|discuss\w*)(?: to)?(?: you)?|(?:['’]?s| is| has)? (?:new|changed|happened))|everything|all(?! my| the)|(?:all )?(?:my |the )?memories)"
_ASKS_FOR_SAID = pattern(  # "what did I say about work", "what's new", "find my notes"; and not "where have I lived"
    rf"(?:please |can you |could you )*(?P<do>(?:list|show|find|search)(?: me)?(?: for)? |(?:give|tell) me )?(?(do)(?:{_SAID_OR_NEW}\b)?|{_SAID_OR_NEW}\b)(?P<matter>.*\w)?\W*",
    re.IGNORECASE,
)
_BETWEEN_US = pattern(r"\b(?:i|me|my|we|us|our|you|your)\b|我|你", re.IGNORECASE)  # not about two others


_PAST = pattern(  # of what no longer holds
    r"\b(?:used? to|previous(?:ly)?|former(?:ly)?|originally|in the past|back then|(?<=was my )old|(?:old|earlier|first) ones?)\b|\bbefore(?:\W*$| (?:that|then|(?:i|we|s?he|they) (?:mov|chang|left|join|start|switch|quit)\w*).*)|以前|之前|原[来先]|本来|当初|最初|过去|曾经|\bat first\b|\bto (?:begin|start) with\b",
    re.IGNORECASE,
)
_NOW = pattern(r"\b(?:now|currently|these days|at the moment|nowadays)\b|现在|目前", re.IGNORECASE)
_TENSE = pattern(r"\b(?:(?P<do>did(?= (?:i|we|you|they)\b))|did|(?P<am>was(?= i\b))|was|were)\b", re.IGNORECASE)
_MAY_LIE_BACK = pattern(r"\bha(?:d|s|ve)\b|\d|[^\x00-\x7f]", re.IGNORECASE)
_TODAY = {"did": "does", "was": "is", "were": "are"}


@lru_cache(maxsize=1 << 8)
def _asked_of(question: str, today: date) -> tuple[str, date, date] | None:
    """A question about a time that is over without its words for it, and the first and the last day of that; None for
    any other."""
    if _REPLIED.search(question):
        return None
    if _PAST.search(question):
        return _PAST.sub("", question), date.min, date.max
    was = bool(_TENSE.search(question))
    if was and (found := times.bounds(question, today)):
        rest, first, last = found.rest, found.first, found.last
    elif (was or _MAY_LIE_BACK.search(question)) and (when := times.find(question, today, was)):
        rest = question[: when.span[0]] + question[when.span[1] :]
        first, last = (date.fromisoformat(day) for day in (when.when.split("/") * 2)[:2])
    else:
        return None
    return (rest, first, last) if last < today else None


def asked_now(question: str, today: date) -> str:
    """A question as it is asked of today: "where did I live before?", "where did I live in May?" and "where do I live
    now?" as "where do I live?"."""
    if asked := _asked_of(question, today):
        question = _TENSE.sub(lambda verb: verb.lastgroup or _TODAY[verb[0].lower()], asked[0])
    return " ".join(_NOW.sub("", question).split()).rstrip(" ,?？") + "?"


def wants(question: str, today: date) -> Wants:
    """An overview is of both sides where it sums up, and else of what the user brought up."""
    found = times.bounds(question, today)
    said = _ASKS_FOR_SAID.fullmatch(found.rest) if found and found.is_since else None
    since = datetime.combine(found.first, time(), timezone.utc) if found and said else None
    asked = _asked_of(question, today)
    within = {"since": since, "whatever": bool(said and not said["matter"]), "held": asked and asked[1:]}
    if _OVERVIEW.search(question):
        return Wants(overview=True, side="" if _BOTH_SIDES.search(question) else "user", **within)
    is_request = bool(_REQUEST.search(question) and _BETWEEN_US.search(question))
    return Wants(side="assistant" if _REPLIED.search(question) else "user", request=is_request, **within)


def described(words: str, speaker: str) -> list[Fact]:
    """The facts, with blanks, that a question or a clause describes: "where Mira lives" asks where she does live."""
    first, *rest = words.split()
    for kind in (1, 0):  # "which city I live in" has a noun after its question word
        head, tail = [first, *rest[:kind]], rest[kind:]
        plain = [re.sub(r"(?<=[a-z])s$", "", w) if w[:1].islower() else w for w in tail]
        for aux in ("", "do", "does", "is", "am", "was", "did", "would"):
            question = " ".join([*head, *([aux] if aux else []), *(plain if aux == "does" else tail)])
            if found := parse_question(question[0].upper() + question[1:] + "?", speaker):
                return found
    own = attribute_in(words, speaker)
    return parse_question(words, speaker) or ([own] if own else [])
