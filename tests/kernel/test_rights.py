"""No leak: random users, groups, grants, keys, memories and what is made of them, against a naive oracle.

The oracle is told who owns what and what it is made of; who may do what it works out by itself, again each time. Every
memory carries words that stand nowhere else, so that whatever a call tells, in its result or in its error, can be
traced to the cubes that it came from.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from memos import Config, MemOS
from memos.config import SchedulerConfig
from memos.cube import ANSWERING, Blob, Form, Header, MemCube, Namespace, Rights, Source, Text, new_id
from memos.errors import Denied, MemosError, NotFound
from memos.infrastructure.vault.mem_vault import absent
from memos.infrastructure.vault.store import transactions as vault_clock
from memos.kernel import access
from memos.kernel.calls import Calls
from memos.kernel.mem_os import Reply
from memos.kernel.wiring import Parts
from memos.operation.choosing.mem_scheduler import Admission, Session, Talk
from memos.operation.finding.mem_operator import MemOperator
from memos.operation.forms.sessions import Sessions
from memos.ops import Promote, Recall
from memos.rights import Caller, Group
from tests.doubles import Even

pytestmark = pytest.mark.rights
USERS = ("ada", "bob", "eve")
RELATIONS = ("owner", "editor", "annotator", "reader")
PURPOSES = ("", "care", "audit")
GROUPS = [(owner, name) for owner in USERS for name in ("team", "all")]
SECRET, ID = re.compile(r"\bs\d+q\b"), re.compile(r"\b[0-9a-f]{24}\b")
MOST = 40  # cubes at a time
NOT_WITHIN_A_STEP = timedelta(hours=12)  # time goes on by whole days, and by milliseconds


@pytest.fixture(autouse=True)
def not_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested here is what is told, and not after which time."""
    monkeypatch.setattr(access, "NOT_FOUND_S", 0.0)


class AtOnce(MemOperator):
    def refresh_soon(self) -> None:
        """Nothing in the background: each search reads what changed."""


class NoModel:
    """Where only a model's name and its counting of tokens are asked for."""

    digest = "host"
    languages = ()
    context = None

    def counts(self, memories: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in memories]


class NoModelParts(Parts):
    """Everything but a model."""

    def load_host(self) -> Any:
        return NoModel()

    def make_operator(self) -> MemOperator:
        return AtOnce(self.vault, Even(), ANSWERING)

    def make_sessions(self) -> Sessions:
        parts = (self.vault, self.governance, self.lifecycle)
        return Sessions(self.config.decode, *parts, self.host(), None)  # type: ignore[arg-type]


def opened(path: Path) -> MemOS:
    """A kernel that does everything but run a model."""
    config = Config(scheduler=SchedulerConfig(routing="retrieval"))
    return MemOS(parts=NoModelParts(config, vault=path))


# -- the oracle: as plain as it can be said ------------------------------------------------------------------


@dataclass
class Thing:
    owner: str
    space: tuple[str, str, str]
    sources: tuple[str, ...]
    is_turn: bool  # it has words of its own
    version: int


