"""What a YAML may say, and what a reader is told who wrote it wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from memos.config import Config, Section, load_config
from memos.errors import ConfigError
from memos.plugins.experiment.config import AskStep, IngestStep, RunConfig, Step, load_run, parse_run

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str) -> Path:
        file = tmp_path / "run.yaml"
        file.write_text(text, "utf-8")
        return file

    return to_file


def test_an_empty_file_is_the_default(write: Write) -> None:
    assert load_config(write("")) == Config()


def test_a_given_key_is_taken_and_the_rest_stay_default(write: Write) -> None:
    config = load_config(write("scheduler:\n  top_k: 3\n"))
    assert config.scheduler.top_k == 3
    assert config.scheduler.prompt_tokens == Config().scheduler.prompt_tokens


@pytest.mark.parametrize(
    "text, told",
    [
        ("modle: {}", "modle: unknown key; did you mean model?"),
        ("scheduler: {topk: 3}", "scheduler.topk: unknown key; did you mean top_k?"),
        ("distil: {gate: {locallity: 1.0}}", "distil.gate.locallity: unknown key; did you mean locality?"),
        ("vault: {zzz: 1}", "vault.zzz: unknown key; known keys: blobs, cache_bytes, jobs, key, path"),
        (
            "experiment: {steps: [{ask: {via: none, question: q.jsonl}}]}",
            "experiment.steps.0.ask.question: unknown key; did you mean questions?",
        ),
    ],
)
def test_a_typo_is_told_with_its_path_and_the_nearest_key(write: Write, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_run(write(text))
    assert told in str(error.value)


@pytest.mark.parametrize(
    "text, path, rule, given",
    [
        ("scheduler: {top_k: many}", "scheduler.top_k", "integer", "'many'"),
        ("scheduler: {top_k: 0}", "scheduler.top_k", "greater than or equal to 1", "0"),
        ("model: {device: tpu}", "model.device", "'auto', 'cpu' or 'cuda'", "'tpu'"),
        ("model: 7", "model", "dictionary", "7"),
        ("model: {memory_line: oops}", "model", "memory_line must contain {text}", "oops"),
        ("decode: {beams: 2, temperature: 1}", "decode", "beams > 1 needs temperature 0", "temperature"),
        ("scheduler: {cool_heat: 9}", "scheduler", "cool_heat < activate_heat", "9"),
        ("scheduler: {low_water: 1}", "scheduler", "low_water <= high_water", "1"),
        ("scheduler: {segments: 0}", "scheduler.segments", "greater than or equal to 1", "0"),
        ("experiment: {steps: [{tick: 0}]}", "experiment.steps.0.tick", "greater than or equal to 1", "0"),
        ("experiment: {steps: [{ingest: a.txt, tick: 1}]}", "experiment.steps.0", "one key of ingest, ask", "tick"),
        ("experiment: {steps: [{digest: a.txt}]}", "experiment.steps.0", "one key of ingest, ask", "digest"),
    ],
)
def test_a_wrong_value_is_told_with_its_path_the_rule_and_what_was_given(
    write: Write, text: str, path: str, rule: str, given: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load_run(write(text))
    message = str(error.value)
    assert message.startswith(path + ":")
    assert rule in message
    assert given in message


def test_every_mistake_is_told_at_once(write: Write) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(write("scheduler: {topk: 1}\nmodel: {device: tpu}"))
    assert "scheduler.topk" in str(error.value)
    assert "model.device" in str(error.value)


def test_an_override_wins_over_the_file_and_reads_yaml_values(write: Write) -> None:
    file = write("scheduler: {top_k: 3}")
    config = load_config(file, ("scheduler.top_k=5", "distil.gate.locality=0.5", "decode.stop=[a, b]", "vault.path=x"))
    assert (config.scheduler.top_k, config.distil.gate.locality) == (5, 0.5)
    assert (config.decode.stop, config.vault.path) == (("a", "b"), Path("x"))


@pytest.mark.parametrize(
    "override, told",
    [
        ("scheduler.top_k", "write it as a.b=value"),
        ("=3", "write it as a.b=value"),
        ("scheduler.topk=3", "did you mean top_k?"),
        ("seed.x=3", "seed is not a section"),
        ("decode.stop=[a", "is not a YAML value"),
    ],
)
def test_a_wrong_override_is_told(write: Write, override: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(write("seed: 1"), (override,))
    assert told in str(error.value)


def test_files_of_steps_are_relative_to_the_yaml(write: Write, tmp_path: Path) -> None:
    config = load_run(write("experiment: {steps: [{ingest: talk.jsonl}, {ask: {via: none, questions: /abs/q.jsonl}}]}"))
    ingest, ask = config.experiment.steps
    assert isinstance(ingest, IngestStep)
    assert isinstance(ask, AskStep)
    assert ingest.ingest == tmp_path / "talk.jsonl"
    assert ask.ask.questions == Path("/abs/q.jsonl")


def test_a_missing_file_is_told_with_the_files_that_are_there(write: Write) -> None:
    near = write("")
    with pytest.raises(ConfigError, match=r"no config file .*other\.yaml; here are run\.yaml"):
        load_config(near.with_name("other.yaml"))


@pytest.mark.parametrize(
    "text, told",
    [("- a\n- b", "must be a mapping"), ("a: [", "not a readable YAML file"), ("just words", "not str")],
)
def test_a_file_that_is_no_mapping_is_refused(write: Write, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(write(text))
    assert "run.yaml" in str(error.value)
    assert told in str(error.value)


def test_a_config_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().seed = 1  # type: ignore[misc]


def test_a_config_survives_its_own_dump() -> None:
    config = parse_run({"experiment": {"steps": [{"tick": 2}, {"promote": {"to": "parametric"}}]}})
    assert parse_run(config.model_dump(mode="json")) == config


# Keys whose name, type and bounds say all there is to say.
SELF_EVIDENT = {
    *("seed", "name", "steps", "attention", "max_new_tokens", "top_p", "rank", "alpha", "targets", "learning_rate"),
    *("via", "to", "ask", "promote", "demote", "gate", "stop_probability"),
}


def sections(section: type[Section]) -> Iterator[type[Section]]:
    """The section and those beneath it."""
    yield section
    for field in section.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from sections(field.annotation)


def test_every_key_says_what_it_is_for() -> None:
    silent = [
        f"{section.__name__}.{name}"
        for root in (RunConfig, *get_args(Step))
        for section in sections(root)
        for name, field in section.model_fields.items()
        if not field.description and name not in SELF_EVIDENT and name not in Config.model_fields
    ]
    assert silent == []
