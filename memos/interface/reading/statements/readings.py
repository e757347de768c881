"""Compiles readings.yaml: the forms and word lists by which English clauses are read, beside the phrasebook."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from memos.interface.reading.phrasebook import END, NAME, OBJECT, phrasebook, read_book
from memos.interface.reading.requests.references import words_of
from memos.lazy import pattern

Mode = Literal["is", "also", "now", "ended", "was", "will"]  # of a fact
FormMode = Literal["is", "now", "also", "ended"]
KEYS: dict[str, FormMode] = {"is": "is", "now": "now", "adds": "also", "ends": "ended", "not": "ended"}
_GROUP = r"(?:[^()]|\([^()]*\))*\)"
_MAY_MISS = pattern(rf"[a-z]\?|\({_GROUP}\?|\(\?!{_GROUP}")  # an optional letter or group; what must not follow
_NAMED_ENDS = frozenset(("city", "employer", "school", "partner", "friend"))  # relations of which names alone are over
_SLOTS = {
    "{s}": rf"(?-i:I|(?P<s>{NAME}))",
    "{s's}": rf"(?-i:[Mm]y|(?P<s>{NAME})'s)",
    "{o}": rf"(?P<o>{OBJECT})",
    "{key}": r"(?P<key>[\w]+(?: [\w]+)?)",
    "{my}": "my",
}


@dataclass(frozen=True)
class EnglishForm:
    """One wording of a relation. literal: how specific it is, in characters that are no slot."""

    relation: str
    regex: re.Pattern[str]
    literal: int
    mode: FormMode
    anchors: tuple[tuple[str, ...], ...]  # a clause without one of each is not worth the expression
    named: bool  # its object is a name


@dataclass(frozen=True)
class EnglishReadings:
    """over: what is given up, whatever it was. holds: "one", "few" or "many" objects of a relation at a time."""

    forms: tuple[EnglishForm, ...]
    anchors: frozenset[str]  # of all forms
    opened_by: dict[str, tuple[int, ...]]  # the places of forms, by each of their first anchors; "" for those without
    over: tuple[re.Pattern[str], ...]
    holds: dict[str, str]
    adds: frozenset[str]  # updates of the phrasebook that stand beside what was
    attributes: frozenset[str]
    nouns: dict[str, str]  # the relations of some attributes
    past: dict[str, str]  # of verbs that tell a state
    jobs: frozenset[str]
    no_jobs: frozenset[str]  # what one can become beside
    kin: re.Pattern[str]


@cache
def english_readings() -> EnglishReadings:
    book = read_book("memos.interface.reading.statements", "readings.yaml")
    relations: dict[str, dict[str, list[str]]] = book["relations"]
    lexicon = {
        "GIVEN": rf"(?:{'|'.join(sorted(words_of('she') | words_of('he')))})(?: (?-i:[A-Z])\w+)?",
        "ANIMAL": _several(book["animals"]),
        "INSTRUMENT": _several(book["instruments"]),
        "TONGUE": _several(book["tongues"]),
        "SUBJECT": _several(book["subjects"]),
        "NEW_NAME": rf"(?-i:(?!(?:{'|'.join(_words(book['no_names']))})\b)[A-Z][a-z]+(?: [A-Z]\w+)?)",
        "NAME": r"\w+",
        "SUM": r"[£$€]?\d+(?:[.,]\d+)*(?![.,]?\d)k?(?: (?:pounds|quid|grand|dollars|bucks|euros))?",
        "DAY": r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?",
    }
    updates = {form for relation in phrasebook().values() for form in relation.updates}
    forms = tuple(
        _compiled(name, form, mode, lexicon)
        for name, mode, form in _forms(relations)
        if not (mode == "also" and form in updates)
    )
    kin = "|".join(sorted(_words(book["kin"]), key=len, reverse=True))
    return EnglishReadings(
        forms=forms,
        opened_by=_opened_by(forms),
        anchors=frozenset(anchor for form in forms for either in form.anchors for anchor in either),
        over=tuple(_compiled("", form, "ended", lexicon).regex for form in book["over"]),
        holds=dict.fromkeys(phrasebook(), "many")
        | {n: str(entry.get("holds", "many")) for n, entry in relations.items()},
        adds=frozenset(form for _, mode, form in _forms(relations) if mode == "also" and form in updates)
        | {form for form in updates if "adopted" in form or "bought" in form},
        nouns=book["nouns"],
        past=book["past"],
        attributes=frozenset(shlex.split(book["attributes"])),
        no_jobs=frozenset(_words(book["no_jobs"])),
        jobs=frozenset(_words(book["jobs"])),
        kin=pattern(
            rf"(?:(?:(?:[Mm]y|(?P<s>{NAME})'s) (?:\w+ )?))(?P<kin>(?i:{kin}))(?= (?!(?:is|are) (?:called|named)\b)|'s )"
        ),
    )


def one_of(*lists: str) -> str:
    """A pattern of the words of some lists of the book, the longest first."""
    book = read_book("memos.interface.reading.statements", "readings.yaml")
    return "|".join(sorted((word for name in lists for word in _words(book[name])), key=len, reverse=True))


def _forms(relations: dict[str, dict[str, list[str]]]) -> Iterator[tuple[str, FormMode, str]]:
    for name, entry in relations.items():
        for key, mode in KEYS.items():
            yield from ((name, mode, form) for form in entry.get(key, ()))


def _opened_by(forms: Sequence[EnglishForm]) -> dict[str, tuple[int, ...]]:
    found = defaultdict[str, list[int]](list)
    for n, form in enumerate(forms):
        for anchor in form.anchors[0] if form.anchors else ("",):
            found[anchor].append(n)
    return {anchor: tuple(places) for anchor, places in found.items()}


def _several(words: str) -> str:
    """A pattern of one of the words, or of some."""
    one = "|".join(_words(words))
    return rf"(?:{one})(?:&(?:{one}))*"


def _words(words: str) -> list[str]:
    return [word.replace("[ ]", " ") for word in re.split(r"\s+(?!\])", words.strip())]


def _compiled(relation: str, form: str, mode: FormMode, lexicon: dict[str, str]) -> EnglishForm:
    source = re.sub(r"\[([^|\]\\]*)\|([^\]]*)\]", r"(?:\1|\2)", form)
    either = re.findall(r"\(\?(?::|P<key>)([a-z |?]+)\)", _MAY_MISS.sub("?", source))
    anchors = tuple(tuple(word.split("?")[0] for word in group.split("|")) for group in either)
    source = re.sub(r"\{o=([^{}]*)\}", lambda m: rf"(?P<o>{lexicon.get(m[1], m[1])})", source)
    for slot, regex in _SLOTS.items():
        source = source.replace(slot, regex)
    literal = len(re.sub(r"\{[^}]*\}|\(\?[^)]*\)\??|[\[\]|?\\]", "", form)) + 20 * ("{o=" in form)
    literal = 1 if relation == "does" else literal  # any other relation is more specific
    named = mode == "ended" and (relation in _NAMED_ENDS or "{o=NAME}" in form)
    return EnglishForm(relation, pattern(rf"(?i:{source}){END}"), literal, mode, anchors, named)
