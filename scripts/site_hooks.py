"""Generates parts of the site while mkdocs builds it: settings from the config, commands from typer, public calls.

They take the place of `<!-- generated: NAME -->`; mkdocs.yml names this file.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from html import unescape
from typing import Any

_GENERATED = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
_LONGEST_DEFAULT = 80  # characters in a table
_LONGEST_LINE = 80  # characters of a signature
_EFFECTS = {
    "reads": "Leaves nothing behind but lines of the audit log and counts of use.",
    "adds": "Adds something; nothing that was there is lost.",
    "changes": "May change or remove what was there.",
}


def settings() -> str:
    from memos.plugins.settings.settings import groups

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


def calls() -> str:
    from memos.kernel.calls import Calls

    parts = []
    for name, line in Calls.table().items():
        effect = f"Right: *{line.right}*. {_EFFECTS[line.effect.value]}"
        door = f" In the Memory API: `{line.api}`." if line.api else " In Python and on the command line."
        parts += [f"### {name}", f"```python\n{name}{_signature(line.signature)}\n```"]
        parts += [inspect.cleandoc(line.__doc__ or "").replace("<", "&lt;"), effect + door]
    return "\n\n".join(parts)


def _signature(signature: inspect.Signature) -> str:
    """As it is written: one argument a line where one line is too long."""
    whole = str(signature).replace("'", "")
    if len(whole) <= _LONGEST_LINE:
        return whole
    shown = [str(one).replace("'", "") for one in signature.parameters.values()]
    first = next((n for n, one in enumerate(signature.parameters.values()) if one.kind is one.KEYWORD_ONLY), None)
    if first is not None:
        shown.insert(first, "*")
    returned = str(signature.return_annotation).replace("'", "")
    return "(\n" + "".join(f"    {one},\n" for one in shown) + f") -> {returned}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _code(default: str) -> str:
    short = default if len(default) <= _LONGEST_DEFAULT else default[: _LONGEST_DEFAULT - 1] + "…"
    return f"`{short}`".replace("|", "\\|") if short else ""


GENERATED: dict[str, Callable[[], str]] = {"settings": settings, "commands": commands, "calls": calls}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of every page."""
    return _GENERATED.sub(lambda found: GENERATED[found[1]](), markdown)
