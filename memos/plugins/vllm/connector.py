"""The KV connector that vLLM loads by `kv_connector_module_path`: rows of memories come from memos' exchange.

Runs in vLLM's processes, on its interface `KVConnectorBase_V1`; all that can be wrong is decided in loads.py. Rows are
written by the attention backend's own `do_kv_cache_update`, so that no layout of pages is known here. Nothing is saved.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec

from memos.plugins.vllm.exchange import Exchange
from memos.plugins.vllm.identity import identity_of
from memos.plugins.vllm.loads import Asked, Load, Loads, PagedLayout, Promises
from memos.plugins.vllm.options import default_exchange

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

log = logging.getLogger("memos.vllm")


@dataclass(frozen=True)
class MemoryLoads(KVConnectorMetadata):
    """From the scheduler to the worker: what this step loads."""

    loads: tuple[Load, ...]


class MemosConnector(KVConnectorBase_V1):
    """vLLM makes one for its scheduler and one for each worker."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        folder = self._kv_transfer_config.get_from_extra_config("exchange", None)
        exchange = Exchange(Path(folder) if folder else default_exchange())
        model = vllm_config.model_config
        identity = identity_of(model.model, str(model.dtype).removeprefix("torch."), bool(model.trust_remote_code))
        layout = layout_of(vllm_config, kv_cache_config)
        self._promises = Promises(exchange, identity, layout) if layout else None
        self._loads = (
            Loads(exchange, identity, layout, torch.device(vllm_config.device_config.device)) if layout else None
        )
        self._context: ForwardContext | None = None
        if layout and role is KVConnectorRole.SCHEDULER:
            exchange.announce(identity)

    # the scheduler's side

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int, bool]:
        name = _named(request)
        if name is None or self._promises is None:
            return 0, False
        asked = Asked(name, request.cache_salt, request.prompt_token_ids or ())
        return max(0, self._promises.rows(request.request_id, asked) - num_computed_tokens), False

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        if num_external_tokens and self._promises:
            ids = blocks.get_block_ids()[0]
            self._promises.allocated(request.request_id, _named(request), num_external_tokens, ids)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> MemoryLoads:
        return MemoryLoads(self._promises.take() if self._promises else ())

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        if self._promises:
            self._promises.ended(request.request_id)
        return False, None

    # the worker's side

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        meta = self._get_connector_metadata()
        assert isinstance(meta, MemoryLoads)
        self._context = forward_context
        if self._loads:
            self._loads.begin(meta.loads)

    def wait_for_layer_load(self, layer_name: str) -> None:
        if self._loads and self._context:
            layer: Any = self._context.no_compile_layers[layer_name]

            def write(n: int, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
                layer.impl.do_kv_cache_update(layer, keys, values, layer.kv_cache, slots)

            self._loads.layer(extract_layer_index(layer_name), write)

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._loads.failed() if self._loads else set()

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """What vLLM computes stays in vLLM."""

    def wait_for_save(self) -> None:
        """The end of a step: nothing is saved."""
        if self._loads:
            self._loads.end()

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        return True  # layers are waited for within the forward


def _named(request: Request) -> object:
    """The file that a request names, if it names one."""
    return (request.kv_transfer_params or {}).get("memos_kv")


def layout_of(config: VllmConfig, cache: KVCacheConfig) -> PagedLayout | None:
    """How rows lie; None, with a line in the log, where they are not keys and values of every token and head."""
    groups, parallel = cache.kv_cache_groups, config.parallel_config
    spec = groups[0].kv_cache_spec if groups else None
    if len(groups) != 1 or not isinstance(spec, FullAttentionSpec) or isinstance(spec, MLAAttentionSpec):
        kinds = ", ".join(type(group.kv_cache_spec).__name__ for group in groups)
        why = f"its cache has groups of {kinds or 'nothing'}, and not full attention alone"
    elif parallel.world_size != 1:
        why = f"its heads are spread over {parallel.world_size} processes"
    else:
        return PagedLayout(len(groups[0].layer_names), spec.num_kv_heads, spec.head_size, spec.block_size)
    log.warning("memories reach %s as text: %s", config.model_config.model, why)
    return None
