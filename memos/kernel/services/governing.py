"""The calls of governance: trust, quarantine, legal holds, the right to be forgotten, the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memos.cube import MemCube, Namespace, Trust
from memos.errors import InputError
from memos.infrastructure.vault.audit.audit_log import Verdict, verify_export
from memos.infrastructure.vault.audit.signing import read_public
from memos.kernel.access import Service
from memos.operation.life.forgetting import Proof, forget_user, read_proof
from memos.operation.life.knowledge import text_of
from memos.ops import EndHold, ForgetUser, Hold, Holds, Quarantined, Release, SetTrust

if TYPE_CHECKING:
    from pathlib import Path

    from memos.infrastructure.vault.tables.set_aside import LegalHold, Suspect
    from memos.rights import Caller


class Governing(Service):
    """trust, quarantined, release, hold, forget_user; and the audit log, for whoever holds the vault's folder."""

    def trust(self, caller: Caller, id: str, trust: Trust | str) -> MemCube:
        """Say how far a memory is believed; what is derived from it is stale. Raises InputError, BadTransition."""
        if trust not in list(Trust):
            raise InputError(f"a memory cannot be {trust!r}; give one of {', '.join(Trust)}")
        op = SetTrust(id=id, trust=Trust(trust))
        cube = self._access.cube(caller, op, id)
        text_of(cube)
        return self._freshness.changed(self._lifecycle.edit(cube.id, trust=op.trust))

    def quarantined(self, caller: Caller) -> list[tuple[MemCube, Suspect]]:
        """The user's memories that answer nothing until they are released, each with the reason; the latest last."""
        self._governance.permit(caller, Quarantined())
        suspects = {suspect.id: suspect for suspect in self._vault.quarantine.all()}
        seen = self._governance.readable(caller, self._vault.at(suspects))
        return [(cube, suspects[cube.id]) for cube in seen]

    def release(self, caller: Caller, id: str) -> MemCube:
        """Let a memory out of quarantine. Raises BadTransition."""
        return self._freshness.changed(self._knowledge.release(self._access.cube(caller, Release(id=id), id).id))

    def holds(self, caller: Caller) -> list[tuple[MemCube, LegalHold]]:
        """The user's memories that nobody may edit, delete or forget, each with who holds it and why; oldest first."""
        self._governance.permit(caller, Holds())
        seen = {cube.id: cube for cube in self._governance.readable(caller, self._vault.cubes())}
        return [(seen[hold.id], hold) for hold in self._vault.holds.of(seen)]

    def hold(self, caller: Caller, id: str, why: str) -> MemCube:
        """Lay a legal hold on a memory: until the same user ends it, nobody and no rule edits, deletes or forgets it.
        Raises Held, BadTransition, InputError."""
        cube = self._access.cube(caller, Hold(id=id, why=why), id)
        return self._freshness.changed(self._lifecycle.hold(cube.id, caller.user_id, why))

    def end_hold(self, caller: Caller, id: str) -> MemCube:
        """Raises BadTransition."""
        return self._freshness.changed(self._lifecycle.end_hold(self._access.cube(caller, EndHold(id=id), id).id))

    def concerned(self, user: str) -> list[str]:
        """The ids of all that goes when a user is forgotten."""
        return self._vault.forgetting.concerned(user)

    def forget_user(self, caller: Caller) -> Proof:
        """Remove the user: every memory in every form and state, and whatever was made of these, also by others.

        What is left of it is told in the proof; nothing is, unless another process is in the way. Raises Held.
        """
        self._governance.permit(caller, ForgetUser(), over=Namespace(user_id=caller.user_id))
        self._vault.holds.require_none(self.concerned(caller.user_id), "be forgotten")
        self._freshness.release()
        proof = forget_user(self._vault, self._lifecycle, caller.user_id)
        self._replays.forget()
        return self._freshness.changed(proof)

    def audit_verify(self, file: Path | None = None, key: str | None = None) -> Verdict:
        """What is wrong with the audit log, or with an export of it. key: the public one, in hex or in a file, that
        signed it; without, that of the vault. Raises InputError."""
        public = None if key is None else read_public(key)
        if file is None:
            return self._vault.audit_log.verify(public)
        return verify_export(file, public or self._vault.audit_log.public_key())

    @staticmethod
    def verify_audit_file(file: Path, key: str) -> Verdict:
        """What is wrong with an export of an audit log, by the public key in hex or in a file. Raises InputError."""
        return verify_export(file, read_public(key))

    def verify_proof(self, file: Path, key: str | None = None) -> list[str]:
        """What speaks against the proof of a forgetting. key: the public one, in hex or in a file, that signed it;
        without, that of the vault. Raises InputError."""
        return read_proof(file).problems(self._vault.audit_log.public_key() if key is None else read_public(key))

    @staticmethod
    def verify_proof_file(file: Path, key: str) -> list[str]:
        """The same by a given key, which takes no vault. Raises InputError."""
        return read_proof(file).problems(read_public(key))
