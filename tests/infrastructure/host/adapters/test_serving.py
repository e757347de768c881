"""Many adapters in one forward: each row as plain peft has it, and none in another's way."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from memos.bench.architectures import tiny
from memos.bench.batch import answer_all
from memos.config import DecodeConfig
from memos.errors import Unsupported
from memos.infrastructure.host.adapters import lora, serving
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.request import Request

BRIEF = DecodeConfig(max_new_tokens=6)
QUESTIONS = ("Where does Mira live?", "What does Tom do?", "Who?", "What is the name of Nadia's cat?")
# peft's use of transformers
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")


def random_adapter(host: Host, folder: Path, seed: int, strength: float = 0.08, **settings: object) -> Path:
    """An adapter that says something else with each seed; saved as peft saves it. A strong one makes rounding show."""
    fields = {"r": 2 + seed % 3, "lora_alpha": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM"} | settings
    student = get_peft_model(lora.twin(host.model), LoraConfig(**fields))  # type: ignore[arg-type]
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if "lora_" in name:
                parameter.copy_(
                    torch.normal(0.0, strength, parameter.shape, generator=torch.Generator().manual_seed(seed))
                )
    lora.save_adapter(student, folder, {"fingerprint": host.fingerprint})
    return folder


def by_peft(host: Host, folder: Path | None, ids: torch.Tensor) -> torch.Tensor:
    """The oracle: this adapter alone, in a model of its own."""
    model = host.model if folder is None else PeftModel.from_pretrained(lora.twin(host.model), str(folder)).eval()
    with torch.inference_mode():
        return model(input_ids=ids).logits


@pytest.mark.parametrize("name", ["small", "llama", "qwen2", "gpt2", "gpt-neox", "phi3", "gemma2"])
def test_each_row_is_as_plain_peft_has_it(small: Host, tmp_path: Path, name: str) -> None:
    host = small if name == "small" else Host(tiny(name), small.tokenizer)
    folders = [random_adapter(host, tmp_path / f"a{n}", n) for n in range(3)]
    rows = [folders[0], None, folders[1], folders[0], folders[2]]
    draw = torch.Generator().manual_seed(1)
    vocabulary = host.model.config.get_text_config().vocab_size
    ids = torch.randint(10, vocabulary, (len(rows), 9), generator=draw).to(host.model.device)
    with torch.inference_mode():
        together = host.model_under([(row,) if row else () for row in rows])(input_ids=ids).logits
    for n, folder in enumerate(rows):
        alone = by_peft(host, folder, ids[n : n + 1])[0]
        assert_close(together[n], alone, atol=2e-5 * max(1.0, float(alone.abs().max())), rtol=0)
    assert (by_peft(host, folders[0], ids[:1]) - by_peft(host, None, ids[:1])).abs().max() > 1e-2


@pytest.mark.parametrize(
    "settings",
    [
        {"use_rslora": True},
        {"rank_pattern": {"q_proj": 5}, "alpha_pattern": {"k_proj": 3}},
        {"target_modules": ["q_proj", "down_proj"]},
    ],
)
def test_what_peft_can_ask_of_lora_is_served(small: Host, tmp_path: Path, settings: dict[str, object]) -> None:
    folder = random_adapter(small, tmp_path / "a", 1, **settings)
    ids = torch.tensor([small.prompts.ids("Where does Mira live?")], device=small.model.device)
    with torch.inference_mode():
        assert_close(
            small.model_under([(folder,)])(input_ids=ids).logits, by_peft(small, folder, ids), atol=1e-4, rtol=0
        )


@pytest.mark.parametrize("settings", [{"use_dora": True}, {"bias": "all"}, {"modules_to_save": ["lm_head"]}])
def test_what_cannot_be_added_row_by_row_is_refused(small: Host, tmp_path: Path, settings: dict[str, object]) -> None:
    folder = random_adapter(small, tmp_path / "a", 1)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | settings))
    with pytest.raises(Unsupported, match=f"adapter a has {next(iter(settings))} .* cannot be added row by row; train"):
        small.answer(Request(({"role": "user", "content": "Who?"},), adapters=(folder,) if folder else ()))


def test_experts_see_one_adapter_at_a_time(small: Host, tmp_path: Path) -> None:
    """Their rows are tokens of all requests together, so requests with different adapters do not share a forward."""
    config = tiny("qwen3-moe").config
    config.vocab_size = len(small.tokenizer)
    host = Host(AutoModelForCausalLM.from_config(config).eval(), small.tokenizer)
    folders = [random_adapter(host, tmp_path / f"a{n}", n, target_modules=["q_proj", "v_proj"]) for n in range(2)]
    requests = asked([*folders, None, folders[0]])
    alone = [host.answer(r, BRIEF).ids for r in requests]
    assert [c.ids for c in answer_all(host, requests, BRIEF)] == alone


def asked(folders: list[Path | None]) -> list[Request]:
    """A question for each adapter."""
    questions = (QUESTIONS[n % len(QUESTIONS)] for n in range(len(folders)))
    return [
        Request(({"role": "user", "content": question},), adapters=(folder,) if folder else ())
        for question, folder in zip(questions, folders, strict=True)
    ]


@pytest.fixture(scope="module")
def served(small: Host, tmp_path_factory: pytest.TempPathFactory) -> list[Request]:
    """Requests under five adapters and the base; no two adapters answer alike."""
    folder = tmp_path_factory.mktemp("served")
    folders = [random_adapter(small, folder / f"a{n}", n, strength=0.2) for n in range(5)]
    requests = asked([*folders, None, *folders[::-1], None])
    assert len({small.answer(r, BRIEF).ids for r in asked([f for f in folders for _ in range(4)])[::4]}) > 2
    return requests


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_batch_answers_each_request_as_alone(small: Host, served: list[Request], temperature: float) -> None:
    config = DecodeConfig(max_new_tokens=6, temperature=temperature)
    alone = [small.answer(r, config).ids for r in served]
    assert [c.ids for c in answer_all(small, served, config)] == alone


@pytest.mark.slow
def test_threads_do_not_get_each_others_adapters(small: Host, served: list[Request]) -> None:
    expected = [small.answer(r, BRIEF).ids for r in served]
    wrong, count = list[int](), [0]

    def work(n: int) -> None:
        for turn in range(40):
            which = (turn * (n + 1) + n) % len(served)
            wrong.extend([which] if small.answer(served[which], BRIEF).ids != expected[which] else [])
            count.append(1)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and sum(count) == 160


def test_a_stream_that_is_left_half_way_leaves_no_adapter_behind(small: Host, served: list[Request]) -> None:
    under, base = served[0], next(r for r in served if not r.adapters)
    expected = small.answer(base, BRIEF).ids
    pieces = small.stream(under, BRIEF)
    next(pieces)
    assert small.answer(base, BRIEF).ids == expected  # while the other waits
    pieces.close()
    assert small.answer(base, BRIEF).ids == expected


def test_an_error_in_a_forward_leaves_no_adapter_behind(small: Host, served: list[Request]) -> None:
    expected = [small.answer(r, BRIEF).ids for r in served]
    model = small.model_under([served[0].adapters])
    with pytest.raises(RuntimeError, match="Long"):
        model(input_ids=torch.zeros(1, 1, device=small.model.device))
    assert [small.answer(r, BRIEF).ids for r in served] == expected


def test_what_is_in_memory_is_not_read_again(small: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, reads = random_adapter(small, tmp_path / "a", 3), list[Path]()
    read = serving.read_adapter
    monkeypatch.setattr(serving, "read_adapter", lambda f, *rest: (reads.append(f), read(f, *rest))[1])
    small.release()
    for _ in range(3):
        small.answer(asked([folder])[0], BRIEF)
    assert reads == [folder] and small.adapters == {"a"}
    small.release()
    assert small.adapters == set()
    shutil.rmtree(folder)


def test_a_trained_adapter_is_gated_as_it_will_be_served(small: Host, tmp_path: Path) -> None:
    folder = random_adapter(small, tmp_path / "a", 4)
    ids = torch.tensor([small.prompts.ids("Where does Mira live?")], device=small.model.device)
    with torch.inference_mode():
        cold = small._adapters().cold((folder,))(input_ids=ids.repeat(3, 1)).logits
    assert_close(cold, by_peft(small, folder, ids).repeat(3, 1, 1), atol=1e-4, rtol=0)
    assert small.adapters.isdisjoint({"a"})
