"""Tells what has become of a memory: versions, moves and repeats in order, and how two versions differ.

Knows what a version says; changes nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memos.cube import Blob, MemCube, Text, Turn

if TYPE_CHECKING:
    from memos.infrastructure.vault.mem_vault import MemVault

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n")
Event = dict[str, Any]  # ready for JSON


def _whole(cube: MemCube) -> MemCube:
    return cube


class VersionHistory:
    """Reads the versions of one vault."""

    def __init__(self, vault: MemVault) -> None:
        self._vault = vault

    def history(self, id: str, diffs: bool = False, as_read: Callable[[MemCube], MemCube] = _whole) -> list[Event]:
        """Versions, transitions and when it was told again, in time order, ready for JSON; with diffs, how each version
        differs from the one before it. as_read: a version as it may be told."""
        written = [(at, as_read(version)) for at, version in self._vault.written(id)]
        events: list[tuple[datetime, Event]] = [
            (at, {"event": "version", "version": cube.version, "payload": cube.payload.model_dump(mode="json")})
            for at, cube in written
        ]
        if diffs:
            for (_, event), (_, old), (_, new) in zip(events[1:], written, written[1:], strict=False):
                event["diff"] = _difference(old, new)
        events += [
            (at, {"event": "state", "state": str(to), "why": why}) for at, to, why in self._vault.transitions(id)
        ]
        events += [
            (at, {"event": "told again", "said": said and said.isoformat(), "origin": origin})
            for at, said, origin in self._vault.usage.repeats(id)
        ]
        return [{"at": at.isoformat(), **event} for at, event in sorted(events, key=lambda pair: pair[0])]

    def diff(self, id: str, a: int, b: int, as_read: Callable[[MemCube], MemCube] = _whole) -> list[str]:
        """What version b says in other words than version a, sentence by sentence and fact by fact: lines that begin
        with "-", "+" or a blank; none where they say the same. as_read: see `history`. Raises NotFound."""
        return _difference(as_read(self._vault.get(id, a)), as_read(self._vault.get(id, b)))


def _difference(old: MemCube, new: MemCube) -> list[str]:
    lines = difflib.unified_diff(_lines(old), _lines(new), n=1, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def _lines(cube: MemCube) -> list[str]:
    """What a version says, a line for each thing."""
    lines = [f"in force until {cube.header.expires.isoformat()}"] if cube.header.expires else []
    match cube.payload:
        case Text(text=text, facts=facts, probes=probes):
            lines += [sentence for sentence in _SENTENCE_END.split(text) if sentence]
            lines += [f"fact: {f.subject} | {f.relation} | {f.object}" for f in facts]
            lines += [f"probe: {p.question} | {p.answer}" for p in probes]
        case Turn(question=question, answer=answer):
            lines += [f"question: {question}", f"answer: {answer}"]
        case Blob(sha256=sha256):
            lines += [f"payload: {sha256}", *(f"source: {s.id} version {s.version}" for s in cube.sources)]
    return lines
