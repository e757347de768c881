"""Pictures in the prompt of a vision-language model of transformers, and KV of such a prompt; knows no cubes.

Of each memory that tells of a picture, the prompt has the picture's tokens right before its text, as the processor of
the model writes them. KV of it is used for prompts that have the texts alone: where the picture was read, there are
rows and no ids. So a model that has no such KV at hand, or sees nothing, is asked with just the same prompt.

What is kept is tried: where the question, read after the KV, does not get the logits that it gets in one forward of the
whole prompt, the model is refused by name. So are models whose picture reads what comes after it (PaliGemma).
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, proxy

import torch
from transformers import AutoProcessor, PreTrainedModel

from memos.cost import spent
from memos.errors import ContextOverflow, InputError, Unsupported
from memos.infrastructure.host.engines import loading
from memos.infrastructure.host.forward import forward
from memos.infrastructure.host.kv.cache import Activation, cached_layers, fresh_cache, require_finite, room_for
from memos.infrastructure.host.model.decode import DecodeRow, prefill_inputs, rounding, step_inputs
from memos.infrastructure.host.model.load import as_loaded
from memos.infrastructure.host.request import Nearness, Request
from memos.lazy import Lazy

if TYPE_CHECKING:
    from memos.cube import MemCube
    from memos.infrastructure.host.host import Host

log = logging.getLogger("memos")
_TYPES = ("mm_token_type_ids", "token_type_ids")  # what processors call 1 for each token of a picture, 0 for the others
_TEXT = "\u2983text\u2984"  # stands for a text while a template is filled
_one_picture = threading.Lock()  # at a time: a model notes how far one has moved its positions
_ASKED = "What is in the picture?"  # with which KV is tried


@dataclass(frozen=True)
class PicturedPrompt:
    """Ids with pictures among them. inputs: the model's other arguments (pixels, sizes, …), as its processor has them.
    types: under the name that the model has for them, 1 for each id of a picture."""

    ids: tuple[int, ...]
    inputs: Mapping[str, torch.Tensor]
    types: tuple[str, tuple[int, ...]] | None = None

    def with_tail(self, tail: Sequence[int]) -> PicturedPrompt:
        """The same with a text behind it."""
        types = self.types and (self.types[0], (*self.types[1], *(0 for _ in tail)))
        return replace(self, ids=(*self.ids, *tail), types=types)


def read(model: PreTrainedModel, prompt: PicturedPrompt, **more: Any) -> Any:
    """One forward of a prompt with its pictures, at the positions that the model gives them."""
    ids = torch.tensor([prompt.ids], device=model.device)
    named: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **more}
    for name, tensor in prompt.inputs.items():
        named[name] = tensor.to(model.device, model.dtype if tensor.is_floating_point() else None)
    if prompt.types and prompt.types[0] in signature(model.forward).parameters:
        named[prompt.types[0]] = torch.tensor([prompt.types[1]], device=model.device)
    return model(**named)


@torch.inference_mode()
def encode(model: PreTrainedModel, prompt: PicturedPrompt, text: Sequence[int], pictures: Sequence[str]) -> Activation:
    """KV of a prompt with pictures. text: its ids without them; pictures: their names. Raises Unsupported."""
    with _positions_of_its_own(model) as shift:
        out = read(model, prompt, past_key_values=fresh_cache(model), use_cache=True, logits_to_keep=1)
        layers = cached_layers(out.past_key_values)
        ends = len(prompt.ids) + shift()
    if not layers or any(len(layer) != 2 or layer[0].shape[-2] != len(prompt.ids) for layer in layers):
        raise Unsupported(
            f"{model.config.model_type} keeps no keys and values of every token of a picture; its text can be memory"
        )
    require_finite(model, layers)
    return Activation(tuple(text), layers, trained=len(prompt.ids), pictures=tuple(pictures), ends=ends)


@contextmanager
def _positions_of_its_own(model: PreTrainedModel) -> Iterator[Any]:
    """By how much positions fall short of the number of tokens, where a picture takes fewer of them (M-RoPE): yields
    what tells so after a forward. The model forgets it afterwards: it is the picture's, not its own."""
    modules = [module for module in model.modules() if hasattr(module, "rope_deltas")]

    def shift() -> int:
        return next((int(m.rope_deltas) for m in modules if isinstance(m.rope_deltas, torch.Tensor)), 0)

    with _one_picture:
        before = [module.rope_deltas for module in modules]
        for module in modules:
            module.rope_deltas = None  # type: ignore[assignment]
        try:
            yield shift
        finally:
            for module, delta in zip(modules, before, strict=True):
                module.rope_deltas = delta


