"""What the documentation site generates while it is built (mkdocs.yml names this file): the settings from
memos/config/ and the commands from typer, in place of `<!-- generated: NAME -->`."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

_GENERATED = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
_LONGEST = 80  # characters of a default in a table


def settings() -> str:
    from memos.interface.doors.cli.settings import groups

    parts = []
    for group in groups():
        rows = [f"| `{k.path}` | {_cell(k.type)} | {_code(k.default)} | {_cell(k.description)} |" for k in group.keys]
        if rows:
            parts += [f"### {group.path or 'At the top'}", group.about]
            parts += ["\n".join(["| key | type | default | what |", "|---|---|---|---|", *rows])]
    return "\n\n".join(part for part in parts if part)


def commands() -> str:
    import typer.main
    from typer.cli import get_docs_for_click

    from memos.interface.doors.cli.app import app

    command = typer.main.get_command(app)
    context = command.context_class(command, info_name="memos")
    told = get_docs_for_click(obj=command, ctx=context, name="memos", indent=2)  # type: ignore[arg-type]
    return unescape(told)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _code(default: str) -> str:
    short = default if len(default) <= _LONGEST else default[: _LONGEST - 1] + "…"
    return f"`{short}`".replace("|", "\\|") if short else ""


GENERATED: dict[str, Callable[[], str]] = {"settings": settings, "commands": commands}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of every page."""
    return _GENERATED.sub(lambda found: GENERATED[found[1]](), markdown)
