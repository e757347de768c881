// The memory map: what is in which form and tier, at a glance.

import { bytes, digits, h } from "../dom.js";
import { t } from "../i18n.js";
import { FORMS, TIERS, count, everything } from "../memories.js";
import { memoryMap } from "../memorymap.js";
import { bar, empty, figures, formChip, head, memoryLink, stateChip, table } from "../parts.js";

const MOST = 600; // memories that are drawn
let asList = false;

export async function page({ again, leaving }) {
  const { overview, memories, total } = await everything(MOST);
  if (!memories.length) return [head("map"), empty("map.empty")];
  const other = h("button", { type: "button", onclick: () => {
    asList = !asList;
    again();
  } }, t(asList ? "map.picture" : "map.list"));
  return [
    head("map", other),
    figures([
      [t("map.memories"), digits(count(overview, (form) => form === "plaintext"))],
      [t("map.topics"), digits(overview.topics.length)],
      [t("map.kv"), digits(count(overview, (form) => form === "activation"))],
      [t("map.adapters"), digits(count(overview, (form) => form === "parametric"))],
      [t("recalls"), digits(overview.recalls)],
      [t("map.open"), digits(Object.values(overview.jobs).reduce((sum, many) => sum + many, 0))],
    ]),
    h("section", { class: "card stack" }, asList ? list(memories) : drawn(memories, leaving), legend(),
      total > memories.length && h("p", { class: "small muted" }, t("map.some", { shown: memories.length, all: total }))),
    h("div", { class: "grid below" }, tiers(overview), budgets(overview)),
  ];
}

/** The picture, drawn again when there is more or less room. */
function drawn(memories, leaving) {
  const frame = h("div", { class: "canvas" });
  let width = 0;
  const observer = new ResizeObserver(([{ contentRect }]) => {
    const now = Math.round(contentRect.width);
    if (now && now !== width) frame.replaceChildren(memoryMap(memories, (width = now)));
  });
  observer.observe(frame);
  leaving(() => observer.disconnect());
  return frame;
}

const legend = () => h("div", { class: "legend" },
  FORMS.map((form) => h("span", { "data-form": form }, h("i", { class: "swatch" }), t(`form.${form}`))),
  h("span", {}, h("i", { class: "ramp" }), t("map.legend.heat")),
  h("span", {}, h("i", { class: "dot" }), t("map.legend.tier")),
  h("span", {}, h("i", { class: "swatch out" }), t("map.legend.out")));

const list = (memories) => table(t("nav.map"), [
  [t("memory"), (memory) => memoryLink(memory.id, memory.words)],
  [t("form"), (memory) => formChip(memory.form)],
  [t("state"), (memory) => stateChip(memory.state)],
  [t("topic"), (memory) => memory.topic],
  [t("tier"), (memory) => memory.tier && t(`tier.${memory.tier}`)],
  [t("heat"), (memory) => digits(memory.heat), true],
  [t("recalls"), (memory) => digits(memory.recalls), true],
], memories);

/** How many KV caches and adapters lie on each tier. */
function tiers(overview) {
  const places = Object.values(overview.tiers);
  const row = (tier) => {
    const many = places.filter((place) => place === tier).length;
    return h("li", {}, h("b", {}, t(`tier.${tier}`)), bar(many / (places.length || 1)), h("span", {}, digits(many)));
  };
  const ready = overview.prefetched ? `${Math.round((100 * overview.prefetch_hits) / overview.prefetched)} %` : t("none");
  return h("section", { class: "card" }, h("h2", {}, t("map.tiers")),
    h("ul", { class: "levels" }, [...TIERS].reverse().map(row)),
    h("p", { class: "small muted" }, t("map.ready", { share: ready })));
}

/** KV and adapters beside what there may be. */
function budgets({ used, budget, bytes: held, model, policy }) {
  const row = (form, told) => h("li", {}, h("b", {}, t(`form.${form}`)), bar(budget[form] ? used[form] / budget[form] : 0, form),
    h("span", {}, `${told(used[form])} / ${budget[form] === null ? "∞" : told(budget[form])}`));
  return h("section", { class: "card" }, h("h2", {}, t("map.budgets")),
    h("ul", { class: "levels" }, row("activation", bytes), row("parametric", digits)),
    h("p", { class: "small muted" }, t("map.where", { bytes: bytes(held), model, policy })));
}
