"""Files that memories tell of: kept, given back, changed, deleted, sealed, packed, and refused."""

from __future__ import annotations

import io
import random
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from PIL import Image

from memos import Config, Memory, MemOS
from memos.config import GovernanceConfig, RedactionConfig, VaultConfig
from memos.cube import Form, MemCube, Text
from memos.errors import CorruptBlob, Denied, EmptyMemory, InputError, NotFound
from memos.plugins.care.check import problems_of
from memos.plugins.packs.calls import PackCalls
from memos.plugins.pictures.calls import PictureCalls
from memos.plugins.pictures.media import UNKNOWN, FileContent, media_type

CAPTION = "A red square hangs on the wall of the hall."


def picture(colour: tuple[int, int, int] = (250, 10, 10), format: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (9, 7), colour).save(out, format)
    return out.getvalue()


def add(kernel: MemOS, text: str, file: Path | FileContent, user: str | None = None) -> list[MemCube]:
    return PictureCalls.of(kernel.within(user)).add_file(text, file)


def read(kernel: MemOS, id: str, user: str | None = None) -> bytes:
    return PictureCalls.of(kernel.within(user)).file(id).path.read_bytes()


def holding(folder: Path, *pieces: bytes) -> Iterator[Path]:
    """The files below a folder in which any of the pieces stands."""
    for path in (path for path in folder.rglob("*") if path.is_file()):
        if any(piece in path.read_bytes() for piece in pieces):
            yield path


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[MemOS]:
    with MemOS(Config(), vault=tmp_path / "vault") as kernel:
        yield kernel


@pytest.fixture
def red(tmp_path: Path) -> Path:
    path = tmp_path / "red.png"
    path.write_bytes(picture())
    return path


def test_a_caption_keeps_its_picture_and_is_found_by_its_words(kernel: MemOS, red: Path) -> None:
    [cube] = add(kernel, CAPTION, red)
    assert isinstance(cube.payload, Text)
    assert (cube.payload.media_type, cube.payload.bytes) == ("image/png", red.stat().st_size)
    assert read(kernel, cube.id) == red.read_bytes()
    assert kernel.search("What hangs on the wall?")[0].cube.id == cube.id
    assert kernel.vault.stats.all()["quotas"]["blob_bytes"]["used"] == red.stat().st_size


def test_another_picture_is_another_memory_and_the_same_is_the_same(kernel: MemOS, red: Path) -> None:
    [first] = add(kernel, CAPTION, red)
    [other] = add(kernel, CAPTION, FileContent("blue.jpg", picture((0, 0, 255), "JPEG")))
    [again] = add(kernel, CAPTION, red)
    assert first.id == again.id != other.id
    assert [cube.media_type for cube in kernel.memories()] == ["image/png", "image/jpeg"]
    [told] = kernel.add(CAPTION)  # the words alone say nothing new
    assert told.id in (first.id, other.id) and told.usage.repeats == 1


def test_two_pictures_of_one_caption_are_no_duplicates(kernel: MemOS, red: Path) -> None:
    for file in (red, FileContent("blue.png", picture((0, 0, 255)))):
        add(kernel, CAPTION, file)
    assert kernel.consolidate() == [] and len(kernel.memories()) == 2


def test_a_corrected_caption_keeps_its_picture_in_every_version(kernel: MemOS, red: Path) -> None:
    [cube] = add(kernel, CAPTION, red)
    kernel.update(cube.id, "A red square hangs in the kitchen.")
    assert read(kernel, cube.id) == red.read_bytes()
    back = kernel.rollback(cube.id, 1)
    assert back.text == CAPTION and read(kernel, cube.id) == red.read_bytes()


def test_a_picture_goes_with_the_last_memory_that_tells_of_it(kernel: MemOS, red: Path, tmp_path: Path) -> None:
    one, two = (add(kernel, said, red)[0] for said in (CAPTION, "The square was painted by Ada."))
    kernel.delete(one.id)
    assert read(kernel, two.id) == red.read_bytes()
    kernel.delete(two.id)
    assert not kernel.vault.blobs.has(one.stored)
    assert [*holding(tmp_path / "vault", red.read_bytes(), CAPTION.encode())] == []
    with pytest.raises(NotFound):
        read(kernel, two.id)


def test_a_forgotten_user_leaves_no_picture(kernel: MemOS, red: Path) -> None:
    [mine] = add(kernel, CAPTION, red, "mira")
    [other] = add(kernel, "A blue disc.", FileContent("b.png", picture((0, 0, 255))), "tom")
    kernel.within("mira").forget_user()
    assert not kernel.vault.blobs.has(mine.stored) and kernel.vault.blobs.has(other.stored)


