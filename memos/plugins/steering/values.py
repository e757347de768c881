"""What a direction is to do, by examples; knows no tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from memos.cube import Frozen
from memos.errors import InputError

FOLLOWED, KEPT, TOGETHER = "followed", "kept", "followed together"  # scores
LEAST = {FOLLOWED: 0.9, KEPT: 0.97, TOGETHER: 0.9}  # of the gate
MIN_EXAMPLES, MIN_UNRELATED = 24, 24
_HELD_OUT = 3  # every third example and unrelated prompt is for the gate alone


class Prompt(Frozen):
    """A question over memories."""

    ask: str = Field(min_length=1)
    memories: tuple[str, ...] = ()


class Example(Prompt):
    """A prompt that is to be answered as the model answers another, `like`, which shows it what is wanted."""

    like: Prompt


class Behaviour(Frozen):
    """An instruction that always holds, and what following it means.

    unrelated: prompts whose answers must stay. Every third of both is not learnt from: the gate asks it.
    """

    instruction: str = Field(min_length=1)
    examples: tuple[Example, ...] = Field(min_length=MIN_EXAMPLES)
    unrelated: tuple[Prompt, ...] = Field(min_length=MIN_UNRELATED)

    def split(self) -> tuple[Behaviour, tuple[Example, ...], tuple[Prompt, ...]]:
        """What is learnt from, and the examples and the unrelated prompts of the gate."""
        seen = [e for n, e in enumerate(self.examples) if n % _HELD_OUT]
        kept = [p for n, p in enumerate(self.unrelated) if n % _HELD_OUT]
        learnt = self.model_copy(update={"examples": tuple(seen), "unrelated": tuple(kept)})
        return learnt, self.examples[::_HELD_OUT], self.unrelated[::_HELD_OUT]


def read(path: Path) -> Behaviour:
    """A behaviour as YAML has it. Raises InputError."""
    try:
        given: Any = yaml.safe_load(path.read_text("utf-8"))
        return Behaviour.model_validate(given)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path} cannot be read as YAML: {' '.join(str(error).split())[:200]}") from error
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"])) or "the file"
        raise InputError(
            f"{path}: {place}: {wrong['msg']}; it needs instruction, examples ({MIN_EXAMPLES} or more of ask, memories "
            f"and like) and unrelated ({MIN_UNRELATED} or more of ask and memories)"
        ) from error
