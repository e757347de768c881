"""`memos doctor`: reports what KV can be used for, on one model or on tiny random ones of many architectures."""

from __future__ import annotations

from typing import Any

from memos.bench.architectures import ARCHITECTURES, tiny
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.model.capability import Capability, examine
from memos.interface.doors.progress import Show


def examine_model(host: Host) -> dict[str, Any]:
    return {"models": [_row(str(host.config.path), host.capability)]}


def examine_architectures(show: Show) -> dict[str, Any]:
    """Every row anew, on random weights."""
    rows = []
    for n, name in enumerate(ARCHITECTURES, start=1):
        rows.append(_row(name, examine(tiny(name))))
        show("architectures", n, len(ARCHITECTURES))
    return {"models": rows}


def _row(name: str, can: Capability) -> dict[str, Any]:
    return {
        "name": name,
        "verdict": can.verdict,
        "exact": can.exact,
        "composable": can.composable,
        "recompute": can.renewal,
        "limit": can.limit,
        "differences": dict(can.differences),
    }
