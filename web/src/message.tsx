// One message: body, properties, headers, and the history of its deaths.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { bytesOf, decode, download, type Decoded, type Form } from "./body";
import { ago, bytes, count, isTime, iso, nameOfExchange, plural, time, value } from "./format";
import { queueHref } from "./pages/queues";
import type { Death, Message, Properties, Table } from "./types";
import { Badge, Button, Facts, FieldsView, Notice } from "./ui";

/** What a reason of RabbitMQ's means. */
export const reasons: Record<string, string> = {
  rejected: "a consumer rejected it", expired: "its time to live was over", maxlen: "the queue was full", delivery_limit: "it came back too often", queue_removed: "the queue was deleted",
  redrive: "it was sent back", delayed: "its delay is over", transaction: "part of a transaction",
};

const historyHeaders = /^x-(death|first-death-.*|last-death-.*|opt-.*death.*)$/;

/** The headers that are not shown as history. */
function plainHeaders(p: Properties): Table {
  return Object.fromEntries(Object.entries(p.headers ?? {}).filter(([k]) => !historyHeaders.test(k)));
}

export function Reason({ reason }: { reason: string }) { return <Badge tone="dead" title={reasons[reason]}>{reason}</Badge>; }

export function BodyView({ message }: { message: Pick<Message, "payload" | "payload_encoding" | "payload_bytes" | "properties"> & { truncated?: boolean } }) {
  const [want, setWant] = useState<Form>();
  const [shown, set] = useState<Decoded>();
  useEffect(() => {
    let gone = false;
    void decode(message, want).then((d) => { if (!gone) set(d); });
    return () => { gone = true; };
  }, [message.payload, want]);
  const forms: [Form, string][] = [["json", "JSON"], ["text", "Text"], ["hex", "Hex"]];
  return (
    <div class="body-view">
      <div class="body-bar">
        <span>{bytes(message.payload_bytes)}{shown?.gzipped && ", gzip"}</span>
        <span class="segmented" role="group" aria-label="Show the body as">{forms.map(([f, name]) =>
          <button key={f} type="button" aria-pressed={shown?.form === f} onClick={() => setWant(f)}>{name}</button>)}</span>
      </div>
      {message.truncated && <Notice>Only the first part of the body is here: it is shown, and what is downloaded.</Notice>}
      {shown?.error && <Notice>{shown.error}</Notice>}
      <pre class="body" tabIndex={0} aria-label="Body">{shown ? shown.text || "(empty)" : ""}</pre>
    </div>
  );
}

/** A message that somebody sent back before; n is how often it has died since. */
export function Retried({ n }: { n: number }) {
  return <Badge title={n > 0 ? `sent back before, and died ${plural(n, "time")} since` : "sent back before, and has not died since"}>retried</Badge>;
}

/** The history of a message, oldest first, and where it is now. Of times that somebody sent it back the newest is known: between which deaths. */
export function Timeline({ deaths, vhost, here }: { deaths: Death[]; vhost: string; here?: ComponentChildren }) {
  const list = [...deaths].sort((a, b) => a.last_time - b.last_time);
  const before = (d: Death) => d.count_before_retry ?? 0;
  const after = list.findIndex((d) => d.count > before(d));
  const at = !list.some((d) => before(d) > 0) ? -1 : after < 0 ? list.length : after;
  const retry = <li key="retry" class="retry"><div class="what">Retried here: sent back {at < list.length ? "before it died again" : "and has not died since"}</div></li>;
  return (
    <ol class="timeline" aria-label="History">
      {list.map((d, i) => <>
        {i === at && retry}
        <li key={`${d.queue} ${d.reason}`}>
          <div class="when"><time dateTime={iso(d.last_time)}>{time(d.last_time)}</time><span class="muted">{ago(d.last_time)}</span></div>
          <div class="what">
            <div><Reason reason={d.reason} /> in <a class="mono" href={queueHref(vhost, d.queue)}>{d.queue}</a>{d.count > 1 && <> <Badge title={`first on ${time(d.first_time)}`}>{count(d.count)} times</Badge></>}
              {at === i && before(d) > 0 && <span class="muted"> {count(before(d))} before the retry</span>}</div>
            <div class="muted">{i === 0 ? "Published to " : "It had come by "}<span class="mono">{nameOfExchange(d.exchange)}</span>{(d.routing_keys ?? []).length > 0 && <> with key <span class="mono">{d.routing_keys!.join(", ")}</span></>}
              {d.original_expiration && <>; expiration was <span class="mono">{d.original_expiration}</span> ms</>}{d.count > 1 && <>; first {time(d.first_time)}</>}</div>
            {d.detail && <div>Said by the client: <q>{d.detail}</q></div>}
          </div>
        </li>
      </>)}
      {at === list.length && retry}
      {here && <li class="now"><div class="when">now</div><div class="what">{here}</div></li>}
    </ol>
  );
}

