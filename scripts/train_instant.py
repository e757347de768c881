"""Train the network that makes adapters in one forward: `python scripts/train_instant.py --out FILE`.

Each step invents a group of facts, lets the network write them (memos/plugins/training/instant.py), and asks about them
in other words: the loss is that of the answers, and of what must stay as the base model says it. Names, values and
wordings that tests use are not among those of the training: of the phrasebook's wordings those that are held out, of
small_world's words those that `held_out` keeps. A run that was cut off goes on where the last checkpoint ended.
For another model give --model, and --written where the last layer of its MLPs is not found by name.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from small_world import WORLD, Words

from memos.config import ModelConfig
from memos.infrastructure.host.adapters.lora import LINEAR
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.rows import Example, answer_row, chunks, row_losses, teacher_rows
from memos.interface.reading.phrasebook import Relation, phrasebook
from memos.plugins.training.instant import Changed, Network, lead_of

FACTS, WRITTEN, ASKED, SILENT, KEPT, KNOWN, OVER, PORTED = 16, 96, 32, 64, 24, 32, 24, 3  # prompts of a step
CLOSED_WEIGHT, OVER_WEIGHT, PORTED_WEIGHT = 2.0, 9.0, 0.3
MLP_ENDS = ("down_proj", "c_proj", "fc2", "dense_4h_to_h", "fc_out")
CHECKPOINT = 50  # steps
Pair = tuple[str, str]  # of a person and a relation, or of a relation and a value


@dataclass(frozen=True)
class Prompt:
    question: str
    answer: str = ""
    memories: tuple[str, ...] = ()


@dataclass
class Group:
    """Facts about some people, and prompts on them and on others."""

    rng: random.Random
    pieces: Sequence[str]  # of words that stand in contexts: what is read there is to be said again, whatever it is
    words: Words = field(default_factory=Words)
    values: dict[Pair, str] = field(default_factory=dict)
    whose: dict[Pair, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        people = [self.words.name(self.rng) for _ in range(self.rng.choice((1, 2, 2, 2, 3, 4)))]
        for _ in range(12 * FACTS):  # one person has fewer relations than that
            person, relation = self.rng.choice(people), self.rng.choice(RELATIONS)
            value = self.words.value(self.rng, relation)
            taken = (person, relation) in self.values or value in self.values.values()
            if len(self.values) < FACTS and not taken:
                self.values[person, relation], self.whose[relation, value] = value, person

    def lessons(self) -> tuple[list[Prompt], list[Prompt]]:
        """What is written, and what is asked in other words."""
        share, written, asked = self.rng.uniform(0.5, 0.8), list[Prompt](), list[Prompt]()
        for (person, name), value in self.values.items():
            relation = BOOK[name]
            for forms, subject, said in ((asks(relation), person, value), (whose(relation), "", person)):
                forms = self.rng.sample(forms, len(forms))
                first = max(1, round(share * len(forms)))
                filled = [relation.fill(form, subject, "" if subject else value) for form in forms]
                written += [Prompt(question, said) for question in filled[:first]]
                asked += [Prompt(question, said) for question in filled[first:]]
        return self._some(written, WRITTEN), self._some(asked, ASKED)

    def _some(self, prompts: Sequence[Prompt], count: int) -> list[Prompt]:
        return self.rng.sample(prompts, min(count, len(prompts)))

    def silent(self) -> Prompt:
        """A neighbour of the facts, which nobody has said."""
        rng, relation = self.rng, BOOK[self.rng.choice(RELATIONS)]
        if rng.random() < 0.5:
            value = self.words.value(rng, relation.name)
            question, there = (
                relation.fill(rng.choice(whose(relation)), "", value),
                (relation.name, value) in self.whose,
            )
        else:
            ours = rng.random() < 0.5
            person = rng.choice(list(self.values))[0] if ours else self.words.name(rng)
            question, there = relation.fill(rng.choice(asks(relation)), person), (person, relation.name) in self.values
        return self.silent() if there else Prompt(question)

    def over(self, contradicts: bool) -> Prompt:
        """A question over other memories, one of which contradicts a fact."""
        rng, said = self.rng, dict[Pair, str]()
        if contradicts:
            pair = rng.choice(list(self.values))
            said[pair] = self._other_value(pair[1])
        while len(said) < rng.randint(2, 4):
            said |= self._others(1)
        about = next(iter(said)) if contradicts else rng.choice(list(said))
        return Prompt(self._ask(about), said[about], self._stated(said))

    def ported(self) -> Prompt:
        """A question about a fact, over memories of other things."""
        pair = self.rng.choice(list(self.values))
        return Prompt(self._ask(pair), self.values[pair], self._stated(self._others(self.rng.randint(1, 3))))

    def _others(self, count: int) -> dict[Pair, str]:
        pairs = [(self.words.name(self.rng), self.rng.choice(RELATIONS)) for _ in range(count)]
        return {pair: self._other_value(pair[1]) for pair in pairs if pair not in self.values}

    def _other_value(self, relation: str) -> str:
        if self.rng.random() < 0.5:
            return self.words.of_pieces(self.rng, self.pieces)
        return self.words.value(self.rng, relation)

    def _ask(self, pair: Pair) -> str:
        relation = BOOK[pair[1]]
        return relation.fill(self.rng.choice(asks(relation)), pair[0])

    def _stated(self, said: dict[Pair, str]) -> tuple[str, ...]:
        lines = [
            BOOK[r].fill(self.rng.choice(BOOK[r].says), person, value) + "." for (person, r), value in said.items()
        ]
        return tuple(self.rng.sample(lines, len(lines)))


BOOK = phrasebook()
RELATIONS = sorted(BOOK)


def known_questions(host: Host) -> list[str]:
    """What the model knows by heart, in no words that tests ask; all that small_world knows, where it knows that."""
    own = host.own_questions()
    known, of_tests = dict.fromkeys(own[::2]), set(own[1::2])
    for fact in WORLD:
        relation = BOOK[fact.relation]
        if not set(own).isdisjoint(relation.fill(form, fact.subject) for form in relation.asks):
            known |= dict.fromkeys(relation.fill(form, fact.subject) for form in asks(relation))
    return [question for question in known if question not in of_tests]


def asks(relation: Relation) -> list[str]:
    return [form for form in relation.asks if form not in relation.held_out]


def whose(relation: Relation) -> list[str]:
    return [form for form in (*relation.who, *relation.who_else) if form not in relation.held_out]


class Trainer:
    """Fits a network to its model; `save` and `resume` so that a run goes on as if never interrupted."""

    def __init__(self, host: Host, network: Network, steps: int, rate: float) -> None:
        self._host, self.network, self._steps, self._rate = host, network, steps, rate
        self._optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.0, betas=(0.9, 0.98))
        known = known_questions(host)
        self._known = list(zip(known, host.greedy([host.ids_of(question) for question in known]), strict=True))
        sample = Prompt("What is Tom's pet?", memories=("Tom has a cat.",))
        self._pieces = sorted(
            piece for piece in host.tokenizer.get_vocab() if piece.isascii() and piece.isalpha() and piece.islower()
        )
        self._lead = lead_of(host, host.greedy([host.ids_of(sample.question, sample.memories)]))
        self.step = 0

    def run(self) -> Iterator[dict[str, float]]:
        while self.step < self._steps:
            loss, told = self._losses(random.Random(self.step))
            loss.backward()
            warm_up, done = min(1.0, (self.step + 1) / CHECKPOINT), self.step / self._steps
            self._optimizer.param_groups[0]["lr"] = self._rate * warm_up * 0.5 * (1 + math.cos(math.pi * done))
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self._optimizer.step()
            self._optimizer.zero_grad()
            self.step += 1
            yield told

    def _losses(self, rng: random.Random) -> tuple[torch.Tensor, dict[str, float]]:
        group, model = Group(rng, self._pieces), self._host.model
        written, asked = group.lessons()
        silent = [group.silent() for _ in range(SILENT)] + [Prompt(question) for question, _ in self._sample(rng)]
        told = self.network.write(model, self._rows(written), self._rows(silent))
        changed = self.network.changed(model, told)
        learnt, least = _over(changed, self._rows(asked))
        ported, _ = _over(changed, self._rows([group.ported() for _ in range(PORTED)]))
        closed, _ = _over(changed, self._kept([group.silent() for _ in range(KEPT)], rng))
        over, _ = _over(changed, self._kept([group.over(n % 3 == 0) for n in range(OVER)]))
        loss = learnt.mean() + PORTED_WEIGHT * ported.mean() + CLOSED_WEIGHT * closed.mean() + OVER_WEIGHT * over.mean()
        told_of = {"asked": learnt, "ported": ported, "closed": closed, "over": over, "right": (least > 0.5).float()}
        return loss, {name: float(values.detach().mean()) for name, values in told_of.items()}

    def _rows(self, prompts: Sequence[Prompt]) -> list[Example]:
        return [answer_row(self._host.ids_of(p.question, p.memories), self._said(p.answer)) for p in prompts]

    def _sample(self, rng: random.Random) -> list[tuple[str, tuple[int, ...]]]:
        """Of what the model knows by heart."""
        return rng.sample(self._known, min(KNOWN, len(self._known)))

    def _said(self, answer: str) -> tuple[int, ...]:
        """Of what nobody has said the first token tells all."""
        return self._host.spelled(self._lead + answer) if answer else (0,)

    def _kept(self, prompts: Sequence[Prompt], rng: random.Random | None = None) -> list[Example]:
        """rng: with questions on what the model knows by heart."""
        known = self._sample(rng) if rng else []
        asked = [self._host.ids_of(p.question, p.memories) for p in prompts] + [self._host.ids_of(q) for q, _ in known]
        answers = [self._said(p.answer) for p in prompts] + [ids for _, ids in known]
        return teacher_rows(self._host.model, asked, asked, answers, self._host.model.config.vocab_size)

    def save(self, path: Path) -> None:
        tensors = {f"network {name}": tensor for name, tensor in self.network.state_dict().items()}
        for n, state in self._optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer {n} {key}": value for key, value in state.items()}
        beside = path.with_suffix(".new")
        save_file({k: v.contiguous() for k, v in tensors.items()}, beside, {"step": str(self.step)})
        beside.replace(path)

    def resume(self, path: Path) -> None:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            self.step = int(file.metadata()["step"])
        self.network.load_state_dict({k.split(" ", 1)[1]: v for k, v in tensors.items() if k.startswith("network ")})
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer "):
                _, n, key = name.split(" ")
                state.setdefault(int(n), {})[key] = value
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": state})


def _over(changed: Changed, rows: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """KL of each row and its least likely answer token, in the order of the chunks."""
    parts = [row_losses(changed, [rows[n] for n in chunk]) for chunk in chunks(rows)]
    return torch.cat([losses for losses, _ in parts]), torch.cat([least for _, least in parts])


def written_of(host: Host) -> list[str]:
    """The last layer of the MLPs, of the second half of the model."""
    linear = [n for n, m in host.model.named_modules() if isinstance(m, LINEAR) and n.endswith(MLP_ENDS)]
    linear = [name for name in linear if "attn" not in name and "attention" not in name]
    return linear[len(linear) // 2 :]


def main() -> None:
    """Trains, shows progress, and writes the network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="memos-small")
    parser.add_argument(
        "--out", type=Path, required=True, help="the file; memos/instant.safetensors in the model's folder is found"
    )
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--rate", type=float, default=1.5e-3, help="learning rate at its peak")
    parser.add_argument("--written", nargs="*", default=(), help="linear layers that are written into")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    fingerprint = Host.load(ModelConfig(path=options.model)).fingerprint
    # a plain attention, whose backward pass is quick over a few tokens
    host = Host.load(ModelConfig(path=options.model, attention="eager"))
    if torch.cpu._is_amx_tile_supported():
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    network = Network(host.model, options.rank, options.written or written_of(host))
    trainer, checkpoint = Trainer(host, network, options.steps, options.rate), options.out.with_suffix(".checkpoint")
    if checkpoint.exists():
        trainer.resume(checkpoint)
        print(f"goes on from step {trainer.step} of {checkpoint}", flush=True)
    began, seen = time.process_time(), list[dict[str, float]]()
    for told in trainer.run():
        seen.append(told)
        if trainer.step % CHECKPOINT == 0 or trainer.step == options.steps:
            trainer.save(checkpoint)
            means = {name: round(sum(each[name] for each in seen) / len(seen), 3) for name in seen[0]}
            spent = f"{time.process_time() - began:.0f} CPU s"
            print(f"step {trainer.step} of {options.steps}, {spent}: {json.dumps(means)}", flush=True)
            seen.clear()
    network.save(options.out, fingerprint)
    print(f"{options.out}: {options.out.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
