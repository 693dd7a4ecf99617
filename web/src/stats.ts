// Reading message_stats and the *_details beside numbers.
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
