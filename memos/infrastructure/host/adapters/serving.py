"""Serves LoRA adapters: reads them from folders and adds them row by row to one forward of the base model.

peft trains adapters and writes their files; here many of them answer at once. A row's adapter is two small matrix
products beside each layer that it adapts, and what is active belongs to one forward of one thread: requests with
different adapters share a batch (S-LoRA, 2311.03285), and none can change another's answer.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import torch
from peft import LoraConfig
from peft.tuners.tuners_utils import check_target_module_exists
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from memos.config import ModelConfig
from memos.errors import CorruptBlob, FingerprintMismatch, Unsupported
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.adapters.lora import LINEAR
from memos.infrastructure.host.forward import Forward

log = logging.getLogger("memos")
Stack = tuple[Path, ...]  # folders of adapters that are active together; none: the base
MAX_PLANS = 4  # batches whose adapters are kept side by side
_NAME = re.compile(r"[\w.-]+").fullmatch  # of a module, or its end
_K = TypeVar("_K")
_V = TypeVar("_V")


def names_of(stack: Stack) -> tuple[str, ...]:
    """What KV made under adapters remembers of them: in the vault a folder's name is its digest; else its path."""
    return tuple(f.name if len(f.name) == 64 else str(f.absolute()) for f in stack)


def label_of(names: Sequence[str]) -> str:
    """Adapters, by `names_of`, as a message calls them."""
    return f"adapter {', '.join(name[-12:] for name in names)}" if names else "the base model"


@dataclass(frozen=True)
class Adapter:
    """By layer: A [in, rank] and B [rank, out], with its scaling in B. The layer's output gains x A B."""

    layers: dict[str, tuple[torch.Tensor, torch.Tensor]]

    def on(self, device: torch.device) -> Adapter:
        return Adapter({name: (a.to(device), b.to(device)) for name, (a, b) in self.layers.items()})


def read_adapter(folder: Path, modules: dict[str, torch.nn.Module], fingerprint: dict[str, str]) -> Adapter:
    """The adapter in a folder, if its tensors are exactly those that its config asks for on a model of these modules.

    Raises FingerprintMismatch, CorruptBlob, and Unsupported for a kind of adapter that cannot be added row by row.
    """
    has_card = bool(lora.read_card(folder, fingerprint))
    try:
        kind = json.loads((folder / "adapter_config.json").read_text("utf-8"))["peft_type"]
        if kind != "LORA":
            raise ValueError(f"it is of type {kind!r}")
        config = LoraConfig.from_pretrained(str(folder))
        _require_types(config)
        tensors = load_file(folder / "adapter_model.safetensors")
        named = {n: m for n, m in modules.items() if check_target_module_exists(config, n)}
    # a pattern that is none is re.error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError, re.error) as error:
        raise _unreadable(folder, " ".join(str(error).split())[:200]) from error  # peft checks nothing
    if not has_card:
        _require_base(folder, config.base_model_name_or_path, str(getattr(modules[""], "name_or_path", "")))
    _require_plain(folder, config, named)
    layers = {name: _layer_of(folder, config, name, module, tensors) for name, module in named.items()}
    if tensors or not layers:
        raise _unreadable(folder, f"it has {len(tensors)} tensors that its config does not ask for")
    return Adapter(layers)


