"""Every snippet in the README and the documents is run: Python blocks and command lines, over the small model.

A page is one sitting: its blocks are run in order, in one folder. `print(...)  # -> words` must print a line that
begins with these words. What takes minutes is marked `<!-- slow -->`, what
cannot run here `<!-- not run: why -->`; tests/docs/test_docs.py parses the commands of these, too.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from typer.testing import CliRunner

from memos import MemOS
from memos.cube import Form, MemCube, State
from memos.infrastructure.host.model.load import SMALL_MODEL, model_path
from memos.interface.doors.cli.app import app
from memos.plugins.packs.calls import PackCalls
from memos.plugins.server.app import create_app
from memos.plugins.server.edge.callers import OwnMemory
from tests.docs.documents import DOCS, ROOT, Block, blocks, name

EXAMPLES = sorted(ROOT.glob("examples/*.py"))
TURNS = [
    {"speaker": "Mira", "content": "I live in Lisbon. I work as a nurse."},
    {"speaker": "Tom", "content": "I play chess."},
    {"speaker": "Tom", "content": "I live in Oslo."},
    {"speaker": "Tom", "content": "I have moved to Rome."},
]
EXPORTED = {"results": [{"id": "1", "memory": "Lives in Lisbon.", "user_id": "mira"}]}

Chosen = Callable[[MemCube], bool]


def _text_in(*states: State) -> Chosen:
    return lambda cube: cube.form is Form.PLAINTEXT and cube.state in states


def _form(form: Form) -> Chosen:
    return lambda cube: cube.form is form and cube.state is State.ACTIVATED


# which memory `ID` stands for, by the command that it is given to; else a text in force
SUITS: dict[str, Chosen] = {
    "thaw": _text_in(State.FROZEN),
    "end-hold": _text_in(State.FROZEN),
    "unarchive": lambda cube: cube.state is State.ARCHIVED and "Oslo" not in cube.text,
    "reinstate": lambda cube: cube.state is State.ARCHIVED and "Oslo" in cube.text,  # Rome has replaced it
    "split": lambda cube: bool(cube.sources) and _IN_FORCE(cube),
    "demote": lambda cube: cube.form is not Form.PLAINTEXT and cube.state is State.ACTIVATED,
    **dict.fromkeys(("gate", "externalize", "export-adapter"), _form(Form.PARAMETRIC)),
}
_IN_FORCE = _text_in(State.GENERATED, State.ACTIVATED)
ADDRESS = "127.0.0.1:8000"  # what the documents have
PROMPTS = {"memos chat": "Where does Mira live?\n"}  # what somebody types


@pytest.fixture(scope="module")
def filled_vault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vault in which there is something to find."""
    folder = tmp_path_factory.mktemp("filled") / "vault"
    with MemOS(vault=folder) as kernel:
        for turn in TURNS:
            kernel.add([turn])
        kernel.within("carla").add("I like tea.")
        kernel.search("anything")  # makes the vectors, once for all pages
    return folder


@dataclass
class Page:
    """Where the blocks of a page are run."""

    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    address: str = ""  # of a server, where the page speaks of one

    def run(self, block: Block) -> None:
        block = replace(block, body=block.body.replace(ADDRESS, self.address))
        if block.language == "python":
            with redirect_stdout(io.StringIO()) as out:
                exec(compile(block.body, "snippet", "exec"), self.names)
            printed = iter(out.getvalue().splitlines())
            for expected in re.findall(r"  # -> (.+)$", block.body, re.MULTILINE):  # in this order
                assert any(line.startswith(expected) for line in printed), f"{expected}\n{out.getvalue()}"
        else:
            for line in block.lines:
                self.command(line)

    def command(self, line: str) -> None:
        words = shlex.split(line)
        if words[0] != "memos" or ">" in words:
            subprocess.run(["bash", "-euc", line], cwd=self.folder, check=True, capture_output=True, timeout=60)
            return
        arguments = self.filled(words[1:])
        done = CliRunner().invoke(app, arguments, input=PROMPTS.get(" ".join(words[:2]), ""))
        assert done.exit_code == 0, f"{line}\n{done.output}{done.stderr}\n{done.exception!r}"

    def filled(self, words: list[str]) -> list[str]:
        """The words with ids in place of ID and the signer's key in place of KEY."""
        vault = Path(words[words.index("--vault") + 1]) if "--vault" in words else Path("memos-data")
        if "KEY" in words:
            with MemOS(vault="memos-data") as kernel:
                own = PackCalls.of(kernel).trusted()[1]
            words = [own if word == "KEY" else word for word in words]
        if "ID" in words:
            with MemOS(vault=vault) as kernel:
                suits = SUITS.get(words[0], _IN_FORCE)
                ids = iter([cube.id for cube in kernel.cubes() if suits(cube)])
            words = [next(ids) if word == "ID" else word for word in words]
        return words

    def close(self) -> None:
        for value in self.names.values():
            if hasattr(value, "close") and type(value).__module__.startswith("memos."):
                value.close()


