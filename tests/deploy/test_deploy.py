"""The files of deploy/: what they name is there, and their services work together, upgraded, backed up and restored."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from memos.bench.serve import Client
from memos.config import load_config
from memos.cube import Form
from memos.operation.choosing.upkeep import JobKind
from tests.conftest import running_server
from tests.deploy.stack import BUCKET, DEPLOY, SECRETS, Stack, compose, s3_server, variables

ROOT = DEPLOY.parent
OURS = ("server-a", "server-b", "worker")
CONFIG = "/etc/memos/memos.yaml"


# -- what the files name ----------------------------------------------------------------------------------------------


def test_every_service_and_volume_that_is_named_is_there() -> None:
    services, volumes = compose()["services"], compose()["volumes"]
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in volumes, (name, volume)
    assert set(OURS) <= set(services)


def test_every_variable_is_in_the_example_and_no_password_has_a_default() -> None:
    asked = variables((DEPLOY / "compose.yaml").read_text("utf-8"))
    example = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "env.example").read_text("utf-8"), re.M))
    assert set(asked) == set(example)
    assert all(example[name] == "" for name in SECRETS)


def test_who_is_waited_for_says_when_it_is_ready() -> None:
    services = compose()["services"]
    for service in services.values():
        for name, how in service.get("depends_on", {}).items():
            assert how["condition"] == "service_completed_successfully" or "healthcheck" in services[name], name


def test_a_container_is_given_longer_to_stop_than_its_requests() -> None:
    grace_s = load_config(DEPLOY / "memos.yaml").serve.grace_s
    assert all(int(compose()["services"][name]["stop_grace_period"].rstrip("s")) > grace_s for name in OURS)


def test_the_image_is_made_of_what_is_there() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text("utf-8")
    allowed = {
        line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines() if line[0] == "!"
    }
    copied = {name for names in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.M) for name in names.split()}
    assert copied == allowed and all((ROOT / name).exists() for name in copied)
    extras = set(re.findall(r"--extra (\S+)", dockerfile))
    known = re.findall(r"^([\w-]+) = \[", (ROOT / "pyproject.toml").read_text("utf-8"), re.M)
    assert {"serve", "postgres", "object-storage"} <= extras <= set(known)


# -- what the services do ---------------------------------------------------------------------------------------------


@dataclass
class Asking:
    """Somebody who asks whichever server answers, all the time: what an upgrade must not be noticed by."""

    stack: Stack
    key: str
    question: str
    expected: str
    over: threading.Event = field(default_factory=threading.Event)
    answered: int = 0
    wrong: list[str] = field(default_factory=list)

    def ask(self) -> None:
        while not self.over.is_set():
            said = [self._one(service) for service in ("server-a", "server-b")]
            self.answered += 1
            if not any(self.expected in reply for reply in said):
                self.wrong.append(repr(said))

    def _one(self, service: str) -> str:
        try:
            with closing(Client(self.stack.url(service), self.key)) as client:
                return json.dumps(client.call("search", query=self.question)[1])
        except (OSError, ValueError) as error:  # it stops, or is not there yet: the next one is asked
            return repr(error)


@pytest.fixture(scope="module")
def database() -> Iterator[Any]:
    pytest.importorskip("psycopg")
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    with running_server() as server:
        server.psql("CREATE DATABASE memos;")
        server.psql("CREATE DATABASE restored;")
        yield server


def url_of(server: Any, name: str) -> str:
    return re.sub(r"/postgres\?", f"/{name}?", server.get_uri())


def tool(server: Any, name: str, *arguments: str) -> None:
    """A program that comes with PostgreSQL."""
    import pgserver

    program = Path(pgserver.__file__).parent / "pginstall" / "bin" / name
    subprocess.run([program, *arguments], check=True, capture_output=True, text=True, timeout=120)


def bucket_at(endpoint: str) -> Any:
    from obstore.store import S3Store

    given = {"endpoint": endpoint, "access_key_id": "key", "secret_access_key": "secret", "region": "us-east-1"}
    return S3Store(BUCKET, config=given, client_options={"allow_http": True})


def make_bucket(endpoint: str) -> Any:
    """What the service `bucket` does."""
    import boto3

    given = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **given).create_bucket(Bucket=BUCKET)
    return bucket_at(endpoint)


def copied(source: Any, target: Any) -> int:
    """What `mc mirror` does."""
    import obstore

    keys = [one["path"] for chunk in obstore.list(source) for one in chunk]
    for key in keys:
        obstore.put(target, key, obstore.get(source, key).bytes())
    return len(keys)


def queue_kv(stack: Stack, database: str) -> None:
    """A job for the worker: all memories as KV."""
    from memos.infrastructure.vault.mem_vault import MemVault

    with MemVault(stack.folder / "here", url=database) as vault:
        sources = [f"{cube.id}@{cube.version}" for cube in vault.cubes(form=Form.PLAINTEXT)]
        vault.jobs.queue(JobKind.ENCODE, {"sources": sources, "why": "a test"})


def wait_for_kv(client: Client) -> dict[str, Any]:
    """The KV that a worker has made, once it is there."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        _, reply = client.call("get_all", form="activation")
        if reply["results"]:
            return dict(reply["results"][0])
        time.sleep(0.2)
    raise AssertionError("the worker made no KV")


