"""Measure the small model that memos ships: free greedy answers, each right only when every character is.

    python scripts/eval_small_model.py                                     # the packaged model
    python scripts/eval_small_model.py build/small --checkpoint            # a training run under way
    python scripts/eval_small_model.py --questions 100 --json scores.json  # quick, and kept

Scenes are drawn from seeds that training never uses. The exit code says whether the measuring worked,
not whether the goals hold: read the last column, or `holds` in the JSON.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from small_world import CHATTER, WORLD, Fact, Question, Scene, Words, ask, scene
from train_small_model import ASSISTANT, BOS, CONTEXT, END, SYSTEM, USER, Encoder, build_model
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from memos.interface.reading.phrasebook import phrasebook

PACKAGED = Path(__file__).resolve().parents[1] / "memos/infrastructure/host/model/small_model"
BATCH = 64  # questions answered side by side over one memory
HOLDS = 0.9  # a phrasing holds when this share of its answers is exact
# fmt: off
ODD_STRINGS = [
    "你好，世界", "我最喜欢的饮料是茶。", "日本語のテスト", "한국어 문장", "Привет, мир", "שלום עולם", "مرحبا بالعالم",
    "नमस्ते दुनिया", "ภาษาไทย", "🙂 and 🎉🎉", "👩\u200d👩\u200d👧\u200d👦 family", "🇵🇹🏳️\u200d🌈", "👍🏽 tone",
    "𝕲𝖔𝖙𝖍𝖎𝖈 𐍈 𒀀", "e\u0301 and \u00e9 apart", "Z\u0351\u036b\u0343a\u0334l\u0335", "\u200bzero\u200dwidth\ufeff",
    "\u202eright to left\u202c", "\x00 and \x01\x02\x1b[31m", "bell \x07 tab \t end", "\x7f\x80\x9f", "\r\n\r\n",
    "\n", " ", "  two  spaces  ", "\u00a0hard space", "\U0010ffff\ufffd\ufffe",
]
# fmt: on


class Refused(Exception):
    """What was asked cannot be measured; the message says why and what to do."""


@dataclass(frozen=True)
class Row:
    """One measurement: `right` of `n` answers exact, and the share it should reach (or stay below)."""

    name: str
    n: int
    right: int
    goal: float | None = None
    at_most: bool = False

    @property
    def exact(self) -> float:
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson score interval."""
        z, p, n = 1.96, self.exact, self.n
        middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))

    @property
    def holds(self) -> bool | None:
        if self.goal is None:
            return None
        return self.exact <= self.goal if self.at_most else self.exact >= self.goal

    def __str__(self) -> str:
        low, high = self.interval
        bound = "" if self.goal is None else f"{'<=' if self.at_most else '>='} {self.goal:.2f}"
        verdict = {True: "holds", False: "SHORT", None: ""}[self.holds]
        return f"{self.name:34} {self.n:6} {self.exact:7.3f}   {low:.3f} - {high:.3f}   {bound:8}{verdict}".rstrip()

    def as_json(self) -> dict[str, Any]:
        low, high = self.interval
        scores = {"exact": self.exact, "low": low, "high": high}
        shown = {k: round(v, 4) for k, v in scores.items()}
        return {
            "name": self.name,
            "n": self.n,
            **shown,
            "goal": self.goal,
            "at_most": self.at_most,
            "holds": self.holds,
        }


