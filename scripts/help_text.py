#!/usr/bin/env python3
"""Writes what `memos --help` prints, of the commands that ship: python scripts/help_text.py"""

from __future__ import annotations

from typer.testing import CliRunner

from memos.__main__ import HELP
from memos.interface.doors.cli.app import app

if __name__ == "__main__":
    HELP.write_text(CliRunner().invoke(app, ["--help"]).stdout, "utf-8")
