"""What the tests of buckets share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from memos.plugins.object_storage import bucket as buckets
from tests.plugins.object_storage.s3 import S3, FaultyLine

_names = (f"bucket{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    server = S3()
    yield server
    server.stop()


@pytest.fixture
def line(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyLine]:
    """To the server, which clients of this process take."""
    made = FaultyLine(s3.port)
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", made.endpoint),
    ):
        monkeypatch.setenv(name, value)
    yield made
    made.stop()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that wait for no answer for long, and ask again at once."""
    monkeypatch.setattr(buckets, "_SILENCE_S", 0.5)
    monkeypatch.setattr(buckets, "_PAUSE_S", 0.0)


@pytest.fixture
def bucket(s3: S3) -> str:
    return s3.bucket(next(_names))


@pytest.fixture
def url(bucket: str, line: FaultyLine) -> str:
    return f"s3://{bucket}/some/prefix"
