"""Decides what a memory may bring in and give away: identifiers, trust, and hidden instructions.

Pure functions of values and of the config; must not know stores, callers or models.

    told -> trust by origin, identifiers out -> kept, tagged -> shown: whole to its owner, masked to all others
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeVar

from memos.config import GovernanceConfig
from memos.cube import Blob, Fact, Header, MemCube, Probe, Text, Trust, Turn
from memos.errors import ConfigError, InputError
from memos.infrastructure.guard.redaction import SENSITIVE, Redactor
from memos.ops import Add
from memos.skeleton import skeleton

_Told = TypeVar("_Told", bound=Add)
# single letters with at most two characters between them: "i g n o r e", "i-g-n-o-r-e"
_APART = re.compile(r"(?<![^\W_])[^\W_](?:[\W_]{1,2}[^\W_](?![^\W_])){3,}")
_DIGITS = str.maketrans("013457@$", "oieastas")  # that stand for letters: "1gn0re"
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4}){5,}(?:[A-Za-z0-9+/]{2,3})?")
_TAGS = re.compile("[\U000e0020-\U000e007e]+")  # ASCII that nobody sees, and models read
_HEADER = ("speaker", "thread", "segment", "origin", "metadata")


class Guard:
    """Decides what a memory may bring in and what of it is shown, by the configuration."""

    def __init__(self, config: GovernanceConfig = GovernanceConfig()) -> None:
        """Raises ConfigError for a pattern that cannot be used."""
        self._config = config
        self._redactor = Redactor(config.redaction)
        self._active = self._redactor.active
        self._storing, self._use = self._redactor.hides("before_storing"), self._redactor.hides("before_use")
        self.hides = bool(self._use)  # anything is masked before use
        self._patterns = [_compiled(n, pattern) for n, pattern in enumerate(config.quarantine.patterns)]
        self._masked = lru_cache(maxsize=65_536)(self._shown)
        self._found = lru_cache(maxsize=4_096)(self._found_in)
        # names the rules by which is masked what is shown
        self.masks = f"masks/{sha256(config.redaction.model_dump_json().encode()).hexdigest()[:16]}"
        self._marks = tuple(f"[{kind}]" for kind in self._use)
        self._rules = sha256(f"{config.trust!r}{config.quarantine!r}".encode()).hexdigest()

    # -- identifiers ---------------------------------------------------------------------------------------

    def as_told(self, op: _Told) -> _Told:
        """A statement as it may be kept, with the trust that its origin has."""
        update: dict[str, Any] = {"trust": self.trust(op.origin, op.trust)}
        if self._active:
            mask = self._masker(_all_of(op.text, op.facts, op.probes))
            update |= {name: mask(getattr(op, name)) for name in _HEADER} | _texts(op, mask)
            update["tags"] = self._tags(tuple(map(mask, op.tags)), update["text"])
        return op.model_copy(update=update)

    def as_kept(self, cube: MemCube) -> MemCube:
        """A cube as it may be written down: the last door before the disk."""
        if not self._active or cube.blob:
            return cube
        kept = _rewritten(cube, self._masker(_all_in(cube)))
        if not isinstance(cube.payload, Text):
            return kept
        tags = self._tags(kept.header.tags, cube.payload.text)
        return kept.model_copy(update={"header": kept.header.model_copy(update={"tags": tags})})

    def as_shown(self, cube: MemCube) -> MemCube:
        """A cube as the model, and whoever does not own it, may read it: masked, and without its file, as none can
        be."""
        if not self.hides:
            return cube
        whole = _all_in(cube)
        if isinstance(cube.payload, Text) and cube.payload.sha256:
            alone = cube.payload.model_copy(update={"sha256": None, "bytes": 0, "media_type": ""})
            cube = cube.model_copy(update={"payload": alone})
        return _rewritten(cube, lambda said: self._masked(said, whole))

    def shown(self, value: Any) -> Any:
        """The same for texts in lists and mappings."""
        match value:
            case str():
                return self._masked(value, value) if self.hides else value
            case list():
                return [self.shown(one) for one in value]
            case dict():
                return {key: self.shown(one) for key, one in value.items()}
            case _:
                return value

    def masked_by(self, shown: str) -> list[str]:
        """What names the rules by which something in a text was masked; nothing where all of it was shown."""
        return [self.masks] if any(mark in shown for mark in self._marks) else []

    def as_written(self, words: str) -> str:
        """Words beside a memory, as a reason, as they may be kept."""
        return self._masker(words)(words)

    def require_name(self, name: str, what: str) -> None:
        """Raises InputError for a name that may not be kept as it is: masked, it would be that of others too."""
        if (masked := self.as_written(name)) != name:
            raise InputError(
                f"{what} cannot be called {masked!r:.200}: identifiers are not stored here (governance.redaction), and "
                f"without them names are no longer told apart; choose another name"
            )

    def _shown(self, said: str, whole: str) -> str:
        """Words of a text without what is hidden before use; what was found in the whole is known there, too."""
        return self._redactor.mask(said, self._use, self._found(whole))

    def _found_in(self, whole: str) -> tuple[tuple[str, str], ...]:
        """(identifier, kind) of each that is hidden before use."""
        return tuple((whole[i.start : i.end], i.kind) for i in self._redactor.find(whole, self._use))

    def _masker(self, text: str) -> Callable[[str], str]:
        """Takes out what is never kept; what was found in this text is known where it stands alone, too."""
        if not self._storing:
            return str
        found = [(text[i.start : i.end], i.kind) for i in self._redactor.find(text, self._storing)]
        return lambda said: self._redactor.mask(said, self._storing, found)

    def _tags(self, tags: tuple[str, ...], text: str) -> tuple[str, ...]:
        """With those that name the identifiers which are kept, in place of those of another text."""
        own = tuple(f"{SENSITIVE}{kind}" for kind in self._redactor.does)
        kinds = {one.kind for one in self._redactor.find(text)} - self._storing
        return (*(tag for tag in tags if tag not in own), *(f"{SENSITIVE}{kind}" for kind in sorted(kinds)))

    # -- trust ---------------------------------------------------------------------------------------------

    def trust(self, origin: str, said: Trust | None = None) -> Trust:
        """How far what comes from an origin is believed; whoever brings it can only say less."""
        rules = self._config.trust
        by_origin = rules.origins.get(origin, rules.origins.get(origin.split(":")[0], rules.others))
        return max((by_origin, *([said] if said else [])), key=lambda trust: trust.rank)

    def may_teach(self, cube: MemCube) -> bool:
        """True if an adapter may be made of it."""
        return cube.header.trust in self._config.trust.adapters

    def suspicion(self, cube: MemCube, arrived: Callable[[float], int]) -> str | None:
        """Why a memory should answer nothing until a person has looked at it; None where nothing is known against it.

        arrived: how many memories came from its origin within so many seconds.
        """
        rules, header = self._config.quarantine, cube.header
        if header.trust in rules.trusts and (found := self._instruction(cube.text)):
            return f"it looks like an instruction to the model (pattern {found})"
        origins = self._config.trust.origins
        if rules.unknown_origin and header.origin not in origins and header.origin.split(":")[0] not in origins:
            return "its origin is not named in governance.trust.origins"
        if rules.most is not None and (count := arrived(rules.window_s)) > rules.most:
            return f"it is one of {count} memories from one origin within {rules.window_s:g} seconds"
        return None

    def judged(self, cube: MemCube) -> str:
        """Names what somebody has judged who lets a memory out of quarantine: its words, under the rules of now."""
        return sha256(f"{self._rules}{cube.text}".encode()).hexdigest()

    def _instruction(self, text: str) -> int | None:
        """The number of the first pattern that a text fits, in one of its readings, from 1."""
        readings = _readings(text)
        return next((n for n, p in enumerate(self._patterns, 1) if any(map(p.search, readings))), None)


def _readings(text: str) -> list[str]:
    """A text as it stands, as it looks, with letters put together that stand apart, and with what it has in codes."""
    looks = skeleton(text)
    joined = _APART.sub(lambda m: re.sub(r"[\W_]", "", m[0]), looks).translate(_DIGITS)
    codes = ["".join(chr(ord(c) - 0xE0000) for c in run) for run in _TAGS.findall(text)]
    codes += [b64decode(f"{run}==").decode("utf-8", "ignore") for run in _BASE64.findall(text)]
    return list(dict.fromkeys(re.sub(r"\s+", " ", one) for one in (text, looks, joined, " ".join(codes))))


def _all_in(cube: MemCube) -> str:
    """All that a cube says, so that what is an identifier only by what stands elsewhere in it is known."""
    match cube.payload:
        case Text(text=text, facts=facts, probes=probes):
            return _all_of(text, facts, probes)
        case Turn(question=question, answer=answer):
            return f"{question}\n{answer}"
        case _:
            return ""


def _all_of(text: str, facts: Iterable[Fact], probes: Iterable[Probe]) -> str:
    statements = [f"{fact.subject} {fact.relation} {fact.object}" for fact in facts]
    return "\n".join([text, *statements, *(f"{probe.question} {probe.answer}" for probe in probes)])


def _rewritten(cube: MemCube, mask: Callable[[str], str]) -> MemCube:
    """The cube with its words masked; a conversation's name, by which it is found, stays."""
    header = cube.header
    match cube.payload:
        case Text() as text:
            header = _masked(header, mask)
            new: Text | Turn | Blob = text.model_copy(update=_texts(text, mask))
        case Turn() as turn:
            shown = tuple(map(mask, turn.shown))
            said = {"question": mask(turn.question), "answer": mask(turn.answer), "shown": shown}
            new = turn.model_copy(update=said)
            header = _masked(header, mask).model_copy(update={"segment": header.segment})
        case Blob() as new:
            header = header if header.kind == "turn" else _masked(header, mask)
    same = (header, new) == (cube.header, cube.payload)
    return cube if same else cube.model_copy(update={"header": header, "payload": new})


def _texts(said: Add | Text, mask: Callable[[str], str]) -> dict[str, Any]:
    """What a statement says, masked."""
    facts = tuple(_mapped(fact, mask, "subject", "object") for fact in said.facts)
    probes = tuple(_mapped(probe, mask, "question", "answer") for probe in said.probes)
    return {"text": mask(said.text), "verbatim": mask(said.verbatim), "facts": facts, "probes": probes}


def _masked(header: Header, mask: Callable[[str], str]) -> Header:
    return _mapped(header, mask, *_HEADER).model_copy(update={"tags": tuple(map(mask, header.tags))})


def _mapped(value: Any, mask: Callable[[str], str], *names: str) -> Any:
    return value.model_copy(update={name: mask(getattr(value, name)) for name in names})


def _compiled(n: int, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        path = f"governance.quarantine.patterns.{n}"
        raise ConfigError(f"{path} is no regular expression ({error}): {pattern!r}") from None