class Reader:
    """Answers the questions of a scene greedily: its memory is prefilled once, its questions share the cache."""

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerFast) -> None:
        self.model, self.tokenizer, self.encoder = model, tokenizer, Encoder(tokenizer)
        self.end, self.pad = self.encoder.end[0], tokenizer.pad_token_id

    def right(self, s: Scene) -> list[bool]:
        return [got == q.answer for got, q in zip(self.answers(s), s.questions, strict=True)]

    @torch.inference_mode()
    def answers(self, s: Scene) -> list[str]:
        memory = torch.tensor([self.encoder.memory(s.lines)], device=self.model.device)
        positions = torch.arange(memory.shape[1], device=self.model.device)[None]
        kept = self.model(input_ids=memory, position_ids=positions, use_cache=True, logits_to_keep=1).past_key_values
        batches = [s.questions[at : at + BATCH] for at in range(0, len(s.questions), BATCH)]
        return [text for batch in batches for text in self._answers(copy.deepcopy(kept), batch)]

    def _answers(self, cache: DynamicCache, questions: list[Question]) -> list[str]:
        before, device = cache.get_seq_length(), self.model.device
        cache.batch_repeat_interleave(len(questions))
        prompts = [self.encoder.ids(f"{USER} {q.text}{END}{ASSISTANT}") for q in questions]
        width = max(map(len, prompts))
        ids = torch.tensor([[self.pad] * (width - len(p)) + p for p in prompts], device=device)
        gaps = torch.tensor([width - len(p) for p in prompts], device=device)[:, None]  # padding, left of each prompt
        positions = before + (torch.arange(width, device=device)[None] - gaps).clamp(min=0)
        # mask: [questions, keys], True where a key is not padding
        mask = torch.cat([gaps.new_ones((len(prompts), before)) > 0, torch.arange(width, device=device) >= gaps], dim=1)
        budget = 1 + max(len(self.encoder.ids(f" {q.answer}")) for q in questions)  # a longer answer is wrong anyway
        written: list[torch.Tensor] = []
        done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        while len(written) < budget and not done.all():
            out = self.model(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
            )
            ids = out.logits[:, -1].argmax(-1, keepdim=True)
            written.append(ids)
            done |= ids[:, 0] == self.end
            positions = positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones((len(prompts), 1))], dim=1)
        return [self._text(row) for row in torch.cat(written, dim=1).tolist()]

    def _text(self, ids: list[int]) -> str:
        """Up to the end token; without one the answer never stopped, and says so by its own length."""
        until = ids.index(self.end) if self.end in ids else len(ids)
        return str(self.tokenizer.decode(ids[:until])).strip() + ("" if self.end in ids else "…")


def drawn(
    key: str, n: int, facts: int, *, kinds: Iterable[str] = (), words: Words | None = None, **shares: float
) -> list[Scene]:
    """Scenes of `facts` facts with `n` questions in all, none asked twice of one scene, at most 8 of each scene.

    `key` names the seed; only questions of `kinds` are kept. No scene repeats a fact of the little world.
    """
    wanted, out, left = set(kinds), list[Scene](), n
    plain = {"updated": 0.0, "world": 0.0, "unknown": 0.0}
    most = min(8, facts + 1) if facts else 8
    for i in range(1_000_000):
        s = scene(random.Random(f"eval:{key}:{i}"), facts, 3 * most, words or Words(), **(plain | shares))
        once = {q.text: q for q in s.questions if not wanted or q.kind in wanted}
        if once and not set(s.facts) & set(WORLD):
            s.questions = list(once.values())[: min(most, left)]
            left -= len(s.questions)
            out.append(s)
        if not left:
            return out
    raise Refused(f"no questions of the kinds {sorted(wanted)} in a million scenes: is the generator still the same?")


def padded(s: Scene, encoder: Encoder, rng: random.Random, tokens: int = 930) -> Scene:
    """The same memory among so many remarks that it fills `tokens` tokens."""
    lines, people = list(s.lines), [fact.subject for fact in s.facts]
    while len(encoder.memory(lines)) < tokens:
        remark = rng.choice(CHATTER)
        lines.insert(rng.randint(0, len(lines)), f"{rng.choice(people)}: {remark[0].upper() + remark[1:]}.")
    return replace(s, lines=lines)


def world_questions(key: str, n: int) -> list[Question]:
    """Every fact of the little world in two of its forms (all of them from n = 480 on)."""
    rng = random.Random(f"eval:{key}")
    asked = [q for fact in WORLD for q in _two_ways(rng, fact)]
    rng.shuffle(asked)
    return asked[:n]


def _two_ways(rng: random.Random, fact: Fact) -> list[Question]:
    once: dict[str, Question] = {}
    while len(once) < 2:
        q = ask(rng, fact, "world", fact.object)
        once[q.form] = q
    return list(once.values())


Form = tuple[str, str]  # relation, form


