// Publishing: to an exchange, or by the default exchange to a queue.
import { useEffect, useRef, useState } from "preact/hooks";
import { parseExact, path, post } from "./api";
import { changed, tell } from "./data";
import { count, plural } from "./format";
import { readObject } from "./pages/queues";
import type { Message } from "./types";
import { AreaField, Button, Check, Dialog, Notice, SelectField, TextField } from "./ui";

export interface Draft { exchange: string; key: string; payload: string; encoding: "string" | "base64"; properties: Record<string, unknown>; headers: Record<string, unknown> }

/** A message as one to publish: without the history that the broker writes. */
export function draftOf(m: Message): Draft {
  const { headers, ...properties } = m.properties;
  return {
    exchange: m.exchange, key: m.routing_key, payload: m.payload, encoding: m.payload_encoding, properties,
    headers: Object.fromEntries(Object.entries(headers ?? {}).filter(([k]) => !/^x-(death|first-death-|last-death-|opt-)/.test(k))),
  };
}

const lastKey = "warren.published";
const keptDrafts = 8;

function drafts(): Draft[] {
  try {
    return parseExact(sessionStorage.getItem(lastKey) ?? "[]") as Draft[];
  } catch {
    return [];
  }
}

function keep(d: Draft): void {
  if (d.payload.length > 20_000) return;
  const text = JSON.stringify(d);
  sessionStorage.setItem(lastKey, JSON.stringify([d, ...drafts().filter((x) => JSON.stringify(x) !== text)].slice(0, keptDrafts)));
}

export function PublishDialog({ vhost, draft, close, fixedExchange }: { vhost: string; draft: Partial<Draft>; close: () => void; fixedExchange?: boolean }) {
  const [exchange, setExchange] = useState(draft.exchange ?? "");
  const [key, setKey] = useState(draft.key ?? "");
  const [payload, setPayload] = useState(draft.payload ?? "");
  const [encoding, setEncoding] = useState<string>(draft.encoding ?? "string");
  const [type, setType] = useState(String(draft.properties?.["content_type"] ?? ""));
  const [persistent, setPersistent] = useState(draft.properties?.["delivery_mode"] !== 1);
  const [headers, setHeaders] = useState(draft.headers && Object.keys(draft.headers).length > 0 ? JSON.stringify(draft.headers, null, 2) : "");
  const rest = { ...(draft.properties ?? {}) };
  delete rest["content_type"];
  delete rest["delivery_mode"];
  const [more, setMore] = useState(Object.keys(rest).length > 0 ? JSON.stringify(rest, null, 2) : "");
  const [times, setTimes] = useState("1");
  const [busy, setBusy] = useState(false);
  const [result, setResult] = useState<{ tone: "ok" | "warn" | "bad"; text: string }>();
  const history = drafts();
  const closed = useRef(false);
  useEffect(() => () => { closed.current = true; }, []);
  const take = (d: Draft) => {
    if (!fixedExchange) setExchange(d.exchange);
    setKey(d.key); setPayload(d.payload); setEncoding(d.encoding); setType(String(d.properties["content_type"] ?? ""));
    setHeaders(Object.keys(d.headers).length > 0 ? JSON.stringify(d.headers, null, 2) : "");
  };
  const send = async () => {
    setBusy(true);
    setResult(undefined);
    let done = 0, unrouted = 0;
    try {
      const h = readObject(headers, "Headers");
      const properties: Record<string, unknown> = { ...readObject(more, "More properties"), delivery_mode: persistent ? 2 : 1 };
      if (type) properties["content_type"] = type;
      if (Object.keys(h).length > 0) properties["headers"] = h;
      const n = Math.min(1000, Math.max(1, Math.floor(Number(times)) || 1));
      for (; done < n && !closed.current; done++) {
        const r = await post<{ routed: boolean }>(`exchanges/${path(vhost, exchange || "amq.default")}/publish`, { properties, routing_key: key, payload, payload_encoding: encoding });
        if (!r.routed) unrouted++;
      }
      keep({ exchange, key, payload, encoding: encoding as Draft["encoding"], properties, headers: h });
      setResult(unrouted === 0 ? { tone: "ok", text: `${count(done)} confirmed: a majority of each queue's replicas has it on disk.` }
        : { tone: "warn", text: `${count(unrouted)} of ${count(done)} went to no queue: no binding of the exchange takes this key.` });
      if (done < n) tell(`The dialog was closed: ${plural(done, "message")} of ${count(n)} ${done === 1 ? "is" : "are"} published.`);
      changed();
    } catch (err) {
      if (closed.current) tell(`${done > 0 ? `${count(done)} confirmed, then: ` : ""}${err instanceof Error ? err.message : err}`, true);
      setResult({ tone: "bad", text: `${done > 0 ? `${count(done)} confirmed, then: ` : ""}${err instanceof Error ? err.message : err}` });
    }
    setBusy(false);
  };
  return (
    <Dialog title={fixedExchange ? `Publish to ${exchange || `queue ${key}`}` : "Publish a message"} close={close} wide>
      <form onSubmit={(e) => { e.preventDefault(); void send(); }}>
        <div class="dialog-body">
          <div class="form-row">
            {!fixedExchange && <TextField label="Exchange" hint="Empty: the default exchange, whose key is a queue's name" value={exchange} set={setExchange} mono />}
            <TextField label="Routing key" value={key} set={setKey} mono />
            <TextField label="Content type" value={type} set={setType} list={["application/json", "text/plain", "application/octet-stream"]} />
          </div>
          <AreaField label="Body" value={payload} set={setPayload} rows={6} />
          <div class="form-row">
            <SelectField label="Body is" value={encoding} set={setEncoding} options={[["string", "text"], ["base64", "base64 of bytes"]]} />
            <TextField label="Times" type="number" value={times} set={setTimes} hint="at most 1000" />
          </div>
          <div class="form-row">
            <AreaField label="Headers (JSON)" value={headers} set={setHeaders} rows={3} />
            <AreaField label="More properties (JSON)" value={more} set={setMore} rows={3} hint="message_id, correlation_id, reply_to, expiration, priority, type, app_id, timestamp" />
          </div>
          <Check label="persistent" value={persistent} set={setPersistent} />
          {history.length > 0 && <div class="chips" role="group" aria-label="Published before">{history.map((d, i) => <button key={i} type="button" class="chip" onClick={() => take(d)}>{`${d.exchange || "default"} · ${d.key || "(empty)"} · ${d.payload.slice(0, 24)}`}</button>)}</div>}
          {result && <Notice tone={result.tone}>{result.text}</Notice>}
        </div>
        <div class="dialog-foot"><Button onClick={close}>Close</Button><Button type="submit" tone="main" busy={busy}>Publish</Button></div>
      </form>
    </Dialog>
  );
}
