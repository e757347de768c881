"""What a call takes of a serving process, of its database and of the vault's one turn to write; knows no queues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memos.errors import InputError

Call = Literal["add", "search", "chat"]
CALLS: tuple[Call, ...] = ("add", "search", "chat")


class CallCost(BaseModel):
    """Seconds that one call takes, as measured alone and with others.

    A call goes through two phases: beside others, and within the turn to write, which one call of a vault has at a
    time. `turn` is the second one's share of it all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    own_s: float = Field(ge=0, description="CPU of the process, whatever else goes on")
    shared_s: float = Field(ge=0, description="CPU of the process that calls at once share: n of them take 1/n each")
    later_s: float = Field(ge=0, description="CPU of the process after the reply, as for vectors")
    database_s: float = Field(ge=0, description="CPU of the database")
    waits_s: float = Field(ge=0, description="without CPU, as for a disk's sync")
    turn: float = Field(ge=0, le=1, description="share of the call for which it has the turn to write")
    spread: tuple[float, ...] = Field(
        (1.0,), min_length=1, description="how calls differ: time of a call over the mean, at equal steps of rank"
    )


class FleetCosts(BaseModel):
    """Of one machine and model. client_s: CPU of who asks, where that is on the same machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    calls: dict[Call, CallCost]
    client_s: float = Field(0.0, ge=0)


PROCESS_BYTES = 700 << 20  # of a server with the built-in model and no memories: docs/how-to/serve.md
BYTES_IN_PROCESS, BYTES_IN_DATABASE = 12_000, 24_000  # for each memory, a turn of LoCoMo's length: docs/benchmarks.md


SHIPPED = Path(__file__).parent / "costs.json"  # memos-small on 2 cores with PostgreSQL 16 beside it: docs/scale.md


def read_costs(path: Path) -> FleetCosts:
    """Those of a report that `memos simulate fleet --measure --json` wrote. Raises InputError."""
    try:
        return FleetCosts.model_validate(json.loads(path.read_text("utf-8"))["costs"])
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        raise InputError(
            f"{path} has no costs of calls ({str(error).splitlines()[0]}); give the file that `memos simulate fleet "
            "--measure --json FILE` wrote"
        ) from None
