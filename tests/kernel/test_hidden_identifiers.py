"""What a search tells of identifiers that are masked before use: to their owner all, to everybody else nothing, not by
a score either. Two kernels are told the same but for the identifiers, and must not be told apart by what others ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.config import parse_config
from memos.cube import Fact
from memos.ops import Add
from memos.plugins.policies.memoryos import MemoryOSTiers

ONE = {"phone": "415-555-2671", "email": "ada.quill@example.org", "badge": "KX-48213"}
OTHER = {"phone": "212-555-0143", "email": "zoe.marsh@example.com", "badge": "QN-90756"}
GUESSES = (
    "call 415-555-2671",
    "415-555",
    "415",
    "4155552671",
    "call 212-555-0143",
    "212 555 01",
    "ada.quill",
    "ada.quill@example.org",
    "Who has the badge KX-48213?",
    "KX-4821",
    "48213",
)
POLICIES = ("memos", "plain-rag", "keywords", "memoryos")


def kernel(path: Path, of: dict[str, str]) -> MemOS:
    badge = {"pattern": r"\b[A-Z]{2}-\d{5}\b", "do": "before_use"}
    redaction = {"phone": "before_use", "email": "before_use", "custom": {"badge": badge}}
    policies = dict.fromkeys(("ada", "cleo"), "memoryos")
    config = parse_config({"governance": {"redaction": redaction}, "policies": policies})
    memos = MemOS(config, vault=path)
    phone, email, key = of["phone"], of["email"], of["badge"]
    stated = Fact(subject="Ada", relation="phone", object=phone)
    owned = Fact(subject=key, relation="city", object="Lisbon")
    said = [
        Add(text=f"My phone number is {phone}.", facts=(stated,), segment="Ada", speaker="Ada"),
        Add(text=f"Call the plumber on {phone}.", thread="pipes", speaker="Ada"),
        Add(text="He comes on Monday.", thread="pipes", speaker="Ben"),
        Add(text=f"Write to {email} about the boat.", speaker=email),
        Add(text=f"{key} lives in Lisbon.", facts=(owned,), segment=key),
        Add(text="The boat is blue."),
    ]
    for cube in memos.within("ada").keep(said):
        for user in ("bob", "cleo"):
            memos.within("ada").grant(cube.id, user, "reader")
    memos.within("bob").keep([Add(text="Room 415 is mine."), Add(text="I like tea.")])
    return memos


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MemOS, MemOS]]:
    place = tmp_path_factory.mktemp("hidden")
    with kernel(place / "one", ONE) as one, kernel(place / "other", OTHER) as other:
        yield one, other


def found(memos: MemOS, query: str, policy: str, user: str = "bob") -> list[Any]:
    """Texts with their scores and signals, but for the times."""
    hits = memos.within(user).search(query, top_k=10, policy=policy)
    signals = [{name: value for name, value in hit.why.items() if name not in ("age", "idle")} for hit in hits]
    return [(hit.cube.text, round(hit.score, 4), why) for hit, why in zip(hits, signals, strict=True)]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_found_does_not_depend_on_an_identifier_that_is_hidden(two: tuple[MemOS, MemOS], policy: str) -> None:
    one, other = two
    for guess in GUESSES:
        there = found(one, guess, policy)
        assert there == found(other, guess, policy), guess
        assert len(there) > 4


@pytest.mark.parametrize("policy", POLICIES)
def test_a_guess_that_is_right_finds_what_a_wrong_one_finds(two: tuple[MemOS, MemOS], policy: str) -> None:
    for kind in ONE:
        right, wrong = (f"What about {of[kind]}?" for of in (ONE, OTHER))
        assert found(two[0], right, policy, "cleo") == found(two[0], wrong, policy, "cleo"), kind


def test_the_owner_finds_by_the_whole_and_by_a_part(two: tuple[MemOS, MemOS]) -> None:
    for guess, text in (
        ("Whose number is 415-555-2671?", "415-555-2671"),
        ("2671", "415-555-2671"),
        ("quill", "ada.quill@example.org"),
        ("48213", "KX-48213"),
    ):
        for policy in ("memos", "keywords"):
            assert text in found(two[0], guess, policy, user="ada")[0][0], (guess, policy)


def test_what_is_found_by_owned_words_and_by_shown_ones_adds_up(two: tuple[MemOS, MemOS]) -> None:
    [first, *_] = found(two[0], "415", "keywords", user="bob")
    assert first[0] == "Room 415 is mine."


def test_an_answer_and_its_reasons_rest_on_what_is_shown(two: tuple[MemOS, MemOS]) -> None:
    def told(memos: MemOS, question: str) -> Any:
        admitted = [cube.text for cube in memos.within("bob").ask(question).admission.cubes]
        why = memos.within("bob").explain(question, answer="Lisbon").reasons
        reasons = [(r.cube.text, round(r.score, 4), round(r.change, 3), r.tokens) for r in why]
        return admitted, sorted(reasons)

    for question in ("Whose phone number is 415-555-2671?", "Where does KX-48213 live?", "Who is 415-555?"):
        there = told(two[0], question)
        assert there == told(two[1], question), question


def test_tiers_hold_what_their_reader_is_shown(two: tuple[MemOS, MemOS]) -> None:
    for user, seen in (("cleo", False), ("ada", True)):
        tiers = two[0].within(user).tiers()
        assert isinstance(tiers, MemoryOSTiers)
        assert (ONE["phone"] in str(tiers.short)) is seen
