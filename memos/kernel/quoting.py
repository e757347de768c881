"""What is said where the model cannot answer in its own words: what is remembered is quoted, with who said it and when.

The packaged model reads sentences that were generated for it, and on any other text its answers are guesses. Its answer
stands where the question asks for a fact, and the fact was there to be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from memos.cube import NOTED, USER, Fact, MemCube, Turn, plain
from memos.interface.reading.phrasebook import Say, reply_openings
from memos.operation.life.knowledge import said_words, stated

if TYPE_CHECKING:
    from memos.operation.choosing.mem_scheduler import Admission, Talk

MOST_QUOTED, MAX_CHARS = 3, 400
UNKNOWN = "unknown"  # what the packaged model says by itself where it has no answer
_STUTTER = re.compile(r"(?:^| )(\S+(?: \S+){0,3})(?: \1){2,}(?: \S+)?$")  # the last word may have been cut
NOT_REMEMBERED = "Nothing that is remembered answers that."
NEAREST = "Nothing that is remembered clearly answers that. The nearest to it:"
SMALL_TALK = "Tell me something to remember, or ask about what you have told me."
_NOTED, _MINE = "Noted: {text}", f"{USER}: "
WAY_OUT = (
    "(Quoted, because {model} only reads sentences of the kind it was trained with. For answers in free words set a "
    "chat model: --set model.path=Qwen/Qwen2.5-0.5B-Instruct)"
)


def without_aside(turns: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """What was said, without what memos says of itself, in which nobody is spoken of; what was noted as it is kept."""
    said = list[dict[str, str]]()
    for turn in turns:
        text = _parted(str(turn.get("content", "")))[0]
        is_kept = text.startswith(reply_openings(_NOTED))
        if turn.get("role") != "assistant" or not (is_kept or turn.get("kind") == NOTED):
            said.append({**turn, "content": text})
        elif said and is_kept:  # a line for each memory
            opens = f"^(?:{'|'.join(map(re.escape, reply_openings(_NOTED)))})?(?:{_MINE})?"
            each = (re.sub(opens, "", line).strip(" .。") for line in text.splitlines())
            said[-1] = said[-1] | {"content": "\n".join(filter(None, each))}
    return said


def _parted(reply: str) -> list[str]:
    """A reply, and what memos says of itself below it, if anything."""
    return re.split(f"\n(?={'|'.join(map(re.escape, reply_openings(WAY_OUT)))})", reply, maxsplit=1)


def facts_read(talk: Talk, admission: Admission, read: Callable[[str], Sequence[Fact]]) -> Iterator[Fact]:
    """What the model was given to read before it answered, or has been trained with. read: the facts in a text."""
    for cube in (*admission.cubes, *admission.internal):
        yield from (fact for fact in stated(cube) if fact.holds)
    turns = (cube.payload for cube in talk.earlier if isinstance(cube.payload, Turn))
    # not what memos said, which names what was forgotten
    said = [turn["content"] for turn in talk.turns if turn.get("role") != "assistant"]
    for text in (*said, *(text for t in turns for text in (t.question, *t.shown))):
        yield from read(text)


def stands(answer: str, asks: Sequence[Fact], facts: Iterable[Fact]) -> bool:
    """True if a question asks for a fact (memos.interface.reading.phrasebook), and the answer, which may have been cut,
    is of such a one that was there."""
    said, asked = plain(answer), {fact.relation for fact in asks}
    if said in (plain(words) for fact in asks for words in (fact.subject, fact.object)):  # of the question itself
        return False
    there = (plain(words) for fact in facts if fact.relation in asked for words in (fact.subject, fact.object))
    return bool(said) and any(words.startswith(said) for words in there)


def stutters(answer: str) -> bool:
    """True if an answer ends with the same few words again and again, as a small model's does that has lost its way."""
    return bool(_STUTTER.search(" ".join(answer.split())))


def quoted(say: Say, question: str, cubes: Sequence[MemCube], way_out: str, is_sure: bool = True) -> str:
    """What memories say, best first. way_out: said below it, if anything is. is_sure: that they answer the question."""
    dated = "when" in question.lower().split()[:2] or "什么时候" in question
    lines = [_line(say, cube, dated) for cube in cubes]
    if not (is_sure and cubes):
        lines.insert(0, say(NEAREST if cubes else NOT_REMEMBERED))
    return "\n".join([*lines, way_out] if way_out else lines)


def joined(replies: Sequence[str]) -> str:
    """The replies to several questions as one; that nothing answers is said where that is so of all."""
    nothing = (*reply_openings(NOT_REMEMBERED), *reply_openings(NEAREST))
    first, *others = sorted(dict.fromkeys(replies), key=lambda reply: reply.startswith(nothing))
    return "\n".join([first, *(line for one in others for line in _parted(one)[one.startswith(nothing) :])])


def noted(say: Say, made: Sequence[MemCube]) -> str:
    """What is said to a message that asks nothing, of the memories that were made of it."""
    each = (say("{text}", text=cube.text) for cube in made)
    return say(_NOTED if made else SMALL_TALK, text="\n".join(each))


def _line(say: Say, cube: MemCube, dated: bool) -> str:
    header = cube.header
    said = header.said or (header.created if dated else None)  # of a chat, whose words are kept as they are said
    words = said_words(cube).removeprefix(f"{header.speaker or USER}: ")
    words = words if len(words) <= MAX_CHARS else words[:MAX_CHARS].rsplit(" ", 1)[0] + " …"
    who = "I" if header.role == "assistant" else "You" if header.speaker in ("", USER) else header.speaker
    who = say(who) if who in ("I", "You") else who
    line = "{who} said on {when}: “{words}”" if said else "{who} said: “{words}”"
    return say(line, who=who, when=f"{said:{say('%-d %B %Y')}}" if said else "", words=words)
