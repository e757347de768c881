"""What several test files share."""

from __future__ import annotations

import itertools

import pytest

_users = (f"user{n}" for n in itertools.count())


@pytest.fixture
def ada() -> str:
    """A user of this test alone: nothing of other tests is visible."""
    return next(_users)


@pytest.fixture
def bob() -> str:
    return next(_users)
