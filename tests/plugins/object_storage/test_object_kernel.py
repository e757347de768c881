"""Memories in three forms, with their KV and adapters in a bucket, and what is answered while it is out of reach."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator

import pytest

from memos import MemOS
from memos.bench.kv_io import bench_kv_io
from memos.cube import Form
from memos.errors import VaultError
from memos.infrastructure.host.kv.files import storing_codecs
from memos.infrastructure.vault.mem_vault import MemVault
from memos.plugins.object_storage import bucket as buckets
from tests.kernel import test_forms as test_kernel_forms
from tests.kernel.test_forms import ASKED, opened, talk
from tests.plugins.object_storage.s3 import S3, FaultyLine

pytestmark = pytest.mark.sqlite

SAME = (
    test_kernel_forms.test_a_memory_goes_from_text_to_kv_and_back,
    test_kernel_forms.test_an_adapter_answers_with_nothing_in_the_prompt,
    test_kernel_forms.test_what_was_built_is_not_built_again,
)


@pytest.fixture(scope="module")
def far(s3: S3) -> Iterator[FaultyLine]:
    made = FaultyLine(s3.port)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("ACCESS_KEY_ID", "k"), ("SECRET_ACCESS_KEY", "s"), ("ENDPOINT_URL", made.endpoint)):
            patch.setenv(f"AWS_{name}", value)
        patch.setattr(buckets, "_PAUSE_S", 0.0)
        yield made
    made.stop()


@pytest.fixture(scope="module")
def memos(s3: S3, far: FaultyLine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    folder = tmp_path_factory.mktemp("kernel") / "vault"
    MemVault(folder, blobs=f"s3://{s3.bucket('kernel')}").close()
    with opened(folder) as kernel:
        yield kernel


def let_go(memos: MemOS) -> None:
    """Nothing is in memory, and no copy on this machine."""
    serving = memos.parts.serving()
    serving._background.submit(lambda: None).result()  # what is prefetched has come
    serving.let_go(set(serving._cubes))
    shutil.rmtree(memos.vault.path / "blobs")


globals().update({test.__name__: test for test in SAME})


def test_while_the_bucket_is_out_of_reach_text_answers(
    memos: MemOS, far: FaultyLine, ada: str, caplog: pytest.LogCaptureFixture
) -> None:
    own = memos.within(ada)
    ids = talk(memos, ada)
    as_text = own.ask(ASKED).text
    kv = own.promote(ids, "activation")
    let_go(memos)
    over_kv = own.ask(ASKED)
    assert over_kv.admission.form is Form.ACTIVATION and over_kv.text == as_text  # copied, and read layer by layer
    let_go(memos)
    far.fails = lambda method, path: "refused"
    try:
        with caplog.at_level(logging.WARNING):
            reply = own.ask(ASKED)
        assert reply.admission.form is Form.PLAINTEXT and reply.text == as_text
        assert "answering from text" in caplog.text and "see that its endpoint is up" in caplog.text
        with pytest.raises(VaultError, match="see that its endpoint is up"):
            own.ask(ASKED, via="activation")
        with pytest.raises(VaultError, match="was not written to|cannot be"):
            own.promote(ids[:1], "activation")
        assert own.get(kv.id).state == kv.state  # nothing is given up for lost
    finally:
        far.fails = lambda method, path: None
    assert own.ask(ASKED).admission.form is Form.ACTIVATION
    assert own.promote(ids[:1], "activation").form is Form.ACTIVATION


def test_a_conversation_goes_on_while_the_bucket_is_out_of_reach(
    memos: MemOS, far: FaultyLine, bob: str, caplog: pytest.LogCaptureFixture
) -> None:
    own = memos.within(bob)
    talk(memos, bob)
    first = own.ask(ASKED, session="s")
    let_go(memos)
    far.fails = lambda method, path: "refused"
    try:
        assert own.ask(ASKED, session="s").text == first.text
    finally:
        far.fails = lambda method, path: None
    assert own.ask(ASKED, session="s").text == first.text


def test_a_load_from_the_bucket_is_measured_against_obstore_alone(memos: MemOS, s3: S3, far: FaultyLine) -> None:
    bucket = s3.bucket("measured")
    report = bench_kv_io(memos.host, 64, 0, lambda *_: None, f"s3://{bucket}")
    rows = [row for row in report["rows"] if row["tier"] == "bucket"]
    assert [row["codec"] for row in rows] == list(storing_codecs())
    assert all(row["share_of_raw"] > 0 and row["save_mb_s"] > 0 for row in rows)
    assert s3.keys(bucket) == []
