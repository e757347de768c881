"""Reads the text of a LangGraph store's item, by the habits of programs that fill one; knows no library.

LangMem's values (`{"kind": ..., "content": ...}`) and those of others: the store and the importer read them alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

TEXT_FIELDS = ("content", "text", "memory", "data")  # where an item's text stands, by habit
MAX_FIELDS = 100_000  # of an item that are read


def item_text(value: Mapping[str, object]) -> tuple[str | None, tuple[str, ...]]:
    """(what an item says, the fields that it stands in); of one without a text, its fields as words."""
    content = value.get("content")
    if isinstance(content, dict):  # LangMem's
        return item_text(content)[0], ("content",)
    for name in TEXT_FIELDS:
        if isinstance(text := value.get(name), str):
            return text, (name,)
    fields = [f"{name.replace('_', ' ')}: {words}" for name, words in _fields(value) if name != "kind"]
    return "; ".join(fields) or None, tuple(value)


def _fields(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The fields of an object that are words, numbers or lists of them, and those of the objects in it."""
    for n, (key, field) in enumerate(value.items()):
        match field:
            case dict():
                yield from _fields(field, f"{prefix}{key} ")
            case list():
                words = ", ".join(str(one) for one in field if isinstance(one, (str, int, float)))
                if words:
                    yield f"{prefix}{key}", words
            case str() | int() | float() if field != "":
                yield f"{prefix}{key}", str(field)
        if n >= MAX_FIELDS:
            return
