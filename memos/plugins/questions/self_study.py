"""Asks the model itself for questions about a memory that it is to learn (self-study, 2506.06266).

For a model that follows instructions, and memories in which the reader's rules find nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memos.config import DecodeConfig
from memos.cube import Probe
from memos.infrastructure.host.request import Request

if TYPE_CHECKING:
    from memos.infrastructure.host.host import Host

_ASK = (
    "Write {n} different questions that the memory above answers. Give each on a line of its own, followed by | and "
    "its answer in a few words taken from the memory. Each question must name whom or what it is about."
)
_AGAIN = "Ask the same question in {n} other ways, each on a line of its own, without answering it: {question}"
_LIST_MARK = re.compile(r"^\s*(?:[-*•]|\(?\d+[.):]|Q\d*[.:])?\s*")  # of a list, which models like to write
_LONG_ANSWER = DecodeConfig(max_new_tokens=400)


def study(host: Host, memory: str, questions: int, forms: int) -> list[Probe]:
    """Up to so many questions of a memory, each in up to `forms` other forms, of which every other one is held out;
    none where the model does not follow."""
    out: dict[str, Probe] = {}
    written = [line.partition("|") for line in _lines(host, _ASK.format(n=questions), (memory,))]
    pairs = [(question.strip(), answer.strip()) for question, _, answer in written]
    for question, answer in [(q, a) for q, a in pairs if q.endswith("?") and a][:questions]:
        again = [line for line in _lines(host, _AGAIN.format(n=forms, question=question)) if line.endswith("?")]
        for n, form in enumerate(dict.fromkeys((question, *again[:forms]))):
            out.setdefault(form, Probe(question=form, answer=answer, held_out=n % 2 == 1))
    return list(out.values())


def _lines(host: Host, instruction: str, memories: Sequence[str] = ()) -> list[str]:
    request = Request(({"role": "user", "content": instruction},), tuple(memories))
    if not host.fits(request, _LONG_ANSWER):
        return []
    written = host.answer(request, _LONG_ANSWER).text
    return [line for line in (_LIST_MARK.sub("", line).strip() for line in written.splitlines()) if line]
