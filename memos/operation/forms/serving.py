"""Turns what a request may see into what the model is given: which KV is used, and where KV is meanwhile.

Wires the vault, the scheduler's choices and the host's memory; decides nothing of its own.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from memos.cube import Blob, Form, MemCube, State
from memos.errors import CorruptBlob, MemosError, NoRoom, VaultError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.kv.files import codecs, exact_codecs, storing_codecs
from memos.infrastructure.host.kv.tiers import KVTiers, Tier
from memos.infrastructure.host.model.measure import in_page_cache
from memos.infrastructure.host.request import Request
from memos.lazy import Lazy
from memos.operation.choosing.cost_model import Costs, Lying, MemoryTier, ResidentKV, Situation, Ways
from memos.operation.choosing.foresight import LIKELY, PAUSE, Foresight
from memos.operation.forms.seen import VISION, visions

if TYPE_CHECKING:
    from memos.config import Config, DecodeConfig, FidelityConfig
    from memos.infrastructure.host.kv.cache import Activation
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.operation.choosing.mem_scheduler import Admission, Via
    from memos.operation.policies.policy import Policy, Segment

log = logging.getLogger("memos")
T = TypeVar("T")
_measured: dict[str, dict[str, Any]] = {}  # by this process, for its other vaults


class Serving:
    """Brings payloads to the model for one request after the other."""

    def __init__(self, config: Config, vault: MemVault, policy: Policy, host: Host, foresight: Foresight) -> None:
        self._config, self._vault, self._host = config, vault, host
        self._ways = Ways(config.scheduler, policy)
        self._foresight = foresight
        self._background = ThreadPoolExecutor(1, "memos-prefetch")
        self._ahead = dict[str, str]()  # for whom KV was prefetched and not used since, by digest
        self.prefetched, self.prefetch_hits = Counter[str](), Counter[str]()  # KV caches, by user
        self.answered = False  # anything yet
        self.payloads_used = False  # by any request yet: else there is none to let go of
        self._tiers = KVTiers(host.model.device)
        self._cubes: dict[str, MemCube] = {}  # whose payload was in memory at some time, by digest
        self._unmeasurable = self._waiting = False
        self._known_costs = Lazy(self._read_costs)
        self._paced: Costs | None = None

    def request(
        self,
        admission: Admission,
        messages: Sequence[dict[str, str]],
        via: Via,
        tokens: Callable[[str], int],
        keep: bool = False,
    ) -> tuple[Admission, Request]:
        """What is really used of an admission, and the request with it.

        keep: the answer's KV is wanted, so what it is read over must be exact.
        Raises CorruptBlob, FingerprintMismatch, NoRoom.
        """
        released = self._host.released  # before anything is brought: what is let go of from here on is not kept
        if keep:
            # as far as they are stored bit by bit: of these alone exact KV can be grown
            exact = exact_codecs()
            kept = takewhile(lambda kv: _blob(kv).codec in exact, admission.activations)
            admission = replace(admission, activations=tuple(kept))
        if admission.activations:
            admission = self._chosen(admission, messages, via, tokens, keep)
        level = admission.way.level if admission.way else None
        for name in {_blob(kv).sha256 for kv in admission.activations} & self._ahead.keys():
            self.prefetch_hits[self._ahead.pop(name)] += level is not None and self._tiers.resident(name) is not None
        pasts = tuple(map(self._kv, admission.activations)) if level else ()
        memories = tuple(c.text for c in admission.cubes)
        covered = admission.cubes[: sum(len(kv.sources) for kv in admission.activations)]
        seen = visions.get(VISION).names(self._host, covered) if any(past.pictures for past in pasts) else ()
        given = tuple(messages), memories, pasts, self.adapters(admission), level or self._config.fidelity
        return admission, Request(*given, keep=keep, released=released, pictures=seen)

    def fitting(
        self, turns: Sequence[dict[str, str]], question: str, admission: Admission, decode: DecodeConfig
    ) -> tuple[dict[str, str], ...]:
        """The turns before a question, as far as the model's context has room for them."""
        asked, shown = {"role": "user", "content": question}, tuple(cube.text for cube in admission.cubes)
        return newest(tuple(turns), lambda left: self._host.fits(Request((*left, asked), shown), decode))

    def adapters(self, admission: Admission) -> tuple[Path, ...]:
        """The folders of the admitted adapters, and of what the answer is steered by. Raises CorruptBlob."""
        return tuple(map(self._blob_path, (*admission.adapters, *admission.steering)))

    def route(
        self, messages: Sequence[dict[str, str]], adapters: Sequence[MemCube], at_least_one: bool
    ) -> list[MemCube]:
        """Those of the adapters that know the answer, surest first: what they say differs from the base model."""
        sound: list[tuple[MemCube, Path]] = []
        for adapter in adapters:
            try:
                sound.append((adapter, self._blob_path(adapter)))
            except VaultError as error:  # damaged, or out of reach
                log.warning("an adapter is passed over: %s", error)
        nats = self._host.divergences(messages, [(path,) for _, path in sound]) if sound else []
        ranked = sorted(zip(nats, sound, strict=True), key=lambda row: -row[0])  # stable: the nearer group first
        knowing = [adapter for kl, (adapter, _) in ranked if kl >= self._config.scheduler.route_nats]
        return knowing or ([adapters[0]] if at_least_one else [])

    def _chosen(
        self,
        admission: Admission,
        messages: Sequence[dict[str, str]],
        via: Via,
        tokens: Callable[[str], int],
        exact: bool,
    ) -> Admission:
        kvs, levels = admission.activations, self.levels(exact, admission.activations)
        if len(kvs) > 1 and not levels:
            kvs, levels = kvs[:1], self.levels(exact)
            admission = replace(admission, activations=kvs)
        resident = list(map(self.resident, kvs))
        situation = Situation(
            costs=self.costs,
            levels=levels,
            lying={kv.id: self._lying(kv, first=n == 0) for n, kv in enumerate(kvs)},
            there=self._host.exact_pieces([past for past in resident if past]) if all(resident) else 0,
            tokens=tokens,
            head=len(self._host.head),
            question=self._host.tokens_of(messages),
        )
        forced = via == "activation" or not self._measures
        return self._ways.choose(admission, forced, situation)

    @property
    def _measures(self) -> bool:
        return self._config.scheduler.choice == "measured" and not self._unmeasurable

    def levels(self, exact: bool = False, kvs: Sequence[MemCube] = ()) -> list[FidelityConfig]:
        """How several KV caches may be put together for this model: as configured, as far as its card allows it.
        Compact KV among others has no rows that could be computed anew."""
        wanted = self._config.fidelity
        if exact and wanted.level != "L4":
            return [wanted.model_copy(update={"level": "L0"})]
        compact = len(kvs) > 1 and any(_blob(kv).few_rows for kv in kvs)
        found = self._ways.levels(wanted, self._vault.cards.of(self.card("compact" if compact else None)))
        return [level for level in found if level.level == "L1"] if compact else found

    def card(self, codec: str | None = None) -> str:
        """Under which name it is known how well KV composes here that is made by a codec, or by activation.codec."""
        codec = codec or self._config.activation.codec
        made = codec != "auto" and codecs.get(codec).encode
        return f"{self._host.digest} {codec}" if made else self._host.digest

    @property
    def costs(self) -> Costs:
        """What was measured on this machine, now or by an earlier process, at the pace of the latest requests."""
        return self._paced or self._known_costs()

    def _read_costs(self) -> Costs:
        """Where nothing can be measured, KV is used wherever there is any."""
        try:
            if self._measures and self._host.capability.exact:
                known = self._vault.cards.of(self._key) or _measured.get(self._key)
                if known is None or not all(f"disk {codec}" in known["load"] for codec in self._codecs):
                    return self.measure()
                _measured[self._key] = known
                return Costs.model_validate(known)
        except (MemosError, OSError, ValueError) as error:
            log.warning("this machine is not measured, so KV is used wherever there is any: %s", error)
            self._unmeasurable = True
        size = self._host.kv_bytes if self._host.capability.exact else 0.0
        return Costs(read=((1, 1e-9), (2, 2e-9)), bytes=size, gpu=self._host.model.device.type != "cpu")

    def pays(self, segment: Segment, tokens: Callable[[str], int]) -> bool:
        """Whether KV of a group is worth making, as far as that is known; to train it is, once the group is as quiet as
        one must be to become an adapter."""
        if self._config.activation.few_rows:
            changed = max(c.header.changed or c.header.created for c in segment.cubes)
            return (self._vault.now() - changed).total_seconds() >= self._config.scheduler.stable_s
        costs = self.costs
        return not self._measures or not self._host.capability.exact or self._ways.pays(segment, costs, tokens)

    def measure(self) -> Costs:
        """Measure this machine, and keep that."""
        with self._vault.blobs.staging() as folder:
            folder.mkdir()
            figures = self._host.measure(folder, self._codecs)
        known = self._vault.cards.of(self._key) or {"load": {}}
        _measured[self._key] = figures | {"load": known["load"] | figures["load"]}
        self._vault.cards.put(self._key, _measured[self._key])
        return Costs.model_validate(_measured[self._key])

    def codecs(self, tokens: int) -> list[str]:
        """How KV of so many tokens may be stored; first what loads soonest from the disk."""
        costs = self.costs if len(self._codecs) > 1 else None  # which are measured for a choice alone
        return sorted(self._codecs, key=lambda codec: costs.bring(Lying(tokens, "disk", codec)) if costs else 0)

    @property
    def _codecs(self) -> tuple[str, ...]:
        return storing_codecs() if self._config.activation.stored == "auto" else (self._config.activation.stored,)

    @property
    def _key(self) -> str:
        return f"costs of {self._host.machine}"

    def _lying(self, cube: MemCube, first: bool) -> Lying:
        blob = _blob(cube)
        place: str = self._tiers.tier(blob.sha256)
        if place == "disk" and (path := self._vault.blobs.local(blob)) and in_page_cache(path):
            place = "cache"
        return Lying(blob.tokens - (0 if first else len(self._host.head)), place, blob.stored)

    def _kv(self, cube: MemCube) -> Activation:
        # its checksums are read with it: to compare the digest first would read it twice
        path = self._vault.blobs.path(_blob(cube), verified=False)
        return self.bring(cube, lambda: self._host.load_kv(path))

    def bring(self, cube: MemCube, load: Callable[[], Activation]) -> Activation:
        """The cube's KV on the device; from `load` where it is not in memory."""
        self.payloads_used = True
        name = _blob(cube).sha256
        self._cubes[name] = cube
        return self._tiers.bring(name, load)

    def resident(self, cube: MemCube) -> Activation | None:
        """The cube's KV, if it is in memory."""
        return self._tiers.resident(_blob(cube).sha256)

    def tier(self, name: str) -> Tier:
        """Where a payload lies, by its digest."""
        return self._tiers.tier(name)

    def settle(self, admission: Admission, took: float) -> None:
        """After a request, whose first token took so many seconds: learn from that, and let the KV that is in memory go
        to where it should stay."""
        self.answered = True
        if admission.way and self._measures:
            self._paced = self.costs.paced(admission.way, took)
        if self._cubes:
            self._settle()

    def _residents(self) -> list[ResidentKV]:
        cubes = dict(self._cubes)
        return [
            ResidentKV(name, cubes[name], int(kv.rows * self.costs.bytes) if kv.plain else kv.bytes, kv.rows)
            for name, kv in self._tiers.all().items()
            if name in cubes  # else it was let go of meanwhile
        ]

    def _places(self, kvs: Sequence[ResidentKV]) -> dict[str, MemoryTier]:
        now = self._vault.now()
        of_groups = [kv for kv in kvs if kv.cube.namespace.session_id == ""]
        worth = self._foresight.worth([kv.cube.sources[0].id for kv in of_groups], now.timestamp())
        expected = {kv.name: uses for kv, uses in zip(of_groups, worth.tolist(), strict=True) if uses}
        for kv in kvs:
            last = kv.cube.usage.last_recalled
            if kv.cube.namespace.session_id and last:  # a conversation is gone on with soon, or not so soon
                expected[kv.name] = math.exp((last - now).total_seconds() / PAUSE)
        return self._ways.place(kvs, self.costs, now, expected)

    def prefetch(self, user: str, visible: Callable[[list[MemCube]], list[MemCube]]) -> None:
        """Begin to bring into memory, in the background, KV that this user is predicted to need next, where it is worth
        more than what it takes the place of. visible: those of some cubes that the user may see."""
        if self._config.scheduler.prefetch_kv_bytes and not self._waiting:
            self._waiting = True
            self._background.submit(self._prefetch, user, visible)

    def close(self) -> None:
        """Wait for what is done in the background."""
        self._background.shutdown(cancel_futures=True)

    def _prefetch(self, user: str, visible: Callable[[list[MemCube]], list[MemCube]]) -> None:
        self._waiting = False
        try:
            coming = self._foreseen(user, visible)
            places = self._settle(coming)
            for kv in coming:
                if kv.name in places:
                    self._bring_ahead(kv, user)
            self._settle()
        except Exception:  # nobody waits for this thread, so nobody else would tell
            log.exception("prefetching failed")

    def _bring_ahead(self, kv: ResidentKV, user: str) -> None:
        try:
            self._kv(kv.cube)
        except MemosError as error:
            log.warning("KV is not prefetched: %s", error)
        else:
            self._ahead[kv.name] = user
            self.prefetched[user] += 1

    def _settle(self, coming: Sequence[ResidentKV] = ()) -> dict[str, MemoryTier]:
        """Let the KV that is in memory go to where it should stay, beside what is coming; the places of both. What a
        request has brought since that was decided stays where it is."""
        resident = self._residents()
        if not (resident or coming):  # nothing to place, and so nothing to measure the machine for
            return {}
        places = self._places([*resident, *coming])
        self._tiers.settle(places, {kv.name for kv in resident})
        return places

    def _foreseen(self, user: str, visible: Callable[[list[MemCube]], list[MemCube]]) -> list[ResidentKV]:
        """KV files that are likely to be used next, the likeliest first, as far as their bytes are allowed."""
        likely = [g for g, p in self._foresight.next(user, self._vault.now().timestamp()) if p >= LIKELY]
        kvs = {
            kv.sources[0].id: kv
            for kv in visible(self._vault.payloads_of(likely))
            if kv.form is Form.ACTIVATION and kv.state is State.ACTIVATED and kv.namespace.session_id == ""
            if kv.blob and kv.blob.fingerprint == self._host.digest
        }
        out, left = list[ResidentKV](), self._config.scheduler.prefetch_kv_bytes
        for kv in (kvs[group] for group in likely if group in kvs):
            blob = _blob(kv)
            if blob.bytes <= left and self._tiers.tier(blob.sha256) == "disk":
                left -= blob.bytes
                out.append(ResidentKV(blob.sha256, kv, int(blob.tokens * self.costs.bytes), blob.tokens))
        return out

    def release(self) -> None:
        """Let go of what is no longer in use, and of all that was made of it in memory."""
        names = {*list(self._cubes), *self._host.adapters}
        if gone := names - self._vault.stats.in_use(names):
            self.let_go(gone)

    def failed(self, admission: Admission, error: Exception) -> None:
        """After a request that could not be answered with its KV: none of it stays in memory.

        Raises CorruptBlob, naming the cube and the way out, if that was why.
        """
        self.let_go({_blob(kv).sha256 for kv in admission.activations})
        if isinstance(error, CorruptBlob):
            for kv in admission.activations:
                self._blob_path(kv)

    def let_go(self, names: set[str]) -> None:
        """Of payloads in memory, by digest, and of all that was made of them."""
        for name in names:
            self._cubes.pop(name, None)
        self._tiers.drop(names)
        self._host.release()

    def require_disk(self, more: int) -> None:
        """Raises NoRoom if KV files may not take so many bytes more."""
        most = self._config.scheduler.disk_kv_bytes
        used = sum(size for _, size in self._vault.stats.usage_by_user(Form.ACTIVATION).values())
        if used + more > most:
            raise NoRoom(
                f"a KV cache of {more:,} bytes does not fit beside the others in {most:,} bytes; "
                f"demote what is no longer used, or raise scheduler.disk_kv_bytes"
            )

    def _blob_path(self, cube: MemCube) -> Path:
        self.payloads_used = True
        return self._vault.blobs.path(_blob(cube))


def newest(turns: tuple[T, ...], fits: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """The turns, or the newer half of them, and of that, until they fit."""
    while turns and not fits(turns):
        turns = turns[(len(turns) + 1) // 2 :]
    return turns


def _blob(cube: MemCube) -> Blob:
    assert cube.blob  # of KV or an adapter
    return cube.blob
