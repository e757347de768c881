"""Parts that packages add: command groups, mounted by name and left out where they fail; and the list of all parts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from memos.interface.doors.cli.app import app

Install = Callable[[str, str, str, str], None]  # package, group, entry point, code


GROUP = "memos.commands"
HELLO = """
import typer
app = typer.Typer({name})
@app.command()
def hello(name: str = "you"):
    print("hello", name)
@app.command()
def add():
    print("another add")
@app.command()
def run():
    print("another run")
"""


def test_a_package_adds_commands_and_takes_none_of_ours(install: Install) -> None:
    install("memos-hello", GROUP, "a-hello = memos_hello:app", HELLO.format(name=""))
    assert CliRunner().invoke(app, ["hello", "--name", "Mira"]).stdout == "hello Mira\n"
    assert "Remember statements" in CliRunner().invoke(app, ["add", "--help"]).stdout
    assert "YAML of the experiment" in CliRunner().invoke(app, ["run", "--help"]).stdout
    assert " hello " in CliRunner().invoke(app, ["--help"]).stdout


@pytest.mark.parametrize("group", ["hey", "vault"], ids=["a new group", "one of ours"])
def test_a_group_with_a_name_is_mounted_under_it(install: Install, group: str) -> None:
    install(f"memos-in-{group}", GROUP, f"hey = memos_in_{group}:app", HELLO.format(name=f"name={group!r}"))
    done = CliRunner().invoke(app, [group, "hello"])
    assert done.stdout == "hello you\n", done.output
    assert CliRunner().invoke(app, ["vault", "stats", "--help"]).exit_code == 0


def test_a_group_that_fails_to_load_is_named_only_where_it_is_asked_for(install: Install) -> None:
    install("memos-broken", GROUP, "broken = memos_broken:app", "raise RuntimeError('no licence')")
    helped, asked = CliRunner().invoke(app, ["--help"]), CliRunner().invoke(app, ["broken"])
    assert helped.exit_code == 0 and helped.stderr == ""
    assert asked.exit_code == 2
    (line,) = [line for line in asked.stderr.splitlines() if line.startswith("left out: ")]
    assert "memos_broken:app" in line and "RuntimeError: no licence" in line and "uninstall memos-broken" in line


def test_what_is_no_command_group_is_left_out(install: Install) -> None:
    install("memos-odd", GROUP, "odd = memos_odd:app", "app = 3")
    asked = CliRunner().invoke(app, ["odd"])
    assert asked.exit_code == 2 and "'odd' is no typer.Typer" in asked.stderr


def test_plugins_lists_every_part_its_package_and_why_one_fails(install: Install) -> None:
    install("memos-lost", "memos.policies", "lost = memos_lost:make", "raise RuntimeError('no licence')")
    listed = CliRunner().invoke(app, ["plugins", "--json"])
    assert listed.exit_code == 0, listed.output
    parts = {(one["group"], one["name"]): one for one in json.loads(listed.stdout)["results"]}
    lost = parts["memos.policies", "lost"]
    assert (lost["package"], lost["version"]) == ("memos-lost", "1.2") and "RuntimeError: no licence" in lost["problem"]
    ours = [one for one in parts.values() if one["package"] == "memos-kernel"]
    assert {"memos.commands", "memos.policies", "memos.routes"} <= {one["group"] for one in ours}
    assert not [one for one in ours if one["problem"]]
    table = CliRunner().invoke(app, ["plugins"], env={"COLUMNS": "200"}).stdout
    assert "lost" in table and "memos-lost 1.2" in table and "dashboard" in table
