"""Measure the structure of memos/: sizes, import chains, arrows between rooms, and what a question and an add enter.

    scripts/measure_house                   # a table
    scripts/measure_house --json house.json # the figures as JSON
    scripts/measure_house --list any        # where they are; functions, files, folders, classes, chain, arrows

Measured over memos/ without plugins/ and bench/. tests/test_layers.py holds the code to ROOMS, the same table.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VOCABULARY = tuple(
    f"memos.{name}" for name in ("cube", "rights", "ops", "config", "errors", "cost", "lazy", "extensions", "skeleton")
)
PUBLIC = tuple(f"memos.{name}" for name in ("MemOS", "Memory", "AsyncMemory", "Config", "__version__"))
INFRASTRUCTURE, OPERATION = "memos.infrastructure", "memos.operation"
READING, DOORS, KERNEL = "memos.interface.reading", "memos.interface.doors", "memos.kernel"
PLUGINS, BENCH = "memos.plugins", "memos.bench"
HOST, GUARD, VAULT, GOVERNANCE = (f"{INFRASTRUCTURE}.{room}" for room in ("host", "guard", "vault", "governance"))
CURATOR = tuple(f"{PLUGINS}.curators.{name}" for name in ("blocks", "curator", "rules", "signals"))

# What a module may import of memos: the longest prefix of its name decides, and a prefix allows all beneath it.
ROOMS: dict[str, tuple[str, ...]] = {
    "memos.cube": ("memos.errors",),
    "memos.errors": (),
    "memos.cost": (),
    "memos.lazy": (),
    "memos.skeleton": (),
    "memos.extensions": ("memos.errors",),
    "memos.rights": ("memos.cube", "memos.errors"),
    "memos.ops": ("memos.cube", "memos.rights"),
    "memos.config": ("memos.config", "memos.cube", "memos.errors"),
    HOST: (*VOCABULARY, HOST),  # no vault, no rights
    GUARD: (*VOCABULARY, GUARD),  # pure functions of values and of the config
    VAULT: (*VOCABULARY, VAULT, GUARD),
    GOVERNANCE: (*VOCABULARY, GOVERNANCE, VAULT, GUARD),  # no models
    INFRASTRUCTURE: (*VOCABULARY, INFRASTRUCTURE),
    f"{OPERATION}.policies": (*VOCABULARY, f"{OPERATION}.policies"),  # decide; know no stores
    OPERATION: (*VOCABULARY, OPERATION, INFRASTRUCTURE),
    READING: (*VOCABULARY, READING),
    KERNEL: (*VOCABULARY, KERNEL, READING, OPERATION, INFRASTRUCTURE),
    DOORS: (*VOCABULARY, DOORS, KERNEL, *PUBLIC),
    PLUGINS: (*VOCABULARY, PLUGINS, INFRASTRUCTURE, OPERATION, READING, KERNEL, DOORS, *PUBLIC),
    # as those of the core; what writes knows what it may return, and not how that is done
    f"{PLUGINS}.policies": (*VOCABULARY, f"{OPERATION}.policies", f"{PLUGINS}.policies", *CURATOR),
    **dict.fromkeys(CURATOR, (*VOCABULARY, f"{OPERATION}.policies", f"{READING}.times", *CURATOR)),
    BENCH: ("memos",),  # measures the parts and the whole, from above all of them
    "memos.interface.__init__": (),
    "memos.__init__": (*VOCABULARY, KERNEL, DOORS),
    "memos.__main__": (*VOCABULARY, DOORS),  # its help needs no more than the names of parts
}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


@cache
def product() -> dict[str, Path]:
    """Every module of memos/ by its name."""
    return {module_of(path): path for path in sorted(ROOT.glob("memos/**/*.py"))}


@cache
def core() -> dict[str, Path]:
    """The modules that are measured: without the plug-ins and the benchmarks."""
    return {name: path for name, path in product().items() if not within(name, (PLUGINS, BENCH))}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


# -- imports ---------------------------------------------------------------------------------------------------


def imported(tree: ast.AST, module: str) -> Iterator[str]:
    """Every module that a tree imports, at any depth; of `from a import b` both a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def is_package(name: str) -> bool:
    return (ROOT / name.replace(".", "/") / "__init__.py").is_file()


