"""Pictures as activation memory: KV of a prompt with a picture, against the model's own forward of the whole prompt.

Vision-language models of transformers with random weights: they prove what is computed, and nothing of what is said.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from memos import Config, MemOS
from memos.config import DecodeConfig, GovernanceConfig, ModelConfig, RedactionConfig, SchedulerConfig
from memos.cube import Form, MemCube, State
from memos.errors import FingerprintMismatch, InputError, Unsupported
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.model.decode import DecodeRow
from memos.infrastructure.host.request import Request
from memos.lazy import Lazy
from memos.plugins.packs.calls import PackCalls
from memos.plugins.packs.tensors import require_usable
from memos.plugins.pictures.calls import PictureCalls
from memos.plugins.pictures.vision import (
    VISION,
    PicturedPrompt,
    PictureReader,
    _placeholder,
    difference,
    encode,
    whole_logits,
)
from tests.plugins.pictures import seeing

CAPTION = "A pattern in many colours hangs in the hall."
QUESTION = "What hangs in the hall?"
ASKS = (QUESTION, "And in the kitchen, what is there?")
ASKED = ({"role": "user", "content": QUESTION},)


def stored(path: Path, seed: int = 0) -> Path:
    seeing.drawn(seed).save(path)
    return path


@pytest.mark.parametrize("kind", [kind for kind in seeing.CONFIGS if kind not in ("paligemma", "mllama")])
def test_a_question_after_kv_of_a_picture_has_the_logits_of_the_whole_prompt(kind: str) -> None:
    model, (prompt, text) = seeing.model(kind), seeing.prompt_of(kind)
    tail = np.random.default_rng(4).integers(10, 2000, 9).tolist()
    kv = encode(model, prompt, text, ("a picture",))
    apart, largest = difference(model, kv, prompt, tail)
    assert apart <= 1e-4 and largest > 0.1
    assert kv.rows == len(prompt.ids) > len(kv.ids) == len(text)
    # the picture tells: another one gives other logits, by far more than the KV's differ
    other = whole_logits(model, seeing.prompt_of(kind, 1)[0], tail)
    assert (other - whole_logits(model, prompt, tail)).abs().max() > 1e-3


def test_pictures_that_stand_in_no_row_of_the_text_are_refused_by_name() -> None:
    model, (prompt, text) = seeing.model("mllama"), seeing.prompt_of("mllama")
    with pytest.raises(Unsupported, match="mllama"):
        encode(model, prompt, text, ("a picture",))


def test_a_picture_that_reads_what_comes_after_it_is_told_by_its_logits() -> None:
    model, (prompt, text) = seeing.model("paligemma"), seeing.prompt_of("paligemma")
    apart, largest = difference(model, encode(model, prompt, text, ("a picture",)), prompt, [20, 30, 40, 50])
    assert apart > 1e-2 * largest


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_what_follows_a_picture_stands_where_the_model_puts_it(kind: str) -> None:
    """By M-RoPE a picture takes fewer positions than tokens: one that counts tokens is wrong."""
    from dataclasses import replace

    model, (prompt, text) = seeing.model(kind), seeing.prompt_of(kind)
    kv, tail = encode(model, prompt, text, ("a picture",)), [20, 30, 40, 50]
    assert kv.next_position < len(prompt.ids)
    assert difference(model, replace(kv, ends=len(prompt.ids)), prompt, tail)[0] > 1e-3
    assert model.model.rope_deltas is None  # the next text is not moved by the picture before


@pytest.mark.parametrize("kind", ["llava", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_answers_after_a_picture_are_those_of_the_whole_prompt_alone_and_beside_others(kind: str) -> None:
    """As requests are answered: in forwards that several share, and in a padded batch."""
    host, names = Host(seeing.model(kind), seeing.tokenizer()), ("a picture",)
    prompt, _ = seeing.prompt_of(kind)
    block = prompt.ids[6:-25]
    line = host.prompts.line(CAPTION)
    ids = (*host.head, *block, *line)
    types = (seeing.TYPES[kind], tuple(int(i == seeing.IMAGE) for i in ids)) if kind in seeing.TYPES else None
    prompt = PicturedPrompt(ids, prompt.inputs, types)
    kv = encode(host.model, prompt, host.prompts.prefix((CAPTION,)), names)
    requests = [Request(({"role": "user", "content": asked},), (CAPTION,), (kv,), pictures=names) for asked in ASKS]
    wanted = []
    for request in requests:
        tail = list(host.prompts.build(request.memories, request.messages).tail)
        assert torch.allclose(host.logits(request), whole_logits(host.model, prompt, tail), atol=1e-4)
        grown = list(tail)
        for _ in range(8):
            grown.append(int(whole_logits(host.model, prompt, grown)[-1].argmax()))
        wanted.append(tuple(grown[len(tail) :]))
    decode = DecodeConfig(max_new_tokens=8)
    assert [ids_until_end(host, host.answer(request, decode).ids) for request in requests] == [
        ids_until_end(host, ids) for ids in wanted
    ]
    rows = [host.row(request, decode) for request in requests]
    batch = [*rows, DecodeRow(host.ids_of("Who is there?"))]
    together = [ids_until_end(host, answer.ids) for answer in host.complete(batch, decode)]
    assert together[:2] == [ids_until_end(host, ids) for ids in wanted]


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_pictures_of_several_sizes_stand_each_before_its_text_as_the_template_marks_them(
    kind: str, tmp_path: Path
) -> None:
    processor = seeing.qwen_processor(kind)
    host = Host(seeing.model(kind), processor.tokenizer)
    reader = PictureReader(host)
    reader._processor = Lazy(lambda: (processor, _placeholder(processor)))
    seeing.drawn(1).save(tmp_path / "a.png")
    seeing.drawn(2).resize((120, 30)).save(tmp_path / "b.png")
    memories, files = ("A dog.", "The hall.", "The pier."), {1: tmp_path / "a.png", 2: tmp_path / "b.png"}
    kv = reader.encode(memories, files)  # which holds it against the whole prompt
    ids = reader._prompt(memories, files).ids
    text = processor.tokenizer.decode(ids)
    marks = re.findall(r"<\|vision_start\|>((?:<\|image_pad\|>)+)<\|vision_end\|>(- The \w+)?", text)
    assert [told for _, told in marks] == ["- The hall", "- The pier"] and len(marks[0][0]) != len(marks[1][0])
    assert kv.rows == len(ids) > kv.next_position > len(kv.ids)


def ids_until_end(host: Host, ids: tuple[int, ...]) -> tuple[int, ...]:
    """What an answer has before the token that ends it, or a stop string of a plain prompt."""
    end = next((n for n, i in enumerate(ids) if i in host.decoder.ends), len(ids))
    return ids[:end]


# -- through the kernel, with processors


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("models")
    return {
        kind: seeing.folder(kind, base / kind) for kind in ("llava", "idefics3", "gemma3", "aya_vision", "paligemma")
    }


def opened(model: Path | str, vault: Path) -> MemOS:
    brief = SchedulerConfig(choice="dearest", routing="retrieval")
    return MemOS(Config(model=ModelConfig(path=str(model)), scheduler=brief), vault=vault)


def add(kernel: MemOS, path: Path, text: str = CAPTION) -> MemCube:
    return PictureCalls.of(kernel).add_file(text, path)[0]


@pytest.fixture
def llava(folders: dict[str, Path], tmp_path: Path) -> Iterator[MemOS]:
    with opened(folders["llava"], tmp_path / "vault") as kernel:
        yield kernel


def past(kernel: MemOS, kv: MemCube) -> object:
    assert kv.blob
    return kernel.host.load_kv(kernel.vault.blobs.path(kv.blob))


@pytest.mark.parametrize("kind", ["llava", "idefics3", "gemma3", "aya_vision"])
def test_a_promoted_picture_answers_as_the_prompt_with_the_picture(
    kind: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    picture = stored(tmp_path / "a.png")
    with opened(folders[kind], tmp_path / "vault") as kernel:
        cube = add(kernel, picture)
        kv = kernel.promote(cube.id, "activation")
        assert kv.blob and kv.blob.pictures == 1 and kv.blob.scores["max_abs_logit_diff"] <= 1e-4
        answer = kernel.chat(QUESTION, via="activation")
        assert [c.id for c in answer.admission.cubes] == [cube.id] and answer.past_tokens > kv.blob.tokens
        # the same words as transformers' own greedy decoding of the prompt with the picture
        host, files = kernel.host, {0: picture}
        reader = VISION._reader(host)
        assert reader
        prompt = reader._prompt((CAPTION,), files)
        ids = list(host.prompts.build((CAPTION,), ASKED).tail)
        for _ in range(6):
            ids.append(int(whole_logits(host.model, prompt, ids)[-1].argmax()))
        request = Request(ASKED, (CAPTION,), (past(kernel, kv),), pictures=VISION.names(host, [cube]))
        assert host.answer(request).ids[:6] == tuple(ids[-6:])[: len(host.answer(request).ids)]


def test_the_picture_is_in_the_kv_and_not_its_words_alone(llava: MemOS, tmp_path: Path) -> None:
    kv = llava.promote(add(llava, stored(tmp_path / "a.png")).id, "activation")
    over = llava.host.logits(Request(ASKED, (CAPTION,), (past(llava, kv),), pictures=past(llava, kv).pictures))
    assert (over - llava.host.logits(Request(ASKED, (CAPTION,)))).abs().max() > 1e-2


def test_kv_of_another_picture_or_of_none_is_refused(llava: MemOS, tmp_path: Path) -> None:
    red, blue = (add(llava, stored(tmp_path / f"{n}.png", n)) for n in (1, 2))
    kv = past(llava, llava.promote(red.id, "activation"))
    for cubes in ([blue], [], [red, blue]):
        request = Request(ASKED, (CAPTION,), (kv,), pictures=VISION.names(llava.host, cubes))
        with pytest.raises(FingerprintMismatch, match="pictures"):
            llava.host.logits(request)


def test_kv_that_another_processor_has_read_is_refused(llava: MemOS, folders: dict[str, Path], tmp_path: Path) -> None:
    import shutil

    cube = add(llava, stored(tmp_path / "a.png"))
    kv = past(llava, llava.promote(cube.id, "activation"))
    other = shutil.copytree(folders["llava"], tmp_path / "other")
    changed = seeing.processor("llava")
    changed.image_processor.image_mean = [0.1, 0.2, 0.3]
    changed.save_pretrained(other)
    host = Host.load(ModelConfig(path=str(other)))
    assert host.digest == llava.host.digest  # the model is the same
    with pytest.raises(FingerprintMismatch, match="processor"):
        host.logits(Request(ASKED, (CAPTION,), (kv,), pictures=VISION.names(host, [cube])))


def test_a_picture_in_another_codec_is_as_near_as_it_is_measured(folders: dict[str, Path], tmp_path: Path) -> None:
    from memos.config import ActivationConfig

    config = Config(model=ModelConfig(path=str(folders["llava"])), activation=ActivationConfig(codec="int8"))
    with MemOS(config, vault=tmp_path / "vault") as kernel:
        kv = kernel.promote(add(kernel, stored(tmp_path / "a.png")).id, "activation")
        assert kv.blob and kv.blob.codec == "int8" and kv.blob.scores["max_abs_logit_diff"] > 0


def test_texts_and_pictures_in_one_kv_stand_in_their_order(llava: MemOS, tmp_path: Path) -> None:
    cubes = [
        llava.add("The hall is cold.")[0],
        add(llava, stored(tmp_path / "a.png", 1)),
        add(llava, stored(tmp_path / "b.png", 2), "Another pattern hangs in the kitchen."),
    ]
    kv = llava.promote([cube.id for cube in cubes], "activation")
    assert kv.blob and kv.blob.pictures == 2 and kv.blob.scores["max_abs_logit_diff"] <= 1e-4
    assert past(llava, kv).pictures == VISION.names(llava.host, cubes)


def test_only_one_kv_stands_in_front_where_a_picture_is_in_it(llava: MemOS, tmp_path: Path) -> None:
    pictured = llava.promote(add(llava, stored(tmp_path / "a.png")).id, "activation")
    text = llava.promote(llava.add("A mirror hangs in the hall.")[0].id, "activation")
    admission = llava.chat("What hangs in the hall?").admission
    assert len(admission.cubes) == 2 and len(admission.activations) == 1
    with pytest.raises(Unsupported, match="of pictures"):
        kvs = (past(llava, pictured), past(llava, text))
        llava.host.logits(
            Request(ASKED, (CAPTION, "A mirror hangs in the hall."), kvs, pictures=past(llava, pictured).pictures)
        )


def test_an_edit_makes_it_stale_and_a_deletion_takes_it_along(llava: MemOS, tmp_path: Path) -> None:
    cube = add(llava, stored(tmp_path / "a.png"))
    kv = llava.promote(cube.id, "activation")
    llava.update(cube.id, "A pattern in two colours hangs in the hall.")
    assert llava.get(kv.id).state is State.ARCHIVED
    again = llava.promote(cube.id, "activation")
    assert set(llava.delete(cube.id)) == {cube.id, kv.id, again.id}
    assert llava.vault.blobs.all() == []


def test_kv_of_a_picture_travels_with_it_and_is_taken_if_it_is_what_the_picture_gives(
    llava: MemOS, folders: dict[str, Path], tmp_path: Path
) -> None:
    cube = add(llava, stored(tmp_path / "a.png"))
    kv = llava.promote(cube.id, "activation")
    key = PackCalls.of(llava).dump(tmp_path / "pack").key
    with opened(folders["llava"], tmp_path / "there") as there:
        done = PackCalls.of(there).load(tmp_path / "pack", trust=key)
        assert done.tensors == [kv.id] and done.rebuilding == []
        assert there.chat(QUESTION, via="activation").text == llava.chat(QUESTION, via="activation").text
    lie = encode(llava.host.model, *_other_prompt(llava, tmp_path), past(llava, kv).pictures)
    with llava.vault.blobs.staging() as staged:
        llava.host.save_kv(lie, staged)
        with pytest.raises(Unsupported, match="does not hold what its memories say"):
            require_usable(llava.parts, kv.blob, staged, [cube], judged=False, own=False)


def _other_prompt(kernel: MemOS, folder: Path) -> tuple[PicturedPrompt, tuple[int, ...]]:
    """Of the caption with another picture."""
    reader = VISION._reader(kernel.host)
    assert reader
    prompt = reader._prompt((CAPTION,), {0: stored(folder / "other.png", 9)})
    return prompt, kernel.host.prompts.prefix((CAPTION,))


def test_where_what_a_model_reads_is_masked_it_sees_no_picture(folders: dict[str, Path], tmp_path: Path) -> None:
    masking = GovernanceConfig(redaction=RedactionConfig(email="before_use"))
    config = Config(model=ModelConfig(path=str(folders["llava"])), governance=masking)
    with MemOS(config, vault=tmp_path / "vault") as kernel:
        kv = kernel.promote(add(kernel, stored(tmp_path / "a.png")).id, "activation")
        assert kv.blob and kv.blob.pictures == 0


def test_on_a_model_that_sees_nothing_the_caption_serves_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened("memos-small", tmp_path / "vault") as kernel:
        cube = add(kernel, stored(tmp_path / "a.png"), "Mira lives in Lisbon.")
        with caplog.at_level(logging.WARNING, "memos"):
            kv = kernel.promote(cube.id, "activation")
        assert any("sees no pictures" in line and cube.id in line for line in caplog.messages)
        assert kv.blob and kv.blob.pictures == 0
        assert "Lisbon" in kernel.chat("Where does Mira live?", via="activation").text


def test_a_model_whose_pictures_read_what_comes_later_is_refused_by_name(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    with opened(folders["paligemma"], tmp_path / "vault") as kernel:
        cube = add(kernel, stored(tmp_path / "a.png"))
        with pytest.raises(Unsupported, match="paligemma"):
            kernel.promote(cube.id, "activation")
        assert kernel.cubes(form=Form.ACTIVATION) == [] and len(kernel.vault.blobs.all()) == 1
        assert [c.id for c in kernel.chat(QUESTION).admission.cubes] == [cube.id]


@pytest.mark.sqlite
def test_a_picture_that_is_damaged_since_is_refused_and_its_text_answers(llava: MemOS, tmp_path: Path) -> None:
    cube = add(llava, stored(tmp_path / "a.png"))
    [path] = (path for path in (tmp_path / "vault" / "blobs").rglob("*") if path.is_file())
    path.write_bytes(b"no picture")
    with pytest.raises(Exception, match=cube.id):
        llava.promote(cube.id, "activation")
    assert [c.id for c in llava.chat(QUESTION).admission.cubes] == [cube.id]


def test_an_image_that_is_none_is_refused(llava: MemOS, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    reader = VISION._reader(llava.host)
    assert reader
    with pytest.raises(InputError, match=r"a\.png does not decode"):
        reader.encode((CAPTION,), {0: tmp_path / "a.png"})


def test_a_model_without_its_processor_is_told_what_it_lacks(folders: dict[str, Path], tmp_path: Path) -> None:
    import shutil

    bare = shutil.copytree(folders["llava"], tmp_path / "bare", ignore=shutil.ignore_patterns("*processor_config*"))
    with opened(bare, tmp_path / "vault") as kernel:
        cube = add(kernel, stored(tmp_path / "a.png"))
        with pytest.raises(Unsupported, match="processor of llava"):
            kernel.promote(cube.id, "activation")


def test_pictures_in_half_precision_are_held_to_its_rounding(folders: dict[str, Path], tmp_path: Path) -> None:
    config = Config(model=ModelConfig(path=str(folders["llava"]), dtype="bfloat16"))
    with MemOS(config, vault=tmp_path / "vault") as kernel:
        kv = kernel.promote(add(kernel, stored(tmp_path / "a.png")).id, "activation")
        assert kv.blob and kernel.host.model.dtype is torch.bfloat16
        assert kv.blob.scores["top1_agreement"] >= 0.9
