"""Tiers are what replaying the vault gives, whatever happened meanwhile. Real vault, embedder and policy."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memos.config import EmbedderConfig, MemoryOSConfig
from memos.cube import Form, Header, MemCube, Namespace, Rights, State, Text
from memos.errors import InputError
from memos.infrastructure.host.encoders.embedder import Embedder
from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.finding.catalog import View
from memos.operation.finding.mem_operator import MemOperator
from memos.plugins.policies.memoryos import MemoryOSPolicy, MemoryOSTiers
from memos.plugins.replay import Replay

LIVE = (State.GENERATED, State.ACTIVATED)
NOON = datetime(2025, 5, 22, 12, tzinfo=timezone.utc)
ANN = View("ann", lambda namespace, rights: namespace.user_id == "ann")
ALL = View("all", lambda namespace, rights: True)
SAID = (
    "I went sailing on the lake.", "The boat needs a new engine.", "Was the lake cold?", "I baked bread on Sunday.",
    "The oven is broken again.", "My cat caught a mouse.", "The cat sleeps on the sofa.", "We sailed to the island.",
)  # fmt: skip
SMALL = MemoryOSConfig(stm_pages=2, segments=3, tau=4, knowledge=4, theta=0.4)


class CountingPolicy(MemoryOSPolicy):
    """Knows how often it was replayed from the beginning."""

    began = 0

    def tiers(self) -> MemoryOSTiers:
        self.began += 1
        return super().tiers()


class OneByOne(Embedder):
    """The same text gives the same bits, whatever it is embedded with: in a larger batch sums are rounded otherwise."""

    def read(
        self, texts: Sequence[str], spans: Sequence[tuple[int, int]] | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        read = super().read
        return [one for n in range(len(texts)) for one in read(texts[n : n + 1], spans and spans[n : n + 1])]


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[MemVault]:
    with MemVault(tmp_path / "vault") as opened:
        yield opened


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return OneByOne(EmbedderConfig())


def cube(n: int, text: str, user: str = "ann", version: int = 1, **header: Any) -> MemCube:
    """Kept n seconds after noon."""
    kept = Header(created=NOON + timedelta(seconds=n), **({"thread": f"t{n % 2}", "speaker": f"s{n % 3}"} | header))
    return MemCube(
        id=f"c{n:03}", version=version, form=Form.PLAINTEXT, namespace=Namespace(user_id=user),
        rights=Rights(owner=user), header=kept, payload=Text(text=text),
    )  # fmt: skip


def replay(vault: MemVault, embedder: Embedder, policy: MemoryOSPolicy | None = None) -> Replay:
    return Replay(vault, MemOperator(vault, embedder, LIVE), policy or MemoryOSPolicy(SMALL))


def shape(replayed: Replay, view: View = ANN) -> dict[str, Any]:
    """All that the tiers hold."""
    made = replayed.tiers(view)
    assert isinstance(made, MemoryOSTiers)
    return {
        "short": [(page.number, page.chain, page.notes) for page in made.short],
        "middle": [
            (t.number, t.visits, t.last, t.keywords, t.vector.tobytes(), [p.notes for p in t.pages], len(t.fresh))
            for t in made.topics.values()
        ],
        "profile": dict(made.profile),
        "knowledge": list(made.knowledge),
    }


def known(found: dict[str, Any]) -> set[str]:
    pages = [notes for _, _, notes in found["short"]] + [notes for t in found["middle"] for notes in t[5]]
    return {note.id for notes in pages for note in notes} | {note.id for note in found["knowledge"]}


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_up_is_what_is_replayed_anew(vault: MemVault, embedder: Embedder, seed: int) -> None:
    """Memories come, are used, edited, archived and deleted, in any order."""
    rng = random.Random(seed)
    kept, there = replay(vault, embedder), dict[str, MemCube]()
    for n in range(36):
        what = rng.choice(["keep"] * 5 + ["use"] * 4 + ["edit", "archive", "delete"]) if there else "keep"
        old = rng.choice([*there.values()]) if there else None
        if what == "keep" or old is None:
            new = cube(n, f"{rng.choice(SAID)} {n}", user=rng.choice(["ann", "ann", "ann", "bob"]))
            vault.put(new)
            there[new.id] = new
        elif what == "use":
            vault.usage.record(rng.sample([*there], min(3, len(there))), NOON + timedelta(seconds=n))
        elif what == "edit":
            there[old.id] = replaced = old.model_copy(
                update={"version": old.version + 1, "payload": Text(text=rng.choice(SAID))}
            )
            vault.put(replaced)
        elif what == "archive":
            vault.set_state(old.id, State.ARCHIVED, "test")
            del there[old.id]
        else:
            vault.delete([old.id])
            del there[old.id]
        if n % 3 == 0:
            assert shape(kept) == shape(replay(vault, embedder))
    assert shape(kept) == shape(replay(vault, embedder))
    assert known(shape(kept)) <= {one.id for one in there.values() if one.namespace.user_id == "ann"}


def test_what_is_new_is_replayed_alone(vault: MemVault, embedder: Embedder) -> None:
    """Even where it changes the vectors of what was said just before it."""
    policy = CountingPolicy(SMALL)
    kept = replay(vault, embedder, policy)
    for n in range(10):
        vault.put(cube(n, SAID[n % len(SAID)], thread="t"))
        vault.usage.record(["c000"], NOON + timedelta(seconds=n))
        kept.tiers(ANN)
    assert policy.began == 1
    vault.put(cube(99, "What Bob says is another's.", user="bob"))
    kept.tiers(ANN)
    assert policy.began == 1
    vault.delete(["c004"])
    kept.tiers(ANN)
    assert policy.began == 2


def test_a_deletion_leaves_no_trace(vault: MemVault, embedder: Embedder) -> None:
    """Not in the segment that it was in, nor in the heat of any; as if it had never been said."""
    for n in range(8):
        vault.put(cube(n, SAID[n], thread="t"))
    vault.usage.record(["c001", "c003"], NOON + timedelta(seconds=20))
    kept = replay(vault, embedder)
    assert "c001" in known(shape(kept))
    vault.delete(["c001"])
    after = shape(kept)
    assert "c001" not in known(after)
    with MemVault(vault.path.parent / "other") as other:
        for n in (0, *range(2, 8)):
            other.put(cube(n, SAID[n], thread="t"))
        other.usage.record(["c003"], NOON + timedelta(seconds=20))
        assert after == shape(replay(other, embedder))


def test_what_was_said_earlier_and_comes_later_takes_its_place_in_time(vault: MemVault, embedder: Embedder) -> None:
    kept = replay(vault, embedder)
    for n in (0, 2, 4, 6):
        vault.put(cube(n, SAID[n]))
    shape(kept)
    vault.put(cube(3, SAID[3]))
    vault.usage.record(["c000"], NOON + timedelta(seconds=1))
    assert shape(kept) == shape(replay(vault, embedder))


def test_each_view_has_tiers_of_its_own(vault: MemVault, embedder: Embedder) -> None:
    for n in range(6):
        vault.put(cube(n, SAID[n], user="ann" if n % 2 else "bob"))
    kept = replay(vault, embedder)
    assert known(shape(kept)) == {"c001", "c003", "c005"}
    assert known(shape(kept, ALL)) == {f"c00{n}" for n in range(6)}


def test_a_search_gives_the_nearest_and_a_request_what_the_tiers_are_worth(vault: MemVault, embedder: Embedder) -> None:
    for n in range(8):
        vault.put(cube(n, SAID[n], thread=""))
    kept = replay(vault, embedder)
    near = [one.id for one in kept.search("Which animal sleeps on the sofa?", 3, ANN, ANN)]
    assert near[0] == "c006" and len(near) == 3
    joined = kept.search("Which animal sleeps on the sofa?", None, ANN, ANN)
    assert [one.id for one in joined[:2]] == ["c007", "c006"] and all("short" in one.why for one in joined[:2])
    lately = replace(ANN, since=NOON + timedelta(seconds=7))
    assert [one.id for one in kept.search("Which animal sleeps on the sofa?", 3, ANN, lately)] == ["c007"]
    with pytest.raises(InputError, match="the query is empty"):
        kept.search(" ", 3, ANN, ANN)
