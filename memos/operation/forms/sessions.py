"""Stores a conversation as cubes, so that it continues in another process without being read again.

Each turn is a plaintext cube, derived from the memories that the conversation had shown by then: where one of those is
edited or deleted, the turn leaves the conversation with it. Beside it stands an activation cube with the KV of what
the turn added, after the KV of the turn before. To go back to an earlier turn is to leave the later ones out.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from memos.cube import ANSWERING, MOMENT, NOTED, Blob, Form, Header, MemCube, Source, State, Turn, new_cube, new_id
from memos.errors import Conflict, InputError, NoRoom, NotFound, VaultError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.cache import Activation, join, shared_length
from memos.infrastructure.host.request import Request
from memos.operation.choosing.mem_scheduler import Admission, Session, Talk
from memos.operation.forms.serving import newest
from memos.rights import is_utf8

if TYPE_CHECKING:
    from datetime import datetime

    from memos.config import DecodeConfig
    from memos.infrastructure.governance.mem_governance import MemGovernance
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.operation.forms.serving import Serving
    from memos.operation.life.mem_lifecycle import MemLifecycle

MAX_READ_TURNS = 12  # that a message is read with: what was told may be put right later
MAX_NOTED = 1000  # messages of all conversations that were carried out

log = logging.getLogger("memos")


class Sessions:
    """The conversations of one vault, on one host."""

    def __init__(
        self,
        decode: DecodeConfig,
        vault: MemVault,
        governance: MemGovernance,
        lifecycle: MemLifecycle,
        host: Host,
        serving: Serving,
    ) -> None:
        self._decode, self._vault, self._governance, self._lifecycle = decode, vault, governance, lifecycle
        self._host, self._serving = host, serving
        self._noted: deque[tuple[Session, datetime, str, str]] = deque(maxlen=MAX_NOTED)

    # -- going on ------------------------------------------------------------------------------------------

    def turns(self, session: Session) -> list[MemCube]:
        """Its turns in force that its user may read, oldest first. Raises InputError."""
        return self._cubes(session, Form.PLAINTEXT, ANSWERING)

    def messages(self, session: Session) -> list[dict[str, str]]:
        """The latest of its turns, and of what was carried out between them, as messages."""
        said = [(at, told, reply, NOTED) for of, at, told, reply in list(self._noted) if of == session]
        said += [(c.header.created, (turn := _turn(c)).question, turn.answer, "") for c in self.turns(session)]
        pairs = ((("user", q, kind), ("assistant", a, kind)) for _, q, a, kind in sorted(said)[-MAX_READ_TURNS:])
        return [{"role": role, "content": text, "kind": kind} for pair in pairs for role, text, kind in pair]

    def note(self, session: Session, message: str, reply: str, forgets: bool) -> None:
        """What was carried out without the model is read with the messages after it, in this process; it is no turn.
        forgets: and no more what was carried out before it."""
        self._noted.append((session, self._vault.now(), message, reply))
        if forgets:
            self._noted = deque((one for one in list(self._noted) if one[0] != session), MAX_NOTED)

    def resume(self, session: Session, question: str, admission: Admission) -> Talk:
        """The question after the turns before it.

        Of a conversation that has outgrown the model's context, the newer half goes on, and the turns after it begin
        there too: so it is read again seldom.
        """
        turns = self.turns(session)
        since = _turn(turns[-1]).since if turns else ""
        turns = [turn for turn in turns if turn.id >= since]
        talk = Talk(question, session=session)

        def fits(earlier: tuple[MemCube, ...]) -> bool:
            return self._host.fits(_request(replace(talk, earlier=earlier), admission), self._decode)

        return replace(talk, earlier=newest(tuple(turns), fits))

    def request(self, talk: Talk, admission: Admission) -> Request:
        """What the model is given: the conversation, and with the question the memories that are new in it."""
        assert talk.session
        chain = [] if talk.again else self._chain(talk.session)  # empty: it has to be read again
        heard = self._serving.bring(chain[-1], lambda: self._joined(chain)) if chain else None
        return replace(_request(talk, admission), talk=heard, adapters=self._serving.adapters(admission))

    def _joined(self, chain: Sequence[MemCube]) -> Activation:
        pieces: list[Activation] = []
        for cube in chain:
            assert cube.blob
            over = sum(len(piece.ids) for piece in pieces) - cube.blob.after
            while over > 0:  # what this one continues ends earlier
                last = pieces.pop()
                if len(last.ids) > over:
                    pieces.append(last.upto(len(last.ids) - over))
                over -= len(last.ids)
            before = tuple(i for piece in pieces for i in piece.ids)
            pieces.append(self._host.load_kv(self._vault.blobs.path(cube.blob, verified=False), before))
        return join(pieces)

    # -- keeping -------------------------------------------------------------------------------------------

    def keep(
        self, talk: Talk, answer: str, admission: Admission, said: Iterable[MemCube], kv: Activation | None
    ) -> None:
        """Add a turn, on disk when this returns; not if one of the memories that it saw is gone meanwhile.

        said: memories of what stood beside the question. kv: of the prompt; what is new of it is kept beside the
        turn, where the disk has room.
        """
        assert talk.session
        id = new_id()
        since = (talk.earlier[0].id if talk.earlier else id)[:MOMENT]
        turn = Turn(question=talk.question, answer=answer, shown=_new(talk, admission), since=since)
        # an answer may say again whatever the conversation had shown before
        heard = {source for earlier in talk.earlier for source in earlier.sources}
        known = {source for adapter in admission.adapters for source in adapter.sources}
        pinned = tuple({*_pinned((*admission.cubes, *said)), *known, *heard})
        cube = self._cube(id, talk.session, turn, pinned)
        try:
            stored = self._lifecycle.publish(cube) if pinned else self._lifecycle.create(cube)
        except (Conflict, NotFound) as error:  # as when what was just told has ended what was shown
            log.info("this turn is not kept: %s", error)
            there = {shown.id for shown in self._vault.at(source.id for source in pinned)}
            if there.issuperset(source.id for source in pinned):  # of what is forgotten nothing is read on
                self.note(talk.session, talk.question, answer, forgets=False)
            return
        whole = self._vault.get(stored.id).payload == turn  # else the KV knows what may not be stored
        if kv is not None and whole:
            try:
                self._store_kv(talk.session, (*talk.earlier, stored), kv)
            except (Conflict, NotFound, NoRoom, VaultError, OSError) as error:
                log.warning("the turn is kept as text only: %s", error)

    def _store_kv(self, session: Session, turns: Sequence[MemCube], kv: Activation) -> None:
        chain = self._chain(session)
        before = self._serving.resident(chain[-1]) if chain else None
        after = shared_length(before.ids, kv.ids) if before and before.under == kv.under else 0
        if before and after < len(before.ids) // 2:  # another beginning: not worth being joined to
            after = 0
        own = kv.since(after)
        with self._vault.blobs.staging() as staged:
            self._host.save_kv(own, staged, after=kv.ids[:after])
            self._serving.require_disk(staged.stat().st_size)
            sha256, size = self._vault.blobs.store(staged)
            blob = Blob(sha256=sha256, bytes=size, tokens=len(own.ids), after=after, fingerprint=self._host.digest)
            sources = _pinned((*turns, *(chain[-1:] if after else ())))
            try:
                cube = self._lifecycle.publish(self._cube(new_id(), session, blob, sources))
            except BaseException:
                self._vault.blobs.discard(sha256)
                raise
        if not after:  # the conversation's KV begins anew
            self._forget(chain)
        self._vault.usage.record([cube.id], self._vault.now())
        self._serving.let_go({c.blob.sha256 for c in chain[-1:] if c.blob})
        self._serving.bring(self._vault.get(cube.id), lambda: kv)

    def damaged(self, session: Session) -> None:
        """Its KV is not what was kept: all of it goes, and the conversation is read again from its turns."""
        self._forget(self._cubes(session, Form.ACTIVATION, (State.ACTIVATED,)))

    def let_go(self, session: Session) -> None:
        """Its KV leaves memory, as when bringing it has failed."""
        kvs = self._cubes(session, Form.ACTIVATION, (State.ACTIVATED,))
        self._serving.let_go({cube.blob.sha256 for cube in kvs if cube.blob})

    def _forget(self, kvs: Iterable[MemCube]) -> None:
        for cube in kvs:
            with suppress(NotFound):
                self._lifecycle.delete(cube.id)  # and what came after it
        self._serving.release()

    def rewind(self, session: Session, turns: int) -> int:
        """Go back to the first `turns` turns; the later ones are archived. How many those are. Raises InputError."""
        there = self.turns(session)
        if not 0 <= turns <= len(there):
            raise InputError(
                f"session {session.namespace.session_id!r} has {len(there)} turns and cannot go back to {turns}; "
                f"give a number from 0 to {len(there)}"
            )
        with self._vault.transaction():
            for turn in there[turns:]:
                self._lifecycle.move(turn.id, State.ARCHIVED, f"rewound to {turns} turns")
        self._serving.release()
        return len(there) - turns

    def _cube(self, id: str, session: Session, payload: Turn | Blob, sources: tuple[Source, ...]) -> MemCube:
        form = Form.ACTIVATION if isinstance(payload, Blob) else Form.PLAINTEXT
        header = Header(created=self._vault.now(), origin="chat", segment=_segment(session), kind="turn")
        return new_cube(session.namespace, header, payload, id=id, form=form, sources=sources)

    # -- what is there -------------------------------------------------------------------------------------

    def _chain(self, session: Session) -> list[MemCube]:
        """The KV cubes of the newest snapshot that this host can use, oldest first."""
        kvs = {c.id: c for c in self._cubes(session, Form.ACTIVATION, (State.ACTIVATED,))}
        chain = list[MemCube]()
        newest = next(reversed(kvs.values()), None)
        while newest is not None and newest.blob and newest.blob.fingerprint == self._host.digest:
            chain.insert(0, newest)
            if not newest.blob.after:
                return chain
            newest = next((kvs[s.id] for s in reversed(newest.sources) if s.id in kvs), None)
        return []

    def _cubes(self, session: Session, form: Form, states: Iterable[State]) -> list[MemCube]:
        found = self._vault.cubes(form=form, states=states, segment=_segment(session))
        return sorted(
            self._governance.visible(session.reader, (c for c in found if c.namespace == session.namespace)),
            key=lambda c: c.id,
        )


def _request(talk: Talk, admission: Admission) -> Request:
    """Turns as they stand in a prompt: memories with the question that brought them in, the first ones' at the top."""
    messages: list[dict[str, object]] = []
    for n, turn in enumerate(map(_turn, talk.earlier)):
        messages.append({"role": "user", "content": turn.question, "memories": turn.shown if n else ()})
        messages.append({"role": "assistant", "content": turn.answer})
    messages.append({"role": "user", "content": talk.question, "memories": _new(talk, admission)})
    return Request(tuple(messages), _turn(talk.earlier[0]).shown, keep=True)


def _new(talk: Talk, admission: Admission) -> tuple[str, ...]:
    """Memories that the conversation has not shown yet."""
    shown = {text for turn in talk.earlier for text in _turn(turn).shown}
    return tuple(c.text for c in admission.cubes if c.text not in shown)


def _pinned(cubes: Iterable[MemCube]) -> tuple[Source, ...]:
    return tuple({c.id: c.pin for c in cubes}.values())


def _segment(session: Session) -> str:
    """Raises InputError for a name that cannot be written down."""
    name = session.namespace.session_id
    if not is_utf8(name):
        raise InputError(f"the session's name {name!r} is no valid text; give it a name in UTF-8")
    return f"session {name}"


def _turn(cube: MemCube) -> Turn:
    assert isinstance(cube.payload, Turn)
    return cube.payload
