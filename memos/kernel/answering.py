"""The main path: from a message to what it asks for, what may be seen of it, what the model is given, and a reply.

    message -> reader -> governance -> operator -> scheduler -> host -> reply
                 (what)     (may)       (find)      (admit)    (answer)

Read `chat` first, then `ask`, `_ask` and `_admit`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from memos.cube import ANSWERING, NOTED, STEERING, Form, MemCube, State
from memos.errors import UNUSABLE, CorruptBlob, FingerprintMismatch, InputError, UnsupportedLanguage
from memos.interface.reading.phrasebook import Say, say_in_language_of
from memos.interface.reading.phrasebook import language as language_of
from memos.interface.reading.requests import wordings
from memos.kernel import quoting
from memos.kernel.access import Service, unique
from memos.kernel.pipelines import Conversation, Meant, Pipelines
from memos.operation.choosing.mem_scheduler import ALWAYS, Admission, Route, Session, Talk, Via
from memos.ops import Asked, Get, Recall, Rewind

if TYPE_CHECKING:
    from memos.config import DecodeConfig
    from memos.infrastructure.host.model.decode import ModelAnswer
    from memos.infrastructure.vault.audit.records import Decision
    from memos.kernel.access import CuratingOf
    from memos.kernel.services.finding import Finding, Hit
    from memos.kernel.services.keeping import Keeping
    from memos.kernel.services.life import Life
    from memos.kernel.services.seeing import Seeing
    from memos.kernel.wiring import Parts
    from memos.operation.forms.insight import Explanation as Explanation
    from memos.operation.forms.insight import Reason as Reason
    from memos.rights import Caller

log = logging.getLogger("memos")
_ALONE = frozenset(("recall", "talk"))  # there is nothing to undo
Turns = Sequence[dict[str, str]]
OnText = Callable[[str], None]


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


@dataclass(frozen=True)
class _Request:
    """How an answer is wanted. session: of `Access.session`; on_text, decode: see `Answering.chat`. quotes: where
    the model can only guess, nothing is shown before it is judged, and memories are quoted; not to small_talk. say:
    how memos speaks."""

    via: Via = "auto"
    turns: Turns = ()
    session: Session | None = None
    on_text: OnText | None = None
    decode: DecodeConfig | None = None
    quotes: bool = False
    small_talk: bool = False
    say: Say = str.format


class Answering(Service):
    """chat, ask, explain, credit; turns and rewind of sessions."""

    def __init__(
        self,
        parts: Parts,
        finding: Finding,
        keeping: Keeping,
        life: Life,
        seeing: Seeing,
        pipelines: Pipelines,
        curating: CuratingOf,
    ) -> None:
        super().__init__(parts)
        self._curating = curating
        self._finding, self._keeping, self._life = finding, keeping, life
        self._seeing, self._pipelines = seeing, pipelines
        self._explained = False  # why memories are quoted

    def chat(
        self,
        caller: Caller,
        message: str,
        *,
        via: Via = "auto",
        turns: Turns = (),
        session: str | None = None,
        on_text: OnText | None = None,
        decode: DecodeConfig | None = None,
    ) -> Reply:
        """Do what a message asks for, all of it or nothing: remember, correct, forget, share, freeze, ..., or answer.

        What was understood is told in the reply's `operations`. Nothing is done before all of it is permitted; where it
        is not clear which memory is meant, that is asked, and the next message of the conversation may answer.

        turns: the messages before it. session: instead, the name of a conversation that memos keeps: its turns, and
        their KV, so that it goes on in another process without being read again. on_text: is given the answer piece by
        piece; what it raises ends the answer. decode: of this answer, in place of config.decode.
        """
        named = self._session(caller, session)
        before = quoting.without_aside(self._sessions().messages(named) if named else turns)
        say = say_in_language_of(message, *(turn["content"] for turn in before[-1:]))
        request = _Request(via, turns, named, on_text, decode, quotes=True, say=say)
        where = Conversation(caller, session, turns, say)
        waiting = self._pipelines.doubts and self._pipelines.answered(message, where)
        asked, meant = waiting or (self._reader.read_request(message, before, self._today()), {})
        if waiting or len(asked) > 1 or asked[0].intent not in _ALONE:
            return self._carried_out(message, asked, meant, where, request)
        beside = self._reader.read_message(message)  # what a question tells
        remembered = unique(self._keeping.remember(caller, beside)) if beside else []
        small = replace(request, small_talk=asked[0].intent == "talk")
        question = asked[0].what if asked[0].last else message  # with what it goes on from
        reply = self._answer_each(caller, [question], small, remembered)
        return replace(reply, remembered=tuple(remembered), operations=asked)

    def ask(
        self,
        caller: Caller,
        question: str,
        *,
        via: Via = "auto",
        turns: Turns = (),
        session: str | None = None,
        on_text: OnText | None = None,
        decode: DecodeConfig | None = None,
    ) -> Reply:
        """Answer a question with what the caller may see, in the form `via` (auto: the one that is fastest here).

        The others: see `chat`. Raises EmptyMemory for a form that is asked for and not there,
        UnsupportedLanguage, ContextOverflow, and, unless via is auto, CorruptBlob, FingerprintMismatch, Unsupported
        and NoRoom; auto answers from text then.
        """
        return self._ask(caller, question, _Request(via, turns, self._session(caller, session), on_text, decode))

    def _ask(self, caller: Caller, question: str, request: _Request, beside: Sequence[MemCube] = ()) -> Reply:
        """beside: memories of what was said beside the question."""
        op = self._reader.recall(question, today=self._today())
        quotes = request.quotes and self._host().in_closed_world
        if not quotes:  # what is not read can be quoted all the same
            self._require_language(question)
        decisions = [self._governance.permitted(caller, op)]
        if curating := self._curating(self._schedulers.policy_of(caller)):
            curating.before_answer(caller, question)
        listener = _Listener(None if quotes else request.on_text)
        adapters = request.via == "parametric" or request.session is None
        admission = self._admitted(caller, op, request.via, decisions, adapters)
        talk = self._talk(question, request, admission)
        try:
            admission, completion = self._answer(admission, talk, request.via, listener, request.decode)
        except UNUSABLE as error:
            # what has been said cannot be taken back
            derived = admission.activations or admission.adapters or talk.earlier
            if request.via != "auto" or listener.heard or not derived:
                raise
            log.warning("answering from text: %s", error)
            admission = self.admit(caller, op, "plaintext")  # its use is counted already
            talk = replace(self._talk(question, request, admission), again=True)
            admission, completion = self._answer(admission, talk, "plaintext", listener, request.decode)
        text, kv, rests_on = completion.text, completion.kv, admission
        facts = quoting.facts_read(talk, admission, self._reader.facts)
        if quotes and request.via != "none" and (op.wants.held or not quoting.stands(text, op.asks, facts)):
            small = request.small_talk and not (op.about and "?" in question)
            near, is_sure = ((), True) if small else self._finding.near(caller, op, admission, quoting.MOST_QUOTED)
            say, model = request.say, self._config.model.path
            way_out = "" if small or self._explained else say(quoting.WAY_OUT, model=model)
            text = quoting.noted(say, beside) if small else quoting.quoted(say, question, near, way_out, is_sure)
            kv, rests_on = None, Admission(cubes=near if is_sure else ())
            self._explained = self._explained or bool(way_out)
        elif (quotes or not request.on_text) and self._host().in_closed_world and quoting.stutters(text):
            text, kv = quoting.UNKNOWN, None
        if quotes and request.on_text:
            request.on_text(text)
        if talk.session:
            self._sessions().keep(talk, text, admission, beside, kv)
        if curating:
            curating.on_answer(caller, question, text, rests_on.cubes)
        self._serving().settle(admission, completion.ttft_s)
        self._serving().prefetch(caller.user_id, partial(self._governance.visible, caller))
        return Reply(
            text,
            rests_on,
            prompt_tokens=completion.prompt_tokens,
            past_tokens=completion.past_tokens,
            answer_tokens=len(completion.ids),
            ttft_ms=completion.ttft_s * 1e3,
            seconds=completion.seconds,
        )

    def _admitted(self, caller: Caller, op: Recall, via: Via, decisions: list[Decision], adapters: bool) -> Admission:
        """What the request will see; the decisions on it and its use are written down together, before the model runs,
        also where nothing is admitted."""
        admission = Admission()
        try:
            admission = self._admit(caller, op, via, decisions, adapters)
        finally:
            self._governance.record(decisions, lambda: self._record_use(admission, caller))
        return admission

    def _admit(
        self, caller: Caller, op: Recall, via: Via, decisions: list[Decision], adapters: bool = True
    ) -> Admission:
        """What the request will see: permitted, then found, then chosen under the budgets."""
        if via == "none":
            return Admission()
        found, narrowed = self._finding.find(caller, op)
        decisions.append(narrowed)
        return self.decide(caller, op, found, via, adapters)

    def admit(self, caller: Caller, op: Recall, via: Via = "auto") -> Admission:
        """What a request would see; that is written down, and counts as no use."""
        decisions: list[Decision] = []
        admission = self._admit(caller, op, via, decisions)
        self._governance.record(decisions)
        return admission

    def decide(
        self, caller: Caller, op: Recall, found: Sequence[Hit], via: Via = "auto", adapters: bool = True
    ) -> Admission:
        """What of the memories found the request sees, with their topic groups, and in which form."""
        scheduler, shown = self._schedulers.of(caller), self._vault.guard.as_shown
        always = self._governance.visible(caller, self._vault.statements.tagged(ALWAYS, caller.user_id, ANSWERING))
        # what is asked for by name was made, and proven, without one
        steering = self._steering(caller, always) if via in ("auto", "plaintext") else ()
        always = [shown(c) for c in always if not any(c.pin in one.sources for one in steering)]
        hits = scheduler.compatible([(shown(hit.cube), hit.score) for hit in found], always)
        match scheduler.policy.reads:
            case "groups":
                seen = scheduler.looked_at(hits, self._vault.payloads_of(cube.id for cube, _ in hits))
                view = self._access.view(caller, (None, op.wants.since, None), summaries=op.wants.summary)
                texts = self._vault.at(self._operator().group_of(seen, view))
            case "found":
                texts = [cube for cube, _ in hits]
            case "all":
                texts = self._access.texts(caller)
        # another may have archived one meanwhile; of a group what is cold stays out, unless it was found itself
        texts = [c for c in texts if c.state is not State.COLD or any(c.id == cube.id for cube, _ in hits)]
        past = [cube for cube, _ in hits if cube.state is State.ARCHIVED]  # what earlier times are asked for
        texts = [*past, *(shown(c) for c in texts if c.state in ANSWERING)]
        made = self._governance.visible(caller, self._vault.payloads_of(c.id for c in texts), seen=texts)
        self._tokens.of([cube.text for cube in texts])  # at once
        admission = scheduler.admit(
            hits,
            op.about,
            self._schedulers.main.segments(texts, self._tokens),
            [] if steering else self._standing_in(made, via, adapters),
            self._tokens,
            via,
            self._route(op.question),
            always,
            self._host().context,
        )
        why = {hit.cube.id: hit.why for hit in found}
        return replace(admission, steering=steering, found=tuple((cube, why[cube.id]) for cube, _ in hits))

    def _steering(self, caller: Caller, always: Sequence[MemCube]) -> tuple[MemCube, ...]:
        """What the answer is steered by: directions of instructions that always hold, which these stand for then."""
        made = self._governance.visible(caller, self._vault.payloads_of(c.id for c in always)) if always else []
        of_ours = (c for c in made if c.header.kind == STEERING and c.state is State.ACTIVATED and self._is_ours(c))
        return tuple(of_ours)[: self._config.scheduler.steerings]

    def _standing_in(self, derived: Sequence[MemCube], via: Via, adapters: bool) -> list[MemCube]:
        """The KV and adapters that may stand in for their memories. One made on another model is of no use to this one,
        and no fault, unless just that form is asked for."""
        useful = [c for c in derived if c.stands_in and (adapters or c.form is not Form.PARAMETRIC)]
        ours = [c for c in useful if self._is_ours(c)]
        return ours if via == "auto" else [*ours, *(c for c in useful if c not in ours)]

    def _route(self, question: str) -> Route | None:
        """How adapters are chosen between, if not by retrieval alone."""
        messages = [{"role": "user", "content": question}]
        return None if self._config.scheduler.routing == "retrieval" else partial(self._serving().route, messages)

    def _talk(self, question: str, request: _Request, admission: Admission) -> Talk:
        """The question, with what was said before it."""
        if request.session is None:
            decode = request.decode or self._config.decode
            shown = [turn for turn in request.turns if turn.get("kind") != NOTED]
            return Talk(question, self._serving().fitting(shown, question, admission, decode))
        if request.turns:
            raise InputError("turns and session both say what came before; give one of them")
        return self._sessions().resume(request.session, question, admission)

    def _answer(
        self, admission: Admission, talk: Talk, via: Via, listener: _Listener, decode: DecodeConfig | None = None
    ) -> tuple[Admission, ModelAnswer]:
        """The answer, and what of the admission it was given from."""
        try:
            if talk.earlier:
                admission = replace(admission, activations=())  # its memories stand within the conversation
                request = self._sessions().request(talk, admission)
            else:
                messages = (*talk.turns, {"role": "user", "content": talk.question})
                exact = talk.session is not None
                admission, request = self._serving().request(admission, messages, via, self._tokens, exact)
            pieces = self._host().stream(request, decode or self._config.decode, listener.listens)
            return admission, listener.drain(pieces)
        except UNUSABLE as error:
            if talk.session and isinstance(error, (CorruptBlob, FingerprintMismatch)):
                self._sessions().damaged(talk.session)
            elif talk.session:
                self._sessions().let_go(talk.session)
            self._serving().failed(admission, error)
            raise

    def _record_use(self, admission: Admission, caller: Caller) -> None:
        """Of what was asked for: what every request sees is not used more than others for that."""
        pinned = {cube.id for cube in admission.pinned}
        seen = [c for c in (*admission.cubes, *admission.internal) if c.id not in pinned]
        derived = [*admission.activations, *admission.adapters]
        if not seen and not derived:
            return
        foresight, now = self._foresight(), self._vault.now()
        self._vault.usage.record([cube.id for cube in (*seen, *derived)], now, caller.user_id)
        self._lifecycle.recalled((*seen, *derived))
        for group in {c.header.segment: c.id for c in reversed(seen)}.values():  # each by its first cube
            foresight.used(caller.user_id, group, now.timestamp())

    def _carried_out(
        self, message: str, asked: Sequence[Asked], meant: Meant, where: Conversation, request: _Request
    ) -> Reply:
        """All that a message asks for, done; and what it asks, answered."""
        caller, questions = where.caller, [one.what for one in asked if one.intent == "recall"]
        done = self._pipelines.run(asked, where, meant)
        reports = [self._seeing.report(caller, one, where.say) for one in asked if one.intent == "about"]
        told = "\n".join(filter(None, [done.text, *reports] if asked[-1].intent != "recall" else reports))
        if told and questions and request.on_text:
            request.on_text(f"{told}\n")
        reply = self._answer_each(caller, questions, request, done.remembered) if questions else Reply("")
        if request.session and not questions:
            self._sessions().note(request.session, message, told, bool(done.forgotten))
        reply = replace(reply, text="\n".join(filter(None, (told, reply.text))), operations=tuple(asked))
        return replace(reply, remembered=done.remembered, forgotten=done.forgotten, pipeline=done.id)

    def _answer_each(
        self, caller: Caller, questions: Sequence[str], request: _Request, beside: Sequence[MemCube]
    ) -> Reply:
        """One answer to all questions; of the packaged model, which reads one at a time, one to each."""
        if not self._host().in_closed_world or request.small_talk:
            return self._ask(caller, " ".join(questions), request, beside)
        each = [one for some in questions for one in wordings.SEVERAL.split(some)]
        replies = [self._ask(caller, one, replace(request, on_text=None), beside) for one in each]
        text = quoting.joined([reply.text for reply in replies])
        if request.on_text:
            request.on_text(text)
        cubes = {cube.id: cube for reply in replies for cube in reply.admission.cubes}
        return replace(replies[-1], text=text, admission=replace(replies[-1].admission, cubes=tuple(cubes.values())))

    def explain(self, caller: Caller, question: str, *, answer: str | None = None, via: Via = "auto") -> Explanation:
        """Why a question is answered so, or how far `answer` rests on what is remembered; that counts as no use.

        Raises what `ask` does.
        """
        from memos.operation.forms.insight import Explanation, reasons  # loads torch and transformers

        op = self._reader.recall(question, today=self._today())
        self._require_language(question)
        decision = self._governance.permitted(caller, op)
        found, narrowed = self._finding.find(caller, op)
        self._governance.record([decision, narrowed])
        talk, admission = Talk(question), self.decide(caller, op, found, via)
        try:
            admission, completion = self._answer(admission, talk, via, _Listener())
        except UNUSABLE:
            if via != "auto" or not (admission.activations or admission.adapters):
                raise
            admission = self.decide(caller, op, found, "plaintext")
            admission, completion = self._answer(admission, talk, "plaintext", _Listener())
        scores = {hit.cube.id: (hit.score, hit.why) for hit in found}
        adapters = self._serving().adapters(admission)
        explained = answer or completion.text
        why, likelihood, closed = reasons(self._host(), question, explained, admission, adapters, scores)
        cost = (completion.prompt_tokens, completion.past_tokens, completion.ttft_s * 1e3)
        return Explanation(question, explained, why, likelihood, closed, *cost)

    def credit(self, caller: Caller, question: str, answer: str) -> Explanation:
        """White-box feedback: a good answer credits each memory with how much likelier it is with it than without."""
        explanation = self.explain(caller, question, answer=answer)
        for reason in explanation.reasons:
            if self._governance.may(caller, "annotate", reason.cube):
                self._life.feedback(caller, reason.cube.id, reason.useful)
        return explanation

    def turns(self, caller: Caller, session: str) -> list[MemCube]:
        """The turns of a session in force, oldest first."""
        named = Session(self._access.session(caller, session), caller)
        self._governance.permit(caller, Get(id=session))
        return self._sessions().turns(named)

    def rewind(self, caller: Caller, session: str, turns: int) -> int:
        """Take a session back to its first `turns` turns; returns how many were taken back. Raises InputError."""
        named = Session(self._access.session(caller, session), caller)
        self._governance.permit(caller, Rewind(session=session, turns=turns))
        return self._sessions().rewind(named, turns)

    def _session(self, caller: Caller, name: str | None) -> Session | None:
        return None if name is None else Session(self._access.session(caller, name), caller)

    def _require_language(self, question: str) -> None:
        language, reads = language_of(question), self._host().languages
        if reads and language not in reads:
            raise UnsupportedLanguage(
                f"the question is in {language!r}, and {self._config.model.path} reads {', '.join(reads)} only; ask in "
                f"{reads[0]}, or set model.path to a model that reads {language!r}"
            )


class _Listener:
    """Hands an answer on piece by piece, and knows whether any was."""

    def __init__(self, on_text: OnText | None = None) -> None:
        self._on_text, self.heard, self.listens = on_text, False, on_text is not None

    def drain(self, pieces: Generator[str, None, ModelAnswer]) -> ModelAnswer:
        """The whole answer, with its costs."""
        with closing(pieces):  # whoever listens may fail: the model must not stay taken
            while True:
                try:
                    piece = next(pieces)
                except StopIteration as done:
                    completion: ModelAnswer = done.value
                    return completion
                self.heard = True
                if self._on_text:
                    self._on_text(piece)
