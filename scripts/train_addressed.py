"""Teach the reader of requests which messages speak to the memory: `python scripts/train_addressed.py --out FOLDER`.

People who tell of their life, or ask for help with their work, delete, share, freeze and undo things all the time. A
linear head over the mean of the message's hidden states, fitted by logistic regression with all else as it is, tells
whether a message in which the tagger sees an order, or a question about the memory itself, is one. For: messages of
scripts/reader/*.txt that hold an order, as they are marked. Against: those that hold none, what people state
(scripts/reader/statements), what they talk about with each other and with assistants (scripts/reader/chats), and
sentences of these in other orders; of all of them those in which the tagger sees an order. Some twenty
minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from train_reader import DATA, messages
from train_statements import read

from memos.infrastructure.host.encoders.embedder import REQUESTS, TextTagger
from memos.interface.reading.requests.orders import ORDERS, is_order

FOR, MIXED, DECAY, SEED = 8000, 5000, 1e-3, 5
SENTENCE = re.compile(r"(?<=[.!?。！？])\s*")


def told() -> Iterator[tuple[str, str, bool]]:
    """(a message, what was said before it, whether it speaks to the memory)."""
    draw = random.Random(SEED)
    marked = messages(DATA)
    for one in draw.sample(marked, FOR):
        yield one.text, one.before, any(label.partition(":")[0] in ORDERS for _, _, label in one.parts)
    stated = [one.text for part in read(DATA / "statements") for one in part]
    chats = (DATA / "chats" / "chats.txt").read_text("utf-8").splitlines()
    sentences = [part for chat in chats for part in SENTENCE.split(chat) if part]
    for text in (*stated, *chats, *sentences):
        yield text, "", False
    for n in range(MIXED):
        pool = stated if n % 2 else sentences
        yield " ".join(draw.sample(pool, draw.randint(2, 4))), "", False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--out", type=Path, required=True, help="a folder with the reader's weights, which get the head"
    )
    folder = parser.parse_args().out
    tagger, means, speaks = TextTagger(REQUESTS), list[torch.Tensor](), list[bool]()
    for n, (text, before, wanted) in enumerate(told()):
        tagged, mean = tagger.read(text, before)
        if any(map(is_order, tagged.parts)):
            means.append(mean)
            speaks.append(wanted)
        if n % 1000 == 0:
            print(f"{n} messages, {len(means)} with an order as the tagger sees it", flush=True)
    weight, bias = fitted(torch.stack(means), torch.tensor(speaks, dtype=torch.float32))
    tensors = load_file(folder / "model.safetensors") | {
        "addressed.weight": weight.half()[None],
        "addressed.bias": bias.half(),
    }
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["sha256"]["model.safetensors"] = sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")


def fitted(means: torch.Tensor, speaks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(weight [dim], bias [1]) of the regression. means: [messages, dim]; speaks: [messages], 0 or 1."""
    centre, spread = means.mean(0), means.std(0) + 1e-3
    scaled = (means - centre) / spread
    weight, bias = torch.zeros(means.shape[1], requires_grad=True), torch.zeros(1, requires_grad=True)
    steps = torch.optim.LBFGS([weight, bias], max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        steps.zero_grad()
        of_all = functional.binary_cross_entropy_with_logits(scaled @ weight + bias, speaks)
        found: torch.Tensor = of_all + DECAY * weight.square().sum()
        found.backward()
        return found

    print(f"loss {float(steps.step(loss)):.4f} -> {float(loss()):.4f} over {len(means)} messages")
    found = (weight / spread).detach()
    return found, (bias - centre @ found).detach()


if __name__ == "__main__":
    main()
