"""Adapters as a user meets them: routing, stacks, the gate, back to text, and a promotion that is cut off.

One adapter is really written here, in one forward; those that are trained are brief, and what they know is not judged.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from peft import PeftModel

from memos import MemOS
from memos.config import ActivationConfig, Config, DistilConfig, FidelityConfig, GateConfig, SchedulerConfig
from memos.cube import Form, MadeBy, MemCube, State, Trust
from memos.errors import (
    Cancelled,
    Contradiction,
    CorruptBlob,
    FingerprintMismatch,
    GateRejected,
    InputError,
    NoProbes,
    NotFound,
)
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.kv.files import storing_codecs
from memos.infrastructure.host.training.teach import ADAPTER
from memos.interface.doors.api.calling import item
from memos.operation.choosing.cost_model import Costs
from memos.plugins.care.check import problems_of
from memos.plugins.externalize.calls import ExternalizeCalls
from memos.plugins.packs.calls import PackCalls
from memos.plugins.packs.provenance import given
from memos.plugins.training.craft import CHECKPOINT
from tests.doubles import BRIEF, OPEN, BriefReader
from tests.killed import FORKED
from tests.killed import promote as promoting

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's use of it
ROOT = Path(__file__).parents[3]
LEARNS = DistilConfig(gate=OPEN, isolation="thread")
TRAINED_FOR_LONG = DistilConfig(steps=90, gate=OPEN, isolation="thread", instant="never")
MIRA = ("I live in Lisbon.", "My favourite drink is tea.")
TOM = ("I live in Oslo.", "I work as a pilot.")


def kernel_of(vault: Path, like: MemOS | None = None, **config: Any) -> MemOS:
    given = {"model": like.host.model, "tokenizer": like.host.tokenizer} if like else {}
    kernel = MemOS(Config(**({"distil": BRIEF} | config)), vault=vault, **given)
    if like:
        kernel.parts.reader = BriefReader()
    return kernel


def say(memos: MemOS, speaker: str, lines: tuple[str, ...]) -> list[str]:
    return [cube.id for cube in memos.add([{"speaker": speaker, "content": line} for line in lines])]


@pytest.fixture(scope="module")
def memos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    """Mira's memories as an adapter that has learnt them, Tom's as text."""
    with kernel_of(tmp_path_factory.mktemp("parametric") / "vault", distil=LEARNS) as kernel:
        kernel.promote(say(kernel, "Mira", MIRA), "parametric")
        say(kernel, "Tom", TOM)
        yield kernel


@pytest.fixture(scope="module")
def adapter(memos: MemOS) -> MemCube:
    [cube] = memos.cubes(form=Form.PARAMETRIC)
    return cube


def folder_of(memos: MemOS, cube: MemCube) -> Path:
    assert cube.blob
    return memos.vault.blobs.path(cube.blob)


# routing


def test_what_an_adapter_knows_it_answers(memos: MemOS, adapter: MemCube) -> None:
    reply = memos.ask("Where does Mira live?")
    assert reply.admission.adapters == (memos.get(adapter.id).model_copy(update={"usage": adapter.usage}),)
    assert "Lisbon" in reply.text and reply.admission.cubes == ()


def test_what_an_adapter_has_not_learnt_is_answered_from_text(memos: MemOS) -> None:
    """Mira's sister was said after the adapter was made: the group has grown, and none stands for it."""
    [cube] = memos.add([{"speaker": "Mira", "content": "I have a sister called Anna."}])
    try:
        reply = memos.ask("Who is Mira's sister?")
        assert not reply.admission.adapters and "Anna" in reply.text
    finally:
        memos.delete(cube.id)


def test_no_adapter_answers_for_what_none_knows(memos: MemOS, adapter: MemCube) -> None:
    assert memos.parts.serving().route(asked("What is two plus two?"), [adapter], False) == []
    assert memos.parts.serving().route(asked("Where does Tom live?"), [adapter], False) == []
    assert memos.parts.serving().route(asked("Where does Mira live?"), [adapter], False) == [adapter]
    assert memos.parts.serving().route(asked("Where does Tom live?"), [adapter], True) == [adapter]  # asked for by name


