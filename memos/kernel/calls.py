"""The one table of public calls: what each does, the right it needs, what it may leave behind, which doors have it.

A call is a method of a service, whose first argument is the caller. Every door, the authorisation of a key, what is
shown of a result, and the reference pages follow from the line here.
"""

from __future__ import annotations

import inspect
from enum import Enum
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Protocol,
    TypeVar,
    cast,
    overload,
    runtime_checkable,
)

from typing_extensions import ParamSpec, Self

from memos import ops
from memos.errors import InputError, meant
from memos.extensions import Registry
from memos.kernel.access import SUMMING, ExchangeFolder, as_read, named_if_unstorable, part_of
from memos.kernel.answering import Answering
from memos.kernel.pipelines import Pipelines
from memos.kernel.services.finding import Finding
from memos.kernel.services.forming import Forming
from memos.kernel.services.governing import Governing
from memos.kernel.services.keeping import Keeping
from memos.kernel.services.life import Life
from memos.kernel.services.planning import Planning
from memos.kernel.services.seeing import Seeing
from memos.kernel.unread import Unread
from memos.operation.policies.policy import Writes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memos.cube import Frozen, MemCube
    from memos.kernel.access import Curating
    from memos.kernel.wiring import Parts
    from memos.ops import Call, Operation
    from memos.rights import Action, Caller

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class Effect(str, Enum):
    """What a call may leave behind."""

    READS = "reads"  # nothing but lines of the audit log, and counts of use
    ADDS = "adds"  # something new; nothing that was there is lost
    CHANGES = "changes"  # what was there may be another, or gone


READS, ADDS, CHANGES = Effect.READS, Effect.ADDS, Effect.CHANGES
# why agents, who act on what they read, and whom a memory may tell to, have no tool for a call
MUCH_IS_LOST = "much is lost by one call, for good"
FOR_A_PERSON = "who else may read is for a person to decide"
MISLED = "an agent that a memory has misled would judge that memory"
LOOKS_LIKE_ORDERS = "its memories look like instructions to a model, and a model would read them here"
LEGAL = "a legal matter"
BY_ITSELF = "the scheduler's work goes on by itself, and may be somebody else's"


class public(Generic[S, P, R]):
    """One line of the table. On an object it is the method, as the caller whom the object stands for."""

    def __init__(
        self,
        method: Callable[Concatenate[S, Caller, P], R],
        operation: type[Operation],
        effect: Effect,
        *,
        api: str | None = None,
        agents: str = "",
        files: tuple[str, ...] = (),
    ) -> None:
        """operation: whose right the call needs. api: its name in the Memory API, and so over HTTP, where that is
        another; "" where it is in Python and on the command line alone. agents: why agents have no tool for it. files:
        its arguments that name a file as text; paths do so wherever they stand."""
        self.method = method
        self.operation, self.effect, self.files, self.why_not_agents = operation, effect, files, agents
        self._api = api
        self._service = method.__qualname__.partition(".")[0]
        self.__doc__ = method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.api = name if self._api is None else self._api

    @property
    def right(self) -> Action:
        return self.operation.right

    @property
    def signature(self) -> inspect.Signature:
        """What it takes, but for who calls."""
        whole = inspect.signature(self.method)
        return whole.replace(parameters=list(whole.parameters.values())[2:])

    @overload
    def __get__(self, calls: None, owner: type) -> Self: ...

    @overload
    def __get__(self, calls: Bound, owner: type) -> Callable[P, R]: ...

    def __get__(self, calls: Bound | None, owner: type) -> Self | Callable[P, R]:
        return self if calls is None else calls.bound(self, self._service)


class Bound:
    """A table of calls, as one caller. Who that is is asked anew with each call, so that a key that is revoked opens
    nothing from then on."""

    plugin: ClassVar[str] = ""  # whose services carry the calls out, by its name in the extension point memos.services

    def __init__(self, services: Services, who: Callable[..., Caller], files: ExchangeFolder | None = None) -> None:
        """who: makes the caller, or one within a part of it, as `part_of` does; raises Denied. files: those that the
        caller may name; None: all that the process can reach."""
        self._services, self._who, self._files = services, who, files

    @classmethod
    def of(cls, calls: Bound) -> Self:
        """This table's calls, as the caller of another's."""
        return cls(calls._services, calls._who, calls._files)

    @classmethod
    def table(cls) -> dict[str, public[Any, Any, Any]]:
        """Every call by its name."""
        lines = (line for owner in cls.__mro__ for line in vars(owner).values())
        return {line.name: line for line in lines if isinstance(line, public)}

    @property
    def caller(self) -> Caller:
        """Who acts. Raises Denied."""
        return self._who()

    def invoke(self, name: str, *values: Any, **named: Any) -> Any:
        """A call by its name, for what was written down. Raises InputError."""
        if name not in self.table():
            raise InputError(f"there is no call {name!r}; {meant(name, self.table(), 'see the table of calls')}")
        return getattr(self, name)(*values, **named)

    def bound(self, line: public[S, P, R], service: str) -> Callable[P, R]:
        """A service's method as this caller; used by `public`."""
        method, name, files = line.method, line.name, line.files

        def call(*values: P.args, **named: P.kwargs) -> R:
            if "user" in named:
                raise InputError(f"{name} takes no user; whose call it is says within(user).{name}(...)")
            caller, carrier = self._who(), self._services.service(service, self.plugin)
            parts = self._services.parts
            with (
                parts.called(),
                parts.governance.noting_holds(caller, line.right, name),
                named_if_unstorable(str(caller), *values, *named.values()),
            ):
                if self._files:
                    own, by_name = self._files.confined(method, files, caller, values, named)
                    result = method(carrier, caller, *own, **by_name)  # type: ignore[arg-type]  # of the method's class
                else:
                    result = method(carrier, caller, *values, **named)  # type: ignore[arg-type]
            show = self._services.as_read_by(caller)
            return as_read(result, show) if show else result

        call.__name__ = name
        return call

    def require(self) -> Self:
        """The same, for a caller who acts at all. Raises Denied at once, and not with the first call."""
        self.caller  # noqa: B018
        return self


