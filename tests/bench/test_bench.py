"""The benchmarks that ship: each runs, in small, and its figures hang together."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from memos import MemOS
from memos.bench import promote, stack
from memos.bench.adapters import DISTINCT, bench_adapters
from memos.bench.batch import bench_batch
from memos.bench.calibrate import calibrate
from memos.bench.choice import bench_choice
from memos.bench.compose import bench_compose
from memos.bench.conversations import bench_conversations, bench_growth
from memos.bench.kv_io import bench_kv_io
from memos.bench.overlap import bench_overlap
from memos.bench.scheduler import bench_scheduler
from memos.bench.search import bench_search
from memos.bench.tables import (
    adapters_table,
    choice_table,
    conversations_table,
    kv_io_table,
    levels_table,
    rows_table,
    scores_table,
    ttft_table,
)
from memos.bench.ttft import bench_ttft, running
from memos.bench.updates import bench_updates, conversation
from memos.config import Config, ModelConfig
from memos.errors import InputError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import encode
from memos.infrastructure.host.kv.files import storing_codecs
from memos.infrastructure.host.training.teach import least_share
from memos.interface.reading.mem_reader import MemReader
from tests.doubles import BRIEF, BriefReader

SURROUNDED = {"device": "cpu"}  # what a report adds to the figures


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.load(ModelConfig())


class Shown:
    """Progress as it was shown."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def __call__(self, what: str, done: int, total: int) -> None:
        self.seen.append((what, done, total))


def test_compose_compares_each_level_with_the_full_prompt(host: Host) -> None:
    show = Shown()
    report = bench_compose(host, 3, 0, show, (2,)) | SURROUNDED
    rows = {(r["level"], r["first_tokens"], r["share"]): r for r in report["levels"]}
    assert {level for level, *_ in rows} == {"L0", "L1", "L2", "L3", "L4"}
    for (level, *_), row in rows.items():
        assert row["n_cubes"] == 2 and row["questions"] == 3
        if level in ("L0", "L4"):  # exact
            assert row["kl"] <= 1e-5 and row["decision_agreement"] == 1
        assert 0 <= row["decision_agreement_low"] <= row["decision_agreement"]
        assert row["recompute"] == pytest.approx({"L4": 1, "L1": 0}.get(level, row["recompute"]))
    assert show.seen[-1] == ("2 cubes", 3, 3)
    assert levels_table(report).row_count == len(rows) + 1


@pytest.mark.parametrize("held, of", [(40, 40), (39, 40), (1, 2), (780, 800)])
def test_a_share_of_few_questions_is_worth_less(held: int, of: int) -> None:
    """Wilson's interval by its definition: were the true share that low, what was seen would lie z deviations off."""
    low = least_share(held, of)
    assert (held / of - low) / math.sqrt(low * (1 - low) / of) == pytest.approx(1.645)
    assert least_share(0, of) == pytest.approx(0, abs=1e-12)


@pytest.mark.slow
def test_the_choice_is_held_against_every_way(host: Host) -> None:
    report = bench_choice(host, 4, 1, 0, Shown()) | SURROUNDED
    assert report["cases"] == len(report["rows"]) == 4
    for row in report["rows"]:
        assert row["best_ms"] == row["ways_ms"][row["best"]] and row["chosen_ms"] == row["ways_ms"][row["chosen"]]
        assert row["predicted_ms"].keys() == row["ways_ms"].keys()
        assert row["full_ms"] == row["ways_ms"]["text"]
    assert 0 <= report["right"] <= 1 and report["slower_than_full"] > -1
    assert choice_table(report).row_count == 4


def test_every_codec_is_saved_loaded_and_compared(host: Host) -> None:
    report = bench_kv_io(host, 64, 0, Shown()) | SURROUNDED
    assert [(r["codec"], r["tier"]) for r in report["rows"]] == [
        (c, t) for c in storing_codecs() for t in ("disk", "host")
    ]
    assert all(r["mb_s"] > 0 and r["share_of_raw"] > 0 for r in report["rows"])
    [raw, *_] = [row for row in report["rows"] if row["codec"] == "raw"]
    assert raw["fidelity_kl"] == pytest.approx(0, abs=1e-9)
    assert kv_io_table(report).row_count == len(report["rows"])


