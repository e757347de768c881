"""Trained KV: a cache of few rows that serves like any other, and is trained until it answers as the text does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from memos.bench.batch import answer_all
from memos.config import DecodeConfig, DistilConfig
from memos.cube import Contrast, Lesson, Probe
from memos.errors import CorruptBlob, FingerprintMismatch, NoProbes, Unsupported
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.request import Request
from memos.infrastructure.host.training.rows import Cartridge
from memos.infrastructure.host.training.teach import Task, judge_kv
from memos.plugins.training.craft import kept_rows, teach_kv, thinned

MEMORIES = ("Mira: I live in Lisbon.", "Tom works as a nurse.")
QUESTIONS = {"Where does Mira live?": "Lisbon", "What is Tom's job?": "nurse"}
LESSONS = tuple(
    Lesson(memories=MEMORIES, probe=Probe(question=question, answer=answer, held_out=held_out))
    for question, answer in QUESTIONS.items()
    for held_out in (False, True)
)
KEEP = tuple(
    Contrast(question="Where does Nadia live?", memories=memories, held_out=held_out)
    for memories in ((), ("Nadia lives in Oslo.",))
    for held_out in (False, True)
)
BRIEF = DistilConfig(steps=12, batch=4, batch_keep=4, learning_rate=0.05, checkpoint=5, review=5)
FEW = DecodeConfig(max_new_tokens=8)


def asked(question: str, *pasts: Activation, memories: tuple[str, ...] = MEMORIES) -> Request:
    return Request(({"role": "user", "content": question},), memories, pasts)


def some(host: Host, share: float = 0.3) -> Activation:
    whole = host.encode(MEMORIES)
    return thinned(whole, kept_rows(len(whole.ids), len(host.head), share))


@pytest.mark.parametrize("tokens, head, share, count", [(20, 4, 0.25, 8), (20, 4, 1.0, 20), (20, 0, 0.01, 1)])
def test_rows_are_spread_over_what_is_not_the_head(tokens: int, head: int, share: float, count: int) -> None:
    rows = kept_rows(tokens, head, share)
    assert len(rows) == count == len(set(rows)) and rows == sorted(rows)
    assert rows[:head] == list(range(head)) and rows[-1] == tokens - 1


def test_all_rows_untrained_are_the_context_itself(host: Host) -> None:
    """The starting point is the real cache: with every row kept, logits equal those over the text."""
    full = host.logits(asked("Where does Tom live?"))
    assert_close(host.logits(asked("Where does Tom live?", some(host, 1.0))), full, atol=1e-4, rtol=1e-4)
    cut = len(host.encode(MEMORIES).ids)
    ids = torch.tensor([host.ids_of("Where does Tom live?", MEMORIES)[cut:]], device=host.model.device)
    places = torch.arange(ids.shape[1], device=ids.device)[None]
    out = Cartridge(host.model, some(host, 1.0))(ids, torch.ones_like(ids), places).logits[0].cpu()
    assert_close(out, full, atol=1e-4, rtol=1e-4)


def test_what_is_trained_is_what_is_served(host: Host) -> None:
    """One forward of the cartridge, and the same rows as KV of a request."""
    kv = some(host)
    assert kv.rows < len(kv.ids)
    ids = torch.tensor([host.ids_of("Where does Tom live?", MEMORIES)[len(kv.ids) :]], device=host.model.device)
    places = torch.arange(ids.shape[1], device=ids.device)[None]
    cartridge = Cartridge(host.model, kv, len(host.head), train=True)
    out = cartridge(ids, torch.ones_like(ids), places).logits[0].detach().cpu()
    assert_close(host.logits(asked("Where does Tom live?", cartridge.activation())), out, atol=1e-4, rtol=1e-4)


def test_few_rows_share_a_batch_with_many_and_with_none(host: Host) -> None:
    requests = [
        asked("Where does Mira live?", some(host)),
        asked("Tom's job?"),
        asked("Where does Mira live?", host.encode(MEMORIES)),
        asked("Where does Eva live?", some(host), memories=(*MEMORIES, "Eva lives in Rome.")),
    ]
    alone = [host.answer(r, FEW).ids for r in requests]
    assert [c.ids for c in answer_all(host, requests, FEW)] == alone


def test_training_brings_answers_near_those_over_the_text(host: Host, tmp_path: Path) -> None:
    task = Task(
        lessons=LESSONS,
        keep=KEEP,
        config=BRIEF.model_copy(update={"steps": 60, "learning_rate": 0.1}),
        memories=MEMORIES,
        share=0.1,
    )
    host.save_kv(some(host, 0.1), tmp_path / "before")
    weights = {name: p.clone() for name, p in host.model.named_parameters()}
    teach_kv(host, task, tmp_path / "after", lambda *_: None)
    before, after = (judge_kv(host, tmp_path / name, MEMORIES, LESSONS, KEEP) for name in ("before", "after"))
    assert before["reliability"] < 1.0 == after["reliability"] and after["drift"] < 0.01
    kv = host.load_kv(tmp_path / "after")
    head = len(host.head)
    for (k, v), (k0, v0) in zip(kv.layers, some(host, 0.1).layers, strict=True):
        assert torch.equal(k[..., :head, :], k0[..., :head, :]) and torch.equal(v[..., :head, :], v0[..., :head, :])
        assert not torch.equal(k, k0)
    assert host.answer(asked("Where does Mira live?", kv), FEW).text == "Lisbon"
    assert all(torch.equal(p, weights[name]) and p.grad is None for name, p in host.model.named_parameters())


def test_training_that_was_cut_off_ends_as_if_it_had_not_been(host: Host, tmp_path: Path) -> None:
    task = Task(lessons=LESSONS, keep=KEEP, config=BRIEF, memories=MEMORIES, share=0.3)

    def cut_off(step: int, of: int, loss: float) -> None:
        if step == 8:
            raise KeyboardInterrupt

    teach_kv(host, task, tmp_path / "whole", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        teach_kv(host, task, tmp_path / "again", cut_off, tmp_path / "checkpoint")
    seen: list[int] = []
    teach_kv(host, task, tmp_path / "again", lambda step, *_: seen.append(step), tmp_path / "checkpoint")
    assert seen[0] == 6
    assert host.load_kv(tmp_path / "again").digest() == host.load_kv(tmp_path / "whole").digest()


def test_a_file_says_that_its_rows_were_trained(host: Host, tmp_path: Path) -> None:
    kv = some(host)
    host.save_kv(kv, tmp_path / "kv")
    read = host.load_kv(tmp_path / "kv")
    assert (read.ids, read.trained, read.rows) == (kv.ids, kv.rows, kv.rows)
    assert read.digest() == kv.digest()
    with pytest.raises(FingerprintMismatch, match="encoded from other memories"):
        host.answer(asked("Where does Mira live?", host.load_kv(tmp_path / "kv"), memories=MEMORIES[:1]))


def test_no_other_kv_can_be_put_behind_it(host: Host) -> None:
    with pytest.raises(Unsupported, match="trained KV.*not a row for each token.*ask with it alone"):
        host.answer(
            asked("Who?", some(host), host.encode(("Eva lives in Rome.",)), memories=(*MEMORIES, "Eva lives in Rome."))
        )


def test_what_the_model_cannot_answer_over_the_text_is_not_trained(host: Host, tmp_path: Path) -> None:
    wrong = tuple(x.model_copy(update={"probe": x.probe.model_copy(update={"answer": "zorb"})}) for x in LESSONS)
    with pytest.raises(NoProbes, match="answers none of 4 probes"):
        teach_kv(
            host, Task(lessons=wrong, keep=KEEP, config=BRIEF, memories=MEMORIES), tmp_path / "kv", lambda *_: None
        )
    assert not (tmp_path / "kv").exists()


def test_a_header_that_was_changed_is_found(host: Host, tmp_path: Path) -> None:
    host.save_kv(some(host), tmp_path / "kv")
    content = (tmp_path / "kv").read_bytes()
    told = f'trained rows\\\\\\": \\\\\\"{some(host).rows}'.encode()
    told = told if told in content else f'trained rows\\": \\"{some(host).rows}'.encode()
    assert told in content
    (tmp_path / "kv").write_bytes(content.replace(told, told[:-2] + b"10"))
    with pytest.raises(CorruptBlob):
        host.load_kv(tmp_path / "kv")


def test_nothing_is_grown_from_trained_kv(host: Host) -> None:
    request = replace(asked("Where does Mira live?", some(host)), keep=True)
    assert host.answer(request, FEW).kv is None
    with pytest.raises(AssertionError):
        some(host).since(3)
