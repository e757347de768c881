"""MemOS: a typed facade over whole services, around one local model; the main path is in answering.py."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from memos.config import Config, load_config
from memos.kernel.access import ExchangeFolder, part_of
from memos.kernel.answering import Reply
from memos.kernel.calls import Calls, Services
from memos.kernel.services.finding import Hit
from memos.kernel.wiring import Parts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from memos.infrastructure.host.host import Host
    from memos.operation.policies.policy import Policy

__all__ = ["Hit", "MemOS", "Reply"]


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
        self.config, self.vault = self.parts.config, self.parts.vault
        try:
            self.services = Services(self.parts)
        except BaseException:
            self.parts.close()  # else its vault stays open
            raise
        super().__init__(self.services, self.parts.identity.keeper)
        self.services.unread.resume()
        if (every_s := self.config.scheduler.background_s) is not None:
            self.services.planning.upkeep.start(every_s)

    @classmethod
    def from_config(cls, path: str | Path, overrides: Sequence[str] = (), **parts: Any) -> Self:
        """A kernel from a YAML file. Raises ConfigError, VaultError."""
        return cls(load_config(path, tuple(overrides)), **parts)

    @property
    def host(self) -> Host:
        """The local model. Raises ModelNotFound, HostError."""
        return self.parts.host()

    def as_(self, key: str, purpose: str = "", *, user: str | None = None, agent: str = "", session: str = "") -> Calls:
        """The calls as whoever the key stands for, or within an agent or a session of that one, and for a purpose.
        Raises Denied."""
        identity, folder = self.parts.identity, ExchangeFolder(self.config.governance.exchange_folder)
        identity.authenticate(key, purpose)  # the first time is written down; later ones with what they do
        who = partial(identity.authenticate, key, purpose, audited=False)
        return Calls(self.services, lambda *part: part_of(who(), *part), folder).within(user, agent, session).require()

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
