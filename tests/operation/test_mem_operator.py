"""Search over a real vault, with an embedder of hashed words."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest

from memos.cube import Form, Header, MemCube, Rights, Text
from memos.errors import InputError
from memos.infrastructure.mem_vault import MemVault
from memos.operation.mem_operator import MemOperator


class WordEmbedder:
    """A text is the sum of its words, each a fixed random direction. Counts what it is asked for."""

    dim = 64

    def __init__(self, name: str = "words@1") -> None:
        self.name = name
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.embedded += texts
        sums = np.stack([sum(map(self._word, text.lower().split()), np.zeros(self.dim)) for text in texts])
        return (sums / np.linalg.norm(sums, axis=1, keepdims=True)).astype(np.float32)

    def _word(self, word: str) -> np.ndarray:
        return np.random.default_rng(zlib.crc32(f"{self.name} {word}".encode())).normal(size=self.dim)


def cube(id: str, text: str, version: int = 1) -> MemCube:
    header = Header(created=datetime(2025, 5, 22, tzinfo=timezone.utc))
    payload = Text(text=text)
    return MemCube(
        id=id, version=version, form=Form.PLAINTEXT, rights=Rights(owner="ann"), header=header, payload=payload
    )


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[MemVault]:
    with MemVault(tmp_path / "vault") as vault:
        yield vault


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


def keep(vault: MemVault, operator: MemOperator, *cubes: MemCube) -> None:
    for one in cubes:
        vault.put(one)
    operator.index(cubes)


def ids(hits: list[tuple[str, float]]) -> list[str]:
    return [id for id, _ in hits]


def test_the_nearest_memory_comes_first(vault: MemVault, embedder: WordEmbedder) -> None:
    operator = MemOperator(vault, embedder)
    keep(vault, operator, cube("tea", "ann drinks green tea"), cube("car", "bob drives a red car"))
    hits = operator.search("what tea drinks ann", 2, {"tea", "car"})
    assert ids(hits) == ["tea", "car"]
    assert 1 >= hits[0][1] > 0.5 > hits[1][1]


def test_a_hidden_cube_never_takes_a_place(vault: MemVault, embedder: WordEmbedder) -> None:
    operator = MemOperator(vault, embedder)
    hidden = [cube(f"hidden{i}", "ann drinks tea") for i in range(20)]
    keep(vault, operator, *hidden, cube("a", "ann likes tea"), cube("b", "bob drives a car"))
    assert ids(operator.search("ann drinks tea", 2, {"a", "b"})) == ["a", "b"]


def test_an_edit_replaces_the_earlier_version(vault: MemVault, embedder: WordEmbedder) -> None:
    operator = MemOperator(vault, embedder)
    keep(vault, operator, cube("a", "ann drinks tea"), cube("b", "bob drinks milk"))
    keep(vault, operator, cube("a", "ann plays chess", version=2))
    assert ids(operator.search("chess", 1, {"a", "b"})) == ["a"]
    assert ids(operator.search("drinks tea", 2, {"a", "b"})) == ["b", "a"]
    [(_, score)] = operator.search("ann plays chess", 1, {"a"})
    assert score == pytest.approx(1.0)


def test_an_older_version_does_not_replace_a_newer(vault: MemVault, embedder: WordEmbedder) -> None:
    operator = MemOperator(vault, embedder)
    first, second = cube("a", "ann drinks tea"), cube("a", "ann plays chess", version=2)
    vault.put(first)
    vault.put(second)
    operator.index([second, first])
    operator.index([first])
    assert embedder.embedded == ["ann plays chess"]


def test_a_removed_cube_is_not_found(vault: MemVault, embedder: WordEmbedder) -> None:
    operator = MemOperator(vault, embedder)
    keep(vault, operator, cube("a", "ann drinks tea"), cube("b", "bob drinks milk"))
    vault.delete(["a"])
    operator.remove(["a"])
    assert ids(operator.search("ann drinks tea", 2, {"a", "b"})) == ["b"]
    assert ids(MemOperator(vault, embedder).search("ann drinks tea", 2, {"a", "b"})) == ["b"]


def test_a_restart_finds_the_same_and_embeds_nothing(tmp_path: Path) -> None:
    cubes = [cube(f"c{i}", f"person {i} likes thing {i * 7}") for i in range(30)]
    everyone = {c.id for c in cubes}
    with MemVault(tmp_path) as vault:
        operator = MemOperator(vault, WordEmbedder())
        keep(vault, operator, *cubes)
        before = operator.search("person 7 likes", 5, everyone)
    with MemVault(tmp_path) as vault:
        later = WordEmbedder()
        operator = MemOperator(vault, later)
        operator.index(cubes)
        assert later.embedded == []
        assert operator.search("person 7 likes", 5, everyone) == before


def test_an_edit_after_a_restart_is_embedded(vault: MemVault, embedder: WordEmbedder) -> None:
    keep(vault, MemOperator(vault, embedder), cube("a", "ann drinks tea"), cube("b", "bob drinks milk"))
    later = WordEmbedder()
    keep(vault, MemOperator(vault, later), cube("a", "ann plays chess", version=2))
    assert later.embedded == ["ann plays chess"]


def test_what_a_crash_left_without_a_vector_is_made_up_for(vault: MemVault, embedder: WordEmbedder) -> None:
    done, left = cube("a", "ann drinks tea"), cube("b", "bob drinks milk")
    keep(vault, MemOperator(vault, embedder), done)
    vault.put(left)  # and no index
    later = WordEmbedder()
    operator = MemOperator(vault, later)
    operator.index([done, left])
    assert later.embedded == ["bob drinks milk"]
    assert ids(operator.search("bob drinks milk", 1, {"a", "b"})) == ["b"]


def test_another_embedder_makes_vectors_of_its_own(vault: MemVault, embedder: WordEmbedder) -> None:
    one = cube("a", "ann drinks tea")
    keep(vault, MemOperator(vault, embedder), one)
    other = WordEmbedder("words@2")
    operator = MemOperator(vault, other)
    assert operator.search("tea", 1, {"a"}) == []
    operator.index([one])
    assert ids(operator.search("tea", 1, {"a"})) == ["a"]


def test_a_cube_without_text_is_not_indexed(vault: MemVault, embedder: WordEmbedder) -> None:
    operator = MemOperator(vault, embedder)
    keep(vault, operator, cube("a", ""))
    keep(vault, operator, cube("b", "bob drinks milk"))
    keep(vault, operator, cube("b", "", version=2))
    assert operator.search("milk", 2, {"a", "b"}) == []


@pytest.mark.parametrize("query", ["", " \n\t"])
def test_an_empty_query_is_refused(vault: MemVault, embedder: WordEmbedder, query: str) -> None:
    with pytest.raises(InputError, match="the query is empty"):
        MemOperator(vault, embedder).search(query, 3, {"a"})


def test_nothing_allowed_is_nothing_found_and_nothing_embedded(vault: MemVault, embedder: WordEmbedder) -> None:
    assert MemOperator(vault, embedder).search("tea", 3, set()) == []
    assert embedder.embedded == []
