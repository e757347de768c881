"""MemOS: the parts wired together, and the main path through them.

    message -> reader -> governance -> operator -> scheduler -> host -> reply
                 (what)     (may)       (find)      (admit)    (answer)

Read `chat` first, then `ask`, then `promote`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import assert_never

from memos.config import Config, load_config
from memos.cube import Fact, Form, Header, MemCube, Namespace, Probe, Rights, Source, State, Text, new_id
from memos.errors import (
    ContextOverflow,
    CorruptBlob,
    EmptyMemory,
    FingerprintMismatch,
    InputError,
    NoRoom,
    PromotionError,
    Unsupported,
    UnsupportedLanguage,
)
from memos.infrastructure.mem_governance import MemGovernance
from memos.infrastructure.mem_vault import MemVault
from memos.interface.mem_reader import MemReader
from memos.operation.catalog import View
from memos.operation.mem_lifecycle import GONE, MemLifecycle
from memos.operation.mem_operator import MemOperator
from memos.operation.mem_scheduler import Admission, MemScheduler, Move, Route, Segment, Talk, Via, composable
from memos.operation.policies.memos import MemosPolicy
from memos.operation.policies.rankings import Score, ranking
from memos.ops import (
    Add,
    Correct,
    Delete,
    Demote,
    Forget,
    Get,
    History,
    Operation,
    Promote,
    Recall,
    Rewind,
    Search,
    Update,
)

if TYPE_CHECKING:
    from memos.externalize import Statement
    from memos.infrastructure.host.decode import Completion
    from memos.infrastructure.host.host import Host
    from memos.infrastructure.job_list import Job
    from memos.serving import Serving
    from memos.sessions import Sessions
    from memos.transitions import Progress, Transitions

log = logging.getLogger("memos")
DEFAULT_VAULT = Path("memos-data")
# why KV or an adapter may turn out to be of no use to a request; its text still is
UNUSABLE = (CorruptBlob, FingerprintMismatch, Unsupported, ContextOverflow, NoRoom)
LIVE = tuple(state for state in State if state not in GONE)


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
    ttft_ms: float = 0.0
    seconds: float = 0.0


class MemOS:
    """A memory kernel around one local model.

    Every public call acts for `user` (default: config.user_id), and passes governance first.
    """

    def __init__(
        self, config: Config = Config(), *, model: Any = None, tokenizer: Any = None, vault: Path | str | None = None
    ) -> None:
        """Open the vault; the model is loaded with the first call that needs it.

        Args:
            model, tokenizer: a transformers causal LM and its tokenizer, already loaded; they are not changed.
            vault: folder of the vault, before config.vault.path.
        Raises VaultError.
        """
        if (model is None) != (tokenizer is None):
            raise InputError("model and tokenizer belong together; give both, or neither and set model.path")
        self.config = config
        self._given = (model, tokenizer)
        self.vault = MemVault(Path(vault or config.vault.path or DEFAULT_VAULT))
        self.governance = MemGovernance(self.vault)
        self.lifecycle = MemLifecycle(self.vault)
        self.scheduler = MemScheduler(config.scheduler, MemosPolicy(config.scheduler, config.retrieval))
        self.reader = MemReader()
        self._tokens = lru_cache(maxsize=65_536)(lambda text: self.host.tokens(text))

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
    def serving(self) -> Serving:
        from memos.serving import Serving  # loads torch and transformers

        return Serving(self.config, self.vault, self.scheduler, self.host)

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
    def operator(self) -> MemOperator:
        from memos.infrastructure.host.embedder import Embedder  # loads torch and transformers
        from memos.infrastructure.host.reranker import Reranker

        retrieval = self.config.retrieval
        rerank = Reranker(retrieval.reranker).score if retrieval.reranker else None
        embedder = Embedder(self.config.embedder)
        return MemOperator(self.vault, embedder, LIVE, retrieval.exact_ms, retrieval.hops, rerank)

    def close(self) -> None:
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
    ) -> Reply:
        """Do what a message asks for: remember, correct, forget, or answer.

        turns: the messages before it. session: instead, the name of a conversation that memos keeps: its turns, and
        their KV, so that it goes on in another process without being read again.
        """
        op = self.reader.request(message)
        match op:
            case Add():  # and Correct, which is one
                return self._noted(self._remember([op], self._caller(user)))
            case Forget():
                return self._forget(op, self._caller(user))
            case Recall():
                said = self.reader.read_turns([{"role": "user", "content": message}], "chat")  # beside the question
                kept = self._remember(said, self._caller(user))
                reply = self._ask(op.question, via, turns, session, user, on_text, kept)
                return replace(reply, remembered=tuple(kept))
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
    ) -> Reply:
        """Answer a question with what `user` may see, in the form `via` (auto: the one that is fastest here).

        turns, session: see `chat`. Raises EmptyMemory for a form that is asked for and not there,
        UnsupportedLanguage, ContextOverflow, and, unless via is auto, CorruptBlob, FingerprintMismatch, Unsupported
        and NoRoom; auto answers from text then.
        """
        return self._ask(question, via, turns, session, user, on_text)

    def _ask(
        self,
        question: str,
        via: Via,
        turns: Sequence[dict[str, str]],
        session: str | None,
        user: str | None,
        on_text: Callable[[str], None] | None,
        said: Sequence[MemCube] = (),
    ) -> Reply:
        """said: memories of what stood beside the question."""
        caller = self._caller(user)
        op = Recall(question=question, about=self.reader.about(question))
        self._require_language(question)
        self.governance.permit(caller, op)
        given = False

        def hand_on(piece: str) -> None:
            nonlocal given
            given = True
            if on_text:
                on_text(piece)

        admission = self.admit(op, caller, via, adapters=via == "parametric" or session is None)
        talk = self._talk(question, turns, session, caller, admission)
        try:
            admission, done = self._answer(admission, talk, via, hand_on)
        except UNUSABLE as error:
            # what has been said cannot be taken back
            if via != "auto" or given or not (admission.activations or admission.adapters or talk.earlier):
                raise
            log.warning("answering from text: %s", error)
            admission = self.admit(op, caller, "plaintext")
            talk = replace(self._talk(question, turns, session, caller, admission), again=True)
            admission, done = self._answer(admission, talk, "plaintext", hand_on)
        self._record_use(admission)
        if talk.session:
            self.sessions.keep(talk, done.text, admission, said, done.kv)
        self.serving.settle(admission, done.ttft_s)
        return Reply(
            done.text,
            admission,
            prompt_tokens=done.prompt_tokens,
            past_tokens=done.past_tokens,
            ttft_ms=done.ttft_s * 1e3,
            seconds=done.seconds,
        )

    def _talk(
        self,
        question: str,
        turns: Sequence[dict[str, str]],
        session: str | None,
        caller: Namespace,
        admission: Admission,
    ) -> Talk:
        """The question, with what was said before it."""
        if session is None:
            return Talk(question, tuple(turns))
        if turns:
            raise InputError("turns and session both say what came before; give one of them")
        return self.sessions.resume(caller.model_copy(update={"session_id": session}), question, admission)

    def _answer(
        self, admission: Admission, talk: Talk, via: Via, on_text: Callable[[str], None] | None
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
            return admission, _drain(self.host.stream(request, self.config.decode), on_text)
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
        found = self._find(op.question, self.config.scheduler.top_k, caller, op.about)
        return self.decide(op, found, caller, via, adapters)

    def decide(
        self, op: Recall, found: Sequence[Hit], caller: Namespace, via: Via = "auto", adapters: bool = True
    ) -> Admission:
        """What of the memories found the request sees, with their topic groups, and in which form."""
        hits = [(hit.cube, hit.score) for hit in found]
        near = self.scheduler.looked_at(hits, self.vault.derived(*(hit.cube.id for hit in found)))
        texts = self.vault.at(self.operator.group_of(near, self._view(caller)))
        made = self.governance.visible(caller, self.vault.derived(*(c.id for c in texts)), seen=texts)
        return self.scheduler.admit(
            hits,
            op.about,
            self._segments(texts),
            self._standing_in(made, via, adapters),
            self._tokens,
            via,
            self._route(op.question),
        )

    def _standing_in(self, derived: Sequence[MemCube], via: Via, adapters: bool) -> list[MemCube]:
        """The KV and adapters that may stand in for their memories. One made on another model is of no use to this one,
        and no fault, unless just that form is asked for."""
        useful = [c for c in derived if c.header.kind != "turn" and (adapters or c.form is not Form.PARAMETRIC)]
        ours = [c for c in useful if c.blob and c.blob.fingerprint == self.host.digest]
        return ours if via == "auto" else [*ours, *(c for c in useful if c not in ours)]

    def _route(self, question: str) -> Route | None:
        """How adapters are chosen between, if not by retrieval alone."""
        if self.config.scheduler.routing == "retrieval":
            return None
        return partial(self.serving.route, [{"role": "user", "content": question}])

    def parity(self, question: str, *, user: str | None = None) -> tuple[float, float]:
        """How exact KV is for this question: (largest |logit difference| to the full prompt, top-1 agreement)."""
        op = Recall(question=question, about=self.reader.about(question))
        admission = self.admit(op, self._caller(user), "activation")
        messages = [{"role": "user", "content": question}]
        return self.host.parity(self.serving.request(admission, messages, "activation", self._tokens)[1])

    def keep_card(self, card: dict[str, Any]) -> None:
        """Keep what `memos calibrate` measured on this model."""
        self.vault.keep_card(self.host.digest, card)

    def _record_use(self, admission: Admission) -> None:
        derived = [*admission.activations, *admission.adapters]
        used = (*admission.cubes, *admission.internal, *derived)
        if used:
            self.vault.record_use([c.id for c in used], _now())

    def rewind(self, session: str, turns: int, *, user: str | None = None) -> int:
        """Take a session back to its first `turns` turns; returns how many were taken back. Raises InputError."""
        caller = self._caller(user).model_copy(update={"session_id": session})
        self.governance.permit(caller, Rewind(session=session, turns=turns))
        return self.sessions.rewind(caller, turns)

    # -- keeping -------------------------------------------------------------------------------------------

    def add(
        self, content: str | Path | Iterable[dict[str, Any]], *, user: str | None = None, probes: Sequence[Probe] = ()
    ) -> list[MemCube]:
        """Remember one statement (str), a file (Path), or the turns of a conversation; durable when it returns.

        A statement already remembered word for word, said at the same time, is not kept twice.
        """
        match content:
            case str():
                statement = self.reader.statement(content)
                ops = [statement.model_copy(update={"probes": tuple(probes)})]
            case Path():
                ops = self.reader.read_file(content)
            case _:
                ops = self.reader.read_turns(content, "turns")
        return self._remember(ops, self._caller(user))

    def keep(self, ops: Sequence[Add | Correct], *, user: str | None = None) -> list[MemCube]:
        """Remember statements as they are, unread by the reader; a cube for each, in their order, once durable.

        A statement that is there already, of the same speaker, time and thread, is not kept twice: its cube is.
        """
        caller = self._caller(user)
        by_content = {_content(cube.text, cube.header): cube for cube in self._remember(ops, caller)}
        return [by_content[_content(op.text, op)] for op in ops]

    def _remember(self, ops: Sequence[Add | Correct], caller: Namespace) -> list[MemCube]:
        for op in ops[:1]:
            self.governance.permit(caller, op)
        with self.vault.transaction():
            said = self.vault.saying((op.text for op in ops), caller.user_id)
            known = {_content(c.text, c.header): c for c in said if c.namespace == caller and _is_known(c)}
            corrects = any(isinstance(op, Correct) for op in ops)
            in_force = self.vault.cubes(form=Form.PLAINTEXT, states=LIVE) if corrects else []
            mine = [c for c in in_force if c.namespace == caller]
            kept: dict[str, None] = {}
            for op in ops:
                content = _content(op.text, op)
                cube = known.get(content)
                if cube is None:
                    known[content] = cube = self.lifecycle.create(_plaintext(op, caller))
                    mine.append(cube)
                    if isinstance(op, Correct):
                        mine = self._supersede(cube, mine)
                elif set(op.probes) - set(_text(cube).probes):
                    payload = _text(cube).model_copy(update={"probes": op.probes})
                    known[content] = self.lifecycle.edit(cube.id, payload)
                kept[cube.id] = None
        self._release()
        self.operator.refresh_soon()
        return self.vault.at(kept)

    def _supersede(self, by: MemCube, others: Sequence[MemCube]) -> list[MemCube]:
        """Archive earlier statements that say nothing but what the correction replaces; history keeps them.

        Returns the others.
        """
        replaced, left = {(f.subject.casefold(), f.relation) for f in _facts(by)}, list[MemCube]()
        for other in others:
            said = {(f.subject.casefold(), f.relation) for f in _facts(other)}
            if said and said <= replaced and other.order < by.order:
                self.lifecycle.move(other.id, State.ARCHIVED, f"superseded by {by.id}")
            else:
                left.append(other)
        return left

    def get(self, id: str, *, user: str | None = None) -> MemCube:
        """Raises NotFound."""
        return self._visible(Get(id=id), id, user)

    def update(self, id: str, text: str, *, user: str | None = None) -> MemCube:
        """A new version of a plaintext cube; what was derived from it is stale at once."""
        cube = self._visible(Update(id=id, text=text), id, user)
        statement = self.reader.statement(text, speaker=cube.header.speaker)
        payload = Text(text=statement.text, facts=statement.facts, probes=_text(cube).probes)
        edited = self.lifecycle.edit(cube.id, payload, segment=statement.segment)
        self.operator.refresh_soon()
        self._release()
        return edited

    def delete(self, id: str, *, user: str | None = None) -> list[str]:
        """Remove a cube with every form made from it; returns the ids that are gone."""
        cube = self._visible(Delete(id=id), id, user)
        gone = self.lifecycle.delete(cube.id)
        self.operator.refresh_soon()
        self._release()
        return gone

    def history(self, id: str, *, user: str | None = None) -> list[dict[str, Any]]:
        """Versions and moves of a cube in time order."""
        return self.lifecycle.history(self._visible(History(id=id), id, user).id)

    def search(
        self,
        query: str,
        *,
        top_k: int | None = None,
        kinds: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        user: str | None = None,
        policy: str = "memos",
    ) -> list[Hit]:
        """The memories that answer the query best among those that the user may see, best first.

        kinds: of memories (Header.kind); since, until: when they were said, UTC where no zone is given. policy: which
        one ranks. Raises InputError.
        """
        caller = self._caller(user)
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k {top_k} finds nothing; give 1 or more, or leave it out")
        op = Search(query=query, top_k=top_k or self.config.scheduler.top_k, about=self.reader.about(query))
        self.governance.permit(caller, op)
        score = ranking(policy, self.scheduler.policy.score)
        limits = (None if kinds is None else frozenset(kinds), _in_zone(since), _in_zone(until))
        return self._find(op.query, op.top_k, caller, op.about, score, limits)

    def memories(self, *, user: str | None = None) -> list[MemCube]:
        """The memories in force that the user may see, as they were said."""
        return self._texts(self._caller(user))

    def turns(self, session: str, *, user: str | None = None) -> list[MemCube]:
        """The turns of a session in force, oldest first."""
        caller = self._caller(user).model_copy(update={"session_id": session})
        self.governance.permit(self._caller(user), Get(id=session))
        return self.sessions.turns(caller)

    def cubes(self, *, form: Form | None = None, user: str | None = None) -> list[MemCube]:
        """Everything the user may see, of every state."""
        return self.governance.readable(self._caller(user), self.vault.cubes(form=form))

    def _texts(self, caller: Namespace) -> list[MemCube]:
        """The memories in force that the caller may read, as they were said."""
        readable = self.governance.readable(caller, self.vault.cubes(form=Form.PLAINTEXT, states=LIVE))
        return [c for c in readable if isinstance(c.payload, Text)]

    def _view(self, caller: Namespace, *limits: Any) -> View:
        """What the caller may see. limits: see `View`."""
        return View(caller, partial(self.governance.may_read, caller), *limits)

    def _find(
        self,
        query: str,
        k: int,
        caller: Namespace,
        about: Sequence[str] = (),
        score: Score | None = None,
        limits: Sequence[Any] = (),
    ) -> list[Hit]:
        """What the operator finds in the caller's view, narrowed before anything is ranked. limits: see `View`."""
        view = self._view(caller, *limits)
        self.governance.narrowed(caller, *self.operator.in_view(view))
        found = self.operator.search(query, k, view, score or self.scheduler.policy.score, about)
        at = self.vault.at(f.id for f in found)  # one that is gone since is left out
        cubes = {c.id: c for c in at if c.state in LIVE}
        return [Hit(cubes[f.id], f.score, f.why) for f in found if f.id in cubes]

    def _noted(self, cubes: Sequence[MemCube]) -> Reply:
        return Reply("Noted: " + " ".join(c.text for c in cubes), remembered=tuple(cubes))

    def _forget(self, op: Forget, caller: Namespace) -> Reply:
        """Delete the memory that was meant, if exactly one was; otherwise say which it could be. Never guessed."""
        self.governance.permit(caller, op)
        texts = self._texts(caller)
        meant = [c for c in texts if any(_fits(wanted, said) for wanted in op.facts for said in _facts(c))]
        near = [] if op.facts else self._find(op.query, 3, caller)
        meant = meant or [hit.cube for hit in near if hit.why["near"] >= self.config.scheduler.forget_score]
        if len(meant) != 1:
            which = " | ".join(f"{c.id} {c.text}" for c in meant or [hit.cube for hit in near])
            rule = "Nothing was deleted: one memory must be meant"
            return Reply(
                f"{rule}; these are near, delete one by its id or say it more closely: {which}"
                if which
                else f"{rule}, and none fits."
            )
        gone = self.delete(meant[0].id, user=caller.user_id)
        return Reply(f"Forgotten: {meant[0].text}", forgotten=tuple(gone))

    # -- changing form -------------------------------------------------------------------------------------

    def promote(
        self,
        ids: str | Sequence[str],
        to: Form | Literal["activation", "parametric"],
        *,
        user: str | None = None,
        progress: Progress | None = None,
    ) -> MemCube:
        """Make one derived cube of these memories; published only once it has proven itself.

        An activation cube needs parity with the full prompt, a parametric one its gate. What is there already is
        returned, what was given up before is taken back. Killed at any point, nothing is published, and the next
        start clears away what was staged.

        Raises NoProbes, GateRejected, Unsupported, Conflict (a source changed meanwhile), ContextOverflow.
        """
        if str(to) not in (str(Form.ACTIVATION), str(Form.PARAMETRIC)):
            raise InputError(f"memories cannot be promoted to {str(to)!r}; promote to activation or parametric")
        form = Form(to)
        asked = (ids,) if isinstance(ids, str) else tuple(ids)
        op = Promote(ids=asked, to=form)
        sources = self._sources(op, user)
        beside = self._beside(op, sources, user) if form is Form.PARAMETRIC else ()
        return self.transitions.promote(form, sources, progress or (lambda *_: None), beside)

    def _beside(self, op: Promote, sources: Sequence[MemCube], user: str | None) -> list[MemCube]:
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
        return [self.vault.get(s.id) for s in cube.sources]

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
        return self.transitions.gate([self._folder(name, user) for name in adapters], memories)

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
        """Adapters as one folder for servers that take one adapter a request; named by its content."""
        from memos.infrastructure.host.export import export_adapter  # loads torch and transformers

        return export_adapter(self.host, [self._folder(name, user) for name in adapters], out)

    def _folder(self, what: str | Path, user: str | None, *forms: str) -> Path:
        """Where the payload of a cube lies, or the path that is named. Raises NotFound, InputError."""
        if isinstance(what, Path):
            return what
        cube = self._visible(Get(id=what), what, user)
        if cube.blob is None or str(cube.form) not in (forms or ("parametric",)):
            raise InputError(f"cube {cube.id} is {cube.form}; name one that is {' or '.join(forms or ('parametric',))}")
        return self.vault.blob_path(cube.blob)

    def jobs(self) -> list[Job]:
        """Work that is going on, or that was cut off and can be taken up again; oldest first."""
        return [*self.vault.jobs("running"), *self.vault.jobs("interrupted")]

    def cancel(self, job: str) -> None:
        """End a job; what it had made is removed. Raises NotFound."""
        self.vault.cancel_job(job)

    def tick(self, *, user: str | None = None, progress: Progress | None = None) -> list[dict[str, Any]]:
        """Let the scheduler plan moves and carry them out; returns what was done, and what failed and why."""
        caller = self._caller(user)
        own = [c for c in self.governance.readable(caller, self.vault.cubes()) if c.rights.owner == caller.user_id]
        texts = [c for c in own if isinstance(c.payload, Text) and c.state in LIVE]
        derived = [c for c in own if c.blob and c.header.kind != "turn"]  # a conversation's KV goes with its turns
        moves = self.scheduler.plan(
            self._segments(texts), derived, _now(), lambda segment: self.serving.pays(segment, self._tokens)
        )
        return [self._carry_out(move, user, progress) for move in moves if not self._refused(move)]

    def _refused(self, move: Move) -> bool:
        """A promotion that was tried and refused is not tried again until its memories change."""
        if not (move.segment and move.to):
            return False
        return self.transitions.refused(move.to, move.segment.cubes)

    def _carry_out(self, move: Move, user: str | None, progress: Progress | None) -> dict[str, Any]:
        done: dict[str, Any] = {"move": f"promote to {move.to}" if move.to else "give up", "why": move.why}
        try:
            if move.segment and move.to:
                done["cube"] = self.promote(
                    [c.id for c in move.segment.cubes], move.to, user=user, progress=progress
                ).id
            elif move.cube:
                done["cube"] = move.cube.id
                give_up = self.demote if move.cube.state is State.ACTIVATED else self.delete  # stale: of no use again
                give_up(move.cube.id, user=user)
        except (PromotionError, NoRoom, Unsupported) as error:  # the plan was sound, its memory unfit
            done["failed"] = str(error)
        return done

    def segments(self, *, user: str | None = None) -> list[Segment]:
        """The topic groups that move together."""
        return self._segments(self._texts(self._caller(user)))

    def heat(self, segment: Segment) -> float:
        """How much a topic group is used; see MemosPolicy.heat."""
        return self.scheduler.policy.heat(segment.cubes, _now())

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
            for s in (c.sources or (Source(id=c.id, version=c.version),))
        }
        gone = [c.id for c in cubes.values() if c.state in GONE]
        if gone:
            raise InputError(
                f"{', '.join(gone)} is {self.vault.get(gone[0]).state} and cannot be promoted; "
                f"promote memories in force"
            )
        return sorted(cubes.values(), key=lambda c: c.order)

    # -- helpers -------------------------------------------------------------------------------------------

    def _caller(self, user: str | None) -> Namespace:
        return Namespace(user_id=user or self.config.user_id)

    def _visible(self, op: Operation, id: str, user: str | None) -> MemCube:
        """The cube, if the caller may do `op` to it. Raises NotFound, Denied."""
        cube = self.vault.get(id)
        self.governance.permit(self._caller(user), op, cube)
        return cube

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


