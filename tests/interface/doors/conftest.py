"""Packages of others, as pip would install them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memos import extensions


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str, str], None]]:
    """Installs a package of one module for the time of a test: its name, the group and line of its entry point, its
    code. A name is installed once in a run, as Python keeps what it has imported."""
    site = tmp_path / "site-packages"

    def installed(package: str, group: str, entry: str, code: str) -> None:
        module = package.replace("-", "_")
        info = site / f"{module}-1.2.dist-info"
        info.mkdir(parents=True)
        (site / f"{module}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
        extensions._entries.cache_clear()

    monkeypatch.syspath_prepend(site)
    yield installed
    monkeypatch.undo()
    extensions._entries.cache_clear()
