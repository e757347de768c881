"""The system of the examples, in a package of its own: installed, chosen by one line, and run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
RUN = """
import sys
sys.path.insert(0, {folder!r})
from memos.config import parse_config
from memos.interface.doors.api.memory import Memory
with Memory(parse_config({{"policy": "diary"}}), vault={vault!r}) as memory:
    for text in ("I moved to Oslo.", "My sister Mira plays the violin."):
        turn = {{"role": "user", "name": "Ann", "content": text, "time": "2025-03-03T09:00"}}
        memory.add(messages=[turn], user_id="ann")
    [page] = memory.search("Where does Ann live?", user_id="ann")["results"]
    print(page["memory"])
"""


def test_the_system_of_the_examples_is_installed_and_chosen_by_one_line(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "site"
    shutil.copytree(ROOT / "examples/curator_package", source)
    assert len((source / "diary.py").read_text("utf-8").splitlines()) <= 120
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([sys.executable, *install, "--target", folder, source], check=True, capture_output=True)
    script = RUN.format(folder=str(folder), vault=str(tmp_path / "vault"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "2025-03-03: Ann: I moved to Oslo.\nAnn: My sister Mira plays the violin.\n", done.stderr
