"""What the wheel holds: every file of memos/, but for what developers alone use."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DEVELOPER = Path("memos/bench/developer")


def packaged() -> set[Path]:
    """The files that a build puts into the wheel; nothing is built."""
    from setuptools import Distribution

    wheel = Distribution({"script_name": "setup.py"})
    wheel.parse_config_files()
    wheel.include_package_data = False  # what a working copy happens to hold is no reason to ship it
    build = wheel.get_command_obj("build_py")
    build.ensure_finalized()
    return {Path(file).relative_to(build.build_lib) for file in build.get_outputs(include_bytecode=False)}


def test_the_wheel_has_every_file_but_those_of_developers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    files = (path.relative_to(ROOT) for path in (ROOT / "memos").rglob("*") if path.is_file())
    wanted = {f for f in files if "__pycache__" not in f.parts and not f.is_relative_to(DEVELOPER)}
    assert packaged() == wanted
    assert any((ROOT / DEVELOPER).glob("*.yaml"))  # they are in the checkout
