"""Reads which of several memories that a question has named an answer means; knows no memories, but their ids."""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from collections.abc import Sequence

from memos.lazy import pattern

ID = pattern(r"\b[0-9a-zA-Z_-]{6,}\b")
_PLACES = {"first": 0, "second": 1, "third": 2, "fourth": 3, "fifth": 4, "last": -1, "最后一": -1}
_PLACES |= {f"第{word}": place for place, word in enumerate("一二三四五")}
_PICK = pattern(
    rf"\W*(?:i mean(?:t)? |yes,? |please )*(?:the )?(?:(?P<nth>{'|'.join(_PLACES)})[个条]?|(?:no\.?|number|#)? ?(?P<n>[1-9])(?:st|nd|rd|th)?)(?: one)?(?:,? please)?[\s.!。！]*",
    re.IGNORECASE,
)
_ALL = pattern(
    r"\W*(?:yes,? |please |delete |forget )*(?:all|both|every one)(?: of (?:them|these|those))?(?:,? (?:please|pls))?\W*|\W*(?:全部|[全两]?[个条]?都)(?:要|删掉?|是)?\W*",
    re.IGNORECASE,
)
_YES = pattern(
    r"\W*(?:yes|yeah|yep|yup|ok(?:ay)?|sure|that(?:['’]s the)? one|it is|do it|是的?|对的?|好的?|嗯)(?:,? (?:please|pls|do))?\W*",
    re.IGNORECASE,
)


def read(answer: str, ids: Sequence[str]) -> tuple[str, ...]:
    """All of the ids, or one by its place or as it begins; none where it is no answer."""
    if _ALL.fullmatch(answer) or (len(ids) == 1 and _YES.fullmatch(answer)):
        return tuple(ids)
    for word in ID.findall(answer):
        if len(found := [id for id in ids if id.startswith(word)]) == 1:
            return tuple(found)
    if not (match := _PICK.fullmatch(answer)):
        return ()
    place = int(match["n"]) - 1 if match["n"] else _PLACES[match["nth"].lower()]
    return tuple(ids[place:][:1])