def forbidden_arrows(source: str | ast.AST, module: str) -> list[str]:
    """Imports of memos that ROOMS forbids to a module."""
    rules = [prefix for prefix in ROOMS if within(module, (prefix,))]
    if not rules:
        return [f"{module} has no line in ROOMS: decide where it stands"]
    allowed = ROOMS[max(rules, key=len)]
    tree = ast.parse(source) if isinstance(source, str) else source
    # `from memos.operation import x` names a package on its way to x; x is judged
    named = {name for name in imported(tree, module) if within(name, ("memos",)) and not is_package(name)}
    return sorted(name for name in named if not within(name, allowed))


def imported_at_start(module: str) -> set[str]:
    """The modules of the core that importing this one runs: not those for types alone, nor those within functions."""
    found = set[str]()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                continue
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                names = set(imported(ast.Module([child], []), module))
                found.update(name for name in names if name in core() or f"{name}.__init__" in core())
            else:
                visit(child)

    visit(parsed(core()[module]))
    return {name if name in core() else f"{name}.__init__" for name in found} - {module}


def longest_chain() -> tuple[list[str], int]:
    """(the longest chain of imports, how many cycles were met on the way)."""
    arrows = {module: {to for to in imported_at_start(module) if not to.endswith("__init__")} for module in core()}
    chains: dict[str, list[str]] = {}
    open_: set[str] = set()
    cycles = 0

    def chain(module: str) -> list[str]:
        nonlocal cycles
        if module in open_:
            cycles += 1
            return []
        if module not in chains:
            open_.add(module)
            chains[module] = [module, *max((chain(to) for to in sorted(arrows[module])), key=len, default=[])]
            open_.discard(module)
        return chains[module]

    return max((chain(module) for module in sorted(core())), key=len), cycles


# -- sizes -----------------------------------------------------------------------------------------------------

_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(path: Path) -> int:
    """Lines that are neither blank, nor comment, nor docstring."""
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(parsed(path)):
        if isinstance(node, _SCOPES) and ast.get_docstring(node, clean=False) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def functions() -> list[tuple[int, str]]:
    """(lines without the docstring, where) of every function."""
    found = []
    for module, path in core().items():
        for node in ast.walk(parsed(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                size = (node.end_lineno or 0) - node.lineno + 1
                if ast.get_docstring(node, clean=False) is not None:
                    size -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
                found.append((size, f"{module}.{node.name}"))
    return sorted(found, reverse=True)


def file_sizes() -> list[tuple[int, str]]:
    """(lines, path) of every file."""
    sizes = [(len(path.read_text("utf-8").splitlines()), path.relative_to(ROOT).as_posix()) for path in core().values()]
    return sorted(sizes, reverse=True)


def folder_sizes() -> list[tuple[int, str]]:
    """(files of Python, folder)."""
    folders = Counter(path.parent.relative_to(ROOT).as_posix() for path in core().values())
    return sorted(((count, folder) for folder, count in folders.items()), reverse=True)


def anys() -> list[tuple[int, str]]:
    """(uses of typing.Any, module)."""
    found = []
    for module, path in core().items():
        uses = sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(parsed(path)))
        found.append((uses, module))
    return sorted((pair for pair in found if pair[0]), reverse=True)


def duplicate_classes() -> dict[str, list[str]]:
    """Class names that stand in several modules, with these."""
    homes = defaultdict(list)
    for module, path in core().items():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module)
    return {name: modules for name, modules in homes.items() if len(modules) > 1}


# -- what runs ---------------------------------------------------------------------------------------------------

_STATEMENTS = ("I live in Lisbon.", "I work as a nurse.", "My sister is called Ana.")
_QUESTION = "Where do I live?"


