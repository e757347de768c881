"""Who calls, what of the vault that caller sees, and the base of all services.

Makes the `Caller` where a call comes in, and decides what it is shown of a result and which files it may name. Must not
know what a call does, nor what a caller may do.
"""

from __future__ import annotations

import inspect
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from datetime import date, datetime
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable
from urllib.parse import quote

from memos.cube import ANSWERING, EPISODE, PASSAGE, Form, MemCube, Namespace, State, Text
from memos.errors import Denied, InputError, MemosError, NotFound, Unauthenticated
from memos.extensions import Registry
from memos.infrastructure.host.engines import EXECUTORS
from memos.infrastructure.vault.mem_vault import MemVault
from memos.operation.choosing.mem_scheduler import MemScheduler
from memos.operation.finding.catalog import View
from memos.operation.policies.policy import POLICIES, Policy
from memos.rights import Caller

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memos.config import Config
    from memos.infrastructure.governance.mem_governance import MemGovernance
    from memos.kernel.wiring import Parts
    from memos.lazy import Lazy
    from memos.operation.finding.mem_operator import FoundMemory, MemOperator
    from memos.operation.forms.serving import Serving
    from memos.operation.policies.policy import Policy
    from memos.ops import Operation

T = TypeVar("T")
AsRead = Callable[[MemCube], MemCube]  # a cube -> as somebody may read it
Limits = tuple[frozenset[str] | None, datetime | None, datetime | None]  # kinds, since, until: see `View`
SAID = frozenset([EPISODE, PASSAGE])  # kinds
OWN_POLICY = "own"  # the name of a policy that is given, not chosen by its name
NOT_FOUND_S = 0.02  # more than a refusal takes, so that the time tells no hidden memory from an absent one
MAX_FOLDER_NAME = 200  # characters
MAX_COUNTED_TEXTS = 65_536  # whose number of tokens is remembered


class Access:
    """The vault as one caller sees it."""

    def __init__(self, vault: MemVault, governance: MemGovernance) -> None:
        self._vault, self._governance = vault, governance

    def cube(self, caller: Caller, op: Operation, id: str) -> MemCube:
        """The cube, if the caller may do `op` to it. A prefix of its id will do where it fits one cube alone of those
        that the caller may see. Raises NotFound, Denied."""
        began = time.monotonic()
        try:
            found = self._vault.named(id)
            if len(found) != 1:
                found = self._governance.visible(caller, found)
            if len(found) != 1:
                raise self._governance.unknown(caller, op, id)
            self._governance.permit(caller, op, found[0])
            return found[0]
        except NotFound:
            time.sleep(max(0.0, began + NOT_FOUND_S - time.monotonic()))
            raise

    def texts(self, caller: Caller) -> list[MemCube]:
        """The memories in force, as the caller may read them and in the order of their saying."""
        readable = self.cubes(caller, Form.PLAINTEXT, ANSWERING)
        return list(map(self.as_read(caller), (c for c in readable if isinstance(c.payload, Text))))

    def cubes(self, caller: Caller, form: Form | None = None, states: Collection[State] | None = None) -> list[MemCube]:
        """All that the caller may see, in canonical order."""
        users = self._governance.users_in_sight(caller)
        return self._governance.readable(caller, self._vault.cubes(form=form, states=states, users=users))

    def as_read(self, caller: Caller) -> AsRead:
        """Memories as the caller may read them: its own whole, those of others without identifiers
        (governance.redaction)."""
        shown = self._vault.guard.as_shown
        return lambda cube: cube if cube.rights.owner == caller.user_id else shown(cube)

    def view(self, caller: Caller, limits: Limits = (None, None, None), *, summaries: bool = False) -> View:
        """What the caller may see, within limits. summaries: these, too, whatever kinds are asked for."""
        return View(*self._governance.sight(caller), *limits, owner=caller.user_id, summaries=summaries)

    def session(self, caller: Caller, name: str) -> Namespace:
        """A conversation of the caller. Raises Denied where the caller stands for another one alone."""
        if caller.session_id not in ("", name):
            raise Denied(f"{caller} is one session and reaches no other, {name!r}; use a key of the user or the agent")
        return caller.namespace.model_copy(update={"session_id": name})


