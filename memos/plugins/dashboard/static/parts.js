// What several pages are made of.

import { digits, h } from "./dom.js";
import { duration, t } from "./i18n.js";

/** The heading of a page, with what it is for, and what can be done at its side. */
export const head = (name, ...side) =>
  h("div", { class: "head" },
    h("div", {}, h("h1", { tabindex: "-1" }, t(`${name}.name`)), h("p", {}, prose(t(`${name}.lead`)))),
    side.length ? h("div", { class: "row" }, side) : null);

/** Where there is nothing: what that means, and what to do about it. */
export const empty = (name, ...acts) =>
  h("div", { class: "card empty" }, h("strong", {}, t(name)), h("p", {}, prose(t(`${name}.how`))),
    acts.length ? h("div", { class: "row" }, acts) : null);

/** Words with what stands between backticks as code. */
export const prose = (words) => words.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));

export const formChip = (form) => h("span", { class: "chip", "data-form": form }, t(`form.${form}`));

export const stateChip = (state) =>
  h("span", { class: `chip ${["archived", "expired"].includes(state) ? "bad" : ""}` }, t(`state.${state}`));

/** Large numbers, each with its name. */
export const figures = (pairs) =>
  h("dl", { class: "figures" }, pairs.map(([name, value]) => h("div", {}, h("dd", {}, value), h("dt", {}, name))));

/** A bar for a share from 0 to 1; its words stand beside it. */
export const bar = (share, form) =>
  h("div", { class: share > 0 ? "bar" : "bar none", "data-form": form, "aria-hidden": "true" },
    h("i", { vars: { share: Math.min(1, Math.max(0, share)) } }));

/** What may be wider than the page; keys move it too. */
export const scroll = (name, inner) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, inner);

/** A table; columns: [name, row -> what stands there, is it a number]. */
export const table = (caption, columns, rows) =>
  scroll(caption, h("table", {},
    h("caption", { class: "sr" }, caption),
    h("thead", {}, h("tr", {}, columns.map(([name, , num]) => h("th", { scope: "col", class: num ? "num" : null }, name)))),
    h("tbody", {}, rows.map((row) =>
      h("tr", {}, columns.map(([, cell, num]) => h("td", { class: num ? "num" : null }, cell(row))))))));

/** A question to the page of this name: one line and a button. */
export function ask(name, value, go) {
  const input = h("input", { type: "search", name: "q", value, "aria-label": t(`${name}.ask`),
    placeholder: t(`${name}.ask`), autocomplete: "off", "data-first": true, required: true });
  input.setSelectionRange(value.length, value.length); // who comes back to a question goes on at its end
  const send = (event) => {
    event.preventDefault();
    if (input.value.trim()) go(`#/${name}?${new URLSearchParams({ q: input.value.trim() })}`);
  };
  return h("form", { class: "ask", role: "search", onsubmit: send }, input, h("button", { class: "main" }, t(`${name}.go`)));
}

/** A button that waits for what it does, and says how that went. id: where the page has several of the same words, and
 * is drawn again by itself. */
export function act(words, told, what, kind = "", id = null) {
  const button = h("button", { type: "button", class: kind, id, onclick: async () => {
    button.disabled = true;
    told(t("cube.working"));
    try {
      told((await what()) ?? t("cube.done"));
    } catch (error) {
      told(error.message);
    }
    button.disabled = false;
  } }, words);
  return button;
}

/** What a score is made of: shares as bars, other figures beside them; what is 0 says nothing. */
export function signals(told) {
  const speaking = Object.entries(told).filter(([, value]) => value !== 0);
  const value = (name, figure) => (name === "age" || name === "idle" ? duration(figure) : digits(figure));
  return h("div", { class: "signals" }, speaking.map(([name, figure]) =>
    h("div", {}, h("span", {}, t(`signal.${name}`), h("b", {}, value(name, figure))), figure > 0 && figure <= 1 ? bar(figure) : null)));
}

export const memoryLink = (id, words) => h("a", { href: `#/cube/${encodeURIComponent(id)}` }, words);
