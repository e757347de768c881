"""The closed set of operations: what every door turns into, and what the kernel carries out.

Each names its arguments only; the caller travels beside it. Knows the cube; knows nothing else.
"""

from __future__ import annotations

from datetime import datetime

from typing_extensions import assert_never

from memos.cube import Fact, Form, Frozen, Probe


class Add(Frozen):
    """Remember one statement."""

    text: str
    speaker: str = ""
    said: datetime | None = None
    origin: str = "api"
    thread: str = ""
    segment: str = ""
    kind: str = "fact"
    facts: tuple[Fact, ...] = ()
    probes: tuple[Probe, ...] = ()


class Correct(Add):
    """Remember a statement in place of earlier ones about the same subject and relation."""


class Search(Frozen):
    """Find memories; `about` names subjects that the question is about."""

    query: str
    top_k: int = 8
    about: tuple[str, ...] = ()


class Recall(Frozen):
    """Answer a question with what is remembered."""

    question: str
    about: tuple[str, ...] = ()


class Forget(Frozen):
    """Delete what `query` describes; `facts` say it more closely, with blanks for what is left open."""

    query: str
    facts: tuple[Fact, ...] = ()


class Get(Frozen):
    id: str


class Update(Frozen):
    id: str
    text: str


class Delete(Frozen):
    id: str


class Promote(Frozen):
    """Make one derived cube of `ids` in the dearer form `to`."""

    ids: tuple[str, ...]
    to: Form


class Demote(Frozen):
    """Give up a derived cube for its sources."""

    id: str


class History(Frozen):
    id: str


class Rewind(Frozen):
    """Take a session back to its first turns."""

    session: str
    turns: int


Operation = Add | Search | Recall | Correct | Forget | Get | Update | Delete | Promote | Demote | History | Rewind


def action(op: Operation) -> str:
    """The right that an operation needs: "read", "write" or "delete"."""
    match op:
        case Search() | Recall() | Get() | History():
            return "read"
        case Add() | Correct() | Update() | Promote() | Demote() | Rewind():
            return "write"
        case Forget() | Delete():
            return "delete"
        case _:
            assert_never(op)
