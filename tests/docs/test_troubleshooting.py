"""Troubleshooting names every error class, with messages that the code really gives."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict

import pytest

from memos import errors
from memos.errors import MemosError
from tests.docs.documents import ROOT, text

PAGE = text(ROOT / "docs/troubleshooting.md")
CLASSES = {name: one for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, MemosError)}
ENTRIES = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
BASES = {name for name, one in CLASSES.items() if one.__subclasses__() or one is MemosError}


def shown(entry: str) -> list[str]:
    """The messages in an entry."""
    return [line for block in re.findall(r"^```text\n(.*?)^```$", entry, re.M | re.S) for line in block.splitlines()]


def pattern(node: ast.expr) -> str | None:
    """What a message of the code looks like, with anything where a value stands; None for a variable alone."""
    match node:
        case ast.Constant(value=str(words)):
            return re.escape(words)
        case ast.JoinedStr(values=parts):
            return "".join(pattern(part) or ".*" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{pattern(left) or '.*'}{pattern(right) or '.*'}"
    return None


def messages() -> dict[str, list[str]]:
    """By class, the patterns of the messages that it is made with."""
    found = defaultdict[str, list[str]](list)
    for path in ROOT.glob("memos/**/*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id in CLASSES and call.args:
                one = pattern(call.args[0])
                found[call.func.id] += [one] if one and len(one.replace(".*", "")) > 20 else []  # words, not values
    return found


MESSAGES = messages()


def test_every_error_has_an_entry() -> None:
    assert sorted(ENTRIES) == sorted(set(CLASSES) - {"MemosError"})


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_an_entry_shows_a_message_that_the_code_gives(name: str) -> None:
    for message in shown(ENTRIES[name]):
        assert any(re.fullmatch(one, message) for one in MESSAGES[name]), message
    assert shown(ENTRIES[name]) or name in BASES


def test_a_message_that_the_code_does_not_give_is_found() -> None:
    (message,) = shown(ENTRIES["Cancelled"])
    assert not any(re.fullmatch(one, message.replace("cancelled", "stopped")) for one in MESSAGES["Cancelled"])