class Calls(Bound):
    """The calls that act for a caller."""

    # keeping
    add = public(Keeping.add, ops.Add, ADDS)
    keep = public(Keeping.keep, ops.Add, ADDS, api="")
    get = public(Keeping.get, ops.Get, READS)
    update = public(Keeping.update, ops.Update, CHANGES)
    delete = public(Keeping.delete, ops.Delete, CHANGES)
    delete_all = public(Keeping.delete_all, ops.Delete, CHANGES, agents=MUCH_IS_LOST)
    history = public(Keeping.history, ops.History, READS)
    known_origins = public(Keeping.known_origins, ops.Get, READS, api="")
    # knowing
    tag = public(Life.tag, ops.Tag, CHANGES)
    feedback = public(Life.feedback, ops.Rate, ADDS)
    fuse = public(Life.fuse, ops.Fuse, ADDS)
    split = public(Life.split, ops.Split, ADDS)
    consolidate = public(Life.consolidate, ops.Fuse, ADDS)
    reinstate = public(Life.reinstate, ops.Reinstate, CHANGES)
    conflicts = public(Life.conflicts, ops.Search, READS, api="")
    audit_memory = public(Life.audit_memory, ops.Search, READS, api="")
    # finding and answering
    search = public(Finding.search, ops.Search, READS)
    memories = public(Finding.memories, ops.Search, READS, api="get_all")
    cubes = public(Finding.cubes, ops.Search, READS, api="get_all")
    tiers = public(Finding.tiers, ops.Search, READS, api="")
    chat = public(Answering.chat, ops.Recall, CHANGES)
    ask = public(Answering.ask, ops.Recall, ADDS, api="")
    undo = public(Pipelines.undo, ops.Recall, CHANGES)
    explain = public(Answering.explain, ops.Recall, READS)
    credit = public(Answering.credit, ops.Rate, ADDS, api="feedback")
    turns = public(Answering.turns, ops.Get, READS, api="")
    rewind = public(Answering.rewind, ops.Rewind, CHANGES, api="")
    # forms
    promote = public(Forming.promote, ops.Promote, ADDS)
    demote = public(Forming.demote, ops.Demote, CHANGES)
    gate = public(Forming.gate, ops.Get, READS, api="")
    jobs = public(Planning.jobs, ops.Get, READS)
    cancel = public(Planning.cancel, ops.Promote, CHANGES, agents=BY_ITSELF)
    tick = public(Planning.tick, ops.Promote, CHANGES, agents=BY_ITSELF)
    plan = public(Planning.plan, ops.Promote, ADDS, api="")
    segments = public(Planning.segments, ops.Search, READS, api="")
    # life
    diff = public(Life.diff, ops.History, READS, api="")
    rollback = public(Life.rollback, ops.Rollback, CHANGES)
    freeze = public(Life.freeze, ops.ChangeState, CHANGES)
    thaw = public(Life.thaw, ops.ChangeState, CHANGES)
    archive = public(Life.archive, ops.ChangeState, CHANGES)
    unarchive = public(Life.unarchive, ops.ChangeState, CHANGES)
    snapshot = public(Life.snapshot, ops.TakeSnapshot, ADDS)
    snapshots = public(Life.snapshots, ops.ListSnapshots, READS)
    restore = public(Life.restore, ops.Restore, CHANGES)
    delete_snapshot = public(Life.delete_snapshot, ops.DeleteSnapshot, CHANGES, agents=MUCH_IS_LOST)
    # rights
    grant = public(Governing.grant, ops.GiveRight, CHANGES, agents=FOR_A_PERSON)
    revoke = public(Governing.revoke, ops.TakeRight, CHANGES, agents=FOR_A_PERSON)
    grants = public(Governing.grants, ops.ListRights, READS)
    join = public(Governing.join, ops.Join, CHANGES, agents=FOR_A_PERSON)
    leave = public(Governing.leave, ops.Join, CHANGES, agents=FOR_A_PERSON)
    groups = public(Governing.groups, ops.ListGroups, READS)
    trust = public(Governing.trust, ops.SetTrust, CHANGES, agents=MISLED)
    quarantined = public(Governing.quarantined, ops.Quarantined, READS, agents=LOOKS_LIKE_ORDERS)
    release = public(Governing.release, ops.Release, CHANGES, agents=MISLED)
    hold = public(Governing.hold, ops.Hold, CHANGES, agents=LEGAL)
    holds = public(Governing.holds, ops.Holds, READS, agents=LEGAL)
    end_hold = public(Governing.end_hold, ops.EndHold, CHANGES, agents=LEGAL)
    forget_user = public(Governing.forget_user, ops.ForgetUser, CHANGES, api="forget", agents=MUCH_IS_LOST)
    # seeing
    overview = public(Seeing.overview, ops.Search, READS)
    lineage = public(Seeing.lineage, ops.Get, READS, api="provenance")
    log = public(Seeing.log, ops.Get, READS)

    def within(self, user: str | None = None, agent: str = "", session: str = "", purpose: str = "") -> Calls:
        """The same calls as one user, agent or session that the caller reaches; where none is named yet, the keeper of
        a vault reaches all, and for a purpose, which grants may ask for. Raises Denied; with a key, the calls do."""
        whole = partial(self._who, user, agent, session, purpose)
        calls = Calls(self._services, lambda *part: part_of(whole(), *part), self._files)
        return calls if self._files else calls.require()  # a key is looked up once, with the call


