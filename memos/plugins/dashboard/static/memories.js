// Memories as pages show them: what the API tells of each, with the heat of its topic and the tier of its payload.

import { call } from "./api.js";
import { bytes } from "./dom.js";
import { t } from "./i18n.js";

export const FORMS = ["plaintext", "activation", "parametric"];
export const TIERS = ["disk", "host", "device"]; // the later the faster

/** {overview, memories, total}: at most `most`, the hottest first. */
export async function everything(most) {
  const overview = await call("overview", { hottest: most });
  const told = overview.hottest.map((memory) => ({ ...memory, tier: overview.tiers[memory.id], words: words(memory) }));
  const memories = told.sort((a, b) => b.heat - a.heat).slice(0, most);
  return { overview, memories, total: count(overview, () => true) };
}

/** What a memory says; of KV and adapters, what they are. */
export const words = (memory) =>
  memory.memory || t("memory.of", { form: t(`form.${memory.form}`), count: memory.sources.length, size: bytes(memory.bytes) });

/** How many memories there are whose form and state fit. */
export const count = (overview, fits) =>
  Object.entries(overview.cubes).reduce((sum, [name, many]) => sum + (fits(...name.split(" ")) ? many : 0), 0);
