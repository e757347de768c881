"""Answers questions about the memory itself: what there is, how much, since when, and why an answer was given.

Knows what was asked and the services; knows no language.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memos.cube import ANSWERING, MemCube, State
from memos.kernel.access import Service

if TYPE_CHECKING:
    from memos.kernel.services.finding import Finding
    from memos.kernel.services.keeping import Keeping
    from memos.kernel.services.planning import Planning
    from memos.kernel.wiring import Parts
    from memos.ops import Asked
    from memos.rights import Caller

MAX_LISTED = 20  # memories that a list names


class SelfReport(Service):
    """Answers questions about the memory itself."""

    def __init__(self, parts: Parts, finding: Finding, keeping: Keeping, planning: Planning) -> None:
        super().__init__(parts)
        self._finding, self._keeping, self._planning = finding, keeping, planning

    def answer(self, caller: Caller, asked: Asked) -> str:
        """Raises Denied."""
        match asked.ask:
            case "list":
                return self._listed(self._meant(caller, asked.what))
            case "count":
                return f"{len(self._meant(caller, asked.what))} memories."
            case "history":
                return self._history(caller, asked.what)
            case "jobs":
                jobs = self._planning.jobs(caller)
                return "\n".join(f"{job.id} {job.kind} {job.state}" for job in jobs) or "No job is going on."
            case "status":
                return self._status(caller)
            case _:
                return self._sources(caller, asked.what)

    def _meant(self, caller: Caller, what: str) -> list[MemCube]:
        """The memories about something; about nothing or oneself, all."""
        cubes = self._access.texts(caller)
        if not what or what.lower() in ("me", "我"):
            return cubes
        about = self._reader.recall(what).about or (what,)
        like = {hit.cube.id for hit in self._finding.search(caller, what)}
        named = [c for c in cubes if any(word.lower() in c.text.lower() for word in about)]
        return named or [c for c in cubes if c.id in like]

    def _listed(self, cubes: list[MemCube]) -> str:
        more = f"\n... and {len(cubes) - MAX_LISTED} more" if len(cubes) > MAX_LISTED else ""
        return "\n".join(f"{c.id} {c.text}" for c in cubes[:MAX_LISTED]) + more or "There is no such memory."

    def _history(self, caller: Caller, what: str) -> str:
        found = self._finding.described(caller, self._reader.forget(what))[0]
        if len(found) == 1:
            return "\n".join(str(event) for event in self._keeping.history(caller, found[0].id))
        return "Say more closely which memory: " + (" | ".join(f"{c.id} {c.text}" for c in found) or "none fits")

    def _status(self, caller: Caller) -> str:
        cubes = self._finding.cubes(caller)
        forms = {
            str(form): sum(c.form == form and c.state in ANSWERING for c in cubes) for form in {c.form for c in cubes}
        }
        frozen = sum(c.state is State.FROZEN for c in cubes)
        return ", ".join([*(f"{n} {form}" for form, n in sorted(forms.items())), f"{frozen} frozen"])

    def _sources(self, caller: Caller, what: str) -> str:
        near = self._finding.search(caller, what) if what else []
        if not near:
            return "Ask `memos explain` with the question: it names the memories that an answer was given from."
        return "From: " + " | ".join(f"{hit.cube.id} {hit.cube.text} ({hit.cube.header.origin})" for hit in near[:3])
