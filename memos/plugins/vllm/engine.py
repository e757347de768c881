"""What `model.engine: vllm` names: a host of memos whose answers vLLM decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memos.config import ModelConfig
from memos.infrastructure.host.engines import loading
from memos.plugins.vllm.options import VllmOptions

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host
    from memos.plugins.vllm.batch import VllmBatch


def vllm(config: ModelConfig) -> Host:
    """The host reads, encodes, composes and trains with a model of its own. Raises ModelNotFound, HostError,
    ConfigError, InputError."""
    options = VllmOptions.of(config.engine_options)
    with loading():
        from memos.infrastructure.host.host import Host

        return Host.load(config, lambda host: connected(host, options))


def connected(host: Host, options: VllmOptions) -> VllmBatch:
    """The batch of a host, on the server of its options, which is started where they name none."""
    from memos.plugins.vllm.batch import VllmBatch
    from memos.plugins.vllm.exchange import Exchange
    from memos.plugins.vllm.server import Server

    exchange = Exchange(options.exchange, options.exchange_bytes)
    server: Server
    if options.endpoint:
        from memos.plugins.vllm.endpoint import Endpoint

        server = Endpoint(options.endpoint, options.key_from, options.timeout_s, host.tokenizer)
    else:
        from memos.plugins.vllm.embedded import EmbeddedVllm

        exchange.withdraw()
        server = EmbeddedVllm(host.config, options, host.fingerprint["dtype"], host.context)
    return VllmBatch(host, server, exchange, options)
