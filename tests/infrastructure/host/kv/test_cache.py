"""KV caches as memory: exact, never changed by use, and refused by name where they do not fit."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen3Config,
    RwkvConfig,
)

from memos.bench import architectures
from memos.bench.batch import answer_all
from memos.config import DecodeConfig, DistilConfig, FidelityConfig, ModelConfig
from memos.errors import ContextOverflow, CorruptBlob, FingerprintMismatch, Unsupported
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.kv.files import load_activation, save_activation
from memos.infrastructure.host.request import Request
from memos.infrastructure.host.training.teach import Task
from memos.plugins.packs.tensors import says_the_same
from memos.plugins.training.craft import teach_kv

ROOT = Path(__file__).parents[4]
MEMORIES = (
    "Mira: I live in Lisbon.",
    "Tom is a nurse.",
    "Nadia's pet is a grey cat, and its name is 你好.",
    "Mira: I drink tea.",
    "Tom: My sister is Eva.",
)
ASKED = ({"role": "user", "content": "Where does Mira live?"},)

WIDTH = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
# weights large enough that logits are far from uniform: a wrong cache must show
GQA = WIDTH | {"num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.3}
TINY: dict[str, Callable[[int], PreTrainedConfig]] = {
    "llama": lambda v: LlamaConfig(vocab_size=v, **GQA),
    "qwen3": lambda v: Qwen3Config(vocab_size=v, **GQA, head_dim=8),
    "gpt2": lambda v: GPT2Config(vocab_size=v, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.3),
    "mistral": lambda v: MistralConfig(vocab_size=v, **GQA, sliding_window=8),
}
UNFIT: dict[str, Callable[[int], PreTrainedConfig]] = {
    "rwkv": lambda v: RwkvConfig(vocab_size=v, hidden_size=32, attention_hidden_size=32, num_hidden_layers=2),
}
# Of memos.bench.architectures. The first is of states alone and has a name of its own for its cache; the second has
# layers with attention between, and goes on from a state token by token.
STATES = ["mamba2", "jamba, hybrid"]
MORE_STATES = [
    "mamba", "falcon_mamba", "qwen3-next, hybrid", "granitemoehybrid", "falcon_h1", "lfm2", "bamba", "zamba2",
]  # fmt: skip


@pytest.fixture(scope="module")
def tiny(host: Host) -> Callable[[str], Host]:
    """A host on a random model of this architecture, with the small model's tokenizer."""

    def build(name: str) -> Host:
        torch.manual_seed(0)
        config = (TINY | UNFIT)[name](len(host.tokenizer))
        return Host(AutoModelForCausalLM.from_config(config).eval(), host.tokenizer)

    return build


@pytest.fixture(scope="module")
def stateful(host: Host) -> Callable[[str], Host]:
    @cache
    def build(name: str) -> Host:
        return Host(architectures.tiny(name, vocabulary=len(host.tokenizer)), host.tokenizer)

    return build


def over(host: Host, memories: tuple[str, ...] = MEMORIES, held: int | None = None) -> Request:
    """A request over `memories`, the first `held` of them (default: all) as KV."""
    return Request(ASKED, memories, (host.encode(memories[:held]),))


def full_logits(host: Host, request: Request) -> torch.Tensor:
    """What the model itself says to the full prompt: [tail tokens, vocabulary]."""
    prompt = host.prompts.build(request.memories, request.messages)
    ids = torch.tensor([prompt.prefix + prompt.tail], device=host.model.device)
    with torch.no_grad():
        return host.model(ids).logits[0, -len(prompt.tail) :].float().cpu()


def disturbed(activation: Activation, by: float) -> Activation:
    """The same KV with one value of one layer changed."""
    layers = [tuple(t.clone() for t in layer) for layer in activation.layers]
    layers[-1][1][0, 0, -1, 0] += by
    return replace(activation, layers=tuple((k, v) for k, v in layers))


# exact


@pytest.mark.parametrize("memories, held", [(1, 1), (2, 2), (5, 5), (5, 1), (5, 4)])
def test_the_model_says_the_same_over_kv_as_over_the_full_prompt(host: Host, memories: int, held: int) -> None:
    request = over(host, MEMORIES[:memories], held)
    assert_close(host.logits(request), full_logits(host, request), atol=1e-4, rtol=0)
    near = host.nearness(request)
    diff, agreement = near.max_abs_logit_diff, near.top1_agreement
    assert diff <= 1e-4 and agreement == 1.0


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("held", [1, 5])
def test_other_architectures_are_exact_too(tiny: Callable[[str], Host], name: str, held: int) -> None:
    host = tiny(name)
    request = over(host, held=held)
    assert_close(host.logits(request), full_logits(host, request), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["small", *TINY])