@dataclass
class Oracle:
    things: dict[str, Thing] = field(default_factory=dict)
    carriers: dict[str, set[str]] = field(default_factory=dict)  # of a secret: the cubes that say it
    # (cube or space, subject, relation, purpose) -> until
    grants: dict[tuple[Any, Any, str, str], datetime | None] = field(default_factory=dict)
    members: set[tuple[tuple[str, str], Any]] = field(default_factory=set)
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    looked: dict[Any, list[tuple[Any, str]]] = field(default_factory=dict)

    def is_in(self, who: tuple[str, str, str], group: tuple[str, str], passed: frozenset[Any] = frozenset()) -> bool:
        if group in passed:
            return False
        for of, member in self.members:
            if of == group:
                if len(member) == 3 and within(member, who):
                    return True
                if len(member) == 2 and self.is_in(who, member, passed | {group}):
                    return True
        return False

    def given(self, who: tuple[str, str, str], purpose: str) -> list[tuple[Any, str]]:
        """What somebody has been given: (cube or space, relation). Worked out once for one look at the world."""
        if (who, purpose) not in self.looked:
            now = self.now()
            self.looked[who, purpose] = [
                (on, relation)
                for (on, to, relation, for_), until in self.grants.items()
                if for_ in ("", purpose) and (until is None or now < until)
                if (within(to, who) if len(to) == 3 else self.is_in(who, to))
            ]
        return self.looked[who, purpose]

    def granted(self, who: tuple[str, str, str], purpose: str, id: str) -> set[str]:
        """The relations that somebody has been given to a cube."""
        place = self.things[id].space
        given = self.given(who, purpose)
        return {relation for on, relation in given if (on == id if isinstance(on, str) else within(on, place))}

    def reads(self, who: tuple[str, str, str], purpose: str, id: str) -> bool:
        thing = self.things[id]
        for source in thing.sources:
            if not self.reads(who, purpose, source):
                return False
        if within(who, thing.space) or self.granted(who, purpose, id):
            return True
        own = all(self.things[source].owner == thing.owner for source in thing.sources)
        return bool(thing.sources) and own and not thing.is_turn

    def may(self, who: tuple[str, str, str], purpose: str, what: str, id: str) -> bool:
        thing = self.things[id]
        enough = {
            "annotate": {"owner", "editor", "annotator"},
            "write": {"owner", "editor"},
            "manage": {"owner"},
            "delete": {"owner"},
        }[what]
        owns = who[0] == thing.owner and within(who, thing.space)
        if not owns and not self.granted(who, purpose, id) & enough:
            return False
        return what == "delete" or self.reads(who, purpose, id)


def within(wide: tuple[str, str, str], narrow: tuple[str, str, str]) -> bool:
    return wide[0] == narrow[0] and wide[1] in ("", narrow[1]) and wide[2] in ("", narrow[2])


# -- the world -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Who:
    """A caller: `calls` are the public calls as it makes them."""

    space: tuple[str, str, str]
    purpose: str
    key: str | None

    @property
    def namespace(self) -> Namespace:
        return Namespace(user_id=self.space[0], agent_id=self.space[1], session_id=self.space[2])


