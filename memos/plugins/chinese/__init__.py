"""Reads Chinese: what a sentence states, and the words of times."""

from memos.interface.reading.phrasebook import Language
from memos.plugins.chinese import statements, times

CHINESE = Language(statements.read, times.FORMS, times.day_of_month, times.until)
