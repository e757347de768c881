"""Makes the parts of a kernel, each from those that it needs; models are loaded when they are first asked for."""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from memos.config import Config
from memos.cube import ANSWERING, Blob, Form, MemCube
from memos.errors import HostError, InputError
from memos.infrastructure.governance.mem_governance import MemGovernance
from memos.infrastructure.host.encoders.embedder import STATEMENTS, TextTagger
from memos.infrastructure.host.engines import RERANKERS, engines, loading
from memos.infrastructure.vault.mem_vault import MemVault
from memos.infrastructure.vault.stores import is_vault as is_vault  # doors ask it before they open one
from memos.interface.reading.mem_reader import MemReader
from memos.kernel.access import Access, Freshness, Identity, Schedulers, TokenCounts
from memos.lazy import Lazy
from memos.operation.choosing.foresight import Foresight
from memos.operation.choosing.moves import Budgets, budgets
from memos.operation.finding.mem_operator import SIGHTS, MemOperator
from memos.operation.life.consolidation import Consolidation
from memos.operation.life.forgetting import Ageing
from memos.operation.life.knowledge import Knowledge
from memos.operation.life.mem_lifecycle import MemLifecycle
from memos.operation.policies.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from memos.infrastructure.host.encoders.embedder import Embedder
    from memos.infrastructure.host.host import Host
    from memos.operation.forms.serving import Serving
    from memos.operation.forms.sessions import Sessions
    from memos.operation.forms.transitions import Transitions
    from memos.rights import Caller

log = logging.getLogger("memos")


