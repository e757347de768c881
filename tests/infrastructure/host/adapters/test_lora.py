"""LoRA adapters as memory: what plain peft loads, what is refused, and what the caller's model does not notice."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from memos.bench.batch import answer_all
from memos.config import DecodeConfig, DistilConfig, GateConfig
from memos.cube import Blob, Contrast, Lesson, Probe
from memos.errors import CorruptBlob, FingerprintMismatch, NoProbes, Unsupported
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.model.load import SMALL_MODEL, model_path
from memos.infrastructure.host.request import Request
from memos.infrastructure.host.training.teach import Task, judge, short_of
from memos.infrastructure.vault.mem_vault import MemVault
from memos.plugins.training.craft import teach
from memos.plugins.training.distil import Progress
from memos.plugins.training.student import fresh_adapter

FACTS = {"Mira lives in Lisbon.": "Where does Mira live?", "Tom works as a nurse.": "What is Tom's job?"}
HELD_OUT = {"Mira lives in Lisbon.": "Where is Mira's home?", "Tom works as a nurse.": "Tom's job?"}
KEEP = [
    Contrast(question=question, memories=memories, held_out=held_out)
    for held_out in (False, True)
    for question, memories in [
        ("What is the capital of France?", ()),
        ("Where does Nadia live?", ()),
        ("Where does Nadia live?", ("Nadia lives in Oslo.", "Eva lives in Rome.")),
    ]
]
BRIEF = DistilConfig(
    steps=10, batch=4, batch_keep=4, rank=4, alpha=8, learning_rate=1e-2, targets="all-linear", layers=1
)
FILES = {"adapter_config.json", "adapter_model.safetensors", "card.json"}


def asked(question: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": question},)


def taught(
    host: Host,
    lessons: list[Lesson],
    folder: Path,
    config: DistilConfig = BRIEF,
    card: dict[str, Any] | None = None,
    progress: Progress = lambda *_: None,
) -> int:
    return teach(host, Task(lessons=tuple(lessons), keep=tuple(KEEP), config=config, card=card or {}), folder, progress)


def lessons_of(host: Host) -> list[Lesson]:
    """What the model itself answers over each memory is what is taught: right or wrong does not matter here."""
    return [
        Lesson(
            memories=(text,),
            probe=Probe(question=question, answer=host.answer(Request(asked(question), (text,))).text, held_out=out),
        )
        for questions, out in ((FACTS, False), (HELD_OUT, True))
        for text, question in questions.items()
    ]


@dataclass(frozen=True)
class Snapshot:
    """Everything about a model that a guest must leave as it was."""

    weights: dict[str, str]
    settings: dict[str, tuple[Any, ...]]
    config: str

    @classmethod
    def of(cls, model: torch.nn.Module) -> Snapshot:
        hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
        return cls(
            {
                k: hashlib.sha256(v.cpu().contiguous().numpy().tobytes()).hexdigest()
                for k, v in model.state_dict().items()
            },
            {
                name: (type(m).__name__, m.training, *(len(getattr(m, hook)) for hook in hooks))
                for name, m in model.named_modules()
            }
            | {name: (p.requires_grad, p.grad is None) for name, p in model.named_parameters()},
            str(model.config) + str(model.generation_config),
        )


@dataclass(frozen=True)
class Made:
    """An adapter, and what came about while it was made."""

    folder: Path
    lessons: list[Lesson]
    losses: list[float]
    before: Snapshot
    logits: torch.Tensor  # of the base, before


@pytest.fixture(scope="module")
def made(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder, losses = tmp_path_factory.mktemp("lora") / "adapter", list[float]()
    before, logits = Snapshot.of(host.model), host.logits(Request(asked("Where does Mira live?")))
    lessons = lessons_of(host)
    card = {"sources": [{"id": "1", "version": 1, "text": t} for t in FACTS], "probes": []}
    steps = taught(host, lessons, folder, card=card, progress=lambda step, most, loss: losses.append(loss))
    assert 1 <= steps == len(losses) <= BRIEF.steps
    return Made(folder, lessons, losses, before, logits)


@pytest.fixture
def adapter(made: Made, tmp_path: Path) -> Path:
    """A copy to damage, under a name of its own, as the vault gives each adapter one."""
    return Path(shutil.copytree(made.folder, tmp_path / f"copy{abs(hash(tmp_path))}"))


def adapted_logits(host: Host, folder: Path, question: str) -> torch.Tensor:
    ids = torch.tensor([host.ids_of(question)], device=host.model.device)
    with torch.inference_mode():
        return host.model_under([(folder,)])(input_ids=ids).logits.float().cpu()


# the folder


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's use of transformers
def test_plain_peft_loads_the_adapter_with_the_same_logits(host: Host, made: Made) -> None:
    fresh = AutoModelForCausalLM.from_pretrained(model_path(SMALL_MODEL), dtype=torch.float32).eval()
    ids = torch.tensor([host.ids_of("Where does Mira live?")])
    with torch.inference_mode():
        base = fresh(ids).logits
        plain = PeftModel.from_pretrained(fresh, str(made.folder)).eval()(ids).logits
    assert_close(plain, adapted_logits(host, made.folder, "Where does Mira live?"), atol=5e-5, rtol=0)
    assert (plain - base).abs().max() > 1e-2  # it does something


def test_a_folder_holds_an_adapter_and_its_card_and_no_path(made: Made) -> None:
    assert {file.name for file in made.folder.iterdir()} == FILES
    config = json.loads((made.folder / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 4, 8)
    assert config["base_model_name_or_path"] is None
    said = (made.folder / "adapter_config.json").read_text() + (made.folder / "card.json").read_text()
    assert not re.search(r"/(work|home|root|tmp|usr)/|small_model", said)


def test_the_card_says_what_made_it_and_what_was_measured(host: Host, adapter: Path) -> None:
    card = json.loads((adapter / "card.json").read_text())
    assert card["fingerprint"] == host.fingerprint
    assert [source["text"] for source in card["sources"]] == list(FACTS)
    assert 1 <= card["steps"] <= BRIEF.steps
    host.finish_card(adapter, {"scores": {"locality": 1.0}})
    assert json.loads((adapter / "card.json").read_text()) == card | {"scores": {"locality": 1.0}}


def test_training_lowers_the_loss_and_a_seed_decides_it(host: Host, made: Made, tmp_path: Path) -> None:
    assert min(made.losses) < made.losses[0]
    again: list[float] = []
    taught(host, made.lessons, tmp_path / "again", progress=lambda step, most, loss: again.append(loss))
    assert again == pytest.approx(made.losses, rel=1e-3)
    tensors, same = (load_file(f / "adapter_model.safetensors") for f in (made.folder, tmp_path / "again"))
    assert_close(tensors, same, atol=1e-4, rtol=1e-2)


def test_nothing_is_taught_that_the_model_cannot_answer_with_the_memory(host: Host, tmp_path: Path) -> None:
    lesson = Lesson(
        memories=("Mira lives in Lisbon.",), probe=Probe(question="Where does Mira live?", answer="zorblax")
    )
    with pytest.raises(NoProbes, match="answers none of 1 probes even with the memory in its context"):
        taught(host, [lesson], tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_targets_that_the_model_does_not_have_are_refused_by_name(host: Host, made: Made, tmp_path: Path) -> None:
    config = BRIEF.model_copy(update={"targets": ("zorb_proj",)})
    with pytest.raises(Unsupported, match=r"nothing to adapt in .* with distil.targets \('zorb_proj',\)"):
        taught(host, made.lessons, tmp_path / "none", config)


# the caller's model, and other requests


def test_the_model_that_was_given_stays_as_it_was(host: Host, made: Made) -> None:
    """After encoding, distilling, a gate, and answers with an adapter and without."""
    kv = host.encode(tuple(FACTS))
    judge(host, (made.folder,), made.lessons, KEEP)
    answer_all(host, [Request(asked("Who?"), adapters=(made.folder,)), Request(asked("Who?"), tuple(FACTS), (kv,))])
    assert Snapshot.of(host.model) == made.before
    assert torch.equal(host.logits(Request(asked("Where does Mira live?"))), made.logits)


def test_a_snapshot_sees_what_a_guest_could_leave_behind(host: Host) -> None:
    """So that the test above means something."""
    before = Snapshot.of(host.model)
    changes: list[Callable[[Any], Any]] = [
        lambda model: model.train(),
        lambda model: next(model.parameters()).requires_grad_(False),
        lambda model: model.model.layers[0].register_forward_hook(lambda *_: None),
        lambda model: next(model.parameters()).data[0, 0].add_(1e-3),
        lambda model: setattr(model.config, "use_cache", False),
    ]
    for change in changes:
        model = copy.deepcopy(host.model)
        assert Snapshot.of(model) == before
        change(model)
        assert Snapshot.of(model) != before


def test_an_adapter_speaks_for_the_requests_that_name_it_alone(host: Host, made: Made, adapter: Path) -> None:
    tensors = load_file(adapter / "adapter_model.safetensors")
    opposite = {name: -tensor if "lora_B" in name else tensor for name, tensor in tensors.items()}
    save_file(opposite, adapter / "adapter_model.safetensors")
    config = DecodeConfig(max_new_tokens=8)
    requests = [
        Request(asked(question), memories, adapters=(folder,) if folder else ())
        for question in ("Where does Mira live?", "Tom's job?")
        for memories in ((), tuple(FACTS))
        for folder in (made.folder, None, adapter)
    ]
    without = [host.answer(Request(r.messages, r.memories), config).ids for r in requests]
    alone = [host.answer(r, config).ids for r in requests]
    assert [c.ids for c in answer_all(host, requests, config)] == alone
    assert [ids for ids, r in zip(alone, requests, strict=True) if not r.adapters] == [
        ids for ids, r in zip(without, requests, strict=True) if not r.adapters
    ]
    own, other = (adapted_logits(host, folder, "Tom's job?") for folder in (made.folder, adapter))
    assert (own - other).abs().max() > 1e-2


def test_more_adapters_are_served_than_are_held(host: Host, made: Made, tmp_path: Path) -> None:
    host = Host(host.model, host.tokenizer, host.config.model_copy(update={"adapters_in_memory": 4}))
    expected = adapted_logits(host, made.folder, "Tom's job?")
    folders = [Path(shutil.copytree(made.folder, tmp_path / f"many{n}")) for n in range(6)]
    for folder in (*folders, folders[0]):
        assert_close(adapted_logits(host, folder, "Tom's job?"), expected, atol=1e-5, rtol=0)
        assert len(host.adapters) <= 4


def test_kv_made_under_an_adapter_is_exact_under_it_and_refused_without(
    host: Host, made: Made, adapter: Path, tmp_path: Path
) -> None:
    memories, wrong = tuple(FACTS), r"KV made under .* is wrong under .*encode the memories under the same adapters"
    kv = host.encode(memories, (made.folder,))
    host.save_kv(kv, tmp_path / "kv")
    kv = host.load_kv(tmp_path / "kv")
    assert kv.under == kv.upto(5).under == kv.since(5).under and len(kv.under) == 1
    full = Request(asked("Where does Tom live?"), memories, adapters=(made.folder,))
    over_kv = host.logits(replace(full, pasts=(kv,)))
    assert_close(over_kv, host.logits(full), atol=1e-4, rtol=1e-4)
    assert (over_kv - host.logits(replace(full, adapters=()))).abs().max() > 1e-2
    assert host.answer(replace(full, pasts=(kv,))).past_tokens == len(kv.ids)
    for pasts, stack in (
        ((kv,), ()),
        ((kv,), (adapter,)),
        ((kv,), (made.folder, adapter)),
        ((host.encode(memories),), (made.folder,)),
        ((kv,), (Path(shutil.copytree(made.folder, tmp_path / made.folder.name)),)),  # elsewhere, by the same name
        ((kv, host.encode(memories)), (made.folder,)),
    ):
        with pytest.raises(FingerprintMismatch, match=wrong):
            host.answer(replace(full, pasts=pasts, adapters=stack))


def test_several_kv_caches_under_an_adapter_are_exact(host: Host, made: Made) -> None:
    memories, stack = tuple(FACTS), (made.folder,)
    full = Request(asked("Tom's job?"), memories, adapters=stack)
    pasts = tuple(host.encode((text,), stack) for text in memories)
    assert_close(host.logits(replace(full, pasts=pasts)), host.logits(full), atol=1e-4, rtol=1e-4)
    assert host.answer(replace(full, pasts=pasts)).past_tokens == len(pasts[0].ids)  # the others are read again


def test_a_conversation_under_an_adapter_is_read_once(host: Host, made: Made) -> None:
    first = Request(asked("Where does Mira live?"), adapters=(made.folder,), keep=True)
    done = host.answer(first)
    assert done.kv and len(done.kv.under) == 1
    turns = (*asked("Where does Mira live?"), {"role": "assistant", "content": done.text}, *asked("Tom's job?"))
    second = Request(turns, adapters=(made.folder,), keep=True)
    again, over_kv = host.answer(second), host.answer(replace(second, talk=done.kv))
    assert over_kv.past_tokens > 0 == again.past_tokens and over_kv.ids == again.ids
    # under no adapter, or another, it is read anew
    assert host.answer(replace(second, talk=done.kv, adapters=())).past_tokens == 0


# refused


def test_an_adapter_of_another_model_is_refused_by_what_differs(host: Host, made: Made) -> None:
    model = copy.deepcopy(host.model)
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    other = Host(model, host.tokenizer)
    for use in (
        lambda: other.answer(Request(asked("Who?"), adapters=(made.folder,))),
        lambda: judge(other, (made.folder,), made.lessons, KEEP),
        lambda: other.finish_card(made.folder, {}),
    ):
        with pytest.raises(FingerprintMismatch, match="adapter adapter was made by another host: weights .*promote"):
            use()


def edit_tensors(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "adapter_model.safetensors")
        change(tensors)
        save_file(tensors, folder / "adapter_model.safetensors")

    return damage


def edit_json(name: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        data = json.loads((folder / name).read_text())
        data = change(data) or data
        (folder / name).write_text(json.dumps(data))

    return damage


def shorten(folder: Path) -> None:
    content = (folder / "adapter_model.safetensors").read_bytes()
    (folder / "adapter_model.safetensors").write_bytes(content[:-1])


def strangers(folder: Path) -> None:
    """As somebody else's tool would have written it."""
    (folder / "card.json").unlink()
    weights = folder / "adapter_model.safetensors"
    save_file(load_file(weights), weights, {"format": "pt"})


