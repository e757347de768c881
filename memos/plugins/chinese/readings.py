"""Compiles readings.yaml: the forms and word lists by which Chinese clauses are read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from memos.interface.reading.phrasebook import read_book
from memos.interface.reading.statements.readings import KEYS, FormMode, english_readings

_HAN = r"[\u4e00-\u9fff]"


@dataclass(frozen=True)
class ChineseForm:
    """One wording of a relation. literal: how specific it is, in characters that are no slot."""

    relation: str
    regex: re.Pattern[str]
    mode: FormMode
    literal: int


@dataclass(frozen=True)
class ChineseReadings:
    """over: what is given up, whatever it was. holds: "one", "few" or "many" objects of a relation at a time."""

    forms: tuple[ChineseForm, ...]
    over: tuple[re.Pattern[str], ...]
    holds: dict[str, str]
    nouns: dict[str, str]  # the relations of some attributes
    many: frozenset[str]  # relations of attributes that one has several of
    single: tuple[str, ...]  # ends of nouns that one has one of
    places: re.Pattern[str]  # where one works for nobody in particular
    kin: re.Pattern[str]
    name: re.Pattern[str]


@cache
def chinese_readings() -> ChineseReadings:
    book = read_book("memos.plugins.chinese", "readings.yaml")
    lexicon = _lexicon(book)
    keys: dict[str, FormMode] = {**KEYS, "over": "ended"}
    kin = "|".join(sorted(book["kin"].split(), key=len, reverse=True))
    surnames = "".join(book["surnames"].split())
    return ChineseReadings(
        forms=tuple(
            ChineseForm(name, _compiled(form, lexicon), mode, _literal(form))
            for name, entry in book["relations"].items()
            for key, mode in keys.items()
            for form in entry.get(key, ())
        ),
        over=tuple(_compiled(form, lexicon) for form in book["over"]),
        holds=english_readings().holds,
        nouns=book["nouns"],
        many=frozenset(book["many"]),
        single=tuple(book["single"].split()),
        places=re.compile(rf"{_any(book['places'])}|.+[市省县区镇村国街路]"),
        kin=re.compile(rf"(?P<who>我们?|咱们|(?:小|阿|老){_HAN}|[{surnames}]{_HAN})的?(?P<kin>{kin})(?!号|机)"),
        name=re.compile(
            rf"(?:小{_HAN}{{1,2}}|阿{_HAN}{{1,2}}|老[{surnames}]|[{surnames}]{_HAN}{{1,2}}(?:先生|女士|老师)?)"
        ),
    )


def _any(words: str) -> str:
    return "|".join(words.split())


def _lexicon(book: dict[str, str]) -> dict[str, str]:
    """The patterns that stand for {JOB}, {PLAY}, {DO}, {o=ANIMAL} and {o=TONGUE} in a form."""
    before = r"(?![我你他她的年月天一二三四五六七八九十两几])[\u4e00-\u9fff]"
    trade = r"(?![一二三四五六七八九十年月天的])[\u4e00-\u9fff]"
    return {
        "{JOB}": rf"(?P<o>(?:{before}){{0,4}}?(?:{_any(book['jobs'])}|(?!{_any(book['no_jobs'])})"
        rf"(?:{trade}){{1,3}}[师员长工手匠]))",
        "{PLAY}": f"[{''.join(book['play'].split())}]",
        "{DO}": _any(book["do"]),
        "{o=ANIMAL}": rf"(?P<o>.{{0,4}}(?:{_any(book['animals'])}))",
        "{o=TONGUE}": f"(?P<o>.{{0,3}}(?:{_any(book['tongues'])}))",
        "{o}": r"(?P<o>[^，。是]{1,20}?)",
    }


def _compiled(form: str, lexicon: dict[str, str]) -> re.Pattern[str]:
    for slot, pattern in lexicon.items():
        form = form.replace(slot, pattern)
    return re.compile(form)


def _literal(form: str) -> int:
    return len(re.sub(r"\(\?!.*?\)|\{.*?\}|[^\u4e00-\u9fff]", "", form)) + ("=" in form or "JOB" in form)
