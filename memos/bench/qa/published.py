"""The figures that papers report of an answer, as their published code computes them; held to it by a test.

F1 is LoCoMo's (snap-research/locomo, task_eval/evaluation.py). The F1 of sets of words and BLEU-1 are A-Mem's, which
mem0's evaluation and others took over (mem0ai/mem0, evaluation/metrics/utils.py). The code here is our own.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import regex

if TYPE_CHECKING:  # nltk takes seconds to import: it is imported when the first answer is scored
    from nltk.tokenize.destructive import NLTKWordTokenizer
    from nltk.tokenize.punkt import PunktSentenceTokenizer

REFUSALS = ("no information available", "not mentioned")  # what LoCoMo takes for a refusal
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SKIPPED = regex.compile(r"\b(a|an|the|and)\b")  # `regex` as there: `re` has other bounds beside combining accents
_STOPS = str.maketrans(dict.fromkeys(".,!?", " "))

# What `nltk.word_tokenize` takes for an abbreviation: the words of its English model punkt_tab (Jan Strunk, MIT
# licence), which it would download. In lower-cased text no more of that model matters but the words that may follow a
# number or an initial in a sentence of their own: it has seen just these start one, and never with a capital.
_ABBREVIATIONS = """
a.a a.c a.d a.g a.h a.m a.m.e a.s a.t adm ala ariz aug ave b.f b.v bros c c.i.t c.o.m.b c.v calif chg cie co col colo
conn corp cos ct d d.c d.h d.w dec dr e e.f e.h e.l e.m f f.g f.j feb fla fri ft g g.d g.f g.k ga gen h h.c h.f h.m
i.m.s ill inc j.b j.c j.j j.k j.p j.r jan jr k kan ky l l.a l.f l.p lt ltd m m.b.a m.d.c m.j maj messrs mg mich minn mr
mrs ms n n.c n.d n.h n.j n.m n.v n.y nev nov oct ok okla ore p p.a.m p.m pa ph.d prof r r.a r.h r.i r.j r.k r.t rep
reps s s.a s.a.y s.c s.g s.p.a s.s sen sep sept sr st sw t t.j tenn tues u.k u.n u.s u.s.a u.s.s.r v va vs vt w w.c w.r
w.va w.w wash wed wis yr
"""
_STARTERS = "administrators b-week r-revised z-holiday"


def normalised(text: str) -> str:
    """Lower-case words without punctuation, articles and "and", as LoCoMo compares them."""
    return " ".join(_SKIPPED.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def locomo_f1(answer: str, gold: str, category: str) -> float:
    """LoCoMo's figure: of stemmed words; where nothing can be answered, whether the answer says so in its words."""
    match category:
        case "adversarial":
            return float(any(words in answer.lower() for words in REFUSALS))
        case "multi-hop":  # a list: of each part of the gold answer, the best part of the answer
            parts = answer.split(",")
            return float(np.mean([max(token_f1(part, wanted) for part in parts) for wanted in gold.split(",")]))
        case "open-domain":
            return token_f1(answer, open_gold(gold))
        case _:
            return token_f1(answer, gold)


def open_gold(gold: str) -> str:
    """The answer to an open-domain question without the reasons that LoCoMo gives behind a semicolon."""
    return gold.split(";")[0].strip()


def token_f1(answer: str, gold: str) -> float:
    stem = _stemmer()
    answered, wanted = (Counter(map(stem, normalised(text).split())) for text in (answer, gold))
    return _f1((answered & wanted).total(), answered.total(), wanted.total())


def words_f1(answer: str, gold: str) -> float:
    """A-Mem's F1, of sets of words."""
    answered, wanted = (set(text.lower().translate(_STOPS).split()) for text in (answer, gold))
    return _f1(len(answered & wanted), len(answered), len(wanted))


def bleu1(answer: str, gold: str) -> float:
    """A-Mem's BLEU-1: the share of words that the gold answer has too, less where the answer is shorter. Its smoothing
    does nothing to single words."""
    answered, wanted = tokens(answer), tokens(gold)
    if not answered:
        return 0.0
    brevity = math.exp(min(0.0, 1 - len(wanted) / len(answered)))
    return brevity * (Counter(answered) & Counter(wanted)).total() / len(answered)


@lru_cache(4096)  # a gold answer is compared with those of many systems
def tokens(text: str) -> tuple[str, ...]:
    """What `nltk.word_tokenize` makes of the lower-case text, without the model that it would download."""
    words = _word_tokenizer()
    return tuple(token for sentence in _sentences().tokenize(text.lower()) for token in words.tokenize(sentence))


def _f1(common: int, answered: int, wanted: int) -> float:
    if not common:
        return 0.0
    precision, recall = common / answered, common / wanted
    return 2 * precision * recall / (precision + recall)


@cache
def _stemmer() -> Callable[[str], str]:
    """Porter's with nltk's extensions: PyStemmer's stems differ."""
    from nltk.stem.porter import PorterStemmer

    return cache(PorterStemmer().stem)


@cache
def _word_tokenizer() -> NLTKWordTokenizer:
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer()


@cache
def _sentences() -> PunktSentenceTokenizer:
    from nltk.tokenize.punkt import _ORTHO_BEG_LC, PunktParameters, PunktSentenceTokenizer

    model = PunktParameters()
    model.abbrev_types.update(_ABBREVIATIONS.split())
    for word in _STARTERS.split():
        model.add_ortho_context(word, _ORTHO_BEG_LC)
    return PunktSentenceTokenizer(model)