export function exportMessage(m: Message): void {
  download(`message-${m.id}.json`, JSON.stringify(m, null, 2));
}

export function MessageView({ message: m, vhost, queue, actions }: { message: Message; vhost: string; queue: string; actions?: ComponentChildren }) {
  const props = Object.entries(m.properties).filter(([k]) => k !== "headers");
  const facts: [string, ComponentChildren][] = [
    ["Exchange", <span class="mono">{nameOfExchange(m.exchange)}</span>],
    ["Routing key", <span class="mono">{(m.routing_keys ?? [m.routing_key]).join(", ") || "(empty)"}</span>],
    ...(m.retried ? [["Retried", m.deaths_since_retry ? `yes, and died ${plural(m.deaths_since_retry, "time")} since` : "yes, and has not died since"] as [string, ComponentChildren]] : []),
    ...(m.redelivered ? [["Redelivered", "yes"] as [string, ComponentChildren]] : []),
    ...(m.acquired_count ? [["Handed out", `${count(m.acquired_count)} times`] as [string, ComponentChildren]] : []),
    ...(m.delivery_count ? [["Failed deliveries", count(m.delivery_count)] as [string, ComponentChildren]] : []),
    ...(m.expires_at ? [["Expires", time(m.expires_at)] as [string, ComponentChildren]] : []),
    ...(m.node ? [["With a consumer at", <span class="mono">{m.node}</span>] as [string, ComponentChildren]] : []),
    ...(m.stage ? [["Stage", `${m.stage}${m.to && m.to.length > 0 ? `, for ${m.to.join(", ")}` : ""}`] as [string, ComponentChildren]] : []),
    ...props.map(([k, v]): [string, ComponentChildren] => [k, <span class="mono">{k === "timestamp" && typeof v === "number" && isTime(v * 1000) ? `${v} (${time(v * 1000)})` : value(v)}</span>]),
  ];
  const deaths: Death[] = m.reason && m.died_at && m.reason !== "redrive" ? [{ queue, reason: m.reason, count: 1, first_time: m.died_at, last_time: m.died_at, exchange: m.exchange, routing_keys: m.routing_keys, detail: m.detail }, ...m.deaths] : m.deaths;
  return (
    <div class="message">
      <div class="message-cols">
        <div>
          <h3>Body</h3>
          <BodyView message={m} />
        </div>
        <div>
          {deaths.length > 0 && <><h3>History</h3><Timeline deaths={deaths} vhost={vhost} here={<>{m.stage ? "on its way out of" : "in"} <a class="mono" href={queueHref(vhost, queue)}>{queue}</a></>} /></>}
          <h3>Properties</h3>
          <Facts rows={facts} />
          <h3>Headers</h3>
          <FieldsView of={plainHeaders(m.properties)} />
        </div>
      </div>
      <div class="message-foot">
        {actions}
        <Button tone="quiet" onClick={() => exportMessage(m)}>Download as JSON</Button>
        <Button tone="quiet" onClick={() => download(`message-${m.id}.bin`, bytesOf(m.payload, m.payload_encoding), "application/octet-stream")}>{m.truncated ? "Download the first part" : "Download the body"}</Button>
      </div>
    </div>
  );
}
