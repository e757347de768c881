"""What each form of memory takes on this machine for one model: milliseconds, bytes, and what making it costs.

Times are those that the scheduler's cost model predicts from what the host measures here, as it does for a request.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from memos.bench.baselines import random_adapters
from memos.bench.choice import LEVELS
from memos.bench.compose import bench_compose
from memos.bench.promote import FACTS, OURS, PEOPLE, Matter, bench_promote, matter
from memos.bench.scenes import scene
from memos.config import DecodeConfig, DistilConfig, FidelityConfig, SchedulerConfig
from memos.errors import InputError, MemosError, NoProbes
from memos.infrastructure.host.adapters.lora import twin
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.files import storing_codecs
from memos.infrastructure.host.request import Request
from memos.infrastructure.host.training.rows import answer_row
from memos.interface.reading.mem_reader import MemReader
from memos.operation.choosing.cost_model import USUAL_QUESTION_TOKENS, WORTHWHILE_RATIO, Costs, Lying
from memos.plugins.codecs.wrapped import encode_wrapped
from memos.plugins.progress import Show
from memos.plugins.training.craft import checkpoint_layers
from memos.plugins.training.distil import Training
from memos.plugins.training.student import fresh_adapter, recipe

CONTEXTS = (100, 300, 1000, 3000, 6000)  # tokens of memory
RATES = (1, 10, 100, 1000)  # questions a day about the same memories
CUBES = (2, 4)  # KV caches in front of one question
EXACT = "exact"  # the level of one cache, or of several that were asked about together before
DAY_S = 86_400.0
# The price of a tier, all of it, as a share of what the model's time costs: about that of machines for rent. A part of
# it that is held all day is worth as much of the model's day (the five-minute rule of Gray and Putzolu, 1987).
ROOM_PRICE = {"device": 1.0, "host": 0.25, "disk": 0.05}
_MEASURED_BELOW = 10e6  # parameters of a model whose adapter is really trained: a minute on two cores
_TIMED_STEPS, _TIMED_ANSWERS = 3, 5
_ONE_TOKEN = DecodeConfig(max_new_tokens=1)
_QUESTION = ({"role": "user", "content": "Where does Mira live?"},)


@dataclass(frozen=True)
class CodecCost:
    """KV as a codec stores it. kl: nats that it loses at most, of some scenes."""

    bytes_a_token: float
    kl: float


@dataclass(frozen=True)
class AdapterCost:
    """An adapter of one topic group. slower: times that a forward takes under it. estimated: from the time of a step.
    accepted: whether the gate let it pass; None where it was not trained."""

    seconds: float
    estimated: bool
    bytes: int
    slower: float
    accepted: bool | None


@dataclass(frozen=True)
class FormCost:
    """What one form takes for memories of `context` tokens.

    tier: where it lies. level: how several KV caches are put together. build_s: to make it; room_s: what its bytes
    there are worth in seconds a day; see ROOM_PRICE.
    """

    context: int
    form: str
    ttft_s: float
    tier: str = ""
    level: str = ""
    bytes: int = 0
    build_s: float = 0.0
    room_s: float = 0.0

    def break_even(self, text: FormCost) -> float | None:
        """Uses after which making it has paid; None where it never does."""
        return self.build_s / self._saves(text) if self._saves(text) else None

    def per_day(self, text: FormCost) -> float | None:
        """Questions a day from which it pays, where it is made anew once a day; None where it never does."""
        return (self.build_s + self.room_s) / self._saves(text) if self._saves(text) else None

    def day_s(self, questions: float) -> float:
        """Seconds that so many questions take in a day, with what it is made of."""
        return self.build_s + self.room_s + questions * self.ttft_s

    def _saves(self, text: FormCost) -> float:
        return text.ttft_s - self.ttft_s if text.ttft_s > WORTHWHILE_RATIO * self.ttft_s else 0.0


@dataclass
class Findings:
    """What was measured until now. left_out: what was not, and why."""

    costs: Costs
    codecs: dict[str, CodecCost]
    levels: list[dict[str, Any]]  # rows of `memos bench compose`
    adapter: AdapterCost | None
    left_out: dict[str, str]
    wrapped: list[dict[str, Any]] = field(default_factory=list)  # at L1, of KV made for composing


def measure_forms(host: Host, questions: int, seed: int, show: Show) -> Findings:
    """questions: of each number of caches, by which the fidelity levels are judged. An interrupt ends it with what
    there is by then."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        show("this machine", 0, 1)
        codecs = storing_codecs() if host.capability.exact else ()
        out = Findings(Costs.model_validate(host.measure(folder, codecs)), {}, [], None, {})
        show("this machine", 1, 1)

        def of_codecs() -> None:
            out.codecs = codec_costs(host, codecs, folder, seed, show)

        def of_levels() -> None:
            out.levels = bench_compose(host, questions, seed, show, CUBES)["levels"]

        def of_wrapped() -> None:
            others = [text for one in MemReader().contrasts((), (), seed) for text in one.memories]
            encode = partial(encode_wrapped, host, others=others)
            out.wrapped = bench_compose(host, questions, seed, show, CUBES, encode, LEVELS[1:2])["levels"]

        def of_adapter() -> None:
            out.adapter = adapter_cost(host, folder, seed, show)

        parts = {"an adapter": of_adapter}
        if host.capability.composable:
            parts = {"fidelity levels": of_levels, "KV for composing": of_wrapped} | parts
        elif host.capability.exact:
            out.left_out["fidelity levels"] = host.capability.why
        if host.capability.exact:
            parts = {"codecs": of_codecs} | parts
        measure_each(parts, out.left_out)
    return out


