// Data that stays fresh while somebody looks, and actions that change something.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get } from "./api";

/** After how many ms what is asked for only once is asked for again if the node did not answer, or was not ready. */
const retryAfter = 3000;
/** After how many ms without an answer it is said that there is none, and after how many it is asked for anew. */
const lateAfter = 15_000, hungAfter = 60_000;

export interface Data<T> {
  data: T | undefined;
  error: ApiError | undefined;
  /** An answer to this very path is awaited for the first time. */
  loading: boolean;
  reload: () => void;
}

/** Bumped by every change that this page makes: what is shown is asked for anew. */
const changes = new EventTarget();
export function changed(): void { changes.dispatchEvent(new Event("change")); }
export function onChanged(f: () => void): () => void {
  changes.addEventListener("change", f);
  return () => changes.removeEventListener("change", f);
}

/**
 * The answer to GET path, asked for again every so many ms (0: only until there is one) while the tab can be seen. A path that changes keeps the former
 * answer until the new one is there. null asks nothing.
 */
export function useApi<T>(path: string | null, every = 5000): Data<T> {
  const [state, set] = useState<{ path: string | null; data?: T; error?: ApiError }>({ path: null });
  const again = useRef(() => {});
  useEffect(() => {
    if (path === null) {
      set({ path: null });
      return;
    }
    let timer = 0, stopped = false, abort: AbortController | undefined, asked = 0, behind = false; // asked: when, 0 if no answer is awaited
    const failed = (error: ApiError) => set((s) => ({ path, data: error.absent || error.forbidden || error.beyond ? undefined : s.path === path ? s.data : undefined, error }));
    const ask = async () => {
      if (asked > 0 && Date.now() - asked < lateAfter) {
        behind = true; // behind the answer, which may be older than what changed: a slow one would never come if each change took its place
        return;
      }
      clearTimeout(timer);
      abort?.abort();
      const mine = abort = new AbortController();
      let next = every;
      asked = Date.now();
      behind = false;
      const late = setTimeout(() => failed(new ApiError(0, "late", `The node has not answered for ${lateAfter / 1000} s.`)), lateAfter);
      const hung = setTimeout(() => void ask(), hungAfter);
      try {
        const data = await get<T>(path, mine.signal);
        if (!mine.signal.aborted && !stopped) set({ path, data });
      } catch (err) {
        if (mine.signal.aborted || stopped) return;
        const error = err instanceof ApiError ? err : new ApiError(0, "error", String(err));
        if (every === 0 && (error.status === 0 || error.status === 503)) next = retryAfter;
        failed(error);
      } finally {
        clearTimeout(late);
        clearTimeout(hung);
        if (abort === mine) asked = 0;
      }
      if (stopped || mine.signal.aborted) return;
      if (behind) void ask();
      else if (next > 0 && (every === 0 || !document.hidden)) timer = setTimeout(ask, next);
    };
    const seen = () => { if (!document.hidden && every > 0) void ask(); };
    again.current = () => void ask();
    const off = onChanged(() => void ask());
    document.addEventListener("visibilitychange", seen);
    if (!document.hidden || every === 0) void ask();
    return () => {
      stopped = true;
      clearTimeout(timer);
      abort?.abort();
      off();
      document.removeEventListener("visibilitychange", seen);
    };
  }, [path, every]);
  const reload = useCallback(() => again.current(), []);
  return { data: state.data, error: state.path === path ? state.error : undefined, loading: path !== null && state.path !== path && !state.error, reload };
}

/** Values over time for plots, kept while the page is open. */
export interface Series { times: number[]; values: (number | null)[][] }

const kept = new Map<string, Series>();
const pointsMax = 720;

/** Adds a point (one value a line) to a series and returns the whole of it. The times are in seconds. */
export function remember(key: string, values: (number | undefined | null)[]): Series {
  let s = kept.get(key);
  if (!s || s.values.length !== values.length) {
    if (kept.size > 300) kept.delete(kept.keys().next().value!);
    s = { times: [], values: values.map(() => []) };
    kept.set(key, s);
  }
  const now = Date.now() / 1000;
  if (s.times.length > 0 && now - s.times.at(-1)! < 0.9) return s;
  s.times.push(now);
  values.forEach((v, i) => s.values[i]!.push(v ?? null));
  if (s.times.length > pointsMax) {
    s.times.shift();
    for (const line of s.values) line.shift();
  }
  return s;
}

export function remembered(key: string): Series | undefined { return kept.get(key); }

/** Forgets what another user may not have seen. */
export function forget(): void { kept.clear(); }

/** Says what happened, at the edge of the page and to screen readers. */
export interface Note { id: number; text: string; bad: boolean }
const notes = new EventTarget();
let lastNote = 0;
export function tell(text: string, bad = false): void { notes.dispatchEvent(new CustomEvent<Note>("note", { detail: { id: ++lastNote, text, bad } })); }
export function onNote(f: (n: Note) => void): () => void {
  const g = (e: Event) => f((e as CustomEvent<Note>).detail);
  notes.addEventListener("note", g);
  return () => notes.removeEventListener("note", g);
}

/**
 * Runs an action once at a time: says that it is done, or what is wrong, and has what is shown asked for anew. What is wrong is said at the
 * edge of the page if the dialog that began it is closed by then.
 */
export function useAction(): { busy: boolean; error: string; clear: () => void; run: (f: () => Promise<unknown>, done?: string) => Promise<boolean> } {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const gone = useRef(false);
  useEffect(() => () => { gone.current = true; }, []);
  const run = useCallback(async (f: () => Promise<unknown>, done?: string) => {
    setBusy(true);
    setError("");
    try {
      await f();
      if (done) tell(done);
      changed();
      return true;
    } catch (err) {
      const text = err instanceof Error ? err.message : String(err);
      if (gone.current) tell(text, true);
      setError(text);
      return false;
    } finally {
      setBusy(false);
    }
  }, []);
  return { busy, error, clear: () => setError(""), run };
}
