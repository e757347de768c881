"""What several test files share."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from memos.infrastructure.host.training import turn
from memos.infrastructure.vault import mem_vault, stores
from memos.infrastructure.vault.store import reserve
from memos.infrastructure.vault.store import transactions as vault_clock
from memos.plugins.postgres.store import PostgresStore

if "PYTEST_XDIST_WORKER" in os.environ:
    # workers share the cores: one thread each, told before anything loads torch, and to what a test starts
    os.environ["OMP_NUM_THREADS"] = "1"

# The files that take longest, which begin first: one that begins late leaves a core without work at the end
_LONG = (
    *("test_parametric", "test_bench", "test_mem_lifecycle_machine", "test_cli", "test_process", "test_kernel_forms"),
    *("test_sessions", "test_encrypted_kernel", "test_training_process", "test_serving", "test_cache"),
    *("test_bench_peers", "test_vault", "test_tiers", "test_database", "test_mcp", "test_snippets"),
)
_users = (f"user{n}" for n in itertools.count())
_schemas = itertools.count()


@pytest.fixture(autouse=True, scope="session")
def own_queue_of_trainings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No worker waits for what another one trains."""
    turn.SHARED = tmp_path_factory.getbasetemp() / "trainings"


@pytest.fixture(autouse=True, scope="session")
def small_reserve() -> None:
    """Thousands of vaults are kept until the next runs."""
    reserve.RESERVE_BYTES = 1 << 16


_verdicts: dict[tuple[object, ...], object] = {}


@pytest.fixture(autouse=True)
def known_models() -> None:
    """What one model can do is tried once in a process: hundreds of tests open the same, which takes a second each."""
    for module, trial in (("host", "examine"), ("model.continuous", "packs")):
        loaded = sys.modules.get(f"memos.infrastructure.host.{module}")  # torch is not loaded for this
        if loaded and vars(loaded)[trial].__module__ != __name__:
            setattr(loaded, trial, tried_once(vars(loaded)[trial]))


def tried_once(trial: Callable[[Any], object]) -> Callable[[Any], object]:
    from memos.infrastructure.host.fingerprint import weights_digest

    def verdict(model: Any) -> object:
        attention = model.config.get_text_config()._attn_implementation
        key = (trial, type(model), weights_digest(model), str(model.config), attention, model.dtype, model.device)
        if key not in _verdicts:
            _verdicts[key] = trial(model)
        return _verdicts[key]

    return verdict


@pytest.fixture
def ada() -> str:
    """A user of this test alone: nothing of other tests is visible."""
    return next(_users)


@pytest.fixture
def bob() -> str:
    return next(_users)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Moves the machine's clock."""
    ahead = [timedelta()]

    def move(by: timedelta) -> None:
        ahead[0] += by

    monkeypatch.setattr(vault_clock, "clock", lambda: datetime.now(timezone.utc) + ahead[0])
    return move


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """Within it, a KV file meets a disk that has room for 16 KiB: a limit of the system's, and real failing writes."""
    from memos.infrastructure.host.host import Host  # loads torch

    @contextmanager
    def full() -> Iterator[None]:
        save = Host.save_kv

        def saved(*args: Any, **options: Any) -> None:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, hard))
            try:
                save(*args, **options)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        with monkeypatch.context() as patch:
            patch.setattr(Host, "save_kv", saved)
            yield

    return full


@pytest.fixture(scope="module")
def brief_reader() -> Iterator[None]:
    """Adapters are judged by few prompts, as their quality is not what is tested."""
    from tests.doubles import BriefReader

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memos.kernel.wiring.MemReader", BriefReader)
        yield


# the store that vaults are in


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store", choices=("sqlite", "postgres"), default="sqlite", help="what new vaults are made in")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _LONG.index(item.path.stem) if item.path.stem in _LONG else len(_LONG))
    if config.getoption("--store") == "postgres":
        about_files = [item for item in items if item.get_closest_marker("sqlite")]
        config.hook.pytest_deselected(items=about_files)
        items[:] = [item for item in items if item not in set(about_files)]


@contextmanager
def running_server() -> Iterator[Any]:
    """A PostgreSQL server of its own, as pgserver gives it, in a folder that goes with it."""
    pgserver = pytest.importorskip("pgserver")
    import psutil  # which it needs

    folder = Path(tempfile.mkdtemp(prefix="memos-postgres-"))
    server = pgserver.get_server(folder / "data")
    try:
        server.psql("CREATE EXTENSION vector;")
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.kill(server.get_pid(), signal.SIGQUIT)  # at once: nothing of it is wanted any more
        with suppress(psutil.NoSuchProcess):  # it may end while it is looked for
            server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def new_schema(server: Any) -> str:
    """The URL of one for a vault."""
    name = f"vault{next(_schemas)}"
    server.psql(f"CREATE SCHEMA {name};")
    return f"{server.get_uri()}&options=-csearch_path%3D{name},public"


@pytest.fixture(scope="session")
def new_url() -> Iterator[Callable[[], str]]:
    """The URL of a vault that is not there yet, each time of another: a schema of one server."""
    with running_server() as server:
        server.psql("ALTER SYSTEM SET fsync = off; ALTER SYSTEM SET full_page_writes = off; SELECT pg_reload_conf();")

        yield lambda: new_schema(server)


@pytest.fixture(autouse=True)
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--store postgres`, a vault that is made anew, without a key, is made on a server."""
    if request.config.getoption("--store") == "sqlite":
        return
    new = request.getfixturevalue("new_url")

    def on_server(place: stores.Place) -> stores.StoreKind:
        kind = stores.store_of(place)
        there = stores.is_vault(place.folder) or (place.folder / "key.json").exists()
        return kind if there or place.url or place.key else OnServer(new())

    monkeypatch.setattr(mem_vault, "store_of", on_server)


class OnServer(PostgresStore):
    """Makes its vaults at one URL."""

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, place: stores.Place, alone: bool) -> stores.OpenStore:
        return super().open(replace(place, url=self.url), alone)
