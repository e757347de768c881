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
import * as why from "./pages/why.js";

const PAGES = { map, why, search, governance, jobs, bench, cube };
const LISTED = ["map", "why", "search", "governance", "jobs", "bench"]; // a cube is reached from what shows it
const THEMES = ["auto", "light", "dark"];
const root = document.documentElement;
let leave = () => {}; // what the page that is shown does when it goes

/** [page, what comes after its name, parameters]: of #/cube/ID, #/search?q=... */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decodeURIComponent);
  return [PAGES[name] ? name : "map", rest.join("/"), new URLSearchParams(query)];
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
 * for the first page, which is read from its beginning. */
async function show(arrived = true, gone = true) {
  const [name, rest, query] = place();
  const here = location.hash;
  leave();
  leave = () => {};
  for (const link of document.querySelectorAll(".nav a")) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const main = document.getElementById("main");
  document.title = `${t(`${name}.name`)} · memos`;
  const slow = setTimeout(() => main.replaceChildren(h("p", { class: "busy", role: "status" }, t("busy"))), 250);
  let shown;
  try {
    shown = await PAGES[name].page({ rest, query, again: () => show(false), told, leaving: (act) => (leave = act) });
  } catch (error) {
    if (!(error instanceof ApiError)) console.error(error);
    shown = [heading(name), wrong(error)];
    if (error.status === 401) askKey();
  }
  clearTimeout(slow);
  if (location.hash !== here) return; // somebody has gone on meanwhile
  main.replaceChildren(...[shown].flat());
  main.dataset.ready = name;
  if (arrived) scrollTo(0, 0);
  const first = main.querySelector("[data-first]") ?? (gone && main.querySelector("h1"));
  if (arrived && first && !document.querySelector("dialog")) first.focus({ preventScroll: true });
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
