"""scripts/train_instant.py trains what `distil.instant` loads, and goes on where it was cut off."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memos.config import ModelConfig
from memos.infrastructure.host.host import Host
from memos.plugins.training.instant import load_network

SCRIPT = Path(__file__).parents[2] / "scripts" / "train_instant.py"


@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "network.safetensors"

    def run(steps: int) -> str:
        command = [sys.executable, str(SCRIPT), "--out", str(out), "--steps", str(steps), "--rank", "2"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert "step 1 of 1" in run(1)
    said = run(2)
    assert "goes on from step 1" in said and "step 2 of 2" in said
    host = Host.load(ModelConfig())
    network = load_network(host.model, out, host.fingerprint)
    assert network.rank == 2 and network.written == ("model.layers.2.mlp.down_proj", "model.layers.3.mlp.down_proj")
    assert any(parameter.abs().max() > 0 for parameter in network.up)
