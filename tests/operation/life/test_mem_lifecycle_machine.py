"""The life of cubes under random moves, edits, deletions, restores and clocks, over a real vault."""

from __future__ import annotations

import itertools
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from memos.config import AgeingConfig, LifecycleConfig
from memos.cube import ANSWERING, GONE, Blob, Form, Header, MemCube, Namespace, Rights, Source, State, Text, new_id
from memos.errors import BadTransition, Conflict, InputError, NotFound
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.store import transactions as vault_clock
from memos.operation.finding.catalog import View
from memos.operation.finding.mem_operator import MemOperator
from memos.operation.life.forgetting import Ageing
from memos.operation.life.mem_lifecycle import ALLOWED, MemLifecycle
from memos.operation.life.time_machine import Restored, restore
from tests.doubles import Even

LIVE = tuple(state for state in State if state not in GONE)
ADA = Namespace(user_id="ada")
VIEW = View("ada", lambda *_: True)
RULES = LifecycleConfig(
    archive_after_idle_days=20, expire_after_archived_days=40, kinds={"draft": AgeingConfig(generated_ttl_days=2)}
)
TABLES = {"heads": "id", "versions": "id", "transitions": "id", "usage": "id", "vectors": "id", "changes": "id"}
TABLES |= {"sources": "source_id", "snapshot_cubes": "id"}
DAYS = st.integers(1, 30)
WORDS = st.sampled_from(["oak", "elm", "fir"])  # few, so that an edit often says again what was said before


