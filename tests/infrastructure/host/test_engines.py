"""What the registries of the host provide, and how a name that nothing provides is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from memos import MemOS
from memos.config import parse_config
from memos.errors import InputError
from memos.infrastructure.host.encoders.embedder import Embedder, embedders
from memos.infrastructure.host.engines import engines, transformers
from memos.infrastructure.host.kv.files import codecs, storing_codecs


def test_what_ships_is_found_by_its_name() -> None:
    assert engines.get("transformers") is transformers
    assert embedders.get("transformers") is Embedder
    assert codecs.get("trained").made and "trained" not in storing_codecs()


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"model": {"engine": "transformer"}}, r"there is no engine 'transformer'.*transformers.*memos plugins"),
        ({"embedder": {"engine": "transfomers"}}, r"there is no embedder 'transfomers'.*transformers.*memos plugins"),
        ({"activation": {"codec": "int44"}}, r"there is no codec 'int44'.*int4.*memos plugins"),
        ({"activation": {"codec": "quantum"}}, r"there is no codec 'quantum'; there are bf16, .*wrapped, auto;"),
    ],
)
def test_a_name_that_nothing_provides_is_refused_at_use(
    settings: dict[str, dict[str, str]], message: str, tmp_path: Path
) -> None:
    with MemOS(parse_config(settings), vault=tmp_path / "vault") as kernel:
        with pytest.raises(InputError, match=message):
            kernel.add("Mira lives in Oslo.")
            [hit] = kernel.search("Where does Mira live?")
            kernel.promote(hit.cube.id, "activation")
