import { useMemo } from "preact/hooks";
import { withQuery } from "../api";
import { remember, useApi } from "../data";
import { bytes, count, perSecond, span, time } from "../format";
import { useLive } from "../live";
import { useMe } from "../me";
import { Plot } from "../plot";
import { continued, lengthSeries, rate, rateSeries, samplesQuery } from "../stats";
import type { ClusterInfo, Node, OutboxStatus, Overview as OverviewData } from "../types";
import { Badge, DataTable, Empty, Failure, Figure, Figures, Meter, Notice, Page, Section, type Column } from "../ui";

export function Overview() {
  const me = useMe();
  const live = useLive();
  // The stream tells what is new; samples for the plots are asked for seldom then.
  const overview = useApi<OverviewData>(withQuery("overview", samplesQuery), live.connected ? 60_000 : 5000);
  const nodes = useApi<Node[]>(me.monitors ? "nodes" : null);
  const info = useApi<ClusterInfo>(me.monitors ? "warren/cluster" : null, 30_000);
  const outboxes = useApi<OutboxStatus[]>("warren/outboxes", 10_000);
  const o = live.overview ?? overview.data;
  const rates = ["publish", "deliver_get", "ack", "redeliver"].map((n) => rate(o?.message_stats, n));
  const totals = [o?.queue_totals.messages_ready, o?.queue_totals.messages_unacknowledged];
  const details = (name: string) => { const d = overview.data?.queue_totals[`${name}_details`]; return typeof d === "object" ? d : undefined; };
  const seenRates = o ? remember("overview.rates", rates.map((r) => r ?? 0)) : undefined, seenTotals = o ? remember("overview.totals", totals) : undefined;
  // Built anew only when the samples are: else they would end at each redrawing.
  const pastRates = useMemo(() => rateSeries(overview.data?.message_stats, ["publish", "deliver_get", "ack", "redeliver"]), [overview.data]);
  const pastTotals = useMemo(() => lengthSeries([details("messages_ready"), details("messages_unacknowledged")], [overview.data?.queue_totals.messages_ready, overview.data?.queue_totals.messages_unacknowledged]), [overview.data]);
  const ratePlot = continued(pastRates, seenRates), totalPlot = continued(pastTotals, seenTotals);
  return (
    <Page title="Overview" sub={o && <>Warren {o.product_version}{info.data && <>, cluster level {info.data.level}; the catalog is led by <b>{info.data.catalog_leader || "nobody"}</b></>}</>}>
      <Failure error={overview.error} />
      <Alarms nodes={nodes.data} old={(nodes.error ?? overview.error) !== undefined} outboxes={outboxes.data} info={info.data} uncounted={Number(o?.queue_totals["warren_queues_uncounted"] ?? 0)} />
      {o && <>
        <Figures>
          <Figure name="Ready" tone="ready">{count(o.queue_totals.messages_ready ?? 0)}</Figure>
          <Figure name="Unacked" tone="unacked">{count(o.queue_totals.messages_unacknowledged ?? 0)}</Figure>
          <Figure name="Publish">{perSecond(rates[0] ?? 0)}</Figure>
          <Figure name="Deliver" title="delivered to consumers, or fetched">{perSecond(rates[1] ?? 0)}</Figure>
          <Figure name="Ack">{perSecond(rates[2] ?? 0)}</Figure>
          <Figure name="Queues"><a href="#/queues">{count(o.object_totals.queues)}</a></Figure>
          <Figure name="Consumers">{count(o.object_totals.consumers)}</Figure>
          <Figure name="Connections">{count(o.object_totals.connections)}</Figure>
          <Figure name="Channels">{count(o.object_totals.channels)}</Figure>
        </Figures>
        <div class="plots">
          <Plot title="Messages in queues" series={totalPlot} lines={[{ name: "ready", color: "--ready" }, { name: "unacked", color: "--unacked" }]} />
          <Plot title="Messages a second" unit="/s" series={ratePlot} lines={[{ name: "publish", color: "--accent" }, { name: "deliver, get", color: "--ready" }, { name: "ack", color: "--ok" }, { name: "redeliver", color: "--dead" }]} />
        </div>
      </>}
      {nodes.data && <Section title="Nodes"><Nodes nodes={nodes.data} leader={info.data?.catalog_leader ?? ""} /></Section>}
      {o?.churn_rates && <Section title="Coming and going" note="per second, since the last sample"><Churn stats={o.churn_rates} /></Section>}
      {nodes.data && <Section title="Listeners"><Listeners nodes={nodes.data} /></Section>}
    </Page>
  );
}

