"""How the reader's messages are read and varied: the marks stay on their words; a few steps of training load again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import train_reader
from train_reader import Message, messages, parse, varied

from memos.infrastructure.host.encoders.embedder import TextTagger

LINE = (
    "en | several | 2026-02-03 | user: I wrote a draft. ## assistant: Saved. | Hi, "
    '<share relation="annotator">let <with>Nadia</with> annotate <what is="draft">it</what></share> and '
    "<forget>drop <what>the old one</what></forget>."
)


def words(message: Message) -> list[tuple[str, str]]:
    return [(label, message.text[begin:end]) for begin, end, label in (*message.parts, *message.slots)]


def test_marks_become_places_in_the_text_and_in_what_was_said() -> None:
    message = parse(LINE)
    assert message.text == "Hi, let Nadia annotate it and drop the old one."
    assert words(message) == [
        ("share:annotator", "let Nadia annotate it"), ("forget", "drop the old one"),
        ("with", "Nadia"), ("what", "it"), ("what", "the old one"),
    ]  # fmt: skip
    [(begin, end, slot)] = message.pointed
    assert (message.before[begin:end], slot) == ("draft", "what")


def test_a_line_that_does_not_parse_is_named(tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text(LINE + "\n" + LINE.replace("<share relation", "<lend relation"))
    with pytest.raises(ValueError, match=r"en\.txt:2"):
        messages(tmp_path)


def test_a_varied_message_keeps_its_marks_on_words() -> None:
    told = messages(train_reader.DATA)
    random.seed(0)
    pools = {("en", "what"): ["the seating plan"], ("en", "with"): ["Omar"], ("zh", "what"): ["座位表"]}
    for message in random.sample(told, 300):
        other = varied(message, pools, told)
        labels = [label for label, _ in words(message)]
        assert [label for label, _ in words(other) if label in labels]
        assert all(text.strip() for _, text in words(other))
        swapped = [text for label, text in words(other) if text in ("the seating plan", "Omar", "座位表")]
        assert len(swapped) <= len(other.slots)


@pytest.mark.slow
def test_a_few_steps_of_training_load_as_a_tagger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "en.txt").write_text(LINE + "\n", "utf-8")
    (tmp_path / "zh.txt").write_text("zh | plain | 2026-03-11 | | <freeze>锁住<what>菜谱</what></freeze>\n", "utf-8")
    given = ["train_reader.py", "--out", str(tmp_path / "out"), "--data", str(tmp_path), "--epochs", "1"]
    monkeypatch.setattr("sys.argv", given)
    train_reader.main()
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "characters.txt",
        "config.json",
        "model.safetensors",
    ]
    TextTagger(tmp_path / "out").tag("let Nadia annotate it")
    monkeypatch.setattr("sys.argv", [*given[:2], str(tmp_path / "on"), *given[3:], "--begin", str(tmp_path / "out")])
    train_reader.main()
    TextTagger(tmp_path / "on").tag("let Nadia annotate it")
