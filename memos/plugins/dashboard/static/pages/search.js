// What the memories say about something, and what each score is made of.

import { call } from "../api.js";
import { digits, h } from "../dom.js";
import { t } from "../i18n.js";
import { ask, bar, empty, formChip, head, memoryLink, signals, stateChip } from "../parts.js";

const MOST = 10;

export function page({ query, go }) {
  const asked = query.get("q") ?? "";
  return [head("search"), ask("search", asked, go), asked ? found(asked) : empty("search.empty")];
}

async function found(asked) {
  const { results } = await call("search", { query: asked, top_k: MOST, explain: true });
  if (!results.length) return empty("search.nothing");
  const best = Math.max(...results.map(({ score }) => score)) || 1;
  return h("section", { class: "card" },
    h("p", { class: "small muted", role: "status" }, t("search.found", { count: results.length })),
    h("ol", { class: "hits" }, results.map((hit) => shown(hit, best))));
}

function shown(hit, best) {
  return h("li", {},
    h("div", { class: "top" }, memoryLink(hit.id, hit.memory), h("span", { class: "mono" }, digits(hit.score))),
    h("div", { class: "strength" }, bar(hit.score / best)),
    h("div", { class: "row" }, formChip(hit.form), stateChip(hit.state),
      hit.topic && h("span", { class: "small muted" }, hit.topic)),
    signals(hit.why));
}
