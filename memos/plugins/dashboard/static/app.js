// The frame: which page is shown, in which language and light, and what keys do.

import { ApiError, who } from "./api.js";
import { h, icon } from "./dom.js";
import { LANGUAGES, language, speak, t } from "./i18n.js";
import { prose } from "./parts.js";
import * as bench from "./pages/bench.js";
import * as cube from "./pages/cube.js";
import * as governance from "./pages/governance.js";
import * as jobs from "./pages/jobs.js";
import * as map from "./pages/map.js";
import * as search from "./pages/search.js";
import * as talk from "./pages/talk.js";
import * as why from "./pages/why.js";

const PAGES = { map, why, search, governance, jobs, bench, talk, cube };
const LISTED = ["map", "why", "search", "governance", "jobs", "bench", "talk"]; // a cube is reached from what shows it
const THEMES = ["auto", "light", "dark"];
const root = document.documentElement;
let visit = {}; // another, whenever somebody goes to a page or somebody else asks
let drawing = new AbortController(); // of the page that is shown; ends when another begins, of the same page as well

/** [page, what comes after its name, parameters]: of #/cube/ID, #/search?q=... */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decoded);
  return [PAGES[name] ? name : "map", rest.join("/"), new URLSearchParams(query)];
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand, with a % that encodes nothing
  }
}

function frame() {
  root.lang = language() === "zh" ? "zh-CN" : "en";
  const other = Object.keys(LANGUAGES).find((name) => name !== language());
  const links = LISTED.map((name, at) =>
    h("li", {}, h("a", { href: `#/${name}`, "data-page": name, "aria-keyshortcuts": at + 1 }, icon(name), t(`nav.${name}`))),
  );
  const tool = (name, act, words, kind = "") =>
    h("button", { class: `tool ${kind}`, type: "button", onclick: act }, icon(name), h("span", {}, words));
  document.body.replaceChildren(
    h("a", { class: "skip", href: "#main", onclick: skip }, t("skip")),
    h(
      "div",
      { class: "frame" },
      h(
        "header",
        { class: "side" },
        h("a", { class: "brand", href: "#/map" }, h("img", { src: "icon.svg", alt: "" }), "memos"),
        h("nav", { class: "nav", "aria-label": t("nav") }, h("ul", {}, links)),
        h(
          "div",
          { class: "tools" },
          tool("key", askKey, t("key")),
          tool("theme", nextTheme, themeWords(), "light"),
          tool("language", nextLanguage, LANGUAGES[other], "speech"),
          tool("help", showHelp, t("help")),
        ),
      ),
      h("main", { id: "main", tabindex: "-1" }),
    ),
    h("div", { class: "toast", role: "status", "aria-live": "polite" }),
  );
}

const themeWords = () => `${t("theme")}: ${t(`theme.${root.dataset.theme}`)}`;

function skip(event) {
  event.preventDefault();
  document.querySelector("h1")?.focus();
}

/** Draw the page that the address names. arrived: false where it is the same page again, whose focus stays. gone: false
 * for the first page, which is read from its beginning.
 *
 * A page is given what it may do to the frame. `again` and `go` do nothing once somebody has gone on: work that ends late
 * takes nobody away. What it does as long as it is drawn ends with `leaving`. A page returns its parts; those that are
 * still to come are promises, and those that are there stay where one of them fails. */
async function show(arrived = true, gone = true) {
  const [name, rest, query] = place();
  drawing.abort();
  drawing = new AbortController();
  if (arrived) visit = {};
  const [{ signal }, mine] = [drawing, visit];
  const leaving = (act) => (signal.aborted ? act() : signal.addEventListener("abort", act));
  const again = () => mine === visit && show(false);
  const go = (to) => mine === visit && (location.hash === to ? show() : (location.hash = to));
  for (const link of document.querySelectorAll(".nav a")) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const main = document.getElementById("main");
  document.title = `${t(`${name}.name`)} · memos`;
  let parts = [];
  const there = () => parts.filter((part) => part instanceof Node);
  const draw = (nodes) => {
    const held = document.activeElement?.closest("main *");
    main.replaceChildren(...nodes);
    const first = main.querySelector("[data-first]") ?? (gone && main.querySelector("h1"));
    const next = arrived ? first : held && same(main, held);
    if (next && !document.querySelector("dialog")) next.focus({ preventScroll: true });
  };
  const busy = () => (main.hasChildNodes() && !arrived ? main.setAttribute("aria-busy", "true")
    : draw([...there(), h("p", { class: "busy", role: "status" }, t("busy"))]));
  const slow = setTimeout(busy, 250);
  leaving(() => clearTimeout(slow));
  let shown;
  try {
    parts = [PAGES[name].page({ rest, query, again, go, told, signal, leaving })].flat();
    shown = (await Promise.all(parts)).flat();
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ApiError)) console.error(error);
    shown = [there().length ? there() : heading(name), wrong(error)].flat();
    if (error.status === 401) askKey();
  }
  if (signal.aborted) return;
  clearTimeout(slow);
  draw(shown);
  main.removeAttribute("aria-busy");
  main.dataset.ready = name;
  if (arrived) scrollTo(0, 0);
}

