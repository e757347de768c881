"""The parts of a kernel, wired by constructor, and what all public calls share: who acts, what is seen, what follows a
change. The model and the embedder are loaded with the first call that needs them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import Self

from memos.config import Config, load_config
from memos.cube import Blob, Form, MemCube, Namespace, Text
from memos.errors import Denied, HostError, InputError
from memos.infrastructure.governance.mem_governance import MemGovernance
from memos.infrastructure.host.encoders.tagger import RequestTagger
from memos.infrastructure.host.engines import engines
from memos.infrastructure.host.loading import loading
from memos.infrastructure.vault.mem_vault import MemVault, absent
from memos.interface.reading.mem_reader import MemReader
from memos.kernel.identity import AsRead, handed
from memos.kernel.services.sharing import Sharing
from memos.once import once
from memos.operation.choosing.foresight import Foresight
from memos.operation.choosing.mem_scheduler import MemScheduler
from memos.operation.choosing.replay import Replay
from memos.operation.finding.catalog import View
from memos.operation.finding.mem_operator import MemOperator
from memos.operation.forms.executors import EXECUTORS
from memos.operation.life.forgetting import UserForgetting
from memos.operation.life.knowledge import Knowledge
from memos.operation.life.mem_lifecycle import ANSWERING, MemLifecycle
from memos.operation.life.time_machine import TimeMachine
from memos.operation.policies.policy import Policy, Segment, Staged
from memos.operation.policies.table import POLICIES
from memos.ops import Operation

if TYPE_CHECKING:
    from memos.infrastructure.host.encoders.embedder import Embedder
    from memos.infrastructure.host.host import Host
    from memos.operation.forms.serving import Serving
    from memos.operation.forms.sessions import Sessions
    from memos.operation.forms.transitions import Transitions

log = logging.getLogger("memos")
DEFAULT_VAULT = Path("memos-data")
OWN = "own"  # the name of a policy that is given, not chosen by its name
_LONGEST_TAG = 200
_Done = TypeVar("_Done")


@dataclass(frozen=True)
class Hit:
    """A memory found, with its score, and the signals that the score was made of."""

    cube: MemCube
    score: float
    why: dict[str, float]


class Parts:
    """What every group of calls stands on."""

    def __init__(
        self, config: Config, model: Any, tokenizer: Any, vault: Path | str | None, policy: Policy | None
    ) -> None:
        if (model is None) != (tokenizer is None):
            raise InputError("model and tokenizer belong together; give both, or neither and set model.path")
        self.config = config
        self._given = (model, tokenizer)
        self._by_policy = lru_cache(maxsize=None)(
            lambda name: MemScheduler(
                config.scheduler, policy if policy and name == OWN else POLICIES.get(name)(config)
            )
        )
        self._main_policy = OWN if policy else config.policy
        # names that nothing provides are refused before the vault is opened
        for name in config.policies.values():
            self._by_policy(name)
        if config.distil.isolation != "auto":
            EXECUTORS.require(config.distil.isolation)
        self.scheduler = self._by_policy(self._main_policy)
        folder = Path(vault or config.vault.path or DEFAULT_VAULT)
        its = config.vault
        self.vault = MemVault(folder, its.quota, config.governance, its.key, its.scratch, its.server)
        self.governance = MemGovernance(self.vault)
        self.lifecycle = MemLifecycle(self.vault, config.lifecycle, config.governance.retention)
        self.time_machine = TimeMachine(self.vault, self.lifecycle)
        self._replays: dict[str, Replay | None] = {}
        self.reader = MemReader(RequestTagger())
        self.knowledge = Knowledge(self.vault, self.lifecycle, self.reader, config.limits)
        self._tokens = lru_cache(maxsize=65_536)(lambda text: self.host.tokens(text))

    @classmethod
    def from_config(cls, path: str | Path, overrides: Sequence[str] = (), **parts: Any) -> Self:
        """A kernel from a YAML file. Raises ConfigError, VaultError."""
        return cls(load_config(path, tuple(overrides)), **parts)

    @once
    def host(self) -> Host:
        """The local model. Raises ModelNotFound, HostError."""
        with loading():
            from memos.infrastructure.host.host import Host  # loads torch and transformers

            model, tokenizer = self._given
            if model is None:
                return engines.get(self.config.model.engine)(self.config.model)
            named = {"path": str(getattr(model.config, "_name_or_path", "")) or "the given model"}
            return Host(model, tokenizer, self.config.model.model_copy(update=named))

    @once
    def sharing(self) -> Sharing:
        return Sharing(self.vault, self.governance, self.config)

    @once
    def serving(self) -> Serving:
        from memos.operation.forms.serving import Serving  # loads torch and transformers

        return Serving(self.config, self.vault, self.scheduler, self.host, self.foresight)

    @once
    def foresight(self) -> Foresight:
        """What was learnt from the uses that the vault has kept."""
        learnt = Foresight()
        for when, user, group in self.vault.accesses():
            learnt.used(user, group, when.timestamp())
        return learnt

    @once
    def sessions(self) -> Sessions:
        from memos.operation.forms.sessions import Sessions  # loads torch and transformers

        parts = (self.vault, self.governance, self.lifecycle, self.host, self.serving)
        return Sessions(self.config.decode, *parts)

    @once
    def transitions(self) -> Transitions:
        from memos.operation.forms.transitions import Transitions  # loads torch and transformers

        parts = (self.vault, self.lifecycle, self.reader, self.host, self.serving.require_disk)
        return Transitions(*parts, self.config.distil, self.config.activation)

    @once
    def embedder(self) -> Embedder:
        from memos.infrastructure.host.encoders.embedder import embedders

        return embedders.get(self.config.embedder.engine)(self.config.embedder)

    @once
    def operator(self) -> MemOperator:
        from memos.infrastructure.host.encoders.reranker import Reranker  # loads torch and transformers

        retrieval = self.config.retrieval
        rerank = Reranker(retrieval.reranker).score if retrieval.reranker else None
        return MemOperator(
            self.vault, self.embedder, ANSWERING, retrieval.exact_ms, retrieval.hops, rerank, retrieval.compared
        )

    def close(self) -> None:
        """What goes on in the background is interrupted, and taken up again by the next who opens the vault."""
        if upkeep := self.__dict__.get("upkeep"):
            upkeep.stop()
        if unread := self.__dict__.get("unread"):
            unread.stop()
        if "serving" in self.__dict__:
            self.serving.close()
        if "operator" in self.__dict__:
            self.operator.close()
        self.vault.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_ours(self, derived: MemCube) -> bool:
        """True if KV or an adapter was made on the model that is there."""
        return derived.blob is not None and derived.blob.fingerprint == self.host.digest

    @once
    def forgetting(self) -> UserForgetting:
        return UserForgetting(self.vault, self.lifecycle)

    def _fits(self, blob: Blob) -> bool:
        """True if the model that is there has made it; not where none can be loaded."""
        try:
            return blob.fingerprint == self.host.digest
        except HostError as error:
            log.warning("without a model, tensors are left to be made anew: %s", error)
            return False

    def _accept(self, blob: Blob, path: Path, sources: Sequence[MemCube], judged: bool) -> None:
        self.transitions.accept(blob, path, sources, judged)

    def _changed(self, done: _Done) -> _Done:
        """After a change that a search or a request may not have seen: what is loaded keeps up with it."""
        if "operator" in self.__dict__:
            self.operator.refresh_soon()
        self._release()
        return done

    def _texts(self, caller: Namespace) -> list[MemCube]:
        """The memories in force, as the caller may read them and in the order of their saying."""
        readable = self.governance.readable(caller, self.vault.cubes(form=Form.PLAINTEXT, states=ANSWERING))
        return list(map(self._as_read(caller), (c for c in readable if isinstance(c.payload, Text))))

    def _handed_over(self, result: Any, user: str | None) -> Any:
        """What a public call returns, with each memory in it as the caller may read it."""
        return handed(result, self._as_read(self._caller(user))) if self.vault.guard.hides else result

    def _as_read(self, caller: Namespace) -> AsRead:
        """Memories as the caller may read them: its own whole, those of others without identifiers
        (governance.redaction)."""
        shown = self.vault.guard.as_shown
        return lambda cube: cube if cube.rights.owner == caller.user_id else shown(cube)

    def _view(self, caller: Namespace, *limits: Any) -> View:
        """What the caller may see. limits: see `View`."""
        return View(*self.governance.sight(caller), *limits, owner=caller.user_id)

    def _segments(self, texts: Sequence[MemCube]) -> list[Segment]:
        return self.scheduler.segments(texts, self._tokens)

    def _policy(self, caller: Namespace) -> str:
        """The name of the policy in the caller's namespace."""
        return self.config.policies.get(caller.user_id, self._main_policy)

    def _scheduling(self, caller: Namespace) -> MemScheduler:
        """The scheduler with that policy."""
        return self._by_policy(self._policy(caller))

    def _replay(self, name: str) -> Replay | None:
        """The tiers of a policy that finds by itself; None for one that does not."""
        if name not in self._replays:
            found_by = self._by_policy(name).policy
            self._replays[name] = Replay(self.vault, self.operator, found_by) if isinstance(found_by, Staged) else None
        return self._replays[name]

    def _caller(self, user: str | None) -> Namespace:
        """Who acts: whoever `as_` or `purposed` has bound, or the user that is named. Raises Denied."""
        return self.sharing.caller(user)

    def _session(self, name: str, user: str | None) -> Namespace:
        """A conversation of the caller. Raises Denied where the caller stands for another one alone."""
        caller = self._caller(user)
        if caller.session_id not in ("", name):
            raise Denied(f"{caller} is one session and reaches no other, {name!r}; use a key of the user or the agent")
        return caller.model_copy(update={"session_id": name})

    def _visible(self, op: Operation, id: str, user: str | None) -> MemCube:
        """The cube, if the caller may do `op` to it. A prefix of its id will do where it fits one cube alone of those
        that the caller may see. Raises NotFound, Denied."""
        caller = self._caller(user)
        found = self.vault.named(id)
        if len(found) != 1:
            found = self.governance.visible(caller, found)
        if len(found) != 1:
            raise absent(id)
        self.governance.permit(caller, op, found[0])
        return found[0]

    def _release(self) -> None:
        """Let go of what is in memory of cubes that are no longer in use: a source may have changed."""
        if "serving" in self.__dict__:
            self.serving.release()


def each_once(cubes: Iterable[MemCube]) -> list[MemCube]:
    """Each once."""
    return list({cube.id: cube for cube in cubes}.values())


def _tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Raises InputError."""
    if isinstance(tags, str) or any(not tag.strip() or "\n" in tag or len(tag) > _LONGEST_TAG for tag in tags):
        raise InputError(f"tags {tags!r}: give a list of words, none empty or longer than {_LONGEST_TAG} characters")
    return tuple(dict.fromkeys(tag.strip() for tag in tags))
