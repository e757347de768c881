"""What the tests of commands share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles import BriefReader


@pytest.fixture(scope="module")
def brief_reader() -> Iterator[None]:
    """Adapters are judged by few prompts, as their quality is not what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memos.kernel.wiring.MemReader", BriefReader)
        yield
