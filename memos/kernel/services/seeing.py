"""The calls that show what there is, and where it comes from."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import date
from heapq import nlargest
from typing import TYPE_CHECKING

from memos.cube import ANSWERING, Form, Frozen, MemCube, State, Text
from memos.errors import InputError
from memos.kernel.access import Service
from memos.kernel.services.finding import NEAR, UNSURE, is_on
from memos.operation.policies.policy import terms
from memos.ops import Get

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from memos.infrastructure.vault.audit.records import LoggedDecision
    from memos.interface.reading.phrasebook import Say
    from memos.kernel.services.finding import Finding
    from memos.kernel.services.keeping import Keeping
    from memos.kernel.services.planning import Planning
    from memos.kernel.wiring import Parts
    from memos.ops import Asked
    from memos.rights import Caller

MAX_LISTED = 20  # memories that a list names
_DERIVED = (Form.ACTIVATION, Form.PARAMETRIC)


class Topic(Frozen):
    """A topic group: the memories that move together."""

    name: str
    heat: float
    ids: tuple[str, ...]


class Warm(Frozen):
    """A memory with the heat of its topic, or of the hottest that it is made of."""

    cube: MemCube
    heat: float


class Overview(Frozen):
    """What there is, for one caller. cubes: how many by "form state". hottest: of each form, the hottest first. tiers:
    where the payload of each KV cache and adapter lies (device, host, disk), by id. used, budget: KV bytes and
    adapters, and how many there may be. uses: of the recalls, those of each form; a text that KV or an adapter stood
    for is counted with both. answering: False where this process has answered nothing yet; then, if another one does,
    only that knows what lies in memory (tiers) and what was prefetched."""

    cubes: dict[str, int]
    bytes: int
    topics: tuple[Topic, ...]
    hottest: tuple[Warm, ...]
    tiers: dict[str, str]
    used: dict[str, float]
    budget: dict[str, float]
    recalls: int
    uses: dict[str, int]
    answering: bool
    prefetched: int
    prefetch_hits: int
    jobs: dict[str, int]
    model: str
    policy: str


_AHEAD = re.compile(
    r"(?i)(?:my |the |all |upcoming |next )*(?:appointments|calendar|schedule|diary|agenda)|我?的?(?:日程|安排|预约)"
)


@dataclass(frozen=True)
class Lineage:
    """Where a memory comes from, and what is made of it. origins: what plug-ins know of how it came into the vault, as
    the packs do."""

    cube: MemCube
    sources: tuple[MemCube, ...]
    derived: tuple[MemCube, ...]
    origins: tuple[Frozen, ...]


class Seeing(Service):
    """overview, lineage, log."""

    def __init__(
        self,
        parts: Parts,
        finding: Finding,
        keeping: Keeping,
        planning: Planning,
        origins: Callable[[MemCube], Iterable[Frozen]],
    ) -> None:
        """origins: what plug-ins know of how a memory came into the vault."""
        super().__init__(parts)
        self._finding, self._keeping, self._planning, self._origins = finding, keeping, planning, origins

    def overview(self, caller: Caller, *, hottest: int = 0) -> Overview:
        """What there is of the user's, and where it lies, with so many memories of each form. Loads no model."""
        seen = self._finding.cubes(caller)
        texts: dict[str, list[MemCube]] = {}
        for cube in seen:
            if isinstance(cube.payload, Text) and cube.state in ANSWERING:
                texts.setdefault(cube.header.segment, []).append(cube)
        now, heat = self._vault.now(), self._schedulers.of(caller).policy.heat
        topics = [Topic(name=n, heat=heat(cubes, now), ids=tuple(c.id for c in cubes)) for n, cubes in texts.items()]
        made = [cube for cube in seen if cube.blob and cube.state in ANSWERING]
        used = {str(form): self._vault.stats.usage_by_user(form).get(caller.user_id, (0, 0)) for form in _DERIVED}
        serving = self._serving.if_made
        recalls = {str(form): sum(cube.usage.recalls for cube in seen if cube.form is form) for form in Form}
        return Overview(
            cubes=dict(Counter(f"{cube.form} {cube.state}" for cube in seen)),
            bytes=sum(cube.blob.bytes if cube.blob else len(cube.text.encode()) for cube in seen),
            topics=tuple(sorted(topics, key=lambda topic: -topic.heat)),
            hottest=tuple(_hottest(seen, topics, hottest)),
            tiers={
                c.id: serving.tier(c.blob.sha256) if serving and c.form is Form.ACTIVATION else "disk"
                for c in made
                if c.blob
            },
            used={"activation": used["activation"][1], "parametric": used["parametric"][0]},
            budget={str(form): budget for form, budget in self._budgets(caller).items()},
            recalls=sum(recalls.values()),
            uses=recalls,
            answering=bool(serving and serving.answered),
            prefetched=serving.prefetched[caller.user_id] if serving else 0,
            prefetch_hits=serving.prefetch_hits[caller.user_id] if serving else 0,
            jobs=dict(Counter(job.state for job in self._planning.jobs(caller))),
            model=self._config.model.path,
            policy=self._schedulers.policy_of(caller),
        )

    def lineage(self, caller: Caller, id: str) -> Lineage:
        """What a memory was made of, down to what was told, and what is made of it, as far as the caller may see."""
        cube = self._access.cube(caller, Get(id=id), id)
        above, seen = list[MemCube](), {cube.id}
        while below := [s.id for c in (above or [cube]) for s in c.sources if s.id not in seen]:
            seen |= set(below)
            above += self._governance.visible(caller, self._vault.at(below))
        derived = self._governance.visible(caller, self._vault.derived(cube.id))
        return Lineage(cube, tuple(above), tuple(derived), tuple(self._origins(cube)))

    def log(
        self,
        caller: Caller,
        *,
        action: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        allowed: bool | None = None,
        own_reads: bool = True,
        limit: int = 100,
    ) -> list[LoggedDecision]:
        """The last decisions on what the caller did, and, by whomever, on its own memories, oldest first. What it was
        refused since it may not see it is not among them: that would tell that it is there.

        target: it begins with this; named by its id, what was decided on another's memory that the caller may manage is
        told, too. own_reads: False leaves out what the caller itself has read. Raises InputError.
        """
        if limit < 1:
            raise InputError(f"limit {limit} gives nothing; give 1 or more")
        audit, viewer = self._vault.audit_log, str(caller)
        named = self._vault.named(target) if target else self._vault.at(audit.touched(caller.user_id, viewer))
        own = self._governance.manages(caller, named)
        about = [f"namespace {viewer}", *(cube.id for cube in own)]
        asked = {"action": action, "target": target, "since": since, "until": until, "allowed": allowed}
        return audit.visible_to(viewer, about, own_reads, limit=limit, **asked)

    # what a message asks about the memory itself

    def report(self, caller: Caller, asked: Asked, say: Say) -> str:
        """What a message asks about the memory itself: what there is, how much, since when. Raises Denied."""
        match asked.ask:
            case "list":
                return self._listed(self._meant(caller, asked), say)
            case "count":
                count = len(self._meant(caller, asked))
                return say("1 memory." if count == 1 else "{count} memories.", count=count)
            case "history":
                return self._history(caller, asked.what, say)
            case "jobs":
                jobs = self._planning.jobs(caller)
                return "\n".join(f"{job.id} {job.kind} {job.state}" for job in jobs) or say("No job is going on.")
            case "status":
                return self._status(caller)
            case _:
                return self._origins_of(caller, asked.what, say)

    def _meant(self, caller: Caller, asked: Asked) -> list[MemCube]:
        """The memories about something; about nothing or oneself, all; those alone that were said in a time. What was
        read in one of them is told with it."""
        cubes, what = self._access.texts(caller), asked.what
        there = {cube.id for cube in cubes}
        cubes = [cube for cube in cubes if there.isdisjoint(source.id for source in cube.sources)]
        if asked.when:
            first, last = (date.fromisoformat(day) for day in asked.when.split("/"))
            cubes = [c for c in cubes if first <= c.order[0].date() <= last]
        if not what or what.lower() in ("me", "我"):
            return cubes
        if _AHEAD.fullmatch(what):
            return [c for c in cubes if is_on(c, self._vault.now().astimezone().date(), date.max)]
        words = set(terms(what, query=True))
        if named := [cube for cube in cubes if words and words <= {*terms(cube.text)}]:
            return named
        hits = self._finding.search(caller, what)
        near = [hit.cube for hit in hits if hit.why.get("tokens", 0.0) >= NEAR]
        near = near or [hit.cube for hit in hits[: UNSURE if len(words) > 1 else 0]]  # what is named is nowhere
        like = {id for cube in near for id in (cube.id, *(source.id for source in cube.sources))}
        return [cube for cube in cubes if cube.id in like]

    def _listed(self, cubes: list[MemCube], say: Say) -> str:
        more = [say("... and {more} more", more=len(cubes) - MAX_LISTED)] if len(cubes) > MAX_LISTED else []
        lines = [*(say("{id} {text}", id=c.id, text=c.text) for c in cubes[:MAX_LISTED]), *more]
        return "\n".join(lines) or say("Nothing is remembered of that.")

    def _history(self, caller: Caller, what: str, say: Say) -> str:
        found = self._finding.described(caller, self._reader.forget(what))[0] if what else []
        if len(found) == 1:
            events = self._keeping.history(caller, found[0].id)
            told = (
                (one["at"][:16], one.get("payload", {}).get("text") or one.get("state", one["event"])) for one in events
            )
            return "\n".join(f"{at.replace('T', ' ')}: {what}" for at, what in told)
        which = " | ".join(f"{c.id} {c.text}" for c in found) or say("none fits")
        return say("Say more closely which memory: {which}", which=which)

    def _status(self, caller: Caller) -> str:
        cubes = self._finding.cubes(caller)
        forms = {form: sum(c.form is form and c.state in ANSWERING for c in cubes) for form in {c.form for c in cubes}}
        frozen = sum(c.state is State.FROZEN for c in cubes)
        return ", ".join([*(f"{n} {form}" for form, n in sorted(forms.items())), f"{frozen} frozen"])

    def _origins_of(self, caller: Caller, what: str, say: Say) -> str:
        near = self._finding.search(caller, what) if what else []
        if not near:
            return say("Ask `memos explain` with the question: it names the memories that an answer was given from.")
        each = (f"{hit.cube.id} {hit.cube.text} ({hit.cube.header.origin})" for hit in near[:3])
        return say("From: {which}", which=" | ".join(each))


def _hottest(cubes: Sequence[MemCube], topics: Iterable[Topic], most: int) -> Iterator[Warm]:
    """So many of each form; of those that are as hot, the most used."""
    of_topic = {id: topic.heat for topic in topics for id in topic.ids}

    def warm(cube: MemCube) -> float:
        return of_topic.get(cube.id, max((of_topic.get(source.id, 0.0) for source in cube.sources), default=0.0))

    for form in Form:
        of_form = (cube for cube in cubes if cube.form is form)
        for cube in nlargest(most, of_form, lambda cube: (warm(cube), cube.usage.recalls)):
            yield Warm(cube=cube, heat=warm(cube))
