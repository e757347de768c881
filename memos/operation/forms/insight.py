"""Asks the model what an answer was given from: how much likelier it is with each memory than without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import tanh
from pathlib import Path
from typing import TYPE_CHECKING

from memos.cube import Form, MemCube
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.request import Request

if TYPE_CHECKING:
    from memos.operation.choosing.mem_scheduler import Admission

NATS = 3.0  # an answer that is so much less likely without a memory was given from it, as good as alone


@dataclass(frozen=True)
class Reason:
    """A memory that an answer was given from. change: by how many nats the answer is likelier with it than without it;
    for the memories of an adapter, than without the adapter."""

    cube: MemCube
    form: Form
    tokens: int  # of prompt that it took; none in an adapter
    change: float
    score: float = 0.0  # as it was found, of `signals`; 0 for one that came with its group
    signals: Mapping[str, float] | None = None

    @property
    def useful(self) -> float:
        """From -1 (it spoke against the answer) to 1."""
        return tanh(self.change / NATS)


@dataclass(frozen=True)
class Explanation:
    """An answer and what it rests on. likelihood: nats of the answer with all that was seen; closed_book: with none."""

    question: str
    answer: str
    reasons: tuple[Reason, ...]
    likelihood: float
    closed_book: float
    prompt_tokens: int
    past_tokens: int
    ttft_ms: float


def reasons(
    host: Host,
    question: str,
    answer: str,
    admission: Admission,
    adapters: tuple[Path, ...],
    found: Mapping[str, tuple[float, Mapping[str, float]]],
) -> tuple[tuple[Reason, ...], float, float]:
    """(what each memory does for the answer, its likelihood with all, and with none of them), in nats.

    Measured on text, which KV stands for: one forward for each memory. adapters: the folders of those admitted. found:
    (score, signals) by id.
    """
    whole = Request(({"role": "user", "content": question},), tuple(c.text for c in admission.cubes), (), adapters)

    def likelihood(request: Request) -> float:
        return host.likelihood(request, answer)

    everything = likelihood(whole)
    nothing = likelihood(replace(whole, memories=(), adapters=()))
    as_text = {cube.id for cube in admission.as_text}
    out = []
    for n, cube in enumerate(admission.cubes):
        without = likelihood(replace(whole, memories=whole.memories[:n] + whole.memories[n + 1 :]))
        form = Form.PLAINTEXT if cube.id in as_text else Form.ACTIVATION
        tokens = host.tokens(cube.text)
        out.append(Reason(cube, form, tokens, everything - without, *found.get(cube.id, (0.0, None))))
    if adapters:
        change = everything - likelihood(replace(whole, adapters=()))
        for cube in admission.internal:
            out.append(Reason(cube, Form.PARAMETRIC, 0, change, *found.get(cube.id, (0.0, None))))
    return tuple(sorted(out, key=lambda reason: -reason.change)), everything, nothing
