"""Train the reader of requests: `python scripts/train_reader.py --out FOLDER`, about an hour on two cores.

Reads scripts/reader/*.txt, marked messages as scripts/reader/README.md describes them; the sets that the reader is
measured by are not among them. Writes what `memos.infrastructure.host.encoders.embedder.TextTagger` loads: a change
of low rank of the default encoder's layers, an embedding for each Chinese character of the messages that the encoder
lacks, and the heads.
With --validate N each N-th message is held back and judged after each epoch. A run that was cut off goes on where the
last epoch ended. scripts/train_statements.py trains the reader of statements with the same.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import BertWordPieceTokenizer
from torch import nn
from torch.nn import functional

from memos.infrastructure.host.encoders.embedder import (
    CONTEXT_CHARACTERS,
    HEADS,
    LabelledSpan,
    TextTagger,
    bio,
)
from memos.infrastructure.host.encoders.weights import DEFAULT, encoder, encoder_folder

DATA = Path(__file__).parent / "reader"
KINDS = ("plain", "time", "context", "several", "ambiguous", "nearmiss")
PARTS = (
    "remember", "recall", "correct", "forget", "share", "share:editor", "share:annotator", "share:owner", "unshare",
    "promote:activation", "promote:parametric", "demote", "freeze", "thaw", "rollback", "talk",
    *(f"about:{ask}" for ask in ("why", "history", "list", "count", "status", "jobs")),
    *(f"ask_back:{doubted}" for doubted in ("forget", "rollback", "unshare", "correct")),
)  # fmt: skip
DETAIL = {"share": "relation", "promote": "to", "about": "ask", "ask_back": "intent"}
SLOTS = ("what", "with", "to")
REFS = ("ref",)
MARKS = ("past", "ahead", "until", "person", "me")  # days behind the day of the message, and others; ends; people
LABELS = {"parts": PARTS, "slots": SLOTS, "refs": REFS, "marks": MARKS}
UNKNOWN = "?"  # words that were put in, in which nobody marked anything
ON_MEMORIES = ("forget", "share", "unshare", "promote", "demote", "freeze", "thaw", "rollback")
BATCH, RATE, NEW_RATE, RANK = 32, 2e-4, 1e-3, 48
JOINS = {
    "en": (". ", ". ", " and ", ", then ", "; ", " - also ", " and then ", ", and "),
    "zh": ("。", "。", "，", "，然后", "；", "，另外", "，顺便"),
}
TAG = re.compile(r'<(/?)(\w+)((?:\s+\w+="[^"]*")*)\s*>')
HAN = r"[\u3400-\u9fff，。！？、；：（）“”‘’《》…～]"  # also where the encoder has a word for it: seldom read there
MY = re.compile(r"^(?:the|my|our|his|her|their|your|我的|你的|您的)\s*", re.IGNORECASE)
NOT_THEN = re.compile(  # what stands before a day that is none
    r"(?:\b(?:not|no|never|from|instead of|than|was|were|said)|n['’]t)(?: (?:on|the|for|until|till|by|in|be))*\s*$"
    r"|(?:不是|而非|并非|不在|没在|别在|不|非|从|由|原定|原本|本来|以为|当成)(?:是|在|于)?$",
    re.IGNORECASE,
)
ME = re.compile(r"\b(?:I|me|my|mine|myself|we|us|our|ours)\b|[我咱俺]", re.IGNORECASE)
Place = tuple[int, int, str]  # [begin, end) and label


@dataclass(frozen=True)
class Message:
    """A marked message. parts, slots: places in the text; pointed: in what was said before; free: the slots whose words
    may be others without a change of meaning. whole: what is to be found in the text is marked there; else only what
    is to be found in what was said before."""

    language: str
    before: str
    text: str
    parts: tuple[Place, ...]
    slots: tuple[Place, ...]
    pointed: tuple[Place, ...]
    free: frozenset[Place] = field(default=frozenset())
    whole: bool = True


def messages(folder: Path) -> list[Message]:
    """Raises ValueError, naming file and line."""
    out: list[Message] = []
    for file in sorted(folder.glob("*.txt")):
        for n, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
            if line.strip():
                try:
                    out.append(parse(line))
                except (ValueError, KeyError, IndexError) as error:
                    raise ValueError(f"{file}:{n}: {error}") from error
    return out


def parse(line: str) -> Message:
    """One line: language | kind | date | turns | marked message."""
    language, kind, day, turns, marked = (field.strip() for field in re.split(r"\s*\|\s?", line.strip(), maxsplit=4))
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no kind")
    before = " ".join(re.sub(r"^(?:user|assistant):\s*", "", turn.strip()) for turn in turns.split("##"))
    before = before[-CONTEXT_CHARACTERS:]
    text, at = "", 0
    parts, slots, free, meant = list[Place](), list[Place](), set[Place](), list[tuple[str, str]]()
    stack: list[tuple[str, dict[str, str], int]] = []
    of = dict[str, Place]()  # what is meant, and the words that point to it
    for tag in TAG.finditer(marked):
        text += marked[at : tag.start()]
        at = tag.end()
        if not tag[1]:
            stack.append((tag[2], dict(re.findall(r'(\w+)="([^"]*)"', tag[3])), len(text)))
            continue
        name, told, begin = stack.pop()
        place: Place = (begin, len(text), name)
        if name == "when":
            slots.append((begin, len(text), "past" if told["is"].split("/")[-1] < day else "ahead"))
        elif name in (*SLOTS, *REFS, "until"):
            slots.append(place)
            if "is" in told and name in ("what", "with", "ref"):
                meant.append((name, told["is"]))
                of |= {told["is"]: place}
            elif name in ("what", "with") and stack[0][0] in ON_MEMORIES:
                free.add(place)
        elif not stack:
            detail = told.get(DETAIL.get(name, ""), "")
            label = f"{name}:{detail}" if detail and detail != "reader" else name
            parts.append((begin, len(text), PARTS[PARTS.index(label)]))
            days = [one for one in slots if one[2] in ("past", "ahead") and one[0] >= begin]
            for one in days if len(days) > 1 and name == "correct" else ():
                if NOT_THEN.search(text[: one[0]]) and sum(other in slots for other in days) > 1:
                    slots.remove(one)
            if about := _about(text, begin, told.get("who", ""), slots, of):
                slots.append(about)
                if about[2] == "person" and not before and text[slice(*about[:2])] == told["who"]:
                    free.add(about)
            of = {}
            meant += [(slot, told[slot]) for slot in ("what", "with") if slot in told]
    text += marked[at:]
    pointed = [said for slot, words in meant if (said := _found(before, words, slot))]
    return Message(language, before, text, tuple(parts), tuple(slots), tuple(pointed), frozenset(free))


def _about(text: str, begin: int, who: str, slots: list[Place], of: dict[str, Place]) -> Place | None:
    """Whom a part that begins there is about: the words that say so."""
    within = [place for place in slots if place[2] == "what" and place[0] >= begin] or [(begin, len(text), "")]
    for start, end, _ in (within[-1], (begin, len(text), "")) if who else ():
        if who == "user":
            if first := ME.search(text, start, end):
                return (*first.span(), "me")
        elif (at := text.lower().find(who.lower(), start, end)) >= 0:
            return (at, at + len(who), "person")
        elif pointer := next((of[name] for name in of if who in name and of[name][2] == "ref"), None):
            return (*pointer[:2], "person")
    return None


def _found(before: str, words: str, slot: str) -> Place | None:
    """Where the words that are meant were said last, with or without what stands before the noun."""
    for told in (words, MY.sub("", words), re.sub(r"(?:['’]s|的)$", "", MY.sub("", words))):
        if told and (at := before.lower().rfind(told.lower())) >= 0:
            return (at, at + len(told), slot)
    return None


# -- other messages of the same meaning -----------------------------------------------------------------


def varied(message: Message, pools: dict[tuple[str, str], list[str]], others: list[Message]) -> Message:
    """The message with other things and people in it, as somebody hasty writes it, beside another one."""
    if random.random() < 0.5:
        for place in sorted(message.slots, reverse=True):
            if place in message.free and random.random() < 0.8 and (pool := pools.get((message.language, place[2]))):
                message = put(message, place, random.choice(pool))
    drawn = random.random()
    if drawn < 0.15:
        message = replace(message, text=message.text.lower())
    elif drawn < 0.3 and message.text[-1:] in ".!?。！？":
        message = cut(message, len(message.text) - 1)
    if message.language == "en" and random.random() < 0.1 and len(message.text) > 8:
        n, text = random.randrange(len(message.text) - 2), message.text
        message = replace(message, text=text[:n] + text[n + 1] + text[n] + text[n + 2 :])
    other = random.choice(others)
    if message.before or other.language != message.language:
        return message
    if random.random() < 0.12 and not other.before and len(message.parts) + len(other.parts) <= 3:
        return _beside(message, other)
    if random.random() < 0.1 and other.before and not any("ask_back" in part[2] for part in message.parts):
        return replace(message, before=other.before, pointed=())
    return message


def put(message: Message, place: Place, words: str) -> Message:
    """The message with other words at a place."""
    begin, end, _ = place
    more = len(words) - (end - begin)

    def moved(one: Place) -> Place:
        return (one[0] if one[0] <= begin else one[0] + more, one[1] if one[1] <= begin else one[1] + more, one[2])

    slots = [one for one in message.slots if one == place or not (begin <= one[0] and one[1] <= end)]
    unknown = [(begin, begin + len(words), UNKNOWN)] if place[2] == "what" else []
    return replace(
        message,
        text=message.text[:begin] + words + message.text[end:],
        parts=tuple(map(moved, message.parts)),
        slots=(*map(moved, slots), *unknown),
        free=frozenset(map(moved, message.free.intersection(slots))),
    )


def cut(message: Message, length: int) -> Message:
    """The beginning of the message."""

    def within(places: tuple[Place, ...]) -> tuple[Place, ...]:
        return tuple((begin, min(end, length), label) for begin, end, label in places)

    return replace(
        message, text=message.text[:length], parts=within(message.parts), slots=within(message.slots), free=frozenset()
    )


def _beside(message: Message, other: Message) -> Message:
    """Both, one after the other; not two statements, which would be one."""
    last, first = message.parts[-1][2], other.parts[0][2]
    if "talk" in (last, first) or (last == first and last in ("remember", "recall")):
        return message
    return joined(message, other, random.choice(JOINS[message.language]))


def joined(message: Message, other: Message, join: str) -> Message:
    """Both, one after the other, with words between them."""
    plain = cut(message, len(message.text.rstrip(".!。！ ")))
    by = len(plain.text) + len(join)

    def moved(places: tuple[Place, ...]) -> tuple[Place, ...]:
        return tuple((begin + by, end + by, label) for begin, end, label in places)

    return replace(
        plain,
        text=plain.text + join + other.text,
        parts=(*plain.parts, *moved(other.parts)),
        slots=(*plain.slots, *moved(other.slots)),
    )


# -- the network -----------------------------------------------------------------------------------------


def apply_changes(model: nn.Module, own: Mapping[str, torch.Tensor]) -> None:
    """Put trained tensors on an encoder, in place: of a matrix the change NAME.up @ NAME.down, all else as it is."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if f"{name}.up" in own:
                parameter.add_(own[f"{name}.up"] @ own[f"{name}.down"])
            elif name in own:
                parameter.copy_(own[name])


