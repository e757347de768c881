"""Answers held to a schema, by models that read no language."""

from __future__ import annotations

import json

import pytest
import torch

from memos.config import ModelConfig
from memos.errors import HostError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.model.constrained import Constraint, max_answer_tokens
from memos.interface.reading import extraction
from memos.interface.reading.documents.parts import DialogueTurn

pytest.importorskip("llguidance")
SMALL = extraction.schema(facts=1, characters=8)
PROMPTS = [
    extraction.prompt([DialogueTurn(speaker="User", content=text)])
    for text in ("I live in Oslo.", '"}] {"a": \\ ', "我住在里斯本。")
]


@pytest.mark.parametrize("model", ["memos-small", "shape:tiny"])
def test_every_extraction_parses_and_keeps_its_bounds(model: str) -> None:
    host = Host.load(ModelConfig(path=model))
    for answer in host.extract(PROMPTS, SMALL):
        told = extraction.parsed(answer)
        assert told is not None, answer
        assert len(told["facts"]) <= 1 and len(told["reasoning"]) <= 8
        assert len(host.tokenizer(answer)["input_ids"]) <= max_answer_tokens(SMALL)


def test_a_schema_without_bounds_is_refused() -> None:
    with pytest.raises(HostError, match="nothing bounds"):
        max_answer_tokens({"type": "string"})


def test_a_model_that_gives_no_numbers_is_held_to_the_schema_too() -> None:
    host = Host.load(ModelConfig(path="shape:tiny"))
    width = host.model.get_output_embeddings().weight.shape[0]
    constraint: Constraint = host._grammars().constraint({"enum": ["yes", "no"]})
    for broken in (torch.full((width,), torch.nan), torch.full((width,), -torch.inf)):
        allowed = constraint.allowed(broken)
        assert torch.isfinite(allowed).any() and not torch.isfinite(allowed).all()


def test_what_is_no_extraction_is_told() -> None:
    for answer in ("", "{", "[]", '{"reasoning": 1, "facts": []}', json.dumps({"reasoning": "", "facts": [1]})):
        assert extraction.parsed(answer) is None
