"""Pictures found by what is seen in them, by a small CLIP that has learnt colours."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import BertConfig, BertModel, CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer

from memos import MemOS
from memos.config import Config, GovernanceConfig, RedactionConfig, RetrievalConfig
from memos.errors import ModelNotFound
from memos.infrastructure.host.encoders import weights
from memos.plugins.pictures.calls import PictureCalls
from memos.plugins.pictures.media import FileContent
from memos.plugins.pictures.sight import _OTHERS, PictureSight

COLOURS = {"red": (230, 20, 20), "green": (20, 200, 30), "blue": (20, 30, 220), "white": (245, 245, 245)}
ASKED = ("a {} square", "What was {} there?", "the {} one")
SIDE = 8  # pixels of a picture


def picture(colour: str, shade: int = 0) -> Image.Image:
    return Image.new("RGB", (SIDE, SIDE), tuple(min(255, max(0, part + shade)) for part in COLOURS[colour]))


def tokenizer(folder: Path) -> CLIPTokenizer:
    """Every word that is used is one token."""
    words = {word.strip("?.,").lower() for text in (*ASKED, *_OTHERS) for word in text.format("").split()} | {*COLOURS}
    tokens, merges = dict.fromkeys("abcdefghijklmnopqrstuvwxyz'?.,"), dict[str, None]()
    tokens |= dict.fromkeys(f"{token}</w>" for token in list(tokens))
    for word in sorted(words - {""}):
        pieces = [*word[:-1], f"{word[-1]}</w>"]
        while len(pieces) > 1:
            merges[f"{pieces[0]} {pieces[1]}"] = tokens["".join(pieces[:2])] = None
            pieces[:2] = ["".join(pieces[:2])]
    names = [*tokens, "<|startoftext|>", "<|endoftext|>"]
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({name: n for n, name in enumerate(names)}))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    return CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=24)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a CLIP that tells four colours, in words and in pictures, and everyday sentences from them."""
    torch.manual_seed(0)
    words = tokenizer(tmp_path_factory.mktemp("clip") / "words")
    pixels = {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}
    processor = CLIPProcessor(CLIPImageProcessor(**pixels), words)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"vocab_size": len(words), "bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id}
    text = sizes | ids | {"max_position_embeddings": 24}
    vision = sizes | {"image_size": SIDE, "patch_size": 4}
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3)
    texts = [*(ask.format(colour) for ask in ASKED for colour in COLOURS), *_OTHERS]
    asked = processor(text=texts, padding="max_length", truncation=True, return_tensors="pt")
    shown = processor(images=[picture(c, s) for s in (-15, 0, 15) for c in COLOURS], return_tensors="pt")
    wanted = torch.arange(len(COLOURS)).repeat(3)
    for _ in range(80):
        logits = model(**asked, **shown).logits_per_image  # [pictures, texts]
        # each way of asking in turn beside the everyday sentences
        ways = logits[:, : -len(_OTHERS)].unflatten(1, (len(ASKED), -1)).unbind(1)
        rows = [torch.cat([way, logits[:, -len(_OTHERS) :]], 1) for way in ways]
        loss = sum(torch.nn.functional.cross_entropy(row, wanted) for row in rows)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.1
    folder = tmp_path_factory.mktemp("model")
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def kernel_of(folder: Path, clip: Path, **more: object) -> MemOS:
    config = Config.model_validate({"retrieval": RetrievalConfig(pictures=str(clip)), **more})
    return MemOS(config, vault=folder / "vault")


def show(kernel: MemOS, caption: str, colour: str, shade: int = 5) -> str:
    out = io.BytesIO()
    picture(colour, shade).save(out, "PNG")
    return PictureCalls.of(kernel).add_file(caption, FileContent("picture.png", out.getvalue()))[0].id


def seen(kernel: MemOS, query: str) -> dict[str, float]:
    return {hit.cube.id: hit.why["seen"] for hit in kernel.search(query)}


@pytest.fixture
def kernel(tmp_path: Path, clip: Path) -> Iterator[MemOS]:
    with kernel_of(tmp_path, clip) as kernel:
        yield kernel