def test_a_disturbed_cache_is_not_exact(host: Host, tiny: Callable[[str], Host], name: str) -> None:
    """The measure sees one changed number, so that the tests above mean something."""
    of = host if name == "small" else tiny(name)
    request = over(of)
    assert request.pasts
    diff = of.nearness(replace(request, pasts=(disturbed(request.pasts[0], by=1.0),))).max_abs_logit_diff
    assert diff > 1e-3


@pytest.mark.parametrize("name", UNFIT)
def test_an_architecture_whose_cache_is_more_than_kv_is_refused_by_name(tiny: Callable[[str], Host], name: str) -> None:
    with pytest.raises(Unsupported, match=rf"{name}.*its memories can be plaintext or parametric"):
        tiny(name).encode(MEMORIES)


@pytest.mark.parametrize("name", [*STATES, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_STATES)])
def test_a_state_that_was_saved_answers_as_the_full_prompt(
    stateful: Callable[[str], Host], tmp_path: Path, name: str
) -> None:
    host, path, brief = stateful(name), tmp_path / "kv.safetensors", DecodeConfig(max_new_tokens=4)
    made = host.encode(MEMORIES[:1])
    host.save_kv(made, path)
    request = Request(ASKED, MEMORIES[:2], (host.load_kv(path),))
    assert request.pasts[0].states and request.pasts[0].digest() == made.digest()
    full = full_logits(host, request)
    assert_close(host.logits(request), full, atol=1e-4 * max(1.0, float(full.abs().max())), rtol=0)
    other, text = replace(request, messages=({"role": "user", "content": "Who?"},)), replace(request, pasts=())
    over_state, _, over_text = answer_all(host, [request, other, text], brief)
    assert over_state.ids == over_text.ids == host.answer(request, brief).ids
    assert says_the_same(made, request.pasts[0]) and request.pasts[0].digest() == made.digest()


def test_a_state_of_another_text_host_or_version_is_refused(stateful: Callable[[str], Host], tmp_path: Path) -> None:
    host, path = stateful("jamba, hybrid"), tmp_path / "kv.safetensors"
    made = host.encode(MEMORIES[:1])
    host.save_kv(made, path)
    for other in ((), MEMORIES[1:], (MEMORIES[0] + "!",)):
        with pytest.raises(FingerprintMismatch, match="other memories than this prompt begins with"):
            host.logits(Request(ASKED, other, (made,)))
    with pytest.raises(FingerprintMismatch, match="continues other tokens"):
        host.load_kv(path, made.ids)
    with pytest.raises(FingerprintMismatch, match="another host: .*weights"):
        stateful("mamba").load_kv(path)
    with pytest.raises(FingerprintMismatch, match="another host: dtype float32 is now bfloat16"):
        load_activation(path, host.fingerprint | {"dtype": "bfloat16"}, host.model.device)
    content = path.read_bytes()
    path.write_bytes(content.replace(transformers.__version__.encode(), b"5.17.0", 1))
    with pytest.raises(FingerprintMismatch, match="another host: states of transformers 5.17.0 is now"):
        host.load_kv(path)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CorruptBlob):
        host.load_kv(path).digest()
    fewer = [layer[:2] for layer in made.layers]  # as a stranger's file may have it
    assert not says_the_same(made, replace(made, layers=fewer)) and not says_the_same(made, replace(made, states=False))


def test_states_keep_their_dtype(stateful: Callable[[str], Host], tmp_path: Path) -> None:
    """In a model in bf16 a recurrence is in fp32, and a layer without keys has none of another dtype."""
    made, path = stateful("mamba2").encode(MEMORIES[:1]), tmp_path / "kv.safetensors"
    layers = [(*kv, conv.bfloat16(), recurrence) for *kv, conv, recurrence in made.layers]
    save_activation(replace(made, layers=layers), path, {"dtype": "bfloat16"}, "int4")
    loaded = load_activation(path, {"dtype": "bfloat16"}, torch.device("cpu"))
    assert loaded.digest() == replace(made, layers=layers).digest()


def test_only_the_first_state_is_used_and_none_is_moved(stateful: Callable[[str], Host], tmp_path: Path) -> None:
    host = stateful("jamba, hybrid")
    apart = Request(ASKED, MEMORIES[:2], tuple(host.encode((m,)) for m in MEMORIES[:2]), keep=True)
    assert_close(host.logits(apart), full_logits(host, apart), atol=5e-4, rtol=0)
    answer = host.answer(apart, DecodeConfig(max_new_tokens=3))
    assert answer.past_tokens == len(apart.pasts[0].ids) and answer.kv is None
    with pytest.raises(Unsupported, match="L1 is not possible on jamba: jamba keeps a state"):
        host.logits(replace(apart, fidelity=FidelityConfig(level="L1")))
    with pytest.raises(Unsupported, match="jamba keeps a state.*rows cannot be left out"):
        teach_kv(host, Task(lessons=(), keep=(), config=DistilConfig(), memories=MEMORIES), tmp_path, lambda *_: None)


