// The picture of the memory map: groups of tiles. Form is hue, use is strength, tier is pips.

import { digits, s } from "./dom.js";
import { t } from "./i18n.js";
import { TIERS } from "./memories.js";
import { treemap } from "./treemap.js";

const OUT = ["archived", "expired", "merged"];
const [GAP, TITLE] = [3, 20]; // px
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** An SVG of `width` px. cubes: as `everything` of memories.js tells them. */
export function memoryMap(cubes, width) {
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`; // as style.css has the words of a tile
  const groups = Object.entries(Object.groupBy(cubes, (cube) => cube.topic))
    .sort(([, a], [, b]) => b.length - a.length);
  const height = Math.round(Math.max(width < 600 ? width * 1.35 : width * 0.46, Math.sqrt(cubes.length) * 34));
  const hottest = Math.max(1, ...cubes.map((cube) => cube.heat));
  const places = treemap(groups.map(([, inner]) => inner.length + 0.6), { x: 0, y: 0, w: width, h: height });
  const cells = [];
  const drawn = groups.map(([name, inner], at) => group(name, inner, inset(places[at], GAP), hottest, cells));
  const picture = s("svg", { class: "map", viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": t("map.title", { count: cubes.length, groups: groups.length }) }, drawn);
  if (cells.length) cells[0].node.setAttribute("tabindex", "0");
  picture.addEventListener("keydown", (event) => walk(event, cells));
  return picture;
}

function group(name, cubes, box, hottest, cells) {
  const words = name || t("map.other");
  const titled = box.h > TITLE * 2.2 && box.w > 46;
  const inner = titled ? { x: box.x + GAP, y: box.y + TITLE, w: box.w - 2 * GAP, h: box.h - TITLE - GAP } : inset(box, 2);
  const order = ["parametric", "activation", "plaintext"]; // the dear forms stand together
  const sorted = [...cubes].sort((a, b) => order.indexOf(a.form) - order.indexOf(b.form) || b.heat - a.heat);
  const places = treemap(sorted.map(() => 1), inner);
  return s("g", {},
    s("rect", { class: "group", x: box.x, y: box.y, width: box.w, height: box.h, rx: 6 }),
    titled && s("text", { class: "name", x: box.x + 8, y: box.y + 14, "aria-hidden": "true" }, cut(words, box.w - 14)),
    sorted.map((cube, at) => cell(cube, inset(places[at], 1.5), hottest, cells)));
}

function cell(cube, box, hottest, cells) {
  const heat = Math.log1p(cube.heat) / Math.log1p(hottest);
  const label = t("map.cell", { memory: cube.words, form: t(`form.${cube.form}`), state: t(`state.${cube.state}`), heat: digits(cube.heat) });
  const pips = cube.tier ? TIERS.indexOf(cube.tier) + 1 : 0;
  const lines = wrap(cube.words, box);
  const node = s("a", { class: `cell${OUT.includes(cube.state) ? " out" : ""}`, href: `#/cube/${encodeURIComponent(cube.id)}`,
    tabindex: "-1", "aria-label": label, "data-form": cube.form, vars: { heat: heat.toFixed(3) } },
    s("title", {}, label),
    s("rect", { x: box.x, y: box.y, width: box.w, height: box.h, rx: Math.min(5, box.w / 4) }),
    lines.map((line, at) => s("text", { x: box.x + 7, y: box.y + 17 + at * 15 }, line)),
    box.w > 30 && box.h > 16 && Array.from({ length: pips }, (_, at) =>
      s("circle", { class: "pip", cx: box.x + box.w - 8 - at * 7, cy: box.y + box.h - 8, r: 2.2 })));
  cells.push({ node, x: box.x + box.w / 2, y: box.y + box.h / 2 });
  return node;
}

const inset = ({ x, y, w, h }, by) => ({ x: x + by, y: y + by, w: Math.max(1, w - 2 * by), h: Math.max(1, h - 2 * by) });

const pen = document.createElement("canvas").getContext("2d");
const wide = (text) => pen.measureText(text).width;

function cut(text, room) {
  if (wide(text) <= room) return text;
  let kept = "";
  for (const letter of text) {
    if (wide(kept + letter) > room - 10) break;
    kept += letter;
  }
  return kept ? `${kept.trimEnd()}…` : "";
}

/** As many lines of a text as a tile has room for; none where no word would be told. */
function wrap(text, box) {
  const [room, most] = [box.w - 13, Math.floor((box.h - 8) / 15)];
  if (room < 44 || most < 1) return [];
  const lines = [""];
  for (const word of text.match(/[\u2e80-\uffff]|[^\s\u2e80-\uffff]+\s*/g) ?? []) {
    if (lines.at(-1) && wide(lines.at(-1) + word.trimEnd()) > room) lines.push("");
    lines[lines.length - 1] += word;
  }
  const shown = lines.slice(0, most).map((line) => cut(line.trimEnd(), room));
  if (lines.length > most) shown[most - 1] = cut(`${shown[most - 1]} ${lines[most]}`.slice(0, -1), room) || "…";
  return shown;
}

/** Arrow keys go to the nearest tile on that side; Home and End to the first and last. One tile is in the tab order. */
function walk(event, cells) {
  const here = cells.find(({ node }) => node === document.activeElement);
  const way = ARROWS[event.key];
  if (!here || !(way || ["Home", "End"].includes(event.key))) return;
  event.preventDefault();
  const to = way ? nearest(here, cells, way) : cells.at(event.key === "Home" ? 0 : -1);
  if (!to) return;
  here.node.setAttribute("tabindex", "-1");
  to.node.setAttribute("tabindex", "0");
  to.node.focus();
}

function nearest(here, cells, [dx, dy]) {
  const ahead = (cell) => (cell.x - here.x) * dx + (cell.y - here.y) * dy;
  const aside = (cell) => Math.abs((cell.x - here.x) * dy) + Math.abs((cell.y - here.y) * dx);
  const far = (cell) => ahead(cell) + 2.5 * aside(cell);
  return cells.filter((cell) => ahead(cell) > 1).sort((a, b) => far(a) - far(b))[0];
}
