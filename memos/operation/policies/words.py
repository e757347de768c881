"""Turns text into the terms that a keyword index compares; knows scripts and languages, no cubes, no ranking.

Words of scripts with spaces are stemmed and function words left out. Chinese, Japanese and Korean have no spaces: there
each pair of neighbouring characters is a term, so that 拿铁 is found within 用户每周五购买拿铁 without a dictionary.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache

import Stemmer

_HAN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_RUN = re.compile(rf"[{_HAN}]+|[^\W_{_HAN}]+")
_HAN_FIRST = re.compile(f"[{_HAN}]")
_ASIDE = re.compile(r"[\[(（][^\])）]*[\])）]\s*$")  # what stands in brackets at the end
# what carries grammar and no matter, of English
STOP = frozenset(
    """a about above after again against all also am an and any are as at be because been before being below between
    both but by can could d did do does doing don down during each few for from further had has have having he her here
    hers herself him himself his how i if in into is it its itself just ll m me more most my myself no nor not now of
    off on once only or other our ours ourselves out over own re s same shall she should so some such t than that the
    their theirs them themselves then there these they this those through to too under until up ve very was we were
    what when where which while who whom whose why will with would you your yours yourself yourselves""".split()
)
_END = 300  # characters of a text that are looked at for that
_stemmer, _lock = Stemmer.Stemmer("english"), threading.Lock()


def terms(text: str, query: bool = False) -> list[str]:
    """The terms of a text, in order, as often as they occur.

    query: a run of two characters or more gives its pairs only; a text gives its single characters too, for queries
    that have but one.
    """
    found: list[str] = []
    for run in _RUN.findall(unicodedata.normalize("NFKC", text).casefold()):
        if _HAN_FIRST.match(run):
            pairs = [run[i : i + 2] for i in range(len(run) - 1)]
            found += pairs if query and pairs else [*pairs, *run]
        elif run not in STOP:
            found.append(_stem(run))
    return found


def asks(text: str) -> bool:
    """True if a text ends with a question."""
    return _ASIDE.sub("", text.rstrip()[-_END:]).rstrip().endswith(("?", "？"))


@lru_cache(maxsize=1 << 17)
def _stem(word: str) -> str:
    with _lock:  # a stemmer has a buffer of its own
        return str(_stemmer.stemWord(word))
