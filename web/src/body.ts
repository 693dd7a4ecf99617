// Bodies of messages: decoded for people.
import type { Message } from "./types";

export type Form = "json" | "text" | "hex";
export interface Decoded { form: Form; text: string; gzipped: boolean; error?: string }

const hexMax = 16 << 10;

export function bytesOf(payload: string, encoding: "string" | "base64"): Uint8Array<ArrayBuffer> {
  if (encoding === "string") return new TextEncoder().encode(payload);
  const bin = atob(payload);
  const out = new Uint8Array(bin.length);
  for (let i = 0; i < bin.length; i++) out[i] = bin.charCodeAt(i);
  return out;
}

/** Unpacks gzip; of a body that was cut off, as much as came out. out is bounded: a small body can be a large one. */
const unpackMax = 4 << 20;
async function gunzip(raw: Uint8Array<ArrayBuffer>): Promise<{ out: Uint8Array; error?: string }> {
  const parts: Uint8Array[] = [];
  let size = 0, error: string | undefined;
  try {
    const reader = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      parts.push(value);
      size += value.length;
      if (size > unpackMax) {
        error = "only the beginning is unpacked";
        await reader.cancel();
        break;
      }
    }
  } catch {
    error = size > 0 ? "only the beginning is unpacked" : "this is no gzip";
  }
  const out = new Uint8Array(size);
  let at = 0;
  for (const p of parts) { out.set(p, at); at += p.length; }
  return { out, error };
}

export async function decode(m: Pick<Message, "payload" | "payload_encoding" | "properties">, want?: Form): Promise<Decoded> {
  let raw: Uint8Array = bytesOf(m.payload, m.payload_encoding);
  const gzipped = m.properties.content_encoding === "gzip" || (raw[0] === 0x1f && raw[1] === 0x8b);
  let error: string | undefined;
  if (gzipped) {
    const u = await gunzip(raw as Uint8Array<ArrayBuffer>);
    error = u.error;
    if (u.out.length > 0 || !u.error) raw = u.out;
  }
  let text: string | undefined;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(raw);
  } catch { /* not text */ }
  let pretty: string | undefined;
  if (text !== undefined && /^\s*[[{"]/.test(text)) {
    try {
      pretty = indent(text);
    } catch { /* not JSON */ }
  }
  const form = want ?? (pretty !== undefined ? "json" : text !== undefined && !/[\x00-\x08\x0e-\x1f]/.test(text) ? "text" : "hex");
  if (form === "json") return { form, gzipped, error: pretty === undefined ? "this is no JSON" : error, text: pretty ?? text ?? "" };
  if (form === "text") return { form, gzipped, error, text: text ?? new TextDecoder("utf-8").decode(raw) };
  return { form, gzipped, error, text: hex(raw) };
}

/** How deep lines are indented at most: of brackets in brackets the spaces alone could fill the memory. */
const depthMax = 40;

/**
 * Indents JSON without reading its values, so that large numbers, the order of names and repeated names stay as they are. It throws
 * what JSON.parse throws.
 */
export function indent(text: string): string {
  JSON.parse(text);
  let out = "", depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, depthMax))}`;
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (c === '"') {
      const from = i;
      for (i++; text[i] !== '"'; i++) if (text[i] === "\\") i++;
      out += text.slice(from, i + 1);
    } else if (c === "{" || c === "[") {
      const rest = text.slice(i + 1).match(/^\s*([}\]])/);
      if (rest) {
        out += c + rest[1];
        i += rest[0].length;
      } else {
        depth++;
        out += c + line();
      }
    } else if (c === "}" || c === "]") {
      depth--;
      out += line() + c;
    } else if (c === ",") out += c + line();
    else if (c === ":") out += ": ";
    else if (!/\s/.test(c)) out += c;
  }
  return out;
}

function hex(raw: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(raw.length, hexMax); at += 16) {
    const part = [...raw.slice(at, Math.min(at + 16, raw.length))];
    const codes = part.map((b) => b.toString(16).padStart(2, "0"));
    const left = codes.slice(0, 8).join(" ").padEnd(23), right = codes.slice(8).join(" ").padEnd(23);
    lines.push(`${at.toString(16).padStart(6, "0")}  ${left}  ${right}  ${part.map((b) => (b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : "·")).join("")}`);
  }
  if (raw.length > hexMax) lines.push(`… ${raw.length - hexMax} bytes more`);
  return lines.join("\n");
}

/** Gives a file to whoever looks. */
export function download(name: string, content: BlobPart, type = "application/json"): void {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(new Blob([content], { type }));
  a.download = name.replace(/[^\w.-]+/g, "_");
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10_000);
}
