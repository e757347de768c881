"""Trains a LoRA adapter, or rows of KV, on memories by context distillation; knows training, no cubes.

The teacher is the base model with the memory in its context; the student is the base model with a fresh
adapter and no memory. Prompts that the memory has nothing to do with, closed-book and over other contexts,
are held to the base model in the same loss, so that the adapter adds and does not break (Kujanpaeae et al.,
2412.14964; Eyuboglu et al., 2506.06266).
What is to be kept is kept beside other adapters too, whatever they have drifted.

Trained KV is the middle way between KV and an adapter (Cartridges, 2506.06266): some rows of the real cache, trained
until the model answers over them as it answers over the text. Rows keep the places that their tokens had, and what
follows is numbered as in the full prompt; so they serve like any other KV, in any batch, which peft's CARTRIDGE, a
model of its own whose text begins right after its rows, does not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import PreTrainedModel

from memos.config import DistilConfig
from memos.infrastructure.host.adapters.serving import Stack
from memos.infrastructure.host.forward import Forward, Forwards, first_position
from memos.infrastructure.host.kv.cache import Activation, Layer, cache_of
from memos.infrastructure.host.training.subspace import aim

Under = Callable[[Sequence[Stack]], AbstractContextManager[None]]  # makes the forwards within it those of the rows
Progress = Callable[[int, int, float], None]  # (step, most steps, loss)
_FORWARD_TOKENS = 2048  # in one forward of training, padding included
_LOSS_FLOOR = 0.02  # what is learnt is drawn now and then all the same
_WARM_UP_STEPS = 10
_AIMED_ROWS = 800  # to keep, whose directions the adapter is kept from
_REVIEWED_ROWS = 200  # to keep, which a review reads


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
    for chunk in _chunks(rows):
        read = [rows[n] for n in chunk]
        with _active(read, under):
            logits = _answer_logits(model, read)
        p, ids = torch.softmax(logits.float(), -1).topk(min(k, logits.shape[-1]))
        lengths = [len(row.answer) for row in read]
        for n, top_ids, top_p in zip(
            chunk, ids.split(lengths), (p / p.sum(-1, keepdim=True)).split(lengths), strict=True
        ):
            out[n] = Example(students[n], answers[n], top_ids, top_p, stacks[n])
    return [out[n] for n in range(len(rows))]


class Training:
    """Fits one adapter; its state can be written down and taken up again, and then ends as if never interrupted."""

    def __init__(
        self,
        student: torch.nn.Module,
        lessons: Sequence[Example],
        keep: Sequence[Example],
        config: DistilConfig,
        under: Under | None = None,
    ) -> None:
        """lessons: what is to be learnt. keep: what must stay as it is."""
        self._student, self._config, self._under = student, config, under
        self._rows, self._lessons = [*lessons, *keep], len(lessons)
        # a step sees rows under the same adapters: one matrix product for all of them
        self._stacks = list(dict.fromkeys(row.under for row in self._rows))
        self._digest = _digest(self._rows)
        self._peak = config.learning_rate or 1e-3
        self._aim()
        self._adapter = {n: p for n, p in student.named_parameters() if p.requires_grad or "lora_" in n}
        self._parameters = {name: p for name, p in self._adapter.items() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(self._parameters.values(), lr=self._peak, weight_decay=0.0)
        self.step, self.last = 0, config.steps  # `last` comes nearer once all is learnt
        self._loss = torch.ones(len(self._rows))  # of each row, when it was last seen
        self._least = torch.zeros(len(self._rows))  # probability of its least likely answer token

    def _aim(self) -> None:
        """Set and fix where the adapter looks, if there is something to keep."""
        to_keep = range(self._lessons, len(self._rows))
        if to_keep:
            some = random.Random(self._config.seed).sample(to_keep, min(len(to_keep), _AIMED_ROWS))
            lessons, keep = ([self._rows[n] for n in which] for which in (range(self._lessons), some))
            aim(self._student, partial(self._read, lessons), partial(self._read, keep), self._config.seed)

    def _read(self, rows: Sequence[Example]) -> None:
        for chunk in _chunks(rows):
            with _active([rows[n] for n in chunk], self._under):
                _answer_logits(self._student, [rows[n] for n in chunk])

    def run(self, progress: Progress, checkpoint: Path | None = None) -> int:
        """Train to the end; returns the steps taken.

        A step sees `batch` lessons and `batch_keep` rows to keep; lessons not learnt yet are drawn more often. Once
        every answer token has p > stop_probability and what is to be kept has drifted by less than stop_drift (greedy
        recall is certain well before the loss is 0), the end comes nearer.
        """
        config = self._config
        while self.step < self.last:
            if self.step % config.review == 0:
                self._review()
            loss = self._step()
            self.step += 1
            if checkpoint and self.step % config.checkpoint == 0:
                self.save(checkpoint)
            progress(self.step, self.last, loss)
        return self.step

    @torch.no_grad()
    def _review(self) -> None:
        """Read every lesson once, and some rows to keep: what is not learnt yet, and whether that was all."""
        to_keep = range(self._lessons, len(self._rows))
        some = random.Random(f"{self._config.seed}:{self.step}").sample(to_keep, min(len(to_keep), _REVIEWED_ROWS))
        read = [*range(self._lessons), *some]
        for part in _chunks([self._rows[n] for n in read]):
            chunk = [read[n] for n in part]
            rows = [self._rows[n] for n in chunk]
            with _active(rows, self._under):
                losses, least = _losses(self._student, rows)
            self._loss[chunk], self._least[chunk] = losses.cpu(), least.cpu()
        learnt, drifted = self._least[: self._lessons], self._loss[some].sum() / max(1, len(some))
        done = float(learnt.min()) > self._config.stop_probability and float(drifted) < self._config.stop_drift
        if done and self.last == self._config.steps and self.step:
            self.last = min(self.last, self.step + max(1, self.step // 2))

    def _step(self) -> float:
        config = self._config
        rng = random.Random(f"{config.seed}:{self.step}")  # of the step alone, so that it can be taken up again
        under = self._stacks[self.step % len(self._stacks)]
        alike = [n for n, row in enumerate(self._rows) if row.under == under]
        lessons = self._drawn(rng, [n for n in alike if n < self._lessons], config.batch)
        keep = [n for n in alike if n >= self._lessons]
        keep = rng.sample(keep, min(len(keep), config.batch_keep))
        chosen = [*lessons, *keep]
        weight = {n: 1 / len(lessons) for n in lessons} | {n: config.kl_base / len(keep) for n in keep}
        total = 0.0
        for part in _chunks([self._rows[n] for n in chosen]):
            chunk = [chosen[n] for n in part]
            rows = [self._rows[n] for n in chunk]
            with _active(rows, self._under):  # the backward pass too: with checkpointing it runs forwards again
                losses, least = _losses(self._student, rows)
                loss = (losses * losses.new_tensor([weight[n] for n in chunk])).sum()
                loss.backward()
            self._loss[chunk], self._least[chunk] = losses.detach().cpu(), least.cpu()
            total += loss.item()
        self._optimizer.param_groups[0]["lr"] = self._peak * self._rate()
        torch.nn.utils.clip_grad_norm_(self._parameters.values(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return total

    def _rate(self) -> float:
        """The share of the learning rate: up in a few steps, and down along a cosine, whose tail is for what is to be
        kept."""
        return min((self.step + 1) / _WARM_UP_STEPS, 0.5 * (1 + math.cos(math.pi * self.step / self.last)))

    def _drawn(self, rng: random.Random, among: Sequence[int], count: int) -> list[int]:
        """`count` rows without repeats, half of them drawn evenly, half in proportion to their loss."""
        if len(among) <= count:
            return list(among)
        chosen = rng.sample(among, count // 2)
        rest = sorted(set(among) - set(chosen))
        weights = (self._loss[rest] + _LOSS_FLOOR).tolist()
        # Efraimidis and Spirakis (2006): without replacement, in proportion to the weights
        keys = [(rng.random() ** (1 / w), n) for n, w in zip(rest, weights, strict=True)]
        return chosen + [n for _, n in sorted(keys, reverse=True)[: count - len(chosen)]]

    def save(self, path: Path) -> None:
        """All that the next steps depend on, whole or not at all."""
        tensors = {f"parameter {name}": p.detach() for name, p in self._adapter.items()}
        for name, p in self._parameters.items():
            tensors |= {f"{key} {name}": value for key, value in self._optimizer.state[p].items()}
        tensors |= {"loss": self._loss, "least": self._least, "at": torch.tensor([self.step, self.last])}
        beside = path.with_suffix(".new")
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside, {"rows": self._digest})
        beside.replace(path)

    def resume(self, path: Path) -> bool:
        """Go on from what `save` wrote. False, and nothing is changed, where that is of another training."""
        try:
            with safe_open(path, "pt") as file:
                if (file.metadata() or {}).get("rows") != self._digest:
                    return False
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
        except (OSError, SafetensorError):
            return False
        names = {name.split(" ", 1)[1] for name in tensors if " " in name}
        if names != set(self._adapter) or tensors["loss"].shape != self._loss.shape:
            return False
        if any(tensors[f"parameter {name}"].shape != p.shape for name, p in self._adapter.items()):
            return False
        with torch.no_grad():
            for name, p in self._adapter.items():
                p.copy_(tensors[f"parameter {name}"])
            for name, p in self._parameters.items():
                state = {key: tensors[f"{key} {name}"] for key in ("step", "exp_avg", "exp_avg_sq")}
                self._optimizer.state[p] = {k: v if k == "step" else v.to(p.device) for k, v in state.items()}
        self._loss, self._least = tensors["loss"], tensors["least"]
        self.step, self.last = tensors["at"].tolist()
        return True


@torch.no_grad()
def drift(model: Forwards, rows: Sequence[Example]) -> float:
    """KL(target || model), mean over the rows, in nats."""
    return sum(float(_losses(model, [rows[n] for n in chunk])[0].sum()) for chunk in _chunks(rows)) / max(1, len(rows))


def _digest(rows: Sequence[Example]) -> str:
    """sha256 of what is trained on: a checkpoint is of no use to other rows."""
    digest = sha256()
    for row in rows:
        digest.update(f"{row.prompt}{row.answer}{[folder.name for folder in row.under]}".encode())
    return digest.hexdigest()


def _active(rows: Sequence[Example], under: Under | None) -> AbstractContextManager[None]:
    return under([row.under for row in rows]) if under else nullcontext()


def _chunks(rows: Sequence[Example]) -> list[list[int]]:
    """Rows that are read in one forward: under the same adapters, and alike in length, so that little is padding."""
    out: list[list[int]] = []
    for n in sorted(range(len(rows)), key=lambda n: (rows[n].under, rows[n].tokens)):
        first, tokens = rows[out[-1][0]] if out else None, rows[n].tokens
        alike = first and first.under == rows[n].under and tokens <= 1.6 * first.tokens
        if not alike or tokens * (len(out[-1]) + 1) > _FORWARD_TOKENS:
            out.append([])
        out[-1].append(n)
    return out


def _losses(student: Forwards, rows: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """KL(target || student) of each row, mean over its answer tokens, and its least likely answer token's p: [rows]."""
    log_q = torch.log_softmax(_answer_logits(student, rows).float(), -1)
    lengths = [len(row.answer) for row in rows]
    losses = list[torch.Tensor]()
    ids = torch.tensor([token for row in rows for token in row.answer], device=log_q.device)
    least = log_q.detach().gather(-1, ids[:, None])[:, 0].exp().split(lengths)
    for row, part in zip(rows, log_q.split(lengths), strict=True):
        p, top = row.top_p.to(part.device), row.top_ids.to(part.device)
        losses.append((p * (p.clamp_min(1e-9).log() - part.gather(-1, top))).sum(-1).mean())
    return torch.stack(losses), torch.stack([p.min() for p in least])


