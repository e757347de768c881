"""Generates parts of the site while mkdocs builds it: the settings from the config, the commands from typer.

They take the place of `<!-- generated: NAME -->`; mkdocs.yml names this file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

_GENERATED = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
_LONGEST_DEFAULT = 80  # characters in a table


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
    markdown = get_docs_for_click(obj=command, ctx=context, name="memos", indent=2)  # type: ignore[arg-type]
    return unescape(markdown)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _code(default: str) -> str:
    short = default if len(default) <= _LONGEST_DEFAULT else default[: _LONGEST_DEFAULT - 1] + "…"
    return f"`{short}`".replace("|", "\\|") if short else ""


GENERATED: dict[str, Callable[[], str]] = {"settings": settings, "commands": commands}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of every page."""
    return _GENERATED.sub(lambda found: GENERATED[found[1]](), markdown)
