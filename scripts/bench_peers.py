"""memos beside other memory libraries, on the same turns and questions, with one embedder and no language model.

    python scripts/bench_peers.py --data locomo.json --envs build/peers --json peers.json
    python scripts/bench_peers.py --data locomo.json --envs build/peers --json few.json --limit 400 --peer memos

Each peer is installed by pip into an environment of its own under --envs, at the version named here, and runs there in
its own process (scripts/peers/). A memory is one turn of a LoCoMo dialogue; all conversations lie in one store, each as
a user of its own, and a search is narrowed to that user. What is measured, all one after the other:

    adds      one turn each, and a hundred in a call where a peer can; with the embedding, and with vectors made
              beforehand; an add has returned when the peer says that it is kept
    searches  the first ten for each question: milliseconds with the embedding of the question and beside it
    syncs     fsync, fdatasync and msync calls for each add, counted by strace where there is one
    kill      of what was found, the share found again by a new process after `kill -9`

A row that is finished is kept in the JSON file and not measured again.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from memos.bench.dialogues import Conversation, figures, means, read
from memos.config import EmbedderConfig
from memos.errors import InputError, MemosError
from memos.infrastructure.host.encoders.embedder import Embedder
from memos.plugins.figures import surroundings

WORKER = Path(__file__).parent / "peers" / "worker.py"
K, BATCH = 10, 100
PASS_S = 900.0  # of a pass that only times adds; the one that is searched is always whole
_SYNCED = 20  # adds of which the syncs are counted
_AGAIN = 50  # questions that are asked again after a kill
Embed = Callable[[Sequence[str]], np.ndarray]
Turn = dict[str, str]


class PeerError(Exception):
    """A peer that cannot be installed or run, with its own words."""


@dataclass(frozen=True)
class Peer:
    module: str  # in scripts/peers
    packages: tuple[str, ...] = ()  # whose versions are reported
    env: str = ""  # none: where this script runs
    installs: tuple[str, ...] = ()  # arguments of pip, one call each
    variant: str = ""
    batches: bool = False
    durable: str = ""


_MEM0 = ("mem0ai==2.2.1 qdrant-client==1.20.0 faiss-cpu==1.15.1",)
_LANGGRAPH = ("langgraph==1.2.22 langgraph-checkpoint-sqlite==3.1.2 numpy==2.4.6 pysqlite3-binary==0.5.4.post2",)
# what it asks for does not resolve on Python 3.11: numpy 1.24, and a faiss-gpu that there wants numpy 1.25 or later
_MEMORYOS = (
    "torch==2.13.0 sentence-transformers==6.2.0 openai==3.54.0 faiss-cpu==1.15.1",
    "--no-deps memoryos-pro==0.1.0",
)
PEERS = {
    "memos": Peer("for_memos", ("memos",), batches=True, durable="one SQLite commit an add, synced"),
    "mem0, qdrant": Peer(
        "for_mem0", ("mem0ai", "qdrant-client"), "mem0", _MEM0, "qdrant", durable="two SQLite commits an add"
    ),
    "mem0, faiss": Peer(
        "for_mem0", ("mem0ai", "faiss-cpu"), "mem0", _MEM0, "faiss", durable="index and texts written anew, not synced"
    ),
    "chroma": Peer(
        "for_chroma", ("chromadb",), "chroma", ("chromadb==1.5.9",), batches=True, durable="one SQLite commit an add"
    ),
    "memoryos-pro": Peer(
        "for_memoryos", ("memoryos-pro",), "memoryos", _MEMORYOS, durable="JSON files written anew, not synced"
    ),
    "langgraph, memory": Peer(
        "for_langgraph", ("langgraph",), "langgraph", _LANGGRAPH, "memory", batches=True, durable="no"
    ),
    "langgraph, sqlite": Peer(
        "for_langgraph",
        ("langgraph", "langgraph-checkpoint-sqlite"),
        "langgraph",
        _LANGGRAPH,
        "sqlite",
        batches=True,
        durable="one SQLite commit an add",
    ),
}


class Running:
    """A worker process. Raises PeerError with what it wrote when it fails."""

    def __init__(self, python: Path, embed: Embed, log: Path, under: Sequence[str] = ()) -> None:
        self._embed, self._log = embed, log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*under, str(python), str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # peers are not asked to close: what they acknowledged must be there
        self._process.communicate()

    def ask(self, **command: Any) -> dict[str, Any]:
        answer = self._exchange(command)
        while "embed" in answer:
            vectors = np.ascontiguousarray(self._embed(answer["embed"]), np.float32)
            answer = self._exchange({"vectors": base64.b64encode(vectors.tobytes()).decode()})
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerError(_last(self._log.read_text("utf-8", "replace")) or "it ended without a word")
        return dict(json.loads(line))


def environment(peer: Peer, envs: Path) -> Path:
    """The interpreter of a peer's environment, made and filled where it is not yet. Raises PeerError."""
    if not peer.env:
        return Path(sys.executable)
    folder = envs / peer.env
    python, stamp = folder / "bin" / "python", folder / "installed.json"
    if stamp.is_file() and json.loads(stamp.read_text("utf-8")) == list(peer.installs):
        return python
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    for arguments in peer.installs:
        _tell(f"installing {arguments}")
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments.split()])
    stamp.write_text(json.dumps(peer.installs), "utf-8")
    return python


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerError(_last(done.stderr) or f"{' '.join(command)} ended with {done.returncode}")


