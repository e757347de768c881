"""What undoes a pipeline: taken once, call by call, by its user, until somebody whom it names is forgotten."""

from __future__ import annotations

from pathlib import Path

from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.tables import job_list
from memos.ops import Call

CALLS = [("revoke", ("cube1", "ann", "reader"), {}), ("grant", ("cube1", 'group:bo"b/team', "reader"), {"until": None})]


def all_of(vault: MemVault, id: str, user: str) -> list[Call]:
    """In the order in which they were put."""
    return list(iter(lambda: vault.pipelines.take(id, user), None))[::-1]


def test_a_pipeline_is_taken_once_and_by_its_user(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault, vault.transaction():
        vault.pipelines.put("p", "ada", CALLS)
        assert vault.pipelines.take("p", "eve") is None
        assert vault.pipelines.take("p", "ada") == CALLS[1]
        vault.pipelines.give_back("p", "ada", CALLS[1])
        assert all_of(vault, "p", "ada") == CALLS
        assert vault.pipelines.take("p", "ada") is None


def test_the_latest_of_each_user_are_kept(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault, vault.transaction():
        for n in range(job_list.KEPT_PIPELINES + 2):
            vault.pipelines.put(f"p{n}", "ada", CALLS)
        vault.pipelines.put("q", "eve", CALLS)
        assert vault.pipelines.take("p1", "ada") is None
        assert all_of(vault, "p2", "ada") == CALLS and all_of(vault, "q", "eve") == CALLS


def test_a_forgotten_user_is_named_by_no_pipeline_and_the_others_stay(tmp_path: Path) -> None:
    with MemVault(tmp_path) as vault:
        for user in ("ann", 'bo"b', "an"):
            with vault.transaction():
                vault.pipelines.put("p", "joanna", CALLS)
            vault.forgetting.forget(user, [])
            with vault.transaction():
                assert all_of(vault, "p", "joanna") == (CALLS if user == "an" else [])
