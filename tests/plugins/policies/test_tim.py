"""Think-in-Memory on cases worked out by hand: thoughts, their groups, what is merged, forgotten and found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from talk import conversation, embedder

from memos.plugins.curators.tables import TABLES
from memos.plugins.policies.tim import GROUPS, hash_groups


def test_thoughts_are_inserted_merged_and_forgotten(tmp_path: Path) -> None:
    with conversation(tmp_path, "tim") as talk:
        talk.say("Ann: My car is a red Fiat.", "Bo: What did it cost?")  # a question is no thought
        talk.say("Bo: My car is a red Fiat.")
        assert talk.texts() == ["Ann: My car is a red Fiat.", "Bo: My car is a red Fiat."]
        talk.say("Ann: Well, my car is a red Fiat.")  # merged with hers, not with his
        [merged] = [cube for cube in talk.made() if "Ann" in cube.text]
        assert len(talk.made()) == 2 and len(merged.sources) == 2
        talk.say("Ann: My car is no longer a red Fiat.")  # contradicts hers, and not what Bo said
        assert [text for text in talk.texts() if "Ann" in text] == ["Ann: My car is no longer a red Fiat."]
        assert "Bo: My car is a red Fiat." in talk.texts()


def test_a_thought_is_kept_with_its_group_and_its_turn(tmp_path: Path) -> None:
    with conversation(tmp_path, "tim") as talk:
        talk.say("Ann: My sister Mira plays the violin.", "Bo: The weather in Oslo was awful.")
        [violin, weather] = [talk.one("violin"), talk.one("weather")]
        rows = talk.memory.kernel.parts.vault.extensions.open(*TABLES).rows("SELECT id, value FROM memory_scores")
        groups = {id: value for id, value in rows}
        assert [groups[violin.id], groups[weather.id]] == hash_groups(embedder().embed([violin.text, weather.text]))
        for cube in (violin, weather):
            [turn] = cube.sources
            assert cube.text.split()[-1] in talk.kernel.get(turn.id).text
        assert talk.find("Who plays an instrument?", 1) == [violin.text]


def test_near_vectors_have_the_same_group_more_often() -> None:
    noise = np.random.default_rng(1)
    vectors = noise.standard_normal((200, 384)).astype(np.float32)
    near = vectors + 0.2 * noise.standard_normal(vectors.shape).astype(np.float32)
    groups, others, away = hash_groups(vectors), hash_groups(near), hash_groups(vectors[::-1].copy())
    assert set(groups) == set(range(GROUPS))
    assert sum(map(int.__eq__, groups, others)) > 150 > 80 > sum(map(int.__eq__, groups, away))
