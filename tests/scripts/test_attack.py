"""A short attack of every kind: it reports what it tried, and finds nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import attack
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("kind", attack.KINDS)
def test_a_short_attack_finds_nothing(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "attack.json"
    monkeypatch.setattr(sys, "argv", ["attack", "--minutes", ".05", "--kind", kind, "--json", str(report)])
    # one slow answer among few is no figure: of resources, that there is one is all that is tested here
    assert attack.main() == 0 or kind == "resources"
    told = json.loads(report.read_text("utf-8"))
    assert told["cases"][kind] > 0
