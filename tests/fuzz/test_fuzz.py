"""Changed bytes give values or memos' own errors, within bounds. The long run is `python scripts/fuzz.py`."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import struct
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from fuzz import MEMORY, TARGETS, Finding, Target, attempt, mutated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memos.config import load_config, parse_yaml
from memos.errors import ConfigError, InputError, VaultError
from memos.infrastructure.host.encoders.embedder import TextTagger
from memos.infrastructure.vault.mem_vault import MemVault
from memos.interface.reading.mem_reader import MemReader
from memos.plugins.imports import json_stream

pytestmark = pytest.mark.fuzz
TRIES = 25  # changes of each target in the ordinary run
quick = settings(max_examples=TRIES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def seeds() -> Callable[[Target], list[bytes]]:
    made: dict[str, list[bytes]] = {}
    return lambda target: made[target.name] if target.name in made else made.setdefault(target.name, target.seeds())


@pytest.mark.parametrize("name", TARGETS)
def test_a_valid_file_is_read(name: str, seeds: Callable[[Target], list[bytes]]) -> None:
    assert "read" in {attempt(TARGETS[name], data) for data in seeds(TARGETS[name])}


@pytest.mark.parametrize("name", TARGETS)
@quick
@given(number=st.integers(0, 1 << 32))
def test_a_changed_file_is_read_or_refused(name: str, number: int, seeds: Callable[[Target], list[bytes]]) -> None:
    attempt(TARGETS[name], mutated(TARGETS[name], seeds(TARGETS[name]), random.Random(number)))


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "adapter"])  # whose input is an archive
@quick
@given(data=st.binary(max_size=4096))
def test_any_bytes_are_read_or_refused(name: str, data: bytes) -> None:
    attempt(TARGETS[name], data)


@pytest.mark.parametrize("name", ["config", "import-jsonl", "file-json", "import-letta"])
@quick
@given(text=st.text(max_size=2000))
def test_any_text_is_read_or_refused(name: str, text: str) -> None:
    attempt(TARGETS[name], text.encode("utf-8", "surrogatepass"))


def test_what_must_not_happen_is_told(tmp_path: Path) -> None:
    def run(data: bytes, folder: Path) -> None:
        if data == b"write":
            (folder.parent / "evil").write_text("")
        elif data == b"crash":
            raise KeyError(data)
        elif data == b"wait":
            signal.raise_signal(signal.SIGPROF)
        elif data == b"refuse":
            raise InputError("no")

    target = Target("bad", lambda: [b"x"], run)
    for data, told in ((b"write", "outside its folder"), (b"crash", "KeyError"), (b"wait", "TimeoutError")):
        with pytest.raises(Finding, match=told):
            attempt(target, data)
    assert (attempt(target, b"refuse"), attempt(target, b"x")) == ("InputError", "read")


# -- what was found, and stays mended --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x]\nb: *a",
        "[" * 100_000,
        "{a: " * 100_000,
        "seed: " + "9" * 5000,
        "seed: 2024-13-45",
        "? [a]\n: b",
        "a: !!python/object:os.system x",
        "\ud800",
        "\0",
        "x" * (1 << 20),
        "a: !!binary x",
        "!!timestamp x",
        "%YAML 9.9\n---",
    ],
)
def test_yaml_that_nobody_writes_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        parse_yaml(text)
    (path := tmp_path / "a.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError):
        load_config(path)


def test_a_bomb_of_aliases_costs_nothing(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40)]
    (path := tmp_path / "a.yaml").write_text("\n".join(rows))
    with pytest.raises(ConfigError, match="is an alias; write out what it stands for"):
        load_config(path)


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 5000, '[{"role": "user", "content": "\\ud83d"}]'])
def test_a_conversation_that_nobody_writes_is_refused(value: str, suffix: str, tmp_path: Path) -> None:
    text = value if suffix == ".json" else value.removeprefix("[").removesuffix("]")
    (path := tmp_path / f"a{suffix}").write_text(text)
    with pytest.raises(InputError):
        MemReader().read_content(path)


def test_a_line_of_a_conversation_ends_where_json_lines_do(tmp_path: Path) -> None:
    (path := tmp_path / "a.jsonl").write_text('{"role": "user", "content": "I live\u2028in Oslo."}\n', "utf-8")
    assert MemReader().read_content(path)[0]


def test_half_a_character_is_no_memory() -> None:
    for read in (MemReader().statement, MemReader(TextTagger()).read_request):
        with pytest.raises(InputError, match="half of one"):
            read("Tom likes \ud83d tea.")


@pytest.mark.parametrize("row", ["x", "# ", "[", "<!--", "%%%", "a, ", "Mira's ", "and ", "我", "“", "to "])
def test_a_long_row_of_the_same_is_read_in_time(row: str) -> None:
    text = row * (50_000 // len(row))
    for name in ("import-markdown", "reader"):
        attempt(TARGETS[name], text.encode())  # within 20 s


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE versions SET at = 'never'",
        "UPDATE versions SET json = '{}'",
        "UPDATE heads SET state = 'asleep'",
        "UPDATE transitions SET at = 5",
    ],
)
def test_a_row_that_is_not_memos_own_is_named(
    change: str, seeds: Callable[[Target], list[bytes]], tmp_path: Path
) -> None:
    (tmp_path / "vault").mkdir()
    [data] = seeds(TARGETS["vault"])
    (tmp_path / "vault" / "vault.db").write_bytes(data)
    with sqlite3.connect(tmp_path / "vault" / "vault.db") as db:
        ids = [id for (id,) in db.execute("SELECT id FROM heads")]
        for name in ("changes_insert", "changes_update"):
            db.execute(f"DROP TRIGGER {name}")
        db.execute(change)
    db.close()
    with MemVault(tmp_path / "vault") as vault, pytest.raises(VaultError, match="was damaged, or changed by another"):
        for id in ids:
            vault.cubes()
            vault.versions(id)
            vault.transitions(id)


@pytest.mark.parametrize(
    "setting, value",
    [
        ("rank_pattern", [1]),
        ("rank_pattern", {"q_proj": 0}),
        ("rank_pattern", {"q_proj": "2"}),
        ("alpha_pattern", "x"),
        ("lora_alpha", None),
        ("lora_alpha", "4"),
        ("target_modules", "("),
        ("target_modules", "([a-z.0-9_]+)+!"),
        ("target_modules", 5),
        ("target_modules", ".*.*.*.*.*.*.*x"),
        ("exclude_modules", ".*.*.*.*.*.*.*x"),
        ("modules_to_save", ["(.*.*)*x"]),
        ("layers_pattern", ["(.*.*)*x"]),
    ],
)
def test_an_adapter_whose_config_makes_no_sense_is_refused(setting: str, value: object) -> None:
    [data] = TARGETS["adapter"].seeds()
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "adapter_config.json":
                content = json.dumps(json.loads(content) | {setting: value}).encode()
            new.writestr(name, content)
    assert attempt(TARGETS["adapter"], out.getvalue()) == "CorruptBlob"


def test_kv_of_a_kind_that_no_codec_writes_is_refused() -> None:
    data = TARGETS["kv"].seeds()[0]
    (size,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + size])
    head["layers.000.k"] |= {"dtype": "I32"}
    told = json.dumps(head, separators=(",", ":")).encode()
    assert attempt(TARGETS["kv"], struct.pack("<Q", len(told)) + told + data[8 + size :]) == "CorruptBlob"


def test_the_bounds_are_those_that_are_told() -> None:
    assert json_stream.LONGEST * 4 < MEMORY  # a record, as text of four bytes a character
    assert json.loads("[" * json_stream.DEEPEST + "]" * json_stream.DEEPEST)