def test_only_who_may_read_the_caption_gets_the_picture(kernel: MemOS, red: Path) -> None:
    [cube] = add(kernel, CAPTION, red, "mira")
    with pytest.raises((NotFound, Denied)):
        read(kernel, cube.id, "tom")
    kernel.within("mira").grant(cube.id, "tom", "reader")
    assert read(kernel, cube.id, "tom") == red.read_bytes()


def test_where_others_read_masked_no_file_is_shown_to_them(tmp_path: Path, red: Path) -> None:
    masking = GovernanceConfig(redaction=RedactionConfig(email="before_use"))
    with MemOS(Config(governance=masking), vault=tmp_path / "vault") as kernel:
        [cube] = add(kernel, CAPTION, red, "mira")
        kernel.within("mira").grant(cube.id, "tom", "reader")
        assert read(kernel, cube.id, "mira") == red.read_bytes()
        with pytest.raises(Denied, match="no file can be"):
            read(kernel, cube.id, "tom")
        assert kernel.within("tom").get(cube.id).media_type == ""
        assert kernel.within("mira").get(cube.id).media_type == "image/png"
        place, pack = str(tmp_path / "registry"), "mira/hall"
        entry, _ = PackCalls.of(kernel.within("mira")).publish(place, pack, "1.0.0", licence="CC0-1.0")
        with MemOS(Config(), vault=tmp_path / "there") as there:
            PackCalls.of(there).install(place, pack, trust=entry.key)
            assert [(c.text, c.media_type) for c in there.memories()] == [(CAPTION, "")]
            assert there.vault.blobs.all() == []


@pytest.mark.sqlite
def test_a_damaged_picture_is_told_and_its_caption_answers(kernel: MemOS, red: Path, tmp_path: Path) -> None:
    [cube] = add(kernel, CAPTION, red)
    [stored] = (path for path in (tmp_path / "vault" / "blobs").rglob("*") if path.is_file())
    stored.write_bytes(picture((1, 2, 3)))
    with pytest.raises(CorruptBlob, match=cube.id):
        read(kernel, cube.id)
    assert any(cube.stored in problem for problem in problems_of(kernel.vault))
    assert kernel.search("What hangs on the wall?")[0].cube.text == CAPTION


