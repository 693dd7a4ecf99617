// The stream of live events: the overview as it changes, and word of every change of the catalog, so that what is shown is asked for
// anew at once. By fetch and not by EventSource, which can send no login. Hidden tabs have none.
import { useEffect, useState } from "preact/hooks";
import { ApiError, loggedIn, request } from "./api";
import { changed } from "./data";
import type { Overview } from "./types";

export interface Live { connected: boolean; overview?: Overview }

let now: Live = { connected: false };
const heard = new EventTarget();

function tell(l: Live): void {
  now = l;
  heard.dispatchEvent(new Event("live"));
}

/** What the stream has told last. */
export function useLive(): Live {
  const [live, set] = useState(now);
  useEffect(() => {
    const on = () => set(now);
    on();
    heard.addEventListener("live", on);
    return () => heard.removeEventListener("live", on);
  }, []);
  return live;
}

/** Reads the stream while this is on the page and can be seen, and again when it has ended. */
export function useStream(): void {
  useEffect(() => {
    let abort: AbortController | undefined, timer = 0, wait = 1000, reload = 0;
    const asked = () => { // a change seldom comes alone
      if (reload === 0) reload = setTimeout(() => { reload = 0; changed(); }, 2000);
    };
    const listen = async () => {
      clearTimeout(timer);
      if (abort || document.hidden || !loggedIn()) return;
      const mine = abort = new AbortController();
      try {
        const response = await request("GET", "warren/events", undefined, mine.signal);
        wait = 1000;
        tell({ ...now, connected: true });
        for await (const e of events(response.body!)) {
          if (e.name === "overview") tell({ connected: true, overview: JSON.parse(e.data) as Overview });
          else if (e.name !== "hello" && e.name !== "end") asked();
        }
      } catch (err) {
        if (err instanceof ApiError && err.status !== 0 && err.status !== 503) wait = 60_000;
      }
      if (abort === mine) abort = undefined;
      tell({ connected: false });
      if (!mine.signal.aborted) timer = setTimeout(listen, wait);
      wait = Math.min(30_000, wait * 2);
    };
    const seen = () => {
      if (document.hidden) {
        abort?.abort();
        abort = undefined;
      } else void listen();
    };
    void listen();
    document.addEventListener("visibilitychange", seen);
    return () => {
      document.removeEventListener("visibilitychange", seen);
      clearTimeout(timer);
      clearTimeout(reload);
      abort?.abort();
      abort = undefined;
    };
  }, []);
}

/** After how many ms without a word the stream counts as broken: the overview comes every five seconds. */
const silentMax = 20_000;

/** How much of an event that has not ended is kept: more is no event of this API. */
const eventMax = 4 << 20;

async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<{ name: string; data: string }> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "", silent = 0;
  try {
    for (;;) {
      silent = setTimeout(() => reader.cancel().catch(() => {}), silentMax); // which ends the read
      const { done, value } = await reader.read();
      clearTimeout(silent);
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const parts = rest.split("\n\n");
      rest = parts.pop()!;
      if (rest.length > eventMax) return;
      for (const part of parts) {
        let name = "message", data = "";
        for (const line of part.split("\n")) {
          if (line.startsWith("event:")) name = line.slice(6).trim();
          else if (line.startsWith("data:")) data += line.slice(5).trimStart();
        }
        if (data !== "") yield { name, data };
      }
    }
  } finally {
    clearTimeout(silent);
    reader.cancel().catch(() => {}); // fails with what ended the stream, which its reader has been told
  }
}
