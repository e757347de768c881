"""Reads HTML and PDF files in a process of their own, within limits of time and memory.

Whoever wrote the file may have meant it to keep a parser busy for ever. Nothing but text comes back, as JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import astuple
from functools import partial
from importlib import import_module
from pathlib import Path

from memos import errors
from memos.errors import InputError, how_to_install
from memos.interface.reading.documents.parts import DocumentReader, Part, Passage, TableRow

MAX_SECONDS = 60  # that a file may take
MAX_MEMORY = 2 << 30  # bytes of the parser's process
MAX_RESULT = 1 << 26  # bytes of JSON that may come back
MAX_PDF = 1 << 28  # bytes; most of one is pictures


def parts_of(format: str, path: Path, seconds: float = MAX_SECONDS) -> list[Part]:
    """What `memos.plugins.documents.<format>` reads in a file. Raises InputError, EmptyMemory."""
    # the modules of this process, and none that lies beside the file
    begin = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
    command = [sys.executable, "-I", "-c", begin, format, str(path)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(_refusal(path, f"took longer than {seconds:g} seconds")) from None
    try:
        result = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise InputError(_refusal(path, f"ended its parser ({last[:200] or f'exit {done.returncode}'})")) from None
    if "error" in result:
        raise getattr(errors, result["error"])(result["message"])
    kinds: dict[str, type[Passage | TableRow]] = {"Passage": Passage, "TableRow": TableRow}
    return [kinds[kind](*fields) for kind, *fields in result["parts"]]


HTML = DocumentReader(partial(parts_of, "html"))
PDF = DocumentReader(partial(parts_of, "pdf"), max_bytes=MAX_PDF)


def _refusal(path: Path, what: str) -> str:
    return f"{path}: it {what}, and is not read; give a smaller part of it, or its text as .txt or .md"


def main() -> None:
    """In that process: the format and the path are its arguments."""
    format, path = sys.argv[1], Path(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    result: dict[str, object]
    try:
        parts = import_module(f"memos.plugins.documents.{format}").read(path)
        result = {"parts": [(type(part).__name__, *astuple(part)) for part in parts]}
    except InputError as error:
        result = {"error": type(error).__name__, "message": str(error)}
    except ModuleNotFoundError as error:
        message = f"{path}: reading it needs the package {error.name}; {how_to_install('documents')}"
        result = {"error": "InputError", "message": message}
    except MemoryError:
        sys.exit(f"more than {MAX_MEMORY >> 30} GiB of memory")
    text = json.dumps(result)
    sys.exit(f"more than {MAX_RESULT:,} bytes of text") if len(text) > MAX_RESULT else print(text)
