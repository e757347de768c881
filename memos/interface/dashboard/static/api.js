// The Memory API of the server that this page came from.

import { t } from "./i18n.js";

const KEY = "memos.key"; // kept until the tab is closed

export class ApiError extends Error {
  /** status: of HTTP; 0 where the server was not reached. */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** What a method of the Memory API returns for these arguments. Throws ApiError with the server's own words. */
export async function call(name, given = {}) {
  const headers = { "Content-Type": "application/json" };
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(`../v1/memory/${name}`, { method: "POST", headers, body: JSON.stringify(given) });
  } catch {
    throw new ApiError(t("error.unreached"), 0);
  }
  const told = await response.json().catch(() => null);
  if (!response.ok) throw new ApiError(told?.error?.message ?? told?.detail ?? response.statusText, response.status);
  return told;
}
