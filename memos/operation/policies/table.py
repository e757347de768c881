"""Policies by name: the one place where they are told apart."""

from __future__ import annotations

from collections.abc import Callable

from memos.config import Config, PolicyName
from memos.errors import InputError
from memos.operation.policies.baselines import FULL_CONTEXT, KEYWORDS, LRU, PLAIN_RAG, RECENCY
from memos.operation.policies.memoryos import MemoryOSPolicy
from memos.operation.policies.memos import MemosPolicy
from memos.operation.policies.policy import Policy

POLICIES: dict[PolicyName, Callable[[Config], Policy]] = {
    "memos": lambda config: MemosPolicy(config.scheduler, config.retrieval),
    "memoryos": lambda config: MemoryOSPolicy(config.memoryos),
    "plain-rag": lambda config: PLAIN_RAG,
    "keywords": lambda config: KEYWORDS,
    "recency": lambda config: RECENCY,
    "lru": lambda config: LRU,
    "full-context": lambda config: FULL_CONTEXT,
}


def policy(name: str, config: Config) -> Policy:
    """The policy of that name, as configured. Raises InputError."""
    made = {str(known): make for known, make in POLICIES.items()}.get(name)
    if made is None:
        raise InputError(f"there is no policy {name!r}; give one of {', '.join(POLICIES)}")
    return made(config)
