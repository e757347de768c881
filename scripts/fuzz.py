"""Parsers of foreign or damaged bytes against changed ones: `python scripts/fuzz.py config --seconds 60`.

Each target begins with valid files. They are changed bit by bit, and by what they are made of: JSON values, tensor
headers, rows of a database, parts of a pack that is signed again. What may come out is a value, or one of memos' own
errors. Anything else is a finding: another error, more than the bounds of memory or time, or a file outside the folder
that the target may write to. A finding is kept in --keep and can be tried again with --again FILE.

With atheris where it is installed (--engine atheris), which looks for inputs that reach new code; else by chance alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from memos.errors import MemosError  # noqa: E402

MEMORY = 1 << 30  # bytes that one input may cost
SECONDS = 20  # that one input may take
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1 << 63, -(1 << 63) - 1, 10**400, 1e308, float("nan"), float("inf"), "", " ", "\0", "\ud800"),
    *(
        "../../x",
        "/etc/passwd",
        "0000-01-01",
        "10000-01-01",
        "9999-12-31T23:59:59-14:00",
        "2024-02-30",
        "NaN",
        "x" * 9999,
    ),
    *([], {}, [[]], [None], {"": None}, [[[[[[]]]]]], {"a": {"a": {"a": {}}}}),
)
TOKENS = (
    *(
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\r\n",
        b"\n---\n",
        b"[" * 2000,
        b'{"a":' * 500,
        b"9" * 5000,
    ),
    *(b"NaN", b"-Infinity", b"null", b'"', b"\\", b"\\u0000", b"\\ud800", b"&a [*a, *a]", b"!!python/object:os.system"),
    *(
        b"!!binary",
        b"2024-13-45",
        b"<!--",
        b"```",
        b"[[",
        b"](",
        b"%%",
        b"../../../",
        b"PK\x05\x06",
        b"\x7f" * 8,
        b"\xff" * 8,
    ),
)


@dataclass(frozen=True)
class Target:
    """seeds: valid inputs. run: reads one in a folder of its own. suits: changes that know the format."""

    name: str
    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes, Path], object]
    suits: tuple[Callable[[bytes, random.Random], bytes], ...] = ()


# -- changes ---------------------------------------------------------------------------------------------


def change_bytes(data: bytes, draw: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at, end = sorted((draw.randint(0, len(out)), draw.randint(0, len(out))))
        match draw.randrange(7):
            case 0 if out:
                out[at % len(out)] ^= 1 << draw.randrange(8)
            case 1:
                del out[at:]
            case 2:
                del out[at : min(end, at + 64)]
            case 3:
                out[at:at] = draw.choice(TOKENS)
            case 4:
                out[at : at + 8] = draw.choice(TOKENS)[:8]
            case 5:
                out[at:at] = out[at : min(end, at + 4096)] * draw.choice((1, 2, 50))
            case _:
                out[at : at + 4] = draw.randbytes(4)
    return bytes(out)


def change_json(data: bytes, draw: random.Random) -> bytes:
    """Another value, name or place somewhere in a JSON document, or in one of its lines."""
    lines = data.split(b"\n") if data.count(b"\n{") else [data]
    n = draw.randrange(len(lines))
    try:
        value = json.loads(lines[n])
    except ValueError:
        return change_bytes(data, draw)
    lines[n] = json.dumps(changed(value, draw), ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def changed(value: Any, draw: random.Random) -> Any:
    """A JSON value with one or a few changes somewhere in it."""
    if isinstance(value, (list, dict)) and value and draw.random() < 0.9:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = draw.choice(keys)
        out = value.copy()
        match draw.randrange(8):
            case 0:
                del out[key]
            case 1 if isinstance(out, dict):
                out[draw.choice(("", "\ud800", "always", "x" * 300, *map(str, keys)))] = out.pop(key)
            case 2 if isinstance(out, list):
                out += [out[key]] * draw.choice((1, 100))
            case _:
                out[key] = changed(out[key], draw)
        return out
    if draw.random() < 0.05:
        for _ in range(draw.choice((10, 99, 101, 3000))):
            value = [value] if draw.random() < 0.5 else {"a": value}
            if draw.random() < 0.001:
                break
        return value if _depth_is_writable(value) else None
    return draw.choice(ODD)


def _depth_is_writable(value: Any) -> bool:
    try:
        json.dumps(value)
    except (RecursionError, ValueError):
        return False
    return True


def change_tensors(data: bytes, draw: random.Random) -> bytes:
    """Another header in front of the same tensors."""
    (size,) = struct.unpack("<Q", data[:8])
    try:
        head = json.loads(data[8 : 8 + size])
    except ValueError:
        return change_bytes(data, draw)
    name = draw.choice(list(head))
    match draw.randrange(4):
        case 0 if "shape" in head[name]:
            head[name]["shape"] = draw.choice(([1 << 40], [0], [-1], [1 << 62, 1 << 62], [2] * 70, [1, 2, 3], "x"))
        case 1 if "data_offsets" in head[name]:
            head[name]["data_offsets"] = draw.choice(([0, 1 << 60], [8, 0], [-8, 8], [0], [0, 1], ["0", "8"]))
        case 2 if "dtype" in head[name]:
            head[name]["dtype"] = draw.choice(("F64", "I8", "F8_E4M3", "BOOL", "F16", "", None))
        case _:
            head = changed(head, draw)
    told = json.dumps(head).encode("utf-8", "surrogatepass")
    told += b" " * (-len(told) % 8)
    claimed = draw.choice((len(told), len(told), len(told), 1 << 62, 0, len(told) + 1))
    return struct.pack("<Q", claimed) + told + data[8 + size :]


def change_rows(data: bytes, draw: random.Random) -> bytes:
    """Other values in some rows of a SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        path.write_bytes(data)
        try:
            db = sqlite3.connect(path)
            db.execute("PRAGMA foreign_keys = OFF")
            names = [
                n
                for (n,) in db.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
                )
            ]
            table = draw.choice(names)
            column = draw.choice([row[1] for row in db.execute(f"PRAGMA table_info({table})")])
            rows = db.execute(f"SELECT {column} FROM {table} WHERE typeof({column}) = 'text' LIMIT 1").fetchall()
            values = [
                1 << 62,
                -1,
                1e300,
                None,
                "",
                "\0",
                "0000-01-01",
                b"\xff\x00",
                "x" * 9999,
                "[" * 9999,
                "{}",
                "null",
            ]
            if rows and rows[0][0][:1] in "{[":
                values.append(change_json(rows[0][0].encode("utf-8", "surrogatepass"), draw).decode("utf-8", "replace"))
            where = "" if draw.random() < 0.3 else "WHERE rowid = (SELECT max(rowid) FROM " + table + ")"
            db.execute(f"UPDATE OR IGNORE {table} SET {column} = ? {where}", (draw.choice(values),))
            if draw.random() < 0.1:
                db.execute(draw.choice((f"DROP TABLE {table}", f"PRAGMA user_version = {draw.choice((0, 3, 99))}")))
            db.commit()
            db.close()
        except sqlite3.Error:
            return change_bytes(data, draw)
        return path.read_bytes()


