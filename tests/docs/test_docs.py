"""What the documents say is there, is there: files, commands, configs, snippets, states."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import diagrams
import file_map
import jsonschema
import pytest
import typer.main

import memos
from memos.cube import State
from memos.errors import ConfigError
from memos.interface.doors.cli.app import app
from memos.kernel.calls import public
from memos.operation.life.mem_lifecycle import ALLOWED
from memos.plugins.experiment.config import AskStep, IngestStep, RunConfig, load_run, parse_run
from memos.plugins.settings.settings import groups, schema, schema_text
from tests.docs.documents import DOCS, ROOT, blocks, name, prose, text

CONFIGS = sorted(ROOT.glob("configs/*.yaml"))
WRITTEN = [doc for doc in DOCS if doc != file_map.MAP]  # by people; its lines name files as the code does
RECORDS = sorted(ROOT.glob("docs/decisions/0*.md"))
FOLDERS = ("memos/", "configs/", "scripts/", "tests/", "docs/", "examples/", ".ci/")

_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_COMMAND = re.compile(r"(?:time )?(memos|scripts/\w+|python scripts/\w+\.py)(?: (.*))?")
_FILE = re.compile(r"[\w./-]+\.(?:py|yaml|md|toml|txt|jsonl)")


def code(doc: Path) -> list[str]:
    """What stands between backticks in the running text."""
    return _CODE.findall(prose(doc))


def paths(doc: Path) -> set[str]:
    """The files and folders that a document names: of the repository if they begin with one of its rooms."""
    named = {words for words in code(doc) if words.startswith(FOLDERS) or _FILE.fullmatch(words)}
    linked = {((doc.parent / target).resolve().relative_to(ROOT)).as_posix() for target in _LINK.findall(text(doc))}
    return {name.split(" ")[0] for name in named} | linked


def commands(doc: Path) -> list[str]:
    """Command lines of the blocks, without their comments."""
    lines = [line for block in blocks(doc, "sh") for line in block.lines]
    return [line for line in lines if _COMMAND.fullmatch(line)]


def named_commands(doc: Path) -> list[str]:
    """Commands in the running text: a name, maybe with some of what it takes."""
    return [line for line in code(doc) if _COMMAND.fullmatch(line)]


def configs(doc: Path) -> list[str]:
    return [block.body for block in blocks(doc, "yaml")]


def programs(doc: Path) -> list[str]:
    return [block.body for block in blocks(doc, "python")]


def _cases(find: object, docs: list[Path] = DOCS) -> list[object]:
    assert callable(find)
    return [pytest.param(doc, case, id=f"{name(doc)}: {case[:60]}") for doc in docs for case in sorted(set(find(doc)))]


@pytest.mark.parametrize("doc, path", _cases(paths, WRITTEN))
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
            _takes(["quickstart", *arguments])


def _takes(arguments: list[str]) -> None:
    """Parse, and carry nothing out."""
    command, path, rest = _command(arguments)
    if rest != ["--help"]:
        command.make_context(path, rest)


def _command(arguments: list[str]) -> tuple[Any, str, list[str]]:
    """The command of a line, its name, and what is left of the line."""
    command, path = memos_command(), "memos"
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        if arguments[0] not in command.commands and (default := getattr(command, "default", "")):
            arguments = [default, *arguments]
        step, *arguments = arguments
        assert step in command.commands, f"there is no command {path} {step}"
        command, path = command.commands[step], f"{path} {step}"
    return command, path, arguments


@pytest.mark.parametrize("doc, line", _cases(named_commands, WRITTEN))
def test_a_command_that_is_named_is_there_with_its_options(doc: Path, line: str) -> None:
    program, *arguments = shlex.split(line.removeprefix("time "))
    if program != "memos":
        assert (ROOT / (arguments[0] if program == "python" else program)).is_file()
        return
    for alternative in arguments[1].split("|") if len(arguments) > 1 and "|" in arguments[1] else [""]:
        command, path, rest = _command([arguments[0], alternative] if alternative else arguments)
        known = {"--help"} | {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
        assert {option for option in rest if option.startswith("--")} <= known, path


@cache
def memos_command() -> Any:
    command: Any = typer.main.get_command(app)
    command.list_commands(None)  # loads those that packages add
    return command


@pytest.mark.parametrize(
    "line, named",
    [
        ("rum x.yaml", "rum"),
        ("run x.yaml --otu y", "--otu"),
        ("vault back x", "back"),
        ("vault check --zorb", "--zorb"),
        ("ls x.yaml", "x.yaml"),
        ("run", "config"),
    ],
)
def test_a_wrong_command_line_is_found(line: str, named: str) -> None:
    with pytest.raises(Exception) as found:  # typer's own errors have moved between its versions
        _takes(line.split())
    assert named in str(found.value)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_config_loads_and_the_files_of_its_steps_are_there(path: Path) -> None:
    for step in load_run(path).experiment.steps:
        match step:
            case IngestStep(ingest=file):
                assert file.is_file()
            case AskStep(ask=ask):
                assert ask.questions.is_file()


@pytest.mark.parametrize("doc, block", _cases(configs))
def test_a_yaml_block_is_a_config(doc: Path, block: str) -> None:
    import yaml

    assert parse_run(yaml.safe_load(block)) != RunConfig()


@pytest.mark.parametrize("doc, block", _cases(programs))
def test_a_python_block_compiles_and_calls_what_is_there(doc: Path, block: str) -> None:
    tree = ast.parse(block)
    compile(tree, doc.name, "exec")
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        function = called(call)
        if function is not None:
            signature = function.signature if isinstance(function, public) else inspect.signature(function)  # type: ignore[arg-type]
            known = signature.parameters
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


def test_the_page_of_commands_shows_each_of_them() -> None:
    shown = {line.split()[1] for line in commands(ROOT / "docs/reference/commands.md") if line.startswith("memos ")}
    assert set(memos_command().commands) <= shown


def test_the_page_of_commands_tells_which_take_the_yaml_as_their_argument() -> None:
    (named,) = re.findall(r"((?:`\w+`[, and]*)+) take the YAML", text(ROOT / "docs/reference/commands.md"))
    taking = [name for name, one in memos_command().commands.items() for taken in one.params if _is_config(taken)]
    assert re.findall(r"`(\w+)`", named) == sorted(taking)


def _is_config(taken: Any) -> bool:
    return bool(taken.name == "config" and taken.param_type_name == "argument")


def test_an_extra_that_is_named_is_there_and_is_installed_from_the_clone() -> None:
    sources = "".join(text(path) for path in [*DOCS, *ROOT.glob("memos/**/*.py"), ROOT / "scripts/quickstart"])
    extras = re.findall(
        r"^([\w-]+) = \[", text(ROOT / "pyproject.toml").split("optional-dependencies]")[1], re.MULTILINE
    )
    named = re.findall(r"(?:pip install -e '\.\[|how_to_install\([\"']|^install )([\w,-]+)", sources, re.MULTILINE)
    assert named and {extra for one in named for extra in one.split(",")} <= set(extras)
    assert "memos[" not in sources  # on PyPI the name is somebody else's


def test_the_page_on_plugins_has_every_extension_point() -> None:
    sources = "".join(text(path) for path in ROOT.glob("memos/**/*.py"))
    groups = set(re.findall(r'Registry(?:\[.*\])?\(\s*"(memos\.\w+)"', sources))
    assert set(re.findall(r"^\| `(memos\.\w+)` \|", text(ROOT / "docs/how-to/plugin.md"), re.MULTILINE)) == groups


def test_every_page_is_in_the_sites_contents() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    pages = (doc for doc in DOCS if doc.parent != ROOT and doc not in RECORDS)  # these are in the list of decisions
    assert sorted(listed) == sorted(doc.relative_to(ROOT / "docs").as_posix() for doc in pages)


def test_the_schema_for_editors_is_that_of_the_config() -> None:
    assert (ROOT / "docs/config.schema.json").read_text("utf-8") == schema_text(), (
        "run `memos config schema docs/config.schema.json`"
    )


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_config_is_valid_by_the_schema_that_it_names(path: Path) -> None:
    import yaml

    first = path.read_text("utf-8").splitlines()[0]
    named = re.fullmatch(r"# yaml-language-server: \$schema=(.+)", first)
    assert named and (path.parent / named[1]).resolve() == ROOT / "docs/config.schema.json"
    jsonschema.Draft202012Validator(schema()).validate(yaml.safe_load(path.read_text("utf-8")))


@pytest.mark.parametrize(
    "wrong", [{"scheduler": {"topk": 4}}, {"scheduler": {"choice": "zorb"}}, {"experiment": {"steps": [{"a": 1}]}}]
)
def test_the_schema_refuses_what_the_config_does(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        parse_run(wrong)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema()).validate(wrong)


def test_the_diagrams_are_drawn_from_their_text() -> None:
    assert all(path.read_text("utf-8") == svg for path, svg in diagrams.drawn().items()), "run scripts/diagrams.py"


@pytest.mark.slow
def test_the_site_builds_and_asks_nobody_for_anything(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    fetched = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']?(https?:[^"' >]+)""")
    assert {url for page in tmp_path.rglob("*.html") for url in fetched.findall(page.read_text("utf-8"))} == set()
    settings = (tmp_path / "reference/settings.html").read_text("utf-8")
    assert all(key.path in settings for group in groups() for key in group.keys)
    commands_page = (tmp_path / "reference/commands.html").read_text("utf-8")
    assert "memos vault restore" in commands_page and "--forgotten" in commands_page


