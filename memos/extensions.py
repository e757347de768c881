"""Finds parts by name in registries that the entry points of installed packages fill.

What ships with memos stands in pyproject.toml like everybody else's: a group, a name, and an object to import. A part
is imported when it is asked for, and one that fails to load harms nobody who does not ask for it. Knows names and
packages; must not know what a part does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Generic, TypeVar, cast

from memos.errors import InputError, PluginError, meant

DISTRIBUTION = "memos-kernel"  # what memos is called on the package index
T = TypeVar("T")


@dataclass(frozen=True)
class Extension:
    """One entry point: what provides which part, and why it cannot be used (problem; "" where it can)."""

    group: str
    name: str
    target: str  # module:attribute
    package: str
    version: str
    problem: str = ""


class Registry(Generic[T]):
    """The parts of one group, such as `memos.policies`, by name."""

    def __init__(self, group: str, kind: str, also: tuple[str, ...] = ()) -> None:
        """kind: what a part is called in messages, such as "policy". also: words of a setting that name none."""
        self.group, self.kind, self._also = group, kind, also

    def names(self) -> tuple[str, ...]:
        """Every name that is provided, in alphabetical order; nothing is imported."""
        return tuple(sorted(name for group, name in _entries() if group == self.group))

    def added(self) -> tuple[str, ...]:
        """The names that other packages provide beside what ships; nothing is imported."""
        return tuple(name for name in self.names() if (self.group, name) not in _shipped())

    def get(self, name: str) -> T:
        """The part of that name. Raises what `require` raises, and PluginError where it fails to load."""
        return cast(T, _load(self.require(name), self.kind))

    def require(self, name: str) -> EntryPoint:
        """What provides a name; nothing is imported. Raises InputError for a name that nothing provides, PluginError
        for one that cannot be used."""
        given = _shipped().get((self.group, name)) or _entries().get((self.group, name))
        if given is None:
            if not _shipped():
                raise PluginError(
                    f"the {self.kind} {name!r} cannot be found, as {DISTRIBUTION} is not installed; "
                    f"run `pip install {DISTRIBUTION}`, or `pip install -e .` in a clone of memos"
                )
            known = (*self.names(), *self._also)
            there = f"there are {', '.join(known) or 'none'};"
            raise InputError(
                f"there is no {self.kind} {name!r}; {meant(name, known, there)} `memos plugins` lists what is "
                f"installed, and a package may bring another by the entry point {self.group}"
            )
        entry, package = given[0]
        problem = _conflict(given) or _unfit(package)
        if problem:
            raise PluginError(f"the {self.kind} {name!r} cannot be used: {problem}")
        return entry

    def _in_order(self) -> Iterator[str]:
        """The names, what ships first; other packages are looked at only after that."""
        shipped = sorted(name for group, name in _shipped() if group == self.group)
        yield from shipped
        yield from (name for name in self.names() if name not in shipped)

    def usable(self, left_out: Callable[[str], object] = lambda _: None) -> Iterator[tuple[str, T]]:
        """Every part that loads, with its name, what ships first. left_out: told why each of the others does not."""
        for name in self._in_order():
            try:
                part = self.get(name)
            except PluginError as error:
                left_out(str(error))
                continue
            yield name, part


def extensions(load: bool = False) -> list[Extension]:
    """Every part of every group, by group and name. load: import each, to tell which fail."""
    found = []
    for (group, name), given in sorted(_entries().items()):
        for entry, package in given:
            ours = _name(package) == DISTRIBUTION
            problem = "" if ours else _taken(group, name, package) or _conflict(given) or _unfit(package)
            if load and not problem:
                try:
                    _load(entry, "part")
                except PluginError as error:
                    problem = str(error)
            found.append(Extension(group, name, entry.value, _name(package), package.version, problem))
    return found


Given = tuple[tuple[EntryPoint, Distribution], ...]  # what provides one name; more than one where packages clash


@cache
def _shipped() -> dict[tuple[str, str], Given]:
    """(group, name) -> what memos itself provides. Found without looking at other packages."""
    return {key: tuple(given.values()) for key, given in _read(distributions(name=DISTRIBUTION)).items()}


@cache
def _entries() -> dict[tuple[str, str], Given]:
    """(group, name) -> what provides it."""
    return {key: tuple(given.values()) for key, given in _read(distributions()).items()}


def _read(packages: Iterable[Distribution]) -> dict[tuple[str, str], dict[str, tuple[EntryPoint, Distribution]]]:
    """(group, name) -> package -> its entry point."""
    found: dict[tuple[str, str], dict[str, tuple[EntryPoint, Distribution]]] = {}
    for package in packages:
        ours = [entry for entry in package.entry_points if entry.group.startswith("memos.")]
        name = _name(package) if ours else ""  # which takes as long as all of its entry points
        for entry in ours:
            # a package that stands on the path twice, as in an editable checkout, is one
            found.setdefault((entry.group, entry.name), {}).setdefault(name, (entry, package))
    return found


def _name(package: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", str(package.metadata["Name"])).lower()


def _taken(group: str, name: str, package: Distribution) -> str:
    """What ships with memos keeps its name, whoever else takes it."""
    if (group, name) not in _shipped():
        return ""
    return f"{DISTRIBUTION} itself provides it, and is used; {_name(package)} needs another name for its own"


def _conflict(given: Given) -> str:
    packages = sorted({_name(package) for _, package in given} - {DISTRIBUTION})
    if len(packages) < 2:
        return ""
    return f"{', '.join(packages[:-1])} and {packages[-1]} provide it; uninstall all but one of them"


def _unfit(package: Distribution) -> str:
    """What a package asks of memos that this one does not meet."""
    if _name(package) == DISTRIBUTION:
        return ""
    from packaging.requirements import InvalidRequirement, Requirement  # takes 30 ms

    import memos

    for line in package.requires or ():
        try:
            needed = Requirement(line)
        except InvalidRequirement:
            continue
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        ours = re.sub(r"[-_.]+", "-", needed.name).lower() == DISTRIBUTION
        if ours and not needed.specifier.contains(memos.__version__, prereleases=True):
            return (
                f"{_name(package)} {package.version} was made for {DISTRIBUTION}{needed.specifier}, and this is "
                f"{memos.__version__}; install a version of {_name(package)} for this one"
            )
    return ""


@cache
def _load(entry: EntryPoint, kind: str) -> object:
    try:
        return entry.load()
    except (Exception, SystemExit) as error:  # a stranger's module may raise anything, and memos goes on without it
        package, way = _name(entry.dist) if entry.dist else "it", "mend or uninstall"
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("memos"):
            way = f"install {error.name}, for which there may be an extra of"
        raise PluginError(
            f"{entry.value}, which provides the {kind} {entry.name!r}, fails to load "
            f"({type(error).__name__}: {error}); {way} {package}"
        ) from error
