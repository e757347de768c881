#!/usr/bin/env python3
"""Writes the map of files: the first docstring line of every module of memos/, room by room, into docs/map.md.

python scripts/file_map.py            # writes it
python scripts/file_map.py --check    # says whether it is as the code says; exit 1 if not
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAP = ROOT / "docs" / "map.md"
LAYERS = ("memos", "memos/interface", "memos/kernel", "memos/operation", "memos/infrastructure", "memos/plugins")
LONGEST_LINE = 118  # characters of a first docstring line: it fits into the code's lines with its quotes
HEAD = """# Map of files

Every module and what it knows or does, room by room: the first line of its docstring. `scripts/file_map.py` writes
this page, and a test holds it to the code. Start with [the architecture](architecture.md), which says how the rooms fit
together.
"""


def first_line(path: Path) -> str:
    """The first line of a module's docstring; "" where it has none."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8")), clean=False) or "").split("\n")[0].strip()


def modules() -> list[Path]:
    return sorted(ROOT.glob("memos/**/*.py"))


def unfinished() -> Iterator[str]:
    """Modules whose first docstring line is not one whole sentence that fits."""
    for path in modules():
        line = first_line(path)
        if not line.endswith((".", "?")) or len(line) > LONGEST_LINE:
            yield f"{path.relative_to(ROOT).as_posix()}: {line!r}"


def page() -> str:
    """What docs/map.md should hold."""
    rooms: dict[Path, list[Path]] = {}
    for path in modules():
        rooms.setdefault(path.parent, []).append(path)
    return "\n".join([HEAD, *(line for room in sorted(rooms, key=_place) for line in _room(room, rooms[room]))])


def _place(room: Path) -> tuple[int, str]:
    """Layers from the top down, a room before those within it."""
    name = room.relative_to(ROOT).as_posix()
    layer = max((n for n, one in enumerate(LAYERS) if f"{name}/".startswith(f"{one}/")), default=0)
    return (layer if layer or name == "memos" else len(LAYERS), name)


def _room(room: Path, files: list[Path]) -> Iterator[str]:
    yield f"## {room.relative_to(ROOT).as_posix()}\n"
    for package in (path for path in files if path.name == "__init__.py" and first_line(path)):
        yield f"{_cell(first_line(package))}\n"
    rows = [f"| {_cell(path.name)} | {_cell(first_line(path))} |" for path in files if path.name != "__init__.py"]
    if rows:
        yield "\n".join(["| file | what it knows or does |", "|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("__", "\\_\\_").replace("<", "&lt;")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = options.parse_args().check
    stale = not MAP.is_file() or MAP.read_text("utf-8") != page()
    for line in unfinished():
        print(f"not one sentence of at most {LONGEST_LINE} characters: {line}")
    if stale:
        print("docs/map.md is not as the code says; run python scripts/file_map.py" if check else "docs/map.md written")
        if not check:
            MAP.write_text(page(), "utf-8")
    return int(check and stale)


if __name__ == "__main__":
    sys.exit(main())
