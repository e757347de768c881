"""Measures what reading a prompt and loading KV take on this machine: the constants of the cost model.

Measured on random tokens, within a few seconds; see memos/operation/choosing/cost_model.py for what is made of them.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from transformers import PreTrainedModel

from memos.infrastructure.host.forward import forward
from memos.infrastructure.host.kv.cache import Activation, encode
from memos.infrastructure.host.kv.compose import attended_rows, compose, renewal_inputs
from memos.infrastructure.host.model.capability import Capability
from memos.infrastructure.host.model.decode import DecodeRow, now, prefill_inputs

_LENGTHS = (1, 8, 32, 96, 256, 768, 2048)  # tokens of the texts that are read
_LONG_S = 0.4  # a forward that took longer ends the list: the rest is extrapolated
_FEW, _MANY = 8, 64  # tokens of a question
_MIN_KV_TOKENS = 256  # over a shorter cache, what a token of it costs is lost in the noise, and taken as nothing
_ROUNDS = 5
PAUSE_S = 0.02

ReadTable = list[tuple[int, float]]  # tokens of a text, seconds of its forward
Work = Callable[[], object]  # what is timed; or it returns the seconds itself, as a float


@torch.inference_mode()
def measure(
    model: PreTrainedModel, can: Capability, context: int | None, reader: Callable[[], PreTrainedModel]
) -> tuple[ReadTable, dict[str, float]]:
    """What texts of some lengths take to read, and seconds a token of KV by the names of `Costs`; without KV (can.exact
    is False) the latter is empty."""
    rng = random.Random(0)
    vocabulary = model.config.get_text_config().vocab_size
    ids = [rng.randrange(min(10, vocabulary // 2), vocabulary) for _ in range(_LENGTHS[-1])]
    most = min(n for n in (context, can.limit, can.motion_limit, _LENGTHS[-1]) if n)

    def read(tokens: int, past: Activation | None = None) -> None:
        inputs, _ = prefill_inputs(model, [DecodeRow(tuple(ids[:tokens]), past)], 0)
        forward(model, inputs, 1)

    lengths, took = list[int](), 0.0
    for length in _LENGTHS:  # warms up too
        if len(lengths) > 1 and (length + _MANY + _FEW > most or took > _LONG_S):
            break
        took = _seconds(model, partial(read, length))
        lengths.append(length)
    works: dict[str, Work] = {f"read {n}": partial(read, n) for n in lengths}
    longest = lengths[-1]
    has_room = longest + _MANY + _FEW <= most  # for a question after the KV
    kv = encode(model, ids[:longest]) if can.exact else None
    if kv and has_room:
        works |= {f"after {n}": partial(read, n, kv) for n in (_FEW, _MANY, _MANY + _FEW)}
        works |= _composition_works(model, can, reader, kv, ids[:_MANY])
    s = _in_turn(model, works)
    # what disturbs a measurement only adds to it: no text takes longer than a longer one
    table = [(n, min(s[f"read {m}"] for m in lengths[i:])) for i, n in enumerate(lengths)]
    return table, _kv_figures(kv, table, s, has_room) if kv else {}


def _composition_works(
    model: PreTrainedModel,
    can: Capability,
    reader: Callable[[], PreTrainedModel],
    kv: Activation,
    question: Sequence[int],
) -> dict[str, Work]:
    """What composed KV takes beside its forward: moving it, computing rows anew, and looking for these."""
    works: dict[str, Work] = {}
    longest = len(kv.ids)
    rows = range(longest - _FEW, longest)
    if motion := can.motion:
        works["move"] = lambda: compose([kv, kv], 1, motion)
    if can.renewal:
        twin = reader()
        works["renew"] = lambda: model(**renewal_inputs(model, kv, rows, question), use_cache=True, logits_to_keep=1)
        works["look"] = lambda: attended_rows(twin, kv, question, range(longest), _FEW)
    return works


def _kv_figures(kv: Activation, read: ReadTable, s: Mapping[str, float], has_room: bool) -> dict[str, float]:
    """By the names of `Costs`, from the seconds of each work."""
    longest = len(kv.ids)
    measurable = has_room and longest >= _MIN_KV_TOKENS
    few, many = (s[f"after {n}"] - _between(read, n) if has_room else 0.0 for n in (_FEW, _MANY))
    attend = measurable * max(0.0, (many - few) / ((_MANY - _FEW) * longest))
    return {
        "attend": attend,
        "past": measurable * max(0.0, few / longest - _FEW * attend),
        "bytes": kv.bytes / longest,
        "layers": len(kv.layers),
        "move": s.get("move", 0.0) / (2 * longest),
        "renew": measurable * max(0.0, s.get("renew", 0.0) - s.get(f"after {_MANY + _FEW}", 0.0)) / longest,
        "look": measurable * max(0.0, s.get("look", 0.0) - s.get(f"after {_MANY}", 0.0)) / (longest * _MANY),
    }


def measure_loads(
    model: PreTrainedModel,
    tokens: int,
    folder: Path,
    save: Callable[[Activation, Path], None],
    load: Callable[[Path], Activation],
) -> dict[str, tuple[float, float]]:
    """By where KV lies: (seconds, seconds a token) until it is on the device.

    disk: its file, to be read from the disk; cache: the file, in the page cache; host: memory beside a GPU's.
    """
    path = folder / "measure.safetensors"
    sizes = (8, max(32, tokens))
    seconds: dict[str, list[float]] = {}
    for length in sizes:
        kv = encode(model, [n % 97 + 1 for n in range(length)])
        save(kv, path)
        there, from_file = partial(_until_there, model), partial(load, path)
        works = {"cache": partial(there, from_file), "disk": partial(there, from_file, path)}
        if model.device.type != "cpu":
            works["host"] = partial(there, partial(kv.on("cpu").on, model.device))
        for place, took in _in_turn(model, works).items():
            seconds.setdefault(place, []).append(took)
        path.unlink()
    out = {}
    for place, (short, long) in seconds.items():
        each = max(0.0, long - short) / (sizes[1] - sizes[0])
        out[place] = max(0.0, short - each * sizes[0]), each
    return out


def _until_there(model: PreTrainedModel, way: Callable[[], Activation], cold: Path | None = None) -> float:
    """Seconds until all layers are on the device; `cold`: a file that is dropped from the page cache before."""
    if cold:
        drop_from_page_cache(cold)
    began = now(model)
    list(way().layers)
    return now(model) - began


def drop_from_page_cache(path: Path) -> None:
    """Drop the file from the page cache, where the system lets one."""
    with path.open("rb") as f:
        os.fsync(f.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


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


def _in_turn(model: PreTrainedModel, works: Mapping[str, Work]) -> dict[str, float]:
    """Median seconds of each, as it comes in requests: in turn, and after a pause. What is done again and again without
    one finds its data at hand and its threads awake. A long one is done once."""
    took: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(_ROUNDS):
        for name, work in works.items():
            if not took[name] or took[name][0] < _LONG_S:
                time.sleep(PAUSE_S)
                took[name].append(_seconds(model, work))
    return {name: statistics.median(seconds) for name, seconds in took.items()}


def _seconds(model: PreTrainedModel, work: Work) -> float:
    began = now(model)
    returned = work()
    return returned if isinstance(returned, float) else now(model) - began
