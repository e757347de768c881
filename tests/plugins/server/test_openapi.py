"""Requests made from the OpenAPI, right and wrong ones: the server fails at none."""

from __future__ import annotations

import pytest
import schemathesis
import schemathesis.specs.openapi.schemas  # now, as pytest rewrites it: CPython 3.11 fails at that beside threads
from hypothesis import HealthCheck, given, settings
from schemathesis import checks
from schemathesis.specs.openapi.checks import status_code_conformance

from memos import Memory


def examine(url: str, memory: Memory, user: str, examples: int) -> set[str]:
    """Make requests to every route; the routes."""
    memory.search("anything", user_id=user)  # what the server loads in the background is loaded: see above
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    key = memory.kernel.services.governing.add_key(user)[0]
    seen = set()
    for operation in schema.get_all_operations():
        case_of = operation.ok()
        seen.add(case_of.label)

        @settings(
            max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=[*HealthCheck]
        )
        @given(case=case_of.as_strategy())
        def ask(case: schemathesis.Case) -> None:
            response = case.call(headers={"Authorization": f"Bearer {key}"})
            checks_of = [checks.not_a_server_error, status_code_conformance]
            case.validate_response(response, checks=checks_of)

        ask()
    return seen


def test_no_request_makes_the_server_fail(url: str, memory: Memory, ada: str) -> None:
    assert len(examine(url, memory, ada, 2)) > 50


@pytest.mark.slow
def test_no_request_of_many_makes_the_server_fail(url: str, memory: Memory, ada: str) -> None:
    examine(url, memory, ada, 100)
