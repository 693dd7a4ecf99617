import { useState } from "preact/hooks";
import { del, path, post, put, withQuery } from "../api";
import { remember, useApi, useAction } from "../data";
import { bytes, count, nameOfExchange, perSecond, value } from "../format";
import { useMe } from "../me";
import { Plot } from "../plot";
import { PublishDialog } from "../publish";
import { go, href, useRoute } from "../route";
import { lengthSeries, rate, rateSeries, samplesQuery } from "../stats";
import { inEffect } from "../effect";
import type { Binding, Consumer, Queue, ReplicaRow } from "../types";
import { Badge, Button, ConfirmDialog, DataTable, Empty, Failure, Figure, Figures, FormDialog, Notice, Page, Section, SelectField, SortedTable, State, Tabs, type Column } from "../ui";
import { Messages } from "./messages";
import { counted, figure, rememberQueue } from "./queues";

type Open = "publish" | "purge" | "delete" | undefined;

export function QueuePage({ vhost, name }: { vhost: string; name: string }) {
  const tab = useRoute().query.get("tab") ?? "state";
  const at = path(vhost, name);
  const queue = useApi<Queue>(withQuery(`queues/${at}`, samplesQuery), 3000);
  const [open, setOpen] = useState<Open>();
  const q = queue.data;
  const close = () => setOpen(undefined);
  const pausing = useAction();
  const pause = (verb: "pause" | "resume") => void pausing.run(async () => { await put(`queues/${at}/${verb}`, {}); queue.reload(); }, `Queue ${name} is ${verb === "pause" ? "paused" : "resumed"}.`);
  return (
    <Page
      title={<span class="mono">{name}</span>}
      sub={q && <>{q.type} queue in <span class="mono">{vhost}</span> <State state={q.state} />{q.exclusive && <> <Badge>exclusive</Badge></>}{q.auto_delete && <> <Badge>auto-delete</Badge></>}{!q.durable && <> <Badge>in memory</Badge></>}</>}
      actions={q && <>
        <Button tone="main" onClick={() => setOpen("publish")}>Publish</Button>
        {(q.messages_transferred > 0 || q.messages_dlx > 0) && <a class="button dead" href={href(["dead-letters", vhost, name])}>Dead letters</a>}
        {q.state === "paused" ? <Button busy={pausing.busy} onClick={() => pause("resume")}>Resume</Button> : q.state === "running" && <Button busy={pausing.busy} onClick={() => pause("pause")}>Pause</Button>}
        <Button onClick={() => setOpen("purge")}>Purge</Button>
        <Button onClick={() => setOpen("delete")}>Delete</Button>
      </>}>
      {queue.error?.absent ? <Empty>There is no such queue. <a href="#/queues">All queues</a></Empty> : <Failure error={queue.error} />}
      {pausing.error && <Notice tone="bad">{pausing.error}</Notice>}
      {q && q.state === "paused" && <Notice tone="warn">The queue is paused: it takes messages and gives none to consumers until it is resumed.</Notice>}
      {q && q.state === "minority" && <Notice tone="warn">Too few replicas answer: the queue takes and gives nothing until a majority of {q.members?.length} is back. Nothing confirmed is lost. Counts are not known.</Notice>}
      {q && q.state === "down" && <Notice tone="bad">No replica of the queue answers as its leader. Counts are not known.</Notice>}
      {q && <>
        <Tabs at={tab} tabs={[["state", "State"], ["messages", "Messages"], ["consumers", "Consumers"], ["bindings", "Bindings"], ["settings", "Settings"], ["replicas", "Replicas"]]} />
        {tab === "state" && <QueueState q={q} />}
        {tab === "messages" && <Messages vhost={vhost} name={name} />}
        {tab === "consumers" && <Consumers q={q} />}
        {tab === "bindings" && <Bindings vhost={vhost} name={name} />}
        {tab === "settings" && <Settings q={q} />}
        {tab === "replicas" && <Replicas vhost={vhost} name={name} />}
      </>}
      {open === "publish" && <PublishDialog vhost={vhost} draft={{ exchange: "", key: name }} fixedExchange close={close} />}
      {open === "purge" && q && <FormDialog title={`Purge ${name}?`} submit="Purge" tone="danger" close={close} act={() => del(`queues/${at}/contents`)} done={`Queue ${name} is purged.`}>
        <p>{counted(q) ? `The ${count(q.messages_ready)} ready messages` : "The ready messages, whose number is not known,"} are removed for good. Those that consumers hold, and those on their way to a dead-letter target, stay.</p>
      </FormDialog>}
      {open === "delete" && q && <ConfirmDialog title={`Delete ${name}?`} name={name} submit="Delete" close={close} done={`Queue ${name} is deleted.`} act={async () => { await del(`queues/${at}`); go(["queues"]); }}>
        <p>The queue goes on all nodes, {counted(q) ? `with its ${count(q.messages)} messages, its bindings and ${count(q.consumers)} consumers` : "with all its messages, whose number is not known, and its bindings"}.{q.messages_dlx > 0 && ` ${count(q.messages_dlx)} dead letters are delivered first.`}</p>
      </ConfirmDialog>}
    </Page>
  );
}

