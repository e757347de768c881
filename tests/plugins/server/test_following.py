"""What other processes change leaves the memory of a server, though nobody asks it for anything."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from memos import Config, Memory, MemOS
from memos.errors import VaultError
from memos.plugins.server.app import FOLLOW_S
from tests.plugins.server.conftest import running, until


@pytest.mark.parametrize("how", ["deleted", "changed", "given up"])
def test_kv_of_what_another_process_changes_leaves_memory_within_a_second(
    keyless: Memory, tmp_path: Path, how: str
) -> None:
    host = keyless.kernel.host
    kernel = MemOS(Config(), vault=tmp_path / "vault", model=host.model, tokenizer=host.tokenizer)
    with Memory(kernel=kernel) as memory, MemOS(Config(), vault=tmp_path / "vault") as other, running(memory):
        [cube] = kernel.add("Mira: I live in Lisbon.")
        kv = kernel.promote([cube.id], "activation")
        assert kernel.ask("Where does Mira live?", via="activation").admission.activations
        serving = kernel.parts.serving()
        assert kv.blob and serving.tier(kv.blob.sha256) != "disk"
        match how:
            case "deleted":
                other.delete(cube.id)
            case "changed":
                other.update(cube.id, "Mira: I live in Porto.")
            case _:
                other.archive(kv.id)
        began = time.monotonic()
        until(lambda: serving.tier(kv.blob.sha256) == "disk")
        assert time.monotonic() - began < 2 * FOLLOW_S + 1


def test_a_server_whose_database_is_away_goes_on_to_look(keyless: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[float]()

    def away() -> int:
        asked.append(time.monotonic())
        raise VaultError("the database is away")

    with running(keyless):
        monkeypatch.setattr(keyless.kernel.vault, "last_change", away)
        until(lambda: len(asked) > 2)
