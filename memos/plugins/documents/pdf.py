"""Reads the paragraphs of a PDF's pages; runs in a process of its own."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

from memos.errors import EmptyMemory, InputError
from memos.interface.reading.documents.parts import Passage

_HYPHEN = re.compile(r"(?<=[a-zà-ÿ])-\s*\n\s*(?=[a-zà-ÿ])")  # a word that goes on in the next line
_UNFIT = re.compile(r"[\ud800-\udfff\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NUMBER = re.compile(r"\A\s*\d{1,5}[ \t]*\n|\n[ \t]*\d{1,5}\s*\Z")  # of the page, above or below its text
_BETWEEN = re.compile(r"\n[ \t]*\n")
_ENDS = tuple('.!?:;…。！？：；"”’)')


def read(path: Path) -> list[Passage]:
    """Raises InputError, EmptyMemory."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.ERROR)  # what it mends in passing
    with path.open("rb") as file:
        if b"%PDF-" not in file.read(1024):
            raise InputError(
                f"{path}: no PDF, though its name says so; give the file itself, or the suffix it should have"
            )
        try:
            document = PdfReader(file, strict=False)
            if document.is_encrypted and not document.decrypt(""):
                raise InputError(
                    f"{path}: encrypted with a password; save it without one (`qpdf --decrypt --password=... in.pdf "
                    f"out.pdf`) and give that file"
                )
            count = len(document.pages)
            pages = [page.extract_text() for page in document.pages]
        except InputError:
            raise
        # the parser meets whatever a damaged file holds, and raises what its code does then
        except (
            PyPdfError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            RecursionError,
            OSError,
            NotImplementedError,
            AssertionError,
        ) as error:
            raise InputError(
                f"{path}: a damaged PDF ({type(error).__name__}: {error!s:.120}); save it anew from the program that "
                f"made it, or repair it with `qpdf in.pdf out.pdf`"
            ) from error
    parts = list(_parts(pages, path.stem))
    if not parts:
        raise EmptyMemory(
            f"{path} has no text on its {count} pages: they are scanned; read them first with a program for that "
            f"(`ocrmypdf in.pdf out.pdf`) and give what it makes"
        )
    return parts


def _parts(pages: list[str], stem: str) -> Iterator[Passage]:
    """Paragraphs. One that goes on overleaf is of the page that it begins on."""
    begun, heading = "", stem
    for number, page in enumerate(pages, start=1):
        text = _HYPHEN.sub("", _NUMBER.sub("", _UNFIT.sub("", page).replace("\r\n", "\n")))
        paragraphs = [" ".join(part.split()) for part in _BETWEEN.split(text)]
        for paragraph in (p for p in paragraphs if re.search(r"[^\W_]", p)):
            if begun and paragraph[0].islower() and not begun.endswith(_ENDS):
                begun = f"{begun} {paragraph}"
                continue
            if begun:
                yield Passage(begun, heading)
            begun, heading = paragraph, f"{stem}, page {number}"
    if begun:
        yield Passage(begun, heading)