class World:
    """One vault that two kernels share, as two processes would, and all who use it."""

    def __init__(self, path: Path, seed: int, tell: Callable[[], datetime], jump: Callable[[int], None]) -> None:
        self.random, self.jump = random.Random(seed), jump
        self.kernels = [opened(path), opened(path)]
        self.vault = self.kernels[0].vault
        self.oracle = Oracle(now=self.vault.now)
        self.secrets, self.steps, self.refused, self.change = 0, 0, 0, 0
        self.deleted: dict[str, Thing] = {}
        self.who: list[Who] = []
        for user in USERS:
            self.who.append(Who((user, "", ""), "", None))
            for space in ((user, "", ""), (user, "p", ""), (user, "p", "s")):
                to = Namespace(user_id=space[0], agent_id=space[1], session_id=space[2])
                key, _ = self.kernels[0].services.governing.add_key(to, purposes=PURPOSES[1:])
                self.who += [Who(space, purpose, key) for purpose in PURPOSES]
        often = [self.do_add] * 4 + [self.do_grant] * 4 + [self.do_ask] * 3 + [self.do_promote, self.do_fuse] * 2
        self.rules = [*(getattr(self, name) for name in dir(self) if name.startswith("do_")), *often]

    def close(self) -> None:
        for kernel in self.kernels:
            kernel.close()

    # what a step is made of

    def calls(self, who: Who) -> Calls:
        """A kernel as this caller sees it."""
        kernel = self.random.choice(self.kernels)
        return kernel.within(who.space[0]) if who.key is None else kernel.as_(who.key, who.purpose)

    def word(self) -> str:
        self.secrets += 1
        return f"s{self.secrets}q"

    def text(self) -> str:
        thing = self.random.choice(["code", "city", "dog", "name"])
        return self.random.choice([f"My {thing} is {self.word()}.", f"I like {self.word()}.", f"Note {self.word()}."])

    def id(self) -> str:
        gone = [*self.deleted][-1:]
        found = self.random.choice([*sorted(self.oracle.things), *gone, "0" * 24])
        return found if self.random.random() < 0.9 else found[: self.random.randint(6, 20)]

    def near(self, who: Who) -> str:
        """An id, mostly of a cube that the caller may read: most are others'."""
        mine = [id for id in sorted(self.oracle.things) if self.reads(who, id)]
        return self.random.choice(mine) if mine and self.random.random() < 0.6 else self.id()

    def subject(self) -> tuple[Any, str]:
        """As the oracle and as a call says it."""
        user = self.random.choice(USERS)
        match self.random.randrange(4):
            case 0:
                return (user, "", ""), user
            case 1:
                return (user, "p", ""), f"agent:{user}/p"
            case 2:
                return (user, "p", "s"), f"namespace:{user}/p/s"
        owner, name = self.random.choice(GROUPS)
        return (owner, name), f"group:{owner}/{name}"

    def reads(self, who: Who, id: str) -> bool:
        return self.oracle.reads(who.space, who.purpose, id)

    def may(self, who: Who, what: str, id: str) -> bool:
        return self.reads(who, id) if what == "read" else self.oracle.may(who.space, who.purpose, what, id)

    def meant(self, who: Who, asked: str) -> str | None:
        """The cube that an id or a prefix means to a caller."""
        if asked in self.oracle.things:
            return asked
        fits = [id for id in self.oracle.things if id.startswith(asked)]
        if len(fits) > 1:
            fits = [id for id in fits if self.reads(who, id)]
        return fits[0] if len(fits) == 1 else None

    # what is checked of every step

    def step(self) -> None:
        self.steps += 1
        self.oracle.looked.clear()
        if len(self.oracle.things) < MOST:
            self.random.choice(self.rules)(self.random.choice(self.who))
        else:
            thing = self.random.choice(sorted(self.oracle.things))
            owner = Who((self.oracle.things[thing].owner, "", ""), "", None)
            self.ask(owner, lambda: self.calls(owner).delete(thing), [thing])

    def ask(self, who: Who, call: Callable[[], Any], asked: Sequence[str] = (), made: bool = True) -> Any:
        """Make a call; nothing that it tells is of a cube that its caller may not read, before or after."""
        before = self.known(who)
        try:
            result: Any = call()
        except MemosError as error:
            result = error
        if made:
            self.learn()
        ids, secrets = before
        after_ids, after_secrets = self.known(who)
        shown = replace(result, operations=()) if isinstance(result, Reply) else result  # the caller's own words
        told = str(shown) if isinstance(shown, MemosError) else repr(shown)
        for one in set(SECRET.findall(told)):
            assert one in secrets | after_secrets, f"{who} is told {one}: {told}"
        for id in set(ID.findall(told)) & (self.oracle.things.keys() | self.deleted.keys()):
            assert id in ids | after_ids or id in asked, f"{who} is told of {id}: {told}"
        return result

    def known(self, who: Who) -> tuple[set[str], set[str]]:
        """The ids and the secrets that a caller may be told. Of its own, it may be told that they are there."""
        self.oracle.looked.clear()
        read = {id for id in self.oracle.things if self.reads(who, id)}
        own = {id for id in self.oracle.things if self.may(who, "delete", id)}
        own |= {id for id, was in self.deleted.items() if was.owner == who.space[0] and within(who.space, was.space)}
        return read | own, {one for one, said_by in self.oracle.carriers.items() if said_by & read}

    def learn(self) -> None:
        """What there is now: facts, no decisions."""
        if self.vault.last_change() == self.change:
            return
        self.change = self.vault.last_change()
        there = {cube.id: cube for cube in self.vault.cubes()}
        for id in self.oracle.things.keys() - there.keys():
            self.deleted[id] = self.oracle.things.pop(id)
            self.oracle.grants = {key: until for key, until in self.oracle.grants.items() if key[0] != id}
        for id, cube in there.items():
            if id not in self.oracle.things or self.oracle.things[id].version != cube.version:
                of = cube.namespace
                space = (of.user_id, of.agent_id, of.session_id)
                sources = tuple(source.id for source in cube.sources)
                is_turn = cube.header.kind == "turn"
                self.oracle.things[id] = Thing(cube.rights.owner, space, sources, is_turn, cube.version)
                for one in SECRET.findall(cube.payload.model_dump_json()):
                    self.oracle.carriers.setdefault(one, set()).add(id)
        for said_by in self.oracle.carriers.values():
            said_by &= there.keys()

    def on_one(
        self,
        who: Who,
        right: str,
        asked: str,
        call: Callable[[], Any],
        of: Callable[[str], Iterable[str]] = lambda _: (),
    ) -> Any:
        """A call about one cube, and others that it is `of`, is let through, refused or knows of nothing, as the oracle
        says."""
        id = self.meant(who, asked)
        may = id is not None and all(self.may(who, right, each) for each in (id, *of(id)))
        sees = id is not None and self.reads(who, id)
        result = self.ask(who, call, [asked])
        if not may:
            self.refused += 1
            if sees:
                assert type(result) is Denied, (who, right, id, result)
            else:
                assert type(result) is NotFound and str(result) == str(absent(asked)), (who, right, id, result)
        else:
            assert type(result) is not Denied, (who, right, id, result)
            assert not (type(result) is NotFound and str(result) == str(absent(asked))), (who, right, id, result)
        return result

    def in_force(self, who: Who) -> set[str]:
        cubes = self.vault.cubes(form=Form.PLAINTEXT, states=ANSWERING)
        return {c.id for c in cubes if isinstance(c.payload, Text) and self.reads(who, c.id)}

    # the rules: every public call that shows or changes cubes

    def do_add(self, who: Who) -> None:
        content: Any = self.text() if self.random.random() < 0.7 else [{"role": "user", "content": self.text()}]
        days = self.random.choice([None, None, 3])
        ttl = None if days is None else timedelta(days=days) + NOT_WITHIN_A_STEP
        made = self.ask(who, lambda: self.calls(who).add(content, ttl=ttl))
        assert all(self.oracle.things[cube.id].space == who.space for cube in made)

    def do_get(self, who: Who) -> None:
        asked = self.id()
        self.on_one(who, "read", asked, lambda: self.calls(who).get(asked))

    def do_history(self, who: Who) -> None:
        asked = self.near(who)
        self.on_one(who, "read", asked, lambda: self.calls(who).history(asked, diffs=True))

    def do_diff(self, who: Who) -> None:
        asked = self.near(who)
        self.on_one(who, "read", asked, lambda: self.calls(who).diff(asked, 1, 1))

    def do_update(self, who: Who) -> None:
        asked, text = self.near(who), self.text()
        self.on_one(who, "write", asked, lambda: self.calls(who).update(asked, text))

    def do_rollback(self, who: Who) -> None:
        asked = self.near(who)
        self.on_one(who, "write", asked, lambda: self.calls(who).rollback(asked, 1))

    def do_tag(self, who: Who) -> None:
        asked, tag = self.near(who), self.random.choice(["always", "apart:x", "red"])
        self.on_one(who, "annotate", asked, lambda: self.calls(who).tag(asked, [tag]))

    def do_move(self, who: Who) -> None:
        asked, move = self.near(who), self.random.choice(["freeze", "thaw", "archive", "unarchive", "demote"])
        self.on_one(who, "manage", asked, lambda: getattr(self.calls(who), move)(asked))

    def do_reinstate(self, who: Who) -> None:
        asked = self.near(who)
        self.on_one(who, "write", asked, lambda: self.calls(who).reinstate(asked))

    def do_delete(self, who: Who) -> None:
        asked = self.near(who)
        self.on_one(who, "delete", asked, lambda: self.calls(who).delete(asked))

    def do_split(self, who: Who) -> None:
        asked, parts = self.near(who), [self.text(), self.text()]
        self.on_one(who, "write", asked, lambda: self.calls(who).split(asked, self.random.choice([(), parts])))

    def do_fuse(self, who: Who) -> None:
        one, other = self.near(who), self.near(who)
        text = self.random.choice([None, self.text()])
        result = self.ask(who, lambda: self.calls(who).fuse([one, other], text), [one, other])
        if isinstance(result, MemCube):
            assert {source.id for source in result.sources} == {self.meant(who, one), self.meant(who, other)}

    def do_consolidate(self, who: Who) -> None:
        self.ask(who, lambda: self.calls(who).consolidate())

    def do_forget(self, who: Who) -> None:
        words = self.random.choice(sorted(self.oracle.carriers) or ["all"])
        self.ask(who, lambda: self.calls(who).chat(f"Forget {words}."))

    def do_grant(self, who: Who) -> None:
        asked, (to, said) = self.near(who), self.subject()
        relation, purpose = self.random.choice(RELATIONS), self.random.choice(PURPOSES)
        end = self.vault.now() + timedelta(days=self.random.randint(1, 9)) + NOT_WITHIN_A_STEP
        until = self.random.choice([None, end])
        result = self.on_one(
            who,
            "manage",
            asked,
            lambda: self.calls(who).grant(asked, said, relation, purpose=purpose or None, until=until),
        )
        if not isinstance(result, MemosError):
            self.oracle.grants[result.on, to, relation, purpose] = until

    def do_revoke(self, who: Who) -> None:
        known = [key for key in sorted(self.oracle.grants, key=repr) if isinstance(key[0], str)]
        asked, to, relation, _ = self.random.choice(known) if known else (self.id(), self.subject()[0], "reader", "")
        one = self.random.choice([None, relation])
        result = self.on_one(who, "manage", asked, lambda: self.calls(who).revoke(asked, named(to), one))
        if not isinstance(result, MemosError):
            self.take_back(self.meant(who, asked), to, one, result)

    def take_back(self, on: Any, to: Any, relation: str | None, counted: int) -> None:
        gone = [k for k in self.oracle.grants if k[:2] == (on, to) and relation in (None, k[2])]
        ended = [k for k in gone if (until := self.oracle.grants[k]) is not None and until <= self.vault.now()]
        assert len(gone) - len(ended) <= counted <= len(gone)
        for key in gone:
            del self.oracle.grants[key]

    def do_share_namespace(self, who: Who) -> None:
        self.over(who, give=self.random.random() < 0.5)

    def over(self, who: Who, give: bool) -> None:
        user = self.random.choice([who.space[0], self.random.choice(USERS)])
        on = self.random.choice([(user, "", ""), (user, "p", ""), (user, "p", "s")])
        (to, said), relation = self.subject(), self.random.choice(RELATIONS)
        may = within(who.space, on) or any(
            rel == "owner" and not isinstance(over, str) and within(over, on) and purpose in ("", who.purpose)
            and (until is None or self.vault.now() < until)
            and (within(sub, who.space) if len(sub) == 3 else self.oracle.is_in(who.space, sub))
            for (over, sub, rel, purpose), until in self.oracle.grants.items()
        )  # fmt: skip
        what = "namespace:" + "/".join(on).rstrip("/")
        if give:
            result = self.ask(who, lambda: self.calls(who).grant(what, said, relation))
        else:
            result = self.ask(who, lambda: self.calls(who).revoke(what, said))
        assert isinstance(result, Denied) != may, (who, what, result)
        if may and give:
            self.oracle.grants[on, to, relation, ""] = None
        elif may:
            self.take_back(on, to, None, result)

    def do_end_shares(self, who: Who) -> None:
        """Now and then nothing is shared, so that all is not seen by all."""
        if self.random.random() < 0.1:
            for key in sorted(self.oracle.grants, key=repr):
                self.vault.grants.remove(key[0] if isinstance(key[0], str) else space(key[0]), named(key[1]), key[2])
            self.oracle.grants.clear()

    def do_grants(self, who: Who) -> None:
        self.ask(who, lambda: self.calls(who).grants(), made=False)
        self.ask(who, lambda: self.calls(who).groups(), made=False)

    def do_group(self, who: Who) -> None:
        name, (to, said) = self.random.choice(["team", "all"]), self.subject()
        join = self.random.random() < 0.6
        calls = self.calls(who)
        result = self.ask(who, lambda: (calls.join if join else calls.leave)(name, said))
        if who.space[1]:
            assert isinstance(result, Denied)
        elif join:
            self.oracle.members.add(((who.space[0], name), to))
        else:
            self.oracle.members.discard(((who.space[0], name), to))

    def do_wait(self, who: Who) -> None:
        if self.random.random() < 0.7:
            self.jump(self.random.randint(1, 4))
            self.learn()

    def do_search(self, who: Who) -> None:
        kind = self.random.choice([None, None, "memoryos", "recency", "keywords"])
        words = self.random.choice([*sorted(self.oracle.carriers)[-5:], "dog"])
        result = self.ask(who, lambda: self.calls(who).search(f"my code is {words}", top_k=1000, policy=kind))
        if kind is None:
            assert {hit.cube.id for hit in result} == self.in_force(who)

    def do_memories(self, who: Who) -> None:
        assert {c.id for c in self.ask(who, lambda: self.calls(who).memories())} == self.in_force(who)

    def do_memories_then(self, who: Who) -> None:
        at = self.vault.now() - timedelta(days=self.random.randint(0, 5))
        self.ask(who, lambda: self.calls(who).memories(true_at=at, known_at=at))

    def do_cubes(self, who: Who) -> None:
        seen = {cube.id for cube in self.ask(who, lambda: self.calls(who).cubes())}
        expected = {id for id in self.oracle.things if self.reads(who, id)}
        assert seen == expected, (who, [(id, self.oracle.things.get(id)) for id in seen ^ expected])

    def do_count(self, who: Who) -> None:
        kernel = self.random.choice(self.kernels)
        view = kernel.parts.access.view(Caller(who.namespace, who.purpose))
        readable, _ = kernel.parts.operator().in_view(view)
        assert readable == len(self.in_force(who))

    def do_compare(self, who: Who) -> None:
        self.ask(who, lambda: self.calls(who).conflicts())
        self.ask(who, lambda: self.calls(who).audit_memory())
        self.ask(who, lambda: self.calls(who).segments())

    def do_snapshot(self, who: Who) -> None:
        name = self.random.choice(["one", "two"])
        self.ask(who, lambda: self.calls(who).snapshot(name))
        self.ask(who, lambda: self.calls(who).snapshots())

    def do_restore(self, who: Who) -> None:
        name = self.random.choice(["one", "two"])
        self.ask(who, lambda: self.calls(who).restore(name))
        self.ask(who, lambda: self.calls(who).delete_snapshot(name))

    def do_promote(self, who: Who) -> None:
        """The door of a promotion, and what it publishes, without the model that makes it."""
        kernel, asked = self.random.choice(self.kernels), self.near(who)
        form = self.random.choice([Form.ACTIVATION, Form.PARAMETRIC])

        def promote() -> MemCube:
            caller = Caller(who.namespace, who.purpose)
            sources = kernel.services.forming._sources(caller, Promote(ids=(asked,), to=form))
            with kernel.vault.blobs.staging() as path:
                path.write_bytes(asked.encode())
                sha256, size = kernel.vault.blobs.store(path)
            owner = sources[0].rights.owner
            return kernel.parts.lifecycle.publish(
                MemCube(
                    id=new_id(),
                    form=form,
                    namespace=sources[0].namespace,
                    rights=Rights(owner=owner),
                    header=Header(created=kernel.vault.now(), kind="derived"),
                    payload=Blob(sha256=sha256, bytes=size, tokens=5, fingerprint="host"),
                    sources=tuple(Source(id=c.id, version=c.version) for c in sources),
                )
            )

        def meant(id: str) -> Iterable[str]:
            """KV or an adapter that is promoted stands for what it was made of."""
            return self.oracle.things[id].sources if any(cube.blob for cube in self.vault.at([id])) else ()

        self.on_one(who, "manage", asked, promote, of=meant)

    def do_ask(self, who: Who) -> None:
        """What a request sees; and the turn that is kept of it, in which the answer repeats what was seen."""
        kernel, op = self.random.choice(self.kernels), Recall(question="What do I like?")
        via = self.random.choice(["auto", "plaintext"])

        def seen() -> list[Any]:
            caller = Caller(who.namespace, who.purpose)
            admission = kernel.services.answering.admit(caller, op, via)  # type: ignore[arg-type]
            every = [*admission.cubes, *admission.activations, *admission.adapters, *admission.pinned]
            assert all(self.reads(who, cube.id) for cube in every)
            name = who.space[2] or self.random.choice(["s", "t"])
            of = Session(kernel.parts.access.session(caller, name), caller)
            earlier = kernel.parts.sessions().turns(of)
            talk = Talk(f"and {self.word()}?", session=of, earlier=tuple(earlier[-2:]))
            if self.random.random() < 0.4 and not admission.adapters:
                shown = Admission(cubes=admission.cubes[:3])
                answer = " ".join(cube.text for cube in shown.cubes)
                kernel.parts.sessions().keep(talk, answer, shown, (), None)
            return [*every, *earlier]

        self.ask(who, seen)

    def do_turns(self, who: Who) -> None:
        session = self.random.choice(["s", "t"])
        result = self.ask(who, lambda: self.calls(who).turns(session))
        assert isinstance(result, Denied) == (who.space[2] not in ("", session))

    def do_job(self, who: Who) -> None:
        id = self.random.choice(sorted(self.oracle.things) or [""])
        if id and self.random.random() < 0.5:
            source = f"{id}@{self.oracle.things[id].version}"
            self.vault.jobs.queue("promote to activation", {"sources": [source], "why": "hot"})
        for job in self.ask(who, lambda: self.calls(who).jobs()):
            self.ask(who, lambda job=job: self.calls(who).cancel(job.id))
        for job in self.vault.jobs.all("queued"):
            result = self.ask(who, lambda job=job: self.calls(who).cancel(job.id))
            if not job.payload["sources"]:  # the vault's own
                assert isinstance(result, MemosError)
                continue
            about = job.payload["sources"][0].split("@")[0]
            assert isinstance(result, MemosError) != self.may(who, "manage", about)


