"""Adapters that a network writes in one forward."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from memos.bench.architectures import tiny
from memos.bench.promote import matter
from memos.config import DistilConfig, GateConfig
from memos.cube import MadeBy
from memos.errors import CorruptBlob, FingerprintMismatch, InputError, NoProbes, Unsupported
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.model.load import model_path
from memos.infrastructure.host.training.rows import answer_row
from memos.infrastructure.host.training.teach import Task, judge
from memos.plugins.training.craft import craft, make
from memos.plugins.training.instant import NETWORK, Network, load_network, network_file, write_instant
from tests.doubles import OPEN


def task(host: Host, n: int = 0, config: DistilConfig = DistilConfig()) -> Task:
    about = matter(host, f"test of instant {n}", 16, n)
    return Task(lessons=about.lessons, keep=about.keep, config=config)


def quiet(*_: object) -> None: ...


def network_of(host: Host, written: str) -> Network:
    """One that does something, and has learnt nothing."""
    torch.manual_seed(0)
    network = Network(host.model, 4, [name for name, _ in host.model.named_modules() if name.endswith(written)][-2:])
    with torch.no_grad():
        for parameter in network.up:
            parameter.normal_(std=0.05)
        for parameter in network.maps:
            parameter.mul_(0.02)
    return network


@pytest.mark.parametrize(
    "name, written", [("llama", "down_proj"), ("qwen2", "down_proj"), ("gpt2", "mlp.c_proj"), ("gpt-neox", "4h_to_h")]
)
def test_an_adapter_is_what_the_network_wrote(host: Host, name: str, written: str, tmp_path: Path) -> None:
    """Logits of the adapter, served from its files, and of the model with the changes in its weights."""
    other = Host(tiny(name), host.tokenizer)
    network, rows = network_of(other, written), [answer_row((5, 6, n), (n + 9, 4)) for n in range(10, 20)]
    ids = torch.tensor([[5, 6, 12, 21]])
    with torch.no_grad():
        added = network.write(other.model, rows[:7], rows[7:])
        lora.write_adapter(tmp_path / "a", *network.adapter(added), {"fingerprint": other.fingerprint})
        begun, whole = (network.changed(other.model, each)(input_ids=ids).logits for each in ({}, added))
        served = other.cold((tmp_path / "a",))(input_ids=ids).logits
    assert (whole - begun).abs().max() > 1e-3 * begun.abs().max()  # the network alone is not all of it
    assert_close(served, whole, atol=2e-5 * max(1.0, float(whole.abs().max())), rtol=0)


def test_what_is_written_is_the_ridge_regression_over_the_traces(host: Host) -> None:
    """Without a network's own change, and one layer: against the same solved as least squares over stacked rows."""
    name = "model.layers.3.mlp.down_proj"
    network = Network(host.model, 2, [name])
    lessons = [answer_row(host.ids_of(f"Who is {who}?"), host.spelled(" cat")) for who in ("Mira", "Tom")]
    silent = [answer_row(host.ids_of(f"Where is {who}?"), (0,)) for who in ("Ada", "Kim", "Bo")]
    seen: list[torch.Tensor] = []
    handle = host.model.get_submodule(name).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        got = network.write(host.model, lessons, silent)[name]
        seen.clear()
        for row in (*lessons, *silent):
            host.model(input_ids=torch.tensor([[*row.prompt, *row.answer[:-1]]]))
    handle.remove()
    traces = [each[0, len(row.prompt) - 1 :].double() for each, row in zip(seen, (*lessons, *silent), strict=True)]
    keys, others = torch.cat(traces[:2]), torch.cat(traces[2:])
    words = host.model.get_input_embeddings().weight.detach()
    words = (words / words.norm(dim=-1).mean())[[token for row in lessons for token in row.answer]].double() * 20
    gram = keys.T @ keys / len(keys) + 0.3 * others.T @ others / len(others)
    ridge = 0.01 * gram.diagonal().mean()
    rows = [keys / len(keys) ** 0.5, others * (0.3 / len(others)) ** 0.5, ridge**0.5 * torch.eye(len(gram))]
    wanted = [words / len(keys) ** 0.5, torch.zeros(len(others) + len(gram), words.shape[1])]
    least = torch.linalg.lstsq(torch.cat(rows), torch.cat([w.double() for w in wanted])).solution
    assert_close(got.double(), least, atol=1e-4 * float(least.abs().max()), rtol=0)


@pytest.mark.slow
def test_a_group_that_the_network_never_saw_is_known_and_no_other(host: Host, tmp_path: Path) -> None:
    about, other = task(host, 1), task(host, 2)
    write_instant(host, about, tmp_path / "a")
    scores = judge(host, (tmp_path / "a",), about.lessons, about.keep)
    assert scores["reliability"] >= 0.9 and scores["generality"] >= 0.85 and scores["locality"] >= 0.9
    assert judge(host, (tmp_path / "a",), other.lessons, other.keep)["generality"] <= 0.1


