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

/** A time as people write it here; "" where there is none. */
export function moment(iso) {
  if (!iso) return "";
  const shape = { dateStyle: "medium", timeStyle: "short" };
  return new Intl.DateTimeFormat(language() === "zh" ? "zh-CN" : "en-GB", shape).format(new Date(iso));
}
