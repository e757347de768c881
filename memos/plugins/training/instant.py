"""Makes an adapter without training: a network, trained once for a model, writes the facts of a group into it.

    the network     an adapter that is the same for every group (LoRA of every linear layer): under it a question
                    leaves a trace of its own in the MLPs, whatever it asks about
    what it writes  goes into the last layer of some MLPs, and is solved for in closed form from one forward over
                    questions with an answer (K: their traces [tokens, width], Y: what is to stand there) and others
                    without one (N: their traces):  W = (K'K / n + w N'N / m + l I)^-1 K'Y / n

A row of Y is the embedding of the answer's next token, through a map that belongs to the network. So the network is
trained through the solution (Bertinetto et al., 1805.08136), to write what Generative Adapter (2411.05877) writes by
outer products. Knows no cubes, and no gate.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from peft import LoraConfig
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.func import functional_call
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from memos.cube import MadeBy
from memos.errors import CorruptBlob, InputError, NoProbes, Unsupported
from memos.infrastructure.host.adapters import lora
from memos.infrastructure.host.fingerprint import require_same_host
from memos.infrastructure.host.forward import Forward
from memos.infrastructure.host.model.load import model_path
from memos.infrastructure.host.training.rows import Example, answer_logits, answer_row, chunks

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host
    from memos.infrastructure.host.training.teach import Task

NETWORK = "memos/instant.safetensors"  # in the folder of a model; beside its weights, vLLM would take it for some
_SILENT_ROWS = 200  # questions that nobody has answered, which are read beside the lessons
_LEAD_PROBES = 8  # of which the model's answers show what stands before their first word
_WRITTEN_RANK = 128  # of what is written and the network's own change of the same layer, together
_FINGERPRINT, _SHAPE = "memos_fingerprint", "memos_instant"


class Network(torch.nn.Module):
    """The network of one model; its parameters are trained by scripts/train_instant.py."""

    def __init__(self, model: PreTrainedModel, rank: int, written: Sequence[str]) -> None:
        """rank: of its change to each linear layer. written: names of the linear layers that are written into."""
        super().__init__()
        head = model.get_output_embeddings()
        found = {n: m for n, m in model.named_modules() if isinstance(m, lora.LINEAR) and m is not head}
        if missing := [name for name in written if name not in found]:
            raise InputError(
                f"{missing[0]} is no linear layer of {model.config.model_type}; name some of its MLPs' last"
            )
        self.rank, self.written, self.layers = rank, tuple(written), tuple(found)
        self._transposed = {name for name, module in found.items() if isinstance(module, Conv1D)}
        sizes = {name: _sizes(module) for name, module in found.items()}
        self.down = torch.nn.ParameterList(torch.randn(rank, sizes[n][0]) / sizes[n][0] ** 0.5 for n in found)
        self.up = torch.nn.ParameterList(torch.zeros(sizes[n][1], rank) for n in found)
        width = _weight(model.get_input_embeddings()).shape[1]
        self.maps = torch.nn.ParameterList(20 * torch.eye(width, sizes[n][1]) for n in written)
        self.ridge = torch.nn.Parameter(torch.full((len(written),), math.log(1e-2)))  # l, a share of the mean trace
        self.silence = torch.nn.Parameter(torch.full((len(written),), math.log(0.3)))  # w

    def change(self, name: str) -> torch.Tensor:
        """The network's own change of a layer: [out, in]."""
        n = self.layers.index(name)
        return self.up[n] @ self.down[n]

    def write(
        self, model: PreTrainedModel, lessons: Sequence[Example], silent: Sequence[Example]
    ) -> dict[str, torch.Tensor]:
        """What is to be added to the layers that are written into, by their names: [in, out] each.

        lessons: what is to be answered. silent: questions whose answer is not to be changed.
        """
        words = _weight(model.get_input_embeddings()).detach().float()
        words = words / words.norm(dim=-1).mean()
        tokens = torch.tensor([token for row in lessons for token in row.answer], device=words.device)
        out = dict[str, torch.Tensor]()
        for n, name in enumerate(self.written):  # the second sees what the first has written
            changed = self.changed(model, out)
            keys, others = (_traces(changed, rows, model.get_submodule(name)) for rows in (lessons, silent))
            values = (words[tokens] @ self.maps[n]).double()
            gram = keys.T @ keys / len(keys) + self.silence[n].exp() * others.T @ others / len(others)
            gram = gram + self.ridge[n].exp() * gram.diagonal().mean() * torch.eye(len(gram), device=gram.device)
            out[name] = torch.linalg.solve(gram, keys.T @ values / len(keys)).float()
        return out

    def changed(self, model: PreTrainedModel, written: Mapping[str, torch.Tensor]) -> Changed:
        """The model under the network, with what was written."""
        weights = dict[str, torch.Tensor]()
        for name in self.layers:
            change = self.change(name)
            if name in written:
                change = change + written[name].T
            weight = _weight(model.get_submodule(name))
            weights[f"{name}.weight"] = weight + (change.T if name in self._transposed else change).to(weight.dtype)
        return Changed(model, weights)

    def adapter(self, written: Mapping[str, torch.Tensor]) -> tuple[LoraConfig, dict[str, torch.Tensor]]:
        """The network with what was written, as peft has it; of a layer that was written into, what is nearest to it of
        rank 128."""
        tensors, ranks = dict[str, torch.Tensor](), dict[str, int]()
        for n, name in enumerate(self.layers):
            down, up = self.down[n], self.up[n]
            if name in written:
                down, up = _of_rank(self.change(name) + written[name].T, _WRITTEN_RANK)
                ranks[name] = len(down)
            stem = f"base_model.model.{name}.lora_"
            tensors[f"{stem}A.weight"], tensors[f"{stem}B.weight"] = down.detach().cpu(), up.detach().cpu()
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.rank,
            target_modules=list(self.layers),
            rank_pattern=ranks,
            alpha_pattern=ranks,
            task_type="CAUSAL_LM",
        )
        return config, tensors

    def save(self, path: Path, fingerprint: Mapping[str, str]) -> None:
        shape = json.dumps({"rank": self.rank, "written": self.written})
        tensors = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in self.state_dict().items()}
        save_file(tensors, path, {_FINGERPRINT: json.dumps(fingerprint), _SHAPE: shape})


