"""Writes and reads packs: a signed manifest, records of memories, and the payloads that they name.

A pack from a stranger is checked to the last byte before anything of it is handed out: names, sizes, digests, the
signature, every record, and that each memory follows its sources. Neither side holds more than one part in memory.
Must not know vaults, nor whom to trust.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import TypeVar

import pydantic_core
from pydantic import BaseModel, TypeAdapter, ValidationError

from memos.cube import MemCube, Text, Turn, in_utc
from memos.errors import CorruptBlob, InputError
from memos.infrastructure.vault.audit.signing import SigningKey, is_signed
from memos.plugins.packs.mip import (
    BLOBS,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    MAX_NUMBER,
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    MAX_RECORDS_BYTES,
    MIP,
    RECORDS,
    SIGNATURE,
    SIGNED,
    Id,
    PackManifest,
    PackPart,
    PackRelease,
    Record,
    Signature,
    canonical,
)
from memos.plugins.packs.pack_file import PIECE_BYTES, Sink, bad, reading, require_names

_Value = TypeVar("_Value", bound=BaseModel)
_ID: TypeAdapter[str] = TypeAdapter(Id)
MAX_PART_MEMORIES, MAX_PART_BYTES = 200, 4 << 20  # of a part that is written, which a loader takes over at a time


class _ManifestVersion(BaseModel):
    """Of a manifest of any version."""

    mip: str


class PackWriter:
    """Records go in with their sources before them; `seal` ends the pack."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self._parts, self._count = sink, list[PackPart](), 0
        self._lines, self._size, self._blobs = list[bytes](), 0, set[str]()

    def add(self, record: Record) -> None:
        """Raises InputError for a memory that is larger than a pack may hold."""
        line = canonical(record) + b"\n"
        if len(line) > MAX_RECORD_BYTES:
            raise InputError(
                f"memory {record.cube.id} takes {len(line):,} bytes and a pack holds {MAX_RECORD_BYTES:,} of one; "
                f"leave it out, or `memos split` it"
            )
        if self._lines and (self._size + len(line) > MAX_PART_BYTES or len(self._lines) == MAX_PART_MEMORIES):
            self._flush()
        self._lines.append(line)
        self._size += len(line)
        self._count += 1

    def _flush(self) -> None:
        self._write(f"{RECORDS}{sum(p.name.startswith(RECORDS) for p in self._parts):06d}.jsonl", self._lines)
        self._lines, self._size = [], 0

    def payload(self, sha256: str, path: Path) -> None:
        """The file or folder of that digest. Raises CorruptBlob where it is not what its digest says."""
        if sha256 in self._blobs:
            return
        self._blobs.add(sha256)
        files = sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else [path]
        first = len(self._parts)
        for file in files:
            name = f"/{file.relative_to(path).as_posix()}" if path.is_dir() else ".safetensors"
            self._write(f"{BLOBS}{sha256}{name}", _pieces(file))
        if _digest_of(sha256, self._parts[first:]) != sha256:
            raise CorruptBlob(f"{path} does not match its digest and was not packed; promote its sources again")

    def seal(
        self,
        key: SigningKey,
        made: datetime,
        *,
        maker: str = "",
        release: PackRelease | None = None,
        history: bool = False,
    ) -> PackManifest:
        """Write the manifest, which names all that was written, and its signature."""
        if self._lines:
            self._flush()
        require_names((part.name for part in self._parts), Path("the pack"))
        manifest = PackManifest(
            mip=MIP,
            made=made,
            maker=maker,
            release=release,
            history=history,
            records=self._count,
            parts=tuple(self._parts),
        )
        content = canonical(manifest)
        if len(content) > MAX_MANIFEST_BYTES:
            raise InputError(f"a pack of {len(self._parts):,} parts is too large for its manifest; make several")
        signature = Signature(key=key.public, signature=key.sign(SIGNED, content))
        self._sink.add(MANIFEST, [content])
        self._sink.add(SIGNATURE, [canonical(signature)])
        return manifest

    def _write(self, name: str, pieces: Iterable[bytes]) -> None:
        sha256, size = hashlib.sha256(), 0

        def digested() -> Iterator[bytes]:
            nonlocal size
            for piece in pieces:
                sha256.update(piece)
                size += len(piece)
                yield piece

        self._sink.add(name, digested())
        self._parts.append(PackPart(name=name, bytes=size, sha256=sha256.hexdigest()))


