"""Tells what kind of file somebody gives, and refuses one that is not what it is said to be; knows no memories."""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from memos.errors import InputError

MAX_PIXELS = 1 << 26  # of an image: 256 MiB once it is decoded
UNKNOWN = "application/octet-stream"  # the media type of a file of which nothing is claimed
_SUFFIXES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".mp3": "audio/mpeg",
    ".pdf": "application/pdf",
}
# how every such file begins; an image must decode, too
_BEGINNINGS = {
    "audio/wav": rb"RIFF....WAVE",
    "audio/flac": rb"fLaC",
    "audio/ogg": rb"OggS",
    "audio/mpeg": rb"ID3|\xff[\xe2-\xff]",
    "application/pdf": rb"%PDF-",
    UNKNOWN: rb".",
}


@dataclass(frozen=True)
class FileContent:
    """A file that is given as its bytes, as over a network. name: what it is called there."""

    name: str
    content: bytes


def media_type(path: Path, name: str) -> str:
    """The media type of a file that is called `name`; of a suffix that is not known, UNKNOWN. Raises InputError for
    one that is empty, or is not what its suffix says."""
    media = _SUFFIXES.get(Path(name).suffix.lower(), UNKNOWN)
    require_media(path, media, name)
    return media


def require_media(path: Path, media: str, name: str) -> None:
    """Raises InputError unless a file is of a media type: an image must decode, audio and PDF begin as they do. name:
    what it is called in messages."""
    if path.stat().st_size == 0:
        raise InputError(f"{name}: the file is empty; give one that holds something, or leave it out")
    if media.startswith("image/") and media in _SUFFIXES.values():
        why = _undecodable(path, media.removeprefix("image/"))
    elif media in _BEGINNINGS:
        with path.open("rb") as file:
            why = "" if re.match(_BEGINNINGS[media], file.read(16), re.DOTALL) else "it does not begin as one does"
    else:
        raise InputError(f"{name}: nothing here can tell whether it is {media:.80}; give it as {UNKNOWN}")
    if why:
        raise InputError(
            f"{name}: it is said to be {media} and is not ({why}); give a whole file, or the suffix of what it is"
        )


def _undecodable(path: Path, format: str) -> str:
    """Why an image does not decode; "" if it does. Only the format that is claimed is tried: some of Pillow's readers
    start programs."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=[format.upper()]) as image:
            if image.width * image.height > MAX_PIXELS:
                return f"{image.width} x {image.height} pixels are more than the {MAX_PIXELS:,} that are decoded"
            image.load()
    except UnidentifiedImageError:
        return "it does not begin as one does"
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        struct.error,
        zlib.error,
        Image.DecompressionBombError,
    ) as error:
        return str(error) or type(error).__name__
    return ""
