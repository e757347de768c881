"""Where in memory KV lies: on the model's device, in the host's memory, or on disk alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Literal

import torch

from memos.infrastructure.host.kv.cache import Activation

Tier = Literal["device", "host", "disk"]


class KVTiers:
    """KV in memory, by name. On a CPU, the host's memory is the device's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._home: Tier = "host" if device.type == "cpu" else "device"
        self._cached: dict[str, tuple[Tier, Activation]] = {}
        self._lock = threading.Lock()

    def tier(self, name: str) -> Tier:
        with self._lock:
            return self._cached[name][0] if name in self._cached else "disk"

    def resident(self, name: str) -> Activation | None:
        """What is in memory under this name, on whichever tier."""
        with self._lock:
            return self._cached[name][1] if name in self._cached else None

    def all(self) -> dict[str, Activation]:
        with self._lock:
            return {name: activation for name, (_, activation) in self._cached.items()}

    def bring(self, name: str, load: Callable[[], Activation]) -> Activation:
        """The KV of this name, on the device; from `load` where it is not in memory, or did not come when it was last
        brought. Raises what `load` raises."""
        with self._lock:
            cached = self._cached  # as it is now: what is loaded while all is let go of is used once and not stored
            known = cached.get(name)
        activation = known[1].on(self._device) if known and not known[1].failed else load()
        with self._lock:
            cached[name] = self._home, activation
        return activation

    def settle(self, places: Mapping[str, Tier], among: Collection[str] | None = None) -> None:
        """Move what is in memory, all of it or that among these names, to its tier of `places`; what has none there
        leaves memory."""
        with self._lock:
            settled: dict[str, tuple[Tier, Activation]] = {}
            for name, (tier, activation) in self._cached.items():
                goal = places.get(name, "disk") if among is None or name in among else tier
                if goal != "disk":
                    to = torch.device("cpu") if goal == "host" else self._device
                    settled[name] = goal, activation if goal == tier else activation.on(to)
            self._cached = settled

    def drop(self, names: Collection[str]) -> None:
        with self._lock:
            self._cached = {name: entry for name, entry in self._cached.items() if name not in names}
