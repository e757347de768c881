"""Scores the answers of a run and sums them up: a row for each system, form and category; knows no running.

What a clock says stands in `timed` alone: the rest is the same for the same answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from statistics import mean, median
from typing import Any

from memos.bench.dialogues import UNANSWERABLE
from memos.bench.qa.intervals import difference, interval
from memos.bench.qa.records import Record
from memos.bench.qa.refusals import is_refusal
from memos.bench.qa.scores import Scores, calibration, multiple_choice, scored
from memos.bench.qa.shown import OURS, Exhibit

RIGHT = 0.5  # F1 from which on an answer is taken for right, where that is asked
ALL = "all"  # a column: of every question that something answers
SHARES = {  # and what a table calls them
    "f1": "F1 as LoCoMo has it",
    "f1_words": "F1",
    "bleu1": "BLEU-1",
    "judged": "judged right",
    "retrieval": "retrieval",
    "correctness": "correctness",
    "coherence": "coherence",
}
COUNTS = {"tokens_mean": "tokens", "calls": "calls", "writer_tokens": "written tokens"}
PLAIN = ("none", "plaintext")  # forms of which a table says nothing
Row = dict[str, Any]  # a row of the report: JSON
_scored = lru_cache(maxsize=1 << 16)(scored)  # rows, totals, the page and a comparison ask for the same
Judged = Mapping[str, bool]  # by the id of a record: whether the judge takes its answer for right


@dataclass(frozen=True)
class Scoring:
    """A record with what its answer is worth. corrected: by the audited key."""

    record: Record
    scores: Scores
    corrected: Scores


def score_all(records: Sequence[Record]) -> list[Scoring]:
    """Those that were answered."""
    out = []
    for record in records:
        if not record.answer.failed:
            if record.choices:
                right = float(multiple_choice(record.answer.text, record.choices) == record.choices.index(record.gold))
                chosen = Scores(right, right, right, right, right, is_refusal(record.answer.text))
                out.append(Scoring(record, chosen, chosen))
                continue
            golds = record.gold, record.gold if record.corrected is None else record.corrected
            given, other = (_scored(record.answer.text, gold, record.category, record.set) for gold in golds)
            out.append(Scoring(record, given, other))
    return out


def rows_of(records: Sequence[Record], judged: Judged | None, seed: int) -> list[Row]:
    """A row for each system, form and category.

    f1: LoCoMo's, and f1_low, f1_high: 95 % of it, over conversations. f1_corrected: by the audited key. f1_words,
    bleu1: as A-Mem, mem0 and MemoryOS compute them. exact, contained: the key's answer is the answer, or in it.
    evidence_recall: share of the evidence that was shown; null where none is named. refused: share that says that
    nothing answers. judged: share that the judge takes for right; null without a judge that passed. tokens_mean: of the
    prompts. left_out: memories that did not fit. failed: questions without an answer, which no other figure counts.
    """
    scorings = {scoring.record.id: scoring for scoring in score_all(records)}
    of: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        of[record.system, record.via, record.category].append(record)
    return [
        _row(key, some, [scorings[r.id] for r in some if r.id in scorings], judged, seed) for key, some in of.items()
    ]


def _row(
    key: tuple[str, str, str], records: Sequence[Record], scorings: Sequence[Scoring], judged: Judged | None, seed: int
) -> Row:
    answers = [scoring.record.answer for scoring in scorings]

    def average(value: Callable[[Scoring], float]) -> float | None:
        return float(mean(map(value, scorings))) if scorings else None

    clusters = [scoring.record.conversation for scoring in scorings]
    band = interval([s.scores.f1 for s in scorings], clusters, seed) if scorings else None
    recalls = [r.evidence_recall for r in records if r.evidence_recall is not None]
    verdicts = [judged[s.record.id] for s in scorings if s.record.id in judged] if judged is not None else []
    return {
        **dict(zip(("system", "via", "category"), key, strict=True)),
        "questions": len(records),
        "f1": average(lambda s: s.scores.f1),
        "f1_low": band.low if band else None,
        "f1_high": band.high if band else None,
        "f1_corrected": average(lambda s: s.corrected.f1),
        "f1_words": average(lambda s: s.scores.f1_words),
        "bleu1": average(lambda s: s.scores.bleu1),
        "exact": average(lambda s: s.scores.exact),
        "contained": average(lambda s: s.scores.contained),
        "evidence_recall": mean(recalls) if recalls else None,
        "refused": average(lambda s: s.scores.refused),
        "judged": mean(verdicts) if verdicts else None,
        "tokens_mean": mean(answer.prompt_tokens for answer in answers) if answers else None,
        "model_calls": sum(answer.calls for answer in answers),
        "left_out": sum(answer.left_out for answer in answers),
        "failed": len(records) - len(scorings),
    }


def totals_of(records: Sequence[Record], seed: int) -> list[Row]:
    """For each system and form: F1 over the questions that something answers, with its interval, the share refused of
    those that nothing answers, how well confidence foretells that an answer is right, and what tells it from OURS."""
    scorings = score_all(records)
    of: dict[tuple[str, str], list[Scoring]] = defaultdict(list)
    for scoring in scorings:
        of[scoring.record.system, scoring.record.via].append(scoring)
    ours = {_question(s): s for s in of.get((OURS, "plaintext"), ())}
    return [{"system": system, "via": via, **_total(some, ours, seed)} for (system, via), some in of.items()]


def _total(some: Sequence[Scoring], ours: Mapping[tuple[str, str], Scoring], seed: int) -> Row:
    answerable = [s for s in some if not s.record.unanswerable]
    nothing = [s for s in some if s.record.unanswerable]
    values, clusters = [s.scores.f1 for s in answerable], [s.record.conversation for s in answerable]
    out: Row = {"questions": len(some)}
    if answerable:
        band = interval(values, clusters, seed)
        out |= {"f1": mean(values), "f1_low": band.low, "f1_high": band.high, "interval_over": band.over}
        out["f1_corrected"] = mean(s.corrected.f1 for s in answerable)
        out["refused_wrongly"] = float(mean(s.scores.refused for s in answerable))
    if nothing:
        out["refused_rightly"] = float(mean(s.scores.refused for s in nothing))
    sure = calibration([s.record.answer.confidence for s in answerable], [s.scores.f1 >= RIGHT for s in answerable])
    if sure:
        out["calibration"] = asdict(sure)
    pairs = [(s, ours[_question(s)]) for s in answerable if _question(s) in ours]
    if pairs and pairs[0][0] is not pairs[0][1]:
        where = [s.record.conversation for s, _ in pairs]
        told = difference([s.scores.f1 for s, _ in pairs], [o.scores.f1 for _, o in pairs], where, seed)
        out["beside_memos"] = {"difference": told.mean, "low": told.low, "high": told.high, "p": told.p}
    return out


def with_writer(totals: Sequence[Row], exhibits: Sequence[Exhibit]) -> list[Row]:
    """The totals, with what the systems' writing of the conversations took: calls of a model and their tokens, and how
    many turns were written."""
    turns = sum(exhibit.turns for exhibit in exhibits)
    out = []
    for row in totals:
        costs = [exhibit.writer[row["system"]] for exhibit in exhibits]
        spent = {"writer_calls": sum(c.calls for c in costs), "writer_tokens": sum(c.tokens for c in costs)}
        out.append({**row, "turns": turns, **spent})
    return out


def own_figure(report: dict[str, Any], system: str, category: str, measure: str) -> float | None:
    """calls: of one answer, and of writing one exchange of two turns, as a talk takes both; writer_tokens: of the
    latter. Of ALL: the mean over questions; of shares those that something answers."""
    rows = [row for row in report["rows"] if row["system"] == system and row["via"] in PLAIN]
    if category != ALL:
        return next((row.get(measure) for row in rows if row["category"] == category), None)
    answered = sum(row["questions"] - row["failed"] for row in rows)
    if measure in ("calls", "writer_tokens"):
        total = next((t for t in report["totals"] if t["system"] == system), None)
        if not total or not answered:
            return None
        exchanges = max(total["turns"] / 2, 1)
        if measure == "writer_tokens":
            return float(total["writer_tokens"] / exchanges)
        return float(sum(row["model_calls"] for row in rows) / answered + total["writer_calls"] / exchanges)
    if measure in SHARES:
        rows = [row for row in rows if row["category"] not in UNANSWERABLE]
    known = [(row[measure], row["questions"] - row["failed"]) for row in rows if row.get(measure) is not None]
    weight = sum(n for _, n in known)
    return sum(value * n for value, n in known) / weight if weight else None


def _question(scoring: Scoring) -> tuple[str, str]:
    return scoring.record.conversation, scoring.record.id.rpartition("/")[2]


def timed(rows: Sequence[Row], records: Sequence[Record]) -> list[Row]:
    """The rows, with what a clock says: ttft_ms_p50, until the first token (without a language model, and of an
    endpoint: until the answer)."""
    of: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for record in records:
        if not record.answer.failed:
            of[record.system, record.via, record.category].append(record.answer.ttft_ms)
    took = [of[row["system"], row["via"], row["category"]] for row in rows]
    return [{**row, "ttft_ms_p50": median(ms) if ms else None} for row, ms in zip(rows, took, strict=True)]


def failures_of(records: Sequence[Record]) -> list[dict[str, str]]:
    """Every question without an answer, and why."""
    return [
        {
            "system": r.system,
            "via": r.via,
            "conversation": r.conversation,
            "question": r.question,
            "why": r.answer.failed,
        }
        for r in records
        if r.answer.failed
    ]