def form_scenes(key: str, rounds: int, facts: int = 8) -> Iterator[tuple[Scene, list[tuple[Form, Form]]]]:
    """Scenes that state every form `rounds` times, ask each fact twice, and say which forms each question rests on.

    A form of change follows an earlier value said in another form.
    """
    rng, book, words = random.Random(f"eval:{key}"), phrasebook(), Words()
    stated = [(r.name, form) for r in book.values() for form in r.says + r.updates] * rounds
    rng.shuffle(stated)
    turns = {r.name: rng.sample(r.asks + r.who, len(r.asks + r.who)) for r in book.values()}
    for at in range(0, len(stated), facts):
        out, used = Scene(), list[tuple[Form, Form]]()
        taken: set[str | tuple[str, str]] = set()
        said: list[tuple[float, str]] = []
        people = _distinct(rng, words, rng.randint(3, facts))
        for name, form in stated[at : at + facts]:
            relation = book[name]
            subject = rng.choice([p for p in people if (p, name) not in taken] or _distinct(rng, words, 1))
            now, was = _new_value(rng, words, name, taken), _new_value(rng, words, name, taken)
            taken |= {(subject, name), now, was}
            when = rng.random()
            if form in relation.updates:
                earlier = relation.fill(rng.choice(relation.says), subject, was)
                said.append((when * rng.random(), f"{earlier}."))
            said.append((when, _spoken(rng, subject, name, form, now)))
            for _ in range(2):
                turns[name].append(asks := turns[name].pop(0))
                whose = asks in relation.who
                text = relation.fill(asks, "" if whose else subject, now if whose else "")
                out.questions.append(Question(text, subject if whose else now, "form", asks))
                used.append(((name, form), (name, asks)))
        out.lines = [text for _, text in sorted(said)]
        yield out, used


def _distinct(rng: random.Random, words: Words, n: int) -> list[str]:
    people: set[str] = set()
    while len(people) < n:
        people.add(words.name(rng))
    return sorted(people)


def _new_value(rng: random.Random, words: Words, relation: str, taken: set[str | tuple[str, str]]) -> str:
    while (value := words.value(rng, relation)) in taken:
        pass
    taken.add(value)
    return value


def _spoken(rng: random.Random, subject: str, relation: str, form: str, value: str) -> str:
    fill = phrasebook()[relation].fill
    return f"{subject}: {fill(form, 'I', value)}." if rng.random() < 0.35 else f"{fill(form, subject, value)}."


Tally = dict[Form, list[bool]]


def lowest(tally: Tally, n: int = 10) -> list[str]:
    worst = sorted(tally.items(), key=lambda item: (sum(item[1]) / len(item[1]), item[0]))[:n]
    return [f"  {sum(right) / len(right):.2f} of {len(right):3}  {name}: {form}" for (name, form), right in worst]


def relations_that_hold(tally: Tally, kind: str) -> int:
    """Relations with at least six forms of the kind that hold."""
    held = [form for form, right in tally.items() if sum(right) / len(right) >= HOLDS]
    return sum(sum((name, f) in held for f in getattr(r, kind)) >= 6 for name, r in phrasebook().items())