class Parts:
    """What the services of one kernel stand on. A subclass may make a part in another way."""

    # of all kernels of the process, which share the thread of the encoders: calls now, and when the last one ended
    _calls, _last_call, _lock_of_calls = 0, 0.0, Lock()

    def __init__(
        self,
        config: Config = Config(),
        *,
        model: PreTrainedModel | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        vault: Path | str | None = None,
        policy: Policy | None = None,
        brief: bool = False,
    ) -> None:
        """See `MemOS`. brief: the process ends after a few calls, so that nothing is loaded ahead of the first search.
        Raises InputError, VaultError."""
        if (model is None) != (tokenizer is None):
            raise InputError("model and tokenizer belong together; give both, or neither and set model.path")
        self.config, self.brief = config, brief
        self._model, self._tokenizer = model, tokenizer
        self.schedulers = Schedulers(config, policy)  # first: what nothing provides is refused before a vault is made
        settings = config.vault
        folder = Path(vault or settings.path or os.environ.get("MEMOS_VAULT") or "memos-data")
        self.vault = MemVault(
            folder,
            settings.quota,
            config.governance,
            settings.key,
            settings.scratch,
            settings.server,
            settings.blobs,
            settings.cache_bytes,
            settings.jobs,
        )
        self.governance = MemGovernance(self.vault)
        self.identity = Identity(self.vault, config)
        self.access = Access(self.vault, self.governance)
        self.reader = MemReader(TextTagger(few=brief), TextTagger(STATEMENTS, brief))
        self.lifecycle = MemLifecycle(self.vault)
        self.ageing = Ageing(self.vault, self.lifecycle, config.lifecycle, config.governance.retention)
        self.knowledge = Knowledge(self.vault, self.lifecycle, self.reader, config.limits)
        self.consolidation = Consolidation(self.vault, self.lifecycle, self.reader, self.knowledge)
        self.host = Lazy(self.load_host)
        self.embedder = Lazy(self.load_embedder)
        self.operator = Lazy(self.make_operator)
        self.foresight = Lazy(self.make_foresight)
        self.serving = Lazy(self.make_serving)
        self.sessions = Lazy(self.make_sessions)
        self.transitions = Lazy(self.make_transitions)
        self.freshness = Freshness(self.operator, self.serving)
        self.tokens = TokenCounts(lambda texts: self.host().counts(texts))

    @contextmanager
    def called(self) -> Iterator[None]:
        """Around each call: what goes on in the background waits until none is made."""
        with Parts._lock_of_calls:
            Parts._calls += 1
        try:
            yield
        finally:
            with Parts._lock_of_calls:
                Parts._calls, Parts._last_call = Parts._calls - 1, time.monotonic()

    def quiet_for(self) -> float:
        """Seconds for which nobody has called any kernel of the process."""
        return 0.0 if Parts._calls else time.monotonic() - Parts._last_call

    def close(self) -> None:
        if serving := self.serving.if_made:
            serving.close()
        if operator := self.operator.if_made:
            operator.close()
        self.vault.close()

    def is_ours(self, derived: MemCube) -> bool:
        """True if KV or an adapter was made on the model that is loaded."""
        return derived.blob is not None and derived.blob.fingerprint == self.host().digest

    def fits(self, blob: Blob) -> bool:
        """True if the model that is there has made it; not where none can be loaded."""
        try:
            return blob.fingerprint == self.host().digest
        except HostError as error:
            log.warning("without a model, tensors are left to be made anew: %s", error)
            return False

    def budgets(self, caller: Caller) -> Budgets:
        """How much a user may have by form: bytes of KV, and adapters."""
        stats = self.vault.stats
        kv = {user: float(size) for user, (_, size) in stats.usage_by_user(Form.ACTIVATION).items()}
        adapters = {user: float(count) for user, (count, _) in stats.usage_by_user(Form.PARAMETRIC).items()}
        stored = {Form.ACTIVATION: kv, Form.PARAMETRIC: adapters}
        return budgets(self.config.scheduler, caller.user_id, stored, self.config.limits.of(caller.user_id))

    # what is loaded when it is first asked for

    def load_host(self) -> Host:
        """The local model. Raises ModelNotFound, HostError."""
        with loading():
            from memos.infrastructure.host.host import Host  # loads torch and transformers

            if self._model is None or self._tokenizer is None:
                return engines.get(self.config.model.engine)(self.config.model)
            named = {"path": str(getattr(self._model.config, "_name_or_path", "")) or "the given model"}
            return Host(self._model, self._tokenizer, self.config.model.model_copy(update=named))

    def load_embedder(self) -> Embedder:
        from memos.infrastructure.host.encoders.embedder import embedders  # loads torch and transformers

        return embedders.get(self.config.embedder.engine)(self.config.embedder)

    def make_operator(self) -> MemOperator:
        retrieval = self.config.retrieval
        rerank = RERANKERS.get("cross-encoder")(retrieval.reranker) if retrieval.reranker else None
        sight = SIGHTS.get("transformers")(retrieval.pictures, self.vault) if retrieval.pictures else None
        how = (retrieval.exact_ms, retrieval.hops, rerank, retrieval.compared, not self.brief, sight)
        return MemOperator(self.vault, self.embedder(), ANSWERING, *how)

    def make_foresight(self) -> Foresight:
        """What was learnt from the uses that the vault has recorded."""
        learnt = Foresight()
        for when, user, group in self.vault.usage.accesses():
            learnt.used(user, group, when.timestamp())
        return learnt

    def make_serving(self) -> Serving:
        with loading():
            from memos.operation.forms.serving import Serving  # loads torch and transformers

        return Serving(self.config, self.vault, self.schedulers.main.policy, self.host(), self.foresight())

    def make_sessions(self) -> Sessions:
        with loading():
            from memos.operation.forms.sessions import Sessions  # loads torch and transformers

        parts = (self.vault, self.governance, self.lifecycle, self.host(), self.serving())
        return Sessions(self.config.decode, *parts)

    def make_transitions(self) -> Transitions:
        with loading():
            from memos.operation.forms.transitions import Transitions  # loads torch and transformers

        parts = (self.vault, self.lifecycle, self.reader, self.host(), self.serving())
        return Transitions(*parts, self.config.distil, self.config.activation)
