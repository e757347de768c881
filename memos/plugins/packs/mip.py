"""The Memory Interchange Protocol as values: the manifest of a pack and the record of a memory (docs/mip.md).

Knows the words of the protocol. Must not know files, stores, or who may load what.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import total_ordering
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, Field, StringConstraints, ValidationError

from memos.cube import Blob, Frozen, MemCube, Namespace, Probe, Text, Turn
from memos.errors import InputError

MIP = "1"  # the version of the protocol
MANIFEST, SIGNATURE, RECORDS, BLOBS = "manifest.json", "signature.json", "records/", "blobs/"
SIGNED = "mip/1 manifest"  # what a signature of a manifest is one of
# at most, of what is read from a stranger
MAX_RECORDS = 1_000  # in a part
MAX_RECORD_BYTES = 4 << 20  # of one
MAX_RECORDS_BYTES = 16 << 20  # of a part
MAX_MANIFEST_BYTES = 32 << 20
MAX_NUMBER = 999_999_999  # a version, or tokens

Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]
_NAME = "[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?"
Name = Annotated[str, StringConstraints(pattern=f"^{_NAME}$")]
_NUMBER = r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
Number = Annotated[str, StringConstraints(pattern=f"^{_NUMBER}$", max_length=100)]
PackName = Annotated[str, StringConstraints(pattern=f"^{_NAME}/{_NAME}$")]
Line = Annotated[str, StringConstraints(max_length=2_000)]
Id = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_-]{6,64}$")]


class Requirement(Frozen):
    """Another pack that this one builds on, and which versions will do: ">=1.2.0,<2.0.0"; "" is any."""

    pack: PackName
    versions: Annotated[str, StringConstraints(pattern=r"^[-0-9A-Za-z.<>=, ]{0,200}$")] = ""


class Withdrawn(Frozen):
    """A memory that the publisher has taken back, and why."""

    id: Id
    why: Line


class PackRelease(Frozen):
    """What a pack is published as."""

    publisher: Name
    name: Name
    version: Number
    licence: Line
    description: Line = ""
    requires: tuple[Requirement, ...] = ()
    withdrawn: tuple[Withdrawn, ...] = ()

    @property
    def pack(self) -> str:
        return f"{self.publisher}/{self.name}"


class PackPart(Frozen):
    """A file of the pack."""

    name: str
    bytes: int = Field(ge=0)
    sha256: Hex32


class PackManifest(Frozen):
    """The first thing that is read, and the one that is signed: all parts of the pack, with their digests."""

    mip: Literal["1"]
    made: AwareDatetime
    maker: Line = ""  # the program
    release: PackRelease | None = None  # None: a dump, which is nobody's publication
    history: bool = False  # earlier versions are in it
    records: int = Field(ge=0)
    parts: tuple[PackPart, ...]


class Signature(Frozen):
    """Over the bytes of the manifest. key: the public one."""

    algorithm: Literal["ed25519"] = "ed25519"
    key: Hex32
    signature: Hex64


class Origin(Frozen):
    """Where a memory came from before it was where the pack was made."""

    key: Hex32  # who signed the pack that it came in
    pack: str  # "publisher/name version", or "" for a dump
    id: str
    version: int
    owner: str
    namespace: Namespace


class Record(Frozen):
    """One line of a part of records: a memory with all that is needed to bring it up elsewhere."""

    cube: MemCube  # in its current version; `usage` stays behind
    earlier: tuple[MemCube, ...] = ()  # versions before that, oldest first
    probes: tuple[Probe, ...] = ()  # all questions that tell whether it is remembered, of its facts too
    origin: Origin | None = None


class Listing(Frozen):
    """What an entry of a registry says, and its publisher has signed. withdrawn: why the version is taken back."""

    release: PackRelease
    sha256: Hex32  # of the pack
    bytes: int = Field(ge=0)
    records: int = Field(ge=0)
    published: AwareDatetime
    withdrawn: Line = ""


class RegistryEntry(Frozen):
    """One version of one pack in a registry. signature: over `Listing` as `canonical` writes it."""

    said: Listing
    key: Hex32
    signature: Hex64


class RegistryIndex(Frozen):
    """All entries of a registry; each is signed for itself."""

    mip: Literal["1"]
    entries: tuple[RegistryEntry, ...]


SIGNED_ENTRY = "mip/1 entry"
SCHEMAS: dict[str, type[BaseModel]] = {
    "manifest": PackManifest,
    "signature": Signature,
    "record": Record,
    "index": RegistryIndex,
}


def release_of(
    pack: str, version: str, licence: str, description: str, requires: Iterable[str], withdrawn: Mapping[str, str]
) -> PackRelease:
    """From the words of a command line: "PUBLISHER/NAME", and of what it builds on "PUBLISHER/NAME>=1.0.0,<2.0.0".

    Raises InputError.
    """
    publisher, _, name = pack.partition("/")
    needed = [re.fullmatch(r"([^<>=]*)(.*)", one, re.DOTALL) for one in requires]
    try:
        return PackRelease(
            publisher=publisher,
            name=name,
            version=version,
            licence=licence,
            description=description,
            requires=tuple(Requirement(pack=m[1].strip(), versions=m[2]) for m in needed if m),
            withdrawn=tuple(Withdrawn(id=id, why=why) for id, why in withdrawn.items()),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(
            f"{first['input']!r:.200} cannot be the {first['loc'][-1]} of a release: {first['msg']}; a pack is called "
            f"like ada/cooking and a version like 1.0.0"
        ) from None


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of one of `SCHEMAS`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **SCHEMAS[name].model_json_schema()}


def canonical(value: BaseModel) -> bytes:
    """One form of JSON for one value: sorted keys, no blanks, UTF-8; what has its default is left out, and so is how a
    memory was used."""
    fields = value.model_dump(mode="json", exclude_defaults=True, exclude=_LEFT_OUT.get(type(value)))
    match value:
        case PackManifest() | RegistryIndex():
            fields["mip"] = MIP
        case Signature():
            fields["algorithm"] = value.algorithm
        case Record():
            earlier = zip(fields.get("earlier", ()), value.earlier, strict=True)
            for one, cube in ((fields["cube"], value.cube), *earlier):
                one["payload"]["type"] = cube.payload.type
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


_LEFT_OUT: dict[type[BaseModel], Any] = {Record: {"cube": {"usage": True}, "earlier": {"__all__": {"usage": True}}}}


def content_of(cube: MemCube) -> dict[str, Any]:
    """What makes two cubes the same memory: all but where they are kept, whose they are, and what became of them.

    Sources count by their number alone: they may have other names elsewhere.
    """
    header = cube.header.model_dump(mode="json", exclude={"origin", "trust", "changed", "tags"})
    payload = cube.payload.model_dump(mode="json", exclude={"build_s", "scores", "unasked"})
    match cube.payload:
        case Turn():
            payload = {k: v for k, v in payload.items() if k not in ("shown", "since")}
        case Text(sha256=None):  # as before texts could have files
            payload = {k: v for k, v in payload.items() if k not in ("sha256", "bytes", "media_type")}
        case Blob(pictures=0):
            payload.pop("pictures")
        case Text() | Blob():
            pass
    return {"form": str(cube.form), "header": header, "payload": payload, "sources": len(cube.sources)}


@total_ordering
class Version:
    """A semantic version (semver.org, 2.0.0) without build metadata."""

    def __init__(self, text: str) -> None:
        """Raises InputError."""
        if not re.fullmatch(_NUMBER, text, re.ASCII) or len(text) > 100:
            raise InputError(f"{text!r:.120} is no version; give one like 1.0.0 or 1.0.0-beta.2")
        self.text = text
        number, _, before = text.partition("-")
        self._number = tuple(int(n) for n in number.split("."))
        self._before = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in before.split(".") if p)

    @property
    def is_final(self) -> bool:
        return not self._before

    @property
    def _order(self) -> tuple[Any, ...]:
        return self._number, not self._before, self._before

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._order == other._order

    def __lt__(self, other: Version) -> bool:
        return bool(self._order < other._order)

    def __hash__(self) -> int:
        return hash(self._order)

    def within(self, versions: str) -> bool:
        """True if it fits ">=1.2.0,<2.0.0", "1.2.0" or ""; what comes before a final version fits only where such a
        one is named. Raises InputError."""
        bounds = [_bound(part) for part in versions.split(",") if part.strip()]
        names_a_draft = any(not bound.is_final for _, bound in bounds)
        return (self.is_final or names_a_draft) and all(_FITS[sign](self, bound) for sign, bound in bounds)


_FITS = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    "==": lambda a, b: a == b,
}


def _bound(part: str) -> tuple[str, Version]:
    sign = next((s for s in _FITS if part.strip().startswith(s)), "")
    return sign or "==", Version(part.strip().removeprefix(sign).strip())
