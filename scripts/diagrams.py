#!/usr/bin/env python3
"""Draws the diagrams of the documents: from docs/img/diagrams.yaml to docs/img/NAME.svg.

    python scripts/diagrams.py            # writes them
    python scripts/diagrams.py --check    # says which are not as the text says; exit 1

Boxes on a grid and arrows between them, in SVG that follows the reader's light or dark setting.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import yaml

IMG = Path(__file__).parents[1] / "docs" / "img"
CELL_W, CELL_H, BOX_W, BOX_H, EDGE = 300, 130, 196, 58, 12  # pixels
STYLE = """
  text{font:13px system-ui,sans-serif;fill:#1f2328;text-anchor:middle}
  .name{font-weight:600;font-size:15px}.label{font-size:12px;paint-order:stroke;stroke:#fff;stroke-width:5px}
  rect{fill:#eef1fb;stroke:#5c6bc0}path{fill:none;stroke:#57606a;stroke-width:1.4}marker path{fill:#57606a;stroke:none}
  @media(prefers-color-scheme:dark){text{fill:#e6edf3}.label{stroke:#1e2129}rect{fill:#262b44;stroke:#8c9eff}
  path{stroke:#9aa4b2}marker path{fill:#9aa4b2}}"""
_ARROW = re.compile(r"([\w-]+) (<?->) ([\w-]+)")

Point = tuple[float, float]


def draw(diagram: dict[str, Any]) -> str:
    """One diagram as SVG."""
    places = {
        name: (EDGE + BOX_W / 2 + x * CELL_W, EDGE + BOX_H / 2 + y * CELL_H)
        for y, row in enumerate(diagram["rows"])
        for x, name in enumerate(row)
        if name != "."
    }
    columns, rows = max(map(len, diagram["rows"])), len(diagram["rows"])
    width, height = (columns - 1) * CELL_W + BOX_W + 2 * EDGE, (rows - 1) * CELL_H + BOX_H + 2 * EDGE
    above = max((_rise(arrow, value, places) for arrow, value in diagram["arrows"].items()), default=0)
    parts = [part for arrow, value in diagram["arrows"].items() for part in _arrow(arrow, value, places)]
    parts += [part for name, lines in diagram["boxes"].items() for part in _box(places[name], lines)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {-above:g} {width:g} {height + above:g}" role="img">',
            f"<title>{escape(diagram['about'])}</title><style>{STYLE}</style>",
            '<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker></defs>',
            *parts,
            "</svg>\n",
        ]
    )


def _rise(arrow: str, value: Any, places: dict[str, Point]) -> float:
    """How much room an arrow that bends above the grid needs there, with its label."""
    (a, _, b), bend = _parsed(arrow), _bend(value)
    top = (places[a][1] + places[b][1]) / 4 + _aside(places[a], places[b], bend)[1] / 2
    return max(0.0, 2 * EDGE + BOX_H / 4 - top)


def _bend(value: Any) -> float:
    return float(value[0]) if isinstance(value, list) else 0.0


def _parsed(arrow: str) -> tuple[str, str, str]:
    found = _ARROW.fullmatch(arrow)
    if not found:
        raise SystemExit(f"{arrow!r} is no arrow; write it as `a -> b` or `a <-> b`")
    one, way, other = found.groups()
    return one, way, other


def _box(centre: Point, lines: list[str]) -> Iterator[str]:
    x, y = centre
    yield f'<rect x="{x - BOX_W / 2:g}" y="{y - BOX_H / 2:g}" width="{BOX_W}" height="{BOX_H}" rx="8"/>'
    for n, line in enumerate(lines):
        kind = ' class="name"' if n == 0 else ""
        yield f'<text x="{x:g}" y="{y + 5 + (n - (len(lines) - 1) / 2) * 19:g}"{kind}>{escape(line)}</text>'


def _arrow(arrow: str, value: Any, places: dict[str, Point]) -> Iterator[str]:
    one, way, other = _parsed(arrow)
    label = value[1] if isinstance(value, list) else value
    a, b = places[one], places[other]
    middle = _aside(a, b, _bend(value))
    start, end = _border(a, middle), _border(b, middle)
    both = ' marker-start="url(#to)"' if way == "<->" else ""
    yield f'<path d="M{_xy(start)}Q{_xy(middle)} {_xy(end)}" marker-end="url(#to)"{both}/>'
    if label:
        x, y = (start[0] + 2 * middle[0] + end[0]) / 4, (start[1] + 2 * middle[1] + end[1]) / 4
        yield f'<text class="label" x="{x:g}" y="{y + (4 if a[0] == b[0] else -7):g}">{escape(label)}</text>'


def _aside(a: Point, b: Point, distance: float) -> Point:
    """The middle between two points, moved to the left of the way from one to the other."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = math.hypot(dx, dy)
    return (a[0] + b[0]) / 2 + dy / length * distance, (a[1] + b[1]) / 2 - dx / length * distance


def _border(box: Point, towards: Point) -> Point:
    """Where the line from the middle of a box leaves it, with a gap."""
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    scale = min((BOX_W / 2 + 3) / abs(dx) if dx else math.inf, (BOX_H / 2 + 3) / abs(dy) if dy else math.inf)
    return box[0] + dx * scale, box[1] + dy * scale


def _xy(point: Point) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"


def drawn() -> dict[Path, str]:
    """What every file should hold."""
    diagrams = yaml.safe_load((IMG / "diagrams.yaml").read_text("utf-8"))
    return {IMG / f"{name}.svg": draw(diagram) for name, diagram in diagrams.items()}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = options.parse_args().check
    stale = [path for path, svg in drawn().items() if not path.is_file() or path.read_text("utf-8") != svg]
    for path in stale:
        print(f"{path.name} {'is not as the text says; run python scripts/diagrams.py' if check else 'drawn'}")
        if not check:
            path.write_text(drawn()[path], "utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
