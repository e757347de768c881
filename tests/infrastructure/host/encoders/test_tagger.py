"""The tagger: runs of the text, in the light of what was said before it; damaged weights are named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from train_reader import apply_changes

from memos.errors import HostError
from memos.infrastructure.host.encoders.bert import NumpyLayers
from memos.infrastructure.host.encoders.embedder import (
    CONTEXT_CHARACTERS,
    HEADS,
    TextTagger,
    _likeliest,
    _Network,
    bio,
)
from memos.infrastructure.host.encoders.weights import encoder, package_folder

OURS = Path(str(files("memos.infrastructure.host.encoders").joinpath("reader_model")))


def test_parts_and_slots_are_runs_of_the_text() -> None:
    text = "Please delete my old address, and let Priya read the garden plan."
    tagged = TextTagger().tag(text)
    assert [part.label for part in tagged.parts] == ["forget", "share"]
    assert [(slot.label, text[slot.begin : slot.end]) for slot in tagged.slots] == [
        ("what", "my old address"), ("with", "Priya"), ("what", "the garden plan"), ("me", "my"),
    ]  # fmt: skip
    assert all(0.0 < span.sure <= 1.0 for span in (*tagged.parts, *tagged.slots)) and tagged.pointed == ()
    assert tagged == TextTagger().tag(text)


def test_what_a_message_points_to_is_found_in_what_was_said_at_its_place() -> None:
    said = "x" * (2 * CONTEXT_CHARACTERS) + " My passport number is X4410. Noted."
    [thing] = [span for span in TextTagger().tag("Lock it, please.", said).pointed if span.label == "what"]
    assert "passport number" in said[thing.begin : thing.end]


def test_words_are_read_from_the_table_of_the_embedder_as_from_one_of_its_own() -> None:
    network, table = _Network(OURS, in_torch=True), NumpyLayers(package_folder(), {}).table
    assert network._table.ctypes.data == table.ctypes.data
    plain, own = encoder(package_folder(), published=True), load_file(OURS / "model.safetensors")
    own = {name: tensor.float() for name, tensor in own.items()}
    assert np.array_equal(plain.get_input_embeddings().weight.detach(), table), "as published, though it is shared"
    apply_changes(plain, own)
    whole = torch.cat([plain.get_input_embeddings().weight.data, own["characters"]])
    plain.set_input_embeddings(torch.nn.Embedding.from_pretrained(whole))
    tokens = network.tokens("请删除 my old address 我的旧地址")
    assert any(token[0] >= len(table) for token in tokens), "characters that the encoder lacks"
    cls, sep = network._special
    ids = torch.tensor([[cls, *(token[0] for token in tokens), sep]])
    types = torch.tensor([[0, *[1] * (len(tokens) + 1)]])
    with torch.inference_mode():
        hidden = plain(input_ids=ids, token_type_ids=types).last_hidden_state[0]
    scores, mean = network([], tokens)
    torch.testing.assert_close(hidden[1:-1].mean(0), torch.from_numpy(mean))
    for head, (w, b) in network._weights.items():
        expected = (hidden @ torch.from_numpy(w).T + torch.from_numpy(b)).log_softmax(-1)
        torch.testing.assert_close(expected, torch.from_numpy(scores[head]), msg=head)


def test_numpy_tags_as_torch_does() -> None:
    few, many = (_Network(OURS, in_torch) for in_torch in (False, True))
    said, asked = few.tokens("My passport number is X4410."), few.tokens("请删除 it, and let Priya read the plan.")
    for context in ([], said):
        (scores, mean), (expected, mean_in_torch) = few(context, asked), many(context, asked)
        np.testing.assert_allclose(mean, mean_in_torch, atol=1e-5)
        for head in HEADS:
            np.testing.assert_allclose(scores[head], expected[head], atol=1e-4, err_msg=head)
        assert few.addressed(mean) == pytest.approx(many.addressed(mean_in_torch), abs=1e-5)


def test_a_process_of_few_messages_imports_no_torch() -> None:
    code = (
        "import sys; from memos.infrastructure.host.encoders.embedder import TextTagger;"
        "assert TextTagger(few=True).tag('Forget my address.').parts; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_is_found_in_nothing_and_a_long_text_is_read_at_its_beginning() -> None:
    assert TextTagger().tag("  ").parts == ()
    long = "Forget my address. " * 400
    assert all(part.end < 2000 for part in TextTagger().tag(long).parts)


def test_an_inside_follows_its_own_label_only() -> None:
    labels = bio(["a", "b"])
    scores = np.full((3, len(labels)), -9.0, np.float32)
    scores[0, labels.index("B-a")] = scores[1, labels.index("I-b")] = scores[2, labels.index("I-b")] = 0.0
    scores[0, labels.index("B-b")] = -1.0
    assert [labels[n] for n in _likeliest(scores, labels, [False] * 3)] == ["B-b", "I-b", "I-b"]


def test_no_run_begins_or_ends_within_a_word() -> None:
    labels = bio(["a"])
    scores = np.full((4, len(labels)), -9.0, np.float32)
    for n, label in enumerate(("O", "B-a", "O", "O")):
        scores[n, labels.index(label)] = 0.0
    scores[2, labels.index("I-a")] = -1.0
    assert [labels[n] for n in _likeliest(scores, labels, [False, False, True, False])] == ["O", "B-a", "I-a", "O"]
    scores[1:3] = scores[[2, 1]]  # it would begin with the second half
    scores[1, labels.index("I-a")] = -9.0
    assert [labels[n] for n in _likeliest(scores, labels, [False, False, True, False])] == ["O"] * 4


@pytest.mark.parametrize("damage", ["no weights", "another tensor", "no json"])
def test_damaged_weights_are_named(damage: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OURS, tmp_path / "own"))
    weights = folder / "model.safetensors"
    if damage == "no weights":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "another tensor":
        save_file({name: tensor * 2 for name, tensor in load_file(weights).items()}, weights)
    else:
        (folder / "config.json").write_text(json.dumps([]))
    with pytest.raises(HostError, match="does not load as a reader"):
        TextTagger(folder).tag("Forget my address.")
