"""`memos bench crash`: kills a process with four writing threads again and again, and checks what is left.

Each thread says what it is about to do, does it, and says that it was acknowledged; the process is killed at a random
time. Then the vault is opened again. What was acknowledged must be there; of what was begun, all or nothing.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
import traceback
from datetime import datetime, timezone
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from memos.bench.vault import drawn
from memos.cube import Blob, Form, Header, MemCube, Namespace, Rights, Source, Text, new_id
from memos.errors import MemosError, VaultError
from memos.infrastructure.vault.mem_vault import MemVault
from memos.plugins.care.check import problems_of
from memos.plugins.progress import Show

_THREADS, _PRELOAD, _BLOB = 4, 5000, 1 << 14
_OWNER = Namespace(user_id="writer")
_UPTO_S = 1.2  # after the first acknowledgement, for the kill
_BEGAN = datetime(2025, 1, 1, tzinfo=timezone.utc)
# What a write makes of each cube: its version and its text or the digest of its payload; None: it is gone.
Effects = dict[str, tuple[int, str] | None]


def bench_crash(kills: int, cubes: int, seed: int, show: Show) -> dict[str, Any]:
    """acknowledged: writes, each of one cube or of several together. lost: cubes that are not as it was acknowledged.
    partial: writes of which a part is there, and cubes that nobody wrote. restart_s_max: until the vault is open."""
    rng = random.Random(seed)
    told: dict[str, Any] = {"kills": kills, "cubes": cubes, "acknowledged": 0, "lost": 0, "partial": 0}
    expected: Effects = {}
    problems, restarts = list[str](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vault"
        with MemVault(path) as vault:
            for start in range(0, cubes, _PRELOAD):
                vault.put(*drawn(rng, min(_PRELOAD, cubes - start)))
                show("keep", min(start + _PRELOAD, cubes), cubes)
        for n in range(kills):
            acknowledged, begun = _killed(path, rng)
            for effects in acknowledged:
                expected |= effects
            began = time.perf_counter()
            with MemVault(path) as vault:
                restarts.append(time.perf_counter() - began)
                lost, partial = _judge(vault, expected, begun)
                problems += problems_of(vault)
            told["acknowledged"] += len(acknowledged)
            told["lost"] += lost
            told["partial"] += partial
            show("kill", n + 1, kills)
    return told | {"check_clean": not problems, "restart_s_max": max(restarts), "problems": problems}


def _killed(path: Path, rng: random.Random) -> tuple[list[Effects], list[Effects]]:
    """Let a process write for a while; what it had acknowledged, in order, and what it had begun, when killed."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_write, args=(path, rng.randrange(1 << 32), theirs), daemon=True)
    process.start()
    theirs.close()
    acknowledged, begun = list[Effects](), dict[int, Effects]()
    until: float | None = None
    try:
        while True:
            if until is not None and not ours.poll(max(0.0, until - time.monotonic())):
                process.kill()
                until = None  # what it said before is still to be read
            what, thread, effects = json.loads(ours.recv_bytes())
            match what:
                case "begun":
                    begun[thread] = effects
                case "done":
                    acknowledged.append(begun.pop(thread))
                    if len(acknowledged) == 1:
                        until = time.monotonic() + rng.uniform(0, _UPTO_S)
                case _:
                    raise VaultError(f"a writer of the benchmark failed before it was killed: {effects}")
            if until is not None and time.monotonic() > until:
                process.kill()
                until = None
    except EOFError:
        return acknowledged, list(begun.values())
    finally:
        process.kill()
        process.join()


def _judge(vault: MemVault, expected: Effects, begun: list[Effects]) -> tuple[int, int]:
    """(cubes lost, writes that are half there). What was begun and is there is expected from now on."""
    found: Effects = {}
    for cube in vault.owned(_OWNER):
        if cube.blob:
            vault.blobs.path(cube.blob)
        whole = len(vault.versions(cube.id)) == cube.version
        found[cube.id] = (cube.version, cube.blob.sha256 if cube.blob else cube.text) if whole else (0, "")
    partial = 0
    for effects in begun:
        after = sum(found.get(id) == _told(effect) for id, effect in effects.items())
        before = sum(found.get(id) == _told(expected.get(id)) for id in effects)
        if after == len(effects):
            expected |= effects
        elif before < len(effects):
            partial += 1
            expected |= {id: found.get(id) for id in effects}
    lost = [id for id, effect in expected.items() if found.get(id) != _told(effect)]
    return len(lost), partial + len(found.keys() - expected.keys())


