"""What the wheel holds: every file of memos/, but for what developers alone use. What it asks for is pinned by hash."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
DEVELOPER = Path("memos/bench/developer")
QUICKSTART = ROOT / "scripts" / "quickstart"
UNHASHED = {"torch", "memos-kernel"}  # builds of torch lie in several indexes


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


def pins(file: str) -> dict[str, set[str]]:
    """The versions of each package, of which each Python and platform takes one."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / file).read_text("utf-8").replace("\\\n", " ").splitlines():
        pin, *hashes = line.split("--hash=")
        wanted = Requirement(pin)
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", each.strip()) for each in hashes), line[:80]
        found.setdefault(canonicalize_name(wanted.name), set()).add(str(wanted.specifier))
    return found


def dependencies(extra: str) -> Iterator[str]:
    for wanted in map(Requirement, requires("memos-kernel") or ()):
        if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
            if wanted.name == "memos-kernel":
                for each in wanted.extras:
                    yield from dependencies(each)
            yield canonicalize_name(wanted.name)


def test_every_dependency_is_pinned_and_both_files_agree() -> None:
    everyone, developers = pins("requirements.txt"), pins("requirements-dev.txt")
    usual = (dependencies(extra) for extra in ("", *re.search(r"install (\S+)", QUICKSTART.read_text())[1].split(",")))
    assert set().union(*usual) - UNHASHED <= set(everyone)
    assert set(dependencies("dev")) - UNHASHED <= set(developers)
    assert all(developers[name] == versions for name, versions in everyone.items())
