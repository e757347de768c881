"""What the tests of the vault and of governance share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memos.infrastructure.vault.mem_vault import MemVault


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[MemVault]:
    """An empty vault, open, in tmp_path / "vault"."""
    with MemVault(tmp_path / "vault") as opened:
        yield opened