class Evaluation:
    """All rows, each printed as soon as it is known."""

    def __init__(self, reader: Reader, questions: int, seed: int) -> None:
        self.reader, self.questions, self.seed = reader, questions, seed
        self.rows: list[Row] = []
        self.statements: Tally = {}
        self.asked: Tally = {}

    def run(self) -> None:
        print(f"{'':34} {'asked':>6} {'exact':>7}   95 % interval   goal", flush=True)
        scenes = self.by_facts("in context", (1, 2, 4, 8, 12, 16), self.questions, 0.97)
        self.row("without memory", [replace(s, lines=[]) for s in scenes], 0.02, at_most=True)
        some, few = self.questions // 4, self.questions // 6
        self.by_facts("unseen words", (1, 4, 8, 16), some * 3, 0.90, words=Words(unseen=True))
        self.updated(some)
        self.row("unknown, 8 facts", drawn(f"{self.seed}:absent", some, 8, unknown=1.0), 0.95)
        self.row("unknown, closed-book", drawn(f"{self.seed}:closed", some, 0, unknown=1.0, chatter=0.0), 0.95)
        self.row("reversed, 8 facts", drawn(f"{self.seed}:who", some, 8, kinds=["reversed"], who=1.0))
        overriding = drawn(f"{self.seed}:override", few, 8, kinds=["override"], world=1e-9)
        self.row("override of the little world", overriding)
        self.world()
        rng = random.Random(f"eval:{self.seed}:padding")
        padding = [padded(s, self.reader.encoder, rng) for s in drawn(f"{self.seed}:long", few, 8)]
        self.row("in context, 8 facts, > 930 tokens", padding)
        self.forms()
        self.add(round_trip(self.reader.tokenizer, self.seed))

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(row, flush=True)

    def row(self, name: str, scenes: list[Scene], goal: float | None = None, *, at_most: bool = False) -> Row:
        right = [ok for s in scenes for ok in self.reader.right(s)]
        row = Row(name, len(right), sum(right), goal, at_most)
        self.add(row)
        return row

    def by_facts(
        self, name: str, counts: tuple[int, ...], n: int, goal: float, words: Words | None = None
    ) -> list[Scene]:
        """One row for each number of facts, and one for all of them; the scenes asked."""
        rows, asked = list[Row](), list[Scene]()
        for facts in counts:
            each = 10 * math.ceil(n / len(counts) / 10)
            scenes = drawn(f"{self.seed}:{name}:{facts}", each, facts, words=words)
            asked += scenes
            rows.append(self.row(f"{name}, {facts} fact{'s' if facts > 1 else ''}", scenes))
        self.add(Row(f"{name}, all", sum(r.n for r in rows), sum(r.right for r in rows), goal))
        return asked

    def updated(self, n: int) -> None:
        counts = (2, 4, 8, 12)
        scenes = [
            s
            for facts in counts
            for s in drawn(f"{self.seed}:new:{facts}", math.ceil(n / 4), facts, kinds=["updated"], updated=0.4)
        ]
        self.row("updated, 2 to 12 facts", scenes, 0.95)

    def world(self) -> None:
        asked = world_questions(f"{self.seed}:world", math.ceil(self.questions * 0.48))
        self.row("little world, closed-book", [Scene(questions=asked)], 0.98)
        apart = drawn(f"{self.seed}:apart", 8 * math.ceil(len(asked) / 8), 8)
        scenes = [replace(s, questions=asked[i * 8 : i * 8 + 8]) for i, s in enumerate(apart)]
        self.row("little world, 8 unrelated facts", [s for s in scenes if s.questions])

    def forms(self) -> None:
        for s, used in form_scenes(f"{self.seed}:forms", math.ceil(self.questions / 100)):
            for ok, (statement, question) in zip(self.reader.right(s), used, strict=True):
                self.statements.setdefault(statement, []).append(ok)
                self.asked.setdefault(question, []).append(ok)
        right = [ok for answers in self.asked.values() for ok in answers]
        self.add(Row("every phrasing, 8 facts", len(right), sum(right)))
        n = len(phrasebook())
        self.add(Row("relations, >= 6 statements hold", n, relations_that_hold(self.statements, "says"), 1.0))
        self.add(Row("relations, >= 6 questions hold", n, relations_that_hold(self.asked, "asks"), 1.0))

    def as_json(self) -> dict[str, Any]:
        def shares(tally: Tally) -> list[dict[str, Any]]:
            return [
                {"relation": name, "form": form, "n": len(right), "exact": round(sum(right) / len(right), 4)}
                for (name, form), right in sorted(tally.items())
            ]

        forms = {"statements": shares(self.statements), "questions": shares(self.asked)}
        return {"rows": [row.as_json() for row in self.rows], "forms": forms}


def round_trip(tokenizer: PreTrainedTokenizerFast, seed: int) -> Row:
    """Text -> tokens -> the same text, for strings nobody trained on."""
    rng = random.Random(f"eval:{seed}:bytes")
    points = [chr(p) for p in range(0x110000) if not 0xD800 <= p < 0xE000]  # all that UTF-8 can say
    texts = [*ODD_STRINGS, *("".join(rng.choices(points, k=rng.randint(1, 12))) for _ in range(200))]
    encode = Encoder(tokenizer).ids
    right = sum(tokenizer.decode(encode(t), clean_up_tokenization_spaces=False) == t for t in texts)
    return Row("bytes come back from the tokenizer", len(texts), right, 1.0)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    if not folder.is_dir():
        raise Refused(
            f"no model folder at {folder}: give the folder of a trained model, "
            "or make one with `python scripts/train_small_model.py`"
        )
    if not (folder / "tokenizer.json").exists():
        raise Refused(f"no tokenizer.json in {folder}: a model and its tokenizer belong in one folder")
    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    except Exception as e:  # tokenizers raises bare Exception on a file that it cannot read
        raise Refused(f"the tokenizer in {folder} cannot be read ({e}): copy it again from its training run") from e
    known = tokenizer.get_vocab()
    if missing := [t for t in (BOS, SYSTEM, USER, ASSISTANT, END) if t not in known]:
        raise Refused(
            f"the tokenizer in {folder} has no {' '.join(missing)}: this measures models made by train_small_model.py"
        )
    return tokenizer