class Schedulers:
    """The scheduler of each policy, and which policy decides for whom."""

    def __init__(self, config: Config, policy: Policy | None) -> None:
        """policy: one that is given, in place of config.policy. Raises InputError for one that nothing provides."""
        self._config, self._given = config, policy
        self._default = OWN_POLICY if policy else config.policy
        # by the name of a policy; raises InputError for one that nothing provides
        self.named: Callable[[str], MemScheduler] = lru_cache(maxsize=None)(self._made)
        self.main = self.named(self._default)
        for name in config.policies.values():
            self.named(name)
        if config.distil.isolation != "auto":
            EXECUTORS.require(config.distil.isolation)

    def policy_of(self, caller: Caller) -> str:
        """The name of the policy in the caller's namespace."""
        return self._config.policies.get(caller.user_id, self._default)

    def of(self, caller: Caller) -> MemScheduler:
        return self.named(self.policy_of(caller))

    def _made(self, name: str) -> MemScheduler:
        own = self._given if name == OWN_POLICY else None
        return MemScheduler(self._config.scheduler, own or POLICIES.get(name)(self._config))


class Replaying(Protocol):
    """Tiers of one policy, by view, as replaying the vault gives them."""

    def search(self, query: str, k: int | None, view: View, within: View) -> list[FoundMemory]:
        """What they give for a query, as far as it is within the second view, best first. Raises InputError."""
        ...

    def tiers(self, view: View) -> object: ...


@runtime_checkable
class Staged(Policy, Protocol):
    """A policy that finds by stages of its own."""

    def tiers(self) -> object: ...  # empty ones


class Summing(Protocol):
    """What `consolidate` and the reading of turns call when they are done."""

    def sum_up(self, caller: Caller) -> list[MemCube]:
        """Summaries of the caller's conversations, as far as these are not yet summed up: of every so many turns, and
        of what is left where nothing was added for as long as `reader.after_s`."""
        ...


REPLAY: Registry[Callable[[MemVault, MemOperator, Staged], Replaying]] = Registry("memos.replay", "replay")
SUMMING: Registry[Callable[[Parts], Summing]] = Registry("memos.summing", "way of summing up conversations")


class Curating(Protocol):
    """Carries out what policies that write return (`Writes`), each for the callers whose policy it is."""

    def told(self, caller: Caller) -> None:
        """After new turns of the caller's are kept."""
        ...

    def find(self, caller: Caller, policy: str, query: str, k: int, within: View) -> list[FoundMemory]:
        """What a policy finds, as far as it is within a view, best first."""
        ...

    def before_answer(self, caller: Caller, question: str) -> None: ...

    def on_answer(self, caller: Caller, question: str, answer: str, used: Sequence[MemCube]) -> None: ...

    def on_idle(self, caller: Caller) -> None: ...


CuratingOf = Callable[[str], "Curating | None"]  # by the name of a policy; None for one that writes nothing


class Freshness:
    """After a change that a search or a request may not have seen, what is loaded keeps up with it."""

    def __init__(self, operator: Lazy[MemOperator], serving: Lazy[Serving]) -> None:
        self._operator, self._serving = operator, serving

    def changed(self, result: T) -> T:
        """The same result, of a call that has changed memories."""
        if operator := self._operator.if_made:
            operator.refresh_soon()
        self.release()
        return result

    def release(self) -> None:
        """Let go of what is in memory of cubes that are no longer in use: a source may have changed."""
        serving = self._serving.if_made
        if serving and serving.payloads_used:
            serving.release()


class TokenCounts:
    """How many tokens memories take in a prompt. Remembered, since the same ones are asked for again and again."""

    def __init__(self, count: Callable[[Sequence[str]], list[int]]) -> None:
        self._count, self._lock = count, Lock()
        self._known = dict[str, int]()  # the newest last

    def __call__(self, memory: str) -> int:
        known = self._known.get(memory)
        return self.of([memory])[0] if known is None else known

    def of(self, memories: Sequence[str]) -> list[int]:
        """Those that are new are counted together, in a fifth of the time that it takes one by one."""
        found = {memory: self._known.get(memory) for memory in memories}
        if new := [memory for memory, tokens in found.items() if tokens is None]:
            counted = dict(zip(new, self._count(new), strict=True))
            with self._lock:
                self._known |= counted
                for oldest in list(islice(self._known, max(0, len(self._known) - MAX_COUNTED_TEXTS))):
                    del self._known[oldest]
            found |= counted
        return [found[memory] or 0 for memory in memories]


