"""Train the small model that memos ships: tokenizer, weights and card, from generated text, from a seed.

    python scripts/train_small_model.py --out build/small

Every sequence is a memory and many questions about it; a question sees the memory and itself alone, so
one sequence is many exact training prompts. Interrupt at any time: the same command goes on from the last
checkpoint, with the same text as if it had never stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parent))
from small_world import Scene, Words, ask, scene, world_facts

BOS, SYSTEM, USER, ASSISTANT, END, PAD = "<|bos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|> ' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CONTEXT = 2048
HEAD, ROPE_THETA = 32, 1e6  # a large theta leaves dimensions that rotation hardly moves: content is matched there
COMPOSE_FROM = 0.45  # from this share of the run on, some memories are read as cubes that were encoded apart
_SEES_ALL = -1  # cube of what comes after the memory
# ids, positions, block (question; 0 = seen by all), cube (0 = seen by all), labels
Row = tuple[list[int], list[int], list[int], list[int], list[int]]


def train_tokenizer(seed: int, vocab: int = 2048) -> PreTrainedTokenizerFast:
    """Byte-level BPE: any UTF-8 text round-trips."""
    rng = random.Random(seed)

    def texts() -> Iterator[str]:
        for _ in range(12_000):
            s = scene(rng, 8, 8)
            yield "\n".join(f"- {line}" for line in s.lines) + "\n"
            yield from (f" {q.text} {q.answer}" for q in s.questions)
        for fact in world_facts():
            yield from [f" {fact.subject}"] * 50

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts(),
        trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=[PAD, BOS, SYSTEM, USER, ASSISTANT, END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


class Encoder:
    """A scene -> one training row. Segments are tokenised apart, exactly as the host does it."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.ids = lambda text: tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        self.vocab = len(tokenizer)
        self.specials = len(tokenizer.all_special_ids)
        self.head, self.end = self.ids(f"{BOS}{SYSTEM} Memory:\n"), self.ids(END)
        self.bos = self.ids(BOS)

    def line(self, line: str) -> list[int]:
        return list(self.ids(f"- {line}\n"))

    def memory(self, lines: list[str]) -> list[int]:
        return self.head + [i for line in lines for i in self.line(line)] + self.end if lines else [*self.bos]

    def row(self, s: Scene, *, dialogue: bool, gap: int = 0, cubes: Sequence[int] = ()) -> Row:
        """`dialogue`: the questions follow one another as turns; otherwise each sees the memory alone.

        `gap` moves everything after the beginning of the sequence, so that far positions are learnt too.
        `cubes`: the number of each line's cube, from 1; lines of one cube do not see those of another, as when
        their KV was encoded apart (Block-Attention, 2409.15355). Without it the lines see one another.
        """
        ids = self.memory(s.lines)
        positions = [p + gap if p else 0 for p in range(len(ids))]
        block, labels = [0] * len(ids), [-100] * len(ids)
        cube = [0] * len(ids)
        if cubes:
            cube = [0] * len(self.head) + [c for line, c in zip(s.lines, cubes, strict=True) for _ in self.line(line)]
            cube += [_SEES_ALL] * len(self.end)
        base, start = positions[-1] + 1, positions[-1] + 1
        for n, q in enumerate(s.questions, start=1):
            prompt, answer = self.ids(f"{USER} {q.text}{END}{ASSISTANT}"), self.ids(f" {q.answer}{END}")
            at = start if dialogue else base
            ids += prompt + answer
            positions += range(at, at + len(prompt) + len(answer))
            block += [0 if dialogue else n] * (len(prompt) + len(answer))
            labels += [-100] * (len(prompt) - 1) + answer + [-100]
            cube += [_SEES_ALL] * (len(prompt) + len(answer))
            start = at + len(prompt) + len(answer)
        return ids, positions, block, cube, labels

    def copy_row(self, rng: random.Random) -> Row:
        """Random tokens, twice: what makes a model look back and copy."""
        piece = [rng.randrange(self.specials, self.vocab) for _ in range(rng.randint(8, 100))]
        ids = self.bos + piece + piece
        labels = [-100] * (len(piece) + 1) + piece[1:] + [-100]
        return ids, list(range(len(ids))), [0] * len(ids), [0] * len(ids), labels


