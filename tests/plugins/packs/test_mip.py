"""The words of the protocol: versions, names of releases, one form of JSON."""

from __future__ import annotations

import itertools
import json

import mip_vectors
import pytest

from memos.cube import Usage
from memos.errors import InputError
from memos.plugins.packs.mip import Record, Version, canonical, release_of

ORDER = ["0.9.0", "1.0.0-1", "1.0.0-2", "1.0.0-10", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0", "1.2.0", "1.10.0", "2.0.0"]


def test_versions_are_ordered_as_semver_says() -> None:
    for (a, older), (b, newer) in itertools.combinations(enumerate(map(Version, ORDER)), 2):
        assert older < newer and not newer < older and older != newer, (ORDER[a], ORDER[b])


@pytest.mark.parametrize("text", ["1", "1.0", "01.0.0", "1.0.0-", "v1.0.0", "1.0.0+x", "1.0.0\n", "１.0.0", ""])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no version"):
        Version(text)


@pytest.mark.parametrize(
    "version, versions, fits",
    [
        ("1.2.3", "", True),
        ("1.2.3", "1.2.3", True),
        ("1.2.3", ">=1.0.0,<2.0.0", True),
        ("2.0.0", ">=1.0.0, <2.0.0", False),
        ("1.2.3", ">1.2.3", False),
        ("1.2.3", "<=1.2.3", True),
        ("2.0.0-beta", ">=1.0.0", False),  # nobody asked for what is not final
        ("2.0.0-beta", ">=2.0.0-alpha", True),
    ],
)
def test_a_version_fits_or_not(version: str, versions: str, fits: bool) -> None:
    assert Version(version).within(versions) is fits


@pytest.mark.parametrize(
    "pack, version, requires, told",
    [
        ("Ada/life", "1.0.0", [], "'Ada' cannot be the publisher"),
        ("ada/../x", "1.0.0", [], "'../x' cannot be the name"),
        ("ada", "1.0.0", [], "'' cannot be the name"),
        ("ada/life", "1", [], "'1' cannot be the version"),
    ],
)
def test_a_release_needs_sound_names(pack: str, version: str, requires: list[str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        release_of(pack, version, "", "", requires, {})


def test_a_release_says_what_it_builds_on() -> None:
    release = release_of("ada/life", "1.0.0", "CC0-1.0", "", ["bob/a", "bob/b>=1.0.0,<2.0.0"], {})
    assert [(r.pack, r.versions) for r in release.requires] == [("bob/a", ""), ("bob/b", ">=1.0.0,<2.0.0")]
    with pytest.raises(InputError, match="cannot be the pack"):
        release_of("ada/life", "1.0.0", "", "", ["b"], {})


def test_a_record_has_one_form_and_no_use_in_it() -> None:
    [cube, _] = mip_vectors.told()
    used = cube.model_copy(update={"usage": Usage(recalls=3)})
    assert canonical(Record(cube=used)) == canonical(Record(cube=cube))
    again = Record.model_validate_json(canonical(Record(cube=cube, earlier=(cube,))))
    assert again == Record(cube=cube, earlier=(cube,)) and json.loads(canonical(again))["cube"]["id"] == cube.id