def change_archive(data: bytes, draw: random.Random) -> bytes:
    """The same archive with another part, name or content, made anew so that its sums hold."""
    out = BytesIO()
    try:
        with zipfile.ZipFile(BytesIO(data)) as old:
            parts = [(i.filename, old.read(i)) for i in old.infolist()]
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError, EOFError):
        return change_bytes(data, draw)
    n = draw.randrange(len(parts))
    name, content = parts[n]
    match draw.randrange(4):
        case 0:
            name = draw.choice(
                ("../../" + name, "/tmp/" + name, name + "/", "", "a\\" + name, "x" * 5000, name.upper())
            )
        case 1:
            content = content * draw.choice((0, 2)) + b" " * draw.choice((0, 1 << 22))
        case _:
            content = change_json(content, draw)
    parts[n] = name, content
    kind = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(out, "w", kind) as new:
        for name, content in parts:
            new.writestr(zipfile.ZipInfo(name or "x"), content, kind)
    return out.getvalue()


def change_pack(data: bytes, draw: random.Random) -> bytes:
    """A pack with another record, part or manifest, whose digests hold and which is signed again."""
    from hashlib import sha256

    from memos.infrastructure.vault.audit.signing import SigningKey
    from memos.plugins.packs.mip import MANIFEST, SIGNATURE, SIGNED
    from memos.plugins.packs.pack_file import _ZipSink

    try:
        with zipfile.ZipFile(BytesIO(data)) as old:
            parts = {i.filename: old.read(i) for i in old.infolist()}
        manifest = json.loads(parts.pop(MANIFEST))
        parts.pop(SIGNATURE)
        name = draw.choice(sorted(parts))
        changes = change_json if name.endswith((".jsonl", ".json")) else change_tensors
        parts[name] = changes(parts[name], draw) if draw.random() < 0.8 else parts[name]
        if draw.random() < 0.2:
            parts[draw.choice(("../../evil", "/tmp/evil", "blobs/../x", f"{name}/x", "a" * 300, "con", "blobs/"))] = (
                b"x"
            )
        known = {part["name"]: part for part in manifest["parts"]}
        manifest["parts"] = [
            {**known.get(n, {"name": n}), "bytes": len(p), "sha256": sha256(p).hexdigest()} for n, p in parts.items()
        ]
        manifest = changed(manifest, draw) if draw.random() < 0.3 else manifest
        content = json.dumps(manifest, separators=(",", ":"), sort_keys=draw.random() < 0.5).encode()
        key, out = SigningKey(bytes(32)), BytesIO()
        sink = _ZipSink(out)
        signed = {"algorithm": "ed25519", "key": key.public, "signature": key.sign(SIGNED, content)}
        for n, p in {**parts, MANIFEST: content, SIGNATURE: json.dumps(signed, separators=(",", ":")).encode()}.items():
            sink.add(n, [p])
        sink.finish()
    except (
        zipfile.BadZipFile,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        struct.error,
        OverflowError,
        RecursionError,
    ):
        return change_bytes(data, draw)  # what is no pack any more, or what the writer itself refuses
    return out.getvalue()


