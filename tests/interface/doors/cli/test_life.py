"""The life of memories from the command line: what it prints, and what it says of wrong input."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from memos import MemOS
from memos.interface.doors.cli.app import app
from memos.kernel import unread


def memos(*command: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in command])


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    path = tmp_path / "vault"
    with MemOS(vault=path) as kernel:
        kernel.add("Mira lives in Lisbon.")
    return path


@pytest.fixture
def id(vault: Path) -> str:
    with MemOS(vault=vault) as kernel:
        [cube] = kernel.cubes()
        kernel.update(cube.id, "Mira lives in Rome.")
    return cube.id


def said(command: str, vault: Path, *more: object) -> str:
    done = memos(command, *more, "--vault", vault)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_history_tells_versions_moves_and_differences(vault: Path, id: str) -> None:
    plain, full = said("history", vault, id), said("history", vault, id, "--diff")
    assert [line.split("  ", 1)[1] for line in plain.splitlines()] == ["version 1", "generated: created", "version 2"]
    assert "    -Mira lives in Lisbon." in full.splitlines() and "    +Mira lives in Rome." in full.splitlines()


def test_a_memory_goes_back_and_is_locked_and_put_aside(vault: Path, id: str) -> None:
    assert said("rollback", vault, id, 1) == f"{id} version 3: Mira lives in Lisbon.\n"
    assert said("freeze", vault, id, "--why", "an audit") == f"{id} is frozen\n"
    refused = memos("rollback", id, 2, "--vault", vault)
    assert refused.exit_code == 1 and "is frozen and cannot be edited; thaw it" in refused.stderr
    assert said("thaw", vault, id) == f"{id} is activated\n"
    assert said("archive", vault, id) == f"{id} is archived\n"
    assert said("unarchive", vault, id) == f"{id} is activated\n"
    assert "frozen: an audit" in said("history", vault, id)


def test_a_snapshot_is_gone_back_to_and_that_is_undone(vault: Path, id: str) -> None:
    assert "there is no snapshot" in said("snapshots", vault)
    assert said("snapshot", vault, "monday") == "monday: 1 memory\n"
    with MemOS(vault=vault) as kernel:
        kernel.update(id, "Mira lives in Paris.")
        kernel.add("Mira has a cat.")
    done = said("restore", vault, "monday").splitlines()
    assert done == [
        "1 as they were",
        "1 archived, as they were not there or not in use then",
        "to undo this: memos restore 'before restore of monday'",
    ]
    assert "Rome" in said("show", vault, id)
    said("restore", vault, "before restore of monday")
    with MemOS(vault=vault) as kernel:
        assert kernel.get(id).text == "Mira lives in Paris."
        kernel.delete(id)
    assert "monday: 1 memory, 1 of them deleted since" in said("snapshots", vault)
    assert said("delete-snapshot", vault, "monday") == "monday is deleted\n"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("history", "nobody"), "no cube nobody; give the whole id"),
        (("rollback", "ID", 7), "has no version 7; see `memos show"),
        (("thaw", "ID"), "is generated and cannot become activated from frozen or cold; allowed: activated, archived,"),
        (("restore", "tuesday"), "no snapshot 'tuesday' of default: there is none yet; take one with `memos snapshot"),
        (("delete-snapshot", "tuesday"), "no snapshot 'tuesday'"),
        (("snapshot", " "), "' ' cannot name a snapshot; give it a name of 1 to 200 characters"),
        (("freeze", "ID", "--why", ""), "without a reason; say why"),
    ],
)
def test_a_wrong_life_is_told(vault: Path, id: str, command: tuple[object, ...], told: str) -> None:
    refused = memos(*(id if word == "ID" else word for word in command), "--vault", vault)
    assert refused.exit_code == 1
    assert told in refused.stderr


def test_what_a_command_leaves_unread_it_reads_before_it_ends(tmp_path: Path) -> None:
    vault = tmp_path / "new"
    for text in ("i live in leeds", "moved to southampton last week!"):
        said("add", vault, text)
    assert "southampton" in said("search", vault, "where do i live?").splitlines()[0]
    assert "leeds" not in said("search", vault, "where do i live?")
    assert "leeds" in said("search", vault, "where did i live before?").splitlines()[0]
    with MemOS(vault=vault) as kernel:
        assert kernel.vault.jobs.all("queued") == []


def test_much_that_is_unread_is_left_for_the_work_command(tmp_path: Path) -> None:
    vault = tmp_path / "new"
    said("add", vault, *(f"got a new bike today, the {n}th" for n in range(unread.PAGE)))
    with MemOS(vault=vault) as kernel:
        assert len(kernel.vault.jobs.all("queued")) == 1