def test_the_map_is_that_of_the_code() -> None:
    assert text(file_map.MAP) == file_map.page(), "run python scripts/file_map.py"


def test_the_first_line_of_every_file_says_in_one_sentence_what_it_knows_or_does() -> None:
    assert list(file_map.unfinished()) == []


def test_the_architecture_is_short_enough_to_be_read() -> None:
    assert len(text(ROOT / "docs/architecture.md").split()) <= 4000


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem[:4])
def test_a_decision_is_a_short_record_that_the_index_names(record: Path) -> None:
    head, body = text(record).split("\n", 1)
    number, title = re.fullmatch(r"# (\d{4})\. (.+)", head).groups()  # type: ignore[union-attr]
    assert f"- [{number}]({record.name}) {title}\n" in text(ROOT / "docs/decisions/README.md")
    assert record.name.startswith(f"{number}-")
    assert re.findall(r"^\*\*(\w+)\.\*\*", body, re.MULTILINE)[:3] == ["Context", "Decision", "Consequences"]
    assert 80 <= len(body.split()) <= 250


def test_decisions_are_numbered_one_after_the_other() -> None:
    assert [path.name[:4] for path in RECORDS] == [f"{n:04d}" for n in range(1, len(RECORDS) + 1)]


def test_the_table_of_states_is_that_of_the_code() -> None:
    table = text(ROOT / "docs/concepts/life-cycle.md").split("| from | to |\n")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| (\w+) \| (.*?) \|$", table, re.MULTILINE))
    named = {State(state): {s for s in State if s in re.findall(r"\w+", rows[state])} for state in State}
    assert named == {state: set(to) for state, to in ALLOWED.items()}