@runtime_checkable
class TellsOrigins(Protocol):
    """A service of a plug-in that knows how memories came into the vault."""

    def came_from(self, cube: MemCube) -> Sequence[Frozen]: ...


@runtime_checkable
class Stops(Protocol):
    """A service of a plug-in that works in the background."""

    def stop(self) -> None:
        """End that, before the vault is closed; it is taken up again by the next who opens it."""
        ...


class Services:
    """The services of one kernel, each given what it needs; those of plug-ins when they are first asked for."""

    # the services of plug-ins, by name: each a factory (Services) -> service
    PLUGINS: Registry[Callable[[Services], object]] = Registry("memos.services", "service")

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._of_plugins: dict[str, object] = {}
        self.summing = SUMMING.get("turns")(parts)
        self.unread = Unread(parts, self.summing)
        self.finding = Finding(parts, self.curating)
        self.keeping = Keeping(parts, self.unread, self.curating)
        self.life = Life(parts, self.summing)
        self.forming = Forming(parts)
        self.planning = Planning(parts, self.life, self.forming, self.keeping, self.unread, self.curating)
        self.governing = Governing(parts, self.finding)
        self.seeing = Seeing(parts, self.finding, self.keeping, self.planning, self._origins)
        self.pipelines = Pipelines(
            parts, self.finding, self.keeping, self.life, self.forming, self.governing, self._invoke
        )
        self.answering = Answering(
            parts, self.finding, self.keeping, self.life, self.seeing, self.pipelines, self.curating
        )
        self._by_class: dict[str, object] = {type(service).__name__: service for service in vars(self).values()}

    def service(self, name: str, plugin: str) -> object:
        """The service of a class name; of a plug-in, where one is named. Raises InputError, PluginError."""
        return self.of_plugin(plugin) if plugin else self._by_class[name]

    def of_plugin(self, name: str) -> object:
        """The service that a plug-in brings. Raises InputError, PluginError."""
        if name not in self._of_plugins:
            self._of_plugins[name] = self.PLUGINS.get(name)(self)
        return self._of_plugins[name]

    def curating(self, policy: str) -> Curating | None:
        """What carries out what a policy writes; None for one that writes nothing. Raises InputError, PluginError."""
        by = self.parts.schedulers.named(policy).policy
        return cast("Curating", self.of_plugin(by.service)) if isinstance(by, Writes) else None

    def as_read_by(self, caller: Caller) -> Callable[[MemCube], MemCube] | None:
        """How the caller may read memories; None: as they are."""
        return self.parts.access.as_read(caller) if self.parts.vault.guard.hides else None

    def close(self) -> None:
        """What goes on in the background is interrupted, and taken up again by the next who opens the vault."""
        self.planning.stop()
        self.unread.stop()
        for service in self._of_plugins.values():
            if isinstance(service, Stops):
                service.stop()
        self.parts.close()

    def _invoke(self, caller: Caller, call: Call) -> object:
        name, values, named = call
        return Calls(self, lambda: caller).invoke(name, *values, **named)

    def _origins(self, cube: MemCube) -> Iterator[Frozen]:
        for name, _ in self.PLUGINS.usable():
            service = self.of_plugin(name)
            if isinstance(service, TellsOrigins):
                yield from service.came_from(cube)


def api_names() -> Iterator[str]:
    """The calls that the Memory API has, and with it HTTP, each once."""
    yield from dict.fromkeys(line.api for line in Calls.table().values() if line.api)
