"""The calls that bring adapters and KV back to text, and keep what they say; knows no model.

What is kept is a candidate: trust `model`, with its evidence beside it. What a memory in force says already is not kept
again, and what would contradict one is not kept at all. Nothing is planned: a derived cube goes with its last source
by the wish of whoever deleted that, and to write down what it says would bring back what was to be gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memos.cube import Trust
from memos.errors import InputError
from memos.kernel.calls import Services
from memos.ops import Add
from memos.plugins.externalize.values import SURE, Externalized, Statement

if TYPE_CHECKING:
    from memos.rights import Caller

ORIGIN = "externalized:"  # of what is kept, before the id of the cube or the name of the file


class Externalizing:
    """externalize."""

    def __init__(self, services: Services) -> None:
        self._parts, self._forming, self._keeping = services.parts, services.forming, services.keeping

    def externalize(
        self, caller: Caller, what: str | Path, *, about: Sequence[str] = (), keep: bool = False, sure: float = SURE
    ) -> Externalized:
        """What an adapter says when it is asked with it on against off; of a KV cache, its text.

        what: id of a cube, a folder of an adapter, or a file of KV. about: subjects to ask about, beside those of the
        memories that the user may see. keep: what has at least this confidence becomes a memory. Raises InputError.
        """
        from memos.plugins.externalize.statements import externalize, externalize_kv  # loads torch and transformers

        if not 0 <= sure <= 1:
            raise InputError(f"sure is {sure:g}, and a confidence is from 0 to 1; {SURE:g} is usual")
        path = self._forming.folder(caller, what, "activation", "parametric")
        host, texts = self._parts.host(), self._parts.access.texts(caller)
        if path.is_file():
            found = externalize_kv(host, path, texts)
        else:
            found = externalize(host, self._parts.reader, path, about, texts)
        result = Externalized(statements=tuple(found))
        return self._kept(caller, str(what), result, sure) if keep else result

    def _kept(self, caller: Caller, what: str, found: Externalized, sure: float) -> Externalized:
        wanted, left = dict[int, Add](), dict[int, str]()
        for place, statement in enumerate(found.statements):
            op = self._as_told(what, statement)
            if statement.source not in ("", "card"):
                left[place] = f"{statement.source} says so"
            elif statement.confidence < sure:
                left[place] = f"its confidence is {statement.confidence:.2f}, below {sure:g}"
            elif self._parts.knowledge.disputes(op, caller.namespace):
                left[place] = "it contradicts a memory"
            else:
                wanted[place] = op
        cubes = self._keeping.remember(caller, list(wanted.values()))
        kept = {place: cube.id for place, cube in zip(wanted, cubes, strict=True)}
        return found.model_copy(update={"kept": kept, "left": left})

    def _as_told(self, what: str, statement: Statement) -> Add:
        """The statement as it is remembered, with what speaks for it."""
        evidence = statement.model_dump(exclude={"text", "fact", "evidence"})
        asked = [one.model_dump() for one in statement.evidence]
        more = {
            "origin": f"{ORIGIN}{Path(what).name}",
            "trust": Trust.MODEL,
            "metadata": json.dumps({"externalized": {**evidence, "evidence": asked}}),
        }
        return self._parts.reader.statement(statement.text).model_copy(update=more)


def make(services: Services) -> Externalizing:
    return Externalizing(services)
