"""`memos doctor`: reports what KV can be used for, on one model or on tiny random ones of every architecture.

Each tiny model is saved, and loaded from its folder as a user's model is. What memos then answers is held against
another copy that transformers has loaded with its own defaults, and that reads every text in one plain forward.
"""

from __future__ import annotations

import gc
import math
import tempfile
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from memos.bench.architectures import every, tiny
from memos.bench.batch import answer_all
from memos.config import DecodeConfig, FidelityConfig, ModelConfig
from memos.errors import InputError, MemosError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import encode
from memos.infrastructure.host.kv.compose import Motion, compose, starts
from memos.infrastructure.host.model.capability import Capability
from memos.infrastructure.host.model.decode import TOLERANCE, in_full_precision
from memos.infrastructure.host.model.load import SMALL_MODEL, model_path, pick_device
from memos.infrastructure.host.request import Request
from memos.plugins.progress import Show

_ANSWER = DecodeConfig(max_new_tokens=8)
_LENGTHS = (9, 50)  # tokens of a memory: within any window, and beyond the small ones
_EVERY_ROW = FidelityConfig(level="L3", share=1.0)


def verdict_on(can: Capability) -> str:
    """exact, composable or refused; with the reason for what is not there."""
    name = "composable" if can.composable else "exact" if can.exact else "refused"
    return f"{name}: {can.why}" if can.why else name


def examine_model(config: ModelConfig) -> dict[str, Any]:
    host = Host.load(config)
    can = host.capability
    row = {
        "name": str(host.config.path),
        "attention": host.attention,
        "verdict": verdict_on(can),
        "exact": can.exact,
        "composable": can.composable,
        "recompute": can.renewal,
        "limit": can.limit,
        "together": host.together,
        "differences": dict(can.differences),
    }
    return {"models": [row], "device": str(host.model.device)}


def examine_architectures(show: Show, config: ModelConfig = ModelConfig(), names: Sequence[str] = ()) -> dict[str, Any]:
    """Every architecture, or these, on random weights; `unmade`: no small model that loads came of it.

    Raises InputError for a name that there is not.
    """
    known = every()
    for name in names:
        if name not in known:
            near = ", ".join(get_close_matches(name, known)) or "none"
            raise InputError(f"there is no architecture {name!r}; those with a like name: {near}")
    rows, unmade = list[dict[str, Any]](), dict[str, str]()
    tokenizer = AutoTokenizer.from_pretrained(model_path(SMALL_MODEL))
    transformers.utils.logging.disable_progress_bar()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for tensors as small as these, more threads only wait for one another
    try:
        for n, name in enumerate(names or known, start=1):
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of random weights
                tokenizer.save_pretrained(folder)
                here = config.model_copy(update={"path": folder, "template": "plain"})
                try:
                    tiny(name, vocabulary=len(tokenizer)).save_pretrained(folder)
                    plain = _as_transformers_loads_it(here)
                except Exception as error:  # whatever a foreign model's code raises
                    unmade[name] = _first_line(error)
                else:
                    rows.append(_row(name, here, plain))
            gc.collect()
            show("architectures", n, len(names or known))
    finally:
        torch.set_num_threads(threads)
    device = str(pick_device(config.device))
    return {"transformers": transformers.__version__, "rows": rows, "unmade": unmade, "device": device}


def _as_transformers_loads_it(config: ModelConfig) -> PreTrainedModel:
    device, dtype = pick_device(config.device), getattr(torch, "float32" if config.dtype == "auto" else config.dtype)
    plain: PreTrainedModel = AutoModelForCausalLM.from_pretrained(config.path, dtype=dtype).eval().to(device)
    plain(input_ids=torch.arange(10, 20, device=device)[None])
    return plain


def _row(name: str, config: ModelConfig, plain: PreTrainedModel) -> dict[str, Any]:
    try:
        host = Host.load(config)
    except Exception as error:  # of memos or of whatever a foreign model's code raises
        return _Findings(name).row("", "not loaded", _first_line(error))
    found = _Findings(name)
    _Comparison(host, plain, found).run()
    can = host.capability
    verdict, _, why = verdict_on(can).partition(": ")
    return found.row(host.attention, verdict, why)


@dataclass
class _Findings:
    """What was right, refused and wrong of one architecture."""

    name: str
    exact: float | None = None  # the largest |logit difference| over exact KV, and over composed
    composed: float | None = None
    equal: bool | None = None  # the greedy answers
    within: float | None = None  # a difference up to this is rounding
    checks: int = 0
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)  # raised what is no error of memos

    def row(self, attention: str, verdict: str, why: str) -> dict[str, Any]:
        return {
            "architecture": self.name,
            "attention": attention,
            "verdict": verdict,
            "why": why,
            "exact_diff": self.exact,
            "composed_diff": self.composed,
            "greedy_equal": self.equal,
            "rounding": self.within,
            "silently_wrong": len(self.wrong),
            "checks": self.checks,
            "wrong": self.wrong,
            "failed": self.failed,
        }


