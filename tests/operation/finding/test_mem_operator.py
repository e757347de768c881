"""Search over a real vault, with an embedder of hashed words."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memos.cube import Form, Header, MemCube, Namespace, Rights, State, Text
from memos.errors import HostError, InputError
from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.finding.catalog import View
from memos.operation.finding.mem_operator import FoundMemory, MemOperator
from memos.plugins.policies.baselines import KEYWORDS, LRU, RECENCY

LIVE = (State.GENERATED, State.ACTIVATED)
NOON = datetime(2025, 5, 22, 12, tzinfo=timezone.utc)
ALL = View("all", lambda namespace, rights: True)
ANN = View("ann", lambda namespace, rights: namespace.user_id == "ann")


class WordEmbedder:
    """A text is the sum of its words, each a fixed random direction. Counts what it is asked for."""

    dim = 64

    def __init__(self, name: str = "words@1") -> None:
        self.name = name
        self.embedded: list[str] = []

    def read(
        self, texts: Sequence[str], spans: Sequence[tuple[int, int]] | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        self.embedded += texts
        of = spans or [(0, len(text)) for text in texts]
        return [self._reading(text, text[begin:end]) for text, (begin, end) in zip(texts, of, strict=True)]

    def _reading(self, whole: str, part: str) -> tuple[np.ndarray, np.ndarray]:
        words = np.stack([self._word(word) for word in part.lower().split()])
        vector = sum(map(self._word, whole.lower().split()), np.zeros(self.dim)) + words.sum(0)
        return (vector / np.linalg.norm(vector)).astype(np.float32), np.round(words * 30).astype(np.int8)

    def _word(self, word: str) -> np.ndarray:
        return np.random.default_rng(zlib.crc32(f"{self.name} {word}".encode())).normal(size=self.dim)


def cube(id: str, text: str, version: int = 1, user: str = "ann", minute: int = 0, **header: str) -> MemCube:
    return MemCube(
        id=id,
        version=version,
        form=Form.PLAINTEXT,
        namespace=Namespace(user_id=user),
        rights=Rights(owner=user),
        header=Header(created=NOON + timedelta(minutes=minute), **header),
        payload=Text(text=text),
    )


def talk(*said: str, thread: str = "t", user: str = "ann") -> list[MemCube]:
    return [cube(f"{thread}{n}", text, user=user, minute=n, thread=thread) for n, text in enumerate(said)]


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def operator(vault: MemVault, embedder: WordEmbedder) -> MemOperator:
    return MemOperator(vault, embedder, LIVE)


def keep(vault: MemVault, *cubes: MemCube) -> None:
    with vault.transaction():
        for one in cubes:
            vault.put(one)


def ids(found: Sequence[FoundMemory]) -> list[str]:
    return [one.id for one in found]


def test_the_nearest_memory_comes_first_and_says_why(vault: MemVault, operator: MemOperator) -> None:
    keep(vault, cube("tea", "ann drinks green tea"), cube("car", "bob drives a red car"))
    found = operator.search("what tea drinks ann", 2, ALL)
    assert ids(found) == ["tea", "car"]
    assert found[0].why["near"] == pytest.approx(found[0].score, abs=1e-3)
    assert found[0].why["words"] > found[1].why["words"] == 0


def test_a_hidden_cube_never_takes_a_place(vault: MemVault, operator: MemOperator) -> None:
    hidden = [cube(f"hidden{i}", "ann drinks tea", user="bob") for i in range(20)]
    keep(vault, *hidden, cube("a", "ann likes tea"), cube("b", "bob drives a car"))
    assert ids(operator.search("ann drinks tea", 2, ANN)) == ["a", "b"]
    assert operator.in_view(ANN) == (2, 22)


def test_an_edit_replaces_the_earlier_version(vault: MemVault, operator: MemOperator) -> None:
    keep(vault, cube("a", "ann drinks tea"), cube("b", "bob drinks milk"))
    assert ids(operator.search("drinks tea", 1, ALL)) == ["a"]
    keep(vault, cube("a", "ann plays chess", version=2))
    assert ids(operator.search("ann plays chess", 2, ALL)) == ["a", "b"]
    assert operator.search("drinks tea", 2, ALL, KEYWORDS.score)[1].why["words"] == 0


def test_what_is_no_longer_in_force_is_not_found(vault: MemVault, operator: MemOperator) -> None:
    keep(vault, cube("a", "ann drinks tea"), cube("b", "bob drinks milk"), cube("c", "cid drinks tea"))
    assert len(operator.search("drinks", 5, ALL)) == 3
    vault.set_state("a", State.ARCHIVED, "test")
    vault.delete(["c"])
    assert ids(operator.search("drinks tea", 5, ALL)) == ["b"]
    vault.set_state("a", State.ACTIVATED, "test")
    assert ids(operator.search("drinks tea", 5, ALL)) == ["a", "b"]


def test_a_change_by_another_process_is_seen(vault: MemVault, operator: MemOperator) -> None:
    keep(vault, cube("a", "ann drinks tea"))
    assert ids(operator.search("tea", 5, ALL)) == ["a"]
    with MemVault(vault.path) as other:
        other.put(cube("b", "tea tea tea"))
        other.delete(["a"])
    assert ids(operator.search("tea", 5, ALL)) == ["b"]


def test_a_restart_finds_the_same_and_embeds_nothing(tmp_path: Path) -> None:
    cubes = [cube(f"c{i}", f"person {i} likes thing {i * 7}", thread="t" if i % 2 else "", minute=i) for i in range(30)]
    with MemVault(tmp_path) as vault:
        keep(vault, *cubes)
        before = MemOperator(vault, WordEmbedder()).search("person 7 likes", 5, ALL)
    with MemVault(tmp_path) as vault:
        later = WordEmbedder()
        assert ids(MemOperator(vault, later).search("person 7 likes", 5, ALL)) == ids(before)
        assert later.embedded == ["person 7 likes"]


def test_another_embedder_makes_vectors_of_its_own(vault: MemVault, embedder: WordEmbedder) -> None:
    keep(vault, cube("a", "ann drinks tea"))
    MemOperator(vault, embedder).refresh()
    other = WordEmbedder("words@2")
    assert ids(MemOperator(vault, other).search("tea", 1, ALL)) == ["a"]
    assert other.embedded == ["ann drinks tea", "tea"]


def test_a_writer_does_not_wait_and_a_search_does(vault: MemVault) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(WordEmbedder):
        def read(self, texts: Sequence[str], *spans: Any) -> list[tuple[np.ndarray, np.ndarray]]:
            if "ready" not in texts:  # it is loaded where it is first needed
                begun.set()
                assert go_on.wait(10)
            return super().read(texts, *spans)

    operator = MemOperator(vault, Slow(), LIVE)
    operator.refresh_soon()
    keep(vault, cube("a", "ann drinks tea"))
    operator.refresh_soon()
    assert begun.wait(10)
    keep(vault, cube("b", "tea tea tea"))
    operator.refresh_soon()
    go_on.set()
    assert sorted(ids(operator.search("tea", 2, ALL))) == ["a", "b"]
    operator.close()


def test_what_fails_in_the_background_is_told_to_who_searches(vault: MemVault) -> None:
    class Broken(WordEmbedder):
        works = False

        def read(self, *args: Any) -> list[tuple[np.ndarray, np.ndarray]]:
            if not self.works:
                raise HostError("no embedder today")
            return super().read(*args)

    embedder = Broken()
    operator = MemOperator(vault, embedder, LIVE)
    operator.refresh_soon()
    keep(vault, cube("a", "tea"))
    operator.refresh_soon()
    operator.settle()
    with pytest.raises(HostError, match="today"):
        operator.search("tea", 1, ALL)
    embedder.works = True
    assert operator.search("tea", 1, ALL)[0].why["near"] == pytest.approx(1, abs=1e-3)


def test_embedding_that_is_cut_short_goes_on_from_there(vault: MemVault, embedder: WordEmbedder) -> None:
    class CutShort(WordEmbedder):
        def read(self, texts: Sequence[str], *spans: Any) -> list[tuple[np.ndarray, np.ndarray]]:
            if self.embedded:
                raise KeyboardInterrupt
            return super().read(texts, *spans)

    keep(vault, *(cube(f"c{i}", f"thing {i}") for i in range(300)))
    first = CutShort()
    with pytest.raises(KeyboardInterrupt):
        MemOperator(vault, first, LIVE).refresh()
    MemOperator(vault, embedder, LIVE).refresh()
    assert first.embedded and len(first.embedded) + len(embedder.embedded) == 300


def test_many_holes_are_closed(vault: MemVault, operator: MemOperator) -> None:
    """Rows are never moved; when most stand for nothing, the indexes are made anew."""
    for version in range(1, 40):
        keep(vault, *(cube(f"c{i}", f"thing {i} at {version}", version=version) for i in range(40)))
        operator.refresh()
    assert operator.in_view(ALL) == (40, 40)
    assert ids(operator.search("thing 7 at 39", 1, ALL)) == ["c7"]


def test_a_search_does_not_wait_for_what_others_have_written(
    vault: MemVault, operator: MemOperator, embedder: WordEmbedder
) -> None:
    bob = View("bob", lambda namespace, rights: namespace.user_id == "bob")
    keep(vault, *(cube(f"a{i}", f"thing {i}") for i in range(200)), cube("b", "bob's thing", user="bob"))
    assert ids(operator.search("thing", 1, bob)) == ["b"]
    assert set(embedder.embedded) == {"bob's thing", "thing"}
    assert ids(operator.search("thing 7", 1, ANN)) == ["a7"]  # and what was left is found by whoever may see it
    assert len(embedder.embedded) == 203


def test_a_search_waits_for_no_embedding_of_anothers_search(vault: MemVault) -> None:
    begun, found = threading.Event(), threading.Event()

    class Held(WordEmbedder):
        def read(self, texts: Sequence[str], *spans: Any) -> list[tuple[np.ndarray, np.ndarray]]:
            if len(texts) > 1:
                begun.set()
                assert found.wait(10)
            return super().read(texts, *spans)

    bob = View("bob", lambda namespace, rights: namespace.user_id == "bob")
    operator = MemOperator(vault, Held(), LIVE)
    keep(vault, cube("b", "bob's thing", user="bob"))
    operator.search("thing", 1, bob)
    keep(vault, *(cube(f"a{i}", f"thing {i}") for i in range(40)))
    with ThreadPoolExecutor(1) as thread:
        hers = thread.submit(operator.search, "thing 7", 1, ANN)
        assert begun.wait(10)
        assert ids(operator.search("thing", 1, bob)) == ["b"]
        found.set()
        assert ids(hers.result()) == ["a7"]


def test_a_search_comes_in_between_the_batches_of_the_background(vault: MemVault, embedder: WordEmbedder) -> None:
    started, goes_on, found = threading.Event(), threading.Event(), threading.Event()

    class Slow(WordEmbedder):
        def read(self, texts: Sequence[str], *spans: Any) -> list[tuple[np.ndarray, np.ndarray]]:
            if len(texts) > 1:
                (found if started.is_set() else goes_on).wait(1)
                started.set()
            return super().read(texts, *spans)

    bob = View("bob", lambda namespace, rights: namespace.user_id == "bob")
    operator = MemOperator(vault, slow := Slow(), LIVE)
    operator.refresh_soon()  # the first time here
    keep(vault, *(cube(f"a{i}", f"thing {i}") for i in range(200)), cube("b", "bob's thing", user="bob"))
    operator.refresh_soon()
    threading.Timer(0.1, goes_on.set).start()
    assert started.wait(10)
    assert ids(operator.search("thing", 1, bob)) == ["b"]
    assert len(slow.embedded) < 150
    found.set()
    operator.settle()
    assert len(slow.embedded) >= 201
    operator.close()


# what was said around


def test_a_turn_is_found_by_what_was_said_before_it(vault: MemVault, operator: MemOperator) -> None:
    keep(vault, *talk("what do you drink", "tea"), *talk("what do you drive", "tea", thread="u"))
    found = {one.id: one for one in operator.search("drink", 4, ALL)}
    assert found["t1"].why["near"] > found["u1"].why["near"]
    assert found["t1"].why["around"] > 0 == found["u1"].why["around"]
    assert found["t1"].why["thread"] > 0 == found["u1"].why["thread"]


def test_a_new_turn_and_one_that_goes_change_the_context_of_their_neighbours(
    vault: MemVault, operator: MemOperator, embedder: WordEmbedder
) -> None:
    said = talk("one", "two", "three", "four", "five")
    keep(vault, *said[:4])
    operator.refresh()
    embedder.embedded.clear()
    keep(vault, said[4])
    operator.refresh()
    assert {text.split()[-1] for text in embedder.embedded} == {"five"}  # its window alone, behind what was said before
    assert embedder.embedded[0].split()[0] == "one"
    embedder.embedded.clear()
    vault.delete(["t0"])
    operator.refresh()
    assert embedder.embedded and not any("one" in text for text in embedder.embedded)
    kept = vault.vectors.of(embedder.name, [c.id for c in said])
    assert not any("t0" in around for _, around, _ in kept.values())


def test_what_others_said_in_a_thread_of_the_same_name_is_no_context(
    vault: MemVault, operator: MemOperator, embedder: WordEmbedder
) -> None:
    keep(vault, *talk("mine", "too"), *(c.model_copy(update={"id": f"b{c.id}"}) for c in talk("theirs", user="bob")))
    operator.refresh()
    assert sorted(embedder.embedded) == ["mine too", "mine too", "theirs"]


def test_long_texts_stand_alone(vault: MemVault, operator: MemOperator, embedder: WordEmbedder) -> None:
    keep(vault, *talk("word " * 190, "short", "word " * 100))
    operator.refresh()
    # the short one behind as much as there is room for, which is none of the first; the third behind the short one
    assert sorted(map(len, embedder.embedded)) == [5, 506, 950]


def test_the_speaker_that_is_named_counts_and_the_name_is_not_searched_for(
    vault: MemVault, operator: MemOperator, embedder: WordEmbedder
) -> None:
    keep(
        vault,
        cube("a", "tea", speaker="Ann"),
        cube("b", "tea", speaker="Bob"),
        cube("c", "milk", user="x", speaker="Cid"),
    )
    [first, second] = operator.search("Ann's tea", 2, ANN)
    assert (first.why["speaker"], second.why["speaker"]) == (1, 0)
    operator.search("Cid tea", 1, ANN)  # somebody whom Ann cannot see
    operator.search("Ann Bob", 1, ANN)
    assert embedder.embedded[-3:] == ["tea", "Cid tea", "Ann Bob"]
    assert operator.search("Ann and Bob", 1, ANN)[0].why["speaker"] == 0


def test_memories_of_the_same_topic_group_are_told(vault: MemVault, operator: MemOperator) -> None:
    keep(
        vault,
        cube("a", "x", segment="Mira"),
        cube("b", "y", segment="mira"),
        cube("c", "z", segment="Tom"),
        cube("d", "w", segment="Mira", user="bob"),
    )
    operator.refresh()
    assert sorted(operator.group_of(["a", "gone"], ANN)) == ["a", "b"]
    found = {one.id: one.why["subject"] for one in operator.search("x", 4, ANN, about=["MIRA"])}
    assert found == {"a": 1, "b": 1, "c": 0}


@pytest.mark.slow
def test_candidates_of_a_large_store_are_those_of_either_index_and_their_neighbours(
    vault: MemVault, embedder: WordEmbedder
) -> None:
    filler = [cube(f"f{i}", f"number {i} of many", minute=i, thread=f"t{i // 10}") for i in range(3000)]
    keep(vault, *filler, *talk("who plays the harp", "she does", thread="harp"))
    found = MemOperator(vault, embedder).search("harp", 3, ALL, lambda s: s.near + s.words + s.around)
    assert set(ids(found)[:2]) == {"harp0", "harp1"}


def test_a_reranker_reads_the_best_beside_the_query(vault: MemVault, embedder: WordEmbedder) -> None:
    asked: list[tuple[str, list[str]]] = []

    def rerank(query: str, texts: Sequence[str]) -> np.ndarray:
        asked.append((query, list(texts)))
        return np.array([float("milk" in text) for text in texts], np.float32)

    keep(vault, cube("a", "ann drinks tea"), cube("b", "bob drinks milk"))
    operator = MemOperator(vault, embedder, LIVE, rerank=rerank)
    found = operator.search("ann drinks", 2, ALL, lambda signals: signals.near + 2 * signals.answers)
    assert (ids(found), found[0].why["answers"]) == (["b", "a"], 1)
    assert asked == [("ann drinks", ["ann drinks tea", "bob drinks milk"])]


@pytest.mark.parametrize("at", ["words", "vectors"])
def test_a_row_that_was_cut_short_shifts_no_other(
    vault: MemVault, operator: MemOperator, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    keep(vault, cube("a", "ann drinks tea"))
    operator.refresh()
    keep(vault, cube("b", "bob drinks milk"), cube("c", "cid plays chess"))

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(getattr(operator._follower.indexes, at), "append", interrupted)
        operator.refresh()
    assert ids(operator.search("cid plays chess", 1, ALL)) == ["c"]
    assert operator.in_view(ALL) == (3, 3)


def test_the_latest_are_candidates_of_a_large_store(vault: MemVault, operator: MemOperator) -> None:
    keep(vault, *(cube(f"c{i:04}", f"number {i}", minute=i) for i in range(2300)))
    assert ids(operator.search("number 7", 2, ALL, RECENCY.score)) == ["c2299", "c2298"]


def test_of_a_group_beyond_all_measure_only_what_is_near_is_told(vault: MemVault, operator: MemOperator) -> None:
    keep(vault, *(cube(f"c{i:03}", f"number {i}", minute=i) for i in range(600)))
    operator.refresh()
    assert operator.group_of(["c300"], ALL) == [f"c{i}" for i in range(268, 333)]


# wrong input


def test_a_query_that_the_embedder_cannot_read_finds_without_it(vault: MemVault, embedder: WordEmbedder) -> None:
    class Blind(WordEmbedder):
        def read(self, texts: Sequence[str], *spans: Any) -> list[tuple[np.ndarray, np.ndarray]]:
            seen = super().read(texts, *spans)
            return seen if texts != ["\u200b"] else [(seen[0][0], np.zeros((0, self.dim), np.int8))]

    keep(vault, cube("a", "tea"))
    [found] = MemOperator(vault, Blind(), LIVE).search("\u200b", 1, ALL)
    assert found.why["tokens"] == 0


@pytest.mark.parametrize("query", ["", " \n"])
def test_an_empty_query_is_refused(operator: MemOperator, query: str) -> None:
    with pytest.raises(InputError, match="empty"):
        operator.search(query, 3, ALL)


def test_a_query_beyond_all_measure_is_cut(vault: MemVault, operator: MemOperator, embedder: WordEmbedder) -> None:
    keep(vault, cube("a", "tea"))
    assert ids(operator.search("tea " * 25_000, 1, ALL)) == ["a"]
    assert len(embedder.embedded[-1]) <= 20_000


def test_nothing_in_view_finds_nothing(vault: MemVault, operator: MemOperator) -> None:
    assert operator.search("tea", 3, ALL) == []
    keep(vault, cube("a", "tea", user="bob"))
    assert operator.search("tea", 3, ANN) == []


def test_what_was_used_last_is_found_in_a_large_store_and_after_a_restart(
    vault: MemVault, embedder: WordEmbedder
) -> None:
    """What was never used counts as used when it was kept."""
    keep(vault, *(cube(f"c{n:04}", f"number {n}", minute=n % 60) for n in range(2300)))
    operator = MemOperator(vault, embedder, LIVE)
    operator.refresh()
    for n in (5, 1700):
        vault.usage.record([f"c{n:04}"], NOON + timedelta(hours=n))
    found = operator.search("another 77", 3, ALL, LRU.score)
    assert ids(found)[:2] == ["c1700", "c0005"]
    again = MemOperator(vault, embedder, LIVE).search("another 77", 2, ALL, LRU.score)
    assert ids(again) == ["c1700", "c0005"]


def test_tokens_are_those_of_the_version_that_is_in_force(
    vault: MemVault, operator: MemOperator, embedder: WordEmbedder
) -> None:
    keep(vault, *talk("ann drinks green tea", "bob drives a car"))
    assert operator.search("green tea", 1, ALL)[0].why["tokens"] == pytest.approx(1, abs=1e-3)
    keep(vault, cube("t0", "ann drinks strong coffee", version=2, thread="t"))
    again = MemOperator(vault, embedder, LIVE)
    for query in ("green tea", "strong coffee", "bob drives"):
        after = {found.id: found.why["tokens"] for found in operator.search(query, 2, ALL)}
        assert after == {found.id: found.why["tokens"] for found in again.search(query, 2, ALL)}
    assert after["t1"] == pytest.approx(1, abs=1e-3)


def test_many_parts_of_one_turn_take_no_place_of_another(vault: MemVault, embedder: WordEmbedder) -> None:
    keep(vault, *talk("ann drinks green tea and bob drives a car"))
    for n in range(5):
        part = cube(f"p{n}", f"green tea {n}", thread="t")
        said = {"payload": Text(text=part.text, verbatim=part.text), "sources": (vault.get("t0").pin,)}
        vault.put(part.model_copy(update=said))
    keep(vault, cube("c0", "the car is green"), cube("c1", "the bread is old"))
    best, *others = MemOperator(vault, embedder, LIVE, compared=1).search("green tea", 3, ALL)
    assert best.id.startswith("p") and [one.id for one in others] == ["c0", "c1"]


def test_tokens_are_compared_as_often_as_is_asked_for(vault: MemVault, embedder: WordEmbedder) -> None:
    for n in range(4):
        vault.put(cube(f"c{n}", f"Ann drinks tea number {n}"))
    plain = MemOperator(vault, embedder, LIVE, compared=0).search("tea number 2", 4, ALL)
    assert all(found.why["tokens"] == found.why["near"] for found in plain)
    compared = MemOperator(vault, embedder, LIVE).search("tea number 2", 4, ALL)
    assert any(found.why["tokens"] != found.why["near"] for found in compared)