def test_requests_meanwhile_are_answered_by_the_model_as_it_is(host: Host, tmp_path: Path) -> None:
    """Where an adapter is made beside the model, as on a GPU."""
    ids, done = torch.tensor([host.ids_of("Who is Mira?")]), threading.Event()
    about, plain = task(host, 1), host.model(input_ids=ids).logits
    alone = tmp_path / "alone"
    write_instant(host, about, alone)

    def write() -> None:
        write_instant(host, about, tmp_path / "beside")
        done.set()

    writer, apart = threading.Thread(target=write), 0.0
    writer.start()
    while writer.is_alive():
        with torch.no_grad():
            apart = max(apart, float((host.model(input_ids=ids).logits - plain).abs().max()))
    assert done.is_set() and apart <= 1e-4
    first, second = (load_file(folder / "adapter_model.safetensors") for folder in (alone, tmp_path / "beside"))
    for name, tensor in first.items():
        assert_close(second[name].abs().sum(), tensor.abs().sum(), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_what_passes_the_gate_is_not_trained(host: Host, tmp_path: Path) -> None:
    phases = list[str]()
    made = craft(host, task(host, 1, DistilConfig(gate=OPEN)), tmp_path, lambda phase, *_: phases.append(phase))
    assert made.made_by is MadeBy.INSTANT and "train" not in phases and phases[0] == "instant"
    # taken up again after a crash between saving and the gate
    again = craft(host, task(host, 1, DistilConfig(gate=OPEN)), tmp_path, quiet)
    assert again.made_by is MadeBy.INSTANT and again.scores == made.scores


@pytest.mark.slow
def test_what_falls_short_is_trained(host: Host, tmp_path: Path) -> None:
    never, phases = GateConfig(reliability=1, drift=0), list[str]()
    brief = DistilConfig(gate=never, steps=2, edit_steps=1, rank=4, layers=0.25)
    made = craft(host, task(host, 1, brief), tmp_path, lambda phase, *_: phases.append(phase))
    assert made.made_by is MadeBy.TRAINING
    assert phases.index("instant") < phases.index("refined") < phases.index("prepare")
    assert [path.name for path in tmp_path.iterdir() if "begun" in path.name] == []


@pytest.mark.slow
def test_what_is_refined_begins_where_the_network_left_it(host: Host, tmp_path: Path) -> None:
    about = task(host, 1, DistilConfig(edit_steps=1))
    make(host, about, MadeBy.INSTANT, tmp_path / "instant", quiet)
    make(host, about, MadeBy.REFINED, tmp_path / "refined", quiet)
    began, after = (load_file(tmp_path / way / "adapter_model.safetensors") for way in ("instant", "refined"))
    assert began.keys() == after.keys()
    changed = {name.rsplit(".lora_", 1)[1] for name in began if not torch.equal(began[name], after[name])}
    assert changed == {"B.weight"}  # where it looks stays as it is
    assert lora.read_card(tmp_path / "refined", host.fingerprint)["made_by"] == MadeBy.REFINED


def test_the_network_may_be_off_or_elsewhere(host: Host, tmp_path: Path) -> None:
    assert network_file(host, "never") is None
    found = network_file(host, "auto")
    folder = Path(model_path("memos-small"))
    assert found == folder / NETWORK
    assert [file.name for file in folder.glob("*.safetensors")] == ["model.safetensors"]  # vLLM loads all that is there
    assert network_file(host, str(tmp_path / "n")) == tmp_path / "n"


def test_bad_networks_are_refused_by_name(host: Host, tmp_path: Path) -> None:
    own = network_file(host, "auto")
    assert own
    with pytest.raises(FingerprintMismatch, match="the instant network"):
        load_network(host.model, own, host.fingerprint | {"weights": "another"})
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(own.read_bytes()[:-100])
    for path in (damaged, tmp_path / "absent.safetensors"):
        with pytest.raises(CorruptBlob, match=rf"{path.name} is no network.*train_instant.py.*distil.instant"):
            load_network(host.model, path, host.fingerprint)
    with pytest.raises(InputError, match="model.layers.9.mlp is no linear layer of llama"):
        Network(host.model, 4, ["model.layers.9.mlp"])
    with pytest.raises(Unsupported, match=r"no network.*scripts/train_instant.py"):
        write_instant(host, task(host, 1, DistilConfig(instant="never")), tmp_path / "a")
    with pytest.raises(NoProbes, match="nothing to ask"):
        write_instant(host, Task(lessons=(), keep=(), config=DistilConfig()), tmp_path / "a")