# -- targets: imports and text ---------------------------------------------------------------------------


def imports(format: str, sample: str, name: str) -> Target:
    def seeds() -> list[bytes]:
        from tests.plugins.imports import samples

        with tempfile.TemporaryDirectory() as folder:
            made = samples.ALL[sample][1](Path(folder))
            files = sorted(p for p in made.rglob("*") if p.is_file()) if made.is_dir() else [made]
            return [file.read_bytes() for file in files]

    def run(data: bytes, folder: Path) -> None:
        from memos.interface.reading.mem_reader import MemReader
        from memos.plugins.imports.entry import ForeignEntry
        from memos.plugins.imports.formats import IMPORTERS, detected
        from memos.plugins.imports.importer import ImportReport, _read
        from memos.plugins.imports.source import ImportSource

        path = folder / name
        path.write_bytes(data)
        report, reader = ImportReport(format), MemReader()
        for n, read in enumerate(IMPORTERS.get(format).read(ImportSource(path))):
            read.place.encode()  # can be printed
            if isinstance(read, ForeignEntry) and n < 50:
                for op in _read(read, report, reader, whole=n % 2 == 1):
                    op.model_dump_json().encode()  # can be kept
        detected(ImportSource(path))

    suits: tuple[Callable[[bytes, random.Random], bytes], ...] = (change_json,)
    if name.endswith(".db"):
        suits = (change_rows,)
    elif name.endswith(".zip"):
        suits = (change_archive,)
    return Target(f"import-{sample.replace(' ', '-')}", seeds, run, suits)