def asked(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def test_a_conversation_goes_on_under_an_adapter_and_without(memos: MemOS, adapter: MemCube) -> None:
    first, second = (memos.ask("Where does Mira live?", via="parametric", session="under") for _ in range(2))
    assert "Lisbon" in first.text and second.past_tokens > first.past_tokens == 0
    assert memos.ask("Where does Mira live?", session="under").past_tokens == 0  # as text, without the adapter
    memos.rewind("under", 0)


def test_kv_under_an_adapter_goes_with_each_memory_that_the_adapter_knows(memos: MemOS, tmp_path: Path) -> None:
    """Not with those alone that the question brought up."""
    with kernel_of(tmp_path, memos) as kernel:
        mira, tom = say(kernel, "Mira", MIRA), say(kernel, "Tom", TOM)
        kernel.promote([*mira, *tom], "parametric")
        kernel.ask("Where does Mira live?", via="parametric", session="s")
        kvs = [c for c in kernel.cubes(form=Form.ACTIVATION) if c.header.kind == "turn"]
        assert kvs and {s.id for s in kernel.turns("s")[0].sources} >= {*mira, *tom}
        kernel.delete(tom[0])
        assert kernel.turns("s") == [] and kernel.cubes(form=Form.ACTIVATION) == []


def test_without_adapters_nothing_diverges(memos: MemOS, adapter: MemCube) -> None:
    knows, base = memos.host.divergences(asked("Where does Mira live?"), [(folder_of(memos, adapter),), ()])
    assert base < 1e-4 < 1 < knows


@pytest.mark.sqlite
def test_a_damaged_adapter_is_passed_over_by_the_route(memos: MemOS, tmp_path: Path) -> None:
    with kernel_of(tmp_path, memos) as kernel:
        cube = kernel.promote(say(kernel, "Mira", MIRA), "parametric")
        shutil.rmtree(folder_of(kernel, cube))
        assert kernel.ask("Where does Mira live?").admission.form is Form.PLAINTEXT
        with pytest.raises(CorruptBlob):
            kernel.ask("Where does Mira live?", via="parametric")


# several at once


@pytest.mark.slow
def test_adapters_that_were_made_for_each_other_answer_together(memos: MemOS, tmp_path: Path) -> None:
    scheduler = SchedulerConfig(adapters_together=2, routing="retrieval")
    with kernel_of(tmp_path, memos, scheduler=scheduler) as kernel:
        mira = kernel.promote(say(kernel, "Mira", MIRA), "parametric")
        tom = kernel.promote(say(kernel, "Tom", TOM), "parametric")
        assert mira.blob and tom.blob and tom.blob.beside == (mira.blob.sha256,) and mira.blob.beside == ()
        card = lora.read_card(folder_of(kernel, tom), kernel.host.fingerprint)
        assert set(card["together"]) == set(card["scores"])
        chosen = kernel.parts.schedulers.main.admit(
            [(c, 1.0) for c in kernel.memories()], (), kernel.segments(), [mira, tom], lambda text: 1, "parametric",
            lambda adapters, at_least_one: adapters,
        )  # fmt: skip
        assert chosen.adapters == (mira, tom) and len(chosen.internal) == 4
        kernel.demote(mira.id)
        assert kernel.ask("Where does Tom live?", via="parametric").admission.adapters == (tom,)


@pytest.mark.slow
def test_a_set_that_fails_its_gate_is_not_taken_for_one(memos: MemOS, tmp_path: Path) -> None:
    """The adapter itself is published: what does not compose answers alone."""
    scheduler = SchedulerConfig(adapters_together=2, routing="retrieval")
    with kernel_of(tmp_path, memos, scheduler=scheduler) as kernel:
        kernel.promote(say(kernel, "Mira", MIRA), "parametric")
        strict = kernel.parts.transitions()._config.model_copy(update={"gate": OPEN.model_copy(update={"drift": 1e9})})
        judged = kernel.parts.transitions()._craft

        def unfit(*args: Any) -> Any:
            made = judged(*args)
            return made.model_copy(update={"together": made.together | {"drift": float("nan")}})

        kernel.parts.transitions()._config, kernel.parts.transitions()._craft = strict, unfit  # type: ignore[method-assign]
        tom = kernel.promote(say(kernel, "Tom", TOM), "parametric")
        assert tom.blob and tom.blob.beside == () and tom.state is State.ACTIVATED


def test_two_versions_of_a_fact_are_not_taught_together(memos: MemOS, tmp_path: Path) -> None:
    with kernel_of(tmp_path, memos) as kernel:
        ids = [c.id for text in ("I live in Lisbon.", "I live in Oslo.") for c in kernel.add([turn("Mira", text)])]
        kernel.reinstate(ids[0])  # it was replaced
        with pytest.raises(Contradiction, match=r"'Mira: I live in Lisbon\.' and .* 'Mira: I live in Oslo\.'.*correct"):
            kernel.promote(ids, "parametric")
        assert kernel.promote(ids, "activation").state is State.ACTIVATED  # the later one wins there
        assert kernel.jobs() == [] and kernel.ask("Where does Mira live?").text


def turn(speaker: str, content: str) -> dict[str, str]:
    return {"speaker": speaker, "content": content}


def test_a_correction_takes_the_adapter_out_of_use_at_once(memos: MemOS, tmp_path: Path) -> None:
    with kernel_of(tmp_path, memos, scheduler=SchedulerConfig(routing="retrieval")) as kernel:
        old = kernel.promote(say(kernel, "Mira", MIRA), "parametric")
        kernel.add([turn("Mira", "Actually, I now live in Rome.")])
        assert not kernel.ask("Where does Mira live?").admission.adapters
        with pytest.raises(InputError):
            kernel.ask("Where does Mira live?", via="parametric")
        assert kernel.vault.get(old.id).state is not State.ACTIVATED


# the gate


@pytest.mark.slow
def test_the_gate_judges_any_adapter_with_a_card(memos: MemOS, adapter: MemCube, tmp_path: Path) -> None:
    scores, short = memos.gate([adapter.id])
    assert scores["reliability"] > 0.9 and short == []  # this gate is open
    copy = Path(shutil.copytree(folder_of(memos, adapter), tmp_path / "copy"))
    again, _ = memos.gate([copy])
    assert again == pytest.approx(scores)
    assert set(scores) >= {"reversed", "abstention", "override", "portability", "drift"}


@pytest.mark.slow
def test_an_adapter_names_the_memories_that_its_gate_could_not_ask_about(memos: MemOS, tmp_path: Path) -> None:
    with kernel_of(tmp_path / "vault", memos) as kernel:
        tom = say(kernel, "Tom", TOM)
        [mute] = [cube.id for cube in kernel.add("Well, that was quite a day indeed.", infer=False)]
        made = kernel.promote([*tom, mute], "parametric")
        assert made.unasked == [mute] and kernel.get(made.id) == made
        assert made.asked == f"asks about 2 of 3 memories; not asked: {mute}"
        assert item(made)["unasked"] == [mute]


def test_an_adapter_that_says_not_what_it_was_taught_cannot_be_judged(
    memos: MemOS, adapter: MemCube, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder_of(memos, adapter), tmp_path / "stranger"))
    lora.write_card(copy, {"fingerprint": memos.host.fingerprint})
    with pytest.raises(NoProbes, match="the card of stranger .*has held-out questions.*--on.*memos externalize"):
        memos.gate([copy])