function QueueState({ q }: { q: Queue }) {
  const own = rememberQueue(q);
  const series = lengthSeries([q.messages_ready_details, q.messages_unacknowledged_details, q.messages_details], [q.messages_ready, q.messages_unacknowledged, q.messages]) ?? own;
  const rates = rateSeries(q.message_stats, ["publish", "deliver_get", "ack"]) ?? remember(`rates ${path(q.vhost, q.name)}`, ["publish", "deliver_get", "ack"].map((n) => rate(q.message_stats, n) ?? 0));
  const s = q.message_stats;
  return (
    <>
      <Figures>
        <Figure name="Ready" tone="ready">{figure(q, q.messages_ready)}</Figure>
        <Figure name="Unacked" tone="unacked">{figure(q, q.messages_unacknowledged)}</Figure>
        {q.messages_delayed > 0 && <Figure name="Delayed" title="came back, and wait before the next try">{count(q.messages_delayed)}</Figure>}
        <Figure name="Total">{figure(q, q.messages)}</Figure>
        <Figure name="Leaving" tone="dead" title="dead letters on their way to their targets">{figure(q, q.messages_dlx)}</Figure>
        {q.messages_parked > 0 && <Figure name="Parked" tone="dead" title="dead letters without a target">{count(q.messages_parked)}</Figure>}
        <Figure name="Consumers">{figure(q, q.consumers)}</Figure>
        <Figure name="In">{perSecond(rate(s, "publish"))}</Figure>
        <Figure name="Out">{perSecond(rate(s, "deliver_get"))}</Figure>
        <Figure name="Acked">{perSecond(rate(s, "ack"))}</Figure>
        {q.message_bytes !== undefined && <Figure name="Bodies">{bytes(q.message_bytes)}</Figure>}
        <Figure name="Arrived dead" title="dead letters that other queues have ever sent here">{figure(q, q.messages_transferred)}</Figure>
      </Figures>
      <div class="plots">
        <Plot title="Messages" series={series} lines={[{ name: "ready", color: "--ready" }, { name: "unacked", color: "--unacked" }, { name: "total", color: "--muted" }]} />
        <Plot title="Messages a second" unit="/s" series={rates} lines={[{ name: "in", color: "--accent" }, { name: "out", color: "--ready" }, { name: "ack", color: "--ok" }]} />
      </div>
      <Section title="Where it is">
        <p>Led by <b class="mono">{q.leader || "nobody"}</b>; replicas on {(q.members ?? []).map((m, i) => <span key={m}>{i > 0 && ", "}<span class={(q.online ?? []).includes(m) ? "mono" : "mono bad-text"}>{m}</span></span>)}.</p>
      </Section>
    </>
  );
}

