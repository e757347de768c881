"""MemOS: a typed facade over whole services, around one local model; the main path is in answering.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from typing_extensions import Self

from memos.config import Config, load_config
from memos.extensions import Registry
from memos.kernel.answering import Answering, Reply
from memos.kernel.calls import Calls
from memos.kernel.identity import ExchangeFolder
from memos.kernel.pipelines import Pipelines
from memos.kernel.self_report import SelfReport
from memos.kernel.services.finding import Finding, Hit
from memos.kernel.services.forming import Forming
from memos.kernel.services.governing import Governing
from memos.kernel.services.keeping import Keeping
from memos.kernel.services.knowing import Knowing
from memos.kernel.services.life import Life
from memos.kernel.services.planning import Planning
from memos.kernel.services.seeing import Seeing
from memos.kernel.services.sharing import Sharing
from memos.kernel.unread import Unread
from memos.kernel.wiring import Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from memos.cube import Frozen, MemCube
    from memos.infrastructure.host.host import Host
    from memos.infrastructure.vault.mem_vault import MemVault
    from memos.operation.policies.policy import Policy
    from memos.ops import Call
    from memos.rights import Caller

__all__ = ["Hit", "MemOS", "Reply"]


@runtime_checkable
class TellsOrigins(Protocol):
    """A service of a plug-in that knows how memories came into the vault."""

    def came_from(self, cube: MemCube) -> Sequence[Frozen]: ...


class Services:
    """The services of one kernel, each given what it needs; those of plug-ins when they are first asked for."""

    # the services of plug-ins, by name: each a factory (Services) -> service
    PLUGINS: Registry[Callable[[Services], object]] = Registry("memos.services", "service")

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.unread = Unread(parts)
        self.finding = Finding(parts)
        self.keeping = Keeping(parts, self.unread)
        self.knowing = Knowing(parts)
        self.life = Life(parts)
        self.forming = Forming(parts)
        self.planning = Planning(parts, self.forming, self.keeping, self.unread)
        self.sharing = Sharing(parts)
        self.governing = Governing(parts)
        self.seeing = Seeing(parts, self.finding, self.planning, self._origins)
        self.pipelines = Pipelines(
            parts, self.finding, self.keeping, self.life, self.forming, self.sharing, self._invoke
        )
        report = SelfReport(parts, self.finding, self.keeping, self.planning)
        self.answering = Answering(parts, self.finding, self.keeping, self.knowing, self.pipelines, report)
        self._by_class: dict[str, object] = {type(service).__name__: service for service in vars(self).values()}
        self._of_plugins: dict[str, object] = {}

    def service(self, name: str, plugin: str) -> object:
        """See `memos.kernel.calls.ServiceProvider`."""
        return self.of_plugin(plugin) if plugin else self._by_class[name]

    def of_plugin(self, name: str) -> object:
        """The service that a plug-in brings. Raises InputError, PluginError."""
        if name not in self._of_plugins:
            self._of_plugins[name] = self.PLUGINS.get(name)(self)
        return self._of_plugins[name]

    def as_read_by(self, caller: Caller) -> Callable[[MemCube], MemCube] | None:
        """See `memos.kernel.calls.ServiceProvider`."""
        return self.parts.access.as_read(caller) if self.parts.vault.guard.hides else None

    def close(self) -> None:
        """What goes on in the background is interrupted, and taken up again by the next who opens the vault."""
        self.planning.stop()
        self.unread.stop()
        self.parts.close()

    def _invoke(self, caller: Caller, call: Call) -> object:
        name, values, named = call
        return Calls(self, lambda: caller).invoke(name, *values, **named)

    def _origins(self, cube: MemCube) -> Iterator[Frozen]:
        for name, _ in self.PLUGINS.usable():
            service = self.of_plugin(name)
            if isinstance(service, TellsOrigins):
                yield from service.came_from(cube)


class MemOS(Calls):
    """A memory kernel around one local model: the calls of whoever holds the vault's folder, as config.user_id.

    `within` and `as_` give the same calls as somebody else. The services and parts beneath are attributes of
    `services` and `parts`.
    """

    def __init__(
        self,
        config: Config = Config(),
        *,
        model: PreTrainedModel | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        vault: Path | str | None = None,
        policy: Policy | None = None,
        parts: Parts | None = None,
    ) -> None:
        """Open the vault; the model is loaded with the first call that needs it.

        Args:
            model, tokenizer: a transformers causal LM and its tokenizer, already loaded; they are not changed.
            vault: folder of the vault, before config.vault.path.
            policy: one of your own, in place of config.policy; `search` knows it as "own".
            parts: in place of all the others.
        Raises VaultError, InputError for a policy that nothing provides.
        """
        self.parts = parts or Parts(config, model=model, tokenizer=tokenizer, vault=vault, policy=policy)
        try:
            self.services = Services(self.parts)
        except BaseException:
            self.parts.close()  # else its vault stays open
            raise
        super().__init__(self.services, self.parts.identity.keeper)
        if (every_s := self.config.scheduler.background_s) is not None:
            self.services.planning.upkeep.start(every_s)

    @classmethod
    def from_config(cls, path: str | Path, overrides: Sequence[str] = (), **parts: Any) -> Self:
        """A kernel from a YAML file. Raises ConfigError, VaultError."""
        return cls(load_config(path, tuple(overrides)), **parts)

    @property
    def config(self) -> Config:
        return self.parts.config

    @property
    def vault(self) -> MemVault:
        return self.parts.vault

    @property
    def host(self) -> Host:
        """The local model. Raises ModelNotFound, HostError."""
        return self.parts.host()

    def within(  # type: ignore[override]  # the keeper of the vault reaches every user
        self, user: str | None = None, agent: str = "", session: str = "", purpose: str = ""
    ) -> Calls:
        """The calls as one user, agent or session, and for a purpose, which grants may ask for. Raises Denied."""
        identity = self.parts.identity
        return Calls(self.services, lambda: identity.keeper(user, agent, session, purpose)).require()

    def as_(self, key: str, purpose: str = "", *, user: str | None = None, agent: str = "", session: str = "") -> Calls:
        """The calls as whoever the key stands for, or within an agent or a session of that one, and for a purpose.
        Raises Denied."""
        identity, folder = self.parts.identity, ExchangeFolder(self.config.governance.exchange_folder)
        identity.authenticate(key, purpose)  # the first time is written down; later ones with what they do
        as_key = Calls(self.services, lambda: identity.authenticate(key, purpose, audited=False), folder)
        return as_key.within(user, agent, session).require()

    def owner(self, id: str) -> str | None:
        """Who owns a cube, for whoever may act as any user; None where the id, or the prefix, is not of one cube."""
        found = self.vault.named(id)
        return found[0].rights.owner if len(found) == 1 else None

    def close(self) -> None:
        """Close the vault; what goes on in the background is taken up again by the next who opens it."""
        self.services.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
