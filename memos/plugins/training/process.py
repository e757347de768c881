"""Makes an adapter in a process of its own, where a crash or a lack of memory harms no request.

    here                                                    there: python -m memos.plugins.training.process
    {"model", "digest", "task", "work"}          ->         loads the model, crafts
    tell(...)                                    <-         {"phase", "step", "of", "loss"}, a line each
    Crafted, or the error raised again           <-         {"crafted"} or {"error", "message"}

Its input stays open as long as this process lives: when it ends, that one ends at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

from memos import errors
from memos.config import ModelConfig
from memos.errors import HostError, MemosError, NoRoom
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.teach import Crafted, Task, Tell
from memos.plugins.training.craft import craft

_NICENESS = 10  # requests go first


def craft_apart(host: Host, task: Task, work: Path, tell: Tell) -> Crafted:
    """`craft` in a process of its own, which ends when `tell` raises. Raises what `craft` raises, and NoRoom or
    HostError if the process died."""
    order = {
        "model": host.config.model_dump(mode="json"),
        "digest": host.digest,
        "task": task.model_dump(mode="json"),
        "work": str(work.absolute()),
    }
    # what it complains of goes to a file: nobody reads meanwhile, and a full pipe would stop it
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints,
        subprocess.Popen(
            _command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True, encoding="utf-8"
        ) as process,
    ):
        assert process.stdin and process.stdout
        try:
            with contextlib.suppress(BrokenPipeError):  # it died at once: its exit code and stderr say why
                process.stdin.write(json.dumps(order) + "\n")
                process.stdin.flush()
            crafted = _result(process.stdout, tell)
            if crafted is not None:
                return crafted
            code = process.wait()
            complaints.seek(0)
            raise _died(code, complaints.read())
        finally:
            process.kill()  # harmless if it has ended


def _command() -> list[str]:
    """-P: the folder that the user stands in is not for importing from."""
    safe_path = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *safe_path, "-m", "memos.plugins.training.process"]


def _result(lines: Iterable[str], tell: Tell) -> Crafted | None:
    """What the process sends back; None where it ends without a result. Raises the error that it sends."""
    for line in lines:
        message = json.loads(line)
        if "crafted" in message:
            return Crafted.model_validate(message["crafted"])
        if "error" in message:
            raise _again(message["error"], message["message"])
        tell(message["phase"], message["step"], message["of"], message["loss"])
    return None


def _died(code: int, stderr: str) -> MemosError:
    if code == -signal.SIGKILL:
        return NoRoom(
            "the training process was killed, as the system does where memory runs out; promote fewer memories at "
            "once, lower distil.batch and distil.batch_keep, or keep them as plaintext or KV"
        )
    last_line = " ".join(stderr.strip().splitlines()[-1:])
    return HostError(f"the training process ended with {code}: {last_line}; nothing was published")


def _again(name: str, message: str) -> MemosError:
    kind = getattr(errors, name, None)
    return kind(message) if isinstance(kind, type) and issubclass(kind, MemosError) else HostError(message)


def main() -> None:
    """What runs in the process: reads an order from stdin, crafts, and sends lines to stdout."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no line of the protocol

    def send(**line: object) -> None:
        print(json.dumps(line), file=out, flush=True)

    def tell(phase: str, step: int, steps: int, loss: float) -> None:
        send(phase=phase, step=step, of=steps, loss=loss)

    try:
        order = json.loads(sys.stdin.readline())
        threading.Thread(target=_exit_with_parent, daemon=True).start()
        os.nice(_NICENESS)
        tell("load", 0, 0, 0.0)
        host = Host.load(ModelConfig.model_validate(order["model"]))
        if host.digest != order["digest"]:
            raise HostError(f"{host.config.path} has changed since it was loaded; load it again, and promote then")
        send(crafted=craft(host, Task.model_validate(order["task"]), Path(order["work"]), tell).model_dump())
    except BrokenPipeError:  # nobody is there any more
        os._exit(1)
    except MemosError as error:
        send(error=type(error).__name__, message=str(error))
    except MemoryError:
        send(
            error="NoRoom", message="memory ran out in training; promote fewer memories at once, or lower distil.batch"
        )


def _exit_with_parent() -> None:
    """When the parent ends nobody could use what is made here, and it must not write where the next process does."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