def _told(effect: tuple[int, str] | None) -> tuple[int, str] | None:
    """As a tuple, where it came through JSON as a list."""
    return effect and (effect[0], effect[1])


def _write(path: Path, seed: int, to: Connection) -> None:
    """Write until killed, with several threads."""
    with MemVault(path) as vault:
        telling = threading.Lock()
        writers = [_Writer(vault, n, random.Random(seed + n), to, telling) for n in range(_THREADS)]
        threads = [threading.Thread(target=writer.run, daemon=True) for writer in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


class _Writer:
    """Adds, edits and deletes memories of its own; derives payloads from them; writes several at once."""

    def __init__(
        self, vault: MemVault, number: int, rng: random.Random, to: Connection, telling: threading.Lock
    ) -> None:
        self._vault, self._number, self._rng, self._to, self._telling = vault, number, rng, to, telling
        self._texts: list[MemCube] = []
        self._derived: dict[str, list[str]] = {}

    def run(self) -> None:
        works = (self._add, self._edit, self._together, self._derive, self._delete)
        try:
            while True:
                [work] = self._rng.choices(works, (40, 25, 20, 12, 3))
                if self._texts or work in (self._add, self._together):
                    work()
        except MemosError:
            self._say("failed", traceback.format_exc())

    def _say(self, what: str, effects: Any = None) -> None:
        with self._telling:
            self._to.send_bytes(json.dumps([what, self._number, effects]).encode())

    def _add(self) -> None:
        cube = self._new()
        self._say("begun", _effects(cube))
        self._vault.put(cube)
        self._say("done")
        self._texts.append(cube)

    def _edit(self) -> None:
        n = self._rng.randrange(len(self._texts))
        text = Text(text=self._drawn())
        cube = self._texts[n].model_copy(update={"version": self._texts[n].version + 1, "payload": text})
        self._say("begun", _effects(cube))
        self._vault.put(cube)
        self._say("done")
        self._texts[n] = cube

    def _together(self) -> None:
        cubes = [self._new() for _ in range(5)]
        self._say("begun", _effects(*cubes))
        if self._rng.random() < 0.5:
            self._vault.put(*cubes)
        else:
            with self._vault.transaction():
                for cube in cubes:
                    self._vault.put(cube)
        self._say("done")
        self._texts += cubes

    def _derive(self) -> None:
        source = self._rng.choice(self._texts)
        with self._vault.blobs.staging() as path:
            path.write_bytes(self._rng.randbytes(_BLOB))
            sha256, size = self._vault.blobs.store(path)
            payload = Blob(sha256=sha256, bytes=size, fingerprint="none")
            made = {
                "form": Form.ACTIVATION,
                "payload": payload,
                "sources": (Source(id=source.id, version=source.version),),
            }
            cube = self._new().model_copy(update=made)
            self._say("begun", _effects(cube))
            self._vault.put(cube)
        self._say("done")
        self._derived.setdefault(source.id, []).append(cube.id)

    def _delete(self) -> None:
        cube = self._texts.pop(self._rng.randrange(len(self._texts)))
        ids = [cube.id, *self._derived.pop(cube.id, [])]
        self._say("begun", dict.fromkeys(ids))
        self._vault.delete(ids)
        self._say("done")

    def _new(self) -> MemCube:
        return MemCube(
            id=new_id(),
            form=Form.PLAINTEXT,
            namespace=_OWNER,
            rights=Rights(owner=_OWNER.user_id),
            header=Header(created=_BEGAN),
            payload=Text(text=self._drawn()),
        )

    def _drawn(self) -> str:
        return " ".join(f"w{self._rng.randrange(30_000)}" for _ in range(14))


def _effects(*cubes: MemCube) -> Effects:
    return {cube.id: (cube.version, cube.blob.sha256 if cube.blob else cube.text) for cube in cubes}