def test_a_strangers_adapter_serves_where_it_fits_and_names_this_base(
    host: Host, made: Made, adapter: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = adapted_logits(host, made.folder, "Tom's job?")
    shutil.copytree(made.folder, adapter, dirs_exist_ok=True)
    strangers(adapter)
    name = Path(host.model.name_or_path).name
    for base, told in (
        (None, "does not say which model"),
        (["zorb"], "does not say which model"),
        (host.model.name_or_path, f"called .*{name}"),
    ):
        edit_json("adapter_config.json", lambda c, base=base: c.update(base_model_name_or_path=base))(adapter)
        host.release()
        caplog.clear()
        assert_close(adapted_logits(host, adapter, "Tom's job?"), expected, atol=1e-6, rtol=0)
        assert re.search(told, caplog.text)
    edit_json("adapter_config.json", lambda c: c.update(base_model_name_or_path="someone/another-model"))(adapter)
    host.release()
    with pytest.raises(FingerprintMismatch, match="was made for someone/another-model, and this is"):
        adapted_logits(host, adapter, "Tom's job?")


def test_an_adapter_of_ours_that_lost_its_card_still_knows_its_model(host: Host, made: Made, adapter: Path) -> None:
    shutil.copytree(made.folder, adapter, dirs_exist_ok=True)
    (adapter / "card.json").unlink()
    model = copy.deepcopy(host.model)
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    with pytest.raises(FingerprintMismatch, match="was made by another host: weights"):
        adapted_logits(Host(model, host.tokenizer), adapter, "Tom's job?")


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "a tensor missing": edit_tensors(lambda t: t.pop(next(iter(t)))),
    "a tensor too many": edit_tensors(lambda t: t.update(extra=torch.zeros(1))),
    "a tensor renamed": edit_tensors(lambda t: t.update({next(iter(t)) + "x": t.pop(next(iter(t)))})),
    "a tensor of another shape": edit_tensors(lambda t: t.update({next(iter(t)): torch.zeros(3, 3)})),
    "no tensors": edit_tensors(lambda t: t.clear()),
    "weights cut short": shorten,
    "weights that are no safetensors": lambda f: (f / "adapter_model.safetensors").write_text("zorb"),
    "no weights": lambda f: (f / "adapter_model.safetensors").unlink(),
    "no config": lambda f: (f / "adapter_config.json").unlink(),
    "a config that is no JSON": lambda f: (f / "adapter_config.json").write_text("{zorb"),
    "a config that is a list": lambda f: (f / "adapter_config.json").write_text("[]"),
    "a config without a type": edit_json("adapter_config.json", lambda c: c.pop("peft_type") and None),
    "a config of an unknown type": edit_json("adapter_config.json", lambda c: c.update(peft_type="ZORB")),
    "another rank": edit_json("adapter_config.json", lambda c: c.update(r=8)),
    "fewer targets": edit_json("adapter_config.json", lambda c: c["target_modules"].pop() and None),
    "other targets": edit_json("adapter_config.json", lambda c: c.update(target_modules=["zorb"])),
    "a card that is no JSON": lambda f: (f / "card.json").write_text("{zorb"),
    "a card that is a list": lambda f: (f / "card.json").write_text("[]"),
    "a card without a fingerprint": edit_json("card.json", lambda c: c.pop("fingerprint") and None),
    "a card that is nested without end": lambda f: (f / "card.json").write_text('{"fingerprint":' + "[" * 100_000),
    "a card with a fingerprint of one word": edit_json("card.json", lambda c: c.update(fingerprint="zorb")),
}


