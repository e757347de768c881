"""Train the reader of statements: `python scripts/train_statements.py --out FOLDER`, about half an hour on two cores.

Reads scripts/reader/statements/*.txt, as the README there describes them: sentences in which what they state is marked,
and earlier messages with later ones that end them or do not. Trains the network of scripts/train_reader.py, which see
for the options: its parts are how a statement holds, its slots what it is about, its marks of whom it is, and its
references the words of an earlier message that no longer hold. The sets that the reader is measured by are not among
them.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import train_reader
from train_reader import Message, Place

from memos.infrastructure.host.encoders.embedder import REQUESTS

DATA = Path(__file__).parent / "reader" / "statements"
MODES = ("is", "now", "also", "ended", "was", "will")
SLOTS = (
    "city", "job", "employer", "studies", "school", "partner", "status", "pet", "car", "diet", "drink", "food",
    "allergy", "hobby", "sport", "instrument", "speaks", "likes", "use", "boss", "friend", "child", "birthday", "age",
    "commute", "own", "visited", "key", "value",
)  # fmt: skip
WHO, OUT = "who", "out"
LABELS = {"parts": MODES, "slots": SLOTS, "refs": (OUT,), "marks": (WHO,)}
JOINS = {
    "en": (". ", ", ", "! ", " and ", " lol ", "; ", "... ", " so ", " but ", "\n", " - "),
    "zh": ("。", "，", "！", "，然后", "，不过", "\n"),
}
TAG = re.compile(r"<(/?)(\w+)>")


def read(folder: Path) -> tuple[list[Message], list[Message]]:
    """(the marked sentences, the later messages beside earlier ones) of a folder. Raises ValueError, naming file and
    line."""
    marked, pairs = list[Message](), list[Message]()
    for file in sorted(folder.glob("*.txt")):
        for n, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
            fields = [field.strip() for field in line.split(" | ")]
            if len(fields) < 2 or fields[0] not in JOINS:
                raise ValueError(
                    f"{file}:{n}: {line!r} is not LANGUAGE | sentence, nor LANGUAGE | earlier | + later ..."
                )
            if len(fields) == 2:
                marked.append(parse(*fields))
            pairs += [pair(fields[0], fields[1], later) for later in fields[2:]]
    return marked, pairs


def parse(language: str, marked: str) -> Message:
    """A sentence with its tags taken out of it. Raises ValueError for a tag that is none, or is not closed."""
    text, at, parts, slots, stack = "", 0, list[Place](), list[Place](), list[tuple[str, int]]()
    for tag in TAG.finditer(marked):
        text += marked[at : tag.start()]
        at = tag.end()
        if not tag[1]:
            stack.append((tag[2], len(text)))
            continue
        name, begin = stack.pop() if stack else ("", 0)
        if name != tag[2] or name not in (*MODES, *SLOTS, WHO):
            raise ValueError(f"{tag[0]} closes nothing that is known in {marked!r}")
        (parts if name in MODES else slots).append((begin, len(text), name))
    if stack:
        raise ValueError(f"<{stack[-1][0]}> is not closed in {marked!r}")
    free = frozenset(place for place in slots if place[2] not in (WHO, "key"))
    return Message(language, "", text + marked[at:], tuple(parts), tuple(slots), (), free)


def pair(language: str, earlier: str, later: str) -> Message:
    """A later message, of which "+" says that the earlier one does not hold any more, and "-" that it does. Raises
    ValueError."""
    if later[:1] not in ("+", "-"):
        raise ValueError(f"{later!r} begins with neither + nor -")
    gone = ((0, len(earlier), OUT),) if later[0] == "+" else ()
    return Message(language, earlier, later[1:].strip(), (), (), gone, whole=False)


def varied(message: Message, pools: dict[tuple[str, str], list[str]], others: list[Message]) -> Message:
    """With other things in it, beside another sentence, and as somebody hasty writes it."""
    if not message.before:
        if random.random() < 0.5:
            for place in sorted(message.free, reverse=True):
                if random.random() < 0.5 and (pool := pools.get((message.language, place[2]))):
                    message = train_reader.put(message, place, random.choice(pool))
        if random.random() < 0.25 and (other := random.choice(others)).language == message.language:
            join = random.choice(JOINS[message.language])
            message = train_reader.joined(*random.sample((message, other), 2), join)
    drawn = random.random()
    if drawn < 0.2 and len(lower := message.text.lower()) == len(message.text):
        message = replace(message, text=lower)
    elif drawn < 0.35 and message.whole and message.text[-1:] in ".!?。！？":
        message = train_reader.cut(message, len(message.text) - 1)
    if message.language == "en" and random.random() < 0.08 and len(message.text) > 8:
        n, text = random.randrange(len(message.text) - 2), message.text
        message = replace(message, text=text[:n] + text[n + 1] + text[n] + text[n + 2 :])
    return message


def unrelated(pairs: list[Message]) -> list[Message]:
    """Later messages beside earlier ones of somebody else, which they do not end."""
    by_language = {language: [m for m in pairs if m.language == language] for language in JOINS}
    drawn = ((one, random.choice(by_language[one.language])) for one in random.sample(pairs, len(pairs) // 4))
    return [replace(one, text=other.text, pointed=()) for one, other in drawn if one.before != other.before]


def main() -> None:
    given = train_reader.arguments(__doc__, DATA)
    given.begin = given.begin or REQUESTS  # which knows Chinese characters
    marked, pairs = read(given.data)
    held = marked[:: given.validate] if given.validate else []
    marked = [message for message in marked if message not in held]
    random.seed(given.seed)
    told, pools = [*marked, *pairs, *unrelated(pairs)], train_reader.slot_pools(marked)
    train_reader.train(told, held, lambda message: varied(message, pools, marked), given, LABELS)


if __name__ == "__main__":
    main()
