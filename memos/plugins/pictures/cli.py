"""`memos file`: files that memories tell of."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.errors import InputError
from memos.interface.doors.cli.shared import Output, User, new_vault_command, vault_command

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS
    from memos.plugins.pictures.calls import PictureCalls

files = typer.Typer(name="file", help="Pictures, audio and other files that memories tell of.", no_args_is_help=True)


def calls(kernel: MemOS, user: str | None) -> PictureCalls:
    from memos.plugins.pictures.calls import PictureCalls

    return PictureCalls.of(kernel.within(user))


@new_vault_command(files)
def add(
    kernel: MemOS,
    caption: Annotated[str, typer.Argument(help="what the file shows or says; it is found by that")],
    path: Annotated[Path, typer.Argument(help="a picture, audio or any other file")],
    user: User = None,
    tag: Annotated[list[str] | None, typer.Option(help="see `memos tag`; may be given again")] = None,
) -> Output:
    """Remember a caption or a transcript with the file that it tells of."""
    from memos.interface.doors.api.calling import added

    began = kernel.vault.now()
    cubes = calls(kernel, user).add_file(caption, path, tags=tag or ())
    return Output(added(cubes, began), [f"{c.id}  {c.text}  [{c.media_type}]" for c in cubes])


@vault_command(files)
def get(
    kernel: MemOS,
    id: Annotated[str, typer.Argument(help="of a memory with a file, as `memos ls` lists it")],
    out: Annotated[Path, typer.Option(help="where to write it; nothing may be there yet")],
    user: User = None,
) -> Output:
    """Write the file that a memory tells of, as it was given."""
    found = calls(kernel, user).file(id)
    try:
        with found.path.open("rb") as stored, out.open("xb") as target:
            shutil.copyfileobj(stored, target)
    except OSError as error:
        raise InputError(f"{out} was not written ({error.strerror}); name a file that is not there yet") from error
    value = {"media_type": found.media_type, "bytes": found.bytes, "sha256": found.sha256, "path": str(out)}
    return Output(value, [f"{out}: {found.media_type}, {found.bytes:,} bytes"])
