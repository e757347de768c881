"""Compacts KV without training: few rows of each head, with weights, that attention finds as it found all of them.

Attention Matching (2602.16284): the questions that a memory answers are asked over its whole KV, and what each head's
queries find there is matched. Of the rows, a head keeps some that different queries look at; their weights make up
for the mass of the others (least squares, not below zero), and then their values for what those would have added (ridge
regression). How far each number of rows falls short is known from one pass, so the rows that there may be go to the
heads that need them: most heads look everywhere alike and need one, the few that look facts up need one for each. For
those that are kept, weights and values are then fitted to each other (Gauss-Newton).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from memos.errors import NoProbes, Unsupported
from memos.infrastructure.host.adapters.lora import twin
from memos.infrastructure.host.forward import positions_of
from memos.infrastructure.host.kv.cache import Activation, Layer
from memos.infrastructure.host.kv.files import Codec, Kind, Parts
from memos.infrastructure.host.training.teach import Crafted, Task, Tell, judge_kv, short_of
from memos.interface.reading.mem_reader import MemReader

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host

_WATCHED = "memos_watched"  # the name of an attention that tells its queries
_COUNTS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 100, 130, 160, 200, 260, 340, 440, 580, 760, 1000)  # rows of a head
_BATCH_ROWS = 64  # questions in one forward
_READING = 0.3  # how much what the question's own tokens find counts, against what the answer's do
_LEAST_SHARE = 1e-4  # and what finds nothing here
_RIDGE, _MASS_ROUNDS = 1e-3, 30
_ROUNDS, _DAMPING, _OF_MASS = 6, 1e-2, 0.02  # in which weights and values are fitted; how much the mass counts there
_MOST_FITTED = 100  # rows, beyond which it takes long and changes little
_STEPS = (1.0, 0.5, 0.25)  # of a Gauss-Newton step, of which the first that misses less is taken
_NOTHING_LEFT = 1e-12  # of what is looked at most, below which rounding would order the rows
_SHARE = 0.1  # of the rows, where nobody sets activation.compact_shares
_EMPTY = -1e4  # the logarithm of the weight of a row that is none: others of the layer have more
_now = threading.local()  # the queries of this thread's forward, by layer


@dataclass(frozen=True)
class _Asked:
    """What one layer's heads ask. queries: [G, N, D], of all heads that share keys; scale: of their products; out: of
    the layer, [width, G * H/G * D], None where it has another form; counts: [N], how much each query does."""

    queries: torch.Tensor
    scale: float
    counts: torch.Tensor
    out: torch.Tensor | None


@dataclass(frozen=True)
class _Head:
    """What queries look at in a memory's rows. values: [rows, D]; scores: [N, rows]; counts: [N], how much each counts;
    found, mass: what each finds, [N, D], and the logarithm of the sum over the rows, [N]."""

    values: torch.Tensor
    scores: torch.Tensor
    counts: torch.Tensor
    found: torch.Tensor
    mass: torch.Tensor


@dataclass(frozen=True)
class _Fit:
    """Rows of a head that stand for all, the logarithms of their weights [r], their values [r, D], and how much of what
    the layer gives is missing then (squared)."""

    rows: torch.Tensor
    weights: torch.Tensor
    values: torch.Tensor
    missing: float


def craft_compact(host: Host, task: Task, made: Path, tell: Tell) -> Crafted:
    """Save to `made` the KV of task.memories in the first of task.compact shares of its rows that passes the gate, else
    in the last; judged as loaded from its file.

    Raises NoProbes without a question to ask, Unsupported where rows cannot be left out.
    """
    tell("prepare", 0, 0, 0.0)
    asked = [lesson.probe.question for lesson in task.lessons if not lesson.probe.held_out]
    shares = sorted(task.compact)
    scores = dict[str, float]()
    for share, kv in zip(shares, compacted(host, task.memories, asked, shares), strict=True):
        made.unlink(missing_ok=True)
        host.save_kv(kv, made, "compact")
        tell(f"gate at {share:g} of the rows", 0, 0, 0.0)
        scores = judge_kv(host, made, task.memories, task.lessons, task.keep)
        if not short_of(scores, task.config.gate):
            break
    return Crafted(scores=scores)


@torch.no_grad()
def compacted(
    host: Host, memories: Sequence[str], questions: Sequence[str], shares: Sequence[float]
) -> Iterator[Activation]:
    """The KV of the memories in one share of its rows after the other, head apart, mean over all heads.

    questions: that the memories answer; what they find is kept. Raises NoProbes, Unsupported.
    """
    require_rows_apart(host)
    if not questions:
        raise NoProbes("KV is compacted for the questions that its memories answer, and there is none; give some")
    whole, head = host.encode(memories), len(host.head)
    asked = _asked(host, whole, [host.ids_of(question, memories)[len(whole.ids) :] for question in questions])
    fits = [
        [_fits(asks, g, each) for g, each in enumerate(_heads(layer, head, asks))]
        for layer, asks in zip(whole.layers, asked, strict=True)
    ]
    own, all_heads = len(whole.ids) - head, sum(map(len, fits))
    for share in shares:
        chosen = iter(_chosen([fit for layer in fits for fit in layer], round(share * own * all_heads)))
        layers = [
            _layer(layer, head, [_refined(each, next(chosen)) for each in _heads(layer, head, asks)])
            for layer, asks in zip(whole.layers, asked, strict=True)
        ]
        yield replace(whole, layers=tuple(layers), trained=layers[0][0].shape[-2], weighted=True)


def encode_compact(host: Host, memories: Sequence[str], others: Sequence[str]) -> Activation:
    """KV of the memories in a tenth of its rows, for the questions that their facts answer; judged by no gate. Raises
    NoProbes, Unsupported."""
    reader = MemReader()
    probes = reader.probes(fact for text in memories for fact in reader.facts(text))
    return next(compacted(host, memories, [p.question for p in probes if not p.held_out], (_SHARE,)))


def require_rows_apart(host: Host) -> None:
    """Raises Unsupported where rows of KV cannot be left out, or given weights."""
    can, kind = host.capability, host.model.config.model_type
    if can.limit or can.windowed or can.states or not can.exact:
        raise Unsupported(
            f"{kind} keeps a state, or looks back through a window, which tells by counting rows what it may see; rows "
            f"cannot be left out: set activation.codec to raw, or promote to parametric"
        )
    if not _heeds_weights(host):
        raise Unsupported(
            f"{kind} does not heed weights of rows (with {host.attention} attention); set model.attention to sdpa, "
            f"or activation.codec to raw"
        )


def _heeds_weights(host: Host) -> bool:
    """Whether a row without weight changes nothing."""
    whole = host.encode(("A row without weight changes nothing.",))
    marked = []
    for layer in whole.layers:
        keys, values = (torch.cat([tensor, 9 * tensor[..., -1:, :]], -2) for tensor in layer)
        weights = torch.zeros(1, keys.shape[1], keys.shape[-2], 1, device=keys.device)
        weights[..., -1, :] = _EMPTY
        marked.append((keys, values, weights))
    ids, start = torch.tensor([whole.ids[-2:]], device=host.model.device), len(whole.ids)
    logits = [
        host.model(
            input_ids=ids,
            attention_mask=ids.new_ones(1, past.rows + 2),
            position_ids=positions_of(host.model, torch.arange(start, start + 2))[None],
            past_key_values=past.fork(),
        ).logits.float()
        for past in (whole, replace(whole, layers=tuple(marked), trained=whole.rows + 1, weighted=True))
    ]
    return bool((logits[0] - logits[1]).abs().max() <= 1e-3 * logits[0].abs().max())


def _asked(host: Host, whole: Activation, tails: Sequence[tuple[int, ...]]) -> list[_Asked]:
    """What the questions, and the answers to them, ask of each layer, by one forward over the whole KV."""
    reader = twin(host.model)
    reader.set_attn_implementation(_WATCHED)
    texts = list(zip(tails, host.greedy(tails, None, whole), strict=True))
    texts.sort(key=lambda text: len(text[0]) + len(text[1]))  # so that little is padding
    parts = [_read(reader, whole, texts[n : n + _BATCH_ROWS]) for n in range(0, len(texts), _BATCH_ROWS)]
    return [
        replace(layer[0], queries=torch.cat([p.queries for p in layer], 1), counts=torch.cat([p.counts for p in layer]))
        for layer in zip(*parts, strict=True)
    ]


def _read(
    reader: PreTrainedModel, whole: Activation, texts: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> list[_Asked]:
    width, device = max(len(tail) + len(answer) for tail, answer in texts), reader.device
    ids, counts = torch.zeros(len(texts), width, dtype=torch.long), torch.zeros(len(texts), width)
    for n, (tail, answer) in enumerate(texts):
        end = len(tail) + len(answer)
        ids[n, :end] = torch.tensor([*tail, *answer])
        counts[n, :end] = _READING
        counts[n, len(tail) - 1 : end] = 1.0  # what chooses the answer's tokens
    real = (counts > 0).to(device)
    _now.seen = {}
    reader(
        input_ids=ids.to(device),
        attention_mask=torch.cat([real.new_ones(len(texts), whole.rows), real], 1).long(),
        position_ids=positions_of(reader, torch.arange(width) + len(whole.ids)).expand(len(texts), -1),
        past_key_values=whole.fork(len(texts)),
        use_cache=True,
        logits_to_keep=1,
    )
    out = []
    for n, (keys, *_) in enumerate(whole.layers):
        query, scale, weight = _now.seen[n]
        queries = query.transpose(1, 2)[real]  # [N, H, D]
        groups = queries.unflatten(1, (keys.shape[1], -1)).transpose(0, 1)  # [G, N, H/G, D]
        each = counts.to(device)[real].repeat_interleave(groups.shape[2])
        out.append(_Asked(groups.flatten(1, 2).float(), scale, each, weight))
    return out


def _watched(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers' sdpa; tells this thread what is asked: query [B, H, T, D]."""
    output: Any = getattr(module, "o_proj", None)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    _now.seen[int(module.layer_idx)] = query, scale, getattr(output, "weight", None)  # type: ignore[arg-type]
    return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **rest)


