"""The tree of errors that memos raises on purpose; every message names the thing, the rule and the way out.

MemosError
├── ConfigError            a YAML key or value that memos does not know
├── PluginError            a part of another package that cannot be used
├── InputError             an input file, question or id that cannot be used
│   ├── NotFound           no such cube, or none that the caller may see
│   ├── EmptyMemory        an operation that needs memories found none
│   ├── UnsupportedLanguage  the loaded model does not read the language of the question
│   └── TooLarge           more than is read at once
├── Denied                 governance said no
│   └── Unauthenticated    the key is none that is in force, or there is none
├── Busy                   more requests than are taken at once, or in a minute
├── BadTransition          the life cycle has no such move
│   └── Held               a legal hold forbids it
├── VaultError             the store cannot be opened or written
│   ├── CorruptBlob        a payload does not match its digest
│   ├── QuotaExceeded      the vault may not hold more
│   ├── Conflict           a cube changed between read and write
│   ├── KeyUnusable        there is no key to be had for an encrypted vault, or one for a vault that is not
│   └── WrongKey           the key does not open the vault
├── PackError              a pack, or a registry of packs, that is refused; nothing of it was taken over
│   ├── BadPack            damaged, or not built as docs/mip.md says
│   ├── UntrustedKey       signed by a key that is not trusted here
│   ├── IdClash            an id of the pack stands for something else in this vault
│   └── RegistryError      no such registry, pack or version, or one that cannot be published
├── HostError              the model cannot do what was asked
│   ├── ModelNotFound      no model at that path or hub name
│   ├── ContextOverflow    the prompt is longer than the model's context
│   ├── NoRoom             a tier, or the device, has no room left for a KV cache
│   ├── FingerprintMismatch  a tensor payload was made by another host
│   └── Unsupported        the model's architecture cannot take this form
└── PromotionError         a promotion that was not published
    ├── NoProbes           nothing to verify an adapter with
    ├── GateRejected       the adapter failed its held-out probes
    ├── Untrusted          one of its memories is not trusted enough
    ├── Contradiction      two of its memories answer one question differently
    └── Cancelled          somebody cancelled its job
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def meant(name: str, known: Iterable[str], otherwise: str) -> str:
    """The way out where a name is not known: the nearest of those that are."""
    near = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else otherwise


def how_to_install(extra: str) -> str:
    """The way out where a package of an extra is missing."""
    return f"run `pip install 'memos-kernel[{extra}]'`, or `pip install -e '.[{extra}]'` in a clone of memos"


class MemosError(Exception):
    """Base of all errors that memos raises on purpose."""


class ConfigError(MemosError): ...


class PluginError(MemosError):
    """A part of another package that fails to load, clashes with another, or was made for another version."""


class InputError(MemosError): ...


class NotFound(InputError): ...


class EmptyMemory(InputError): ...


class UnsupportedLanguage(InputError): ...


class TooLarge(InputError): ...


class Denied(MemosError): ...


class Unauthenticated(Denied): ...


class Busy(MemosError):
    """Carries the seconds after which to ask again."""

    def __init__(self, message: str, after: float) -> None:
        super().__init__(message)
        self.after = after


class BadTransition(MemosError): ...


class Held(BadTransition):
    """Carries the id of the memory that is held."""

    def __init__(self, message: str, id: str) -> None:
        super().__init__(message)
        self.id = id


class VaultError(MemosError): ...


class CorruptBlob(VaultError): ...


class QuotaExceeded(VaultError): ...


class Conflict(VaultError): ...


class KeyUnusable(VaultError): ...


class WrongKey(VaultError): ...


class PackError(MemosError): ...


class BadPack(PackError): ...


class UntrustedKey(PackError): ...


class IdClash(PackError): ...


class RegistryError(PackError): ...


class HostError(MemosError): ...


class ModelNotFound(HostError): ...


class ContextOverflow(HostError): ...


class NoRoom(HostError): ...


class FingerprintMismatch(HostError): ...


class Unsupported(HostError): ...


class PromotionError(MemosError): ...


class NoProbes(PromotionError): ...


class Untrusted(PromotionError): ...


class Cancelled(PromotionError): ...


class Contradiction(PromotionError): ...


class GateRejected(PromotionError):
    """Carries the scores that fell short."""

    def __init__(self, message: str, scores: dict[str, float]) -> None:
        super().__init__(message)
        self.scores = scores


# why KV or an adapter may turn out to be of no use to a request; its text still is
UNUSABLE = (VaultError, FingerprintMismatch, Unsupported, ContextOverflow, NoRoom)