def measure_each(parts: dict[str, Callable[[], None]], left_out: dict[str, str]) -> None:
    """One after the other; what cannot be measured, and all that an interrupt cuts off, is noted with the reason."""
    waiting = list(parts)
    try:
        while waiting:
            try:
                parts[waiting[0]]()
            except (MemosError, torch.OutOfMemoryError) as error:
                left_out[waiting[0]] = str(error).splitlines()[0]
            waiting.pop(0)
    except KeyboardInterrupt:
        left_out |= dict.fromkeys(waiting, "interrupted")


def codec_costs(host: Host, codecs: Sequence[str], folder: Path, seed: int, show: Show) -> dict[str, CodecCost]:
    """By its name, what each codec takes and loses."""
    scenes = [scene(f"recommend {seed} {n}", 1, 16).cubes[0] for n in range(3)]
    caches = [(memories, host.encode(memories)) for memories in scenes]
    out = dict[str, CodecCost]()
    for n, codec in enumerate(codecs, start=1):
        path, kl = folder / f"{codec}.safetensors", 0.0
        for memories, cache in caches:
            host.save_kv(cache, path, codec)
            kl = max(kl, host.nearness(Request(_QUESTION, memories, (host.load_kv(path),))).kl)
        out[codec] = CodecCost(path.stat().st_size / len(caches[-1][1].ids), kl)
        show("codecs", n, len(codecs))
    return out


# -- adapters ---------------------------------------------------------------------------------------------------


def adapter_cost(host: Host, folder: Path, seed: int, show: Show) -> AdapterCost:
    """Of 16 facts, as a topic group has them. Raises Unsupported where the model can have none."""
    (made,) = random_adapters(host.model, DistilConfig(seed=seed), 1, folder, host.fingerprint)
    size, slower = sum(file.stat().st_size for file in made.iterdir()), _slower(host, made)
    if host.model.num_parameters() < _MEASURED_BELOW:
        try:
            (row,) = bench_promote(host, FACTS, PEOPLE, (OURS,), 1, seed, show)["rows"]
            return AdapterCost(row["seconds"], False, int(row["bytes"]), slower, row["accepted_rate"] == 1)
        except NoProbes:  # it answers nothing from its context, so nothing can be taught by that; the time can be told
            pass
    about = matter(host, f"recommend {seed}", FACTS[0], seed)
    return AdapterCost(_training_seconds(host, about, DistilConfig(seed=seed), show), True, size, slower, None)


def _slower(host: Host, adapter: Path) -> float:
    took: dict[tuple[Path, ...], list[float]] = {(): [], (adapter,): []}
    for _ in range(_TIMED_ANSWERS + 1):
        for stack, seconds in took.items():  # in turn, so that both meet the same machine
            seconds.append(host.answer(Request(_QUESTION, adapters=stack), _ONE_TOKEN).ttft_s)
    base, under = (statistics.median(seconds[1:]) for seconds in took.values())
    return max(1.0, under / base)


