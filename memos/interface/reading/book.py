"""The books of requests, compiled: forms of words for each intent, and what stands around them.

Knows regular expressions; knows no conversation and no kernel. A book is request_book.yaml or request_book_zh.yaml.
"""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

Language = Literal["en", "zh"]
_IRREGULAR = {
    "see": ("seeing", "seen"), "read": ("reading", "read"), "forget": ("forgetting", "forgotten"),
    "freeze": ("freezing", "frozen"), "keep": ("keeping", "kept"), "hold": ("holding", "held"),
    "know": ("knowing", "known"), "get": ("getting", "gotten"), "throw": ("throwing", "thrown"),
    "take": ("taking", "taken"), "have": ("having", "had"), "write": ("writing", "written"), "put": ("putting", "put"),
    "set": ("setting", "set"), "let": ("letting", "let"), "drop": ("dropping", "dropped"), "cut": ("cutting", "cut"),
    "scrub": ("scrubbing", "scrubbed"), "strike": ("striking", "stricken"), "tell": ("telling", "told"),
    "undo": ("undoing", "undone"), "unfreeze": ("unfreezing", "unfrozen"), "make": ("making", "made"),
    "rub": ("rubbing", "rubbed"), "bin": ("binning", "binned"), "tag": ("tagging", "tagged"), "pin": ("pinning", "pinned"),
    "do": ("doing", "done"), "be": ("being", "been"), "free": ("freeing", "freed"), "expunge": ("expunging", "expunged"),
    "edit": ("editing", "edited"), "roll": ("rolling", "rolled"), "lock": ("locking", "locked"),
    "bring": ("bringing", "brought"), "give": ("giving", "given"), "show": ("showing", "shown"),
    "own": ("owning", "owned"), "add": ("adding", "added"), "pull": ("pulling", "pulled"), "kick": ("kicking", "kicked"),
}  # fmt: skip
_SLOT = re.compile(r"\{(\w+)\}(\??)")
_HAN = r"\u3400-\u9fff"
_NAMES = {
    "en": r"(?:(?:the |our |my )?(?:group|team|user|colleagues?|agent) (?:called |named )?)?(?!(?:me|us|you|it|its|that|this|access|a|an|and|which|what|how|where|to|be|rid|nobody|no|none|all|every|the|my|our|back|away|out|up)\b)[\w][\w.@’'-]*(?: (?-i:[A-ZÀ-Þ])[\w.@-]*){0,2}(?:(?:,| and) (?-i:[A-ZÀ-Þ])[\w-]*)?|(?:the|my|our|all the|everyone in the|everybody in the|everyone on the|everybody on the|the whole) [\w-]+(?: (?:team|group|department|crew|family|club|class|office|board|committee|staff|people|folks|lot))?|(?:everyone|everybody)(?: (?:else|(?:in|on|from|at) (?:the )?[\w-]+(?: team)?))?",
    "zh": r"[^，,。！？的把让给和被跟与从向于能可在看了对也都再不]{1,8}?",
}


@dataclass(frozen=True)
class Form:
    """One way to ask for an operation."""

    intent: str
    regex: re.Pattern[str]
    ask: str = ""
    to: str = ""


@dataclass(frozen=True)
class Match:
    """Which form fits, and the words in its slots."""

    form: Form
    what: str = ""
    with_: str = ""
    to: str = ""
    relation: str = ""


