// What a memory was made of, and what was made of it, as a graph from left to right.

import { h, s, short } from "./dom.js";
import { t } from "./i18n.js";

const [WIDE, HIGH, GAP, BETWEEN] = [190, 46, 12, 48];

/** sources, self, derived: [{id, form, words}] and one of them in the middle. */
export function lineage(sources, self, derived) {
  const columns = [sources, [self], derived].filter((column) => column.length);
  const rows = Math.max(...columns.map((column) => column.length));
  const high = rows * (HIGH + GAP) - GAP + 4;
  const wide = columns.length * WIDE + (columns.length - 1) * BETWEEN + 4;
  const at = new Map();
  columns.forEach((column, c) => {
    const top = (high - column.length * (HIGH + GAP) + GAP) / 2;
    column.forEach((cube, r) => at.set(cube, [2 + c * (WIDE + BETWEEN), top + r * (HIGH + GAP)]));
  });
  const edges = [...sources.map((cube) => [cube, self]), ...derived.map((cube) => [self, cube])];
  const label = t("cube.lineage.says", {
    sources: sources.map((cube) => cube.words).join("; ") || t("none"),
    derived: derived.map((cube) => cube.words).join("; ") || t("none"),
  });
  return h("div", { class: "scroll" },
    s("svg", { class: "lineage", viewBox: `0 0 ${wide} ${high}`, role: "group", "aria-label": label,
      width: wide },
    edges.map(([from, to]) => edge(at.get(from), at.get(to))),
    [...at].map(([cube, [x, y]]) => node(cube, x, y, cube === self))));
}

function edge([x1, y1], [x2, y2]) {
  const [fromX, fromY, toX, toY] = [x1 + WIDE, y1 + HIGH / 2, x2 - 5, y2 + HIGH / 2];
  const bend = (toX - fromX) / 2;
  return [s("path", { class: "edge", d: `M${fromX} ${fromY}C${fromX + bend} ${fromY} ${toX - bend} ${toY} ${toX} ${toY}` }),
    s("path", { class: "tip", d: `M${toX + 5} ${toY}l-7 -4v8z` })];
}

function node(cube, x, y, self) {
  const words = cube.words.length > 26 ? `${cube.words.slice(0, 25)}…` : cube.words;
  return s("a", { href: `#/cube/${encodeURIComponent(cube.id)}`, class: self ? "self" : null, "data-form": cube.form,
    "aria-label": `${cube.words} (${t(`form.${cube.form}`)})`, "aria-current": self ? "true" : null },
    s("rect", { x, y, width: WIDE, height: HIGH, rx: 8 }),
    s("text", { x: x + 12, y: y + 19 }, words),
    s("text", { class: "sub", x: x + 12, y: y + 35 }, `${t(`form.${cube.form}`)} · ${short(cube.id)}`));
}
