"""Rows, threads and views."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from memos.cube import Form, Header, MemCube, Namespace, Rights, Text
from memos.operation.finding.catalog import Catalog, View

NOON = datetime(2025, 5, 22, 12, tzinfo=timezone.utc)


def turn(id: str, minute: int = 0, thread: str = "t", user: str = "ann", text: str = "hi", **header: str) -> MemCube:
    said = NOON + timedelta(minutes=minute)
    return MemCube(
        id=id,
        form=Form.PLAINTEXT,
        namespace=Namespace(user_id=user),
        rights=Rights(owner=user),
        header=Header(created=said, said=said, thread=thread, **header),
        payload=Text(text=text),
    )


def catalog_of(*cubes: MemCube) -> Catalog:
    catalog = Catalog()
    for cube in cubes:
        catalog.add(cube)
    return catalog


def of(user: str, **limits: object) -> View:
    return View(user, lambda namespace, rights: namespace.user_id == user, **limits)  # type: ignore[arg-type]


def seen(catalog: Catalog, view: View) -> list[str]:
    return [catalog.ids[row] for row in catalog.allowed(view).nonzero()[0]]


def around(catalog: Catalog, id: str) -> tuple[str, str]:
    """The turns just before and after it, "" where there is none."""
    row = catalog.row(id)
    before, after = (int(step[row]) for step in (catalog.before.all, catalog.after.all))
    return catalog.ids[before] if before >= 0 else "", catalog.ids[after] if after >= 0 else ""


def read_together(catalog: Catalog, id: str, before: int = 0) -> tuple[str, str]:
    """(the ids of the context, those of the window), of rows of ten characters."""
    context, rows = catalog.window(catalog.row(id), lambda _: 10, most=500, before=before)
    return "".join(catalog.ids[r] for r in context), "".join(catalog.ids[r] for r in rows)


def test_neighbours_are_those_said_before_and_after_whatever_the_order_of_adding() -> None:
    catalog = catalog_of(turn("c", 3), turn("a", 1), turn("e", 5), turn("b", 2), turn("d", 4))
    assert (around(catalog, "c"), around(catalog, "b")) == (("b", "d"), ("a", "c"))
    catalog.drop("b")
    assert (around(catalog, "c"), around(catalog, "a")) == (("a", "d"), ("", "c"))


def test_turns_are_read_together_in_windows_that_do_not_move() -> None:
    names = "abcdefghijklmnopqrstuvwxyz"
    catalog = catalog_of(*(turn(name, n, text=f"{name} {n}") for n, name in enumerate(names)))
    windows = {read_together(catalog, name)[1] for name in names}
    assert "".join(sorted(windows)) == names and {len(rows) for rows in windows} <= {1, 2, 3, 4, 5}
    assert all(name in read_together(catalog, name)[1] for name in names)
    dropped = sorted(windows)[2]
    for name in dropped:
        catalog.drop(name)
    left = {read_together(catalog, name)[1] for name in names if name not in dropped}
    assert len(windows & left) >= 3  # far from it nothing moved


def test_a_window_is_read_behind_what_was_said_before_it() -> None:
    catalog = catalog_of(*(turn(name, n, text=f"{name} {n}") for n, name in enumerate("abcdefgh")))
    context, rows = read_together(catalog, "h", before=22)
    assert context == "abcdefgh"[: -len(rows)][-2:]  # two of ten characters, and the space between them


def test_threads_of_other_users_and_memories_without_one_stand_apart() -> None:
    catalog = catalog_of(turn("a", 1), turn("b", 2, user="bob"), turn("c", 3, thread=""), turn("d", 4, thread=""))
    assert [around(catalog, id) for id in "abcd"] == [("", "")] * 4
    assert [read_together(catalog, id) for id in "abcd"] == [("", id) for id in "abcd"]
    assert len(set(catalog.thread.all.tolist())) == 4


def test_a_view_sees_its_own_and_what_comes_later() -> None:
    catalog = catalog_of(turn("a"), turn("b", user="bob"))
    assert seen(catalog, of("ann")) == ["a"]
    catalog.add(turn("c"))
    catalog.add(turn("d", user="cid"))
    assert (seen(catalog, of("ann")), seen(catalog, of("cid"))) == (["a", "c"], ["d"])


def test_a_view_may_be_narrowed_by_kind_id_and_time() -> None:
    catalog = catalog_of(turn("a", 1, kind="fact"), turn("b", 2, kind="event"), turn("c", 3, kind="event"))
    assert seen(catalog, of("ann", kinds=frozenset({"event"}))) == ["b", "c"]
    assert seen(catalog, of("ann", kinds=frozenset({"rule"}))) == []
    assert seen(catalog, of("ann", among=frozenset({"b", "not there"}))) == ["b"]
    assert seen(catalog, of("bob", among=frozenset({"b"}))) == seen(catalog, of("ann", among=frozenset())) == []
    assert seen(catalog, of("ann", since=NOON + timedelta(minutes=2))) == ["b", "c"]
    assert seen(catalog, of("ann", until=NOON + timedelta(minutes=2))) == ["a", "b"]


def test_a_new_version_takes_the_place_of_the_old() -> None:
    catalog = catalog_of(turn("a", 1), turn("b", 2))
    catalog.add(turn("a", 1, text="new").model_copy(update={"version": 2}))
    assert (seen(catalog, of("ann")), catalog.version_of("a"), catalog.gone) == (["b", "a"], 2, 1)
    assert around(catalog, "b") == ("a", "")


def test_speakers_are_found_by_name_in_a_text() -> None:
    catalog = catalog_of(turn("a", speaker="Ann"), turn("b", speaker="Mary Ann"), turn("c", speaker="Bo"))
    named = [[catalog.speakers.values[code] for code in catalog.named(text)] for text in ("ANN's tea", "mary ann", "x")]
    assert named == [["ann"], ["ann", "mary ann"], []]
