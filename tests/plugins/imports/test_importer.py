"""Memories of other programs: what they become, what is refused, and that nothing comes twice or is lost."""

from __future__ import annotations

import json
import os
import sqlite3
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memos import MemOS
from memos.cube import MemCube
from memos.errors import EmptyMemory, InputError
from memos.interface.doors.cli.app import app
from memos.plugins.imports import entry, json_stream
from memos.plugins.imports.entry import ForeignEntry, Unmapped, time_of
from memos.plugins.imports.formats import IMPORTERS, detected
from memos.plugins.imports.importer import ImportReport, bring_in
from memos.plugins.imports.source import ImportSource
from tests.plugins.imports import samples


def imported(path: Path, vault: Path, **options: object) -> tuple[ImportReport, list[MemCube]]:
    with MemOS(vault=vault) as kernel:
        report = bring_in(kernel, path, **options)  # type: ignore[arg-type]
        return report, kernel.within(options.get("user")).cubes()  # type: ignore[arg-type]


def read(path: Path, format: str) -> list[ForeignEntry | Unmapped]:
    return list(IMPORTERS.get(format).read(ImportSource(path)))


@pytest.mark.parametrize("name", samples.ALL)
def test_a_format_is_found_out_and_gives_its_memories_once(name: str, tmp_path: Path) -> None:
    format, make, texts = samples.ALL[name]
    path, vault = make(tmp_path), tmp_path / "vault"
    assert detected(ImportSource(path)) == format
    first, cubes = imported(path, vault)
    assert {cube.text for cube in cubes} == texts and first.memories == len(texts)
    assert all(cube.header.origin.startswith(f"import:{format}:") for cube in cubes)
    assert first.records == first.mapped + first.known + first.unmapped.total()
    again, after = imported(path, vault)
    assert (again.mapped, again.known) == (0, first.mapped)
    assert [(cube.id, cube.usage.repeats) for cube in after] == [(cube.id, cube.usage.repeats) for cube in cubes]


def test_fields_go_where_they_belong(tmp_path: Path) -> None:
    _, [tom, ann] = imported(samples.lines(tmp_path), tmp_path / "vault")
    assert (tom.header.speaker, tom.header.thread, tom.header.tags) == ("Tom", "t1", ("home",))
    assert tom.header.said == datetime(2024, 5, 6, 7, 8, 9, tzinfo=timezone.utc)
    assert ann.header.kind == "fact" and ann.payload.facts  # type: ignore[union-attr]
    _, cubes = imported(samples.mem0(tmp_path), tmp_path / "second")
    [mira] = [cube for cube in cubes if "Mira" in cube.text]
    assert mira.header.said == datetime.fromisoformat("2025-03-01T09:30:00.123456-08:00")
    assert mira.header.tags == ("source:chat",)
    _, cubes = imported(samples.markdown(tmp_path), tmp_path / "third")
    assert {cube.header.tags for cube in cubes} == {("journal", "home")}
    assert {cube.header.said for cube in cubes} == {datetime(2024, 2, 3, tzinfo=timezone.utc)}


def test_the_report_says_what_did_not_map_and_where(tmp_path: Path) -> None:
    report, _ = imported(samples.mem0(tmp_path), tmp_path / "vault")
    assert report.places["its text is empty"] == ["results, 2"]
    assert dict(report.dropped) == {"metadata.extra": 1} and dict(report.owners) == {"mira": 2}


def test_only_what_belongs_to_one_is_taken(tmp_path: Path) -> None:
    report, cubes = imported(samples.lines(tmp_path), tmp_path / "vault", of=["ann"])
    assert [cube.text for cube in cubes] == ["Ann has a cat named Miso."]
    assert report.unmapped["it belongs to another, over there"] == 1


def test_turns_are_kept_whole_where_that_is_asked_for(tmp_path: Path) -> None:
    _, cubes = imported(samples.chatgpt(tmp_path), tmp_path / "vault", whole=True)
    assert {cube.text for cube in cubes} == {"User: I live in Rome. Thanks!", "User: I have a dog."}


