"""Forwards over rows, each a prompt and an answer that is forced: what a model believes there, and how far it drifts.

Knows no training and no cubes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel

from memos.infrastructure.host.adapters.serving import Stack
from memos.infrastructure.host.forward import Forward, Forwards, first_position
from memos.infrastructure.host.kv.cache import Activation, Layer

Under = Callable[[Sequence[Stack]], AbstractContextManager[None]]  # makes the forwards within it those of the rows
_FORWARD_TOKENS = 2048  # in one forward, padding included


@dataclass(frozen=True)
class Example:
    """A student prompt, the answer to force, and the distribution to match at each answer token.

    top_ids, top_p: [answer tokens, k], the target's k likeliest tokens and their probabilities, which sum to 1.
    under: adapters that are active beside the student.
    """

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    top_ids: torch.Tensor
    top_p: torch.Tensor
    under: Stack = ()

    @property
    def tokens(self) -> int:
        return len(self.prompt) + len(self.answer) - 1


def answer_row(prompt: tuple[int, ...], answer: tuple[int, ...], under: Stack = ()) -> Example:
    """The answer alone is right, whatever a teacher would say."""
    return Example(prompt, answer, torch.tensor(answer)[:, None], torch.ones(len(answer), 1), under)


@torch.no_grad()  # not inference_mode: the results take part in training
def teacher_rows(
    model: Forwards,
    teachers: Sequence[tuple[int, ...]],
    students: Sequence[tuple[int, ...]],
    answers: Sequence[tuple[int, ...]],
    k: int,
    stacks: Sequence[Stack] = (),
    under: Under | None = None,
) -> list[Example]:
    """What `model` believes at each token of the forced answers, when it reads the teachers' prompts."""
    stacks = stacks or [()] * len(answers)
    rows = [answer_row(p, a, s) for p, a, s in zip(teachers, answers, stacks, strict=True)]
    out: dict[int, Example] = {}
    for chunk in chunks(rows):
        read = [rows[n] for n in chunk]
        with active(read, under):
            logits = answer_logits(model, read)
        p, ids = torch.softmax(logits.float(), -1).topk(min(k, logits.shape[-1]))
        p, lengths = p / p.sum(-1, keepdim=True), [len(row.answer) for row in read]
        for n, top_ids, top_p in zip(chunk, ids.split(lengths), p.split(lengths), strict=True):
            out[n] = Example(students[n], answers[n], top_ids, top_p, stacks[n])
    return [out[n] for n in range(len(rows))]


@torch.no_grad()
def drift(model: Forwards, rows: Sequence[Example]) -> float:
    """KL(target || model), mean over the rows, in nats."""
    losses = (row_losses(model, [rows[n] for n in chunk])[0] for chunk in chunks(rows))
    return sum(float(loss.sum()) for loss in losses) / max(1, len(rows))


def active(rows: Sequence[Example], under: Under | None) -> AbstractContextManager[None]:
    return under([row.under for row in rows]) if under else nullcontext()


def chunks(rows: Sequence[Example]) -> list[list[int]]:
    """Rows that are read in one forward: under the same adapters, and alike in length, so that little is padding."""
    out: list[list[int]] = []
    for n in sorted(range(len(rows)), key=lambda n: (rows[n].under, rows[n].tokens)):
        first, tokens = rows[out[-1][0]] if out else None, rows[n].tokens
        alike = first and first.under == rows[n].under and tokens <= 1.6 * first.tokens
        if not alike or tokens * (len(out[-1]) + 1) > _FORWARD_TOKENS:
            out.append([])
        out[-1].append(n)
    return out


def row_losses(student: Forwards, rows: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """KL(target || student) of each row, mean over its answer tokens, and its least likely answer token's p: [rows]."""
    log_q = torch.log_softmax(answer_logits(student, rows).float(), -1)
    lengths = [len(row.answer) for row in rows]
    losses = list[torch.Tensor]()
    ids = torch.tensor([token for row in rows for token in row.answer], device=log_q.device)
    least = log_q.detach().gather(-1, ids[:, None])[:, 0].exp().split(lengths)
    for row, part in zip(rows, log_q.split(lengths), strict=True):
        p, top = row.top_p.to(part.device), row.top_ids.to(part.device)
        losses.append((p * (p.clamp_min(1e-9).log() - part.gather(-1, top))).sum(-1).mean())
    return torch.stack(losses), torch.stack([p.min() for p in least])


def answer_logits(model: Forwards, rows: Sequence[Example]) -> torch.Tensor:
    """Logits that predict each answer token of the rows, one row after the other: [answer tokens, vocabulary].

    Rows are padded on the right, where a causal model does not look. Logits are computed from the earliest
    answer on.
    """
    device = next(model.parameters()).device
    width = max(row.tokens for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for n, row in enumerate(rows):
        ids[n, : row.tokens] = torch.tensor([*row.prompt, *row.answer[:-1]])
        mask[n, : row.tokens] = 1
    earliest = min(len(row.prompt) for row in rows) - 1
    logits = model(
        input_ids=ids.to(device),
        attention_mask=mask.to(device),
        position_ids=(torch.arange(width, device=device) + first_position(model)).expand(len(rows), -1),
        use_cache=False,
        logits_to_keep=width - earliest,
    ).logits[:, earliest - width :]
    # one selection for all: a slice for each row would cost a tensor of all logits in the backward pass
    which = [(n, len(row.prompt) - 1 - earliest + k) for n, row in enumerate(rows) for k in range(len(row.answer))]
    row_of, place = torch.tensor(which, device=device).T
    return logits[row_of, place]


class Cartridge(torch.nn.Module):
    """A model whose every forward comes after a KV cache; with `train`, its rows after the head are parameters.

    The model is not changed, and is no part of this module's parameters.
    """

    def __init__(self, model: PreTrainedModel, past: Activation, head: int = 0, train: bool = False) -> None:
        super().__init__()
        self._model, self._past, self._head, self._trains = (model,), past, head, train
        self.rows = torch.nn.ParameterList(
            torch.nn.Parameter(tensor[..., head:, :].detach().float().clone(), requires_grad=train)
            for layer in past.layers
            for tensor in layer
        )

    def _layers(self) -> list[Layer]:
        fixed = [(k[..., : self._head, :], v[..., : self._head, :]) for k, v in self._past.layers]
        return [
            (torch.cat([k, self.rows[2 * n].to(k.dtype)], -2), torch.cat([v, self.rows[2 * n + 1].to(v.dtype)], -2))
            for n, (k, v) in enumerate(fixed)
        ]

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor, **more: object
    ) -> Forward:
        """input_ids, attention_mask, position_ids: [rows, tokens] of what comes after the cache."""
        batch = len(input_ids)
        past = replace(self._past, layers=self._layers()) if self._trains else self._past
        there = attention_mask.new_ones(batch, self._past.rows)
        return self._model[0](
            input_ids=input_ids,
            attention_mask=torch.cat([there, attention_mask], 1),
            position_ids=position_ids + len(self._past.ids),
            past_key_values=past.fork(batch),
            **more | {"use_cache": True},
        )

    @torch.no_grad()
    def activation(self) -> Activation:
        """The rows as they are now."""
        return replace(self._past, layers=tuple(self._layers()))