const consumerColumns: Column<Consumer>[] = [
  { id: "tag", title: "Consumer tag", cell: (c) => <span class="mono">{c.consumer_tag}</span> },
  { id: "channel", title: "Channel", cell: (c) => <span class="mono">{c.channel_details.name ?? "–"}</span> },
  { id: "state", title: "State", cell: (c) => c.active ? <Badge tone="ok">active</Badge> : <Badge>{c.activity_status || "waiting"}</Badge> },
  { id: "prefetch", title: "Prefetch", num: true, cell: (c) => (c.prefetch_count === 0 ? "no limit" : count(c.prefetch_count)) },
  { id: "ack", title: "Acknowledges", cell: (c) => (c.ack_required ? "yes" : "no") },
  { id: "exclusive", title: "Exclusive", cell: (c) => (c.exclusive ? "yes" : "no") },
];

function Consumers({ q }: { q: Queue }) {
  if (q.consumers === 0) return <Empty>No consumers.</Empty>;
  if (!q.consumer_details) return <Empty>{count(q.consumers)} consumers.</Empty>;
  return <DataTable name="Consumers" columns={consumerColumns} rows={q.consumer_details} id={(c) => path(c.channel_details.name ?? "", c.consumer_tag)} />;
}

function Bindings({ vhost, name }: { vhost: string; name: string }) {
  const list = useApi<Binding[]>(`queues/${path(vhost, name)}/bindings`);
  return (
    <>
      <Failure error={list.error} />
      {list.data && <SortedTable name="Bindings" start="source" rows={list.data} id={(b) => path(b.source, b.properties_key)} columns={[
        { id: "source", title: "From exchange", by: (b) => b.source, cell: (b) => b.source === "" ? <span class="muted">(default)</span> : <a class="mono" href={href(["exchanges", vhost, b.source])}>{nameOfExchange(b.source)}</a> },
        { id: "key", title: "Routing key", by: (b) => b.routing_key, cell: (b) => <span class="mono">{b.routing_key || "(empty)"}</span> },
        { id: "arguments", title: "Arguments", cell: (b) => Object.keys(b.arguments).length === 0 ? "–" : <span class="mono">{value(b.arguments)}</span> },
      ]} />}
    </>
  );
}

function Settings({ q }: { q: Queue }) {
  const rows = inEffect(q);
  const names = [q.policy, q.operator_policy].filter((p) => p).join(" + ");
  return (
    <Section title="Arguments and policies" note={names ? `policies: ${names}` : "no policy applies"}>
      {rows.length === 0 ? <Empty>Declared without arguments, and no policy sets anything.</Empty>
        : <DataTable name="Settings" rows={rows} id={(r) => r.key} columns={[
          { id: "key", title: "Setting", cell: (r) => <span class="mono">{r.key}</span> },
          { id: "argument", title: "Argument", cell: (r) => r.argument === undefined ? "–" : <span class={r.from === "policy" ? "mono struck" : "mono"}>{value(r.argument)}</span> },
          { id: "policy", title: "Policies say", cell: (r) => r.policy === undefined ? "–" : <span class={r.from === "argument" ? "mono struck" : "mono"}>{value(r.policy)}</span> },
          { id: "effect", title: "In effect", cell: (r) => <b class="mono">{value(r.effective)}</b> },
        ]} />}
    </Section>
  );
}

const states: Record<string, string> = { leader: "leader", follower: "follower", candidate: "asks for votes", nodedown: "node is down", noproc: "no replica there", timeout: "does not answer" };

