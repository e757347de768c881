"""Packs: what is signed is what is read, and what makes no sense is refused whole."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import jsonschema
import mip_vectors
import pytest

from memos.cube import Blob, Form, MemCube, Source, Text
from memos.errors import BadPack, CorruptBlob, InputError, UntrustedKey
from memos.infrastructure.vault.audit.signing import SigningKey
from memos.infrastructure.vault.blobs.blob_store import digest
from memos.plugins.packs import pack
from memos.plugins.packs.mip import MANIFEST, SIGNED, PackManifest, Record, Signature, canonical, schema
from memos.plugins.packs.pack import PackReader, PackWriter
from memos.plugins.packs.pack_file import reading, writing

VECTORS = mip_vectors.FOLDER
BORN = {"created": "2026-01-01T00:00:00Z"}
MADE = datetime(2026, 1, 2, tzinfo=timezone.utc)
KEY = SigningKey(bytes(32))


def cube(n: int, **other: Any) -> MemCube:
    payload = other.pop("payload", Text(text=f"Mira likes the number {n}."))
    return mip_vectors.cube(n, payload, **other)


def packed(path: Path, *cubes: MemCube, folder: bool = False) -> Path:
    with writing(path, folder) as sink:
        writer = PackWriter(sink)
        for one in cubes:
            writer.add(Record(cube=one))
        writer.seal(KEY, MADE)
    return path


def forged(path: Path, change: Callable[[dict[str, Any]], None], parts: dict[str, bytes]) -> Path:
    """A pack with these parts whose manifest was changed before it was signed."""
    with writing(path) as sink:
        writer = PackWriter(sink)
        for name, content in parts.items():
            writer._write(name, [content])
        told = json.loads(canonical(PackManifest(mip="1", made=MADE, records=0, parts=tuple(writer._parts))))
        change(told)
        content = json.dumps(told).encode()
        sink.add(MANIFEST, [content])
        sink.add("signature.json", [canonical(Signature(key=KEY.public, signature=KEY.sign(SIGNED, content)))])
    return path


def lines(*cubes: MemCube) -> bytes:
    return b"".join(canonical(Record(cube=one)) + b"\n" for one in cubes)


def test_the_vectors_and_schemas_are_what_the_code_makes() -> None:
    assert [name for name, content in mip_vectors.made().items() if (VECTORS / name).read_bytes() != content] == []


@pytest.mark.parametrize("name, records", [("texts", 2), ("tensors", 4), ("release", 1)])
def test_the_reader_agrees_with_the_vectors(tmp_path: Path, name: str, records: int) -> None:
    with PackReader(VECTORS / f"{name}.mip") as vector:
        assert vector.key == mip_vectors.KEY.public and vector.manifest.records == records
        read = [record for part in vector.parts_of_records() for record in part]
        for record in read:
            if record.cube.blob:
                vector.extract(record.cube.blob.sha256, tmp_path / record.cube.id)
                assert digest(tmp_path / record.cube.id) == (record.cube.blob.sha256, record.cube.blob.bytes)
    said = mip_vectors.told()
    assert [r.cube for r in read[:2]] == said if name != "release" else read[0].earlier == (said[0],)


@pytest.mark.parametrize("name", ["texts", "tensors", "release"])
def test_the_vectors_are_valid_by_the_schemas(name: str) -> None:
    parts = reading(VECTORS / f"{name}.mip")
    content = {part: b"".join(parts.pieces(part)) for part in parts.sizes}
    parts.close()
    jsonschema.validate(json.loads(content[MANIFEST]), schema("manifest"))
    jsonschema.validate(json.loads(content["signature.json"]), schema("signature"))
    for line in content["records/000000.jsonl"].splitlines():
        jsonschema.validate(json.loads(line), schema("record"))
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(line) | {"more": 1}, schema("record"))


@pytest.mark.slow
@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_every_changed_bit_of_a_pack_is_found(tmp_path: Path, folder: bool) -> None:
    path = packed(tmp_path / "x", cube(1), folder=folder)
    for file in path.rglob("*") if folder else [path]:
        if file.is_dir():
            continue
        whole = file.read_bytes()
        for bit in range(0, len(whole) * 8, 1 if folder else 5):  # the rest of the bits: see test_pack_file
            content = bytearray(whole)
            content[bit // 8] ^= 1 << bit % 8
            file.write_bytes(content)
            with pytest.raises(BadPack):
                PackReader(path)
        file.write_bytes(whole[:-1])
        with pytest.raises(BadPack):
            PackReader(path)
        file.write_bytes(whole)
    PackReader(path).close()
    if folder:
        (path / "more.json").write_text("{}")
        with pytest.raises(BadPack, match="not named by the manifest"):
            PackReader(path)


def test_a_key_by_which_anybody_signs_is_refused(tmp_path: Path) -> None:
    key, signature = bytes([1]).ljust(32, b"\0").hex(), bytes([1]).ljust(64, b"\0").hex()  # the neutral point, and 0
    packed(tmp_path / "x", ONE, folder=True)
    (tmp_path / "x" / "signature.json").write_bytes(canonical(Signature(key=key, signature=signature)))
    with pytest.raises(BadPack, match="signature"):
        PackReader(tmp_path / "x")


def test_a_file_that_is_no_pack_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Mira lives in Rome. " * 50)
    with pytest.raises(BadPack, match="no pack"):
        reading(str(tmp_path / "notes.txt"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="null byte"):
        reading(tmp_path / "a\0b")


def test_whoever_is_not_trusted_is_refused_before_anything_else_is_read(tmp_path: Path) -> None:
    def nobody(key: str, manifest: PackManifest) -> None:
        assert (key, manifest.records) == (KEY.public, 7)
        raise UntrustedKey(key)

    senseless = forged(tmp_path / "x", lambda told: told.update(records=7), {"records/000000.jsonl": b"no JSON"})
    with pytest.raises(UntrustedKey):
        PackReader(senseless, nobody)
    with pytest.raises(BadPack, match="not as docs/mip.md says"):
        PackReader(senseless)


def unknown(told: dict[str, Any]) -> None:
    told.update(mip="2", colour="blue")


def counted(n: int) -> Callable[[dict[str, Any]], None]:
    return lambda told: told.update(records=n)


ONE = cube(1)
BLOB = Blob(sha256="0" * 64, bytes=1, tokens=1, fingerprint="f")
KV = {"form": Form.ACTIVATION, "payload": BLOB}


@pytest.mark.parametrize(
    "change, parts, why",
    [
        (unknown, {}, "of MIP version '2', and this memos reads '1'; upgrade memos"),
        (counted(1), {}, "it has 0 memories and names 1"),
        (lambda told: told.update(parts=told["parts"] * 2), {"records/000000.jsonl": lines(ONE)}, "a part twice"),
        (lambda told: told["parts"].pop(), {"records/000000.jsonl": lines(ONE)}, "not named by the manifest"),
        (lambda told: told["parts"][0].update(sha256="0" * 64), {"records/000000.jsonl": lines(ONE)}, "its digest"),
        (counted(1), {"records/000001.jsonl": lines(ONE)}, "not numbered in order"),
        (counted(1), {"other/000001.jsonl": lines(ONE)}, "neither of records nor a payload"),
        (counted(2), {"records/000000.jsonl": lines(ONE, ONE)}, "is in it twice"),
        (counted(0), {f"blobs/{'0' * 64}.safetensors": b"x"}, "not made of the parts"),
        (counted(0), {f"blobs/{digest(Path(__file__))[0]}.safetensors": Path(__file__).read_bytes()}, "has no memory"),
        (
            counted(1),
            {"records/000000.jsonl": lines(cube(2, sources=(Source(id=ONE.id, version=1),)))},
            "not before it",
        ),
        (
            counted(2),
            {"records/000000.jsonl": lines(ONE, cube(2, sources=(Source(id=ONE.id, version=2),)))},
            "not before it",
        ),
        (counted(1), {"records/000000.jsonl": lines(cube(1, form=Form.PARAMETRIC))}, "its payload is not"),
        (counted(1), {"records/000000.jsonl": lines(cube(1, **KV))}, "names no sources"),
        (
            counted(2),
            {"records/000000.jsonl": lines(ONE, cube(2, **KV, sources=(Source(id=ONE.id, version=1),)))},
            "no such payload",
        ),
        (counted(1), {"records/000000.jsonl": lines(cube(1, id="../../x"))}, "cannot name a memory"),
        (counted(1), {"records/000000.jsonl": b"[" * 100_000}, "not as docs/mip.md says"),
        (counted(1), {"records/000000.jsonl": b""}, "has no memory"),
        (counted(1), {"records/000000.jsonl": b"\n" * 1_001}, "more than 1,000"),
        (counted(1), {"records/000000.jsonl": bytes(5 << 20)}, "too large"),
        (counted(1), {"records/000000.jsonl": bytes(17 << 20)}, "16,777,216 are read"),
        (lambda told: told.update(maker="x" * (33 << 20)), {}, "33,554,432 are read"),
    ],
)
def test_a_signed_pack_that_makes_no_sense_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], parts: dict[str, bytes], why: str
) -> None:
    with pytest.raises(BadPack, match=why):
        PackReader(forged(tmp_path / "x", change, parts))


PIN = (Source(id=ONE.id, version=1),)


@pytest.mark.parametrize(
    "change, why",
    [
        ({"version": 10**30}, "no number from 1 on"),
        ({"version": 0}, "no number from 1 on"),
        ({"header": {"created": "9999-12-31T23:59:59-12:00"}}, "beyond the years"),
        ({"header": {"created": "2026-01-01T00:00:00Z", "expires": "0001-01-01T00:00:00+12:00"}}, "beyond the years"),
        ({"header": {"created": "2026-01-01T00:00:00"}}, "timezone"),
        ({"header": BORN | {"metadata": "x"}}, "no JSON object"),
        ({"header": BORN | {"metadata": "[1]"}}, "no JSON object"),
        ({"header": BORN | {"metadata": '{"a":' * 300 + "1" + "}" * 300}}, "no JSON object"),
        ({"header": BORN | {"metadata": '{"a": ' + "9" * 5_000 + "}"}}, "no JSON object"),
        ({"header": BORN | {"metadata": '{"a": 1e999}'}}, "no JSON object"),
        ({"payload": {"type": "text", "text": "a lone \ud800"}}, "not as docs/mip.md says"),
        ({"payload": {"type": "pickle", "text": "x"}}, "not as docs/mip.md says"),
        ({"state": "immortal"}, "not as docs/mip.md says"),
        ({"colour": "blue"}, "not as docs/mip.md says"),
    ],
)
def test_values_that_no_vault_can_keep_are_refused(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    told = {"cube": json.loads(lines(ONE))["cube"] | change}
    with pytest.raises(BadPack, match=why):
        PackReader(forged(tmp_path / "x", counted(1), {"records/000000.jsonl": json.dumps(told).encode() + b"\n"}))


@pytest.mark.parametrize(
    "change",
    [{"tokens": 10**12}, {"tokens": -1}, {"bytes": 4}, {"build_s": float("nan")}, {"scores": {"kl": float("inf")}}],
)
def test_numbers_of_a_payload_are_held_to_it(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "kv").write_bytes(b"a payload")
    sha256, size = digest(tmp_path / "kv")
    for n, more in enumerate(({}, change)):
        told = {"sha256": sha256, "bytes": size, "tokens": 1, "fingerprint": "f"} | more
        with writing(tmp_path / f"x{n}") as sink:
            writer = PackWriter(sink)
            writer.add(Record(cube=ONE))
            writer.payload(Blob.model_validate(told).sha256, tmp_path / "kv")
            writer.add(Record(cube=cube(2, form=Form.ACTIVATION, payload=Blob.model_validate(told), sources=PIN)))
            writer.seal(KEY, MADE)
    PackReader(tmp_path / "x0").close()
    with pytest.raises(BadPack, match="out of range|other bytes than it says"):
        PackReader(tmp_path / "x1")


def test_versions_must_follow_each_other(tmp_path: Path) -> None:
    third = cube(1, version=3)
    for earlier, why in (((ONE,), "not in order"), ((cube(2, version=2),), "is of another memory")):
        line = canonical(Record(cube=third, earlier=earlier)) + b"\n"
        with pytest.raises(BadPack, match=why):
            PackReader(forged(tmp_path / f"x{why}", counted(1), {"records/000000.jsonl": line}))


def test_a_payload_that_is_damaged_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "kv").write_bytes(b"other bytes")
    with pytest.raises(CorruptBlob, match="does not match its digest"), writing(tmp_path / "x") as sink:
        PackWriter(sink).payload(BLOB.sha256, tmp_path / "kv")
    assert not (tmp_path / "x").exists()


def test_a_memory_that_is_too_large_is_told_to_its_owner(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a pack holds 4,194,304 of one"):
        packed(tmp_path / "x", cube(1, payload=Text(text="x" * (5 << 20))))


def test_many_memories_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "MAX_PART_BYTES", 1_000)
    with PackReader(packed(tmp_path / "x", *map(cube, range(1, 40)))) as read:
        parts = list(read.parts_of_records())
    assert len(parts) > 5 and [r.cube for part in parts for r in part] == [cube(n) for n in range(1, 40)]


def test_a_pack_that_changes_after_it_was_checked_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "x", cube(1), folder=True)
    with PackReader(path) as read:
        part = path / "records" / "000000.jsonl"
        part.write_bytes(part.read_bytes().replace(b"Mira", b"Mara"))
        with pytest.raises(BadPack, match="does not match its digest"):
            list(read.parts_of_records())


BIG = """
import os, resource, sys
from pathlib import Path
from memos.cube import Blob, Form, Source
from memos.infrastructure.vault.blobs.blob_store import digest
import test_pack
from memos.plugins.packs.mip import Record
from memos.plugins.packs.pack import PackReader, PackWriter
from memos.plugins.packs.pack_file import writing

folder = Path(sys.argv[1])
with open(folder / "kv", "wb") as file:
    file.truncate(1 << 30)
sha256, size = digest(folder / "kv")
resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, 400 << 20))
blob = Blob(sha256=sha256, bytes=size, tokens=1, fingerprint="f")
with writing(folder / "x") as sink:
    writer = PackWriter(sink)
    writer.add(Record(cube=test_pack.ONE))
    writer.payload(blob.sha256, folder / "kv")
    pins = (Source(id=test_pack.ONE.id, version=1),)
    writer.add(Record(cube=test_pack.cube(2, form=Form.ACTIVATION, payload=blob, sources=pins)))
    writer.seal(test_pack.KEY, test_pack.MADE)
with PackReader(folder / "x") as read:
    read.extract(blob.sha256, folder / "out")
assert os.path.getsize(folder / "out") == 1 << 30
"""


@pytest.mark.slow
def test_a_pack_larger_than_memory_is_written_and_read(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY
    root = Path(__file__).parents[3]
    paths = ":".join(str(p) for p in (root, root / "scripts", Path(__file__).parent))
    run = subprocess.run(
        [sys.executable, "-c", BIG, str(tmp_path)], env={"PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
