import { useState } from "preact/hooks";
import { parseExact, path, put, withQuery } from "../api";
import { remember, remembered, useApi } from "../data";
import { count, perSecond } from "../format";
import { Spark } from "../plot";
import { go, href } from "../route";
import { rate } from "../stats";
import type { Paged, Queue, Vhost } from "../types";
import { AreaField, Badge, Button, DataTable, Empty, Failure, FilterBar, FormDialog, Page, Pager, SelectField, State, TextField, useListing, type Column } from "../ui";

export function queueHref(vhost: string, name: string): string { return href(["queues", vhost, name]); }

/** The key of a queue's history. */
export function historyOf(q: { vhost: string; name: string }): string { return `queue ${path(q.vhost, q.name)}`; }

/** Whether anybody has told the queue's counts: without a leader they are 0 in the answer, and not known. */
export function counted(q: Queue): boolean { return q.state !== "minority" && q.state !== "down"; }

/** One of its counts. */
export function figure(q: Queue, n: number): string { return counted(q) ? count(n) : "–"; }

export function rememberQueue(q: Queue) { return remember(historyOf(q), [q.messages_ready, q.messages_unacknowledged, q.messages].map((n) => counted(q) ? n : null)); }

const columns: Column<Queue>[] = [
  { id: "name", title: "Queue", sort: "name", cell: (q) => <><a class="mono name" href={queueHref(q.vhost, q.name)}>{q.name}</a>{q.exclusive && <> <Badge>exclusive</Badge></>}{q.auto_delete && <> <Badge>auto-delete</Badge></>}{!q.durable && <> <Badge>in memory</Badge></>}</> },
  { id: "vhost", title: "Virtual host", sort: "vhost", cell: (q) => <span class="mono">{q.vhost}</span> },
  { id: "type", title: "Type", sort: "type", cell: (q) => q.type },
  { id: "state", title: "State", sort: "state", cell: (q) => <State state={q.state} /> },
  { id: "policy", title: "Policy", sort: "policy", cell: (q) => <>{q.policy ?? "–"}{q.operator_policy && <span class="muted"> + {q.operator_policy}</span>}</> },
  { id: "ready", title: "Ready", sort: "messages_ready", num: true, cell: (q) => figure(q, q.messages_ready) },
  { id: "unacked", title: "Unacked", sort: "messages_unacknowledged", num: true, cell: (q) => figure(q, q.messages_unacknowledged) },
  { id: "total", title: "Total", sort: "messages", num: true, cell: (q) => figure(q, q.messages) },
  { id: "trend", title: "Trend", cell: (q) => <Spark series={remembered(historyOf(q))} line={2} name="messages" color="--ready" /> },
  { id: "dlx", title: "Leaving", sort: "messages_dlx", num: true, cell: (q) => q.messages_dlx === 0 ? figure(q, 0) : <span class="dead-text">{count(q.messages_dlx)}</span> },
  { id: "in", title: "In", sort: "message_stats.publish_details.rate", num: true, cell: (q) => perSecond(rate(q.message_stats, "publish")) },
  { id: "out", title: "Out", sort: "message_stats.deliver_get_details.rate", num: true, cell: (q) => perSecond(rate(q.message_stats, "deliver_get")) },
  { id: "ack", title: "Ack", sort: "message_stats.ack_details.rate", num: true, extra: true, cell: (q) => perSecond(rate(q.message_stats, "ack")) },
  { id: "consumers", title: "Consumers", sort: "consumers", num: true, cell: (q) => figure(q, q.consumers) },
  { id: "leader", title: "Leader", sort: "leader", cell: (q) => <span class="mono">{q.leader || "–"}</span> },
  { id: "members", title: "Replicas", cell: (q) => { const m = q.members?.length ?? 0, o = q.online?.length ?? 0; return <span class={o < m ? "bad-text" : ""} title={(q.members ?? []).join(", ")}>{o === m ? m : `${o} of ${m}`}</span>; }, num: true },
  { id: "delayed", title: "Delayed", sort: "messages_delayed", num: true, extra: true, cell: (q) => figure(q, q.messages_delayed) },
  { id: "parked", title: "Parked", sort: "messages_parked", num: true, extra: true, cell: (q) => figure(q, q.messages_parked) },
];

