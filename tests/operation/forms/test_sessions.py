"""A conversation that goes on: in another process, after a rewind, and without what was deleted meanwhile."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from memos import MemOS
from memos.config import ActivationConfig, Config, DecodeConfig
from memos.cube import Form, MemCube, Namespace, State, Turn
from memos.errors import InputError, NoRoom
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation, encode
from memos.infrastructure.host.model.decode import DecodeRow, prefill_inputs
from memos.operation.choosing.mem_scheduler import Admission, Session
from memos.plugins.care.check import problems_of
from memos.rights import Caller

ROOT = Path(__file__).parents[3]
MIRA = ("I live in Lisbon.", "I work as a nurse.")
TOM = ("I live in Oslo.", "I work as a pilot.")
ASKED = ("Where does Mira live?", "What does Mira do for a living?", "Where does Tom live?", "What does Tom do?")
BRIEF = DecodeConfig(max_new_tokens=8)


@pytest.fixture(scope="module")
def memos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    with MemOS(Config(decode=BRIEF), vault=tmp_path_factory.mktemp("kernel") / "vault") as kernel:
        yield kernel


def reopened(memos: MemOS, vault: Path) -> MemOS:
    """Another kernel on the same model."""
    return MemOS(Config(decode=BRIEF), vault=vault, model=memos.host.model, tokenizer=memos.host.tokenizer)


@pytest.fixture
def kernel(memos: MemOS, tmp_path: Path) -> Iterator[MemOS]:
    with reopened(memos, tmp_path / "vault") as kernel:
        for speaker, said in (("Mira", MIRA), ("Tom", TOM)):
            kernel.add([{"speaker": speaker, "content": text} for text in said])
        yield kernel


def session_of(kernel: MemOS, name: str) -> Session:
    user = Namespace(user_id=kernel.config.user_id)
    return Session(user.model_copy(update={"session_id": name}), Caller(user, keeper=True))


def heard(kernel: MemOS, session: str = "s") -> Activation:
    """The KV that the next question would find."""
    named = session_of(kernel, session)
    request = kernel.parts.sessions().request(kernel.parts.sessions().resume(named, "What?", Admission()), Admission())
    assert request.talk
    return request.talk


def kv_cubes(kernel: MemOS, *states: State) -> list[MemCube]:
    found = kernel.cubes(form=Form.ACTIVATION)
    return [c for c in found if c.header.kind == "turn" and c.state in (states or (State.ACTIVATED,))]


def next_logits(host: Host, row: DecodeRow) -> torch.Tensor:
    with torch.inference_mode():
        return host.model(**prefill_inputs(host.model, [row], 0)[0], use_cache=True, logits_to_keep=1).logits[0, -1]


def require_exact(kernel: MemOS, kept: Activation) -> None:
    """What is kept is the KV of its ids, as a plain forward makes it."""
    host, question = kernel.host, tuple(kernel.host.prompts.ids("User: Where does Tom live?\nAssistant:"))
    over, full = next_logits(host, DecodeRow(question, kept)), next_logits(host, DecodeRow(kept.ids + question))
    assert_close(over, full, atol=1e-4, rtol=0)
    for (k, v), (k2, v2) in zip(kept.layers, encode(host.model, kept.ids).layers, strict=True):
        assert_close(k, k2, atol=1e-4, rtol=1e-4)
        assert_close(v, v2, atol=1e-4, rtol=1e-4)


def test_only_what_is_new_is_read(kernel: MemOS) -> None:
    answers, read, past = [], [], []
    for question in ASKED[:3]:
        reply = kernel.chat(question, session="s")
        answers.append(reply.text)
        read.append(reply.prompt_tokens)
        past.append(reply.past_tokens)
    assert answers == ["Lisbon", "nurse", "Oslo"]
    assert past[0] == 0 and past[1] >= read[0] and past[2] >= past[1] + read[1]
    assert read[1] < read[2] <= read[0]  # nothing new; Tom's memories; Mira's
    require_exact(kernel, heard(kernel))


def test_each_turn_is_kept_with_what_it_added(kernel: MemOS) -> None:
    for question in ASKED[:3]:
        kernel.chat(question, session="s")
    turns, kvs = kernel.turns("s"), kv_cubes(kernel)
    assert [t.payload.question for t in turns if isinstance(t.payload, Turn)] == list(ASKED[:3])
    assert [t.payload.shown for t in turns if isinstance(t.payload, Turn)] == [
        tuple(f"Mira: {text}" for text in MIRA),
        (),
        tuple(f"Tom: {text}" for text in TOM),
    ]
    blobs = [c.blob for c in kvs if c.blob]
    assert [b.after for b in blobs] == [0, blobs[0].tokens, blobs[0].tokens + blobs[1].tokens]
    assert sum(b.tokens for b in blobs) == len(heard(kernel).ids)
    assert blobs[1].bytes < blobs[0].bytes  # a turn's file holds what the turn added


@pytest.mark.slow
def test_a_conversation_goes_on_in_another_process(kernel: MemOS) -> None:
    for question in ASKED[:2]:
        kernel.chat(question, session="s")
    tokens = len(heard(kernel).ids)
    script = """
