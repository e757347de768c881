"""`memos bench scheduler`: measures how long deciding what a request sees takes, by the number of memories."""

from __future__ import annotations

import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from memos.config import Config, EmbedderConfig, ModelConfig, SchedulerConfig
from memos.cube import Blob, Form, Header, MemCube, Namespace, Rights, Source, State, Text, new_id
from memos.infrastructure.host.encoders.embedder import Embedder
from memos.infrastructure.vault.tables.vector_table import VectorRow
from memos.kernel.mem_os import MemOS
from memos.kernel.services.finding import Hit
from memos.ops import Recall
from memos.plugins.progress import Show
from memos.rights import Caller

_BATCH, _USER = 5000, "default"
_BEGAN = datetime(2025, 1, 1, tzinfo=timezone.utc)


def bench_scheduler(sizes: list[int], model: str, requests: int, seed: int, show: Show) -> dict[str, Any]:
    """Rows by number of memories; milliseconds from the memories found to what the request sees: topic groups and KV
    read from the vault, and the choice under the budgets. Of all groups, one in four has KV and one in sixteen an
    adapter. The figures of the largest number stand at the top, too."""
    rows = [_row(size, model, requests, seed, show) for size in sizes]
    return {**rows[-1], "rows": rows}


def _row(size: int, model: str, requests: int, seed: int, show: Show) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    # adapters are not asked here whether they know: that is a forward of the model, not a decision
    config = Config(model=ModelConfig(path=model), scheduler=SchedulerConfig(routing="retrieval"))
    with tempfile.TemporaryDirectory() as folder, MemOS(config, vault=Path(folder)) as kernel:
        cubes = _fill(kernel, size, rng, show)
        kernel.parts.operator().refresh()
        # what search would find: memories of a few groups; some groups are asked for often (Zipf), and then, to see
        # what it takes without anything in memory, each as often as any
        caller, op = Caller(Namespace(user_id=_USER)), Recall(question="Where does Mira live?")
        busy = np.minimum(rng.zipf(1.2, size=(2 * requests, config.scheduler.top_k)), size) - 1
        places = rng.permutation(size)[np.concatenate([busy, rng.integers(size, size=(requests, busy.shape[1]))])]
        places[:, 1::2] = np.maximum(places[:, ::2] - 1, 0)  # neighbours in time are often of one group
        times, forms = [], dict[str, int]()
        for n, of in enumerate(places.tolist()):
            found = [Hit(cube, 1.5 - 0.1 * i, {}) for i, cube in enumerate(kernel.vault.at(cubes[k] for k in of))]
            began = time.perf_counter()
            admission = kernel.services.answering.decide(caller, op, found)
            times.append((time.perf_counter() - began) * 1e3)
            forms[str(admission.form)] = forms.get(str(admission.form), 0) + 1
            show(f"decide among {size:,}", n + 1, len(places))
    warm, cold = times[requests : 2 * requests], times[2 * requests :]
    return {
        "cubes": size,
        "decision_ms_p50": median(warm),
        "decision_ms_p95": quantiles(warm, n=20)[-1],
        "cold_ms_p50": median(cold),
        "requests": requests,
        "forms": forms,
    }


def _fill(kernel: MemOS, size: int, rng: np.random.Generator, show: Show) -> list[str]:
    """Memories in topic groups of 1 to 60, few of them large; the ids, in the order of their saying."""
    embedder = Embedder(EmbedderConfig())
    none = np.zeros((0, embedder.dim), np.int8)
    ids, group = list[str](), 0
    with kernel.vault.blobs.staging() as staged:
        staged.write_text("a payload that no request reads here")
        payload = kernel.vault.blobs.store(staged)
        while len(ids) < size:
            with kernel.vault.transaction():
                begun = len(ids)
                while len(ids) < min(size, begun + _BATCH):
                    members = [_memory(len(ids) + k, group) for k in range(int(min(60, rng.zipf(1.6))))]
                    members = members[: size - len(ids)]
                    for cube in members:
                        kernel.vault.put(cube)
                    for every, form in ((4, Form.ACTIVATION), (16, Form.PARAMETRIC)):
                        if group % every == 0:
                            derived = _derived(form, members, payload, kernel.host.digest)
                            kernel.vault.put(derived)
                            kernel.vault.set_state(derived.id, State.ACTIVATED, "bench")
                    ids += [cube.id for cube in members]
                    group += 1
                drawn = rng.normal(size=(len(ids) - begun, embedder.dim)).astype(np.float32)
                rows = zip(ids[begun:], drawn, strict=True)
                kernel.vault.vectors.put(embedder.name, (VectorRow(id, 1, "", vector, none) for id, vector in rows))
            show(f"keep {size:,}", len(ids), size)
    return ids


def _memory(n: int, group: int) -> MemCube:
    return MemCube(
        id=new_id(),
        form=Form.PLAINTEXT,
        namespace=Namespace(user_id=_USER),
        rights=Rights(owner=_USER),
        header=Header(created=_BEGAN + timedelta(minutes=n), segment=f"person {group}"),
        payload=Text(text=f"Person {group} has said {n} things."),
    )


def _derived(form: Form, of: list[MemCube], payload: tuple[str, int], host: str) -> MemCube:
    sha256, size = payload
    return MemCube(
        id=new_id(),
        form=form,
        namespace=of[0].namespace,
        rights=of[0].rights,
        header=of[0].header.model_copy(update={"kind": "derived"}),
        payload=Blob(sha256=sha256, bytes=size, tokens=10 * len(of), fingerprint=host),
        sources=tuple(Source(id=cube.id, version=1) for cube in of),
    )
