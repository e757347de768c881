"""Memories -> a LoRA adapter by context distillation. Knows peft and training; knows no cubes.

The teacher is the base model with the memory in its context; the student is the base model with a fresh
adapter and no memory. Prompts that the memory has nothing to do with, closed-book and over other contexts,
are held to the base model in the same loss, so that the adapter adds and does not break (Kujanpaeae et al.,
2412.14964; Eyuboglu et al., 2506.06266).
"""

from __future__ import annotations

import copy
import json
import math
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from memos.config import DistilConfig
from memos.errors import CorruptBlob, Unsupported
from memos.infrastructure.host.kv_file import require_same_host

CARD = "card.json"
_CHUNK = 16  # examples in one forward of training


@dataclass(frozen=True)
class Example:
    """A student prompt, the answer to force, and the distribution to match at each answer token.

    top_ids, top_p: [answer tokens, k], the target's k likeliest tokens and their probabilities, which sum to 1.
    """

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    top_ids: torch.Tensor
    top_p: torch.Tensor


def twin(model: PreTrainedModel) -> PreTrainedModel:
    """A second module tree over the same weights: adapters go in there, and the caller's model stays as it was."""
    shared: dict[int, Any] = {}
    for parameter in model.parameters():
        shared[id(parameter)] = torch.nn.Parameter(parameter.detach(), requires_grad=False)
    for buffer in model.buffers():
        shared[id(buffer)] = buffer
    return copy.deepcopy(model, shared)


def fresh_adapter(model: PreTrainedModel, config: DistilConfig) -> PeftModel:
    """A twin with a new adapter, which starts as no change at all. Raises Unsupported where peft finds no target."""
    targets = config.targets if isinstance(config.targets, str) else list(config.targets)
    lora = LoraConfig(
        r=config.rank, lora_alpha=config.alpha, target_modules=targets, lora_dropout=0.0, task_type="CAUSAL_LM"
    )
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of peft's use of transformers
            torch.manual_seed(config.seed)
            return get_peft_model(twin(model), lora)
    except ValueError as error:
        raise Unsupported(
            f"peft finds nothing to adapt in {model.config.model_type} with distil.targets {config.targets!r}: "
            f"{error}; name the model's linear layers in distil.targets, or keep its memories as plaintext or KV"
        ) from error


