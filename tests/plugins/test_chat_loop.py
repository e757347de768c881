"""A chat loop of plain transformers, with memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from memos.config import parse_config
from memos.errors import InputError
from memos.infrastructure.host.model.load import SMALL_MODEL, model_path
from memos.plugins.chat_loop import ChatLoop, with_memory


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    folder = model_path(SMALL_MODEL)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(
        folder
    )


def said(loop: ChatLoop, messages: list[dict[str, Any]], message: str) -> list[dict[str, Any]]:
    return loop([*messages, {"role": "user", "content": message}])[0]["generated_text"]


def test_a_conversation_is_remembered_in_the_next(loaded: tuple[Any, Any], tmp_path: Path) -> None:
    before = {name: weight.clone() for name, weight in loaded[0].state_dict().items()}
    with with_memory(*loaded, vault=tmp_path) as loop:
        messages = said(loop, [], "Mira lives in Lisbon.")
        messages = said(loop, messages, "Where does Mira live?")
        assert [one["role"] for one in messages] == ["user", "assistant"] * 2
        assert messages[-1]["content"] == "Lisbon"
    with with_memory(*loaded, vault=tmp_path) as another:
        assert another("Where does Mira live?") == [{"generated_text": "Lisbon"}]
        assert another.last and [seen["memory"] for seen in another.last["used"]] == ["Mira lives in Lisbon."]
    assert all(torch.equal(weight, before[name]) for name, weight in loaded[0].state_dict().items())


def test_each_user_has_a_memory_of_its_own(loaded: tuple[Any, Any], tmp_path: Path) -> None:
    brief = parse_config({"decode": {"max_new_tokens": 8}})
    with with_memory(*loaded, brief, vault=tmp_path, user_id="ann") as ann:
        ann("Mira lives in Lisbon.")
        ben = ChatLoop(ann.memory, user_id="ben")
        ben("Where does Mira live?")
        assert ben.last and ben.last["used"] == []
        with pytest.raises(InputError, match="there is no message; give a text, or a list of"):
            ann([])
