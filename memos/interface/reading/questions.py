"""What a question wants beside its matter: whose words, a reply under standing instructions, or how things went."""

from __future__ import annotations

import re

from memos.ops import Wants

_OVERVIEW = re.compile(
    r"\b(?:summar(?:y|ies|i[sz]e)\w*|overview|recap|in (?:the )?order\b|order in which|over time"
    r"|how (?:\w+ ){1,8}(?:developed|evolved|progressed|changed))|总结|概括|回顾|先后|顺序",
    re.IGNORECASE,
)
_BOTH_SIDES = re.compile(r"\b(?:summar|overview|recap)|总结|概括|回顾", re.IGNORECASE)
_REPLIED = re.compile(  # "what did you recommend to me?"
    r"\b(?:you(?:['’]ve| have| had)?|did you|have you) (?:\w+ )?(?:recommend|suggest|advise|tell|told|say|said|mention"
    r"|explain|propose|give|gave|list|answer|show)\w*|你(?:推荐|建议|说|告诉|提到)",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"\b(?:how (?:can|do|should|would|could|might) (?:i|we)\b|(?:can|could|would) you\b|help me|suggest|recommend"
    r"|what (?:are|should|would|steps|tools)|show me|i(?:['’]m| am) (?:planning|looking|thinking|working|about|trying)"
    r"|explain|walk me through|which|when i(?:['’]m| am))|怎么|如何|帮我|请",
    re.IGNORECASE,
)

_BETWEEN_US = re.compile(r"\b(?:i|me|my|we|us|our|you|your)\b|我|你", re.IGNORECASE)  # not about two others


def wants(question: str) -> Wants:
    """An overview is of both sides where it sums up, and else of what the user brought up."""
    if _OVERVIEW.search(question):
        return Wants(overview=True, side="" if _BOTH_SIDES.search(question) else "user")
    is_request = bool(_REQUEST.search(question) and _BETWEEN_US.search(question))
    return Wants(side="assistant" if _REPLIED.search(question) else "user", request=is_request)
