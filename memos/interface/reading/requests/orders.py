"""Tells orders to the memory from talk that has words in common with them: "I shared a flat with Tom".

Knows what a tagger finds in a message; must not know what an order asks for.
"""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import TYPE_CHECKING

from memos.interface.reading.requests import wordings
from memos.lazy import pattern

if TYPE_CHECKING:
    from memos.interface.reading.requests.arguments import TaggedMessage
    from memos.interface.reading.requests.spans import TaggedSpan

ORDERS = frozenset(
    "forget share unshare promote demote freeze thaw rollback correct ask_back about".split()
)  # labels of parts, without their details
MEANT, SURENESS = 1.8, 0.8  # log odds from which an order is meant, and what those of its labels count in them
WHOLE = 0.8  # share of a message
_TELLS = pattern(
    r"(?!need|feed|speed|embed|regarding|concerning|speaking)(?:\w{2,}ed|\w*[aeiouy]\w*ing)\b", re.IGNORECASE
)
_ASKS = pattern(  # for what was said or done, not for what the memory has: "how many have I mentioned?"
    r"(?:in .+?, )?how many (?:.*\b(?:did|have) (?:I|we)\b(?! got\b)|(?!memor|note|thing|fact|item|entr|record)\w+ "
    r"(?:do (?:I|we)|are|were|is|will|can)\b)(?!.*\byou\b)|wh(?!y)\w+ do you think\b|would (?!you\b|it\b)",
    re.IGNORECASE,
)
_SUMS_UP = pattern(  # all that such a sentence names is to be summed up
    r"(?:(?:can|could|would) you )?(?:please )?(?:give|provide|list)(?: me)? (?:an?|the)(?: \w+)? (?:summary|overview"
    r"|recap|order)\b(?!.*\byou\b)",
    re.IGNORECASE,
)


def none_meant(text: str, tagged: TaggedMessage) -> bool:
    """True where parts look like orders, and none of them is one (docs/decisions/0080-who-is-spoken-to.md)."""
    orders = [part for part in tagged.parts if is_order(part)]
    return bool(orders) and not any(_is_meant(part, text, tagged.addressed) for part in orders)


def is_order(part: TaggedSpan) -> bool:
    return part.label.partition(":")[0] in ORDERS


def told_and_asked(text: str, tagged: TaggedMessage) -> tuple[str, str]:
    """What a message without orders tells, and what it asks: its sentences, word for word, but for mere talk."""
    telling = [part for part in tagged.parts if part.label not in ("talk", "recall")]
    asking = [part for part in tagged.parts if part.label == "recall"]
    told, asked = list[str](), list[str]()
    for match in wordings.SENTENCE.finditer(text):
        words, (begin, end) = match[0].strip(), match.span()
        if words.endswith(("?", "？")) or any(part.begin < end and begin < part.end for part in asking):
            asked.append(words)
        elif asked and wordings.OF_REPLY.match(words):
            continue
        elif any(part.begin < end and begin < part.end for part in telling):
            told.append(words)
    return " ".join(told), " ".join(asked)


def _is_meant(part: TaggedSpan, text: str, addressed: float) -> bool:
    """By how sure the tagger is of the order, and of whom the message speaks to. A correction that is the whole message
    is meant, whatever it speaks of: "Sorry, I meant the 14th"."""
    is_whole = part.end - part.begin > WHOLE * len(text)
    if part.label == "correct" and is_whole:
        return True
    # "scrapped the idea of ...": an order opens with no such verb, nor as such a question
    tells = _TELLS.match(text, part.begin) or _ASKS.match(text, part.begin, part.end)
    sentences = (sentence for sentence in wordings.SENTENCE.finditer(text) if sentence.end() > part.begin)
    sums_up = any(_SUMS_UP.match(sentence[0]) for sentence in islice(sentences, 1))
    return not (tells or sums_up) and _odds(addressed) + SURENESS * _odds(part.sure) > MEANT


def _odds(p: float) -> float:
    """Logarithm of p : 1 - p."""
    return math.log((p + 1e-4) / (1 - p + 1e-4))
