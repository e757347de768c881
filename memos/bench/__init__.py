"""Benchmarks that ship: `memos bench NAME --json FILE`. Each measures memos against a named alternative in one run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host

VERSIONS = ("torch", "transformers", "safetensors", "numpy")


def measured(
    name: str, path: Path | None, model: str, seed: int, measure: Callable[[Host], dict[str, Any]]
) -> dict[str, Any]:
    """The report of a benchmark on this model. Raises ModelNotFound, HostError."""
    from memos.config import ModelConfig
    from memos.infrastructure.host.host import Host

    host = Host.load(ModelConfig(path=model))
    return write_report(name, seed, str(host.model.device), measure(host), path)


def write_report(name: str, seed: int, device: str, figures: dict[str, Any], path: Path | None) -> dict[str, Any]:
    """The figures with what one must know to repeat them; written to `path` where there is one."""
    from memos.plugins.figures import surroundings

    report = {
        "bench": name,
        "command": " ".join(["memos", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "device": device,
        "seed": seed,
        **surroundings(VERSIONS),
        **figures,
    }
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1), "utf-8")
    return report