class Service:
    """The calls of one kind, over the parts that all kinds share."""

    def __init__(self, parts: Parts) -> None:
        self._config, self._vault, self._governance = parts.config, parts.vault, parts.governance
        self._access, self._freshness, self._schedulers = parts.access, parts.freshness, parts.schedulers
        self._reader, self._lifecycle, self._knowledge = parts.reader, parts.lifecycle, parts.knowledge
        self._consolidation, self._ageing = parts.consolidation, parts.ageing
        self._budgets, self._foresight = parts.budgets, parts.foresight
        self._host, self._operator, self._serving = parts.host, parts.operator, parts.serving
        self._sessions, self._transitions = parts.sessions, parts.transitions
        self._tokens, self._is_ours, self._embedder = parts.tokens, parts.is_ours, parts.embedder

    def _today(self) -> date:
        """Of the vault's clock, in the machine's zone."""
        return self._vault.now().astimezone().date()


def unique(cubes: Iterable[MemCube]) -> list[MemCube]:
    """Drop duplicates by id, keeping the last version and the first place."""
    return list({cube.id: cube for cube in cubes}.values())


class Identity:
    """Makes callers: whoever holds the vault's folder is believed, whoever comes with a key is who the key says."""

    def __init__(self, vault: MemVault, config: Config) -> None:
        self._vault, self._config = vault, config

    def keeper(self, user: str | None = None, agent: str = "", session: str = "", purpose: str = "") -> Caller:
        """Whoever holds the vault's folder, as the user that is named, or else config.user_id. Raises Denied where a
        key is required."""
        if self._config.governance.require_credentials:
            raise Denied(
                "this kernel takes no call without a key (governance.require_credentials); make one with "
                "`memos key add`, and call through as_(key)"
            )
        user = self._config.user_id if user is None else user
        return Caller(Namespace(user_id=user, agent_id=agent, session_id=session), purpose, keeper=True)

    def authenticate(self, key: str, purpose: str = "", audited: bool = True) -> Caller:
        """Who a key stands for. A failure is written down, without the key. Raises Unauthenticated, Denied."""
        found = self._vault.credentials.match(key)
        if found is None:
            self._vault.audit_log.append("unknown", "authenticate", "a key", False, "no key that is in force")
            raise Unauthenticated(
                "the key is unknown, revoked or has ended; ask who keeps this vault for one (`memos key add`)"
            )
        if purpose and purpose not in found.purposes:
            self._vault.audit_log.append(
                str(found.namespace), "authenticate", f"key {found.id}", False, "not for this purpose"
            )
            raise Denied(
                f"key {found.id} is not for the purpose {purpose!r:.80}; "
                + (f"it is for {', '.join(found.purposes)}" if found.purposes else "it is for none; leave it out")
            )
        if audited:
            self._vault.audit_log.append(str(found.namespace), "authenticate", f"key {found.id}", True, "authenticate")
        return Caller(found.namespace, purpose)


def part_of(caller: Caller, user: str | None = None, agent: str = "", session: str = "", purpose: str = "") -> Caller:
    """The same caller within a part of what it reaches. Raises Denied where it does not reach that, or has not stated
    that purpose from the start."""
    if purpose not in ("", caller.purpose):
        raise Denied(
            f"{caller} calls for another purpose than {purpose!r:.80}; state that one with the key or the user"
        )
    whole = caller.namespace
    part = Namespace(
        user_id=user or whole.user_id, agent_id=agent or whole.agent_id, session_id=session or whole.session_id
    )
    if not whole.covers(part):
        raise Denied(f"{whole} does not reach {str(part)!r:.200}; name what lies within {whole}, or use another key")
    return replace(caller, namespace=part)


def as_read(value: T, show: AsRead) -> T:
    """The same value with every cube in it, however deep it lies, as it may be read."""
    read: Any = _as_read(value, show)
    return read