def test_the_time_to_the_first_token_is_measured_in_each_tier(host: Host) -> None:
    report = bench_ttft(host, (96,), (16, 32), 1, 0, Shown()) | SURROUNDED
    assert [(r["context"], r["query"], r["tier"]) for r in report["rows"]] == [
        (96, query, tier) for query in (16, 32) for tier in ("host", "disk")
    ]
    for row in report["rows"]:
        assert row["saved"] == pytest.approx(1 - row["ours_ms"] / row["full_ms"])
        assert all(math.isfinite(row[name]) and row[name] > 0 for name in ("full_ms", "reuse_ms", "floor_ms"))
        assert row["equal"] and row["max_logit_diff"] < 1e-3
    assert ttft_table(report).row_count == 4 and report["left_out"] == []


def test_the_time_to_the_first_token_is_measured_on_real_text_and_what_has_no_room_is_named(host: Host) -> None:
    asked = list[int]()
    texts = running(host, ["Ada moved to Lisbon in May.", "Her dog is called Rex."])

    def memory(count: int) -> tuple[int, ...]:
        asked.append(count)
        return texts(count)

    report = bench_ttft(host, (64, 4096), (16,), 1, 0, Shown(), memory, texts)
    assert asked == [64] and report["left_out"] == [{"context": 4096, "query": 16}]
    assert {row["context"] for row in report["rows"]} == {64} and all(row["equal"] for row in report["rows"])
    with pytest.raises(InputError, match="reads 2,048 tokens"):
        bench_ttft(host, (4096,), (16,), 1, 0, Shown())


