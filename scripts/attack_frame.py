"""What the kinds of scripts/attack.py share: cases by chance, a report, and a server that is attacked."""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

import httpx  # noqa: E402
import uvicorn  # noqa: E402

from memos import Config, Memory  # noqa: E402
from memos.config import ModelConfig, ServeConfig  # noqa: E402
from memos.errors import MemosError  # noqa: E402
from memos.plugins.server.app import create_app  # noqa: E402
from memos.plugins.server.run import listening, settings_of  # noqa: E402


@dataclass
class Report:
    """What was tried, what was found, and the figures behind it."""

    cases: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def write(self, path: Path | None) -> None:
        if path is not None:
            path.write_text(json.dumps(vars(self), indent=1), "utf-8")


class Attack:
    """One kind at work: its chance, its time, and where it reports to."""

    def __init__(self, kind: str, seed: int, seconds: float, report: Report) -> None:
        self.kind, self.seconds, self.report = kind, seconds, report
        self.draw = random.Random(f"{kind}:{seed}")
        self._shown = 0.0

    def cases(self, most: int) -> Iterator[int]:
        """Numbers of cases until the time is up, which begins with the first; at least one."""
        end = time.monotonic() + self.seconds
        for n in range(most):
            yield n
            self.report.cases[self.kind] += 1
            if (now := time.monotonic()) >= end:
                return
            if now - self._shown > 5:
                self._shown = now
                print(f"{self.kind}: {n + 1} cases, {len(self.report.findings)} findings in all", flush=True)

    def require(self, held: bool, broken: str) -> None:
        if not held:
            self.report.findings.append(f"{self.kind}: {broken}")
            print(f"FINDING {self.report.findings[-1]}", flush=True)

    def figure(self, name: str, value: float) -> None:
        self.report.figures[f"{self.kind}.{name}"] = round(value, 4)
        print(f"{self.kind}: {name} {value:.3f}", flush=True)

    def token(self) -> str:
        """A word that stands nowhere else."""
        return f"zq{self.draw.getrandbits(48):012x}"


@dataclass
class House:
    """A vault with a server over it. Whoever comes to the server needs a key."""

    memory: Memory
    url: str
    folder: Path

    def key(self, user: str) -> str:
        return self.memory.kernel.services.governing.add_key(f"user:{user}")[0]

    def client(self, key: str) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {key}"}, timeout=120)

    def added(self, text: str, user: str) -> str:
        """The id of a statement that a user has said."""
        return self.memory.add(text, user_id=user)["results"][0]["id"]


@contextmanager
def house() -> Iterator[House]:
    """Prompts are fenced, as they are for any model but the small one, which has learnt them without."""
    with tempfile.TemporaryDirectory(prefix="memos-attack-") as folder:
        with Memory(Config(model=ModelConfig(fence="always")), vault=Path(folder) / "vault") as memory:
            memory.kernel.services.governing.add_key("keeper")
            memory.kernel.host  # noqa: B018  loaded before the first request, as by `memos serve`
            memory.kernel.parts.operator().refresh_soon()
            limits = ServeConfig(grace_s=5)
            server = uvicorn.Server(settings_of(create_app(memory, limits, loopback=True), limits))
            listener = listening("127.0.0.1", 0)
            thread = threading.Thread(target=server.run, args=([listener],))
            thread.start()
            try:
                while not server.started:
                    time.sleep(0.01)
                yield House(memory, f"http://127.0.0.1:{listener.getsockname()[1]}", Path(folder))
            finally:
                server.should_exit = True
                thread.join()


def told_by(call: Callable[[], object]) -> str:
    """All that a call tells, in its answer or in its error."""
    try:
        answer = call()
    except MemosError as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(answer, httpx.Response):
        headers = {name: value for name, value in answer.headers.items() if name not in ("date", "content-length")}
        return f"{answer.status_code} {answer.text} {headers}"
    return json.dumps(answer, default=str)