AttentionInterface.register(_WATCHED, _watched)
AttentionMaskInterface.register(_WATCHED, sdpa_mask)


def _heads(layer: Layer, head: int, asked: _Asked) -> Iterator[_Head]:
    """What is looked at of each group of heads that share keys."""
    keys, values = (tensor[0].float() for tensor in layer[:2])  # [G, rows, D]
    for g in range(len(keys)):
        scores = asked.scale * asked.queries[g] @ keys[g].T  # [N, rows]
        own, here = scores[:, head:], values[g, head:]
        # of all that a query finds, as far as the memory goes: the head or these rows
        share = torch.sigmoid(own.logsumexp(-1) - scores[:, :head].logsumexp(-1))  # 1 without a head
        counts = share * asked.counts + _LEAST_SHARE
        yield _Head(here, own, counts, own.softmax(-1) @ here, own.logsumexp(-1))


def _sizes(asked: _Asked, group: int, found: torch.Tensor) -> torch.Tensor:
    """How much what each query finds, [N, D], changes the layer's output: [N]."""
    groups, width = len(asked.queries), found.shape[-1]
    if asked.out is None or asked.out.shape[1] % (groups * width):
        return found.norm(dim=-1)
    heads = asked.out.shape[1] // (groups * width)  # that share these keys; their queries lie in turn
    weights = asked.out.float().unflatten(1, (groups, heads, width))[:, group]  # [model width, heads, D]
    each = torch.einsum("nhd,whd->nhw", found.unflatten(0, (-1, heads)), weights)
    return each.norm(dim=-1).flatten()