@torch.inference_mode()
def whole_logits(model: PreTrainedModel, prompt: PicturedPrompt, tail: Sequence[int]) -> torch.Tensor:
    """[tail, vocabulary] in fp32 on the CPU: of the tail in one plain forward of all."""
    with _positions_of_its_own(model), as_loaded(model):
        out = read(model, prompt.with_tail(tail), use_cache=False, logits_to_keep=len(tail))
    logits: torch.Tensor = out.logits[0, -len(tail) :].float().cpu()
    return logits


@torch.inference_mode()
def difference(
    model: PreTrainedModel, kv: Activation, prompt: PicturedPrompt, tail: Sequence[int]
) -> tuple[float, float]:
    """(The largest |logit difference| of a tail over KV from one plain forward, the largest |logit|). All but the last
    token are read at once, that one as a token of an answer is."""
    inputs, mask = prefill_inputs(model, [DecodeRow(tuple(tail[:-1]), kv)], 0)
    out = forward(model, inputs)
    over = [out.logits[0]]
    step, _ = step_inputs(model, out, inputs, mask, tail[-1:])
    over.append(forward(model, step).logits[0])
    plain = whole_logits(model, prompt, tail)
    return float((torch.cat(over).float().cpu() - plain).abs().max()), float(plain.abs().max())


class TransformersVision:
    """The `Vision` for models of transformers; one reader for each host."""

    def __init__(self) -> None:
        self._readers: WeakKeyDictionary[Host, PictureReader] = WeakKeyDictionary()

    def names(self, host: Host, cubes: Sequence[MemCube]) -> tuple[str, ...]:
        reader = self._reader(host)
        return tuple(reader.name(cube.stored) for cube in cubes if cube.is_picture) if reader else ()

    def encode(self, host: Host, cubes: Sequence[MemCube], file: Callable[[str], Path]) -> Activation | None:
        if reader := self._reader(host):
            return reader.encode([cube.text for cube in cubes], _files(cubes, file))
        ids = ", ".join(cube.id for cube in cubes if cube.is_picture)
        log.warning("the model %s sees no pictures: of %s the text alone is what serves", host.config.path, ids)
        return None

    def nearness(self, host: Host, request: Request, cubes: Sequence[MemCube], file: Callable[[str], Path]) -> Nearness:
        reader = self._reader(host)
        assert reader  # which has read them before
        return Nearness.of(host.logits(request), reader.logits(request, _files(cubes, file)))

    def _reader(self, host: Host) -> PictureReader | None:
        """None for a model that sees none."""
        if not hasattr(host.model.config, "vision_config"):
            return None
        return self._readers.get(host) or self._readers.setdefault(host, PictureReader(host))


def _files(cubes: Sequence[MemCube], file: Callable[[str], Path]) -> dict[int, Path]:
    """The file of each picture, by the place of its memory."""
    return {place: file(cube.stored) for place, cube in enumerate(cubes) if cube.is_picture}


