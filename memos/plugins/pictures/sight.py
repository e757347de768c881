"""Finds pictures by what is seen in them, with an encoder of texts and pictures (CLIP, 2103.00020; SigLIP, 2303.15343).

A picture is encoded once, and its vector kept in the vault beside those of texts, with which it goes. How surely a
query tells of it is measured against what else might be said, by the encoder's own temperature: a cosine alone says
little, as it is another for every encoder and every length of text. Knows no rights and no captions.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memos.cube import ANSWERING, MemCube
from memos.errors import CorruptBlob, ModelNotFound
from memos.infrastructure.host.encoders.weights import no_progress_bar, versioned_name, weights_sha256
from memos.infrastructure.host.engines import loading
from memos.infrastructure.host.threads import multiply_alone
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.tables.vector_table import VectorRow
from memos.lazy import Lazy

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, ProcessorMixin

log = logging.getLogger("memos")
_BATCH = 16  # pictures in one forward
_LEAST = 0.1  # of a share, below which a query tells of a picture no more than of anything
_WAY_OUT = "set retrieval.pictures to a folder with config.json and model.safetensors of CLIP, SigLIP or their like"
# What a query might as well be, if it tells of no picture, or of another one.
_OTHERS = (
    "Where does my sister live?",
    "I had toast for breakfast.",
    "Please remind me tomorrow at nine.",
    "What is my job?",
    "Can you write the tests first?",
    "The meeting was moved to Friday.",
    "She is allergic to nuts.",
    "How much did I pay for it?",
    "a picture",
    "a photo of a person",
    "an animal outdoors",
    "a plate of food",
    "a street with cars",
    "a page of text",
    "a drawing",
    "the inside of a room",
)


def make(path: str, vault: MemVault) -> PictureSight:
    """Raises ModelNotFound, naming retrieval.pictures."""
    return PictureSight(path, vault)


class PictureSight:
    """Thread safe. The weights are loaded when there is a picture to look for."""

    def __init__(self, path: str, vault: MemVault) -> None:
        """Raises ModelNotFound."""
        self._folder, self._vault = Path(path).expanduser(), vault
        if not (self._folder / "config.json").is_file():
            raise ModelNotFound(f"retrieval.pictures {path!r} has no config.json; {_WAY_OUT}")
        self._loaded = Lazy(self._load)
        self._others = Lazy(lambda: self._of_texts(_OTHERS))
        self._name = Lazy(lambda: versioned_name(str(self._folder), weights_sha256(self._folder)))
        self._lock, self._read = threading.Lock(), 0
        self._ids, self._vectors = list[str](), np.zeros((0, 0), np.float32)

    def __call__(self, query: str) -> Mapping[str, float]:
        """By id of a memory, how surely the query tells of its picture, to 1: its share of the softmax over it and what
        else might be said, where that is more than by chance. Raises ModelNotFound."""
        with self._lock:
            self._catch_up()
            ids, vectors = self._ids, self._vectors
        if not ids:
            return {}
        scale = float(self._loaded()[1].get_parameter("logit_scale").detach().exp())
        texts = np.concatenate([self._of_texts([query]), self._others()])
        logits = scale * (vectors @ texts.T)  # [pictures, 1 + others]
        shares = np.exp(logits[:, 0] - np.logaddexp.reduce(logits, axis=1))
        return {id: share for id, share in zip(ids, shares.tolist(), strict=True) if share > _LEAST}

    def _catch_up(self) -> None:
        """Read what changed in the vault, and encode the pictures that have no vector there. One that cannot be read is
        not tried again before it changes."""
        change = self._vault.last_change()
        if change == self._read:
            return
        changed, gone = self._vault.changed_since(self._read, ANSWERING)
        new = {cube.id: cube for cube in changed if cube.is_picture}
        ids = {*self._ids, *new} - {*gone, *(cube.id for cube in changed if not cube.is_picture)}
        found = dict[str, np.ndarray]()
        if ids:  # what was deleted has no vector any more
            stored = self._vault.vectors.of(self._name(), ids)
            found = {id: v for id, (version, _, v) in stored.items() if id not in new or version == new[id].version}
        missing = [cube for id, cube in new.items() if id not in found]
        for n in range(0, len(missing), _BATCH):
            found |= self._encoded(missing[n : n + _BATCH])
            if len(missing) > _BATCH:
                log.info("looked at %d of %d pictures", min(n + _BATCH, len(missing)), len(missing))
        self._ids, self._vectors = list(found), np.stack(list(found.values())) if found else self._vectors[:0]
        self._read = change

    def _encoded(self, cubes: Sequence[MemCube]) -> dict[str, np.ndarray]:
        """By id: of these, those that can be read; kept in the vault."""
        from PIL import Image

        images, read = list[Image.Image](), list[MemCube]()
        for cube in cubes:
            try:
                with Image.open(self._vault.blobs.file(cube.stored)) as image:
                    images.append(image.convert("RGB"))
                read.append(cube)
            except (CorruptBlob, OSError, ValueError) as error:
                log.warning("the picture of cube %s is not looked at: %s", cube.id, error)
        if not images:
            return {}
        inputs = self._loaded()[0](images=images, return_tensors="pt")
        vectors = self._forward("get_image_features", inputs)
        none = np.zeros((0, vectors.shape[1]), np.int8)  # its tokens are not compared
        rows = [VectorRow(cube.id, cube.version, "", v, none) for cube, v in zip(read, vectors, strict=True)]
        self._vault.vectors.put(self._name(), rows)
        return {row.id: row.vector for row in rows}

    def _of_texts(self, texts: Sequence[str]) -> np.ndarray:
        """[texts, width], unit vectors."""
        processor, model = self._loaded()
        most = model.config.get_text_config().max_position_embeddings
        # as they were trained: SigLIP reads padding too
        how = {"padding": "max_length", "truncation": True, "max_length": most, "return_tensors": "pt"}
        return self._forward("get_text_features", processor(text=list(texts), **how))

    def _forward(self, features: str, inputs: Mapping[str, torch.Tensor]) -> np.ndarray:
        """[inputs, width], unit vectors."""
        import torch

        multiply_alone()
        with torch.inference_mode():
            out = getattr(self._loaded()[1], features)(**inputs)
        vectors = getattr(out, "pooler_output", out)  # a plain tensor before transformers 5
        unit: np.ndarray = torch.nn.functional.normalize(vectors.float(), dim=-1).numpy()
        return unit

    def _load(self) -> tuple[ProcessorMixin, PreTrainedModel]:
        """Processor and model (float32, evaluation mode)."""
        with loading(), no_progress_bar():
            import torch
            from safetensors import SafetensorError
            from transformers import AutoModel, AutoProcessor

            how = {"local_files_only": True, "use_safetensors": True, "dtype": torch.float32}  # never a pickle
            try:
                processor = AutoProcessor.from_pretrained(self._folder, local_files_only=True)
                model = AutoModel.from_pretrained(self._folder, **how)
            except (OSError, ValueError, KeyError, SafetensorError) as error:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise ModelNotFound(
                    f"retrieval.pictures {str(self._folder)!r} does not load: {reason}; {_WAY_OUT}"
                ) from error
        if not all(hasattr(model, part) for part in ("get_text_features", "get_image_features", "logit_scale")):
            raise ModelNotFound(
                f"retrieval.pictures {self._folder} is a {model.config.model_type}, which has no one space for texts "
                f"and pictures; {_WAY_OUT}"
            )
        return processor, model.eval()
