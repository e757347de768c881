"""`memos recommend`: says which form of memory pays for a model on this machine, and the settings that follow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import yaml

from memos.bench.doctor import verdict_on
from memos.bench.form_costs import (
    CONTEXTS,
    RATES,
    Findings,
    FormCost,
    as_kv,
    as_text,
    fitting,
    form_costs,
    measure_forms,
    tier_bytes,
    tiers_of,
)
from memos.config import ActivationConfig, Config, FidelityConfig, SchedulerConfig, parse_config, parse_yaml
from memos.infrastructure.host.host import Host
from memos.operation.choosing.cost_model import Ways
from memos.operation.policies.memos import MemosPolicy
from memos.plugins.figures import size
from memos.plugins.progress import Show

__all__ = ["CONTEXTS", "RATES", "bench_recommend"]
_STEP = 20  # tokens between two lengths that are tried for the least that pays
_FASTER = 1.1  # times as fast a codec must be as raw, which loses nothing
_LEVEL = ("level", "first_tokens", "share")  # what names a row of a card
_NEVER = 1e6  # a heat that no group reaches
_WHERE = {"device": "in the GPU's memory", "host": "in memory", "disk": "on disk"}


@dataclass(frozen=True)
class Setting:
    """One that differs from its default. key: section.name."""

    key: str
    value: object
    why: str


def bench_recommend(
    host: Host, contexts: Sequence[int], rates: Sequence[int], questions: int, seed: int, show: Show
) -> dict[str, Any]:
    """Rows of each context and form, the form that takes least time a day at each rate, sentences, and settings.

    break_even: uses after which making it has paid; per_day: questions a day from which it pays, made anew once a day
    and its room counted (`ROOM_PRICE`); both None where it never does. An interrupt leaves out what was not measured
    yet. Raises InputError.
    """
    fits = fitting(host, contexts)
    found = measure_forms(host, questions, seed, show)
    found.left_out |= {f"{n:,} tokens": "longer than the model's context" for n in contexts if n not in fits}
    rooms = tier_bytes()
    every = form_costs(host, found, fits, rooms)
    advice = list(settings(host, found, every, rooms))
    text = yaml_of(host.config.path, advice)
    parse_config(parse_yaml(text) or {})  # what is advised can be loaded
    return {
        "model": host.describe(),
        "verdict": verdict_on(host.capability),
        "rows": list(_rows(every)),
        "best": best_at(every, rates),
        "levels": found.levels,
        "wrapped": found.wrapped,
        "codecs": {name: asdict(codec) for name, codec in found.codecs.items()},
        "adapter": asdict(found.adapter) if found.adapter else None,
        "left_out": found.left_out,
        "costs": found.costs.model_dump(),
        "sentences": list(sentences(host, found, every, rooms)),
        "settings": [asdict(one) for one in advice],
        "yaml": text,
    }


def _rows(every: Sequence[FormCost]) -> Iterator[dict[str, Any]]:
    texts = {form.context: form for form in every if form.form == "text"}
    for form in every:
        text = texts[form.context]
        yield {
            "context": form.context,
            "form": form.form,
            "tier": form.tier,
            "level": form.level,
            "ttft_ms": form.ttft_s * 1e3,
            "bytes": form.bytes,
            "build_s": form.build_s,
            "break_even": form.break_even(text),
            "per_day": form.per_day(text),
        }


def best_at(every: Sequence[FormCost], rates: Sequence[int]) -> list[dict[str, Any]]:
    """For each context and rate the form that takes least time a day."""
    out = []
    for context in dict.fromkeys(form.context for form in every):
        forms = [form for form in every if form.context == context]
        for rate in sorted(set(rates)):
            best = min(forms, key=lambda form: form.day_s(rate))
            form = f"KV {_WHERE[best.tier]}, {best.level}" if best.tier else best.form
            out.append({"context": context, "questions": rate, "form": form, "seconds_a_day": best.day_s(rate)})
    return out


def pays_from(found: Findings, tier: str, most: int, rooms: dict[str, int]) -> FormCost | None:
    """KV of the least tokens from which on, up to `most`, one exact prefix brings the first token sooner than text."""
    out = None
    for context in range(most, 0, -_STEP):
        kv = as_kv(found, context, tier, rooms)
        if kv.break_even(as_text(found, context)) is None:
            break
        out = kv
    return out


def composing(found: Findings) -> tuple[str, FidelityConfig, dict[str, Any]]:
    """(codec, level, its row of most caches) by which several caches go together soonest, as the scheduler takes the
    level from a card of `memos calibrate`: raw KV, unless wrapped KV is clearly sooner."""
    ways = Ways(SchedulerConfig(), MemosPolicy(SchedulerConfig()))
    best: tuple[str, FidelityConfig, dict[str, Any]] | None = None
    for codec, rows in (("raw", found.levels), ("wrapped", found.wrapped)):
        level = ways.levels(FidelityConfig(), {"levels": rows})[0]
        own = [row for row in rows if all(row[name] == getattr(level, name) for name in _LEVEL)]
        if own and (best is None or own[-1]["ttft_ms"] * _FASTER < best[2]["ttft_ms"]):
            best = codec, level, own[-1]
    assert best  # of raw KV L0 is measured
    return best


# -- in words -----------------------------------------------------------------------------------------------------


def sentences(host: Host, found: Findings, every: Sequence[FormCost], rooms: dict[str, int]) -> Iterator[str]:
    if not host.capability.exact:
        yield f"Memories of this model go as text: {host.capability.why}."
    else:
        for tier in tiers_of(found.costs):
            yield _of_kv(found, tier, every[-1].context, rooms)
        yield from _of_levels(found)
    yield from _of_adapter(found, every)
    for what, why in found.left_out.items():
        yield f"Not measured: {what}: {why}."


def _of_kv(found: Findings, tier: str, most: int, rooms: dict[str, int]) -> str:
    kv = pays_from(found, tier, most, rooms)
    if kv is None:
        return f"KV {_WHERE[tier]} brings the first token no sooner than text at {most:,} tokens of memory."
    text = as_text(found, kv.context)
    uses, daily = kv.break_even(text), kv.per_day(text)
    assert uses is not None and daily is not None  # it pays
    return (
        f"KV {_WHERE[tier]} pays from {kv.context:,} tokens of memory on, from the {_ordinal(math.floor(uses) + 1)} "
        f"question about them ({kv.ttft_s * 1e3:,.1f} ms to the first token, {text.ttft_s * 1e3:,.1f} as text; "
        f"{size(kv.bytes)}); memories that change once a day, from {max(1, math.ceil(daily)):,} questions a day."
    )


def _ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{ending}"


def _of_levels(found: Findings) -> Iterator[str]:
    if not found.levels:
        return
    codec, level, _ = composing(found)
    kept = "" if codec == "raw" else f", kept as {codec} KV"
    yield (
        f"Caches of several topic groups go together at {level.level}{kept}: the fastest of the fidelity levels that "
        f"answer at least {level.agreement:.0%} of the questions as the full prompt does."
    )


def _of_adapter(found: Findings, every: Sequence[FormCost]) -> Iterator[str]:
    if not (found.adapter and (forms := [form for form in every if form.form == "adapter"])):
        return
    made, form = found.adapter, forms[-1]
    text = next(one for one in every if one.context == form.context)
    how = "estimated from the time of a step" if made.estimated else "measured by one training"
    uses = form.break_even(text)
    pays = f"pays after {math.ceil(uses):,} questions" if uses else "brings the first token no sooner than text"
    yield (
        f"An adapter of one topic group takes {made.seconds:,.0f} s to train ({how}) and {size(made.bytes)}; it saves "
        f"the {form.context:,} tokens of its memories in each prompt, and {pays}."
    )
    if made.accepted is False:
        yield "The adapter that was trained did not pass the gate, so others may not; such groups stay text or KV."


# -- in settings --------------------------------------------------------------------------------------------------


def settings(host: Host, found: Findings, every: Sequence[FormCost], rooms: dict[str, int]) -> Iterator[Setting]:
    """Those that differ from the defaults."""
    if host.config.path != Config().model.path:
        yield Setting("model.path", host.config.path, "the model that was measured")
    if host.capability.exact:
        yield from _kv_settings(host, found, every, rooms)
    yield from _adapter_settings(found)


def _kv_settings(host: Host, found: Findings, every: Sequence[FormCost], rooms: dict[str, int]) -> Iterator[Setting]:
    most = every[-1].context
    if all(one.break_even(as_text(found, one.context)) is None for one in every if one.form == "KV"):
        yield Setting("fidelity.level", "L4", f"text: KV brings no first token sooner, up to {most:,} tokens of memory")
        return
    yield from _level_settings(found)
    defaults, least = SchedulerConfig(), pays_from(found, tiers_of(found.costs)[0], most, rooms)
    if (
        least
        and least.context > defaults.segment_tokens
        and (host.context is None or least.context <= 0.75 * host.context)
    ):
        why = f"shorter topic groups are read as text as soon as KV of them: it pays from {least.context:,} tokens on"
        yield Setting("scheduler.segment_tokens", least.context, why)
        if least.context > defaults.prompt_tokens:
            yield Setting("scheduler.prompt_tokens", least.context, "room for one such group")
    if found.levels and (codec := composing(found)[0]) != "raw":
        why = "what these caches gain behind others is kept beside them; making one reads its memories several times"
        yield Setting("activation.codec", codec, why)
    elif (codec := _codec(found, most, rooms)) != ActivationConfig().codec:
        raw, stored = (as_kv(found, most, "disk", rooms, codec=name) for name in ("raw", codec))
        yield Setting(
            "activation.codec",
            codec,
            f"KV of {most:,} tokens comes from disk in {stored.ttft_s * 1e3:.1f} ms, raw in {raw.ttft_s * 1e3:.1f}; it "
            f"lost {found.codecs[codec].kl:.2g} nats at most, of {ActivationConfig().max_kl:g} that are kept",
        )
    for name, room in (
        ("device_kv_bytes", torch.cuda.mem_get_info()[0] // 2 if found.costs.gpu else None),
        ("host_kv_bytes", rooms["host"] // 4),
    ):
        if room is not None and room < getattr(defaults, name):
            yield Setting(f"scheduler.{name}", room, f"as much as this machine can spare: {size(room)}")


def _level_settings(found: Findings) -> Iterator[Setting]:
    if not found.levels:
        return
    (_, level, own), wanted = composing(found), FidelityConfig()
    if level.level == "L0":  # what `auto` comes to by itself
        return
    exact = next(row for row in found.levels if row["level"] == "L0" and row["n_cubes"] == own["n_cubes"])
    why = f"{own['ttft_ms']:.1f} ms over {own['n_cubes']} caches, L0 {exact['ttft_ms']:.1f}"
    yield Setting("fidelity.level", level.level, f"{why}; answers agree with the full prompt's")
    for name in _LEVEL[1:]:
        if getattr(level, name) != getattr(wanted, name):
            yield Setting(f"fidelity.{name}", getattr(level, name), f"as {level.level} was measured")


def _codec(found: Findings, most: int, rooms: dict[str, int]) -> str:
    """The one that brings KV from disk soonest, of those that lose no more than is kept; raw unless that is clear."""
    sound = [name for name, codec in found.codecs.items() if codec.kl <= ActivationConfig().max_kl]
    took = {name: as_kv(found, most, "disk", rooms, codec=name).ttft_s for name in sound}
    best = min(took, key=lambda name: took[name], default="raw")
    return best if took.get(best, 1.0) * _FASTER < took.get("raw", 0.0) else "raw"


def _adapter_settings(found: Findings) -> Iterator[Setting]:
    if found.adapter is None:
        return
    group = SchedulerConfig().segment_tokens
    saved = as_text(found, group).ttft_s - found.adapter.slower * as_text(found, 0).ttft_s
    uses = found.adapter.seconds / saved if saved > 0 else _NEVER
    if uses > SchedulerConfig().parametric_heat:
        how = "an estimate" if found.adapter.estimated else "measured"
        saves = f"saves {saved * 1e3:.1f} ms a question of {group} tokens" if saved > 0 else "saves no time"
        yield Setting(
            "scheduler.parametric_heat",
            float(min(math.ceil(uses), _NEVER)),
            f"recalls after which an adapter pays: it takes {found.adapter.seconds:,.0f} s ({how}) and {saves}",
        )


def yaml_of(model: str, advice: Sequence[Setting]) -> str:
    """The settings, each below why it is so."""
    lines, section = [f"# by `memos recommend --model {model}`"], ""
    if not advice:
        lines.append("# the defaults are right for this model and machine")
    for one in sorted(advice, key=lambda setting: setting.key.split(".")[0]):  # stable within a section
        above, name = one.key.split(".")
        if above != section:
            lines.append(f"{above}:")
            section = above
        value = yaml.safe_dump({name: one.value}, width=10_000).strip()
        lines += [f"  # {' '.join(one.why.split())}", f"  {value}"]
    return "\n".join(lines) + "\n"
