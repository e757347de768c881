"""Compact KV: few rows of each head, with weights, that answer as all of them do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import LlamaConfig, LlamaForCausalLM

from memos.bench.batch import answer_all
from memos.bench.promote import matter
from memos.config import ActivationConfig, DecodeConfig, DistilConfig, ModelConfig
from memos.errors import NoProbes, Unsupported
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.request import Request
from memos.infrastructure.host.training.rows import Cartridge
from memos.infrastructure.host.training.teach import Task, judge_kv, short_of
from memos.plugins.training.compact import _order, compacted
from memos.plugins.training.craft import craft

MEMORIES = ("Mira: I live in Lisbon.", "Tom works as a nurse.")
FEW = DecodeConfig(max_new_tokens=8)


def asked(question: str, *pasts: Activation) -> Request:
    return Request(({"role": "user", "content": question},), MEMORIES, pasts)


def weighted(whole: Activation, twice: int) -> Activation:
    """The same rows, of which the last stands for itself and `twice` more."""
    layers = []
    for keys, values in whole.layers:
        weights = torch.zeros(1, keys.shape[1], keys.shape[-2], 1)
        weights[..., -1, :] = torch.tensor(1.0 + twice).log()
        layers.append((keys, values, weights))
    return replace(whole, layers=tuple(layers), trained=len(whole.ids), weighted=True)


def repeated(whole: Activation, twice: int) -> Activation:
    layers = tuple(
        tuple(torch.cat([t, *[t[..., -1:, :]] * twice], -2) for t in (keys, values)) for keys, values in whole.layers
    )
    return replace(whole, layers=layers, trained=len(whole.ids) + twice)


@pytest.fixture(scope="module")
def grouped(host: Host) -> Host:
    """A model whose heads share keys, with the small model's tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    return Host(LlamaForCausalLM(config).eval(), host.tokenizer, ModelConfig())


@pytest.mark.parametrize("which", ["host", "grouped"])
@pytest.mark.parametrize("twice", [0, 3])
def test_a_weight_is_worth_the_rows_that_it_stands_for(which: str, twice: int, request: pytest.FixtureRequest) -> None:
    """One forward, a cartridge, and the running batch: logits and answers as over the rows themselves."""
    model: Host = request.getfixturevalue(which)
    whole = model.encode(MEMORIES)
    few, many = weighted(whole, twice), repeated(whole, twice)
    ask = asked("Where does Tom live?")
    one, other = (model.logits(replace(ask, pasts=(kv,))) for kv in (few, many))
    assert_close(one, other, atol=1e-4, rtol=1e-4)
    ids = torch.tensor([model.ids_of("Where does Tom live?", MEMORIES)[len(whole.ids) :]])
    places = torch.arange(ids.shape[1])[None]
    assert_close(
        Cartridge(model.model, few)(ids, torch.ones_like(ids), places).logits[0, -1], other[-1], atol=1e-4, rtol=1e-4
    )
    requests = [replace(asked(q), pasts=(kv,)) for q in ("Where does Mira live?", "Tom's job?") for kv in (few, many)]
    answers = answer_all(model, requests, FEW)
    assert [a.ids for a in answers[::2]] == [a.ids for a in answers[1::2]]
    streamed = [model.answer(r, FEW).ids for r in requests]
    assert streamed[::2] == streamed[1::2] and (twice or streamed == [a.ids for a in answers])


@pytest.mark.slow
def test_a_tenth_of_the_rows_passes_the_gate_of_sixteen_facts(host: Host, tmp_path: Path) -> None:
    about = matter(host, "compact test", 16, 1)
    task = Task(
        lessons=about.lessons,
        keep=tuple(k for k in about.keep if k.held_out)[::4],  # enough to be judged by
        config=DistilConfig(),
        memories=about.texts,
        compact=ActivationConfig().compact_shares,
    )
    made = craft(host, task, tmp_path / "work", lambda *_: None)
    assert not short_of(made.scores, task.config.gate)
    whole, kv = host.encode(about.texts), host.load_kv(tmp_path / "work" / task.payload)
    rows = sum(int((layer[2] > -100).sum()) for layer in kv.layers)
    heads = sum(layer[0].shape[1] for layer in kv.layers)
    assert kv.weighted and rows <= heads * (0.25 * len(whole.ids) + len(host.head))
    host.save_kv(whole, tmp_path / "raw")
    assert (tmp_path / "work" / task.payload).stat().st_size < (tmp_path / "raw").stat().st_size / 3


def test_rows_that_the_same_queries_look_at_stand_for_one_another() -> None:
    looked = torch.tensor([[0.6, 0.5, 0.0], [0.6, 0.5, 0.0], [0.0, 0.0, 0.4]])  # of three queries, at three rows
    assert _order(looked).tolist() == [0, 2, 1]
    assert sorted(_order(torch.zeros(3, 4)).tolist()) == [0, 1, 2, 3]
    drawn = torch.rand(60, 20, generator=torch.Generator().manual_seed(0))
    assert sorted(_order(drawn).tolist()) == list(range(20))


@pytest.mark.slow
def test_another_group_answers_nothing_of_this_one(host: Host, tmp_path: Path) -> None:
    mine, other = matter(host, "compact mine", 8, 1), matter(host, "compact other", 8, 2)
    (kv,) = compacted(host, other.texts, [x.probe.question for x in other.lessons], [0.5])
    host.save_kv(kv, tmp_path / "kv", "compact")
    assert judge_kv(host, tmp_path / "kv", other.texts, mine.lessons, ())["generality"] < 0.2


def test_a_file_holds_what_was_compacted(host: Host, tmp_path: Path) -> None:
    (kv,) = compacted(host, MEMORIES, ["Where does Mira live?", "What is Tom's job?"], [0.3])
    host.save_kv(kv, tmp_path / "kv", "compact")
    read = host.load_kv(tmp_path / "kv")
    assert read.weighted and read.trained == kv.trained and read.digest() == kv.digest()


def test_without_a_question_there_is_nothing_to_keep(host: Host) -> None:
    with pytest.raises(NoProbes, match="compacted for the questions"):
        next(compacted(host, MEMORIES, [], [0.5]))


def test_a_model_that_heeds_no_weights_is_refused(host: Host) -> None:
    model = LlamaForCausalLM._from_config(host.model.config, attn_implementation="eager")
    blind = Host(model.eval(), host.tokenizer, ModelConfig())
    with pytest.raises(Unsupported, match=r"does not heed weights.*model\.attention to sdpa"):
        next(compacted(blind, MEMORIES, ["Where does Mira live?"], [0.5]))


def test_kv_with_weights_is_refused_where_no_attention_heeds_them(host: Host) -> None:
    """Made under sdpa and brought to a model that runs with another attention, it would answer something else."""
    model = LlamaForCausalLM._from_config(host.model.config, attn_implementation="eager")
    blind = Host(model.eval(), host.tokenizer, ModelConfig())
    few = weighted(blind.encode(MEMORIES), 0)
    with pytest.raises(Unsupported, match=r"compact KV needs sdpa attention.*runs with eager"):
        blind.answer(asked("Where does Mira live?", few), FEW)