def _layer_of(
    folder: Path, config: LoraConfig, name: str, module: torch.nn.Module, tensors: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """A and B of a layer as in `Adapter`, taken out of the tensors of a file. Raises CorruptBlob."""
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    a, b = (tensors.pop(f"base_model.model.{name}.lora_{half}.weight", None) for half in "AB")
    rank = int(_setting(config.rank_pattern, name, config.r))
    width_out, width_in = weight.shape[::-1] if isinstance(module, Conv1D) else weight.shape
    if a is None or b is None or a.shape != (rank, width_in) or b.shape != (width_out, rank):
        raise _unreadable(folder, f"its tensors of {name} are not what its config asks for")
    alpha = _setting(config.alpha_pattern, name, config.lora_alpha)
    scale = alpha / (rank**0.5 if config.use_rslora else rank)
    like = weight.detach()
    return a.T.to(like).contiguous(), (b.T.float() * scale).to(like).contiguous()


def _require_base(folder: Path, base: str | None, here: str) -> None:
    """Of a stranger's adapter all that is known is the name of its base, if that. Raises FingerprintMismatch."""
    if not base or not isinstance(base, str):
        log.warning("adapter %s does not say which model it was made for; its shapes fit this one", folder.name)
    elif Path(base).name == Path(here).name:
        log.warning("adapter %s was made for a model called %s, and all that is known is the name", folder.name, base)
    else:
        raise FingerprintMismatch(
            f"adapter {folder.name} was made for {base}, and this is {here or 'a model without a name'}; load that "
            f"model, or remove base_model_name_or_path from its adapter_config.json if the two are the same"
        )


def _require_plain(folder: Path, config: LoraConfig, named: dict[str, torch.nn.Module]) -> None:
    """Raises Unsupported, CorruptBlob."""
    if not isinstance(config.r, int) or config.r < 1:
        raise _unreadable(folder, f"its rank is {config.r}")
    for setting, plain in (("use_dora", False), ("bias", "none"), ("modules_to_save", None)):
        if getattr(config, setting) not in (plain, []):
            raise Unsupported(
                f"adapter {folder.name} has {setting} {getattr(config, setting)!r}, which cannot be added row by row; "
                f"train it without, or keep its memories as plaintext or KV"
            )
    if other := [name for name, module in named.items() if not isinstance(module, LINEAR)]:
        raise Unsupported(f"adapter {folder.name} adapts {other[0]}, which is no linear layer")


def _require_types(config: LoraConfig) -> None:
    """Raises ValueError for what peft takes as it comes, and for a pattern that may take for ever to match."""
    for name in ("rank_pattern", "alpha_pattern"):
        pattern = getattr(config, name) or {}
        if not isinstance(pattern, dict) or not all(_is_number(value) for value in pattern.values()):
            raise ValueError(f"its {name} is no mapping of names to numbers above 0")
    if not _is_number(config.lora_alpha):
        raise ValueError(f"its lora_alpha is {config.lora_alpha!r:.80}, and not a number above 0")
    for name in ("target_modules", "exclude_modules", "layers_pattern", "modules_to_save"):
        value = getattr(config, name)
        if not all(map(_NAME, [value] if isinstance(value, str) else value or ())):
            raise ValueError(f"its {name} {value!r:.80} is a pattern, which may take for ever to match; list names")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 < value < 1e6


def _setting(pattern: dict[str, float] | None, name: str, default: float) -> float:
    """Of one layer, whose rank and scaling may differ by the end of its name."""
    return next((value for key, value in (pattern or {}).items() if name.endswith(key)), default)


def _unreadable(folder: Path, why: str) -> CorruptBlob:
    return CorruptBlob(f"adapter {folder.name} does not load: {why}; demote its cube, or promote its sources again")


class Adapters:
    """A twin of the model over the same weights, whose forwards take an adapter for each row."""

    def __init__(
        self, model: PreTrainedModel, fingerprint: dict[str, str], config: ModelConfig, shared: bool = True
    ) -> None:
        """shared: between threads. One that is not may be trained in: autograd runs forwards again in threads of its
        own."""
        self.module, self._fingerprint, self._config = lora.twin(model), fingerprint, config
        self._forward: threading.local | SimpleNamespace = threading.local() if shared else SimpleNamespace()
        self._lock = threading.Lock()
        self._memory: OrderedDict[Path, Adapter] = OrderedDict()
        self._plans: OrderedDict[tuple[Stack, ...], _Plan | None] = OrderedDict()  # of the last batches
        self._device: OrderedDict[Path, Adapter] = OrderedDict()  # a GPU's; a CPU has no other memory than the first
        self._modules = dict(self.module.named_modules())  # as they are before peft puts its own in their place
        for name, module in self._modules.items():
            if isinstance(module, LINEAR):
                module.register_forward_hook(self._hook(name))

    @property
    def names(self) -> set[str]:
        """Names of the folders of the adapters in memory."""
        with self._lock:
            return {folder.name for folder in self._memory}

    def clear(self) -> None:
        with self._lock:
            self._plans.clear()
            self._memory.clear()
            self._device.clear()

    def model(self, rows: Sequence[Stack]) -> Adapted:
        """The model under the adapters of each row of a batch. Raises what `read_adapter` raises."""
        return Adapted(self, self._planned(tuple(rows)))

    def packed(self, stacks: Sequence[Stack], tokens: Sequence[int]) -> Adapted:
        """The model under the adapters of each of several texts that lie one behind the other, [1, N], so many tokens
        of each. Raises what `read_adapter` raises."""
        pairs = groupby(zip(stacks, tokens, strict=True), key=lambda pair: pair[0])
        runs = [(stack, sum(count for _, count in some)) for stack, some in pairs]  # texts under the same ones, as one
        plan = self._planned(tuple(stack for stack, _ in runs))
        if plan and not plan.alike:
            plan = replace(plan, spans=tuple(count for _, count in runs))
        return Adapted(self, plan)

    def cold(self, stack: Stack) -> Adapted:
        """The model under the adapters as their files have them now, for any number of rows."""
        return Adapted(self, _plan([joined([read_adapter(f, self._modules, self._fingerprint) for f in stack])]))

    def under(self, rows: Sequence[Stack]) -> AbstractContextManager[None]:
        """Forwards of `module` within it, in this thread, have these rows."""
        return self.active(self._planned(tuple(rows)))

    @contextmanager
    def active(self, plan: _Plan | None) -> Iterator[None]:
        self._forward.plan = plan
        try:
            yield
        finally:
            self._forward.plan = None

    def _planned(self, rows: tuple[Stack, ...]) -> _Plan | None:
        with self._lock:
            plan = self._plans.get(rows)
        if plan is None:
            stacks = {stack: joined([self._get(folder) for folder in stack]) for stack in dict.fromkeys(rows)}
            plan = _plan([stacks[stack] for stack in rows])
            with self._lock:
                self._keep(self._plans, MAX_PLANS, rows, plan)
        return plan

    def _get(self, folder: Path) -> Adapter:
        device = self.module.device
        with self._lock:
            for tier in (self._device, self._memory):
                if folder in tier:
                    tier.move_to_end(folder)
            if folder in self._device:
                return self._device[folder]
            adapter = self._memory.get(folder)
        if adapter is None:
            adapter = read_adapter(folder, self._modules, self._fingerprint)
        near, aside = adapter.on(device), adapter.on(torch.device("cpu"))
        with self._lock:
            self._keep(self._memory, self._config.adapters_in_memory, folder, aside)
            if device.type != "cpu":
                self._keep(self._device, self._config.adapters_on_device, folder, near)
        return near

    @staticmethod
    def _keep(cached: OrderedDict[_K, _V], most: int, key: _K, value: _V) -> None:
        cached[key] = value
        cached.move_to_end(key)
        while len(cached) > most:
            cached.popitem(last=False)

    def _hook(self, name: str) -> Callable[..., torch.Tensor | None]:
        def add(module: torch.nn.Module, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> torch.Tensor | None:
            plan: _Plan | None = getattr(self._forward, "plan", None)
            layer = plan.layers.get(name) if plan else None
            if plan is None or layer is None:
                return None
            a, b = layer
            if plan.alike:
                return out + (given[0] @ a) @ b
            if not plan.spans:
                return torch.baddbmm(out, torch.bmm(given[0], a), b)
            if len(set(plan.spans)) == 1:
                each, added = (t.reshape(len(a), plan.spans[0], -1) for t in (given[0], out))
                return torch.baddbmm(added, torch.bmm(each, a), b).view(out.shape)
            spans = given[0].split(plan.spans, -2)
            return out + torch.cat([(x @ a[n]) @ b[n] for n, x in enumerate(spans)], -2)

        return add


@dataclass(frozen=True)
class _Plan:
    """By layer: A and B as in `Adapter` for rows that are alike, else with a first dimension for the rows.

    spans: where all lie in one row, how many tokens each has.
    """

    alike: bool
    layers: dict[str, tuple[torch.Tensor, torch.Tensor]]
    spans: tuple[int, ...] = ()


def joined(adapters: Sequence[Adapter]) -> Adapter | None:
    """Several as one: x [A1 A2] [B1; B2] is x A1 B1 + x A2 B2, exactly (peft's `cat`)."""
    if len(adapters) < 2:
        return adapters[0] if adapters else None
    layers: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for name in dict.fromkeys(name for adapter in adapters for name in adapter.layers):
        pairs = [adapter.layers[name] for adapter in adapters if name in adapter.layers]
        layers[name] = torch.cat([a for a, _ in pairs], 1), torch.cat([b for _, b in pairs])
    return Adapter(layers)


def _plan(rows: Sequence[Adapter | None]) -> _Plan | None:
    """What the rows of a batch gain; rows of smaller rank, and those of the base, are filled with zeros."""
    first = rows[0]
    if all(row is first for row in rows):
        return _Plan(True, first.layers) if first else None
    layers: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for name in dict.fromkeys(name for row in rows if row for name in row.layers):
        pairs = [row.layers.get(name) if row else None for row in rows]
        like, rank = next(pair for pair in pairs if pair), max(pair[0].shape[1] for pair in pairs if pair)
        none = like[0].new_zeros(like[0].shape[0], rank), like[1].new_zeros(rank, like[1].shape[1])
        filled = [none if pair is None else _widened(pair, rank) for pair in pairs]
        layers[name] = torch.stack([a for a, _ in filled]), torch.stack([b for _, b in filled])
    return _Plan(False, layers)


def _widened(pair: tuple[torch.Tensor, torch.Tensor], rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = pair
    more = rank - a.shape[1]
    return pair if not more else (torch.nn.functional.pad(a, (0, more)), torch.nn.functional.pad(b, (0, 0, 0, more)))


class Adapted:
    """The twin under one plan; it holds during a forward only, and in the thread that calls it."""

    def __init__(self, adapters: Adapters, plan: _Plan | None) -> None:
        self._adapters, self._plan, module = adapters, plan, adapters.module
        self.config: PreTrainedConfig = module.config
        self.device, self.dtype = module.device, module.dtype
        self.parameters, self.named_modules = module.parameters, module.named_modules

    def __call__(self, **inputs: object) -> Forward:
        with self._adapters.active(self._plan):
            return self._adapters.module(**inputs)
