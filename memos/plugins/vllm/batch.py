"""Answers of a host whose tokens vLLM decodes: KV goes through the exchange, adapters by name, text as ids.

Composition and repair stay the host's: rows that a level of fidelity computes anew are computed here, and vLLM is given
the result. What vLLM cannot do (beams, schemas, states, trained rows) is not taken, and the host decodes it itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from memos.config import DecodeConfig
from memos.cost import spent
from memos.errors import FingerprintMismatch
from memos.infrastructure.host.adapters.serving import Stack
from memos.infrastructure.host.forward import forward
from memos.infrastructure.host.kv.cache import Activation, cached_layers, room_for
from memos.infrastructure.host.model.decode import DecodeRow, Growing, ModelAnswer, prefill_inputs
from memos.plugins.packs.adapter_export import export_adapter
from memos.plugins.vllm.adapters import ServedAdapters
from memos.plugins.vllm.exchange import Exchange, model_parts
from memos.plugins.vllm.options import VllmOptions
from memos.plugins.vllm.server import Decoding, Server

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host

log = logging.getLogger("memos")


class VllmBatch:
    """A `Batch` of the host."""

    together = True

    def __init__(self, host: Host, server: Server, exchange: Exchange, options: VllmOptions) -> None:
        """Raises FingerprintMismatch where vLLM runs another model than the host."""
        self._model, self._decoder, self._fingerprint = host.model, host.decoder, host.fingerprint
        self._server, self._exchange = server, exchange
        export, most = partial(export_adapter, host), host.config.adapters_in_memory
        self._adapters = ServedAdapters(server, export, exchange.folder / "adapters", most, options.adapter_rank)
        self._renewing = threading.Lock()  # one forward at a time: each uses all cores
        self._moves_kv = options.exchange_bytes > 0 and self._is_connected()

    def _is_connected(self) -> bool:
        """Whether vLLM reads KV from the exchange. Raises FingerprintMismatch."""
        theirs = self._exchange.identity()
        if theirs is None:
            log.warning(
                "vLLM has not announced itself in %s, so memories reach it as text; start it with the connector of "
                "docs/how-to/vllm.md and this folder",
                self._exchange.folder,
            )
            return False
        ours = model_parts(self._fingerprint)
        if differing := sorted(part for part in ours if ours[part] != theirs.get(part)):
            raise FingerprintMismatch(
                f"vLLM runs another model than model.path names: {', '.join(differing)} differ; start it with the same "
                f"model, revision and dtype ({ours['dtype']}), or set model.path to its model"
            )
        return True

    @property
    def adapters(self) -> set[str]:
        return self._adapters.folders

    def takes(self, row: DecodeRow, config: DecodeConfig) -> bool:
        whole = row.past is None or not (row.past.states or row.past.trained)
        return config.beams == 1 and row.constraint is None and whole

    def release(self) -> None:
        """Nothing of what was made of payloads stays in vLLM or on disk."""
        self._adapters.clear()
        self._exchange.clear()
        self._server.forget()

    def stream(
        self, row: DecodeRow, config: DecodeConfig, stack: Stack, began: float, listened: bool
    ) -> Generator[str, None, ModelAnswer]:
        self._decoder.require_room(row.past_length + len(row.ids), config)
        ids = (*(row.past.ids if row.past else ()), *row.ids)
        kv, adapter = self._exchanged(row), self._adapters.name(stack)
        grown, stops = Growing(torch.Generator()), self._decoder.stops(config)
        first, cached = 0.0, 0
        try:
            with closing(self._server.decode(Decoding(ids, config, self._decoder.ends, kv, adapter))) as pieces:
                for piece in pieces:
                    first, cached = first or time.perf_counter() - began, max(cached, piece.cached)
                    for token in piece.ids:
                        grown.take(token, row, self._decoder.ends, config.max_new_tokens)
                    ended = grown.done  # vLLM ends here too; a server says at its end what was cached
                    if (listened or stops) and (new := grown.advance(self._decoder.text(grown.ids), stops)):
                        yield new
                    if grown.done and not ended:
                        break
        finally:
            computed = len(ids) - cached + len(row.renewed)
            spent(1, computed + len(grown.ids))
        answer = self._decoder.answer(row, grown, config, first, time.perf_counter() - began)
        # as it went, not as it was meant: what vLLM refuses to load it computes
        return replace(answer, prompt_tokens=computed, past_tokens=len(ids) - computed)

    def _exchanged(self, row: DecodeRow) -> str | None:
        """The file that has the KV of a row; None where it has none. Raises VaultError, CorruptBlob, NoRoom."""
        if row.past is None or not self._moves_kv:
            return None
        return self._exchange.put(self._renewed(row) if row.renewed else row.past, self._fingerprint)

    @torch.inference_mode()
    def _renewed(self, row: DecodeRow) -> Activation:
        """The KV of a row, its renewed rows computed."""
        assert row.past
        with room_for("this request"), self._renewing:
            inputs, _ = prefill_inputs(self._model, [replace(row, ids=())], 0)
            return replace(row.past, layers=cached_layers(forward(self._model, inputs, 1).past_key_values))
