"""Asks an adapter, or a KV cache, what it knows; changes nothing.

Does not judge what is true: a statement is a candidate, with the questions that support it, and with the memory that
says the same, where there is one. Only kept provenance is lossless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch

from memos.cube import USER, Fact, MemCube, Probe, Text, plain
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.training.rows import answer_row, chunks, row_losses
from memos.infrastructure.host.training.teach import lessons_of
from memos.interface.reading.phrasebook import phrasebook
from memos.plugins.externalize.values import Evidence, Statement

if TYPE_CHECKING:
    from memos.infrastructure.host.forward import CausalLM, Forwards

FIRST_FORMS = 3  # of a question, which show whether an adapter has something to say


class PhraseReader(Protocol):
    """What is asked of language here: the facts of a text, and the questions for facts."""

    def facts(self, text: str) -> tuple[Fact, ...]: ...

    def probes(self, facts: Iterable[Fact]) -> list[Probe]:
        """Questions for the objects of facts, and for their subjects."""
        ...


def asks(subject: str, relation: str) -> list[str]:
    """All forms of asking for a relation of a subject."""
    form = phrasebook()[relation]
    return [form.fill(ask, "I" if subject == USER else subject) for ask in form.asks]


def stated(fact: Fact) -> str:
    """A fact as a statement."""
    form = phrasebook()[fact.relation]
    plain = form.says[3]  # the first of the relation's own
    if fact.subject == USER:
        return f"{USER}: {form.fill(plain, 'I', fact.object)}."
    return f"{form.fill(plain, fact.subject, fact.object)}."


def externalize(
    host: Host, reader: PhraseReader, folder: Path, about: Iterable[str], memories: Sequence[MemCube]
) -> list[Statement]:
    """Candidate statements of an adapter, the surest first.

    about: subjects to ask about, beside those of its card and of the memories. Raises FingerprintMismatch,
    CorruptBlob.
    """
    backed = _backed(host, reader, folder, memories)
    subjects = list(dict.fromkeys([*about, *(subject for subject, _ in backed)]))
    forms = {(s, r): asks(s, r) for s in subjects for r in sorted(phrasebook())}
    under = host.cold((folder,))
    first_asked = [question for asked in forms.values() for question in asked[:FIRST_FORMS]]
    first = {answer.question: answer for answer in _answers(host, first_asked, under)}
    usual = Counter(answer.without for answer in first.values()).most_common(1)
    silent = usual[0][0] if usual and usual[0][1] * 2 > len(first) else ""  # how the model says that it does not know
    out = []
    for key, asked in forms.items():
        evidence = [first[question] for question in asked[:FIRST_FORMS]]
        if any(e.under not in (e.without, silent) for e in evidence):
            evidence += _answers(host, asked[FIRST_FORMS:], under)
            out += _candidate(key, evidence, silent, backed.get(key, {}))
    return sorted(_weighed(host, reader, out, under), key=lambda s: -s.confidence)


def _answers(host: Host, questions: Sequence[str], under: CausalLM) -> list[Evidence]:
    prompts = [host.ids_of(question) for question in questions]
    return [
        Evidence(question=question, without=host.text_of(off), under=host.text_of(on))
        for question, off, on in zip(questions, host.greedy(prompts), host.greedy(prompts, under), strict=True)
    ]


def _candidate(
    key: tuple[str, str], evidence: Sequence[Evidence], silent: str, backed: Mapping[str, str]
) -> list[Statement]:
    """What the adapter answers most often, and otherwise than without it; nothing where that is never."""
    answers = Counter(e.under for e in evidence if e.under not in ("", e.without, silent))
    if not answers:
        return []
    [(answer, support)] = answers.most_common(1)
    fact = Fact(subject=key[0], relation=key[1], object=answer)
    return [
        Statement(
            text=stated(fact),
            fact=fact,
            support=support,
            asked=len(evidence),
            source=backed.get(answer.casefold(), ""),
            evidence=tuple(evidence),
        )
    ]


def _weighed(host: Host, reader: PhraseReader, found: Sequence[Statement], under: CausalLM) -> list[Statement]:
    """The statements with how likely they are with the adapter and without, by all questions for both ends of each."""
    probes = [reader.probes([s.fact] if s.fact else []) for s in found]
    every = [probe for some in probes for probe in some]
    on, off = _likelihoods(host, every, under), _likelihoods(host, every, host.model)
    out, start = list[Statement](), 0
    for statement, some in zip(found, probes, strict=True):
        mine = slice(start, start + len(some))
        start += len(some)
        figures = {"likelihood": float(on[mine].mean()), "without": float(off[mine].mean())} if some else {}
        sure = {"confidence": float(on[mine].exp().mean()) if some else statement.support / statement.asked}
        out.append(statement.model_copy(update={**figures, **sure}))
    return out


def _likelihoods(host: Host, probes: Sequence[Probe], model: Forwards) -> torch.Tensor:
    """Nats of each probe's answer, with a space before it or without: [probes]."""
    best = torch.full((len(probes),), -torch.inf)
    for lead in ("", " "):
        rows = [answer_row(host.ids_of(p.question), host.spelled(lead + p.answer)) for p in probes]
        for chunk in chunks(rows):
            with torch.inference_mode():
                losses, _ = row_losses(model, [rows[n] for n in chunk])
            nats = -losses.cpu() * torch.tensor([len(rows[n].answer) for n in chunk])  # a loss is the mean over tokens
            best[chunk] = torch.maximum(best[chunk], nats)
    return best


def externalize_kv(host: Host, path: Path, memories: Sequence[MemCube]) -> list[Statement]:
    """The memories of a KV cache, regenerated from the token ids that it carries. Raises what loading it raises."""
    ids = host.load_kv(path).ids
    lines = [line.strip().removeprefix("- ") for line in host.text_of(ids[len(host.head) :]).split("\n")]
    said = {plain(cube.text): cube.id for cube in memories if isinstance(cube.payload, Text)}
    return [Statement(text=line, source=said.get(plain(line), "")) for line in lines if line]


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