def test_a_cache_of_another_text_is_not_taken_for_the_same(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    other = encode(host.model, running(host, ["Bob sold his boat and went home by train."])(64))
    monkeypatch.setattr(host, "load_kv", lambda _: other)
    rows = bench_ttft(host, (64,), (16,), 1, 0, Shown(), running(host, ["Ada moved to Lisbon in May."]))["rows"]
    near = {row["tier"]: row["max_logit_diff"] for row in rows}
    assert near["host"] < 1e-3 < 1 < near["disk"]


def test_bringing_kv_is_compared_with_the_forward_that_hides_it(host: Host) -> None:
    report = bench_overlap(host, (96,), 16, 1, 0, Shown())
    assert [(row["context"], row["tier"]) for row in report["rows"]] == [(96, "disk"), (96, "page cache")]
    for row in report["rows"]:
        assert min(row["bring_ms"], row["forward_ms"], row["together_ms"]) > 0 and 0 <= row["hidden"] <= 1


@pytest.mark.slow
def test_requests_are_answered_together_and_clients_chat_with_a_server() -> None:
    shown = Shown()
    report = bench_batch(["memos-small"], 4, 4, 1, 0, shown)
    assert [row["requests_at_once"] for row in report["rows"]] == [1, 2, 4]
    assert all(row["differing_answers"] == 0 and row["chat_p50_ms"] <= row["chat_p95_ms"] for row in report["rows"])
    assert all(row["ratio"] == row["tokens_per_s"] / row["one_by_one_tokens_per_s"] > 0 for row in report["rows"])


def test_adapters_are_compared_with_the_base(host: Host) -> None:
    report = bench_adapters(host, (2, 4), 1, 0, Shown()) | SURROUNDED
    assert [(r["known"], r["distinct_in_batch"]) for r in report["rows"]] == [(k, n) for k in (2, 4) for n in DISTINCT]
    assert all(r[name] > 0 for r in report["rows"] for name in ("ms", "new_mix_ms", "base_ms"))
    assert 0 < report["switch_in_memory_ms"] < report["switch_ms"]
    assert adapters_table(report).row_count == len(report["rows"])


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps and a few prompts to keep: what an adapter learns is not what is tested."""
    brief = BriefReader()
    monkeypatch.setattr(MemReader, "contrasts", lambda _, *given: brief.contrasts(*given))
    monkeypatch.setattr(stack, "STEPS", 2)
    for module in (promote, stack):
        monkeypatch.setattr(module, "DistilConfig", lambda **given: BRIEF.model_copy(update=given))


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
def test_promotion_is_compared_with_what_others_do(host: Host) -> None:
    report = promote.bench_promote(host, (2,), (1,), promote.OBJECTIVES, 1, 0, Shown()) | SURROUNDED
    assert [row["objective"] for row in report["rows"]] == list(promote.OBJECTIVES)
    for row in report["rows"]:
        assert row["facts"] == 2 and row["seconds"] > 0 and row["accepted_rate"] in (0.0, 1.0)
        assert all(0 <= row[name] <= 1 for name in ("reliability", "generality", "locality", "in_context"))
    assert scores_table(report | {"bench": "promote"}, "objective", "facts").row_count == len(promote.OBJECTIVES)


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
def test_stacks_are_compared_by_how_they_are_put_together(host: Host) -> None:
    report = stack.bench_stack(host, (1, 2), 1, 0, Shown()) | SURROUNDED
    rows = {(row["method"], row["n"]): row for row in report["rows"]}
    assert set(rows) == {
        (method, n) for n in (1, 2) for method in ("independent", "averaged", "ties", "routed", "stack-aware")
    }
    scores = ("reliability", "generality", "locality")
    assert [rows["independent", 1][name] for name in scores] == [rows["stack-aware", 1][name] for name in scores]
    assert all(0 <= rows["routed", n][name] <= 1 for n in (1, 2) for name in ("routed_top1", "none_right"))


@pytest.mark.slow
def test_a_calibration_is_kept_with_what_the_machine_takes(host: Host, tmp_path: Path) -> None:
    def opened() -> MemOS:
        return MemOS(vault=tmp_path / "vault", model=host.model, tokenizer=host.tokenizer)

    with opened() as kernel:
        card = calibrate(kernel, 2, 0, Shown())
    with opened() as kernel:
        assert kernel.parts.serving().costs.model_dump() == card["costs"]
        assert kernel.parts.serving().levels()[0].model_dump() == card["chosen"]


DIALOGUE = [
    {
        "sample_id": "talk-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "Hi Bob, what did you do at the weekend?"},
                {
                    "speaker": "Bob",
                    "dia_id": "D1:2",
                    "text": "We sailed to the island.",
                    "blip_caption": "a boat",
                },
                {"speaker": "Ann", "dia_id": "D1:3", "text": "I stayed at home and baked bread."},
            ],
            "session_2_date_time": "12:06 am on 1 June, 2023",
            "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "My cat is called Miso."}],
            "session_3_date_time": "12:06 am on 2 June, 2023",
        },
        "qa": [
            {"question": "Where did Bob sail to?", "evidence": ["D1:2"], "category": 4, "answer": "an island"},
            {"question": "What is Ann's pet?", "evidence": ["D2:1; D:1:03"], "category": 1, "answer": "a cat"},
            {"question": "Why?", "evidence": ["D9:9"], "category": 3, "answer": "nobody knows"},
        ],
    }
]


def test_conversations_are_added_read_back_and_searched_through_a_door(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    file.write_text(json.dumps(DIALOGUE))
    show = Shown()
    report = bench_conversations("locomo", file, "memory", None, show)
    assert (report["turns"], report["turns_lost"], report["questions"]) == (4, 0, 2)
    assert report["recall@10"] == report["recall@budget"] == 1 and report["by_kind"]["multi-hop"]["recall@10"] == 1
    assert 0 < report["recall@chat"] <= 1 and report["prompt_tokens"] > 0
    assert report["turns_per_s"] > 0 < report["add_ms_p50"] and show.seen[-1] == ("locomo", 1, 1)
    assert conversations_table(report).row_count == 3
    latest = bench_conversations("locomo", file, "memory", "recency", Shown())
    assert latest["ndcg@10"] < report["ndcg@10"]


def test_one_user_says_the_dialogues_again_each_year(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    file.write_text(json.dumps(DIALOGUE))
    report = bench_growth("locomo", file, "memory", None, 30, Shown())
    assert [row["turns"] for row in report["rows"]] == [1, 3, 9, 30]
    assert all(
        row[name] > 0 for row in report["rows"] for name in ("add_ms_p50", "search_ms_p50", "opened_s", "rss_mb")
    )
    sizes = [row["vault_mb"] for row in report["rows"]]
    assert 0 < sizes[0] < sizes[-1]


def test_a_chat_with_an_assistant_is_read_as_beam_has_it(tmp_path: Path) -> None:
    file = tmp_path / "chats.json"
    time = "2024-03-15T12:00:00Z"
    said = ["Which tea do you like?", "I like all teas."]
    turns = [
        {"id": n, "role": role, "content": text, "time": time}
        for n, (role, text) in enumerate(zip(["user", "assistant"], said, strict=True))
    ]
    asked = [{"ability": "information_extraction", "question": "What did you say of tea?", "evidence": [1]}]
    file.write_text(json.dumps([{"id": "c", "turns": turns, "questions": asked}]))
    report = bench_conversations("beam", file, "memory", None, Shown())
    assert (report["turns_lost"], report["recall@10"], report["ndcg@10"]) == (0, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("door", ["http", "mcp"])
def test_a_door_keeps_and_finds_what_another_does(tmp_path: Path, door: str) -> None:
    file = tmp_path / "talks.json"
    file.write_text(json.dumps(DIALOGUE))
    report = bench_conversations("locomo", file, door, None, Shown())
    assert (report["door"], report["turns_lost"], report["recall@10"]) == (door, 0, 1)


def test_a_policy_that_is_none_is_refused_before_anything_is_read() -> None:
    with pytest.raises(InputError, match="no policy 'fifo'"):
        bench_conversations("locomo", Path("no-such-file"), "memory", "fifo", Shown())


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read"), ("{", "not of locomo's form"), ("[{}]", "not of locomo's form"), ("[]", "no question")],
)
def test_what_is_no_file_of_dialogues_is_refused(tmp_path: Path, content: str | None, says: str) -> None:
    file = tmp_path / "talks.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InputError, match=says):
        bench_conversations("locomo", file, "memory", None, Shown())


@pytest.mark.slow
def test_a_search_is_timed_beside_its_embedding_and_held_against_an_exact_one() -> None:
    report = bench_search([400], 5, 0, Shown()) | SURROUNDED | {"bench": "search"}
    assert [row["readable"] for row in report["rows"]] == [1.0, 0.1, 0.001]
    assert all(0 < row["ms_p50"] <= row["ms_p95"] and row["of_exact"] == 1 for row in report["rows"])
    assert all(row["open_s"] > 0 < row["open_from_snapshot_s"] and row["rss_mb"] > 100 for row in report["rows"])
    assert rows_table(report).row_count == 3


def test_decisions_are_timed_warm_and_cold() -> None:
    report = bench_scheduler([300], "memos-small", 20, 0, Shown())
    assert 0 < report["decision_ms_p50"] <= report["decision_ms_p95"] and report["cold_ms_p50"] > 0
    assert sum(report["forms"].values()) == 60 and set(report["forms"]) <= {"plaintext", "activation", "parametric"}


def test_updates_asks_for_facts_as_they_are_at_the_end() -> None:
    talk = conversation(random.Random(0), facts=10, updates=40, small_talk=20)
    assert len(talk.turns) == 70 and len(talk.probes) == 10
    said = [str(turn["content"]) for turn in talk.turns]
    for probe in talk.probes:
        assert any(probe.holds(text) for text in said)


@pytest.mark.slow
def test_updates_compares_memory_that_is_kept_current_with_one_that_keeps_everything() -> None:
    show = Shown()
    report = bench_updates(Config(), facts=12, updates=60, small_talk=10, seed=0, show=show)
    rows = {row["policy"]: row for row in report["rows"]}
    assert rows["memos"]["accuracy"] > rows["keep everything"]["accuracy"]
    assert rows["memos"]["accuracy"] >= 0.9
    assert rows["memos"]["in_force"] == 12 and rows["memos"]["kept"] <= 72  # what is told again is not kept twice
    assert rows["keep everything"]["in_force"] == rows["keep everything"]["kept"] == 72
    assert rows_table(report | {"bench": "updates"} | SURROUNDED).row_count == 3