class PictureReader:
    """Reads pictures for the model of one host."""

    def __init__(self, host: Host) -> None:
        self._host, self._model = proxy(host), host.model  # which it does not keep alive
        self._processor = Lazy(self._load)
        self._read_by = Lazy(self._identity)

    def name(self, sha256: str) -> str:
        return hashlib.sha256(f"{sha256} {self._read_by()}".encode()).hexdigest()

    def encode(self, memories: Sequence[str], pictures: Mapping[int, Path]) -> Activation:
        host, model, kind = self._host, self._model, self._model.config.model_type
        if not host.capability.exact or host.decoder.limit:
            why = host.capability.why or "what it computes depends on the length of the text"
            raise Unsupported(f"KV of {kind} cannot be kept of pictures: {why}; their text can be memory")
        prompt, context = self._prompt(memories, pictures), host.context
        if context and len(prompt.ids) >= context:
            raise ContextOverflow(
                f"{len(pictures)} pictures and {len(memories)} memories have {len(prompt.ids)} tokens, and the model's "
                f"context is {context}; promote fewer of them at once"
            )
        names = [self.name(_digest(path.read_bytes())) for _, path in sorted(pictures.items())]
        tail = host.prompts.build(memories, [{"role": "user", "content": _ASKED}]).tail
        spent(2, 2 * len(prompt.ids) + 2 * len(tail))
        with self._trying(kind), room_for("a picture"):
            kv = encode(model, prompt, host.prompts.prefix(memories), names)
            apart, largest = difference(model, kv, prompt, tail)
        if not apart <= rounding(model.dtype, largest):
            raise Unsupported(
                f"KV of pictures is not right in {kind}: a question after it has logits that differ by {apart:.2g} "
                f"from the full prompt's; keep these memories as plaintext"
            )
        return kv

    def logits(self, request: Request, pictures: Mapping[int, Path]) -> torch.Tensor:
        tail = self._host.prompts.build(request.memories, request.messages).tail
        return whole_logits(self._model, self._prompt(request.memories, pictures), tail)

    @contextmanager
    def _trying(self, kind: str) -> Iterator[None]:
        try:
            yield
        # whatever a foreign model's code raises at a picture says that it cannot be read so
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError) as error:
            raise Unsupported(
                f"{kind} does not read a picture in front of a text ({type(error).__name__}: {str(error)[:160]}); keep "
                f"these memories as plaintext"
            ) from error

    def _prompt(self, memories: Sequence[str], pictures: Mapping[int, Path]) -> PicturedPrompt:
        """What stands before the memories, and then each, with its picture before it."""
        images = {place: _opened(path) for place, path in sorted(pictures.items())}
        alone = [self._processed([image]) for image in images.values()]
        every = alone[0] if len(alone) == 1 else self._processed(list(images.values()))
        if [i for one in alone for i in one.ids] != list(every.ids):
            raise Unsupported(
                f"the processor of {self._model.config.model_type} writes several pictures otherwise than each alone; "
                f"promote memories with pictures one by one"
            )
        ids, types, by_place = list(self._host.head), [0] * len(self._host.head), dict(zip(images, alone, strict=True))
        for place, line in enumerate(self._host.prompts.lines(memories)):
            if place in by_place:
                ids += by_place[place].ids
                types += (by_place[place].types or ("", (0,) * len(by_place[place].ids)))[1]
            ids += line
            types += [0] * len(line)
        return PicturedPrompt(tuple(ids), every.inputs, every.types and (every.types[0], tuple(types)))

    def _processed(self, images: Sequence[Any]) -> PicturedPrompt:
        """Pictures alone, as the processor writes them."""
        processor, place = self._processor()
        with self._trying(self._model.config.model_type):
            given = processor(
                text=place * len(images),
                images=list(images),
                return_tensors="pt",
                add_special_tokens=False,
                return_mm_token_type_ids=True,
            )
        inputs = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
        ids, _ = inputs.pop("input_ids"), inputs.pop("attention_mask", None)
        types = [(name, tuple(inputs.pop(name)[0].tolist())) for name in _TYPES if name in inputs]
        return PicturedPrompt(tuple(ids[0].tolist()), inputs, types[0] if types else None)

    def _load(self) -> tuple[Any, str]:
        """The processor, and what stands for a picture in a text. Raises Unsupported."""
        path, kind = self._model.name_or_path, self._model.config.model_type
        try:
            with loading():
                processor = AutoProcessor.from_pretrained(path, trust_remote_code=self._host.config.trust_remote_code)
            return processor, _placeholder(processor)
        except (OSError, ValueError, ImportError, AttributeError, TypeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise Unsupported(
                f"the processor of {kind} in {path!r} does not load ({reason:.200}), so no picture can be read; add "
                f"its files, or what it needs, such as torchvision; until then the text of a picture is what serves"
            ) from error

    def _identity(self) -> str:
        """Of all that makes the same file another input, or another input the same file."""
        processor, place = self._processor()
        images, config = getattr(processor, "image_processor", processor), self._model.config.to_dict()
        for key in ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype"):
            config.pop(key, None)
        parts = [type(images).__name__, images.to_dict(), place, config]
        return _digest(json.dumps(parts, sort_keys=True, default=str).encode())


def _placeholder(processor: Any) -> str:
    """What stands for a picture in a text: as the processor's template writes it, with the marks around it, or else its
    token alone."""
    token = str(getattr(processor, "boi_token", None) or processor.image_token)
    if getattr(processor, "chat_template", None):
        text = {"type": "text", "text": _TEXT}
        with_one, without = (
            str(processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False))
            for content in ([{"type": "image"}, text], [text])
        )
        before = _shared(with_one, without)
        after = _shared(with_one[before:][::-1], without[before:][::-1])
        between = with_one[before : len(with_one) - after]
        if between.count(token) == 1:
            return between
    return token


def _shared(one: str, other: str) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _opened(path: Path) -> Any:
    """A picture in RGB. Raises InputError."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"{path.name} does not decode as a picture ({error}); its text can be memory") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


VISION = TransformersVision()
