"""Adapters as one folder for other servers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.testing import assert_close

from memos.config import ModelConfig
from memos.errors import InputError, Unsupported
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.host import Host
from memos.plugins.packs.adapter_export import RANKS, export_adapter

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's use of it


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.load(ModelConfig())


def adapter(host: Host, folder: Path, seed: int, rank: int, targets: list[str]) -> Path:
    config = LoraConfig(r=rank, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM")
    student = get_peft_model(lora.twin(host.model), config)
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.normal(0.0, 0.1, parameter.shape, generator=torch.Generator().manual_seed(seed)))
    lora.save_adapter(student, folder, {"fingerprint": host.fingerprint, "sources": [{"id": str(seed)}]})
    return folder


def test_a_stack_is_one_adapter_that_plain_peft_loads(host: Host, tmp_path: Path) -> None:
    folders = [
        adapter(host, tmp_path / "a", 1, 3, ["q_proj", "down_proj"]),
        adapter(host, tmp_path / "b", 2, 6, ["down_proj"]),
    ]
    out = export_adapter(host, folders, tmp_path / "out")
    ids = torch.tensor([host.ids_of("Where does Mira live?")], device=host.model.device)
    with torch.inference_mode():
        plain = PeftModel.from_pretrained(lora.twin(host.model), str(out)).eval()(input_ids=ids).logits
        expected = host.model_under([tuple(folders)])(input_ids=ids).logits
        again = host.model_under([(out,)])(input_ids=ids).logits
    assert_close(plain, expected, atol=1e-4, rtol=0)
    assert_close(again, expected, atol=1e-4, rtol=0)
    card = json.loads((out / "card.json").read_text())
    assert [source["id"] for source in card["sources"]] == ["1", "2"]


def test_it_is_what_vllm_takes(host: Host, tmp_path: Path) -> None:
    """The rules of its loader: LoRA, a rank of its list, no DoRA, no bias, no module that is saved whole."""
    folder = adapter(host, tmp_path / "a", 1, 3, ["down_proj"])
    out = export_adapter(host, [folder], tmp_path)
    config = json.loads((out / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"]) == ("LORA", 8) and config["r"] in RANKS
    assert not config["use_dora"] and config["bias"] == "none" and not config["modules_to_save"]
    assert re.fullmatch("memos-[0-9a-f]{16}", out.name)
    assert export_adapter(host, [folder], tmp_path / "elsewhere").name == out.name  # by its content
    other = adapter(host, tmp_path / "b", 2, 3, ["down_proj"])
    assert export_adapter(host, [other], tmp_path).name != out.name


def test_what_cannot_be_exported_is_named(host: Host, tmp_path: Path) -> None:
    folder = adapter(host, tmp_path / "a", 1, 300, ["down_proj"])
    with pytest.raises(Unsupported, match="2 adapters have rank 600 together, and servers take up to 512"):
        export_adapter(host, [folder, folder], tmp_path)
    with pytest.raises(InputError, match="export needs at least one adapter"):
        export_adapter(host, [], tmp_path)