@dataclass(frozen=True)
class Book:
    """The requests of one language."""

    language: Language
    forms: tuple[Form, ...]
    lead: re.Pattern[str]
    before: re.Pattern[str]
    gerund: re.Pattern[str] | None
    tail: re.Pattern[str]
    gerunds: dict[str, str]  # "forgetting" -> "forget"
    openings: dict[str, re.Pattern[str]]  # what opens a statement or a question: remember, correct, recall
    after: re.Pattern[str]  # "..., keep that in mind"
    correct: tuple[re.Pattern[str], ...]  # "change {what} to {new}"
    vague_correct: re.Pattern[str]
    stated: re.Pattern[str]
    clause: re.Pattern[str]
    talk: re.Pattern[str]
    previous: re.Pattern[str]
    some: re.Pattern[str]
    pronouns: re.Pattern[str]
    nouns: re.Pattern[str]
    restricts: re.Pattern[str]
    before_words: re.Pattern[str]
    she: frozenset[str]
    he: frozenset[str]
    not_people: frozenset[str]
    relations: dict[str, str]  # a verb or role -> the relation that it tells
    asides: re.Pattern[str]  # clauses that ask for nothing
    hasty: re.Pattern[str]  # spellings in haste
    raw: dict[str, Any]

    def matches(self, text: str) -> Iterator[Match]:
        """The forms that fit the whole text, in their order."""
        for form in self.forms:
            if found := form.regex.fullmatch(text):
                groups = {name: value.strip(" ,，:：;；?？") for name, value in found.groupdict().items() if value}
                told = next((groups[g] for g in sorted(groups) if g.startswith(("see", "look", "role"))), "")
                yield Match(
                    form,
                    groups.get("what") or groups.get("what2") or "",
                    groups.get("with") or groups.get("with2") or "",
                    groups.get("to", ""),
                    self.relation(told),
                )

    def relation(self, words: str) -> str:
        """reader, annotator, editor or owner; empty where the words tell none."""
        return self.relations.get(" ".join(words.casefold().split()), "")


@cache
def book(language: Language) -> Book:
    name = "request_book.yaml" if language == "en" else f"request_book_{language}.yaml"
    raw: dict[str, Any] = yaml.safe_load(files("memos.interface").joinpath(name).read_text("utf-8"))
    verbs = {kind: shlex.split(listed) for kind, listed in raw["verbs"].items()}
    access = {relation: shlex.split(listed) for relation, listed in raw["access"].items()}
    parts: dict[str, str] = {}
    for kind, listed in verbs.items():
        for name, words in _inflections(kind, listed, language):
            parts[name] = _any(words)
    every = [verb for listed in access.values() for verb in listed]
    seen = {
        kind: [form for verb in every for form in _forms_of(verb, language)[n]]
        for n, kind in enumerate(("see", "seeing"))
    }
    parts["see"], parts["seeing"] = (f"(?P<see>{_any(seen[kind])})" for kind in ("see", "seeing"))
    unsure = frozenset(shlex.split(raw.get("unsure", "")))
    parts["look"] = f"(?P<look>{_any([verb for verb in every if verb not in unsure])})"
    parts["role"] = f"(?P<role>{'|'.join(raw['roles'].values())})"
    parts |= {
        "with": f"(?P<with>{_NAMES[language]})", "with2": f"(?P<with2>{_NAMES[language]})",
        "what": r"(?P<what>[^,;，；。]+?)", "what2": r"(?P<what2>[^,;，；。]+?)", "said": r"(?P<what>.+?)", "to": r"(?P<to>.+?)", "new": r"(?P<new>.+?)",
        "own": raw["own"],
    }  # fmt: skip
    parts |= {name: pattern for name, pattern in raw["lists"].items()}
    flags = re.IGNORECASE

    def compiled(form: str) -> re.Pattern[str]:
        return re.compile(_unique(_filled(form, parts)), flags)

    def opening(forms: list[str]) -> re.Pattern[str]:
        space = r"\s+" if language == "en" else r"[，,：:、。！!\s]*"
        return re.compile("|".join(f"(?:{_filled(form, parts)}){space}" for form in forms), flags)

    relations = {
        verb: relation
        for relation, listed in access.items()
        for v in listed
        for forms in _forms_of(v, language)
        for verb in forms
    }
    for relation, roles in raw["roles"].items():
        relations |= {role: relation for role in re.sub(r"\[.*?\]", " ", roles).split("|")}
    edge = r"\b" if language == "en" else ""
    vague = raw["vague"]
    return Book(
        language=language,
        forms=tuple(
            Form(group["intent"], compiled(form), group.get("ask", ""), group.get("to", ""))
            for group in raw["forms"]
            for form in group["forms"]
        ),
        lead=re.compile(rf"(?:{raw['lead']}){edge}[,.!:;，。！：、\s–—-]*", flags),
        before=opening(raw["before"]),
        gerund=opening(raw["gerund"]) if raw.get("gerund") else None,
        tail=re.compile(rf"[,.!?，。！？\s]*(?<!\w)(?:{raw['tail']})[.!?。！？~\s]*$" if language == "en" else rf"[,.!?，。！？\s]*(?:{raw['tail']})[.!?。！？~\s]*$", flags),
        gerunds={
            other: verb
            for listed in verbs.values()
            for verb in listed
            for forms in _forms_of(verb, language)[1:]
            for other in forms
        }
        | raw.get("pasts", {}),
        openings={
            "remember": opening(raw["remember"]["before"]),
            "pronoun": re.compile(raw["remember"].get("pronoun", r"(?!)"), flags),
            "correct": opening(raw["correct"]["before"]),
            "recall": opening(raw["recall"]["before"]),
        },
        after=re.compile(raw["remember"]["after"], flags),
        correct=tuple(compiled(form) for form in raw["correct"]["forms"]),
        vague_correct=re.compile(raw["correct"]["vague"], flags),
        stated=re.compile("|".join(raw["correct"]["stated"]), flags),
        clause=re.compile(raw["recall"]["clause"], flags),
        talk=re.compile(rf"(?:(?:{raw['talk']['phrases']})(?![\w’'])[,.!?;:~…\s()–—-]*|[:;][-~]?[)DPp(]\s*|[\W_]+)+" if language == "en" else rf"(?:(?:{raw['talk']['phrases']})[，,。！!？?~…\s、]*)+", flags),
        previous=compiled(raw["lists"]["PREVIOUS"]),
        some=compiled(raw["lists"]["SOME"]),
        pronouns=re.compile(rf"(?:{vague['pronouns']})", flags),
        nouns=re.compile(rf"(?:{vague['nouns']})", flags),
        restricts=re.compile(vague["restricts"], flags),
        before_words=re.compile(vague["before"], flags),
        she=frozenset(raw["she"].split()),
        he=frozenset(raw["he"].split()),
        not_people=frozenset(raw["not_people"].split()),
        relations=relations,
        asides=re.compile(raw["asides"], flags),
        hasty=re.compile(rf"\b{_any(list(raw['hasty']) or ['(?!)'])}\b", flags),
        raw=raw,
    )  # fmt: skip