import json, sys
from memos import MemOS
from memos.config import ActivationConfig, Config, DecodeConfig
with MemOS(Config(decode=DecodeConfig(max_new_tokens=8)), vault=sys.argv[1]) as kernel:
    reply = kernel.chat("Where does Tom live?", session="s")
    print(json.dumps([len(kernel.turns("s")), reply.text, reply.past_tokens]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(kernel.vault.path)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    turns, answer, past = json.loads(done.stdout)
    assert (turns, answer) == (3, "Oslo") and past >= tokens - 2  # the template may end a turn in another token
    require_exact(kernel, heard(kernel))  # what the other process added


def test_a_rewind_crops_exactly(kernel: MemOS) -> None:
    kept = []
    for question in ASKED[:3]:
        kernel.chat(question, session="s")
        kept.append(heard(kernel))
    assert kernel.rewind("s", 1) == 2
    assert [t.payload.question for t in kernel.turns("s") if isinstance(t.payload, Turn)] == [ASKED[0]]
    assert heard(kernel).ids == kept[0].ids and heard(kernel).digest() == kept[0].digest()
    with reopened(kernel, kernel.vault.path) as other:
        assert heard(other).digest() == kept[0].digest()
        assert other.chat(ASKED[2], session="s").text == "Oslo"
    assert kernel.rewind("s", 0) == 2 and kernel.turns("s") == []


@pytest.mark.parametrize("turns", [-1, 2])
def test_a_rewind_to_turns_that_there_are_not_is_refused(kernel: MemOS, turns: int) -> None:
    kernel.chat(ASKED[0], session="s")
    with pytest.raises(InputError, match=rf"'s' has 1 turns and cannot go back to {turns}; .* from 0 to 1"):
        kernel.rewind("s", turns)
    assert len(kernel.turns("s")) == 1


@pytest.mark.sqlite
@pytest.mark.parametrize("change", ["deleted", "edited", "corrected"])
def test_what_is_deleted_leaves_the_conversation(kernel: MemOS, change: str) -> None:
    for question in (ASKED[2], ASKED[0], ASKED[1]):
        kernel.chat(question, session="s")
    kernel.ask("What did you say?", session="s", via="none")  # an answer may say again what was shown before
    lisbon = next(c for c in kernel.memories() if "Lisbon" in c.text)
    match change:
        case "deleted":
            kernel.delete(lisbon.id)
        case "edited":
            kernel.update(lisbon.id, "Mira: I live in Porto.")
        case "corrected":
            kernel.add([{"speaker": "Mira", "content": "Actually, I live in Porto."}])
    [left] = [t.payload for t in kernel.turns("s")]
    assert isinstance(left, Turn) and left.question == ASKED[2]  # which came before it
    assert len(kv_cubes(kernel)) == 1
    held = kernel.parts.serving()._tiers.all().values()
    assert not any("Lisbon" in kernel.host.tokenizer.decode(list(kv.ids)) for kv in held)
    reply = kernel.chat(ASKED[0], session="s")
    assert "Lisbon" not in reply.text and reply.past_tokens > 0
    require_exact(kernel, heard(kernel))
    if change == "deleted":
        assert b"Lisbon" not in (kernel.vault.path / "vault.db").read_bytes()


def test_a_turn_is_no_memory(kernel: MemOS) -> None:
    before = kernel.memories()
    kernel.chat(ASKED[0], session="s")
    assert [c.id for c in kernel.memories()] == [c.id for c in before]
    assert all(hit.cube.header.kind != "turn" for hit in kernel.search("Where does Mira live?"))
    assert all(c.header.kind != "turn" for segment in kernel.segments() for c in segment.cubes)
    kernel.tick()
    assert len(kv_cubes(kernel)) == 1 and len(kernel.turns("s")) == 1


def test_sessions_and_users_are_apart(kernel: MemOS) -> None:
    kernel.chat(ASKED[0], session="s")
    kernel.chat(ASKED[2], session="t")
    assert len(kernel.turns("s")) == len(kernel.turns("t")) == 1
    assert kernel.within("somebody").turns("s") == []
    assert kernel.within("somebody").chat("Where does Mira live?", session="s").past_tokens == 0


def test_kv_in_front_begins_a_conversation_too(kernel: MemOS) -> None:
    kernel.promote([c.id for c in kernel.memories() if c.text.startswith("Mira")], "activation")
    reply = kernel.ask(ASKED[0], session="s", via="activation")
    assert reply.past_tokens > 0 and reply.text == "Lisbon"
    assert kernel.ask(ASKED[1], session="s").past_tokens > reply.past_tokens
    require_exact(kernel, heard(kernel))


def test_damaged_kv_is_read_again_from_the_turns(kernel: MemOS, caplog: pytest.LogCaptureFixture) -> None:
    for question in ASKED[:2]:
        kernel.chat(question, session="s")
    blob = kv_cubes(kernel)[0].blob
    assert blob
    path = kernel.vault.blobs.path(blob)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with reopened(kernel, kernel.vault.path) as other, caplog.at_level(logging.WARNING):
        reply = other.chat(ASKED[2], session="s")
        assert (reply.text, reply.past_tokens) == ("Oslo", 0)
        assert "does not match its digest" in caplog.text
        assert len(other.turns("s")) == 3
        require_exact(other, heard(other))


def test_a_conversation_longer_than_the_context_goes_on_with_its_newer_half(kernel: MemOS) -> None:
    whole, read = kernel.host.decoder.context, []
    kernel.host.decoder.context = 130
    try:
        for n in range(16):
            reply = kernel.chat(ASKED[n % 3], session="s")
            read.append((reply.past_tokens, reply.prompt_tokens))
            assert reply.text == ("Lisbon", "nurse", "Oslo")[n % 3]
    finally:
        kernel.host.decoder.context = whole
    assert len(kernel.turns("s")) == 16  # nothing is lost
    assert sum(past < 10 for past, _ in read) <= 6, read  # read again seldom
    assert len(kernel.parts.sessions()._chain(session_of(kernel, "s"))) < 10
    require_exact(kernel, heard(kernel))


def test_new_memories_count_for_what_fits(kernel: MemOS) -> None:
    """The turns alone fit, with Tom's memories they do not."""
    kernel.chat(ASKED[0], session="s")
    whole = kernel.host.decoder.context
    kernel.host.decoder.context = len(heard(kernel).ids) + 30
    try:
        assert kernel.chat(ASKED[2], session="s").text == "Oslo"
    finally:
        kernel.host.decoder.context = whole
    assert len(kernel.turns("s")) == 2


def test_rights_that_were_taken_back_hold_in_a_conversation(kernel: MemOS) -> None:
    lisbon = next(c for c in kernel.memories() if "Lisbon" in c.text)
    kernel.grant(lisbon.id, "bob", "reader")
    assert kernel.within("bob").chat(ASKED[0], session="s").text == "Lisbon"
    kernel.revoke(lisbon.id, "bob")
    assert kernel.within("bob").turns("s") == []
    reply = kernel.within("bob").chat(ASKED[0], session="s")
    assert "Lisbon" not in reply.text and reply.past_tokens == 0


def test_kv_that_was_stored_coarsely_does_not_begin_a_conversation(kernel: MemOS) -> None:
    coarse = Config(decode=BRIEF, activation=ActivationConfig(codec="int4", max_kl=10.0))
    given = {"model": kernel.host.model, "tokenizer": kernel.host.tokenizer}
    with MemOS(coarse, vault=kernel.vault.path, **given) as other:
        other.promote([c.id for c in other.memories() if c.text.startswith("Mira")], "activation")
        assert other.ask(ASKED[0], via="activation").past_tokens > 0
        other.ask(ASKED[0], session="s")
        require_exact(other, heard(other))


def test_a_name_that_is_no_text_is_refused(kernel: MemOS) -> None:
    with pytest.raises(InputError, match="is no valid text; give it a name in UTF-8"):
        kernel.chat(ASKED[0], session="\udcff")


def test_what_was_said_is_not_said_again(kernel: MemOS) -> None:
    """Memory runs out after the first pieces: the answer is not begun anew from text."""
    kernel.promote([c.id for c in kernel.memories() if c.text.startswith("Mira")], "activation")
    said: list[str] = []

    def listen(piece: str) -> None:
        said.append(piece)
        raise NoRoom("no memory left for this request")

    with pytest.raises(NoRoom):
        kernel.ask(ASKED[0], on_text=listen)
    assert len(said) == 1


def test_a_full_disk_keeps_the_turn_as_text(
    kernel: MemOS, full_disk: Callable[[], AbstractContextManager[None]], caplog: pytest.LogCaptureFixture
) -> None:
    with full_disk(), caplog.at_level(logging.WARNING):
        assert kernel.chat(ASKED[0], session="s").text == "Lisbon"
    assert "the turn is kept as text only: a KV cache of" in caplog.text and "was not written" in caplog.text
    assert len(kernel.turns("s")) == 1 and list((kernel.vault.path / "tmp").iterdir()) == []
    assert kernel.chat(ASKED[1], session="s").text == "nurse"
    assert problems_of(kernel.vault) == []


def test_two_accounts_of_the_past_are_refused(kernel: MemOS) -> None:
    with pytest.raises(InputError, match="turns and session both say what came before; give one of them"):
        kernel.chat("Where does Mira live?", session="s", turns=[{"role": "user", "content": "Hi."}])
