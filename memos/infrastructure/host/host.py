"""The local model as a machine for memories: answer, encode, serve adapters. Knows texts and files; knows no callers,
rights or states.

`Host` is the only class the rest of memos sees. It never changes the model it is given: adapters live in a
twin that shares the weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from memos.config import DecodeConfig, FidelityConfig, ModelConfig
from memos.cost import spent
from memos.errors import ContextOverflow, FingerprintMismatch, HostError, Unsupported
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.adapters.serving import Adapted, Adapters, Stack
from memos.infrastructure.host.fingerprint import fingerprint_parts
from memos.infrastructure.host.kv.cache import Activation, alike, encode, room_for
from memos.infrastructure.host.kv.codecs import Codec
from memos.infrastructure.host.kv.compose import PrefixTree, asked_for, compose, extend, heads_of
from memos.infrastructure.host.kv.files import load_activation, save_activation
from memos.infrastructure.host.model.capability import Capability, examine, limit_of
from memos.infrastructure.host.model.constrained import Grammars, Schema, longest
from memos.infrastructure.host.model.decode import Decoder, DecodeRow, ModelAnswer, drained, prefill_inputs
from memos.infrastructure.host.model.load import load_model, model_path
from memos.infrastructure.host.model.measure import measure, measure_loads
from memos.infrastructure.host.model.prompt import Message, Prompt, PromptFormat
from memos.once import once

_GREEDY_BATCH = 64
_EXACT = FidelityConfig(level="L0")
_ONE = DecodeConfig(max_new_tokens=1)


@dataclass(frozen=True)
class Request:
    """What the model is asked, and what it remembers meanwhile.

    `pasts` are KV of the first of `memories`, in order; `fidelity` says how several of them are put together;
    `adapters` are folders, active together. `talk` is KV of an earlier prompt of the same conversation, used as far as
    this prompt begins alike; `keep`: the answer brings its own KV, for the next one. `released` is the host's own count
    from before the payloads were brought: what was let go of since is not kept.
    """

    messages: tuple[Message, ...]
    memories: tuple[str, ...] = ()
    pasts: tuple[Activation, ...] = ()
    adapters: Stack = ()
    fidelity: FidelityConfig = _EXACT
    talk: Activation | None = None
    keep: bool = False
    released: int | None = None


@dataclass(frozen=True)
class Nearness:
    """How near an answer over KV is to the full prompt's: over all tokens after the memories, and (kl in nats,
    same_first) of the first answer token."""

    max_abs_logit_diff: float
    top1_agreement: float
    kl: float
    same_first: bool


class Host:
    """One local model with everything memos does on it."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: ModelConfig = ModelConfig()
    ) -> None:
        if model.training:
            raise HostError("the model is in training mode, where dropout changes answers; call model.eval() first")
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self.prompts = PromptFormat(tokenizer, config)
        self.decoder = Decoder(tokenizer, model, self.prompts.stop)
        self.fingerprint = fingerprint_parts(model, tokenizer, self.prompts.identity)
        self.digest = hashlib.sha256(json.dumps(self.fingerprint, sort_keys=True).encode()).hexdigest()
        # frequencies that change with the length of a text belong to one request at a time too
        self._limit = limit_of(model.config)
        self._alone: AbstractContextManager[Any] = threading.RLock() if self._limit else nullcontext()
        self._prefixes, self._prefix_lock, self.released = PrefixTree(), threading.Lock(), 0
        self.from_path = False  # another process can load the same model

    @classmethod
    def load(cls, config: ModelConfig) -> Host:
        """Raises ModelNotFound or HostError."""
        host = cls(*load_model(config), config)
        host.from_path = True
        return host

    # -- what the model is ---------------------------------------------------------------------------------

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages the model declares to read; empty if it does not say."""
        return tuple(getattr(self.model.config, "memos_languages", ()))

    def own_questions(self) -> list[str]:
        """Questions about what the model knows by heart, where its folder has some: what adapters must not break."""
        path = Path(model_path(self.config.path)) / "memos_probes.json"
        return [str(item["question"]) for item in json.loads(path.read_text("utf-8"))] if path.is_file() else []

    def describe(self) -> dict[str, Any]:
        """For reports."""
        return {
            "path": self.config.path,
            "type": self.model.config.model_type,
            "parameters": self.model.num_parameters(),
            "device": str(self.model.device),
            "dtype": self.fingerprint["dtype"],
            "digest": self.digest[:16],
        }

    def tokens_of(self, messages: Sequence[Message]) -> int:
        """Tokens of a prompt without memories."""
        return len(self.prompts.build((), messages))

    def fits(self, request: Request, decode: DecodeConfig) -> bool:
        """True if the prompt and its answer fit the model's context."""
        try:
            self.decoder.require_room(len(self.prompts.build(request.memories, request.messages)), decode)
        except ContextOverflow:
            return False
        return True

    def tokens(self, memory: str) -> int:
        """Tokens that one memory takes in a prompt."""
        return len(self.prompts.line(memory))

    # -- answering -----------------------------------------------------------------------------------------

    def answer(self, request: Request, decode: DecodeConfig = DecodeConfig()) -> ModelAnswer:
        return drained(self.stream(request, decode))

    def extract(self, prompts: Sequence[Sequence[Message]], schema: Schema, batch: int = 8) -> list[str]:
        """For each prompt JSON of the schema, which bounds its length; "" where that and the prompt do not fit the
        model's context. Raises Unsupported for a tokenizer that cannot be held to a schema."""
        decode, out = DecodeConfig(max_new_tokens=longest(schema)), [""] * len(prompts)
        fits = [n for n, prompt in enumerate(prompts) if self.fits(Request(tuple(prompt)), decode)]
        for start in range(0, len(fits), batch):
            some = fits[start : start + batch]
            built = [self.prompts.build((), prompts[n]) for n in some]
            rows = [DecodeRow(p.prefix + p.tail, constraint=self._grammars.constraint(schema)) for p in built]
            with self._machine():
                done = self.decoder.complete(self.model, rows, decode)
            for n, completion in zip(some, done, strict=True):
                out[n] = completion.text
        return out

    @once
    def _grammars(self) -> Grammars:
        return Grammars(self.tokenizer, self.model.get_output_embeddings().weight.shape[0], self.decoder.ends)

    def answer_all(self, requests: Sequence[Request], decode: DecodeConfig = DecodeConfig()) -> list[ModelAnswer]:
        """Answers of a batch in its order, each as if asked alone, whatever adapters the requests name."""
        out: dict[int, ModelAnswer] = {}
        began = time.perf_counter()
        with self._machine():
            rows = {n: self._held(self._row(request, decode), decode) for n, request in enumerate(requests)}
            for batch in self._batches(rows, [r.adapters for r in requests], decode):
                model = self._model_of([requests[n].adapters for n in batch])
                done = self.decoder.complete(model, [rows[n] for n in batch], decode, began)
                out |= zip(batch, done, strict=True)
        return [out[n] for n in range(len(requests))]

    def _batches(
        self, rows: dict[int, DecodeRow], adapters: Sequence[Stack], decode: DecodeConfig
    ) -> Iterable[list[int]]:
        """Rows that can share a forward without changing one another's answers."""
        # beams come and go as rows of their own; experts see tokens, not rows
        apart = decode.beams > 1 or self._experts
        out: dict[object, list[int]] = {}
        for n, row in rows.items():
            key: object = adapters[n] if apart else None
            if row.renewed or self._limit:  # a mask of its own; frequencies by the longest row
                key = ("alone", n)
            elif row.past and not self.capability.batches:  # no padding between a cache and its question
                key = ("tokens", len(row.ids), key)
            out.setdefault(key, []).append(n)
        return out.values()

    def stream(self, request: Request, decode: DecodeConfig = DecodeConfig()) -> Generator[str, None, ModelAnswer]:
        """Yields the answer piece by piece; returns it whole, with what it cost."""
        began = time.perf_counter()
        with self._machine():
            released = self.released if request.released is None else request.released
            row = self._held(self._row(request, decode, alone=True), decode)
            pieces = self.decoder.stream(self._model_of([request.adapters]), [row], decode, began)
            while True:
                try:
                    yield next(pieces)[1]
                except StopIteration as ended:
                    done: ModelAnswer = ended.value[0]
                    break
            if done.kv and request.adapters:
                done = replace(done, kv=replace(done.kv, under=_names(request.adapters)))
            elif done.kv and len(request.pasts) > 1 and request.fidelity.level == "L0":
                self._keep_exact(request.pasts, done.kv, released)
            return done

    @contextmanager
    def _machine(self) -> Iterator[None]:
        """The model, to itself where requests would disturb each other. Raises NoRoom for what runs out of memory."""
        with room_for("this request"), self._alone:
            yield

    def _model_of(self, adapters: Sequence[Stack]) -> Any:
        """The model to answer rows with: the base, or the twin under the adapters of each row."""
        return self._adapters.model(adapters) if any(adapters) else self.model

    @once
    def _adapters(self) -> Adapters:
        return Adapters(self.model, self.fingerprint, self.config)

    @once
    def _experts(self) -> bool:
        config = self.model.config.get_text_config()
        return any(getattr(config, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts"))

    def _row(self, request: Request, decode: DecodeConfig, alone: bool = False) -> DecodeRow:
        """What is left to feed once the KV is there. Raises FingerprintMismatch, Unsupported, ContextOverflow.

        alone: an exact prefix that is not there yet is read with the question, and kept then; else it is made here.
        """
        active = _names(request.adapters)
        if other := [past for past in request.pasts if past.under != active]:
            raise FingerprintMismatch(
                f"KV made under {_told(other[0].under)} is wrong under {_told(active)}; encode the memories under the "
                f"same adapters, or use KV or adapters alone"
            )
        prompt = self.prompts.build(request.memories, request.messages)
        self.decoder.require_room(len(prompt), decode)  # before any cache is made longer
        keep = alone and request.keep and self._reusable(len(prompt) + decode.max_new_tokens)
        keep = keep and not any(past.trained for past in request.pasts)  # of exact KV alone more can be grown
        ids, heard = prompt.prefix + prompt.tail, 0
        if keep and request.talk and request.talk.under == active:
            heard = min(alike(ids, request.talk.ids), len(ids) - 1)  # what is asked is always read
        if request.talk and heard > sum(len(past.ids) for past in request.pasts):
            return DecodeRow(ids[heard:], request.talk.upto(heard), keep=True)
        if not request.pasts or request.fidelity.level == "L4":
            return DecodeRow(ids, keep=keep)
        self._require_kv(prompt, request)
        if active:  # what follows the first is read under the adapters: exact at any level
            rest = ids[len(request.pasts[0].ids) :]
            return DecodeRow(rest, request.pasts[0], keep=keep)
        exact = request.fidelity.level == "L0" and len(request.pasts) > 1
        held = self._exact(request.pasts, request.fidelity, alone) if exact else self._together(request)
        rest = prompt.prefix[len(held.ids) :] + prompt.tail
        return DecodeRow(rest, held, self._renewed(request, held, rest), keep=keep or (exact and alone))

    def _held(self, row: DecodeRow, decode: DecodeConfig) -> DecodeRow:
        """The row, its answer held to the schema where there is one. Raises InputError, Unsupported."""
        schema = decode.json_schema
        return row if schema is None else replace(row, constraint=self._grammars.constraint(schema))

    def _reusable(self, tokens: int) -> bool:
        """True if KV of so many tokens stays exact for a longer text."""
        return self.capability.exact and not (self.capability.limit and tokens > self.capability.limit)

    def _require_kv(self, prompt: Prompt, request: Request) -> None:
        """Raises Unsupported where the model's KV is wrong, FingerprintMismatch where it is KV of something else."""
        can, head, pasts = self.capability, self.head, request.pasts
        if len(pasts) > 1 and any(past.trained for past in pasts):
            raise Unsupported(
                "trained KV has fewer rows than tokens, so no other can be put behind it; ask with it alone"
            )
        if not can.exact:
            raise Unsupported(f"{can.why}; ask in text")
        if can.limit and len(prompt) > can.limit:
            raise Unsupported(
                f"the prompt has {len(prompt)} tokens, and KV of {self.model.config.model_type} is right {can.why}; "
                f"ask in text"
            )
        if can.renewal_limit and len(prompt) > can.renewal_limit and request.fidelity.level in ("L2", "L3"):
            raise Unsupported(
                f"{request.fidelity.level} is confirmed on {self.model.config.model_type} up to its window of "
                f"{can.renewal_limit} tokens, and the prompt has {len(prompt)}; set fidelity.level to L0, L1 or L4"
            )
        ids = tuple(i for piece in self._path(pasts) for i in piece)
        if prompt.prefix[: len(ids)] != ids or any(past.ids[: len(head)] != head for past in pasts):
            raise FingerprintMismatch(
                "the KV cache was encoded from other memories than this prompt begins with; promote them again"
            )

    def _together(self, request: Request) -> Activation:
        """One activation of all, at the level asked for (before any row is computed anew)."""
        pasts, level, can = request.pasts, request.fidelity.level, self.capability
        if len(pasts) == 1:
            return pasts[0]
        if can.motion is None or (level != "L1" and not can.renewal):
            raise Unsupported(
                f"{level} is not possible on {self.model.config.model_type}: {can.why}; set fidelity.level to L0 or L4"
            )
        return compose(pasts, len(self.head), can.motion)

    def _exact(self, pasts: Sequence[Activation], fidelity: FidelityConfig, alone: bool) -> Activation:
        """L0: what was asked together before is there; the rest is encoded after it, unless the row is alone."""
        path = self._path(pasts)
        with self._prefix_lock:
            self._prefixes.limit, released = fidelity.prefix_bytes, self.released
            there, held = self._prefixes.longest(path, pasts[0])
        if held is None:
            there, held = 1, pasts[0]
        if there < len(path) and not alone:
            held = extend(self.model, held, [i for piece in path[there:] for i in piece])
            self._keep_exact(pasts, held, released)
        return held

    def _keep_exact(self, pasts: Sequence[Activation], held: Activation, released: int) -> None:
        """For the next request that begins with these; not if a source may be gone since `released` was read."""
        path = self._path(pasts)
        lengths = list(accumulate(map(len, path)))
        with self._prefix_lock:
            if self.released == released:
                self._prefixes.keep(path, pasts[0], lengths, held.upto(lengths[-1]))

    def _renewed(self, request: Request, held: Activation, ids: Sequence[int]) -> tuple[int, ...]:
        """The rows that are computed anew with the question."""
        fidelity, head = request.fidelity, len(self.head)
        if len(request.pasts) == 1 or fidelity.level in ("L0", "L1"):
            return ()
        rows = heads_of(request.pasts, head, fidelity.first_tokens)
        if fidelity.level == "L2":
            return rows
        others = sorted(set(range(len(request.pasts[0].ids), len(held.ids))) - set(rows))
        most = round(fidelity.share * len(others))
        return tuple(sorted((*rows, *asked_for(self._reader, held, ids, others, most)))) if most else rows

    @torch.inference_mode()
    def logits(self, request: Request) -> torch.Tensor:
        """[tail tokens, vocabulary] in fp32 on the CPU: what the model predicts at each token after the memories."""
        tail = len(self.prompts.build(request.memories, request.messages).tail)
        with self._alone:
            inputs, _ = prefill_inputs(self.model, [self._row(request, _ONE)], 0)
            model = self._model_of([request.adapters])
            return model(**inputs, use_cache=True, logits_to_keep=tail).logits[0].float().cpu()

    @torch.inference_mode()
    def likelihood(self, request: Request, answer: str) -> float:
        """Nats: the logarithm of the probability with which the model gives just this answer to the request, with a
        space before it or without, whichever is likelier: tokenizers and templates differ in that."""
        return max(self._likelihood(request, self.spelled(lead + answer)) for lead in ("", " "))

    def _likelihood(self, request: Request, told: tuple[int, ...]) -> float:
        row = self._row(request, _ONE)
        self.decoder.require_room(row.past_length + len(row.ids) + len(told), _ONE)
        spent(1, len(row.ids) + len(told))
        with self._machine():
            inputs, _ = prefill_inputs(self.model, [replace(row, ids=row.ids + told[:-1])], 0)
            model = self._model_of([request.adapters])
            logits = model(**inputs, use_cache=True, logits_to_keep=len(told)).logits[0].double()
        each = torch.log_softmax(logits, -1)[torch.arange(len(told)), torch.tensor(told, device=logits.device)]
        return float(each.sum())

    @once
    def capability(self) -> Capability:
        """What this model's KV can be used for, tried once."""
        with self._alone:
            return examine(self.model)

    @once
    def kv_bytes(self) -> int:
        """Bytes of KV that a token takes in memory. Raises Unsupported."""
        with self._alone:
            return encode(self.model, [0]).bytes

    @once
    def head(self) -> tuple[int, ...]:
        """The tokens before the first memory: every KV cache begins with them."""
        return self.prompts.prefix(["x"])[: -len(self.prompts.line("x"))]

    @once
    def _reader(self) -> PreTrainedModel:
        """A twin that tells its attention; the model itself stays as it is."""
        reader = lora.twin(self.model)
        reader.set_attn_implementation("eager")
        return reader

    @property
    def machine(self) -> str:
        """The model and the machine that it runs on."""
        device = self.model.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} cores"
        return f"{self.digest} on {platform.node()}, {name}"

    def measure(self, folder: Path, codecs: Sequence[Codec]) -> dict[str, Any]:
        """What reading text and bringing KV takes here, as the scheduler's cost model wants it; files go to folder."""
        with self._alone:
            figures = measure(self.model, self.capability, self.decoder.context, lambda: self._reader)
            load = (
                {}
                if not self.capability.exact
                else {
                    f"{place} {codec}": seconds
                    for codec in codecs
                    for place, seconds in measure_loads(
                        self.model, figures["read"][-1][0], folder, partial(self.save_kv, codec=codec), self.load_kv
                    ).items()
                }
            )
        return figures | {"gpu": self.model.device.type != "cpu", "load": load}

    def ready(self, adapter: Path) -> None:
        """Have an adapter at hand for the next request that names it. Raises what a request would raise."""
        self._model_of([(adapter,)])

    @property
    def adapters(self) -> set[str]:
        """Names of the folders of the adapters in memory."""
        return self._adapters.names if "_adapters" in self.__dict__ else set()

    def exact_pieces(self, pasts: Sequence[Activation]) -> int:
        """How many of the first of them are there as one exact prefix already."""
        if not pasts:
            return 0
        with self._prefix_lock:
            return max(1, self._prefixes.longest(self._path(pasts), pasts[0])[0])

    def _path(self, pasts: Sequence[Activation]) -> tuple[tuple[int, ...], ...]:
        return (pasts[0].ids, *(past.ids[len(self.head) :] for past in pasts[1:]))

    def release(self) -> None:
        """Let go of all adapters and exact prefixes in memory."""
        if "_adapters" in self.__dict__:
            self._adapters.clear()
        with self._prefix_lock:
            self._prefixes.clear()
            self.released += 1

    # -- activation ----------------------------------------------------------------------------------------

    def encode(self, memories: Sequence[str], adapters: Stack = ()) -> Activation:
        """The KV of the memories as one exact prefix, in the order given, for requests under just these adapters.

        Raises Unsupported, ContextOverflow, and what a request under the adapters raises.
        """
        if not self.capability.exact:
            raise Unsupported(f"{self.capability.why}; its memories can be plaintext or parametric")
        ids, context = self.prompts.prefix(memories), self.decoder.context
        if context and len(ids) >= context:
            raise ContextOverflow(
                f"{len(memories)} memories of {len(ids)} tokens leave no room in the model's context of {context}; "
                f"encode fewer of them at once"
            )
        spent(1, len(ids))
        with self._alone:
            return replace(encode(self._model_of([adapters]), ids), under=_names(adapters))

    def save_kv(self, activation: Activation, path: Path, codec: Codec = "raw", after: Sequence[int] = ()) -> None:
        """Raises VaultError where it cannot be written."""
        save_activation(activation, path, self.fingerprint, codec, after)

    def load_kv(self, path: Path, after: Sequence[int] = ()) -> Activation:
        """Layers come in the background. Raises FingerprintMismatch, and CorruptBlob: of a layer, where it is used."""
        return load_activation(path, self.fingerprint, self.model.device, after)

    def nearness(self, request: Request) -> Nearness:
        """The request over its KV against the full prompt."""
        over_kv, full = self.logits(request), self.logits(replace(request, pasts=()))
        same = over_kv.argmax(-1) == full.argmax(-1)
        p, q = (torch.log_softmax(logits[-1].double(), -1) for logits in (full, over_kv))
        return Nearness(
            max_abs_logit_diff=float((over_kv - full).abs().max()),
            top1_agreement=float(same.float().mean()),
            kl=float((p.exp() * (p - q)).sum().clamp_min(0)),
            same_first=bool(same[-1]),
        )

    def parity(self, request: Request) -> tuple[float, float]:
        """(largest |logit difference|, top-1 agreement) of the request over its KV against the full prompt."""
        near = self.nearness(request)
        return near.max_abs_logit_diff, near.top1_agreement

    def divergence(self, request: Request) -> tuple[float, bool]:
        """(KL from the full prompt in nats, same top token) of the first answer token over the request's KV."""
        near = self.nearness(request)
        return near.kl, near.same_first

    # -- parametric ----------------------------------------------------------------------------------------

    def cold(self, stack: Stack) -> Adapted:
        """The model under the adapters as their files have them now. Raises what `read_adapter` raises."""
        return self._adapters.cold(stack)

    def finish_card(self, folder: Path, more: dict[str, Any]) -> None:
        """Add to an adapter's card."""
        lora.write_card(folder, lora.read_card(folder, self.fingerprint) | more)

    def ids_of(self, question: str, memories: Sequence[str] = ()) -> tuple[int, ...]:
        """The prompt of a question."""
        prompt = self.prompts.build(memories, [{"role": "user", "content": question}])
        return prompt.prefix + prompt.tail

    def text_of(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()

    def spelled(self, answer: str) -> tuple[int, ...]:
        """An answer as the model would give it, with the token that ends it."""
        return (*self.tokenizer(answer, add_special_tokens=False).input_ids, self.tokenizer.eos_token_id)

    def greedy(
        self, prompts: Sequence[tuple[int, ...]], model: Any = None, past: Activation | None = None
    ) -> list[tuple[int, ...]]:
        """Greedy answers as ids, with the token that ended them, in batches of prompts alike in length; each after
        `past`."""
        out: dict[int, tuple[int, ...]] = {}
        end = self.tokenizer.eos_token_id
        order = sorted(range(len(prompts)), key=lambda n: len(prompts[n]))
        size = _GREEDY_BATCH if past is None or self.capability.batches else 1
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            rows = [DecodeRow(prompts[n], past) for n in batch]
            done = self.decoder.complete(model or self.model, rows, DecodeConfig(max_new_tokens=24))
            out |= {n: (*c.ids, end) for n, c in zip(batch, done, strict=True)}
        return [out[n] for n in range(len(prompts))]

    @torch.inference_mode()
    def divergences(self, messages: Sequence[Message], stacks: Sequence[Stack]) -> list[float]:
        """KL(under each stack of adapters || base) of the first answer token, in nats, all in one batch.

        What an adapter has not learnt it answers as the base does, so the one that knows stands out.
        """
        prompt = self.prompts.build((), messages)
        row, out = DecodeRow(prompt.prefix + prompt.tail), list[torch.Tensor]()
        rows: list[Stack] = [(), *stacks]
        batches = [[stack] for stack in rows] if self._experts else [rows]
        with self._machine():
            for batch in batches:
                inputs, _ = prefill_inputs(self.model, [row] * len(batch), self.decoder.pad)
                spent(len(batch), len(batch) * len(row.ids))
                logits = self._model_of(batch)(**inputs, use_cache=False, logits_to_keep=1).logits[:, -1]
                out += torch.log_softmax(logits.float(), -1)
        return [float((p.exp() * (p - out[0])).sum().clamp_min(0)) for p in out[1:]]


def _names(stack: Stack) -> tuple[str, ...]:
    """What KV made under adapters remembers of them: in the vault a folder's name is its digest; elsewhere, where it
    lies."""
    return tuple(f.name if len(f.name) == 64 else str(f.absolute()) for f in stack)


def _told(names: Sequence[str]) -> str:
    return f"adapter {', '.join(name[-12:] for name in names)}" if names else "the base model"
