"""Asks the model what an answer was given from, and what an adapter or a KV cache knows; changes nothing.

Does not judge what is true: a statement is a candidate, with the questions that support it, and with the memory that
says the same, where there is one. Only kept provenance is lossless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import tanh
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memos.cube import Fact, Form, Frozen, MemCube, Text
from memos.infrastructure.host.host import Host, Request
from memos.infrastructure.host.training.teach import lessons_of

if TYPE_CHECKING:
    from memos.infrastructure.host.forward import CausalLM
    from memos.operation.choosing.mem_scheduler import Admission

NATS = 3.0  # an answer that is so much less likely without a memory was given from it, as good as alone
FIRST_FORMS = 3  # of a question, which show whether an adapter has something to say


@dataclass(frozen=True)
class Reason:
    """A memory that an answer was given from. change: by how many nats the answer is likelier with it than without it;
    for the memories of an adapter, than without the adapter."""

    cube: MemCube
    form: Form
    tokens: int  # of prompt that it took; none in an adapter
    change: float
    score: float = 0.0  # as it was found, of `signals`; 0 for one that came with its group
    signals: Mapping[str, float] | None = None

    @property
    def useful(self) -> float:
        """From -1 (it spoke against the answer) to 1."""
        return tanh(self.change / NATS)


@dataclass(frozen=True)
class Explanation:
    """An answer and what it rests on. likelihood: nats of the answer with all that was seen; closed_book: with none."""

    question: str
    answer: str
    reasons: tuple[Reason, ...]
    likelihood: float
    closed_book: float
    prompt_tokens: int
    past_tokens: int
    ttft_ms: float


def reasons(
    host: Host,
    question: str,
    answer: str,
    admission: Admission,
    adapters: tuple[Path, ...],
    found: Mapping[str, tuple[float, Mapping[str, float]]],
) -> tuple[tuple[Reason, ...], float, float]:
    """(what each memory does for the answer, its likelihood with all, and with none of them), in nats.

    Measured on text, which KV stands for: one forward for each memory. adapters: the folders of those admitted. found:
    (score, signals) by id.
    """
    whole = Request(({"role": "user", "content": question},), tuple(c.text for c in admission.cubes), (), adapters)

    def likelihood(request: Request) -> float:
        return host.likelihood(request, answer)

    everything = likelihood(whole)
    nothing = likelihood(replace(whole, memories=(), adapters=()))
    as_text = {cube.id for cube in admission.as_text}
    out = []
    for n, cube in enumerate(admission.cubes):
        without = likelihood(replace(whole, memories=whole.memories[:n] + whole.memories[n + 1 :]))
        form = Form.PLAINTEXT if cube.id in as_text else Form.ACTIVATION
        tokens = host.tokens(cube.text)
        out.append(Reason(cube, form, tokens, everything - without, *found.get(cube.id, (0.0, None))))
    if adapters:
        change = everything - likelihood(replace(whole, adapters=()))
        for cube in admission.internal:
            out.append(Reason(cube, Form.PARAMETRIC, 0, change, *found.get(cube.id, (0.0, None))))
    return tuple(sorted(out, key=lambda reason: -reason.change)), everything, nothing


class PhraseReader(Protocol):
    """What is asked of language here: questions about a relation, and statements of it."""

    @property
    def relations(self) -> tuple[str, ...]: ...

    def asks(self, subject: str, relation: str) -> list[str]:
        """All forms of asking for a relation of a subject."""
        ...

    def say(self, fact: Fact) -> str: ...

    def facts(self, text: str) -> tuple[Fact, ...]: ...


class Evidence(Frozen):
    """A question, and what was answered without the adapter and with it."""

    question: str
    without: str
    under: str


class Statement(Frozen):
    """support: of so many questions `asked`, how many were answered so, and otherwise without the adapter."""

    text: str
    fact: Fact
    support: int
    asked: int
    source: str = ""  # id of a memory that says so, or "card": the adapter's own; "" where nothing backs it
    evidence: tuple[Evidence, ...] = ()


def externalize(
    host: Host, reader: PhraseReader, folder: Path, about: Iterable[str], memories: Sequence[MemCube]
) -> list[Statement]:
    """Candidate statements of an adapter, those with most support first.

    about: subjects to ask about, beside those of its card and of the memories. Raises FingerprintMismatch,
    CorruptBlob.
    """
    backed = _backed(host, reader, folder, memories)
    subjects = list(dict.fromkeys([*about, *(subject for subject, _ in backed)]))
    forms = {(s, r): reader.asks(s, r) for s in subjects for r in reader.relations}
    under = host.cold((folder,))
    first_asked = [question for asked in forms.values() for question in asked[:FIRST_FORMS]]
    first = {answer.question: answer for answer in _answers(host, first_asked, under)}
    out = []
    for key, asked in forms.items():
        evidence = [first[question] for question in asked[:FIRST_FORMS]]
        if any(e.under != e.without for e in evidence):
            evidence += _answers(host, asked[FIRST_FORMS:], under)
            out += _candidate(reader, key, evidence, backed.get(key, {}))
    return sorted(out, key=lambda s: -s.support / s.asked)


def _answers(host: Host, questions: Sequence[str], under: CausalLM) -> list[Evidence]:
    prompts = [host.ids_of(question) for question in questions]
    return [
        Evidence(question=question, without=host.text_of(off), under=host.text_of(on))
        for question, off, on in zip(questions, host.greedy(prompts), host.greedy(prompts, under), strict=True)
    ]


def _candidate(
    reader: PhraseReader, key: tuple[str, str], evidence: Sequence[Evidence], backed: Mapping[str, str]
) -> list[Statement]:
    """What the adapter answers most often, and otherwise than without it; nothing where that is never."""
    answers = Counter(e.under for e in evidence if e.under and e.under != e.without)
    if not answers:
        return []
    [(answer, support)] = answers.most_common(1)
    fact = Fact(subject=key[0], relation=key[1], object=answer)
    return [
        Statement(
            text=reader.say(fact),
            fact=fact,
            support=support,
            asked=len(evidence),
            source=backed.get(answer.casefold(), ""),
            evidence=tuple(evidence),
        )
    ]


def externalize_kv(host: Host, path: Path) -> list[str]:
    """The memories of a KV cache, regenerated from the token ids that it carries. Raises what loading it raises."""
    ids = host.load_kv(path).ids
    return [line for line in host.text_of(ids[len(host.head) :]).split("\n") if line.strip()]


def _backed(
    host: Host, reader: PhraseReader, folder: Path, memories: Sequence[MemCube]
) -> dict[tuple[str, str], dict[str, str]]:
    """By (subject, relation): what is said of it, and by which memory."""
    texts = [("card", text) for text in dict.fromkeys(t for x in lessons_of(host, folder) for t in x.memories)]
    facts = [(source, fact) for source, text in texts for fact in reader.facts(text)]
    facts += [(c.id, fact) for c in memories if isinstance(c.payload, Text) for fact in c.payload.facts]
    out: dict[tuple[str, str], dict[str, str]] = {}
    for source, fact in facts:
        out.setdefault((fact.subject, fact.relation), {})[fact.object.casefold()] = source
    return out
