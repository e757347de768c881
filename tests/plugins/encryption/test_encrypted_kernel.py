"""Memories in three forms, in an encrypted vault: the tests of any vault, where they do not look at its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS
from memos.infrastructure.vault.mem_vault import MemVault
from tests.kernel import test_forms as test_kernel_forms
from tests.kernel.test_forms import opened
from tests.operation.forms import test_sessions

pytestmark = pytest.mark.sqlite

SAME = (
    test_kernel_forms.test_a_memory_goes_from_text_to_kv_and_back,
    test_kernel_forms.test_an_adapter_answers_with_nothing_in_the_prompt,
    test_kernel_forms.test_what_was_built_is_not_built_again,
    test_sessions.test_a_conversation_goes_on_in_another_process,
)


@pytest.fixture(scope="module")
def memos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    folder = tmp_path_factory.mktemp("kernel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNEL_KEY", "ab" * 32)
        MemVault(folder / "vault", key="env:KERNEL_KEY").close()
        with opened(folder / "vault") as kernel:
            yield kernel
        files = [path for path in (folder / "vault").rglob("*") if path.is_file()]
        assert (folder / "vault" / "key.json") in files
        assert not any(word in path.read_bytes() for path in files for word in (b"Lisbon", b"lora_A", b"layers.000"))


@pytest.fixture
def kernel(memos: MemOS, tmp_path: Path) -> Iterator[MemOS]:
    MemVault(tmp_path / "vault", key="env:KERNEL_KEY").close()
    with test_sessions.reopened(memos, tmp_path / "vault") as kernel:
        for speaker, said in (("Mira", test_sessions.MIRA), ("Tom", test_sessions.TOM)):
            kernel.add([{"speaker": speaker, "content": text} for text in said])
        yield kernel


globals().update({test.__name__: test for test in SAME})
