"""A server without vLLM: the rest of its work is done by the small model, over pages that the loads are written to."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import torch

from memos.config import ModelConfig
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.model.decode import DecodeRow
from memos.plugins.vllm.batch import VllmBatch
from memos.plugins.vllm.exchange import Exchange, model_parts
from memos.plugins.vllm.loads import Asked, Loads, PagedLayout, Promises
from memos.plugins.vllm.options import VllmOptions
from memos.plugins.vllm.server import Decoded, Decoding

BLOCK, BLOCKS = 8, 64


class Pages:
    """Keys and values as a paged cache has them: [layers, 2, blocks * block_tokens, kv_heads, head_dim]."""

    def __init__(self, layout: PagedLayout) -> None:
        self.content = torch.full((layout.layers, 2, BLOCKS * BLOCK, layout.heads, layout.width), torch.nan)

    def write(self, n: int, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        self.content[n, 0, slots], self.content[n, 1, slots] = keys, values

    def read(self, slots: torch.Tensor, ids: tuple[int, ...]) -> Activation:
        layers = [(k[slots].transpose(0, 1)[None], v[slots].transpose(0, 1)[None]) for k, v in self.content]
        return Activation(ids, tuple(layers))


class PagedServer:
    """Decodes as vLLM would: what is promised is loaded, the rest is read."""

    def __init__(self, host: Host, exchange: Exchange) -> None:
        self.host, self.exchange, self.layout = host, exchange, layout_of(host)
        identity = model_parts(host.fingerprint)
        self.promises = Promises(exchange, identity, self.layout)
        self.loads = Loads(exchange, identity, self.layout, torch.device("cpu"))
        self.adapters, self.forgotten, self.asked = dict[str, Path](), 0, list[Decoding]()

    def decode(self, asked: Decoding) -> Generator[Decoded, None, None]:
        self.asked.append(asked)
        past, pages, name = None, Pages(self.layout), f"request {len(self.asked)}"
        rows = self.promises.rows(name, Asked(asked.kv, asked.kv, asked.ids)) if asked.kv else 0
        if rows:
            blocks = list(range(BLOCKS))[::-1]  # not in order
            self.promises.allocated(name, asked.kv, rows, blocks)
            (load,) = self.promises.take()
            self.loads.begin([load])
            for n in range(self.layout.layers):
                self.loads.layer(n, pages.write)
            self.loads.end()
            if self.loads.failed():
                rows = 0
            else:
                past = pages.read(load.slots(BLOCK), asked.ids[:rows])
        self.promises.ended(name)
        stack = (self.adapters[asked.adapter],) if asked.adapter else ()
        row = DecodeRow(asked.ids[rows:], past)
        (done,) = self.host.complete([row], asked.decode, [stack])
        for token in done.ids:
            yield Decoded((token,))
        yield Decoded((next(iter(asked.ends)),))
        yield Decoded((), rows)  # what was cached is said at the end

    def load_adapter(self, name: str, folder: Path) -> None:
        self.adapters[name] = folder

    def drop_adapter(self, name: str) -> None:
        del self.adapters[name]

    def forget(self) -> None:
        self.forgotten += 1


def layout_of(host: Host) -> PagedLayout:
    config = host.model.config
    return PagedLayout(config.num_hidden_layers, config.num_key_value_heads, config.head_dim, BLOCK)


def paged_host(folder: Path) -> tuple[Host, PagedServer]:
    """A host whose answers such a server decodes."""
    plain, exchange = Host.load(ModelConfig()), Exchange(folder, 1 << 30)
    exchange.announce(model_parts(plain.fingerprint))
    server = PagedServer(plain, exchange)
    options = VllmOptions(exchange=folder)
    return Host.load(ModelConfig(), lambda host: VllmBatch(host, server, exchange, options)), server