@pytest.mark.slow
def test_a_strangers_adapter_is_judged_on_memories_that_one_names(
    memos: MemOS, adapter: MemCube, tmp_path: Path
) -> None:
    expected, _ = memos.gate([adapter.id])
    copy = Path(shutil.copytree(folder_of(memos, adapter), tmp_path / "stranger"))
    (copy / "card.json").unlink()
    scores, _ = memos.gate([copy], on=[s.id for s in adapter.sources])
    assert scores == pytest.approx(expected)
    with pytest.raises(InputError, match=f"{adapter.id} is parametric; an adapter is judged on memories"):
        memos.gate([copy], on=[adapter.id])
    [note] = memos.add("zorb ->")
    with pytest.raises(NoProbes):  # and not by its card
        memos.gate([adapter.id], on=[note.id])
    memos.delete(note.id)
    said = ExternalizeCalls.of(memos).externalize(copy, about=["Mira"]).statements
    assert said and all(s.source != "card" for s in said)


def test_what_is_no_adapter_is_refused(memos: MemOS, adapter: MemCube, tmp_path: Path) -> None:
    text = memos.memories()[0]
    with pytest.raises(InputError, match=f"cube {text.id} is plaintext; name one that is parametric"):
        memos.gate([text.id])
    with pytest.raises(NotFound):
        memos.gate(["zorb"])
    with pytest.raises(CorruptBlob, match="has no readable card.json"):
        memos.gate([tmp_path])
    other = Path(shutil.copytree(folder_of(memos, adapter), tmp_path / "other"))
    card = json.loads((other / "card.json").read_text())
    lora.write_card(other, card | {"fingerprint": card["fingerprint"] | {"weights": "zorb"}})
    with pytest.raises(FingerprintMismatch, match="adapter other was made by another host: weights"):
        memos.gate([other])


# trained KV


TRAINED = ActivationConfig(codec="trained", trained_share=0.3)


def test_trained_kv_is_made_like_an_adapter_and_serves_like_kv(memos: MemOS, tmp_path: Path) -> None:
    with kernel_of(tmp_path, memos, activation=TRAINED) as kernel:
        ids = say(kernel, "Mira", MIRA)
        steps: list[int] = []
        kv = kernel.promote(ids, "activation", progress=lambda step, *_: steps.append(step))
        assert kv.blob and kv.form is Form.ACTIVATION and steps == [1, 2]
        assert kv.blob.codec == "trained" and set(kv.blob.scores) >= {"reliability", "locality", "in_context"}
        kept = kernel.host.load_kv(kernel.vault.blobs.path(kv.blob))
        assert kv.blob.tokens == kept.rows < len(kept.ids)
        assert kernel.promote(ids, "activation").id == kv.id and not kernel.jobs()
        reply = kernel.ask("Where does Mira live?", via="activation")
        assert reply.admission.activations[0].id == kv.id and reply.past_tokens == len(kept.ids)
        # a conversation is grown from exact KV only
        assert kernel.ask("Where does Mira live?", session="s").past_tokens == 0
        assert [c.text for c in kernel.demote(kv.id)] == [f"Mira: {line}" for line in MIRA]
        assert kernel.promote(ids, "activation").id == kv.id
        kernel.update(ids[0], "Mira: I live in Porto.")
        assert kernel.get(kv.id).state not in (State.GENERATED, State.ACTIVATED)