def _as_read(value: Any, show: AsRead) -> Any:
    match value:
        case MemCube():
            return show(value)
        case list() | tuple():
            parts = [_as_read(part, show) for part in value]
            if all(new is old for new, old in zip(parts, value, strict=True)):
                return value
            return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
        case dict():
            shown = {name: _as_read(part, show) for name, part in value.items()}
            return value if all(shown[name] is value[name] for name in value) else shown
        case _ if is_dataclass(value) and not isinstance(value, type):
            before = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
            after = {name: _as_read(part, show) for name, part in before.items()}
            return value if all(after[name] is before[name] for name in before) else replace(value, **after)
        case _:
            return value


@contextmanager
def named_if_unstorable(*given: object) -> Iterator[None]:
    """Raises InputError where something fails for a number that no table holds, or a text or file that no disk does,
    however deep that lies in what was given."""
    try:
        yield
    except MemosError:
        raise
    except Exception:  # each library has its own for them
        for value in given:
            if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
                raise InputError(f"the number {hex(value):.40} has more than 64 bits; give a smaller one") from None
        try:
            _require_text(given)
        except UnicodeEncodeError as error:
            raise InputError(f"{error.object!r:.80} has half a character, and is no UTF-8; give whole ones") from None
        except RecursionError:
            raise InputError("what is given is nested too deep; give it with fewer levels") from None
        raise


def _require_text(value: object) -> None:
    match value:
        case str():
            value.encode()
        case os.PathLike() if "\0" in os.fsdecode(value):
            raise InputError(f"{os.fsdecode(value)!r:.80} names no file: it has a NUL; leave it out")
        case os.PathLike():
            os.fsencode(value)
        case list() | tuple() | set():
            for part in value:
                _require_text(part)
        case dict():
            _require_text((*value, *value.values()))


class ExchangeFolder:
    """Where holders of keys leave and find files: each below a folder of its own, an agent's and a session's within
    that of its user. What lies elsewhere belongs to whoever runs the process."""

    def __init__(self, folder: Path | None) -> None:
        """None: there is no such place, and no file may be named."""
        self._folder = folder

    def confined(
        self,
        method: Callable[..., object],
        files: Collection[str],
        caller: Caller,
        values: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What a call is given, with each file that it names as a path within the caller's folder.

        files: the arguments that name a file as text; a path does so wherever it stands. Raises Denied for a file that
        lies elsewhere, TypeError for what the call does not take.
        """
        given = inspect.signature(method).bind(None, caller, *values, **named)
        for name, value in list(given.arguments.items())[2:]:
            given.arguments[name] = self._own(value, caller.namespace, name in files)
        return given.args[2:], given.kwargs

    def _own(self, value: Any, caller: Namespace, is_file: bool) -> Any:
        match value:
            case os.PathLike():
                return self._within(os.fsdecode(value), caller)
            case str() if is_file:
                return type(value)(self._within(value, caller))
            case list() | tuple() | set() | frozenset() | Iterator():  # what is read once is read here
                return [self._own(part, caller, is_file) for part in value]
            case _:
                return value

    def _within(self, path: str, caller: Namespace) -> Path:
        if self._folder is None:
            raise Denied(
                f"{caller} calls with a key and names the file {path!r:.200}: files are for who keeps this vault, "
                f"unless governance.exchange_folder is set; ask who keeps this vault to set it"
            )
        own = (self._folder / _folder_of(caller)).resolve()
        found = (own / path).resolve()
        if ":" in path or not found.is_relative_to(own):  # an address, as of a registry, may lead anywhere
            raise Denied(
                f"{caller} calls with a key and names {path!r:.200}, which is not in its part of "
                f"governance.exchange_folder; name a file there, relative to it, or ask who keeps this vault"
            )
        own.mkdir(parents=True, exist_ok=True)
        return found


def _folder_of(caller: Namespace) -> Path:
    """The folder of a caller, beneath that of all."""
    marks = (("", caller.user_id), ("agent ", caller.agent_id), ("session ", caller.session_id))
    return Path(*(mark + _plain(name) for mark, name in marks if name))


def _plain(name: str) -> str:
    """As the name of a folder, another for each."""
    quoted = re.sub(r"^\.", "%2E", quote(name, safe=" @+,="))
    return quoted if len(quoted) <= MAX_FOLDER_NAME else sha256(name.encode()).hexdigest()