def _last(text: str) -> str:
    """The last line that says something."""
    return next((line.strip()[:300] for line in reversed(text.splitlines()) if line.strip()), "")


class Bench:
    """The turns and questions, and what is measured on each peer."""

    def __init__(self, conversations: Sequence[Conversation], embed: Embed, pass_s: float = PASS_S) -> None:
        self._embed, self._pass_s = embed, pass_s
        self._questions = [(c.name, q) for c in conversations for q in c.questions]
        self._asked = [(user, question.text) for user, question in self._questions]
        self._turns: list[Turn] = [
            {
                "user": c.name,
                "name": name,
                "speaker": turn.speaker,
                "said": turn.said.isoformat() if turn.said else "",
                "thread": turn.thread,
                "text": turn.text,
            }
            for c in conversations
            for name, turn in c.turns.items()
        ]

    def row(self, name: str, peer: Peer, envs: Path) -> dict[str, Any]:
        """Everything measured on a peer; where that fails, its error."""
        row: dict[str, Any] = {"peer": name, "durable": peer.durable, "date": time.strftime("%Y-%m-%d")}
        try:
            python = environment(peer, envs)
            with tempfile.TemporaryDirectory() as folder:
                row |= self._whole(name, peer, python, Path(folder))
                for kind, batch, given in self._passes(peer):
                    _tell(f"{name}: adds, {kind}")
                    row[kind] = self._adds(peer, python, Path(folder) / kind, batch, given)
                row["syncs_per_add"] = self._syncs(peer, python, Path(folder))
        except PeerError as error:
            row["error"] = str(error)
        return row

    def _passes(self, peer: Peer) -> list[tuple[str, int, bool]]:
        """(name, turns in a call, vectors made beforehand) beside the pass that is searched."""
        single = [("single_given", 1, True)]
        return [*single, ("batch", BATCH, False), ("batch_given", BATCH, True)] if peer.batches else single

    @contextmanager
    def _open(self, peer: Peer, python: Path, folder: Path, under: Sequence[str] = ()) -> Iterator[Running]:
        folder.mkdir(parents=True, exist_ok=True)
        with Running(python, self._embed, folder.with_suffix(".log"), under) as running:
            running.ask(open=peer.module, variant=peer.variant, folder=str(folder))
            yield running

    def _whole(self, name: str, peer: Peer, python: Path, folder: Path) -> dict[str, Any]:
        """Every turn kept one by one, every question asked, and some again after a kill."""
        with self._open(peer, python, folder / "single") as running:
            versions = running.ask(versions=peer.packages)["versions"]
            self._warm(running)
            _tell(f"{name}: adds, single")
            added = _rates(running.ask(add=self._turns, batch=1, stop_s=1e9))
            _tell(f"{name}: searches")
            asked = running.ask(search=self._asked, k=K)
        with self._open(peer, python, folder / "single") as running:
            again = running.ask(search=self._asked[:_AGAIN], k=K)["found"]
        kept = [len({*new} & {*old}) / len({*old}) for new, old in zip(again, asked["found"], strict=False) if old]
        return {
            "versions": versions,
            "single": added,
            "search_ms": median(asked["ms"]),
            "search_own_ms": median(asked["own_ms"]),
            **self._scores(asked["found"]),
            "after_kill": mean(kept) if kept else 0.0,
        }

    def _scores(self, found: Sequence[Sequence[str]]) -> dict[str, float]:
        of = zip(self._questions, found, strict=True)
        rows = [figures([name in q.evidence for name in names], len(q.evidence)) for (_, q), names in of]
        scores = means(rows)
        return {name: scores[name] for name in (f"recall@{K}", "ndcg@10")}

    def _adds(self, peer: Peer, python: Path, folder: Path, batch: int, given: bool) -> dict[str, Any]:
        with self._open(peer, python, folder) as running:
            if given:
                running.ask(learn=self._turns)
            self._warm(running)
            users = {turn["user"]: None for turn in self._turns}
            parts = [[t for t in self._turns if t["user"] == user] for user in users] if batch > 1 else [self._turns]
            told = [running.ask(add=part, batch=batch, stop_s=self._pass_s / len(parts)) for part in parts]
        return _rates({key: sum(one[key] for one in told) for key in told[0]})

    def _warm(self, running: Running) -> None:
        """What comes with the first call only: models, tables, threads."""
        running.ask(add=[self._turns[0] | {"user": "nobody"}], batch=1, stop_s=1e9)
        running.ask(search=[("nobody", self._asked[0][1])], k=K)

    def _syncs(self, peer: Peer, python: Path, folder: Path) -> float | None:
        """Calls that wait for the disk, for each add; None where they cannot be counted."""
        if not shutil.which("strace"):
            return None
        trace = folder / "trace"
        under = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,msync", "-o", str(trace)]
        with self._open(peer, python, folder / "traced", under) as running:
            self._warm(running)
            before = trace.read_text("utf-8").count("sync(")
            running.ask(add=self._turns[1 : 1 + _SYNCED], batch=1, stop_s=1e9)
            return (trace.read_text("utf-8").count("sync(") - before) / len(self._turns[1 : 1 + _SYNCED])


