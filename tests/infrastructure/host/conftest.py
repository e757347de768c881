"""What several tests of the host share: the small model, loaded once for each file."""

from __future__ import annotations

import pytest

from memos.config import ModelConfig
from memos.infrastructure.host.host import Host


@pytest.fixture(scope="module")
def small() -> Host:
    """The packaged small model."""
    return Host.load(ModelConfig())


@pytest.fixture(scope="module")
def host(small: Host) -> Host:
    """The small model, where a file does not say otherwise."""
    return small
