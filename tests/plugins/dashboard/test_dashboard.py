"""The dashboard in a real browser, over a real server with the small model."""

from __future__ import annotations

import io
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, get_args

import pytest
import uvicorn
from PIL import Image

from memos.config import Config, SchedulerConfig
from memos.cube import Form, State, Trust
from memos.errors import NotFound
from memos.infrastructure.host.kv.tiers import Tier
from memos.infrastructure.vault.tables.job_list import OPEN
from memos.interface.doors.api.memory import Memory
from memos.kernel.unread import READ_TURNS
from memos.operation.policies.policy import Signals
from memos.plugins import dashboard
from memos.plugins.curators.calls import CuratorCalls
from memos.plugins.server.app import create_app
from memos.rights import ACTIONS, Action

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: `pip install playwright`")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:  # told once for the file
    pytest.skip(
        "Chromium is not installed, so no page is looked at; `apt-get install chromium` has it", allow_module_level=True
    )
QUIET = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update"
HOSTILE = 'Eve says <img src="http://elsewhere.example/x" onerror="document.title=1">.'
PAGES = {  # what is there once it is drawn, and its heading in English and Chinese
    "#/map": (".map .cell", "Memory map", "记忆地图"),
    "#/cube/KV": (".lineage .self", "KV cache of 2 memories", "2 条记忆的KV 缓存"),
    "#/why?q=Where+does+Mira+live": (".answer", "Why this answer", "答案的由来"),
    "#/search?q=Mira": (".hits .signals", "Search", "搜索"),
    "#/governance/log": ("table", "Rights and decisions", "权限与决定"),
    "#/jobs": (".empty", "Jobs", "任务"),
    "#/bench": (".drop", "Plots of reports", "报告图表"),
    "#/talk": (".write", "Talk", "对话"),
}


# a link, button or field without a name cannot be told from others by ear
UNNAMED = """[...document.querySelectorAll("a, button, input")].filter((e) => !(e.getAttribute("aria-label") ||
    e.textContent.trim() || e.labels?.[0]?.textContent.trim())).map((e) => e.outerHTML)"""
Colour = tuple[int, int, int]


