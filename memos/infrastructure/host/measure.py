"""What this machine takes to read a prompt, or to bring KV, on this model: the constants of the scheduler's cost model.

Measured on random tokens, within a few seconds; see memos/operation/cost_model.py for what is made of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from memos.infrastructure.host.alternatives import forget
from memos.infrastructure.host.capability import Capability
from memos.infrastructure.host.compose import asked_for, compose, renewal_inputs
from memos.infrastructure.host.decode import Row, now, prefill_inputs
from memos.infrastructure.host.kv import Activation, encode

_LENGTHS = (1, 8, 32, 96, 256, 768, 2048)
_LONG_S = 0.4  # a forward that took longer ends the list: the rest is extrapolated
_FEW, _MANY = 8, 64  # tokens of a question
_TELLING = 256  # over a cache shorter than this, what a token of it costs is lost in the noise, and taken as nothing


def measure(model: Any, can: Capability, context: int | None, reader: Callable[[], Any]) -> dict[str, Any]:
    """Seconds, and seconds per token; see `Costs`. Without KV (can.exact is False), of reading alone."""
    rng = random.Random(0)
    vocabulary = model.config.get_text_config().vocab_size
    ids = [rng.randrange(min(10, vocabulary // 2), vocabulary) for _ in range(_LENGTHS[-1])]
    most = min(n for n in (context, can.limit, can.renewal_limit, _LENGTHS[-1]) if n)

    def forward(tokens: int, past: Activation | None = None) -> float:
        row = Row(tuple(ids[:tokens]), past)

        def once() -> None:
            model(**prefill_inputs(model, [row], 0)[0], use_cache=True, logits_to_keep=1)

        return _seconds(model, once)

    read = list[tuple[int, float]]()
    for length in _LENGTHS:
        if len(read) > 1 and (length + _MANY > most or read[-1][1] > _LONG_S):
            break
        read.append((length, forward(length)))
    # what disturbs a measurement only adds to it: no text takes longer than a longer one
    read = [(n, min(seconds for _, seconds in read[i:])) for i, (n, _) in enumerate(read)]
    if not can.exact:
        return {"read": read}
    longest = read[-1][0]
    kept = encode(model, ids[:longest])
    few, many = (forward(n, kept) - _between(read, n) for n in (_FEW, _MANY))
    told = longest >= _TELLING
    attend = told * max(0.0, (many - few) / ((_MANY - _FEW) * longest))
    figures = {
        "read": read,
        "attend": attend,
        "past": told * max(0.0, few / longest - _FEW * attend),
        "bytes": kept.bytes / longest,
        "layers": len(kept.layers),
    }
    question, rows = ids[:_MANY], list(range(longest - _FEW, longest))
    over = forward(_MANY, kept)
    if can.motion:
        motion = can.motion
        figures["move"] = _seconds(model, lambda: compose([kept, kept], 1, motion)) / (2 * longest)
    if can.renewal:
        anew = _seconds(
            model, lambda: model(**renewal_inputs(model, kept, rows, question), use_cache=True, logits_to_keep=1)
        )
        figures["renew"] = told * max(0.0, anew - forward(len(question) + len(rows), kept)) / longest
        twin = reader()
        look = _seconds(model, lambda: asked_for(twin, kept, question, range(longest), _FEW))
        figures["look"] = told * max(0.0, look - over) / (longest * _MANY)
    return figures


def measure_loads(
    model: Any, tokens: int, folder: Path, save: Callable[[Activation, Path], None], load: Callable[[Path], Activation]
) -> dict[str, tuple[float, float]]:
    """By where KV lies: (seconds, seconds a token) until it is on the device.

    disk: its file, to be read from the disk; cache: the file, in the page cache; host: memory beside a GPU's.
    """
    path = folder / "measure.safetensors"
    sizes = (16, max(64, tokens))
    seconds: dict[str, list[float]] = {}
    for length in sizes:
        kept = encode(model, [n % 97 + 1 for n in range(length)])
        save(kept, path)

        ways: dict[str, Callable[[], Activation]] = {"cache": lambda: load(path), "disk": lambda: load(path)}
        if model.device.type != "cpu":
            ways["host"] = partial(kept.on("cpu").on, model.device)
        for place, way in ways.items():
            least = min(_until_there(model, way, path if place == "disk" else None) for _ in range(3))
            seconds.setdefault(place, []).append(least)
        path.unlink()
    out = {}
    for place, (short, long) in seconds.items():
        each = max(0.0, long - short) / (sizes[1] - sizes[0])
        out[place] = max(0.0, short - each * sizes[0]), each
    return out


def _until_there(model: Any, way: Callable[[], Activation], cold: Path | None) -> float:
    if cold:
        forget(cold)
    began = now(model)
    for _ in way().layers:
        pass
    return now(model) - began


def in_page_cache(path: Path) -> bool:
    """True if reading the file would not wait for the disk, as far as a few of its pages tell; True if unknown."""
    nowait = getattr(os, "RWF_NOWAIT", None)
    if nowait is None:
        return True
    handle = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(handle).st_size
        return all(os.preadv(handle, [bytearray(1)], size * n // 4, nowait) for n in range(4))
    except BlockingIOError:
        return False
    except OSError:  # a file system that does not tell
        return True
    finally:
        os.close(handle)


def _between(table: Sequence[tuple[int, float]], tokens: int) -> float:
    for (n, seconds), (m, later) in pairwise(table):
        if n <= tokens <= m:
            return seconds + (later - seconds) * (tokens - n) / (m - n)
    return table[-1][1] * tokens / table[-1][0]


def _seconds(model: Any, work: Callable[[], object]) -> float:
    """The least of three, after one to warm up: what disturbs only adds. A long one is not done again."""

    def once() -> float:
        began = now(model)
        with torch.inference_mode():
            work()
        return now(model) - began

    warm = once()
    return warm if warm > 2 * _LONG_S else min(once() for _ in range(3))
