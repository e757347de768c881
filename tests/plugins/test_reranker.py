"""A cross-encoder of random weights, against the same forward by hand, and what is said where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from numpy.testing import assert_allclose
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from memos import MemOS
from memos.config import parse_config
from memos.errors import ModelNotFound
from memos.infrastructure.host.encoders import weights
from memos.plugins.reranker import Reranker

TEXTS = [f"{'word ' * (n % 5)}number {n}" for n in range(20)]


def classifier(folder: Path, labels: int) -> Path:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForSequenceClassification(BertConfig(**sizes, num_labels=labels)).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(weights.package_folder() / file, folder)
    return folder


@pytest.mark.parametrize("labels", [1, 2])
def test_scores_are_those_of_the_classifier(tmp_path: Path, labels: int) -> None:
    folder = classifier(tmp_path / "cross", labels)
    scores = Reranker(str(folder)).score("which number", TEXTS)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), BertForSequenceClassification.from_pretrained(folder)
    for text, score in zip(TEXTS, scores, strict=True):
        with torch.no_grad():
            logits = model.eval()(**tokenizer("which number", text, return_tensors="pt")).logits[0]
        assert_allclose(score, logits.sigmoid()[0] if labels == 1 else logits.softmax(0)[1], atol=1e-5)
    assert Reranker(str(folder)).score("which number", []).shape == (0,)


def test_a_kernel_ranks_by_it(tmp_path: Path) -> None:
    folder = classifier(tmp_path / "cross", 1)
    with MemOS(parse_config({"retrieval": {"reranker": str(folder)}}), vault=tmp_path / "vault") as kernel:
        kernel.add("Mira lives in Oslo.")
        [hit] = kernel.search("Where does Mira live?")
    assert 0 < hit.why["answers"] < 1


def test_what_is_no_reranker_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"retrieval\.reranker .*config\.json"):
        Reranker(str(tmp_path))
    with pytest.raises(ModelNotFound, match="3 labels"):
        Reranker(str(classifier(tmp_path / "cross", 3))).score("a", ["b"])
    broken = classifier(tmp_path / "broken", 1)
    (broken / "model.safetensors").write_bytes(b"no")
    with pytest.raises(ModelNotFound, match="does not load"):
        Reranker(str(broken)).score("a", ["b"])
