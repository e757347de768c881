"""Making an adapter in a process of its own: a crash or a lack of memory there harms no request here.

    here                                                    there: python -m memos.infrastructure.host.training.worker
    {"model", "digest", "task", "work"}          ->         loads the model, crafts
    tell(...)                                    <-         {"phase", "step", "of", "loss"}, a line each
    Crafted, or the error raised again           <-         {"crafted"} or {"error", "message"}

Its input stays open as long as this process lives: when it ends, that one ends at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from memos import errors
from memos.config import ModelConfig
from memos.errors import HostError, MemosError, NoRoom
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.teach import Crafted, Task, Tell, craft

_POLITE = 10  # niceness: requests go first


def craft_apart(host: Host, task: Task, work: Path, tell: Tell) -> Crafted:
    """`craft` in a process of its own, which ends when `tell` raises. Raises what `craft` raises, and NoRoom or
    HostError if the process died."""
    order = {
        "model": host.config.model_dump(mode="json"),
        "digest": host.digest,
        "task": task.model_dump(mode="json"),
        "work": str(work.absolute()),
    }
    # -P: the folder that the user stands in is not for importing from
    command = [sys.executable, "-P", "-m", "memos.infrastructure.host.training.worker"]
    if sys.version_info < (3, 11):
        command.remove("-P")
    # what it complains of goes to a file: nobody reads meanwhile, and a full pipe would stop it
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True, encoding="utf-8"
        ) as there,
    ):
        assert there.stdin and there.stdout
        try:
            with contextlib.suppress(BrokenPipeError):  # it died at once: its end tells why
                there.stdin.write(json.dumps(order) + "\n")
                there.stdin.flush()
            for line in there.stdout:
                said = json.loads(line)
                if "crafted" in said:
                    return Crafted.model_validate(said["crafted"])
                if "error" in said:
                    raise _again(said["error"], said["message"])
                tell(said["phase"], said["step"], said["of"], said["loss"])
            code = there.wait()
            complaints.seek(0)
            why = complaints.read().strip().splitlines()[-1:]
        finally:
            there.kill()  # harmless if it has ended
    if code == -9:
        raise NoRoom(
            "the training process was killed, as the system does where memory runs out; promote fewer memories at "
            "once, lower distil.batch and distil.batch_keep, or keep them as plaintext or KV"
        )
    raise HostError(f"the training process ended with {code}: {' '.join(why)}; nothing was published")


def _again(name: str, message: str) -> MemosError:
    kind = getattr(errors, name, None)
    return kind(message) if isinstance(kind, type) and issubclass(kind, MemosError) else HostError(message)


def main() -> None:
    """The other side."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no line of the protocol

    def say(**line: Any) -> None:
        print(json.dumps(line), file=out, flush=True)

    def tell(phase: str, step: int, of: int, loss: float) -> None:
        say(phase=phase, step=step, of=of, loss=loss)

    try:
        order = json.loads(sys.stdin.readline())
        threading.Thread(target=_end_with_the_other, daemon=True).start()
        os.nice(_POLITE)
        tell("load", 0, 0, 0.0)
        host = Host.load(ModelConfig.model_validate(order["model"]))
        if host.digest != order["digest"]:
            raise HostError(f"{host.config.path} has changed since it was loaded; load it again, and promote then")
        say(crafted=craft(host, Task.model_validate(order["task"]), Path(order["work"]), tell).model_dump())
    except BrokenPipeError:  # nobody is there any more
        os._exit(1)
    except MemosError as error:
        say(error=type(error).__name__, message=str(error))
    except MemoryError:
        say(error="NoRoom", message="memory ran out in training; promote fewer memories at once, or lower distil.batch")


def _end_with_the_other() -> None:
    """Nobody is left who could use what is made here, and it must not write where the next one does."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
