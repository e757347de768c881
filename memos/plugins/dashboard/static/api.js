// The Memory API of the server that this page came from.

import { t } from "./i18n.js";

const KEPT = "memos."; // in the session's storage: until the tab is closed

export class ApiError extends Error {
  /** status: of HTTP; 0 where the server was not reached. */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Who asks: a `key`, or where the server needs none a `user`. */
export const who = {
  get: (name) => sessionStorage.getItem(KEPT + name) ?? "",
  set: (name, value) => (value ? sessionStorage.setItem(KEPT + name, value) : sessionStorage.removeItem(KEPT + name)),
};

/** What a method of the Memory API returns for these arguments. Throws ApiError with the server's own words. */
export async function call(name, given = {}) {
  const headers = { "Content-Type": "application/json" };
  if (who.get("key")) headers.Authorization = `Bearer ${who.get("key")}`;
  const body = JSON.stringify(who.get("user") ? { ...given, user_id: who.get("user") } : given);
  let response;
  try {
    response = await fetch(`../v1/memory/${name}`, { method: "POST", headers, body });
  } catch {
    throw new ApiError(t("error.unreached"), 0);
  }
  const told = await response.json().catch(() => null);
  if (!response.ok) throw new ApiError(told?.error?.message ?? told?.detail ?? response.statusText, response.status);
  return told;
}
