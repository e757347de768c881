"""Packs in registries: published, found, trusted, installed, kept up, withdrawn and taken out again."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from memos import Config, MemOS
from memos.cube import MemCube, State
from memos.errors import BadPack, Conflict, IdClash, InputError, NotFound, RegistryError, UntrustedKey
from memos.plugins.care.check import problems_of
from memos.plugins.packs.calls import PackCalls
from memos.plugins.packs.mem_store import MemStore
from memos.plugins.packs.mip import RegistryIndex, canonical

LICENCE = "CC0-1.0"


@pytest.fixture
def ada(tmp_path: Path) -> Iterator[MemOS]:
    """Who publishes."""
    with MemOS(Config(user_id="ada"), vault=tmp_path / "ada") as kernel:
        yield kernel


@pytest.fixture
def bob(tmp_path: Path) -> Iterator[MemOS]:
    """Who installs."""
    with MemOS(Config(user_id="bob"), vault=tmp_path / "bob") as kernel:
        yield kernel


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "registry")


def texts(memos: MemOS) -> list[str]:
    return [words(cube) for cube in memos.memories()]


def words(cube: MemCube) -> str:
    return cube.text.removeprefix("Mira: ")


def published(ada: MemOS, place: str, version: str = "1.0.0", pack: str = "ada/life", **how: Any) -> str:
    """The key of a pack of what Ada has in force."""
    entry, _ = PackCalls.of(ada).publish(place, pack, version, licence=LICENCE, **how)
    return entry.key


def said(ada: MemOS, *facts: str) -> list[str]:
    return [ada.add(f"Mira: {fact}")[0].id for fact in facts]


# published and found


def test_a_pack_is_published_found_and_installed(ada: MemOS, bob: MemOS, place: str) -> None:
    said(ada, "I live in Lisbon.", "I work as a nurse.")
    key = published(ada, place, description="What Mira said")
    store = MemStore(place)
    assert [e.said.release.pack for e in store.search(["MIRA"])] == ["ada/life"] and store.search(["cooking"]) == []
    [kept] = PackCalls.of(bob).install(place, "ada/life", trust=key)
    assert texts(bob) == texts(ada) and kept.loaded and len(kept.loaded.added) == 2
    cube = bob.memories()[0]
    assert (cube.rights.owner, cube.header.origin) == ("bob", "pack:ada/life 1.0.0")
    [origin] = PackCalls.of(bob).origins(cube.id)
    assert (origin.pack, origin.owner) == ("ada/life 1.0.0", "ada")
    assert [p.pack for p in PackCalls.of(bob).installed()] == ["ada/life"] and PackCalls.of(
        bob.within("eve")
    ).installed() == []
    assert "Lisbon" in bob.ask("Where does Mira live?").text


@pytest.mark.parametrize("address", ["memory://registry-{}", "file://{}/registry"])
def test_any_place_that_fsspec_knows_will_do(ada: MemOS, bob: MemOS, tmp_path: Path, address: str) -> None:
    place = address.format(tmp_path)
    said(ada, "I live in Lisbon.")
    PackCalls.of(bob).install(place, "ada/life", trust=published(ada, place))
    assert texts(bob) == texts(ada)


def test_a_registry_is_read_from_a_web_server(ada: MemOS, bob: MemOS, place: str) -> None:
    pytest.importorskip("aiohttp")
    said(ada, "I live in Lisbon.")
    key = published(ada, place)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=place)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        web = f"http://127.0.0.1:{server.server_address[1]}"
        PackCalls.of(bob).install(web, "ada/life", trust=key)
        with pytest.raises(RegistryError):
            published(ada, web, "2.0.0")
        server.shutdown()
    assert texts(bob) == texts(ada)


def test_a_registry_is_laid_out_as_the_hub_shows_it(ada: MemOS, place: str) -> None:
    said(ada, "I live in Lisbon.")
    published(ada, place, description="Mira | life")
    files = {p.relative_to(place).as_posix() for p in Path(place).rglob("*") if p.is_file()}
    assert files == {"README.md", "index.json", "entries/ada/life/1.0.0.json", "packs/ada/life/1.0.0.mip"}
    from huggingface_hub import DatasetCard

    card = DatasetCard.load(Path(place) / "README.md")
    assert card.data.to_dict()["tags"] == ["memos", "memory-interchange-protocol"]
    assert yaml.safe_load((Path(place) / "README.md").read_text().split("---")[1])["pretty_name"]
    assert "| ada/life | 1.0.0 | CC0-1.0 | Mira \\| life |" in card.text
    assert MemStore("hf:ada/packs@v1")._root == "datasets/ada/packs@v1"


def test_a_version_is_published_once_and_a_name_belongs_to_a_key(ada: MemOS, bob: MemOS, place: str) -> None:
    said(ada, "I live in Lisbon.")
    published(ada, place)
    with pytest.raises(RegistryError, match="ada/life 1.0.0 is in .* already; publish under a later version"):
        published(ada, place)
    said(bob, "I live in Rome.")
    with pytest.raises(RegistryError, match="sign with that key, or publish under another name"):
        published(bob, place, "2.0.0")
    assert [e.said.release.version for e in MemStore(place).versions("ada/life")] == ["1.0.0"]


@pytest.mark.parametrize(
    "pack, version, requires", [("life", "1.0.0", []), ("ada/life", "1", []), ("ada/life", "1.0.0", ["x"])]
)
def test_a_release_that_is_not_sound_is_refused(
    ada: MemOS, place: str, pack: str, version: str, requires: list[str]
) -> None:
    said(ada, "I live in Lisbon.")
    with pytest.raises(InputError, match="cannot be"):
        published(ada, place, version, pack, requires=requires)
    assert not Path(place).exists()


def test_two_who_publish_at_once_are_both_named(ada: MemOS, bob: MemOS, place: str) -> None:
    said(ada, "I live in Lisbon.")
    said(bob, "I live in Rome.")
    errors: list[BaseException] = []

    def publish(memos: MemOS, pack: str) -> None:
        try:
            for n in range(4):
                published(memos, place, f"1.{n}.0", pack)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=publish, args=of) for of in ((ada, "ada/life"), (bob, "bob/life"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    published(ada, place, "2.0.0")
    assert errors == [] and len(MemStore(place).entries) == 9
    assert not list(Path(place).rglob("*.part"))


# trust


def test_an_unknown_key_is_asked_about_and_then_known(ada: MemOS, bob: MemOS, place: str) -> None:
    said(ada, "I live in Lisbon.")
    key = published(ada, place)
    with pytest.raises(UntrustedKey, match=f"the key {key} of publisher ada is not known here.*--trust {key}"):
        PackCalls.of(bob).install(place, "ada/life")
    assert bob.cubes() == [] and PackCalls.of(bob).installed() == [] and PackCalls.of(bob).trusted()[0] == {}
    PackCalls.of(bob).install(place, "ada/life", trust=key)
    published(ada, place, "1.1.0")
    assert PackCalls.of(bob).install(place, "ada/life")[0].version == "1.1.0" and PackCalls.of(bob).trusted()[0] == {
        "ada": key
    }


def test_a_changed_key_is_refused_with_the_way_out(ada: MemOS, bob: MemOS, place: str, tmp_path: Path) -> None:
    ids = said(ada, "I live in Lisbon.")
    PackCalls.of(bob).install(place, "ada/life", trust=published(ada, place), subscribe=True)
    elsewhere = str(tmp_path / "elsewhere")
    ada.update(ids[0], "Mira: I live in Rome.")
    other = published(ada, elsewhere, "1.1.0", key=tmp_path / "other.pem")
    for given in (None, other):  # vouching for it is not enough
        with pytest.raises(UntrustedKey, match="has changed from .* `memos store untrust ada`"):
            PackCalls.of(bob).install(elsewhere, "ada/life", trust=given)
    assert texts(bob) == ["I live in Lisbon."]
    PackCalls.of(bob).untrust("ada")
    PackCalls.of(bob).install(elsewhere, "ada/life", trust=other)
    assert texts(bob) == ["I live in Rome."]


def test_every_changed_bit_of_a_registry_is_found(ada: MemOS, bob: MemOS, place: str) -> None:
    said(ada, "I live in Lisbon.")
    key = published(ada, place)
    for name in ("index.json", "packs/ada/life/1.0.0.mip"):
        file = Path(place) / name
        whole = file.read_bytes()
        for bit in range(3, len(whole) * 8, 97):
            content = bytearray(whole)
            content[bit // 8] ^= 1 << bit % 8
            file.write_bytes(content)
            with pytest.raises((BadPack, RegistryError, UntrustedKey)):
                PackCalls.of(bob).install(place, "ada/life", trust=key)
        file.write_bytes(whole[:-1])
        with pytest.raises((BadPack, RegistryError)):
            PackCalls.of(bob).install(place, "ada/life", trust=key)
        file.write_bytes(whole)
    assert bob.cubes() == [] and problems_of(bob.vault) == []


def test_an_entry_cannot_be_given_to_another_pack(ada: MemOS, bob: MemOS, place: str) -> None:
    said(ada, "I live in Lisbon.")
    key = published(ada, place)
    said(ada, "I have a cat.")
    published(ada, place, pack="ada/more")
    index = RegistryIndex.model_validate_json((Path(place) / "index.json").read_bytes())
    one, other = index.entries
    mixed = one.model_copy(update={"said": one.said.model_copy(update={"sha256": other.said.sha256})})
    (Path(place) / "index.json").write_bytes(canonical(RegistryIndex(mip="1", entries=(mixed, other))))
    with pytest.raises(BadPack, match="does not match its signature"):
        PackCalls.of(bob).install(place, "ada/life", trust=key)


# what is not there


def test_what_is_not_there_is_named(ada: MemOS, bob: MemOS, place: str) -> None:
    with pytest.raises(RegistryError, match="is no registry that can be used so"):
        PackCalls.of(bob).install(place, "ada/life")
    with pytest.raises(RegistryError, match="is no place of a registry"):
        PackCalls.of(bob).install("nowhere://x", "ada/life")
    said(ada, "I live in Lisbon.")
    key = published(ada, place)
    with pytest.raises(RegistryError, match="there is no pack 'ada/none' in .*; it has ada/life"):
        PackCalls.of(bob).install(place, "ada/none")
    with pytest.raises(RegistryError, match="no version of ada/life fits '>=2.0.0' in .*; it has 1.0.0"):
        PackCalls.of(bob).install(place, "ada/life", versions=">=2.0.0")
    with pytest.raises(InputError, match="is no version"):
        PackCalls.of(bob).install(place, "ada/life", versions=">=two")
    packs = PackCalls.of(bob)
    for attempt in (packs.remove_pack, packs.subscribe, packs.update_packs):
        with pytest.raises(NotFound, match="has not installed 'ada/life'"):
            attempt("ada/life")
    with pytest.raises(RegistryError, match="no version '9.9.9'"):
        PackCalls.of(ada).withdraw(place, "ada/life", "9.9.9", "wrong")
    with pytest.raises(RegistryError, match="withdraw it with that key"):
        PackCalls.of(bob).withdraw(place, "ada/life", "1.0.0", "wrong")
    (Path(place) / "packs/ada/life/1.0.0.mip").unlink()
    with pytest.raises(RegistryError):
        PackCalls.of(bob).install(place, "ada/life", trust=key)
    assert bob.cubes() == [] and PackCalls.of(bob).installed() == []


def test_packs_come_with_what_they_build_on(ada: MemOS, bob: MemOS, place: str) -> None:
    [home] = said(ada, "I live in Lisbon.")
    key = published(ada, place, pack="ada/base")
    published(ada, place, "2.0.0", pack="ada/base")
    [job] = said(ada, "I work as a nurse.")
    with pytest.raises(RegistryError, match="there is no pack 'ada/none'"):
        published(ada, place, requires=["ada/none"], ids=[job])
    published(ada, place, requires=["ada/base<2.0.0"], ids=[job])
    done = PackCalls.of(bob).install(place, "ada/life", trust=key)
    assert [(kept.pack, kept.version) for kept in done] == [("ada/base", "1.0.0"), ("ada/life", "1.0.0")]
    with pytest.raises(Conflict, match="ada/life builds on ada/base; remove that first"):
        PackCalls.of(bob).remove_pack("ada/base")
    assert PackCalls.of(bob).remove_pack("ada/life") == [job] and PackCalls.of(bob).remove_pack("ada/base") == [home]


def test_a_circle_and_a_missing_pack_are_named(ada: MemOS, bob: MemOS, place: str) -> None:
    said(ada, "I live in Lisbon.")
    key = published(ada, place, pack="ada/a")
    published(ada, place, pack="ada/b", requires=["ada/a"])
    published(ada, place, "2.0.0", pack="ada/a", requires=["ada/b"])
    with pytest.raises(RegistryError, match="in a circle: ada/b -> ada/a -> ada/b"):
        PackCalls.of(bob).install(place, "ada/b", trust=key)
    PackCalls.of(ada).withdraw(place, "ada/a", "1.0.0", "wrong")
    PackCalls.of(ada).withdraw(place, "ada/a", "2.0.0", "wrong")
    with pytest.raises(RegistryError, match="ada/b builds on ada/a, which is missing: no version of ada/a fits"):
        PackCalls.of(bob).install(place, "ada/b", trust=key)
    assert bob.cubes() == []


# kept up


def test_a_subscriber_gets_updates_and_withdrawals(ada: MemOS, bob: MemOS, place: str) -> None:
    home, job, cat = said(ada, "I live in Lisbon.", "I work as a nurse.", "I have a cat.")
    PackCalls.of(bob).install(place, "ada/life", trust=published(ada, place), subscribe=True)
    assert PackCalls.of(bob).update_packs()[0].loaded is None  # nothing is new
    ada.update(home, "Mira: I live in Porto.")
    ada.delete(job)
    ada.archive(cat)
    [new] = said(ada, "My favourite drink is tea.")
    published(ada, place, "1.1.0", withdrawn={job: "she never said so"})
    [kept] = PackCalls.of(bob).update_packs()
    assert (kept.was, kept.version) == ("1.0.0", "1.1.0") and kept.loaded
    assert (kept.loaded.updated, kept.loaded.added) == ([home], [new])
    assert kept.withdrawn == {job: "she never said so", cat: "no longer in ada/life 1.1.0"}
    assert [words(c) for c in bob.vault.versions(home)] == ["I live in Lisbon.", "I live in Porto."]
    assert bob.get(job).state is State.ARCHIVED and bob.history(job)[-1]["why"] == "she never said so"
    PackCalls.of(ada).withdraw(place, "ada/life", "1.1.0", "all of it is wrong")
    PackCalls.of(ada).withdraw(place, "ada/life", "1.0.0", "all of it is wrong")
    [last] = PackCalls.of(bob).update_packs()
    assert set(last.withdrawn) == {home, new} and texts(bob) == []
    assert "ada/life 1.1.0 was withdrawn: all of it is wrong" in last.withdrawn[home]
    assert PackCalls.of(bob).update_packs()[0].withdrawn == {} and problems_of(bob.vault) == []


def test_a_pack_that_is_not_subscribed_to_stays_as_it_is(ada: MemOS, bob: MemOS, place: str) -> None:
    [home] = said(ada, "I live in Lisbon.")
    PackCalls.of(bob).install(place, "ada/life", trust=published(ada, place))
    ada.update(home, "Mira: I live in Porto.")
    published(ada, place, "1.1.0")
    assert PackCalls.of(bob).update_packs() == [] and texts(bob) == ["I live in Lisbon."]
    PackCalls.of(bob).subscribe("ada/life")
    assert PackCalls.of(bob).update_packs()[0].version == "1.1.0" and texts(bob) == ["I live in Porto."]
    PackCalls.of(bob).subscribe("ada/life", on=False)
    assert PackCalls.of(bob).update_packs() == []


def test_what_fails_to_update_is_told_and_the_others_go_on(ada: MemOS, bob: MemOS, place: str, tmp_path: Path) -> None:
    [home] = said(ada, "I live in Lisbon.")
    key = published(ada, place, pack="ada/a")
    gone = tmp_path / "gone"
    published(ada, str(gone), pack="ada/b")
    PackCalls.of(bob).install(place, "ada/a", trust=key, subscribe=True)
    PackCalls.of(bob).install(str(gone), "ada/b", subscribe=True, clash="rename")
    (gone / "index.json").unlink()
    ada.update(home, "Mira: I live in Porto.")
    published(ada, place, "1.1.0", pack="ada/a")
    a, b = PackCalls.of(bob).update_packs()
    assert a.version == "1.1.0" and not a.failed and "is no registry that can be used" in b.failed
    with pytest.raises(RegistryError):
        PackCalls.of(bob).update_packs("ada/b")


def test_what_the_installer_has_locked_stays(ada: MemOS, bob: MemOS, place: str) -> None:
    [home] = said(ada, "I live in Lisbon.")
    PackCalls.of(bob).install(place, "ada/life", trust=published(ada, place), subscribe=True)
    bob.freeze(home)
    ada.update(home, "Mira: I live in Porto.")
    published(ada, place, "1.1.0")
    [kept] = PackCalls.of(bob).update_packs()
    assert kept.loaded and "frozen and cannot be edited" in kept.loaded.left[home]
    assert texts(bob) == ["I live in Lisbon."]


# taken out


def test_removing_a_pack_takes_its_memories_and_nothing_else(ada: MemOS, bob: MemOS, place: str) -> None:
    mine = said(bob, "I like jazz.", "I have a dog.")
    ids = said(ada, "I live in Lisbon.", "I work as a nurse.")
    PackCalls.of(bob).install(place, "ada/life", trust=published(ada, place))
    kv = bob.promote(ids, "activation")
    own = bob.promote(mine, "activation")
    one = bob.fuse([mine[0], ids[0]])
    with pytest.raises(Conflict, match=f"memory {one.id} was made of one of ada/life"):
        PackCalls.of(bob).remove_pack("ada/life")
    assert len(bob.memories()) == 3 and len(PackCalls.of(bob).installed()) == 1
    bob.split(one.id)
    bob.delete(one.id)
    gone = PackCalls.of(bob).remove_pack("ada/life")
    assert {*ids, kv.id} <= set(gone) and not {*mine, own.id} & set(gone)
    assert texts(bob) == ["I like jazz.", "I have a dog."] and PackCalls.of(bob).installed() == []
    assert problems_of(bob.vault) == []
    PackCalls.of(bob).install(place, "ada/life")  # its publisher is known still
    assert len(texts(bob)) == 4


def test_a_publisher_keeps_its_own_when_it_removes_its_pack(ada: MemOS, place: str) -> None:
    [home] = said(ada, "I live in Lisbon.")
    published(ada, place)
    [kept] = PackCalls.of(ada).install(place, "ada/life")  # its own key needs no trust
    assert kept.loaded and kept.loaded.there == [home] and len(texts(ada)) == 1
    assert PackCalls.of(ada).remove_pack("ada/life") == [] and len(texts(ada)) == 1


def test_a_pack_cannot_take_the_place_of_anothers_memory(ada: MemOS, place: str) -> None:
    """Publisher and installer in one vault: the ids are taken."""
    [home] = said(ada, "I live in Lisbon.")
    published(ada, place)
    with pytest.raises(IdClash, match="--clash rename"):
        PackCalls.of(ada.within("carl")).install(place, "ada/life")
    assert PackCalls.of(ada.within("carl")).installed() == []
    [kept] = PackCalls.of(ada.within("carl")).install(place, "ada/life", clash="rename")
    assert (
        kept.loaded
        and list(kept.loaded.renamed) == [home]
        and [c.rights.owner for c in ada.within("carl").memories()] == ["carl"]
    )
    assert ada.get(home).rights.owner == "ada"
    PackCalls.of(ada.within("carl")).remove_pack("ada/life")
    assert texts(ada) == ["I live in Lisbon."] and ada.within("carl").memories() == []


def test_a_publisher_cannot_put_itself_into_every_request(ada: MemOS, bob: MemOS, place: str) -> None:
    [home] = said(ada, "I live in Lisbon.")
    ada.tag(home, ["always", "home"])
    ada.freeze(home)
    PackCalls.of(bob).install(place, "ada/life", trust=published(ada, place))
    cube = bob.get(home)
    assert (cube.header.tags, cube.state) == (("home",), State.ACTIVATED)


def test_only_memories_in_force_are_published(ada: MemOS, place: str, bob: MemOS) -> None:
    home, _ = said(ada, "I live in Lisbon.", "I work as a nurse.")
    ada.archive(home)
    ada.ask("Where does Mira work?", session="private")
    PackCalls.of(bob).install(place, "ada/life", trust=published(ada, place))
    assert [words(c) for c in bob.cubes()] == ["I work as a nurse."]
    entries = json.loads((Path(place) / "index.json").read_text())["entries"]
    assert [entry["said"]["records"] for entry in entries] == [1]
