// Rights: who may do what, what is kept back, what was decided.

import { call } from "../api.js";
import { h, short } from "../dom.js";
import { moment, t } from "../i18n.js";
import { words } from "../memories.js";
import { act, empty, head, memoryLink, table } from "../parts.js";

const ROWS = 1000; // of the log that are shown

export function page(given) {
  const name = TABS[given.rest] ? given.rest : "grants";
  const tabs = h("nav", { class: "tabs", "aria-label": t("nav.governance") }, Object.keys(TABS).map((tab) =>
    h("a", { href: `#/governance/${tab}`, "aria-current": tab === name ? "true" : null }, t(`governance.${tab}`))));
  return [head("governance"), tabs, TABS[name](given)];
}

/** A table of rows, or what it means that there are none. */
const listed = (name, rows, columns) =>
  rows.length ? h("section", { class: "card" }, table(t(`governance.${name}`), columns, rows)) : empty(`governance.${name}.none`);

/** A button that does a call, draws the page again, and says what the server told of it. */
const doing = (given, words, name, args) => act(words, given.told, async () => {
  const { message } = await call(name, args);
  given.again();
  return message;
});

/** A namespace as the API reads it: what is left empty inside stays, or a session would be taken for an agent. */
const address = (space) => [space.user_id, space.agent_id, space.session_id].join("/").replace(/\/+$/, "");

/** Whom a right was given, with its kind: without one, all would be read as the name of a user. */
function subject(to) {
  if (to.name) return `group:${to.owner}/${to.name}`;
  return `${to.session_id ? "namespace" : to.agent_id ? "agent" : "user"}:${address(to)}`;
}

async function grants(given) {
  const { results } = await call("grants");
  const on = (what) => typeof what === "string" ? what : `namespace:${address(what)}`;
  return listed("grants", results, [
    [t("governance.on"), (grant) => typeof grant.on === "string" ? memoryLink(grant.on, h("code", {}, short(grant.on))) : h("code", {}, on(grant.on))],
    [t("governance.to"), ({ to }) => subject(to)],
    [t("governance.relation"), ({ relation }) => t(`relation.${relation}`)],
    [t("governance.purpose"), ({ purpose }) => purpose],
    [t("governance.until"), ({ until }) => moment(until)],
    ["", (grant) => doing(given, t("governance.revoke"), "revoke", { on: on(grant.on), to: subject(grant.to), relation: grant.relation, purpose: grant.purpose })],
  ]);
}

async function groups() {
  const { results } = await call("groups");
  return listed("groups", results, [
    [t("governance.groups"), ({ group }) => group],
    [t("governance.members"), ({ members }) => members.join(", ")],
  ]);
}

async function quarantine(given) {
  const { results } = await call("quarantined");
  return kept("quarantine", results, ({ id }) => doing(given, t("governance.release"), "release", { memory_id: id }));
}

async function holds(given) {
  const { results } = await call("holds");
  return kept("holds", results, ({ id }) => doing(given, t("governance.end"), "end_hold", { memory_id: id }));
}

/** Memories that something keeps as they are, why, and the way out. */
const kept = (name, memories, way) => listed(name, memories, [
  [t("memory"), (memory) => memoryLink(memory.id, words(memory))],
  [t("governance.why"), ({ note }) => note],
  ["", way],
]);

/** Decisions, the latest first; what the viewer read is left out, or this page would show itself alone. */
async function log() {
  const { results } = await call("log", { limit: ROWS, own_reads: false });
  const there = (target) => (/^[0-9a-f]{24}$/.test(target) ? memoryLink(target, h("code", {}, short(target))) : target);
  return listed("log", results.reverse(), [
    [t("governance.when"), ({ at }) => moment(at)],
    [t("governance.who"), ({ caller }) => caller],
    [t("governance.what"), ({ action, allowed, why }) => {
      const done = t(`action.${action}`);
      return allowed && why && why !== action ? `${why} (${done})` : done;
    }],
    [t("governance.target"), ({ target }) => there(target)],
    [t("governance.decision"), ({ allowed, why }) => [h("span", { class: `chip ${allowed ? "good" : "bad"}` },
      t(allowed ? "governance.allowed" : "governance.refused")), !allowed && h("p", { class: "small muted" }, why)]],
  ]);
}

const TABS = { grants, groups, quarantine, holds, log };