def walk() -> dict[str, object]:
    """What a plain question and an add enter, in a process of its own, on the embedded default; the second of each, as
    the first loads what both need."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "walk.json"
        subprocess.run(
            [sys.executable, __file__, "--walk", str(out)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            check=True,
        )
        return dict(json.loads(out.read_text()))


class _Trace:
    """The files of memos that are entered, and the SQL of every connection, while it is on; in all threads."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.functions: set[str] = set()
        self.sql: list[str] = []
        self.syncs = 0
        self.on = False

    def __call__(self, frame: object, event: str, _: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        if self.on and event == "call" and "/memos/" in code.co_filename and code.co_name != "<module>":
            self.files.add(code.co_filename)
            self.functions.add(
                f"{code.co_filename}:{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name}"
            )


def _walk(out: Path) -> None:
    import sqlite3
    import threading

    trace = _Trace()
    connect, fsync = sqlite3.connect, os.fsync

    def traced(*values: object, **named: object) -> sqlite3.Connection:
        made = connect(*values, **named)  # type: ignore[call-overload]
        made.set_trace_callback(lambda sql: trace.sql.append(sql) if trace.on else None)
        return made  # type: ignore[no-any-return]

    def synced(file: int) -> None:
        trace.syncs += trace.on
        fsync(file)

    sqlite3.connect, os.fsync = traced, synced
    from memos import Memory

    def measure(act: object) -> dict[str, object]:
        trace.files, trace.functions, trace.sql, trace.syncs = set(), set(), [], 0
        threading.setprofile_all_threads(trace) if hasattr(threading, "setprofile_all_threads") else None
        threading.setprofile(trace)
        sys.setprofile(trace)
        trace.on = True
        act()  # type: ignore[operator]
        trace.on = False
        sys.setprofile(None)
        threading.setprofile(None)
        begun = [sql.split()[0].upper() for sql in trace.sql if sql.split()]
        return {
            "files": len(trace.files),
            "functions": len(trace.functions),
            "selects": sum(word in ("SELECT", "WITH") for word in begun),
            "write_transactions": sum(sql.upper().startswith("BEGIN IMMEDIATE") for sql in trace.sql),
            "syncs": trace.syncs,
            "entered": sorted(path.split("/memos/", 1)[1] for path in trace.files),
            "sql": trace.sql,
        }

    with Memory(vault=Path("vault")) as memory:
        for statement in _STATEMENTS:
            memory.add(statement, user_id="mira")
        memory.chat(_QUESTION, user_id="mira")
        told = {
            "question": measure(lambda: memory.chat(_QUESTION, user_id="mira")),
            "add": measure(lambda: memory.add("I have a cat named Tom.", user_id="mira")),
        }
    out.write_text(json.dumps(told))


# -- the report --------------------------------------------------------------------------------------------------


def measured() -> dict[str, object]:
    chain, cycles = longest_chain()
    sizes = [size for size, _ in functions()]
    files = [size for size, _ in file_sizes()]
    walked = walk()
    question, add = walked["question"], walked["add"]
    assert isinstance(question, dict) and isinstance(add, dict)
    return {
        "code_lines": sum(map(code_lines, core().values())),
        "longest_import_chain": len(chain),
        "upward_arrows": sum(len(forbidden_arrows(parsed(path), module)) for module, path in core().items()),
        "cycles": cycles,
        "duplicate_class_names": len(duplicate_classes()),
        "any": sum(count for count, _ in anys()),
        "functions": len(sizes),
        "function_p95": round(statistics.quantiles(sizes, n=20)[-1]),
        "function_max": sizes[0],
        "files": len(files),
        "file_median": round(statistics.median(files)),
        "file_max": files[0],
        "files_per_folder_max": folder_sizes()[0][0],
        "question": {key: question[key] for key in ("files", "functions", "selects", "write_transactions", "syncs")},
        "add": {key: add[key] for key in ("files", "functions", "selects", "write_transactions", "syncs")},
    }


def listed(what: str) -> Iterator[str]:
    match what:
        case "any":
            yield from (f"{count:5} {module}" for count, module in anys())
        case "functions":
            yield from (f"{size:5} {name}" for size, name in functions()[:80])
        case "files":
            yield from (f"{size:5} {path}" for size, path in file_sizes()[:40])
        case "folders":
            yield from (f"{count:5} {folder}" for count, folder in folder_sizes())
        case "lines":
            yield from (f"{code_lines(path):5} {module}" for module, path in core().items())
        case "classes":
            yield from (f"{name}: {', '.join(modules)}" for name, modules in sorted(duplicate_classes().items()))
        case "chain":
            yield from longest_chain()[0]
        case "arrows":
            for module, path in core().items():
                yield from (f"{module} -> {to}" for to in forbidden_arrows(parsed(path), module))
        case "question" | "add":
            told = walk()[what]
            assert isinstance(told, dict)
            yield from told["entered"]
            yield from told["sql"]
        case _:
            raise SystemExit(f"error: {what!r} cannot be listed; see --help")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there")
    lists = ("any", "functions", "files", "folders", "lines", "classes", "chain", "arrows", "question", "add")
    parser.add_argument("--list", choices=lists, help="list what a figure is made of, and stop")
    parser.add_argument("--walk", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.walk:
        return _walk(given.walk)
    if given.list:
        return print("\n".join(listed(given.list)))
    figures = measured()
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    for name, value in figures.items():
        print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