def conversation(suffix: str, seed: bytes) -> Target:
    def run(data: bytes, folder: Path) -> None:
        from memos.interface.reading.mem_reader import MemReader

        path = folder / f"a{suffix}"
        path.write_bytes(data)
        for op in MemReader().read_content(path)[0][:200]:
            op.model_dump_json().encode()

    return Target(f"file{suffix.replace('.', '-')}", lambda: [seed], run, (change_json,))


TRACE = b"""{"role": "user", "content": "Will it rain?"}
{"role": "assistant", "content": null, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}
{"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "rain"}]}
{"call": {"name": "f", "arguments": {"x": [1]}}, "error": "down", "task": "rain"}
"""
WORDS = """I My my Mira Mira's Tom and but not no longer lives live in Lisbon Oslo works as a nurse teacher has cat
named Miso favourite colour is now blue used to moved from to on 3 May 2024 . , ; : ? ! ( ) " ' — 我 住 在 北京 喜欢 的
不再 。 ， the if maybe Actually Forget Remember that likes does don't User: http://x.y/z @ # % \u200b \u202e 😀 ﷽ é
\t 1,000.5""".split()


def run_reader(data: bytes, folder: Path) -> None:
    from memos.interface.reading.mem_reader import MemReader
    from memos.interface.reading.phrasebook import language

    text, reader = data.decode("utf-8", "ignore")[:20_000], MemReader()
    for read in (reader.statement, reader.forget, reader.recall, reader.sentences, language, reader.facts):
        with suppress(MemosError):
            read(text)
    reader.read_turns([{"speaker": "Mira", "content": text}], "fuzz")
    reader.passage(text, "heading", "fuzz")


def change_words(data: bytes, draw: random.Random) -> bytes:
    words = data.decode("utf-8", "ignore").split(" ")
    for _ in range(draw.choice((1, 3, 10))):
        words.insert(draw.randint(0, len(words)), draw.choice(WORDS) * draw.choice((1, 1, 1, 2, 100)))
        if len(words) > 40:
            del words[draw.randrange(len(words))]
    return " ".join(words).encode()


# -- targets: configs, tensors, vaults, packs ------------------------------------------------------------


def run_config(data: bytes, folder: Path) -> None:
    from memos.config import load_config

    path = folder / "a.yaml"
    path.write_bytes(data)
    with suppress(MemosError):
        load_config(None, (f"seed={data[:200].decode('utf-8', 'ignore')}",))
    load_config(path)


def config_seeds() -> list[bytes]:
    bomb = b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"
    return [*(p.read_bytes() for p in sorted((ROOT / "configs").glob("*.yaml"))), bomb, b"seed: 1\nuser_id: ann\n"]


@cache
def host() -> Any:
    from memos.config import ModelConfig
    from memos.infrastructure.host.host import Host

    return Host.load(ModelConfig())


def kv_seeds() -> list[bytes]:
    made = host().encode(("Mira: I live in Lisbon.", "Tom is a nurse."))
    with tempfile.TemporaryDirectory() as folder:
        out = []
        for codec in ("raw", "int8"):
            with suppress(MemosError, ValueError, KeyError):
                host().save_kv(made, Path(folder) / codec, codec)
                out.append((Path(folder) / codec).read_bytes())
        return out


def run_kv(data: bytes, folder: Path) -> None:
    path = folder / "a.safetensors"
    path.write_bytes(data)
    loaded = host().load_kv(path)
    for n in range(len(loaded.layers)):
        loaded.layers[n]


def adapter_seeds() -> list[bytes]:
    from peft import LoraConfig, get_peft_model

    from memos.infrastructure.host.adapters import lora

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "adapter"
        student = get_peft_model(
            lora.twin(host().model), LoraConfig(r=2, lora_alpha=4, target_modules="all-linear", task_type="CAUSAL_LM")
        )
        lora.save_adapter(student, path, {"fingerprint": host().fingerprint})
        out = BytesIO()
        with zipfile.ZipFile(out, "w") as archive:  # a folder as one input
            for file in sorted(path.iterdir()):
                archive.writestr(file.name, file.read_bytes())
        return [out.getvalue()]


