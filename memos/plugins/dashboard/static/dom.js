// Elements from values. Text goes in as text alone: what a memory says is never read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, its] of Object.entries(value)) element.style.setProperty(`--${key}`, its);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element; `on...` attributes are listeners, `vars` are custom properties of CSS. */
export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/** The same of SVG. */
export const s = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

const ICONS = {
  map: "M4 4h9v16H4zM16 4h4v7h-4zM16 14h4v6h-4z",
  why: "M4 5h16v11h-8l-4 4v-4H4zM10 9a2 2 0 1 1 2.6 1.9c-.4.2-.6.4-.6 1M12 14v.1",
  search: "M10.5 4a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM15.5 15.5 20 20",
  governance: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6zM9 12l2 2 4-4",
  jobs: "M4 6h3M4 12h3M4 18h3M10 6h10M10 12h10M10 18h6",
  bench: "M4 20h16M6 16v-5M11 16V5M16 16V9",
  talk: "M4 5h16v11h-8l-4 4v-4H4zM8 9h8M8 12h5",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  language: "M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18zM3 12h18M12 3c3 3 3.5 6 3.5 9s-.5 6-3.5 9c-3-3-3.5-6-3.5-9s.5-6 3.5-9z",
  help: "M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18zM9.5 9.5a2.5 2.5 0 1 1 3.4 2.3c-.6.3-.9.7-.9 1.5M12 16.5v.1",
  key: "M8 11a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM11 12l8-8M16 7l3 3",
};

/** A drawing of 20 px that says nothing to a screen reader: its neighbour text does. */
export const icon = (name) =>
  s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));

/** Bytes in the largest unit that leaves a whole number before the point. */
export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) [count, at] = [count / 1024, at + 1];
  return `${at && count < 100 ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
}

/** A number to three digits, without needless zeros. */
export const digits = (value) =>
  Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(3)));

/** The end of an id, which tells memories of one time apart. */
export const short = (id) => id.slice(-6);
