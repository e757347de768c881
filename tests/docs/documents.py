"""The documents as the tests read them: their files, code blocks and command lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]

_FENCE = re.compile(r"(?:^<!-- (slow|not run): ?(.*?) ?-->\n|^<!-- (slow) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block. mark: what a comment right before it says, `slow`, `not run` or nothing; why: its reason."""

    language: str
    body: str
    mark: str
    why: str

    @property
    def lines(self) -> list[str]:
        """Command lines without their comments."""
        stripped = (re.sub(r"(?:^|\s)#.*", "", line).strip() for line in self.body.splitlines())
        return [line for line in stripped if line]


@cache
def text(doc: Path) -> str:
    return doc.read_text("utf-8")


def blocks(doc: Path, *languages: str) -> list[Block]:
    found = [
        Block(language, body, mark or alone, why) for mark, why, alone, language, body in _FENCE.findall(text(doc))
    ]
    return [block for block in found if block.language in languages]


def prose(doc: Path) -> str:
    """The text without its blocks."""
    return _FENCE.sub("", text(doc))


def name(doc: Path) -> str:
    return doc.relative_to(ROOT).as_posix().removeprefix("docs/").removesuffix(".md")
