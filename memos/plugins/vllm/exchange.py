"""The folder through which KV reaches vLLM: written by memos, read by the connector; knows files, not vLLM.

A file is what `Host.save_kv` writes, in codec raw: header with fingerprint, ids and checksums. Its name is a keyed
digest of what it holds, so that equal compositions share a file and a salt of vLLM's prefix cache, and nobody who has
not got the name can name it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from memos.errors import CorruptBlob, InputError
from memos.infrastructure.host.fingerprint import require_same_host
from memos.infrastructure.host.kv.cache import Activation
from memos.infrastructure.host.kv.files import load_activation, save_activation

_NAME = re.compile(r"[0-9a-f]{32}")
_IDENTITY = "vllm.json"  # what vLLM's model is, written by the connector when it starts
# Parts of a fingerprint (docs/decisions/0019-fingerprint.md) that vLLM's model must share. The template decides ids
# alone, which are compared themselves.
PARTS, TEMPLATE = ("weights", "config", "tokenizer", "dtype", "transformers"), "template"


@dataclass(frozen=True)
class Exchanged:
    """What the header of a file says.

    shape: of the keys of a layer, (kv_heads, tokens, head_dim).
    """

    ids: tuple[int, ...]
    fingerprint: dict[str, str]
    layers: int
    shape: tuple[int, int, int]


class Exchange:
    """One folder. `limit`: bytes that lie there at most; what was used least recently is deleted."""

    def __init__(self, folder: Path, limit: int = 0) -> None:
        """Raises InputError for a folder that others could write to: what lies there enters the model."""
        self.folder, self._limit = folder, limit
        self._key, self._lock = secrets.token_bytes(32), threading.Lock()
        self._sizes = dict[str, int]()  # of the files that this process has written, least recently used first
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o022:
            raise InputError(
                f"{folder} belongs to, or can be written by, another user; give model.engine_options.exchange a "
                f"folder of your own (chmod 700)"
            )

    # written by memos

    def put(self, activation: Activation, fingerprint: dict[str, str]) -> str:
        """The name of a file with this KV. Raises VaultError where it cannot be written, and what its layers raise."""
        name = blake2b(activation.digest().encode(), key=self._key, digest_size=16).hexdigest()
        with self._lock:
            size = self._sizes.pop(name, None)
            if size is None or not self._path(name).is_file():
                size = self._write(name, activation, fingerprint)
            self._sizes[name] = size
            while sum(self._sizes.values()) > self._limit and len(self._sizes) > 1:
                self._delete(next(iter(self._sizes)))
        return name

    def _write(self, name: str, activation: Activation, fingerprint: dict[str, str]) -> int:
        unfinished = self.folder / f"{name}.{os.getpid()}.tmp"
        save_activation(activation, unfinished, fingerprint)
        unfinished.chmod(0o600)
        size = unfinished.stat().st_size
        unfinished.replace(self._path(name))
        return size

    def clear(self) -> None:
        """Delete what this process has written: a source of it may be gone."""
        with self._lock:
            for name in list(self._sizes):
                self._delete(name)

    def _delete(self, name: str) -> None:
        del self._sizes[name]
        with suppress(FileNotFoundError):
            self._path(name).unlink()

    def identity(self) -> dict[str, str] | None:
        """The parts of the fingerprint that vLLM's connector found of its model; None where none has started here."""
        try:
            return dict(json.loads((self.folder / _IDENTITY).read_text("utf-8")))
        except (OSError, ValueError):
            return None

    def withdraw(self) -> None:
        """Forget what an earlier vLLM has announced: another is about to start."""
        (self.folder / _IDENTITY).unlink(missing_ok=True)

    # read within vLLM

    def announce(self, identity: dict[str, str]) -> None:
        """Write what vLLM's model is, for whoever gives it KV."""
        unfinished = self.folder / f"{_IDENTITY}.{os.getpid()}.tmp"
        unfinished.write_text(json.dumps(identity), "utf-8")
        unfinished.replace(self.folder / _IDENTITY)

    def header(self, name: str, identity: dict[str, str]) -> Exchanged:
        """What a file holds. Raises what `header_of` raises."""
        return header_of(self._path(name), identity)

    def load(self, name: str, identity: dict[str, str], device: torch.device) -> Activation:
        """The KV of a file. Raises what `loaded` raises."""
        return loaded(self._path(name), identity, device)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise CorruptBlob(f"{name!r:.60} is no name of a KV file; memos makes them")
        return self.folder / f"{name}.safetensors"


def header_of(path: Path, identity: dict[str, str]) -> Exchanged:
    """What a KV file holds. Raises FingerprintMismatch where it is KV of another model than `identity` is, and
    CorruptBlob where it is not there or not readable."""
    try:
        with safe_open(path, "pt") as file:
            about, names = file.metadata(), set(file.keys())
            _, *shape = file.get_slice("layers.000.k").get_shape()
        heads, tokens, width = map(int, shape)
        ids, fingerprint = tuple(json.loads(about["ids"])), dict(json.loads(about["fingerprint"]))
        layers = len({one.split(".")[1] for one in names})
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise CorruptBlob(f"there is no KV file {path.stem} to read ({error})") from error
    require_same_host(model_parts(fingerprint), identity, path.name)
    return Exchanged(ids, fingerprint, layers, (heads, tokens, width))


def loaded(path: Path, identity: dict[str, str], device: torch.device) -> Activation:
    """The KV of a file; layers come in the background. Raises what `header_of` raises; CorruptBlob of a layer where it
    is used."""
    made_by = header_of(path, identity).fingerprint
    return load_activation(path, {part: made_by[part] for part in (*PARTS, TEMPLATE) if part in made_by}, device)


def model_parts(fingerprint: dict[str, str]) -> dict[str, str]:
    """What must agree with vLLM's model: nothing of which adapters KV was made under, which the request names."""
    return {part: fingerprint.get(part, "") for part in PARTS}


def begins_with(ids: Sequence[int], beginning: Sequence[int]) -> bool:
    """True if a prompt begins with just these tokens."""
    return list(ids[: len(beginning)]) == list(beginning)
