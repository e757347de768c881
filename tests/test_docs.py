"""What the documents say is there, is there: files, commands, configs, snippets, states."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

import memos
from memos.config import AskStep, IngestStep, load_config, parse_config
from memos.cube import State
from memos.interface.cli import app
from memos.operation.mem_lifecycle import ALLOWED

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
CONFIGS = sorted(ROOT.glob("configs/*.yaml"))
ROOMS = ("memos/", "configs/", "scripts/", "tests/", "docs/", ".ci/")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_COMMAND = re.compile(r"(?:time )?(memos|scripts/\w+|python scripts/\w+\.py)(?: (.*))?")
_FILE = re.compile(r"[\w./-]+\.(?:py|yaml|md|toml|txt|jsonl)")


@cache
def text(doc: Path) -> str:
    return doc.read_text("utf-8")


def blocks(doc: Path, language: str) -> list[str]:
    return [body for tag, body in _FENCE.findall(text(doc)) if tag == language]


def code(doc: Path) -> list[str]:
    """What stands between backticks in the running text."""
    return _CODE.findall(_FENCE.sub("", text(doc)))


def paths(doc: Path) -> set[str]:
    """The files and folders that a document names: of the repository if they begin with one of its rooms."""
    named = {words for words in code(doc) if words.startswith(ROOMS) or _FILE.fullmatch(words)}
    linked = {((doc.parent / target).resolve().relative_to(ROOT)).as_posix() for target in _LINK.findall(text(doc))}
    return {name.split(" ")[0] for name in named} | linked


def commands(doc: Path) -> list[str]:
    """Command lines of the document without their comments; in a sentence, two words only name the command."""
    lines = [line.split("#")[0].strip() for block in blocks(doc, "sh") for line in block.splitlines()]
    spoken = [line if "--" in line or len(line.split()) != 2 else f"{line} --help" for line in code(doc)]
    return [line for line in (*lines, *spoken) if _COMMAND.fullmatch(line)]


def _cases(of: object, docs: list[Path] = DOCS) -> list[object]:
    assert callable(of)
    return [pytest.param(doc, case, id=f"{doc.stem}: {case[:60]}") for doc in docs for case in sorted(set(of(doc)))]


@pytest.mark.parametrize("doc, path", _cases(paths))
def test_a_path_that_is_named_exists(doc: Path, path: str) -> None:
    assert (ROOT / path).exists(), f"{doc.name} names {path}"


@pytest.mark.parametrize("doc, line", _cases(commands))
def test_a_command_line_is_one_that_the_program_takes(doc: Path, line: str) -> None:
    program, *arguments = shlex.split(line.removeprefix("time "))
    if program == "memos":
        _takes(arguments)
    else:
        script = ROOT / (arguments[0] if program == "python" else program)
        source = script.read_text("utf-8")
        if script.suffix == ".py":
            assert all(option in source for option in arguments if option.startswith("--"))
        elif script.name == "quickstart":  # hands its options on
            _takes(["run", "configs/quickstart.yaml", *arguments])


def _takes(arguments: list[str]) -> None:
    """Parse, and carry nothing out."""
    if not arguments or arguments == ["--help"]:  # the name alone
        return
    name, *rest = arguments
    known = known_commands()
    assert name in known, f"memos has no command {name}"
    if rest != ["--help"]:
        known[name].make_context(name, rest)


@cache
def known_commands() -> dict[str, Any]:
    return typer.main.get_command(app).commands  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    "line, told", [("rum x.yaml", "rum"), ("run x.yaml --otu y", "--otu"), ("ls x.yaml", "x.yaml"), ("run", "config")]
)
def test_a_wrong_command_line_is_found(line: str, told: str) -> None:
    with pytest.raises(Exception) as found:  # typer's own errors have moved between its versions
        _takes(line.split())
    assert told in str(found.value)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_config_loads_and_the_files_of_its_steps_are_there(path: Path) -> None:
    for step in load_config(path).experiment.steps:
        match step:
            case IngestStep(ingest=file):
                assert file.is_file()
            case AskStep(ask=ask):
                assert ask.questions.is_file()


@pytest.mark.parametrize("doc, block", _cases(lambda doc: blocks(doc, "yaml")))
def test_a_yaml_block_is_a_config(doc: Path, block: str) -> None:
    import yaml

    assert parse_config(yaml.safe_load(block)).experiment.steps


@pytest.mark.parametrize("doc, block", _cases(lambda doc: blocks(doc, "python")))
def test_a_python_block_compiles_and_calls_what_is_there(doc: Path, block: str) -> None:
    tree = ast.parse(block)
    compile(tree, doc.name, "exec")
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        function = called(call)
        if function is not None:
            known = inspect.signature(function).parameters
            assert {k.arg for k in call.keywords} <= set(known), ast.unparse(call)


def called(call: ast.Call) -> object:
    """The function of the kernel that a call in a document means: `MemOS(...)` or `memos.x(...)`."""
    match call.func:
        case ast.Name(id="MemOS"):
            return memos.MemOS
        case ast.Attribute(value=ast.Name(id="memos"), attr=name):
            assert hasattr(memos.MemOS, name), f"MemOS has no {name}"
            return getattr(memos.MemOS, name)
    return None


def test_the_readme_names_calls_and_commands_that_exist() -> None:
    calls = re.search(r"The other calls are (.*?)\.\n?", text(ROOT / "README.md"))
    assert calls and all(hasattr(memos.MemOS, name) for name in _CODE.findall(calls[1]))
    assert {line.split()[1] for line in commands(ROOT / "README.md") if line.startswith("memos ")} == {
        *known_commands()
    }


def test_the_map_has_a_line_for_every_file() -> None:
    source = text(ROOT / "docs/architecture.md")
    files = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("memos/**/*.py")]
    inner = [file for file in files if not file.endswith("/__init__.py") or file == "memos/__init__.py"]
    assert [file for file in sorted(inner) if f"`{file}`" not in source] == []


def test_the_table_of_states_is_that_of_the_code() -> None:
    section = text(ROOT / "docs/architecture.md").split("## Life cycle\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| (\w+) \| (.*?) \|$", section, re.MULTILINE))
    said = {State(state): {s for s in State if s in re.findall(r"\w+", rows[state])} for state in State}
    assert said == {state: set(to) for state, to in ALLOWED.items()}