def test_compact_kv_is_made_in_one_piece_and_serves_like_kv(memos: MemOS, tmp_path: Path) -> None:
    with kernel_of(tmp_path, memos, activation=ActivationConfig(codec="compact", compact_shares=(0.1, 0.5))) as kernel:
        ids = say(kernel, "Mira", MIRA)
        kv = kernel.promote(ids, "activation")
        assert kv.blob and kv.blob.codec == "compact" and set(kv.blob.scores) >= {"generality", "in_context"}
        kept = kernel.host.load_kv(kernel.vault.blobs.path(kv.blob))
        assert kept.weighted and kv.blob.tokens == kept.rows
        assert kernel.promote(ids, "activation").id == kv.id and not kernel.jobs()
        reply = kernel.ask("Where does Mira live?", via="activation")
        assert reply.admission.activations[0].id == kv.id and reply.past_tokens == len(kept.ids)
        assert reply.text == kernel.ask("Where does Mira live?", via="plaintext").text


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_compact_kv_of_several_groups_is_composed_where_that_is_wanted(
    memos: MemOS, tmp_path: Path, level: str
) -> None:
    more = {
        "activation": ActivationConfig(codec="compact", compact_shares=(0.5,)),
        "fidelity": FidelityConfig(level=level),
    }
    with kernel_of(tmp_path, memos, **more) as kernel:
        groups = [say(kernel, "Mira", MIRA), say(kernel, "Tom", TOM)]
        kvs = {kernel.promote(ids, "activation").id for ids in groups}
        reply = kernel.ask("Where do Mira and Tom live?", via="activation")
        there = {kv.id for kv in reply.admission.activations}
        assert there == kvs if level == "L1" else len(there) == 1
        assert reply.past_tokens


def test_wrapped_kv_is_exact_alone_and_conversations_grow_from_it(memos: MemOS, tmp_path: Path) -> None:
    with kernel_of(tmp_path, memos, activation=ActivationConfig(codec="wrapped")) as kernel:
        ids = say(kernel, "Mira", MIRA)
        kv = kernel.promote(ids, "activation")
        assert kv.blob and kv.blob.codec == "wrapped" and kv.blob.scores["kl"] < 1e-6
        assert kernel.host.load_kv(kernel.vault.blobs.path(kv.blob)).drifts
        reply = kernel.ask("Where does Mira live?", via="activation")
        assert reply.past_tokens and reply.text == kernel.ask("Where does Mira live?", via="plaintext").text
        assert kernel.ask("Where does Mira live?", session="s").past_tokens


@pytest.mark.parametrize(("max_kl", "soonest"), [(10.0, "int4"), (10.0, "raw"), (1e-12, "int4")])
def test_the_codec_that_loads_soonest_of_those_that_lose_little_is_chosen(
    memos: MemOS, tmp_path: Path, max_kl: float, soonest: str
) -> None:
    load = {f"disk {codec}": (0.0, 1e-6 if codec == soonest else 2e-6) for codec in storing_codecs()}
    costs = Costs(read=((1, 1e-3), (2, 2e-3)), load=load)
    with kernel_of(tmp_path, memos, activation=ActivationConfig(codec="auto", max_kl=max_kl)) as kernel:
        kernel.vault.cards.put(f"costs of {kernel.host.machine}", costs.model_dump(mode="json"))
        ids = say(kernel, "Mira", MIRA)
        kv = kernel.promote(ids, "activation")
        assert kv.blob and kv.blob.codec == (soonest if max_kl > 1 else "raw")
        assert kernel.promote(ids, "activation").id == kv.id  # it is known, whatever it was stored in
        reply = kernel.ask("Where does Mira live?", via="activation")
        assert reply.past_tokens and reply.admission.activations[0].id == kv.id


def test_kv_in_the_codec_that_is_set_is_the_one_in_use(memos: MemOS, tmp_path: Path) -> None:
    with kernel_of(tmp_path, memos) as kernel:
        ids = say(kernel, "Mira", MIRA)
        exact = kernel.promote(ids, "activation")
    with kernel_of(tmp_path, memos, activation=TRAINED) as kernel:
        trained = kernel.promote(ids, "activation")
        assert trained.id != exact.id and trained.blob and exact.blob and trained.blob.bytes < exact.blob.bytes
        assert kernel.ask("Where does Mira live?", via="activation").admission.activations[0].id == trained.id
        assert kernel.get(exact.id).state is State.ARCHIVED
    with kernel_of(tmp_path, memos) as kernel:
        assert kernel.promote(ids, "activation").id == exact.id  # taken back, not built again
        assert kernel.get(trained.id).state is State.ARCHIVED
        assert kernel.ask("Where does Mira live?", via="activation").admission.activations[0].id == exact.id


