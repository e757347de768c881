"""Settings of `memos run`: the steps of an experiment, each recognised by its one key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, ValidationError, model_validator

from memos.config import Config, load_config
from memos.config.section import Section, explain
from memos.cube import Form
from memos.errors import ConfigError


class IngestStep(Section):
    ingest: Path = Field(description="a conversation (.jsonl), .txt or .md file; relative to the YAML")


class AskStep(Section):
    class Ask(Section):
        via: Literal["none", "plaintext", "activation", "parametric", "auto"]
        questions: Path = Field(description="JSONL of {question, answer}; relative to the YAML")

    ask: Ask


class PromoteStep(Section):
    class Promotion(Section):
        to: Literal[Form.ACTIVATION, Form.PARAMETRIC]
        rule: Literal["all", "hot"] = Field(
            "all", description="all: every topic group by itself; hot: those whose heat asks for it"
        )
        ids: tuple[str, ...] | None = Field(None, description="memories to promote together, instead of a rule")

    promote: Promotion


class DemoteStep(Section):
    class Demotion(Section):
        of: Literal[Form.ACTIVATION, Form.PARAMETRIC] = Field(description="give up every derived cube of this form")

    demote: Demotion


class TickStep(Section):
    tick: int = Field(1, ge=1, description="how many times the scheduler plans and carries out moves")


Step = IngestStep | AskStep | PromoteStep | DemoteStep | TickStep

_STEPS: dict[str, type[Section]] = {key: step for step in get_args(Step) for key in step.model_fields}


class ExperimentConfig(Section):
    name: str = "experiment"
    steps: tuple[Step, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _step_by_name(cls, data: object) -> object:
        """Pick each step's type by its one key, so that an error speaks of that step alone."""
        if not isinstance(data, dict) or not isinstance(data.get("steps"), (list, tuple)):
            return data
        steps = []
        for i, raw in enumerate(data["steps"]):
            if isinstance(raw, Section):
                steps.append(raw)
                continue
            name = next(iter(raw), None) if isinstance(raw, dict) and len(raw) == 1 else None
            if name not in _STEPS:
                raise ConfigError(
                    f"experiment.steps.{i}: {raw!r} is not a step; a step has one key of {', '.join(_STEPS)}"
                )
            try:
                steps.append(_STEPS[name].model_validate(raw))
            except ValidationError as error:
                raise explain(error, f"experiment.steps.{i}.", _STEPS[name]) from None
        return data | {"steps": tuple(steps)}


class RunConfig(Config):
    """The tree of settings with the experiment that `memos run` carries out."""

    experiment: ExperimentConfig = ExperimentConfig()


def load_run(path: Path, overrides: tuple[str, ...] = ()) -> RunConfig:
    """As `load_config`; the paths in its steps are made relative to the file."""
    config = load_config(path, overrides)
    run = parse_run({name: value for name, value in config if value is not None})
    steps = tuple(_relative(step, path.parent) for step in run.experiment.steps)
    return run.model_copy(update={"experiment": run.experiment.model_copy(update={"steps": steps})})


def parse_run(data: Mapping[str, object]) -> RunConfig:
    """A mapping -> RunConfig. Raises ConfigError."""
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        raise explain(error, "", RunConfig) from None


def _relative(step: Step, base: Path) -> Step:
    match step:
        case IngestStep(ingest=file):
            return IngestStep(ingest=base / file)
        case AskStep(ask=ask):
            return AskStep(ask=ask.model_copy(update={"questions": base / ask.questions}))
        case _:
            return step
