"""The architecture as a test: DESIGN's arrows, read from the imports of every file; and the measures of the house."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from house import ROOT, duplicate_classes, folder_sizes, forbidden_arrows, imported, longest_chain, product, within

# Where a heavy library may be imported; a file here is a file, a folder all beneath it. Benches measure against plain
# transformers, and make models to measure on.
ONLY_IN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("torch", "transformers", "peft", "accelerate", "safetensors.torch"),
        # and where a plug-in makes tensors: it trains or steers, stores KV, asks how likely answers are, writes
        # adapters for other servers, brings KV to one, reads texts beside a query
        (
            "memos/infrastructure/host/",
            "memos/plugins/packs/adapter_export.py",
            "memos/plugins/reranker.py",
            "memos/plugins/codecs/",
            "memos/plugins/kv_readers/",
            "memos/plugins/training/",
            "memos/plugins/externalize/",
            "memos/plugins/steering/",
            "memos/plugins/pictures/sight.py",
            "memos/plugins/pictures/vision.py",
            "memos/plugins/vllm/",
            "memos/bench/",
        ),
    ),
    "faiss": ("memos/operation/finding/vector_index.py",),
    "nltk": ("memos/bench/qa/published.py",),
    "pypdf": ("memos/plugins/documents/",),
    "bs4": ("memos/plugins/documents/",),
    "psycopg": ("memos/plugins/postgres/", "memos/bench/fleet/measure.py"),
    "sqlcipher3": ("memos/plugins/encryption/",),
    "textual": ("memos/plugins/top/",),
    "langgraph": ("memos/plugins/langgraph/",),
    "vllm": ("memos/plugins/vllm/connector.py", "memos/plugins/vllm/embedded.py"),
    "lmcache": ("memos/plugins/kv_readers/lmcache.py",),
    "sglang": ("memos/plugins/kv_readers/sglang.py",),
    "fastapi": ("memos/plugins/server/", "memos/plugins/openai/"),
    "mcp": ("memos/plugins/mcp/", "memos/bench/conversations.py"),
}
TYPES_ALONE = ("memos/kernel/wiring.py", "memos/kernel/mem_os.py")  # name a model that is given, for the type checker
HEAVY = ("torch", "transformers", "peft", "accelerate", "faiss", "nltk")
PICKLES = ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal")

SCRIPTS = sorted(ROOT.glob("scripts/**/*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def misplaced_libraries(source: str | ast.Module, path: str) -> list[str]:
    parsed = ast.parse(source) if isinstance(source, str) else source
    named = set(imported(parsed, path.removesuffix(".py").replace("/", ".")))
    if path in TYPES_ALONE:
        named -= {name for name in named if within(name, ("transformers",))}
    return sorted(
        library
        for library, homes in ONLY_IN.items()
        if not path.startswith(homes) and any(within(name, (library,)) for name in named)
    )


def pickles(source: str | ast.Module) -> list[str]:
    """Ways to read or write pickles: they run code, so memos has none."""
    parsed = ast.parse(source) if isinstance(source, str) else source
    found = [name for name in imported(parsed, "x") if within(name, PICKLES)]
    for node in ast.walk(parsed):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.save"):
            found.append(ast.unparse(node))
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found.append("allow_pickle")
    return found


@pytest.mark.parametrize("module", product())
def test_a_file_imports_only_what_its_room_may(module: str) -> None:
    assert forbidden_arrows(tree(product()[module]), module) == []


@pytest.mark.parametrize("module", product())
def test_heavy_libraries_stay_in_their_room(module: str) -> None:
    path = product()[module]
    assert misplaced_libraries(tree(path), path.relative_to(ROOT).as_posix()) == []


@pytest.mark.parametrize("path", [*product().values(), *SCRIPTS], ids=str)
def test_nothing_is_pickled(path: Path) -> None:
    assert pickles(tree(path)) == []


def test_imports_have_no_cycle_and_no_long_chain() -> None:
    chain, cycles = longest_chain()
    assert cycles == 0 and len(chain) <= 12, " -> ".join(chain)


def test_a_class_name_stands_once() -> None:
    assert duplicate_classes() == {}


def test_a_folder_has_few_files() -> None:
    assert [folder for count, folder in folder_sizes() if count > 12] == []


@pytest.mark.parametrize(
    "module, source, arrow",
    [
        ("memos.cube", "from memos.config import Config", "memos.config.Config"),
        ("memos.ops", "def f():\n    import memos.kernel.mem_os", "memos.kernel.mem_os"),
        ("memos.infrastructure.vault.mem_vault", "from memos.operation.finding import catalog", "memos.operation"),
        ("memos.infrastructure.host.host", "from memos.infrastructure.vault import mem_vault", "memos.infrastructure"),
        ("memos.operation.choosing.mem_scheduler", "from memos.interface.reading import mem_reader", "memos.interface"),
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
        ("memos.kernel.mem_os", "from memos.interface.doors.cli.app import app", "memos.interface.doors.cli.app"),
        ("memos.kernel.mem_os", "def f():\n    from memos.plugins.packs import service", "memos.plugins.packs.service"),
    ],
)
def test_a_forbidden_arrow_is_found(module: str, source: str, arrow: str) -> None:
    assert any(found.startswith(arrow) for found in forbidden_arrows(source, module))


@pytest.mark.parametrize(
    "path, source, library",
    [
        ("memos/kernel/answering.py", "import torch.nn as nn", "torch"),
        ("memos/infrastructure/vault/mem_vault.py", "from safetensors import torch", "safetensors.torch"),
        ("memos/operation/finding/mem_operator.py", "def f():\n    from faiss import IndexFlatIP", "faiss"),
        ("memos/infrastructure/vault/stores.py", "import psycopg", "psycopg"),
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
        "import sys; sys.argv = ['memos', '--help']; from memos.interface.doors.cli.app import app; app()",
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