def stage(progress: float) -> tuple[int, float, float]:
    """(most facts, share of copying, share of updated facts) at this share of the run."""
    for until, facts, copying, updated in (
        (0.08, 2, 0.5, 0.0),
        (0.16, 4, 0.25, 0.1),
        (0.3, 8, 0.1, 0.15),
        (0.45, 12, 0.03, 0.2),
    ):
        if progress < until:
            return facts, copying, updated
    return 18, 0.0, 0.45


def batch_rows(encoder: Encoder, rng: random.Random, size: int, progress: float, questions: int) -> list[Row]:
    most, copying, updated = stage(progress)
    rows = []
    for _ in range(size):
        if rng.random() < copying:
            rows.append(encoder.copy_row(rng))
            continue
        closed = rng.random() < 0.06
        s = scene(
            rng,
            0 if closed else rng.randint(max(1, most // 3) if rng.random() < 0.7 else 1, most),
            questions,
            Words(),
            updated=updated,
            world=0.7 if closed else 0.08,
            who=0.3,
            chatter=rng.choice((0.0, 0.3, 0.8)),
        )
        dialogue, gap = rng.random() < 0.12, rng.randint(0, 900) if rng.random() < 0.25 else 0
        apart = progress > COMPOSE_FROM and rng.random() < 0.4
        rows.append(encoder.row(s, dialogue=dialogue, gap=gap, cubes=grouped(rng, len(s.lines)) if apart else ()))
    return rows


def grouped(rng: random.Random, lines: int) -> list[int]:
    """Consecutive lines in cubes of one to six."""
    cubes: list[int] = []
    while len(cubes) < lines:
        cubes += [cubes[-1] + 1 if cubes else 1] * rng.choice((1, 2, 3, 4, 6))
    return cubes[:lines]


def pack(rows: list[Row]) -> list[list[Row]]:
    """Rows into bins no longer than the longest row, first fit, longest first."""
    bins: list[list[Row]] = []
    longest = max(len(row[0]) for row in rows)
    for row in sorted(rows, key=lambda row: -len(row[0])):
        for held in bins:
            if sum(len(r[0]) for r in held) + len(row[0]) <= longest:
                held.append(row)
                break
        else:
            bins.append([row])
    return bins


def tensors(rows: list[Row], pad: int) -> tuple[torch.Tensor, ...]:
    """ids, positions [B, T], mask [B, 1, T, T] (True = may see), labels [B, T]; several rows share a T."""
    bins = pack(rows)
    width = max(sum(len(row[0]) for row in held) for held in bins)
    ids, positions, block, cube, labels, owner = (
        np.full((len(bins), width), fill) for fill in (pad, 0, 0, 0, -100, -1)
    )
    for i, held in enumerate(bins):
        at = 0
        for n, row in enumerate(held):
            end = at + len(row[0])
            for array, values in zip((ids, positions, block, cube, labels), row, strict=True):
                array[i, at:end] = values
            owner[i, at:end] = n
            at = end
    same = owner[:, None, :] == owner[:, :, None]
    seen = same & ((block[:, None, :] == 0) | (block[:, None, :] == block[:, :, None]))
    seen &= (cube[:, None, :] <= 0) | (cube[:, None, :] == cube[:, :, None]) | (cube[:, :, None] == _SEES_ALL)
    mask = torch.from_numpy(seen & np.tri(width, dtype=bool)[None]).unsqueeze(1)
    return torch.from_numpy(ids), torch.from_numpy(positions), mask, torch.from_numpy(labels)


def answer_loss(model: LlamaForCausalLM, batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy and accuracy over answer tokens; the head runs on those positions alone."""
    ids, positions, mask, labels = batch
    with torch.autocast(ids.device.type, torch.bfloat16):
        hidden = model.model(
            input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False
        ).last_hidden_state
    wanted = labels != -100
    logits = model.lm_head(hidden[wanted].float())
    return torch.nn.functional.cross_entropy(logits, labels[wanted]), (
        logits.argmax(-1) == labels[wanted]
    ).float().mean()


def build_model(tokenizer: PreTrainedTokenizerFast, layers: int, width: int) -> LlamaForCausalLM:
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=width * 8 // 3 // 32 * 32,
            num_hidden_layers=layers,
            num_attention_heads=width // HEAD,
            num_key_value_heads=width // HEAD,
            tie_word_embeddings=True,
            attention_bias=True,
            max_position_embeddings=CONTEXT,
            rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            attn_implementation="sdpa",
        )
    )
    with torch.no_grad():
        prime_induction(model, width)
    return model


def prime_induction(model: LlamaForCausalLM, width: int) -> None:
    """Start with the circuit that such a model has to find before anything else: look back one token, then
    find where the present token stood before and copy what followed (Olsson et al., 2209.11895).

    From a plain start the first thousands of steps went by on a plateau without it. Heads 0-2 of layer 0 look
    1, 2 and 3 tokens back through their biases alone; heads 0-2 of layer 2 match the token before a key with
    the query's own token, in the dimensions that rotation leaves alone, and layer 2 copies what it attends to.
    """
    for layer in model.model.layers:  # quiet at first, so that what is primed is heard
        layer.self_attn.o_proj.weight *= 0.1
        layer.mlp.down_proj.weight *= 0.1
    half = HEAD // 2
    theta = ROPE_THETA ** (-torch.arange(half) / half)
    fast, slow = (theta > 0.01).float(), [i for i in range(HEAD) if theta[i % half] < 0.004]
    first, copy = model.model.layers[0].self_attn, model.model.layers[2].self_attn
    for head, offset in enumerate((1, 2, 3)):
        at = head * HEAD
        first.k_proj.bias[at : at + half] = 6 * fast
        first.q_proj.bias[at : at + half] = 6 * fast * torch.cos(offset * theta)
        first.q_proj.bias[at + half : at + HEAD] = -6 * fast * torch.sin(offset * theta)
    basis = torch.linalg.qr(torch.randn(width, width)).Q
    first.v_proj.weight[:HEAD] = basis[:HEAD]
    first.o_proj.weight[:, :HEAD] = 0.05 * basis[:, :HEAD]
    for at in (0, HEAD, 2 * HEAD):
        for n, dim in enumerate(slow):
            copy.q_proj.weight[at + dim] = 1.6 * basis[n]
            copy.k_proj.weight[at + dim] = 1.6 * basis[:, n]
    copy.v_proj.weight[:] = basis
    copy.o_proj.weight[:] = 0.1 * basis.T


class Optimizers:
    """Muon for the matrices, AdamW for the rest; state in safetensors, so that a run can go on."""

    def __init__(self, model: LlamaForCausalLM, lr: float) -> None:
        named = dict(model.named_parameters())
        self.names = {id(p): n for n, p in named.items()}
        matrices = [p for n, p in named.items() if p.ndim == 2 and "embed" not in n]
        rest = [p for n, p in named.items() if p.ndim != 2 or "embed" in n]
        self.parts = [
            torch.optim.Muon(matrices, lr=lr, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, lr=lr, weight_decay=0.0, betas=(0.9, 0.98)),
        ]
        self.lr = lr

    def step(self, scale: float) -> None:
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.lr * scale
            part.step()
            part.zero_grad(set_to_none=True)

    def state(self) -> dict[str, torch.Tensor]:
        return {
            f"{self.names[id(p)]}|{k}": torch.as_tensor(v).contiguous()
            for part in self.parts
            for p, s in part.state.items()
            for k, v in s.items()
        }

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        for part in self.parts:
            for group in part.param_groups:
                for p in group["params"]:
                    prefix = self.names[id(p)] + "|"
                    part.state[p] = {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}


def schedule(step: int, steps: int) -> float:
    """Warm up, hold for 60 % of the run, decay to 3 %."""
    if step < 100:
        return (step + 1) / 100
    return 1.0 if step < 0.6 * steps else max(0.03, (steps - step) / (0.4 * steps))


def save_checkpoint(out: Path, model: LlamaForCausalLM, optimizers: Optimizers, step: int) -> None:
    state = {f"model|{k}": v.contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file(state | optimizers.state(), out / "checkpoint.tmp", {"step": str(step)})
    os.replace(out / "checkpoint.tmp", out / "checkpoint.safetensors")


def load_checkpoint(out: Path, model: LlamaForCausalLM, optimizers: Optimizers) -> int:
    from safetensors import safe_open

    path = out / "checkpoint.safetensors"
    if not path.exists():
        return 0
    with safe_open(path, "pt") as f:
        step = int(f.metadata()["step"])
    tensors = load_file(path)
    model.load_state_dict(
        {k.removeprefix("model|"): v for k, v in tensors.items() if k.startswith("model|")}, strict=False
    )
    model.tie_weights()
    optimizers.load({k: v for k, v in tensors.items() if not k.startswith("model|")})
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/small"), help="checkpoints and the finished model")
    parser.add_argument("--steps", type=int, default=2600)
    parser.add_argument("--batch", type=int, default=20, help="sequences a step")
    parser.add_argument("--questions", type=int, default=16, help="questions a sequence")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--stop-after", type=int, help="stop at this step (the schedule stays that of --steps)")
    args = parser.parse_args()
    if not hasattr(torch.optim, "Muon"):
        sys.exit(f"training needs torch >= 2.9 for torch.optim.Muon, this is {torch.__version__}; pip install -U torch")

    args.out.mkdir(parents=True, exist_ok=True)
    if (args.out / "tokenizer.json").exists():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(args.out)
    else:
        tokenizer = train_tokenizer(args.seed)
        tokenizer.save_pretrained(args.out)
    torch.manual_seed(args.seed)
    model = build_model(tokenizer, args.layers, args.width)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    optimizers = Optimizers(model, args.lr)
    first = load_checkpoint(args.out, model, optimizers)
    encoder = Encoder(tokenizer)
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(tokenizer)} tokens, "
        f"{device}, from step {first}",
        flush=True,
    )
    began, log = time.monotonic(), []
    for step in range(first, min(args.steps, args.stop_after or args.steps)):
        rng = random.Random(f"{args.seed}:{step}")
        rows = batch_rows(encoder, rng, args.batch, step / args.steps, args.questions)
        batch = tuple(t.to(device) for t in tensors(rows, tokenizer.pad_token_id))
        loss, accuracy = answer_loss(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizers.step(schedule(step, args.steps))
        log.append((loss.item(), accuracy.item()))
        if (step + 1) % 20 == 0:
            mean = np.mean(log[-20:], axis=0)
            pace = (time.monotonic() - began) / (step + 1 - first)
            print(
                f"step {step + 1}/{args.steps} loss {mean[0]:.3f} tokens right {mean[1]:.3f} "
                f"{pace:.2f} s/step, {pace * (args.steps - step - 1) / 60:.0f} min left",
                flush=True,
            )
        if (step + 1) % args.save_every == 0:
            save_checkpoint(args.out, model, optimizers, step + 1)
    save_checkpoint(args.out, model, optimizers, step=max(first, min(args.steps, args.stop_after or args.steps)))
    settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()}
    export(model, tokenizer, args.out / "model", settings)
    print(f"the model is in {args.out / 'model'}; measure it with scripts/eval_small_model.py {args.out / 'model'}")


def export(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path, settings: dict[str, object]
) -> None:
    """The folder that the package ships: weights, tokenizer, the settings, and questions about the little world."""
    model.config.memos_languages = ["en"]
    model.float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    rng = random.Random(0)
    asked = [ask(rng, fact, "world", fact.object) for fact in world_facts()]
    probes = [{"question": q.text, "answer": q.answer} for q in asked]
    (folder / "memos_probes.json").write_text(json.dumps(probes, indent=0), "utf-8")
    (folder / "training.json").write_text(
        json.dumps(settings | {"parameters": model.num_parameters()}, indent=1), "utf-8"
    )


if __name__ == "__main__":
    main()
