// Reports of benchmarks and experiments, drawn: every list, and every group of figures, of whatever shape they are.

import { digits, h, s } from "../dom.js";
import { t } from "../i18n.js";
import { figures, head, scroll, table } from "../parts.js";

const reports = new Map(); // by file name, as long as the page is open
const MOST = 24; // bars of one plot
const isFigure = (value) => typeof value === "number" && Number.isFinite(value);
const isGroup = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

export function page({ again }) {
  const choose = h("input", { type: "file", accept: ".json,application/json", multiple: true, class: "sr", id: "reports",
    onchange: (event) => take(event.target.files, again) });
  const drop = h("section", { class: "card empty drop" },
    h("strong", {}, t("bench.drop")), h("p", {}, t("bench.drop.how")),
    h("div", { class: "row" }, h("button", { type: "button", class: "main", onclick: () => choose.click() }, t("bench.choose")), choose));
  choose.tabIndex = -1; // the button is the one that is reached
  choose.setAttribute("aria-label", t("bench.choose"));
  for (const [name, over] of [["dragover", true], ["dragleave", false], ["drop", false]])
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", over);
      if (name === "drop") take(event.dataTransfer.files, again);
    });
  const drawn = [...reports].reverse().map(([name, report]) => section(name, report));
  return [head("bench"), h("div", { class: "stack" }, drop, drawn)];
}

async function take(files, again) {
  for (const file of files) {
    try {
      reports.set(file.name, JSON.parse(await file.text()));
    } catch (error) {
      reports.set(file.name, error);
    }
  }
  again();
}

function section(name, report) {
  if (report instanceof Error)
    return h("section", { class: "card wrong" }, h("h2", {}, name), h("p", {}, t("bench.bad", { name, why: report.message })));
  const parts = [...drawings(report, "")];
  if (!parts.length) return h("section", { class: "card" }, h("h2", {}, name), h("p", { class: "muted" }, t("bench.bare", { name })));
  return h("section", { class: "card stack report" }, h("h2", {}, name), parts);
}

/** What is drawn of a part of a report, and of what lies in it. path: where it stands, as a heading. */
function* drawings(value, path) {
  if (Array.isArray(value)) {
    if (value.length > 1 && value.every(isFigure)) yield plot(path, line(value, path));
    else if (value.length && value.every(isGroup)) yield* rows(value, path);
    return;
  }
  if (!isGroup(value)) return;
  const own = Object.entries(value).filter(([, inner]) => isFigure(inner));
  if (own.length) yield titled(path, figures(own.map(([name, figure]) => [spoken(name), digits(figure)])));
  for (const [name, inner] of Object.entries(value)) yield* drawings(inner, path ? `${path} · ${spoken(name)}` : spoken(name));
}

/** A list of records: bars of each figure that they share, and all of them as a table. */
function* rows(records, path) {
  const flat = records.map((record) => Object.fromEntries(leaves(record)));
  const names = [...new Set(flat.flatMap(Object.keys))];
  const numeric = names.filter((name) => flat.some((row) => isFigure(row[name])));
  const label = (row, at) => names.filter((name) => typeof row[name] === "string").map((name) => row[name]).join(", ") || String(at + 1);
  const differ = numeric.filter((name) => new Set(flat.map((row) => row[name])).size > 1).slice(0, 6);
  for (const name of differ)
    if (flat.length <= MOST) yield plot([path, spoken(name)].filter(Boolean).join(" · "), bars(flat.map((row, at) => [label(row, at), row[name]])));
    else yield plot([path, spoken(name)].filter(Boolean).join(" · "), line(flat.map((row) => row[name]).filter(isFigure), name));
  yield table(path || t("nav.bench"), names.slice(0, 9).map((name) => [spoken(name),
    (row) => (isFigure(row[name]) ? digits(row[name]) : String(row[name] ?? "")), numeric.includes(name)]), flat.slice(0, 200));
}

function* leaves(record, path = "") {
  for (const [name, value] of Object.entries(record)) {
    const full = path ? `${path} ${name}` : name;
    if (isGroup(value)) yield* leaves(value, full);
    else if (isFigure(value) || typeof value === "string" || typeof value === "boolean") yield [full, value];
  }
}

const spoken = (name) => name.replaceAll("_", " ");

const titled = (title, drawing) => h("figure", {}, title && h("figcaption", { class: "small muted" }, title), drawing);
const plot = (title, drawing) => titled(title, scroll(title || t("nav.bench"), drawing));

/** Horizontal bars of [name, value] pairs. */
function bars(pairs) {
  const most = Math.max(...pairs.map(([, value]) => Math.abs(value ?? 0))) || 1;
  const [width, high] = [720, 26];
  return s("svg", { class: "plot", viewBox: `0 0 ${width} ${pairs.length * high}`, role: "img",
    "aria-label": pairs.map(([name, value]) => `${name}: ${isFigure(value) ? digits(value) : ""}`).join("; ") },
    pairs.map(([name, value], at) => [
      s("text", { x: 0, y: at * high + 17 }, name.length > 32 ? `${name.slice(0, 31)}…` : name),
      s("rect", { x: 230, y: at * high + 6, width: Math.max(1, (Math.abs(value ?? 0) / most) * 400), height: 14, rx: 3 }),
      s("text", { class: "value", x: 240 + (Math.abs(value ?? 0) / most) * 400, y: at * high + 17 }, isFigure(value) ? digits(value) : ""),
    ]));
}

/** A line through figures in their order. */
function line(values, name) {
  const [low, most] = [Math.min(0, ...values), Math.max(...values)];
  const [width, high, side] = [720, 180, 60];
  const x = (at) => side + (at / (values.length - 1)) * (width - side - 10);
  const y = (value) => high - 20 - ((value - low) / (most - low || 1)) * (high - 40);
  return s("svg", { class: "plot", viewBox: `0 0 ${width} ${high}`, role: "img",
    "aria-label": `${spoken(name)}: ${digits(values[0])} … ${digits(values.at(-1))}` },
    [low, most].map((value) => [s("line", { class: "axis", x1: side, x2: width, y1: y(value), y2: y(value) }),
      s("text", { x: side - 8, y: y(value) + 4, "text-anchor": "end" }, digits(value))]),
    s("polyline", { points: values.map((value, at) => `${x(at)},${y(value)}`).join(" ") }));
}

