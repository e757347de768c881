"""`memos mcp`: memories for agents over stdio or HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from memos.errors import InputError, how_to_install
from memos.interface.doors.cli.shared import ConfigFile, NewVault, Set, made
from memos.plugins.server.cli import listen

commands = typer.Typer()


@commands.command()
def mcp(
    config: ConfigFile = None,
    vault: NewVault = None,
    key: Annotated[
        str | None,
        typer.Option("--key", envvar="MEMOS_KEY", help="act for whom it stands for; default: the config's user"),
    ] = None,
    http: Annotated[
        bool, typer.Option("--http", help="at /v1/mcp of `memos serve`; each caller shows its key")
    ] = False,
    host: Annotated[str | None, typer.Option("--host", help="with --http: where to listen")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="with --http")] = None,
    all_tools: Annotated[
        bool, typer.Option("--all-tools", help="every call that agents may make, with whole results; default: six")
    ] = False,
    set_: Set = None,
) -> None:
    """Serve memories to agents by the Model Context Protocol: over stdio to the program that starts this, or HTTP."""
    try:
        from memos.plugins.mcp.handlers import serve_stdio
    except ImportError as error:
        raise InputError(f"memos mcp needs {error.name}; {how_to_install('mcp')}") from None

    if http:
        from memos.plugins.mcp.routes import PATH

        if all_tools:
            raise InputError(f"--all-tools is for stdio; over HTTP a client asks for them by {PATH}?tools=all")
        return listen(config, vault, host, port, set_, PATH)
    if host is not None or port is not None:
        raise InputError("--host and --port say where to listen over HTTP; give --http too, or leave them out")
    from memos.interface.doors.api.memory import Memory
    from memos.plugins.server.edge.callers import OwnMemory

    with made(vault, config, set_) as kernel:
        serve_stdio(OwnMemory(kernel=kernel) if key is None else Memory(kernel=kernel, key=key), all_tools)
