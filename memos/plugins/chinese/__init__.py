"""Reads Chinese: what a sentence states, the words of times, and what a message asks and names."""

from memos.interface.reading.phrasebook import Language, MessageReading, read_book
from memos.plugins.chinese import messages, statements, times

_REPLIES = read_book("memos.plugins.chinese", "replies.yaml")
_MESSAGES = MessageReading(
    messages.asks, messages.tells, messages.people, messages.things, statements.asked, _REPLIES, messages.other_words
)
CHINESE = Language(statements.read, times.FORMS, times.day_of_month, times.until, _MESSAGES)