def _plaintext(op: Add, caller: Namespace) -> MemCube:
    return MemCube(
        id=new_id(),
        form=Form.PLAINTEXT,
        namespace=caller,
        rights=Rights(owner=caller.user_id),
        header=Header(
            created=_now(),
            said=_in_zone(op.said),
            origin=op.origin,
            speaker=op.speaker,
            thread=op.thread,
            segment=op.segment,
            kind=op.kind,
        ),
        payload=Text(text=op.text, facts=op.facts, probes=op.probes),
    )


def _text(cube: MemCube) -> Text:
    """The payload of a plaintext cube. Raises InputError for a derived one."""
    if not isinstance(cube.payload, Text):
        raise InputError(
            f"cube {cube.id} is {cube.form}: it holds no text of its own; name the memories it was made from"
        )
    return cube.payload


def _content(text: str, told: Add | Header) -> tuple[object, ...]:
    """What makes two statements the same."""
    return text, _in_zone(told.said), told.speaker, told.thread


def _is_known(cube: MemCube) -> bool:
    """In force, or said at a known time and superseded since: saying it again makes no new memory."""
    return isinstance(cube.payload, Text) and (cube.state in LIVE or cube.header.said is not None)


def _facts(cube: MemCube) -> tuple[Fact, ...]:
    return cube.payload.facts if isinstance(cube.payload, Text) else ()


def _fits(wanted: Fact, said: Fact) -> bool:
    """True if a fact with blanks describes another."""
    pairs = ((wanted.subject, said.subject), (wanted.relation, said.relation), (wanted.object, said.object))
    return all(not asked or asked.casefold() == there.casefold() for asked, there in pairs)


def _in_zone(when: datetime | None) -> datetime | None:
    return when if when is None or when.tzinfo else when.replace(tzinfo=timezone.utc)


def _now() -> datetime:
    return datetime.now(timezone.utc)