def change_adapter(data: bytes, draw: random.Random) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as old:
        parts = [(i.filename, old.read(i)) for i in old.infolist()]
    n = draw.randrange(len(parts))
    name, content = parts[n]
    known = change_tensors if name.endswith(".safetensors") else change_json
    parts[n] = name, draw.choice((known, known, change_bytes))(content, draw)
    with zipfile.ZipFile(out, "w") as new:
        for name, content in parts:
            new.writestr(name, content)
    return out.getvalue()


def run_adapter(data: bytes, folder: Path) -> None:
    from memos.infrastructure.host.adapters.serving import read_adapter

    path = folder / "adapter"
    path.mkdir()
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            for info in archive.infolist():
                (path / Path(info.filename).name).write_bytes(archive.read(info))
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError, EOFError):
        return  # the archive is this file's own way to carry a folder
    read_adapter(path, dict(host().model.named_modules()), host().fingerprint)


def index_seeds() -> list[bytes]:
    import numpy as np

    from memos.infrastructure.vault.blobs.index_store import _write

    arrays = {"words": np.frombuffer(b"LIMPET", np.uint8), "vectors": np.arange(12, dtype=np.float32).reshape(3, 4)}
    written = bytearray()
    _write(written.extend, arrays)
    return [bytes(written)]


def run_index(data: bytes, folder: Path) -> None:
    import xxhash

    from memos.infrastructure.vault.blobs.index_store import read_kept
    from memos.infrastructure.vault.blobs.vault_files import PlainFormat

    path = folder / "a.safetensors"
    path.write_bytes(data)
    read_kept(path, PlainFormat(), xxhash.xxh3_128(data).hexdigest())


def vault_seeds() -> list[bytes]:
    from memos import MemOS

    with tempfile.TemporaryDirectory() as folder:
        with MemOS(vault=Path(folder) / "v") as kernel:
            [cube, *_] = kernel.add([{"speaker": "Mira", "content": "I live in Lisbon. I have a cat named Miso."}])
            kernel.update(cube.id, "Mira lives in Rome.")
            kernel.snapshot("monday")
        db = sqlite3.connect(Path(folder) / "v" / "vault.db")
        db.execute("PRAGMA journal_mode = DELETE")
        db.close()
        return [(Path(folder) / "v" / "vault.db").read_bytes()]


def run_vault(data: bytes, folder: Path) -> None:
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.plugins.care.audit import verify_log
    from memos.plugins.care.check import problems_of

    path = folder / "vault"
    path.mkdir()
    (path / "vault.db").write_bytes(data)
    with MemVault(path) as vault:
        with suppress(MemosError):
            problems_of(vault)
        with suppress(MemosError):
            for cube in vault.cubes():
                vault.versions(cube.id)
                vault.transitions(cube.id)
        with suppress(MemosError):
            vault.audit_log.query()
            verify_log(vault.audit_log)
        with suppress(MemosError):
            vault.jobs.all("running")
        with suppress(MemosError):
            vault.usage.accesses()
            vault.users()


def pack_seeds() -> list[bytes]:
    from datetime import datetime, timezone

    from memos.cube import Form, Header, MemCube, Probe, Rights, Source, Text
    from memos.infrastructure.vault.audit.signing import SigningKey
    from memos.plugins.packs.mip import PackRelease, Record
    from memos.plugins.packs.pack import PackWriter
    from memos.plugins.packs.pack_file import writing

    when = datetime(2025, 1, 2, tzinfo=timezone.utc)
    one = MemCube(
        id="0" * 20,
        form=Form.PLAINTEXT,
        rights=Rights(owner="ann"),
        header=Header(created=when, tags=("home",)),
        payload=Text(text="Ann lives in Oslo.", probes=(Probe(question="Where?", answer="Oslo"),)),
    )
    two = one.model_copy(update={"id": "1" * 20, "sources": (Source(id=one.id, version=1),)})
    out = []
    with tempfile.TemporaryDirectory() as folder:
        for n, release in enumerate(
            (None, PackRelease(publisher="ann", name="cities", version="1.0.0", licence="MIT"))
        ):
            with writing(Path(folder) / str(n)) as sink:
                writer = PackWriter(sink)
                for cube in (one, two):
                    writer.add(Record(cube=cube))
                writer.seal(SigningKey(bytes(32)), when, release=release)
            out.append((Path(folder) / str(n)).read_bytes())
    return out


