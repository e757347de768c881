"""Public calls of governance: trust, quarantine, holds, the right to be forgotten, the audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memos.cube import MemCube, Namespace, Trust
from memos.errors import InputError
from memos.infrastructure.vault.audit.records import AuditRow, Verdict, verify_export
from memos.infrastructure.vault.audit.signing import read_public
from memos.infrastructure.vault.tables.hold_table import LegalHold
from memos.infrastructure.vault.tables.quarantine_table import Suspect
from memos.kernel.wiring import Parts
from memos.operation.life.agreement import text_of
from memos.operation.life.forgetting import Proof, read_proof
from memos.ops import EndHold, ForgetUser, Hold, Holds, Quarantined, Release, SetTrust


class Governing(Parts):
    """trust, release, hold, forget_user, audit."""

    def trust(self, id: str, trust: Trust | str, *, user: str | None = None) -> MemCube:
        """Say how far a memory is believed; what is derived from it is stale. Raises InputError, BadTransition."""
        if trust not in list(Trust):
            raise InputError(f"a memory cannot be {trust!r}; give one of {', '.join(Trust)}")
        op = SetTrust(id=id, trust=Trust(trust))
        cube = self._visible(op, id, user)
        text_of(cube)
        return self._changed(self.lifecycle.trust(cube.id, op.trust))

    def quarantined(self, *, user: str | None = None) -> list[tuple[MemCube, Suspect]]:
        """The user's memories that answer nothing until they are released, each with the reason; the latest last."""
        caller = self._caller(user)
        self.governance.permit(caller, Quarantined())
        suspects = {suspect.id: suspect for suspect in self.vault.quarantine.all()}
        seen = self.governance.readable(caller, self.vault.at(suspects))
        return [(cube, suspects[cube.id]) for cube in seen]

    def release(self, id: str, *, user: str | None = None) -> MemCube:
        """Let a memory out of quarantine. Raises BadTransition."""
        return self._changed(self.knowledge.release(self._visible(Release(id=id), id, user).id))

    def holds(self, *, user: str | None = None) -> list[tuple[MemCube, LegalHold]]:
        """The user's memories that nobody may edit, delete or forget, each with who holds it and why; oldest first."""
        caller = self._caller(user)
        self.governance.permit(caller, Holds())
        seen = {cube.id: cube for cube in self.governance.readable(caller, self.vault.cubes())}
        return [(seen[hold.id], hold) for hold in self.vault.holds.of(seen)]

    def hold(self, id: str, why: str, *, user: str | None = None) -> MemCube:
        """Lay a legal hold on a memory: until the same user ends it, nobody and no rule edits, deletes or forgets it.
        Raises Held, BadTransition, InputError."""
        cube = self._visible(Hold(id=id, why=why), id, user)
        return self._changed(self.lifecycle.hold(cube.id, self._caller(user).user_id, why))

    def end_hold(self, id: str, *, user: str | None = None) -> MemCube:
        """Raises BadTransition."""
        return self._changed(self.lifecycle.end_hold(self._visible(EndHold(id=id), id, user).id))

    def forget_user(self, user: str | None = None) -> Proof:
        """Remove the user: every memory in every form and state, and whatever was made of these, also by others.

        What is left of it is told in the proof; nothing is, unless another process is in the way. Raises Held.
        """
        caller = self._caller(user)
        self.governance.permit(caller, ForgetUser(), over=Namespace(user_id=caller.user_id))
        self.vault.holds.require_none(self.forgetting.concerned(caller.user_id), "be forgotten")
        if "serving" in self.__dict__:
            self.serving.release()
        proof = self.forgetting.forget(caller.user_id)
        self._replays.clear()
        return self._changed(proof)

    def audit_query(self, **what: Any) -> list[AuditRow]:
        """Decisions of this kind, oldest first; see `AuditLog.query`."""
        return self.vault.audit_log.query(**what)

    def audit_verify(self, file: Path | None = None, key: str | None = None) -> Verdict:
        """What is wrong with the audit log, or with an export of it. key: the public one, in hex or in a file, that
        signed it; without, that of the vault. Raises InputError."""
        public = None if key is None else read_public(key)
        if file is None:
            return self.vault.audit_log.verify(public)
        return verify_export(file, public or self.audit_key())

    @staticmethod
    def verify_audit_file(file: Path, key: str) -> Verdict:
        """What is wrong with an export of an audit log, by the public key in hex or in a file. Raises InputError."""
        return verify_export(file, read_public(key))

    def verify_proof(self, file: Path, key: str | None = None) -> list[str]:
        """What speaks against the proof of a forgetting. key: the public one, in hex or in a file, that signed it;
        without, that of the vault. Raises InputError."""
        return read_proof(file).problems(self.audit_key() if key is None else read_public(key))

    @staticmethod
    def verify_proof_file(file: Path, key: str) -> list[str]:
        """The same by a given key, which takes no vault. Raises InputError."""
        return read_proof(file).problems(read_public(key))

    def audit_export(self, out: Path) -> int:
        """Write the audit log to a file that can be verified by itself; how many rows. Raises InputError."""
        return self.vault.audit_log.export(out)

    def audit_key(self) -> str:
        """The public key, in hex, by which the audit log can be verified."""
        return self.vault.audit_log.public_key()