@torch.no_grad()  # not inference_mode: the results take part in training
def targets(
    model: torch.nn.Module, prompts: Sequence[tuple[int, ...]], answers: Sequence[tuple[int, ...]], k: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What `model` believes at each token of the forced answers: (top_ids, top_p), one pair a prompt."""
    out: list[tuple[torch.Tensor, torch.Tensor]] = []
    for start in range(0, len(prompts), 32):
        rows = list(zip(prompts[start : start + 32], answers[start : start + 32], strict=True))
        for logits, (_, answer) in zip(_answer_logits(model, rows), rows, strict=True):
            p, ids = torch.softmax(logits[: len(answer)].float(), -1).topk(min(k, logits.shape[-1]))
            out.append((ids, p / p.sum(-1, keepdim=True)))
    return out


def train(
    student: PeftModel,
    lessons: Sequence[Example],
    keep: Sequence[Example],
    config: DistilConfig,
    progress: Callable[[int, int, float], None],
) -> int:
    """Fit the adapter; returns the steps taken.

    A step sees `batch` lessons and as many examples to keep. It ends early once every lesson's answer tokens
    were last seen with p > stop_probability and what is to be kept has drifted by less than stop_drift: greedy
    recall is certain well before the loss is 0.
    """
    parameters = [p for p in student.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=0.0)
    rng = random.Random(config.seed)
    seen = [0.0] * len(lessons)
    student.train()
    order: list[int] = []
    for step in range(config.steps):
        if len(order) < config.batch:
            order += rng.sample(range(len(lessons)), len(lessons))
        chosen, order = order[: config.batch], order[config.batch :]
        held = rng.sample(range(len(keep)), min(config.batch, len(keep)))
        batch = [lessons[i] for i in chosen] + [keep[i] for i in held]
        losses, least = _losses(student, batch)
        for i, p in zip(chosen, least, strict=False):
            seen[i] = p
        drift = losses[len(chosen) :].mean() if held else losses.new_zeros(())
        loss = losses[: len(chosen)].mean() + config.kl_base * drift
        optimizer.param_groups[0]["lr"] = config.learning_rate * min(
            (step + 1) / 10, 0.5 * (1 + math.cos(math.pi * step / config.steps))
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        progress(step + 1, config.steps, loss.item())
        if min(seen) > config.stop_probability and drift.item() < config.stop_drift:
            break
    student.eval()
    return step + 1


def _losses(student: torch.nn.Module, batch: Sequence[Example]) -> tuple[torch.Tensor, list[float]]:
    """KL(target || student) of each example, mean over its answer tokens, and its least likely answer token."""
    losses: dict[int, torch.Tensor] = {}
    least: dict[int, float] = {}
    by_length = sorted(range(len(batch)), key=lambda n: len(batch[n].prompt))
    for start in range(0, len(batch), _CHUNK):  # alike in length, so that little of a forward is padding
        chunk = by_length[start : start + _CHUNK]
        rows = [(batch[n].prompt, batch[n].answer) for n in chunk]
        for n, logits in zip(chunk, _answer_logits(student, rows), strict=True):
            log_q, p = torch.log_softmax(logits.float(), -1), batch[n].top_p
            losses[n] = (p * (p.clamp_min(1e-9).log() - log_q.gather(-1, batch[n].top_ids))).sum(-1).mean()
            answer = torch.tensor(batch[n].answer, device=log_q.device)
            least[n] = log_q.detach().gather(-1, answer[:, None]).min().exp().item()
    order = range(len(batch))
    return torch.stack([losses[n] for n in order]), [least[n] for n in order]


def _answer_logits(
    model: torch.nn.Module, rows: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> list[torch.Tensor]:
    """Logits that predict each answer token of each (prompt, answer) row: [answer tokens, vocabulary] a row.

    Rows are padded on the right, where a causal model does not look. Logits are computed from the earliest
    answer on.
    """
    device = next(model.parameters()).device
    width = max(len(p) + len(a) for p, a in rows) - 1
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for n, (prompt, answer) in enumerate(rows):
        row = torch.tensor([*prompt, *answer[:-1]])
        ids[n, : len(row)] = row
        mask[n, : len(row)] = 1
    earliest = min(len(p) for p, _ in rows) - 1
    positions = torch.arange(width, device=device).expand(len(rows), -1)
    logits = model(
        input_ids=ids.to(device),
        attention_mask=mask.to(device),
        position_ids=positions,
        use_cache=False,
        logits_to_keep=width - earliest,
    ).logits
    return [logits[n, len(p) - 1 - earliest : len(p) - 1 - earliest + len(a)] for n, (p, a) in enumerate(rows)]


def save_adapter(student: PeftModel, folder: Path, card: dict[str, Any]) -> None:
    """A folder that plain peft loads: adapter_config.json, adapter_model.safetensors; and our card.json."""
    student.save_pretrained(str(folder), safe_serialization=True)
    (folder / "README.md").unlink(missing_ok=True)  # peft's empty model card; ours is card.json
    config = folder / "adapter_config.json"
    settings = json.loads(config.read_text("utf-8"))
    settings["base_model_name_or_path"] = (
        None  # a path of this machine says nothing elsewhere; the card has the fingerprint
    )
    config.write_text(json.dumps(settings, indent=2, sort_keys=True), "utf-8")
    write_card(folder, card)


def write_card(folder: Path, card: dict[str, Any]) -> None:
    (folder / CARD).write_text(json.dumps(card, indent=2, sort_keys=True), "utf-8")


def read_card(folder: Path, fingerprint: dict[str, str]) -> dict[str, Any]:
    """The card of an adapter that fits this host. Raises FingerprintMismatch or CorruptBlob."""
    try:
        card = json.loads((folder / CARD).read_text("utf-8"))
        require_same_host(dict(card["fingerprint"]), fingerprint, f"adapter {folder.name}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptBlob(
            f"adapter {folder.name} has no readable {CARD} ({error}); demote its cube, or promote its sources again"
        ) from error
    return dict(card)


def random_adapters(
    model: PreTrainedModel, config: DistilConfig, count: int, folder: Path, fingerprint: dict[str, str]
) -> list[Path]:
    """Folders of adapters that have learnt nothing, and so weak that answers stay what they are: enough to measure time
    and bytes, with as many tokens as the base model needs."""
    student = fresh_adapter(model, config)
    draw = torch.Generator().manual_seed(config.seed)
    out = []
    for n in range(count):
        with torch.no_grad():
            for name, parameter in student.named_parameters():
                if "lora_" in name:
                    parameter.copy_(1e-3 * torch.randn(parameter.shape, generator=draw))
        out.append(folder / f"random{n}")
        save_adapter(student, out[-1], {"fingerprint": fingerprint})
    return out
