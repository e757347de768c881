"""The noun refuses what cannot be ordered."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from memos.cube import Form, Header, MemCube, Rights, Text

NOON = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize("field", ["created", "said"])
def test_a_time_without_a_zone_is_refused(field: str) -> None:
    with pytest.raises(ValidationError, match=f"{field}\n.*timezone"):
        Header(**{"created": NOON, "said": NOON, field: datetime(2025, 3, 1, 12)})


def test_times_of_different_zones_are_ordered() -> None:
    """Half past one in Oslo, an hour ahead, is before one in London; what was not said is as old as its keeping."""

    def cube(id: str, said: datetime | None) -> MemCube:
        header = Header(created=NOON, said=said)
        return MemCube(id=id, form=Form.PLAINTEXT, rights=Rights(owner="ada"), header=header, payload=Text(text=id))

    oslo = cube("oslo", datetime(2025, 3, 1, 13, 30, tzinfo=timezone(timedelta(hours=1))))
    london = cube("london", datetime(2025, 3, 1, 13, tzinfo=timezone.utc))
    unsaid = cube("unsaid", None)
    again = [MemCube.model_validate_json(one.model_dump_json()) for one in (london, oslo, unsaid)]
    assert [one.id for one in sorted(again, key=lambda one: one.order)] == ["unsaid", "oslo", "london"]


def test_a_statement_is_compared_without_its_day() -> None:
    def cube(text: str, **header: object) -> MemCube:
        told = Header(created=NOON, speaker="Ann", **header)
        return MemCube(id="a", form=Form.PLAINTEXT, rights=Rights(owner="ada"), header=told, payload=Text(text=text))

    assert cube("Ann, 1 March 2025: I moved yesterday.", said=NOON).words == "Ann: I moved yesterday."
    assert cube("Ann: I moved.", said=NOON).words == cube("Ann: I moved.").words == "Ann: I moved."
