"""Parses HTML into a tree in which an end tag that may be left out is there, as the standard has it."""

from __future__ import annotations

from typing import Any

from bs4 import BeautifulSoup, Tag

TITLES = frozenset("h1 h2 h3 h4 h5 h6".split())
BLOCKS = TITLES | frozenset(
    "[document] address article aside blockquote body caption dd details div dl dt figcaption figure header hr html li "
    "main ol p pre section summary table tbody td tfoot th thead tr ul".split()
)
_IN_TABLES = frozenset("caption tbody td tfoot th thead tr".split())
# a tag that begins: those that it ends, and those beyond which it ends none
_ENDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    **dict.fromkeys(BLOCKS - _IN_TABLES, (frozenset({"p"}), BLOCKS - {"p"})),
    "li": (frozenset({"li"}), frozenset({"ul", "ol", "table"})),
    **dict.fromkeys(("dt", "dd"), (frozenset({"dt", "dd"}), frozenset({"dl", "table"}))),
    **dict.fromkeys(("td", "th"), (frozenset({"td", "th"}), frozenset({"tr", "table"}))),
    "tr": (frozenset({"tr"}), frozenset({"table"})),
    **dict.fromkeys(("tbody", "thead", "tfoot"), (frozenset({"tbody", "thead", "tfoot"}), frozenset({"table"}))),
    "body": (frozenset({"head"}), frozenset({"html"})),
}


class Page(BeautifulSoup):
    """The tree of a page. Without it, what follows a hidden `<p>` or `<li>` would lie in it, and be hidden too."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "html.parser")

    def handle_starttag(self, name: str, *rest: Any, **more: Any) -> Tag | None:
        """The parser's call for each tag that begins."""
        ended, bounds = _ENDS.get(name, (frozenset(), BLOCKS))
        for tag in reversed(self.tagStack) if ended else ():
            if tag.name in ended:
                self.handle_endtag(tag.name)
                break
            if tag.name in bounds:
                break
        return super().handle_starttag(name, *rest, **more)