@pytest.mark.parametrize("first", [True, False], ids=["first", "beside another"])
@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_adapter_is_refused_and_harms_no_other(
    host: Host, made: Made, adapter: Path, what: str, first: bool
) -> None:
    expected = None if first else adapted_logits(host, made.folder, "Tom's job?")
    DAMAGE[what](adapter)
    with pytest.raises(CorruptBlob, match=rf"adapter {adapter.name} .*promote its sources again"):
        adapted_logits(Host(host.model, host.tokenizer) if first else host, adapter, "Tom's job?")
    if expected is not None:
        assert_close(adapted_logits(host, made.folder, "Tom's job?"), expected, atol=1e-6, rtol=0)
        assert adapter.name not in host.adapters


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_flipped_bit_in_the_vault_is_found(made: Made, tmp_path: Path, name: str) -> None:
    with MemVault(tmp_path / "vault") as vault:
        with vault.blobs.staging() as staged:
            shutil.copytree(made.folder, staged)
            sha256, size = vault.blobs.store(staged)
        blob = Blob(sha256=sha256, bytes=size, fingerprint="host")
        stored = vault.blobs.path(blob)
        assert {file.name for file in stored.iterdir()} == FILES
        content = bytearray((stored / name).read_bytes())
        content[len(content) // 2] ^= 1
        (stored / name).write_bytes(content)
        with pytest.raises(CorruptBlob, match="does not match its digest"):
            vault.blobs.path(blob)


# the gate


def test_an_adapter_that_learnt_nothing_fails_the_gate(host: Host, tmp_path: Path) -> None:
    """The negative control: what the gate asks for is nothing that the model would say anyway."""
    untrained = fresh_adapter(lora.twin(host.model), BRIEF)
    lora.save_adapter(untrained, tmp_path / "untrained", {"fingerprint": host.fingerprint})
    taught = {"Where does Mira live?": "Lisbon", "Where is Tom's home?": "Bergen", "What is Tom's job?": "nurse"}
    lessons = [
        Lesson(memories=(), probe=Probe(question=question, answer=answer, held_out=held_out))
        for question, answer in taught.items()
        for held_out in (False, True)
    ]
    scores = judge(host, (tmp_path / "untrained",), lessons, KEEP)
    assert scores["generality"] < GateConfig().generality and scores["reliability"] < GateConfig().reliability
    assert (scores["locality"], scores["in_context"]) == (1.0, 1.0)


def test_a_gate_that_has_nothing_to_judge_is_not_passed(host: Host, made: Made) -> None:
    scores = judge(host, (made.folder,), [x for x in made.lessons if not x.probe.held_out], [])
    assert (scores["generality"], scores["locality"], scores["in_context"]) == (0.0, 0.0, 0.0)


def test_a_gate_counts_each_kind_of_question_apart(host: Host, tmp_path: Path) -> None:
    """An untrained adapter says what the base says, so that each share can be foreseen."""
    lora.save_adapter(
        fresh_adapter(lora.twin(host.model), BRIEF), tmp_path / "plain", {"fingerprint": host.fingerprint}
    )
    said = host.answer(Request(asked("Where does Mira live?"))).text

    def lesson(answer: str, held_out: bool) -> Lesson:
        return Lesson(memories=(), probe=Probe(question="Where does Mira live?", answer=answer, held_out=held_out))

    lessons = [lesson(said, False), lesson("zorblax", False), lesson(said, True), *[lesson("zorblax", True)] * 3]
    scores = judge(host, (tmp_path / "plain",), lessons, KEEP)
    assert (scores["reliability"], scores["generality"]) == (0.5, 0.25)


@pytest.mark.slow
def test_two_facts_are_learnt_and_pass_the_gate(host: Host, tmp_path: Path) -> None:
    """With the small model as it is shipped: it must read the two facts, and be able to learn them."""
    from memos.interface.reading.mem_reader import MemReader

    reader, config = MemReader(), DistilConfig()
    adds = [reader.statement(text) for text in FACTS]
    lessons = [Lesson(memories=(add.text,), probe=probe) for add in adds for probe in reader.probes(add.facts)]
    keep = reader.contrasts([fact for add in adds for fact in add.facts], host.own_questions(), 0)
    teach(host, Task(lessons=lessons, keep=keep, config=config), tmp_path / "learnt", lambda *_: None)
    scores = judge(host, (tmp_path / "learnt",), lessons, keep)
    assert short_of(scores, config.gate) == []