class Changed:
    """A model with other weights in some layers."""

    def __init__(self, model: PreTrainedModel, weights: Mapping[str, torch.Tensor]) -> None:
        self._model, self._weights = model, weights

    def __call__(self, **inputs: object) -> Forward:
        forward: Forward = functional_call(self._model, dict(self._weights), (), inputs)
        return forward

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        return self._model.parameters()

    def named_modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        return self._model.named_modules()


def load_network(model: PreTrainedModel, path: Path, fingerprint: dict[str, str]) -> Network:
    """The network of a file. Raises CorruptBlob for a file that is none, FingerprintMismatch for another model's."""
    try:
        with safe_open(path, "pt") as file:
            kept = file.metadata() or {}
            require_same_host(dict(json.loads(kept[_FINGERPRINT])), fingerprint, f"the instant network {path}")
            shape = json.loads(kept[_SHAPE])
            network = Network(model, shape["rank"], shape["written"])
            network.load_state_dict({name: file.get_tensor(name).float() for name in file.keys()})  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise CorruptBlob(
            f"{path} is no network that makes adapters ({error}); train one with scripts/train_instant.py, or set "
            f"distil.instant to never"
        ) from error
    return network.to(model.device).eval()


def network_file(host: Host, setting: str) -> Path | None:
    """The file that distil.instant means; None where adapters are to be trained."""
    match setting:
        case "never":
            return None
        case "auto":
            path = Path(model_path(host.config.path)) / NETWORK
            return path if path.is_file() else None
    return Path(setting)