class _Comparison:
    """One model through the host's calls, and the same through one plain forward of every text."""

    def __init__(self, host: Host, plain: PreTrainedModel, found: _Findings) -> None:
        self.host, self.plain, self.found = host, plain, found
        self.draw = torch.Generator().manual_seed(7)
        exact, ids = in_full_precision(plain), list(range(10, 210))
        whole = self.read(ids, exact)  # not causal: a longer text changes what is said of a shorter one
        self.causal = all(_difference(self.read(ids[:n], exact), whole[:n]) < 1e-3 for n in (90, 150))
        # twice as far as the plain forward itself is from the same in fp32: no order of summation promises more
        drawn = [] if exact is plain else [self.drawn(n) for n in (30, 60, 90, 120, 150, 180)]
        noise = max((_difference(self.read(ids), self.read(ids, exact)) for ids in drawn), default=0.0)
        self.within = found.within = max(TOLERANCE[plain.dtype], 2 * noise)

    def run(self) -> None:
        for tokens in _LENGTHS:
            self.texts(f"{tokens} tokens a memory", [self.memory(tokens + 2 * n) for n in range(3)])
        for place in self.bounds():
            if memory := self.reaching(place - 3):
                self.texts(f"an answer across {place} tokens", [memory])

    def bounds(self) -> list[int]:
        """Lengths at which something else is computed, as the config has them."""
        config = self.plain.config.get_text_config()
        rope = getattr(config, "rope_parameters", None) or {}
        holders = (vars(config), rope, *(part for part in rope.values() if isinstance(part, dict)))
        names = ("original_max_position_embeddings", "sliding_window", "attention_chunk_size")
        values = {holder.get(name) for holder in holders for name in names}
        return sorted(value for value in values if isinstance(value, int) and 24 < value < 240)

    def texts(self, where: str, memories: Sequence[str]) -> None:
        request = Request(({"role": "user", "content": "Who is it?"},), tuple(memories))
        other = replace(request, messages=({"role": "user", "content": "And where does everybody else live then?"},))
        self.compare(f"text, {where}", lambda: self.logits(request))
        self.compare(f"an answer in text, {where}", lambda: self.answers([request]), greedy=True)
        self.compare(f"answers in text together, {where}", lambda: self.together([request, other]), greedy=True)
        self.compare(f"the likelihood of an answer, {where}", lambda: self.likelihood(request))

        def kept() -> Request:
            return replace(request, pasts=(self.host.encode(memories),))

        def apart(level: FidelityConfig) -> Request:
            return replace(request, pasts=tuple(self.host.encode([m]) for m in memories), fidelity=level)

        self.compare(f"exact KV, {where}", lambda: self.logits(kept()), exact=True)
        self.compare(f"an answer over exact KV, {where}", lambda: self.answers([kept()]), greedy=True)
        self.compare(f"the likelihood of an answer over KV, {where}", lambda: self.likelihood(kept()))
        self.compare(
            f"answers over KV together, {where}",
            lambda: self.together(
                [kept(), replace(kept(), messages=other.messages), replace(other, memories=(), pasts=()), other]
            ),
            greedy=True,
        )
        if len(memories) > 1:
            exact, moved, every_row = (FidelityConfig(level="L0"), FidelityConfig(level="L1"), _EVERY_ROW)
            self.compare(f"KV grown by KV, {where}", lambda: self.logits(apart(exact)), exact=True)
            self.compare(f"composed KV, {where}", lambda: self.composition(apart(moved)), composed=True)
            self.compare(f"composed KV, all rows anew, {where}", lambda: self.logits(apart(every_row)), composed=True)
            self.compare(f"an answer over that, {where}", lambda: self.answers([apart(every_row)]), greedy=True)

    def compare(
        self, what: str, measure: Callable[[], float], exact: bool = False, composed: bool = False, greedy: bool = False
    ) -> None:
        """measure: the largest |logit difference|, as a share of the largest logit."""
        found = self.found
        try:
            difference = measure()
        except MemosError:
            return  # refused by name
        except Exception as error:  # whatever a foreign model's code raises
            found.failed.append(f"{what}: {_first_line(error)}")
            return
        found.checks += 1
        right = math.isfinite(difference) and difference <= self.within
        if not right:
            found.wrong.append(f"{what}: logits differ by {difference:.2g} of the largest")
        if exact:
            found.exact = max(found.exact or 0.0, difference)
        if composed:
            found.composed = max(found.composed or 0.0, difference)
        if greedy:
            found.equal = right and found.equal is not False

    # -- differences from the plain forward, as a share of the largest logit (or 1) -------------------------------

    def logits(self, request: Request) -> float:
        over = self.host.logits(request)
        return _difference(over, self.read(self.ids(request))[-len(over) :])

    def answers(self, requests: Sequence[Request]) -> float:
        return max(self.below(r, self.host.answer(r, _ANSWER).ids) for r in requests)

    def together(self, requests: Sequence[Request]) -> float:
        """In one padded batch, and side by side from threads of their own."""
        with ThreadPoolExecutor(len(requests)) as threads:
            side_by_side = list(threads.map(lambda request: self.host.answer(request, _ANSWER), requests))
        done = [*answer_all(self.host, requests, _ANSWER), *side_by_side]
        return max(self.below(r, answer.ids) for r, answer in zip([*requests, *requests], done, strict=True))

    def below(self, request: Request, answer: Sequence[int]) -> float:
        """How far the logit of each token of an answer lies below the largest there, at most."""
        prompt = self.ids(request)
        if not self.causal:
            logits = torch.stack([self.read([*prompt, *answer[:n]])[-1] for n in range(len(answer) + 1)])
        else:
            logits = self.read([*prompt, *answer])[len(prompt) - 1 :]
        ends = sorted(self.host.decoder.ends)
        worst = 0.0
        for n, row in enumerate(logits):
            if n < len(answer):
                chosen = row[answer[n]]
            elif n < _ANSWER.max_new_tokens:  # it has ended here
                chosen = row[ends].max()
            else:
                break
            worst = max(worst, float(row.max() - chosen) / max(1.0, float(row.abs().max())))
        return worst

    def likelihood(self, request: Request) -> float:
        """The same of the logarithm of an answer's probability, for each token."""
        prompt, answer = self.ids(request), "in a small house"
        values = []
        for lead in ("", " "):
            ids = self.host.spelled(lead + answer)
            log_p = torch.log_softmax(self.read([*prompt, *ids[:-1]])[len(prompt) - 1 :].double(), -1)
            values.append((float(log_p[torch.arange(len(ids)), torch.tensor(ids)].sum()), len(ids)))
        right, tokens = max(values)
        largest = max(1.0, float(self.read(prompt)[-1].abs().max()))
        return abs(self.host.likelihood(request, answer) - right) / tokens / largest

    def composition(self, request: Request) -> float:
        """L1 against pieces that were each encoded where they stand."""
        host, device = self.host, self.plain.device
        over, head = host.logits(request), len(host.head)
        pieces = request.pasts
        with torch.inference_mode():
            placed = [
                encode(self.plain, [*host.head, *piece.ids[head:]], start - head)
                for piece, start in zip(pieces, starts(pieces, head), strict=True)
            ]
            unmoved = compose(placed, head, Motion(((None, None),) * len(placed[0].layers)))
            ids = self.ids(request)[len(unmoved.ids) :]
            start = len(unmoved.ids)
            right = self.plain(
                input_ids=torch.tensor([ids], device=device),
                position_ids=torch.arange(start, start + len(ids), device=device)[None],
                attention_mask=torch.ones(1, start + len(ids), dtype=torch.long, device=device),
                past_key_values=unmoved.fork(),
                use_cache=True,
            ).logits[0]
        return _difference(over, right.float().cpu()[-len(over) :])

    @torch.inference_mode()
    def read(self, ids: Sequence[int], model: PreTrainedModel | None = None) -> torch.Tensor:
        """[tokens, vocabulary] on the CPU, of one plain forward of the whole text."""
        row = torch.tensor([list(ids)], device=self.plain.device)
        logits: torch.Tensor = (model or self.plain)(input_ids=row, use_cache=False).logits
        return logits[0].float().cpu()

    # -- texts ------------------------------------------------------------------------------------------------------

    def ids(self, request: Request) -> list[int]:
        prompt = self.host.prompts.build(request.memories, request.messages)
        return [*prompt.prefix, *prompt.tail]

    def memory(self, tokens: int) -> str:
        """Random text of about so many tokens."""
        return str(self.host.tokenizer.decode(self.drawn(tokens), skip_special_tokens=True)).strip()

    def drawn(self, tokens: int) -> list[int]:
        """Ids of tokens at random."""
        return torch.randint(300, len(self.host.tokenizer), (tokens,), generator=self.draw).tolist()

    def reaching(self, tokens: int) -> str:
        """A memory with which the prompt has at most so many tokens, and hardly fewer; "" where none is that short."""
        message = {"role": "user", "content": "Who is it?"}
        words, best = self.memory(tokens).split(), ""
        for n in range(1, len(words) + 1):
            if len(self.host.prompts.build([" ".join(words[:n])], [message])) > tokens:
                break
            best = " ".join(words[:n])
        return best


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest |logit difference| as a share of the largest logit; infinite where not the same are finite."""
    finite = other.abs() < torch.finfo(other.dtype).max / 2
    if not finite.any() or not torch.equal(finite, one.abs() < torch.finfo(one.dtype).max / 2):
        return float("inf")
    return float((one[finite] - other[finite]).abs().max()) / max(1.0, float(other[finite].abs().max()))


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