@pytest.mark.slow
def test_the_services_share_a_vault_are_upgraded_one_by_one_and_come_back_from_a_backup(
    database: Any, tmp_path: Path
) -> None:
    rows = url_of(database, "memos")
    with s3_server() as s3:
        bucket, stack = make_bucket(s3), Stack(tmp_path, rows, s3)
        try:
            key = json.loads(stack.run("server-a", "key", "add", "ada", "--config", CONFIG, "--json"))["key"]
            for service in OURS:
                stack.start(service)
            for service in OURS[:2]:
                stack.wait_until_healthy(service)
            a, b = (Client(stack.url(service), key) for service in OURS[:2])
            assert a.call("add", messages="I live in Oslo.")[0] == 200
            assert "Oslo" in json.dumps(b.call("search", query="Where do I live?"))
            queue_kv(stack, rows)
            kv = wait_for_kv(b)
            told = b.call("chat", messages="Where do I live?", via="activation")
            assert told[0] == 200 and told[1]["text"].startswith("Oslo"), told
            upgrade(stack, key)
            backed_up(database, rows, bucket, tmp_path / "backup")
        finally:
            stack.stop_all()
    restored(database, tmp_path, key, kv["id"])


def upgrade(stack: Stack, key: str) -> None:
    """One after the other is stopped, begun again, and waited for, while somebody asks; the worker ends before."""
    assert stack.stop("worker") == 0, stack.log("worker")
    asking = Asking(stack, key, "Where do I live?", "Oslo")
    thread = threading.Thread(target=asking.ask)
    thread.start()
    try:
        for service in ("server-a", "server-b"):
            assert stack.stop(service) == 0, stack.log(service)
            stack.start(service)
            stack.wait_until_healthy(service)
    finally:
        asking.over.set()
        thread.join()
    assert not asking.wrong and asking.answered > 20, asking


def backed_up(database: Any, rows: str, bucket: Any, folder: Path) -> None:
    """The rows first, and the objects that they name after them."""
    import obstore

    folder.mkdir()
    tool(database, "pg_dump", "-Fc", "-f", str(folder / "rows.dump"), rows)
    target = obstore.store.LocalStore(str(folder / "bucket"), mkdir=True)
    assert copied(bucket, target) >= 2  # the KV, and whose it is


def restored(database: Any, folder: Path, key: str, kv: str) -> None:
    """Over a new database and a new S3 server, from the backup alone."""
    import obstore

    rows, backup = url_of(database, "restored"), folder / "backup"
    new = folder / "new"
    new.mkdir()
    with s3_server() as s3:
        copied(obstore.store.LocalStore(str(backup / "bucket")), make_bucket(s3))
        tool(database, "pg_restore", "--no-owner", "-d", rows, str(backup / "rows.dump"))
        stack = Stack(new, rows, s3)
        shutil.copytree(folder / "keys", new / "keys", dirs_exist_ok=True)  # none is there before anything was signed
        try:
            stack.run("server-a", "vault", "move-blobs", "s3://memos/vault", "--adopt", "--config", CONFIG)
            stack.run("server-a", "vault", "check", "--config", CONFIG)
            stack.start("server-a")
            stack.wait_until_healthy("server-a")
            client = Client(stack.url("server-a"), key)
            assert [one["id"] for one in client.call("get_all", form="activation")[1]["results"]] == [kv]
            status, told = client.call("chat", messages="Where do I live?", via="activation")
            assert status == 200 and told["text"].startswith("Oslo"), told
            assert client.call("add", messages="I work as a nurse.")[0] == 200
        finally:
            stack.stop_all()
