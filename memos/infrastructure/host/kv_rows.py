"""Builds the row that an answer is decoded from: which KV the prompt begins with, and how it is composed.

Knows the levels of fidelity and what the model's KV can be used for; knows no adapters' insides and no callers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate

from transformers import PreTrainedModel

from memos.config import FidelityConfig
from memos.errors import FingerprintMismatch, Unsupported
from memos.infrastructure.host.adapters.lora import twin
from memos.infrastructure.host.adapters.serving import label_of, names_of
from memos.infrastructure.host.kv.cache import WEIGHTED_ATTENTION, Activation, shared_length
from memos.infrastructure.host.kv.compose import PrefixTree, attended_rows, compose, extend, first_rows
from memos.infrastructure.host.model.capability import Capability
from memos.infrastructure.host.model.decode import DecodeRow
from memos.infrastructure.host.model.prompt import Prompt
from memos.infrastructure.host.request import Request
from memos.lazy import Lazy


class KVRows:
    """Makes rows, and keeps the exact prefixes that were grown for them."""

    def __init__(
        self, model: PreTrainedModel, capability: Callable[[], Capability], head: Callable[[], tuple[int, ...]]
    ) -> None:
        """head: the tokens before the first memory, with which every KV cache begins."""
        self._model, self._capability, self._head = model, capability, head
        self.reader = Lazy(self._make_reader)  # a twin of the model that returns its attention; that stays as it is
        self._prefixes, self._lock = PrefixTree(), threading.Lock()
        self.releases = 0  # how often all was let go of

    def row(self, prompt: Prompt, request: Request, keep: bool, alone: bool) -> DecodeRow:
        """What is left to feed of the request's prompt once the KV is there. Raises FingerprintMismatch, Unsupported.

        keep: the answer's KV is wanted. alone: an exact prefix that is not there yet is read with the question, and
        stored then; else it is made here.
        """
        ids, pasts, talk, fidelity = prompt.prefix + prompt.tail, request.pasts, request.talk, request.fidelity
        under = names_of(request.adapters)
        if other := [past for past in pasts if past.under != under]:
            raise FingerprintMismatch(
                f"KV made under {label_of(other[0].under)} is wrong under {label_of(under)}; encode the memories "
                f"under the same adapters, or use KV or adapters alone"
            )
        if keep and talk and talk.under == under:
            heard = min(shared_length(ids, talk.ids), len(ids) - 1)  # what is asked is always read
            if heard > sum(len(past.ids) for past in pasts):
                return DecodeRow(ids[heard:], talk.upto(heard), keep=True)
        if not pasts or fidelity.level == "L4":
            return DecodeRow(ids, keep=keep)
        if request.pictures != (seen := tuple(name for past in pasts for name in past.pictures)):
            raise FingerprintMismatch(
                f"the KV cache was read from {len(seen)} pictures that are not, as this model's processor reads them, "
                f"the {len(request.pictures)} of its memories; promote them again"
            )
        self._require_usable(prompt, pasts, fidelity)
        exact = fidelity.level == "L0"
        # what follows the first is read: under adapters, exact at any level; after a state, which cannot be cut
        if under or (exact and pasts[0].states):
            return DecodeRow(ids[len(pasts[0].ids) :], pasts[0].alone, keep=keep)
        if exact and len(pasts) > 1:
            past = self._exact(pasts, fidelity, alone)
            return DecodeRow(ids[len(past.ids) :], past, keep=keep or alone)
        past = self._composed(pasts, fidelity)
        rest = ids[len(past.ids) :]
        return DecodeRow(rest, past, self._renewed_rows(pasts, fidelity, past, rest), keep, private=len(pasts) > 1)

    def can_keep(self, tokens: int, pasts: Sequence[Activation]) -> bool:
        """True if KV of so many tokens, grown from these, stays exact for a longer text."""
        can = self._capability()
        # more can be grown of exact KV alone
        grows = can.exact and not can.states
        return grows and not (can.limit and tokens > can.limit) and not any(past.trained for past in pasts)

    def _require_usable(self, prompt: Prompt, pasts: Sequence[Activation], fidelity: FidelityConfig) -> None:
        """Raises Unsupported where the model's KV is wrong, FingerprintMismatch where it is KV of something else."""
        can, head, kind = self._capability(), self._head(), self._model.config.model_type
        apart = [past for past in pasts if past.trained and not (past.weighted and fidelity.level == "L1")]
        if len(pasts) > 1 and apart:
            raise Unsupported(
                "trained KV, and that of pictures, has not a row for each token of the prompt, so no other can be put "
                "behind it; ask with it alone, or, where it is compact, set fidelity.level to L1"
            )
        attention = self._model.config.get_text_config()._attn_implementation
        if attention != WEIGHTED_ATTENTION and any(past.weighted for past in pasts):
            raise Unsupported(
                f"compact KV needs {WEIGHTED_ATTENTION} attention, which heeds the weights of its rows, and the model "
                f"runs with {attention}; set model.attention to {WEIGHTED_ATTENTION}, or ask in text"
            )
        if not can.exact:
            raise Unsupported(f"{can.why}; ask in text")
        if can.limit and len(prompt) > can.limit:
            raise Unsupported(f"the prompt has {len(prompt)} tokens, and KV of {kind} is right {can.why}; ask in text")
        moved = len(pasts) > 1 and fidelity.level != "L0"
        if moved and can.motion_limit and len(prompt) > can.motion_limit:
            raise Unsupported(
                f"KV of {kind} can be moved within {can.motion_limit} tokens, and the prompt has {len(prompt)}; set "
                f"fidelity.level to L0 or L4"
            )
        ids = tuple(i for piece in self._path(pasts) for i in piece)
        if prompt.prefix[: len(ids)] != ids or any(past.ids[: len(head)] != head for past in pasts):
            raise FingerprintMismatch(
                "the KV cache was encoded from other memories than this prompt begins with; promote them again"
            )

    def _composed(self, pasts: Sequence[Activation], fidelity: FidelityConfig) -> Activation:
        """One activation of all, at the level asked for (before any row is computed anew)."""
        can = self._capability()
        if len(pasts) == 1:
            return pasts[0].alone
        if can.motion is None or (fidelity.level != "L1" and not can.renewal):
            raise Unsupported(
                f"{fidelity.level} is not possible on {self._model.config.model_type}: {can.why}; set fidelity.level "
                f"to L0 or L4"
            )
        return compose(pasts, len(self._head()), can.motion)

    def _exact(self, pasts: Sequence[Activation], fidelity: FidelityConfig, alone: bool) -> Activation:
        """L0: what was asked together before is there; the rest is encoded after it, unless the row is alone."""
        path = self._path(pasts)
        with self._lock:
            self._prefixes.limit, releases = fidelity.prefix_bytes, self.releases
            there, found = self._prefixes.longest(path, pasts[0])
        prefix = found or pasts[0].alone
        there = max(1, there)
        if there < len(path) and not alone:
            prefix = extend(self._model, prefix, [i for piece in path[there:] for i in piece])
            self.store_exact(pasts, prefix, releases)
        return prefix

    def store_exact(self, pasts: Sequence[Activation], prefix: Activation, releases: int) -> None:
        """For the next request that begins with these; not if a source may be gone since `releases` was read."""
        path = self._path(pasts)
        lengths = list(accumulate(map(len, path)))
        with self._lock:
            if self.releases == releases:
                self._prefixes.keep(path, pasts[0], lengths, prefix.upto(lengths[-1]))

    def exact_pieces(self, pasts: Sequence[Activation]) -> int:
        """How many of the first of them are there as one exact prefix already."""
        if not pasts:
            return 0
        with self._lock:
            return max(1, self._prefixes.longest(self._path(pasts), pasts[0])[0])

    def release(self) -> None:
        """Let go of all exact prefixes."""
        with self._lock:
            self._prefixes.clear()
            self.releases += 1

    def _path(self, pasts: Sequence[Activation]) -> tuple[tuple[int, ...], ...]:
        """The ids that each piece adds to one prefix of all."""
        return (pasts[0].ids, *(past.ids[len(self._head()) :] for past in pasts[1:]))

    def _renewed_rows(
        self, pasts: Sequence[Activation], fidelity: FidelityConfig, past: Activation, ids: Sequence[int]
    ) -> tuple[int, ...]:
        """The rows of a composition that are computed anew with the question `ids`."""
        if len(pasts) == 1 or fidelity.level in ("L0", "L1"):
            return ()
        rows = first_rows(pasts, len(self._head()), fidelity.first_tokens)
        if fidelity.level == "L2":
            return rows
        others = sorted(set(range(len(pasts[0].ids), len(past.ids))) - set(rows))
        most = round(fidelity.share * len(others))
        return tuple(sorted((*rows, *attended_rows(self.reader(), past, ids, others, most)))) if most else rows

    def _make_reader(self) -> PreTrainedModel:
        reader = twin(self._model)
        reader.set_attn_implementation("eager")
        return reader