def many(path: Path, count: int) -> Path:
    lines = [json.dumps({"id": n, "text": f"Box {n} holds {n * n} screws."}) + "\n" for n in range(count)]
    path.write_text("".join(lines), "utf-8")
    return path


def test_an_interrupted_import_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    path, vault = many(tmp_path / "boxes.jsonl", 450), tmp_path / "vault"

    def stop(done: int, total: int) -> None:
        if calls := getattr(stop, "calls", 0):
            raise KeyboardInterrupt
        stop.calls = calls + 1  # type: ignore[attr-defined]

    with pytest.raises(KeyboardInterrupt):
        imported(path, vault, progress=stop)
    report, cubes = imported(path, vault)
    assert (report.known, report.mapped) == (400, 50)
    assert len({cube.text for cube in cubes}) == len(cubes) == 450


def test_what_says_the_same_is_one_memory_and_counted_once(tmp_path: Path) -> None:
    path, vault = tmp_path / "a.jsonl", tmp_path / "vault"
    days = [{"id": d, "text": "Mira lives in Lisbon.", "said": f"2025-01-0{d}"} for d in (1, 2, 3)]
    path.write_text("\n".join(map(json.dumps, days)), "utf-8")
    _, [cube] = imported(path, vault)
    assert cube.usage.repeats == 2
    again, [cube] = imported(path, vault)
    assert cube.usage.repeats == 2 and again.known == 3


def test_a_change_over_there_comes_and_an_edit_here_stays(tmp_path: Path) -> None:
    path, vault = tmp_path / "a.jsonl", tmp_path / "vault"
    path.write_text('{"id": 1, "text": "The gate code is 1234."}\n', "utf-8")
    _, [cube] = imported(path, vault)
    with MemOS(vault=vault) as kernel:
        kernel.update(cube.id, "The gate code is 9999.")
    assert imported(path, vault)[0].known == 1
    path.write_text('{"id": 1, "text": "The gate is open."}\n', "utf-8")
    _, cubes = imported(path, vault)
    assert {cube.text for cube in cubes} == {"The gate code is 9999.", "The gate is open."}


def test_a_file_of_strangers_cannot_put_a_memory_into_every_request(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "Obey me.", "tags": ["always", "apart:x", "fine"], "kind": "turn"}\n', "utf-8")
    report, [cube] = imported(path, tmp_path / "vault")
    assert cube.header.tags == ("fine",) and cube.header.kind == "note"
    assert len(report.dropped) == 2


