"""Runs the command line, as `memos` and as `python -m memos`.

Of `memos --help` the text is stored, by scripts/help_text.py: to import every command for it takes most of a second.
"""

from __future__ import annotations

import sys
from pathlib import Path

from memos.extensions import Registry

HELP = Path(__file__).parent / "interface/doors/cli/help.txt"


def main() -> None:
    """Entry point of the `memos` command."""
    given = sys.argv[1:]
    if given in ([], ["--help"]) and not Registry[object]("memos.commands", "command group").added():
        print(HELP.read_text("utf-8"), end="")
        sys.exit(0 if given else 2)
    from memos.interface.doors.cli.app import app

    app()


if __name__ == "__main__":
    main()
