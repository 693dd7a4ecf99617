// The address: everything that a page shows is in the hash, so that it can be sent to somebody.
import { useEffect, useState } from "preact/hooks";

export interface Route {
  /** The parts of the path, unescaped. */
  parts: string[];
  query: URLSearchParams;
}

export function parse(hash: string): Route {
  const [at = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { parts: at === "" ? [] : at.split("/").map(unescape), query: new URLSearchParams(query) };
}

function unescape(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export type Params = Record<string, string | number | boolean | undefined | null>;

/** The address of a page. */
export function href(parts: (string | number)[], params: Params = {}): string {
  return build(parts, changed(new URLSearchParams(), params));
}

function build(parts: (string | number)[], query: URLSearchParams): string {
  const text = query.toString();
  return `#/${parts.map((p) => encodeURIComponent(String(p))).join("/")}${text ? `?${text}` : ""}`;
}

function changed(query: URLSearchParams, params: Params): URLSearchParams {
  const q = new URLSearchParams(query);
  for (const [name, v] of Object.entries(params)) {
    if (v === undefined || v === null || v === "" || v === false) q.delete(name);
    else q.set(name, v === true ? "1" : String(v));
  }
  return q;
}

export function go(parts: (string | number)[], params: Params = {}): void { location.hash = href(parts, params); }

/** The present page with other parameters, as an address. */
export function here(route: Route, params: Params): string { return build(route.parts, changed(route.query, params)); }

/** Changes parameters of the present page; quiet leaves no step in the browser's history. */
export function setQuery(params: Params, quiet = false): void {
  const to = here(parse(location.hash), params);
  if (to === location.hash) return;
  if (!quiet) {
    location.hash = to;
    return;
  }
  history.replaceState(null, "", to);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute(): Route {
  const [, set] = useState(location.hash);
  useEffect(() => {
    const on = () => set(location.hash);
    on(); // it may have changed since this was drawn
    addEventListener("hashchange", on);
    return () => removeEventListener("hashchange", on);
  }, []);
  return parse(location.hash);
}
