"""One memory in three forms: what a promotion makes, what undoes it, and what is left where it does not come to that.

The gate is open here and training short: what an adapter knows is not judged, only what the kernel does with it.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from memos import MemOS
from memos.config import Config, FidelityConfig, GateConfig, SchedulerConfig
from memos.cube import Form, MemCube, Namespace, Probe, State
from memos.errors import (
    Conflict,
    ContextOverflow,
    CorruptBlob,
    EmptyMemory,
    FingerprintMismatch,
    GateRejected,
    InputError,
    MemosError,
    NoProbes,
    NoRoom,
    NotFound,
)
from memos.infrastructure.host.kv.files import RAW
from memos.infrastructure.host.model.load import SMALL_MODEL, model_path
from memos.infrastructure.host.request import Request
from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.choosing.mem_scheduler import Via
from memos.plugins.care.check import problems_of
from memos.plugins.experiment.steps import parity
from tests.doubles import BRIEF, BriefReader

ROOT = Path(__file__).parents[2]
# learns nothing; the gate as it is by default
STRICT = BRIEF.model_copy(update={"steps": 1, "learning_rate": 1e-6, "gate": GateConfig()})
SAID = ("I live in Lisbon.", "I work as a nurse.", "My favourite drink is tea.")
ASKED = "Where does Mira live?"
FORMS: tuple[Via, ...] = ("activation", "parametric")


def opened(vault: Path, model: MemOS | None = None, **config: Any) -> MemOS:
    """A kernel over this vault, with the model that another one has loaded."""
    given = {"model": model.host.model, "tokenizer": model.host.tokenizer} if model else {}
    # what is fastest on this machine at this moment is not what is tested here
    settings = {"distil": BRIEF, "scheduler": SchedulerConfig(choice="dearest", routing="retrieval")} | config
    kernel = MemOS(Config(**settings), vault=vault, **given)
    kernel.parts.reader = BriefReader()
    return kernel


@pytest.fixture(scope="module")
def memos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    with opened(tmp_path_factory.mktemp("kernel") / "vault") as kernel:
        yield kernel


def talk(memos: MemOS, user: str | None = None) -> list[str]:
    """Ids of what Mira said; her job is another for each user, so that no two payloads are the same."""
    said = [text.replace("nurse", f"nurse of {user}") if user else text for text in SAID]
    turns = [{"speaker": "Mira", "content": text, "time": f"2025-03-0{n}T09:00:00"} for n, text in enumerate(said, 1)]
    return [cube.id for cube in memos.within(user).add(turns)]


def files(memos: MemOS) -> set[str]:
    """Payloads and what is staged."""
    folder = memos.vault.path
    return {
        str(p.relative_to(folder))
        for part in ("blobs", "tmp", "work")
        for p in (folder / part).rglob("*")
        if p.is_file()
    }


def jobs(vault: MemVault | MemOS) -> list[tuple[str, str, str]]:
    """(kind, state, note) of every job, oldest first."""
    db = (vault.vault if isinstance(vault, MemOS) else vault)._db
    return db.rows("SELECT kind, state, ifnull(note, '') FROM jobs ORDER BY started, id")


def blob_file(memos: MemOS, cube: MemCube) -> Path:
    assert cube.blob
    return memos.vault.blobs.path(cube.blob)


def flip(path: Path) -> None:
    """One bit of a payload: of the file, or of the weights in the folder."""
    path = path / "adapter_model.safetensors" if path.is_dir() else path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


# up and down


def test_a_memory_goes_from_text_to_kv_and_back(memos: MemOS, ada: str) -> None:
    ids = talk(memos, ada)
    as_text = memos.within(ada).ask(ASKED)
    assert as_text.admission.form is Form.PLAINTEXT and as_text.past_tokens == 0

    kv = memos.within(ada).promote(ids, "activation")
    assert (kv.form, kv.state, [s.id for s in kv.sources]) == (Form.ACTIVATION, State.ACTIVATED, ids)
    assert kv.blob and kv.blob.scores["max_abs_logit_diff"] <= 1e-4 and kv.blob.scores["top1_agreement"] == 1.0
    assert blob_file(memos, kv).stat().st_size == kv.blob.bytes
    over_kv = memos.within(ada).ask(ASKED)
    assert over_kv.admission.activations == (memos.within(ada).get(kv.id).model_copy(update={"usage": kv.usage}),)
    assert over_kv.text == as_text.text == memos.within(ada).ask(ASKED, via="plaintext").text
    assert over_kv.past_tokens == kv.blob.tokens > 0
    assert over_kv.prompt_tokens == as_text.prompt_tokens - kv.blob.tokens
    assert parity(memos.services, memos.within(ada).caller, ASKED)[0] <= 1e-4

    back = memos.within(ada).demote(kv.id)
    assert [c.id for c in back] == ids and memos.within(ada).get(kv.id).state is State.ARCHIVED
    assert memos.within(ada).ask(ASKED).admission.form is Form.PLAINTEXT
    with pytest.raises(EmptyMemory, match="no activation memory stands for Mira; promote"):
        memos.within(ada).ask(ASKED, via="activation")


def test_an_adapter_answers_with_nothing_in_the_prompt(memos: MemOS, ada: str) -> None:
    ids = talk(memos, ada)
    adapter = memos.within(ada).promote(ids, "parametric")
    assert (adapter.form, adapter.state, [s.id for s in adapter.sources]) == (Form.PARAMETRIC, State.ACTIVATED, ids)
    reply, without = memos.within(ada).ask(ASKED, via="parametric"), memos.within(ada).ask(ASKED, via="none")
    assert (reply.admission.adapters, reply.admission.cubes) == ((adapter,), ())
    assert [c.id for c in reply.admission.internal] == ids
    assert reply.prompt_tokens == without.prompt_tokens and reply.past_tokens == 0

    memos.within(ada).promote(ids, "activation")
    assert memos.within(ada).ask(ASKED).admission.form is Form.PARAMETRIC  # the dearest that stands for it
    memos.within(ada).demote(adapter.id)
    assert memos.within(ada).ask(ASKED).admission.form is Form.ACTIVATION


@pytest.mark.parametrize("form", FORMS)
def test_what_was_built_is_not_built_again(memos: MemOS, ada: str, form: Any) -> None:
    ids = talk(memos, ada)
    steps: list[int] = []

    def promote(order: Sequence[str]) -> MemCube:
        return memos.within(ada).promote(order, form, progress=lambda step, most, loss: steps.append(step))

    cube = promote(ids)
    made, stored, built = blob_file(memos, cube).stat().st_mtime_ns, files(memos), list(steps)
    assert built
    assert promote(ids[::-1]) == cube  # the canonical order is the order in which things were said
    assert promote([cube.id]) == cube  # of a derived cube, its sources
    memos.within(ada).demote(cube.id)
    again = promote(ids)
    assert (again.id, again.blob, again.state) == (cube.id, cube.blob, State.ACTIVATED)
    assert (steps, files(memos), blob_file(memos, again).stat().st_mtime_ns) == (built, stored, made)


def test_use_is_counted_for_every_cube_that_served(memos: MemOS, ada: str) -> None:
    ids = talk(memos, ada)
    kv = memos.within(ada).promote(ids, "activation")
    for _ in range(3):
        memos.within(ada).ask(ASKED)
    assert [memos.within(ada).get(id).usage.recalls for id in (*ids, kv.id)] == [3, 3, 3, 3]


def test_kv_of_the_first_memories_serves_when_more_were_said(memos: MemOS, ada: str) -> None:
    ids = talk(memos, ada)
    kv = memos.within(ada).promote(ids[:2], "activation")
    reply = memos.within(ada).ask(ASKED, via="activation")
    assert [c.id for c in reply.admission.activations] == [kv.id]
    assert [c.id for c in reply.admission.cubes] == ids  # the last as text
    assert reply.text == memos.within(ada).ask(ASKED, via="plaintext").text
    assert parity(memos.services, memos.within(ada).caller, ASKED)[0] <= 1e-4


# never outliving the truth of its sources


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "change",
    [
        lambda memos, user, ids: memos.within(user).update(ids[1], "I work as a baker."),
        lambda memos, user, ids: memos.within(user).delete(ids[1]),
        lambda memos, user, ids: memos.within(user).add(
            [{"speaker": "Mira", "content": "Actually, I now live in Rome."}]
        ),
    ],
    ids=["edited", "deleted", "corrected"],
)
def test_a_change_of_a_source_takes_its_derived_forms_out_of_use_at_once(
    memos: MemOS, ada: str, form: Via, change: Any
) -> None:
    ids = talk(memos, ada)
    cube = memos.within(ada).promote(ids, form)  # type: ignore[arg-type]  # one of the two forms
    assert memos.within(ada).ask(ASKED).admission.form == form
    change(memos, ada, ids)
    assert memos.within(ada).ask(ASKED).admission.form is Form.PLAINTEXT
    with pytest.raises(EmptyMemory):
        memos.within(ada).ask(ASKED, via=form)
    left = [c for c in memos.within(ada).cubes() if c.id == cube.id]
    assert [c.state for c in left] in ([], [State.ARCHIVED])


def test_an_edited_memory_is_promoted_anew(memos: MemOS, ada: str) -> None:
    ids = talk(memos, ada)
    first = memos.within(ada).promote(ids, "activation")
    memos.within(ada).update(ids[0], "I live in Rome.")
    second = memos.within(ada).promote(ids, "activation")
    assert second.id != first.id and [s.version for s in second.sources] == [2, 1, 1]
    reply = memos.within(ada).ask(ASKED, via="activation")
    assert [c.id for c in reply.admission.activations] == [second.id]
    assert reply.admission.cubes[0].text == "Mira: I live in Rome."


@pytest.mark.parametrize("form", ["activation", pytest.param("parametric", marks=pytest.mark.slow)])
def test_what_is_promoted_of_derived_cubes_merges_them(memos: MemOS, ada: str, form: Any) -> None:
    ids = talk(memos, ada)
    parts = [memos.within(ada).promote(some, form) for some in (ids[:2], ids[2:])]
    other = memos.within(ada).promote(ids[0], "activation" if form == "parametric" else "parametric")
    whole = memos.within(ada).promote([parts[0].id, parts[1].id[:20], other.id], form)
    assert [source.id for source in whole.sources] == ids
    states = {cube.id: cube.state for cube in memos.within(ada).cubes()}
    assert [states[part.id] for part in parts] == [State.ARCHIVED, State.ARCHIVED]
    assert states[other.id] is states[whole.id] is State.ACTIVATED  # that one is of another form
    assert memos.within(ada).ask(ASKED, via=form).admission.form == form
    assert memos.within(ada).promote(parts[0].id, form).id == parts[0].id  # taken back as any that was given up


@pytest.mark.parametrize("form", FORMS)
def test_a_deleted_memory_leaves_no_payload(memos: MemOS, ada: str, form: Any) -> None:
    before, ids = files(memos), talk(memos, ada)
    cube = memos.within(ada).promote(ids, form)
    assert len(files(memos)) > len(before)
    assert set(memos.within(ada).delete(ids[0])) == {ids[0], cube.id}
    assert files(memos) == before


# damage


@pytest.mark.sqlite
@pytest.mark.parametrize("form", ["activation", pytest.param("parametric", marks=pytest.mark.slow)])
@pytest.mark.parametrize("harm", ["flipped", "gone"])
def test_a_damaged_payload_is_left_aside_or_refused(
    tmp_path: Path, memos: MemOS, caplog: pytest.LogCaptureFixture, form: Any, harm: str
) -> None:
    with opened(tmp_path, memos) as kernel:
        ids = talk(kernel)
        cube = kernel.promote(ids, form)
        path = blob_file(kernel, cube)
        if harm == "flipped":
            flip(path)
        else:
            path.rename(tmp_path / "away")
    with opened(tmp_path, memos) as kernel:  # nothing in memory
        with caplog.at_level(logging.WARNING, "memos"):
            reply = kernel.ask(ASKED)
        assert reply.admission.form is Form.PLAINTEXT and [c.id for c in reply.admission.cubes] == ids
        assert "answering from text" in caplog.text
        with pytest.raises(CorruptBlob, match=rf"cube {cube.id} cannot be used: .*promote its sources again"):
            kernel.ask(ASKED, via=form)
        again = kernel.promote(ids, form)  # the way out that the message names
        assert again.id != cube.id
        assert kernel.ask(ASKED, via=form).admission.form == form
        assert problems_of(kernel.vault) == []


# rights


@pytest.mark.parametrize("form", FORMS)
def test_another_user_neither_sees_nor_uses_what_was_derived(memos: MemOS, ada: str, bob: str, form: Any) -> None:
    ids = talk(memos, ada)
    cube = memos.within(ada).promote(ids, form)
    assert memos.within(bob).cubes() == [] and memos.within(bob).segments() == []
    assert memos.within(bob).ask(ASKED).admission.form is None
    with pytest.raises(EmptyMemory):
        memos.within(bob).ask(ASKED, via=form)
    other = memos.within(bob)
    attempts: list[Any] = [other.get, other.demote, other.delete, other.history]
    attempts += [lambda id: other.promote(id, form)]
    for attempt in attempts:
        for id in (cube.id, ids[0]):
            with pytest.raises(NotFound):
                attempt(id)
    talk(memos, bob)  # the same words: still another memory
    assert memos.within(bob).ask(ASKED).admission.form is Form.PLAINTEXT
    assert memos.within(ada).get(cube.id).state is State.ACTIVATED
    assert memos.within(ada).get(cube.id).namespace == Namespace(user_id=ada)


def test_the_tick_of_one_user_moves_nothing_of_another(memos: MemOS, ada: str, bob: str) -> None:
    ids = talk(memos, ada)
    for _ in range(8):
        memos.within(ada).ask(ASKED)
    assert memos.within(bob).tick() == []
    assert memos.within(ada).cubes(form=Form.ACTIVATION) == []
    assert {m["move"] for m in memos.within(ada).tick()} == {"promote to activation"}
    assert len(memos.within(ada).cubes()) > len(ids)


# a model of the caller's own; two models


def another_model() -> PreTrainedModel:
    """It differs in one weight."""
    model = AutoModelForCausalLM.from_pretrained(model_path(SMALL_MODEL), dtype=torch.float32).eval()
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    return model


def test_a_model_that_is_already_loaded_is_wrapped(memos: MemOS, tmp_path: Path) -> None:
    folder = model_path(SMALL_MODEL)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    config = Config(scheduler=SchedulerConfig(choice="dearest"))
    with MemOS(config, model=model, tokenizer=AutoTokenizer.from_pretrained(folder), vault=tmp_path) as kernel:
        assert kernel.host.model is model
        asked = Request(({"role": "user", "content": ASKED},), ("Mira: I live in Lisbon.",))
        assert_close(kernel.host.logits(asked), memos.host.logits(asked))
        assert kernel.host.describe()["path"] == folder
        kernel.promote(talk(kernel), "activation")
        assert kernel.ask(ASKED).admission.form is Form.ACTIVATION


@pytest.mark.parametrize("given", ["model", "tokenizer"])
def test_a_model_comes_with_its_tokenizer(memos: MemOS, tmp_path: Path, given: str) -> None:
    with pytest.raises(InputError, match="model and tokenizer belong together"):
        MemOS(vault=tmp_path / "never", **{given: getattr(memos.host, given)})
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("form", ["activation", pytest.param("parametric", marks=pytest.mark.slow)])
def test_a_vault_that_two_models_use(memos: MemOS, tmp_path: Path, form: Any) -> None:
    with opened(tmp_path, memos) as own:
        ids = talk(own)
        first = own.promote(ids, form)
        another = MemOS(Config(distil=BRIEF), vault=tmp_path, model=another_model(), tokenizer=memos.host.tokenizer)
        with another as other:
            other.reader = BriefReader()
            assert other.ask(ASKED).admission.form is Form.PLAINTEXT  # of no use to it, and no fault
            with pytest.raises(FingerprintMismatch, match="weights .*promote the sources again"):
                other.ask(ASKED, via=form)
            second = other.promote(ids, form)
            assert second.id != first.id and second.blob and second.blob.fingerprint == other.host.digest
            assert other.ask(ASKED, via=form).admission.form == form
        assert own.ask(ASKED, via=form).admission.form == form


# promotions that come to nothing


def test_a_promotion_that_fails_its_gate_leaves_nothing(memos: MemOS, tmp_path: Path) -> None:
    with opened(tmp_path, memos, distil=STRICT) as kernel:
        ids = talk(kernel)
        before = kernel.cubes()
        with pytest.raises(GateRejected, match=r"generality 0\.\d+ \(at least 0.9\).*nothing was published") as refused:
            kernel.promote(ids, "parametric")
        assert refused.value.scores["generality"] < 0.9
        assert (kernel.cubes(), files(kernel)) == (before, set())
        assert [(kind, state) for kind, state, _ in jobs(kernel)] == [("promote to parametric", "undone")]
        assert jobs(kernel)[0][2].startswith("GateRejected")
        assert kernel.ask(ASKED).admission.form is Form.PLAINTEXT


def test_a_promotion_that_is_interrupted_leaves_nothing_and_is_made_again(memos: MemOS, ada: str) -> None:
    ids, before, done = talk(memos, ada), files(memos), len(jobs(memos))

    def interrupt(step: int, most: int, loss: float) -> None:
        raise KeyboardInterrupt

    for form in (Form.ACTIVATION, Form.PARAMETRIC):
        with pytest.raises(KeyboardInterrupt):
            memos.within(ada).promote(ids, form, progress=interrupt)
        assert files(memos) == before, form
        ended = "undone" if form is Form.ACTIVATION else "interrupted"
        assert [(state, note) for _, state, note in jobs(memos)[done:]] == [(ended, "KeyboardInterrupt: ")]
        assert [c.form for c in memos.within(ada).cubes()] == [Form.PLAINTEXT] * 3
        assert memos.within(ada).promote(ids, form).state is State.ACTIVATED
        memos.within(ada).delete(memos.within(ada).cubes(form=form)[0].id)
        done = len(jobs(memos))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", ["edited", "deleted"])
def test_a_source_that_changes_meanwhile_undoes_the_promotion(memos: MemOS, ada: str, form: Any, change: str) -> None:
    """What was built is of the old words, so not a byte of it may stay."""
    ids, before = talk(memos, ada), files(memos)

    def meanwhile(step: int, most: int, loss: float) -> None:
        if step == 1:
            memos.within(ada).update(ids[0], "I live in Rome.") if change == "edited" else memos.within(ada).delete(
                ids[0]
            )

    with pytest.raises(Conflict, match="stale: source"):
        memos.within(ada).promote(ids, form, progress=meanwhile)
    assert files(memos) == before
    assert {c.form for c in memos.within(ada).cubes()} == {Form.PLAINTEXT}
    assert jobs(memos)[-1][1] == "undone"


@pytest.mark.parametrize(
    "ids, to, error, message",
    [
        ([], "activation", EmptyMemory, "promote needs the ids of at least one memory"),
        (["zorb"], "activation", NotFound, "zorb"),
        (None, "plaintext", InputError, "plaintext"),
        (None, "zorb", InputError, "zorb"),
    ],
)
def test_what_cannot_be_promoted_is_named(
    memos: MemOS, ada: str, ids: list[str] | None, to: Any, error: type[MemosError], message: str
) -> None:
    own, before = talk(memos, ada), files(memos)
    with pytest.raises(error, match=message):
        memos.within(ada).promote(own if ids is None else ids, to)
    assert files(memos) == before and len(memos.within(ada).cubes()) == 3


def test_a_memory_that_nobody_can_ask_for_needs_probes_of_its_own(memos: MemOS, ada: str) -> None:
    [cube] = memos.within(ada).add("The zorb hums at dusk.")
    with pytest.raises(NoProbes, match=rf"no question can be made of {cube.id}.*add them with probes"):
        memos.within(ada).promote(cube.id, "parametric")
    assert memos.within(ada).promote(cube.id, "activation").state is State.ACTIVATED
    said = memos.within(ada).ask("When does the zorb hum?").text
    probes = [Probe(question="When does the zorb hum?", answer=said), Probe(question="?", answer=said, held_out=True)]
    memos.within(ada).add("The zorb hums at dusk.", probes=probes)
    assert memos.within(ada).promote(cube.id, "parametric").form is Form.PARAMETRIC


def test_what_is_plaintext_cannot_be_demoted(memos: MemOS, ada: str) -> None:
    [id, *_] = talk(memos, ada)
    with pytest.raises(InputError, match=f"cube {id} is plaintext, and there is no cheaper form"):
        memos.within(ada).demote(id)


def test_what_was_archived_cannot_be_promoted(memos: MemOS, ada: str) -> None:
    ids = talk(memos, ada)
    memos.within(ada).add([{"speaker": "Mira", "content": "Actually, I now live in Rome."}])
    with pytest.raises(InputError, match=f"{ids[0]} is archived and cannot be promoted"):
        memos.within(ada).promote(ids, "activation")


# by heat


def test_a_tick_promotes_what_is_used_and_then_rests(memos: MemOS, tmp_path: Path) -> None:
    heat = SchedulerConfig(activate_heat=4.9, parametric_heat=99.0, cool_heat=3.0, choice="dearest")
    with opened(tmp_path, memos, scheduler=heat) as kernel:
        ids = talk(kernel)
        assert kernel.tick() == []
        kernel.ask(ASKED)  # 1 visit, 3 memories, recency
        [done] = kernel.tick()
        assert (done["move"], done["why"]) == ("promote to activation", "heat 5.0")
        assert [s.id for s in kernel.get(done["cube"]).sources] == ids
        assert kernel.tick() == []
        assert kernel.ask(ASKED).admission.form is Form.ACTIVATION


def test_a_tick_does_not_try_again_what_was_refused(memos: MemOS, tmp_path: Path) -> None:
    heat = SchedulerConfig(activate_heat=4.9, parametric_heat=4.9, stable_s=0)
    with opened(tmp_path, memos, distil=STRICT, scheduler=heat) as kernel:
        ids = talk(kernel)
        kernel.ask(ASKED)
        [failed] = kernel.tick()
        assert failed["move"] == "promote to parametric" and "failed its gate" in failed["failed"]
        assert [m for m in kernel.tick() if m["move"] == "promote to parametric"] == []
        kernel.update(ids[0], "I live in Rome.")
        assert [m["move"] for m in kernel.tick()][-1:] == ["promote to parametric"]


# killed

_PROMOTE = """
import json, sys
from memos import MemOS
from memos.config import Config
from tests.doubles import BRIEF, BriefReader