def run_pack(data: bytes, folder: Path) -> None:
    from memos.config import LimitsConfig
    from memos.cube import Namespace
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.interface.reading.mem_reader import MemReader
    from memos.operation.life.knowledge import Knowledge
    from memos.operation.life.mem_lifecycle import MemLifecycle
    from memos.plugins.packs.loader import MemLoader
    from memos.plugins.packs.pack import PackReader
    from memos.plugins.packs.pack_table import PackTable

    path = folder / "a.mip"
    path.write_bytes(data)
    with PackReader(path) as pack, MemVault(folder / "vault") as vault:
        lifecycle, reader = MemLifecycle(vault), MemReader()
        knowledge = Knowledge(vault, lifecycle, reader, LimitsConfig())
        table = PackTable(vault.extensions)
        loader = MemLoader(vault, lifecycle, knowledge, reader, table, lambda _: False, lambda *_: None)
        loader.load(pack, Namespace(user_id="bob"))


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        imports("mem0", "mem0", "a.json"),
        imports("mem0", "mem0 history", "a.db"),
        imports("memoryos", "memoryos", "mid_term.json"),
        imports("langgraph", "langgraph", "a.json"),
        imports("langgraph", "langgraph db", "a.db"),
        imports("letta", "letta", "a.af"),
        imports("jsonl", "jsonl", "a.jsonl"),
        imports("markdown", "markdown", "a.md"),
        imports("chatgpt", "chatgpt", "conversations.json"),
        imports("chatgpt", "chatgpt zip", "a.zip"),
        conversation(
            ".jsonl", b'{"speaker": "Mira", "content": "I live in Lisbon.", "time": "2025-03-01T09:30:00Z"}\n'
        ),
        conversation(".json", b'[{"role": "user", "content": "I live in Lisbon."}]'),
        conversation(".csv", b'name,city,note\nMira,Lisbon,"a ""b"", c"\nTom,Oslo,\n'),
        conversation(".jsonl", TRACE),
        conversation(".md", b"# Mira\n\nMira lives in **Lisbon**. <!-- x -->\n\n- She has a [cat](x).\n"),
        conversation(".txt", b"Mira: I live in Lisbon.\nTom: I work as a nurse.\n"),
        Target("reader", lambda: ["I live in Lisbon. 我住在北京。".encode()], run_reader, (change_words,)),
        Target("config", config_seeds, run_config),
        Target("kv", kv_seeds, run_kv, (change_tensors,)),
        Target("adapter", adapter_seeds, run_adapter, (change_adapter,)),
        Target("index", index_seeds, run_index, (change_tensors,)),
        Target("vault", vault_seeds, run_vault, (change_rows,)),
        Target("pack", pack_seeds, run_pack, (change_pack, change_pack, change_archive)),
    )
}


# -- trying inputs ---------------------------------------------------------------------------------------


class Finding(Exception):
    """What must not happen has."""


def attempt(target: Target, data: bytes) -> str:
    """What became of one input: "read", or the name of memos' error. Raises Finding."""
    with tempfile.TemporaryDirectory(prefix="memos-fuzz-") as base:
        folder = Path(base) / "inside"
        folder.mkdir()
        try:
            with _timed():
                target.run(data, folder)
            told = "read"
        except MemosError as error:
            str(error).encode("utf-8", "surrogatepass")
            told = type(error).__name__
        except (Exception, RecursionError) as error:  # a finding, whatever it is
            raise Finding(f"{type(error).__name__}: {error!s:.300}\n{traceback.format_exc(limit=-6)}") from error
        beside = sorted(path.name for path in Path(base).iterdir() if path.name != "inside")
        if beside:
            raise Finding(f"wrote outside its folder: {beside}")
    return told


