"""Reads colours as CSS writes them, and compares a text's with its background."""

from __future__ import annotations

import colorsys
import re

Colour = tuple[float, float, float, float]  # red, green, blue from 0 to 255, and alpha from 0 to 1

WHITE, BLACK = (255.0, 255.0, 255.0, 1.0), (0.0, 0.0, 0.0, 1.0)
MIN_ALPHA = 0.05
MIN_CONTRAST = 16.0  # of 255, in one of red, green and blue
_NAMES = {
    **dict.fromkeys(
        "white snow ivory ghostwhite whitesmoke floralwhite mintcream azure aliceblue canvas".split(), "#fff"
    ),
    **{"black": "#000", "canvastext": "#000", "red": "#f00", "lime": "#0f0", "blue": "#00f", "yellow": "#ff0"},
    **{"gray": "#808080", "grey": "#808080", "silver": "#c0c0c0", "green": "#008000", "navy": "#000080"},
    "transparent": "#0000",
}
_NO_COLOUR = re.compile(  # what else a background says
    r"[/\d.+-].*|none|inherit|initial|unset|revert|repeat|(?:no-)?repeat(?:-[xy])?|scroll|fixed|local|center|top|"
    r"bottom|left|right|cover|contain|auto|(?:border|padding|content)-box|space|round"
)


def is_legible(colour: Colour | str | None, ground: Colour | str | None) -> bool:
    """True unless a text and its background are known to look the same. None: not known; a name: nothing else is."""
    if not isinstance(colour, tuple):
        return colour is None or colour != ground
    if not isinstance(ground, tuple):
        return colour[3] >= MIN_ALPHA
    return max(abs(a - b) for a, b in zip(_over(colour, ground), ground, strict=True)) >= MIN_CONTRAST


def ground_upon(value: str, below: Colour | str | None) -> Colour | str | None:
    """What a background gives, upon the one below it."""
    parts = re.findall(r"[a-z-]+\([^()]*\)|[^\s()]+", value)
    named = [part for part in parts if not _NO_COLOUR.fullmatch(part)]
    if not named:
        return below if parts else None
    colour = read_colour(named[0])
    if len(named) > 1 or not isinstance(colour, tuple):  # an image, or a colour that is not known here
        return colour if len(parts) == 1 else None
    if not isinstance(below, tuple):
        return colour if colour[3] > 1 - MIN_ALPHA else below
    return _over(colour, below)


def read_colour(value: str) -> Colour | str | None:
    """Its name where nothing more is known of it, None for what is no colour."""
    value = _NAMES.get(value, value)
    if m := re.fullmatch(r"#?([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})", value):
        digits = m[1] if len(m[1]) > 4 else "".join(digit * 2 for digit in m[1])
        red, green, blue, alpha = (float(int(f"{digits}ff"[n : n + 2], 16)) for n in (0, 2, 4, 6))
        return red, green, blue, alpha / 255
    if m := re.fullmatch(r"(rgb|hsl)a?\(([^()]*)\)", value):
        parts = [part for part in re.split(r"[,/\s]+", m[2].replace("deg", "").strip()) if part]
        if len(parts) not in (3, 4):
            return None
        alpha = number(parts[3]) if len(parts) == 4 else 1.0
        if m[1] == "rgb":
            red, green, blue = (number(part) * (255 if part.endswith("%") else 1) for part in parts[:3])
            return red, green, blue, alpha
        hue, saturation, light = (number(part) for part in parts[:3])
        rgb = colorsys.hls_to_rgb(hue / 360 % 1, light, saturation)
        return rgb[0] * 255, rgb[1] * 255, rgb[2] * 255, alpha
    return value if re.fullmatch(r"[a-z]+", value) else None


def _over(above: Colour, below: Colour) -> Colour:
    alpha = max(0.0, min(above[3], 1.0))
    red, green, blue = (alpha * a + (1 - alpha) * b for a, b in zip(above[:3], below[:3], strict=True))
    return red, green, blue, 1.0


def number(value: str) -> float:
    """A number or a percentage, as a number; 1 for anything else."""
    m = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)(%?)", value.strip())
    return float(m[1]) / (100 if m[2] else 1) if m else 1.0
