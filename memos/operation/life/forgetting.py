"""Forgets a user: removes everything of theirs, searches for what is left of it, and signs a proof.

Knows in which places memories lie. Must not know who may ask for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memos.cube import Form, MemCube, Text
from memos.errors import InputError
from memos.infrastructure.vault.audit.signing import is_signed, statement
from memos.infrastructure.vault.care.residue import Searched, phrases_of, pieces_of

if TYPE_CHECKING:
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.operation.life.mem_lifecycle import MemLifecycle

_PROOF = "forgotten"  # what a proof is signed for
_WAIT_S = 5.0  # for those who read what is being removed


@dataclass(frozen=True)
class Proof:
    """A statement, signed by the key of the audit log.

    counts: what went, by kind. cubes: the sha256 of the id of each. searched: how many files and bytes in the vault's
    folder were looked through, for how many pieces, and where one was found; how many of the files are encrypted and
    were looked through decrypted, too, and which could not be.
    """

    at: str
    counts: dict[str, int]
    cubes: tuple[str, ...]
    searched: dict[str, Any]
    key: str
    signature: str = ""

    @property
    def clean(self) -> bool:
        """True if all could be looked through, and nothing was found."""
        return not self.searched["found"] and not self.searched.get("unread")  # older proofs: of plain vaults

    @property
    def signed(self) -> bool:
        """True if it is as it was signed."""
        return is_signed(self.key, _PROOF, _statement(self), self.signature)

    def problems(self, key: str) -> list[str]:
        """What speaks against it; nothing, if all of it holds. key: the public one, in hex, of the log that should have
        signed it."""
        found = [] if self.signed else ["it is not as it was signed"]
        if self.key != key:
            found.append(f"it was signed by {self.key}, not by {key}")
        found += [f"a piece was found in {file} at byte {at}" for file, at in self.searched["found"]]
        return found + [f"{file} was not searched" for file in self.searched.get("unread", ())]

    def write(self, file: Path) -> None:
        """Raises InputError."""
        try:
            file.write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")
        except OSError as error:
            raise InputError(f"{file} cannot be written ({error.strerror}); name another file") from error


def read_proof(file: Path) -> Proof:
    """Raises InputError."""
    try:
        given = json.loads(file.read_text("utf-8"))
        return Proof(**given | {"cubes": tuple(given["cubes"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{file} is no proof of a forgetting ({error}); give the file of `memos forget --proof`"
        ) from None


class UserForgetting:
    def __init__(self, vault: MemVault, lifecycle: MemLifecycle) -> None:
        self._vault, self._lifecycle = vault, lifecycle

    def concerned(self, user: str) -> list[str]:
        """The ids of what would go."""
        return self._vault.forgetting.concerned(user)

    def forget(self, user: str) -> Proof:
        """Remove all of a user's memories, in all forms and states, and what others have made of them. Raises Held."""
        with self._vault.transaction():
            ids = self.concerned(user)
            cubes = self._vault.at(ids)
            texts, vectors, payloads = self._vault.forgetting.bytes_of(ids)
            sought = {*chain.from_iterable(map(phrases_of, (*texts, *map(_quoted, texts))))}
            sought |= {*chain.from_iterable(map(pieces_of, vectors))}
            for file in chain.from_iterable(map(_files, payloads)):
                sought |= set(pieces_of(file.read_bytes()))
            sources = {source.id for cube in cubes for source in cube.sources} - set(ids)
            counts = _counts(user, cubes) | self._vault.forgetting.forget(user, ids)
            self._lifecycle.let_out(self._vault.at(sorted(sources)))
        unerased = self._vault.erasing.wait(_WAIT_S)
        return self._signed(counts, ids, self._vault.forgetting.search(sought), unerased)

    def _signed(self, counts: dict[str, int], ids: Iterable[str], searched: Searched, unerased: bool) -> Proof:
        digests = tuple(sorted(sha256(id.encode()).hexdigest() for id in ids))
        signer = self._vault.audit_log.signer
        findings = asdict(searched) | {"found": [*map(list, searched.found)], "unread": [*searched.unread]}
        if unerased:
            findings["found"].append(["another process is in the way: close it, and open the vault again", 0])
        proof = Proof(self._vault.now().isoformat(), counts, digests, findings, signer.public)
        return Proof(**{**vars(proof), "signature": signer.sign(_PROOF, _statement(proof))})


def _statement(proof: Proof) -> bytes:
    return statement({name: value for name, value in asdict(proof).items() if name != "signature"})


def _counts(user: str, cubes: Iterable[MemCube]) -> dict[str, int]:
    every = list(cubes)
    texts = [cube for cube in every if isinstance(cube.payload, Text)]
    return {
        "memories": len(texts),
        "turns": sum(cube.form is Form.PLAINTEXT for cube in every) - len(texts),
        "kv": sum(cube.form is Form.ACTIVATION for cube in every),
        "adapters": sum(cube.form is Form.PARAMETRIC for cube in every),
        "of_others": sum(user not in (cube.namespace.user_id, cube.rights.owner) for cube in every),
    }


def _quoted(text: bytes) -> bytes:
    """As it stands within JSON."""
    return json.dumps(text.decode(), ensure_ascii=False)[1:-1].encode()


def _files(payload: Path) -> list[Path]:
    return [path for path in sorted(payload.rglob("*")) if path.is_file()] if payload.is_dir() else [payload]