@contextmanager
def served(memory: Memory) -> Iterator[str]:
    """Its address."""
    config = uvicorn.Config(
        create_app(memory, memory.kernel.config.serve, loopback=True), port=0, log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not (server.started and server.servers):
            assert thread.is_alive()
            threading.Event().wait(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    # on a busy machine text may be the faster form
    config = Config(scheduler=SchedulerConfig(choice="dearest"))
    with Memory(config, vault=tmp_path_factory.mktemp("dashboard") / "vault") as memory:
        said = ["Mira lives in Lisbon.", "Mira works as a florist.", "Tom lives in Oslo.", "我住在上海。", HOSTILE]
        ids = [memory.add(text)["results"][0]["id"] for text in said]
        for _ in range(3):
            memory.kernel.ask("Where does Mira live?")
        memory.promote(ids[:2], "activation")
        memory.update(ids[2], "Tom lives in Bergen.")
        memory.grant(ids[0], "bob")
        memory.hold(ids[1], "case 7")
        yield memory


@pytest.fixture(scope="module")
def server(memory: Memory) -> Iterator[str]:
    with served(memory) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any, server: str) -> Iterator[Callable[..., Any]]:
    """Opens a page of the dashboard, and waits until it is drawn. Whatever is said on the console, and every request
    that goes elsewhere, fails the test, but for what it says is `known`: the console may tell it late."""
    contexts, wrong, known = list[Any](), list[str](), list[str]()

    def open_(place: str, language: str = "en-GB", light: str = "light", width: int = 1280, url: str = "") -> Any:
        home = url or server
        context = browser.new_context(
            locale=language, color_scheme=light, viewport={"width": width, "height": 800}, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda told: wrong.append(f"console: {told.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("request", lambda sent: sent.url.startswith((home, "data:")) or wrong.append(f"asked: {sent.url}"))
        page.goto(f"{home}/dashboard/{place}")
        page.wait_for_selector("main[data-ready]")
        return page

    open_.wrong, open_.known = wrong, known  # type: ignore[attr-defined]
    yield open_
    for context in contexts:
        context.close()
    assert [told for told in wrong if not any(one in told for one in known)] == []


def derived(memory: Memory) -> str:
    return memory.get_all(form="activation")["results"][0]["id"]  # type: ignore[arg-type]


def picture(page: Any, where: str = "") -> Image.Image:
    """What is seen of the page, or of a part of it."""
    taken = page.locator(where).first.screenshot() if where else page.screenshot()
    return Image.open(io.BytesIO(taken)).convert("RGB")


def near(pixel: Any, colour: Colour) -> bool:
    return all(abs(a - b) <= 6 for a, b in zip(pixel, colour, strict=True))


def shows(page: Any, part: str, colour: Colour) -> bool:
    """True if this colour is in that part of the page."""
    return any(near(pixel, colour) for _, pixel in picture(page, part).getcolors(1 << 22))


@pytest.mark.parametrize(
    "language, light, width, ground, accent",
    [
        ("en-GB", "light", 1280, (246, 246, 243), (11, 110, 105)),
        ("zh-CN", "dark", 360, (19, 20, 22), (98, 205, 196)),
    ],
    ids=["English, light", "Chinese, dark, phone"],
)
def test_every_page_is_drawn(
    opened: Any, memory: Memory, language: str, light: str, width: int, ground: Colour, accent: Colour
) -> None:
    page = opened("#/jobs", language, light, width)
    for place, (there, *headings) in PAGES.items():
        page.evaluate("place => { location.hash = place }", place.replace("KV", derived(memory)))
        page.locator("h1", has_text=headings[language == "zh-CN"]).wait_for()
        page.locator(there).first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") == width, f"{place} scrolls sideways"
        assert page.evaluate(UNNAMED) == [], place
        seen = picture(page)
        assert near(seen.getpixel((1, 1)), ground), place
        plain = sum(count for count, pixel in seen.getcolors(1 << 22) if near(pixel, ground))
        assert plain < 0.93 * seen.width * seen.height, f"{place} is blank"
        # what every page is framed by: the sign, and the page that is marked among all
        assert shows(page, ".brand img", (11, 110, 105)), place
        assert place == "#/cube/KV" or shows(page, ".nav a[aria-current]", accent), place


def test_the_map_tells_form_by_hue_and_use_by_strength(opened: Any) -> None:
    page = opened("#/map")

    def tile(words: str) -> tuple[int, int, int]:
        shown = picture(page, f'.cell[aria-label^="{words}"]')
        return shown.getpixel((shown.width // 2, shown.height - 8))  # type: ignore[return-value]

    hot, cold, kv = tile("Mira lives"), tile("我住在"), tile("KV cache of 2")
    assert hot[2] > hot[0] and kv[0] > kv[2], "text is blue, KV is amber"
    assert sum(hot) < sum(cold) - 60, "what is used is stronger"
    assert page.locator(".cell").count() == 6
    assert page.locator('.cell[aria-label^="KV"] .pip').count() in (1, 2)


def test_the_first_paint_comes_within_a_second(opened: Any) -> None:
    """Of three, the quickest: what else the machine does is not the dashboard's."""
    painted = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    assert min(opened("#/map").evaluate(painted) for _ in range(3)) < 1000


def test_what_a_memory_says_is_text_and_nothing_comes_from_elsewhere(opened: Any, server: str) -> None:
    page = opened("#/search?q=Eve")
    assert HOSTILE in page.inner_text(".hits")
    assert page.locator(".hits img").count() == 0
    policy = page.request.get(f"{server}/dashboard/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    page.evaluate("fetch('http://127.0.0.1:9/').catch(() => {})")
    page.wait_for_timeout(50)
    assert any("Content Security Policy" in told for told in opened.wrong)
    opened.wrong.clear()


def test_keys_reach_everything(opened: Any) -> None:
    page = opened("#/map")
    focused = "document.activeElement"
    page.keyboard.press("Tab")
    assert page.locator(".skip").bounding_box()["y"] > 0, "the link to the page is seen once it has the focus"
    page.keyboard.press("Enter")
    assert page.evaluate(f"{focused}.tagName") == "H1"
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate(f"{focused}.classList.contains('cell')"):
            break
    first = page.evaluate(f"{focused}.getAttribute('aria-label')")
    assert page.evaluate(f"getComputedStyle({focused}.querySelector('rect')).strokeWidth") == "3px", "it is seen"
    page.keyboard.press("ArrowRight")
    second = page.evaluate(f"{focused}.getAttribute('aria-label')")
    assert first and second and first != second
    page.keyboard.press("Enter")
    page.wait_for_selector("main[data-ready=cube]")
    assert page.evaluate(f"{focused}.tagName") == "H1"
    page.keyboard.press("5")
    page.wait_for_selector("main[data-ready=jobs]")
    page.keyboard.press("?")
    assert page.locator("dialog kbd").count() > 8
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.keyboard.press("l")
    page.locator("h1", has_text="任务").wait_for()
    page.keyboard.press("/")
    page.wait_for_selector("main[data-ready=search]")
    assert page.evaluate(f"{focused}.tagName") == "INPUT"


def test_asked_why_it_shows_what_the_answer_rests_on(opened: Any) -> None:
    page = opened("#/why")
    page.keyboard.type("Where does Mira live?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".answer")
    assert page.inner_text(".answer p") == "Lisbon"
    first, second = page.locator(".hits > li").all()[:2]
    assert "Mira lives in Lisbon." in first.inner_text() and "KV cache" in first.inner_text()
    assert "likelier with it" in first.inner_text() and "no difference" in second.inner_text()


def test_a_life_is_told_and_changed(opened: Any, memory: Memory) -> None:
    id = next(told["id"] for told in memory.get_all()["results"] if told["memory"] == "Tom lives in Bergen.")
    page = opened(f"#/cube/{id}")
    assert "- Tom lives in Oslo." in page.inner_text(".timeline")
    page.get_by_role("button", name="Freeze").click()
    page.wait_for_selector("button:has-text('Thaw')")
    assert memory.get(id)["state"] == "frozen"
    page.get_by_role("button", name="Go back to this version").click()
    page.locator(".toast", has_text="frozen").wait_for()  # the words of the error
    page.get_by_role("button", name="Thaw").click()
    page.wait_for_selector("button:has-text('Freeze')")
    page.get_by_role("button", name="Go back to this version").click()
    page.wait_for_selector("h1:has-text('Oslo')")
    assert memory.get(id)["memory"] == "Tom lives in Oslo."
    opened.known.append("409")  # the browser itself notes the refusal


def test_what_a_memory_is_linked_to_is_shown_with_how_and_when(opened: Any, memory: Memory) -> None:
    mira, eve = (
        hit["id"] for words in ("Lisbon", "Eve") for hit in memory.get_all()["results"] if words in hit["memory"]
    )
    links, kind = CuratorCalls.of(memory.kernel.within()), "<b>met</b> " + "M" * 80
    links.link(mira, eve, kind, 0.25, since=datetime(2020, 5, 17, tzinfo=timezone.utc))
    links.link(derived(memory), mira, "holds")
    try:
        page = opened(f"#/cube/{mira}", width=360)
        card = page.locator(".links li")
        told = {one.locator(".chip").first.inner_text(): one.inner_text() for one in card.all()}
        assert told.keys() == {kind, "holds"}
        assert all(part in told[kind] for part in ("from here", "weight 0.25", "true since 17 May 2020", HOSTILE))
        assert "to here" in told["holds"] and "true" not in told["holds"] and "KV cache" in told["holds"]
        assert page.locator(".links img, .links b").count() == 0, "text is text"
        assert page.evaluate("document.documentElement.scrollWidth") == 360 and page.evaluate(UNNAMED) == []
        page.get_by_role("link", name=HOSTILE).click()
        page.locator("h1", has_text=HOSTILE).wait_for()
        assert page.locator(".links", has_text="to here").count() == 1
    finally:
        links.unlink(mira, eve, kind)
        links.unlink(derived(memory), mira, "holds")
    page = opened(f"#/cube/{mira}")
    assert page.locator(".links").count() == 0 and page.get_by_text("Links", exact=True).count() == 0


def test_a_memory_is_shown_by_a_server_without_links(opened: Any, memory: Memory) -> None:
    page = opened("#/jobs")
    page.route("**/v1/memory/linked", lambda route: route.fulfill(status=404, json={}))
    page.evaluate("place => { location.hash = place }", f"#/cube/{derived(memory)}")
    page.locator(".lineage .self").wait_for()
    assert page.locator(".links").count() == 0
    opened.known.append("404")  # the browser itself notes it


def test_a_memory_is_told_asked_for_edited_and_deleted(opened: Any, memory: Memory) -> None:
    page = opened("#/talk")
    page.fill("textarea", "Tom keeps a parrot called Pico.")
    page.get_by_role("button", name="Keep as a memory").click()
    page.wait_for_selector(".talk a")
    page.fill("textarea", "Where does Mira live?")
    page.get_by_role("button", name="Send").click()
    page.locator(".talk > [data-role=assistant]", has_text="Lisbon").wait_for()
    page.locator(".talk a", has_text="parrot").first.click()
    page.get_by_text("Edit", exact=True).click()
    page.fill("textarea", "Tom keeps a parrot called Rio.")
    page.get_by_role("button", name="Save as a new version").click()
    page.wait_for_selector("h1:has-text('Rio')")
    id = page.url.rpartition("/")[2]
    assert memory.get(id)["version"] == 2
    page.get_by_role("button", name="Delete").click()  # and the question is dismissed
    page.locator(".toast", has_text="Nothing was deleted").wait_for()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    page.wait_for_selector("main[data-ready=map]")
    with pytest.raises(NotFound):
        memory.get(id)


def test_no_words_leave_their_tile_on_a_phone(opened: Any, memory: Memory) -> None:
    beyond = """[...document.querySelectorAll(".cell text")].filter((e) => e.getBoundingClientRect().right >
        e.parentNode.querySelector("rect").getBoundingClientRect().right).map((e) => e.textContent)"""
    wide = [
        memory.add(f"WWWWW {n} MMMMMM WWWWWW https://example.org/{'MW' * 40}")["results"][0]["id"] for n in range(5)
    ]
    try:
        page = opened("#/map", width=360)
        page.wait_for_selector(".cell text:has-text('WWW')")
        assert page.evaluate(beyond) == []
        page.get_by_role("button", name="As a list").click()
        page.wait_for_selector("td a")
        assert page.evaluate("document.querySelector('td').clientWidth") > 150, "the words have room"
    finally:
        for id in wide:
            memory.delete(id)


def test_an_owner_sees_what_others_tried_however_often_it_has_looked(opened: Any, memory: Memory) -> None:
    id = next(told["id"] for told in memory.get_all()["results"] if told["memory"] == "Mira works as a florist.")
    with pytest.raises(NotFound):
        memory.kernel.within("carl").get(id)
    for _ in range(120):  # more than a call of the log tells
        memory.get(id)
    assert "carl: read refused" in opened(f"#/cube/{id}").inner_text(".timeline")
    row = opened("#/governance/log").locator("tr", has_text="carl").inner_text()
    assert "refused" in row and id[-6:] in row


@pytest.mark.slow
def test_an_adapter_is_made_where_a_memory_is_shown(opened: Any, tmp_path: Path) -> None:
    with Memory(vault=tmp_path / "vault") as memory, served(memory) as url:
        id = memory.add("I work as a nurse.")["results"][0]["id"]
        page = opened(f"#/cube/{id}", url=url)
        page.get_by_role("button", name="Make an adapter").click()
        page.locator("h1", has_text="adapter of 1 memories").wait_for(timeout=300_000)
        assert "Done." in page.inner_text(".toast")
        assert "I work as a nurse." in page.locator(".lineage a").first.text_content()
        [made] = memory.get_all(form="parametric")["results"]
        assert made["state"] == "activated" and page.evaluate("location.hash") == f"#/cube/{made['id']}"


def test_rights_are_shown_and_taken_back(opened: Any, memory: Memory) -> None:
    page = opened("#/governance/holds")
    assert "case 7" in page.inner_text("table")
    page = opened("#/governance")
    assert "bob" in page.inner_text("table")
    page.get_by_role("button", name="Take back").click()
    page.wait_for_selector(".empty")
    assert memory.grants()["results"] == []


def test_a_right_is_taken_back_from_whomever_it_was_given(opened: Any, memory: Memory, bob: str) -> None:
    id = memory.get_all()["results"][0]["id"]
    given = [f"agent:{bob}/planner", f"namespace:{bob}//monday", "user:discord:7", "group:team"]
    for to in given:
        memory.grant(id, to)
    memory.grant("namespace:default//monday", bob)
    memory.grant(id, bob, purpose="billing")
    memory.grant(id, bob)
    given += [bob]
    page = opened("#/governance")
    shown = page.inner_text("table")
    assert all(to.replace(":team", ":default/team") in shown for to in given)
    for left in range(len(given) + 1, -1, -1):
        page.get_by_role("button", name="Take back").first.click()
        page.wait_for_function("left => document.querySelectorAll('tbody tr').length === left", arg=left)
        assert page.inner_text(".toast") == "1 grants taken back."
    assert memory.grants()["results"] == []


def test_nothing_taken_back_is_not_done(opened: Any, memory: Memory, bob: str) -> None:
    id = memory.get_all()["results"][0]["id"]
    memory.grant(id, bob)
    page = opened("#/governance")
    memory.revoke(id, bob)
    page.get_by_role("button", name="Take back").click()
    page.locator(".toast", has_text="0 grants taken back.").wait_for()


def test_a_report_is_drawn_where_it_is_dropped(opened: Any, tmp_path: Path) -> None:
    good, bad = tmp_path / "search.json", tmp_path / "bad.json"
    good.write_text(json.dumps({"p50_ms": 1.5, "rows": [{"name": "a", "ms": 1.0}, {"name": "b", "ms": 2.5}]}))
    bad.write_text("{")
    page = opened("#/bench")
    page.set_input_files("#reports", [good, bad])
    page.wait_for_selector(".report .plot")
    assert page.get_attribute(".plot", "aria-label") == "a: 1; b: 2.5"
    assert "1.5" in page.inner_text(".report .figures")
    assert "bad.json is no JSON report" in page.inner_text("main")


def test_a_key_that_is_missing_a_vault_that_is_empty_and_a_server_that_went_say_what_to_do(
    opened: Any, tmp_path: Path
) -> None:
    with Memory(vault=tmp_path / "vault") as memory:
        key, _ = memory.kernel.services.governing.add_key("ada")
        with served(memory) as url:
            page = opened("#/map", url=url)
            assert "memos key add" in page.inner_text(".wrong")
            page.fill("dialog input[name=key]", key)
            page.keyboard.press("Enter")
            page.locator(".empty", has_text="Nothing is remembered yet").wait_for()
        page.keyboard.press("5")
        page.locator(".wrong", has_text="memos serve").wait_for()
    # the browser itself notes the answer 401, and then that nobody answers
    opened.known.append("Failed to load resource")


def running(note: str = "", state: str = "running") -> dict[str, Any]:
    """What the API tells of two jobs."""
    job = {"kind": "promote to parametric", "payload": {}, "started": "2026-01-01T00:00:00Z", "note": note}
    return {"results": [{**job, "id": id, "state": state} for id in ("j1", "j2")]}


def kept_waiting(page: Any, call: str) -> list[Any]:
    """What the page asks of this call from now on, to be answered by the test."""
    held = list[Any]()
    page.route(f"**/v1/memory/{call}", lambda route: held.append(route))
    return held


def asked(page: Any, held: list[Any], n: int = 0) -> Any:
    """The n-th of them, once it has come."""
    for _ in range(500):
        if len(held) > n:
            return held[n]
        page.wait_for_timeout(20)
    raise AssertionError(f"the page has asked {len(held)} times, and not {n + 1}")


def test_work_that_ends_late_takes_nobody_away(opened: Any, memory: Memory) -> None:
    id = memory.get_all()["results"][0]["id"]
    page = opened(f"#/cube/{id}")
    held = kept_waiting(page, "promote")
    page.get_by_role("button", name="Make KV").click()
    page.keyboard.press("/")
    page.wait_for_selector("main[data-ready=search]")
    page.keyboard.type("Mi")
    asked(page, held).fulfill(json={"results": [{"id": id}]})
    page.locator(".toast", has_text="Done.").wait_for()
    page.keyboard.type("ra")
    assert page.evaluate("location.hash") == "#/search"
    assert page.input_value("input[name=q]") == "Mira"


def test_an_answer_for_a_page_that_was_left_is_dropped(opened: Any) -> None:
    page = opened("#/map")
    held = kept_waiting(page, "jobs")
    page.keyboard.press("5")
    asked(page, held)
    page.keyboard.press("6")
    page.wait_for_selector("main[data-ready=bench]")
    page.wait_for_timeout(300)
    assert page.locator(".busy").count() == 0, "that page was slow, this one is there"
    page.keyboard.press("5")
    page.locator(".busy").wait_for()
    page.get_by_role("button", name="Sign in").click()
    page.fill("dialog input[name=user]", "ada")
    page.keyboard.press("Enter")
    asked(page, held, 2).fulfill(json={"results": []})
    page.locator(".empty").wait_for()
    for old in held[:2]:
        old.fulfill(json=running())
    page.wait_for_timeout(50)
    assert page.locator("table").count() == 0, "whom these are of asks no more"


def test_jobs_are_looked_at_once_in_three_seconds_by_whoever_sees_them(opened: Any) -> None:
    page, held, told = opened("#/map"), list[Any](), [running("step 1")]
    page.route("**/v1/memory/jobs", lambda route: (held.append(route), route.fulfill(json=told[-1])))

    def looks(ms: int) -> int:
        before = len(held)
        page.clock.run_for(ms)
        page.wait_for_timeout(100)
        return len(held) - before

    page.clock.install()
    page.keyboard.press("5")
    page.locator("#cancel-j2").focus()
    for _ in range(3):
        page.keyboard.press("r")
    page.wait_for_timeout(200)
    told.append(running("step 2"))
    assert looks(3100) == 1, "however often it was drawn"
    page.locator("td", has_text="step 2").first.wait_for()
    assert page.evaluate("document.activeElement.id") == "cancel-j2"
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    assert looks(10_000) == 0
    told.append(running(state="interrupted"))
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.locator(".chip", has_text="interrupted").first.wait_for()
    assert looks(10_000) == 0, "nobody has taken them up"


def test_a_page_that_is_left_before_it_is_there_looks_no_further(opened: Any) -> None:
    page = opened("#/map")
    held = kept_waiting(page, "jobs")
    page.clock.install()
    page.keyboard.press("5")
    page.keyboard.press("6")
    page.wait_for_selector("main[data-ready=bench]")
    page.evaluate("document.querySelector('.drop').id = 'as-it-was'")
    asked(page, held).fulfill(json=running())
    page.wait_for_timeout(100)
    page.clock.run_for(10_000)
    page.wait_for_timeout(100)
    assert len(held) == 1
    assert page.locator("#as-it-was").count() == 1, "nor is another page drawn again"


def test_a_question_stays_where_its_answer_fails_and_is_asked_again(opened: Any) -> None:
    page = opened("#/why")
    page.fill("input[name=q]", "米拉住在哪里？")
    for _ in range(2):
        with page.expect_response("**/v1/memory/explain"):
            page.keyboard.press("Enter")
        page.locator(".wrong").wait_for()
        assert page.input_value("input[name=q]") == "米拉住在哪里？"
    page = opened("#/search?q=Mira")
    with page.expect_response("**/v1/memory/search"):
        page.get_by_role("button", name="Search").click()
    opened.known.append("Failed to load resource")


def test_what_is_typed_while_an_answer_is_awaited_stays(opened: Any) -> None:
    page = opened("#/search")
    held = kept_waiting(page, "search")
    page.keyboard.type("Mira")
    page.keyboard.press("Enter")
    page.locator(".busy").wait_for()
    page.keyboard.type(" and")
    asked(page, held).fulfill(json={"results": []})
    page.locator(".empty").wait_for()
    page.keyboard.type(" Tom")
    assert page.input_value("input[name=q]") == "Mira and Tom"


def test_an_address_and_a_key_that_cannot_be_are_named(opened: Any) -> None:
    page = opened("#/cube/%")
    assert "%" in page.inner_text(".wrong")
    page.get_by_role("button", name="Sign in").click()
    page.fill("dialog input[name=key]", "abc密钥")
    page.keyboard.press("Enter")
    message = page.evaluate("document.querySelector('dialog input[name=key]').validationMessage")
    assert "Character 4, “密”" in message and "memos key add" in message
    page.fill("dialog input[name=key]", "")
    page.keyboard.press("Enter")
    page.locator("dialog").wait_for(state="detached")
    opened.known.append("Failed to load resource")


def test_drawings_are_read_on_a_phone_and_long_tags_fold(opened: Any, memory: Memory, tmp_path: Path) -> None:
    scale = "e => e.getBoundingClientRect().width / e.viewBox.baseVal.width"
    scrolls = "e => e.closest('.scroll').scrollWidth > e.closest('.scroll').clientWidth"
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"rows": [{"name": "a", "ms": 1.0}, {"name": "b", "ms": 2.5}], "took": [1, 2, 3]}))
    page = opened("#/bench", width=360)
    page.set_input_files("#reports", report)
    page.locator(".plot").last.wait_for()
    tagged = memory.get_all()["results"][0]["id"]
    for name, place, count in [(".plot", "", 2), (".lineage", f"#/cube/{derived(memory)}", 1)]:
        page.evaluate("place => { if (place) location.hash = place }", place)
        page.locator(name).last.wait_for()
        drawings = page.locator(name).all()
        assert len(drawings) == count
        assert all(drawing.evaluate(scale) >= 0.99 and drawing.evaluate(scrolls) for drawing in drawings), name
        assert page.evaluate("document.documentElement.scrollWidth") == 360, f"not all of the page, for {name}"
    memory.tag(tagged, ["a" * 60 + " " + "b" * 20])
    page.evaluate("id => { location.hash = `#/cube/${id}` }", tagged)
    page.locator(".tag").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert opened(f"#/cube/{derived(memory)}").locator(".lineage").evaluate(scrolls) is False, "there is room at a desk"


@pytest.mark.parametrize("light", ["light", "dark"])
def test_words_on_tiles_are_read_however_hot_they_are(opened: Any, light: str) -> None:
    """At least 4.5 to 1, as WCAG 2.2 has it."""
    page = opened("#/map", light=light)
    page.locator(".cell text").first.wait_for()
    seen = """(form) => { // colours of CSS as the browser paints them
        const cell = document.querySelector(".cell");
        cell.dataset.form = form;
        cell.style.setProperty("--heat", 1);
        const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        return ["text", "rect"].map((part) => {
            paint.fillStyle = getComputedStyle(cell.querySelector(part)).fill;
            paint.fillRect(0, 0, 1, 1);
            return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
        });
    }"""
    for form in Form:
        dim, bright = sorted(map(luminance, page.evaluate(seen, str(form))))
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, form


def luminance(pixel: Any) -> float:
    """Relative, of sRGB, as WCAG has it."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (p / 255 for p in pixel)]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# what the kernel names, or the pages themselves: a word that one of them gains is in both languages, or a test fails
SETS = {
    "form": list(Form),
    "state": list(State),
    "trust": list(Trust),
    "tier": get_args(Tier),
    "relation": list(ACTIONS),
    "action": [*get_args(Action), "authenticate"],
    "signal": [field.name for field in fields(Signals) if field.name != "ids"],
    "job": [f"promote to {form}" for form in Form if form is not Form.PLAINTEXT] + ["give up", READ_TURNS],
    "jobs": OPEN,
    "event": ["version", "state", "told again", "allowed", "refused"],
    "theme": ["auto", "light", "dark"],
    "nav": ["map", "why", "search", "governance", "jobs", "bench", "talk"],
    "talk": ["send", "keep"],
    "link": ["from", "to"],
    "governance": ["grants", "groups", "quarantine", "holds", "log"],
    "cube": ["activation", "parametric", "demote", "freeze", "thaw", "archive", "unarchive"],
}


def test_both_languages_have_all_words(opened: Any) -> None:
    load = "async (name) => (await import(`./words/${name}.js`)).default"
    page = opened("#/jobs")
    english, chinese = (page.evaluate(load, name) for name in ("en", "zh"))
    assert english.keys() == chinese.keys()
    assert all(
        re.findall(r"{\w+}", english[name]) == []
        or set(re.findall(r"{\w+}", english[name])) == set(re.findall(r"{\w+}", chinese[name]))
        for name in english
    )
    scripts = "".join(path.read_text("utf-8") for path in dashboard.STATIC.rglob("*.js") if path.parent.name != "words")
    asked = set(re.findall(r'\bt\("([\w. ]+)"', scripts))
    assert asked <= english.keys()
    assert set(re.findall(r"\bt\(`(\w+)\.\$", scripts)) == SETS.keys()
    for name in (f"{kind}.{one}" for kind, all_ in SETS.items() for one in all_):
        assert name in english and chinese[name] != english[name], name


def test_in_chinese_what_the_kernel_names_is_chinese(opened: Any, memory: Memory, bob: str) -> None:
    memory.grant(memory.get_all()["results"][0]["id"], bob, "editor")
    page = opened("#/governance", "zh-CN")
    assert "编辑者" in page.inner_text("table")
    page = opened("#/search?q=Mira", "zh-CN")
    told = page.locator(".signals").first.inner_text()
    assert re.search("语义相近.*距说出\\s*[0-9]+(秒|分钟)", told, re.DOTALL)
    assert not re.search("[a-z]", told)
