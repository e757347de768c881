"""The JSON Schemas and test vectors of docs/mip.md, made anew; with --check, compared to what is there.

    python scripts/mip_vectors.py
    python scripts/mip_vectors.py --check

Keys and times are fixed, so every byte is the same on every machine. The tests of memos read and write them; whoever
builds another reader or writer can do so too.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from memos.cube import Blob, Fact, Form, Header, MemCube, Namespace, Payload, Probe, Rights, Source, State, Text
from memos.infrastructure.vault.audit.signing import SigningKey
from memos.infrastructure.vault.blobs.blob_store import digest
from memos.plugins.packs.mip import SCHEMAS, Origin, Record, release_of, schema
from memos.plugins.packs.pack import PackWriter
from memos.plugins.packs.pack_file import writing

FOLDER = Path(__file__).parents[1] / "docs" / "mip"
MADE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
KEY = SigningKey(bytes(range(32)))  # known to all: it proves nothing


def cube(n: int, payload: Payload, **other: object) -> MemCube:
    values = {"form": Form.PLAINTEXT, "state": State.ACTIVATED, "header": Header(created=MADE, speaker="Mira")}
    given = {
        "id": f"{n:024x}",
        "payload": payload,
        "namespace": Namespace(user_id="ada"),
        "rights": Rights(owner="ada"),
    }
    return MemCube.model_validate(values | given | other)


def told() -> list[MemCube]:
    home = Fact(subject="Mira", relation="home", object="Lisbon")
    first = Text(text="I live in Lisbon.", facts=(home,), probes=(Probe(question="Where?", answer="Lisbon"),))
    return [cube(1, first), cube(2, Text(text="我在里斯本工作。 “Olá”"))]


def texts(folder: Path) -> Path:
    """Two memories: what a text pack is."""
    with writing(folder / "texts.mip") as sink:
        writer = PackWriter(sink)
        for one in told():
            writer.add(Record(cube=one))
        writer.seal(KEY, MADE)
    return folder / "texts.mip"


def tensors(folder: Path) -> Path:
    """With KV in a file, and an adapter in a folder; they hold numbers, and fit no model."""
    kv, adapter = folder / "kv", folder / "adapter"
    save_file({"layers.000.k": np.arange(6, dtype=np.float32)}, kv, {"layout": "a test vector"})
    adapter.mkdir()
    save_file({"a": np.zeros(2, dtype=np.float32)}, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (adapter / "card.json").write_text("{}")
    with writing(folder / "tensors.mip") as sink:
        writer, sources = PackWriter(sink), told()
        for one in sources:
            writer.add(Record(cube=one))
        for n, (form, path) in enumerate(((Form.ACTIVATION, kv), (Form.PARAMETRIC, adapter)), 3):
            sha256, size = digest(path)
            blob = Blob(sha256=sha256, bytes=size, tokens=3 if path is kv else 0, fingerprint="0" * 64)
            writer.payload(blob.sha256, path)
            pins = tuple(Source(id=one.id, version=1) for one in sources)
            made = Header(created=MADE, origin="promotion", kind="derived")
            writer.add(Record(cube=cube(n, blob, form=form, sources=pins, header=made)))
        writer.seal(KEY, MADE)
    return folder / "tensors.mip"


def release(folder: Path) -> Path:
    """A published pack, with earlier versions, an origin and what it builds on."""
    said = release_of(
        "ada/life", "1.2.0", "CC0-1.0", "What Mira said", ["ada/base>=1.0.0,<2.0.0"], {"0" * 24: "untrue"}
    )
    older, _ = told()
    newer = older.model_copy(update={"version": 2, "payload": Text(text="I live in Porto.")})
    origin = Origin(key="0" * 64, pack="", id=older.id, version=1, owner="bob", namespace=Namespace(user_id="bob"))
    with writing(folder / "release.mip") as sink:
        writer = PackWriter(sink)
        writer.add(Record(cube=newer, earlier=(older,), origin=origin))
        writer.seal(KEY, MADE, maker="memos", release=said, history=True)
    return folder / "release.mip"


def made() -> dict[str, bytes]:
    """Each file by its name."""
    with tempfile.TemporaryDirectory() as folder:
        packs = [make(Path(folder)) for make in (texts, tensors, release)]
        out = {pack.name: pack.read_bytes() for pack in packs}
    for name in SCHEMAS:
        out[f"{name}.schema.json"] = (json.dumps(schema(name), indent=1, sort_keys=True) + "\n").encode()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    files = made()
    odd = [name for name, content in files.items() if not _is(FOLDER / name, content)]
    if check:
        sys.exit(
            f"{', '.join(odd)} in {FOLDER} is not what the code makes; see what changed, and make it anew" if odd else 0
        )
    FOLDER.mkdir(exist_ok=True)
    for name in odd:
        (FOLDER / name).write_bytes(files[name])
    print(f"{len(odd)} of {len(files)} files written to {FOLDER}")


def _is(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


if __name__ == "__main__":
    main()
