"""MemOS: the parts wired together, and the main path through them.

    message -> reader -> governance -> operator -> scheduler -> host -> reply
                 (what)     (may)       (find)      (admit)    (answer)

Read `chat` first, then `ask`, then `promote`.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from typing_extensions import assert_never

from memos.bound import AsRead, Bound, handed, handing_over
from memos.config import Config, DecodeConfig, load_config
from memos.cube import Blob, Fact, Form, MemCube, Namespace, Probe, Source, State, Text, Trust, in_zone
from memos.errors import (
    ContextOverflow,
    CorruptBlob,
    Denied,
    EmptyMemory,
    FingerprintMismatch,
    HostError,
    InputError,
    MemosError,
    NoRoom,
    Unsupported,
    UnsupportedLanguage,
    Untrusted,
)
from memos.exchange import Clash, Dumped, Loaded, MemDumper, MemLoader, Selection
from memos.forgetting import Forgetting, Proof
from memos.infrastructure import recrypt
from memos.infrastructure.audit_log import AuditRow, Verdict, verify_export
from memos.infrastructure.hold_table import LegalHold
from memos.infrastructure.job_list import no_job, sources_of
from memos.infrastructure.mem_governance import MemGovernance
from memos.infrastructure.mem_store import MemStore
from memos.infrastructure.mem_vault import MemVault, absent
from memos.infrastructure.mip import release_of
from memos.infrastructure.pack import PackReader
from memos.infrastructure.provenance import Provenance, give, given
from memos.infrastructure.quarantine_table import Suspect
from memos.infrastructure.signing import read_public
from memos.interface.mem_reader import MemReader
from memos.knowledge import Disagreement, Knowledge, MemoryAudit, text_of
from memos.operation.catalog import View
from memos.operation.currency import stated
from memos.operation.foresight import Foresight
from memos.operation.mem_lifecycle import ANSWERING, MemLifecycle
from memos.operation.mem_operator import MemOperator
from memos.operation.mem_scheduler import (
    ALWAYS,
    Admission,
    Budgets,
    MemScheduler,
    Move,
    Route,
    Segment,
    Talk,
    Via,
    composable,
)
from memos.operation.policies.policy import Policy, Staged, Tiers
from memos.operation.policies.table import policy as policy_of
from memos.operation.replay import Replay
from memos.operation.time_machine import Restored, TimeMachine
from memos.ops import (
    Add,
    Asked,
    ChangeState,
    Correct,
    Delete,
    DeleteSnapshot,
    Demote,
    Dump,
    EndHold,
    Forget,
    ForgetUser,
    Fuse,
    Get,
    GiveRight,
    History,
    Hold,
    Holds,
    ListPacks,
    ListSnapshots,
    Load,
    Operation,
    Promote,
    Quarantined,
    Rate,
    Recall,
    Reinstate,
    Release,
    RemovePack,
    Restore,
    Rewind,
    Rollback,
    Search,
    SetTrust,
    Split,
    Tag,
    TakeRight,
    TakeSnapshot,
    Untrust,
    Update,
)
from memos.overview import Lineage, Overview, Topic
from memos.pipelines import Pipelines
from memos.rights import Caller, Grant, Group, Subject, object_of, relation_of
from memos.self_report import told
from memos.sharing import Sharing
from memos.subscriptions import Kept, Subscriptions, TrustedKeys
from memos.upkeep import Upkeep

if TYPE_CHECKING:
    from memos.externalize import Statement
    from memos.infrastructure.credential_table import Credential
    from memos.infrastructure.host.decode import Completion
    from memos.infrastructure.host.embedder import Embedder
    from memos.infrastructure.host.host import Host
    from memos.infrastructure.job_list import Job
    from memos.infrastructure.mip import Entry, Origin
    from memos.infrastructure.pack_table import Installed
    from memos.infrastructure.snapshot_table import Snapshot
    from memos.insight import Explanation
    from memos.serving import Serving
    from memos.sessions import Sessions
    from memos.transitions import Progress, Transitions

log = logging.getLogger("memos")
DEFAULT_VAULT = Path("memos-data")
MAKER = "memos"  # of packs
OWN = "own"  # the name of a policy that is given, not chosen by its name
_LONGEST_TAG = 200
_HELD = (Form.ACTIVATION, Form.PARAMETRIC)
_Done = TypeVar("_Done")
_ANSWERED = frozenset(("remember", "correct", "recall", "talk"))  # by the main path
# why KV or an adapter may turn out to be of no use to a request; its text still is
UNUSABLE = (CorruptBlob, FingerprintMismatch, Unsupported, ContextOverflow, NoRoom)


@dataclass(frozen=True)
class Hit:
    """A memory found, with its score, and the signals that the score was made of."""

    cube: MemCube
    score: float
    why: dict[str, float]


@dataclass(frozen=True)
class Reply:
    """An answer, what it was answered from, and what it cost."""

    text: str
    admission: Admission = field(default_factory=Admission)
    remembered: tuple[MemCube, ...] = ()
    forgotten: tuple[str, ...] = ()
    prompt_tokens: int = 0
    past_tokens: int = 0
    answer_tokens: int = 0
    ttft_ms: float = 0.0
    seconds: float = 0.0
    operations: tuple[Asked, ...] = ()  # what the message was understood to ask for
    pipeline: str = ""  # the id by which `undo` takes back what was done


@handing_over
class MemOS:
    """A memory kernel around one local model.

    Every public call acts for `user` (default: config.user_id), and passes governance first; what it returns shows
    memories as that user may read them.
    """

    def __init__(
        self,
        config: Config = Config(),
        *,
        model: Any = None,
        tokenizer: Any = None,
        vault: Path | str | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Open the vault; the model is loaded with the first call that needs it.

        Args:
            model, tokenizer: a transformers causal LM and its tokenizer, already loaded; they are not changed.
            vault: folder of the vault, before config.vault.path.
            policy: one of your own, in place of config.policy; `search` knows it as "own".
        Raises VaultError.
        """
        if (model is None) != (tokenizer is None):
            raise InputError("model and tokenizer belong together; give both, or neither and set model.path")
        self.config = config
        self._given = (model, tokenizer)
        folder = Path(vault or config.vault.path or DEFAULT_VAULT)
        its = config.vault
        self.vault = MemVault(folder, its.quota, config.governance, its.key, its.scratch, its.server)
        self.governance = MemGovernance(self.vault)
        self.lifecycle = MemLifecycle(self.vault, config.lifecycle, config.governance.retention)
        self.time_machine = TimeMachine(self.vault, self.lifecycle)
        self._by_policy = lru_cache(maxsize=None)(
            lambda name: MemScheduler(config.scheduler, policy if policy and name == OWN else policy_of(name, config))
        )
        self._main_policy = OWN if policy else config.policy
        self.scheduler = self._by_policy(self._main_policy)
        self._replays: dict[str, Replay | None] = {}
        self.reader = MemReader()
        self.knowledge = Knowledge(self.vault, self.lifecycle, self.reader, config.limits)
        self._tokens = lru_cache(maxsize=65_536)(lambda text: self.host.tokens(text))
        if config.scheduler.background_s is not None:
            self.upkeep.start(config.scheduler.background_s)

    @classmethod
    def from_config(cls, path: str | Path, overrides: Sequence[str] = (), **parts: Any) -> MemOS:
        """A kernel from a YAML file. Raises ConfigError, VaultError."""
        return cls(load_config(path, tuple(overrides)), **parts)

    @cached_property
    def host(self) -> Host:
        """The local model. Raises ModelNotFound, HostError."""
        from memos.infrastructure.host.host import Host  # loads torch and transformers

        model, tokenizer = self._given
        if model is None:
            return Host.load(self.config.model)
        named = {"path": str(getattr(model.config, "_name_or_path", "")) or "the given model"}
        return Host(model, tokenizer, self.config.model.model_copy(update=named))

    @cached_property
    def sharing(self) -> Sharing:
        return Sharing(self.vault, self.governance, self.config)

    @cached_property
    def pipelines(self) -> Pipelines:
        return Pipelines(self)

    @cached_property
    def upkeep(self) -> Upkeep:
        return Upkeep(self.vault, self._plan_all, self._act)

    @cached_property
    def serving(self) -> Serving:
        from memos.serving import Serving  # loads torch and transformers

        return Serving(self.config, self.vault, self.scheduler, self.host, self.foresight)

    @cached_property
    def foresight(self) -> Foresight:
        """What was learnt from the uses that the vault has kept."""
        learnt = Foresight()
        for when, user, group in self.vault.accesses():
            learnt.used(user, group, when.timestamp())
        return learnt

    @cached_property
    def sessions(self) -> Sessions:
        from memos.sessions import Sessions  # loads torch and transformers

        parts = (self.vault, self.governance, self.lifecycle, self.host, self.serving)
        return Sessions(self.config.decode, *parts)

    @cached_property
    def transitions(self) -> Transitions:
        from memos.transitions import Transitions  # loads torch and transformers

        parts = (self.vault, self.lifecycle, self.reader, self.host, self.serving.require_disk)
        return Transitions(*parts, self.config.distil, self.config.activation)

    @cached_property
    def publishers(self) -> TrustedKeys:
        return TrustedKeys(self.vault, self.vault.audit_log.signer.path)

    @cached_property
    def loader(self) -> MemLoader:
        return MemLoader(self.vault, self.lifecycle, self.knowledge, self.reader)

    @cached_property
    def dumper(self) -> MemDumper:
        return MemDumper(self.vault, self.reader, self.governance.visible)

    @cached_property
    def subscriptions(self) -> Subscriptions:
        parts = (self.vault, self.lifecycle, self.dumper, self.loader, self.publishers)
        return Subscriptions(*parts, self._fits, self._accept)

    @cached_property
    def embedder(self) -> Embedder:
        from memos.infrastructure.host.embedder import Embedder  # loads torch and transformers

        return Embedder(self.config.embedder)

    @cached_property
    def operator(self) -> MemOperator:
        from memos.infrastructure.host.reranker import Reranker  # loads torch and transformers

        retrieval = self.config.retrieval
        rerank = Reranker(retrieval.reranker).score if retrieval.reranker else None
        return MemOperator(
            self.vault, self.embedder, ANSWERING, retrieval.exact_ms, retrieval.hops, rerank, retrieval.compared
        )

    def close(self) -> None:
        """What goes on in the background is interrupted, and taken up again by the next who opens the vault."""
        if "upkeep" in self.__dict__:
            self.upkeep.stop()
        if "serving" in self.__dict__:
            self.serving.close()
        if "operator" in self.__dict__:
            self.operator.close()
        self.vault.close()

    def __enter__(self) -> MemOS:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the main path -------------------------------------------------------------------------------------

    def chat(
        self,
        message: str,
        *,
        via: Via = "auto",
        turns: Sequence[dict[str, str]] = (),
        session: str | None = None,
        user: str | None = None,
        on_text: Callable[[str], None] | None = None,
        decode: DecodeConfig | None = None,
    ) -> Reply:
        """Do what a message asks for, all of it or nothing: remember, correct, forget, share, freeze, ..., or answer.

        What was understood is told in the reply's `operations`. Nothing is done before all of it is permitted; where it
        is not clear which memory is meant, that is asked, and the next message may answer.

        turns: the messages before it. session: instead, the name of a conversation that memos keeps: its turns, and
        their KV, so that it goes on in another process without being read again. on_text: is given the answer piece by
        piece; what it raises ends the answer. decode: of this answer, in place of config.decode.
        """
        caller = self._caller(user)
        waiting = self.pipelines.answered(message, caller)
        asked, meant = waiting or (self.reader.asked(message, turns, self.vault.now().date()), {})
        direct = not waiting and {one.intent for one in asked} <= _ANSWERED
        if not direct and (waiting or len(asked) > 1 or asked[0].intent != "forget"):
            done = self.pipelines.run(asked, caller, meant, user)
            last = asked[-1]
            if last.intent != "recall":
                told = "\n".join(part for part in (done.text, *self._about(asked, caller, user)) if part)
                return Reply(
                    told, remembered=done.remembered, forgotten=done.forgotten, operations=asked, pipeline=done.id
                )
            reply = self._ask(last.what, via, turns, session, user, on_text, decode, done.remembered)
            noted, gone = done.remembered, done.forgotten
            return replace(reply, operations=asked, remembered=noted, forgotten=gone, pipeline=done.id)
        op = self.reader.request(message)
        if asked[0].intent == "forget":
            op = self.reader.forget(asked[0].what)
        elif isinstance(op, (Forget, Recall)) and asked[-1].intent in ("remember", "correct"):
            op = self.reader.told(asked[0])
        elif isinstance(op, Forget):
            op = self.reader.recall(message)
        match op:
            case Add():  # and Correct, which is one
                return replace(self._noted(self._remember([op], caller)), operations=asked)
            case Forget():
                return replace(self._forget(op, caller), operations=asked)
            case Recall():
                said = self.reader.read_turns([{"role": "user", "content": message}], "chat")  # beside the question
                kept = _each(self._remember(said, self._caller(user)))
                reply = self._ask(op.question, via, turns, session, user, on_text, decode, kept)
                return replace(reply, remembered=tuple(kept), operations=asked)
            case _:
                assert_never(op)

    def ask(
        self,
        question: str,
        *,
        via: Via = "auto",
        turns: Sequence[dict[str, str]] = (),
        session: str | None = None,
        user: str | None = None,
        on_text: Callable[[str], None] | None = None,
        decode: DecodeConfig | None = None,
    ) -> Reply:
        """Answer a question with what `user` may see, in the form `via` (auto: the one that is fastest here).

        The others: see `chat`. Raises EmptyMemory for a form that is asked for and not there,
        UnsupportedLanguage, ContextOverflow, and, unless via is auto, CorruptBlob, FingerprintMismatch, Unsupported
        and NoRoom; auto answers from text then.
        """
        return self._ask(question, via, turns, session, user, on_text, decode)

    def _ask(
        self,
        question: str,
        via: Via,
        turns: Sequence[dict[str, str]],
        session: str | None,
        user: str | None,
        on_text: Callable[[str], None] | None,
        decode: DecodeConfig | None = None,
        said: Sequence[MemCube] = (),
    ) -> Reply:
        """said: memories of what stood beside the question."""
        caller = self._caller(user)
        op = self.reader.recall(question)
        self._require_language(question)
        self.governance.permit(caller, op)
        given = False

        def hand_on(piece: str) -> None:
            nonlocal given
            given = True
            if on_text:
                on_text(piece)

        of = None if session is None else self._session(session, user)
        admission = self.admit(op, caller, via, adapters=via == "parametric" or session is None)
        talk = self._talk(question, turns, of, admission)
        try:
            admission, done = self._answer(admission, talk, via, hand_on, decode)
        except UNUSABLE as error:
            # what has been said cannot be taken back
            if via != "auto" or given or not (admission.activations or admission.adapters or talk.earlier):
                raise
            log.warning("answering from text: %s", error)
            admission = self.admit(op, caller, "plaintext")
            talk = replace(self._talk(question, turns, of, admission), again=True)
            admission, done = self._answer(admission, talk, "plaintext", hand_on, decode)
        self._record_use(admission, caller)
        if talk.session:
            self.sessions.keep(talk, done.text, admission, said, done.kv)
        self.serving.settle(admission, done.ttft_s)
        self.serving.prefetch(caller.user_id, partial(self.governance.visible, caller))
        return Reply(
            done.text,
            admission,
            prompt_tokens=done.prompt_tokens,
            past_tokens=done.past_tokens,
            answer_tokens=len(done.ids),
            ttft_ms=done.ttft_s * 1e3,
            seconds=done.seconds,
        )

    def _talk(
        self,
        question: str,
        turns: Sequence[dict[str, str]],
        session: Namespace | None,
        admission: Admission,
    ) -> Talk:
        """The question, with what was said before it."""
        if session is None:
            return Talk(question, tuple(turns))
        if turns:
            raise InputError("turns and session both say what came before; give one of them")
        return self.sessions.resume(session, question, admission)

    def _answer(
        self,
        admission: Admission,
        talk: Talk,
        via: Via,
        on_text: Callable[[str], None] | None,
        decode: DecodeConfig | None = None,
    ) -> tuple[Admission, Completion]:
        """The answer, and what of the admission it was given from."""
        try:
            if talk.earlier:
                admission = replace(admission, activations=())  # its memories stand within the conversation
                request = self.sessions.request(talk, admission)
            else:
                messages = (*talk.turns, {"role": "user", "content": talk.question})
                exact = talk.session is not None
                admission, request = self.serving.request(admission, messages, via, self._tokens, exact)
            return admission, _drain(self.host.stream(request, decode or self.config.decode), on_text)
        except UNUSABLE as error:
            if talk.session and isinstance(error, (CorruptBlob, FingerprintMismatch)):
                self.sessions.damaged(talk.session)
            elif talk.session:
                self.sessions.let_go(talk.session)
            self.serving.failed(admission, error)
            raise

    def admit(self, op: Recall, caller: Namespace, via: Via = "auto", adapters: bool = True) -> Admission:
        """What the request will see: permitted, then found, then chosen under the budgets."""
        if via == "none":
            return Admission()
        found = self._find(op.question, None, caller, op)
        return self.decide(op, found, caller, via, adapters)

    def decide(
        self, op: Recall, found: Sequence[Hit], caller: Namespace, via: Via = "auto", adapters: bool = True
    ) -> Admission:
        """What of the memories found the request sees, with their topic groups, and in which form."""
        scheduler, shown = self._scheduling(caller), self.vault.guard.as_shown
        always = self.governance.visible(caller, self.vault.tagged(ALWAYS, caller.user_id, ANSWERING))
        always = [shown(c) for c in always]
        hits = scheduler.compatible([(shown(hit.cube), hit.score) for hit in found], always)
        match scheduler.policy.reads:
            case "groups":
                near = scheduler.looked_at(hits, self.vault.payloads_of(cube.id for cube, _ in hits))
                texts = self.vault.at(self.operator.group_of(near, self._view(caller)))
            case "found":
                texts = [cube for cube, _ in hits]
            case "all":
                texts = self._texts(caller)
        texts = [shown(c) for c in texts if c.state in ANSWERING]  # another may have archived one meanwhile
        made = self.governance.visible(caller, self.vault.payloads_of(c.id for c in texts), seen=texts)
        return scheduler.admit(
            hits,
            op.about,
            self._segments(texts),
            self._standing_in(made, via, adapters),
            self._tokens,
            via,
            self._route(op.question),
            always,
        )

    def _standing_in(self, derived: Sequence[MemCube], via: Via, adapters: bool) -> list[MemCube]:
        """The KV and adapters that may stand in for their memories. One made on another model is of no use to this one,
        and no fault, unless just that form is asked for."""
        useful = [c for c in derived if c.header.kind != "turn" and (adapters or c.form is not Form.PARAMETRIC)]
        ours = [c for c in useful if self._is_ours(c)]
        return ours if via == "auto" else [*ours, *(c for c in useful if c not in ours)]

    def _is_ours(self, derived: MemCube) -> bool:
        """True if KV or an adapter was made on the model that is there."""
        return derived.blob is not None and derived.blob.fingerprint == self.host.digest

    def _route(self, question: str) -> Route | None:
        """How adapters are chosen between, if not by retrieval alone."""
        if self.config.scheduler.routing == "retrieval":
            return None
        return partial(self.serving.route, [{"role": "user", "content": question}])

    def parity(self, question: str, *, user: str | None = None) -> tuple[float, float]:
        """How exact KV is for this question: (largest |logit difference| to the full prompt, top-1 agreement)."""
        op = self.reader.recall(question)
        admission = self.admit(op, self._caller(user), "activation")
        messages = [{"role": "user", "content": question}]
        return self.host.parity(self.serving.request(admission, messages, "activation", self._tokens)[1])

    def keep_card(self, card: dict[str, Any]) -> None:
        """Keep what `memos calibrate` measured on this model."""
        self.vault.keep_card(self.host.digest, card)

    def _record_use(self, admission: Admission, caller: Namespace) -> None:
        """Of what was asked for: what every request sees is not used more than others for that."""
        pinned = {cube.id for cube in admission.pinned}
        seen = [c for c in (*admission.cubes, *admission.internal) if c.id not in pinned]
        derived = [*admission.activations, *admission.adapters]
        if not seen and not derived:
            return
        foresight, now = self.foresight, self.vault.now()
        self.lifecycle.used([c.id for c in (*seen, *derived)], now, caller.user_id)
        for group in {c.header.segment: c.id for c in reversed(seen)}.values():  # each by its first cube
            foresight.used(caller.user_id, group, now.timestamp())

    def rewind(self, session: str, turns: int, *, user: str | None = None) -> int:
        """Take a session back to its first `turns` turns; returns how many were taken back. Raises InputError."""
        caller = self._session(session, user)
        self.governance.permit(caller, Rewind(session=session, turns=turns))
        return self.sessions.rewind(caller, turns)

    # -- keeping -------------------------------------------------------------------------------------------

    def add(
        self,
        content: str | Path | Iterable[dict[str, Any]],
        *,
        user: str | None = None,
        probes: Sequence[Probe] = (),
        tags: Sequence[str] = (),
        ttl: timedelta | None = None,
        expires: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[MemCube]:
        """Remember one statement (str), a file (Path), or the turns of a conversation; durable when it returns.

        What a memory in force says already is not kept twice: it is counted there, and of two times to expire the
        later one holds. tags: see `tag`. ttl, expires: how long, or until when (UTC where no zone is given) it answers,
        in any form. metadata: JSON that is kept with each memory and not read. Raises InputError, NoRoom.
        """
        until = _until(ttl, in_zone(expires), self.vault.now())
        match content:
            case str():
                statement = self.reader.statement(content)
                ops = [statement.model_copy(update={"probes": tuple(probes)})]
            case Path():
                ops = self.reader.read_file(content)
            case _:
                ops = self.reader.read_turns(content, "turns")
        given = {"expires": until, "tags": _tags(tags), "metadata": _as_json(metadata)}
        return _each(self._remember([op.model_copy(update=given) for op in ops], self._caller(user)))

    def keep(self, ops: Sequence[Add | Correct], *, fold: bool = False, user: str | None = None) -> list[MemCube]:
        """Remember statements as they are, unread by the reader; a cube for each, in their order, once durable.

        A statement that is there already, of the same speaker, time and thread, is not kept twice: its cube is. fold:
        nor is what a memory in force says in other words or at another time: it is counted there.
        """
        return self._remember(ops, self._caller(user), fold)

    def known_origins(self, *, user: str | None = None) -> set[str]:
        """Where the user's own memories, of every state, come from, and where they were told again."""
        caller = self._caller(user)
        self.governance.permit(caller, Get(id="origins"))
        return self.vault.known_origins(caller)

    def _remember(self, ops: Sequence[Add | Correct], caller: Namespace, fold: bool = True) -> list[MemCube]:
        for op in ops[:1]:
            self.governance.permit(caller, op)
        kept = self.knowledge.remember(ops, caller, fold)
        self._release()
        self.operator.refresh_soon()
        return kept

    def get(self, id: str, *, user: str | None = None) -> MemCube:
        """Raises NotFound."""
        return self._visible(Get(id=id), id, user)

    def owner(self, id: str) -> str | None:
        """Who owns a cube, for whoever may act as any user; None where the id, or the prefix, is not of one cube."""
        found = self.vault.named(id)
        return found[0].rights.owner if len(found) == 1 else None

    def update(self, id: str, text: str, *, user: str | None = None) -> MemCube:
        """A new version of a plaintext cube; what was derived from it is stale at once."""
        cube = self._visible(Update(id=id, text=text), id, user)
        statement = self.reader.statement(text, speaker=cube.header.speaker)
        payload = Text(text=statement.text, facts=statement.facts, more=statement.more, probes=text_of(cube).probes)
        with self.vault.transaction():
            new = self.lifecycle.edit(cube.id, payload, segment=statement.segment)
            self.knowledge.examine(new)
        return self._changed(self.vault.get(new.id))

    def delete(self, id: str, *, user: str | None = None) -> list[str]:
        """Remove a cube with every form made from it; returns the ids that are gone."""
        cube = self._visible(Delete(id=id), id, user)
        # what others have made of it goes too, and they are not told of
        told = {cube.id} | self.governance.visible_ids(self._caller(user), self.vault.derived(cube.id))
        return [id for id in self._changed(self.lifecycle.delete(cube.id)) if id in told]

    def history(self, id: str, *, diffs: bool = False, user: str | None = None) -> list[dict[str, Any]]:
        """Versions and moves of a cube in time order; with diffs, how each version differs from the one before. The
        reasons of moves, which may name other memories, are told to its owner alone."""
        cube = self._visible(History(id=id), id, user)
        caller = self._caller(user)
        events = self.lifecycle.history(cube.id, diffs, self._as_read(caller))
        own = self.governance.may(caller, "manage", cube)
        events = events if own else [event | ({"why": ""} if "why" in event else {}) for event in events]
        return events if cube.rights.owner == caller.user_id else [self.vault.guard.shown(event) for event in events]

    # -- keeping it current --------------------------------------------------------------------------------

    def tag(self, id: str, tags: Sequence[str], *, user: str | None = None) -> MemCube:
        """Give a memory these tags, in place of those that it has.

        "always": every request sees it, as far as there is room. "apart:NAME": no request sees two memories that are
        apart by the same name; the one that is found nearer is seen. Others mean what you like. Raises InputError,
        BadTransition.
        """
        cube = self._visible(Tag(id=id, tags=_tags(tags)), id, user)
        text_of(cube)
        return self._changed(self.lifecycle.tag(cube.id, _tags(tags)))

    def feedback(self, id: str, useful: float, *, user: str | None = None) -> MemCube:
        """Say how much a memory has helped, from -1 to 1: what helps is found sooner (`retrieval.useful`), and stays
        longer. Raises InputError, Denied."""
        if not -1 <= useful <= 1:
            raise InputError(f"useful {useful:g} is not from -1 (it misled) to 1 (it was just what was needed)")
        cube = self._visible(Rate(id=id, useful=useful), id, user)
        return self._changed(self.lifecycle.rated(cube.id, useful, self.config.retrieval.learning))

    def credit(self, question: str, answer: str, *, user: str | None = None) -> Explanation:
        """White-box feedback: a good answer credits each memory with how much likelier it is with it than without."""
        told = self.explain(question, answer=answer, user=user)
        for reason in told.reasons:
            if self.governance.may(self._caller(user), "annotate", reason.cube):
                self.feedback(reason.cube.id, reason.useful, user=user)
        return told

    def fuse(self, ids: Sequence[str], text: str | None = None, *, user: str | None = None) -> MemCube:
        """One memory of several, in which they live on: with this text, or with what they say. `split` undoes it; what
        becomes of one of them reaches it. Raises InputError, BadTransition."""
        op = Fuse(ids=tuple(ids), text=text)
        return self._changed(self.knowledge.fuse([self._visible(op, id, user) for id in ids], text))

    def split(self, id: str, parts: Sequence[str] = (), *, user: str | None = None) -> list[MemCube]:
        """A memory in parts, in which it lives on: these, or its sentences; one that was made of others, back to them.
        Raises InputError, BadTransition."""
        cube = self._visible(Split(id=id, parts=tuple(parts)), id, user)
        return self._changed(self.knowledge.split(cube, parts))

    def consolidate(self, *, user: str | None = None) -> list[MemCube]:
        """Make one of each group of memories that say the same; those made."""
        caller = self._caller(user)
        self.governance.permit(caller, Fuse(ids=()))
        mine = [c for c in self._texts(caller) if c.rights.owner == caller.user_id]
        return self._changed(self.knowledge.consolidate(mine))

    def reinstate(self, id: str, *, user: str | None = None) -> MemCube:
        """Bring back a memory that another has replaced; the other stays. Raises BadTransition."""
        return self._changed(self.lifecycle.reinstate(self._visible(Reinstate(id=id), id, user).id))

    def conflicts(self, *, user: str | None = None) -> list[Disagreement]:
        """Pairs of memories in force of which only one can be true."""
        return self.knowledge.conflicts(self._texts(self._caller(user)))

    def audit_memory(self, *, user: str | None = None) -> MemoryAudit:
        """Which memories in force are told twice, overtaken, or not supported by what they were made of."""
        return self.knowledge.audit(self._texts(self._caller(user)))

    # -- governance ----------------------------------------------------------------------------------------

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

    @cached_property
    def forgetting(self) -> Forgetting:
        return Forgetting(self.vault, self.lifecycle)

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

    def audit_export(self, out: Path) -> int:
        """Write the audit log to a file that can be verified by itself; how many rows. Raises InputError."""
        return self.vault.audit_log.export(out)

    def audit_key(self) -> str:
        """The public key, in hex, by which the audit log can be verified."""
        return self.vault.audit_log.public_key()

    # -- going back ----------------------------------------------------------------------------------------

    def diff(self, id: str, a: int, b: int, *, user: str | None = None) -> list[str]:
        """What version b of a cube says in other words than version a: lines with "-", "+" or a blank before them."""
        cube = self._visible(History(id=id), id, user)
        return self.lifecycle.diff(cube.id, a, b, self._as_read(self._caller(user)))

    def rollback(self, id: str, version: int, *, user: str | None = None) -> MemCube:
        """Bring back what an old version said, as a new version; what was derived from the current one is stale.

        Raises NotFound, and BadTransition for a memory that is frozen or expired.
        """
        cube = self._visible(Rollback(id=id, version=version), id, user)
        with self.vault.transaction():
            new = self.lifecycle.rollback(cube.id, version)
            self.knowledge.examine(new, new=False)
        return self._changed(self.vault.get(new.id))

    def freeze(self, id: str, *, why: str = "frozen", user: str | None = None) -> MemCube:
        """Lock a memory: it answers, and is neither edited, deleted nor archived for idleness. Raises BadTransition."""
        return self._move(id, None, State.FROZEN, why, user)

    def thaw(self, id: str, *, why: str = "thawed", user: str | None = None) -> MemCube:
        """Unlock a frozen memory. Raises BadTransition."""
        return self._move(id, State.FROZEN, State.ACTIVATED, why, user)

    def archive(self, id: str, *, why: str = "archived", user: str | None = None) -> MemCube:
        """Put a memory out of use, with all that is derived from it. Raises BadTransition."""
        return self._move(id, None, State.ARCHIVED, why, user)

    def unarchive(self, id: str, *, why: str = "brought back", user: str | None = None) -> MemCube:
        """Bring an archived memory back into use. Raises BadTransition, and Conflict for a stale derived one."""
        return self._move(id, State.ARCHIVED, State.ACTIVATED, why, user)

    def _move(self, id: str, was: State | None, to: State, why: str, user: str | None) -> MemCube:
        cube = self._visible(ChangeState(id=id, to=to), id, user)
        return self._changed(self.lifecycle.move(cube.id, to, why, was))

    def snapshot(self, name: str, *, user: str | None = None) -> Snapshot:
        """Write down the version and state of each memory of the user, to go back to. Raises InputError."""
        caller = self._caller(user)
        self.governance.permit(caller, TakeSnapshot(name=name))
        return self.vault.take_snapshot(caller, name)

    def snapshots(self, *, user: str | None = None) -> list[Snapshot]:
        """The user's snapshots, oldest first."""
        caller = self._caller(user)
        self.governance.permit(caller, ListSnapshots())
        return self.vault.snapshots(caller)

    def restore(self, name: str, *, user: str | None = None) -> Restored:
        """Take all memories of the user back to a snapshot, by new versions and moves; see `TimeMachine.restore`.

        A snapshot is taken before, so that this can be undone. Raises NotFound.
        """
        caller = self._caller(user)
        self.governance.permit(caller, Restore(name=name))
        with self.vault.transaction():
            was = {cube.id: cube.version for cube in self.vault.owned(caller)}
            done = self.time_machine.restore(caller, name)
            for cube in self.vault.owned(caller):
                if isinstance(cube.payload, Text) and cube.version != was[cube.id]:
                    self.knowledge.examine(cube, new=False)
        return self._changed(done)

    def delete_snapshot(self, name: str, *, user: str | None = None) -> None:
        """Forget a snapshot; the memories stay. Raises NotFound."""
        caller = self._caller(user)
        self.governance.permit(caller, DeleteSnapshot(name=name))
        self.vault.delete_snapshot(caller, name)

    # -- travelling ----------------------------------------------------------------------------------------

    def dump(
        self,
        path: Path,
        *,
        everyone: bool = False,
        folder: bool = False,
        tensors: bool = True,
        history: bool = False,
        key: Path | None = None,
        user: str | None = None,
        **which: Any,
    ) -> Dumped:
        """Write the user's memories, or everyone's, to a pack: a file, or a folder.

        tensors: KV and adapters too. history: earlier versions too. key: a PEM file to sign with, in place of the
        vault's own. which: see `_selected`. Raises InputError, NotFound.
        """
        if everyone:
            self.sharing.require_keeper("dumps what is its own")
        if key is not None:
            self.sharing.require_keeper("signs with the key of this vault alone")
        owners = [self._caller(name) for name in self.vault.users()] if everyone else [self._caller(user)]
        chosen = self._selected(user, **which)
        for owner in owners:
            self.governance.permit(owner, Dump(ids=chosen.ids))
        signed = self.publishers.key(key)
        return self.dumper.dump(
            path, owners, signed, selection=chosen, folder=folder, tensors=tensors, history=history, maker=MAKER
        )

    def _selected(
        self,
        user: str | None,
        ids: Sequence[str] = (),
        kinds: Sequence[str] = (),
        tags: Sequence[str] = (),
        query: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Selection:
        """Memories by their ids, kind (Header.kind), any of some tags, when they were said, and what a search finds;
        what is left out takes all. Raises InputError, NotFound."""
        chosen = tuple(self.get(id, user=user).id for id in ids)
        if query is not None:
            found = [hit.cube.id for hit in self.search(query, user=user)]
            chosen = tuple(id for id in found if not chosen or id in chosen)
            if not chosen:
                raise InputError(f"nothing is found for {query!r}; ask for something else, or leave the query out")
        since, until = in_zone(since), in_zone(until)
        return Selection(ids=chosen, kinds=tuple(kinds), tags=tuple(tags), since=since, until=until)

    def load(
        self,
        path: Path,
        *,
        trust: str | None = None,
        clash: Clash = "refuse",
        owners: bool = False,
        user: str | None = None,
    ) -> Loaded:
        """Take over the memories of a pack, which belong to the user from then on; or, with `owners`, to whom they did.

        trust: the key that the pack may be signed with, where it is not known. clash: what to do where an id stands for
        something else here: refuse the pack, rename its memory, or update what came before. Done again, it goes on from
        where it was. Raises InputError, BadPack, UntrustedKey, IdClash, NoRoom.
        """
        if owners:
            self.sharing.require_keeper("owns what it loads")
        caller = self._on_packs(Load(pack=str(path)), user, trust)
        with PackReader(path, self.publishers.required(trust)) as pack:
            self.publishers.pin(pack)
            owner, own = None if owners else caller, owners or self.publishers.own(pack.key)
            return self._changed(self.loader.load(pack, owner, self._fits, self._accept, clash, own))

    def _on_packs(self, op: Load | RemovePack | ListPacks, user: str | None, trust: str | None = None) -> Namespace:
        """Who acts, once that is permitted: packs are the user's as a whole, and whose key is trusted is for all users.
        Raises Denied."""
        if trust is not None:
            self.sharing.require_keeper("says nothing of whose key is trusted")
        caller = self._caller(user)
        self.governance.permit(caller, op, over=Namespace(user_id=caller.user_id))
        return caller

    def _fits(self, blob: Blob) -> bool:
        """True if the model that is there has made it; not where none can be loaded."""
        try:
            return blob.fingerprint == self.host.digest
        except HostError as error:
            log.warning("without a model, tensors are left to be made anew: %s", error)
            return False

    def _accept(self, blob: Blob, path: Path, sources: Sequence[MemCube], judged: bool) -> None:
        self.transitions.accept(blob, path, sources, judged)

    def origins(self, id: str, *, user: str | None = None) -> list[Origin]:
        """Where a memory came from, if it came in a pack."""
        return self.vault.packs.origins(self._visible(Get(id=id), id, user).id)

    def publish(
        self,
        place: str,
        pack: str,
        version: str,
        *,
        licence: str,
        description: str = "",
        requires: Sequence[str] = (),
        withdrawn: Mapping[str, str] | None = None,
        tensors: bool = True,
        key: Path | None = None,
        user: str | None = None,
        **which: Any,
    ) -> tuple[Entry, Dumped]:
        """Put a pack of the user's memories in force into a registry, as PUBLISHER/NAME.

        requires: packs that it builds on, as "PUBLISHER/NAME>=1.0.0,<2.0.0". withdrawn: why a memory was taken back, by
        its id. which: see `_selected`. Raises RegistryError, InputError.
        """
        self.sharing.require_keeper("publishes nothing, as that is signed in the vault's name")
        caller, release = self._caller(user), release_of(pack, version, licence, description, requires, withdrawn or {})
        chosen = self._selected(user, **which)
        self.governance.permit(caller, Dump(ids=chosen.ids))
        return self.subscriptions.publish(place, release, caller, self.publishers.key(key), chosen, tensors, MAKER)

    def withdraw(
        self, place: str, pack: str, version: str, why: str, *, key: Path | None = None, user: str | None = None
    ) -> Entry:
        """Take a published version back: whoever has it archives it with the next update. Raises RegistryError."""
        self.sharing.require_keeper("withdraws nothing, as that is signed in the vault's name")
        self.governance.permit(self._caller(user), RemovePack(pack=pack))
        return MemStore(place).withdraw(pack, version, why, self.publishers.key(key))

    @staticmethod
    def registry(place: str) -> MemStore:
        """A registry of packs, to look into. Raises RegistryError."""
        return MemStore(place)

    def install(
        self,
        place: str,
        pack: str,
        *,
        versions: str = "",
        trust: str | None = None,
        subscribe: bool = False,
        clash: Clash = "refuse",
        user: str | None = None,
    ) -> list[Kept]:
        """Take a pack from a registry, with what it builds on; see `Subscriptions.install`."""
        caller = self._on_packs(Load(pack=pack), user, trust)
        return self._changed(self.subscriptions.install(place, pack, caller, versions, trust, subscribe, clash))

    def subscribe(self, pack: str, *, on: bool = True, user: str | None = None) -> None:
        """Keep an installed pack up with its publisher, or no longer. Raises NotFound."""
        caller = self._on_packs(Load(pack=pack), user)
        self.subscriptions.subscribe(pack, caller, on)

    def update_packs(self, pack: str | None = None, *, trust: str | None = None, user: str | None = None) -> list[Kept]:
        """Bring subscribed packs, or the one that is named, up to date; see `Subscriptions.update`."""
        caller = self._on_packs(Load(pack=pack or ""), user, trust)
        return self._changed(self.subscriptions.update(caller, pack, trust))

    def remove_pack(self, pack: str, *, user: str | None = None) -> list[str]:
        """Delete what a pack has brought, and nothing else; the ids that are gone. Raises NotFound, Conflict."""
        caller = self._on_packs(RemovePack(pack=pack), user)
        return self._changed(self.subscriptions.remove(pack, caller))

    def installed(self, *, user: str | None = None) -> list[Installed]:
        """The packs of the user, by name."""
        return self.vault.packs.installed(self._on_packs(ListPacks(), user).user_id)

    def trusted(self) -> tuple[dict[str, str], str]:
        """(key by the name of a publisher, the vault's own key)."""
        return self.vault.packs.pins(), self.publishers.key().public

    def untrust(self, name: str, *, user: str | None = None) -> None:
        """Give up the key of a publisher. Raises NotFound."""
        self.sharing.require_keeper("trusts no publishers")
        self.governance.permit(self._caller(user), Untrust(name=name))
        self.vault.packs.unpin(name)

    def _changed(self, done: _Done) -> _Done:
        """After a change that a search or a request may not have seen: what is loaded keeps up with it."""
        if "operator" in self.__dict__:
            self.operator.refresh_soon()
        self._release()
        return done

    # -- sharing: see memos/sharing.py ---------------------------------------------------------------------

    def as_(self, key: str, purpose: str = "", *, user: str | None = None, agent: str = "", session: str = "") -> Bound:
        """The public calls as whoever the key stands for, or within an agent or a session of that one, and for a
        purpose; they take no user. Raises Denied."""
        return self.sharing.bound(
            self, key, purpose, partial(self.sharing.narrowed, user=user, agent=agent, session=session)
        )

    def purposed(self, purpose: str, *, user: str | None = None) -> Bound:
        """The public calls of a user for a purpose, which grants may ask for. Raises Denied."""
        return self.within(user=user, purpose=purpose)

    def within(self, *, user: str | None = None, agent: str = "", session: str = "", purpose: str = "") -> Bound:
        """The public calls within one user, agent or session, and for a purpose. Raises Denied."""
        narrow = partial(self.sharing.narrowed, user=user, agent=agent, session=session)
        return Bound(self, self.governance, lambda: Caller(narrow(self._caller(user)), purpose))

    def authenticate(self, key: str) -> Caller:
        """Who a key stands for. Raises Denied."""
        return self.sharing.authenticate(key)

    def grant(
        self,
        on: str | Namespace,
        to: str | Subject,
        relation: str,
        *,
        purpose: str | None = None,
        until: datetime | None = None,
        user: str | None = None,
    ) -> Grant:
        """Give somebody a relation (owner, editor, annotator, reader) to a memory, or to all in a namespace.

        on: an id, a Namespace, or "namespace:USER/AGENT". to: see `memos.rights.subject_of`. purpose: holds only for
        callers who state it; None: for all. until: UTC where no zone is given. Raises NotFound, Denied, InputError.
        """
        what = self._shared(GiveRight(on=object_of(on), relation=relation_of(relation)), user)
        return self._changed(self.sharing.grant(what, to, relation, purpose, until, user))

    def revoke(
        self,
        on: str | Namespace,
        to: str | Subject,
        relation: str | None = None,
        *,
        purpose: str | None = None,
        user: str | None = None,
    ) -> int:
        """Take back what was granted; None: of every relation, for every purpose. How many grants that were. Raises
        NotFound, Denied, InputError."""
        what = self._shared(TakeRight(on=object_of(on)), user)
        return self._changed(self.sharing.revoke(what, to, relation, purpose, user))

    def grants(self, on: str | Namespace | None = None, *, user: str | None = None) -> list[Grant]:
        """The grants on what is the user's, and those that reach the user; on one memory or namespace, or on all."""
        return self.sharing.grants(on, user)

    def join(self, group: str, member: str | Subject, *, user: str | None = None) -> Group:
        """Put somebody, or another group, into a group of the user's, which is made if there is none. Raises
        InputError."""
        return self._changed(self.sharing.join(group, member, user))

    def leave(self, group: str, member: str | Subject, *, user: str | None = None) -> Group:
        """Take somebody out of a group of the user's. Raises NotFound."""
        return self._changed(self.sharing.leave(group, member, user))

    def groups(self, *, user: str | None = None) -> dict[Group, list[Subject]]:
        """The user's groups with their members, and those of others that the user belongs to, with none."""
        return self.sharing.groups(user)

    def add_key(
        self,
        to: str | Namespace,
        *,
        purposes: Sequence[str] = (),
        until: datetime | None = None,
    ) -> tuple[str, Credential]:
        """A key that stands for a user, an agent or a namespace; it is told this once. purposes: those that its holder
        may state. Only for whoever holds the vault's folder."""
        return self.sharing.add_key(to, purposes, until)

    def keys(self) -> list[Credential]:
        """The keys that there are, without what would let anybody in."""
        return self.sharing.keys()

    def revoke_key(self, id: str) -> None:
        """From the next call on, a key opens nothing. Raises NotFound."""
        self.sharing.revoke_key(id)

    def _shared(self, op: GiveRight | TakeRight, user: str | None) -> MemCube | Namespace:
        """What is to be shared, if the caller may. Raises NotFound, Denied."""
        if isinstance(op.on, str):
            return self._visible(op, op.on, user)
        self.governance.permit(self._caller(user), op, over=op.on)
        return op.on

    # -- finding -------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        top_k: int | None = None,
        kinds: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        user: str | None = None,
        policy: str | None = None,
    ) -> list[Hit]:
        """The memories that answer the query best among those that the user may see, best first.

        kinds: of memories (Header.kind); since, until: when they were said, UTC where no zone is given. policy: which
        one finds, in place of the user's. Raises InputError.
        """
        caller = self._caller(user)
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k {top_k} finds nothing; give 1 or more, or leave it out")
        read = self.reader.recall(query)
        op = Search(query=query, top_k=top_k or self.config.scheduler.top_k, about=read.about, asks=read.asks)
        limits = (None if kinds is None else frozenset(kinds), in_zone(since), in_zone(until))
        return self._find(op.query, op.top_k, caller, op, policy, limits)

    def memories(
        self, *, true_at: datetime | None = None, known_at: datetime | None = None, user: str | None = None
    ) -> list[MemCube]:
        """The memories in force that the user may see, as they were said.

        true_at, known_at: instead, the user's own that held at the one time, as far as was known at the other (UTC
        where no zone is given; left out: now).
        """
        caller = self._caller(user)
        if true_at is None and known_at is None:
            return self._texts(caller)
        now = self.vault.now()
        then = self.knowledge.as_of(caller.user_id, in_zone(true_at) or now, in_zone(known_at) or now)
        return self.governance.readable(caller, then)

    def turns(self, session: str, *, user: str | None = None) -> list[MemCube]:
        """The turns of a session in force, oldest first."""
        of = self._session(session, user)
        self.governance.permit(self._caller(user), Get(id=session))
        return self.sessions.turns(of)

    def cubes(self, *, form: Form | None = None, user: str | None = None) -> list[MemCube]:
        """Everything the user may see, of every state."""
        caller = self._caller(user)
        return self.governance.readable(caller, self.vault.cubes(form=form))

    def _texts(self, caller: Namespace) -> list[MemCube]:
        """The memories in force, as the caller may read them and in the order of their saying."""
        readable = self.governance.readable(caller, self.vault.cubes(form=Form.PLAINTEXT, states=ANSWERING))
        return list(map(self._as_read(caller), (c for c in readable if isinstance(c.payload, Text))))

    def _handed_over(self, result: Any, user: str | None) -> Any:
        """What a public call returns, with each memory in it as the caller may read it."""
        return handed(result, self._as_read(self._caller(user))) if self.vault.guard.hides else result

    def _as_read(self, caller: Namespace) -> AsRead:
        """Memories as the caller may read them: its own whole, those of others without identifiers
        (governance.redaction)."""
        shown = self.vault.guard.as_shown
        return lambda cube: cube if cube.rights.owner == caller.user_id else shown(cube)

    def _view(self, caller: Namespace, *limits: Any) -> View:
        """What the caller may see. limits: see `View`."""
        return View(*self.governance.sight(caller), *limits)

    def _find(
        self,
        query: str,
        k: int | None,
        caller: Namespace,
        read: Recall | Search | None = None,
        policy: str | None = None,
        limits: Sequence[Any] = (),
    ) -> list[Hit]:
        """What a policy, by default the caller's, finds in the caller's view, narrowed before anything is ranked.

        k: None for as much as a request needs. read: what the reader made of the query. limits: see `View`.
        """
        view = self._view(caller, *limits)
        name = policy or self._policy(caller)
        if replay := self._replay(name):
            found = replay.search(query, k, self._view(caller), view)
        else:
            score = self._by_policy(name).policy.score
            about, asks = (read.about, read.asks) if read else ((), ())
            found = self.operator.search(query, k or self.config.scheduler.top_k, view, score, about, asks)
        self.governance.narrowed(caller, *self.operator.in_view(view, afresh=False))
        at = self.vault.at(f.id for f in found)  # one that is gone since is left out
        # what was revoked while it was looked for is left out as well
        cubes = {c.id: c for c in self.governance.visible(caller, at) if c.state in ANSWERING}
        hits = [Hit(cubes[f.id], f.score, f.why) for f in found if f.id in cubes]
        return self._by_use(hits) if any(hit.cube.usage.utility for hit in hits) else hits

    def _by_use(self, hits: Sequence[Hit]) -> list[Hit]:
        """The same, in the order of their scores and of how much they have helped so far."""
        weight = self.config.retrieval.useful
        told = [replace(h, score=h.score + weight * h.cube.usage.utility) for h in hits]
        told = [replace(h, why=h.why | {"useful": h.cube.usage.utility}) for h in told]
        return sorted(told, key=lambda hit: -hit.score)

    def _noted(self, cubes: Sequence[MemCube]) -> Reply:
        return Reply("Noted: " + " ".join(c.text for c in cubes), remembered=tuple(cubes))

    def undo(self, pipeline: str, *, user: str | None = None) -> list[str]:
        """Take back what a message has done (`Reply.pipeline`), but for what it has deleted. Raises NotFound."""
        return self.pipelines.undo(pipeline, self._caller(user), user)

    def _about(self, asked: Sequence[Asked], caller: Namespace, user: str | None) -> list[str]:
        """Answers to what is asked about the memory itself."""
        return [told(self, one, caller, user) for one in asked if one.intent == "about"]

    def _described(self, op: Forget, caller: Namespace) -> tuple[list[MemCube], list[Hit]]:
        """(the memories that a description means, those that are near it)."""
        texts = self._texts(caller)
        meant = [c for c in texts if any(_fits(wanted, said) for wanted in op.facts for said in stated(c))]
        # what is meant does not depend on how answers are found
        near = [] if op.facts else self._find(op.query, 3, caller, policy="memos")
        return meant or [hit.cube for hit in near if hit.why["near"] >= self.config.scheduler.forget_score], near

    def _forget(self, op: Forget, caller: Namespace) -> Reply:
        """Delete the memory that was meant, if exactly one was; otherwise say which it could be. Never guessed."""
        self.governance.permit(caller, op)
        meant, near = self._described(op, caller)
        if len(meant) != 1:
            told = map(self._as_read(caller), meant or [hit.cube for hit in near])
            which = " | ".join(f"{c.id} {c.text}" for c in told)
            rule = "Nothing was deleted: one memory must be meant"
            return Reply(
                f"{rule}; these are near, delete one by its id or say it more closely: {which}"
                if which
                else f"{rule}, and none fits."
            )
        gone = [id for root in self._behind(meant[0]) for id in self.delete(root.id, user=caller.user_id)]
        return Reply(f"Forgotten: {self._as_read(caller)(meant[0]).text}", forgotten=tuple(gone))

    def _behind(self, cube: MemCube) -> list[MemCube]:
        """What a memory was made of, down to what was told; a memory that was told, itself. All that is made of it goes
        with it."""
        if not cube.sources:
            return [cube]
        return _each(root for source in self.vault.at(s.id for s in cube.sources) for root in self._behind(source))

    # -- changing form -------------------------------------------------------------------------------------

    def promote(
        self,
        ids: str | Sequence[str],
        to: Form | Literal["activation", "parametric"],
        *,
        user: str | None = None,
        progress: Progress | None = None,
        job: str | None = None,
    ) -> MemCube:
        """Make one derived cube of these memories; published only once it has proven itself.

        An activation cube needs parity with the full prompt, a parametric one its gate. What is there already is
        returned, what was given up before is taken back. Killed at any point, nothing is published, and the next
        start clears away what was staged. job: the running one that asks for it.

        Raises NoProbes, GateRejected, Unsupported, Conflict (a source changed meanwhile), ContextOverflow.
        """
        if str(to) not in (str(Form.ACTIVATION), str(Form.PARAMETRIC)):
            raise InputError(f"memories cannot be promoted to {str(to)!r}; promote to activation or parametric")
        form = Form(to)
        asked = (ids,) if isinstance(ids, str) else tuple(ids)
        op = Promote(ids=asked, to=form)
        sources = self._sources(op, user)
        self._require_trust(form, sources)
        beside = self._beside(sources) if form is Form.PARAMETRIC else ()
        require = partial(self._require_share, form, self._caller(user))
        return self.transitions.promote(form, sources, progress or (lambda *_: None), beside, job, require)

    def _require_trust(self, form: Form, sources: Sequence[MemCube]) -> None:
        """Raises Untrusted for an adapter of memories that are not believed so far, as nobody could read them there."""
        for cube in sources:
            if form is Form.PARAMETRIC and not self.vault.guard.may_teach(cube):
                raise Untrusted(
                    f"cube {cube.id} (from {cube.header.origin}) is {cube.header.trust}, and no adapter is made of "
                    f"such memories; look at it and say `memos trust {cube.id} user`, leave it out, or add its trust "
                    f"to governance.trust.adapters"
                )

    def _beside(self, sources: Sequence[MemCube]) -> list[MemCube]:
        """The adapters that a new one may be active with: the latest of its owner that compose with each other."""
        most = self.config.scheduler.segments - 1
        owner = sources[0].rights.owner
        mine = [
            c
            for c in self.vault.cubes(form=Form.PARAMETRIC, states=(State.ACTIVATED,))
            if c.rights.owner == owner and c.blob and c.blob.fingerprint == self.host.digest
        ]
        known = {c.id for c in sources}
        apart = [c for c in reversed(mine) if not known & {s.id for s in c.sources}]
        return list(composable(apart, most)) if most > 0 else []

    def demote(self, id: str, *, user: str | None = None) -> list[MemCube]:
        """Give up a derived cube; its sources, returned as they are, answer as text again.

        It is archived, so promoting the same memories again takes it back without building it.
        """
        cube = self._visible(Demote(id=id), id, user)
        if not cube.blob:
            raise InputError(
                f"cube {cube.id} is plaintext, and there is no cheaper form; "
                f"delete it, or demote what is derived from it"
            )
        self.lifecycle.move(cube.id, State.ARCHIVED, "demoted")
        self._release()
        return self.vault.at(s.id for s in cube.sources)

    def gate(
        self, adapters: Sequence[str | Path], *, on: Sequence[str] = (), user: str | None = None
    ) -> tuple[dict[str, float], list[str]]:
        """Judge adapters, active together, as a promotion would: (scores, what falls short).

        adapters: ids of cubes, or folders, a stranger's too. on: ids of memories that they should know; without, those
        of their cards. Raises NoProbes where nothing says what to ask them.
        """
        memories = [self._visible(Get(id=id), id, user) for id in on]
        if other := [c for c in memories if not isinstance(c.payload, Text)]:
            kind = "a turn of a conversation" if other[0].form is Form.PLAINTEXT else other[0].form
            raise InputError(
                f"cube {other[0].id} is {kind}; an adapter is judged on memories, as `memos ls` lists them"
            )
        shown = [self.vault.guard.as_shown(cube) for cube in memories]
        return self.transitions.gate([self._folder(name, user) for name in adapters], shown)

    def externalize(
        self, what: str | Path, *, about: Sequence[str] = (), user: str | None = None
    ) -> list[Statement] | list[str]:
        """What an adapter says when it is asked with it on against off; of a KV cache, its text.

        what: id of a cube, a folder of an adapter, or a file of KV. about: subjects to ask about, beside those of the
        memories that the user may see.
        """
        from memos.externalize import externalize, externalize_kv  # loads torch and transformers

        path = self._folder(what, user, "activation", "parametric")
        if path.is_file():
            return externalize_kv(self.host, path)
        return externalize(self.host, self.reader, path, about, self._texts(self._caller(user)))

    def export_adapter(self, adapters: Sequence[str | Path], out: Path, *, user: str | None = None) -> Path:
        """Adapters as one folder for servers that take one adapter a request; named by its content. Who gave it is
        signed in it, see `provenance`."""
        from memos.infrastructure.host.export import export_adapter  # loads torch and transformers

        made = export_adapter(self.host, [self._folder(name, user) for name in adapters], out)
        give(made, str(self._caller(user)), self.vault.now(), self.vault.audit_log.signer)
        return made

    @staticmethod
    def provenance(folder: Path) -> Provenance:
        """Who gave an exported adapter away, and when. Raises InputError, CorruptBlob if it is not as it was given."""
        return given(folder)

    def _folder(self, what: str | Path, user: str | None, *forms: str) -> Path:
        """Where the payload of a cube lies, or the path that is named. Raises NotFound, InputError."""
        if isinstance(what, Path):
            if what.resolve().is_relative_to(self.vault.path.resolve()):
                raise InputError(f"{what} lies in the vault, whose payloads are used by the ids of their cubes")
            return what
        cube = self._visible(Get(id=what), what, user)
        if cube.blob is None or str(cube.form) not in (forms or ("parametric",)):
            raise InputError(f"cube {cube.id} is {cube.form}; name one that is {' or '.join(forms or ('parametric',))}")
        return self.vault.blob_path(cube.blob)

    def jobs(self, *, user: str | None = None) -> list[Job]:
        """Work on memories that the user may see: going on, cut off and to be taken up again, or waiting; each oldest
        first."""
        caller = self._caller(user)
        found = [*self.vault.jobs("running"), *self.vault.jobs("interrupted"), *self.vault.jobs("queued")]
        return [job for job in found if self._sees(caller, job)]

    @staticmethod
    def encrypt_vault(vault: Path, key: str, scratch: Path | None = None) -> None:
        """Encrypt a vault that nobody has open. key, scratch: as config.vault has them. Raises VaultError."""
        recrypt.encrypt(vault, key, scratch)

    @staticmethod
    def decrypt_vault(vault: Path, key: str | None = None, scratch: Path | None = None) -> None:
        """Take the encryption off. key: None: where it was. Raises VaultError."""
        recrypt.decrypt(vault, key, scratch)

    @staticmethod
    def rekey_vault(
        vault: Path,
        key: str | None = None,
        to: str | None = None,
        data: bool = False,
        scratch: Path | None = None,
    ) -> None:
        """Change the key; data: encrypt everything anew, too. Raises VaultError."""
        recrypt.rekey(vault, key, to, data, scratch)

    def cancel(self, job: str, *, user: str | None = None) -> None:
        """End a job on the user's memories; what it had made is removed. Raises NotFound, Denied."""
        there = next((known for known in self.jobs(user=user) if known.id == job), None)
        if there is None:
            raise no_job(job)
        for cube in self.vault.at(sources_of(there)):
            self.governance.permit(self._caller(user), Promote(ids=(cube.id,), to=Form.ACTIVATION), cube)
        self.vault.cancel_job(job)

    def _sees(self, caller: Namespace, job: Job) -> bool:
        ids = set(sources_of(job))
        return self.governance.visible_ids(caller, self.vault.at(ids)) == ids

    def tick(self, *, user: str | None = None, progress: Progress | None = None) -> list[dict[str, Any]]:
        """Let the scheduler plan moves and carry them out; returns what was done, and what failed and why, of the
        memories that the user may see.

        The moves are written down first: killed or interrupted, the next tick goes on with them.
        """
        caller = self._caller(user)
        aged = self._age(caller)
        told = self.governance.visible_ids(caller, self.vault.at(move["cube"] for move in aged))
        self.plan(user=user)
        return [m for m in aged if m["cube"] in told] + self.upkeep.work(progress, partial(self._sees, caller))

    def plan(self, *, user: str | None = None) -> list[str]:
        """Let the scheduler plan moves of the user's cubes, and queue them as jobs, whose ids are returned."""
        caller = self._caller(user)
        own = self.governance.readable(caller, self.vault.owned(caller))
        shown = self.vault.guard.as_shown
        texts = [shown(c) for c in own if isinstance(c.payload, Text) and c.state in ANSWERING]
        derived = [c for c in own if c.blob and c.header.kind != "turn"]  # a conversation's KV goes with its turns
        now, pays = self.vault.now(), lambda segment: self.serving.pays(segment, self._tokens)
        scheduler = self._scheduling(caller)
        moves = scheduler.plan(self._segments(texts), derived, now, pays, self._budgets(caller), self._is_ours)
        return [self._queue(move) for move in moves if not self._refused(move)]

    def _budgets(self, caller: Namespace) -> Budgets:
        held = {
            Form.ACTIVATION: {user: float(size) for user, (_, size) in self.vault.held(Form.ACTIVATION).items()},
            Form.PARAMETRIC: {user: float(count) for user, (count, _) in self.vault.held(Form.PARAMETRIC).items()},
        }
        return self.scheduler.budgets(caller.user_id, held, self.config.limits.of(caller.user_id))

    def _require_share(self, form: Form, caller: Namespace) -> None:
        """Raises NoRoom where the caller has as much of KV or adapters already as may be its own."""
        mine = self.vault.held(form).get(caller.user_id, (0, 0))[form is Form.ACTIVATION]
        most = self._budgets(caller)[form]
        if mine >= most:
            what = f"{mine:,} bytes of KV" if form is Form.ACTIVATION else f"{mine} adapters"
            raise NoRoom(
                f"{caller.user_id} has {what} and may have {most:,.0f}: its limit (limits), or its share of what all "
                f"have room for (scheduler.disk_kv_bytes, scheduler.adapters); demote what is not used, or raise it"
            )

    def _plan_all(self) -> bool:
        """Plan for every user; False as long as no request has loaded the model, without which nothing can be moved."""
        ready = "serving" in self.__dict__
        for user in self.vault.users() if ready else ():
            try:
                with self.governance.acting(Caller(Namespace(user_id=user))):
                    self._age(self._caller(user))
                    self.plan(user=user)
            except MemosError as error:  # the others' turn comes all the same
                log.warning("nothing is planned for %s now: %s", user, error)
        return ready

    def _age(self, caller: Namespace) -> list[dict[str, Any]]:
        """Archive and expire what of the caller's has had its time."""
        moved = self.lifecycle.age(self.vault.now(), caller.user_id)
        aged = [{"move": str(to), "cube": id, "why": why} for id, to, why in moved]
        return self._changed(aged) if aged else []

    def _refused(self, move: Move) -> bool:
        """A promotion that was tried and refused is not tried again until its memories change; nor is an adapter made
        of what is not trusted."""
        if not (move.segment and move.to):
            return False
        if move.to is Form.PARAMETRIC and not all(map(self.vault.guard.may_teach, move.segment.cubes)):
            return True
        return self.transitions.refused(move.to, move.segment.cubes)

    def _queue(self, move: Move) -> str:
        cubes = move.segment.cubes if move.segment else (move.cube,) if move.cube else ()
        kind = f"promote to {move.to}" if move.to else "give up"
        return self.vault.queue_job(kind, {"sources": [f"{c.id}@{c.version}" for c in cubes], "why": move.why})

    def _act(self, job: Job, progress: Progress) -> dict[str, Any]:
        """Do a queued job for the owner of its cubes."""
        ids = sources_of(job)
        first = self.vault.get(ids[0])
        with self.governance.acting(Caller(Namespace(user_id=first.rights.owner))):
            return self._acted(job, ids, first, progress)

    def _acted(self, job: Job, ids: list[str], first: MemCube, progress: Progress) -> dict[str, Any]:
        done = {"move": job.kind, "why": job.payload.get("why", "")}
        if job.kind == "give up":
            give_up = self.demote if first.state is State.ACTIVATED else self.delete  # stale: of no use again
            give_up(first.id)
            return done | {"cube": first.id}
        to = Form(job.kind.removeprefix("promote to "))
        made = self.promote(ids, to, progress=progress, job=job.id)
        return done | {"cube": made.id}

    def segments(self, *, user: str | None = None) -> list[Segment]:
        """The topic groups that move together."""
        return self._segments(self._texts(self._caller(user)))

    def heat(self, segment: Segment) -> float:
        """How much a topic group is used, by its user's policy."""
        return self._scheduling(segment.cubes[0].namespace).policy.heat(segment.cubes, self.vault.now())

    def _segments(self, texts: Sequence[MemCube]) -> list[Segment]:
        return self.scheduler.segments(texts, self._tokens)

    def _sources(self, op: Promote, user: str | None) -> list[MemCube]:
        """The plaintext cubes that are meant, in canonical order; of a derived cube, its sources."""
        if not op.ids:
            raise EmptyMemory("promote needs the ids of at least one memory; see `memos ls`")
        named = [self._visible(op, id, user) for id in op.ids]
        cubes = {
            s.id: self._visible(op, s.id, user)
            for c in named
            for s in (c.sources if c.blob else (Source(id=c.id, version=c.version),))
        }
        gone = [c.id for c in cubes.values() if c.state not in ANSWERING]
        if gone:
            raise InputError(
                f"{', '.join(gone)} is {self.vault.get(gone[0]).state} and cannot be promoted; "
                f"promote memories in force"
            )
        return sorted(map(self.vault.guard.as_shown, cubes.values()), key=lambda c: c.order)

    def tiers(self, *, user: str | None = None) -> Tiers:
        """What the user's policy has made of the memories, where it keeps tiers. Raises InputError."""
        caller = self._caller(user)
        self.governance.permit(caller, Search(query=""))
        if replay := self._replay(self._policy(caller)):
            return replay.tiers(self._view(caller))
        raise InputError(f"the policy {self._policy(caller)} keeps no tiers; set policy to one that does: memoryos")

    # -- seeing: see memos/insight.py ----------------------------------------------------------------------

    def explain(
        self, question: str, *, answer: str | None = None, via: Via = "auto", user: str | None = None
    ) -> Explanation:
        """Why a question is answered so, or how far `answer` rests on what is remembered; that counts as no use.

        Raises what `ask` does.
        """
        from memos.insight import Explanation, reasons  # loads torch and transformers

        caller, op = self._caller(user), self.reader.recall(question)
        self._require_language(question)
        self.governance.permit(caller, op)
        found = self._find(op.question, None, caller, op)
        talk, admission = Talk(question), self.decide(op, found, caller, via)
        try:
            admission, done = self._answer(admission, talk, via, None)
        except UNUSABLE:
            if via != "auto" or not (admission.activations or admission.adapters):
                raise
            admission, done = self._answer(self.decide(op, found, caller, "plaintext"), talk, "plaintext", None)
        given, scores = answer or done.text, {hit.cube.id: (hit.score, hit.why) for hit in found}
        adapters = self.serving.adapters(admission)
        why, likelihood, closed = reasons(self.host, question, given, admission, adapters, scores)
        cost = (done.prompt_tokens, done.past_tokens, done.ttft_s * 1e3)
        return Explanation(question, given, why, likelihood, closed, *cost)

    def overview(self, *, user: str | None = None) -> Overview:
        """What there is of the user's, and where it lies. Loads no model."""
        caller, seen = self._caller(user), self.cubes(user=user)
        texts: dict[str, list[MemCube]] = {}
        for cube in seen:
            if isinstance(cube.payload, Text) and cube.state in ANSWERING:
                texts.setdefault(cube.header.segment, []).append(cube)
        now, heat = self.vault.now(), self._scheduling(caller).policy.heat
        topics = [Topic(name=n, heat=heat(cubes, now), ids=tuple(c.id for c in cubes)) for n, cubes in texts.items()]
        made = [cube for cube in seen if cube.blob and cube.state in ANSWERING]
        used = {str(form): self.vault.held(form).get(caller.user_id, (0, 0)) for form in _HELD}
        serving = self.__dict__.get("serving")
        return Overview(
            cubes=dict(Counter(f"{cube.form} {cube.state}" for cube in seen)),
            bytes=sum(cube.blob.bytes if cube.blob else len(cube.text.encode()) for cube in seen),
            topics=tuple(sorted(topics, key=lambda topic: -topic.heat)),
            tiers={
                c.id: serving.tier(c.blob.sha256) if serving and c.form is Form.ACTIVATION else "disk"
                for c in made
                if c.blob
            },
            used={"activation": used["activation"][1], "parametric": used["parametric"][0]},
            budget={str(form): budget for form, budget in self._budgets(caller).items()},
            recalls=sum(cube.usage.recalls for cube in seen),
            prefetched=serving.prefetched if serving else 0,
            prefetch_hits=serving.prefetch_hits if serving else 0,
            jobs=dict(Counter(job.state for job in self.jobs(user=user))),
            model=self.config.model.path,
            policy=self._policy(caller),
        )

    def lineage(self, id: str, *, user: str | None = None) -> Lineage:
        """What a memory was made of, down to what was told, and what is made of it, as far as the caller may see."""
        cube = self._visible(Get(id=id), id, user)
        caller = self._caller(user)
        above, seen = list[MemCube](), {cube.id}
        while below := [s.id for c in (above or [cube]) for s in c.sources if s.id not in seen]:
            seen |= set(below)
            above += self.governance.visible(caller, self.vault.at(below))
        derived = self.governance.visible(caller, self.vault.derived(cube.id))
        return Lineage(cube, tuple(above), tuple(derived), tuple(self.vault.packs.origins(cube.id)))

    def log(
        self,
        *,
        action: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        allowed: bool | None = None,
        limit: int = 100,
        user: str | None = None,
    ) -> list[AuditRow]:
        """The last decisions about what the caller has done, oldest first; see `AuditLog.query`."""
        asked = {"action": action, "target": target, "since": since, "until": until, "allowed": allowed}
        return self.audit_query(caller=str(self._caller(user)), limit=limit, **asked)

    # -- helpers -------------------------------------------------------------------------------------------

    def _policy(self, caller: Namespace) -> str:
        """The name of the policy in the caller's namespace."""
        return self.config.policies.get(caller.user_id, self._main_policy)

    def _scheduling(self, caller: Namespace) -> MemScheduler:
        """The scheduler with that policy."""
        return self._by_policy(self._policy(caller))

    def _replay(self, name: str) -> Replay | None:
        """The tiers of a policy that finds by itself; None for one that does not."""
        if name not in self._replays:
            found_by = self._by_policy(name).policy
            self._replays[name] = Replay(self.vault, self.operator, found_by) if isinstance(found_by, Staged) else None
        return self._replays[name]

    def _caller(self, user: str | None) -> Namespace:
        """Who acts: whoever `as_` or `purposed` has bound, or the user that is named. Raises Denied."""
        return self.sharing.caller(user)

    def _session(self, name: str, user: str | None) -> Namespace:
        """A conversation of the caller. Raises Denied where the caller stands for another one alone."""
        caller = self._caller(user)
        if caller.session_id not in ("", name):
            raise Denied(f"{caller} is one session and reaches no other, {name!r}; use a key of the user or the agent")
        return caller.model_copy(update={"session_id": name})

    def _visible(self, op: Operation, id: str, user: str | None) -> MemCube:
        """The cube, if the caller may do `op` to it. A prefix of its id will do where it fits one cube alone of those
        that the caller may see. Raises NotFound, Denied."""
        caller = self._caller(user)
        found = self.vault.named(id)
        if len(found) != 1:
            found = self.governance.visible(caller, found)
        if len(found) != 1:
            raise absent(id)
        self.governance.permit(caller, op, found[0])
        return found[0]

    def _release(self) -> None:
        """Let go of what is in memory of cubes that are no longer in use: a source may have changed."""
        if "serving" in self.__dict__:
            self.serving.release()

    def _require_language(self, question: str) -> None:
        language, reads = self.reader.language(question), self.host.languages
        if reads and language not in reads:
            raise UnsupportedLanguage(
                f"the question is in {language!r}, and {self.config.model.path} reads {', '.join(reads)} only; ask in "
                f"{reads[0]}, or set model.path to a model that reads {language!r}"
            )


def _drain(pieces: Generator[str, None, Completion], on_text: Callable[[str], None] | None) -> Completion:
    """Hand each piece of an answer on; the answer with its costs."""
    with closing(pieces):  # whoever listens may fail: the model must not stay taken
        while True:
            try:
                piece = next(pieces)
            except StopIteration as done:
                return done.value
            if on_text:
                on_text(piece)


def _each(cubes: Iterable[MemCube]) -> list[MemCube]:
    """Each once."""
    return list({cube.id: cube for cube in cubes}.values())


def _fits(wanted: Fact, said: Fact) -> bool:
    """True if a fact with blanks describes another."""
    pairs = ((wanted.subject, said.subject), (wanted.relation, said.relation), (wanted.object, said.object))
    return all(not asked or asked.casefold() == there.casefold() for asked, there in pairs)


def _tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Raises InputError."""
    if isinstance(tags, str) or any(not tag.strip() or "\n" in tag or len(tag) > _LONGEST_TAG for tag in tags):
        raise InputError(f"tags {tags!r}: give a list of words, none empty or longer than {_LONGEST_TAG} characters")
    return tuple(dict.fromkeys(tag.strip() for tag in tags))


def _as_json(metadata: Mapping[str, Any] | None) -> str:
    """Raises InputError."""
    if not metadata:
        return ""
    try:
        return json.dumps(metadata, ensure_ascii=False, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"metadata {str(metadata)[:80]!r} is no JSON ({error}); give texts, numbers and lists"
        ) from None


def _until(ttl: timedelta | None, expires: datetime | None, now: datetime) -> datetime | None:
    """When a memory expires. Raises InputError for a time that is past, or given twice."""
    if ttl is not None and expires is not None:
        raise InputError("ttl and expires both say how long a memory is in force; give one of them")
    try:
        until = expires if ttl is None else now + ttl
    except OverflowError:
        raise InputError(f"ttl {ttl} goes beyond the year 9999; leave it out for a memory without end") from None
    if until is not None and until <= now:
        given = f"expires {expires}" if ttl is None else f"ttl {ttl}"
        raise InputError(f"{given} has passed at {now:%Y-%m-%d %H:%M:%S} UTC; give a later time, or leave it out")
    return until