/** What is wrong, in sentences that say what follows from it. */
function Alarms({ nodes, old, outboxes, info, uncounted }: { nodes: Node[] | undefined; old: boolean; outboxes: OutboxStatus[] | undefined; info: ClusterInfo | undefined; uncounted: number }) {
  const list: { tone: "bad" | "warn" | "dead"; text: preact.ComponentChildren; key: string }[] = [];
  for (const n of nodes ?? []) {
    if (!n.running) {
      list.push({ key: `${n.name}-down`, tone: "bad", text: <><b>{n.name}</b> does not answer{n.warren_down_since ? ` since ${time(n.warren_down_since)}` : ""}. Queues with a majority of replicas elsewhere go on; those without wait for it.</> });
      continue;
    }
    if (n.mem_alarm) list.push({ key: `${n.name}-mem`, tone: "bad", text: <><b>{n.name}</b> is short of memory ({bytes(n.mem_used)} of {bytes(n.mem_limit)}). Connections that publish are held up in the whole cluster until consumers have caught up.</> });
    if (n.disk_free_alarm) list.push({ key: `${n.name}-disk`, tone: "bad", text: <><b>{n.name}</b> is short of disk space ({bytes(n.disk_free)} free, the limit is {bytes(n.disk_free_limit)}). Connections that publish are held up in the whole cluster until there is room.</> });
    if (n.being_drained) list.push({ key: `${n.name}-drain`, tone: "warn", text: <><b>{n.name}</b> is under maintenance: it leads no queues and takes no clients.</> });
    if (n.warren_state === "leaving") list.push({ key: `${n.name}-leave`, tone: "warn", text: <><b>{n.name}</b> is leaving the cluster: {count(n.warren_replicas)} replicas are still to be moved.</> });
  }
  if (info && !info.catalog_leader) list.push({ key: "catalog", tone: "bad", text: "The catalog has no leader: nothing can be declared or deleted. Queues that have a leader go on." });
  if (uncounted > 0) list.push({ key: "uncounted", tone: "bad", text: <>{uncounted === 1 ? <b>One queue has</b> : <b>{count(uncounted)} queues have</b>} no leader that answers: the messages in {uncounted === 1 ? "it" : "them"} are in no figure here. <a href="#/queues">See which</a></> });
  const stuck = (outboxes ?? []).filter((o) => o.oldest_age_ms > 60_000);
  if (stuck.length > 0) list.push({ key: "stuck", tone: "dead", text: <>Dead letters of {stuck.length === 1 ? <b>{stuck[0]!.queue || stuck[0]!.delay_of}</b> : <b>{stuck.length} queues</b>} have waited for more than a minute to get to their target. <a href="#/dead-letters">See why</a></> });
  if (nodes === undefined || (old && list.length === 0)) return null; // of what is old nothing says that all is well
  if (list.length === 0) return <Notice tone="ok">No alarms: every node answers, with room in memory and on disk.</Notice>;
  return <ul class="alarms" aria-label="Alarms">{list.map((a) => <li key={a.key}><Notice tone={a.tone}>{a.text}</Notice></li>)}</ul>;
}

function Nodes({ nodes, leader }: { nodes: Node[]; leader: string }) {
  const columns: Column<Node>[] = [
    { id: "name", title: "Node", cell: (n) => <span class="mono">{n.name}</span> },
    { id: "state", title: "State", cell: (n) => <>{n.running ? <Badge tone="ok">running</Badge> : <Badge tone="bad">down</Badge>}{n.warren_state !== "regular" && <> <Badge tone="warn">{n.warren_state}</Badge></>}</> },
    { id: "role", title: "Catalog", cell: (n) => (n.name === leader ? "leader" : n.warren_voter ? "voter" : "–") },
    { id: "replicas", title: "Replicas", num: true, cell: (n) => count(n.warren_replicas) },
    { id: "mem", title: "Memory", cell: (n) => n.mem_used === undefined ? "–" : <span class="metered"><Meter name={`memory of ${n.name}`} value={n.mem_used} max={n.mem_limit ?? 0} bad={n.mem_alarm} /> {bytes(n.mem_used)}</span> },
    { id: "disk", title: "Disk free", cell: (n) => n.disk_free === undefined ? "–" : <span class={n.disk_free_alarm ? "bad-text" : ""}>{bytes(n.disk_free)}</span> },
    { id: "fd", title: "Files", cell: (n) => n.fd_used === undefined ? "–" : <span class="metered"><Meter name={`file descriptors of ${n.name}`} value={n.fd_used} max={n.fd_total ?? 0} /> {count(n.fd_used)}</span> },
    { id: "up", title: "Up for", num: true, cell: (n) => (n.uptime === undefined ? "–" : span(n.uptime)) },
    { id: "zone", title: "Zone", cell: (n) => n.warren_zone || "–" },
    { id: "version", title: "Version", cell: (n) => n.warren_version || "–" },
  ];
  return <DataTable name="Nodes" columns={columns} rows={nodes} id={(n) => n.name} />;
}

const churnNames: [string, string][] = [["connection_created", "Connections opened"], ["connection_closed", "Connections closed"], ["channel_created", "Channels opened"], ["channel_closed", "Channels closed"],
  ["queue_declared", "Queues declared"], ["queue_created", "Queues created"], ["queue_deleted", "Queues deleted"]];

function Churn({ stats }: { stats: NonNullable<OverviewData["churn_rates"]> }) {
  return <Figures>{churnNames.filter(([k]) => stats[k] !== undefined).map(([k, name]) => <Figure key={k} name={name} title={`${count(stats[k] as number)} in all`}>{perSecond(rate(stats, k) ?? 0)}</Figure>)}</Figures>;
}

function Listeners({ nodes }: { nodes: Node[] }) {
  const list = nodes.flatMap((n) => (n.warren_listeners ?? []).map((l) => ({ ...l, node: n.name })));
  if (list.length === 0) return <Empty>No node has told its listeners.</Empty>;
  return <DataTable name="Listeners" id={(l) => `${l.node} ${l.protocol} ${l.port}`} rows={list} columns={[
    { id: "protocol", title: "Protocol", cell: (l) => l.protocol }, { id: "node", title: "Node", cell: (l) => <span class="mono">{l.node}</span> },
    { id: "address", title: "Address", cell: (l) => <span class="mono">{l.ip_address}:{l.port}</span> }, { id: "purpose", title: "For", cell: (l) => l.purpose || "–" },
  ]} />;
}
