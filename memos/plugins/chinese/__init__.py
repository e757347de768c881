"""Reads Chinese: what a sentence states, the words of times, and what a message asks and names."""

from opencc import OpenCC

from memos.interface.reading.phrasebook import Language, MessageReading, read_book
from memos.plugins.chinese import messages, statements, times
from memos.skeleton import simplified

_REPLIES = read_book("memos.plugins.chinese", "replies.yaml")
_IN_TAIWAN = OpenCC("s2tw")
_MESSAGES = MessageReading(
    messages.asks,
    messages.tells,
    messages.people,
    messages.things,
    statements.asked,
    (_REPLIES, {english: _IN_TAIWAN.convert(chinese) for english, chinese in _REPLIES.items()}),
    lambda text: int(simplified(text) != text),
    messages.other_words,
)
CHINESE = Language(statements.read, times.FORMS, times.day_of_month, times.until, _MESSAGES)