def _answer_logits(model: Forwards, rows: Sequence[Example]) -> torch.Tensor:
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


def kept_rows(tokens: int, head: int, share: float) -> list[int]:
    """Of a cache of so many tokens: all of its head, and an even `share` of the others, the last among them."""
    own = tokens - head
    count = max(1, math.ceil(share * own))
    return [*range(head), *(head + own * (n + 1) // count - 1 for n in range(count))]


class Cartridge(torch.nn.Module):
    """A model whose every forward comes after a KV cache; with `train`, its rows after the head are parameters.

    The model is not changed, and is no part of this module's parameters.
    """

    def __init__(self, model: PreTrainedModel, past: Activation, head: int = 0, train: bool = False) -> None:
        super().__init__()
        self._model, self._past, self._head = (model,), past, head
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
        layers = [(k.expand(batch, -1, -1, -1), v.expand(batch, -1, -1, -1)) for k, v in self._layers()]
        there = attention_mask.new_ones(batch, self._past.rows)
        forward: Forward = self._model[0](
            input_ids=input_ids,
            attention_mask=torch.cat([there, attention_mask], 1),
            position_ids=position_ids + len(self._past.ids),
            past_key_values=cache_of(layers),
            **more | {"use_cache": True},
        )
        return forward

    @torch.no_grad()
    def activation(self) -> Activation:
        """The rows as they are now."""
        return replace(self._past, layers=tuple(self._layers()))


def thinned(whole: Activation, rows: Sequence[int]) -> Activation:
    """Just these rows of a cache, standing for all of its tokens."""
    index = torch.tensor(rows, device=whole.layers[0][0].device)
    layers = tuple((k.index_select(-2, index), v.index_select(-2, index)) for k, v in whole.layers)
    return replace(whole, layers=layers, trained=len(rows))
