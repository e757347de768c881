"""Facts as a graph: how many of them lie between a name and a memory."""

from __future__ import annotations

import numpy as np

from memos.cube import Fact
from memos.operation.finding.entity_graph import EntityGraph

FACTS = [("Mira", "sister", "Eva"), ("Eva", "city", "Oslo"), ("Tom", "city", "Oslo"), ("Kim", "pet", "dog")]
EVERYTHING = np.ones(4, bool)


def graph_of(facts: list[tuple[str, str, str]]) -> EntityGraph:
    graph = EntityGraph()
    for row, (subject, relation, object) in enumerate(facts):
        graph.add(row, [Fact(subject=subject, relation=relation, object=object)])
    return graph


def test_each_fact_on_the_way_is_a_hop() -> None:
    graph = graph_of(FACTS)
    assert graph.linked(["MIRA"], 3, EVERYTHING) == {0: 1, 1: 2, 2: 3}
    assert graph.linked(["Mira"], 1, EVERYTHING) == {0: 1}
    assert graph.linked(["Mira", "dog"], 2, EVERYTHING) == {0: 1, 3: 1, 1: 2}
    assert graph.linked(["nobody"], 2, EVERYTHING) == graph.linked([], 2, EVERYTHING) == {}


def test_what_is_hidden_leads_nowhere() -> None:
    assert graph_of(FACTS).linked(["Mira"], 3, np.array([True, False, True, True])) == {0: 1}


def test_what_everybody_has_joins_nobody() -> None:
    many = [(f"person {i}", "city", "Oslo") for i in range(100)]
    graph = graph_of([("Mira", "city", "Oslo"), *many])
    assert graph.linked(["Mira"], 3, np.ones(101, bool)) == {0: 1}
    assert set(graph.linked(["Mira"], 3, np.arange(101) < 50)) == set(range(50))


def test_a_question_finds_the_memories_that_state_what_it_asks_for() -> None:
    graph = graph_of(FACTS)

    def stating(subject: str, relation: str, object: str) -> list[int]:
        asked = Fact(subject=subject, relation=relation, object=object)
        return graph.stating([asked], np.array([True, True, False, True])).tolist()

    assert stating("EVA", "city", "") == [1]
    assert stating("", "city", "oslo") == [1]  # Tom's memory may not be seen
    assert stating("Mira", "city", "") == stating("Tom", "city", "") == []