@pytest.mark.sqlite
def test_an_encrypted_vault_seals_the_picture(tmp_path: Path, red: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sqlcipher3")
    monkeypatch.setenv("PICTURES_KEY", "a" * 64)
    config = Config(vault=VaultConfig(path=tmp_path / "sealed", key="env:PICTURES_KEY"))
    with MemOS(config) as kernel:
        [cube] = add(kernel, CAPTION, red)
        assert read(kernel, cube.id) == red.read_bytes()
    assert [*holding(tmp_path / "sealed", red.read_bytes())] == []
    with MemOS(config) as kernel:
        assert read(kernel, cube.id) == red.read_bytes()


# -- packs


def test_a_pack_brings_the_pictures_of_every_version(kernel: MemOS, red: Path, tmp_path: Path) -> None:
    [cube] = add(kernel, CAPTION, red)
    kernel.update(cube.id, "A red square hangs in the kitchen.")
    key = PackCalls.of(kernel).dump(tmp_path / "pack", history=True).key
    with MemOS(Config(), vault=tmp_path / "there") as there:
        PackCalls.of(there).load(tmp_path / "pack", trust=key)
        [here] = there.memories()
        assert here.text == "A red square hangs in the kitchen." and read(there, here.id) == red.read_bytes()
        assert there.vault.versions(here.id)[0].stored == cube.stored
        assert problems_of(there.vault) == []


def test_a_pack_whose_picture_is_none_brings_the_rest(kernel: MemOS, red: Path, tmp_path: Path) -> None:
    kernel.add("The hall is cold.")
    [cube] = add(kernel, CAPTION, FileContent("red.bin", b"<svg onload=alert(1)>"))
    lie = cube.payload.model_copy(update={"media_type": "image/png"})
    kernel.parts.lifecycle.edit(cube.id, lie)
    key = PackCalls.of(kernel).dump(tmp_path / "pack").key
    with MemOS(Config(), vault=tmp_path / "there") as there:
        done = PackCalls.of(there).load(tmp_path / "pack", trust=key)
        assert "said to be image/png and is not" in done.left[cube.id]
        assert [one.text for one in there.memories()] == ["The hall is cold."]
        assert there.vault.blobs.all() == []


# -- what is no file of its name


@pytest.mark.parametrize(
    "name, content, why",
    [
        ("red.png", picture(format="JPEG"), "image/png and is not"),
        ("red.png", picture()[:-30], "image/png and is not"),
        ("red.jpg", b"\xff\xd8\xff\xe0" + b"x" * 40, "image/jpeg and is not"),
        ("red.gif", b"GIF89a", "image/gif and is not"),
        ("voice.wav", b"RIFF1234AVI LIST", "audio/wav and is not"),
        ("paper.pdf", b"<html>", "application/pdf and is not"),
        ("red.png", b"", "empty"),
        ("notes.xyz", b"", "empty"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(kernel: MemOS, name: str, content: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why) as refused:
        add(kernel, CAPTION, FileContent(name, content))
    assert name in str(refused.value)
    assert kernel.memories() == [] and kernel.vault.blobs.all() == []


def test_a_file_comes_with_a_text_and_must_be_there(kernel: MemOS, red: Path) -> None:
    for text in ("", "Don't save this: Ada was on the pier."):
        with pytest.raises(EmptyMemory, match="without a text"):
            add(kernel, text, red)
    with pytest.raises(InputError, match="cannot be read"):
        add(kernel, CAPTION, red.with_name("gone.png"))
    [plain] = kernel.add(CAPTION)
    with pytest.raises(InputError, match="no file beside it"):
        read(kernel, plain.id)


def test_no_bytes_make_a_picture_raise_anything_else(tmp_path: Path) -> None:
    draw, path = random.Random(7), tmp_path / "changed"
    for format in ("PNG", "JPEG", "GIF", "WEBP", "BMP"):
        whole = picture(format=format)
        for _ in range(60):
            bytes_ = bytearray(whole[: draw.randrange(1, len(whole) + 1)])
            for _ in range(draw.randrange(6)):
                bytes_[draw.randrange(len(bytes_))] = draw.randrange(256)
            path.write_bytes(bytes_)
            try:
                assert media_type(path, f"x.{format.lower()}") == f"image/{format.lower()}"
            except InputError:
                continue


def test_of_a_suffix_that_is_not_known_nothing_is_claimed(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_bytes(b"\n\0\1")
    assert media_type(tmp_path / "a.xyz", "a.xyz") == UNKNOWN


# -- over the Memory API


def test_a_picture_over_the_routes_is_the_same(tmp_path: Path) -> None:
    from memos.plugins.pictures.routes import add_file, file

    with Memory(vault=tmp_path / "vault") as memory:
        data = b64encode(picture()).decode()
        [added] = add_file(memory, CAPTION, {"name": "red.png", "data": data}, user_id="mira")["results"]
        assert (added["media_type"], added["bytes"], added["event"]) == ("image/png", len(picture()), "ADD")
        reply = file(memory, added["id"], user_id="mira")
        assert b64decode(reply["data"]) == picture() and reply["media_type"] == "image/png"
        with pytest.raises(InputError, match="no base64"):
            add_file(memory, CAPTION, {"name": "red.png", "data": "%%%"}, user_id="mira")


def test_a_picture_over_http_belongs_to_its_key_and_is_bounded_by_the_body(tmp_path: Path) -> None:
    from tests.plugins.server.conftest import running

    with Memory(vault=tmp_path / "vault") as memory:
        keys = [memory.kernel.services.governing.add_key(name)[0] for name in ("mira", "tom")]
        with running(memory, body_bytes=4096) as (url, _), httpx.Client(base_url=f"{url}/v1/memory/") as client:
            mira, tom = ({"Authorization": f"Bearer {key}"} for key in keys)
            file = {"name": "red.png", "data": b64encode(picture()).decode()}
            reply = client.post("add_file", json={"text": CAPTION, "file": file}, headers=mira)
            [added] = reply.raise_for_status().json()["results"]
            ask = {"memory_id": added["id"]}
            assert b64decode(client.post("file", json=ask, headers=mira).json()["data"]) == picture()
            assert client.post("file", json=ask, headers=tom).status_code == 404
            wrong = file | {"name": "red.jpg"}
            refused = client.post("add_file", json={"text": CAPTION, "file": wrong}, headers=mira)
            assert refused.status_code == 400 and "image/jpeg and is not" in refused.json()["error"]["message"]
            large = file | {"data": "A" * 5000}
            assert client.post("add_file", json={"text": CAPTION, "file": large}, headers=mira).status_code == 413


def test_a_text_without_a_file_is_written_in_packs_as_before() -> None:
    from memos.plugins.packs.mip import content_of

    assert not {"sha256", "bytes", "media_type"} & content_of(_cube(Text(text="a")))["payload"].keys()
    named = _cube(Text(text="a", sha256="0" * 64, bytes=1, media_type=UNKNOWN))
    assert content_of(named)["payload"]["sha256"] == "0" * 64


def _cube(payload: Text) -> MemCube:
    from datetime import datetime, timezone

    from memos.cube import Header, Rights

    header = Header(created=datetime.now(timezone.utc))
    return MemCube(id="a" * 24, form=Form.PLAINTEXT, rights=Rights(owner="mira"), header=header, payload=payload)