class Life(RuleBasedStateMachine):
    """What a rule refuses, it refuses by a named error and changes nothing."""

    ids = Bundle("ids")
    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.time = datetime(2025, 1, 1, tzinfo=timezone.utc)
        self.patch.setattr(vault_clock, "clock", self._tick)
        self.patch.setattr(vault_clock.log, "disabled", True)  # of clocks that go back, here they often do
        self.open()
        self.deleted: set[str] = set()
        self.seen: dict[str, tuple[list[Any], list[Any]]] = {}
        self.made_of: dict[str, list[Any]] = {}
        self.names = (f"snapshot {n}" for n in itertools.count())

    def _tick(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return self.time

    def open(self) -> None:
        self.vault = MemVault(Path(self.folder.name))
        self.life = MemLifecycle(self.vault)
        self.ageing = Ageing(self.vault, self.life, RULES, {})
        self.operator = MemOperator(self.vault, Even(), ANSWERING)

    def teardown(self) -> None:
        self.operator.close()
        self.vault.close()
        self.patch.undo()
        self.folder.cleanup()

    def restored(self, name: str) -> Restored:
        return restore(self.vault, self.life, ADA, name)

    def refused(self, call: Any) -> bool:
        before = self.said()
        try:
            call()
        except (BadTransition, Conflict, NotFound, InputError):
            assert self.said() == before
            return True
        return False

    def said(self) -> dict[str, tuple[Any, State]]:
        """No way leads back to generated, so it counts as activated."""
        found = ((c.id, c.payload, c.state) for c in self.vault.cubes())
        return {id: (said, State.ACTIVATED if state is State.GENERATED else state) for id, said, state in found}

    @rule(target=ids, words=WORDS, kind=st.sampled_from(["fact", "draft"]), days=st.none() | DAYS)
    def tell(self, words: str, kind: str, days: int | None) -> str:
        now = self.vault.now()
        header = Header(created=now, kind=kind, expires=None if days is None else now + timedelta(days=days))
        id = new_id()
        cube = MemCube(
            id=id,
            form=Form.PLAINTEXT,
            namespace=ADA,
            rights=Rights(owner="ada"),
            header=header,
            payload=Text(text=words),
        )
        return self.life.create(cube).id

    @rule(target=ids, sources=st.lists(ids, min_size=1, max_size=2, unique=True))
    def promote(self, sources: list[str]) -> Any:
        made = multiple()

        def publish() -> None:
            nonlocal made
            cubes = self.vault.at(sources)
            cubes = [c for c in cubes if c.state in LIVE] or cubes
            if not cubes:
                return
            with self.vault.blobs.staging() as path:
                path.write_bytes("".join(sources).encode())
                sha256, size = self.vault.blobs.store(path)
                cube = cubes[0].model_copy(
                    update={
                        "id": new_id(),
                        "version": 1,
                        "state": State.GENERATED,
                        "form": Form.ACTIVATION,
                        "header": Header(created=self.vault.now()),
                        "payload": Blob(sha256=sha256, bytes=size, fingerprint="host"),
                        "sources": tuple(Source(id=c.id, version=c.version) for c in cubes),
                    }
                )
                made = self.life.publish(cube).id
                self.made_of[made] = [c.payload for c in cubes]

        self.refused(publish)
        return made

    @rule(target=ids, sources=st.lists(ids, min_size=1, max_size=2, unique=True), words=st.lists(WORDS, min_size=1))
    def merge(self, sources: list[str], words: list[str]) -> Any:
        """One of many, or many of one."""
        made: list[MemCube] = []

        def publish() -> None:
            cubes = self.vault.at(sources)
            pins = tuple(Source(id=c.id, version=c.version) for c in cubes)
            header = Header(created=self.vault.now(), origin="merge")
            made.extend(
                self.life.merge(
                    [
                        MemCube(
                            id=new_id(),
                            form=Form.PLAINTEXT,
                            namespace=ADA,
                            rights=Rights(owner="ada"),
                            header=header,
                            payload=Text(text=text),
                            sources=pins,
                        )
                        for text in words[:2]
                    ]
                    if cubes
                    else []
                )
            )

        self.refused(publish)
        return multiple(*(cube.id for cube in made))

    @rule(id=ids)
    def unmerge(self, id: str) -> None:
        self.refused(lambda: self.life.unmerge(id))

    @rule(id=ids, words=WORDS)
    def edit(self, id: str, words: str) -> None:
        self.refused(lambda: self.life.edit(id, Text(text=words)))

    @rule(id=ids, version=st.integers(1, 3))
    def rollback(self, id: str, version: int) -> None:
        self.refused(lambda: self.life.rollback(id, version))

    @rule(id=ids, days=st.none() | DAYS)
    def renew(self, id: str, days: int | None) -> None:
        self.refused(
            lambda: self.life.edit(id, expires=None if days is None else self.vault.now() + timedelta(days=days))
        )

    @rule(id=ids, to=st.sampled_from(State))
    def move(self, id: str, to: State) -> None:
        self.refused(lambda: self.life.move(id, to, "test"))

    @rule(id=ids)
    def use(self, id: str) -> None:
        live = [c for c in self.vault.at([id]) if c.state in LIVE]
        self.vault.usage.record([c.id for c in live], self.vault.now())
        self.life.recalled(live)

    @rule(id=consumes(ids))
    def delete(self, id: str) -> None:
        self.refused(lambda: self.deleted.update(self.life.delete(id)))

    @rule(days=DAYS)
    def wait(self, days: int) -> None:
        self.time += timedelta(days=days)

    @rule(days=DAYS)
    def set_the_clock_back(self, days: int) -> None:
        self.time -= timedelta(days=days)

    @rule()
    def age(self) -> None:
        self.ageing.age(self.vault.now())

    @rule(days=DAYS)
    def age_at_an_earlier_time(self, days: int) -> None:
        """Ages that are negative age nothing."""
        before = self.said()
        self.ageing.age(
            min(at for c in self.vault.cubes() for at, _ in self.vault.written(c.id)) if before else self.time
        )
        assert self.said() == before

    @rule(target=snapshots)
    def take_snapshot(self) -> str:
        return self.snapshot()

    def snapshot(self) -> str:
        return self.vault.snapshots.take(ADA, next(self.names)).name

    @rule(name=snapshots)
    def restore(self, name: str) -> None:
        was = self.vault.snapshots.of(ADA, name)
        then = {id: (self.vault.get(id, version).payload, state) for id, (version, state) in was.items()}
        done = self.restored(name)
        exempt = {*done.kept, *done.stale}
        for id, cube in ((c.id, c) for c in self.vault.cubes() if c.id not in exempt):
            payload, state = then.get(id, (cube.payload, State.ARCHIVED))
            assert cube.payload == payload
            assert (cube.state in GONE) == (state in GONE)

    @rule(name=snapshots)
    def restore_and_undo(self, name: str) -> None:
        before = self.said()
        self.restored(self.restored(name).undo)
        assert self.said() == before

    @rule(target=snapshots, id=ids, words=WORDS, to=st.sampled_from(State))
    def there_and_back(self, id: str, words: str, to: State) -> str:
        before, name = self.said(), self.snapshot()
        self.refused(lambda: self.life.edit(id, Text(text=words)))
        self.refused(lambda: self.life.lead(id, to, "test"))
        between = self.said()
        done = self.restored(name)
        if not done.kept:
            assert self.said() == before
        self.restored(done.undo)
        assert self.said() == between
        return name

    @rule(name=consumes(snapshots))
    def forget_a_snapshot(self, name: str) -> None:
        self.vault.snapshots.delete(ADA, name)

    @rule()
    def reopen(self) -> None:
        self.operator.close()
        self.vault.close()
        self.open()

    @invariant()
    def histories_only_grow_and_follow_the_table(self) -> None:
        for cube in self.vault.cubes():
            versions = [(at, old.version, old.payload) for at, old in self.vault.written(cube.id)]
            moves = self.vault.transitions(cube.id)
            assert [version for _, version, _ in versions] == list(range(1, cube.version + 1))
            states = [state for _, state, _ in moves]
            assert states[0] is State.GENERATED
            assert all(to in ALLOWED[was] for was, to in itertools.pairwise(states))
            assert all(why for _, _, why in moves)
            for rows in (versions, moves):
                assert [row[0] for row in rows] == sorted(row[0] for row in rows)
            before, before_moves = self.seen.get(cube.id, ([], []))
            assert (versions[: len(before)], moves[: len(before_moves)]) == (before, before_moves)
            self.seen[cube.id] = versions, moves

    @invariant()
    def what_is_derived_and_in_use_has_its_sources(self) -> None:
        for cube in self.vault.cubes(states=LIVE):
            now = [self.vault.get(source.id) for source in cube.sources]
            assert [c.version for c in now] == [source.version for source in cube.sources]
            assert all(c.state in LIVE for c in now)
            if cube.id in self.made_of:
                assert [c.payload for c in now] == self.made_of[cube.id]

    @invariant()
    def what_is_merged_lives_on(self) -> None:
        for cube in self.vault.cubes(form=Form.PLAINTEXT):
            texts = [c for c in self.vault.derived(cube.id) if isinstance(c.payload, Text)]
            # by the written state: what has expired unseen is let go of with the next tick
            made = [c for c in texts if self.vault.transitions(c.id)[-1][1] in LIVE]
            assert (cube.state is State.MERGED) == bool(made) or cube.state in (State.FROZEN, State.EXPIRED)

    @invariant()
    def just_what_is_in_force_is_found(self) -> None:
        found = {hit.id for hit in self.operator.search("oak", 1000, VIEW)}
        texts = self.vault.cubes(form=Form.PLAINTEXT)
        now = self.vault.now()
        over = {c.id for c in texts if c.header.expires and c.header.expires <= now}
        assert found == {c.id for c in texts if c.state in ANSWERING}
        assert not found & over

    @invariant()
    def what_is_deleted_is_nowhere(self) -> None:
        for table, column in TABLES.items():
            assert not self.deleted & {id for (id,) in self.vault._db.rows(f"SELECT {column} FROM {table}")}
        assert not self.deleted & {c.id for c in self.vault.cubes()}


QUICK = settings(stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), database=None)


class TestLife(Life.TestCase):
    """The same lives every time."""

    settings = settings(QUICK, max_examples=40, derandomize=True)


@pytest.mark.slow
class TestManyLives(Life.TestCase):
    """Others every time."""

    settings = settings(QUICK, max_examples=1500)
