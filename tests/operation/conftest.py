"""What tests of operation share: a vault of one test alone, and the life cycle over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.life.mem_lifecycle import MemLifecycle


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[MemVault]:
    with MemVault(tmp_path / "vault") as opened:
        yield opened


@pytest.fixture
def life(vault: MemVault) -> MemLifecycle:
    return MemLifecycle(vault)