def load_packed(folder: Path) -> Any:
    """A Hugging Face folder, in fp32."""
    if not (folder / "config.json").exists():
        also = "; it holds a training run, add --checkpoint" if (folder / "checkpoint.safetensors").exists() else ""
        raise Refused(f"no finished model (config.json) in {folder}{also}")
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, SafetensorError, RuntimeError) as e:
        raise Refused(f"the model in {folder} cannot be read ({e}): copy it again from its training run") from e


def load_training(folder: Path, tokenizer: PreTrainedTokenizerFast) -> Any:
    """The last checkpoint of a training run; its shapes say how large the model is."""
    path = folder / "checkpoint.safetensors"
    if not path.exists():
        raise Refused(
            f"no checkpoint.safetensors in {folder}: training writes its first after --save-every steps; "
            "leave --checkpoint out for a finished model"
        )
    try:
        tensors = load_file(path)
    except SafetensorError as e:
        raise Refused(f"{path} cannot be read ({e}): training writes the next one at its next --save-every") from e
    state = {k.removeprefix("model|"): v for k, v in tensors.items() if k.startswith("model|")}
    if "model.embed_tokens.weight" not in state:
        raise Refused(f"{path} holds no weights named model|…: it is no checkpoint of train_small_model.py")
    vocab, width = state["model.embed_tokens.weight"].shape
    if vocab != len(tokenizer):
        raise Refused(
            f"{path} is for {vocab} tokens and the tokenizer beside it has {len(tokenizer)}: use the one it had"
        )
    layers = 1 + max(int(k.split(".")[2]) for k in state if k.startswith("model.layers."))
    model = build_model(tokenizer, layers, width)
    try:
        lost = model.load_state_dict(state, strict=False)
    except RuntimeError as e:
        raise Refused(
            f"{path} does not fit the model of train_small_model.py ({e}): use the script it came from"
        ) from e
    if wrong := [*lost.unexpected_keys, *(k for k in lost.missing_keys if k != "lm_head.weight")]:
        raise Refused(
            f"{path} does not fit the model of train_small_model.py: {', '.join(wrong[:3])} missing or unknown"
        )
    model.tie_weights()
    return model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir", nargs="?", type=Path, default=PACKAGED, help="default: the packaged model")
    parser.add_argument("--questions", type=int, default=1000, help="in-context questions; the other rows follow it")
    parser.add_argument("--checkpoint", action="store_true", help="read the last checkpoint of a training run")
    parser.add_argument("--json", type=Path, help="also write the scores to this file")
    parser.add_argument("--seed", type=int, default=99)
    args = parser.parse_args()
    disable_progress_bar()  # the rows are the progress
    try:
        if args.questions < 12:
            raise Refused(f"--questions {args.questions} is too few for a share: ask at least 12")
        if args.json and not args.json.parent.is_dir():
            raise Refused(
                f"--json: there is no folder {args.json.parent} to write {args.json.name} into: make it first"
            )
        tokenizer = load_tokenizer(args.model_dir)
        model = load_training(args.model_dir, tokenizer) if args.checkpoint else load_packed(args.model_dir)
        if model.config.max_position_embeddings < CONTEXT // 2:
            raise Refused(f"the model in {args.model_dir} reads {model.config.max_position_embeddings} tokens, too few")
        model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
        began = time.monotonic()
        evaluation = Evaluation(Reader(model, tokenizer), args.questions, args.seed)
        evaluation.run()
    except Refused as e:
        print(f"eval_small_model: {e}", file=sys.stderr)
        return 1
    seconds = time.monotonic() - began
    print("\nlowest statement forms", *lowest(evaluation.statements), sep="\n")
    print("lowest question forms", *lowest(evaluation.asked), sep="\n")
    short = [row.name for row in evaluation.rows if row.holds is False]
    print(f"\n{'SHORT: ' + '; '.join(short) if short else 'every goal holds'} ({seconds:.0f} s)")
    if args.json:
        head = {"model": str(args.model_dir), "checkpoint": args.checkpoint, "seed": args.seed}
        report = {**head, **evaluation.as_json(), "seconds": round(seconds, 1)}
        args.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