def _training_seconds(host: Host, about: Matter, config: DistilConfig, show: Show) -> float:
    """What all steps would take, from the time of a few, whatever is learnt in them."""
    config = recipe(config, host.model)
    asked = [lesson.probe for lesson in about.lessons if not lesson.probe.held_out]
    lessons = [answer_row(host.ids_of(probe.question), host.spelled(f" {probe.answer}")) for probe in asked]
    keep = [answer_row(host.ids_of(k.question, k.memories), (0,)) for k in about.keep[: config.batch_keep]]
    student = fresh_adapter(twin(host.model), config)
    if config.gradient_checkpointing:
        checkpoint_layers(student)
    ends = [time.perf_counter()]

    def note(step: int, of: int, _: float) -> None:
        ends.append(time.perf_counter())
        show("steps of training", step, of)

    Training(student, lessons, keep, config.model_copy(update={"steps": _TIMED_STEPS})).run(note)
    first, *others = (later - earlier for earlier, later in pairwise(ends))
    return config.steps * statistics.median(others) + first * config.steps / config.review  # a review comes with some


# -- what each form takes ---------------------------------------------------------------------------------------


def tiers_of(costs: Costs) -> tuple[str, ...]:
    return ("device", "host", "disk") if costs.gpu else ("host", "disk")


def tier_bytes() -> dict[str, int]:
    """All there is of each tier on this machine."""
    out = {
        "host": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "disk": shutil.disk_usage(Path.cwd()).total,
    }
    return out | ({"device": torch.cuda.get_device_properties(0).total_memory} if torch.cuda.is_available() else {})


def form_costs(host: Host, found: Findings, contexts: Sequence[int], rooms: dict[str, int]) -> list[FormCost]:
    """Text first, for each context."""
    out = []
    for context in contexts:
        out.append(as_text(found, context))
        if host.capability.exact and (host.capability.limit is None or context < host.capability.limit):
            out += _kv_costs(host, found, context, rooms)
        if found.adapter and context <= SchedulerConfig().segment_tokens:  # an adapter is of one topic group
            adapter = found.adapter
            ttft = adapter.slower * found.costs.forward(USUAL_QUESTION_TOKENS)
            room = _room_s("disk", adapter.bytes, rooms)
            out.append(FormCost(context, "adapter", ttft, "", "", adapter.bytes, adapter.seconds, room))
    return out


def as_text(found: Findings, context: int) -> FormCost:
    return FormCost(context, "text", found.costs.forward(context + USUAL_QUESTION_TOKENS))


def as_kv(
    found: Findings,
    context: int,
    tier: str,
    rooms: dict[str, int],
    level: FidelityConfig | None = None,
    codec: str = "raw",
) -> FormCost:
    """As one exact prefix or, at a level, as the topic groups that so many tokens are."""
    costs, groups = found.costs, groups_of(context, SchedulerConfig().segment_tokens)
    stored = found.codecs[codec].bytes_a_token if tier == "disk" and codec in found.codecs else costs.bytes
    lying = [Lying(n, tier, codec) for n in (groups if level else [context])]
    ttft = costs.first_token(lying, 1, level or FidelityConfig(), 0, USUAL_QUESTION_TOKENS)
    size, build = round(context * stored), sum(map(costs.forward, groups))
    name = level.level if level else EXACT
    return FormCost(context, "KV", ttft, tier, name, size, build, _room_s(tier, size, rooms))


def _kv_costs(host: Host, found: Findings, context: int, rooms: dict[str, int]) -> Iterator[FormCost]:
    """In each tier as one exact prefix and, where the memories are several topic groups, at each level that the model
    can."""
    can = host.capability
    moves = can.composable and (can.motion_limit is None or context < can.motion_limit)
    possible = {"L0": True, "L1": moves, "L2": moves and can.renewal, "L3": moves and can.renewal}
    several = context > SchedulerConfig().segment_tokens
    levels = [level for level in LEVELS if possible[level.level]] if several else []
    for tier in tiers_of(found.costs):
        for level in (None, *levels):
            yield as_kv(found, context, tier, rooms, level)


def groups_of(context: int, most: int) -> list[int]:
    """Tokens of the topic groups that memories of so many tokens are."""
    count = math.ceil(context / most)
    return [context // count + (n < context % count) for n in range(count)]


def _room_s(tier: str, size: float, rooms: dict[str, int]) -> float:
    return DAY_S * ROOM_PRICE[tier] * size / rooms[tier]


def fitting(host: Host, contexts: Sequence[int]) -> list[int]:
    """Those that the model reads with a question and an answer. Raises InputError where none is."""
    most = host.context
    around = USUAL_QUESTION_TOKENS + DecodeConfig().max_new_tokens
    fits = sorted({context for context in contexts if most is None or context + around <= most})
    if not fits:
        raise InputError(
            f"{min(contexts)} tokens of memory and {around} of question and answer do not fit the {most} that "
            f"{host.config.path} reads; give a smaller --context"
        )
    return fits