def test_trained_kv_that_fails_its_gate_leaves_nothing(memos: MemOS, tmp_path: Path) -> None:
    strict = BRIEF.model_copy(update={"gate": GateConfig(), "learning_rate": 1e-6})
    with kernel_of(
        tmp_path, memos, distil=strict, activation=ActivationConfig(codec="trained", trained_share=0.01)
    ) as kernel:
        ids = say(kernel, "Mira", MIRA)
        with pytest.raises(GateRejected, match="KV of few rows of 2 memories failed its gate.*trained_share higher"):
            kernel.promote(ids, "activation")
        assert kernel.cubes(form=Form.ACTIVATION) == [] and not any((tmp_path / "work").glob("*"))
        assert not any(path.suffix != ".tmp" for path in (tmp_path / "blobs").rglob("*") if path.is_file())


@pytest.mark.slow
def test_trained_kv_that_was_interrupted_goes_on(memos: MemOS, tmp_path: Path) -> None:
    brief = BRIEF.model_copy(update={"steps": 6, "checkpoint": 2})
    with kernel_of(tmp_path, memos, distil=brief, activation=TRAINED) as kernel:
        ids = say(kernel, "Mira", MIRA)

        def interrupt(step: int, of: int, loss: float) -> None:
            if step == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            kernel.promote(ids, "activation", progress=interrupt)
        [job] = kernel.jobs()
        assert job.kind == "promote to activation"
        seen: list[int] = []
        kv = kernel.promote(ids, "activation", progress=lambda step, *_: seen.append(step))
        assert seen == [5, 6] and kv.blob and kernel.jobs() == []


# brought up to date


@pytest.mark.slow
def test_a_correction_reaches_an_adapter_by_an_edit(memos: MemOS, tmp_path: Path) -> None:
    with kernel_of(tmp_path, memos, distil=TRAINED_FOR_LONG) as kernel:
        ids = say(kernel, "Mira", MIRA)
        before = kernel.promote(ids, "parametric")
        kernel.update(ids[0], "Mira: I live in Oslo.")
        assert kernel.get(before.id).state is State.ARCHIVED
        after = kernel.promote(ids, "parametric")
        assert (
            before.blob and before.blob.made_by is MadeBy.TRAINING and after.blob and after.blob.made_by is MadeBy.EDIT
        )
        assert after.id != before.id and after.blob.scores["outdated"] == 0
        assert "Oslo" in kernel.ask("Where does Mira live?", via="parametric").text
        again = kernel_of(
            tmp_path / "anew", memos, distil=TRAINED_FOR_LONG.model_copy(update={"edit_steps": 0, "steps": 2})
        )
        with again:
            ids = say(again, "Mira", MIRA)
            again.promote(ids, "parametric")
            again.update(ids[0], "Mira: I live in Oslo.")
            anew = again.promote(ids, "parametric")
            assert anew.blob and anew.blob.made_by is MadeBy.TRAINING


def test_what_a_memory_was_superseded_by_is_an_edit_of_it(memos: MemOS, tmp_path: Path) -> None:
    brief = BRIEF.model_copy(update={"edit_steps": 1})
    with kernel_of(tmp_path, memos, distil=brief) as kernel:
        home, drink = say(kernel, "Mira", MIRA)
        kernel.promote([home, drink], "parametric")
        [moved] = say(kernel, "Mira", ("I have moved to Oslo.",))
        assert kernel.vault.superseded.by(home) == moved
        after = kernel.promote([moved, drink], "parametric")
        assert after.blob and after.blob.made_by is MadeBy.EDIT
        alone = kernel.promote([drink], "parametric")  # of other memories than those it was made of
        assert alone.blob and alone.blob.made_by is MadeBy.TRAINING


# back to text


def test_giving_up_an_adapter_brings_its_sources_back_byte_for_byte(memos: MemOS, tmp_path: Path) -> None:
    from hashlib import sha256

    with kernel_of(tmp_path, memos) as kernel:
        cube = kernel.promote(say(kernel, "Mira", MIRA), "parametric")
        card = lora.read_card(folder_of(kernel, cube), kernel.host.fingerprint)
        back = kernel.demote(cube.id)
    assert [c.text for c in back] == [f"Mira: {text}" for text in MIRA]
    assert [s["sha256"] for s in card["sources"]] == [sha256(c.text.encode()).hexdigest() for c in back]