class PackReader:
    """A pack that has been checked whole. Close it after use."""

    def __init__(self, path: Path, trusted: Callable[[str, PackManifest], None] = lambda key, manifest: None) -> None:
        """Check everything. trusted: is given the key that signed and the manifest, before anything else of the pack
        is looked at, and raises where they are not to be trusted.

        Raises InputError, BadPack, and what `trusted` raises.
        """
        self.path, self._parts = path, reading(path)
        try:
            signature = self._value(Signature, SIGNATURE, 1 << 10)
            content = self._read(MANIFEST, MAX_MANIFEST_BYTES)
            if not is_signed(signature.key, SIGNED, content, signature.signature):
                raise bad(path, "its signature is not one of its manifest")
            self.key, self.sha256 = signature.key, hashlib.sha256(content).hexdigest()
            self._require_known(content)
            self.manifest = self._parsed(PackManifest, content, MANIFEST)
            self._known = {part.name: part for part in self.manifest.parts}
            self._require_parts()
            trusted(self.key, self.manifest)
            self._require_whole()
        except BaseException:
            self._parts.close()
            raise

    def close(self) -> None:
        self._parts.close()

    def __enter__(self) -> PackReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def parts_of_records(self) -> Iterator[list[Record]]:
        """The records, part by part, sources first. Raises BadPack where the pack changed since it was checked."""
        for part in self.manifest.parts:
            if part.name.startswith(RECORDS):
                yield self._records(part)

    def extract(self, sha256: str, target: Path) -> None:
        """Write the payload of that digest to `target`, where nothing is. Raises BadPack."""
        for part in self._payloads[sha256]:
            inner = part.name.removeprefix(f"{BLOBS}{sha256}")
            file = target / inner[1:] if inner.startswith("/") else target
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("xb") as out:
                for piece in self._checked(part):
                    out.write(piece)

    def _require_known(self, content: bytes) -> None:
        version = self._parsed(_ManifestVersion, content, MANIFEST).mip
        if version != MIP:
            raise bad(self.path, f"it is of MIP version {version!r:.20}, and this memos reads {MIP!r}; upgrade memos")

    def _require_parts(self) -> None:
        """Just those that the manifest names, at their sizes."""
        named = {name: part.bytes for name, part in self._known.items()}
        if len(named) < len(self.manifest.parts) or {MANIFEST, SIGNATURE} & set(named):
            raise bad(self.path, "its manifest names a part twice, or itself")
        sizes = {n: size for n, size in self._parts.sizes.items() if n not in (MANIFEST, SIGNATURE)}
        if sizes != named:
            odd = sorted(name for name in {*sizes, *named} if sizes.get(name) != named.get(name))
            raise bad(self.path, f"{odd[0]!r:.260} is not there, not named by the manifest, or of another size")
        records = [n for n in named if n.startswith(RECORDS)]
        if records != [f"{RECORDS}{n:06d}.jsonl" for n in range(len(records))]:
            raise bad(self.path, "its parts of records are not numbered in order")
        self._payloads: dict[str, list[PackPart]] = {}
        for part in self.manifest.parts:
            if part.name.startswith(BLOBS):
                sha256 = part.name.removeprefix(BLOBS)[:64]
                self._payloads.setdefault(sha256, []).append(part)
            elif not part.name.startswith(RECORDS):
                raise bad(self.path, f"its part {part.name} is neither of records nor a payload")
            elif part.bytes > MAX_RECORDS_BYTES:
                raise bad(self.path, f"{part.name} has {part.bytes:,} bytes, and {MAX_RECORDS_BYTES:,} are read")
        for sha256, parts in self._payloads.items():
            if _digest_of(sha256, parts) != sha256:
                raise bad(self.path, f"the payload {sha256[:64]!r} is not made of the parts that are named so")

    def _require_whole(self) -> None:
        """Every byte is what the manifest says, and every record makes sense after those before it."""
        versions, wanted = dict[str, range](), set[str]()
        for part in self.manifest.parts:
            if part.name.startswith(RECORDS):
                for record in self._records(part):
                    self._require_sense(record, versions)
                    wanted.update(c.stored for c in (*record.earlier, record.cube) if c.stored)
            else:
                for _ in self._checked(part):
                    pass
        if len(versions) != self.manifest.records:
            raise bad(self.path, f"it has {len(versions):,} memories and names {self.manifest.records:,}")
        if odd := wanted ^ set(self._payloads):
            raise bad(self.path, f"the payload {min(odd)} has no memory, or a memory has no such payload")

    def _require_sense(self, record: Record, versions: dict[str, range]) -> None:
        cube, line = record.cube, (*record.earlier, record.cube)
        numbers = [c.version for c in line]
        if cube.id in versions:
            raise bad(self.path, f"memory {cube.id} is in it twice")
        if (
            any(c.id != cube.id or c.form is not cube.form for c in line)
            or not 1 <= min(numbers) <= max(numbers) <= MAX_NUMBER
        ):
            raise bad(self.path, f"a version of {cube.id} is of another memory, or no number from 1 on")
        if numbers != list(range(numbers[0], numbers[-1] + 1)) or (record.earlier and numbers[0] != 1):
            raise bad(self.path, f"the versions of {cube.id} are not in order")
        for one in line:
            self._require_lineage(one, versions)
            self._require_values(one)
        versions[cube.id] = range(numbers[0], numbers[-1] + 1)

    def _require_lineage(self, cube: MemCube, versions: dict[str, range]) -> None:
        if not _is_id(cube.id):
            raise bad(self.path, f"{cube.id!r:.80} cannot name a memory")
        if (cube.blob is None) != (cube.form.value == "plaintext"):
            raise bad(self.path, f"memory {cube.id} is {cube.form} and its payload is not")
        if cube.blob and not cube.sources:
            raise bad(self.path, f"memory {cube.id} is {cube.form} and names no sources")
        for source in cube.sources:
            if source.version not in versions.get(source.id, ()):
                raise bad(self.path, f"memory {cube.id} is made of {source.id!r:.80}, which is not before it")

    def _require_values(self, cube: MemCube) -> None:
        """What a schema cannot say: each value is one that a vault can keep and read again."""
        header, blob = cube.header, cube.blob
        try:
            for when in (header.created, header.expires, header.changed, header.said):
                _ = when and in_utc(when)
        except InputError:
            raise bad(self.path, f"a time of memory {cube.id} lies beyond the years 1 to 9999") from None
        if header.metadata and not _is_metadata(header.metadata):
            raise bad(self.path, f"the metadata of memory {cube.id} is no JSON object that can be read anywhere")
        parts, payload = self._payloads.get(cube.stored, ()), cube.payload
        if not isinstance(payload, Turn) and parts and payload.bytes != sum(part.bytes for part in parts):
            raise bad(self.path, f"the payload of memory {cube.id} has other bytes than it says")
        if isinstance(payload, Text) and (bool(payload.sha256), payload.bytes > 0) != (bool(payload.media_type),) * 2:
            raise bad(self.path, f"the file of memory {cube.id} lacks its digest, its bytes or its media type")
        if blob is None:
            return
        numbers = (blob.bytes, blob.tokens, blob.after, blob.build_s, *blob.scores.values())
        if not all(map(isfinite, numbers)) or min(numbers[:4]) < 0 or max(blob.tokens, blob.after) > MAX_NUMBER:
            raise bad(self.path, f"a number of memory {cube.id} is out of range")

    def _records(self, part: PackPart) -> list[Record]:
        """Bounded before it is parsed: its bytes, its lines, and each line."""
        lines = b"".join(self._checked(part)).splitlines(keepends=True)
        if not lines or len(lines) > MAX_RECORDS or max(map(len, lines)) > MAX_RECORD_BYTES:
            raise bad(self.path, f"{part.name} has no memory, more than {MAX_RECORDS:,}, or one that is too large")
        return [self._parsed(Record, line, part.name) for line in lines]

    def _checked(self, part: PackPart) -> Iterator[bytes]:
        sha256 = hashlib.sha256()
        for piece in self._parts.pieces(part.name):
            sha256.update(piece)
            yield piece
        if sha256.hexdigest() != part.sha256:
            raise bad(self.path, f"{part.name} does not match its digest")

    def _value(self, kind: type[Signature], name: str, max_bytes: int) -> Signature:
        content = self._read(name, max_bytes)
        value = self._parsed(kind, content, name)
        if canonical(value) != content:
            raise bad(self.path, f"{name} is not written in the one form that it has")
        return value

    def _read(self, name: str, max_bytes: int) -> bytes:
        size = self._parts.sizes.get(name)
        if size is None:
            raise bad(self.path, f"it has no {name}")
        if size > max_bytes:
            raise bad(self.path, f"{name} has {size:,} bytes, and {max_bytes:,} are read")
        return b"".join(self._parts.pieces(name))

    def _parsed(self, kind: type[_Value], content: bytes, name: str) -> _Value:
        try:
            return kind.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"])[:200]
            raise bad(self.path, f"{name} is not as docs/mip.md says: {where}: {first['msg'][:200]}") from None


def _digest_of(sha256: str, parts: Collection[PackPart]) -> str:
    """The digest of a payload from those of its files; "" for parts that make none."""
    inner = {part.name.removeprefix(f"{BLOBS}{sha256}"): part.sha256 for part in parts}
    if list(inner) == [".safetensors"]:
        return inner[".safetensors"]
    if not all(name.startswith("/") for name in inner):
        return ""
    lines = "".join(f"{name[1:]}\0{digest}\n" for name, digest in sorted(inner.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def _is_id(id: str) -> bool:
    try:
        return bool(_ID.validate_python(id))
    except ValidationError:
        return False


def _is_metadata(text: str) -> bool:
    """As it is read with every search: of few levels, and no number without end."""
    try:
        found = pydantic_core.from_json(text, allow_inf_nan=False)
        json.dumps(found, allow_nan=False)  # 1e999
    except ValueError:
        return False
    return isinstance(found, dict)


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while piece := opened.read(PIECE_BYTES):
            yield piece