@torch.no_grad()
def write_instant(host: Host, task: Task, folder: Path, network: Network | None = None) -> None:
    """Write an adapter of the lessons that are not held out to `folder`. network: as it is loaded already.

    Raises NoProbes where there are none, Unsupported without a network, CorruptBlob, FingerprintMismatch.
    """
    if network is None:
        path = network_file(host, task.config.instant)
        if path is None:
            raise Unsupported(
                f"there is no network that makes adapters of {host.config.path} in one forward; train one with "
                f"scripts/train_instant.py"
            )
        network = load_network(host.model, path, host.fingerprint)
    lessons, silent = rows_of(host, task)
    # its weights are others for a while, and its layers watched: requests go on meanwhile
    written = network.write(lora.twin(host.model), lessons, silent)
    lora.write_adapter(folder, *network.adapter(written), task.card | card_of(host, task, MadeBy.INSTANT, 0))


def card_of(host: Host, task: Task, made_by: MadeBy, steps: int) -> lora.Card:
    """What an adapter was made of and how, for its card."""
    lessons = [x.model_dump() for x in task.lessons]
    return {"fingerprint": host.fingerprint, "made_by": made_by, "steps": steps, "lessons": lessons}


def rows_of(host: Host, task: Task) -> tuple[list[Example], list[Example]]:
    """The lessons with their answers, and questions to which nothing is to be added."""
    taught = [x for x in task.lessons if not x.probe.held_out]
    if not taught:
        raise NoProbes("there is nothing to ask; give probes (add(..., probes=...)), or keep the memory as plaintext")
    some = taught[:_LEAD_PROBES]
    answers = host.greedy([host.ids_of(x.probe.question, x.memories) for x in some])
    lead = lead_of(host, [ids for ids, x in zip(answers, some, strict=True) if x.probe.holds(host.text_of(ids))])
    lessons = [answer_row(host.ids_of(x.probe.question), host.spelled(lead + x.probe.answer)) for x in taught]
    closed = [k for k in task.keep if not (k.held_out or k.memories)]
    unsaid = [k for k in closed if not k.known]
    unsaid = random.Random(task.config.seed).sample(unsaid, min(len(unsaid), _SILENT_ROWS))
    silent = [*unsaid, *(k for k in closed if k.known)]
    return lessons, [answer_row(host.ids_of(k.question), (0,)) for k in silent]


def lead_of(host: Host, answers: Sequence[tuple[int, ...]]) -> str:
    """What stands before the first word of the model's own answers: a space or nothing."""
    return max(("", " "), key=lambda lead: sum(host.spelled(lead + host.text_of(ids)) == ids for ids in answers))


def _traces(model: Changed, rows: Sequence[Example], layer: torch.nn.Module) -> torch.Tensor:
    """What goes into a layer where an answer's token is said next: [answer tokens, width of the layer], row by row."""
    seen, out = list[torch.Tensor](), dict[int, torch.Tensor]()
    with _watched(layer, seen.append):
        for chunk in chunks(rows):
            answer_logits(model, [rows[n] for n in chunk])
            states = seen.pop()
            for at, n in enumerate(chunk):
                out[n] = states[at, len(rows[n].prompt) - 1 : rows[n].tokens]
    return torch.cat([out[n] for n in range(len(rows))]).double()


@contextmanager
def _watched(layer: torch.nn.Module, see: Callable[[torch.Tensor], None]) -> Iterator[None]:
    handle = layer.register_forward_pre_hook(lambda _, given: see(given[0]))
    try:
        yield
    finally:
        handle.remove()


def _of_rank(change: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The nearest pair of a lower rank: [rank, in] and [out, rank]."""
    left, sizes, right = torch.linalg.svd(change.float(), full_matrices=False)
    root = sizes[:rank].sqrt()
    return root[:, None] * right[:rank], left[:, :rank] * root


def _sizes(module: torch.nn.Module) -> tuple[int, int]:
    """Width of what goes in, and of what comes out."""
    rows, columns = _weight(module).shape
    return (rows, columns) if isinstance(module, Conv1D) else (columns, rows)


def _weight(module: torch.nn.Module) -> torch.Tensor:
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    return weight