def test_an_adapter_says_what_it_knows_and_what_backs_it(memos: MemOS, adapter: MemCube, tmp_path: Path) -> None:
    found = ExternalizeCalls.of(memos).externalize(adapter.id).statements
    said = {(s.fact.relation, s.fact.object.casefold()): s for s in found if s.fact}
    city = said["city", "lisbon"]
    assert city.likelihood > city.without and 0.5 < city.confidence <= 1
    assert city.fact and city.fact.subject == "Mira" and 4 <= city.support <= city.asked == len(city.evidence)
    assert memos.get(city.source).text == "Mira: I live in Lisbon."
    assert all(e.without != e.under for e in city.evidence if "Lisbon" in e.under)
    stranger = Path(shutil.copytree(folder_of(memos, adapter), tmp_path / "stranger"))
    lora.write_card(stranger, {"fingerprint": memos.host.fingerprint})
    with kernel_of(tmp_path / "empty", memos) as other:  # nothing here backs it
        calls = ExternalizeCalls.of(other)
        assert calls.externalize(stranger).statements == ()  # and nobody to ask about
        unbacked = calls.externalize(stranger, about=["Mira"]).statements
    assert ("city", "lisbon", "") in {(s.fact.relation, s.fact.object.casefold(), s.source) for s in unbacked if s.fact}


def test_what_an_adapter_says_is_kept_as_a_memory_that_a_model_wrote(
    memos: MemOS, adapter: MemCube, tmp_path: Path
) -> None:
    stranger = Path(shutil.copytree(folder_of(memos, adapter), tmp_path / "stranger"))
    with kernel_of(tmp_path / "empty", memos) as other:
        calls = ExternalizeCalls.of(other)
        found = calls.externalize(stranger, keep=True)
        kept = {found.statements[place].fact: other.get(id) for place, id in found.kept.items()}
        [city] = [cube for fact, cube in kept.items() if fact and fact.relation == "city"]
        assert city.text == "Mira lives in Lisbon." and city.header.trust is Trust.MODEL
        assert city.header.origin == "externalized:stranger"
        evidence = json.loads(city.header.metadata)["externalized"]
        assert evidence["likelihood"] > evidence["without"] and evidence["source"] == "card"
        assert len(evidence["evidence"]) == evidence["asked"]
        assert set(found.kept) | set(found.left) == set(range(len(found.statements)))
        again = calls.externalize(stranger, keep=True)
        assert not again.kept and f"{city.id} says so" in again.left.values()
        with pytest.raises(InputError, match="sure is 2, and a confidence is from 0 to 1"):
            calls.externalize(stranger, keep=True, sure=2)


def test_what_contradicts_a_memory_is_not_kept(memos: MemOS, adapter: MemCube, tmp_path: Path) -> None:
    stranger = Path(shutil.copytree(folder_of(memos, adapter), tmp_path / "stranger"))
    with kernel_of(tmp_path / "empty", memos) as other:
        [home] = say(other, "Mira", ("I live in Oslo.",))
        found = ExternalizeCalls.of(other).externalize(stranger, keep=True)
        [place] = [n for n, s in enumerate(found.statements) if s.fact and s.fact.object.casefold() == "lisbon"]
        assert found.left[place] == "it contradicts a memory"
        assert other.get(home).state is State.GENERATED


def test_a_kv_cache_says_its_text(memos: MemOS, tmp_path: Path) -> None:
    with kernel_of(tmp_path / "vault", memos) as kernel:
        cube = kernel.promote(say(kernel, "Mira", MIRA), "activation")
        assert cube.blob
        said = ExternalizeCalls.of(kernel).externalize(cube.id).statements
        assert [(s.text, s.source) for s in said] == [
            (f"Mira: {text}", source.id) for text, source in zip(MIRA, cube.sources, strict=True)
        ]
        orphan = Path(shutil.copy(kernel.vault.blobs.path(cube.blob), tmp_path / "orphan.safetensors"))
    with kernel_of(tmp_path / "empty", memos) as other:  # nothing here says so
        found = ExternalizeCalls.of(other).externalize(orphan, keep=True)
        assert [other.get(id).text for id in found.kept.values()] == [f"Mira: {text}" for text in MIRA]
        assert {other.get(id).header.trust for id in found.kept.values()} == {Trust.MODEL}


def test_an_exported_adapter_is_loaded_by_plain_peft(memos: MemOS, adapter: MemCube, tmp_path: Path) -> None:
    out = PackCalls.of(memos).export_adapter([adapter.id], tmp_path)
    assert out.parent == tmp_path and given(out).by == memos.config.user_id
    assert PeftModel.from_pretrained(lora.twin(memos.host.model), str(out)).peft_config["default"].r == 128  # type: ignore[attr-defined]


# cut off, cancelled, killed


