"""A file read by a library's parser in a process of its own, within bounds of time and memory: `parts_of`.

Whoever wrote the file may have meant it to keep a parser busy for ever. Nothing but text comes back, as JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import astuple
from importlib import import_module
from pathlib import Path

from memos import errors
from memos.errors import InputError, how_to_install
from memos.interface.reading.documents.parts import Passage, Row

SECONDS = 60  # that a file may take
MEMORY = 2 << 30  # bytes
_MOST_TEXT = 1 << 26  # bytes of JSON that may come back


def parts_of(format: str, path: Path, seconds: float = SECONDS) -> list[Passage | Row]:
    """What `memos.interface.reading.documents.<format>` reads in a file. Raises InputError, EmptyMemory."""
    # the modules of this process, and none that lies beside the file
    begin = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
    command = [sys.executable, "-I", "-c", begin, format, str(path)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(_beyond(path, f"took longer than {seconds:g} seconds")) from None
    try:
        told = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise InputError(_beyond(path, f"ended its parser ({last[:200] or f'exit {done.returncode}'})")) from None
    if "error" in told:
        raise getattr(errors, told["error"])(told["message"])
    kinds: dict[str, type[Passage | Row]] = {"Passage": Passage, "Row": Row}
    return [kinds[kind](*fields) for kind, *fields in told["parts"]]


def _beyond(path: Path, what: str) -> str:
    return f"{path}: it {what}, and is not read; give a smaller part of it, or its text as .txt or .md"


def main() -> None:
    """In that process: the format and the path are its arguments."""
    format, path = sys.argv[1], Path(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    told: dict[str, object]
    try:
        parts = import_module(f"memos.interface.reading.documents.{format}").read(path)
        told = {"parts": [(type(part).__name__, *astuple(part)) for part in parts]}
    except InputError as error:
        told = {"error": type(error).__name__, "message": str(error)}
    except ModuleNotFoundError as error:
        message = f"{path}: reading it needs the package {error.name}; {how_to_install('documents')}"
        told = {"error": "InputError", "message": message}
    except MemoryError:
        sys.exit(f"more than {MEMORY >> 30} GiB of memory")
    text = json.dumps(told)
    sys.exit(f"more than {_MOST_TEXT:,} bytes of text") if len(text) > _MOST_TEXT else print(text)
