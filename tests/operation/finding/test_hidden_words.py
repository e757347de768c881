"""What is indexed of a memory of which a part is masked for all but its owner."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest

from memos.config import GovernanceConfig, RedactionConfig
from memos.cube import Form, Header, MemCube, Namespace, Rights, Text
from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.finding.catalog import View
from memos.operation.finding.keyword_index import HiddenWords, Matches
from memos.operation.finding.mem_operator import FoundMemory, MemOperator
from memos.plugins.policies.baselines import KEYWORDS

NOON = datetime(2025, 5, 22, 12, tzinfo=timezone.utc)
MASKED = GovernanceConfig(redaction=RedactionConfig(email="before_use"))
OTHER_RULES = GovernanceConfig(redaction=RedactionConfig(email="before_use", card="before_use"))
ANN, BOB = (View(user, lambda *_: True, owner=user) for user in ("ann", "bob"))


class Even:
    """One vector for all; what it reads is remembered."""

    name, dim = "even@1", 4

    def __init__(self) -> None:
        self.texts: list[str] = []

    def read(
        self, texts: Sequence[str], spans: Sequence[tuple[int, int]] | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        self.texts += texts
        return [(np.full(self.dim, 0.5, np.float32), np.ones((1, self.dim), np.int8)) for _ in texts]


def cube(id: str, text: str, user: str = "ann", thread: str = "") -> MemCube:
    return MemCube(
        id=id, form=Form.PLAINTEXT, namespace=Namespace(user_id=user), rights=Rights(owner=user),
        header=Header(created=NOON, thread=thread), payload=Text(text=text),
    )  # fmt: skip


def read_anew(folder: Path, rules: GovernanceConfig) -> list[str]:
    """What is embedded when the vault is opened under these rules."""
    embedder = Even()
    with MemVault(folder, governance=rules) as vault:
        operator = MemOperator(vault, embedder)
        operator.refresh()
        vault.index.save(operator._follower._layout, embedder.name, operator.read, operator._follower.indexes.packed())
    return sorted(embedder.texts)


def best(found: Sequence[FoundMemory]) -> list[str]:
    return [one.id for one in found if one.score > 0]


def test_vectors_are_made_anew_where_the_rules_mask_and_nowhere_else(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault:
        for one in (
            cube("a", "write to ann@example.org", thread="t"),
            cube("b", "or knock", thread="t"),
            cube("c", "tea"),
        ):
            vault.put(one)
    whole = ["write to ann@example.org or knock"] * 2
    masked = ["write to [email] or knock"] * 2
    assert read_anew(tmp_path, GovernanceConfig()) == sorted(["tea", *whole])
    assert read_anew(tmp_path, GovernanceConfig()) == []
    assert read_anew(tmp_path, MASKED) == masked
    assert read_anew(tmp_path, MASKED) == []
    assert read_anew(tmp_path, OTHER_RULES) == masked  # by other rules, which may have masked more
    assert read_anew(tmp_path, GovernanceConfig()) == whole


def test_kept_indexes_know_what_is_hidden_and_forget_what_is_gone(tmp_path: Path) -> None:
    with MemVault(tmp_path, governance=MASKED) as vault:
        for one in (
            cube("x", "old@example.net"),
            cube("a", "write to quill@example.org"),
            cube("b", "quill pens", "bob"),
        ):
            vault.put(one)
        operator = MemOperator(vault, Even())
        operator.refresh()
        vault.delete(["x"])
        operator.refresh()
        vault.index.save(operator._follower._layout, "even@1", operator.read, operator._follower.indexes.packed())
    with MemVault(tmp_path, governance=MASKED) as vault:
        again = MemOperator(vault, Even())
        assert best(again.search("quill", 3, ANN, KEYWORDS.score)) == ["a", "b"]
        assert best(again.search("quill", 3, BOB, KEYWORDS.score)) == ["b"]
        assert best(again.search("old", 3, ANN, KEYWORDS.score)) == []
        assert again.search("quill", 3, BOB)[0].score == again.search("marsh", 3, BOB)[0].score
        vault.put(cube("c", "quill@example.org, the second"))  # on top of what was kept
        assert set(best(again.search("quill", 3, ANN, KEYWORDS.score))) == {"a", "b", "c"}


def test_only_what_is_not_shown_is_hidden_and_only_in_own_rows() -> None:
    hidden = HiddenWords()
    hidden.add(3, ["room", "415", "call", "415"], ["room", "415", "call", "phone"])
    hidden.add(5, ["tea"], ["tea"])
    own = np.ones(8, bool)
    assert [rows.tolist() for rows, _ in hidden.matches(["415", "room"], own).found] == [[3], []]
    assert [rows.tolist() for rows, _ in hidden.matches(["415"], ~own).found] == [[]]


def test_shown_and_hidden_words_of_a_row_count_together() -> None:
    shown = Matches([(np.array([1, 3]), np.array([1, 1], np.float32))])
    [(rows, counts)] = shown.joined(Matches([(np.array([3, 7]), np.array([2, 1], np.float32))])).found
    assert (rows.tolist(), counts.tolist()) == ([1, 3, 7], [1, 3, 1])


@pytest.mark.parametrize("view", [ANN, BOB])
def test_where_nothing_is_masked_all_are_found_by_all_words(tmp_path: Path, view: View) -> None:
    with MemVault(tmp_path) as vault:
        vault.put(cube("a", "write to quill@example.org"))
        assert best(MemOperator(vault, Even()).search("quill", 1, view, KEYWORDS.score)) == ["a"]