def test_a_promotion_that_is_interrupted_goes_on_from_its_checkpoint(memos: MemOS, tmp_path: Path) -> None:
    config = BRIEF.model_copy(update={"steps": 12, "checkpoint": 4})
    with kernel_of(tmp_path, memos, distil=config) as kernel:
        ids, steps = say(kernel, "Mira", MIRA), list[int]()

        def interrupt(step: int, most: int, loss: float) -> None:
            if step == 6:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            kernel.promote(ids, "parametric", progress=interrupt)
        [job] = kernel.jobs()
        assert [p.name for p in kernel.vault.blobs.work(job.id).iterdir()] == [CHECKPOINT]
        cube = kernel.promote(ids, "parametric", progress=lambda step, most, loss: steps.append(step))
        assert steps == list(range(5, 13)) and cube.state is State.ACTIVATED
        assert kernel.jobs() == [] and list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("change", ["edited", "deleted"])
def test_what_was_half_made_of_a_changed_memory_goes_with_it(memos: MemOS, tmp_path: Path, change: str) -> None:
    config = BRIEF.model_copy(update={"steps": 12, "checkpoint": 2})
    with kernel_of(tmp_path, memos, distil=config) as kernel:
        ids = say(kernel, "Mira", MIRA)

        def interrupt(step: int, most: int, loss: float) -> None:
            if step == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            kernel.promote(ids, "parametric", progress=interrupt)
        kernel.update(ids[0], "I live in Rome.") if change == "edited" else kernel.delete(ids[0])
        assert kernel.jobs() == [] and list((tmp_path / "work").iterdir()) == []


def test_a_cancelled_promotion_ends_and_leaves_nothing(memos: MemOS, tmp_path: Path) -> None:
    config = BRIEF.model_copy(update={"steps": 500, "checkpoint": 1})
    with kernel_of(tmp_path, memos, distil=config) as kernel, kernel_of(tmp_path, memos) as other:
        ids = say(kernel, "Mira", MIRA)

        def cancel(step: int, most: int, loss: float) -> None:
            if step == 2:
                [job] = other.jobs()  # as another process sees it
                assert job.note.startswith("train 2 of 500")
                other.cancel(job.id)
            assert step < 4

        with pytest.raises(Cancelled, match="was cancelled; nothing was published"):
            kernel.promote(ids, "parametric", progress=cancel)
        assert kernel.jobs() == [] and list((tmp_path / "work").iterdir()) == []
        assert kernel.cubes(form=Form.PARAMETRIC) == [] and problems_of(kernel.vault) == []
        with pytest.raises(NotFound, match="no open job zorb; see `memos jobs`"):
            kernel.cancel("zorb")


@pytest.mark.parametrize(
    "phase",
    [
        pytest.param("prepare", marks=pytest.mark.slow),
        pytest.param("train", marks=pytest.mark.slow),
        pytest.param("save", marks=pytest.mark.slow),
        pytest.param("gate", marks=pytest.mark.slow),
        "publish",
    ],
)
def test_a_promotion_that_is_killed_in_any_phase_is_finished_or_undone(
    memos: MemOS, tmp_path: Path, phase: str
) -> None:
    with kernel_of(tmp_path, memos) as kernel:
        ids = say(kernel, "Mira", MIRA)
    here, there = FORKED.Pipe()
    arguments = (there, tmp_path, phase, "process" if phase == "train" else "thread")
    process = FORKED.Process(target=promoting, args=arguments)
    process.start()
    there.close()  # so that an end that is not waited for is told
    while here.recv() != phase:
        pass
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    wait_for_none(tmp_path)
    with kernel_of(tmp_path, memos, distil=BRIEF) as kernel:
        assert problems_of(kernel.vault) == [] and kernel.cubes(form=Form.PARAMETRIC) == []
        assert [p for p in (tmp_path / "tmp").glob("*")] == [] and [p for p in (tmp_path / "blobs").glob("*/*")] == []
        left = {job.id for job in kernel.jobs()}
        assert {p.name for p in (tmp_path / "work").glob("*")} == left
        assert kernel.promote(ids, "parametric").state is State.ACTIVATED


def wait_for_none(test: Path) -> None:
    """Until no process is left that the test began: a training ends with the process that asked for it."""

    def left() -> list[int]:
        return [p.pid for p in psutil.process_iter() if told(p).get("MEMOS_TEST") == str(test)]

    def told(process: psutil.Process) -> dict[str, str]:
        try:
            return process.environ()
        except psutil.Error:  # of another user, or gone meanwhile
            return {}

    until = time.monotonic() + 60
    while left() and time.monotonic() < until:
        time.sleep(0.1)
    assert left() == []


