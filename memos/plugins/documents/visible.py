"""Tells what of a page its reader does not see: by tags, attributes, and the styles that the page itself brings.

Seen is what a browser would show once the page is open, or after a click on a summary. Sheets and scripts that lie
elsewhere are not known, nor what covers what; where they could decide, a text counts as seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from bs4.element import Tag

from memos.plugins.documents.colours import (
    BLACK,
    MIN_ALPHA,
    WHITE,
    Colour,
    ground_upon,
    is_legible,
    number,
    read_colour,
)
from memos.plugins.documents.css import SCREEN, UNITS, Styles

Values = dict[str, str]  # property to value

_UNSEEN = frozenset(
    "head title script style template noscript noframes noembed svg annotation canvas audio video iframe object nav "
    "footer form select datalist button rp".split()
)
_OFF, _FAR = -900.0, 5_000.0  # CSS pixels; what is moved beyond is not on the screen. -50vw centres a wide picture
_MIN_FONT = 4.0  # CSS pixels
_MAX_VALUE = 1_000  # characters of a value, so that variables in variables do not grow without end
_SIDES = ((0, 0, 0, 0), (0, 1, 0, 1), (0, 1, 2, 1), (0, 1, 2, 3))  # which of 1 to 4 values each side has
_KEYWORDS = {"smaller": 0.83, "larger": 1.2}
_VARIABLE = re.compile(r"var\(\s*(--[\w-]+)\s*(?:,([^()]*))?\)")


@dataclass(frozen=True)
class _Look:
    """What an element hands down to those in it. A colour is None where it is not known, and a name where that is all
    that is known of it."""

    visible: bool = True
    font: float = 16.0  # CSS pixels
    root_font: float = 16.0
    colour: Colour | str | None = None
    ground: Colour | str | None = WHITE
    variables: Values = field(default_factory=dict)

    @property
    def shows_text(self) -> bool:
        return self.visible and self.font >= _MIN_FONT and is_legible(self.colour, self.ground)


def hidden(page: Tag) -> frozenset[int]:
    """The identities of the tags and texts that are not seen."""
    styles, unseen = Styles(page), set[int]()
    elsewhere = page.find("link", rel="stylesheet")  # which may colour what this page does not
    look = _Look(colour=None if elsewhere else BLACK)
    path = [(_inner(_resolved(styles.of(page), look), look), iter(page.children))]
    while path:
        look, inside = path[-1]
        node = next(inside, None)
        if node is None:
            path.pop()
        elif not isinstance(node, Tag):
            unseen |= set() if look.shows_text else {id(node)}
        elif _is_left_out(node):
            unseen.add(id(node))
        else:
            values = _resolved(_presented(node) | styles.of(node), look)
            own = _inner(values, look, node.name == "html") if values else look
            if values and any(rule(values, own) for rule in _RULES):
                unseen.add(id(node))
            else:
                path.append((own, iter(node.children)))
    return frozenset(unseen)


def _is_left_out(tag: Tag) -> bool:
    closed = tag.name == "dialog" and not tag.has_attr("open")
    hides = tag.has_attr("hidden") or tag.has_attr("popover") or str(tag.get("aria-hidden", "")).lower() == "true"
    return tag.name in _UNSEEN or closed or hides


def _presented(tag: Tag) -> Values:
    """Attributes that say what a style does."""
    attributes = {"bgcolor": "background-color", **({"color": "color"} if tag.name == "font" else {})}
    attributes |= {"text": "color"} if tag.name == "body" else {}
    return {name: str(tag[one]).lower() for one, name in attributes.items() if tag.has_attr(one)}


def _resolved(values: Values, look: _Look) -> Values:
    """With the values of variables in their place."""
    if not look.variables and not any(name.startswith("--") for name in values):
        return values
    known = look.variables | {name: value for name, value in values.items() if name.startswith("--")}
    for _ in range(3):  # variables in variables
        values = {
            name: _VARIABLE.sub(lambda m: known.get(m[1], m[2] or ""), value)[:_MAX_VALUE].strip()
            for name, value in values.items()
        }
    return values


def _inner(values: Values, look: _Look, is_root: bool = False) -> _Look:
    """The look of what is in an element of these values."""
    own = {name: value for name, value in values.items() if name.startswith("--")}
    font, colour, ground = _font(values, look), look.colour, look.ground
    visibility = values.get("visibility", "inherit")
    named = values.get("-webkit-text-fill-color", values.get("color", "inherit"))
    if named not in ("inherit", "currentcolor", "unset"):
        colour = read_colour(named)
    for name in ("background", "background-color", "background-image"):
        ground = ground_upon(values[name], ground) if name in values else ground
    if "text" in (values.get("background-clip"), values.get("-webkit-background-clip")):
        colour = ground = None  # the letters are filled with the background
    return _Look(
        visible=look.visible if visibility in ("inherit", "unset") else visibility not in ("hidden", "collapse"),
        font=font,
        root_font=font if is_root else look.root_font,
        colour=colour,
        ground=ground,
        variables=look.variables | own if own else look.variables,
    )


# what hides all that is in an element, whatever its own styles are


def _is_not_displayed(values: Values, look: _Look) -> bool:
    return values.get("display", "").split()[:1] == ["none"] or values.get("content-visibility") == "hidden"


def _is_transparent(values: Values, look: _Look) -> bool:
    filters = re.findall(r"opacity\(\s*([^)]*)\)", values.get("filter", ""))
    return any(number(value) < MIN_ALPHA for value in (values.get("opacity", ""), *filters))


def _is_off_screen(values: Values, look: _Look) -> bool:
    margin = values.get("margin", "").split()
    moved = [margin[0], margin[-1]] if margin else []
    moved += [values.get(name, "") for name in ("margin-left", "margin-top", "text-indent")]
    moved += values.get("translate", "").split()
    if values.get("position", "static") != "static":
        sides = ("left", "top", "right", "bottom", "inset", "inset-inline-start", "inset-block-start")
        moved += [part for side in sides for part in values.get(side, "").split()]
    for arguments in re.findall(r"translate(?:3d|x|y|z)?\(([^)]*)\)", values.get("transform", "")):
        moved += [part for part in re.split(r"[,\s]+", arguments) if not part.endswith("%")]  # of its own size
    lengths = [length for part in moved if (length := _length(part, look)) is not None]
    pushed = values.get("text-indent", "").endswith("%") and number(values["text-indent"]) >= 1 and _clips(values)
    return pushed or any(length <= _OFF or length >= _FAR for length in lengths)


def _is_folded(values: Values, look: _Look) -> bool:
    """Scaled to nothing, or turned to its edge."""
    transform = values.get("transform", "")
    scales = values.get("scale", "").split()
    for arguments in re.findall(r"scale(?:3d|x|y)?\(([^)]*)\)", transform):
        scales += re.split(r"[,\s]+", arguments.strip())
    return (
        any(abs(number(scale)) < MIN_ALPHA for scale in scales)
        or re.search(r"rotate[xy]\(\s*-?(?:90|270)deg|rotate[xy]\(\s*-?0?\.[27]5turn", transform) is not None
        or re.search(r"matrix\(\s*0\s*,\s*0\s*,\s*0\s*,\s*0\s*,", transform) is not None
    )


def _is_clipped(values: Values, look: _Look) -> bool:
    clip, path = values.get("clip", ""), values.get("clip-path", "")
    if clip.startswith("rect(") and values.get("position") in ("absolute", "fixed"):
        sides = [_length(part, look) for part in re.split(r"[,\s]+", clip[5:].rstrip(") "))]
        top, right, bottom, left = (sides + [None] * 4)[:4]
        if any(a is not None and b is not None and b - a <= 1 for a, b in ((top, bottom), (left, right))):
            return True
    name, _, arguments = path.partition(" at ")[0].rstrip(") ").partition("(")
    parts = [part.split() for part in arguments.partition(" round ")[0].split(",")]
    match name:
        case "inset":
            cut = [number(part) if part.endswith("%") else 0.0 for part in parts[0]][:4] or [0.0]
            top, right, bottom, left = (cut[n] for n in _SIDES[len(cut) - 1])
            return top + bottom >= 1 or left + right >= 1
        case "circle" | "ellipse":
            return any(_length(part, look) == 0 for part in parts[0])
        case "polygon":
            return any(len({tuple(point[axis : axis + 1]) for point in parts}) == 1 for axis in (0, 1))
    return False


def _is_without_size(values: Values, look: _Look) -> bool:
    names = ("height", "max-height", "width", "max-width", "block-size", "max-block-size", "inline-size")
    sizes = [_length(values.get(name, ""), look) for name in (*names, "max-inline-size")]
    padded = [
        _length(part, look) for name, value in values.items() if name.startswith("padding") for part in value.split()
    ]
    return _clips(values) and any(s is not None and s <= 1 for s in sizes) and not any(p and p > 2 for p in padded)


def _clips(values: Values) -> bool:
    overflow = " ".join(values.get(name, "") for name in ("overflow", "overflow-x", "overflow-y")).split()
    return any(value != "visible" for value in overflow)


_RULES: tuple[Callable[[Values, _Look], bool], ...] = (
    _is_not_displayed,
    _is_transparent,
    _is_off_screen,
    _is_folded,
    _is_clipped,
    _is_without_size,
)


def _font(values: Values, look: _Look) -> float:
    shorthand = re.search(
        r"(?:^|\s)(-?[\d.]+(?:[a-z]+|%)?)\s*(?:/|\s)", re.sub(r"(?:^|\s)[1-9]00\s", " ", values.get("font", ""))
    )
    size = values.get("font-size") or (shorthand[1] if shorthand else "")
    if size in _KEYWORDS:
        return look.font * _KEYWORDS[size]
    if size.endswith("-small") or size.endswith("-large") or size in ("small", "medium", "large"):
        return 16.0
    length = _length(size, look, whole=look.font)
    return look.font if length is None else length


def _length(value: str, look: _Look, whole: float = SCREEN[0]) -> float | None:
    """In CSS pixels; None for what is no length, or none that is known. whole: what a percentage is of."""
    m = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)([a-z]*|%)", value)
    if not m:
        return None
    relative = {
        "": 1.0,
        "%": whole / 100,
        "em": look.font,
        "ch": look.font / 2,
        "ex": look.font / 2,
        "rem": look.root_font,
    }
    unit = UNITS.get(m[2]) or relative.get(m[2])
    return None if unit is None else float(m[1]) * unit
