// A memory's life: what it says, where it comes from, what happened to it, and what can be done with it.

import { call } from "../api.js";
import { bytes, digits, h, short } from "../dom.js";
import { moment, t } from "../i18n.js";
import { lineage } from "../lineage.js";
import { words } from "../memories.js";
import { act, empty, formChip, head, memoryLink, stateChip } from "../parts.js";

export async function page(given) {
  if (!given.rest) return [head("cube"), empty("cube.none", h("a", { class: "button", href: "#/map" }, t("nav.map")))];
  const id = given.rest;
  const [{ memory, sources, derived, origins }, { results: events }, { results: decisions }, links] = await Promise.all([
    call("provenance", { memory_id: id }), call("history", { memory_id: id, diffs: true }), call("log", { target: id, own_reads: false }),
    linked(id)]);
  const picture = await shown(memory);
  return [
    h("div", { class: "head" }, h("div", {},
      h("p", { class: "small" }, t("cube.name"), " ", h("code", {}, short(memory.id))),
      h("h1", { tabindex: "-1", class: "said" }, words(memory)),
      h("div", { class: "row" }, formChip(memory.form), stateChip(memory.state), memory.tags.map((tag) => h("span", { class: "chip tag" }, tag))))),
    picture && h("img", { class: "picture", src: picture, alt: words(memory) }),
    h("div", { class: "row acts" }, acts(memory, given)),
    memory.form === "plaintext" && edit(memory, given),
    h("div", { class: "split" },
      h("section", { class: "card" }, h("h2", {}, t("cube.life")), timeline(memory, events, decisions, given)),
      h("div", { class: "stack" },
        h("section", { class: "card" }, h("h2", {}, t("cube.lineage")), graph(memory, sources, derived)),
        links.length > 0 && h("section", { class: "card" }, h("h2", {}, t("cube.links")), tied(links)),
        h("section", { class: "card" }, h("h2", {}, t("cube.about")), about(memory, origins)))),
  ].filter(Boolean);
}

/** What may be done with it as it is. */
function acts(memory, given) {
  const one = (name, call_, args = { memory_id: memory.id }) => act(t(`cube.${name}`), given.told, async () => {
    const { results } = await call(call_, args);
    if (call_ === "promote" || call_ === "demote") given.go(`#/cube/${results[0]?.id ?? ""}`);
    else given.again();
  });
  const made = memory.form !== "plaintext";
  return [
    !made && one("activation", "promote", { memory_ids: [memory.id], to: "activation" }),
    !made && one("parametric", "promote", { memory_ids: [memory.id], to: "parametric" }),
    made && memory.state !== "archived" && one("demote", "demote"),
    memory.state === "frozen" ? one("thaw", "thaw") : one("freeze", "freeze"),
    memory.state === "archived" ? one("unarchive", "unarchive") : one("archive", "archive"),
    act(t("cube.delete"), given.told, async () => {
      if (!confirm(t("cube.delete.sure"))) return t("cube.delete.not");
      await call("delete", { memory_id: memory.id });
      given.go("#/map");
    }),
  ];
}

/** What it says, to be written anew. */
function edit(memory, given) {
  const field = h("textarea", { rows: 3, "aria-label": t("cube.edit") });
  field.value = memory.memory;
  const save = act(t("cube.edit.save"), given.told, async () => {
    await call("update", { memory_id: memory.id, data: field.value.trim() });
    given.again();
  }, "main");
  return h("details", { class: "write" }, h("summary", {}, t("cube.edit")), h("div", { class: "stack" }, field, h("div", { class: "row" }, save)));
}

function graph(memory, sources, derived) {
  if (!sources.length && !derived.length) return h("p", { class: "muted" }, t("cube.lineage.none"));
  const node = (cube) => ({ id: cube.id, form: cube.form, words: words(cube) });
  return lineage(sources.map(node), node(memory), derived.map(node));
}

/** The picture that it tells of, as a URL; none where it has none, or where whoever looks may not see it. */
async function shown(memory) {
  if (!memory.media_type?.startsWith("image/")) return null;
  try {
    const { media_type, data } = await call("file", { memory_id: memory.id });
    return `data:${media_type};base64,${data}`;
  } catch (error) {
    if (error.status) return null;
    throw error;
  }
}

/** Its links; none where the server has no such call, which a plug-in brings. */
async function linked(id) {
  try {
    return (await call("linked", { memory_id: id })).results;
  } catch (error) {
    if (error.status === 404) return [];
    throw error;
  }
}

/** What it is tied to, how, and when that holds. */
const tied = (links) => h("ul", { class: "links" }, links.map((link) => h("li", {},
  h("div", { class: "row" }, h("span", { class: "chip" }, link.kind), formChip(link.form),
    h("span", { class: "small muted" }, t(`link.${link.direction}`), " · ", t("link.weight", { weight: digits(link.weight) }))),
  memoryLink(link.id, link.memory || short(link.id)),
  link.since && h("p", { class: "small muted" }, t("link.since", { when: moment(link.since) })),
  link.until && h("p", { class: "small muted" }, t("link.until", { when: moment(link.until) })))));

function about(memory, origins) {
  const told = [
    ["topic", memory.topic], ["speaker", memory.speaker], ["owner", memory.owner], ["trust", t(`trust.${memory.trust}`)],
    ["origin", memory.origin], ["kept", moment(memory.created_at)], ["said", moment(memory.said_at)],
    ["expires", moment(memory.expires_at)], ["version", digits(memory.version)], ["recalls", digits(memory.recalls)],
    ["utility", memory.utility ? digits(memory.utility) : ""], ["size", memory.bytes ? bytes(memory.bytes) : ""],
    ["pack", origins.map(({ pack, publisher }) => pack ?? publisher ?? "").join(", ")],
  ];
  return h("dl", { class: "facts" }, told.filter(([, value]) => value).map(([name, value]) => [h("dt", {}, t(name)), h("dd", {}, value)]),
    h("dt", {}, "id"), h("dd", {}, h("code", {}, memory.id)));
}

/** Versions, moves and decisions, the latest first. */
function timeline(memory, events, decisions, given) {
  const told = events.map((event) => ({ ...event, event: event.version ? "version" : event.event }));
  const all = [...told, ...decisions.map((row) => ({ ...row, event: row.allowed ? "allowed" : "refused" }))];
  all.sort((a, b) => new Date(b.at) - new Date(a.at));
  return h("ol", { class: "timeline" }, all.map((event) => h("li", { "data-kind": event.event },
    h("time", { datetime: event.at }, moment(event.at)),
    h("span", {}, t(`event.${event.event}`, { ...event, state: t(`state.${event.state}`), action: t(`action.${event.action}`) })),
    event.why && event.event !== "allowed" && h("span", { class: "muted small" }, ` · ${event.why}`),
    event.diff?.length > 0 && diff(event.diff),
    event.event === "version" && event.version < memory.version && act(t("cube.rollback"), given.told, async () => {
      await call("rollback", { memory_id: memory.id, version: event.version });
      given.again();
    }, "link"))));
}

const diff = (lines) => h("ul", { class: "diff" }, lines.map((line) =>
  h("li", { "data-sign": line[0] }, line[0], " ", line.slice(1).trimStart())));