def _inflections(kind: str, verbs: list[str], language: Language) -> Iterator[tuple[str, list[str]]]:
    """(name of a slot, the words that fit it): {forget}, {forgetting}, {forgotten}."""
    names = [forms[0] for forms in _forms_of(kind, language)]
    for n, name in reversed(list(enumerate(names))):  # "put" is the base form, not the participle
        yield name, [form for verb in verbs for form in _forms_of(verb, language)[n]]


def _forms_of(verb: str, language: Language) -> tuple[list[str], list[str], list[str]]:
    """Base, -ing and past participle; of Chinese, which has one form, that."""
    if language != "en":
        return [verb], [verb], [verb]
    first, space, rest = verb.replace("_", " ").partition(" ")
    if first in _IRREGULAR:
        ing, ed = _IRREGULAR[first]
    elif first.endswith("e"):
        ing, ed = f"{first[:-1]}ing", f"{first}d"
    elif first.endswith("y"):
        ing, ed = f"{first}ing", f"{first[:-1]}ied"
    else:
        ing, ed = f"{first}ing", f"{first}ed"
    return [f"{first}{space}{rest}"], [f"{ing}{space}{rest}"], [f"{ed}{space}{rest}"]


def _any(words: list[str]) -> str:
    """One of the words, the longest that fits."""
    return "(?:" + "|".join(re.escape(word) for word in sorted(set(words), key=len, reverse=True)) + ")"


def _filled(form: str, parts: dict[str, str]) -> str:
    """The form with its slots as regular expressions; a number of times such as {2,3} is none."""
    for _ in range(3):  # lists name lists
        form = _SLOT.sub(lambda slot: f"(?:{parts[slot[1]]}){slot[2]}" if slot[1] in parts else slot[0], form)
    return form


def _unique(pattern: str) -> str:
    """Groups of one name in several branches get a number each, as a name may be given once."""
    seen: dict[str, int] = {}

    def named(group: re.Match[str]) -> str:
        seen[group[1]] = seen.get(group[1], 0) + 1
        return f"(?P<{group[1]}{'' if seen[group[1]] == 1 else f'_{seen[group[1]]}'}>"

    return re.sub(r"\(\?P<(\w+)>", named, pattern)
