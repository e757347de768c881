"""Whatever fails between a vault and its bucket, and whoever is killed: nothing lost, half-read or left behind."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from memos.cube import Form, MemCube
from memos.errors import CorruptBlob, VaultError
from memos.infrastructure.vault.mem_vault import MemVault
from memos.plugins.care.check import problems_of
from memos.plugins.object_storage import bucket as buckets
from memos.plugins.object_storage import copies, tables
from memos.plugins.object_storage.object_shelf import ObjectShelf
from tests.plugins.care.test_check import payload, text
from tests.plugins.object_storage.s3 import S3, FaultyLine
from tests.plugins.object_storage.test_object_shelf import empty_cache, kv_of, objects, read

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["memos.infrastructure.vault.mem_vault", "memos.plugins.object_storage.store", "obstore"])
Later = Callable[[timedelta], None]


def content_of(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((0, 10, 5_000, 200_000)))


def shelf_of(vault: MemVault) -> ObjectShelf:
    assert isinstance(vault.blobs.shelf, ObjectShelf)
    return vault.blobs.shelf


def require_whole(s3: S3, bucket: str, vault: MemVault, live: dict[str, bytes]) -> None:
    """Every payload is what it was, nothing else is in the bucket."""
    vault.compact()
    for id, content in live.items():
        assert read(vault, vault.get(id)) == content
    named = {f"some/prefix/blobs/{key}" for (key,) in vault._db.rows("SELECT key FROM blob_objects")}
    states = {state for (state,) in vault._db.rows("SELECT state FROM blob_objects")}
    assert states <= {"here", "late"}
    here = vault._db.rows("SELECT key FROM blob_objects WHERE state = 'here'")
    assert sorted(objects(s3, bucket)) == sorted(f"some/prefix/blobs/{key}" for (key,) in here) and named
    assert len(here) == len({hashlib.sha256(content).hexdigest() for content in live.values()})
    assert problems_of(vault) == []


def run_over_a_bad_line(
    s3: S3, bucket: str, line: FaultyLine, folder: Path, seed: int, failures: int, later: Later
) -> tuple[int, int]:
    """Store, read and delete until so many requests have failed; (operations, those that were told as failed)."""
    chance, live, done, told = random.Random(seed), dict[str, bytes](), 0, 0
    url = f"s3://{bucket}/some/prefix"
    line.at_random(seed, 0.3)
    vault = MemVault(folder, blobs=url)
    while line.failed.total() < failures:
        done += 1
        try:
            match chance.randrange(6):
                case 0 | 1 | 2:
                    content = content_of(chance)
                    live[kv_of(vault, content).id] = content
                case 3 if live:
                    empty_cache(folder)
                    id = chance.choice(sorted(live))
                    assert read(vault, vault.get(id)) == live[id]
                case 4 if live:
                    id = chance.choice(sorted(live))
                    vault.delete([id])
                    del live[id]
                case 5:
                    vault.close()
                    vault = MemVault(folder)
        except CorruptBlob:
            raise
        except VaultError:
            told += 1
    line.fails = lambda method, path: None
    line.settle()
    vault.close()
    with MemVault(folder) as again:
        empty_cache(folder)
        again.blobs.settle()
        later(2 * tables.GIVEN_UP)
        require_whole(s3, bucket, again, live)
        assert live
    return done, told


@pytest.mark.crash
@pytest.mark.parametrize("seed", [1, 2])
def test_over_a_bad_line_nothing_is_lost_half_read_or_left_behind(
    s3: S3, bucket: str, line: FaultyLine, tmp_path: Path, impatient: None, later: Later, seed: int
) -> None:
    done, _ = run_over_a_bad_line(s3, bucket, line, tmp_path, seed, 12, later)
    assert done > 5


@pytest.mark.slow
@pytest.mark.crash
def test_over_a_bad_line_with_200_failures_nothing_is_lost_half_read_or_left_behind(
    s3: S3, bucket: str, line: FaultyLine, tmp_path: Path, impatient: None, later: Later
) -> None:
    done, told = run_over_a_bad_line(s3, bucket, line, tmp_path, 0, 200, later)
    assert done > 100 and set(line.failed) == {"refused", "500", "slow", "cut", "lost", "late"}
    print(f"{done} operations, {line.failed.total()} failed requests {dict(line.failed)}, {told} told")


# kills


def work(told: Connection, environment: dict[str, str], folder: Path, url: str, server: str | None, seed: int) -> None:
    """Store, read and delete payloads, and tell of each that was stored or is about to be deleted."""
    os.environ |= environment
    buckets._PAUSE_S, copies.LEASE_S = 0.0, 0.0
    chance, own = random.Random(seed), list[MemCube]()
    with MemVault(folder, url=server, blobs=url, cache_bytes=300_000) as vault:
        told.send(("open", ""))
        while True:
            if own and chance.random() < 0.3:
                gone = own.pop(chance.randrange(len(own)))
                told.send(("deleting", gone.id))
                vault.delete([gone.id])
            elif own and chance.random() < 0.3:
                read(vault, chance.choice(own))
            else:
                content = content_of(chance)
                own.append(payload(vault, Form.ACTIVATION, content, text(vault, f"Text {chance.random()}.")))
                told.send(("stored", own[-1].id, content))


def kill_again_and_again(
    s3: S3, bucket: str, line: FaultyLine, folder: Path, server: str | None, kills: int, seed: int, later: Later
) -> None:
    chance, live, doubtful = random.Random(seed), dict[str, bytes](), set[str]()
    url = f"s3://{bucket}/some/prefix"
    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    for n in range(kills):
        here, there = FORKED.Pipe()
        process = FORKED.Process(target=work, args=(there, environment, folder, url, server, seed + n))
        process.start()
        there.close()
        assert here.recv()[0] == "open"
        time.sleep(chance.random() * 0.3)
        assert process.pid
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL  # it had come to no end of its own
        try:
            while True:
                what, id, *content = here.recv()
                if what == "stored":
                    live[id] = content[0]
                else:
                    doubtful.add(id)
        except (EOFError, OSError):
            pass
        if n % 10 == 9 or n == kills - 1:
            line.settle()  # what those who are dead had asked for
            with MemVault(folder, url=server) as vault:
                there_are = {cube.id for cube in vault.cubes(form=Form.ACTIVATION)}
                assert live.keys() - doubtful <= there_are  # what was acknowledged is there
                found = {id: read(vault, vault.get(id)) for id in there_are}  # each compared with its digest
                assert {id: live[id] for id in there_are & live.keys()}.items() <= found.items()
                live = found  # with what was stored, and killed before that was told
                vault.blobs.settle()
                later(2 * tables.GIVEN_UP)
                require_whole(s3, bucket, vault, live)


@pytest.mark.crash
def test_whoever_is_killed_leaves_a_whole_vault(
    s3: S3, bucket: str, line: FaultyLine, tmp_path: Path, later: Later
) -> None:
    kill_again_and_again(s3, bucket, line, tmp_path, None, 8, 1, later)


@pytest.mark.crash
def test_whoever_is_killed_on_a_server_leaves_a_whole_vault(
    s3: S3, bucket: str, line: FaultyLine, tmp_path: Path, later: Later, new_url: Callable[[], str]
) -> None:
    kill_again_and_again(s3, bucket, line, tmp_path, new_url(), 4, 2, later)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("where", ["folder", "server"])
def test_after_100_kills_a_vault_is_whole(
    s3: S3, bucket: str, line: FaultyLine, tmp_path: Path, later: Later, request: pytest.FixtureRequest, where: str
) -> None:
    server = request.getfixturevalue("new_url")() if where == "server" else None
    kill_again_and_again(s3, bucket, line, tmp_path, server, 100, 3, later)


# what one process is about to publish


def test_a_collector_takes_nothing_that_another_process_is_about_to_publish(
    s3: S3, bucket: str, url: str, tmp_path: Path, new_url: Callable[[], str], later: Later
) -> None:
    server = new_url()
    with MemVault(tmp_path / "a", url=server, blobs=url) as a, MemVault(tmp_path / "b", url=server, blobs=url) as b:
        source = text(a, "One.")
        with a.blobs.staging() as staged:
            staged.write_bytes(b"k" * 5000)
            name = hashlib.sha256(b"k" * 5000).hexdigest()
            shelf_of(a).bring(name, staged, ".safetensors")
            shelf_of(b).settle(thorough=True)
            assert len(objects(s3, bucket)) == 1  # it is coming, and nobody's to take
            later(2 * tables.GIVEN_UP)
            shelf_of(b).settle(thorough=True)
            assert objects(s3, bucket) == []  # it came for too long, and was given up
            with a.transaction():
                shelf_of(a).put(name, staged)  # which its bringer finds, and brings it again
        cube = payload(a, Form.ACTIVATION, b"k" * 5000, source)
        assert read(b, cube) == b"k" * 5000 and len(objects(s3, bucket)) == 1


def test_of_two_who_bring_the_same_at_once_one_is_kept(
    s3: S3, bucket: str, url: str, tmp_path: Path, new_url: Callable[[], str]
) -> None:
    server = new_url()
    with MemVault(tmp_path / "a", url=server, blobs=url) as a, MemVault(tmp_path / "b", url=server, blobs=url) as b:
        file, name = tmp_path / "x.safetensors", hashlib.sha256(b"x").hexdigest()
        file.write_bytes(b"x")
        for vault in (a, b):
            shelf_of(vault).bring(name, file, ".safetensors")
        assert len(objects(s3, bucket)) == 2
        for vault in (a, b):
            with vault.transaction():
                shelf_of(vault).put(name, file)
        a.blobs.settle()
        assert len(objects(s3, bucket)) == 1
        path = shelf_of(b).fetch(name, tmp_path / name, ".safetensors")
        assert path and path.read_bytes() == b"x"


def test_a_put_whose_answer_is_lost_is_known_for_what_it_is(
    s3: S3, bucket: str, url: str, line: FaultyLine, tmp_path: Path
) -> None:
    with MemVault(tmp_path, blobs=url) as vault:
        faults = iter(["lost"])
        line.fails = lambda method, path: next(faults, None) if method == "PUT" else None  # type: ignore[assignment, arg-type, return-value]
        kv = kv_of(vault, b"k" * 5000)
        assert line.failed["lost"] == 1 and len(objects(s3, bucket)) == 1 and read(vault, kv) == b"k" * 5000


def test_a_put_that_arrives_after_it_was_given_up_is_deleted_later(
    s3: S3, bucket: str, url: str, line: FaultyLine, tmp_path: Path, later: Later, impatient: None
) -> None:
    with MemVault(tmp_path, blobs=url) as vault:
        line.fails = lambda method, path: "late" if method == "PUT" else None
        with pytest.raises(VaultError, match="was not written to s3://"):
            kv_of(vault, b"k" * 5000)
        line.fails = lambda method, path: None
        vault.blobs.settle()
        assert objects(s3, bucket) == []
        line.settle()
        assert len(objects(s3, bucket)) == 1
        later(2 * tables.GIVEN_UP)
        vault.blobs.settle()
        assert objects(s3, bucket) == [] and vault._db.rows("SELECT key FROM blob_objects") == []


def test_what_no_row_names_goes_when_the_vault_is_compacted(s3: S3, bucket: str, url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path, blobs=url) as vault:
        kv = kv_of(vault, b"k" * 5000)
        with pytest.raises(RuntimeError), vault.transaction():
            kv_of(vault, b"j" * 5000)  # its row goes with the transaction
            raise RuntimeError
        assert len(objects(s3, bucket)) == 2
        vault.compact()
        assert len(objects(s3, bucket)) == 1 and read(vault, kv) == b"k" * 5000