def _fits(asked: _Asked, group: int, head: _Head) -> list[_Fit]:
    """Fits of ever more of a head's rows, in their order."""
    order = _order(head.scores.softmax(-1) * head.counts[:, None])
    weight = float((_sizes(asked, group, head.found) * head.counts).square().sum())
    most = min(len(order), _COUNTS[-1])
    counts = (*(c for c in _COUNTS if c < most), most)
    return [_fit(head, order[:count].sort().values, weight) for count in counts]


def _order(looked: torch.Tensor) -> torch.Tensor:
    """The rows of [N, rows], how much each query looks at each, by how much of it those before do not tell already:
    rows that the same queries look at stand for one another. The pivots of a Cholesky factorisation of their products;
    then the others, those looked at most first."""
    products = (looked.T @ looked).double()
    left, factor, order = products.diagonal().clone(), torch.zeros_like(products), list[int]()
    while left.max() > _NOTHING_LEFT * products.diagonal().max():
        row = int(left.argmax())
        known = factor[:, : len(order)]
        column = factor[:, len(order)] = (products[:, row] - known @ known[row]) / left[row].sqrt()
        left = left - column.square()
        left[row] = 0.0
        order.append(row)
    rest = products.diagonal().argsort(descending=True).tolist()
    return torch.tensor(list(dict.fromkeys([*order, *rest])), device=looked.device)


