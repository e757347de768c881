"""Identifies callers by their credential alone, and limits how much each may ask; must not know what is asked."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from memos.config import ServeConfig
from memos.errors import Busy, Denied, Unauthenticated
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.api.values import Who
from memos.plugins.server.edge.lanes import Lane

if TYPE_CHECKING:
    from memos.kernel.calls import Calls

MAX_CACHED = 4096  # keys whose memory is at hand, and addresses that have shown a wrong one
KEY_CHECK_S = 1.0  # after which it is asked again whether the vault has a key
MAX_WRONG_KEYS = 30  # a minute and address; beyond, the vault is not asked about another


@dataclass(frozen=True)
class Seat:
    """A caller: the id of its key, "" for none, and the Memory API as that caller."""

    key: str
    memory: Memory

    @property
    def calls(self) -> Calls:
        """The kernel's calls as that caller; each raises Unauthenticated once the key is none any more."""
        return self.memory.within()


class OwnMemory(Memory):
    """The Memory API for the config's user alone: whoever calls without a key is no other, whatever the call says."""

    def within(self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None) -> Calls:
        own = self.kernel.config.user_id
        if user_id not in (None, own):
            raise Denied(
                f"without a key this server acts for {own} and not for {user_id!r:.80}; leave user_id out, or make a "
                f"key of that user with `memos key add`"
            )
        return super().within(own, agent_id, run_id)

    def around(self, memory_id: str, who: Who) -> Calls:
        return self.within(**who)


@dataclass
class TokenBucket:
    """Requests of a key, or wrong keys of an address: how many are left of a minute's, as of `updated`."""

    left: float
    updated: float
    running: int = 0

    def wait(self, most: int, now: float) -> float:
        """Seconds until one is left, of `most` a minute; 0 where one is."""
        self.left, self.updated = min(float(most), self.left + (now - self.updated) * most / 60), now
        return max(0.0, 1 - self.left) * 60 / most

    def take(self) -> None:
        self.left = max(0.0, self.left - 1)


class Callers:
    """A key that was revoked opens nothing with the next call: the memory of each asks anew who it is."""

    def __init__(self, memory: Memory, loopback: bool, lane: Lane) -> None:
        """loopback: only this machine can call, and needs no key while there is none."""
        self._memory, self._loopback, self._lane = memory, loopback, lane
        self._own = Seat("", OwnMemory(kernel=memory.kernel))
        self._seats: OrderedDict[str, Seat] = OrderedDict()
        self._strangers: OrderedDict[str, TokenBucket] = OrderedDict()  # by address
        self._open, self._checked = False, -KEY_CHECK_S

    @property
    def open(self) -> bool:
        """True while no key was ever made and whoever reaches this machine acts as its user."""
        now = time.monotonic()
        if now - self._checked >= KEY_CHECK_S:
            self._open, self._checked = self._loopback and not self._memory.kernel.services.governing.keys(), now
        return self._open

    async def seat_of(self, authorization: str | None, address: str) -> Seat:
        """Who shows this header, which came from an address. Raises Unauthenticated, Busy."""
        if self.open:
            return self._own
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.casefold() != "bearer" or not key.strip():
            raise Unauthenticated(
                "this server takes no call without a key; send it as `Authorization: Bearer KEY`, and ask who keeps "
                "the vault for one (`memos key add`)"
            )
        return self._seats.get(key.strip()) or await self._enter(key.strip(), address)

    def forget(self, seat: Seat) -> None:
        """Its key was revoked: who shows it again is a stranger."""
        self._seats = OrderedDict((key, one) for key, one in self._seats.items() if one is not seat)

    async def _enter(self, key: str, address: str) -> Seat:
        now = time.monotonic()
        bucket = self._strangers.setdefault(address, TokenBucket(float(MAX_WRONG_KEYS), now))
        if len(self._strangers) > MAX_CACHED:
            self._strangers.popitem(last=False)
        if wait := bucket.wait(MAX_WRONG_KEYS, now):
            raise Busy(
                f"{address or 'this address'} has shown {MAX_WRONG_KEYS} keys a minute that are not in force, and no "
                f"new one is looked at until there are fewer; ask who keeps the vault for one (`memos key add`)",
                wait,
            )
        bucket.take()  # before it is looked at: others come meanwhile
        memory = await self._lane.run(partial(self._memory.as_, key))
        bucket.left += 1
        self._seats[key] = seat = Seat(key.split("_")[1], memory)
        if len(self._seats) > MAX_CACHED:
            self._seats.popitem(last=False)
        return seat


class Meter:
    """Requests by key: a bucket that fills at the rate of the limit, and a count of those that go on."""

    def __init__(self, config: ServeConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._buckets: dict[str, TokenBucket] = {}

    @contextmanager
    def admitted(self, key: str) -> Iterator[None]:
        """One request of a key, which is one that is in force. Raises Busy."""
        limits, now = self._config.of(key), self._clock()
        bucket = self._buckets.setdefault(key, TokenBucket(float(limits.requests_a_minute or 0), now))
        if bucket.running >= limits.concurrent:
            raise Busy(
                f"{bucket.running} requests of this key go on already (serve.concurrent); end one, or ask later", 1.0
            )
        if (most := limits.requests_a_minute) and (wait := bucket.wait(most, now)):
            raise Busy(f"this key has made its {most} requests a minute (serve.requests_a_minute); slow down", wait)
        bucket.take()
        bucket.running += 1
        try:
            yield
        finally:
            bucket.running -= 1
