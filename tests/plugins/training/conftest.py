"""What the tests of training share: the small model, loaded once for each file."""

from __future__ import annotations

import pytest

from memos.config import ModelConfig
from memos.infrastructure.host.host import Host


@pytest.fixture(scope="module")
def host() -> Host:
    """The packaged small model."""
    return Host.load(ModelConfig())
