"""Parts that are found by name: registries that Python entry points fill.

What ships with memos stands in pyproject.toml like everybody else's: a group, a name, and an object to import. A part
is imported when it is asked for, and one that fails to load harms nobody who does not ask for it. Knows names and
packages; must not know what a part does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Generic, TypeVar, cast

from memos.errors import InputError, PluginError, meant

DISTRIBUTION = "memos-kernel"  # what memos is called on the package index
T = TypeVar("T")


@dataclass(frozen=True)
class Extension:
    """One entry point: what provides which part. problem: why it cannot be used; "" where nothing is known against it."""

    group: str
    name: str
    target: str  # module:attribute
    package: str
    version: str
    problem: str = ""


class Registry(Generic[T]):
    """The parts of one group, such as `memos.policies`, by name."""

    def __init__(self, group: str, kind: str) -> None:
        """kind: what a part is called in messages, such as "policy"."""
        self.group, self.kind = group, kind

    def names(self) -> tuple[str, ...]:
        """Every name that is provided, in alphabetical order; nothing is imported."""
        return tuple(sorted({name for group, name in _entries() if group == self.group}))

    def get(self, name: str) -> T:
        """The part of that name. Raises InputError for a name that nothing provides, PluginError for one that cannot be
        used."""
        given = _entries().get((self.group, name), ())
        if not given:
            there = f"there are {', '.join(self.names()) or 'none'}"
            raise InputError(
                f"there is no {self.kind} {name!r}; {meant(name, self.names(), there)} `memos plugins` lists what is "
                f"installed, and a package may bring another by the entry point {self.group}"
            )
        problem = _conflict(given) or _unfit(given[0][1])
        if problem:
            raise PluginError(f"the {self.kind} {name!r} cannot be used: {problem}")
        return cast(T, _load(given[0][0], self.kind))

    def usable(self) -> Iterator[tuple[str, T]]:
        """Every part that loads, with its name; the others are told by `extensions`."""
        for name in self.names():
            try:
                part = self.get(name)
            except PluginError:
                continue
            yield name, part


def extensions(load: bool = False) -> list[Extension]:
    """Every part of every group, by group and name. load: import each, to tell which fail."""
    found = []
    for (group, name), given in sorted(_entries().items()):
        for entry, package in given:
            problem = _conflict(given) or _unfit(package)
            if load and not problem:
                try:
                    _load(entry, group)
                except PluginError as error:
                    problem = str(error)
            found.append(Extension(group, name, entry.value, _name(package), package.version, problem))
    return found


@cache
def _entries() -> dict[tuple[str, str], tuple[tuple[EntryPoint, Distribution], ...]]:
    """(group, name) -> what provides it; what ships with memos keeps its name whoever else takes it."""
    found: dict[tuple[str, str], dict[str, tuple[EntryPoint, Distribution]]] = {}
    for package in distributions():
        for entry in package.entry_points:
            if entry.group.startswith("memos."):
                # a package that stands on the path twice, as in an editable checkout, is one
                found.setdefault((entry.group, entry.name), {}).setdefault(_name(package), (entry, package))
    return {
        key: (given[DISTRIBUTION],) if DISTRIBUTION in given else tuple(given.values()) for key, given in found.items()
    }


def _name(package: Distribution) -> str:
    return str(package.metadata["Name"])


def _conflict(given: tuple[tuple[EntryPoint, Distribution], ...]) -> str:
    if len(given) < 2:
        return ""
    packages = sorted(_name(package) for _, package in given)
    return f"{' and '.join(packages)} both provide it; uninstall one of them"


def _unfit(package: Distribution) -> str:
    """What a package asks of memos that this one does not meet."""
    from packaging.requirements import InvalidRequirement, Requirement

    import memos

    for line in package.requires or ():
        try:
            needed = Requirement(line)
        except InvalidRequirement:
            continue
        if needed.name == DISTRIBUTION and not needed.specifier.contains(memos.__version__, prereleases=True):
            return (
                f"{_name(package)} {package.version} was made for {DISTRIBUTION}{needed.specifier}, and this is "
                f"{memos.__version__}; install a version of {_name(package)} for this one"
            )
    return ""


@cache
def _load(entry: EntryPoint, kind: str) -> object:
    try:
        return entry.load()
    except Exception as error:  # a stranger's module may raise anything, and memos goes on without it
        raise PluginError(
            f"{entry.value}, which provides the {kind} {entry.name!r}, fails to load "
            f"({type(error).__name__}: {error}); mend or uninstall {_name(entry.dist) if entry.dist else 'it'}"
        ) from error
