"""Keeps what a message tells whole: the tagger cuts within it at times, above all after other messages.

Knows English and Chinese; knows no stores and no tensors.
"""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from memos.cube import Fact
from memos.interface.reading.phrasebook import language
from memos.interface.reading.requests import corrections, wordings
from memos.interface.reading.requests.intents import is_asked
from memos.lazy import pattern
from memos.ops import Asked

_FEW_WORDS = 3
_THAT_DAY = pattern(r"(?i)(?:that|this|next|last) (?:\w+day|week(?:end)?|month|year|morning|afternoon|evening|night)\b")
_MOVED = pattern(  # a verb from which its object was cut: "helen pushed | the deadline to the 28th"
    r"(?i)\b(?!(?:i|we|you|u|to)\b)[\w'’]+ (?:pushed|moved|changed|postponed|shifted|delayed|switched|extended)(?: up| back)?\s*$"
)
_LEANS = pattern(r"(?i)(?:the|its?|they|he|she|his|her|their)\b")  # on the clause before


def whole(asked: Asked, text: str, facts: Callable[[str], Sequence[Fact]]) -> Asked:
    """What is told, all that is said of it too, and what the sentences before it tell; a question is none. facts: those
    in a text."""
    if not asked.what or asked.what not in text:  # what a word points to stands in its place
        known = next((end for n in range(len(asked.what)) if (end := asked.what[n:]) in text), "")
        tail = text.partition(known)[2].rstrip(" .!。！") if known else ""
        says_more = wordings.WORD.search(tail) and not wordings.ADDS_NOTHING.fullmatch(tail)
        told = text.partition(known)[0] if known else ""  # "paid mum 100 so its 240 left" is told whole
        is_behind = len(re.findall(r"[\w'’]+", told)) > _FEW_WORDS and asked.what[:_FEW_WORDS] != text[:_FEW_WORDS]
        if is_behind and not wordings.KEEPS.search(told):
            return asked.model_copy(update={"what": text})
        return asked.model_copy(update={"what": asked.what + tail}) if says_more else asked
    *first, last = (sentence[0] for sentence in wordings.SENTENCE.finditer(asked.what))
    if first and last.endswith(("?", "？")) and wordings.ADDS_NOTHING.fullmatch(last):  # "Can you remember that?"
        asked = asked.model_copy(update={"what": asked.what.removesuffix(last).rstrip()})
    before, after = text.split(asked.what, 1)
    if is_asked(text) and not (wordings.WORD.search(before) or wordings.WORD.search(after)):
        return Asked(intent="recall", what=text)
    if asked.intent == "remember" and set(facts(text)) > set(facts(asked.what)):
        return asked.model_copy(update={"what": text})  # "Hi, I'm Tom and I live in Hull"
    is_said = re.search(r"[.!;。！；]\s*$|\d", before) and not wordings.OF_MESSAGE.search(
        re.sub(r"\bso\s*$", "", before)
    )
    clause = re.split(r"[^\w'’ ]", before.rstrip(" ,"))[-1].split()  # "Dougie can't make it | that Monday"
    is_torn = len(clause) > _FEW_WORDS and clause[-1] != "that" and _THAT_DAY.match(asked.what)
    is_torn = (
        is_torn
        or _MOVED.search(before)
        or (re.match("[改推挪换调]", asked.what) and re.search(r"[改变推挪换调]了?[，,]\s*$", before))
    )
    is_torn = is_torn and not wordings.KEEPS.search(before)
    # "Brannigan rang, | they will give me 28k"
    leans = len(clause) > 1 and re.match(r"(?i)(?:they|he|she|it)(?:['’]\w+)?\b", asked.what)
    tells = language(text) == "zh" and len(before) > 5 and not re.search("[你您说讲帮请]", before)
    if before.rstrip()[-1:] in (",", "，") and (leans or tells):
        is_torn = not (wordings.OF_MESSAGE.search(before) or wordings.CORRECTS.match(before))
    told = before if is_torn or (is_said and not wordings.REPLIES.fullmatch(before)) else ""
    tail = "" if wordings.ADDS_NOTHING.fullmatch(after) else after
    return asked.model_copy(update={"what": told + asked.what + tail})


def untorn(asked: Sequence[Asked], text: str, stated: Sequence[str]) -> list[Asked]:
    """Requests of which none is but to keep what is told, as one that keeps all of it, where words that state something
    lie in none of them whole: the tagger cuts within them at times, above all after other messages."""
    of_several = asked[1:] and is_asked(text)  # questions in one, of which the tagger takes some for told
    told = [of_several and one.intent == "remember" and is_asked(one.what) for one in asked]
    asked = [Asked(intent="recall", what=one.what) if n else one for one, n in zip(asked, told, strict=True)]
    kept = [one for one in asked if one.intent in ("remember", "correct")]
    if len(kept) == len(asked) and not wordings.REFERS.search(text):  # else words stand for others
        asked = kept = [one if one.what in text else one.model_copy(update={"what": text}) for one in kept]
    places = [(at := text.index(one.what), at + len(one.what)) for one in kept if one.what in text]
    if not kept or len(places) < len(asked) or all(_lies_in(words.rstrip(" .!。！"), text, places) for words in stated):
        return list(asked)
    return [(kept[0] if len(kept) == 1 else Asked(intent=kept[0].intent)).model_copy(update={"what": text})]


def _lies_in(words: str, text: str, places: Sequence[tuple[int, int]]) -> bool:
    """True if one of the places in a text has all of the words, but for an order to keep them that stands before it."""
    begin = text.index(words)
    cut = next((at for at, end in places if at < begin + len(words) <= end), len(text))  # where their end is kept from
    return cut <= begin or _is_order_alone(text[begin:cut] if cut < len(text) else f"{words},")


def _is_order_alone(words: str) -> bool:
    if not wordings.WORD.search(wordings.ORDER_ZH.sub("", words)):
        return True
    return words[-1:] in " ，,：:" and bool(wordings.ADDS_NOTHING.fullmatch(words) or wordings.CORRECTS.match(words))


def to_change(text: str, found: Sequence[Asked]) -> Asked | None:
    """What an order by its form alone says is to be changed, where the tagger takes that for told: "change the rent to
    1710"."""
    order = corrections.change_named(text).get("order", "")
    told = all(one.intent == "remember" or "correct" in (one.intent, one.doubted) for one in found)
    return Asked(intent="correct", what=text.removeprefix(order), when=found[0].when) if order and told else None


def tells_on(text: str, asked: Sequence[Asked]) -> bool:
    """True of one sentence that only tells, whose clauses have the subject of the first, as in Chinese, or speak of
    what it names."""
    leans = [_LEANS.match(one.what) for one in asked[1:]]
    is_one = (language(text) == "zh" or all(leans)) and not re.search(r"[。！？!?\n].|[.;]\s", text)
    return is_one and all(one.intent in ("remember", "correct") for one in asked) and not wordings.WRONG_ZH.search(text)


def told_behind(text: str, what: str) -> str:
    """What a message tells beside what it asks for: "delete the old address, I moved to Leeds"; "" for nothing."""
    clause = re.match(r"[,.;，。；]\s*(.+)", text.partition(what)[2], re.DOTALL) if what else None
    tells = clause and not (wordings.REFERS.search(clause[1]) or wordings.GETS_RID.search(clause[1]))
    return clause[1] if clause and tells else ""