vault, turns = sys.argv[1], json.loads(sys.argv[2])
endless = BRIEF.model_copy(update={"steps": 10_000, "stop_probability": 1.0})
with MemOS(Config(distil=endless), vault=vault) as memos:
    memos.reader = BriefReader()
    ids = [cube.id for cube in memos.add(turns)]
    memos.promote(ids, "parametric", progress=lambda step, most, loss: print(step, flush=True))
"""


@pytest.mark.slow
def test_a_promotion_that_is_killed_leaves_nothing_and_is_made_again(memos: MemOS, tmp_path: Path) -> None:
    turns = json.dumps([{"speaker": "Mira", "content": text} for text in SAID])
    command = [sys.executable, "-c", _PROMOTE, str(tmp_path), turns]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "1\n"  # training has begun
        process.send_signal(signal.SIGKILL)
    (tmp_path / "tmp" / "half").mkdir(parents=True)  # as if killed while it was being saved
    (tmp_path / "tmp" / "half" / "adapter_model.safetensors").write_bytes(b"half")
    with opened(tmp_path, memos) as kernel:
        assert [c.text for c in kernel.cubes()] == [f"Mira: {text}" for text in SAID]  # what was acknowledged
        assert files(kernel) == set() and list((tmp_path / "tmp").iterdir()) == []
        assert kernel.jobs() == []
        assert jobs(kernel) == [("promote to parametric", "undone", "its process died")]
        assert problems_of(kernel.vault) == []
        adapter = kernel.promote([c.id for c in kernel.cubes()], "parametric")
        assert kernel.ask(ASKED, via="parametric").admission.adapters == (adapter,)


# several caches


TOM = ("I live in Oslo.", "I am a pilot.")


def two_groups(memos: MemOS, user: str) -> tuple[str, str]:
    """Mira and Tom, each as KV; their ids."""
    mira = memos.within(user).promote(talk(memos, user), "activation")
    ids = [c.id for c in memos.within(user).add([{"speaker": "Tom", "content": text} for text in TOM])]
    return mira.id, memos.within(user).promote(ids, "activation").id


@pytest.mark.parametrize("level", ["auto", "L0", "L1", "L2", "L3", "L4"])
def test_the_caches_of_two_groups_answer_one_question(memos: MemOS, ada: str, tmp_path: Path, level: str) -> None:
    scheduler = SchedulerConfig(beside=0, choice="dearest")
    with opened(tmp_path / "vault", memos, scheduler=scheduler, fidelity=FidelityConfig(level=level)) as kernel:
        made = two_groups(kernel, ada)
        for question, answer in (("Where does Mira live?", "Lisbon"), ("Where does Tom live?", "Oslo")):
            reply = kernel.within(ada).ask(question)
            assert [c.id for c in reply.admission.activations] == ([] if level == "L4" else list(made))
            assert reply.text == answer
            assert bool(reply.past_tokens) == (level != "L4")


def test_a_card_decides_the_level(memos: MemOS, tmp_path: Path) -> None:
    row = {"first_tokens": 2, "share": 0.2, "n_cubes": 8, "ttft_ms": 5.0}
    with opened(tmp_path / "vault", memos) as kernel:
        assert kernel.parts.serving().levels()[0].level == "L0"
        kernel.vault.cards.put(kernel.host.digest, {"levels": [row | {"level": "L3", "decision_agreement": 0.97}]})
        assert kernel.parts.serving().levels()[0] == FidelityConfig(level="L3", first_tokens=2, share=0.2)
    with opened(tmp_path / "vault", memos) as kernel:
        assert kernel.parts.serving().levels()[0].level == "L3"


def test_kv_that_this_prompt_cannot_use_is_passed_over(
    memos: MemOS, ada: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The context holds the texts that are admitted, but not all caches."""
    with opened(
        tmp_path / "vault", memos, scheduler=SchedulerConfig(beside=0, prompt_tokens=16, choice="dearest")
    ) as kernel:
        two_groups(kernel, ada)
        full = kernel.host.decoder.context
        kernel.host.decoder.context = 80
        try:
            with caplog.at_level(logging.WARNING):
                reply = kernel.within(ada).ask(ASKED)
            assert "answering from text" in caplog.text and "do not fit the model's context of 80" in caplog.text
            assert reply.admission.form is Form.PLAINTEXT
            with pytest.raises(ContextOverflow):
                kernel.within(ada).ask(ASKED, via="activation")
        finally:
            kernel.host.decoder.context = full


