"""Command groups that packages add by the entry point `memos.commands`: mounted by name, left out where they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memos import extensions
from memos.interface.doors.cli.app import app

Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package of one module that provides one command group: its name, its entry point, its code."""

    def installed(package: str, entry: str, code: str) -> None:
        module = package.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        metadata = tmp_path / f"{module}-1.2.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        (metadata / "entry_points.txt").write_text(f"[memos.commands]\n{entry}\n")
        extensions._entries.cache_clear()

    monkeypatch.syspath_prepend(tmp_path)
    yield installed
    monkeypatch.undo()
    extensions._entries.cache_clear()


HELLO = """
import typer
app = typer.Typer({name})
@app.command()
def hello(name: str = "you"):
    print("hello", name)
@app.command()
def add():
    print("another add")
"""


def test_a_package_adds_commands_and_takes_none_of_ours(install: Install) -> None:
    install("memos-hello", "hello = memos_hello:app", HELLO.format(name=""))
    assert CliRunner().invoke(app, ["hello", "--name", "Mira"]).stdout == "hello Mira\n"
    assert "Remember statements" in CliRunner().invoke(app, ["add", "--help"]).stdout
    assert " hello " in CliRunner().invoke(app, ["--help"]).stdout


@pytest.mark.parametrize("group", ["hey", "vault"], ids=["a new group", "one of ours"])
def test_a_group_with_a_name_is_mounted_under_it(install: Install, group: str) -> None:
    install(f"memos-in-{group}", f"hey = memos_in_{group}:app", HELLO.format(name=f"name={group!r}"))
    done = CliRunner().invoke(app, [group, "hello"])
    assert done.stdout == "hello you\n", done.output
    assert CliRunner().invoke(app, ["vault", "stats", "--help"]).exit_code == 0


def test_a_group_that_fails_to_load_is_named_only_where_it_is_asked_for(install: Install) -> None:
    install("memos-broken", "broken = memos_broken:app", "raise RuntimeError('no licence')")
    helped, asked = CliRunner().invoke(app, ["--help"]), CliRunner().invoke(app, ["broken"])
    assert helped.exit_code == 0 and helped.stderr == ""
    assert asked.exit_code == 2
    (line,) = [line for line in asked.stderr.splitlines() if line.startswith("left out: ")]
    assert "memos_broken:app" in line and "RuntimeError: no licence" in line and "uninstall memos-broken" in line


def test_what_is_no_command_group_is_left_out(install: Install) -> None:
    install("memos-odd", "odd = memos_odd:app", "app = 3")
    asked = CliRunner().invoke(app, ["odd"])
    assert asked.exit_code == 2 and "'odd' is no typer.Typer" in asked.stderr
