// The cluster's inside: who leads what, who lags, and moving it.
import { useState } from "preact/hooks";
import { path, post, withQuery } from "../api";
import { tell, useAction, useApi } from "../data";
import { count, plural } from "../format";
import { useMe } from "../me";
import { here, useRoute } from "../route";
import type { ClusterInfo, Node, Paged, Queue, Vhost } from "../types";
import { Badge, Button, DataTable, Empty, Facts, Failure, FilterBar, Notice, Page, Pager, Section, State, useListing } from "../ui";
import { Replicas } from "./queue";
import { queueHref } from "./queues";

export function Raft() {
  const me = useMe();
  const route = useRoute();
  const listing = useListing("name", false, 25);
  const info = useApi<ClusterInfo>(me.monitors ? "warren/cluster" : null);
  const nodes = useApi<Node[]>(me.monitors ? "nodes" : null);
  const vhosts = useApi<Vhost[]>("vhosts", 60_000);
  const list = useApi<Paged<Queue>>(withQuery(listing.vhost ? `queues/${path(listing.vhost)}` : "queues", listing.params));
  const balance = useAction();
  const [shares, setShares] = useState<{ moved: number; nodes: { node: string; queues: number }[] }>();
  const open = route.query.get("queue") ?? "";
  return (
    <Page title="Raft" sub="Every durable queue is a Raft group of its own; the catalog of what exists is one more."
      actions={me.admin && <Button busy={balance.busy} onClick={() => void balance.run(async () => {
        const b = await post<{ moved: number; nodes: { node: string; queues: number }[] }>("rebalance/queues");
        setShares(b);
        tell(`${plural(b.moved, "queue")} will be led by another node.`);
      })}>Balance the leaders</Button>}>
      {balance.error && <Notice tone="bad">{balance.error}</Notice>}
      {shares && <Notice tone="ok">{plural(shares.moved, "leader")} moved; each node shall lead: {shares.nodes.map((n) => `${n.node} ${count(n.queues)}`).join(", ")}.</Notice>}
      {info.data && <Section title="The catalog"><Facts rows={[
        ["Leader", info.data.catalog_leader ? <span class="mono">{info.data.catalog_leader}</span> : <span class="bad-text">none: nothing can be declared or deleted</span>],
        ["Voters", <span class="mono">{info.data.catalog_voters.join(", ")}</span>],
        ["Nodes", (nodes.data ?? []).map((n, i) => <span key={n.name}>{i > 0 && ", "}<span class={n.running ? "mono" : "mono bad-text"}>{n.name}</span> with {plural(n.warren_replicas, "replica")}</span>)],
      ]} /></Section>}
      <Section title="Queues">
        <FilterBar listing={listing} what="queues" vhosts={vhosts.data?.map((v) => v.name)} />
        <Failure error={list.error} />
        {list.data && (list.data.items.length > 0 ? <DataTable name="Groups" rows={list.data.items} id={(q) => path(q.vhost, q.name)} sorted={listing.order} columns={[
          { id: "name", title: "Queue", sort: "name", cell: (q) => <a class="mono" href={queueHref(q.vhost, q.name)}>{q.name}</a> },
          { id: "state", title: "State", sort: "state", cell: (q) => <State state={q.state} /> },
          { id: "leader", title: "Leader", sort: "leader", cell: (q) => <span class="mono">{q.leader || "–"}</span> },
          { id: "members", title: "Members", cell: (q) => (q.members ?? []).map((m) => <span key={m} class="member"><Badge tone={m === q.leader ? "ok" : (q.online ?? []).includes(m) ? "plain" : "bad"} title={m === q.leader ? "leads" : (q.online ?? []).includes(m) ? "follows" : "does not answer"}>{m}</Badge> </span>) },
          { id: "show", title: "Logs", cell: (q) => { const k = path(q.vhost, q.name); return <a href={here(route, { queue: open === k ? undefined : k })} aria-expanded={open === k}>{open === k ? "Hide" : "Show"}</a>; } },
        ]} /> : <Empty>No queue has such a name.</Empty>)}
        {list.data && <Pager of={list.data} what="queues" />}
      </Section>
      {list.data?.items.filter((q) => path(q.vhost, q.name) === open).map((q) => <div key={open} class="card"><div class="card-head"><b class="mono">{q.name}</b></div><Replicas vhost={q.vhost} name={q.name} /></div>)}
    </Page>
  );
}