def test_a_listener_that_fails_leaves_the_model_free(memos: MemOS, ada: str, tmp_path: Path) -> None:
    def hang_up(piece: str) -> None:
        raise ConnectionError("gone")

    with opened(tmp_path / "vault", memos) as kernel:
        ids = talk(kernel, ada)
        kernel.within(ada).promote(ids, "parametric")
        with pytest.raises(ConnectionError) as kept:  # with the traceback, and so its frames
            kernel.within(ada).ask(ASKED, on_text=hang_up)
        other = threading.Thread(target=lambda: kernel.within(ada).add("I have a cat."), daemon=True)
        other.start()
        other.join(20)
        assert not other.is_alive() and kept.value


def test_where_the_machine_cannot_be_measured_kv_is_used_wherever_there_is_any(
    memos: MemOS,
    ada: str,
    tmp_path: Path,
    full_disk: Callable[[], AbstractContextManager[None]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(tmp_path / "vault", memos, scheduler=SchedulerConfig()) as kernel:
        kernel.within(ada).promote(talk(kernel, ada), "activation")
        monkeypatch.setattr("memos.operation.forms.serving._measured", {})
        with full_disk(), caplog.at_level(logging.WARNING):
            reply = kernel.within(ada).ask(ASKED)
        assert reply.admission.form is Form.ACTIVATION and reply.text == "Lisbon"
        assert "this machine is not measured" in caplog.text


def test_an_over_full_disk_tier_is_named_and_nothing_is_lost(memos: MemOS, ada: str, tmp_path: Path) -> None:
    with opened(tmp_path / "vault", memos, scheduler=SchedulerConfig(disk_kv_bytes=1000)) as kernel:
        ids = talk(kernel, ada)
        with pytest.raises(
            NoRoom, match="does not fit beside the others in 1,000 bytes; demote .* raise scheduler.disk_kv_bytes"
        ):
            kernel.within(ada).promote(ids, "activation")
        assert files(kernel) == set()
        assert kernel.within(ada).ask(ASKED).text == "Lisbon"


def test_an_over_full_memory_tier_is_answered_from_text_unless_forbidden(
    memos: MemOS, ada: str, tmp_path: Path
) -> None:
    with opened(tmp_path / "vault", memos, scheduler=SchedulerConfig(host_kv_bytes=1000, choice="dearest")) as kernel:
        kernel.within(ada).promote(talk(kernel, ada), "activation")
        reply = kernel.within(ada).ask(ASKED)
        assert reply.admission.form is Form.PLAINTEXT and reply.text == "Lisbon"
        with pytest.raises(NoRoom, match="does not fit the 1,000 bytes that it may take of memory; ask via plaintext"):
            kernel.within(ada).ask(ASKED, via="activation")


def test_memory_that_runs_out_on_the_way_is_answered_from_text(
    memos: MemOS, ada: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allocator refuses while the layers come, as a device that is full does."""
    with opened(tmp_path / "vault", memos) as kernel:
        kernel.within(ada).promote(talk(kernel, ada), "activation")
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
            full = replace(RAW, unpack=lambda *_: torch.empty(1 << 60))
            patch.setattr("memos.infrastructure.host.kv.files.codecs.get", lambda name: full)
            reply = kernel.within(ada).ask(ASKED)
        assert reply.admission.form is Form.PLAINTEXT and reply.text == "Lisbon"
        assert "answering from text: there is no memory left for a KV cache" in caplog.text
        # there is room again; asked for, as on a busy machine text may be measured to be sooner
        assert kernel.within(ada).ask(ASKED, via="activation").admission.form is Form.ACTIVATION
