"""MemOS: the main path through the parts; memos/calls/ wires them, and has the calls beside it.

    message -> reader -> governance -> operator -> scheduler -> host -> reply
                 (what)     (may)       (find)      (admit)    (answer)

Read `chat` first, then `ask`, then `Forming.promote`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memos.config import Config, DecodeConfig
from memos.cube import Form, MemCube, Namespace
from memos.errors import (
    ContextOverflow,
    CorruptBlob,
    FingerprintMismatch,
    InputError,
    NoRoom,
    Unsupported,
    UnsupportedLanguage,
)
from memos.kernel.calls import Calls
from memos.kernel.identity import handing_over
from memos.kernel.pipelines import Conversation, Pipelines
from memos.kernel.self_report import told
from memos.kernel.wiring import Hit, each_once, log
from memos.once import once
from memos.operation.choosing.mem_scheduler import ALWAYS, Admission, Route, Talk, Via
from memos.operation.life.mem_lifecycle import ANSWERING
from memos.operation.policies.policy import Policy
from memos.ops import Asked, Forget, Recall

if TYPE_CHECKING:
    from memos.infrastructure.host.model.decode import ModelAnswer
    from memos.operation.forms.insight import Explanation

_ALONE = frozenset(("forget", "recall", "talk"))  # there is nothing to undo
# why KV or an adapter may turn out to be of no use to a request; its text still is
UNUSABLE = (CorruptBlob, FingerprintMismatch, Unsupported, ContextOverflow, NoRoom)


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
class MemOS(Calls):
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
        super().__init__(config, model, tokenizer, vault, policy)
        if config.scheduler.background_s is not None:
            self.upkeep.start(config.scheduler.background_s)

    @once
    def pipelines(self) -> Pipelines:
        return Pipelines(self)

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
        is not clear which memory is meant, that is asked, and the next message of the conversation may answer.

        turns: the messages before it. session: instead, the name of a conversation that memos keeps: its turns, and
        their KV, so that it goes on in another process without being read again. on_text: is given the answer piece by
        piece; what it raises ends the answer. decode: of this answer, in place of config.decode.
        """
        caller = self._caller(user)
        where = Conversation(caller, session, turns)
        waiting = self.pipelines.answered(message, where)
        before = turns if session is None else self.sessions.said(self._session(session, user))
        asked, meant = waiting or (self.reader.asked(message, before, self.vault.now().astimezone().date()), {})
        first, last = asked[0], asked[-1]
        if waiting or len(asked) > 1 or first.intent not in _ALONE:
            done = self.pipelines.run(asked, where, meant, user)
            if last.intent == "recall":
                reply = self._ask(last.what, via, turns, session, user, on_text, decode, done.remembered)
            else:
                reply = Reply("\n".join(part for part in (done.text, *self._about(asked, caller, user)) if part))
            noted, gone = done.remembered, done.forgotten
            return replace(reply, operations=asked, remembered=noted, forgotten=gone, pipeline=done.id)
        if first.intent == "forget":
            return replace(self._forget(self.reader.forget(first.what), caller), operations=asked)
        beside = self.reader.read_turns([{"role": "user", "content": message}], "chat")  # what a question tells
        kept = each_once(self._remember(beside, caller))
        reply = self._ask(message, via, turns, session, user, on_text, decode, kept)
        return replace(reply, remembered=tuple(kept), operations=asked)

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
    ) -> tuple[Admission, ModelAnswer]:
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

    def credit(self, question: str, answer: str, *, user: str | None = None) -> Explanation:
        """White-box feedback: a good answer credits each memory with how much likelier it is with it than without."""
        told = self.explain(question, answer=answer, user=user)
        for reason in told.reasons:
            if self.governance.may(self._caller(user), "annotate", reason.cube):
                self.feedback(reason.cube.id, reason.useful, user=user)
        return told

    def undo(self, pipeline: str, *, user: str | None = None) -> list[str]:
        """Take back what a message has done (`Reply.pipeline`), but for what it has deleted. Raises NotFound."""
        return self.pipelines.undo(pipeline, self._caller(user), user)

    def _about(self, asked: Sequence[Asked], caller: Namespace, user: str | None) -> list[str]:
        """Answers to what is asked about the memory itself."""
        return [told(self, one, caller, user) for one in asked if one.intent == "about"]

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

    def explain(
        self, question: str, *, answer: str | None = None, via: Via = "auto", user: str | None = None
    ) -> Explanation:
        """Why a question is answered so, or how far `answer` rests on what is remembered; that counts as no use.

        Raises what `ask` does.
        """
        from memos.operation.forms.insight import Explanation, reasons  # loads torch and transformers

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

    def _require_language(self, question: str) -> None:
        language, reads = self.reader.language(question), self.host.languages
        if reads and language not in reads:
            raise UnsupportedLanguage(
                f"the question is in {language!r}, and {self.config.model.path} reads {', '.join(reads)} only; ask in "
                f"{reads[0]}, or set model.path to a model that reads {language!r}"
            )


def _drain(pieces: Generator[str, None, ModelAnswer], on_text: Callable[[str], None] | None) -> ModelAnswer:
    """Hand each piece of an answer on; the answer with its costs."""
    with closing(pieces):  # whoever listens may fail: the model must not stay taken
        while True:
            try:
                piece = next(pieces)
            except StopIteration as done:
                return done.value
            if on_text:
                on_text(piece)
