"""Commands in this process, and what is asked of one that was refused."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner, Result

from memos.interface.doors.cli.app import app


def invoke(*args: Any, say: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args], input=say)


def no(result: Result, *said: str) -> str:
    """The message of a command that was refused: one line of error, no traceback, an exit code."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    error = result.stderr[result.stderr.index("error: ") :]
    for words in said:
        assert words in error
    return error
