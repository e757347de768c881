"""Parts of other packages: a good one is chosen by a line of YAML; a bad one is named, and memos runs without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memos import MemOS
from memos.config import parse_config
from memos.errors import InputError

ROOT = Path(__file__).resolve().parents[1]
SEARCH = """
from memos import MemOS
from memos.config import load_config
with MemOS(load_config("memos.yaml"), vault="vault") as memos:
    for said in ("I was born in Lisbon.", "I am on holiday in Rome."):
        memos.add([{"speaker": "Mira", "content": said}])
    print(memos.search("Where was Mira born?")[0].cube.text)
"""
WITH_AND_WITHOUT = """
from pathlib import Path
from memos import MemOS
from memos.config import load_config
from memos.errors import MemosError
try:
    MemOS(load_config("memos.yaml"), vault="vault")
except MemosError as error:
    print(type(error).__name__, error)
assert not Path("vault").exists()
with MemOS(vault="vault") as memos:
    print(memos.add("I was born in Lisbon.")[0].text)
"""


def run(folder: Path, yaml: str, script: str = SEARCH) -> str:
    """What a new process prints that finds the packages in a folder."""
    (folder / "memos.yaml").write_text(yaml)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def package(folder: Path, name: str, code: str, policy: str = "mine", needs: str = "") -> None:
    """An installed package of one module, which provides a policy."""
    module = name.replace("-", "_")
    info = folder / f"{module}-2.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{module}.py").write_text(code)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n" + (f"Requires-Dist: {needs}\n" if needs else "")
    )
    (info / "entry_points.txt").write_text(f"[memos.policies]\n{policy} = {module}:make\n")


GOOD = "from memos.plugins.policies.baselines import recency as make\n"
RAISES = "raise RuntimeError('no licence file')\n"


def test_the_policy_package_of_the_examples_is_installed_and_chosen_by_one_line(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "site"
    shutil.copytree(ROOT / "examples/policy_package", source)
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([sys.executable, *install, "--target", folder, source], check=True, capture_output=True)
    assert run(folder, "") == "Mira: I was born in Lisbon."
    assert run(folder, "policy: latest-about") == "Mira: I am on holiday in Rome."


@pytest.mark.parametrize(
    "packages, policy, reported",
    [
        pytest.param(
            [("its-own", RAISES, "mine", "")],
            "mine",
            "PluginError its_own:make, which provides the policy 'mine', fails to load (RuntimeError: no licence "
            "file); mend or uninstall its-own",
            id="raises while it is imported",
        ),
        pytest.param(
            [("lacking", "import no_such_library\n", "mine", "")],
            "mine",
            "PluginError lacking:make, which provides the policy 'mine', fails to load (ModuleNotFoundError: No module "
            "named 'no_such_library'); install no_such_library, for which there may be an extra of lacking",
            id="needs a package that is not installed",
        ),
        pytest.param(
            [("leaves", "raise SystemExit(3)\n", "mine", "")],
            "mine",
            "PluginError leaves:make, which provides the policy 'mine', fails to load (SystemExit: 3); mend or "
            "uninstall leaves",
            id="ends the program while it is imported",
        ),
        pytest.param(
            [("empty", "", "mine", "")], "mine", "module 'empty' has no attribute 'make'", id="has not what it names"
        ),
        pytest.param(
            [("one", GOOD, "mine", ""), ("two", GOOD, "mine", "")],
            "mine",
            "PluginError the policy 'mine' cannot be used: one and two provide it; uninstall all but one of them",
            id="two of one name",
        ),
        pytest.param(
            [("newer", GOOD, "mine", "Memos_Kernel>=7")],
            "mine",
            "PluginError the policy 'mine' cannot be used: newer 2.0 was made for memos-kernel>=7, and this is 0.1.0; "
            "install a version of newer for this one",
            id="made for another version",
        ),
        pytest.param(
            [("good", GOOD, "mine", "")],
            "miner",
            "InputError there is no policy 'miner'; did you mean mine? `memos plugins` lists what is installed, and a "
            "package may bring another by the entry point memos.policies",
            id="a typo",
        ),
        pytest.param([], "latest-about", "InputError there is no policy 'latest-about'; ", id="not installed"),
    ],
)
def test_a_bad_plugin_is_named_with_the_way_out_and_memos_runs_without_it(
    tmp_path: Path, packages: list[tuple[str, str, str, str]], policy: str, reported: str
) -> None:
    for given in packages:
        package(tmp_path, *given)
    refused, remembered = run(tmp_path, f"policy: {policy}", WITH_AND_WITHOUT).splitlines()
    assert reported in refused
    assert remembered == "I was born in Lisbon."


LIST = """
from memos.extensions import extensions
for found in extensions(load=True):
    if found.group == "memos.policies" and (found.problem or found.package != "memos-kernel"):
        print(found.name, found.package, found.version, found.problem, sep="|")
"""


@pytest.mark.slow
def test_all_that_is_installed_is_listed_with_what_is_wrong_with_it(tmp_path: Path) -> None:
    package(tmp_path, "good", GOOD, "fine", "memos-kernel>=0.1,<0.2")
    package(tmp_path, "other-python", GOOD, "also-fine", "memos-kernel>=7; python_version < '3'")
    package(tmp_path, "raises", RAISES, "raising")
    package(tmp_path, "taker", GOOD, "memos")
    assert run(tmp_path, "", LIST).splitlines() == [
        "also-fine|other-python|2.0|",
        "fine|good|2.0|",
        "memos|taker|2.0|memos-kernel itself provides it, and is used; taker needs another name for its own",
        "raising|raises|2.0|raises:make, which provides the part 'raising', fails to load "
        "(RuntimeError: no licence file); mend or uninstall raises",
    ]


def test_an_executor_that_nothing_provides_is_refused_at_the_start(tmp_path: Path) -> None:
    config = parse_config({"distil": {"isolation": "proces"}})
    with pytest.raises(InputError, match=r"no executor 'proces'; did you mean process\?"):
        MemOS(config, vault=tmp_path / "vault")
    assert not (tmp_path / "vault").exists()