@pytest.fixture
def page(tmp_path: Path, filled_vault: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # memos, python
    monkeypatch.setenv("VAULT_KEY", "a passphrase for a trial")
    shutil.copytree(filled_vault, tmp_path / "memos-data")
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    (tmp_path / "my-model").symlink_to(model_path(SMALL_MODEL))
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "mem0.json").write_text(json.dumps(EXPORTED))
    one = Page(tmp_path)
    yield one
    one.close()


@contextmanager
def serving(page: Page) -> Iterator[None]:
    """A server over the page's vault, at a free port in place of ADDRESS."""
    with socket.create_server(("127.0.0.1", 0)) as listener, OwnMemory(vault=page.folder / "memos-data") as memory:
        app = create_app(memory, memory.kernel.config.serve, loopback=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        page.address = f"127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


def go_through(doc: Path, page: Page, slow: bool) -> None:
    marks = ("", "slow") if slow else ("",)
    runnable = [block for block in blocks(doc, "python", "sh") if block.mark in marks]
    with serving(page) if any(ADDRESS in block.body for block in runnable) else nullcontext():
        for block in runnable:
            page.run(block)


def with_slow(wanted: bool) -> list[Any]:
    """The pages that have something to run; of the slow ones, those with a slow block."""
    mark = "slow" if wanted else ""
    return [
        pytest.param(doc, id=name(doc)) for doc in DOCS if mark in {block.mark for block in blocks(doc, "python", "sh")}
    ]


@pytest.mark.parametrize("doc", with_slow(False))
def test_what_a_page_shows_can_be_done(doc: Path, page: Page) -> None:
    go_through(doc, page, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("doc", with_slow(True))
def test_what_takes_minutes_can_be_done_too(doc: Path, page: Page) -> None:
    go_through(doc, page, slow=True)


TALKS = [pytest.param(b.body, id=name(doc)) for doc in DOCS for b in blocks(doc, "text") if b.body.startswith("> ")]


@pytest.mark.parametrize("talk", TALKS)
def test_a_conversation_that_is_shown_takes_place(talk: str, page: Page) -> None:
    """Lines with "> " are typed into `memos chat`, the others are its answers, with anything in place of "..."."""
    messages = [line[2:] for line in talk.splitlines() if line.startswith("> ")]
    done = CliRunner().invoke(app, ["chat", "--vault", "talk"], input="\n".join([*messages, ""]))
    answers = iter(line.removeprefix("> ").strip() for line in done.stdout.splitlines())
    for line in (line.strip() for line in talk.splitlines() if not line.startswith("> ")):
        pattern = ".*".join(map(re.escape, line.split("...")))
        assert any(re.fullmatch(pattern, one) for one in answers), f"{line}\n{done.stdout}"


def test_what_is_not_run_says_why() -> None:
    bare = [
        name(doc) for doc in DOCS for block in blocks(doc, "python", "sh") if block.mark == "not run" and not block.why
    ]
    assert bare == []
    every = {block.language for doc in DOCS for block in blocks(doc, "bash", "shell", "console", "py")}
    assert every == set(), "write ```sh and ```python, which are run"


def test_a_snippet_that_does_something_else_is_found(page: Page) -> None:
    page.run(Block("python", "print('one')\nprint('two')  # -> two\n", "", ""))
    with pytest.raises(AssertionError, match="two"):
        page.run(Block("python", "print('one')  # -> two\n", "", ""))
    with pytest.raises(AssertionError, match="no cube nothing"):
        page.command("memos show nothing")
    with pytest.raises(subprocess.CalledProcessError):
        page.command("false")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_does_what_it_says(example: Path, page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    """Each prints what it found; its docstring ends with what that is."""
    code = example.read_text("utf-8")
    assert len(code.splitlines()) < 60
    exec(compile(code, example.name, "exec"), names := {"__name__": "__main__"})
    expected = str(names["__doc__"]).split("prints:\n")[1].strip().splitlines()
    shown = [line.strip() for line in capsys.readouterr().out.strip().splitlines()]
    assert len(shown) == len(expected)
    for line, pattern in zip(shown, expected, strict=True):
        assert re.fullmatch(".*".join(map(re.escape, pattern.strip().split("..."))), line), line