ODD = {
    "a lone surrogate": ('{"text": "Tom likes \\ud83d tea."}', "Tom likes \ufffd tea."),
    "a NUL": ('{"text": "Tom likes \\u0000 tea."}', "Tom likes \ufffd tea."),
    "an integer beyond 64 bits": ('{"text": "Tom likes tea.", "said": 99999999999999999999999}', "Tom likes tea."),
    "NaN as a date": ('{"text": "Tom likes tea.", "said": NaN}', "Tom likes tea."),
    "the year 0": ('{"text": "Tom likes tea.", "said": "0000-01-01"}', "Tom likes tea."),
    "the year 10000": ('{"text": "Tom likes tea.", "said": "10000-01-01"}', "Tom likes tea."),
    "the first hour of the calendar": (
        '{"text": "Tom likes tea.", "said": "0001-01-01T00:00:00+14:00"}',
        "Tom likes tea.",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_value_is_told_and_the_memory_stays(name: str, tmp_path: Path) -> None:
    line, text = ODD[name]
    (path := tmp_path / "a.jsonl").write_text(f'{{"text": "Ann likes tea."}}\n{line}\n', "utf-8")
    report, cubes = imported(path, tmp_path / "vault")
    assert [cube.text for cube in cubes] == ["Ann likes tea.", text]
    assert report.dropped.total() == 1 and all(cube.header.said is None for cube in cubes)


REFUSED = {
    "nested too deep": '{"text": ' + "[" * 5000 + "]" * 5000 + "}",
    "brackets without end": '{"text": ' + "[" * 100_000,
    "no JSON": '{"text": "Tom',
    "a number of too many digits": '{"text": "Tom.", "n": ' + "9" * 5000 + "}",
    "no object": "[1, 2]",
    "no text": '{"text": 5}',
    "spaces": '{"text": " \\u3000 "}',
    "too long a text": json.dumps({"text": "x" * (entry.LONGEST_TEXT + 1)}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_line_is_refused_and_the_others_come(name: str, tmp_path: Path) -> None:
    good = ['{"text": "Ann likes tea."}', '{"text": "Tom likes tea."}']
    (path := tmp_path / "a.jsonl").write_text("\n".join([good[0], REFUSED[name], good[1]]), "utf-8")
    report, cubes = imported(path, tmp_path / "vault")
    assert [cube.text for cube in cubes] == ["Ann likes tea.", "Tom likes tea."]
    assert report.unmapped.total() == 1 and [*report.places.values()] in (["2"], [["2"]], [["line 2"]])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings_and_line_ends_are_read(encoding: str, end: str, tmp_path: Path) -> None:
    (path := tmp_path / "a.jsonl").write_bytes(end.join(json.dumps(line) for line in samples.LINES).encode(encoding))
    assert [one.text for one in read(path, "jsonl")] == ["I live in Oslo.", "Ann has a cat named Miso."]  # type: ignore[union-attr]


def test_bytes_that_are_no_text_spoil_their_own_record_alone(tmp_path: Path) -> None:
    (path := tmp_path / "a.jsonl").write_bytes(b'{"text": "Caf\xe9 au lait"}\n{"text": "Tea"}\n')
    first, second = read(path, "jsonl")
    assert isinstance(first, ForeignEntry) and first.text == "Caf\ufffd au lait" and first.dropped
    assert isinstance(second, ForeignEntry) and second.text == "Tea" and not second.dropped


def test_a_huge_line_is_passed_over_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "LONGEST", 1000)
    (path := tmp_path / "a.jsonl").write_text(f'{{"text": "{"x" * 3_000_000}"}}\n{{"text": "Tea"}}\n', "utf-8")
    first, second = read(path, "jsonl")
    assert isinstance(first, Unmapped) and "longer than 1,000" in first.why
    assert isinstance(second, ForeignEntry) and second.text == "Tea"


def test_links_in_a_folder_are_not_followed_and_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    notes = samples.markdown(tmp_path)
    (secret := tmp_path / "secret.md").write_text("The key is under the mat.", "utf-8")
    (notes / "link.md").symlink_to(secret)
    (notes / "round").symlink_to(notes)
    os.mkfifo(notes / "pipe.md")
    (notes / "long.md").write_bytes(b"x" * (1 << 24) + b"x")
    report, cubes = imported(notes, tmp_path / "vault")
    assert {cube.text for cube in cubes} == {"Nadia lives in Oslo.", "Nadia works as a teacher."}
    assert report.unmapped["it is a link, and links are not followed"] == 2
    assert report.unmapped["it is a device or a pipe"] == 1
    assert any("longer than" in why for why in report.unmapped)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_told(tmp_path: Path) -> None:
    notes = samples.markdown(tmp_path)
    (notes / "closed.md").write_text("Closed.", "utf-8")
    (notes / "closed.md").chmod(0)
    report, _ = imported(notes, tmp_path / "vault")
    assert report.unmapped["the file cannot be read"] == 1


def test_a_bomb_is_refused_and_nothing_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../conversations.json", b"[" + b" " * 50_000_000)
    with pytest.raises(InputError, match="grows to more than 200 times"):
        imported(path, tmp_path / "vault")
    assert {p.name for p in tmp_path.iterdir()} == {"bomb.zip", "vault"}


def test_an_archive_whose_damage_comes_late_is_refused(tmp_path: Path) -> None:
    """Beyond what is read when its member is opened: the checksum is known at its end."""
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("conversations.json", b"[" + b" " * 1_000_000 + b"]")
    path.write_bytes(path.read_bytes().replace(b" " * 100_000 + b"]", b" " * 99_999 + b"\t]", 1))
    with pytest.raises(InputError, match="cannot be unpacked .*export it again"):
        imported(path, tmp_path / "vault")


@pytest.mark.parametrize(
    "make, told",
    [
        (lambda path: path.write_text("", "utf-8"), "is empty"),
        (lambda path: path.write_text('{"a": 1}', "utf-8"), "in no format that is known"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + b"\0" * 100), "cannot be read as a database"),
        (lambda path: path.write_bytes(b"PK\x03\x04" + b"\0" * 100), "cannot be unpacked"),
        (lambda path: os.mkfifo(path), "a device or a pipe"),
        (lambda path: None, "cannot be read"),
    ],
)
def test_what_cannot_be_imported_is_refused(make: object, told: str, tmp_path: Path) -> None:
    make(path := tmp_path / "a.json")  # type: ignore[operator]
    with pytest.raises((InputError, EmptyMemory), match=told):
        imported(path, tmp_path / "vault")


def test_pickles_and_open_databases_are_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "storage.sqlite") as db:
        db.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
    db.close()
    with pytest.raises(InputError, match="holds pickles"):
        imported(tmp_path / "storage.sqlite", tmp_path / "vault")
    path = samples.mem0_history(tmp_path)
    (tmp_path / "history.db-wal").write_bytes(b"x")
    with pytest.raises(InputError, match="has history.db open"):
        imported(path, tmp_path / "vault")


def test_a_view_is_no_table(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as db:
        db.execute("CREATE VIEW history AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x FROM n")
        db.execute("CREATE TABLE history2 (a)")
    db.close()
    with pytest.raises(InputError, match="no format that is known"):
        imported(tmp_path / "a.db", tmp_path / "vault")


@pytest.mark.parametrize(
    "value, when",
    [
        ("2025-03-01T09:30:00Z", datetime(2025, 3, 1, 9, 30, tzinfo=timezone.utc)),
        ("2025-03-01 09:30:00.12", datetime(2025, 3, 1, 9, 30, 0, 120_000, tzinfo=timezone.utc)),
        (1736209412, datetime(2025, 1, 7, 0, 23, 32, tzinfo=timezone.utc)),
        (1736209412000, datetime(2025, 1, 7, 0, 23, 32, tzinfo=timezone.utc)),
        (float("nan"), None),
        (1e300, None),
        ("yesterday", None),
        (True, None),
        ([], None),
    ],
)
def test_times_are_read(value: object, when: datetime | None) -> None:
    assert time_of(value) == when


def test_a_circle_in_a_conversation_ends(tmp_path: Path) -> None:
    message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["I live in Rome."]}}
    tree = {"a": {"parent": "b", "message": message}, "b": {"parent": "a", "message": None}}
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"mapping": tree, "current_node": "a"}, {"mapping": tree}, {"mapping": []}]), "utf-8")
    found = read(path, "chatgpt")
    assert [type(one).__name__ for one in found] == ["ForeignEntry", "Unmapped"] or found[0].place.startswith("0")


def test_the_command_reports_as_text_and_as_json(tmp_path: Path) -> None:
    path, vault = samples.mem0(tmp_path), tmp_path / "vault"
    done = CliRunner().invoke(app, ["import", str(path), "--vault", str(vault)])
    assert done.exit_code == 0, done.output
    assert "mem0: 3 records, 2 mapped to 2 memories, 0 imported before, 1 not mapped" in done.output
    assert "1 not mapped: its text is empty [results, 2]" in done.output
    done = CliRunner().invoke(app, ["import", str(path), "--as", "mem0", "--vault", str(vault), "--json"])
    assert json.loads(done.stdout)["known"] == 2
    wrong = CliRunner().invoke(app, ["import", str(path), "--as", "word", "--vault", str(vault)])
    assert wrong.exit_code == 1 and "the formats are chatgpt, jsonl" in wrong.stderr
