"""What several test files share."""

from __future__ import annotations

import itertools
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from memos.infrastructure import database

if "PYTEST_XDIST_WORKER" in os.environ:
    # workers share the cores: one thread each, told before anything loads torch, and to what a test starts
    os.environ["OMP_NUM_THREADS"] = "1"

_users = (f"user{n}" for n in itertools.count())


@pytest.fixture
def ada() -> str:
    """A user of this test alone: nothing of other tests is visible."""
    return next(_users)


@pytest.fixture
def bob() -> str:
    return next(_users)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Moves the machine's clock."""
    ahead = [timedelta()]

    def move(by: timedelta) -> None:
        ahead[0] += by

    monkeypatch.setattr(database, "clock", lambda: datetime.now(timezone.utc) + ahead[0])
    return move


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """Within it, a KV file meets a disk that has room for 16 KiB: a limit of the system's, and real failing writes."""
    from memos.infrastructure.host.host import Host  # loads torch

    @contextmanager
    def full() -> Iterator[None]:
        save = Host.save_kv

        def saved(*args: Any, **options: Any) -> None:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, hard))
            try:
                save(*args, **options)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        with monkeypatch.context() as patch:
            patch.setattr(Host, "save_kv", saved)
            yield

    return full
