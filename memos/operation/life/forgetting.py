"""Lets memories go: as they age, by the rules of retention; or all that a user has, with a signed proof.

Knows the rules of ageing, who is held back from it, and in which places memories lie. Must not know who may ask for it.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memos.cube import ANSWERING, EPISODE, PASSAGE, SUMMARY, Form, MemCube, State, Text
from memos.infrastructure.vault.audit.signing import is_signed, statement
from memos.infrastructure.vault.care.residue import phrases_of, pieces_of

if TYPE_CHECKING:
    from memos.config import AgeingConfig, LifecycleConfig
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.operation.life.mem_lifecycle import MemLifecycle

_PROOF = "forgotten"  # what a proof is signed for
_conversation = attrgetter("namespace", "header.thread")
FADED = math.exp(-1)  # retention below which a turn that is summed up is cold
_WAIT_S = 5.0  # for those who read what is being removed


def retention(idle: timedelta, recalls: int, strength: timedelta) -> float:
    """MemoryBank's R = exp(-t/S) (2305.10250), with an S that each recall makes longer by as much as it is at first."""
    return math.exp(-(idle / strength) / (1 + recalls))


class Aged(NamedTuple):
    """A move that time has brought."""

    id: str
    to: State
    why: str


class Ageing:
    """Carries out the rules for one vault."""

    def __init__(
        self, vault: MemVault, lifecycle: MemLifecycle, rules: LifecycleConfig, retention: Mapping[str, float]
    ) -> None:
        """retention: days until a memory expires for good, by its class."""
        self._vault, self._lifecycle, self._rules, self._retention = vault, lifecycle, rules, retention

    def age(self, now: datetime, user_id: str | None = None) -> list[Aged]:
        """Move on what has had its time by `now`, of one user or of all; what was done.

        What has passed its `expires` expires, frozen or not. Idle texts are archived, and archived ones expire, as the
        rules say; a frozen one does not. A time that lies after `now` makes nothing older.
        """
        with self._vault.transaction():
            overdue = self._vault.ageing.overdue(now, user_id)
            on_hold = {hold.id for hold in self._vault.holds.of(id for id, _ in overdue)}
            out = [self._expire(id, state) for id, state in overdue if id not in on_hold]
            self._lifecycle.let_out(self._lifecycle.sources_of(self._vault.at(aged.id for aged in out)))
            for name, days in self._retention.items():
                for id in self._vault.ageing.of_class(name, now - timedelta(days=days), user_id):
                    out += self._retire_class(id, f"{name} is kept for {days:g} days")
            named = self._rules.kinds
            out += self._retire_kinds(tuple(named), False, self._rules, now, user_id)
            for kind, rule in named.items():
                out += self._retire_kinds((kind,), True, rule, now, user_id)
            if (strength := self._rules.cool_after_days) is not None:
                out += self._cool(timedelta(days=strength), now, user_id)
        return out

    def _cool(self, strength: timedelta, now: datetime, user_id: str | None) -> list[Aged]:
        """A turn is cold while it is little retained and lies between those that a summary in force is made of."""
        idle, said, out = self._vault.ageing.idle, (EPISODE, PASSAGE), list[Aged]()
        spans = defaultdict[Any, list[tuple[MemCube, MemCube]]](list)
        for summary in self._vault.at(idle(ANSWERING, now, (SUMMARY,), True, user_id)):
            first, *_, last = self._vault.at(source.id for source in summary.sources)
            spans[_conversation(first)].append((first, last))
        ids = idle((State.GENERATED, State.ACTIVATED), now - strength, said, True, user_id)
        for cube in self._vault.at((*ids, *idle((State.COLD,), now, said, True, user_id))):
            used = cube.usage.last_recalled or cube.header.changed or cube.header.created
            faded = retention(now - used, cube.usage.recalls, strength) < FADED
            covered = any(a.order <= cube.order <= b.order for a, b in spans[_conversation(cube)])
            if (faded and covered) is not (cube.state is State.COLD):
                to, what = (State.COLD, "summed up") if covered else (State.ACTIVATED, "not summed up any more")
                out.append(Aged(cube.id, to, f"{what}, last used on {used:%Y-%m-%d}"))
                self._lifecycle.move(*out[-1])
        return out

    def _retire_kinds(
        self, kinds: Collection[str], within: bool, rule: AgeingConfig, now: datetime, user_id: str | None
    ) -> list[Aged]:
        """What a rule says of memories of these kinds, or of all others."""
        in_force = (State.GENERATED, State.ACTIVATED, State.COLD)  # a merged one lives as long as what it lives on in
        steps: tuple[tuple[tuple[State, ...], State, float | None, str], ...] = (
            ((State.ARCHIVED,), State.EXPIRED, rule.expire_after_archived_days, "archived"),
            ((State.GENERATED,), State.ARCHIVED, rule.generated_ttl_days, "never recalled"),
            (in_force, State.ARCHIVED, rule.archive_after_idle_days, "neither recalled nor changed"),
        )
        out = list[Aged]()
        for states, to, days, what in steps:
            if days is not None:
                for id in self._vault.ageing.idle(states, now - timedelta(days=days), kinds, within, user_id):
                    out += self._retire_idle(id, states, to, f"{what} for {days:g} days")
        return out

    def _retire_class(self, id: str, why: str) -> list[Aged]:
        """It expires, with all that is made of it; not while any of this is under a legal hold."""
        cube = self._vault.get(id)
        if cube.state is State.EXPIRED or self._vault.holds.of([id, *(made.id for made in self._vault.derived(id))]):
            return []
        self._lifecycle.lead(id, State.EXPIRED, why)
        return [Aged(id, State.EXPIRED, why)]

    def _retire_idle(self, id: str, states: Collection[State], to: State, why: str) -> list[Aged]:
        """Move what is in one of the states, and with it what lived on in it alone, which has been as idle."""
        cube = self._vault.get(id)
        if cube.state not in states or self._vault.holds.of([id]):  # it went with a source, just before
            return []
        merged = [source.id for source in self._lifecycle.sources_of([cube]) if source.state is State.MERGED]
        self._lifecycle.move(id, to, why)
        let_out = [source.id for source in self._vault.at(merged) if source.state is State.ACTIVATED]
        return [Aged(id, to, why), *(a for s in let_out for a in self._retire_idle(s, (State.ACTIVATED,), to, why))]

    def _expire(self, id: str, state: State) -> Aged:
        """Write down that its time has come. What is derived from it expires by itself: see `MemLifecycle.publish`."""
        aged = Aged(id, State.EXPIRED, "its time to expire has come")
        if state is not State.ARCHIVED:
            self._vault.set_state(id, State.ARCHIVED, aged.why)
        self._vault.set_state(*aged)
        return aged


