// Reading message_stats and the *_details beside numbers.
import type { Series } from "./data";
import type { Rate, Stats } from "./types";

export function rate(stats: Stats | undefined, name: string): number | undefined {
  const d = stats?.[`${name}_details`];
  return typeof d === "object" ? d.rate : undefined;
}

export function total(stats: Stats | undefined, name: string): number | undefined {
  const n = stats?.[name];
  return typeof n === "number" ? n : undefined;
}

export function rateOf(r: Rate | undefined): number | undefined { return r?.rate; }

/** Ten minutes of samples, one each five seconds: what a plot shows when a page is opened. */
export const samplesQuery = { lengths_age: 600, lengths_incr: 5, msg_rates_age: 600, msg_rates_incr: 5 };

/** How many samples are shown at least: a minute. */
const shownAtLeast = 12;

/** Where a plot begins: what was before anybody counted comes as 0, and is not shown. */
function begin(lines: number[][], n: number): number {
  let from = 0;
  while (from < n && lines.every((l) => !l[from])) from++;
  return Math.max(0, Math.min(from, n - shownAtLeast));
}

/** Samples of lengths as lines of a plot, oldest first, with what is now behind them; undefined if there are none. */
export function lengthSeries(details: (Rate | undefined)[], now: (number | undefined)[]): Series | undefined {
  const samples = details.map((d) => [...(d?.samples ?? [])].reverse());
  const times = samples[0]?.map((s) => s.timestamp / 1000) ?? [];
  if (times.length < 2 || samples.some((s) => s.length !== times.length)) return undefined;
  const values = samples.map((s) => s.map((x) => x.sample));
  const from = begin(values, times.length);
  return { times: [...times.slice(from), Date.now() / 1000], values: values.map((v, i) => [...v.slice(from), now[i] ?? null]) };
}

/** Samples of counters as rates: what came between two of them, a second. A count that falls is of a node that has gone. */
export function rateSeries(stats: Stats | undefined, names: string[]): Series | undefined {
  const samples = names.map((n) => {
    const d = stats?.[`${n}_details`];
    return typeof d === "object" ? [...(d.samples ?? [])].reverse() : [];
  });
  const longest = samples.find((s) => s.length > 1);
  if (!longest) return undefined;
  const times = longest.slice(1).map((s) => s.timestamp / 1000);
  const counts = samples.map((list) => (list.length === longest.length ? list.map((s) => s.sample) : longest.map(() => 0)));
  // The first count may be of all that was before anybody looked: no rate leads to it.
  const values = counts.map((c) => times.map((_, i) => {
    const a = c[i]!, b = c[i + 1]!;
    return b < a || (a === 0 && b > 0) ? null : (b - a) / ((longest[i + 1]!.timestamp - longest[i]!.timestamp) / 1000);
  }));
  const from = begin(counts.map((c) => c.slice(1)), times.length);
  return { times: [...times.slice(from), Date.now() / 1000], values: values.map((v, i) => [...v.slice(from), rate(stats, names[i]!) ?? 0]) };
}

/** A series with what has been seen since behind it. */
export function continued(base: Series | undefined, seen: Series | undefined): Series | undefined {
  if (!base || !seen || base.values.length !== seen.values.length) return base ?? seen;
  const last = base.times.at(-1) ?? 0, from = seen.times.findIndex((t) => t > last + 1);
  if (from < 0) return base;
  return { times: [...base.times, ...seen.times.slice(from)], values: base.values.map((v, i) => [...v, ...seen.values[i]!.slice(from)]) };
}