def space(of: tuple[str, str, str]) -> Namespace:
    return Namespace(user_id=of[0], agent_id=of[1], session_id=of[2])


def named(to: Any) -> Any:
    return Group(owner=to[0], name=to[1]) if len(to) == 2 else space(to)


@contextmanager
def world(path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    time = [datetime(2025, 1, 1, tzinfo=timezone.utc)]

    def tick() -> datetime:
        time[0] += timedelta(milliseconds=1)
        return time[0]

    def jump(days: int) -> None:
        time[0] += timedelta(days=days)

    monkeypatch.setattr(vault_clock, "clock", tick)
    made = World(path, seed, tick, jump)
    try:
        yield made
    finally:
        made.close()


def walk(path: Path, seeds: Sequence[int], steps: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Walks of so many steps; how many were taken."""
    taken = 0
    for seed in seeds:
        with world(path / str(seed), seed, monkeypatch) as one:
            for _ in range(steps):
                try:
                    one.step()
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}, step {one.steps}: {error}") from error
            assert one.refused > steps / 50 and one.deleted  # it is no walk where nothing is refused
            taken += one.steps
    return taken


def test_nothing_leaks_in_a_short_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert walk(tmp_path, range(3), 300, monkeypatch) == 900


@pytest.mark.slow
def test_nothing_leaks_in_a_hundred_thousand_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert walk(tmp_path, range(100, 150), 2000, monkeypatch) == 100_000
