"""What can go wrong, as a tree. Every message names the thing, the rule and the way out.

MemosError
├── ConfigError            a YAML key or value that memos does not know
├── InputError             an input file, question or id that cannot be used
│   ├── NotFound           no such cube, or none that the caller may see
│   ├── EmptyMemory        an operation that needs memories found none
│   └── UnsupportedLanguage  the loaded model does not read the language of the question
├── Denied                 governance said no
├── BadTransition          the life cycle has no such move
├── VaultError             the store cannot be opened or written
│   ├── CorruptBlob        a payload does not match its digest
│   └── Conflict           a cube changed between read and write
├── HostError              the model cannot do what was asked
│   ├── ModelNotFound      no model at that path or hub name
│   ├── ContextOverflow    the prompt is longer than the model's context
│   ├── NoRoom             a tier, or the device, has no room left for a KV cache
│   ├── FingerprintMismatch  a tensor payload was made by another host
│   └── Unsupported        the model's architecture cannot take this form
└── PromotionError         a promotion that was not published
    ├── NoProbes           nothing to verify an adapter with
    ├── GateRejected       the adapter failed its held-out probes
    ├── Contradiction      two of its memories answer one question differently
    └── Cancelled          somebody cancelled its job
"""

from __future__ import annotations


class MemosError(Exception):
    """Base of all errors that memos raises on purpose."""


class ConfigError(MemosError): ...


class InputError(MemosError): ...


class NotFound(InputError): ...


class EmptyMemory(InputError): ...


class UnsupportedLanguage(InputError): ...


class Denied(MemosError): ...


class BadTransition(MemosError): ...


class VaultError(MemosError): ...


class CorruptBlob(VaultError): ...


class Conflict(VaultError): ...


class HostError(MemosError): ...


class ModelNotFound(HostError): ...


class ContextOverflow(HostError): ...


class NoRoom(HostError): ...


class FingerprintMismatch(HostError): ...


class Unsupported(HostError): ...


class PromotionError(MemosError): ...


class NoProbes(PromotionError): ...


class Cancelled(PromotionError): ...


class Contradiction(PromotionError): ...


class GateRejected(PromotionError):
    """Carries the scores that fell short."""

    def __init__(self, message: str, scores: dict[str, float]) -> None:
        super().__init__(message)
        self.scores = scores
