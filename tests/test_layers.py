"""The architecture as a test: DESIGN's arrows, read from the imports of every file."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VOCABULARY = ("memos.cube", "memos.rights", "memos.ops", "memos.config", "memos.errors", "memos.cost", "memos.once")
PUBLIC = (
    "memos.MemOS",
    "memos.Memory",
    "memos.AsyncMemory",
    "memos.Config",
    "memos.__version__",
)  # what `import memos` offers; it stands for the kernel
READER = "memos.interface.reading.mem_reader"
# the part of the interface that stands below the kernel; the doors stand above it
LANGUAGE = (
    READER,
    *(f"memos.interface.{part}" for part in ("phrasebook", "statements", "chinese", "requests", "files", "contrasts")),
    "memos.plugins.imports",
    "memos.interface.reading.documents",
    "memos.interface.reading",
    "memos.interface.reading.extraction",
)

# what the kernel's calls are made with
CALLS_STAND_ON = (
    READER,
    *(
        "memos.operation",
        "memos.infrastructure",
        "memos.operation.forms.transitions",
        "memos.operation.forms.serving",
        "memos.operation.forms.sessions",
    ),
    *(
        "memos.operation.forms.externalize",
        "memos.operation.choosing.upkeep",
        "memos.operation.life.knowledge",
        "memos.plugins.packs.exchange",
        "memos.plugins.packs.subscriptions",
        "memos.kernel.services.sharing",
    ),
    *(
        "memos.kernel.identity",
        "memos.operation.life.forgetting",
        "memos.operation.forms.insight",
        "memos.kernel.services.overview",
        "memos.kernel.unread",
    ),
)

# What a module may import of memos: the longest prefix of its name decides, and a prefix allows all beneath it.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "memos.cube": (),
    "memos.errors": (),
    "memos.cost": (),
    "memos.once": (),
    "memos.rights": VOCABULARY,
    "memos.ops": VOCABULARY,
    "memos.config": VOCABULARY,
    "memos.infrastructure": (*VOCABULARY, "memos.infrastructure"),
    "memos.operation": (*VOCABULARY, "memos.operation", "memos.infrastructure"),
    "memos.interface": (
        *VOCABULARY,
        *(
            f"memos.{part}"
            for part in ("interface", "kernel", "calls", "bound", "overview", "insight", "care", "bench")
        ),
        *PUBLIC,
    ),
    **dict.fromkeys(LANGUAGE, (*VOCABULARY, *LANGUAGE)),
    # measures the parts and the whole, from above all of them
    "memos.bench": (
        *VOCABULARY,
        *(
            f"memos.{part}"
            for part in ("bench", "kernel", "calls", "transitions", "operation", "infrastructure", "interface")
        ),
    ),
    "memos.kernel.mem_os": (
        *VOCABULARY,
        *CALLS_STAND_ON,
        "memos.calls",
        "memos.kernel.pipelines",
        "memos.kernel.self_report",
    ),
    "memos.calls": (*VOCABULARY, *CALLS_STAND_ON, "memos.calls"),
    # they make calls, and the kernel has them: between both
    **dict.fromkeys(
        ("memos.kernel.pipelines", "memos.kernel.self_report"), (*VOCABULARY, "memos.operation", "memos.calls")
    ),
    "memos.operation.forms.insight": (*VOCABULARY, "memos.operation", "memos.infrastructure"),
    "memos.kernel.services.overview": (*VOCABULARY, "memos.infrastructure"),
    "memos.plugins.packs.exchange": (
        *VOCABULARY,
        READER,
        "memos.operation.life.knowledge",
        "memos.operation",
        "memos.infrastructure",
    ),
    "memos.plugins.packs.subscriptions": (
        *VOCABULARY,
        "memos.plugins.packs.exchange",
        "memos.operation",
        "memos.infrastructure",
    ),
    "memos.operation.life.knowledge": (*VOCABULARY, READER, "memos.operation", "memos.infrastructure"),
    "memos.kernel.care": (*VOCABULARY, "memos.infrastructure"),
    "memos.kernel.services.sharing": (*VOCABULARY, "memos.infrastructure", "memos.kernel.identity"),
    "memos.kernel.identity": (*VOCABULARY, "memos.infrastructure"),
    "memos.operation.life.forgetting": (*VOCABULARY, "memos.operation", "memos.infrastructure"),
    "memos.operation.choosing.upkeep": (*VOCABULARY, "memos.infrastructure"),
    "memos.kernel.unread": (
        *VOCABULARY,
        READER,
        "memos.interface.reading.extraction",
        "memos.interface.reading.documents",
        "memos.operation.life.knowledge",
        "memos.operation.choosing.upkeep",
        "memos.operation",
        "memos.infrastructure",
    ),
    "memos.operation.forms.externalize": (*VOCABULARY, READER, "memos.infrastructure"),
    "memos.operation.forms.sessions": (
        *VOCABULARY,
        "memos.operation",
        "memos.infrastructure",
        "memos.operation.forms.serving",
    ),
    "memos.operation.forms.serving": (*VOCABULARY, "memos.operation", "memos.infrastructure"),
    "memos.operation.forms.transitions": (*VOCABULARY, READER, "memos.operation", "memos.infrastructure"),
    "memos.__init__": (*VOCABULARY, "memos.kernel.mem_os", "memos.interface.doors.api.memory"),
    "memos.__main__": ("memos.interface.doors.cli.app",),
}
# Where a heavy library may be imported; a file here is a file, a folder all beneath it.
ONLY_IN = {
    "torch": "memos/infrastructure/host/",
    "transformers": "memos/infrastructure/host/",
    "peft": "memos/infrastructure/host/",
    "accelerate": "memos/infrastructure/host/",
    "safetensors.torch": "memos/infrastructure/host/",
    "faiss": "memos/operation/finding/vector_index.py",
    "pypdf": "memos/plugins/documents/pdf.py",
    "bs4": "memos/plugins/documents/html.py",
}
HEAVY = ("torch", "transformers", "peft", "accelerate", "faiss")
PICKLES = ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal")

PRODUCT = sorted(ROOT.glob("memos/**/*.py"))
SCRIPTS = sorted(ROOT.glob("scripts/**/*.py"))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def nodes(source: str) -> list[ast.AST]:
    """What the rules below are about; a file is looked at several times, and parsed once."""
    kinds = (ast.Import, ast.ImportFrom, ast.Attribute, ast.keyword)
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]


def imports(source: str, module: str) -> Iterator[str]:
    """Every module that `source` imports, at any depth; of `from a import b` both a and a.b."""
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(p + ".") for p in prefixes)


def is_package(name: str) -> bool:
    return (ROOT / name.replace(".", "/") / "__init__.py").is_file()


def forbidden_arrows(source: str, module: str) -> list[str]:
    """Imports of memos that DESIGN's arrows forbid to `module`."""
    rules = [prefix for prefix in MAY_IMPORT if within(module, (prefix,))]
    if not rules:
        return [f"{module} has no line in MAY_IMPORT: decide where it stands in DESIGN's arrows"]
    allowed = MAY_IMPORT[max(rules, key=len)]
    # `from memos.operation import x` names a package on its way to x; x is judged
    named = {name for name in imports(source, module) if within(name, ("memos",)) and not is_package(name)}
    return sorted(name for name in named if not within(name, allowed))