export function Replicas({ vhost, name }: { vhost: string; name: string }) {
  const me = useMe();
  const list = useApi<ReplicaRow[]>(`queues/quorum/${path(vhost, name)}/status`, 3000);
  const nodes = useApi<{ name: string }[]>(me.admin ? "nodes" : null, 30_000);
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<string>();
  const move = useAction();
  const at = path(vhost, name);
  const others = (nodes.data ?? []).map((n) => n.name).filter((n) => !(list.data ?? []).some((r) => r["Node Name"] === n));
  return (
    <Section title="Replicas" note="each is a member of the queue's Raft group" actions={me.admin && others.length > 0 && <Button onClick={() => setAdding(true)}>Add a member</Button>}>
      {list.error?.status === 400 ? <Empty>{list.error.message}</Empty> : <Failure error={list.error} />}
      {move.error && <Notice tone="bad">{move.error}</Notice>}
      {list.data && <DataTable name="Replicas" rows={list.data} id={(r) => r["Node Name"]} columns={[
        { id: "node", title: "Node", cell: (r) => <span class="mono">{r["Node Name"]}</span> },
        { id: "state", title: "Raft state", cell: (r) => { const s = r["Raft State"]; return <Badge tone={s === "leader" ? "ok" : s === "follower" ? "plain" : "warn"}>{states[s] ?? s}</Badge>; } },
        { id: "member", title: "Membership", cell: (r) => <>{r.Membership || "–"}{r.Planned !== "stays" && <> <Badge tone="warn">{r.Planned}</Badge></>}</> },
        { id: "lag", title: "Lag", num: true, cell: (r) => <span class={Number(r.Lag) > 1000 ? "bad-text" : ""} title="entries that the leader has and this one has not">{r.Lag === "" ? "–" : count(r.Lag)}</span> },
        { id: "term", title: "Term", num: true, cell: (r) => index(r.Term) }, { id: "commit", title: "Committed", num: true, cell: (r) => index(r["Commit Index"]) },
        { id: "applied", title: "Applied", num: true, cell: (r) => index(r["Last Applied"]) }, { id: "last", title: "Last entry", num: true, cell: (r) => index(r["Last Log Index"]) },
        { id: "election", title: "Elected", cell: (r) => r.Election ?? "–" },
        { id: "snapshot", title: "Snapshot", num: true, cell: (r) => index(r["Snapshot Index"]) },
        ...(me.admin ? [{ id: "actions", title: "Change", cell: (r: ReplicaRow) => <span class="row-actions">
          {r["Raft State"] === "follower" && <Button tone="quiet" busy={move.busy} onClick={() => void move.run(() => put(`warren/queues/${at}/leader`, { node: r["Node Name"] }), `${r["Node Name"]} leads ${name}, or will in a moment.`)}>Make leader</Button>}
          {(list.data?.length ?? 0) > 1 && <Button tone="quiet" onClick={() => setRemoving(r["Node Name"])}>Remove</Button>}
        </span> }] : []),
      ]} />}
      {adding && <AddMember at={at} name={name} nodes={others} close={() => setAdding(false)} />}
      {removing && <ConfirmDialog title={`Remove the replica on ${removing}?`} name={removing} submit="Remove" close={() => setRemoving(undefined)} act={() => del(`queues/quorum/${at}/replicas/delete?for=5`, { node: removing })} done={`The replica of ${name} on ${removing} goes.`}>
        <p>The queue {name} will have {(list.data?.length ?? 1) - 1} replicas, and bears the loss of {Math.ceil(((list.data?.length ?? 1) - 1) / 2) - 1} of them.</p>
      </ConfirmDialog>}
    </Section>
  );
}

function index(n: number | ""): string { return n === "" ? "–" : count(n); }

function AddMember({ at, name, nodes, close }: { at: string; name: string; nodes: string[]; close: () => void }) {
  const [node, set] = useState(nodes[0] ?? "");
  return (
    <FormDialog title="Add a replica" submit="Add" close={close} act={() => post(`queues/quorum/${at}/replicas/add?for=5`, { node })} done={`${name} gets a replica on ${node}.`}>
      <SelectField label="Node" value={node} set={set} options={nodes} hint="It copies the log from the leader and votes when it has caught up." />
    </FormDialog>
  );
}