export function Queues() {
  const listing = useListing("name");
  const [declaring, setDeclaring] = useState(false);
  const vhosts = useApi<Vhost[]>("vhosts", 60_000);
  const list = useApi<Paged<Queue>>(withQuery(listing.vhost ? `queues/${path(listing.vhost)}` : "queues", listing.params));
  const rows = list.data?.items ?? [];
  rows.forEach(rememberQueue);
  const several = (vhosts.data?.length ?? 0) > 1;
  return (
    <Page title="Queues" actions={<Button tone="main" onClick={() => setDeclaring(true)}>Declare a queue</Button>}>
      <FilterBar listing={listing} what="queues" vhosts={vhosts.data?.map((v) => v.name)} />
      <Failure error={list.error} />
      {list.data && (rows.length > 0
        ? <DataTable name="Queues" picker columns={several ? columns : columns.filter((c) => c.id !== "vhost")} rows={rows} id={(q) => path(q.vhost, q.name)} sorted={listing.order} />
        : <Empty>{listing.name ? "No queue has such a name." : <>No queues yet. Clients declare them, or you do, <button type="button" class="link" onClick={() => setDeclaring(true)}>here</button>.</>}</Empty>)}
      {list.data && <Pager of={list.data} what="queues" />}
      {declaring && <Declare vhosts={(vhosts.data ?? []).map((v) => v.name)} vhost={listing.vhost} close={() => setDeclaring(false)} />}
    </Page>
  );
}

/** Arguments that people set most, as lines that the dialog offers. */
const offered: [string, string][] = [
  ["x-dead-letter-exchange", '""'], ["x-dead-letter-routing-key", '"dead"'], ["x-dead-letter-strategy", '"at-least-once"'], ["x-message-ttl", "60000"], ["x-expires", "3600000"], ["x-max-length", "100000"],
  ["x-overflow", '"reject-publish"'], ["x-delivery-limit", "5"], ["x-delayed-retry-type", '"all"'], ["x-delayed-retry-min", "1000"], ["x-single-active-consumer", "true"], ["x-max-priority", "5"],
];

/** Reads a JSON object that somebody typed; the message of the error is for that one. */
export function readObject(text: string, what: string): Record<string, unknown> {
  if (text.trim() === "") return {};
  let v: unknown;
  try {
    v = parseExact(text);
  } catch (err) {
    throw new Error(`${what}: ${err instanceof Error ? err.message : err}`);
  }
  if (typeof v !== "object" || v === null || Array.isArray(v)) throw new Error(`${what} have to be a JSON object, like {"name": 1}`);
  return v as Record<string, unknown>;
}

function Declare({ vhosts, vhost, close }: { vhosts: string[]; vhost: string; close: () => void }) {
  const [at, setAt] = useState(vhost || (vhosts.includes("/") ? "/" : vhosts[0] ?? "/"));
  const [name, setName] = useState("");
  const [type, setType] = useState("quorum");
  const [args, setArgs] = useState("");
  const add = (key: string, v: string) => {
    try {
      setArgs(JSON.stringify({ ...readObject(args, "arguments"), [key]: JSON.parse(v) as unknown }, null, 2));
    } catch { /* the dialog says so when it is sent */ }
  };
  return (
    <FormDialog title="Declare a queue" submit="Declare" close={close} done={`Queue ${name} is declared.`} act={async () => {
      await put(`queues/${path(at, name)}`, { durable: true, auto_delete: false, arguments: { "x-queue-type": type, ...readObject(args, "Arguments") } });
      go(["queues", at, name]);
    }}>
      {vhosts.length > 1 && <SelectField label="Virtual host" value={at} set={setAt} options={vhosts} />}
      <TextField label="Name" value={name} set={setName} required autoFocus mono />
      <SelectField label="Type" value={type} set={setType} options={[["quorum", "quorum (replicated)"], ["classic", "classic (replicated here, too)"]]} />
      <AreaField label="Arguments (JSON)" value={args} set={setArgs} rows={5} />
      <div class="chips" role="group" aria-label="Add an argument">{offered.map(([k, v]) => <button key={k} type="button" class="chip" onClick={() => add(k, v)}>{k}</button>)}</div>
    </FormDialog>
  );
}
