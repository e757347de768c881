// A talk: what is told is remembered, what is asked is answered from memory, and a note is kept as it is written.

import { call, who } from "../api.js";
import { h } from "../dom.js";
import { t } from "../i18n.js";
import { act, head, memoryLink } from "../parts.js";

let said = []; // {role, content, memories}, of `by`
let by = "";

export function page({ told, again }) {
  const asks = `${who.get("user")} ${who.get("key")}`;
  if (by !== asks) [said, by] = [[], asks]; // nobody reads what another one in this tab has said
  const field = h("textarea", { name: "message", rows: 3, "aria-label": t("talk.field"), placeholder: t("talk.field"), "data-first": true });
  const button = (name, what, kind) => act(t(`talk.${name}`), told, async () => {
    const content = field.value.trim();
    if (!content) return t("talk.nothing");
    said = [...said, ...(await what(content))];
    again();
  }, kind);
  return [
    head("talk"),
    said.length ? h("ol", { class: "card talk" }, said.map(line)) : null,
    h("div", { class: "stack write" }, field, h("div", { class: "row" }, button("send", sent, "main"), button("keep", kept))),
  ].filter(Boolean);
}

async function sent(content) {
  const messages = [...said.filter(({ role }) => role), { role: "user", content }].map(({ role, content }) => ({ role, content }));
  const { text, used, remembered } = await call("chat", { messages });
  return [{ role: "user", content }, { role: "assistant", content: text, memories: [...used, ...remembered] }];
}

/** No part of the conversation. */
async function kept(content) {
  const { results } = await call("add", { messages: content });
  return [{ content: t("talk.kept", { count: results.length }), memories: results }];
}

const line = ({ role, content, memories = [] }) =>
  h("li", { "data-role": role }, h("p", {}, content),
    memories.length > 0 && h("ul", { class: "small" }, memories.map(({ id, memory }) => h("li", {}, memoryLink(id, memory)))));
