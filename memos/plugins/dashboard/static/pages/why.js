// Why this answer: what it was made of, and how much less likely it is without each part.

import { call } from "../api.js";
import { digits, h } from "../dom.js";
import { t } from "../i18n.js";
import { ask, empty, figures, formChip, head, memoryLink, signals } from "../parts.js";

export function page({ query, go }) {
  const asked = query.get("q") ?? "";
  return [head("why"), ask("why", asked, go), asked ? explained(asked) : empty("why.empty")];
}

async function explained(asked) {
  const told = await call("explain", { question: asked });
  const most = Math.max(...told.reasons.map(({ change }) => Math.abs(change)), 1);
  return [
    h("section", { class: "card answer" }, h("h2", { class: "small muted" }, t("why.answer")), h("p", {}, told.answer || t("none"))),
    figures([
      [t("why.read"), digits(told.prompt_tokens)],
      [t("why.past"), digits(told.past_tokens)],
      [t("why.first"), `${digits(told.ttft_ms)} ms`],
      [t("why.with"), chance(told.likelihood)],
      [t("why.closed"), chance(told.closed_book)],
    ]),
    h("section", { class: "card" }, h("h2", {}, t("why.used")),
      told.reasons.length ? h("ol", { class: "hits" }, told.reasons.map((reason) => shown(reason, most)))
        : h("p", { class: "muted" }, t("why.unused"))),
  ];
}

/** A likelihood in nats as a chance in percent. */
function chance(nats) {
  const percent = 100 * Math.exp(nats);
  return percent < 0.01 ? "< 0.01 %" : `${Number(percent.toPrecision(3))} %`;
}

/** What a change of likelihood in nats means. */
function effect(change) {
  const factor = Math.exp(Math.abs(change));
  if (factor < 1.01) return t("why.same");
  if (factor > 1e4) return t(change > 0 ? "why.much" : "why.little");
  return t(change > 0 ? "why.likelier" : "why.unlikelier", { factor: digits(factor) });
}

function shown(reason, most) {
  return h("li", {},
    h("div", { class: "top" }, memoryLink(reason.id, reason.memory), formChip(reason.form)),
    h("div", { class: "change" }, h("div", { class: "fall", "aria-hidden": "true" },
      h("i", { class: reason.change < 0 ? "less" : "more", "data-form": reason.form, vars: { share: Math.abs(reason.change) / most } })),
    h("span", {}, effect(reason.change))),
    h("details", { class: "small muted" }, h("summary", {}, t("why.tokens", { count: reason.tokens }), " · ",
      t("why.score", { score: digits(reason.score) })), signals(reason.signals)));
}