/** What tells an element that can have the focus from others, also when it is drawn again. */
const mark = (element) =>
  element.id || element.getAttribute("href") || element.getAttribute("aria-label") || element.textContent;

/** What had the focus, as it is drawn now; the heading where that is none, or several: it might act on another row. */
function same(main, held) {
  const all = [...main.querySelectorAll("a, button, input, textarea, summary, [tabindex]")];
  const [one, ...others] = all.filter((element) => mark(element) === mark(held));
  return one && !others.length ? one : main.querySelector("h1");
}

const heading = (name) => h("div", { class: "head" }, h("h1", { tabindex: "-1" }, t(`${name}.name`)));

/** What went wrong, in the server's own words, with the way out. */
function wrong(error) {
  const title = error.status === 401 ? t("error.key") : error.status === 0 ? t("error.away") : t("error");
  return h(
    "section",
    { class: "card wrong", role: "alert" },
    h("h2", {}, title),
    h("p", {}, prose(error.message)),
    h("p", { class: "row" }, h("button", { type: "button", class: "main", onclick: () => show() }, t("again")),
      error.status === 401 && h("button", { type: "button", onclick: askKey }, t("key"))),
  );
}

/** A line at the corner for a while, read out. */
function told(words) {
  const toast = document.querySelector(".toast");
  toast.textContent = words;
  setTimeout(() => toast.textContent === words && (toast.textContent = ""), 6000);
}

function dialog(title, ...inner) {
  document.querySelector("dialog")?.remove();
  const box = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => box.remove() },
    h("h2", { id: "dialog-title" }, title), inner);
  document.body.append(box);
  box.showModal();
  return box;
}

function askKey() {
  const field = (name, type) => h("input", { type, name, autocomplete: "off", value: who.get(name) });
  const [key, user] = [field("key", "password"), field("user", "text")];
  key.addEventListener("input", () => { // a header takes no such letter: the request would not leave the browser
    const wrong = /[^!-~]/u.exec(key.value.trim());
    key.setCustomValidity(wrong ? t("key.letter", { letter: wrong[0], at: wrong.index + 1 }) : "");
  });
  const take = (event) => {
    event.preventDefault();
    for (const { name, value } of [key, user]) who.set(name, value.trim());
    box.close();
    show();
  };
  const box = dialog(
    t("key"),
    h("form", { onsubmit: take },
      h("p", { class: "muted small" }, t("key.why")),
      h("label", { class: "field" }, t("key.label"), key),
      h("label", { class: "field" }, t("key.user"), user),
      h("div", { class: "row" }, h("button", { class: "main" }, t("key.take")),
        h("button", { type: "button", onclick: () => box.close() }, t("close")))),
  );
}

function showHelp() {
  const rows = [...LISTED.map((name, at) => [String(at + 1), t(`nav.${name}`)]), ["/", t("nav.search")],
    ["r", t("again")], ["t", t("theme")], ["l", t("language")], ["← → ↑ ↓", t("help.arrows")], ["?", t("help")]];
  const box = dialog(
    t("help"),
    h("div", { class: "keys" }, rows.map(([name, words]) => [h("kbd", {}, name), h("span", {}, words)])),
    h("form", { method: "dialog" }, h("div", {}, h("button", { class: "main" }, t("close")))),
  );
}

function nextTheme() {
  root.dataset.theme = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
  localStorage.setItem("memos.theme", root.dataset.theme);
  document.querySelector(".light span").textContent = themeWords();
}

function nextLanguage() {
  speak(Object.keys(LANGUAGES).find((name) => name !== language()));
  frame();
  document.querySelector(".speech").focus();
  show(false);
}

const KEYS = { "?": showHelp, r: () => show(false), t: nextTheme, l: nextLanguage, "/": () => (location.hash = "#/search") };

document.addEventListener("keydown", (event) => {
  const writing = event.target.closest?.("input, textarea, select, [contenteditable], dialog");
  if (writing || event.ctrlKey || event.metaKey || event.altKey) return;
  const page = LISTED[Number(event.key) - 1];
  const act = page ? () => (location.hash = `#/${page}`) : KEYS[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

addEventListener("hashchange", () => show());
frame();
show(true, false);