def misplaced_libraries(source: str, path: str) -> list[str]:
    named = set(imports(source, path.removesuffix(".py").replace("/", ".")))
    return sorted(
        library
        for library, home in ONLY_IN.items()
        if not path.startswith(home) and any(within(n, (library,)) for n in named)
    )


def pickles(source: str) -> list[str]:
    """Ways to read or write pickles: they run code, so memos has none."""
    found = [name for name in imports(source, "x") if within(name, PICKLES)]
    for node in nodes(source):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.save"):
            found.append(ast.unparse(node))
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found.append("allow_pickle")
    return found


@pytest.mark.parametrize("path", PRODUCT, ids=module_of)
def test_a_file_imports_only_what_the_arrows_allow(path: Path) -> None:
    assert forbidden_arrows(path.read_text("utf-8"), module_of(path)) == []


@pytest.mark.parametrize("path", PRODUCT, ids=module_of)
def test_heavy_libraries_stay_in_their_room(path: Path) -> None:
    assert misplaced_libraries(path.read_text("utf-8"), path.relative_to(ROOT).as_posix()) == []


@pytest.mark.parametrize("path", PRODUCT + SCRIPTS, ids=module_of)
def test_nothing_is_pickled(path: Path) -> None:
    assert pickles(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "module, source, arrow",
    [
        ("memos.cube", "from memos.errors import InputError", "memos.errors"),
        ("memos.ops", "def f():\n    import memos.kernel.mem_os", "memos.kernel.mem_os"),
        (
            "memos.infrastructure.vault.mem_vault",
            "from ..operation import mem_operator",
            "memos.operation.finding.mem_operator",
        ),
        (
            "memos.operation.choosing.mem_scheduler",
            "from memos.interface import mem_reader",
            "memos.interface.reading.mem_reader",
        ),
        (
            "memos.interface.doors.cli.app",
            "from memos.infrastructure.vault.mem_vault import MemVault",
            "memos.infrastructure.vault.mem_vault",
        ),
        (
            "memos.interface.reading.mem_reader",
            "if TYPE_CHECKING:\n    from memos.kernel.mem_os import MemOS",
            "memos.kernel.mem_os",
        ),
        ("memos.kernel.mem_os", "from memos.interface.doors.cli.app import main", "memos.interface.doors.cli.app"),
    ],
)
def test_a_forbidden_arrow_is_found(module: str, source: str, arrow: str) -> None:
    assert any(found.startswith(arrow) for found in forbidden_arrows(source, module))


@pytest.mark.parametrize(
    "path, source, library",
    [
        ("memos/kernel/mem_os.py", "import torch.nn as nn", "torch"),
        ("memos/infrastructure/vault/mem_vault.py", "from safetensors import torch", "safetensors.torch"),
        ("memos/operation/finding/mem_operator.py", "def f():\n    from faiss import IndexFlatIP", "faiss"),
    ],
)
def test_a_misplaced_library_is_found(path: str, source: str, library: str) -> None:
    assert misplaced_libraries(source, path) == [library]


@pytest.mark.parametrize("source", ["import pickle", "import torch\ntorch.load('x')", "np.load(f, allow_pickle=True)"])
def test_a_pickle_is_found(source: str) -> None:
    assert pickles(source)


@pytest.mark.parametrize(
    "start",
    [
        "import memos",
        "import sys; sys.argv = ['memos', '--help']; from memos.interface.doors.cli.app import main; main()",
    ],
    ids=["import memos", "memos --help"],
)
def test_a_light_start_loads_no_heavy_library(start: str) -> None:
    run = subprocess.run([sys.executable, "-X", "importtime", "-c", start], cwd=ROOT, capture_output=True, text=True)
    lines = run.stderr.splitlines()
    assert run.returncode == 0, "\n".join(line for line in lines if not line.startswith("import time:"))
    loaded = {line.rsplit("|", 1)[-1].strip() for line in lines if line.startswith("import time:")}
    assert "memos" in loaded
    assert sorted(name for name in loaded if within(name, HEAVY)) == []