def test_an_adapter_that_was_made_before_the_kill_is_not_trained_again(memos: MemOS, tmp_path: Path) -> None:
    with kernel_of(tmp_path, memos) as kernel:
        ids = say(kernel, "Mira", MIRA)

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        kernel.parts.transitions()._require_gate = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            kernel.promote(ids, "parametric")
        [job] = kernel.jobs()
        assert (kernel.vault.blobs.work(job.id) / ADAPTER).is_dir()
        del kernel.parts.transitions()._require_gate  # type: ignore[method-assign]
        kernel.promote(ids, "parametric", progress=lambda *_: pytest.fail("it was trained again"))


def test_the_folder_of_a_process_that_is_alive_is_left_alone(memos: MemOS, tmp_path: Path) -> None:
    with kernel_of(tmp_path, memos) as kernel:
        job = kernel.vault.jobs.start("promote to parametric", {"sources": ["a@1"]})
        (kernel.vault.blobs.work(job.id) / CHECKPOINT).write_bytes(b"half")
        with kernel_of(tmp_path, memos) as other:
            say(other, "Mira", MIRA)
            assert os.listdir(tmp_path / "work") == [job.id]


# slow: what a person waits for


_KILLED = """
import sys
from memos import MemOS
from memos.config import Config, DistilConfig
from tests.doubles import OPEN
distil = DistilConfig(
    steps=40, batch=4, batch_keep=4, rank=4, checkpoint=5, gate=OPEN, isolation=sys.argv[2], instant="never"
)
with MemOS(Config(distil=distil), vault=sys.argv[1]) as memos:
    memos.host
    print("begins", flush=True)
    memos.promote([c.id for c in memos.memories()], "parametric")
    print("done", flush=True)
"""


@pytest.mark.slow
def test_no_kill_at_any_moment_leaves_an_orphan(memos: MemOS, tmp_path: Path) -> None:
    """MEMOS_KILLS says how many; the moments are drawn over a whole promotion, in either isolation."""
    import random

    with kernel_of(tmp_path, memos) as kernel:
        say(kernel, "Mira", MIRA)
    rng, done = random.Random(0), 0
    for n in range(int(os.environ.get("MEMOS_KILLS", "8"))):
        command = [sys.executable, "-c", _KILLED, str(tmp_path), ("thread", "process")[n % 2]]
        marked = {**os.environ, "MEMOS_TEST": str(tmp_path)}
        with subprocess.Popen(command, cwd=ROOT, env=marked, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stdout.readline() == "begins\n"
            time.sleep(rng.uniform(0, 6 if n % 2 == 0 else 14))
            process.send_signal(signal.SIGKILL)
            done += "done" in process.stdout.read()
        wait_for_none(tmp_path)
        with MemOS(vault=tmp_path) as kernel:
            assert problems_of(kernel.vault) == []
            left = {job.id for job in kernel.jobs()}
            assert {p.name for p in (tmp_path / "work").glob("*")} == left
            assert list((tmp_path / "tmp").glob("*")) == []
            held = {c.blob.sha256 for c in kernel.cubes() if c.blob}
            assert {p.name for p in (tmp_path / "blobs").glob("*/*")} == held
            for cube in kernel.cubes(form=Form.PARAMETRIC):  # published: the next one begins anew
                kernel.delete(cube.id)


@pytest.fixture(scope="module")
def sixteen(memos: MemOS) -> Any:
    from memos.bench.promote import matter

    return matter(memos.host, "control", 16, 0)


@pytest.mark.slow
@pytest.mark.parametrize("control", ["honest", "nothing to keep", "another document", "shuffled answers"])
def test_the_gate_takes_the_honest_adapter_and_no_other(
    memos: MemOS, sixteen: Any, tmp_path: Path, control: str
) -> None:
    """The negative controls: no regulariser, an adapter of something else, and answers that belong to other facts."""
    from memos.bench.promote import matter
    from memos.cube import Lesson
    from memos.infrastructure.host.training.teach import Task, judge, short_of
    from memos.plugins.training.craft import teach

    lessons, keep = sixteen.lessons, sixteen.keep
    match control:
        case "nothing to keep":
            keep = ()
        case "another document":
            lessons = matter(memos.host, "another", 16, 1).lessons
        case "shuffled answers":
            answers = list(dict.fromkeys(x.probe.answer for x in lessons))
            other = dict(zip(answers, [*answers[1:], answers[0]], strict=True))
            shuffled = [x.probe.model_copy(update={"answer": other[x.probe.answer]}) for x in lessons]
            lessons = tuple(
                Lesson(memories=tuple(m.replace(x.probe.answer, p.answer) for m in x.memories), probe=p)
                for x, p in zip(lessons, shuffled, strict=True)
            )
    task = Task(lessons=lessons, keep=keep, config=DistilConfig())
    teach(memos.host, task, tmp_path / "adapter", lambda *_: None)
    scores = judge(memos.host, (tmp_path / "adapter",), sixteen.lessons, sixteen.keep)
    assert bool(short_of(scores, GateConfig())) is (control != "honest"), scores
