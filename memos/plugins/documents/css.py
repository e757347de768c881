"""Finds the style declarations that hold for an element of a page; knows no property's meaning.

A page is read on the screen of a desk, not printed. Selectors are soupsieve's. A rule is tried only on elements with
the id, the class or the name that its selector ends in: a page of 20,000 elements may have 5,000 rules.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, groupby
from operator import itemgetter

import soupsieve
from bs4 import Tag

SCREEN = (1280.0, 800.0)  # CSS pixels
UNITS = {"px": 1.0, "pt": 4 / 3, "pc": 16.0, "in": 96.0, "cm": 37.8, "mm": 3.78, "vw": SCREEN[0] / 100}
UNITS |= {"vh": SCREEN[1] / 100, "vmin": SCREEN[1] / 100, "vmax": SCREEN[0] / 100}
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|<!--|-->", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-9a-f]{1,6})\s?|(.))", re.IGNORECASE | re.DOTALL)
_MAX_SELECTOR = 1_000  # characters; longer ones say nothing, and nested ones would grow without end
_CODE = re.compile(r"\\[0-9a-f]", re.IGNORECASE)
_STRING = re.compile(r""" "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' """, re.VERBOSE | re.DOTALL)
_NAME = r"((?:[\w-]|\\.)+)"
_SIMPLE = re.compile(rf"[.#]?{_NAME}")
_IN_PLACE = re.compile(r"@(?:layer|supports|scope)\b")
_FEATURES = {"prefers-color-scheme": "light", "orientation": "landscape", "hover": "hover", "pointer": "fine"}

Specificity = tuple[int, int, int, int]  # attribute, ids, classes, names
_INLINE = (1, 0, 0, 0)


@dataclass(frozen=True)
class _Rule:
    """matches: None where the element's key is all that the selector asks for."""

    matches: soupsieve.SoupSieve | None
    specificity: Specificity
    order: int
    declarations: list[tuple[str, str, bool]]


class Styles:
    """The style sheets of one page."""

    def __init__(self, page: Tag) -> None:
        self._rules, order = defaultdict[str, list[_Rule]](list), count()
        for sheet in page.find_all("style"):
            if _on_screen(str(sheet.get("media", ""))):
                declared = _declared("".join(map(str, sheet.contents)))
                for selectors, block in groupby(declared, key=itemgetter(0)):
                    self._add(selectors, _parsed(";".join(text for _, text in block)), next(order))

    def of(self, tag: Tag) -> dict[str, str]:
        """Property to value, in small letters."""
        name = tag.name if tag.parent else "html"  # a page may leave that tag out
        keys = ["*", name, f"#{tag.get('id')}", *(f".{one}" for one in tag.get("class") or ())]
        rules = [rule for key in keys for rule in self._rules.get(key, ())]
        held = [(r.specificity, r.order, r.declarations) for r in rules if not r.matches or r.matches.match(tag)]
        if style := tag.get("style"):
            held.append((_INLINE, 0, _parsed(_plain(str(style)))))
        values: dict[str, tuple[tuple[bool, Specificity, int], str]] = {}
        for specificity, order, declarations in held:
            for name, value, important in declarations:
                priority = important, specificity, order
                if name not in values or values[name][0] <= priority:
                    values[name] = priority, value
        return {name: value for name, (_, value) in values.items()}

    def _add(self, selectors: str, declarations: list[tuple[str, str, bool]], order: int) -> None:
        for selector in map(str.strip, _split(selectors.replace(":root", "html"), ",")):
            if len(selector) > _MAX_SELECTOR:
                continue
            simple = re.split(r"(?<!\\)[:\[]", _split(selector, " \t\r\n>+~")[-1])[0]
            found = re.search(rf"[.#]{_NAME}", simple) or re.match(_NAME, simple.lower())
            key = re.sub(r"\\(.)", r"\1", found[0]) if found and not _CODE.search(selector) else "*"
            try:
                matches = None if key != "*" and _SIMPLE.fullmatch(selector) else soupsieve.compile(selector)
            except (soupsieve.SelectorSyntaxError, NotImplementedError):
                continue  # of no element, as ::before
            self._rules[key].append(_Rule(matches, _specificity(selector), order, declarations))


def _parsed(block: str) -> list[tuple[str, str, bool]]:
    """(property, value, whether it is important), in small letters, of each declaration."""
    parts = (_ESCAPE.sub(_unescaped, text).lower().partition(":") for text in block.split(";"))
    split = ((name.strip(), *value.partition("!")) for name, _, value in parts)
    return [(name, value.strip(), bool(important)) for name, value, important, _ in split if value.strip()]


def _declared(sheet: str) -> Iterator[tuple[str, str]]:
    """(selector, declaration) of each that holds on a screen."""
    blocks = [(True, "")]  # that are open: whether they hold, and for what
    for m in re.finditer(r"([^{};]*)([{};]|\Z)", _plain(sheet)):
        text, (holds, selector) = m[1].strip(), blocks[-1]
        if m[2] == "{":
            if text.startswith("@"):
                media = text.startswith("@media") and _on_screen(_ESCAPE.sub(_unescaped, text[6:]))
                blocks.append((holds and (media or bool(_IN_PLACE.match(text))), selector))
            elif selector:  # nested
                inside = text.replace("&", f":is({selector})") if "&" in text else f":is({selector}) {text}"
                blocks.append((holds and len(inside) <= _MAX_SELECTOR, inside))
            else:
                blocks.append((holds, text))
            continue
        if text and selector and holds:
            yield selector, text
        if m[2] == "}" and len(blocks) > 1:
            blocks.pop()


def _split(selector: str, marks: str) -> list[str]:
    """The parts between marks that stand in no brackets."""
    parts, depth = [""], 0
    for character in selector:
        depth += (character in "([") - (character in ")]")
        if depth or character not in marks:
            parts[-1] += character
        else:
            parts.append("")
    return parts


def _on_screen(media: str) -> bool:
    """True for a media query that holds on a screen of a desk; what is not known here does not."""
    return any(_holds(query.strip()) for query in media.lower().split(","))


def _holds(query: str) -> bool:
    if query.startswith("not "):
        return not _holds(query[4:])
    conditions = re.split(r"\s+and\s+", query.removeprefix("only "))
    return all(one in ("", "all", "screen") or _is_met(one) for one in conditions)


def _is_met(condition: str) -> bool:
    m = re.fullmatch(r"\(\s*([a-z-]+)\s*:\s*([a-z]+|(\d+(?:\.\d+)?)([a-z]*))\s*\)", condition)
    if not m or not m[3]:
        return m is not None and _FEATURES.get(m[1]) == m[2]
    bound, _, side = m[1].partition("-")
    length, screen = float(m[3]) * UNITS.get(m[4], 16.0), SCREEN[side == "height"]
    return side in ("width", "height") and {"min": screen >= length, "max": screen <= length}.get(bound, False)


def _specificity(selector: str) -> Specificity:
    ids, types = len(re.findall(r"#[\w-]", selector)), len(re.findall(r"(?:^|[\s>+~(])[a-zA-Z]", selector))
    return 0, ids, len(re.findall(r"\.[\w\\-]|\[|:(?!:|not\b|is\b|where\b|has\b)", selector)), types


def _plain(style: str) -> str:
    """Without comments, and without what would end a declaration in a string."""
    return _STRING.sub(lambda m: re.sub("[{};]", "", m[0]), _COMMENT.sub(" ", style))


def _unescaped(m: re.Match[str]) -> str:
    return m[2] or (chr(int(m[1], 16)) if int(m[1], 16) < 0x110000 else "\ufffd")
