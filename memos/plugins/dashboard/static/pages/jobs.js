// Work on memories: what goes on, what was cut off, what waits.

import { call } from "../api.js";
import { h } from "../dom.js";
import { moment, t } from "../i18n.js";
import { act, empty, head, memoryLink, table } from "../parts.js";

const EVERY = 3000; // ms to the next look while something is open

export async function page({ again, told, signal, leaving }) {
  const { results } = await call("jobs");
  const tick = act(t("jobs.tick"), told, async () => {
    const { results: moves } = await call("tick");
    again();
    return t("jobs.did", { count: moves.length });
  }, "main");
  if (results.some(({ state }) => state !== "interrupted")) { // which goes on when somebody takes it up, maybe never
    const look = () => (document.hidden ? document.addEventListener("visibilitychange", again, { once: true, signal }) : again());
    const timer = setTimeout(look, EVERY);
    leaving(() => clearTimeout(timer));
  }
  const cancel = (job) => act(t("jobs.cancel"), told, async () => {
    const { message } = await call("cancel", { job_id: job.id });
    again();
    return message;
  }, "", `cancel-${job.id}`);
  return [head("jobs", tick), !results.length ? empty("jobs.none") : h("section", { class: "card" },
    table(t("nav.jobs"), [
      [t("state"), (job) => h("span", { class: `chip ${job.state === "running" ? "good" : ""}` }, t(`jobs.${job.state}`))],
      [t("jobs.kind"), (job) => t(`job.${job.kind}`)],
      [t("memory"), (job) => (job.payload.sources ?? []).map((source) => [memoryLink(source.split("@")[0], source.slice(-8)), " "])],
      [t("jobs.note"), (job) => job.note],
      [t("jobs.started"), (job) => moment(job.started)],
      ["", cancel],
    ], results))];
}
