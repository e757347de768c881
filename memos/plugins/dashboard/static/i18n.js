// Which language the page speaks, and its words.

import en from "./words/en.js";
import zh from "./words/zh.js";

const BOOKS = { en, zh };
const KEPT = "memos.language";

export const LANGUAGES = { en: "English", zh: "中文" };

/** The one that was chosen, else that of the browser where there is a book of it, else English. */
export const language = () => localStorage.getItem(KEPT) ?? (navigator.language.startsWith("zh") ? "zh" : "en");

export const speak = (name) => localStorage.setItem(KEPT, name);

/** The words under a name, with {values} put in; a name without words is told as it is, as those of the server are. */
export const t = (name, values = {}) =>
  (BOOKS[language()][name] ?? name.slice(name.indexOf(".") + 1)).replace(/\{(\w+)\}/g, (_, part) => values[part] ?? "");

const locale = () => (language() === "zh" ? "zh-CN" : "en-GB");

/** A time as people write it here; "" where there is none. */
export function moment(iso) {
  if (!iso) return "";
  return new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "short" }).format(new Date(iso));
}

/** Seconds in the largest unit that leaves a whole number. */
export function duration(seconds) {
  const [size, unit] = [[86400, "day"], [3600, "hour"], [60, "minute"]].find(([size]) => seconds >= size) ?? [1, "second"];
  return new Intl.NumberFormat(locale(), { style: "unit", unit }).format(Math.floor(seconds / size));
}