@contextmanager
def _timed() -> Iterator[None]:
    """Seconds of this process's own time: others may be at work on the machine."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def mutated(target: Target, seeds: list[bytes], draw: random.Random) -> bytes:
    data = draw.choice(seeds)
    for _ in range(draw.choice((1, 1, 2, 4))):
        ways = (*target.suits, *target.suits, change_bytes) if target.suits else (change_bytes,)
        try:
            data = draw.choice(ways)(data, draw)
        except Exception:  # what is no file of its format any more is changed as bytes
            data = change_bytes(data, draw)
    return data[: 1 << 24]


def bound_memory() -> None:
    """What is taken beyond this is a MemoryError, and so a finding."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def fuzz(target: Target, seconds: float, seed: int, keep: Path) -> tuple[Counter[str], int]:
    """By chance, for so long: what became of the inputs, and how many findings there were; each kind is kept once."""
    draw, seeds, seen, found = random.Random(seed), target.seeds(), Counter[str](), dict[str, int]()
    for data in seeds:
        seen[attempt(target, data)] += 1
    bound_memory()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = mutated(target, seeds, draw)
        try:
            seen[attempt(target, data)] += 1
        except Finding as error:
            kind = str(error).splitlines()[0][:80] + str(error).strip().splitlines()[-2][:120]
            found[kind] = found.get(kind, 0) + 1
            if found[kind] == 1:
                keep.mkdir(parents=True, exist_ok=True)
                file = keep / f"{target.name}-{seed}-{len(found)}"
                file.write_bytes(data)
                print(f"FINDING in {target.name}, kept as {file}\n{error}", flush=True)
    return seen, sum(found.values())


def fuzz_by_coverage(target: Target, seconds: float, keep: Path) -> None:
    """With atheris; it ends the process."""
    import atheris  # type: ignore[import-not-found]

    keep.mkdir(parents=True, exist_ok=True)
    corpus = Path(tempfile.mkdtemp(prefix="memos-corpus-"))
    with atheris.instrument_imports(include=["memos"]):
        for n, data in enumerate(target.seeds()):
            (corpus / str(n)).write_bytes(data)
            attempt(target, data)  # what the target imports is imported, and so seen

    def change(data: bytes, most: int, seed: int) -> bytes:
        draw = random.Random(seed)
        return (mutated(target, [data], draw) if draw.random() < 0.5 else atheris.Mutate(data, most))[:most]

    options = [f"-max_total_time={int(seconds)}", f"-artifact_prefix={keep}/{target.name}-", "-max_len=1048576"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda data: attempt(target, data), custom_mutator=change)
    try:
        atheris.Fuzz()
    finally:
        shutil.rmtree(corpus, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help=f"default: all of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, default=Path("out/fuzz"), help="folder for inputs that were findings")
    parser.add_argument("--engine", choices=("chance", "atheris"), default="chance")
    parser.add_argument("--again", type=Path, help="try this one input on the one target")
    parser.add_argument("--rounds", type=int, default=1, help="how often to go through the targets")
    given = parser.parse_args()
    chosen = [TARGETS[name] for name in given.targets or TARGETS]
    if given.again:
        print(attempt(chosen[0], given.again.read_bytes()))
        return 0
    if given.engine == "atheris":
        fuzz_by_coverage(chosen[0], given.seconds, given.keep)
        return 0
    failed = 0
    for n in range(given.rounds):
        for target in chosen:
            child = os.fork()  # each with its own bound of memory
            if not child:
                seen, found = fuzz(target, given.seconds, given.seed + n, given.keep)
                told = ", ".join(f"{name} {count}" for name, count in seen.most_common())
                print(f"{target.name}: {seen.total() + found} inputs, {found} findings; {told}", flush=True)
                os._exit(min(found, 1))
            failed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
