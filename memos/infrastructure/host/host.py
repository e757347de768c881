"""The local model as a machine for memories: answers, encodes and serves adapters; knows no callers or rights.

`Host` is the facade over the parts in model/, kv/ and adapters/, and the class that the rest of memos sees. It never
changes the model it is given: adapters live in a twin that shares the weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from memos.config import DecodeConfig, ModelConfig
from memos.cost import spent
from memos.errors import ContextOverflow, HostError, Unsupported
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.adapters.serving import Adapters, Stack, names_of
from memos.infrastructure.host.fingerprint import fingerprint_parts
from memos.infrastructure.host.forward import CausalLM, forward
from memos.infrastructure.host.kv.cache import Activation, encode, room_for
from memos.infrastructure.host.kv.files import load_activation, save_activation
from memos.infrastructure.host.kv_rows import KVRows
from memos.infrastructure.host.model.capability import Capability, examine, has_experts, limit_of
from memos.infrastructure.host.model.constrained import Grammars, Schema, max_answer_tokens
from memos.infrastructure.host.model.continuous import Batch, ContinuousBatch, Pieces
from memos.infrastructure.host.model.decode import Decoder, DecodeRow, ModelAnswer, batches_of, drained, prefill_inputs
from memos.infrastructure.host.model.load import load_model, model_path
from memos.infrastructure.host.model.measure import measure, measure_loads
from memos.infrastructure.host.model.prompt import Message, PromptFormat
from memos.infrastructure.host.request import Nearness, Request
from memos.infrastructure.host.threads import openmp_threads
from memos.lazy import Lazy

GREEDY_BATCH_ROWS = 64
_ONE_TOKEN = DecodeConfig(max_new_tokens=1)


class Host:
    """One local model with everything memos does on it."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        config: ModelConfig = ModelConfig(),
        batch: Callable[[Host], Batch] | None = None,
    ) -> None:
        """batch: what decodes the answers, where that is not this process."""
        if model.training:
            raise HostError("the model is in training mode, where dropout changes answers; call model.eval() first")
        if any(parameter.is_meta for parameter in model.parameters()):
            raise HostError(
                "the model's weights are not on one device (device_map); load one that fits, or a smaller dtype"
            )
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self.prompts = PromptFormat(tokenizer, config)
        limit = limit_of(model.config)
        self.decoder = Decoder(tokenizer, model, self.prompts.stop, limit)
        self.fingerprint = fingerprint_parts(model, tokenizer, self.prompts.identity)
        self.digest = hashlib.sha256(json.dumps(self.fingerprint, sort_keys=True).encode()).hexdigest()
        # frequencies that change with the length of a text belong to one request at a time too
        self._exclusive: AbstractContextManager[object] = threading.RLock() if limit else nullcontext()
        self._capability = Lazy(self._examined)
        self._kv_bytes = Lazy(self._measured_kv_bytes)
        self._head = Lazy(lambda: self.prompts.prefix(["x"])[: -len(self.prompts.line("x"))])
        self._grammars = Lazy(self._make_grammars)
        self._adapters = Lazy(lambda: Adapters(model, self.fingerprint, config))
        self._has_experts = has_experts(model)
        self._kv_rows = KVRows(model, self._capability, self._head)
        self._one_at_a_time = threading.RLock()  # answers that cannot share forwards
        ours = ContinuousBatch(model, self.decoder, self._under, config.requests_at_once)
        self._coming = ours.coming
        self._batch: Batch = batch(self) if batch else ours
        self.from_path = False  # another process can load the same model

    @classmethod
    def load(cls, config: ModelConfig, batch: Callable[[Host], Batch] | None = None) -> Host:
        """Raises ModelNotFound or HostError."""
        host = cls(*load_model(config), config, batch)
        host.from_path = True
        return host

    @property
    def attention(self) -> str:
        """The implementation of attention that the model was loaded with."""
        return str(self.model.config.get_text_config()._attn_implementation)

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages the model declares to read; empty if it does not say."""
        return tuple(getattr(self.model.config, "memos_languages", ()))

    @property
    def in_closed_world(self) -> bool:
        """True of the packaged model, and of others that scripts/train_small_model.py makes: they read sentences of a
        phrasebook, and guess at any other text."""
        return bool(self.languages)

    def own_questions(self) -> list[str]:
        """Questions about what the model knows by heart, where its folder has some: what adapters must not break."""
        path = Path(model_path(self.config.path)) / "memos_probes.json"
        return [str(item["question"]) for item in json.loads(path.read_text("utf-8"))] if path.is_file() else []

    def describe(self) -> dict[str, object]:
        """The model and where it runs, for reports."""
        return {
            "path": self.config.path,
            "type": self.model.config.model_type,
            "parameters": self.model.num_parameters(),
            "device": str(self.model.device),
            "attention": self.attention,
            "dtype": self.fingerprint["dtype"],
            "digest": self.digest[:16],
        }

    def tokens_of(self, messages: Sequence[Message]) -> int:
        """Tokens of a prompt without memories."""
        return len(self.prompts.build((), messages))

    @property
    def context(self) -> int | None:
        """Tokens that the model reads at most; None where it has no limit."""
        return self.decoder.context

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

    def counts(self, memories: Sequence[str]) -> list[int]:
        """Tokens that each takes in a prompt."""
        return [len(line) for line in self.prompts.lines(memories)]

    def answer(self, request: Request, decode: DecodeConfig = DecodeConfig()) -> ModelAnswer:
        return drained(self.stream(request, decode, listened=False))

    def extract(self, prompts: Sequence[Sequence[Message]], schema: Schema, batch: int = 8) -> list[str]:
        """For each prompt JSON of the schema, which bounds its length; "" where that and the prompt do not fit the
        model's context. Raises Unsupported for a tokenizer that cannot be held to a schema."""
        decode, out = DecodeConfig(max_new_tokens=max_answer_tokens(schema)), [""] * len(prompts)
        fits = [n for n, prompt in enumerate(prompts) if self.fits(Request(tuple(prompt)), decode)]
        for start in range(0, len(fits), batch):
            some = fits[start : start + batch]
            built = [self.prompts.build((), prompts[n]) for n in some]
            rows = [DecodeRow(p.prefix + p.tail, constraint=self._grammars().constraint(schema)) for p in built]
            for n, completion in zip(some, self.complete(rows, decode), strict=True):
                out[n] = completion.text
        return out

    def complete(
        self,
        rows: Sequence[DecodeRow],
        decode: DecodeConfig,
        stacks: Sequence[Stack] = (),
        model: CausalLM | None = None,
    ) -> list[ModelAnswer]:
        """Answers of rows that may differ in length, KV and adapters, each as if it were decoded alone: those that can
        share a forward do. model: to answer with instead."""
        began, out = time.perf_counter(), dict[int, ModelAnswer]()
        # beams come and go as rows of their own; experts see tokens, not rows
        kinds = stacks if decode.beams > 1 or self._has_experts else ()
        padded = len({(len(row.ids), row.past_length) for row in rows}) < 2 or self.capability.batches
        for batch in batches_of(rows, self.decoder, decode.max_new_tokens, padded, kinds):
            with self._machine():
                under = model or self.model_under([stacks[n] if stacks else () for n in batch])
                out |= zip(batch, self.decoder.complete(under, [rows[n] for n in batch], decode, began), strict=True)
        return [out[n] for n in range(len(rows))]

    def _make_grammars(self) -> Grammars:
        head = self.model.get_output_embeddings()
        assert isinstance(head.weight, torch.Tensor)  # [vocabulary, width]
        return Grammars(self.tokenizer, head.weight.shape[0], self.decoder.ends)

    def stream(self, request: Request, decode: DecodeConfig = DecodeConfig(), listened: bool = True) -> Pieces:
        """Yields the answer piece by piece, if it is listened to; returns it whole, with what it cost.

        Requests of several threads are answered together (`ContinuousBatch`), where the model can do that.
        """
        began = time.perf_counter()
        with self._machine():
            released = self.released if request.released is None else request.released
            self._coming.add(threading.get_ident())
            try:
                row = self.row(request, decode, alone=True)
                if self._batch.takes(row, decode) and not (request.adapters and self._has_experts):
                    pieces = self._batch.stream(row, decode, request.adapters, began, listened)
                else:
                    pieces = self._alone(row, decode, request.adapters, began)
                del row  # what it begins with may be given up
            finally:
                self._coming.discard(threading.get_ident())
            done = yield from pieces
            if done.kv and request.adapters:
                done = replace(done, kv=replace(done.kv, under=names_of(request.adapters)))
            elif done.kv and len(request.pasts) > 1 and request.fidelity.level == "L0":
                self._kv_rows.store_exact(request.pasts, done.kv, released)
            return done

    @property
    def together(self) -> bool:
        """Whether several requests share forwards; else they are answered one after the other."""
        return self._batch.together

    def _alone(self, row: DecodeRow, decode: DecodeConfig, stack: Stack, began: float) -> Pieces:
        """One row after the other."""
        with self._one_at_a_time:
            (done,) = yield from self.decoder.stream(self.model_under([stack]), [row], decode, began)
            return done

    def _under(self, stacks: Sequence[Stack], tokens: Sequence[int]) -> CausalLM:
        """The model to read so many tokens of each of several texts with, under the adapters of each."""
        return self._adapters().packed(stacks, tokens) if any(stacks) else self.model

    @contextmanager
    def _machine(self) -> Iterator[None]:
        """The model, to itself where requests would disturb each other. Raises NoRoom for what runs out of memory."""
        with openmp_threads(), room_for("this request"), self._exclusive:
            yield

    def model_under(self, stacks: Sequence[Stack]) -> CausalLM:
        """The model to answer rows with: the base, or the twin under the adapters of each row."""
        return self._adapters().model(stacks) if any(stacks) else self.model

    def row(self, request: Request, decode: DecodeConfig, alone: bool = False) -> DecodeRow:
        """What is left to feed once the KV is there. Raises FingerprintMismatch, Unsupported, ContextOverflow,
        InputError.

        alone: the row is decoded in a batch of its own; see `KVRows.row`.
        """
        prompt = self.prompts.build(request.memories, request.messages)
        self.decoder.require_room(len(prompt), decode)  # before any cache is made longer
        if request.pasts or request.keep:
            most = len(prompt) + decode.max_new_tokens
            keep = alone and request.keep and self._kv_rows.can_keep(most, request.pasts)
            row = self._kv_rows.row(prompt, request, keep, alone)
        else:
            row = DecodeRow(prompt.prefix + prompt.tail)
        schema = decode.json_schema
        return row if schema is None else replace(row, constraint=self._grammars().constraint(schema))

    @torch.inference_mode()
    def logits(self, request: Request) -> torch.Tensor:
        """[tail tokens, vocabulary] in fp32 on the CPU: what the model predicts at each token after the memories."""
        tail = len(self.prompts.build(request.memories, request.messages).tail)
        with self._machine():
            inputs, _ = prefill_inputs(self.model, [self.row(request, _ONE_TOKEN)], 0)
            return forward(self.model_under([request.adapters]), inputs, tail).logits[0, -tail:].float().cpu()

    @torch.inference_mode()
    def likelihood(self, request: Request, answer: str) -> float:
        """Nats: the logarithm of the probability with which the model gives just this answer to the request, with a
        space before it or without, whichever is likelier: tokenizers and templates differ in that."""
        return max(self._likelihood(request, self.spelled(lead + answer)) for lead in ("", " "))

    def _likelihood(self, request: Request, answer: tuple[int, ...]) -> float:
        row = self.row(request, _ONE_TOKEN)
        if row.past and self.decoder.crosses(row, len(answer)):
            row = self.row(replace(request, pasts=()), _ONE_TOKEN)
        self.decoder.require_room(row.past_length + len(row.ids) + len(answer), _ONE_TOKEN)
        spent(1, len(row.ids) + len(answer))
        with self._machine():
            inputs, _ = prefill_inputs(self.model, [replace(row, ids=row.ids + answer[:-1])], 0)
            model = self.model_under([request.adapters])
            logits = forward(model, inputs, len(answer)).logits[0, -len(answer) :].double()
        each = torch.log_softmax(logits, -1)[torch.arange(len(answer)), torch.tensor(answer, device=logits.device)]
        return float(each.sum())

    # -- what its KV is good for -----------------------------------------------------------------------------

    @property
    def capability(self) -> Capability:
        """What this model's KV can be used for, tried once."""
        return self._capability()

    def _examined(self) -> Capability:
        with self._machine():
            return examine(self.model)

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV that a token takes in memory. Raises Unsupported."""
        return self._kv_bytes()

    def _measured_kv_bytes(self) -> int:
        with self._machine():
            return encode(self.model, [0]).bytes

    @property
    def head(self) -> tuple[int, ...]:
        """The tokens before the first memory: every KV cache begins with them."""
        return self._head()

    @property
    def machine(self) -> str:
        """The model and the machine that it runs on."""
        device = self.model.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} cores"
        return f"{self.digest} on {platform.node()}, {name}"

    def measure(self, folder: Path, codecs: Sequence[str]) -> dict[str, object]:
        """What reading text and bringing KV takes here, as the scheduler's cost model wants it; files go to folder."""
        load: dict[str, tuple[float, float]] = {}  # "place codec" -> (seconds, seconds a token)
        with self._machine():
            read, figures = measure(self.model, self.capability, self.decoder.context, self._kv_rows.reader)
            for codec in codecs if self.capability.exact else ():
                save = partial(self.save_kv, codec=codec)
                took = measure_loads(self.model, read[-1][0], folder, save, self.load_kv)
                load |= {f"{place} {codec}": seconds for place, seconds in took.items()}
        return {"read": read, **figures, "gpu": self.model.device.type != "cpu", "load": load}

    @property
    def adapters(self) -> set[str]:
        """Names of the folders of the adapters in memory."""
        adapters = self._adapters.if_made
        return self._batch.adapters | (adapters.names if adapters else set())

    def exact_pieces(self, pasts: Sequence[Activation]) -> int:
        """How many of the first of them are there as one exact prefix already."""
        return self._kv_rows.exact_pieces(pasts)

    @property
    def released(self) -> int:
        """How often `release` was called."""
        return self._kv_rows.releases

    def release(self) -> None:
        """Let go of all adapters and exact prefixes in memory."""
        if adapters := self._adapters.if_made:
            adapters.clear()
        self._batch.release()
        self._kv_rows.release()

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
        with self._machine():
            return replace(encode(self.model_under([adapters]), ids), under=names_of(adapters))

    def save_kv(self, activation: Activation, path: Path, codec: str = "raw", after: Sequence[int] = ()) -> None:
        """Write KV in a codec of `memos.codecs`. Raises VaultError where it cannot be written, and InputError."""
        save_activation(activation, path, self.fingerprint, codec, after)

    def load_kv(self, path: Path, after: Sequence[int] = ()) -> Activation:
        """Layers come in the background. Raises FingerprintMismatch, and CorruptBlob: of a layer, where it is used."""
        return load_activation(path, self.fingerprint, self.model.device, after)

    def nearness(self, request: Request) -> Nearness:
        """The request over its KV against the full prompt."""
        return Nearness.of(self.logits(request), self.logits(replace(request, pasts=())))

    def cold(self, stack: Stack) -> CausalLM:
        """The model under the adapters as their files have them now. Raises what `read_adapter` raises."""
        return self._adapters().cold(stack)

    def finish_card(self, folder: Path, more: dict[str, object]) -> None:
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
        self, prompts: Sequence[tuple[int, ...]], model: CausalLM | None = None, past: Activation | None = None
    ) -> list[tuple[int, ...]]:
        """Greedy answers as ids, with the token that ended them, in batches of prompts alike in length; each after
        `past`."""
        out: dict[int, tuple[int, ...]] = {}
        end = self.tokenizer.eos_token_id
        order = sorted(range(len(prompts)), key=lambda n: len(prompts[n]))
        for start in range(0, len(order), GREEDY_BATCH_ROWS):
            batch = order[start : start + GREEDY_BATCH_ROWS]
            rows = [DecodeRow(prompts[n], past) for n in batch]
            done = self.complete(rows, DecodeConfig(max_new_tokens=24), model=model)
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
        batches = [[stack] for stack in rows] if self._has_experts else [rows]
        with self._machine():
            for batch in batches:
                inputs, _ = prefill_inputs(self.model, [row] * len(batch), self.decoder.pad)
                spent(len(batch), len(batch) * len(row.ids))
                logits = self.model_under(batch)(**inputs, use_cache=False, logits_to_keep=1).logits[:, -1]
                out += torch.log_softmax(logits.float(), -1)
        return [float((p.exp() * (p - out[0])).sum().clamp_min(0)) for p in out[1:]]