def _fit(head: _Head, rows: torch.Tensor, weight: float) -> _Fit:
    """weight: of all that the head gives."""
    counts = head.counts[:, None]
    here = (head.scores[:, rows] - head.mass[:, None]).exp() * counts
    products, wanted = here.T @ here, here.T @ head.counts
    steady = 1e-4 * products.diagonal().mean()  # towards 1
    weights = torch.ones_like(wanted)
    for _ in range(_MASS_ROUNDS):  # multiplicative updates, which stay above zero (Lee and Seung, 2001)
        weights = weights * (wanted + steady) / (products @ weights + steady * weights + 1e-12)
    log = weights.clamp(1e-4, 1e4).log()
    values = _values(head, rows, log, head.values[rows])
    missing = _missing(head, rows, log, values) / (head.found * counts).square().sum().clamp_min(1e-12)
    return _Fit(rows, log, values, float(missing) * weight)


def _values(head: _Head, rows: torch.Tensor, log: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
    """Those with which queries find the most of what they found, by ridge regression towards others: [r, D]"""
    seen = (head.scores[:, rows] + log).softmax(-1) * head.counts[:, None]
    normal = seen.T @ seen
    ridge = _RIDGE * normal.diagonal().mean() * torch.eye(len(rows), device=seen.device)
    return near + torch.linalg.solve(normal + ridge, seen.T @ (head.found * head.counts[:, None] - seen @ near))


def _missing(
    head: _Head, rows: torch.Tensor, log: torch.Tensor, values: torch.Tensor, of_mass: float = 0.0
) -> torch.Tensor:
    """What queries no longer find, squared, and a share of the same of the mass, as if so much of what they find were
    missing."""
    scores = head.scores[:, rows] + log
    found = (scores.softmax(-1) @ values - head.found) * head.counts[:, None]
    mass = (scores.logsumexp(-1) - head.mass) * head.counts * head.found.norm(dim=-1)
    return found.square().sum() + of_mass * mass.square().sum()


def _refined(head: _Head, fit: _Fit) -> _Fit:
    """Weights and values fitted to each other: Gauss-Newton steps of the weights' logarithms, each with values anew, as
    long as less is missing."""
    rows, log, values = fit.rows, fit.weights, fit.values
    of_mass = _OF_MASS**0.5 * head.counts * head.found.norm(dim=-1)
    least = _missing(head, rows, log, values, _OF_MASS)
    for _ in range(_ROUNDS if len(rows) <= _MOST_FITTED else 0):
        scores = head.scores[:, rows] + log
        seen = scores.softmax(-1)
        out = seen @ values
        # by the weights: of what is found [N, D, r], of the mass [N, r]
        slopes = (seen[:, None] * (values.T - out[..., None]) * head.counts[:, None, None]).flatten(0, 1)
        masses = seen * of_mass[:, None]
        left = ((head.found - out) * head.counts[:, None]).flatten(), (head.mass - scores.logsumexp(-1)) * of_mass
        normal = slopes.T @ slopes + masses.T @ masses
        damped = normal + _DAMPING * normal.diagonal().mean().clamp_min(1e-9) * torch.eye(len(rows), device=seen.device)
        step = torch.linalg.solve(damped, slopes.T @ left[0] + masses.T @ left[1]).clamp(-1, 1)
        for part in _STEPS:
            other = log + part * step
            fitted = _values(head, rows, other, values)
            if (missing := _missing(head, rows, other, fitted, _OF_MASS)) < least:
                log, values, least = other, fitted, missing
                break
        else:
            break
    return replace(fit, weights=log, values=values)


def _chosen(fits: Sequence[Sequence[_Fit]], most: int) -> list[_Fit]:
    """For each head the fit with which all together miss least, in so many rows."""
    steps = list[tuple[float, int, int, int]]()
    for head, each in enumerate(fits):
        at = 0
        while at + 1 < len(each):  # along the lower convex hull of what is missing by rows
            gains = [
                ((each[at].missing - other.missing) / (len(other.rows) - len(each[at].rows)), n)
                for n, other in enumerate(each[at + 1 :], at + 1)
            ]
            gain, to = max(gains)
            if gain <= 0:
                break
            steps.append((gain, head, to, len(each[to].rows) - len(each[at].rows)))
            at = to
    left, taken, full = most - len(fits), [0] * len(fits), set[int]()
    for _, head, to, cost in sorted(steps, reverse=True):
        if head not in full and cost <= left:
            taken[head], left = to, left - cost
        else:
            full.add(head)
    return [each[n] for each, n in zip(fits, taken, strict=True)]


def _layer(layer: Layer, head: int, fits: Sequence[_Fit]) -> Layer:
    """Keys, values and weights of a layer: the head's rows as they are, then those of each head, the rest empty."""
    keys, values = layer[:2]
    rows = head + max(len(fit.rows) for fit in fits)
    new_keys, new_values = (tensor.new_zeros(1, len(fits), rows, tensor.shape[-1]) for tensor in (keys, values))
    new_keys[:, :, :head], new_values[:, :, :head] = keys[:, :, :head], values[:, :, :head]
    weights = torch.full((1, len(fits), rows, 1), _EMPTY, device=keys.device)
    weights[:, :, :head] = 0.0
    for n, fit in enumerate(fits):
        end = head + len(fit.rows)
        new_keys[0, n, head:end] = keys[0, n, head:][fit.rows]
        new_values[0, n, head:end] = fit.values.to(values.dtype)
        weights[0, n, head:end, 0] = fit.weights
    return new_keys, new_values, weights


def _pack(kind: Kind, tensor: torch.Tensor) -> Parts:
    """Without the rows of a head that are empty: [all rows, D], and which there are, [G, rows]."""
    there = (tensor[0] != 0).any(-1)
    return {"": tensor[0][there], ".rows": there.to(torch.uint8)}


def _unpack(kind: Kind, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
    there, rows = parts[".rows"].bool(), parts[""].to(dtype)
    tensor = rows.new_zeros(1, *there.shape, rows.shape[-1])
    tensor[0][there] = rows
    return tensor


COMPACT = Codec(_pack, _unpack, made=True, encode=encode_compact)
