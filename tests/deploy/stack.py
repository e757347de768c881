"""The services of deploy/compose.yaml that run memos, as processes of this machine: by their own commands, environments
and checks of health, over a PostgreSQL server and an S3 server that stand for the containers beside them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
SECRETS = {"POSTGRES_PASSWORD": "none", "S3_ACCESS_KEY": "key", "S3_SECRET_KEY": "secret"}
BUCKET = "memos"
_VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]([^}]*))?\}")
_PATIENCE_S = 120.0


def compose() -> dict[str, Any]:
    """As it is written, variables and all."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return found


def variables(text: str) -> dict[str, str]:
    """What a text takes from the environment, with the default or the complaint of each."""
    return dict(_VARIABLE.findall(text))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a process of its own, so that two of them share nothing."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until_answered(f"http://127.0.0.1:{port}/")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def until_answered(url: str) -> None:
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except URLError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


class Stack:
    """What stands in for the network, the images and the volumes: names of hosts and paths are replaced."""

    def __init__(self, folder: Path, database: str, s3: str) -> None:
        """database, s3: where postgres and s3 of the compose file are here."""
        self.folder, self._running, self._ports = folder, dict[str, subprocess.Popen[str]](), dict[str, int]()
        self._places = {"postgresql://memos@postgres/memos": database, "http://s3:9000": s3, "0.0.0.0": "127.0.0.1"}
        self._places["/keys"] = str(folder / "keys")
        (folder / "keys").mkdir(exist_ok=True)

    def run(self, service: str, *arguments: str) -> str:
        """What `docker compose run --rm SERVICE ARGUMENTS` prints."""
        command, environment = self._process(service, list(arguments))
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, service: str) -> None:
        """`docker compose up -d --no-deps SERVICE`."""
        self._ports[service] = free_port()
        command, environment = self._process(service, compose()["services"][service]["command"])
        with (self.folder / f"{service}.log").open("a", encoding="utf-8") as log:
            self._running[service] = subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True)

    def stop(self, service: str) -> int:
        """By the image's STOPSIGNAL; the exit code."""
        [name] = re.findall(r"STOPSIGNAL (\w+)", (DEPLOY / "Dockerfile").read_text("utf-8"))
        process = self._running.pop(service)
        process.send_signal(signal.Signals[name])
        return process.wait(_PATIENCE_S)

    def stop_all(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self._ports[service]}"

    def is_healthy(self, service: str) -> bool:
        """What the service's own check says."""
        _, *check = compose()["services"][service]["healthcheck"]["test"]
        check = [sys.executable, *(self._here(word, service) for word in check[1:])]
        return subprocess.run(check, capture_output=True).returncode == 0

    def wait_until_healthy(self, service: str) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not self.is_healthy(service):
            assert self._running[service].poll() is None and time.monotonic() < until, self.log(service)
            time.sleep(0.2)

    def log(self, service: str) -> str:
        return (self.folder / f"{service}.log").read_text("utf-8")

    def _process(self, service: str, arguments: list[str]) -> tuple[list[str], dict[str, str]]:
        given = compose()["services"][service]
        environment = {name: self._here(str(value), service) for name, value in given["environment"].items()}
        vault = self.folder / service / "vault"
        vault.parent.mkdir(exist_ok=True)
        words = [self._config(service) if word.endswith("memos.yaml") else word for word in arguments]
        own = {"MEMOS_VAULT": str(vault), "OMP_NUM_THREADS": "1"}
        return [sys.executable, "-m", "memos", *words], {**os.environ, **environment, **own}

    def _config(self, service: str) -> str:
        file = self.folder / f"{service}.yaml"
        file.write_text(self._here((DEPLOY / "memos.yaml").read_text("utf-8"), service), "utf-8")
        return str(file)

    def _here(self, text: str, service: str) -> str:
        text = _VARIABLE.sub(lambda found: SECRETS[found[1]], text)
        for there, here in {**self._places, "8000": str(self._ports.get(service, 0))}.items():
            text = text.replace(there, here)
        return text
