// What is in effect on a queue, of its arguments and the policies: the rules of docs/compatibility.md.
import type { Json, Queue } from "./types";

export interface Setting { key: string; argument?: Json; policy?: Json; effective: Json; from: "argument" | "policy" | "both" }

/** Of these the smaller value counts. */
const smaller = new Set(["message-ttl", "expires", "max-length", "max-length-bytes", "dead-letter-max-hops", "dead-letter-max-length", "dead-letter-max-length-bytes", "deduplication-size",
  "delayed-retry-min", "delayed-retry-max", "delayed-retry-multiplier", "consumer-timeout", "delivery-limit"]);
/** Of these the policy's does. */
const policyWins = new Set(["delayed-retry-type", "delayed-retry-jitter"]);

export function inEffect(q: Pick<Queue, "type" | "arguments" | "effective_policy_definition">): Setting[] {
  const rows = new Map<string, Setting>();
  for (const [name, v] of Object.entries(q.arguments)) {
    const key = name.replace(/^x-/, "");
    rows.set(key, { key, argument: v, effective: v, from: "argument" });
  }
  for (const [key, v] of Object.entries(q.effective_policy_definition ?? {})) {
    const row = rows.get(key);
    if (!row) {
      rows.set(key, { key, policy: v, effective: v, from: "policy" });
      continue;
    }
    row.policy = v;
    const a = row.argument;
    if (a === v) row.from = "both";
    else if (policyWins.has(key) || (key === "overflow" && q.type === "quorum")) row.from = "policy";
    else if (smaller.has(key) && typeof a === "number" && typeof v === "number") {
      let takePolicy = v < a;
      if (key === "delivery-limit" && (a < 0 || v < 0)) takePolicy = v > a; // a negative one is no limit
      if (key === "consumer-timeout" && (a === 0 || v === 0)) takePolicy = a === 0;
      row.from = takePolicy ? "policy" : "argument";
    }
    row.effective = row.from === "policy" ? v : a!;
  }
  return [...rows.values()].sort((x, y) => x.key.localeCompare(y.key));
}
