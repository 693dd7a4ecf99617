// Requests to the public HTTP API. The login is kept for this tab, and goes into each request by the script's hand:
// the browser itself adds nothing (credentials: "omit"), so that no other site can use it.

/** A refusal, or no answer. */
export class ApiError extends Error {
  constructor(readonly status: number, readonly short: string, message: string, readonly body?: unknown) {
    super(message);
  }
  /** The login itself was refused; a 401 for one object is something else. */
  get loggedOut(): boolean {
    return this.status === 401 && (this.message === "Login failed" || this.message === "Not management user");
  }
  get absent(): boolean { return this.status === 404; }
  /** The list has become shorter, or has never been so long. */
  get beyond(): boolean { return this.short === "page_out_of_range"; }
  get forbidden(): boolean { return (this.status === 401 || this.status === 403) && !this.loggedOut; }
}

const loginKey = "warren.login";
let onLogout: () => void = () => {};

export function whenLoggedOut(f: () => void): void { onLogout = f; }

function encodeBasic(user: string, password: string): string {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  let text = "";
  for (const b of bytes) text += String.fromCharCode(b);
  return btoa(text);
}

export function loggedIn(): boolean { return sessionStorage.getItem(loginKey) !== null; }

export async function login(user: string, password: string): Promise<void> {
  sessionStorage.setItem(loginKey, encodeBasic(user, password));
  try {
    await get("whoami");
  } catch (err) {
    sessionStorage.removeItem(loginKey);
    throw err;
  }
}

/** Ends the session: whoever logs in next in this tab finds nothing of it. */
export function logout(): void {
  sessionStorage.clear();
  onLogout();
}

/** Joins the parts of a path, each escaped; "/" is %2F. */
export function path(...parts: (string | number)[]): string {
  return parts.map((p) => encodeURIComponent(String(p))).join("/");
}

/** Adds parameters; empty and absent ones are left out, lists come several times. */
export function withQuery(path: string, params: Record<string, string | number | boolean | string[] | number[] | undefined>): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === "" || value === false) continue;
    for (const v of Array.isArray(value) ? value : [value]) q.append(name, String(v));
  }
  const text = q.toString();
  return text ? `${path}?${text}` : path;
}

function headers(more?: Record<string, string>): Headers {
  const h = new Headers(more);
  const basic = sessionStorage.getItem(loginKey);
  if (basic) h.set("Authorization", `Basic ${basic}`);
  return h;
}

export async function request(method: string, to: string, body?: unknown, signal?: AbortSignal, more?: Record<string, string>): Promise<Response> {
  const dots = to.split("?", 1)[0]!.split("/").find((part) => part === "." || part === "..");
  if (dots) throw new ApiError(400, "unspeakable", `A browser cannot ask for anything that is called "${dots}", which means something else in addresses: use warren ctl.`);
  const h = headers(more);
  let raw: BodyInit | undefined;
  if (body instanceof Blob || typeof body === "string") raw = body;
  else if (body !== undefined) {
    raw = JSON.stringify(body);
    h.set("Content-Type", "application/json");
  }
  let response: Response;
  try {
    response = await fetch(`api/${to}`, { method, headers: h, body: raw, signal, credentials: "omit", cache: "no-store", redirect: "error" });
  } catch (err) {
    if (signal?.aborted) throw err;
    throw new ApiError(0, "unreachable", "The node does not answer.");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response: Response): Promise<ApiError> {
  const text = await response.text();
  let short = String(response.status), reason = text.trim() || response.statusText, body: unknown;
  try {
    const json = JSON.parse(text) as { error?: string; reason?: unknown };
    body = json;
    short = json.error ?? short;
    reason = typeof json.reason === "string" ? json.reason : JSON.stringify(json.reason ?? json);
  } catch { /* plain text */ }
  const err = new ApiError(response.status, short, reason, body);
  if (err.loggedOut && loggedIn()) logout();
  return err;
}

async function json<T>(response: Response): Promise<T> {
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** JSON.parse as newer browsers have it: they tell how a number was written, and can write one so. */
type Exact = { parse(text: string, reviver: (key: string, v: unknown, context?: { source?: string }) => unknown): unknown; rawJSON?: (text: string) => unknown };

/** Reads JSON of which integers that a number of JavaScript cannot hold come out of JSON.stringify as they were, where the browser can do that. */
export function parseExact(text: string): unknown {
  const exact = JSON as Exact;
  return exact.parse(text, (_, v, context) =>
    typeof v === "number" && !Number.isSafeInteger(v) && /^-?\d+$/.test(context?.source ?? "") && exact.rawJSON ? exact.rawJSON(context!.source!) : v);
}

/** get for what clients have written: headers and properties keep their numbers. Those are for JSON.stringify only. */
export async function getExact<T>(to: string, signal?: AbortSignal): Promise<T> { return parseExact(await (await request("GET", to, undefined, signal)).text()) as T; }
export async function postExact<T>(to: string, body: unknown): Promise<T> { return parseExact(await (await request("POST", to, body)).text()) as T; }

/** Fails if there is something: what would only be added must not replace it. */
export async function mustBeNew(to: string, what: string): Promise<void> {
  try {
    await get(to);
  } catch (err) {
    if (err instanceof ApiError && err.absent) return;
    throw err;
  }
  throw new Error(`There is ${what} already.`);
}

export async function get<T>(to: string, signal?: AbortSignal): Promise<T> { return json<T>(await request("GET", to, undefined, signal)); }
export async function put<T = void>(to: string, body: unknown = {}): Promise<T> { return json<T>(await request("PUT", to, body)); }
export async function post<T = void>(to: string, body: unknown = {}): Promise<T> { return json<T>(await request("POST", to, body)); }
export async function del<T = void>(to: string, body?: unknown, more?: Record<string, string>): Promise<T> {
  return json<T>(await request("DELETE", to, body, undefined, more));
}