def test_a_picture_is_found_by_what_its_caption_does_not_say(kernel: MemOS) -> None:
    kernel.add("My sister lives in Oslo.")
    shown = {colour: show(kernel, f"From our holiday, number {n}.", colour) for n, colour in enumerate(COLOURS)}
    for colour, id in shown.items():
        best = kernel.search(f"a {colour} square")[0]
        assert best.cube.id == id and best.why["seen"] > 0.9


def test_a_question_about_something_else_is_told_of_no_picture(kernel: MemOS) -> None:
    sister = kernel.add("My sister lives in Oslo.")[0].id
    show(kernel, "From our holiday.", "red")
    best, *others = kernel.search("Where does my sister live?")
    assert best.cube.id == sister and best.why["seen"] == 0 and all(hit.why["seen"] < 0.2 for hit in others)


def test_vectors_are_kept_and_go_with_their_memories(tmp_path: Path, clip: Path) -> None:
    with kernel_of(tmp_path, clip) as kernel:
        red, blue = show(kernel, "From our holiday.", "red"), show(kernel, "From the fair.", "blue")
        assert seen(kernel, "a red square")[red] > 0.8
        name = weights.versioned_name(str(clip), weights.weights_sha256(clip))
        assert {*kernel.vault.vectors.of(name, [red, blue])} == {red, blue}
    with kernel_of(tmp_path, clip) as kernel:
        for file in (tmp_path / "vault" / "blobs").rglob("*"):  # what is known is not looked at again
            if file.is_file():
                file.write_bytes(b"no picture any more")
        assert seen(kernel, "a red square")[red] > 0.8
        kernel.delete(red)
        assert not kernel.vault.vectors.of(name, [red])
        assert red not in seen(kernel, "a red square") and seen(kernel, "a blue square")[blue] > 0.8


def test_a_new_caption_keeps_its_picture_in_sight(kernel: MemOS) -> None:
    id = show(kernel, "From our holiday.", "green")
    assert seen(kernel, "a green square")[id] > 0.8
    kernel.update(id, "From the fair.")
    assert seen(kernel, "a green square")[id] > 0.8


def test_a_picture_that_is_damaged_is_passed_over(
    kernel: MemOS, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    id = show(kernel, "From our holiday.", "red")
    for file in (tmp_path / "vault" / "blobs").rglob("*"):
        if file.is_file():
            file.write_bytes(b"no picture any more")
    other = show(kernel, "From the fair.", "blue")
    found = seen(kernel, "a red square")
    assert found[id] == 0 and id in caplog.text and seen(kernel, "a blue square")[other] > 0.8


def test_what_a_picture_shows_is_told_to_nobody_who_may_not_open_it(tmp_path: Path, clip: Path) -> None:
    governance = GovernanceConfig(redaction=RedactionConfig(email="before_use"))
    with kernel_of(tmp_path, clip, governance=governance) as kernel:
        mira, tom = kernel.within("mira"), kernel.within("tom")
        id = show(mira, "From our holiday.", "red")
        mira.grant(id, "tom", "reader")
        assert seen(mira, "a red square")[id] > 0.8 and seen(tom, "a red square")[id] == 0


def test_what_is_no_encoder_of_pictures_is_refused_by_name(tmp_path: Path, clip: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"retrieval\.pictures .*config\.json"):
        kernel_of(tmp_path, tmp_path).search("a red square")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    bert = tmp_path / "bert"
    BertModel(BertConfig(**sizes)).save_pretrained(bert)
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(weights.package_folder() / file, bert)
    broken = shutil.copytree(clip, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"no")
    for folder, why in ((bert, "no one space"), (broken, "does not load")):
        with kernel_of(folder, folder) as kernel, pytest.raises(ModelNotFound, match=why):
            show(kernel, "From our holiday.", "red")
            kernel.search("a red square")


def test_without_pictures_nothing_is_loaded(tmp_path: Path, clip: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.json").write_text("{}")
    with kernel_of(tmp_path, empty) as kernel:
        kernel.add("My sister lives in Oslo.")
        assert kernel.search("Where does my sister live?")[0].why["seen"] == 0
        assert PictureSight(str(empty), kernel.vault)("a red square") == {}
