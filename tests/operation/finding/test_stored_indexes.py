"""Indexes that are kept: what is found through them is what is found without, whatever came in between."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from memos.cube import Fact, MemCube, State, Text
from memos.errors import VaultError
from memos.infrastructure.vault.blobs.index_store import IndexStore
from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.finding import follower, indexes, mem_operator, vector_index
from memos.operation.finding.mem_operator import MemOperator
from memos.operation.policies.policy import Signals
from tests.operation.finding.test_mem_operator import ALL, ANN, LIVE, WordEmbedder, cube, ids, keep, talk

WORDS = "tea milk harp oslo chess bridge river garden lamp 拿铁 咖啡 été".split()


@pytest.fixture(autouse=True)
def everything_is_worth_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "WORTH_STORING", (1, 0.0))


def some(n: int, seed: int = 0) -> list[MemCube]:
    """Memories of two users in threads, with speakers, kinds, subjects and facts."""
    rng = random.Random(seed)

    def one(i: int) -> MemCube:
        text, who = " ".join(rng.choices(WORDS, k=6)), rng.choice(["Ann", "Bob", "Mary Ann", ""])
        thread, subject = rng.choice(["", "t", "u"]), rng.choice(["", "Mira", "Tom"])
        fact = Fact(subject=rng.choice("ABCD"), relation="knows", object=rng.choice("ABCD"))
        of = {"thread": thread, "speaker": who, "segment": subject, "kind": rng.choice(["fact", "event"])}
        made = cube(f"c{seed}-{i}", text, user=rng.choice(["ann", "bob"]), minute=rng.randrange(n), **of)
        return made.model_copy(update={"payload": Text(text=text, facts=(fact,) if i % 3 else ())})

    return [one(i) for i in range(n)]


def every_signal(signals: Signals) -> np.ndarray:
    of_text = signals.near + signals.tokens + signals.words + signals.around + signals.thread + signals.length
    return of_text + signals.speaker + signals.subject + signals.linked + signals.question


def found(operator: MemOperator, k: int = 12) -> list[list[tuple[str, float]]]:
    queries = ["tea and milk", "Ann's harp", "拿铁", "Mary Ann oslo river été", "nothing of this"]
    return [
        [(one.id, round(one.score, 5)) for one in operator.search(query, k, view, every_signal, about)]
        for query in queries
        for view in (ALL, ANN)
        for about in ([], ["Mira", "A"])
    ]


def without(vault: MemVault, monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[str, float]]]:
    """What is found by one who builds the indexes from the memories."""
    with monkeypatch.context() as patch:
        patch.setattr(IndexStore, "load", lambda *_: None)
        return found(MemOperator(vault, WordEmbedder(), LIVE))


def opened(vault: MemVault, monkeypatch: pytest.MonkeyPatch, reads: int) -> MemOperator:
    """One who reads so many memories to open."""
    parsed, changed_since = list[MemCube](), MemVault.changed_since
    with monkeypatch.context() as patch:

        def counted(self: MemVault, n: int, states: Sequence[State]) -> tuple[list[MemCube], list[str]]:
            changed, gone = changed_since(self, n, states)
            parsed.extend(changed)
            return changed, gone

        patch.setattr(MemVault, "changed_since", counted)
        operator = MemOperator(vault, embedder := WordEmbedder(), LIVE)
        operator.refresh()
    assert len(parsed) == reads
    assert len(embedder.embedded) <= 5 * reads
    return operator


@pytest.mark.parametrize("n", [1, 60])
def test_the_same_is_found_with_the_same_scores(vault: MemVault, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    keep(vault, *some(n))
    first = MemOperator(vault, WordEmbedder(), LIVE)
    before = found(first)
    first.close()
    assert found(opened(vault, monkeypatch, reads=0)) == before == without(vault, monkeypatch)


def test_what_changed_since_is_read(vault: MemVault, monkeypatch: pytest.MonkeyPatch) -> None:
    cubes = some(60)
    keep(vault, *cubes)
    MemOperator(vault, WordEmbedder(), LIVE).close()  # nothing was read, so nothing is kept
    assert vault.index.behind("", "") == 60
    first = MemOperator(vault, WordEmbedder(), LIVE)
    first.refresh()
    first.close()
    keep(vault, *some(15, seed=1))
    edited = cubes[7].model_copy(update={"version": 2, "payload": Text(text="tea oslo 咖啡 again")})
    keep(vault, edited)
    vault.set_state(cubes[8].id, State.ARCHIVED, "test")
    vault.set_state(cubes[9].id, State.ACTIVATED, "test")
    second = opened(vault, monkeypatch, reads=17)
    now = found(second)
    assert now == without(vault, monkeypatch)
    second.close()  # with rows that are gone
    assert found(opened(vault, monkeypatch, reads=0)) == now


def test_many_that_come_at_once_are_indexed_as_they_are_one_by_one(
    vault: MemVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(vault, *some(60))
    expected = without(vault, monkeypatch)
    monkeypatch.setattr(indexes, "MIN_BULK_ROWS", 20)
    assert without(vault, monkeypatch) == expected
    later = MemOperator(vault, WordEmbedder(), LIVE)
    later.refresh()
    keep(vault, *some(90, seed=1))
    assert found(later) == without(vault, monkeypatch)


def test_the_graph_is_kept(vault: MemVault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_index, "EXACT_ROWS", 1)
    monkeypatch.setattr(mem_operator, "MAX_ROWS_RANKED_WHOLE", 0)
    keep(vault, *some(400))
    first = MemOperator(vault, WordEmbedder(), LIVE, exact_ms=0)
    first.search("tea", 1, ALL)
    first.settle()
    before = found(first)
    first.close()
    again = MemOperator(vault, WordEmbedder(), LIVE, exact_ms=0)
    again.refresh()
    assert again._follower.indexes.vectors._graph is not None
    assert found(again) == before
    keep(vault, *some(20, seed=1))
    again.refresh()
    assert again._follower.indexes.vectors._graph.ntotal > 400
    exact = MemOperator(vault, WordEmbedder(), LIVE, exact_ms=1e9)
    hits = [len(set(ids(again.search(w, 10, ALL))) & set(ids(exact.search(w, 10, ALL)))) for w in WORDS]
    assert sum(hits) / (10 * len(WORDS)) >= 0.97


def test_embedding_that_was_cut_short_goes_on(vault: MemVault, monkeypatch: pytest.MonkeyPatch) -> None:
    class CutShort(WordEmbedder):
        def read(
            self, texts: Sequence[str], spans: Sequence[tuple[int, int]] | None = None
        ) -> list[tuple[np.ndarray, np.ndarray]]:
            operator._follower._closing.set()
            return super().read(texts, spans)

    keep(vault, *some(300))
    operator = MemOperator(vault, first := CutShort(), LIVE)
    operator.refresh()
    operator.close()
    then = MemOperator(vault, second := WordEmbedder(), LIVE)
    then.refresh()
    assert first.embedded and len(first.embedded) + len(second.embedded) == 300
    assert found(then) == without(vault, monkeypatch)


def spoilt(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize(
    "embedder, spoil, told",
    [
        ("words@1", spoilt, "does not match its checksum"),
        pytest.param("words@1", Path.unlink, "No such file", marks=pytest.mark.sqlite),  # a server has another copy
        ("words@2", Path.exists, "is of embedder 'words@1', not 'words@2'"),
    ],
)
def test_what_does_not_fit_is_named_and_built_from_the_memories(
    vault: MemVault,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    embedder: str,
    spoil: Callable[[Path], object],
    told: str,
) -> None:
    keep(vault, *some(30))
    first = MemOperator(vault, WordEmbedder(), LIVE)
    before = found(first)
    first.close()
    [path] = (vault.path / "index").iterdir()
    spoil(path)
    with caplog.at_level(logging.WARNING, "memos"):
        again = MemOperator(vault, WordEmbedder(embedder), LIVE)
        now = found(again)
    assert told in caplog.text and "built from the memories" in caplog.text
    assert (now == before) == (embedder == "words@1")
    again.close()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "memos"):  # it was kept anew
        assert found(MemOperator(vault, WordEmbedder(embedder), LIVE)) == now
    assert caplog.text == ""


def test_an_index_of_an_older_layout_or_of_other_states_is_built_anew(
    vault: MemVault, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep(vault, *some(30))
    first = MemOperator(vault, WordEmbedder(), LIVE)
    before = found(first)
    first.close()
    with caplog.at_level(logging.WARNING, "memos"), monkeypatch.context() as patch:
        patch.setattr(follower, "INDEX_LAYOUT", "index/7")
        assert found(MemOperator(vault, WordEmbedder(), LIVE)) == before
    assert "is of layout 'index/6" in caplog.text
    vault.set_state("c0-3", State.ARCHIVED, "test")
    everything = MemOperator(vault, WordEmbedder())
    assert everything.in_view(ALL) == (30, 30)


def test_a_deleted_text_is_in_no_index(vault: MemVault, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_disk() -> bytes:
        return b"".join(path.read_bytes() for path in vault.path.rglob("*") if path.is_file())

    secret = cube(
        "secret", "the limpet knows", speaker="Zoe", segment="Limpetry", thread="limpetthread", kind="limpetkind"
    )
    told = Text(text="the limpet knows", facts=(Fact(subject="Limpetta", relation="pet", object="limpeto"),))
    keep(vault, *some(40), secret.model_copy(update={"payload": told}), *talk("who", "she", "they"))
    operator = MemOperator(vault, WordEmbedder(), LIVE)
    operator.refresh()
    direction = operator._follower.indexes.vectors._vectors.all[
        operator._follower.indexes.catalog.row("secret")
    ].tobytes()
    operator.close()
    assert on_disk().lower().count(b"limpet") > 5 and direction in on_disk()
    vault.delete(["secret"])
    assert b"limpet" not in on_disk().lower() and direction not in on_disk()
    operator = MemOperator(vault, WordEmbedder(), LIVE)
    operator.refresh()
    keep(vault, secret.model_copy(update={"payload": told}))
    operator.refresh()
    vault.delete(["secret"])  # it is in the indexes still
    operator.close()
    assert vault.index.behind(operator._follower._layout, "words@1") == 0  # they were kept, without it
    for trace in (b"limpet", b"zoe"):
        assert trace not in on_disk().lower()
    assert direction not in on_disk()
    assert found(opened(vault, monkeypatch, reads=0)) == without(vault, monkeypatch)


def test_a_graph_forgets_the_vectors_of_what_is_gone(vault: MemVault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_index, "EXACT_ROWS", 1)
    monkeypatch.setattr(mem_operator, "MAX_ROWS_RANKED_WHOLE", 0)
    keep(vault, *some(200), cube("secret", "limpet limpet"))
    operator = MemOperator(vault, WordEmbedder(), LIVE, exact_ms=0)
    operator.search("tea", 1, ALL)
    operator.settle()
    operator.search("tea", 1, ALL)
    direction = operator._follower.indexes.vectors._vectors.all[
        operator._follower.indexes.catalog.row("secret")
    ].tobytes()
    vault.delete(["secret"])
    operator.close()
    again = MemOperator(vault, WordEmbedder(), LIVE, exact_ms=0)
    again.refresh()
    assert again._follower.indexes.vectors._graph.ntotal == 201
    assert direction not in b"".join(path.read_bytes() for path in vault.path.rglob("*") if path.is_file())
    there = ids(again.search("limpet tea", 250, ALL))
    assert len(there) > 100 and "secret" not in there


def test_two_on_one_vault_keep_in_turn(vault: MemVault, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(vault, *some(40))
    with MemVault(vault.path) as beside:
        one, other = (MemOperator(v, WordEmbedder(), LIVE) for v in (vault, beside))
        one.refresh(), other.refresh()
        keep(vault, *some(10, seed=1))
        one.refresh()
        one.close()
        other.close()
        beside.delete(["c0-1"])
        one._follower._store()
        other._follower._store()
    assert len(list((vault.path / "index").iterdir())) == 1
    assert found(opened(vault, monkeypatch, reads=0)) == without(vault, monkeypatch)


def test_a_folder_that_cannot_be_written_costs_the_next_opening_only(
    vault: MemVault, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (vault.path / "index").write_text("a file in the way")
    keep(vault, *some(30))
    operator = MemOperator(vault, WordEmbedder(), LIVE)
    before = found(operator)
    with caplog.at_level(logging.WARNING, "memos"):
        operator.close()
    assert "was not written" in caplog.text
    assert found(MemOperator(vault, WordEmbedder(), LIVE)) == before


def test_many_changes_are_kept_in_the_background(vault: MemVault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "WORTH_STORING_SOON", (20, 0.25))
    operator = MemOperator(vault, WordEmbedder(), LIVE)
    operator.refresh_soon()
    keep(vault, *some(30))
    operator.refresh_soon()
    operator.settle()
    assert vault.index.behind(operator._follower._layout, "words@1") == 0
    vault.delete(["c0-7"])
    operator.refresh_soon()
    operator.settle()
    assert vault.index.behind(operator._follower._layout, "words@1") == 29  # not with each deletion
    operator.close()
    assert vault.index.behind(operator._follower._layout, "words@1") == 0


def test_few_changes_are_not_worth_writing_all_again(vault: MemVault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    keep(vault, *some(30))
    operator = MemOperator(vault, WordEmbedder(), LIVE)
    operator.refresh()
    operator.close()
    assert not (vault.path / "index").exists()


def test_a_vault_that_cannot_be_read_when_closing_says_so(vault: MemVault) -> None:
    keep(vault, cube("a", "tea"))
    operator = MemOperator(vault, WordEmbedder(), LIVE)
    operator.refresh()
    vault.close()
    with pytest.raises(VaultError):
        operator.refresh()
    operator.close()  # nothing is lost: it is a copy
