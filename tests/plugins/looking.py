"""What a system keeps beside its memories, and what it finds; for tests of systems."""

from __future__ import annotations

from talk import Conversation

from memos.cube import EPISODE
from memos.plugins.curators.service import Curators


def curators(talk: Conversation) -> Curators:
    found = talk.calls._services.service("Curators", "curators")
    assert isinstance(found, Curators)
    return found


def turn(talk: Conversation, words: str) -> str:
    """The id of the turn with these words."""
    [found] = [cube.id for cube in talk.kernel.memories() if cube.header.kind == EPISODE and cube.words == words]
    return found


def scores(talk: Conversation, name: str) -> dict[str, float]:
    """The numbers of a name that are kept, by the words of their memories."""
    found = curators(talk)._tables.scores(talk.user, name)
    return {talk.kernel.get(id).words: value for id, value in found.items()}


def by(talk: Conversation, policy: str, query: str, k: int) -> list[str]:
    """What another policy finds."""
    return [hit.cube.words for hit in talk.kernel.search(query, top_k=k, policy=policy)]


def answered(talk: Conversation, *words: str) -> None:
    """As if an answer rested on the turns with these words."""
    used = [talk.kernel.get(turn(talk, one)) for one in words]
    curators(talk).on_answer(talk.calls.caller, "?", "!", used)