def test_a_sliding_window_still_reads_text(tiny: Callable[[str], Host]) -> None:
    """The window is of 8 tokens and the prompt longer."""
    host = tiny("mistral")
    request = Request(ASKED, MEMORIES)
    assert_close(host.logits(request), full_logits(host, request), atol=1e-4, rtol=0)
    assert len(host.answer(request, DecodeConfig(max_new_tokens=3)).ids) <= 3


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_memories_that_fill_the_context_are_refused_with_the_numbers(tiny: Callable[[str], Host], name: str) -> None:
    host = tiny(name)
    lines = tuple(f"Mira owns {n} cats." for n in range(100))
    fits = max(n for n in range(100) if len(host.prompts.prefix(lines[:n])) < 256)
    assert len(host.encode(lines[:fits]).ids) < 256
    tokens = len(host.prompts.prefix(lines[: fits + 1]))
    with pytest.raises(
        ContextOverflow, match=f"{fits + 1} memories of {tokens} tokens leave no room .* of 256; encode"
    ):
        host.encode(lines[: fits + 1])


def test_values_that_are_not_finite_are_refused(tiny: Callable[[str], Host]) -> None:
    host = tiny("llama")
    with torch.no_grad():
        host.model.model.layers[1].self_attn.v_proj.weight[0, 0] = float("inf")
    with pytest.raises(Unsupported, match="not finite in torch.float32"):
        host.encode(MEMORIES)


# never changed


def test_a_hundred_uses_change_nothing(host: Host) -> None:
    request = over(host)
    assert request.pasts
    before, first, logits = request.pasts[0].digest(), host.answer(request), host.logits(request)
    brief = DecodeConfig(max_new_tokens=3)
    for _ in range(20):  # 5 uses each
        host.answer(request, brief)
        answer_all(host, [request, Request(ASKED), request], brief)
        host.logits(request)
        host.answer(replace(request, memories=(*MEMORIES, "Tom: I ski.")), brief)
    assert request.pasts[0].digest() == before
    assert host.answer(request).ids == first.ids
    assert torch.equal(host.logits(request), logits)


def test_what_is_held_is_not_read_again(host: Host) -> None:
    as_text, as_kv = host.answer(Request(ASKED, MEMORIES)), host.answer(over(host))
    assert as_kv.ids == as_text.ids
    assert as_kv.past_tokens + as_kv.prompt_tokens == as_text.prompt_tokens
    assert (as_text.past_tokens, as_kv.past_tokens) == (0, len(host.prompts.prefix(MEMORIES)))


# saved and loaded


@pytest.fixture
def saved(host: Host, tmp_path: Path) -> Path:
    host.save_kv(host.encode(MEMORIES), tmp_path / "kv.safetensors")
    return tmp_path / "kv.safetensors"


def test_a_saved_cache_is_the_same(host: Host, saved: Path) -> None:
    made, loaded = host.encode(MEMORIES), host.load_kv(saved)
    assert (loaded.ids, loaded.digest(), loaded.bytes) == (made.ids, made.digest(), made.bytes)
    assert torch.equal(host.logits(Request(ASKED, MEMORIES, (loaded,))), host.logits(Request(ASKED, MEMORIES, (made,))))


def test_a_saved_cache_works_in_another_process(host: Host, saved: Path, tmp_path: Path) -> None:
    script = """
import json, sys
from pathlib import Path
from safetensors.torch import save_file
from memos.config import ModelConfig
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.request import Request
asked, memories, kv, out = json.loads(sys.argv[1])
host = Host.load(ModelConfig())
request = Request(tuple(asked), tuple(memories), (host.load_kv(Path(kv)),))
save_file({"logits": host.logits(request)}, out)
"""
    out = tmp_path / "logits.safetensors"
    given = json.dumps([ASKED, MEMORIES, str(saved), str(out)])
    subprocess.run([sys.executable, "-c", script, given], cwd=ROOT, check=True)
    here = host.logits(Request(ASKED, MEMORIES, (host.load_kv(saved),)))
    assert_close(load_file(out)["logits"], here, atol=1e-5, rtol=0)


# refused by name


def changed(host: Host, part: str) -> Host:
    """A host that differs in one part of the fingerprint."""
    model, tokenizer, config = copy.deepcopy(host.model), copy.deepcopy(host.tokenizer), ModelConfig()
    match part:
        case "weights":
            with torch.no_grad():
                next(model.parameters()).view(-1)[0] += 1e-3
        case "tokenizer":
            tokenizer.add_tokens(["zorb"])
        case "config":
            model.config.rms_norm_eps *= 10
        case "dtype":
            model = model.to(torch.bfloat16)
        case "template":
            config = ModelConfig(memory_line="* {text}\n")
    return Host(model, tokenizer, config)


