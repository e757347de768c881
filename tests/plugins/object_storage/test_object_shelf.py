"""Payloads in a bucket: kept, found, cached, moved and deleted as those in a folder are."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from memos.config import VaultConfig
from memos.cube import Form, MemCube
from memos.errors import CorruptBlob, VaultError
from memos.infrastructure.vault.mem_vault import MemVault
from memos.plugins.care import backup, care
from memos.plugins.care.check import problems_of
from memos.plugins.encryption import recrypt
from memos.plugins.object_storage import copies, moving
from memos.plugins.object_storage.object_shelf import ObjectShelf
from tests.plugins.care.test_check import payload, text
from tests.plugins.object_storage.s3 import S3, FaultyLine

ADAPTER = {"adapter_config.json": b"{}", "empty": b"", "adapter_model.safetensors": b"w" * 99}


def kv_of(vault: MemVault, content: bytes) -> MemCube:
    return payload(vault, Form.ACTIVATION, content, text(vault, f"A text for {content[:8]!r}."))


def read(vault: MemVault, cube: MemCube) -> bytes:
    assert cube.blob
    return vault.blobs.path(cube.blob).read_bytes()


def local(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


def empty_cache(folder: Path) -> None:
    shutil.rmtree(folder / "blobs")


def objects(s3: S3, bucket: str) -> list[str]:
    return [key for key in s3.keys(bucket) if "/blobs/" in key]


def age(folder: Path) -> None:
    """All copies were used two hours ago."""
    for path in local(folder):
        used(path, 7200)


def used(path: Path, ago_s: float) -> None:
    os.utime(path, (time.time() - ago_s,) * 2)


# what is kept


@pytest.mark.parametrize("sealed", [False, True])
def test_payloads_lie_in_the_bucket_and_are_copied_from_it_when_they_are_read(
    s3: S3, url: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    monkeypatch.setenv("KEY", "0" * 64)
    key = "env:KEY" if sealed else None
    content = os.urandom(20 << 20)
    with MemVault(tmp_path, key=key, blobs=url) as vault:
        kv = kv_of(vault, content)
        adapter = payload(vault, Form.PARAMETRIC, ADAPTER, text(vault, "Two."))
        assert len(objects(s3, bucket)) == 2 and problems_of(vault) == []
        assert kv.blob and adapter.blob
        assert any(kv.blob.sha256 in key for key in objects(s3, bucket)) is not sealed
        vault.blobs.forget_lent(kv.blob)
        vault.blobs.forget_lent(adapter.blob)
        empty_cache(tmp_path)
        assert read(vault, kv) == content
        folder = vault.blobs.path(adapter.blob)
        assert {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == ADAPTER
    with MemVault(tmp_path) as again:  # the vault itself knows where they are
        assert read(again, kv) == content
        again.delete([kv.id, adapter.id])
        assert objects(s3, bucket) == [] and local(tmp_path) == [] and problems_of(again) == []


def test_two_machines_share_a_bucket_over_one_server(
    s3: S3, url: str, bucket: str, new_url: object, tmp_path: Path
) -> None:
    server = new_url()  # type: ignore[operator]
    with MemVault(tmp_path / "a", url=server, blobs=url) as a, MemVault(tmp_path / "b", url=server, blobs=url) as b:
        kv = kv_of(a, b"k" * 5000)
        assert read(b, kv) == b"k" * 5000 and len(objects(s3, bucket)) == 1
        same = payload(b, Form.ACTIVATION, b"k" * 5000, text(b, "The same content again."))
        assert same.blob == kv.blob and len(objects(s3, bucket)) == 1
        a.delete([kv.id])
        assert read(b, same) == b"k" * 5000
        a.delete([same.id])
        text(b, "A write on the other machine.")
        assert objects(s3, bucket) == [] and local(tmp_path / "b") == []
        assert a.index.save("layout", "e", a.last_change(), {}) and b.index.load("layout", "e")
        assert problems_of(a) == [] and care.check(tmp_path / "b") == []


def test_a_payload_that_is_damaged_in_the_bucket_is_named_and_never_cached(
    s3: S3, url: str, bucket: str, tmp_path: Path
) -> None:
    with MemVault(tmp_path, blobs=url) as vault:
        kv = kv_of(vault, b"k" * 5000)
        assert kv.blob
        [key] = objects(s3, bucket)
        s3.ask("PUT", f"{bucket}/{key}", b"")
        assert read(vault, kv) == b"k" * 5000  # the copy here is sound
        empty_cache(tmp_path)
        with pytest.raises(CorruptBlob, match="does not match its digest"):
            vault.blobs.path(kv.blob)
        s3.ask("PUT", f"{bucket}/{key}", b"k" * 4999 + b"x")
        for verified in (True, False):
            with pytest.raises(CorruptBlob, match="does not match its digest; demote its cube, or promote"):
                vault.blobs.path(kv.blob, verified=verified)
        assert local(tmp_path) == []
        assert [f"cube {kv.id} cannot be used" in problem for problem in problems_of(vault)] == [True]
        payload(vault, Form.ACTIVATION, b"k" * 5000, text(vault, "Made again."))  # takes the place of the damaged one
        empty_cache(tmp_path)
        assert read(vault, kv) == b"k" * 5000 and len(objects(s3, bucket)) == 1 and problems_of(vault) == []


def test_a_copy_that_is_damaged_here_is_fetched_again(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path, blobs=url) as vault:
        kv = kv_of(vault, b"k" * 5000)
        adapter = payload(vault, Form.PARAMETRIC, ADAPTER, text(vault, "Two."))
        assert kv.blob and adapter.blob
        vault.blobs.path(kv.blob).write_bytes(b"spoilt")
        (vault.blobs.path(adapter.blob) / "adapter_config.json").write_bytes(b"spoilt")
        assert read(vault, kv) == b"k" * 5000
        assert (vault.blobs.path(adapter.blob) / "adapter_config.json").read_bytes() == b"{}"


def test_an_object_that_is_missing_is_told_from_a_bucket_that_is_another_one(
    s3: S3, url: str, bucket: str, tmp_path: Path
) -> None:
    with MemVault(tmp_path, blobs=url) as vault:
        kv = kv_of(vault, b"k" * 5000)
        for key in objects(s3, bucket):
            s3.ask("DELETE", f"{bucket}/{key}")
        empty_cache(tmp_path)
        with pytest.raises(CorruptBlob, match="is missing from s3://.*; demote its cube"):
            read(vault, kv)
        for key in s3.keys(bucket):
            s3.ask("DELETE", f"{bucket}/{key}")
        with pytest.raises(VaultError, match="has nothing of this vault: it was emptied, or") as error:
            read(vault, kv)
        assert not isinstance(error.value, CorruptBlob)  # else the cube would be given up for lost


# copies on this machine


def test_copies_stay_within_their_budget_and_the_least_recently_used_go(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path, blobs=url, cache_bytes=25_000) as vault:
        kvs = [kv_of(vault, bytes([n]) * 10_000) for n in range(5)]
        assert len(local(tmp_path)) == 5  # all were used just now
        age(tmp_path)
        assert read(vault, kvs[1]) == b"\1" * 10_000
        text(vault, "Something else.")
        sixth = kv_of(vault, b"six" * 3000)
        assert kvs[1].blob and sixth.blob
        assert {path.stem for path in local(tmp_path)} == {kvs[1].blob.sha256, sixth.blob.sha256}
        for n, kv in enumerate(kvs):  # however small it is, nothing fails
            assert read(vault, kv) == bytes([n]) * 10_000


def test_an_adapter_that_a_training_may_wait_with_stays_longer(url: str, tmp_path: Path) -> None:
    with MemVault(tmp_path, blobs=url, cache_bytes=0) as vault:
        adapter = payload(vault, Form.PARAMETRIC, ADAPTER, text(vault, "Two."))
        assert adapter.blob
        path = vault.blobs.path(adapter.blob)
        for file in path.iterdir():
            used(file, copies.FOLDER_LEASE_S - 60)
        kv_of(vault, b"k" * 100)
        assert path.exists()
        for file in path.iterdir():
            used(file, copies.FOLDER_LEASE_S + 60)
        kv_of(vault, b"j" * 100)
        assert not path.exists()


def test_a_full_disk_makes_room_and_where_that_is_not_enough_it_is_named(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MemVault(tmp_path, blobs=url) as vault:
        kvs = [kv_of(vault, bytes([n]) * 10_000) for n in range(3)]
        empty_cache(tmp_path)
        for kv in kvs[:2]:
            read(vault, kv)
        age(tmp_path)
        real = os.write

        def full(file: int, content: bytes) -> int:
            if len(local(tmp_path)) > room:
                raise OSError(28, "No space left on device")
            return real(file, content[: len(content) // 2 + 1])  # a part of it, as the system may

        monkeypatch.setattr(os, "write", full)
        room = 1  # the part that is being written
        assert read(vault, kvs[2]) == b"\2" * 10_000
        room = 0
        with pytest.raises(VaultError, match="was not copied from s3://.*No space left.*has room"):
            read(vault, kvs[0])
        assert not [path for path in local(tmp_path) if path.suffix == ".part"]


# a vault that is given a bucket, and one that is moved or copied


def test_payloads_of_a_folder_are_read_there_until_they_are_moved_and_come_home_again(
    s3: S3, url: str, bucket: str, tmp_path: Path
) -> None:
    with MemVault(tmp_path) as vault:
        before = kv_of(vault, b"before" * 999)
        adapter = payload(vault, Form.PARAMETRIC, ADAPTER, text(vault, "Two."))
    with MemVault(tmp_path, blobs=url, cache_bytes=0) as vault:
        after = kv_of(vault, b"after" * 999)
        age(tmp_path)
        kv_of(vault, b"more" * 999)
        assert read(vault, before) == b"before" * 999  # the only one there is: no budget takes it
        assert len(objects(s3, bucket)) == 2 and problems_of(vault) == []
    assert moving.move(tmp_path, VaultConfig(), url, False, lambda *_: None)[1:] == (2, 0)
    assert len(objects(s3, bucket)) == 4 and care.check(tmp_path) == []
    assert moving.move(tmp_path, VaultConfig(), f"{url}/next", False, lambda *_: None)[1:] == (4, 0)
    assert [key.startswith("some/prefix/next/") for key in objects(s3, bucket)] == [True] * 4
    empty_cache(tmp_path)
    assert moving.move(tmp_path, VaultConfig(), None, False, lambda *_: None)[1:] == (4, 0)
    assert s3.keys(bucket) == [] and care.check(tmp_path) == []
    with MemVault(tmp_path) as vault:
        assert vault.blobs.shelf is None and adapter.blob
        assert read(vault, after) == b"after" * 999 and (vault.blobs.path(adapter.blob) / "empty").exists()


def test_payloads_of_a_server_move_to_a_bucket_and_home(
    s3: S3, url: str, bucket: str, new_url: object, tmp_path: Path
) -> None:
    settings = VaultConfig(url=new_url())  # type: ignore[operator]
    with MemVault(tmp_path, url=settings.server) as vault:
        kv = kv_of(vault, b"k" * 5000)
    assert moving.move(tmp_path, settings, url, False, lambda *_: None)[1:] == (1, 0)
    with MemVault(tmp_path, url=settings.server) as vault:
        assert vault._db.rows("SELECT count(*) FROM payloads") == [(0,)] and len(objects(s3, bucket)) == 1
    assert moving.move(tmp_path, settings, None, False, lambda *_: None)[1:] == (1, 0)
    shutil.rmtree(tmp_path / "blobs")
    with MemVault(tmp_path, url=settings.server) as vault:
        assert read(vault, kv) == b"k" * 5000 and s3.keys(bucket) == []


def test_a_copy_of_a_vault_deletes_nothing_in_the_bucket_of_the_first(
    s3: S3, url: str, bucket: str, tmp_path: Path
) -> None:
    with MemVault(tmp_path / "a", blobs=url) as vault:
        kv = kv_of(vault, b"k" * 5000)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    empty_cache(tmp_path / "b")
    with MemVault(tmp_path / "b") as other:
        assert read(other, kv) == b"k" * 5000
        with pytest.raises(VaultError, match="is of the vault in .*/a .*a bucket or prefix of its own.*--adopt"):
            kv_of(other, b"j" * 5000)
        other.delete([kv.id])
        other.blobs.settle()
    assert len(objects(s3, bucket)) == 1
    with MemVault(tmp_path / "b", blobs=f"s3://{bucket}/other") as other:
        kv_of(other, b"j" * 5000)
    shutil.rmtree(tmp_path / "a" / "blobs")
    (tmp_path / "a").rename(tmp_path / "c")  # a vault that was moved takes its bucket along
    assert moving.move(tmp_path / "c", VaultConfig(), url, True, lambda *_: None)[1:] == (0, 0)
    with MemVault(tmp_path / "c") as moved:
        assert read(moved, kv) == b"k" * 5000
        moved.delete([kv.id])
    assert not [key for key in objects(s3, bucket) if key.startswith("some")]


def test_a_backup_holds_the_payloads_and_what_is_made_of_it_needs_no_bucket(
    s3: S3, url: str, bucket: str, tmp_path: Path, line: FaultyLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sealed in (False, True):
        monkeypatch.setenv("KEY", "0" * 64)
        base = tmp_path / str(sealed)
        base.mkdir()
        settings = VaultConfig(key="env:KEY" if sealed else None, blobs=f"{url}/{sealed}")
        with MemVault(base / "vault", key=settings.key, blobs=settings.blobs) as vault:
            kv = kv_of(vault, b"k" * 5000)
            adapter = payload(vault, Form.PARAMETRIC, ADAPTER, text(vault, "Two."))
            empty_cache(base / "vault")
            care.back_up(base / "vault", base / "backup", settings=settings)
        line.fails = lambda method, path: "refused"  # the bucket is gone
        assert backup.problems(base / "backup") == []
        care.restore(base / "backup", base / "again")
        with MemVault(base / "again") as again:
            assert adapter.blob and read(again, kv) == b"k" * 5000 and problems_of(again) == []
            assert (again.blobs.path(adapter.blob) / "adapter_config.json").read_bytes() == b"{}"
            again.delete([kv.id])
        line.fails = lambda method, path: None


def test_a_vault_with_a_bucket_is_not_encrypted_under_another_key(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "0" * 64)
    with MemVault(tmp_path, blobs=url) as vault:
        kv_of(vault, b"k" * 5000)
    with pytest.raises(VaultError, match="lie in s3://.*move-blobs home"):
        recrypt.encrypt(tmp_path, "env:KEY")
    assert care.check(tmp_path) == []


# refused by name, and nothing is lost


def test_what_is_wrong_with_a_bucket_is_named_and_texts_are_kept_all_the_same(
    s3: S3, bucket: str, line: FaultyLine, tmp_path: Path, caplog: pytest.LogCaptureFixture, impatient: None
) -> None:
    def unconditional(method: str, headers: object) -> tuple[int, str] | None:
        given = dict(headers.items())  # type: ignore[attr-defined]
        refused = method == "PUT" and "if-none-match" in {name.lower() for name in given}
        return (501, "<Error><Code>NotImplemented</Code><Message>no</Message></Error>") if refused else None

    denied = (403, "<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>")
    for n, (place, answers, said) in enumerate(
        (
            (f"s3://{bucket}-none/x", lambda *_: None, "NoSuchBucket.*create it, or mend vault.blobs"),
            (f"s3://{bucket}/x", unconditional, "refuses conditional puts .If-None-Match.: name a bucket"),
            (f"s3://{bucket}/x", lambda *_: denied, "InvalidAccessKeyId.*credentials are refused: mend AWS_ACCESS"),
            (f"s3://{bucket}/x", lambda *_: (500, ""), "see that its endpoint is up .*answer as text meanwhile"),
        )
    ):
        line.answers = answers  # type: ignore[assignment]
        caplog.clear()
        with MemVault(tmp_path / str(n), blobs=place) as vault:
            assert len(caplog.records) == 1
            kept = text(vault, "Kept.")
            with pytest.raises(VaultError, match=said) as error:
                kv_of(vault, b"k" * 5000)
            assert "Debug source" not in str(error.value) and len(str(error.value)) < 700
            line.answers = lambda *_: None
            if "none" in place:
                s3.bucket(f"{bucket}-none")
            kv = kv_of(vault, b"k" * 5000)  # once it is mended, all goes on
            assert vault.get(kept.id).text == "Kept." and read(vault, kv) == b"k" * 5000
            assert moving.move is not None and problems_of(vault) == []
            vault.delete([kv.id])
        shutil.rmtree(tmp_path / str(n))
        for key in s3.keys(bucket):
            s3.ask("DELETE", f"{bucket}/{key}")


def test_a_bucket_that_lets_an_object_be_created_twice_is_refused(
    bucket: str, line: FaultyLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tests.plugins.object_storage.s3 as between

    real = between._sent
    drop = lambda *a: real(*a[:4], {k: v for k, v in a[4].items() if k.lower() != "if-none-match"})  # noqa: E731
    monkeypatch.setattr(between, "_sent", drop)
    with MemVault(tmp_path, blobs=f"s3://{bucket}/x") as vault:
        with pytest.raises(VaultError, match="does not honour conditional puts .*two vaults could take it for theirs"):
            kv_of(vault, b"k" * 5000)


@pytest.mark.parametrize(
    "place, said",
    [
        ("ftp://host/x", "'ftp://host/x', which nothing serves; give s3://BUCKET"),
        ("s3://", "which nothing serves"),
        ("bucket", "which nothing serves"),
        ("file://host/x", "which nothing serves"),
        ("s3://b/x?region=y", "which nothing serves"),
        ("s3://key:s3cret@b/x", "no credentials may stand in it; set AWS_ACCESS_KEY_ID"),
    ],
)
def test_a_place_that_is_none_is_refused_before_anything_is_kept(place: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(VaultError, match=said) as error:
        MemVault(tmp_path, blobs=place)
    assert "s3cret" not in str(error.value)
    with MemVault(tmp_path) as vault:
        assert vault.blobs.shelf is None


def test_two_vaults_do_not_share_a_prefix(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with MemVault(tmp_path / "a", blobs=url) as vault:
        kv = kv_of(vault, b"k" * 5000)
        with MemVault(tmp_path / "b", blobs=url) as other:
            assert "holds the payloads of another vault" in caplog.text
            with pytest.raises(VaultError, match="holds the payloads of another vault.*name another prefix"):
                kv_of(other, b"k" * 5000)
        empty_cache(tmp_path / "a")
        assert read(vault, kv) == b"k" * 5000


def test_without_its_package_a_vault_opens_and_says_what_to_install(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    with MemVault(tmp_path, blobs=url) as vault:
        kv = kv_of(vault, b"k" * 5000)
    for name in [name for name in sys.modules if name.split(".")[0] == "obstore"]:
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    empty_cache(tmp_path)
    with MemVault(tmp_path) as vault:
        text(vault, "Goes on.")
        with pytest.raises(VaultError, match=r"needs the package obstore.*; run `pip install 'memos-kernel\[object-st"):
            read(vault, kv)


def test_an_endpoint_that_goes_away_in_the_middle_is_not_waited_for_each_time(
    s3: S3, url: str, bucket: str, line: FaultyLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MemVault(tmp_path, blobs=url) as vault:
        kv, gone = kv_of(vault, b"k" * 5000), kv_of(vault, b"g" * 5000)
        line.fails = lambda method, path: "refused"
        assert read(vault, kv) == b"k" * 5000  # the copy here
        empty_cache(tmp_path)
        for _ in range(2):
            with pytest.raises(VaultError, match="see that its endpoint is up") as error:
                read(vault, kv)
            assert not isinstance(error.value, CorruptBlob)
            asked = line.asked.total()
        assert line.asked.total() == asked
        said = text(vault, "An aardvark.")
        vault.delete([gone.id, said.id])  # what is deleted is gone here, and from the bucket as soon as it is back
        assert vault.erasing.owes() and len(objects(s3, bucket)) == 2
        assert not any(b"aardvark" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        line.fails = lambda method, path: None
        shelf = vault.blobs.shelf
        assert isinstance(shelf, ObjectShelf)
        for bucket_ in shelf._buckets.values():
            bucket_._outage = None
        text(vault, "The next write.")
        assert not vault.erasing.owes() and len(objects(s3, bucket)) == 1 and read(vault, kv) == b"k" * 5000


def test_a_folder_that_is_shared_serves_as_a_bucket(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    (tmp_path / "shared").mkdir()
    with MemVault(tmp_path / "vault", blobs=f"file://{tmp_path}/shared") as vault:
        kv = kv_of(vault, b"k" * 5000)
        empty_cache(tmp_path / "vault")
        assert read(vault, kv) == b"k" * 5000 and problems_of(vault) == []
        vault.delete([kv.id])
        vault.compact()
        assert [path.name for path in (tmp_path / "shared").rglob("*") if path.is_file()] == ["memos-vault"]
    with MemVault(tmp_path / "other", blobs=f"file://{tmp_path}/none") as vault:
        with pytest.raises(VaultError, match="none.*"):
            kv_of(vault, b"k" * 5000)


def test_payloads_are_moved_by_a_command_which_says_what_it_left(
    s3: S3, url: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from memos.interface.doors.cli.app import app

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["vault", "move-blobs", *words, "--vault", str(tmp_path)])
        return done.exit_code, done.output

    with MemVault(tmp_path) as vault:
        kv, spoilt = kv_of(vault, b"k" * 5000), kv_of(vault, b"j" * 5000)
        assert spoilt.blob
        vault.blobs.path(spoilt.blob).write_bytes(b"spoilt")
    code, said = run(url)
    assert code == 1 and f"1 payloads of {tmp_path} were moved to {url}" in said and "1 are damaged" in said
    with MemVault(tmp_path) as vault:
        vault.delete([spoilt.id])
    assert run(url)[0] == 0 and len(objects(s3, bucket)) == 1
    code, said = run("home")
    assert code == 0 and "unset vault.blobs" in said and s3.keys(bucket) == []
    code, said = run("home")
    assert code == 1 and "no payload of" in said
    with MemVault(tmp_path) as vault:
        assert read(vault, kv) == b"k" * 5000
