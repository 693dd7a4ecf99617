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

/** What was before anybody counted comes as 0: it is not shown. */
function known(values: number[]): (number | null)[] {
  const from = values.findIndex((v) => v !== 0);
  return values.map((v, i) => (from >= 0 && i < from ? null : v));
}

/** Samples of lengths as lines of a plot, oldest first; undefined if there are none. */
export function lengthSeries(details: (Rate | undefined)[]): Series | undefined {
  const samples = details.map((d) => [...(d?.samples ?? [])].reverse());
  const times = samples[0]?.map((s) => s.timestamp / 1000) ?? [];
  if (times.length < 2 || samples.some((s) => s.length !== times.length)) return undefined;
  return { times, values: samples.map((s) => known(s.map((x) => x.sample))) };
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
  return {
    times, values: samples.map((list) => {
      const counts = known(list.map((s) => s.sample));
      return times.map((_, i) => {
        const a = counts[i], b = counts[i + 1];
        if (list.length !== longest.length) return 0; // never counted
        return typeof a === "number" && typeof b === "number" && b >= a ? (b - a) / ((list[i + 1]!.timestamp - list[i]!.timestamp) / 1000) : null;
      });
    }),
  };
}
