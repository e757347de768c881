"""A folder of KV files, read and written in pages by the keys of another program; knows files, not the program.

A page is [2, layers, tokens, kv_heads, head_dim]: keys and values of some tokens in all layers. Files are ours, whole
prefixes; pages that the other program stores lie beside them, a file each, until memos takes them over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from memos.errors import CorruptBlob, MemosError, NotFound
from memos.infrastructure.host.kv.cache import Activation
from memos.plugins.vllm.exchange import header_of, loaded

log = logging.getLogger("memos.kv_readers")
_CPU = torch.device("cpu")
_PAGES = "pages"  # in the folder: what another program has stored


@dataclass(frozen=True)
class PageKey:
    """The tokens from `first` up to `end` of a text, as the other program names them."""

    key: str
    first: int
    end: int


Keys = Callable[[Sequence[int]], Sequence[PageKey]]  # ids of a text -> its pages, in order


class KVFolder:
    """The KV of one model in one folder."""

    def __init__(self, folder: Path, identity: dict[str, str], keys: Keys) -> None:
        """identity: what the model is (memos/plugins/vllm/identity.py); files of another one are passed over."""
        self.folder, self._identity, self._keys = folder, identity, keys
        (folder / _PAGES).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._seen = set[Path]()  # files whose pages are in the index
        self._index = dict[str, tuple[Path, PageKey]]()
        self._open: tuple[Path, Activation] | None = None  # the file that was read last

    def has(self, key: str) -> bool:
        return self._found(key) is not None or self._stored(key).is_file()

    def page(self, key: str) -> torch.Tensor | None:
        """The page of that key; None where there is none, or, with a line in the log, where it is damaged."""
        try:
            if found := self._found(key):
                return self._cut(*found)
            return self._read(key) if self._stored(key).is_file() else None
        except MemosError as error:
            log.warning("page %s is not served: %s", key, error)
            return None

    def put(self, key: str, page: torch.Tensor) -> None:
        """Keep a page that the other program has computed. It lands whole, or not at all."""
        path, content = self._stored(key), page.contiguous().cpu()
        unfinished = path.with_suffix(".tmp")
        save_file({"page": content}, unfinished, {"checksum": _checksum(content)})
        unfinished.replace(path)

    def drop(self, key: str) -> bool:
        """Forget a page that the other program has stored; files of memos stay."""
        path = self._stored(key)
        there = path.is_file()
        path.unlink(missing_ok=True)
        return there

    def prefix(self, ids: Sequence[int]) -> Activation:
        """KV of the longest beginning of these tokens whose pages are here, to be saved as a KV file of ours. Raises
        NotFound where not even the first page is."""
        pages, end = list[torch.Tensor](), 0
        for one in self._keys(ids):
            page = self.page(one.key)
            if page is None or page.shape[2] != one.end - one.first:
                break
            pages.append(page)
            end = one.end
        if not pages:
            raise NotFound(f"{self.folder} has no page that begins with these {len(ids)} tokens")
        keys, values = torch.cat(pages, 2).transpose(2, 3)  # [layers, kv_heads, tokens, head_dim] each
        layers = tuple((k[None].contiguous(), v[None].contiguous()) for k, v in zip(keys, values, strict=True))
        return Activation(tuple(ids[:end]), layers)

    def _found(self, key: str) -> tuple[Path, PageKey] | None:
        if key not in self._index:
            for path in sorted(set(self.folder.glob("*.safetensors")) - self._seen):
                self._seen.add(path)
                self._index |= {one.key: (path, one) for one in self._pages(path)}
        return self._index.get(key)

    def _pages(self, path: Path) -> Iterator[PageKey]:
        try:
            header = header_of(path, self._identity)
        except MemosError as error:
            log.warning("%s is passed over: %s", path.name, error)
            return
        if "adapters" in header.fingerprint or header.shape[1] != len(header.ids):
            log.warning("%s is passed over: it is not the exact KV of its tokens", path.name)
            return
        yield from self._keys(header.ids)

    def _cut(self, path: Path, page: PageKey) -> torch.Tensor:
        """Raises CorruptBlob, FingerprintMismatch."""
        if self._open is None or self._open[0] != path:
            self._open = path, loaded(path, self._identity, _CPU)
        layers = self._open[1].layers
        both = [torch.stack([t[0, :, page.first : page.end].transpose(0, 1) for t in layer]) for layer in layers]
        return torch.stack(both, 1)

    def _read(self, key: str) -> torch.Tensor:
        try:
            with safe_open(self._stored(key), "pt") as file:
                page, checksum = file.get_tensor("page"), file.metadata()["checksum"]
        except (SafetensorError, OSError, KeyError, TypeError) as error:
            raise CorruptBlob(f"the page {key} cannot be read ({error}); it is computed again") from error
        if _checksum(page) != checksum:
            raise CorruptBlob(f"the page {key} does not match its checksum; it is computed again")
        return page

    def _stored(self, key: str) -> Path:
        return self.folder / _PAGES / f"{sha256(key.encode()).hexdigest()}.safetensors"


def _checksum(page: torch.Tensor) -> str:
    about = f"{tuple(page.shape)}{page.dtype}".encode()
    return xxhash.xxh3_128(about + page.view(torch.uint8).numpy().tobytes()).hexdigest()