class Network(nn.Module):
    """The encoder of `TextTagger` with what is trained on it."""

    def __init__(self, characters: list[str], labels: Mapping[str, Sequence[str]] = LABELS) -> None:
        super().__init__()
        self.labels = labels
        base = encoder_folder(DEFAULT)
        words = [*(base / "vocab.txt").read_text("utf-8").splitlines(), *characters]
        self.tokenizer = BertWordPieceTokenizer(vocab={word: n for n, word in enumerate(words)}, lowercase=True)
        self.special = words.index("[CLS]"), words.index("[SEP]")
        self.encoder = encoder(base, published=True)
        self.published = {name: tensor.clone() for name, tensor in self.encoder.state_dict().items()}
        table = self.encoder.get_input_embeddings().weight
        self.known, width = table.shape
        self.characters = nn.Embedding(max(1, len(characters)), width)
        self.characters.weight.data.normal_(0, float(table.detach().std())).add_(table.detach().mean(0))
        self.heads = nn.ModuleDict({head: nn.Linear(width, len(bio(labels[head]))) for head in HEADS})
        self.drop = nn.Dropout(0.1)
        for name, parameter in self.encoder.named_parameters():
            if "word_embeddings" in name or "position_embeddings" in name or "pooler" in name:
                parameter.requires_grad_(False)

    def forward(self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        """ids, types, mask: [messages, tokens]. Returns the scores of each head, [messages, tokens, labels]."""
        hidden = self.drop(self.hidden(ids, types, mask))
        return [self.heads[head](hidden) for head in HEADS]

    def hidden(self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The last hidden states, [messages, tokens, width]."""
        new = ids >= self.known
        of_encoder = self.encoder.get_input_embeddings()(ids.masked_fill(new, 0))
        own = self.characters((ids - self.known).clamp(min=0))
        told = torch.where(new.unsqueeze(-1), own, of_encoder)
        out: torch.Tensor = self.encoder(
            inputs_embeds=told, token_type_ids=types, attention_mask=mask
        ).last_hidden_state
        return out

    def row(self, message: Message) -> list[list[int]]:
        """ids, types, and of each head the labels of a message's tokens; -100 is not judged."""
        cls, sep = self.special
        before, text = (self.tokenizer.encode(t, add_special_tokens=False) for t in (message.before, message.text))
        said, asked = before.offsets, text.offsets
        ids = [cls, *before.ids, *([sep] if said else []), *text.ids, sep]
        late = len(ids) - len(asked) - 1
        out = [ids, [0] * late + [1] * (len(asked) + 1)]
        for head in HEADS:
            labels = [-100] * len(ids)
            if message.whole:
                places = message.parts if head == "parts" else message.slots
                labels[late:-1] = _labels(asked, places, self.labels[head])
            if head in ("slots", "refs"):
                labels[1 : 1 + len(said)] = _labels(said, message.pointed, self.labels[head])
            out.append(labels)
        return out

    def load(self, folder: Path) -> None:
        """Go on from weights that were saved; characters that are new stay as they are, and so do heads of others."""
        own = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
        apply_changes(self.encoder, own)
        with torch.no_grad():
            self.characters.weight[: len(own["characters"])] = own["characters"]
            for head in HEADS:
                if self.heads[head].get_parameter("weight").shape == own[f"{head}.weight"].shape:
                    self.heads[head].get_parameter("weight").copy_(own[f"{head}.weight"])
                    self.heads[head].get_parameter("bias").copy_(own[f"{head}.bias"])

    def saved(self, folder: Path, characters: list[str]) -> None:
        """In the form that `TextTagger` loads: of each matrix its change, at a rank of 48, in half precision."""
        folder.mkdir(parents=True, exist_ok=True)
        out: dict[str, torch.Tensor] = {}
        for name, tensor in self.encoder.state_dict().items():
            change = tensor - self.published[name]
            if not change.any():
                continue
            if tensor.ndim == 2 and min(tensor.shape) > RANK:
                left, size, right = torch.linalg.svd(change, full_matrices=False)
                root = size[:RANK].sqrt()
                out[f"{name}.up"], out[f"{name}.down"] = left[:, :RANK] * root, root[:, None] * right[:RANK]
            else:
                out[name] = tensor
        out |= {f"{head}.weight": self.heads[head].get_parameter("weight").data for head in HEADS}
        out |= {f"{head}.bias": self.heads[head].get_parameter("bias").data for head in HEADS}
        out["characters"] = self.characters.weight.data
        save_file({name: tensor.half().contiguous() for name, tensor in out.items()}, folder / "model.safetensors")
        (folder / "characters.txt").write_text("\n".join(characters) + "\n", "utf-8")
        digests = {n: sha256((folder / n).read_bytes()).hexdigest() for n in ("model.safetensors", "characters.txt")}
        (folder / "config.json").write_text(
            json.dumps({"heads": self.labels, "sha256": digests}, indent=1) + "\n", "utf-8"
        )


def _labels(tokens: list[tuple[int, int]], places: Sequence[Place], labels: Sequence[str]) -> list[int]:
    out, ids = [0] * len(tokens), bio(labels)
    for begin, end, label in places:
        if label in labels or (label == UNKNOWN and labels == MARKS):
            inside = [n for n, (first, last) in enumerate(tokens) if first < end and last > begin]
            for n in inside:
                out[n] = -100 if label == UNKNOWN else ids.index(f"{'B' if n == inside[0] else 'I'}-{label}")
    return out


# -- training --------------------------------------------------------------------------------------------


Vary = Callable[[Message], Message]


def batches(network: Network, told: list[Message], vary: Vary) -> Iterator[Any]:
    """Each message once, varied; like lengths together."""
    order = random.sample(told, len(told))
    rows = [network.row(vary(message)) for message in order]
    groups = []
    for start in range(0, len(rows), 8 * BATCH):
        near = sorted(rows[start : start + 8 * BATCH], key=lambda row: len(row[0]))
        groups += [near[n : n + BATCH] for n in range(0, len(near), BATCH)]
    for group in random.sample(groups, len(groups)):
        longest = max(len(row[0]) for row in group)
        yield [
            torch.tensor([row[n] + [fill] * (longest - len(row[n])) for row in group])
            for n, fill in enumerate((0, 0, *[-100] * len(HEADS)))
        ] + [torch.tensor([[1] * len(row[0]) + [0] * (longest - len(row[0])) for row in group])]


def judged(tagger: TextTagger, held: list[Message]) -> tuple[float, float]:
    """(share of messages with all parts right, share of slots found at their place)."""

    def places(spans: tuple[LabelledSpan, ...]) -> set[Place]:
        return {(span.begin, span.end, span.label) for span in spans}

    right = found = wanted = 0
    for message in held:
        tagged = tagger.tag(message.text, message.before)
        right += [span.label.partition(":")[0] for span in tagged.parts] == [
            p[2].partition(":")[0] for p in message.parts
        ]
        found += len(places(tagged.slots) & set(message.slots))
        wanted += len(message.slots)
    return right / len(held), found / max(1, wanted)


def arguments(about: str | None, data: Path) -> argparse.Namespace:
    """What was given on the command line."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--data", type=Path, default=data, help="folder with the marked messages")
    parser.add_argument("--begin", type=Path, help="folder with weights to go on from")
    parser.add_argument("--rate", type=float, default=1.0, help="of learning, a share of the usual one")
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--validate", type=int, default=0, help="hold back each so-manieth message")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def slot_pools(told: Sequence[Message]) -> dict[tuple[str, str], list[str]]:
    """By language and slot, the words that may stand in for others of it."""
    pools: dict[tuple[str, str], list[str]] = {}
    for message in told:
        for begin, end, slot in message.free:
            pools.setdefault((message.language, slot), []).append(message.text[begin:end])
    return pools


def main() -> None:
    given = arguments(__doc__, DATA)
    told = messages(given.data)
    held = told[:: given.validate] if given.validate else []
    told = [message for message in told if message not in held]
    pools = slot_pools(told)
    train(told, held, lambda message: varied(message, pools, told), given, LABELS)


def train(
    told: list[Message],
    held: list[Message],
    vary: Vary,
    given: argparse.Namespace,
    labels: Mapping[str, Sequence[str]],
) -> None:
    """held: judged after each epoch. given: see `arguments`."""
    characters = sorted({c for m in told for c in m.before + m.text if re.match(HAN, c)})
    if given.begin:
        known = (given.begin / "characters.txt").read_text("utf-8").split()
        characters = [*known, *(character for character in characters if character not in known)]
    torch.manual_seed(given.seed)
    network = Network(characters, labels)
    if given.begin:
        network.load(given.begin)
    encoder = [p for p in network.encoder.parameters() if p.requires_grad]
    new = [*network.characters.parameters(), *network.heads.parameters()]
    optimizer = torch.optim.AdamW([{"params": encoder}, {"params": new}], weight_decay=0.01)
    rates = [given.rate * RATE, given.rate * NEW_RATE]
    steps = given.epochs * (len(told) // BATCH + 1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=steps + 1, pct_start=0.1)
    begun, at = given.out / "begun.safetensors", 0
    if begun.is_file():
        kept = load_file(begun)
        at = int(kept.pop("epoch"))
        network.load_state_dict(kept)
        for _ in range(at * (len(told) // BATCH + 1)):
            schedule.step()
    print(f"{len(told)} messages, {len(held)} held back, {len(characters)} characters; from epoch {at + 1}", flush=True)
    for epoch in range(at, given.epochs):
        random.seed(given.seed + epoch)
        network.train()
        total = count = 0.0
        for ids, types, *wanted, mask in batches(network, told, vary):
            scored = network(ids, types, mask)
            losses = [
                functional.cross_entropy(s.flatten(0, 1), t.flatten())
                for s, t in zip(scored, wanted, strict=True)
                if (t >= 0).any()
            ]
            loss = torch.stack(losses).sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total, count = total + float(loss.detach()), count + 1
        network.eval()
        network.saved(given.out, characters)
        save_file(network.state_dict() | {"epoch": torch.tensor(epoch + 1)}, begun)
        right, found = judged(TextTagger(given.out), held) if held else (0.0, 0.0)
        print(
            f"epoch {epoch + 1}: loss {total / count:.3f}"
            + (f", parts {right:.3f}, slots {found:.3f}" if held else ""),
            flush=True,
        )
    begun.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
