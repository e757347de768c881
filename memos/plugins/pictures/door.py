"""Files of memories as calls beside those of the Memory API, for HTTP and for agents; bytes travel as base64."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode

from typing_extensions import TypedDict, Unpack

from memos.errors import InputError
from memos.interface.doors.api.calling import added, costing
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.api.values import Costed, Items, Who
from memos.kernel.calls import Effect
from memos.plugins.mcp.tools import Tool
from memos.plugins.pictures.calls import PictureCalls
from memos.plugins.pictures.media import FileContent


class FileReply(Costed):
    """data: the bytes of the file in base64."""

    media_type: str
    bytes: int
    sha256: str
    data: str


class FileUpload(TypedDict):
    """name: what the file is called, with the suffix of what it is. data: its bytes in base64."""

    name: str
    data: str


def add_file(memory: Memory, text: str, file: FileUpload, **who: Unpack[Who]) -> Items:
    """Remember a statement, as a caption or a transcript, with the file that it tells of."""
    try:
        content = b64decode(file["data"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"data of {file['name']!r:.80} is no base64 ({error}); encode the file's bytes") from None
    calls, began = PictureCalls.of(memory.within(**who)), memory.kernel.vault.now()
    with costing() as cost:
        cubes = calls.add_file(text, FileContent(file["name"], content))
    return {"results": added(cubes, began), "cost": cost}


def file(memory: Memory, memory_id: str, **who: Unpack[Who]) -> FileReply:
    """The file that a memory tells of."""
    with costing() as cost:
        found = PictureCalls.of(memory.around(memory_id, who)).file(memory_id)
        data = b64encode(found.path.read_bytes()).decode()
    return {"media_type": found.media_type, "bytes": found.bytes, "sha256": found.sha256, "data": data, "cost": cost}


ADD_FILE, FILE = Tool(add_file, Effect.ADDS), Tool(file, Effect.READS)
