"""`memos recommend`: which form pays, told by what was measured; and settings that load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer
from typer.testing import CliRunner

from memos.bench.architectures import tiny
from memos.bench.form_costs import (
    EXACT,
    AdapterCost,
    CodecCost,
    Findings,
    FormCost,
    form_costs,
    groups_of,
    measure_each,
)
from memos.bench.recommend import Setting, bench_recommend, best_at, pays_from, sentences, settings, yaml_of
from memos.config import FidelityConfig, ModelConfig, SchedulerConfig, load_config
from memos.errors import InputError, Unsupported
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.model.load import SMALL_MODEL, model_path
from memos.interface.doors.cli.app import app
from memos.operation.choosing.cost_model import Costs

ROOMS = {"host": 8 << 30, "disk": 64 << 30}
# a machine on which a token is read in 1 ms, and KV of one is brought from disk in a tenth of that
COSTS = Costs(
    read=((1, 0.011), (1001, 1.011)), bytes=1000, layers=1, load={"disk raw": (0.05, 0.0001), "disk int4": (0.05, 1e-5)}
)
CODECS = {"raw": CodecCost(1000, 0.0), "int4": CodecCost(300, 0.5)}


def show(what: str, done: int, of: int) -> None: ...


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.load(ModelConfig(path="shape:tiny"))


def level(name: str, agreement: float, ms: float, **given: float) -> dict[str, object]:
    fidelity = FidelityConfig(level=name).model_dump(include={"level", "first_tokens", "share"})  # type: ignore[arg-type]
    return fidelity | {"n_cubes": 4, "decision_agreement": agreement, "ttft_ms": ms} | given


def test_kv_pays_where_what_it_saves_is_more_than_what_it_takes(host: Host) -> None:
    found = Findings(COSTS, CODECS, [], None, {})
    text, memory, disk = form_costs(host, found, [400], ROOMS)
    assert (text.form, memory.tier, disk.tier, memory.level) == ("text", "host", "disk", EXACT)
    assert text.ttft_s == pytest.approx(0.426) and memory.ttft_s == pytest.approx(0.026)
    assert disk.ttft_s == pytest.approx(0.026 + 0.05 + 400 * 0.0001)
    assert memory.build_s == pytest.approx(0.41) and memory.break_even(text) == pytest.approx(0.41 / 0.4)
    room = 86_400 * 0.25 * 400_000 / ROOMS["host"]
    assert memory.per_day(text) == pytest.approx((0.41 + room) / 0.4)
    assert text.break_even(text) is None and text.bytes == 0
    assert [best["form"] for best in best_at([text, memory, disk], [1, 10])] == ["text", "KV on disk, exact"]


def test_from_disk_it_pays_for_longer_memories_than_from_memory(host: Host) -> None:
    found = Findings(COSTS, CODECS, [], None, {})
    memory, disk = (pays_from(found, tier, 1000, ROOMS) for tier in ("host", "disk"))
    assert memory and disk and memory.context == 20 and disk.context == 60
    slow = COSTS.model_copy(update={"load": {"disk raw": (2.0, 0.0)}})
    assert pays_from(Findings(slow, CODECS, [], None, {}), "disk", 1000, ROOMS) is None


def test_several_topic_groups_are_told_apart_by_their_level(host: Host) -> None:
    assert groups_of(1000, 448) == [334, 333, 333] and groups_of(448, 448) == [448]
    found = Findings(COSTS, CODECS, [], None, {})
    told = {(form.tier, form.level) for form in form_costs(host, found, [1000], ROOMS)}
    assert told == {("", ""), *((t, name) for t in ("host", "disk") for name in (EXACT, "L0", "L1", "L2", "L3"))}


def test_settings_follow_from_what_was_measured_and_load(host: Host, tmp_path: Path) -> None:
    levels = [
        level("L0", 1.0, 20.0),
        level("L1", 0.5, 5.0),
        level("L2", 0.97, 8.0, first_tokens=2),
        level("L2", 0.97, 9.0),
    ]
    found = Findings(
        COSTS, CODECS | {"int8": CodecCost(500, 0.001)}, levels, AdapterCost(60.0, True, 1000, 1.2, None), {}
    )
    found.costs = COSTS.model_copy(
        update={"load": {"disk raw": (0.05, 0.0005), "disk int8": (0.05, 0.0001), "disk int4": (0.0, 0.0)}}
    )
    every = form_costs(host, found, [400, 1000], ROOMS | {"host": 1 << 30})
    advice = list(settings(host, found, every, ROOMS | {"host": 1 << 30}))
    assert all(setting.why for setting in advice)
    (tmp_path / "settings.yaml").write_text(yaml_of("shape:tiny", advice), "utf-8")
    config = load_config(tmp_path / "settings.yaml")
    assert config.model.path == "shape:tiny"
    assert (config.fidelity.level, config.fidelity.first_tokens) == ("L2", 2)  # L1 is faster, and says something else
    assert advice[1].why.startswith("8.0 ms over 4 caches, L0 20.0")
    assert config.activation.codec == "int8"  # int4 is faster, and loses too much
    assert config.scheduler.parametric_heat == 136  # 60 s, of which a question saves .44
    assert config.scheduler.host_kv_bytes == 1 << 28
    assert config.scheduler.segment_tokens == SchedulerConfig().segment_tokens


def test_kv_for_composing_is_advised_where_it_goes_together_sooner(host: Host) -> None:
    levels = [level("L0", 1.0, 20.0), level("L1", 0.9, 5.0), level("L2", 0.97, 8.0)]
    for agreement, ms, advised in ((0.97, 5.2, "wrapped"), (0.9, 5.2, None), (0.97, 7.9, None)):
        found = Findings(COSTS, CODECS, levels, None, {}, [level("L1", agreement, ms)])
        every = form_costs(host, found, [400, 1000], ROOMS)
        advice = {one.key: one.value for one in settings(host, found, every, ROOMS)}
        assert advice.get("activation.codec") == advised
        assert advice["fidelity.level"] == ("L1" if advised else "L2")
        assert any("L1, kept as wrapped KV" in line for line in sentences(host, found, every, ROOMS)) == bool(advised)


def test_where_only_long_memories_pay_topic_groups_are_longer(host: Host) -> None:
    launches = COSTS.model_copy(update={"read": ((1, 0.02), (3000, 0.0201), (6000, 0.09))})
    found = Findings(launches, CODECS, [], None, {})
    advice = {one.key: one.value for one in settings(host, found, form_costs(host, found, [400, 6000], ROOMS), ROOMS)}
    assert advice["scheduler.segment_tokens"] == advice["scheduler.prompt_tokens"] == 3020
    found.costs = COSTS.model_copy(update={"read": ((1, 0.02), (6000, 0.0201))})
    advice = {one.key: one.value for one in settings(host, found, form_costs(host, found, [400, 6000], ROOMS), ROOMS)}
    assert advice["fidelity.level"] == "L4"


def test_a_reason_of_several_lines_stays_a_comment() -> None:
    text = yaml_of("x", [Setting("scheduler.top_k", 4, "one\ntwo: 3")])
    assert text.splitlines()[1:] == ["scheduler:", "  # one two: 3", "  top_k: 4"]
    assert "defaults are right" in yaml_of("x", [])


def test_what_cannot_be_measured_is_named_and_an_interrupt_ends_it() -> None:
    def refused() -> None:
        raise Unsupported("it is quantised")

    def interrupted() -> None:
        raise KeyboardInterrupt

    left_out, done = dict[str, str](), list[str]()
    parts = {"codecs": refused, "levels": lambda: done.append("levels"), "adapter": interrupted, "more": interrupted}
    measure_each(parts, left_out)
    assert done == ["levels"]
    assert left_out == {"codecs": "it is quantised", "adapter": "interrupted", "more": "interrupted"}


def test_a_model_without_kv_gets_text_and_the_reason(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_path(SMALL_MODEL))
    tokenizer.save_pretrained(tmp_path)
    tiny("rwkv", vocabulary=len(tokenizer)).save_pretrained(tmp_path)
    host = Host.load(ModelConfig(path=str(tmp_path), template="plain"))
    found = Findings(COSTS, {}, [], None, {"an adapter": "it is quantised"})
    every = form_costs(host, found, [50], ROOMS)
    assert [form.form for form in every] == ["text"]
    first, second = sentences(host, found, every, ROOMS)
    assert first.startswith("Memories of this model go as text: ") and "rwkv" in first
    assert second == "Not measured: an adapter: it is quantised."
    assert [one.key for one in settings(host, found, every, ROOMS)] == ["model.path"]


def test_memories_that_fit_no_prompt_are_named() -> None:
    host = Host.load(ModelConfig())
    with pytest.raises(InputError, match="9000 tokens of memory .* --context"):
        bench_recommend(host, [9000], [1], 1, 0, show)


@pytest.mark.slow
def test_the_command_prints_tables_sentences_and_settings(tmp_path: Path) -> None:
    words = "recommend --model shape:tiny --context 100 --context 1000 --questions-per-day 5 --questions 1"
    out, path = tmp_path / "settings.yaml", tmp_path / "report.json"
    done = CliRunner().invoke(app, [*words.split(), "--out", str(out), "--json", str(path)])
    assert done.exit_code == 0, done.output
    report = json.loads(path.read_text("utf-8"))
    assert load_config(out).model.path == "shape:tiny" and out.read_text("utf-8") == report["yaml"]
    assert {row["context"] for row in report["rows"]} == {100, 1000}
    assert {form.form for form in map(_form, report["rows"])} == {"text", "KV", "adapter"}
    assert report["adapter"]["estimated"] and "estimated from the time of a step" in done.stdout
    assert "pays from" in done.stdout and "scheduler:" in done.stdout


def _form(row: dict[str, object]) -> FormCost:
    return FormCost(int(str(row["context"])), str(row["form"]), float(str(row["ttft_ms"])) / 1e3)
