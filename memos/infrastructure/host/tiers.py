"""KV in memory: the device's, the host's, or only in its file. Moves what it is told to move; decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal

import torch

from memos.infrastructure.host.kv import Activation

Tier = Literal["device", "host", "disk"]


class Tiers:
    """What is held in memory, by name. On a CPU, the host's memory is the device's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._home: Tier = "host" if device.type == "cpu" else "device"
        self._held: dict[str, tuple[Tier, Activation]] = {}

    def tier(self, name: str) -> Tier:
        return self._held[name][0] if name in self._held else "disk"

    def held(self, name: str) -> Activation | None:
        """What is in memory under this name, on whichever tier."""
        return self._held[name][1] if name in self._held else None

    def lengths(self) -> dict[str, int]:
        """Tokens of each that is in memory."""
        return {name: len(activation.ids) for name, (_, activation) in self._held.items()}

    def bring(self, name: str, load: Callable[[], Activation]) -> Activation:
        """It, on the device; read with `load` where it is not in memory. Raises what `load` raises."""
        held = self._held  # as it is now: what is loaded while all is let go of is used once and not kept
        activation = held[name][1].on(self._device) if name in held else load()
        held[name] = self._home, activation
        return activation

    def settle(self, places: Mapping[str, Tier]) -> None:
        """Move all that is held to the tier it is given; what is given none leaves memory."""
        settled: dict[str, tuple[Tier, Activation]] = {}
        for name, (tier, activation) in self._held.items():
            goal = places.get(name, "disk")
            if goal != "disk":
                to = torch.device("cpu") if goal == "host" else self._device
                settled[name] = goal, activation if goal == tier else activation.on(to)
        self._held = settled

    def drop(self, names: Collection[str]) -> None:
        self._held = {name: kept for name, kept in self._held.items() if name not in names}
