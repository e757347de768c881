"""How sentences for the reader of statements are read and varied; a few steps of training load again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import train_statements
from train_statements import DATA, pair, parse, read, unrelated, varied

from memos.infrastructure.host.encoders.embedder import TextTagger

LINE = "so <is><who>my brother</who> works at <employer>the port</employer></is>, <also>got a <pet>cat</pet></also> lol"


def test_tags_become_places_in_the_sentence() -> None:
    message = parse("en", LINE)
    assert message.text == "so my brother works at the port, got a cat lol"
    assert [(label, message.text[begin:end]) for begin, end, label in (*message.parts, *message.slots)] == [
        ("is", "my brother works at the port"),
        ("also", "got a cat"),
        ("who", "my brother"),
        ("employer", "the port"),
        ("pet", "cat"),
    ]


@pytest.mark.parametrize("line", ["en | <is>open", "en | closed</is>", "en | <lives>here</lives>", "en", "xx | hello"])
def test_a_line_that_does_not_parse_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text(f"en | hello\n{line}\n")
    with pytest.raises(ValueError):
        read(tmp_path)


def test_of_an_earlier_message_it_is_known_whether_a_later_one_ends_it() -> None:
    ends, stays = pair("en", "i smoke", "+ quit in may"), pair("en", "i smoke", "- my dad quit")
    assert [(p[2], ends.before[p[0] : p[1]]) for p in ends.pointed] == [("out", "i smoke")]
    assert not stays.pointed and not stays.whole
    with pytest.raises(ValueError, match="neither"):
        pair("en", "i smoke", "quit")


def test_the_data_parse_and_stay_marked_as_they_are_varied() -> None:
    marked, pairs = read(DATA)
    random.seed(0)
    for message in random.sample(marked, 200):
        other = varied(message, {("en", "city"): ["Oslo"]}, marked)
        assert len(other.parts) >= len(message.parts)
        assert all(other.text[begin:end].strip() for begin, end, _ in (*other.parts, *other.slots))
    assert all(not one.pointed for one in unrelated(pairs))


@pytest.mark.slow
def test_a_few_steps_of_training_load_as_a_tagger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "en.txt").write_text(f"en | {LINE}\nen | i smoke | + quit | - my dad quit | - we smoke | - i smoked\n")
    monkeypatch.setattr("sys.argv", ["train", "--out", str(tmp_path / "out"), "--data", str(tmp_path), "--epochs", "1"])
    train_statements.main()
    TextTagger(tmp_path / "out").tag("quit", "i smoke")