def _rates(told: dict[str, Any]) -> dict[str, Any]:
    """told: turns, seconds until the last was kept and ready_s until all are found, embedding_s of that."""
    rates = {"per_s": told["turns"] / told["seconds"], "found_per_s": told["turns"] / told["ready_s"]}
    return rates | {"turns": told["turns"], "embedding_s": told["embedding_s"]}


def limited(conversations: Sequence[Conversation], turns: int) -> list[Conversation]:
    """The first so many turns, with the questions whose evidence is all among them. Raises InputError."""
    kept, left = [], turns
    for c in conversations:
        part = dict(list(c.turns.items())[:left])
        left -= len(part)
        kept.append(Conversation(c.name, part, tuple(q for q in c.questions if part.keys() >= {*q.evidence})))
    if not any(c.questions for c in kept):
        raise InputError(f"--limit {turns} leaves no question whose evidence is among the turns; give more")
    return [c for c in kept if c.turns]


def table(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    title = f"{report['turns']:,} turns, {report['questions']:,} questions, {report['machine']}, {report['date']}"
    lines = [
        title,
        "",
        "| | adds/s | found/s | adds/s, given | of 100 | of 100, given | search ms | with embedding | recall@10 "
        "| nDCG@10 | syncs an add | after a kill |",
        "|---|" + "---:|" * 11,
    ]
    for row in report["rows"]:
        if "error" in row:
            lines.append(f"| {row['peer']} | {row['error'].replace('|', '/')} |" + " |" * 10)
            continue
        adds = [_cell(row["single"]["per_s"]), _cell(row["single"]["found_per_s"])]
        adds += [_cell(row[kind]["per_s"]) if kind in row else "" for kind in ("single_given", "batch", "batch_given")]
        searches = [f"{row['search_own_ms']:.1f}", f"{row['search_ms']:.1f}"]
        scores = [f"{row[f'recall@{K}']:.3f}", f"{row['ndcg@10']:.3f}"]
        syncs = "" if row["syncs_per_add"] is None else f"{row['syncs_per_add']:.1f}"
        cells = [row["peer"], *adds, *searches, *scores, syncs, f"{row['after_kill']:.0%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def _tell(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def started(path: Path, about: dict[str, Any]) -> dict[str, Any]:
    """The report in the file, if it is about the same, to go on with; else a new one. Raises InputError."""
    if not path.exists():
        return about | {"rows": []}
    try:
        report = dict(json.loads(path.read_text("utf-8")))
        same = all(report[name] == about[name] for name in ("data", "turns", "questions", "machine"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"--json {path} is no report of this script ({reason}); name another file") from None
    if not same:
        raise InputError(f"--json {path} is about other turns or another machine; name another file, or remove it")
    return report


def chosen(names: Sequence[str]) -> dict[str, Peer]:
    """Raises InputError."""
    if unknown := [name for name in names if name not in PEERS]:
        raise InputError(f"--peer {unknown[0]!r} is not known; those that are: {'; '.join(PEERS)}")
    return {name: PEERS[name] for name in names or PEERS}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Raises MemosError."""
    peers = chosen(args.peer)
    conversations = read(args.data)
    if args.limit is not None:
        conversations = limited(conversations, args.limit)
    if not args.json.parent.is_dir():
        raise InputError(f"--json: there is no folder {args.json.parent} to write {args.json.name} into; make it first")
    around = surroundings(("torch", "transformers", "numpy"))
    about = {
        "data": args.data.name,
        "turns": sum(len(c.turns) for c in conversations),
        "questions": sum(len(c.questions) for c in conversations),
        "date": time.strftime("%Y-%m-%d"),
        **around,
    }
    report = started(args.json, about)
    embedder = Embedder(EmbedderConfig())
    embedder.embed(["ready"])
    bench = Bench(conversations, embedder.embed, args.pass_s)
    for name, peer in peers.items():
        rows = {row["peer"]: row for row in report["rows"]}
        if name in rows and "error" not in rows[name]:
            _tell(f"{name}: kept from {rows[name]['date']}")
            continue
        rows[name] = bench.row(name, peer, args.envs)
        report["rows"] = [rows[known] for known in PEERS if known in rows]
        part = args.json.with_suffix(".part")
        part.write_text(json.dumps(report, indent=1), "utf-8")
        part.replace(args.json)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a file of LoCoMo's form")
    parser.add_argument("--envs", type=Path, required=True, help="folder of the peers' environments; kept")
    parser.add_argument("--json", type=Path, required=True, help="the report; finished rows in it are kept")
    parser.add_argument("--limit", type=int, help="only so many turns")
    parser.add_argument("--peer", action="append", default=[], help=f"only this one: {'; '.join(PEERS)}")
    parser.add_argument("--pass-s", type=float, default=PASS_S, help="seconds for a pass that only times adds")
    args = parser.parse_args()
    try:
        print(table(run(args)))
    except MemosError as error:
        print(f"bench_peers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
