"""Trains a LoRA adapter, or rows of KV, on memories by context distillation; knows training, no cubes.

The teacher is the base model with the memory in its context; the student is the base model with a fresh
adapter and no memory. Prompts that the memory has nothing to do with, closed-book and over other contexts,
are held to the base model in the same loss, so that the adapter adds and does not break (Kujanpaeae et al.,
2412.14964; Eyuboglu et al., 2506.06266).
What is to be kept is kept beside other adapters too, whatever they have drifted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from memos.config import DistilConfig
from memos.infrastructure.host.training.rows import Example, Under, active, answer_logits, chunks, row_losses
from memos.plugins.training.subspace import aim

Progress = Callable[[int, int, float], None]  # (step, most steps, loss)
_LOSS_FLOOR = 0.02  # what is learnt is drawn now and then all the same
_WARM_UP_STEPS = 10
_AIMED_ROWS = 800  # to keep, whose directions the adapter is kept from
_REVIEWED_ROWS = 200  # to keep, which a review reads


class Training:
    """Fits one adapter; its state can be written down and taken up again, and then ends as if never interrupted."""

    def __init__(
        self,
        student: torch.nn.Module,
        lessons: Sequence[Example],
        keep: Sequence[Example],
        config: DistilConfig,
        under: Under | None = None,
        fresh: bool = True,
    ) -> None:
        """lessons: what is to be learnt. keep: what must stay as it is. fresh: where the adapter looks is still to be
        set."""
        self._student, self._config, self._under = student, config, under
        self._rows, self._lessons = [*lessons, *keep], len(lessons)
        # a step sees rows under the same adapters: one matrix product for all of them
        self._stacks = list(dict.fromkeys(row.under for row in self._rows))
        self._digest = _digest(self._rows)
        self._peak = config.learning_rate or 1e-3
        if fresh:
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
        for chunk in chunks(rows):
            with active([rows[n] for n in chunk], self._under):
                answer_logits(self._student, [rows[n] for n in chunk])

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
        for part in chunks([self._rows[n] for n in read]):
            chunk = [read[n] for n in part]
            rows = [self._rows[n] for n in chunk]
            with active(rows, self._under):
                losses, least = row_losses(self._student, rows)
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
        for part in chunks([self._rows[n] for n in chosen]):
            chunk = [chosen[n] for n in part]
            rows = [self._rows[n] for n in chunk]
            with active(rows, self._under):  # the backward pass too: with checkpointing it runs forwards again
                losses, least = row_losses(self._student, rows)
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
        warm_up = max(1, min(_WARM_UP_STEPS, self._config.steps // 4))
        return min((self.step + 1) / warm_up, 0.5 * (1 + math.cos(math.pi * self.step / self.last)))

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


def _digest(rows: Sequence[Example]) -> str:
    """sha256 of what is trained on: a checkpoint is of no use to other rows."""
    digest = sha256()
    for row in rows:
        digest.update(f"{row.prompt}{row.answer}{[folder.name for folder in row.under]}".encode())
    return digest.hexdigest()
