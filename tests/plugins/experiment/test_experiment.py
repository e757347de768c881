"""`memos run` and `memos quickstart`: what they report, and how they say no, naming the thing and the way out."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from safetensors.torch import load_file, save_file

from memos import MemOS
from memos.infrastructure.host.model.load import SMALL_MODEL, model_path
from memos.plugins.care.check import problems_of
from memos.plugins.experiment.report import PromotionReport, remarks
from tests.commands import invoke, no

pytestmark = pytest.mark.usefixtures("brief_reader")
MEMOS = [sys.executable, "-m", "memos"]
TALK = [{"speaker": "Mira", "content": "I live in Lisbon."}, {"speaker": "Mira", "content": "I work as a nurse."}]
ASKED = {"question": "Where does Mira live?", "answer": "Lisbon"}
FILES = {
    "talk.jsonl": TALK,
    "chatter.jsonl": [{"role": "system", "content": "Be brief."}],
    "empty.jsonl": [],
    "questions.jsonl": [ASKED, {"question": "What is Mira's job?", "answer": "nurse"}],
    "chinese.jsonl": [{"question": "Mira住在哪里？", "answer": "Lisbon"}],
    "huge.jsonl": [{"question": "Where " * 3000 + "does Mira live?", "answer": "Lisbon"}],
}
GATE = {"reliability": 0, "generality": 0, "locality": 0, "in_context": 0}  # open: what is learnt is not judged here
BRIEF = {"steps": 1, "batch": 4, "batch_keep": 4, "rank": 4, "layers": 0.25, "gate": GATE, "instant": "never"}
BESIDE = BRIEF | {"isolation": "thread"}  # beside the model: a process of its own takes seconds
INGEST = {"ingest": "talk.jsonl"}
KV = {"promote": {"to": "activation"}}
LORA = {"promote": {"to": "parametric"}}


def ask(via: str, questions: str = "questions.jsonl") -> dict[str, Any]:
    return {"ask": {"via": via, "questions": questions}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, lines in FILES.items():
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def config(folder: Path, *steps: dict[str, Any], **sections: Any) -> Path:
    path = folder / "config.yaml"
    path.write_text(json.dumps(sections | {"experiment": {"name": "trial", "steps": steps}}))  # JSON is YAML
    return path


@dataclass(frozen=True)
class Ran:
    """An experiment that went through."""

    folder: Path
    out: Path
    shown: str

    @property
    def vault(self) -> Path:
        return self.out / "vault"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("run")
    for name, lines in FILES.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    steps = [INGEST, ask("none"), ask("plaintext"), KV, ask("activation"), LORA, ask("parametric")]
    result = invoke("run", config(folder, *steps, distil=BRIEF), "--out", folder / "out")
    assert result.exit_code == 0, result.output
    return Ran(folder, folder / "out", result.stdout)


@pytest.fixture
def vault(ran: Ran, tmp_path: Path) -> Path:
    """A copy of its vault, to be harmed."""
    return Path(shutil.copytree(ran.vault, tmp_path / "a-vault"))


def remembered(vault: Path) -> list[str]:
    with MemOS(vault=vault) as memos:
        return [cube.text for cube in memos.cubes() if cube.text]


# the quickstart


def test_the_quickstart_runs_from_anywhere_with_the_options_of_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("quickstart", "--set", "experiment.steps=[{ingest: conversation.jsonl}]", "--fresh")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out/quickstart/report.json").is_file()
    assert len(remembered(tmp_path / "out/quickstart/vault")) > 20


# run


def test_a_run_writes_a_report_of_what_each_form_cost_and_gave(ran: Ran) -> None:
    report = json.loads((ran.out / "report.json").read_text())
    assert report["name"] == "trial" and report["seed"] == 0
    assert set(report["versions"]) >= {"python", "memos", "torch", "transformers", "peft"}
    assert set(report["model"]) >= {"path", "parameters", "dtype", "digest"} and report["device"] in ("cpu", "cuda:0")
    none, text, kv, lora = report["phases"]
    assert [p["via"] for p in report["phases"]] == ["none", "plaintext", "activation", "parametric"]
    for phase in report["phases"]:
        assert phase["questions"] == 2 and 0 <= phase["accuracy"] <= 1 and phase["ttft_ms_p50"] > 0
        assert [r["expected"] for r in phase["replies"]] == ["Lisbon", "nurse"]
    assert none["prompt_tokens_mean"] == kv["prompt_tokens_mean"] == lora["prompt_tokens_mean"]
    assert none["prompt_tokens_mean"] < text["prompt_tokens_mean"]
    assert (none["bytes"], none["build_s"], text["build_s"]) == (0, 0, 0)
    assert kv["bytes"] > text["bytes"] > 0 and lora["bytes"] > 0 and min(kv["build_s"], lora["build_s"]) > 0
    assert [r["answer"] for r in kv["replies"]] == [r["answer"] for r in text["replies"]]
    assert report["parity"]["max_abs_logit_diff"] <= 1e-4 and report["parity"]["top1_agreement"] == 1.0
    assert [(p["to"], p["accepted"], len(p["sources"])) for p in report["promotions"]] == [
        ("activation", True, 2),
        ("parametric", True, 2),
    ]
    assert set(report["promotions"][1]) >= {"reliability", "generality", "locality", "in_context", "seconds"}


def test_a_run_shows_its_tables_within_80_characters_and_draws_them(ran: Ran) -> None:
    tables = ran.shown[: ran.shown.index("KV against")].splitlines()
    assert all(len(line) <= 80 for line in tables) and "…" not in "".join(tables)
    for via in ("none", "plaintext", "activation", "parametric"):
        assert any(line.split()[:2] == [via, "2"] for line in tables), via
    assert (ran.out / "report.png").read_bytes().startswith(b"\x89PNG")
    assert f"memos ls --vault {ran.vault}" in ran.shown


def test_a_run_that_stopped_goes_on_where_it_was(folder: Path) -> None:
    yaml, out = config(folder, INGEST, ask("plaintext", "later.jsonl")), folder / "out"
    no(invoke("run", yaml, "--out", out), "later.jsonl", "cannot be read", "give a UTF-8 JSONL file")
    assert json.loads((out / "progress.json").read_text())["done"] == 1
    kept = remembered(out / "vault")
    (folder / "talk.jsonl").unlink()  # it is not read again
    (folder / "later.jsonl").write_text(json.dumps(ASKED))
    assert invoke("run", yaml, "--out", out).exit_code == 0
    assert remembered(out / "vault") == kept != []
    assert not (out / "vault.1").exists()


def test_a_run_that_is_over_begins_again_and_keeps_the_old_vault(folder: Path) -> None:
    yaml, out = config(folder, INGEST), folder / "out"
    for _ in range(2):
        assert json.loads(invoke("run", yaml, "--out", out, "--json").stdout)["name"] == "trial"
    assert (
        remembered(out / "vault")
        == remembered(out / "vault.1")
        == ["Mira: I live in Lisbon.", "Mira: I work as a nurse."]
    )


def test_an_adapter_that_fails_its_gate_is_reported_and_the_run_goes_on(folder: Path) -> None:
    out, learns_nothing = folder / "out", BESIDE | {"learning_rate": 1e-6, "gate": {}}
    yaml = config(folder, INGEST, LORA, ask("plaintext"), distil=learns_nothing)
    assert invoke("run", yaml, "--out", out).exit_code == 0
    [promotion] = json.loads((out / "report.json").read_text())["promotions"]
    assert not promotion["accepted"] and promotion["generality"] < 0.9
    assert "failed its gate" in promotion["why"]
    again = config(folder, LORA, ask("parametric"), vault={"path": str(out / "vault")}, distil=learns_nothing)
    told = invoke("run", again, "--out", folder / "again")
    [phase] = json.loads((folder / "again" / "report.json").read_text())["phases"]
    assert phase["accuracy"] == 0 and "no parametric memory stands for Mira" in phase["replies"][0]["why"]
    assert told.exit_code == 0 and "refused: the adapter of 2 memories failed its gate" in told.stdout
    asked = config(folder, ask("parametric"), vault={"path": str(out / "vault")})
    no(invoke("run", asked, "--out", folder / "asked"), "no parametric memory stands for Mira; promote them first")


def test_a_question_whose_memories_did_not_take_the_form_counts_as_not_answered(folder: Path) -> None:
    """Mira is asked about and so hot enough for KV; Tom is not."""
    (folder / "talk.jsonl").write_text(
        "".join(json.dumps({"speaker": s, "content": "I live in Lisbon."}) + "\n" for s in ("Mira", "Tom"))
    )
    (folder / "both.jsonl").write_text(
        "".join(json.dumps({"question": f"Where does {s} live?", "answer": "Lisbon"}) + "\n" for s in ("Mira", "Tom"))
    )
    (folder / "mira.jsonl").write_text(json.dumps(ASKED))
    steps = [
        INGEST,
        ask("plaintext", "mira.jsonl"),
        {"promote": {"to": "activation", "rule": "hot"}},
        ask("activation", "both.jsonl"),
    ]
    yaml = config(folder, *steps, scheduler={"activate_heat": 2.9, "cool_heat": 1})
    assert invoke("run", yaml, "--out", folder / "out").exit_code == 0
    report = json.loads((folder / "out" / "report.json").read_text())
    assert len(report["promotions"]) == 1
    phase = report["phases"][1]
    mira, tom = phase["replies"]
    assert (phase["questions"], mira["form"], tom["answer"]) == (2, "activation", "")
    assert "no activation memory stands for Tom" in tom["why"]
    assert phase["accuracy"] <= 0.5


# bad input to run


@pytest.mark.parametrize(
    "change, said",
    [
        ("modle.path=x", "modle: unknown key; did you mean model?"),
        ("model.pth=x", "model.pth: unknown key; did you mean path?"),
        ("scheduler.top_k=many", "scheduler.top_k: Input should be a valid integer"),
        ("decode.top_p=2", "decode.top_p: Input should be less than or equal to 1 (given: 2)"),
        ("scheduler.cool_heat=9", "scheduler: must hold: cool_heat < activate_heat"),
        ("zorb", "--set 'zorb': write it as a.b=value"),
        ("experiment.steps=[{zorb: 1}]", "experiment.steps.0: {'zorb': 1} is not a step; a step has one key of ingest"),
        ("experiment.steps=[{ask: {via: text, questions: q}}]", "experiment.steps.0.ask.via: Input should be 'none', "),
    ],
)
def test_a_setting_that_memos_does_not_know_is_refused_by_its_path(folder: Path, change: str, said: str) -> None:
    no(invoke("run", config(folder, INGEST), "--out", folder / "out", "--set", change), said)
    assert not (folder / "out").exists()


def test_a_config_that_cannot_be_read_is_refused(folder: Path) -> None:
    config(folder, INGEST)
    no(invoke("run", folder / "zorb.yaml"), f"no config file {folder / 'zorb.yaml'}; here are config.yaml")
    (folder / "bad.yaml").write_text("a: [1")
    no(invoke("run", folder / "bad.yaml"), "bad.yaml is not a readable YAML file", "line 1, column 4")


BAD_STEPS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "no steps": ([], ["the config has no experiment.steps; add steps such as"]),
    "no such file": ([{"ingest": "zorb.jsonl"}], ["zorb.jsonl: no such file; give the path of a .csv"]),
    "an empty file": ([{"ingest": "empty.jsonl"}], ["empty.jsonl is empty: there is nothing to remember; give"]),
    "only what a program says": (
        [{"ingest": "chatter.jsonl"}],
        ["chatter.jsonl holds no statement worth keeping; give a file"],
    ),
    "nothing to promote": (
        [KV],
        ["nothing to promote to activation: nothing is remembered; put an ingest step before"],
    ),
    "nothing to ask": ([ask("plaintext")], ["nothing is remembered that could be asked via plaintext; put an ingest"]),
    "nothing hot": (
        [INGEST, {"promote": {"to": "parametric", "rule": "hot"}}],
        ["nothing to promote to parametric: no memory is hot enough yet; ask first, or use rule: all"],
    ),
    "nothing promoted": (
        [INGEST, ask("activation")],
        ["no activation memory stands for Mira; promote them first", "or ask via auto"],
    ),
    "no such memory": (
        [INGEST, {"promote": {"to": "activation", "ids": ["zorb"]}}],
        ["no cube zorb; give the whole id"],
    ),
    "no questions": ([INGEST, ask("none", "empty.jsonl")], ["empty.jsonl is empty; write one"]),
    "no question": ([INGEST, ask("none", "talk.jsonl")], ["talk.jsonl, line 1 is not a question: 'question'; write"]),
    "another language": (
        [INGEST, ask("plaintext", "chinese.jsonl")],
        ["the question is in 'zh', and memos-small reads en only; ask in en, or set model.path"],
    ),
    "over the context": (
        [INGEST, ask("plaintext", "huge.jsonl")],
        ["tokens of prompt and 48 of answer do not fit the model's context of 2048; lower", "or shorten the question"],
    ),
}


@pytest.mark.parametrize("what", BAD_STEPS)
def test_a_step_that_cannot_be_done_is_refused_and_loses_nothing(folder: Path, what: str) -> None:
    steps, said = BAD_STEPS[what]
    no(invoke("run", config(folder, *steps), "--out", folder / "out"), *said)
    if INGEST in steps:
        assert len(remembered(folder / "out" / "vault")) == 2
        report = json.loads((folder / "out" / "report.json").read_text())
        assert report["stopped"].startswith(f"step {len(steps)}: ") and said[0] in report["stopped"]
        [read] = report["read"]
        assert (read["turns_kept"], read["turns_dropped"], read["memories"]) == (2, 0, 2)


def shorten(folder: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])


def narrow(folder: Path) -> None:
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"hidden_size": settings["hidden_size"] * 2}))


BAD_MODELS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no folder": (shutil.rmtree, "has no config.json"),
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "a config that is no JSON": (lambda f: (f / "config.json").write_text("{zorb"), "not a valid JSON file"),
    "an unknown kind": (lambda f: (f / "config.json").write_text('{"model_type": "zorb"}'), "model type `zorb`"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "no file named model.safetensors"),
    "weights that are a pickle": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        "no file named model.safetensors",
    ),
    "weights cut short": (shorten, "does not load"),
    "weights of another shape": (narrow, "does not load"),
    "a tokenizer that is no JSON": (lambda f: (f / "tokenizer.json").write_text("{zorb"), "does not load"),
    "no tokenizer": (lambda f: [file.unlink() for file in f.glob("tokenizer*")], "does not load"),
}


@pytest.mark.parametrize("what", BAD_MODELS)
def test_a_model_that_does_not_load_is_refused_by_its_path(folder: Path, vault: Path, what: str) -> None:
    harm, said = BAD_MODELS[what]
    model = Path(shutil.copytree(model_path(SMALL_MODEL), folder / "model"))
    harm(model)
    sets = ["--set", f"model.path={model}", "--set", f"vault.path={vault}"]
    error = no(invoke("run", config(folder, ask("plaintext")), "--out", folder / "out", *sets), said)
    assert f"model.path '{model}'" in error and "hub name, or memos-small" in error
    assert len(remembered(vault)) == 2


def test_a_hub_name_that_is_not_there_is_refused(folder: Path, vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    sets = ["--set", "model.path=zorb/zorb", "--set", f"vault.path={vault}"]
    result = invoke("run", config(folder, ask("plaintext")), "--out", folder / "out", *sets)
    no(result, "model.path 'zorb/zorb' does not load", "give a folder with config.json")


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_an_out_that_cannot_be_written_is_refused(folder: Path, where: str) -> None:
    (folder / "file").write_text("kept")
    no(invoke("run", config(folder, INGEST), "--out", folder / where), f"--out {folder / where} cannot be written")
    assert (folder / "file").read_text() == "kept"


def test_two_runs_in_one_folder_are_refused(folder: Path) -> None:
    (folder / "out").mkdir()
    with (folder / "out" / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        no(invoke("run", config(folder, INGEST), "--out", folder / "out"), "another run is going on in", "wait for it")
    assert not (folder / "out" / "progress.json").exists()


def test_an_unfinished_run_of_another_config_is_not_written_over(folder: Path) -> None:
    first, out = config(folder, INGEST, ask("none", "later.jsonl")), folder / "out"
    no(invoke("run", first, "--out", out))
    other = config(folder, INGEST, seed=1)
    no(invoke("run", other, "--out", out), "holds an unfinished run of another config; choose another --out, or begin")
    assert invoke("run", other, "--out", out, "--fresh").exit_code == 0
    for progress in ("[]", '{"config": "a", "steps": 2, "done": 1, "seconds": 0.5}'):
        (out / "progress.json").write_text(progress)
        no(invoke("run", other, "--out", out), "progress.json is not the progress of a run", "begin anew with --fresh")


# payloads that do not fit


@pytest.mark.parametrize("via, form", [("activation", "*.safetensors"), ("parametric", "*/adapter_model.safetensors")])
def test_a_corrupt_payload_is_refused_and_the_text_still_answers(
    folder: Path, vault: Path, via: str, form: str
) -> None:
    [payload] = [file for file in (vault / "blobs").glob(f"*/{form}")]
    content = bytearray(payload.read_bytes())
    content[-1] ^= 1
    payload.write_bytes(content)
    sets = ["--out", folder / "out", "--set", f"vault.path={vault}"]
    said = no(invoke("run", config(folder, ask(via)), *sets), "does not match its digest", "promote its sources again")
    named = payload if via == "activation" else payload.parent
    assert str(named) in said
    assert invoke("run", config(folder, ask("plaintext")), "--fresh", *sets).exit_code == 0
    again = config(folder, {"promote": {"to": via}}, ask(via), distil=BESIDE)
    assert invoke("run", again, "--fresh", *sets).exit_code == 0


@pytest.mark.parametrize("via", ["activation", "parametric"])
def test_a_payload_of_another_model_is_refused_by_what_differs(folder: Path, vault: Path, via: str) -> None:
    model = Path(shutil.copytree(model_path(SMALL_MODEL), folder / "model"))
    weights = load_file(model / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1e-3
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    sets = ["--out", folder / "out", "--set", f"vault.path={vault}", "--set", f"model.path={model}"]
    said = no(invoke("run", config(folder, ask(via)), *sets), "was made by another host: weights ")
    assert "load that model, or promote the sources again on this one" in said
    assert invoke("run", config(folder, ask("auto")), "--fresh", *sets).exit_code == 0


# interrupted


@pytest.mark.sqlite
@pytest.mark.slow
def test_a_run_that_is_interrupted_says_so_and_completes_when_run_again(folder: Path) -> None:
    long = BRIEF | {"steps": 40, "stop_probability": 1.0}
    command = [*MEMOS, "run", str(config(folder, INGEST, LORA, ask("parametric"), distil=long)), "--out", "out"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=None) as process:
        while not running(folder / "out" / "vault" / "vault.db"):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; what was acknowledged is kept" in error and "Traceback" not in error
    assert not list((folder / "out" / "vault" / "blobs").rglob("*.safetensors"))
    assert len(remembered(folder / "out" / "vault")) == 2
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    report = json.loads((folder / "out" / "report.json").read_text())
    assert [(p["to"], p["accepted"]) for p in report["promotions"]] == [("parametric", True)]
    with MemOS(vault=folder / "out" / "vault") as memos:
        assert problems_of(memos.vault) == [] and len(memos.cubes()) == 3


def running(database: Path) -> bool:
    """True once a promotion has begun."""
    if not database.is_file():
        return False
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
            return bool(db.execute("SELECT 1 FROM jobs WHERE state = 'running'").fetchall())
    except sqlite3.OperationalError:  # not made yet
        return False


def test_refusals_that_say_the_same_are_told_once() -> None:
    def refused(why: str, *ids: str) -> PromotionReport:
        return {"to": "parametric", "sources": list(ids), "accepted": False, "why": why.format(", ".join(ids))}

    promotions = [
        refused("no question about {}: none", "a", "b"),
        refused("no room", "c"),
        refused("no question about {}: none", "d"),
    ]
    assert list(remarks({"read": [], "promotions": promotions})) == [  # type: ignore[typeddict-item]
        "refused, 2 promotions: no question about their memories: none",
        "refused: no room",
    ]
