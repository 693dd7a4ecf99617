// Numbers, sizes and times for people.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function count(n: number | undefined | null): string { return n === undefined || n === null ? "–" : grouped.format(n); }

/** A number that has to fit: 1.2k, 3.4M. */
export function short(n: number): string {
  const a = Math.abs(n);
  if (a < 1000) return String(Math.round(n * 10) / 10);
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]] as const) {
    if (a >= size) return `${(n / size).toFixed(a / size < 10 ? 1 : 0)}${unit}`;
  }
  return String(n);
}

/** Messages a second. */
export function perSecond(n: number | undefined): string {
  if (n === undefined) return "–";
  if (n === 0) return "0/s";
  return `${n < 10 ? n.toFixed(1) : grouped.format(n)}/s`;
}

export function bytes(n: number | undefined | null): string {
  if (n === undefined || n === null) return "–";
  let at = 0, v = n;
  while (v >= 1024 && at < 5) { v /= 1024; at++; }
  return `${at === 0 || v >= 100 ? Math.round(v) : v.toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][at]}`;
}

/** A length of time in ms, in its two largest units. */
export function span(ms: number): string {
  const units = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]] as const;
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  for (let i = 0; i < units.length; i++) {
    const [name, size] = units[i]!;
    if (ms < size) continue;
    const first = Math.floor(ms / size);
    const next = units[i + 1];
    const rest = next ? Math.floor((ms - first * size) / next[1]) : 0;
    return next && rest > 0 && first < 10 ? `${first} ${name} ${rest} ${next[0]}` : `${first} ${name}`;
  }
  return "0 s";
}

export function ago(ms: number, now = Date.now()): string {
  const d = now - ms;
  return d < 1000 ? "now" : `${span(d)} ago`;
}

const moment = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });

/** Whether the browser knows this time: clients write into a message's timestamp what they like, microseconds too. */
export function isTime(ms: number): boolean { return Math.abs(ms) <= 8.64e15; }

/** A time of day with its date, in the reader's zone. */
export function time(ms: number): string { return isTime(ms) ? moment.format(ms) : "no time"; }

/** The same for programs. */
export function iso(ms: number): string | undefined { return isTime(ms) ? new Date(ms).toISOString() : undefined; }

export function plural(n: number, one: string, many = `${one}s`): string { return `${count(n)} ${n === 1 ? one : many}`; }

export function nameOfExchange(name: string): string { return name === "" ? "(default)" : name; }

/** A value of arguments or headers on one line. */
export function value(v: unknown): string { return typeof v === "string" ? v : JSON.stringify(v); }
