"""Teach the reader's encoder the words of a Chinese-English dictionary, before `scripts/train_reader.py --begin`:
`python scripts/reader_words.py --dictionary cedict_ts.u8 --out FOLDER`, a quarter of an hour on two cores.

The default encoder was trained on English. Each Chinese character gets an embedding, at first the mean of those of its
English glosses, and learns that a word read by its characters has the vector that the encoder gives its gloss; the
encoder stays as it is (Reimers and Gurevych 2020, arXiv 2004.09813, with a dictionary in place of sentences; Artetxe
et al. 2020, arXiv 1910.11856, for the embeddings alone). The dictionary is a file in the format of CC-CEDICT.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from pathlib import Path

import torch
from torch.nn import functional
from train_reader import DATA, HAN, Network, messages

from memos.config import EmbedderConfig
from memos.infrastructure.host.encoders.embedder import Embedder

LINE = re.compile(r"(\S+) (\S+) \[[^\]]*\] /(.+)/")
NO_MEANING = re.compile(
    r"surname |(?:old |archaic )?variant of|CL:|see |used in |abbr\. for|also (?:written|pr\.)|Japanese "
)
BATCH, RATE, WARM, SHARPNESS = 256, 5e-3, 0.1, 20.0
LONGEST, SENSES, GLOSS = 5, 3, 80  # characters of a word; senses of it that are told, and their characters
HELD = 2000  # words that are not taught


def dictionary(file: Path) -> dict[str, str]:
    """A word of 1 to 5 Chinese characters -> what it means."""
    out = dict[str, list[str]]()
    for line in file.read_text("utf-8").splitlines():
        if found := LINE.match(line):
            senses = [re.sub(r"\([^)]*\)|\[[^\]]*\]|^to ", "", sense).strip() for sense in found[3].split("/")]
            told = [sense for sense in senses if sense and not NO_MEANING.match(sense)]
            for word in {found[1], found[2]}:
                if told and len(word) <= LONGEST and all(re.match(HAN, c) for c in word):
                    out.setdefault(word, []).extend(told)
    return {word: ", ".join(dict.fromkeys(told[:SENSES]))[:GLOSS] for word, told in out.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dictionary", type=Path, required=True, help="a file in the format of CC-CEDICT")
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--words", type=int, default=70_000, help="words of an epoch")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rare", type=int, default=5, help="a character of fewer words is left out")
    given = parser.parse_args()
    meanings = dictionary(given.dictionary)
    often = Counter(c for word in meanings for c in word)
    read = {c for m in messages(DATA) for c in m.before + m.text if re.match(HAN, c)}
    characters = sorted(read | {c for c, count in often.items() if count >= given.rare})
    known = set(characters)
    words = sorted(word for word in meanings if known.issuperset(word))
    print(f"{len(characters)} characters, {len(words)} words", flush=True)
    torch.manual_seed(0)
    random.seed(0)
    random.shuffle(words)
    held, words = words[:HELD], words[HELD:]
    count = min(given.words, len(words))
    network, embedder = Network(characters).eval(), Embedder(EmbedderConfig())
    begin(network, characters, meanings)
    for parameter in network.parameters():
        parameter.requires_grad_(parameter is network.characters.weight)
    optimizer = torch.optim.Adam(network.characters.parameters(), RATE)
    steps = given.epochs * (count // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps + 1, pct_start=WARM)
    vectors_of_held = torch.from_numpy(embedder.embed([meanings[word] for word in held]))
    for epoch in range(given.epochs):
        drawn, total = random.sample(words, count), 0.0
        for start in range(0, count - BATCH + 1, BATCH):
            batch = drawn[start : start + BATCH]
            aims = torch.from_numpy(embedder.embed([meanings[word] for word in batch]))
            alike = vectors(network, batch) @ aims.T
            own = functional.cross_entropy(SHARPNESS * alike, torch.arange(BATCH))
            loss = own + (1 - alike.diagonal()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        with torch.no_grad():
            read_as = torch.cat([vectors(network, held[n : n + BATCH]) for n in range(0, len(held), BATCH)])
        alike = read_as @ vectors_of_held.T
        found = (alike.argmax(1) == torch.arange(len(held))).float().mean()
        print(
            f"epoch {epoch + 1}: loss {total / (count // BATCH):.3f}; of {len(held)} words not taught {found:.3f} find "
            f"their meaning among all, cosine {alike.diagonal().mean():.3f}",
            flush=True,
        )
        network.saved(given.out, characters)


def begin(network: Network, characters: list[str], meanings: dict[str, str]) -> None:
    """The embedding of a character that means something by itself: the mean of those of its gloss."""
    table = network.encoder.get_input_embeddings().weight
    for n, character in enumerate(characters):
        gloss = network.tokenizer.encode(meanings.get(character, ""), add_special_tokens=False)
        ids = [id for id, piece in zip(gloss.ids, gloss.tokens, strict=True) if id < network.known and piece.isalpha()]
        if ids:
            network.characters.weight.data[n] = table[ids].mean(0)


def vectors(network: Network, words: list[str]) -> torch.Tensor:
    """[words, width], each of length 1: means over the tokens, as `Embedder` has them."""
    cls, sep = network.special
    rows = [[cls, *network.tokenizer.encode(word, add_special_tokens=False).ids, sep] for word in words]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    hidden = network.hidden(ids, torch.zeros_like(ids), mask) * mask.unsqueeze(-1)
    return functional.normalize(hidden.sum(1) / mask.sum(1, keepdim=True), dim=1)


if __name__ == "__main__":
    main()