@dataclass(frozen=True)
class Proof:
    """A statement, signed by the key of the audit log.

    counts: what went, by kind. cubes: the sha256 of the id of each. searched: how many files and bytes in the vault's
    folder were looked through, for how many pieces, and where one was found; how many of the files are encrypted and
    were looked through decrypted, too, and which could not be.
    """

    at: str
    counts: dict[str, int]
    cubes: tuple[str, ...]
    searched: dict[str, Any]
    key: str
    signature: str = ""

    @property
    def clean(self) -> bool:
        """True if all could be looked through, and nothing was found."""
        return not self.searched["found"] and not self.searched["unread"]

    @property
    def signed(self) -> bool:
        """True if it is as it was signed."""
        return is_signed(self.key, _PROOF, _statement(self), self.signature)


def forget_user(vault: MemVault, lifecycle: MemLifecycle, user: str) -> Proof:
    """Remove all of a user's memories, in all forms and states, and what others have made of them. They answer nothing
    from the start; where removing is cut short, call it again. Raises Held."""
    rights = vault.forgetting.set_aside(user)
    with vault.transaction():
        ids = vault.forgetting.concerned(user)
        cubes = vault.at(ids)
        texts, vectors, payloads = vault.forgetting.bytes_of(ids)
        sought = {*chain.from_iterable(map(phrases_of, (*texts, *map(_quoted, texts))))}
        sought |= {*chain.from_iterable(map(pieces_of, vectors))}
        for file in chain.from_iterable(map(_files, payloads)):
            sought |= set(pieces_of(file.read_bytes()))
        sources = {source.id for cube in cubes for source in cube.sources} - set(ids)
        counts = _counts(user, cubes) | vault.forgetting.forget(user, ids)
        counts["rights"] += rights
        lifecycle.let_out(vault.at(sorted(sources)))
    unerased = vault.erasing.wait(_WAIT_S)
    searched, signer = vault.forgetting.search(sought), vault.audit_log.signer
    findings = asdict(searched) | {"found": [*map(list, searched.found)], "unread": [*searched.unread]}
    if unerased:
        findings["found"].append(["another process is in the way: close it, and open the vault again", 0])
    digests = tuple(sorted(sha256(id.encode()).hexdigest() for id in ids))
    proof = Proof(vault.now().isoformat(), counts, digests, findings, signer.public)
    return replace(proof, signature=signer.sign(_PROOF, _statement(proof)))


def _statement(proof: Proof) -> bytes:
    return statement({name: value for name, value in asdict(proof).items() if name != "signature"})


def _counts(user: str, cubes: Sequence[MemCube]) -> dict[str, int]:
    texts = [cube for cube in cubes if isinstance(cube.payload, Text)]
    return {
        "memories": len(texts),
        "turns": sum(cube.form is Form.PLAINTEXT for cube in cubes) - len(texts),
        "kv": sum(cube.form is Form.ACTIVATION for cube in cubes),
        "adapters": sum(cube.form is Form.PARAMETRIC for cube in cubes),
        "of_others": sum(user not in (cube.namespace.user_id, cube.rights.owner) for cube in cubes),
    }


def _quoted(text: bytes) -> bytes:
    """As it stands within JSON."""
    return json.dumps(text.decode(), ensure_ascii=False)[1:-1].encode()


def _files(payload: Path) -> list[Path]:
    return [path for path in sorted(payload.rglob("*")) if path.is_file()] if payload.is_dir() else [payload]
