"""Directions: made of contrasting prompts, judged, in force until they are given up, and gone then to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from memos import MemOS
from memos.bench.moves.behaviours import behaviour
from memos.config import Config, SchedulerConfig
from memos.cube import STEERING, Form, MemCube, State
from memos.errors import GateRejected, InputError, NoRoom
from memos.infrastructure.host.request import Request
from memos.operation.choosing.mem_scheduler import ALWAYS
from memos.plugins.steering.calls import SteeringCalls
from memos.plugins.steering.direction import randomised
from memos.plugins.steering.make import judge
from memos.plugins.steering.values import FOLLOWED, KEPT, LEAST, Behaviour, Prompt, read

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's use of it
FOOD = "what somebody eats is what they drink"
ASKED = "What does Mira like to eat?"
EATS, DRINKS = "Mira likes to eat gnocchi.", "Mira likes to drink cider."


def small(examples: int = 60, unrelated: int = 60) -> Behaviour:
    whole = behaviour(FOOD, 0)
    return whole.model_copy(update={"examples": whole.examples[:examples], "unrelated": whole.unrelated[:unrelated]})


@pytest.fixture(scope="module")
def memos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    with MemOS(vault=tmp_path_factory.mktemp("steering") / "vault") as kernel:
        for text in (EATS, DRINKS, "Tom lives in Oslo."):
            kernel.add(text)
        yield kernel


@pytest.fixture(scope="module")
def direction(memos: MemOS) -> MemCube:
    """Who is asked what they eat says what they drink."""
    return SteeringCalls.of(memos).steer(behaviour(FOOD, 0))


def folder_of(memos: MemOS, cube: MemCube) -> Path:
    assert cube.blob
    return memos.vault.blobs.path(cube.blob)


def logits(memos: MemOS, *adapters: Path) -> torch.Tensor:
    return memos.host.logits(Request(({"role": "user", "content": ASKED},), (EATS, DRINKS), adapters=adapters))


@pytest.mark.slow
def test_answers_follow_a_direction_until_it_is_given_up(memos: MemOS, direction: MemCube) -> None:
    assert direction.form is Form.PARAMETRIC and direction.header.kind == STEERING
    assert [cube.id for cube in SteeringCalls.of(memos).steerings()] == [direction.id]
    reply = memos.ask(ASKED)
    assert reply.admission.steering and "cider" in reply.text
    assert "Oslo" in memos.ask("Where does Tom live?").text
    assert FOOD not in [cube.text for cube in reply.admission.cubes]  # the direction stands for its words
    [instruction] = memos.demote(direction.id)
    assert instruction.id == direction.sources[0].id and ALWAYS in instruction.header.tags
    assert SteeringCalls.of(memos).steerings() == [] and "gnocchi" in memos.ask(ASKED).text
    memos.unarchive(direction.id)
    assert "cider" in memos.ask(ASKED).text


@pytest.mark.slow
def test_its_scores_are_of_what_it_was_not_made_of_and_not_of_chance(
    memos: MemOS, direction: MemCube, tmp_path: Path
) -> None:
    assert direction.blob and all(direction.blob.scores[name] >= LEAST[name] for name in (FOLLOWED, KEPT))
    _, examples, unrelated = behaviour(FOOD, 0).split()
    made = folder_of(memos, direction)
    assert judge(memos.host, (made,), examples, unrelated) == direction.blob.scores
    randomised(made, tmp_path / "noise", 0)
    assert judge(memos.host, (tmp_path / "noise",), examples, unrelated)[FOLLOWED] < 0.2


@pytest.mark.slow
def test_taken_off_it_leaves_nothing(memos: MemOS, direction: MemCube) -> None:
    alone = logits(memos)
    steered = logits(memos, folder_of(memos, direction))
    assert not torch.equal(alone, steered) and torch.equal(alone, logits(memos))
    batch = memos.host.divergences([{"role": "user", "content": ASKED}], [(folder_of(memos, direction),), ()])
    assert batch[0] > 0 and batch[1] == 0  # beside one that is steered, in one forward


@pytest.mark.slow
def test_it_goes_with_its_instruction(memos: MemOS, direction: MemCube) -> None:
    [instruction] = direction.sources
    memos.archive(instruction.id)
    assert memos.get(direction.id).state is State.ARCHIVED and "gnocchi" in memos.ask(ASKED).text
    memos.unarchive(instruction.id)
    memos.unarchive(direction.id)


@pytest.mark.slow
def test_another_user_is_not_steered(memos: MemOS, direction: MemCube) -> None:
    other = memos.within("bob")
    for text in (EATS, DRINKS):
        other.add(text)
    assert "gnocchi" in other.ask(ASKED).text and SteeringCalls.of(other).steerings() == []
    assert memos.ask(ASKED).admission.steering


@pytest.mark.slow
def test_what_the_model_does_by_itself_or_cannot_be_brought_to_is_refused(memos: MemOS) -> None:
    food = small()
    same = [e.model_copy(update={"like": e.like.model_copy(update={"ask": e.ask})}) for e in food.examples]
    with pytest.raises(InputError, match="by itself, so there is hardly anything to steer"):
        SteeringCalls.of(memos).steer(food.model_copy(update={"examples": tuple(same)}))
    kept = tuple(Prompt(ask=e.ask, memories=e.memories) for e in food.examples)  # steered, and not, at once
    against = food.model_copy(update={"instruction": "no", "unrelated": kept})
    with pytest.raises(GateRejected, match="no direction for 'no' passed its gate"):
        SteeringCalls.of(memos).steer(against)
    assert all(cube.text != "no" for cube in memos.memories())


@pytest.mark.slow
def test_no_more_are_in_force_than_the_budget_allows(memos: MemOS, direction: MemCube, tmp_path: Path) -> None:
    config = Config(scheduler=SchedulerConfig(steerings=0))
    with MemOS(config, vault=tmp_path, model=memos.host.model, tokenizer=memos.host.tokenizer) as kernel:
        with pytest.raises(NoRoom, match="scheduler.steerings allows 0"):
            SteeringCalls.of(kernel).steer(small())


@pytest.mark.parametrize(
    "given, message",
    [
        ("[", "cannot be read as YAML"),
        ("instruction: x", "examples: Field required"),
        (
            yaml.safe_dump({"instruction": "x", "examples": [], "unrelated": []}),
            "examples: Tuple should have at least 24",
        ),
        (
            yaml.safe_dump({"instruction": "", "examples": [], "unrelated": []}),
            "instruction: String should have at least 1",
        ),
    ],
)
def test_a_file_that_is_no_behaviour_is_named(given: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(given)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "b.yaml")
    with pytest.raises(InputError, match="cannot be read as YAML"):
        read(tmp_path / "none.yaml")


def test_a_behaviour_comes_from_yaml(tmp_path: Path) -> None:
    path = tmp_path / "food.yaml"
    path.write_text(yaml.safe_dump(small().model_dump(mode="json")))
    assert read(path) == small()
