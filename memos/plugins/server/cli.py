"""`memos serve`: the server over HTTP."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from memos.errors import InputError, how_to_install
from memos.interface.doors.cli.shared import ConfigFile, NewVault, Set, settings_of

commands = typer.Typer()


@commands.command()
def serve(
    config: ConfigFile = None,
    vault: NewVault = None,
    host: Annotated[str | None, typer.Option("--host", help="where to listen, in place of serve.host")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="in place of serve.port")] = None,
    engine: Annotated[str | None, typer.Option("--engine", help="in place of model.engine, such as vllm")] = None,
    set_: Set = None,
) -> None:
    """Serve the Memory API, an OpenAI-compatible one and MCP over HTTP. End with ctrl-C."""
    listen(config, vault, host, port, [*(set_ or ()), *([f"model.engine={engine}"] if engine else ())])


def listen(
    config: Path | None, vault: Path | None, host: str | None, port: int | None, set_: list[str] | None, path: str = ""
) -> None:
    """Serve until the process is asked to stop. path: of the address that is printed."""
    from memos.plugins.server.heap import one_heap  # asyncio, which no other command needs

    one_heap()
    try:
        from memos.plugins.server.run import serve as run
    except ImportError as error:
        raise InputError(f"memos serve needs {error.name}; {how_to_install('serve')}") from None

    settings = settings_of(config, set_)
    asked = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = settings.model_copy(update={"serve": settings.serve.model_copy(update=asked)})
    access = logging.getLogger("memos.access")
    access.setLevel(logging.INFO)
    access.propagate = False
    access.addHandler(lines := logging.StreamHandler(sys.stderr))
    try:
        run(
            settings,
            vault,
            lambda url: print(f"memos serves {settings.model.path} at {url}{path}; ctrl-C ends", flush=True),
        )
    finally:
        access.removeHandler(lines)
