"""The registry of policies: finds the maker of a policy by its name in the configuration."""

from __future__ import annotations

from collections.abc import Callable

from memos.config import Config
from memos.extensions import Registry
from memos.operation.policies.policy import Policy

POLICIES: Registry[Callable[[Config], Policy]] = Registry("memos.policies", "policy")