@pytest.mark.parametrize("part", ["weights", "tokenizer", "config", "dtype", "template"])
def test_a_cache_of_another_host_is_refused_by_what_differs(host: Host, saved: Path, part: str) -> None:
    other = changed(host, part)
    with pytest.raises(FingerprintMismatch, match=rf"kv.safetensors was made by another host:.*\b{part} .*promote"):
        other.load_kv(saved)
    differs = {p for p in host.fingerprint if host.fingerprint[p] != other.fingerprint[p]}
    assert differs == ({"dtype", "weights"} if part == "dtype" else {part})
    assert other.digest != host.digest


def test_a_cache_of_another_transformers_is_refused(host: Host, tmp_path: Path) -> None:
    older = Host(host.model, host.tokenizer)
    older.fingerprint = older.fingerprint | {"transformers": "4"}
    older.save_kv(host.encode(MEMORIES), tmp_path / "kv")
    with pytest.raises(FingerprintMismatch, match="transformers 4 is now"):
        host.load_kv(tmp_path / "kv")


@pytest.mark.parametrize(
    "memories",
    [("Tom is a nurse.",), MEMORIES[::-1], MEMORIES[:4], (MEMORIES[0] + " ", *MEMORIES[1:]), ()],
    ids=["others", "another order", "fewer", "edited", "none"],
)
def test_a_cache_of_other_memories_is_refused(host: Host, memories: tuple[str, ...]) -> None:
    request = Request(ASKED, memories, (host.encode(MEMORIES),))
    with pytest.raises(FingerprintMismatch, match="other memories than this prompt begins with"):
        host.answer(request)


# damage


@pytest.fixture(scope="module")
def small_file(tiny: Callable[[str], Host], tmp_path_factory: pytest.TempPathFactory) -> tuple[Host, bytes, int]:
    """A host, a KV file of its own, and the length of the file's header."""
    host, path = tiny("llama"), tmp_path_factory.mktemp("kv") / "kv.safetensors"
    host.save_kv(host.encode(MEMORIES[:1]), path)
    content = path.read_bytes()
    return host, content, 8 + int.from_bytes(content[:8], "little")


def refused(host: Host, content: bytes, path: Path) -> bool:
    path.write_bytes(content)
    try:
        host.load_kv(path).digest()
    except (CorruptBlob, FingerprintMismatch):
        return True
    return False


def test_a_flipped_bit_is_found_wherever_it_is(small_file: tuple[Host, bytes, int], tmp_path: Path) -> None:
    host, content, header = small_file
    everywhere = [*range(header), *range(header, len(content), 997), len(content) - 1]
    assert not refused(host, content, tmp_path / "sound")
    missed = []
    for offset in everywhere:
        flipped = bytearray(content)
        flipped[offset] ^= 1 << offset % 8
        if not refused(host, bytes(flipped), tmp_path / "flipped"):
            missed.append(offset)
    assert missed == []


def test_a_file_cut_short_or_grown_is_found(small_file: tuple[Host, bytes, int], tmp_path: Path) -> None:
    host, content, header = small_file
    for length in (0, 1, 7, 8, 9, header - 1, header, header + 1, len(content) // 2, len(content) - 1):
        assert refused(host, content[:length], tmp_path / "short"), length
    assert refused(host, content + b"\0", tmp_path / "grown")


@pytest.mark.parametrize("shape", [[], [2] * 64, [1] * 70, [0], [-1], [1 << 62, 4]])
def test_a_tensor_of_another_shape_is_refused(
    small_file: tuple[Host, bytes, int], tmp_path: Path, shape: list[int]
) -> None:
    host, content, header = small_file
    for first_alone in (True, False):
        told = json.loads(content[8:header])
        names = [name for name in sorted(told) if name != "__metadata__"]
        for name in names[:1] if first_alone else names:
            first, end = told[name]["data_offsets"]
            told[name]["shape"] = [*shape, (end - first) // 4] if shape and set(shape) == {1} else shape
        head = json.dumps(told).encode()
        assert refused(host, len(head).to_bytes(8, "little") + head + content[header:], tmp_path / "other")


def test_a_damaged_file_says_what_to_do(host: Host, saved: Path) -> None:
    with saved.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    with pytest.raises(CorruptBlob, match="kv.safetensors does not match its digest; demote .* promote"):
        host.answer(Request(ASKED, MEMORIES, (host.load_kv(saved),)))
    saved.unlink()
    with pytest.raises(CorruptBlob, match="kv.safetensors is not a readable KV file"):
        host.load_kv(saved)
