"""What a request asks over, and what it is allowed to see: the values that choosing passes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memos.cube import Form, MemCube, Namespace

if TYPE_CHECKING:
    from memos.operation.choosing.cost_model import Way
    from memos.rights import Caller

Via = Literal["none", "plaintext", "activation", "parametric", "auto"]
# (adapters, at least one) -> those that know, best first
Route = Callable[[Sequence[MemCube], bool], Sequence[MemCube]]


@dataclass(frozen=True)
class Admission:
    """What a request sees: cubes in order; KV of the first of them; adapters that know others."""

    cubes: tuple[MemCube, ...] = ()
    activations: tuple[MemCube, ...] = ()  # in canonical order, which is that of `cubes`
    adapters: tuple[MemCube, ...] = ()  # active together, oldest first
    internal: tuple[MemCube, ...] = ()  # the cubes that the adapters stand for
    pinned: tuple[MemCube, ...] = ()  # those of `cubes` that are always seen, and were not found
    way: Way | None = None  # how KV and text were chosen between, where there was a choice

    @property
    def as_text(self) -> tuple[MemCube, ...]:
        """The cubes that go through the prompt."""
        return self.cubes[sum(len(kv.sources) for kv in self.activations) :]

    @property
    def form(self) -> Form | None:
        """The dearest form in use; None where nothing is remembered."""
        if self.adapters:
            return Form.PARAMETRIC
        return Form.ACTIVATION if self.activations else Form.PLAINTEXT if self.cubes else None


@dataclass(frozen=True)
class Session:
    """A conversation that memos keeps, and who reads it: their rights decide what of it is shown."""

    namespace: Namespace
    reader: Caller


@dataclass(frozen=True)
class Talk:
    """A question, with what was said before it: `turns` that the caller gave, or `earlier` ones of a session.

    again: the session is read again, whatever KV there is of it.
    """

    question: str
    turns: tuple[dict[str, str], ...] = ()
    session: Session | None = None
    earlier: tuple[MemCube, ...] = ()
    again: bool = False
