// Rights: who may do what, what is kept back, what was decided.

import { call } from "../api.js";
import { h, short } from "../dom.js";
import { moment, t } from "../i18n.js";
import { act, empty, head, memoryLink, table } from "../parts.js";

const TABS = { grants, groups, quarantine, holds, log };

export async function page(given) {
  const name = TABS[given.rest] ? given.rest : "grants";
  const tabs = h("nav", { class: "tabs", "aria-label": t("nav.governance") }, Object.keys(TABS).map((tab) =>
    h("a", { href: `#/governance/${tab}`, "aria-current": tab === name ? "true" : null }, t(`governance.${tab}`))));
  return [head("governance"), tabs, await TABS[name](given)];
}

/** A table of what a call tells, or what it means that there is nothing. */
async function listed(name, told, columns, args = {}) {
  const { results } = await call(told, args);
  if (!results.length) return empty(`governance.${name}.none`);
  return h("section", { class: "card" }, table(t(`governance.${name}`), columns, results));
}

/** A button that does a call and draws the page again. */
const doing = (given, words, name, args) => act(words, given.told, async () => {
  await call(name, args);
  given.again();
});

const of = (id) => memoryLink(id, h("code", {}, short(id)));

const grants = (given) => listed("grants", "grants", [
  [t("governance.on"), ({ on }) => (on.startsWith("namespace:") ? h("code", {}, on) : of(on))],
  [t("governance.to"), ({ to }) => to],
  [t("governance.relation"), ({ relation }) => relation],
  [t("governance.purpose"), ({ purpose }) => purpose ?? ""],
  [t("governance.until"), ({ until }) => moment(until)],
  ["", ({ on, to, relation }) => doing(given, t("governance.revoke"), "revoke", { on, to, relation })],
]);

const groups = () => listed("groups", "groups", [
  [t("governance.groups"), ({ group }) => group],
  [t("governance.members"), ({ members }) => members.join(", ")],
]);

const quarantine = (given) => listed("quarantine", "quarantined", [
  [t("memory"), ({ id, memory }) => memoryLink(id, memory)],
  [t("governance.why"), ({ why }) => why],
  ["", ({ id }) => doing(given, t("governance.release"), "release", { id })],
]);

const holds = (given) => listed("holds", "holds", [
  [t("memory"), ({ id, memory }) => memoryLink(id, memory)],
  [t("governance.why"), ({ why }) => why],
  ["", ({ id }) => doing(given, t("governance.end"), "end_hold", { id })],
]);

const log = () => listed("log", "log", [
  [t("governance.when"), ({ at }) => moment(at)],
  [t("governance.who"), ({ caller }) => caller],
  [t("governance.what"), ({ action }) => action],
  [t("governance.target"), ({ target }) => target],
  [t("governance.decision"), ({ allowed, why }) => [h("span", { class: `chip ${allowed ? "good" : "bad"}` },
    t(allowed ? "governance.allowed" : "governance.refused")), why && h("p", { class: "small muted" }, why)]],
], { limit: 200 });
