"""What encryption costs is told beside what the same work takes without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memos.bench.encryption import encryption_rows

pytestmark = pytest.mark.sqlite


def test_every_kind_of_work_is_measured_in_both_vaults(tmp_path: Path) -> None:
    before = dict(os.environ)
    rows = encryption_rows(tmp_path, cubes=100, mib=1)
    assert [(row["op"], row["batch"]) for row in rows] == [
        ("add", 1),
        ("add", 100),
        ("point read", 1),
        ("store MiB", 1),
        ("load MiB", 1),
        ("open", 1),
    ]
    assert all(row["backend"] == "sqlcipher" and row["per_s"] > 0 and row["share_of_bare"] > 0 for row in rows)
    assert (tmp_path / "encrypted" / "key.json").exists() and not (tmp_path / "plain" / "key.json").exists()
    assert dict(os.environ) == before
