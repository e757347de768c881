"""Which KV goes into which rows of vLLM's paged cache, and whether it may; knows files and rows, not vLLM.

`Promises` is the scheduler's side: what it reports for a request is what was found to fit. `Loads` is the worker's: it
brings layers and writes them; what does not come is named by its blocks, which vLLM then computes from the prompt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from memos.errors import CorruptBlob, FingerprintMismatch, MemosError
from memos.infrastructure.host.kv.cache import Activation
from memos.plugins.vllm.exchange import Exchange, begins_with

log = logging.getLogger("memos.vllm")
# number of the layer, keys and values [rows, kv_heads, head_dim], slots [rows]: writes them into the paged cache
Write = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], None]


@dataclass(frozen=True)
class PagedLayout:
    """What the paged cache keeps of a token, and how many tokens a block has."""

    layers: int
    heads: int
    width: int
    block_tokens: int


@dataclass(frozen=True)
class Load:
    """The rows from `first` up to `end` of a file, for a request with these blocks."""

    name: str
    first: int
    end: int
    blocks: tuple[int, ...]

    def slots(self, block_tokens: int) -> torch.Tensor:
        """Where the rows lie: [rows], int64."""
        rows = torch.arange(self.first, self.end)
        return torch.tensor(self.blocks)[rows // block_tokens] * block_tokens + rows % block_tokens

    def written(self, block_tokens: int) -> set[int]:
        """The blocks that rows go to."""
        return set(self.blocks[self.first // block_tokens : -(-self.end // block_tokens)])


@dataclass(frozen=True)
class Asked:
    """A request that names KV: the file, the salt of its prefix cache, the ids of its prompt."""

    name: object
    salt: str | None
    ids: Sequence[int]


class Promises:
    """What the scheduler was told of each request, until it has ended."""

    def __init__(self, exchange: Exchange, identity: dict[str, str], layout: PagedLayout) -> None:
        self._exchange, self._identity, self._layout = exchange, identity, layout
        self._rows, self._loads = dict[str, int](), dict[str, Load]()

    def rows(self, request: str, asked: Asked) -> int:
        """How many first tokens of the prompt need not be computed: never the last one. 0, with a line in the log,
        where the file does not fit the model, the prompt or the salt."""
        if request not in self._rows:
            try:
                self._rows[request] = self._fitting(asked)
            except MemosError as error:
                log.warning("request %s is answered from text: %s", request, error)
                self._rows[request] = 0
        return self._rows[request]

    def _fitting(self, asked: Asked) -> int:
        name, layout = str(asked.name), self._layout
        header = self._exchange.header(name, self._identity)
        heads, tokens, width = header.shape
        if (header.layers, heads, width) != (layout.layers, layout.heads, layout.width) or tokens != len(header.ids):
            raise FingerprintMismatch(
                f"{name} has {header.layers} layers of {heads} x {width} for {tokens} of {len(header.ids)} tokens, and "
                f"the paged cache has {layout.layers} of {layout.heads} x {layout.width}"
            )
        if not begins_with(asked.ids, header.ids):
            raise FingerprintMismatch(f"{name} is KV of other tokens than the prompt begins with")
        if asked.salt != name:  # else its blocks would be found under the hash of the plain text
            raise FingerprintMismatch(f"{name} is not the cache_salt of its request")
        return min(tokens, len(asked.ids) - 1)

    def allocated(self, request: str, name: object, new: int, blocks: Sequence[int]) -> None:
        """The scheduler has taken `new` rows, the last of those promised, and given the request these blocks."""
        end = self._rows[request]
        self._loads[request] = Load(str(name), end - new, end, tuple(blocks))

    def take(self) -> tuple[Load, ...]:
        """What is to be loaded in this step."""
        loads = tuple(self._loads.values())
        self._loads.clear()
        return loads

    def ended(self, request: str) -> None:
        self._rows.pop(request, None)
        self._loads.pop(request, None)


@dataclass(eq=False)
class _Arriving:
    """A load on its way, and how many layers of it are there."""

    load: Load
    activation: Activation
    slots: torch.Tensor
    layers: int = 0


class Loads:
    """The loads of one step after the other."""

    def __init__(self, exchange: Exchange, identity: dict[str, str], layout: PagedLayout, device: torch.device) -> None:
        self._exchange, self._identity, self._layout, self._device = exchange, identity, layout, device
        self._arriving, self._failed = list[_Arriving](), set[int]()

    def begin(self, loads: Sequence[Load]) -> None:
        """Begin to read; layers come in the background."""
        for load in loads:
            try:
                activation = self._exchange.load(load.name, self._identity, self._device)
            except MemosError as error:
                self._fail(load, error)
            else:
                slots = load.slots(self._layout.block_tokens).to(self._device)
                self._arriving.append(_Arriving(load, activation, slots))

    def layer(self, n: int, write: Write) -> None:
        """Wait for a layer of each load, and write it."""
        for one in list(self._arriving):
            try:
                keys, values = one.activation.layers[n]
            except MemosError as error:
                self._arriving.remove(one)
                self._fail(one.load, error)
            else:
                write(n, _rows(keys, one.load), _rows(values, one.load), one.slots)
                one.layers += 1

    def end(self) -> None:
        """The step is over: a load that was not written whole has failed, and none is written again."""
        for one in self._arriving:
            if one.layers != self._layout.layers:
                self._fail(one.load, CorruptBlob(f"{one.layers} of {self._layout.layers} layers were asked for"))
        self._arriving.clear()

    def _fail(self, load: Load, error: MemosError) -> None:
        log.warning("%d rows are computed from text: %s", load.end - load.first, error)
        self._failed |= load.written(self._layout.block_tokens)

    def failed(self) -> set[int]:
        """Blocks that were not written since this was asked last."""
        failed, self._failed = self._failed, set()
        return failed


def _rows(tensor: torch.Tensor, load: Load) -> torch.Tensor:
    """[1, kv_heads, tokens, head_dim] as the rows of a load: [rows, kv_heads, head_dim]."""
    return tensor[0, :, load.first : load.end].transpose(0, 1).contiguous()
